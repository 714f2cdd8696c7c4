"""Margins: how much added delay, or how large a push, a policy tolerates.

The load grows from a first one until success falls below the bar, and is then bisected, with a quarter of the episodes.
The two loads between which it breaks get the others, too; where one turns out otherwise, its neighbours do as well.
`tolerated` is the largest load at which at least `bar` of all episodes succeed, `failing` the smallest at which fewer do.
All loads have the same episodes. The search assumes that more is worse: for a policy that tolerates 40 ms and not 30 either
may be the result.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from surefoot import tasks
from surefoot.belief import Box, point
from surefoot.env import Env
from surefoot.gate.runs import Runs, episodes
from surefoot.observation import ObsGroup
from surefoot.params import Param, Params
from surefoot.policy import Policy
from surefoot.report import Progress, Watch, unwatched
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
QUARTER, LEAST = 4, 8  # of the episodes, to find where it breaks; at least so many
FASTER = 4  # times the load that passed is tried next


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
    """loads in order; some have a quarter of the episodes"""
    bar: float

    @property
    def whole(self) -> list[Rung]:
        """The rungs with all episodes, which the margin is made of."""
        most = max(r.n for r in self.rungs)
        return [r for r in self.rungs if r.n == most]

    @property
    def tolerated(self) -> float | None:
        """The largest load below every failing one; None where it fails without load."""
        good = [r.load for r in self.whole if r.rate >= self.bar and r.load < self.failing]
        return max(good) if good else None

    @property
    def failing(self) -> float:
        """The smallest load that fails; infinite where none does."""
        return min((r.load for r in self.whole if r.rate < self.bar), default=float("inf"))

    @property
    def falls(self) -> float | None:
        """The smallest load at which half of the episodes end early."""
        return min((r.load for r in self.rungs if 2 * r.lasted <= r.n), default=None)


Run = Callable[[float, int, int], Runs]
"""load, first, n -> n episodes under it, from number `first` on"""


@dataclass
class _Climb:
    """Loads are whole numbers of units, up to `top`."""

    run: Run
    unit: float
    top: int
    bar: float
    n: int
    rungs: dict[int, Rung] = field(default_factory=dict)

    def passes(self, k: int, n: int) -> bool:
        """Whether enough of n episodes succeed at load k; those that are known are not run again."""
        had = self.rungs.get(k, Rung(k * self.unit, 0, 0, 0))
        if had.n < n:
            more = self.run(had.load, had.n, n - had.n)
            won, lasted = int(more.success.sum()), int(more.lasted.sum())
            self.rungs[k] = Rung(had.load, n, had.successes + won, had.lasted + lasted)
        return self.rungs[k].rate >= self.bar

    def between(self, good: int, bad: int | None, n: int) -> tuple[int, int | None]:
        """Up from `good` until one fails, then between the last two, to a unit or a tenth."""
        while bad is None and good < self.top:
            tried = min(FASTER * max(good, 1), self.top)
            good, bad = (tried, None) if self.passes(tried, n) else (good, tried)
        while bad is not None and bad - good > max(1, good // 10):
            middle = (good + bad) // 2
            good, bad = (middle, bad) if self.passes(middle, n) else (good, middle)
        return good, bad

    def confirmed(self, good: int, bad: int | None) -> None:
        """All episodes at the two loads between which it breaks, until both are what they seemed."""
        while True:
            if not self.passes(good, self.n):
                good, bad = max(k for k, r in self.rungs.items() if k < good and r.rate >= self.bar), good
            elif bad is not None and self.passes(bad, self.n):
                good, bad = bad, min((k for k, r in self.rungs.items() if k > bad and r.rate < self.bar), default=None)
            elif good < self.top and (bad is None or bad - good > max(1, good // 10)):
                good, bad = self.between(good, bad, self.n)
            else:
                return


def climb(run: Run, unit: float, most: float, bar: float, n: int, first: int = 1) -> Margin:
    """The load between 0 and `most` at which success falls below the bar; `first` units are tried first."""
    few = max(min(LEAST, n), n // QUARTER)
    up = _Climb(run, unit, max(int(most / unit + 1e-9), 1), bar, n)
    if up.passes(0, n):
        begun = min(first, up.top)
        good, bad = (begun, None) if up.passes(begun, few) else (0, begun)
        up.confirmed(*up.between(good, bad, few))
    return Margin(tuple(up.rungs[k] for k in sorted(up.rungs)), bar)


@dataclass(frozen=True)
class Asked:
    """Whose margin is asked for, and how."""

    policy: Policy
    task: Task
    n: int
    """episodes"""
    seed: int
    bar: float
    watch: Watch = unwatched
    threads: int = 0
    limit: float = 1.0
    """the margin that is asked for, which is tried first: control periods of delay, m/s of a push"""
    unloaded: Runs | None = None
    """the same episodes without load, if they have been run: of the nominal world, from the same seed"""

    def climb(self, run: Run, unit: float, most: float, first: float) -> Margin:
        def known(load: float, first: int, n: int) -> Runs:
            if load == 0 and self.unloaded is not None and len(self.unloaded) >= first + n:
                return self.unloaded.rows(slice(first, first + n))
            return run(load, first, n)

        return climb(known, unit, most, self.bar, self.n, max(1, round(first / unit)))


def latency(of: Asked) -> Margin:
    """Delay added between policy and motors in the nominal world, in multiples of the engine's timestep."""
    task = of.task
    own = sum(p.high for p in task.params if p.target == "action_delay")
    late = Param("added latency", "action_delay", 0.0, 0.0, LATEST + own, op="add", unit="s", about="added by the gate")
    params = Params((*task.params, late))
    wide = replace(task, params=params, belief=Box.full(params), observations={"actor": _own(task)})
    world = tasks.env(wide, 1, threads=of.threads).world
    h = world.dt / world.substeps

    def run(delay: float, first: int, n: int) -> Runs:
        of.watch(Progress(f"latency margin: {1000 * delay:.0f} ms"))
        e = np.append(task.params.nominal, max(delay - 0.25 * h, 0.0))  # safely within its timestep
        return episodes(of.policy, Env(wide, world.with_(n), point(params, e), of.seed, first=first))

    return of.climb(run, h, LATEST, of.limit * world.dt)


def _own(task: Task) -> ObsGroup:
    """The actor's observations; its term `e`, where it has one, without the added unknown."""
    k, actor = len(task.params), task.observations["actor"]
    own = lambda t: replace(t, source=lambda s: s.x.e[:, :k]) if t.name == "e" else t  # noqa: E731
    return replace(actor, terms=tuple(map(own, actor.terms)))


def push(of: Asked) -> Margin:
    """One push in each episode of the nominal world, N s."""
    task = of.task
    body, axes, mass = Plain(model_of(tasks.env(task, 1).world)).push_point

    def run(impulse: float, first: int, n: int) -> Runs:
        of.watch(Progress(f"push margin: {impulse:.3g} N s"))
        terms = (Push(body, impulse, axes, task.seconds),)
        return episodes(of.policy, tasks.env(task, 1, seed=of.seed, threads=of.threads, terms=terms).like(n, first))

    return of.climb(run, SPEED * mass, FASTEST * mass, of.limit * mass)


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
