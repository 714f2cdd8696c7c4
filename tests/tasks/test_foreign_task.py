"""A robot model and another's contract as a task: each number told and each target is what the contract says."""

from dataclasses import replace

import mujoco
import numpy as np
import pytest

from surefoot import tasks
from surefoot.errors import SurefootError
from surefoot.tasks.foreign import foreign, motors
from surefoot.tasks.ground import Ground
from surefoot.tasks.walk import JOINTS, KP, STAND, xml
from surefoot.wiring import Wire, Wiring

TERMS = ("base_lin_vel", "base_ang_vel", "projected_gravity", "joint_pos", "joint_vel", "last_action", "command")
WIRING = Wiring(
    tuple(JOINTS), tuple(STAND), tuple(Wire(name) for name in TERMS), 50.0, action_scale=(0.5,), frame="imu",
    commands={"vx": (0.5, 0.5)},
)  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """The quadruped of `walk`, as a file; its IMU moved off the middle and turned."""
    path = tmp_path_factory.mktemp("model") / "quadruped.xml"
    text = xml(Ground()).replace('<site name="imu"/>', '<site name="imu" pos=".1 .02 .03" euler=".3 .2 .1"/>')
    assert "euler" in text
    path.write_text(text)
    return path


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
    task, robot = foreign(model, WIRING)
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


def test_at_the_start_readings_are_those_of_plain_mujoco(model):
    task, _ = foreign(model, WIRING)
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
    plain = replace(WIRING, frame="")
    env = tasks.env(foreign(model, plain)[0], 1, seed=5)
    obs = env.reset(5)["actor"][0]
    x = env.world.state
    R = np.zeros(9)
    mujoco.mju_quat2Mat(R, x.q[0, 3:7])
    R = R.reshape(3, 3)
    assert np.allclose(obs[:3], R.T @ x.v[0, :3], atol=1e-6) and np.allclose(obs[3:6], x.v[0, 3:6], atol=1e-6)


def test_joints_in_another_order_are_the_same_joints(model):
    """Legs exchanged in the contract: the same controls and readings, each under its own name."""
    order = [3, 4, 5, 0, 1, 2, 9, 10, 11, 6, 7, 8]
    swapped = tuple(JOINTS[i] for i in order)
    home = tuple(STAND[order] + np.arange(12))
    task, robot = foreign(model, replace(WIRING, joints=swapped, home=home))
    env = tasks.env(task, 1, seed=5)
    obs = env.reset(5)["actor"][0]
    assert np.allclose(obs[9:21], env.world.state.q[0, 7:][order] - home, atol=1e-6)
    names = [env.world.model.actuator(i).name for i in robot.actuators]
    assert tuple(names) == swapped  # in this model an actuator is called as its joint
    assert np.allclose(task.action.control(np.zeros(12))[robot.actuators], home)


def test_a_term_may_have_an_order_a_scale_and_a_clip_of_its_own(model):
    order = tuple(reversed(JOINTS))
    terms = (Wire("joint_pos", tuple(range(1, 13)), 0.02, 1, order), Wire("joint_vel", (0.05,), 0.01))
    env = tasks.env(foreign(model, replace(WIRING, observation=terms))[0], 1, seed=5)
    obs = env.reset(5)["actor"][0]
    off = (env.world.state.q[0, 7:] - STAND)[::-1]
    assert np.allclose(obs[:12], np.clip(off, -0.02, 0.02) * np.arange(1, 13), atol=1e-6)
    assert np.allclose(obs[12:], 0.05 * np.clip(env.world.state.v[0, 6:], -0.01, 0.01), atol=1e-6)


def test_gains_rate_and_delay_of_the_contract_are_the_worlds(model):
    task, _ = foreign(model, replace(WIRING, kp=(21.0,), kd=(0.7,), rate=100.0, latency=0.03))
    env = tasks.env(task, 1)
    m = env.world.model
    assert np.allclose(m.actuator_gainprm[:, 0], 21) and np.allclose(m.actuator_biasprm[:, 1:3], [-21, -0.7])
    assert env.world.dt == pytest.approx(0.01) and np.allclose(env.world.delays(), 0.03)
    assert task.params["latency"].nominal == 0.03
    plain = tasks.env(foreign(model, WIRING)[0], 1).world.model
    assert np.allclose(plain.actuator_gainprm[:, 0], KP)


def test_every_unknown_of_it_acts(model):
    from surefoot.sim.audit import effects
    from surefoot.verbs.look import task_trace

    task, _ = foreign(model, WIRING)
    idle = [f.param.name for f in effects(task.params, task_trace(task, seconds=2.0)) if not f.acts]
    assert set(idle) <= {"push"}  # one comes every four seconds


def test_it_stands_on_its_feet_when_told_to_do_nothing_and_falls_without_gains(model):
    from surefoot.policy import Zero
    from surefoot.tasks.rollout import contract, evaluate

    still = replace(WIRING, commands={})
    for wiring, stands in ((still, True), (replace(still, kp=(1.0,)), False)):
        task = replace(foreign(model, wiring)[0], seconds=3.0, window=2.0)
        env = tasks.env(task, 4, seed=1)
        found = evaluate(Zero(contract(task, env.world.model)), env)
        assert found.success.all() == stands and (found.reasons.get("time", 0) == 4) == stands


@pytest.mark.parametrize(
    "change, message",
    [
        ({"frame": "imuu"}, "did you mean imu"),
        ({"joints": ("FL_abductio", *JOINTS[1:])}, "did you mean FL_abduction"),
    ],
)
def test_a_contract_that_the_model_does_not_have_is_refused(model, change, message):
    with pytest.raises(SurefootError, match=message):
        foreign(model, replace(WIRING, **change))


def test_a_motor_becomes_a_servo_only_with_gains_and_a_base_must_be_free(tmp_path):
    path = tmp_path / "cart.xml"
    path.write_text(
        '<mujoco><worldbody><body name="b"><joint name="j" type="slide"/><geom size=".1"/></body></worldbody>'
        '<actuator><motor name="m" joint="j"/></actuator></mujoco>'
    )
    wiring = Wiring(("j",), (0.0,), (Wire("joint_pos"),), 50.0, (1.0,))
    with pytest.raises(SurefootError, match="driven by a motor, no servo: give kp and kd"):
        foreign(path, wiring)
    with pytest.raises(SurefootError, match="found no free joint"):
        foreign(path, replace(wiring, kp=(1.0,)))
    assert motors(path) == ["j"]
