"""Bullet moves the bodies of an MjModel: the same inertia, forces and frames to rounding, and a World's promises about bits."""

import os
import sys
from dataclasses import replace
from pathlib import Path

import mujoco
import numpy as np
import pytest

from surefoot import tasks
from surefoot.errors import SurefootError
from surefoot.params import Param, Params
from surefoot.sim.engines import make
from surefoot.sim.fields import TARGETS
from surefoot.task import Episode
from surefoot.world import Chance, OnAction, OnBody, OnForce, Start, World

pytest.importorskip("pybullet", reason="needs the bullet extra")
G = 9.81
CRAB = """
<mujoco><compiler angle="radian"/><option timestep=".002" gravity="1 .5 -9.81" integrator="Euler"><flag contact="disable"/></option>
<worldbody>
  <body name="trunk" pos=".3 -.2 1" quat=".9 .1 .3 -.2"><freejoint name="free"/>
    <inertial pos=".05 -.03 .02" quat=".8 .3 -.2 .1" mass="3" diaginertia=".03 .05 .06"/>
    <body name="thigh" pos=".2 .1 0" quat=".7 .7 .1 0">
      <joint name="yaw" axis="0 .6 .8" pos=".01 .02 .03" ref=".2"/><joint name="hip" axis="1 0 0" pos="-.01 0 .05"/>
      <inertial pos="0 .05 -.1" quat=".9 .1 .2 .3" mass="1" diaginertia=".004 .005 .002"/>
      <body name="slider" pos="0 0 -.2"><joint name="slide" type="slide" axis="0 .6 -.8"/>
        <inertial pos=".01 .02 -.05" mass=".5" diaginertia=".002 .001 .002"/>
        <body name="tip" pos="0 .1 -.1" quat=".5 .5 .5 .5"><inertial pos=".03 0 0" mass=".2" diaginertia="1e-4 2e-4 2e-4"/></body>
      </body>
    </body>
  </body>
  <body name="arm" pos="-1 0 0" quat=".6 0 .8 0"><body name="swing" pos="0 .1 .2">
    <joint name="swing" axis="1 .2 0"/><inertial pos=".1 0 -.3" mass=".7" diaginertia=".01 .02 .02"/></body></body>
</worldbody>
<actuator><motor name="m" joint="hip" gear="2"/><general name="f" joint="slide" dyntype="filter" dynprm=".05" gainprm="3"/></actuator>
</mujoco>"""


def world(
    xml: str, name: str = "bullet", params: Params | None = None, n: int = 1, substeps: int = 1, terms=()
) -> World:
    return make(name, mujoco.MjSpec.from_string(xml), params or Params(), n, substeps, 1, terms)


def begin(w: World, q=None, v=None, e=None) -> None:
    rows = lambda x, width, blank: np.broadcast_to(blank if x is None else x, (w.n, width)).copy()  # noqa: E731
    m = w.model
    start = Start(rows(q, m.nq, m.qpos0), rows(v, m.nv, np.zeros(m.nv)), np.zeros((w.n, m.nu)))
    w.reset(np.arange(w.n), rows(e, len(w.params), w.params.nominal), start)


def run(w: World, steps: int, u: float = 0.0, first: int = 0) -> None:
    for k in range(first, first + steps):
        assert not w.step(np.full((w.n, w.model.nu), u), Chance(0, k, w.dt)).any()


class Half(OnAction):
    def __call__(self, x, u, chance):
        return 0.5 * u


class Lean(OnForce):
    def __call__(self, x, u, chance):
        return np.tile(0.3 * np.arange(1.0, x.v.shape[1] + 1), (len(x.v), 1))


class Tow(OnBody):
    bodies = ("tip", "trunk")

    def __call__(self, x, u, chance):
        return np.tile([[1.0, -2.0, 0.5, 0.1, 0.2, -0.1], [3.0, 0.0, 1.0, 0.0, -0.3, 0.2]], (len(x.q), 1, 1))


def test_a_crab_under_all_kinds_of_force_moves_as_in_mujoco_until_rounding_and_the_order_of_integration():
    """Same q'' at every state: M, Coriolis, gravity, motors, Terms. What is left is how a body off its own frame's
    origin is integrated, which differs by h^2 a step.
    """
    v = np.array([0.3, -0.2, 0.5, 1.0, -2.0, 1.5, 0.7, -0.4, 0.2, 1.0])
    found = {}
    for name in ("mujoco:euler", "bullet"):
        w = world(CRAB, name, terms=(Half(), Lean(), Tow()))
        begin(w, v=v)
        run(w, 1, 0.5)
        once = w.state.v.copy(), w.state.q.copy()
        run(w, 49, 0.5, 1)
        found[name] = (*once, w.state.q.copy(), w.state.act.copy())
    (v0, q0, far0, act0), (v1, q1, far1, act1) = found.values()
    assert np.abs(v0 - v1)[0, 3:].max() < 1e-9, "turn rates and joint speeds after one step"
    assert np.abs(v0 - v1).max() < 0.002**2 * 100 and np.abs(q0 - q1).max() < 1e-6
    assert np.abs(far0 - far1).max() < 5e-3 and np.allclose(act0, act1)


class Each(OnForce):
    """1 N or N m on another degree of freedom in each simulation."""

    def __call__(self, x, u, chance):
        return np.eye(len(x.v))


def test_armature_of_a_joint_that_moves_with_its_carrier_is_that_of_mujoco():
    """(M + a) q'' = tau, to the a / 100 that a rotor behind a gear of 100 leaves."""
    xml = CRAB.replace('<joint name="hip"', '<joint name="hip" armature=".02"').replace('name="slide" type', 'armature=".3" name="slide" type')  # fmt: skip
    xml = xml.replace('<joint name="swing"', '<joint name="swing" armature=".05"').replace('gravity="1 .5 -9.81"', 'gravity="0 0 0"')  # fmt: skip
    answers = {}
    for name in ("mujoco:euler", "bullet"):
        w = world(xml, name, n=10, terms=(Each(),))
        begin(w)
        run(w, 1)
        answers[name] = np.linalg.inv(w.state.v / w.dt)
    assert np.abs(answers["mujoco:euler"] - _mass(w.model)).max() < 1e-9
    assert np.abs(answers["bullet"] - answers["mujoco:euler"]).max() < 0.3 / 50


def _mass(model) -> np.ndarray:
    data, M = mujoco.MjData(model), np.zeros((model.nv, model.nv))
    mujoco.mj_forward(model, data)
    mujoco.mj_fullM(model, data, M)
    return M


HINGE = """<mujoco><compiler angle="radian"/><option timestep=".002" gravity="0 0 0"/><worldbody><body name="arm">
<joint name="hinge" axis="0 1 0" frictionloss=".5" range="-1 .4" ref=".1"/><inertial pos="0 0 0" mass="1" diaginertia=".1 .1 .1"/>
</body></worldbody><actuator><motor name="m" joint="hinge"/></actuator></mujoco>"""


def test_dry_friction_holds_a_joint_below_its_loss_and_slows_it_above():
    w = world(HINGE, n=1)
    begin(w, q=[0.0])
    run(w, 50, 0.49)
    assert np.abs(w.state.v).max() < 1e-12
    run(w, 50, 0.7)
    assert np.allclose(w.state.v, (0.7 - 0.5) / 0.1 * 50 * w.dt, rtol=1e-9)


def test_a_joint_stops_where_its_range_ends_and_an_unknown_can_move_that():
    params = Params((Param("high", "stop_high", 0.0, -0.3, 0.3, match="hinge", op="add"),))
    w = world(HINGE, params=params, n=2)
    begin(w, q=[0.0], e=np.array([[0.0], [-0.2]]))
    run(w, 1000, 3.0)
    assert np.allclose(w.state.q[:, 0], [0.4, 0.2], atol=1e-4) and np.abs(w.state.v).max() < 1e-6


WALK = tasks.resolve("walk")


def stepped(env, periods: int, first: int = 0) -> np.ndarray:
    for k in range(first, first + periods):
        env.step(0.5 * np.sin(0.3 * k + np.arange(12.0)) * np.ones((env.n, 1)))
    return np.concatenate([env.world.state.q, env.world.state.v], 1)


def test_a_simulation_has_the_same_bits_among_few_and_among_many_and_after_others_began_anew():
    few, many = (tasks.env(WALK, n, WALK.belief, seed=4, engine="bullet") for n in (2, 6))
    few.reset(), many.reset()
    assert np.array_equal(stepped(few, 12), stepped(many, 12)[:2])
    q, v, u = (np.tile(x[:1], (2, 1)) for x in (many.world.state.q, many.world.state.v, many.world.state.u))
    many.world.reset(np.array([3, 5]), many.world.state.e[:2].copy(), Start(q, v, u))
    assert np.array_equal(stepped(few, 8, 12), stepped(many, 8, 12)[:2])


def test_simulations_that_share_a_world_do_not_meet_and_same_calls_give_the_same_bits(monkeypatch):
    """Two to a world: what one does moves the other by what is left of the solver's sweeps, not by a touch."""
    alone = tasks.env(WALK, 4, WALK.belief, seed=4, engine="bullet")
    monkeypatch.setattr("surefoot.sim.engines.bullet.WORLDS", 2)
    shared, again = (tasks.env(WALK, 4, WALK.belief, seed=4, engine="bullet") for _ in range(2))
    alone.reset(), shared.reset(), again.reset()
    found = stepped(shared, 12)
    assert np.array_equal(found, stepped(again, 12))
    assert np.abs(found - stepped(alone, 12))[:, :19].max() < 1e-3


def test_a_reset_leaves_nothing_of_the_old_episode():
    used, new = (tasks.env(WALK, 2, WALK.belief, seed=4, engine="bullet") for _ in range(2))
    used.reset(), stepped(used, 15), used.reset(seed=4), new.reset()
    assert np.array_equal(stepped(used, 10), stepped(new, 10))


def test_save_and_load_go_on_with_the_same_bits():
    env, again = (tasks.env(WALK, 3, WALK.belief, seed=s, engine="bullet") for s in (4, 5))
    env.reset(), again.reset(), stepped(env, 12)
    saved = env.save()
    again.seed = env.seed
    again.load(saved)
    assert np.array_equal(stepped(env, 10, 12), stepped(again, 10, 12))


def test_a_rollout_is_its_steps():
    task = tasks.resolve("arm")
    one, other = (tasks.env(task, 2, task.belief, seed=1, engine="bullet").world for _ in range(2))
    e, u = np.tile(task.params.nominal, (2, 1)), np.random.default_rng(0).uniform(-0.5, 0.5, (2, 15, 2))
    start = Start(np.zeros((2, 2)), np.zeros((2, 2)), np.zeros((2, 2)))
    one.reset(np.arange(2), e, start), other.reset(np.arange(2), e, start)
    motion = one.rollout(u, Chance(0, 0, one.dt))
    for k in range(15):
        other.step(u[:, k], Chance(0, k, other.dt))
        assert np.array_equal(motion.q[:, k], other.state.q)


@pytest.mark.parametrize("poison", [np.nan, np.inf, 1e12])
def test_a_diverged_simulation_is_named_and_moves_no_other_by_a_bit(poison):
    clean, hurt = (tasks.env(WALK, 4, WALK.belief, seed=4, engine="bullet") for _ in range(2))
    for env in (clean, hurt):
        env.reset(), stepped(env, 5)
    hurt.world.state.v[2] = poison
    u = np.tile(WALK.action.offset, (4, 1))
    bad = hurt.world.step(u, Chance(0, 5, hurt.world.dt))
    clean.world.step(u, Chance(0, 5, clean.world.dt))
    assert bad.tolist() == [False, False, True, False]
    others = [0, 1, 3]
    assert np.array_equal(clean.world.state.q[others], hurt.world.state.q[others])
    e, x = hurt.world.state.e[2:3].copy(), clean.world.state
    hurt.world.reset(np.array([2]), e, Start(x.q[2:3].copy(), x.v[2:3].copy(), x.u[2:3].copy()))
    assert not hurt.world.step(u, Chance(0, 6, hurt.world.dt)).any()


TABLE = """<mujoco><option timestep=".002"/><worldbody><geom name="floor" type="plane" size="0 0 1"/>
<body name="box" pos="0 0 .1"><freejoint/><geom name="box" type="box" size=".1 .1 .1" mass="2"/><site name="imu" size=".3"/>
<body name="lid" pos="0 0 .1"><joint name="hinge" axis="0 1 0" range="-.001 .001" limited="true"/><geom name="lid" type="box" size=".1 .1 .01" mass=".5" contype="0" conaffinity="0"/>
<site name="seam"/></body></body></worldbody>
<sensor><touch name="touch" site="imu"/><accelerometer name="acc" site="imu"/><force name="force" site="seam"/><gyro name="gyro" site="imu"/>
<contact name="met" geom1="box" geom2="floor" reduce="mindist" num="1" data="found"/></sensor></mujoco>"""


def test_a_box_at_rest_feels_its_weight_and_in_the_air_none():
    w = world(TABLE, n=2)
    q = np.tile(w.model.qpos0, (2, 1))
    q[1, 2] = 50.0
    begin(w, q=q)
    run(w, 500)
    y = w.state.y
    assert np.allclose(y["touch"][:, 0], [2.5 * G, 0.0], rtol=1e-3)
    assert y["met"][0] >= 3 and y["met"][1] == 0, "corners on the floor"
    assert np.allclose(y["acc"], [[0, 0, G], [0, 0, 0]], atol=0.02)
    assert np.allclose(np.abs(y["force"]), [[0, 0, 0.5 * G], [0, 0, 0]], atol=0.02), "what the box bears of the lid"


@pytest.mark.parametrize("shape", ["sphere", "capsule", "cylinder", "mesh", "hfield"])
def test_every_shape_rests_where_its_size_says(shape):
    size = {"sphere": ".1", "capsule": ".1 .2", "cylinder": ".1 .2"}.get(shape)
    geom = f'type="{shape}" size="{size}"' if size else 'type="mesh" mesh="block"'
    floor = 'type="hfield" hfield="hills"' if shape == "hfield" else 'type="plane" size="0 0 1"'
    if shape == "hfield":
        geom = 'type="sphere" size=".1"'
    xml = f"""<mujoco><option timestep=".002"/>
    <asset><mesh name="block" vertex="-.2 -.2 -.1 .2 -.2 -.1 -.2 .2 -.1 .2 .2 -.1 -.2 -.2 .1 .2 -.2 .1 -.2 .2 .1 .2 .2 .1"/>
    <hfield name="hills" nrow="5" ncol="9" size="2 1 .5 .1" elevation="{" ".join(["0 .1 .4 .4 .4 .4 .4 .1 1"] * 5)}"/></asset>
    <worldbody><geom name="floor" {floor}/><body name="thing" pos="0 0 .5"><joint type="slide" axis="0 0 1"/><geom {geom}/></body></worldbody></mujoco>"""
    w = world(xml)
    begin(w, v=[-0.5])
    run(w, 600)
    half = {"capsule": 0.3, "cylinder": 0.2}.get(shape, 0.1)
    ground = 0.2 if shape == "hfield" else 0.0
    assert abs(0.5 + w.state.q[0, 0] - half - ground) < 1e-3


@pytest.mark.parametrize(
    "floor, block, expected",
    [
        ('friction=".2"', 'friction=".4"', 0.4),
        ('friction=".2" priority="1"', 'friction=".4"', 0.2),
        ('friction=".2"', 'friction=".1" priority="2"', 0.1),
        ('friction=".2" condim="1"', 'friction=".4" condim="1"', 0.0),
        ('friction=".2" condim="3" priority="1"', 'friction=".4" condim="1"', 0.2),
    ],
)
def test_two_surfaces_rub_by_mujocos_rule(floor, block, expected):
    xml = f"""<mujoco><option timestep=".002"/><worldbody><geom type="plane" size="0 0 1" {floor}/><body pos="0 0 .1">
    <joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 0 1"/><geom type="box" size=".1 .1 .1" {block}/></body></worldbody></mujoco>"""
    w = world(xml)
    begin(w, v=[2.0, 0.0])
    run(w, 100)
    assert np.isclose((2.0 - w.state.v[0, 0]) / 0.2, expected * G, rtol=0.02, atol=1e-9)


def test_hills_are_where_mujoco_has_them():
    """A ball of 1 cm dropped on four quarters of different height; the XML's first row is the one with the largest y."""
    quarters = np.zeros((21, 31))
    quarters[:10, :15], quarters[:10, 15:], quarters[10:, :15], quarters[10:, 15:] = 0.0, 0.3, 0.6, 1.0
    balls = "".join(
        f'<body pos="{x} {y} 1"><joint type="slide" axis="0 0 1"/><geom size=".01"/></body>'
        for y in (-0.5, 0.5)
        for x in (-0.75, 0.75)
    )
    field = (
        f'<hfield name="h" nrow="21" ncol="31" size="1.5 1 .4 .1" elevation="{" ".join(map(str, quarters.ravel()))}"/>'
    )
    w = world(f'<mujoco><asset>{field}</asset><worldbody><geom type="hfield" hfield="h" pos="0 0 -.2"/>{balls}</worldbody></mujoco>')  # fmt: skip
    begin(w)
    run(w, 600)
    assert np.allclose(1 + w.state.q[0] - 0.01 + 0.2, 0.4 * np.array([0.6, 1.0, 0.0, 0.3]), atol=2e-3)


@pytest.mark.parametrize("name", ["balance", "hover", "arm", "walk"])
def test_every_unknown_that_is_a_number_of_the_model_acts_in_bullet(name):
    """One simulation as the model says, and one for each unknown at a bound: all go another way."""
    task = tasks.resolve(name)
    moved = [i for i, p in enumerate(task.params) if p.target in TARGETS]
    e = np.tile(task.params.nominal, (len(moved) + 1, 1))
    for row, i in enumerate(moved):
        p = tuple(task.params)[i]
        e[row + 1, i] = p.high if p.nominal == p.low else p.low
    env = tasks.env(replace(task, episode=_alike(task), terms=()), len(e), seed=2, engine="bullet")
    env.reset(e=e)
    for k in range(25):
        env.step(np.full((len(e), len(task.action.names)), 0.4 * np.sin(0.7 * k)))
    x = env.world.state
    seen = np.concatenate([x.q, x.v, *x.y.values()], 1)
    idle = [task.params.names[i] for row, i in enumerate(moved) if np.abs(seen[row + 1] - seen[0]).max() < 1e-6]
    assert not idle


def _alike(task):
    """The same start in every simulation."""
    one = task.episode(np.random.default_rng(0), 1).start
    fill = lambda x, n: None if x is None else np.repeat(x, n, 0)  # noqa: E731
    return lambda rng, n: Episode(Start(fill(one.q, n), fill(one.v, n), fill(one.u, n), fill(one.act, n)))


@pytest.mark.parametrize("name", ["balance", "hover", "arm", "walk", "walk-rough"])
def test_every_task_runs_in_bullet(name):
    task = tasks.resolve(name)
    env = tasks.env(task, 2, task.belief, seed=2, engine="bullet")
    obs = env.reset()
    for _ in range(10):
        step = env.step(np.zeros((2, len(task.action.names))))
        assert all(np.isfinite(o).all() for o in step.obs.values()) and step.valid.all()
    assert {g: o.shape for g, o in obs.items()} == {g: (2, group.dim) for g, group in task.observations.items()}


def test_a_standing_quadruped_bears_its_weight_on_its_feet():
    env = tasks.env(WALK, 1, seed=2, engine="bullet")
    env.reset()
    for _ in range(200):
        env.step(np.zeros((1, 12)))
    weight = WALK_MASS * G
    assert np.isclose(env.world.state.y["touch"].sum(), weight, rtol=0.02)
    assert 0.2 < env.world.state.q[0, 2] < 0.35


WALK_MASS = 5.0 + 4 * (0.66 + 1.0 + 0.265)  # kg


@pytest.mark.parametrize(
    "part, error",
    [
        ('<body><joint name="b" type="ball"/><geom size=".1"/></body>', "joint b: a ball joint"),
        ('<body><freejoint/><geom name="egg" type="ellipsoid" size=".1 .1 .2"/></body><geom type="plane" size="1 1 1"/>', "geom egg: it has no ellipsoids"),
        ('<body mocap="true"><geom size=".1"/></body>', "1 body moved by mocap"),
    ],
)  # fmt: skip
def test_what_bullet_cannot_have_is_refused_by_name(part, error):
    with pytest.raises(SurefootError, match=error):
        world(f"<mujoco><worldbody>{part}</worldbody></mujoco>")


@pytest.mark.parametrize(
    "sensor, error",
    [
        ('<contact name="c" geom1="box" data="force"/>', "sensor c: only MuJoCo reads more of a contact"),
        ('<jointlimitfrc name="l" joint="hinge"/>', "sensor l: jointlimitfrc is computed by MuJoCo only"),
        ('<accelerometer name="a" site="imu" delay=".01" nsample="9"/>', "sensor a: a force sensor with a delay"),
    ],
)
def test_readings_that_bullet_cannot_give_are_refused_by_name(sensor, error):
    with pytest.raises(SurefootError, match=error):
        world(TABLE.replace("<sensor>", f"<sensor>{sensor}"))


def test_a_walking_policy_of_other_people_walks_in_bullet_too():
    """MuJoCo Playground's Go1 policy, told to go at 1 m/s: it was seen at 1.02 m/s in MuJoCo."""
    from surefoot.onnx_file.runtime import runtime

    models = Path(os.environ.get("SUREFOOT_MODELS", "no models given"))
    path, net = models / "unitree_go1_flat.xml", models.parent / "policies" / "go1_joystick.onnx"
    if not (path.exists() and net.exists()):
        pytest.skip(f"{path} or {net} is not here; point SUREFOOT_MODELS at a directory that has the model")
    policy, w = runtime().InferenceSession(str(net)), make("bullet", mujoco.MjSpec.from_file(str(path)), Params(), 1, 5)
    home, last, where = w.model.key("home"), np.zeros(12), []
    start = Start(home.qpos[None].copy(), np.zeros((1, w.model.nv)), home.ctrl[None].copy())
    w.reset(np.array([0]), np.zeros((1, 0)), start)
    for k in range(200):
        x, y = w.state, {name: rows[0] for name, rows in w.state.y.items()}
        down = -np.array([[0, 0, 1.0]] @ _rotation(y["orientation"]))[0]
        told = [y["local_linvel"], y["gyro"], down, x.q[0, 7:] - home.ctrl, x.v[0, 6:], last, [1.0, 0.0, 0.0]]
        last = policy.run(None, {"obs": np.concatenate(told, dtype=np.float32)[None]})[0][0]
        assert not w.step((home.ctrl + 0.5 * last)[None], Chance(0, k, w.dt)).any()
        where.append(x.q[0, 0])
    assert abs((where[-1] - where[99]) / 2.0 - 1.02) < 0.03 and w.state.q[0, 2] > 0.25


def _rotation(quat: np.ndarray) -> np.ndarray:
    R = np.zeros(9)
    mujoco.mju_quat2Mat(R, quat)
    return R.reshape(3, 3)


def test_without_the_package_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pybullet", None)
    with pytest.raises(SurefootError, match=r"the engine bullet needs.*pip install 'surefoot\[bullet\]'"):
        tasks.env(tasks.resolve("balance"), 1, engine="bullet")
