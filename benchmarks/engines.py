"""Where engines part: the same model, controls and policies in MuJoCo, in MuJoCo told otherwise, and in Bullet.

    python -m benchmarks.engines [--quick] [--json] [--record]

closed     errors against closed forms, at a timestep of 5 ms
apart      seconds until a task's trajectories, from the same starts and under the same controls, are 1 cm (hover, arm, walk)
           or 10 mrad (balance) away from MuJoCo's at an eighth of its timestep; median over starts, least and largest
policies   success over the task's belief, on the same worlds and starts, of one policy that was trained in MuJoCo
speed      control periods a second of one core, with 32 simulations
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from time import process_time

import mujoco
import numpy as np

from benchmarks import measure
from benchmarks.lessons import JUDGED, learned
from benchmarks.measure import Row, row
from surefoot import tasks
from surefoot.env import Env
from surefoot.params import Param, Params
from surefoot.sim.engines import ENGINES, make
from surefoot.tasks.ready.arm import tip
from surefoot.tasks.rollout import evaluate
from surefoot.world import Chance, Start, World

G, H, MU = 9.81, 0.005, 0.3
REFERENCE = "mujoco:eighth-step"
BRICK = '<body><freejoint/><inertial pos="0 0 0" mass="2" diaginertia=".01 .02 .03"/></body>'
PENDULUM = '<body><joint name="hinge" axis="0 1 0"/><inertial pos="0 0 -.5" mass="2" diaginertia=".04 .04 .01"/></body>'
INERTIA, WEIGHT = 0.04 + 2 * 0.5**2, 2 * G * 0.5  # kg m^2 and N m/rad of the pendulum about its hinge
SLIDES = "".join(f'<joint type="slide" axis="{a}"/>' for a in ("1 0 0", "0 1 0", "0 0 1"))
BLOCK = f"""<geom name="floor" type="plane" size="0 0 1" friction="{MU}"/>
<body pos="0 0 .05">{SLIDES}<geom name="block" type="box" size=".2 .2 .05" mass="1" friction="{MU}"/></body>"""
SERVO = '<actuator><position joint="hinge" kp="20" kv="1.6"/></actuator>'
TILT = Params((Param("slope", "slope_y", 0.0, -1.0, 1.0, op="set"),))


def world(engine: str, body: str, rest: str = "", gravity: str = f"0 0 -{G}", params: Params | None = None) -> World:
    xml = f'<mujoco><option timestep="{H}" gravity="{gravity}"/><worldbody>{body}</worldbody>{rest}</mujoco>'
    return make(engine, mujoco.MjSpec.from_string(xml), params or Params(), 1, 1, 1)


def moved(w: World, seconds: float, q: float = 0.0, v: tuple[float, ...] = (), u: float = 0.0, slope: float = 0.0):
    """Times, positions (T, nq) and velocities (T, nv) from q and v on."""
    m = w.model
    start = Start(m.qpos0[None] + (q if m.nq == 1 else 0.0), np.array([v or [0.0] * m.nv]), np.zeros((1, m.nu)))
    w.reset(np.array([0]), np.full((1, len(w.params)), slope), start)
    motion = w.rollout(np.full((1, round(seconds / w.dt), m.nu), u), Chance(0, 0, w.dt))
    return w.dt * np.arange(1, motion.q.shape[1] + 1), motion.q[0], motion.v[0]


def fall(engine: str) -> float:
    t, q, _ = moved(world(engine, BRICK), 1.0)
    return abs(q[-1, 2] + 0.5 * G * t[-1] ** 2) / (0.5 * G)


def momentum(engine: str) -> float:
    v = (0.0, 0.0, 0.0, 3.0, 0.2, 1.0)
    _, q, last = moved(world(engine, BRICK, gravity="0 0 0"), 2.0, v=v)
    R, J = np.zeros(9), np.array([0.01, 0.02, 0.03])
    mujoco.mju_quat2Mat(R, q[-1, 3:])
    L = J * np.array(v[3:])
    return float(np.linalg.norm(R.reshape(3, 3) @ (J * last[-1, 3:]) - L) / np.linalg.norm(L))


def period(engine: str) -> float:
    t, q, _ = moved(world(engine, PENDULUM), 6.0, q=0.2)
    x = q[:, 0]
    i = np.flatnonzero((x[:-1] < 0) & (x[1:] >= 0))
    crossings = t[i] - x[i] * H / (x[i + 1] - x[i])
    exact = 2 * np.pi * np.sqrt(INERTIA / WEIGHT) * (1 + 0.2**2 / 16)
    return abs(float(np.diff(crossings).mean()) / exact - 1)


def energy(engine: str) -> float:
    _, q, v = moved(world(engine, PENDULUM), 10.0, q=1.0)
    E = 0.5 * INERTIA * v[:, 0] ** 2 + WEIGHT * (1 - np.cos(q[:, 0]))
    return float(np.abs(E / (WEIGHT * (1 - np.cos(1.0))) - 1).max())


def servo(engine: str) -> float:
    t, q, _ = moved(world(engine, PENDULUM, SERVO, "0 0 0"), 2.0, u=1.0)
    rate, z = np.sqrt(20 / INERTIA), 0.8 / np.sqrt(20 * INERTIA)
    turn = rate * np.sqrt(1 - z**2)
    exact = 1 - np.exp(-z * rate * t) * (np.cos(turn * t) + z * rate / turn * np.sin(turn * t))
    return float(np.abs(q[:, 0] - exact).max())


def slide(engine: str) -> float:
    w, s = world(engine, BLOCK, params=TILT), 0.5
    _, _, v = moved(w, 1.0, slope=-s)
    k = round(0.2 / w.dt)
    return abs(abs(v[-1, 0] - v[k - 1, 0]) / 0.8 / (G * (np.sin(s) - MU * np.cos(s))) - 1)


def creep(engine: str) -> float:
    return 1000 * abs(float(moved(world(engine, BLOCK, params=TILT), 1.0, slope=-0.2)[2][-1, 0]))


def diagonal(engine: str) -> float:
    _, _, v = moved(world(engine, BLOCK), 0.4, v=(2.0, 2.0, 0.0))
    return float((np.sqrt(8.0) - np.linalg.norm(v[-1, :2])) / 0.4 / (MU * G))


def sink(engine: str) -> float:
    return -1000 * float(moved(world(engine, BLOCK), 1.0)[1][-1, 2])


CASES: dict[str, tuple[Callable[[str], float], str]] = {
    "free fall for 1 s, distance": (fall, "of it"),
    "tumbling for 2 s, angular momentum": (momentum, "of it"),
    "pendulum, period": (period, "of it"),
    "pendulum at 1 rad for 10 s, energy": (energy, "of it"),
    "servo, step response": (servo, "rad"),
    "block on a slope, acceleration": (slide, "of it"),
    "block that should stay, speed": (creep, "mm/s"),
    "block slid diagonally, slowing over mu g": (diagonal, "1 is exact"),
    "block at rest, depth in the floor": (sink, "mm"),
}


def closed(quick: bool) -> Iterator[Row]:
    for case, (error, unit) in CASES.items():
        for engine in ENGINES:
            yield row(f"{case}: {engine}", error(engine), unit)


PLACES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "balance": lambda q: q[:, 1:],
    "hover": lambda q: q[:, :3],
    "arm": tip,
    "walk": lambda q: q[:, :3],
}
"""what is compared: the pole's angle, where the drone, the hand, the trunk is"""


def controls(task: str, periods: int, n: int, width: int) -> np.ndarray:
    """Actions (periods, n, width) that do not look: a trot for walk, slow random ones for the others."""
    t = 0.02 * np.arange(periods)
    if task == "walk":
        phase = 2 * np.pi * 2.0 * t[:, None] + np.pi * np.array([0, 1, 1, 0])
        leg = np.stack([0 * phase, 0.5 * np.cos(phase), -1.0 * np.maximum(np.sin(phase), 0)], 2)
        return np.repeat(leg.reshape(periods, 1, 12), n, 1)
    rng = np.random.default_rng(0)
    waves = rng.uniform(-0.3, 0.3, (n, width, 3)), rng.uniform(0, 2 * np.pi, (n, width, 3))
    return np.einsum("nwk,tnwk->tnw", waves[0], np.sin(waves[1] + 2 * np.pi * t[:, None, None, None] * (1, 2, 3)))


def path(name: str, engine: str, periods: int, n: int) -> np.ndarray:
    """Where things are, (periods, n, dim), in the nominal world; nothing ends an episode."""
    task = replace(tasks.resolve(name), ended={}, seconds=1e6)
    env = tasks.env(task, n, seed=JUDGED, threads=1, engine=engine)
    env.reset()
    u, found = controls(name, periods, n, len(task.action.names)), []
    for k in range(periods):
        env.step(u[k])
        found.append(PLACES[name](env.world.state.q).copy())
    return np.array(found)


def parting(name: str, engine: str, truth: np.ndarray, dt: float) -> np.ndarray:
    """Seconds until each start's trajectories are apart; the whole time, where they never are."""
    off = np.linalg.norm(path(name, engine, *truth.shape[:2]) - truth, axis=2) > 0.01
    return np.where(off.any(0), off.argmax(0) + 1, len(truth)) * dt


def apart(quick: bool) -> Iterator[Row]:
    n, periods = (2, 10) if quick else (20, 100)
    for name in PLACES:
        measure.said(name)
        truth, dt = path(name, REFERENCE, periods, n), tasks.env(tasks.resolve(name), 1).world.dt
        for engine in (k for k in ENGINES if k != REFERENCE):
            note = f"of {periods * dt:g} s" if engine == "mujoco" else ""
            yield row(f"{name}: {engine}", parting(name, engine, truth, dt), "s", note=note)
    elliptic = path("walk", "mujoco:elliptic", periods, n)
    yield row("walk: bullet from mujoco:elliptic", parting("walk", "bullet", elliptic, 0.02), "s")


STEPS = {"balance": 200_000, "arm": 400_000, "hover": 600_000}
"""hover's own is three times that, and its success higher: here it only has to be the same policy everywhere"""
JUDGES = ("mujoco", "mujoco:euler", "mujoco:rk4", "mujoco:half-step", "mujoco:eighth-step", "bullet")
"""nothing touches in these tasks, so solvers and cones of contacts are left out"""


def policies(quick: bool) -> Iterator[Row]:
    for name, steps in STEPS.items():
        task = tasks.resolve(name)
        measure.said(f"{name}: training")
        policy, _, _ = learned(task, task.belief, 0, 4096 if quick else steps)
        for engine in JUDGES:
            measure.said(engine)
            found = evaluate(policy, _judge(name, 8 if quick else 200, engine))
            low, high = found.interval
            error = f"error {np.nanmean(found.error):.4g} {task.error_unit}" if np.isfinite(found.error).any() else ""
            yield replace(row(f"{name}: {engine}", found.rate, "success", note=error), low=low, high=high)


def _judge(name: str, n: int, engine: str) -> Env:
    task = tasks.resolve(name)
    return tasks.env(task, n, task.belief, JUDGED, 1, engine=engine)


def speed(quick: bool) -> Iterator[Row]:
    n, periods = 32, 2 if quick else 20
    for name in PLACES:
        for engine in ("mujoco", "bullet"):
            env, zero = _judge(name, n, engine), np.zeros((n, len(tasks.resolve(name).action.names)))
            env.reset(), env.step(zero)
            rates = []
            for _ in range(1 if quick else 3):
                began = process_time()
                for _ in range(periods):
                    env.step(zero)
                rates.append(n * periods / (process_time() - began))
            yield row(f"{name}: {engine}", rates, "periods/s")


if __name__ == "__main__":
    parts = {"closed": closed, "apart": apart, "policies": policies, "speed": speed}
    measure.main("engines", __doc__.split("\n")[0], parts)
