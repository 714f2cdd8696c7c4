"""Margins: how much added delay, or how large a push, a policy tolerates.

The load is doubled until success falls below the bar, then bisected: `tolerated` is the largest load tried at which at
least `bar` of the episodes succeed, `failing` the smallest at which fewer do. All loads have the same episodes. The search
assumes that more is worse: for a policy that tolerates 40 ms and not 30 either may be the result.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from surefoot import tasks
from surefoot.belief import Box, point
from surefoot.gate.runs import Runs, episodes
from surefoot.observation import ObsGroup
from surefoot.params import Param, Params
from surefoot.policy import Policy
from surefoot.report import Progress, Watch
from surefoot.sim.gap.recipe import Plain
from surefoot.sim.layout import model_of
from surefoot.task import Task
from surefoot.verdict import clopper_pearson
from surefoot.world import Chance, OnBody, State

LATEST = 0.2  # s: largest added delay
LASTS = 0.1  # s of a push
SPEED = 0.05  # m/s: step of the pushes, as impulse / mass
FASTEST = 6.4  # m/s: largest push, as impulse / mass
BETWEEN = (0.2, 0.5)  # of an episode: when the push may come


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
    def tolerated(self) -> float | None:
        """The largest load below every failing one; None where it fails without load."""
        good = [r.load for r in self.rungs if r.rate >= self.bar and r.load < self.failing]
        return max(good) if good else None

    @property
    def failing(self) -> float:
        """The smallest load that fails; infinite where none does."""
        return min((r.load for r in self.rungs if r.rate < self.bar), default=float("inf"))

    @property
    def falls(self) -> float | None:
        """The smallest load at which half of the episodes end early."""
        return min((r.load for r in self.rungs if 2 * r.lasted <= r.n), default=None)


def climb(run: Callable[[float], Runs], unit: float, most: float, bar: float) -> Margin:
    """Loads 0, 1, 2, 4, ... units until one fails, then between the last two, to a unit or a tenth."""
    rungs: dict[int, Rung] = {}

    def passes(k: int) -> bool:
        found = run(k * unit)
        rungs[k] = Rung(k * unit, len(found), int(found.success.sum()), int(found.lasted.sum()))
        return rungs[k].rate >= bar

    top, good, bad = max(int(most / unit + 1e-9), 1), 0, None
    if passes(0):
        step = 1
        while bad is None and good < top:
            step = min(step, top)
            good, bad = (step, None) if passes(step) else (good, step)
            step *= 2
        while bad is not None and bad - good > max(1, good // 10):
            middle = (good + bad) // 2
            good, bad = (middle, bad) if passes(middle) else (good, middle)
    return Margin(tuple(rungs[k] for k in sorted(rungs)), bar)


def latency(policy: Policy, task: Task, n: int, seed: int, bar: float, watch: Watch, threads: int = 0) -> Margin:
    """Delay added between policy and motors in the nominal world, in multiples of the engine's timestep."""
    own = sum(p.high for p in task.params if p.target == "action_delay")
    late = Param("added latency", "action_delay", 0.0, 0.0, LATEST + own, op="add", unit="s", about="added by the gate")
    params = Params((*task.params, late))
    wide = replace(task, params=params, belief=Box.full(params), observations={"actor": _own(task)})
    world = tasks.env(task, 1).world
    h = world.dt / world.substeps

    def run(delay: float) -> Runs:
        watch(Progress(f"latency margin: {1000 * delay:.0f} ms"))
        e = np.append(task.params.nominal, max(delay - 0.25 * h, 0.0))  # safely within its timestep
        return episodes(policy, tasks.env(wide, n, point(params, e), seed, threads))

    return climb(run, h, LATEST, bar)


def _own(task: Task) -> ObsGroup:
    """The actor's observations; its term `e`, where it has one, without the added unknown."""
    k, actor = len(task.params), task.observations["actor"]
    own = lambda t: replace(t, source=lambda s: s.x.e[:, :k]) if t.name == "e" else t  # noqa: E731
    return replace(actor, terms=tuple(map(own, actor.terms)))


def push(policy: Policy, task: Task, n: int, seed: int, bar: float, watch: Watch, threads: int = 0) -> Margin:
    """One push in each episode of the nominal world, N s."""
    body, axes, mass = Plain(model_of(tasks.env(task, 1).world)).push_point

    def run(impulse: float) -> Runs:
        watch(Progress(f"push margin: {impulse:.3g} N s"))
        terms = (Push(body, impulse, axes, task.seconds),)
        return episodes(policy, tasks.env(task, n, seed=seed, threads=threads, terms=terms))

    return climb(run, SPEED * mass, FASTEST * mass, bar)


@dataclass(frozen=True)
class Push(OnBody):
    """A push of `impulse` N s on a body, once in each episode, at a random time in a random direction."""

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
        start = rows.uniform(*BETWEEN, n) * self.seconds
        direction = rows.standard_normal((n, len(self.axes)))
        direction /= np.maximum(np.linalg.norm(direction, axis=1, keepdims=True), 1e-12)
        length = max(1, round(LASTS / chance.dt)) * chance.dt
        since = x.time - start
        hit = (since >= 0) & (since < length - 1e-9)
        out[:, 0, :3] = hit[:, None] * (self.impulse / length) * (direction @ self.axes)
        return out
