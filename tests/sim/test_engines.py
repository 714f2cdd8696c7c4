"""One model in every engine: each meets the closed forms as far as its order of integration allows.

h is the engine's timestep. All but RK4 are of first order in it: x' = x + h v', so what moves with acceleration a for t
seconds is a h t / 2 off, and a motion of amplitude A and rate w is off by up to A w h.
"""

import json
from importlib.util import find_spec

import mujoco
import numpy as np
import pytest

from surefoot import tasks
from surefoot.cli import main
from surefoot.errors import SurefootError
from surefoot.learn.nets import export
from surefoot.learn.nets.policy_net import linear
from surefoot.params import Param, Params
from surefoot.sim.engines import ENGINES, make
from surefoot.tasks.rollout import contract
from surefoot.world import Chance, Start, World

G = 9.81
needs = {"bullet": "pybullet", "warp": "mujoco_warp"}  # what an engine's extra brings, by how its name begins
here = {kind for kind, package in needs.items() if find_spec(package) is not None}
bullets = "bullet" in here
every = pytest.mark.parametrize("name", [k for k in ENGINES if not k.startswith(tuple(needs.keys() - here))])


def world(name: str, xml: str, params: Params | None = None, n: int = 1, substeps: int = 2, terms=()) -> World:
    return make(name, mujoco.MjSpec.from_string(xml), params or Params(), n, substeps, 1, terms)


def begin(w: World, q=None, v=None, u=None, e=None) -> None:
    rows = lambda x, width, blank: np.broadcast_to(blank if x is None else x, (w.n, width)).copy()  # noqa: E731
    m = w.model
    start = Start(rows(q, m.nq, m.qpos0), rows(v, m.nv, np.zeros(m.nv)), rows(u, m.nu, np.zeros(m.nu)))
    w.reset(np.arange(w.n), rows(e, len(w.params), w.params.nominal), start)


def track(w: World, seconds: float, u=0.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Times, and q (T, n, nq) and v at the end of each control period."""
    q, v = [], []
    for k in range(round(seconds / w.dt)):
        assert not w.step(np.full((w.n, w.model.nu), u), Chance(0, k, w.dt)).any()
        q.append(w.state.q.copy()), v.append(w.state.v.copy())
    return w.dt * np.arange(1, len(q) + 1), np.array(q), np.array(v)


def model(body: str, rest: str = "", option: str = "", h: float = 0.002) -> str:
    return f'<mujoco><compiler angle="radian"/><option timestep="{h}" {option}/><worldbody>{body}</worldbody>{rest}</mujoco>'


BRICK = (
    """<body name="brick"><freejoint name="free"/><inertial pos="0 0 0" mass="2" diaginertia=".01 .02 .03"/></body>"""
)
PENDULUM = """<body name="bob"><joint name="hinge" axis="0 1 0"/><inertial pos="0 0 -.5" mass="2" diaginertia=".04 .04 .01"/></body>"""
BLOCK = """<geom name="floor" type="plane" size="0 0 1" friction=".3"/>
<body name="block" pos="0 0 .05"><joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 1 0"/><joint type="slide" axis="0 0 1"/><geom name="block" type="box" size=".2 .2 .05" mass="1" friction=".3"/></body>"""


def test_an_engine_that_does_not_exist_is_answered_with_those_that_do(capsys):
    with pytest.raises(SurefootError, match="no engine matches 'mujco'.*did you mean mujoco"):
        tasks.env(tasks.resolve("balance"), 1, engine="mujco")
    assert main(["eval", "/nowhere", "--in", "bulet"]) == 2
    assert "--in: no engine matches 'bulet'" in capsys.readouterr().err


def test_eval_judges_a_policy_in_the_engine_it_is_told(capsys, tmp_path):
    """A feedback that catches the pole does so in each of them, on the same starts, and not with the same numbers."""
    task = tasks.resolve("balance")
    law = linear(contract(task, tasks.env(task, 1).world), {"cart_pole": [[1.0, 2.0, 40.0, 6.0]]})
    export.save(law, tmp_path)
    found = {}
    for name in ("mujoco", "mujoco:rk4", *["bullet"] * bullets):
        assert main(["eval", str(tmp_path), "--in", name, "--episodes", "10", "--belief", "nominal", "--json"]) == 0
        found[name] = json.loads(capsys.readouterr().out)
        assert found[name]["engine"] == name and found[name]["success"] == 1.0
    assert len({f["error"] for f in found.values()}) == len(found)


@every
def test_a_control_period_is_the_same_in_every_engine(name):
    task = tasks.resolve("hover")
    assert np.isclose(tasks.env(task, 1, engine=name).world.dt, tasks.env(task, 1).world.dt, rtol=1e-12)


@every
def test_a_thrown_brick_follows_the_parabola(name):
    """z = vz t - g t^2 / 2, off by g h t / 2 with first order and not at all with fourth; x = vx t exactly."""
    w = world(name, model(BRICK))
    begin(w, v=[1.0, 0.0, 3.0, 0.0, 0.0, 0.0])
    t, q, _ = track(w, 0.5)
    off = 0.0 if name == "mujoco:rk4" else 0.5 * G * w.model.opt.timestep * t
    assert np.allclose(q[:, 0, 0], t, atol=1e-9)
    assert np.allclose(q[:, 0, 2], 3.0 * t - 0.5 * G * t**2 - off, atol=1e-9)


@every
def test_a_brick_that_tumbles_freely_keeps_its_angular_momentum(name):
    """L = R J w. A step of first order errs by h^2 / 2 |w x (w x L)|, so at most h t w^2 / 2 of L after t seconds."""
    w = world(name, model(BRICK, option='gravity="0 0 0"'))
    begin(w, v=[0.0, 0.0, 0.0, 3.0, 0.2, 1.0])
    t, q, v = track(w, 1.0)

    def momentum(q, v):
        R = np.zeros(9)
        mujoco.mju_quat2Mat(R, q[3:])
        return R.reshape(3, 3) @ (np.array([0.01, 0.02, 0.03]) * v[3:])

    first, last = (
        momentum(np.array([0, 0, 0, 1.0, 0, 0, 0]), np.array([0, 0, 0, 3.0, 0.2, 1.0])),
        momentum(q[-1, 0], v[-1, 0]),
    )
    bound = 0.5 * w.model.opt.timestep * t[-1] * (3.0**2 + 0.2**2 + 1.0) * np.linalg.norm(first)
    assert np.linalg.norm(last - first) < (1e-9 if name == "mujoco:rk4" else bound)


@every
def test_a_pendulum_swings_with_the_period_of_the_closed_form_and_keeps_its_energy(name):
    """T = 2 pi sqrt(I / m g l) (1 + A^2 / 16); a symplectic step keeps the energy within w h of itself, and w h << 1."""
    w = world(name, model(PENDULUM), substeps=1)
    begin(w, q=[0.2])
    t, q, v = track(w, 4.0)
    I, mgl = 0.04 + 2 * 0.5**2, 2 * G * 0.5
    angle, rate = q[:, 0, 0], v[:, 0, 0]
    i = np.flatnonzero((angle[:-1] < 0) & (angle[1:] >= 0))  # upward crossings of the middle
    crossings = t[i] - angle[i] * (t[i + 1] - t[i]) / (angle[i + 1] - angle[i])
    expected = 2 * np.pi * np.sqrt(I / mgl) * (1 + 0.2**2 / 16)
    assert np.allclose(np.diff(crossings), expected, rtol=1e-4)
    energy = 0.5 * I * rate**2 + mgl * (1 - np.cos(angle))
    whole = mgl * (1 - np.cos(0.2))
    drift = np.abs(energy / whole - 1).max()
    assert drift < (1e-8 if name == "mujoco:rk4" else np.sqrt(mgl / I) * w.model.opt.timestep)


SLOPE = Params((Param("slope", "slope_y", 0.0, -1.0, 1.0, op="set"), Param("mu", "friction", 0.3, 0.05, 2.0, match="floor|block", op="set")))  # fmt: skip


@every
def test_a_block_slides_down_a_slope_as_its_friction_lets_it_or_stays(name):
    """a = g (sin s - mu cos s) where tan s > mu; otherwise it stays.

    MuJoCo's contacts are springs: a sliding block chatters on them, and one that should stay creeps by 1 mm/s.
    """
    w = world(name, model(BLOCK), SLOPE, n=3)
    e = np.array([[-0.5, 0.3], [-0.5, 0.1], [-0.2, 0.3]])
    begin(w, e=e)
    track(w, 0.2)  # settles
    before = w.state.v[:, 0].copy()
    track(w, 0.5)
    found, (s, mu) = np.abs(w.state.v[:, 0] - before) / 0.5, np.abs(e.T)
    hard = name.startswith("bullet")
    assert np.allclose(found[:2], G * (np.sin(s) - mu * np.cos(s))[:2], rtol=1e-6 if hard else 0.05)
    assert abs(w.state.v[2, 0]) < (1e-9 if hard else 2e-3)


@every
def test_friction_is_a_cone_or_a_pyramid_and_each_engine_is_what_it_says(name):
    """Slid along the diagonal, a block slows by mu g under a round cone, by mu g / sqrt 2 under one with four sides."""
    w = world(name, model(BLOCK), SLOPE, n=2)
    begin(w, e=[0.0, 0.3])
    track(w, 0.2)
    w.set_state(w.state.q, np.array([[2.0, 0, 0], [np.sqrt(2), np.sqrt(2), 0]]))
    track(w, 0.3)
    slowed, hard = (2.0 - np.linalg.norm(w.state.v[:, :2], axis=1)) / 0.3, name.startswith("bullet")
    corner = 1.0 if hard or name == "mujoco:elliptic" else np.sqrt(2)
    assert np.allclose(slowed, [0.3 * G, 0.3 * G / corner], rtol=1e-6 if hard else 0.03)


SERVO = '<actuator><position name="servo" joint="hinge" kp="20" kv="1.6"/></actuator>'
LATE = Params((Param("latency", "action_delay", 0.0, 0.0, 0.02, op="set"), Param("strength", "strength", 1.0, 0.5, 2.0), Param("mass", "mass", 1.0, 0.5, 2.0)))  # fmt: skip


@every
def test_a_servo_answers_a_step_as_the_closed_form_says(name):
    """I q'' = kp (1 - q) - kd q':  q = 1 - exp(-z w t) (cos w_d t + z w / w_d sin w_d t), off by up to w h."""
    w = world(name, model(PENDULUM, SERVO, 'gravity="0 0 0"'))
    begin(w)
    t, q, _ = track(w, 2.0, u=1.0)
    I = 0.04 + 2 * 0.5**2
    rate, z = np.sqrt(20 / I), 1.6 / 2 / np.sqrt(20 * I)
    turn = rate * np.sqrt(1 - z**2)
    closed = 1 - np.exp(-z * rate * t) * (np.cos(turn * t) + z * rate / turn * np.sin(turn * t))
    assert np.abs(q[:, 0, 0] - closed).max() < (1e-6 if name == "mujoco:rk4" else rate * w.model.opt.timestep)


@every
def test_mass_strength_and_latency_mean_the_same_in_every_engine(name):
    """Mass x 2: half the answer at first. Strength x 2: twice. Latency of 10 ms: the same answer, 10 ms later."""
    w = world(name, model(PENDULUM, SERVO, 'gravity="0 0 0"'), LATE, n=4, substeps=1)
    begin(w, e=np.array([[0.0, 1.0, 1.0], [0.0, 1.0, 2.0], [0.0, 2.0, 1.0], [0.01, 1.0, 1.0]]))
    _, q, _ = track(w, 0.1, u=1.0)
    assert np.allclose(q[0, 1:3, 0] / q[0, 0, 0], [0.5, 2.0], rtol=0.02)
    late = round(0.01 / w.dt)
    if name != "mujoco:rk4":  # which asks between steps, where a delay lands earlier
        assert np.array_equal(q[:-late, 0, 0], q[late:, 3, 0])
