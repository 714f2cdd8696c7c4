"""What identification from logs is worth: efficiency and honest intervals, beside mujoco.sysid; basins; speed.

    python -m benchmarks.identify [--only efficiency|basin|speed] [--quick] [--json] [--record]

efficiency  a driven pendulum of unknown mass, damping and armature, measured with white, unequal and coloured noise:
            CRLB / MSE of each parameter and how often the 95 % interval holds the truth, over the same runs for both.
basin       100 fits that begin anywhere within 50 % of the truth: how many end at it.
speed       512 candidate parameter vectors x 2 s of the quadruped, against the engine's own limit.
"""

import contextlib
import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np

from benchmarks import measure
from benchmarks.measure import Row, interleaved, row
from surefoot import tasks
from surefoot.belief import Box
from surefoot.log import Log
from surefoot.params import Param, Params
from surefoot.real2sim.identify import Identify, identify
from surefoot.real2sim.identify.fit import Case, Problem, Space
from surefoot.real2sim.identify.noise import Noise
from surefoot.real2sim.plant import world
from surefoot.real2sim.replay import windows
from surefoot.rng import stream
from surefoot.sim.engine import Engine
from surefoot.world import Chance, Start

RUNS = 1000  # CRLB / MSE is then known to 4.5 %, a coverage of 95 % to 0.7 %
STEPS, DT = 200, 0.01
XML = """<mujoco><compiler angle="radian"/><option timestep="0.01" integrator="implicitfast"/>
<worldbody><body name="arm"><joint name="hinge" axis="0 1 0" damping=".1" armature=".02"/>
  <inertial pos="0 0 -.3" mass="1" diaginertia=".01 .01 .01"/></body></worldbody>
<actuator><motor name="motor" joint="hinge"/></actuator>
<sensor><jointpos name="q" joint="hinge"/><jointvel name="v" joint="hinge"/></sensor></mujoco>"""
PARAMS = Params((
    Param("mass", "mass", 1.0, 0.5, 1.5, match="arm"),
    Param("damping", "damping", 0.1, 0.05, 0.15, op="set"),
    Param("armature", "armature", 0.02, 0.01, 0.03, op="set"),
))  # fmt: skip
TRUTH = np.array([1.08, 0.108, 0.0185])


@dataclass(frozen=True)
class Noisy:
    """Spread of position (rad) and speed (rad/s), and the autocorrelation of both."""

    q: float
    v: float
    rho: float = 0.0

    def draw(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """(count, 2), stationary from its first row."""
        w = rng.standard_normal((count, 2))
        for k in range(1, count):
            w[k] = self.rho * w[k - 1] + np.sqrt(1 - self.rho**2) * w[k]
        return w * [self.q, self.v]

    @property
    def noise(self) -> Noise:
        s = np.array([self.q, self.v]) * np.sqrt(1 - self.rho**2)
        return Noise(s, np.full(2, self.rho))


NOISES = {
    # the spreads of position and speed under this drive are about 0.9 rad and 4 rad/s
    "white": Noisy(0.01, 0.044),
    "unequal": Noisy(0.001, 0.44),
    "AR(1) 0.9": Noisy(0.01, 0.044, 0.9),
}


def pendulum() -> Engine:
    return world(mujoco.MjSpec.from_string(XML), PARAMS, DT)


def drive() -> np.ndarray:
    """(STEPS, 1) two sines, N m."""
    t = DT * np.arange(STEPS)
    return (2.0 * np.sin(4.0 * t) + 1.0 * np.sin(9.0 * t + 1.0))[:, None]


def moved(w: Engine, e: np.ndarray) -> np.ndarray:
    """(STEPS + 1, 2) position and speed from rest."""
    rest = np.zeros((1, 1))
    w.reset(np.arange(1), e[None], Start(rest, rest, rest))
    m = w.rollout(drive()[None], Chance(0, 0, w.dt))
    return np.concatenate([np.zeros((1, 2)), np.stack([m.q[0, :, 0], m.v[0, :, 0]], 1)])


def recorded(w: Engine, clean: np.ndarray, noise: Noisy, seed: int) -> Log:
    """A noisy log; the first row is rest, exactly."""
    y = clean + np.concatenate([np.zeros((1, 2)), noise.draw(stream(seed, "noise"), STEPS)])
    u = np.concatenate([drive(), drive()[-1:]])
    return Log(DT * np.arange(STEPS + 1), {"joint_pos": y[:, :1], "joint_vel": y[:, 1:], "control": u})


def bound(w: Engine, log: Log, noise: Noisy) -> np.ndarray:
    """(3, 3) the covariance below which no unbiased estimate goes."""
    space = Space.of(Box.full(PARAMS), DT)
    problem = Problem(space, (Case(w, windows(w, log), False),), (noise.noise,))
    J = problem.jacobian(space.z(TRUTH)) / (space.high - space.low)
    return np.linalg.inv(J.T @ J)


def ours(w: Engine, log: Log) -> tuple[np.ndarray, np.ndarray]:
    """Estimate, and whether each 95 % interval holds the truth."""
    found = identify(w, Box.full(PARAMS), log, Identify(horizons=(), starts="known", hold=0.0))
    low, high = found.belief.interval()
    return found.e, (low <= TRUTH) & (TRUTH <= high)


def sysid(log: Log) -> tuple[np.ndarray, np.ndarray]:
    """mujoco.sysid on the same log, as its documentation has it."""
    from mujoco import sysid as peer

    spec = mujoco.MjSpec.from_string(XML)

    def put(name: str) -> Any:
        def modify(s: mujoco.MjSpec, p: Any) -> None:
            value = float(np.ravel(p.value)[0])
            if name == "mass":
                s.body("arm").inertia = np.full(3, 0.01) * value
                s.body("arm").mass = value
            elif name == "damping":
                s.joint("hinge").damping[0] = value
            else:
                s.joint("hinge").armature = value

        return modify

    params = peer.ParameterDict({
        p.name: peer.Parameter(p.name, p.nominal, p.low, p.high, modifier=put(p.name)) for p in PARAMS
    })  # fmt: skip
    model = spec.compile()
    control = peer.TimeSeries(log.time[:-1], log["control"][:-1])
    y = np.concatenate([log["joint_pos"], log["joint_vel"]], 1)
    # the state, as the log has it: the engine's sensors are those of the state a step before
    sensors = peer.TimeSeries.from_names(log.time, y, model, ["hinge_qpos", "hinge_qvel"])
    start = peer.create_initial_state(model, np.zeros(1), np.zeros(1))
    sequences = peer.ModelSequences("arm", spec, "run", start, control, sensors)
    residual = peer.build_residual_fn(models_sequences=[sequences], n_threads=1)
    with contextlib.redirect_stdout(io.StringIO()):  # it tells of every iteration, asked or not
        best, result = peer.optimize(params, residual, verbose=False)
    final, _, _ = residual(result.x, best)
    _, half = peer.calculate_intervals(final, result.jac)
    x = np.asarray(result.x)
    return x, np.abs(x - TRUTH) <= half


def efficiency(quick: bool) -> Iterator[Row]:
    w = pendulum()
    clean, runs = moved(w, TRUTH), 5 if quick else RUNS
    for name, noise in NOISES.items():
        crlb = np.diag(bound(w, recorded(w, clean, noise, 0), noise))
        for who, fit in (("surefoot", lambda x: ours(w, x)), ("mujoco.sysid", sysid)):
            found = [fit(recorded(w, clean, noise, seed)) for seed in range(runs)]
            measure.said(f"{name}, {who}")
            mse = np.square(np.array([x for x, _ in found]) - TRUTH).mean(0)
            held = np.array([h for _, h in found]).mean(0)
            mine = who == "surefoot"
            for p, eff, cover in zip(PARAMS.names, crlb / mse, held):
                yield row(
                    f"{name}, {who}: {p}, CRLB / MSE", eff, "ratio", at_least=0.9 if mine else None, note=f"{runs} runs"
                )
                yield row(f"{name}, {who}: {p}, 95 % interval holds the truth", cover, "of runs", note=f"{runs} runs",
                          at_least=(0.90 if noise.rho else 0.93) if mine else None)  # fmt: skip


def basin(quick: bool) -> Iterator[Row]:
    """Starts drawn within +-50 % of the truth, each parameter on its own."""
    w = pendulum()
    log = recorded(w, moved(w, TRUTH), NOISES["white"], 0)
    starts = TRUTH * stream(0, "starts").uniform(0.5, 1.5, (3 if quick else 100, 3))
    sd = np.sqrt(np.diag(bound(w, log, NOISES["white"])))
    reached = []
    wide = Params(tuple(Param(p.name, p.target, float(x), 0.2 * p.nominal, 3 * p.nominal, match=p.match, op=p.op)
                        for p, x in zip(PARAMS, TRUTH)))  # fmt: skip
    for start in starts:
        params = Params(
            tuple(Param(p.name, p.target, float(x), p.low, p.high, match=p.match, op=p.op) for p, x in zip(wide, start))
        )
        found = identify(
            world(mujoco.MjSpec.from_string(XML), params, DT), Box.full(params), log, Identify(starts="known", hold=0.0)
        )
        reached.append(bool((np.abs(found.e - TRUTH) < 4 * sd).all()))
    yield row("starts within 50 % that end within 4 sd of the truth", np.mean(reached), "of starts", at_least=0.95,
              note=f"{len(starts)} starts")  # fmt: skip


def speed(quick: bool) -> Iterator[Row]:
    """Candidates that a search would ask for at once, through World.rollout, and the engine's own batch stepped bare."""
    n, seconds = (32, 0.2) if quick else (512, 2.0)
    task = tasks.resolve("walk")
    env = tasks.env(task, n, task.belief, 0)
    w = env.world
    assert isinstance(w, Engine)
    w = w.with_(n, ())
    count = round(seconds / w.dt)
    start = task.episode(stream(0, "start"), n).start
    e = task.belief.sample(stream(0, "e"), n)
    u = np.tile(start.u[:, None], (1, count, 1))

    def reset() -> None:
        w.reset(np.arange(n), e, start)

    def candidates() -> float:
        reset()
        return measure.seconds(lambda: w.rollout(u, Chance(0, 0, w.dt)))

    def limit() -> float:
        reset()
        w.state.u[:] = start.u
        return measure.seconds(lambda: w.batch.step(nstep=count * w.substeps))

    times = interleaved({"ours": candidates, "limit": limit}, 1 if quick else 5)
    total = n * count * w.substeps
    yield row(f"{n} candidates x {seconds:g} s of walk", [total / t for t in times["ours"]], "engine steps/s")
    ratio = np.array(times["limit"]) / np.array(times["ours"])
    yield row("against the engine's own batch", ratio, "of its limit", at_least=0.9)


PARTS = {"efficiency": efficiency, "basin": basin, "speed": speed}

if __name__ == "__main__":
    measure.main("identify", __doc__.split("\n")[0], PARTS)
