"""A robot model and another's contract as a task: each number told and each target is what the contract says."""

from dataclasses import replace

import mujoco
import numpy as np
import pytest

from surefoot import tasks
from surefoot.contract import Contract
from surefoot.errors import SurefootError
from surefoot.tasks.from_contract import differences, motors, task_of
from surefoot.tasks.ready.walk import JOINTS, KP, STAND, xml

TERMS = ("base_lin_vel", "base_ang_vel", "projected_gravity", "joint_pos", "joint_vel", "last_action", "command")
SHORT = {
    "joints": list(JOINTS), "home": STAND.tolist(), "observation": list(TERMS), "rate": 50, "action_scale": 0.5,
    "frame": "imu", "commands": {"vx": [0.5, 0.5]},
}  # fmt: skip


def contract(**change):
    return Contract.from_json(SHORT | change)


def written(path, joint_sensors):
    """The quadruped of `walk`, as a file; its IMU moved off the middle and turned."""
    text = xml().replace('<site name="imu"/>', '<site name="imu" pos=".1 .02 .03" euler=".3 .2 .1"/>')
    sensors = "".join(f'<joint{k} name="joint_{k}/{j}" joint="{j}"/>' for k in ("pos", "vel") for j in JOINTS)
    assert "euler" in text
    path.write_text(text.replace("</mujoco>", f"<sensor>{sensors}</sensor></mujoco>") if joint_sensors else text)
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return written(tmp_path_factory.mktemp("model") / "quadruped.xml", False)


def stirred(task, steps=25, seed=3):
    """The state after some random actions, and what the actor is told in it."""
    env = tasks.env(task, 2, seed=seed)
    rng, obs = np.random.default_rng(0), env.reset(seed)
    for _ in range(steps):
        action = rng.uniform(-0.5, 0.5, (2, 12))
        obs = env.step(action).obs
    return env, action, obs["actor"]


def test_what_is_told_is_what_the_engine_says_in_the_frame_of_the_site(model):
    """By another route: plain MuJoCo at the same state, its rotation matrices and point velocities."""
    task, robot = task_of(model, contract())
    env, action, obs = stirred(task)
    m, d = env.world.model, mujoco.MjData(env.world.model)
    site = m.site("imu").id
    for i in range(2):
        d.qpos[:], d.qvel[:] = env.world.state.q[i], env.world.state.v[i]
        mujoco.mj_forward(m, d)
        R, spin = d.site_xmat[site].reshape(3, 3), np.zeros(6)
        mujoco.mj_objectVelocity(m, d, mujoco.mjtObj.mjOBJ_SITE, site, spin, 1)
        # a sensor's reading is that of the step's beginning, one engine step before the state
        assert np.allclose(obs[i, 0:3], spin[3:], atol=0.3) and np.allclose(obs[i, 3:6], spin[:3], atol=1.0)
        assert np.allclose(obs[i, 6:9], R.T @ [0, 0, -1], atol=0.02)
        assert np.allclose(obs[i, 9:21], d.qpos[7:] - STAND, atol=1e-6)
        assert np.allclose(obs[i, 21:33], d.qvel[6:], atol=1e-4)
        assert np.allclose(obs[i, 33:45], action[i], atol=1e-6) and np.allclose(obs[i, 45:], [0.5, 0, 0])


def test_joints_that_have_sensors_are_read_by_them_one_engine_step_before_the_state(tmp_path):
    """The engine steps joints by q' = q + h v', so a step before the state they were at q' - h v'."""
    task, robot = task_of(written(tmp_path / "q.xml", True), contract(observation=["joint_pos"]))
    env, _, obs = stirred(task)
    q, v, h = env.world.state.q[:, 7:], env.world.state.v[:, 6:], robot.model.opt.timestep
    assert np.allclose(obs, q - h * v - STAND, atol=1e-6) and np.abs(h * v).max() > 1e-3


def test_at_the_start_readings_are_those_of_plain_mujoco(model):
    task, _ = task_of(model, contract())
    env = tasks.env(task, 1, seed=5)
    obs = env.reset(5)["actor"][0]
    m, d = env.world.model, mujoco.MjData(env.world.model)
    d.qpos[:], d.qvel[:] = env.world.state.q[0], env.world.state.v[0]
    mujoco.mj_forward(m, d)
    spin = np.zeros(6)
    mujoco.mj_objectVelocity(m, d, mujoco.mjtObj.mjOBJ_SITE, m.site("imu").id, spin, 1)
    assert np.allclose(obs[:6], np.r_[spin[3:], spin[:3]], atol=1e-5)
    assert np.allclose(obs[6:9], d.site("imu").xmat.reshape(3, 3).T @ [0, 0, -1], atol=1e-6)


def test_without_a_frame_it_is_the_bases_own(model):
    env = tasks.env(task_of(model, contract(frame=""))[0], 1, seed=5)
    obs = env.reset(5)["actor"][0]
    x = env.world.state
    R = np.zeros(9)
    mujoco.mju_quat2Mat(R, x.q[0, 3:7])
    R = R.reshape(3, 3)
    assert np.allclose(obs[:3], R.T @ x.v[0, :3], atol=1e-6) and np.allclose(obs[3:6], x.v[0, 3:6], atol=1e-6)


def test_joints_in_another_order_are_the_same_joints(model):
    """Legs exchanged in the contract: the same controls and readings, each under its own name."""
    order = [3, 4, 5, 0, 1, 2, 9, 10, 11, 6, 7, 8]
    swapped, home = [JOINTS[i] for i in order], (STAND[order] + np.arange(12) / 100).tolist()
    task, robot = task_of(model, contract(joints=swapped, home=home))
    env = tasks.env(task, 1, seed=5)
    obs = env.reset(5)["actor"][0]
    assert np.allclose(obs[9:21], env.world.state.q[0, 7:][order] - home, atol=1e-6)
    names = [env.world.model.actuator(i).name for i in robot.actuators]
    assert names == swapped  # in this model an actuator is called as its joint
    assert list(task.action.names) == swapped and np.allclose(task.action.control(np.zeros(12)), home)
    for action in (np.zeros((1, 12)), 0.01 * np.arange(12)[None]):
        env.step(action)
        assert np.allclose(env.world.state.u[0, robot.actuators], home + 0.5 * action[0])


def test_a_term_may_have_an_order_a_scale_and_a_clip_of_its_own(model):
    terms = [
        {"name": "joint_pos", "scale": list(range(1, 13)), "clip": 0.02, "joints": list(reversed(JOINTS))},
        {"name": "joint_vel", "scale": 0.05, "clip": 0.01},
    ]
    env = tasks.env(task_of(model, contract(observation=terms))[0], 1, seed=5)
    obs = env.reset(5)["actor"][0]
    off = (env.world.state.q[0, 7:] - STAND)[::-1]
    assert np.allclose(obs[:12], np.clip(off, -0.02, 0.02) * np.arange(1, 13), atol=1e-6)
    assert np.allclose(obs[12:], 0.05 * np.clip(env.world.state.v[0, 6:], -0.01, 0.01), atol=1e-6)


def test_gains_rate_and_delay_of_the_contract_are_the_worlds(model):
    task, _ = task_of(model, contract(kp=21.0, kd=0.7, rate=100.0, latency=0.03))
    env = tasks.env(task, 1)
    m = env.world.model
    assert np.allclose(m.actuator_gainprm[:, 0], 21) and np.allclose(m.actuator_biasprm[:, 1:3], [-21, -0.7])
    assert env.world.dt == pytest.approx(0.01) and np.allclose(env.world.delays(), 0.03)
    assert task.params["latency"].nominal == 0.03
    plain = tasks.env(task_of(model, contract())[0], 1).world.model
    assert np.allclose(plain.actuator_gainprm[:, 0], KP)


def test_every_unknown_of_it_acts(model):
    from surefoot.sim.audit import effects
    from surefoot.verbs.model.look import task_trace

    task, _ = task_of(model, contract())
    idle = [f.param.name for f in effects(task.params, task_trace(task, seconds=2.0)) if not f.acts]
    assert set(idle) <= {"push"}  # one comes every four seconds


def test_it_stands_on_its_feet_when_told_to_do_nothing_and_falls_without_gains(model):
    from surefoot.policy import Zero
    from surefoot.tasks import rollout

    for gains, stands in (({}, True), ({"kp": 1.0}, False)):
        task = replace(task_of(model, contract(commands={}, **gains))[0], seconds=3.0, window=2.0)
        env = tasks.env(task, 4, seed=1)
        found = rollout.evaluate(Zero(rollout.contract(task, env.world)), env)
        assert found.success.all() == stands and (found.reasons.get("time", 0) == 4) == stands


@pytest.mark.parametrize(
    "change, message",
    [
        ({"frame": "imuu"}, "did you mean imu"),
        ({"joints": ["FL_abductio", *JOINTS[1:]]}, "did you mean FL_abduction"),
    ],
)
def test_a_contract_that_the_model_does_not_have_is_refused(model, change, message):
    with pytest.raises(SurefootError, match=message):
        task_of(model, contract(**change))


def test_a_motor_becomes_a_servo_only_with_gains_and_a_base_must_be_free(tmp_path):
    path = tmp_path / "cart.xml"
    path.write_text(
        '<mujoco><worldbody><body name="b"><joint name="j" type="slide"/><geom size=".1"/></body></worldbody>'
        '<actuator><motor name="m" joint="j"/></actuator></mujoco>'
    )
    bare = {"joints": ["j"], "home": [0.0], "observation": ["joint_pos"], "rate": 50, "action_scale": 1.0}
    with pytest.raises(SurefootError, match="driven by a motor, no servo: give kp and kd"):
        task_of(path, Contract.from_json(bare))
    with pytest.raises(SurefootError, match="found no free joint"):
        task_of(path, Contract.from_json(bare | {"kp": 1.0}))
    assert motors(path) == ["j"]


def test_a_history_is_told_as_the_contract_lays_it_out(model):
    """Two frames of joint_pos and three of the last action, all frames of a term together, newest first."""
    terms = [{"name": "joint_pos", "history": 2}, {"name": "last_action", "history": 3}]
    env = tasks.env(task_of(model, contract(observation=terms, layout="terms", newest="first"))[0], 1, seed=5)
    env.reset(5)
    rng, places, actions = np.random.default_rng(0), [], []
    for _ in range(4):
        actions.append(rng.uniform(-0.5, 0.5, (1, 12)))
        obs = env.step(actions[-1]).obs["actor"][0]
        places.append(env.world.state.q[0, 7:] - STAND)
    assert obs.shape == (2 * 12 + 3 * 12,)
    wanted = np.concatenate([places[-1], places[-2], actions[-1][0], actions[-2][0], actions[-3][0]])
    assert np.allclose(obs, wanted, atol=1e-6)


def test_the_tasks_own_contract_means_what_the_given_one_does(model):
    """What the gate runs differs from what was given in names of the engine's and what only the model knows."""
    from surefoot.tasks import rollout

    given = contract(kp=21.0, kd=0.7)
    task, robot = task_of(model, given)
    own = rollout.contract(task, tasks.env(task, 1).world)
    assert own.observation.dim == given.obs_dim and own.joints == given.joints and own.rate == pytest.approx(50)
    assert own.kp == pytest.approx(given.kp) and own.kd == pytest.approx(given.kd) and own.home == given.home
    changed = {d.split(":")[0] for d in own.differences(given)}
    assert changed <= {"control_low", "control_high", "command_ranges", "latency"}


def test_where_contract_and_model_disagree_is_said(model):
    assert differences(model, contract()) == []
    said = differences(model, contract(kp=2 * KP, kd=0.6))
    assert said == ["kp: the contract's are 2 times the model's; the contract's are used"]


# ---- models as the field has them: feet that touch the floor by contact pairs, limits on joints


def paired(path, text=None):
    """A model whose geoms collide with nothing but in pairs of a foot and the floor."""
    spec = mujoco.MjSpec.from_string(text or xml())
    if "floor" not in [g.name for g in spec.geoms]:
        spec.worldbody.add_geom(name="floor", type=mujoco.mjtGeom.mjGEOM_PLANE, size=[0, 0, 0.05])
    spec.compile()
    feet = [g for g in spec.geoms if g.conaffinity and g.name != "floor"]
    for k, g in enumerate(feet):
        g.name = g.name or f"foot {k}"
        spec.add_pair(geomname1=g.name, geomname2="floor", friction=[0.6, 0.6, 0.005, 0.0001, 0.0001], condim=3)
    for g in spec.geoms:
        g.contype = g.conaffinity = 0
    path.write_text(spec.to_xml())
    return path


def test_feet_in_contact_pairs_stand_on_the_models_own_floor(tmp_path):
    """No second floor; friction is an unknown and acts; without the pairs the robot would fall through."""
    from surefoot.policy import Zero
    from surefoot.sim.audit import effects
    from surefoot.tasks import rollout
    from surefoot.verbs.model.look import task_trace

    task, robot = task_of(paired(tmp_path / "q.xml"), contract(commands={}))
    names = [robot.model.geom(i).name for i in range(robot.model.ngeom)]
    assert [n for n in names if "floor" in n or "ground" in n] == ["floor"] and robot.model.npair == 4
    short = replace(task, seconds=2.0, window=1.0)
    env = tasks.env(short, 2, seed=1)
    assert rollout.evaluate(Zero(rollout.contract(short, env.world)), env).success.all()
    acts = {f.param.name: f.acts for f in effects(task.params, task_trace(task, seconds=1.0))}
    assert acts["friction"]


def test_without_a_keyframe_it_starts_with_its_feet_on_the_ground(tmp_path):
    text = paired(tmp_path / "q.xml").read_text()
    start, end = text.index("<keyframe>"), text.index("</keyframe>") + len("</keyframe>")
    (tmp_path / "bare.xml").write_text(text[:start] + text[end:])
    robot = task_of(tmp_path / "bare.xml", contract())[1]
    d = mujoco.MjData(robot.model)
    d.qpos[:] = robot.standing[0]
    mujoco.mj_forward(robot.model, d)
    soles = [d.geom_xpos[g][2] - robot.model.geom_size[g, 0] for g in robot.model.pair_geom1]
    assert min(soles) == pytest.approx(0.0, abs=1e-6)


def test_of_several_keyframes_the_one_in_the_contracts_pose_is_the_start(tmp_path):
    key = f'<key name="low" qpos="0 0 .2 1 0 0 0 {" ".join(["0"] * 12)}"/>'
    (tmp_path / "q.xml").write_text(xml().replace("<keyframe>", f"<keyframe>{key}"))
    high, low = (task_of(tmp_path / "q.xml", contract(home=h))[1] for h in (STAND.tolist(), [0.0] * 12))
    assert low.standing[0][2] == pytest.approx(0.2) and high.standing[0][2] > 0.25
    assert not differences(tmp_path / "q.xml", contract(home=[0.0] * 12))


def test_torque_limits_may_be_the_joints(tmp_path):
    spec = mujoco.MjSpec.from_string(xml())
    for a in spec.actuators:
        a.forcelimited, limit = 0, a.forcerange[1]
        spec.joint(a.target).actfrclimited, spec.joint(a.target).actfrcrange = 1, [-limit, limit]
    (tmp_path / "q.xml").write_text(spec.to_xml())
    task, robot = task_of(tmp_path / "q.xml", contract())
    own = {d.joint: d.limit for d in tasks.env(task, 1).world.layout.drives}
    assert "torque_limit" in task.params.names
    assert own == {d.joint: d.limit for d in tasks.env(task_of(paired(tmp_path / "p.xml"), contract())[0], 1).world.layout.drives}  # fmt: skip


def test_a_humanoid_with_contact_pairs_and_a_gait_phase_reads_as_its_contract_says(tmp_path):
    """The phase of both feet at 0.1 s, with cos first, beside 100 other numbers."""
    from surefoot.tasks.ready import humanoid_model as humanoid

    home = [humanoid.stand(j) for j in humanoid.JOINTS]
    terms = [
        "base_lin_vel",
        "base_ang_vel",
        "projected_gravity",
        "command",
        "joint_pos",
        "joint_vel",
        "last_action",
        "phase",
    ]
    short = SHORT | {"joints": list(humanoid.JOINTS), "home": home, "observation": terms}
    short |= {"phase": {"frequency": 1.5, "feet": [0, np.pi], "waves": ["cos", "sin"]}}
    task, robot = task_of(paired(tmp_path / "h.xml", humanoid.xml()), Contract.from_json(short))
    env = tasks.env(task, 1, seed=2)
    env.reset(2)
    for _ in range(5):
        obs = env.step(np.zeros((1, len(home)))).obs["actor"][0]
    angle = 2 * np.pi * 1.5 * 0.1
    assert len(obs) == 12 + 3 * len(home) + 4 and robot.model.npair == 8
    assert np.allclose(obs[-4:], [np.cos(angle), -np.cos(angle), np.sin(angle), -np.sin(angle)], atol=1e-6)
    assert np.allclose(obs[12 : 12 + len(home)], env.world.state.q[0, 7:] - home, atol=1e-6)


def test_a_model_without_actuators_gets_servos_with_the_contracts_gains(tmp_path):
    """As mjlab's models are: the framework adds their actuators."""
    spec = mujoco.MjSpec.from_string(xml())
    for a in list(spec.actuators):
        spec.delete(a)
    for key in list(spec.keys):
        spec.delete(key)
    (tmp_path / "bare.xml").write_text(spec.to_xml())
    with pytest.raises(SurefootError, match="FL_abduction: found no actuator that drives it: give kp and kd"):
        task_of(tmp_path / "bare.xml", contract())
    given = contract(kp=21.0, kd=0.7)
    m = tasks.env(task_of(tmp_path / "bare.xml", given)[0], 1).world.model
    assert (
        m.nu == 12
        and np.allclose(m.actuator_gainprm[:, 0], 21)
        and np.allclose(m.actuator_biasprm[:, 1:3], [-21, -0.7])
    )
    assert motors(tmp_path / "bare.xml") == list(JOINTS)
    assert differences(tmp_path / "bare.xml", given) == [
        "actuators: the model has none on FL_abduction and 11 more joints; servos with the contract's gains are added, "
        "12 of them without a torque limit"
    ]
