"""How much more a policy bears before it fails: milliseconds of delay, newton seconds of a push.

The load is doubled until success falls below the bar, then halved in on: `borne` is the largest load tried at which at
least `bar` of the episodes succeed, `broken` the least above it at which fewer do. All loads meet the same episodes.
It is taken that more is worse; a policy that bears 40 ms and not 30 would be called by either.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import mujoco
import numpy as np

from surefoot import tasks
from surefoot.belief import Box, point
from surefoot.gate.runs import Runs, episodes
from surefoot.observation import ObsGroup
from surefoot.params import Param, Params
from surefoot.policy import Policy
from surefoot.report import Progress, Watch
from surefoot.sim.gap.recipe import Plain
from surefoot.task import Task
from surefoot.verdict import clopper_pearson
from surefoot.world import Chance, OnBody, State

LATEST = 0.2  # s of added delay that is tried at most
BLOW = 0.1  # s that a push lasts
SPEED = 0.05  # m/s: the step in which pushes grow, as the speed they give the whole robot
FASTEST = 6.4  # m/s, likewise the largest
BETWEEN = (0.2, 0.5)  # shares of an episode between which the push comes


@dataclass(frozen=True)
class Rung:
    """Episodes under one load."""

    load: float
    n: int
    successes: int
    lasted: int

    @property
    def rate(self) -> float:
        return self.successes / self.n

    def facts(self) -> dict[str, float]:
        low, high = clopper_pearson(self.successes, self.n)
        return {"load": self.load, "success": self.rate, "low": low, "high": high, "lasted": self.lasted / self.n}


@dataclass(frozen=True)
class Margin:
    rungs: tuple[Rung, ...]
    """loads in order"""
    bar: float

    @property
    def borne(self) -> float | None:
        """The largest load below every one that broke it; None where it fails without any."""
        good = [r.load for r in self.rungs if r.rate >= self.bar and r.load < self.broken]
        return max(good) if good else None

    @property
    def broken(self) -> float:
        """The least load that broke it; infinite where none did."""
        return min((r.load for r in self.rungs if r.rate < self.bar), default=float("inf"))

    @property
    def falls(self) -> float | None:
        """The least load tried at which half of the episodes end early."""
        return min((r.load for r in self.rungs if 2 * r.lasted <= r.n), default=None)


def climb(run: Callable[[float], Runs], unit: float, most: float, bar: float) -> Margin:
    """Loads 0, 1, 2, 4, ... units until one breaks it, then between the last two, to a unit or a tenth."""
    rungs: dict[int, Rung] = {}

    def bears(k: int) -> bool:
        found = run(k * unit)
        rungs[k] = Rung(k * unit, len(found), int(found.success.sum()), int(found.lasted.sum()))
        return rungs[k].rate >= bar

    top, good, bad = max(int(most / unit + 1e-9), 1), 0, None
    if bears(0):
        step = 1
        while bad is None and good < top:
            step = min(step, top)
            good, bad = (step, None) if bears(step) else (good, step)
            step *= 2
        while bad is not None and bad - good > max(1, good // 10):
            middle = (good + bad) // 2
            good, bad = (middle, bad) if bears(middle) else (good, middle)
    return Margin(tuple(rungs[k] for k in sorted(rungs)), bar)


def latency(policy: Policy, task: Task, n: int, seed: int, bar: float, watch: Watch, threads: int = 0) -> Margin:
    """Delay added between policy and motors, in the nominal world, in steps of the engine's own."""
    own = sum(p.high for p in task.params if p.target == "action_delay")
    late = Param("added latency", "action_delay", 0.0, 0.0, LATEST + own, op="add", unit="s", about="added by the gate")
    params = Params((*task.params, late))
    wide = replace(task, params=params, belief=Box.full(params), observations={"actor": _own(task)})
    h = float(tasks.env(task, 1).world.model.opt.timestep)

    def run(delay: float) -> Runs:
        watch(Progress(f"latency margin: {1000 * delay:.0f} ms later"))
        e = np.append(task.params.nominal, max(delay - 0.25 * h, 0.0))  # safely within the step it means
        return episodes(policy, tasks.env(wide, n, point(params, e), seed, threads))

    return climb(run, h, LATEST, bar)


def _own(task: Task) -> ObsGroup:
    """What the actor is told; of e, should it be told that, no more than the task's own unknowns."""
    k, actor = len(task.params), task.observations["actor"]
    told = lambda t: replace(t, compute=lambda s: s.x.e[:, :k]) if t.name == "e" else t  # noqa: E731
    return replace(actor, terms=tuple(map(told, actor.terms)))


def push(policy: Policy, task: Task, n: int, seed: int, bar: float, watch: Watch, threads: int = 0) -> Margin:
    """One push in each episode, in the nominal world, N s."""
    model = tasks.env(task, 1).world.model
    body, axes, mass = handle(model)

    def run(impulse: float) -> Runs:
        watch(Progress(f"push margin: pushed with {impulse:.3g} N s"))
        return episodes(
            policy, tasks.env(task, n, seed=seed, threads=threads, terms=(Blow(body, impulse, axes, task.seconds),))
        )

    return climb(run, SPEED * mass, FASTEST * mass, bar)


def handle(model: mujoco.MjModel) -> tuple[str, np.ndarray, float]:
    """Where a robot is pushed: a body, the world axes along which it can give (k, 3), and the mass that has to be moved.

    A free robot by its base, sideways; one on a rail along it; one that is bolted down by its last body, any way.
    """
    plain = Plain(model)
    if plain.free is not None:
        body = int(model.jnt_bodyid[plain.free])
        return model.body(body).name, np.eye(3)[:2], float(model.body_subtreemass[body])
    first = int(plain.joints[0])
    body = int(model.jnt_bodyid[first])
    if model.jnt_type[first] == mujoco.mjtJoint.mjJNT_SLIDE:
        return model.body(body).name, plain.data.xaxis[first][None].copy(), float(model.body_subtreemass[body])
    last = int(plain.moving[-1])
    return model.body(last).name, np.eye(3), float(model.body_subtreemass[body])


@dataclass(frozen=True)
class Blow(OnBody):
    """A push of `impulse` N s on a body, once an episode, at a moment and in a direction drawn for each simulation."""

    body: str
    impulse: float
    axes: np.ndarray  # (k, 3)
    seconds: float  # of an episode

    @property
    def bodies(self) -> tuple[str, ...]:
        return (self.body,)

    def __call__(self, x: State, u: np.ndarray, chance: Chance) -> np.ndarray:
        n, out = len(x.q), np.zeros((len(x.q), 1, 6))
        rows = chance.rows("blow", np.arange(n), 0)
        begin = rows.uniform(*BETWEEN, n) * self.seconds
        way = rows.standard_normal((n, len(self.axes)))
        way /= np.maximum(np.linalg.norm(way, axis=1, keepdims=True), 1e-12)
        length = max(1, round(BLOW / chance.dt)) * chance.dt
        since = x.time - begin
        hit = (since >= 0) & (since < length - 1e-9)
        out[:, 0, :3] = hit[:, None] * (self.impulse / length) * (way @ self.axes)
        return out
