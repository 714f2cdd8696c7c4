"""explore: the motion that is most informative about chosen unknowns, and how informative it is, before a robot moves.

    max over u of  E_e log det (F(u, e) + P^-1)     or its minimum over e;     u within position, speed, torque limits

F is the Fisher information of the motion (fisher.py), e is drawn from the belief, P is the belief's covariance. A motion
that breaks a limit, makes a forbidden contact or diverges at any of these e is no candidate. The chosen motion is tested
at many more e and made smaller until it keeps every limit there, too.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from surefoot.belief import Belief
from surefoot.control.sampling import CEM, begin
from surefoot.errors import SurefootError
from surefoot.log import Log
from surefoot.real2sim.excite.excitation import (
    Explore,
    Guard,
    Limits,
    Range,
    Shape,
    control_range,
    guard,
    home,
    settled,
)
from surefoot.real2sim.excite.fisher import Meter, information, informed, meter, played, posterior, score, slopes
from surefoot.real2sim.identify.uncertainty import determined
from surefoot.real2sim.replay import repeated
from surefoot.report import Progress, Watch, unwatched
from surefoot.rng import stream
from surefoot.sim.layout import model_of
from surefoot.world import Start, World

BROKEN = 1e6  # a motion that breaks a limit costs more than any that does not
SMALLER = 0.9  # factor on the chosen motion until it keeps every limit
LEAST = 0.05  # of the chosen motion: below this there is none
BETTER = 3  # times the motions that the search wants: these are simulated at all samples of e
FIRST, SPREAD = 4, 0.2  # rounds' worth of motions in the first draw; spread of the search around the best of them
SETTLED = 0.01  # of a standard deviation: a search that gains less has ended
NOISE = {"joint_pos": 0.002}  # rad: a good encoder behind a gear


@dataclass(frozen=True)
class Prospect:
    """Standard deviation of one unknown now, and predicted after the motion; in its unit."""

    name: str
    unit: str
    value: float
    before: float
    after: float
    determined: bool
    """whether a log of the motion determines it by itself, as identify judges it"""


@dataclass(frozen=True)
class Explored:
    """A motion to play, and how informative it is."""

    log: Log
    """columns time and control; predicted standard deviations and limits are in its meta"""
    params: tuple[Prospect, ...]
    used: dict[str, float]
    """limit -> the largest fraction of it that any sample of e used"""
    condition: float
    """condition number of F in units of the belief: above 1e6 some combination of unknowns leaves no trace"""
    score: float
    history: tuple[float, ...] = field(default=())
    """the best score after each round"""

    @property
    def undetermined(self) -> list[str]:
        return [p.name for p in self.params if not p.determined]

    def facts(self) -> dict[str, Any]:
        return {
            "params": [vars(p) for p in self.params], "undetermined": self.undetermined, "used": self.used,
            "condition": self.condition, "score": self.score, "history": list(self.history),
        }  # fmt: skip


@dataclass(frozen=True)
class Design:
    """An experiment to design: what is measured (meter), what motions may do (guard, range), and what is optimised."""

    belief: Belief
    meter: Meter
    guard: Guard
    range: Range
    time: np.ndarray  # (T + 1,) s
    noise: Mapping[str, float]
    shape: Shape
    settings: Explore

    def controls(self, x: np.ndarray) -> np.ndarray:
        """(n, T + 1, nu) of a search's numbers (n, k)."""
        return self.shape.controls(x, self.range, self.time)

    def used(self, u: np.ndarray, z: np.ndarray) -> dict[str, float]:
        """Limit -> the largest fraction of it that one motion (T + 1, nu) uses at any z."""
        at = self.meter
        (motion,) = played(at, u[None, :-1], at.space.e(z), repeated(at.start, len(z)))
        return {k: float(np.nanmax(v)) for k, v in self.guard.each(motion).items()}


def design(
    world: World,
    belief: Belief,
    limits: Limits | None = None,
    noise: Mapping[str, float] | None = None,
    shape: Shape | None = None,
    settings: Explore | None = None,
    start: Start | None = None,
) -> Design:
    """`world` comes from excitation.machine; `noise`: signal -> standard deviation; `start`: where motions begin."""
    limits, noise = limits or Limits(), noise or NOISE
    at = meter_for(world, belief, noise, start)
    time = np.arange(max(2, round(limits.seconds / world.dt)) + 1) * world.dt
    within, range_ = guard(model_of(world), limits), control_range(model_of(world), at.start.u[0], limits)
    return Design(belief, at, within, range_, time, noise, shape or Shape(), settings or Explore())


def meter_for(world: World, belief: Belief, noise: Mapping[str, float], start: Start | None = None) -> Meter:
    """A Meter of motions that begin at rest, where the machine settles while its controls hold `start`, or home."""
    return meter(world, belief, settled(world, belief.estimate(), start or home(model_of(world))), noise)


def explore(to: Design, watch: Watch = unwatched) -> Explored:
    """The most informative motion about the free unknowns of the design's belief."""
    s, space = to.settings, to.meter.space
    z = space.z(to.belief.sample(stream(s.seed, "explore"), s.samples))
    _check_at_rest(to, z)
    many = space.z(to.belief.sample(stream(s.seed, "verify"), s.verify))
    rule = CEM(0.15, 0.05)
    cost = _Race(to, z, many[: s.wary], watch, max(2, round(rule.elite * s.population)))
    rng = stream(s.seed, "explore search")
    first = to.shape.drawn(rng, FIRST * s.population, len(to.range.home), float(to.time[-1]))
    x0 = first[np.argmin(cost(first, 1))]  # the cost has many local minima: start from the best of many draws
    found, history = begin(rule, x0, SPREAD, (0.0, 1.0)), list[float]()
    while len(history) < s.iterations and not _settled(history, s, to.meter.d):
        X = found.ask(s.population, rng)
        found = found.tell(X, cost(X))
        history.append(-found.cost)
    if found.cost >= BROKEN / 2:
        raise SurefootError(
            f"explore: none of {s.iterations * s.population} motions kept the limits; "
            "try a longer or slower motion, a smaller reach or wider limits"
        )
    watch(Progress(f"testing the limits at {s.verify} samples of the belief"))
    u, used = _shrunk(to, to.controls(found.x[None]), many)
    return explored(to, u[0], many, used, tuple(history))


def _settled(history: Sequence[float], s: Explore, d: int) -> bool:
    """Whether the last `patience` rounds made the standard deviations of d unknowns smaller by less than 1 %, in the mean."""
    if len(history) <= s.patience or history[-1] <= -BROKEN / 2:
        return False
    gained = history[-1] - history[-1 - s.patience]
    return gained < 2 * SETTLED * (d if s.objective == "logdet" else abs(history[-1]))


def _check_at_rest(to: Design, z: np.ndarray) -> None:
    """Refuse limits that even standing still at home breaks."""
    used = to.used(np.repeat(to.range.home[None], len(to.time), 0), z)
    name = max(used, key=lambda k: used[k])
    if used[name] > 1:
        raise SurefootError(f"explore: even to hold still breaks a limit: {name} is {used[name]:.3g} of its limit")


@dataclass
class _Race:
    """Minus the score of motions, for a search that only wants its best few, so that others need fewer simulations:

    every motion is simulated at the first sample of e, the better ones at all of them, and the best, in their order, at
    further samples `wary` until `needed` of them keep the limits there, too. The others rank behind, by what is known.
    """

    to: Design
    z: np.ndarray  # (m, d)
    wary: np.ndarray  # (k, d)
    watch: Watch
    needed: int
    done: int = 0
    best: float = -math.inf

    def __call__(self, x: np.ndarray, needed: int | None = None) -> np.ndarray:
        needed, s = needed or self.needed, self.to.settings
        u = self.to.controls(x)
        first, cost = self._scored(u, self.z[:1])
        kept = np.argsort(cost, kind="stable")[: max(BETTER * needed, len(x) // 4)]
        kept = kept[cost[kept] < BROKEN / 2]
        value = first[:, 0]
        if len(kept) and len(self.z) > 1:
            rest, more = self._scored(u[kept], self.z[1:])
            every = np.concatenate([first[kept], rest], 1)
            value[kept] = every.mean(1) if s.over == "mean" else every.min(1)
            cost[kept] = np.where(more < BROKEN / 2, -value[kept], more)
            others = np.setdiff1d(np.flatnonzero(cost < BROKEN / 2), kept)
            if len(others):
                cost[others] += max(float(-value[kept].min() - cost[others].min()), 0.0) + 1.0
        self._wary(u, cost, needed)
        fine = cost < BROKEN / 2
        self.done, self.best = self.done + 1, max(self.best, float(-cost.min()) if fine.any() else -math.inf)
        words = f"round {self.done} of {s.iterations + 1}: {fine.sum()} of {len(x)} motions keep the limits, best {self.best:.4g}"
        self.watch(Progress(words, self.done / (s.iterations + 1)))
        return cost

    def _scored(self, u: np.ndarray, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(n, m) scores at samples z, and (n,) costs by their mean or worst; at least BROKEN where a limit is broken."""
        s = self.to.settings
        F, over = informed(self.to.meter, u[:, :-1], z, self.to.guard)
        value = score(self.to.meter, F, s.objective)
        return value, np.where(over > 0, _broken(over), -(value.mean(1) if s.over == "mean" else value.min(1)))

    def _wary(self, u: np.ndarray, cost: np.ndarray, needed: int) -> None:
        """Costs of the best motions that break a limit at further samples become those of broken ones."""
        order, good = [k for k in np.argsort(cost, kind="stable") if cost[k] < BROKEN / 2], 0
        while order and good < needed:
            some, order = order[:needed], order[needed:]
            over = outside(self.to.meter, self.to.guard, u[some], self.wary)
            cost[some] = np.where(over > 0, _broken(over), cost[some])
            good += int((over == 0).sum())


def _broken(over: np.ndarray) -> np.ndarray:
    return BROKEN * (1 + np.minimum(over, BROKEN))


def outside(at: Meter, within: Guard, u: np.ndarray, z: np.ndarray) -> np.ndarray:
    """(n,) how far each of the motions (n, T + 1, nu) is outside the limits at the worst z; inf where it diverges."""
    start = repeated(at.start, len(z))
    each = [np.where(m.diverged, np.inf, within(m)) for m in played(at, u[:, :-1], at.space.e(z), start)]
    return np.concatenate(each).reshape(len(u), len(z)).max(1)


def _shrunk(to: Design, u: np.ndarray, z: np.ndarray) -> tuple[np.ndarray, dict[str, float]]:
    """The motion, made smaller about home until it keeps every limit at every z; and how much of each it uses."""
    share = 1.0
    while share > LEAST:
        tried = to.range.home + share * (u - to.range.home)
        if not outside(to.meter, to.guard, tried, z).any():
            return tried, to.used(tried[0], z)
        share *= SMALLER
    raise SurefootError(
        "explore: no motion keeps the limits over the whole belief; try wider limits or a narrower belief"
    )


def explored(
    to: Design, u: np.ndarray, z: np.ndarray, used: dict[str, float], history: tuple[float, ...] = ()
) -> Explored:
    """The information in a motion u (T + 1, nu) as identify would use it: the state it begins in is estimated, too."""
    at, s = to.meter, to.settings
    F = information(at, u[None, :-1], z, starts=True)[0]  # (m, d, d)
    params = _prospects(at, posterior(at, F), z)
    values = np.linalg.eigvalsh(np.median(F, 0) * np.outer(at.prior, at.prior))
    condition = float(values[-1] / max(values[0], 1e-300)) if values[-1] > 0 else math.inf
    each = score(at, F, s.objective)
    value = float(each.mean() if s.over == "mean" else each.min())
    meta = {
        "kind": "excitation", "names": {"control": list(at.world.layout.actuators)}, "limits": vars(to.guard.limits), "noise": dict(to.noise),
        "start": at.start.q[0].tolist(), "sd": {p.name: p.after for p in params}, "sd_before": {p.name: p.before for p in params},
        "undetermined": [p.name for p in params if not p.determined], "used": used, "objective": s.objective, "seed": s.seed,
    }  # fmt: skip
    log = Log(to.time, {"control": u}, meta=meta)
    return Explored(log, params, used, min(condition, 1e300), value, history)


def _prospects(at: Meter, cov: np.ndarray, z: np.ndarray) -> tuple[Prospect, ...]:
    """Each free unknown, from the covariances cov (m, d, d) of z at samples z (m, d)."""
    sd, e, space = np.sqrt(np.diagonal(cov, axis1=-2, axis2=-1)), at.space.e(z), at.space
    slope = slopes(space, e)
    after, before = (np.sqrt(np.mean((slope * x) ** 2, 0)) for x in (sd, np.broadcast_to(at.prior, sd.shape)))
    value, spread = np.median(e[:, space.free], 0), np.sqrt(np.mean(sd**2, 0))
    return tuple(
        Prospect(space.params.names[i], space.params.items[i].unit, float(value[k]), float(before[k]), float(after[k]),
                 determined(space, int(i), float(spread[k]), float(value[k])))
        for k, i in enumerate(np.flatnonzero(space.free))
    )  # fmt: skip
