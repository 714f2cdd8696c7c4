"""explore: the motion that would tell most about chosen unknowns, and what it would tell, before anyone moves a robot.

    max over u of  E_e log det (F(u, e) + P^-1)     or its least value over e;     u within position, speed, torque limits

F is what the motion tells (fisher.py), e is drawn from what is believed now, P is how wide that is. Motions that break a
limit, touch what they must not, or diverge for any of these e are no candidates; the one chosen is tried on many more,
and made smaller until it keeps every limit there, too.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from surefoot.belief import Belief
from surefoot.control.sampling import CEM, minimise
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
    names_of,
    settled,
)
from surefoot.real2sim.excite.fisher import Meter, meter, played, posterior, score, slopes, told
from surefoot.real2sim.identify.uncertainty import determined
from surefoot.real2sim.replay import repeated
from surefoot.report import Progress, Watch, unwatched
from surefoot.rng import stream
from surefoot.world import Start, World

BROKEN = 1e6  # a motion that breaks a limit costs more than any that does not
SMALLER = 0.9  # what the chosen motion is multiplied by until it keeps every limit
LEAST = 0.05  # of the motion that was chosen: below this there is none
FIRST, SPREAD = 4, 0.2  # rounds' worth of motions drawn at first; how far from the best of them the search begins
NOISE = {"joint_pos": 0.002}  # rad: a good encoder behind a gear


@dataclass(frozen=True)
class Prospect:
    """What one unknown's standard deviation is, and would be after the motion; in its unit."""

    name: str
    unit: str
    value: float
    before: float
    after: float
    determined: bool
    """will it be known at least twice as well as now?"""


@dataclass(frozen=True)
class Explored:
    """A motion to play, and what it would tell."""

    log: Log
    """columns time and control; what it would tell, and the limits it keeps, are in its meta"""
    params: tuple[Prospect, ...]
    used: dict[str, float]
    """limit -> the most of it that any sample of e used, as a share"""
    condition: float
    """of F, in units of what is believed: above 1e6 some combination of unknowns leaves no trace"""
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


def explore(
    world: World,
    belief: Belief,
    limits: Limits | None = None,
    noise: dict[str, float] | None = None,
    shape: Shape | None = None,
    settings: Explore | None = None,
    start: Start | None = None,
    say: Watch = unwatched,
) -> Explored:
    """The motion that tells most about the free unknowns of a belief. `world` comes from excitation.machine."""
    limits, shape, s = limits or Limits(), shape or Shape(), settings or Explore()
    noise = noise or NOISE
    at = meter_for(world, belief, noise, start)
    range_, watch = control_range(world.model, at.start.u[0], limits), guard(world.model, limits)
    time = np.arange(max(2, round(limits.seconds / world.dt)) + 1) * world.dt
    z = at.space.z(belief.sample(stream(s.seed, "explore"), s.samples))
    still = _worst(at, watch, range_, time, z)
    if still:
        raise SurefootError(f"explore: even to hold still breaks a limit: {still}")
    many = at.space.z(belief.sample(stream(s.seed, "verify"), s.verify))
    cost = _cost(at, shape, range_, watch, time, (z, np.concatenate([z, many[: s.wary]])), s, say)
    rng = stream(s.seed, "explore search")
    first = shape.drawn(rng, FIRST * s.population, len(range_.home), float(time[-1]))
    x0 = first[np.argmin(cost(first))]  # the best of many of every kind: the cost has many valleys
    found = minimise(cost, x0, SPREAD, CEM(0.15, 0.05), s.iterations, s.population, rng, (0.0, 1.0))
    if found.cost >= BROKEN / 2:
        raise SurefootError(
            f"explore: none of {s.iterations * s.population} motions kept the limits; "
            "try a longer or slower motion, a smaller reach or wider limits"
        )
    say(Progress("trying it on more of what is believed"))
    u, used = _kept(at, watch, range_, shape.controls(found.x[None], range_, time), many)
    return explored(at, u[0], time, many, limits, noise, s, used, tuple(-found.history))


def meter_for(world: World, belief: Belief, noise: dict[str, float], start: Start | None = None) -> Meter:
    """A Meter of motions that begin at rest where the machine settles when told to hold `start`, or home."""
    return meter(world, belief, settled(world, belief.estimate(), start or home(world.model)), noise)


def _cost(
    at: Meter, shape: Shape, range_: Range, watch: Guard, time: np.ndarray, samples: tuple[np.ndarray, np.ndarray],
    s: Explore, say: Watch,
) -> Callable[[np.ndarray], np.ndarray]:  # fmt: skip
    """What motions tell at the first samples, of those that keep the limits at the second, which are cheaper: no slopes."""
    z, wary = samples
    done, best = 0, -math.inf

    def cost(x: np.ndarray) -> np.ndarray:
        nonlocal done, best
        u = shape.controls(x, range_, time)
        broken = outside(at, watch, u, wary)
        fine = np.flatnonzero(broken == 0)
        value = np.full(len(x), -math.inf)
        if len(fine):
            found = score(at, told(at, u[fine, :-1], z, central=False), s.objective)  # (n, m)
            value[fine] = found.mean(1) if s.over == "mean" else found.min(1)
        done, best = done + 1, max(best, float(value.max()))
        words = f"round {done} of {s.iterations + 1}: {len(fine)} of {len(x)} motions keep the limits, best {best:.4g}"
        say(Progress(words, done / (s.iterations + 1)))
        return np.where(broken == 0, -value, BROKEN * (1 + np.minimum(broken, BROKEN)))

    return cost


def outside(at: Meter, watch: Guard, u: np.ndarray, z: np.ndarray) -> np.ndarray:
    """(n,) how far each of the motions (n, T + 1, nu) is outside the limits at the worst z; inf where it diverges."""
    start = repeated(at.start, len(z))
    each = [np.where(m.diverged, np.inf, watch(m)) for m in played(at, u[:, :-1], at.space.e(z), start)]
    return np.concatenate(each).reshape(len(u), len(z)).max(1)


def _used(at: Meter, watch: Guard, u: np.ndarray, z: np.ndarray) -> dict[str, float]:
    """The most of each limit that one motion (T + 1, nu) uses at any z, as a share."""
    (motion,) = played(at, u[None, :-1], at.space.e(z), repeated(at.start, len(z)))
    return {k: float(np.nanmax(v)) for k, v in watch.each(motion).items()}


def _kept(at: Meter, watch: Guard, range_: Range, u: np.ndarray, z: np.ndarray) -> tuple[np.ndarray, dict[str, float]]:
    """The motion, made smaller about home until it keeps every limit at every z; and how much of each it uses."""
    share = 1.0
    while share > LEAST:
        tried = range_.home + share * (u - range_.home)
        if not outside(at, watch, tried, z).any():
            return tried, _used(at, watch, tried[0], z)
        share *= SMALLER
    raise SurefootError(
        "explore: no motion keeps the limits for all that is believed; try wider limits, or believe less"
    )


def _worst(at: Meter, watch: Guard, range_: Range, time: np.ndarray, z: np.ndarray) -> str:
    """Which limit holding still breaks, if any."""
    used = _used(at, watch, np.repeat(range_.home[None], len(time), 0), z)
    name = max(used, key=lambda k: used[k])
    return f"{name} is {used[name]:.3g} of its limit" if used[name] > 1 else ""


def explored(
    at: Meter, u: np.ndarray, time: np.ndarray, z: np.ndarray, limits: Limits, noise: dict[str, float],
    s: Explore, used: dict[str, float], history: tuple[float, ...] = (),
) -> Explored:  # fmt: skip
    """What a motion u (T + 1, nu) would tell, as identify would fit it: the state it begins in is estimated, too."""
    F = told(at, u[None, :-1], z, starts=True)[0]  # (m, d, d)
    cov = posterior(at, F)
    sd = np.sqrt(np.diagonal(cov, axis1=-2, axis2=-1))  # (m, d)
    e = at.space.e(z)
    slope = slopes(at.space, e)
    after, before = (np.sqrt(np.mean((slope * x) ** 2, 0)) for x in (sd, np.broadcast_to(at.prior, sd.shape)))
    units = [p.unit for p in at.space.params if p.name in at.space.names]
    middle = np.median(e[:, at.space.free], 0)
    free = zip(np.flatnonzero(at.space.free), np.sqrt(np.mean(sd**2, 0)), middle)
    alone = [determined(at.space, int(i), float(x), float(value)) for i, x, value in free]
    params = tuple(
        Prospect(*row)
        for row in zip(at.space.names, units, map(float, middle), map(float, before), map(float, after), alone)
    )
    values = np.linalg.eigvalsh(np.median(F, 0) * np.outer(at.prior, at.prior))
    condition = float(values[-1] / max(values[0], 1e-300)) if values[-1] > 0 else math.inf
    each = score(at, F, s.objective)
    value = float(each.mean() if s.over == "mean" else each.min())
    meta = {
        "kind": "excitation", "names": names_of(at.world.model), "limits": vars(limits), "noise": dict(noise),
        "start": at.start.q[0].tolist(), "sd": {p.name: p.after for p in params}, "sd_before": {p.name: p.before for p in params},
        "undetermined": [p.name for p in params if not p.determined], "used": used, "objective": s.objective, "seed": s.seed,
    }  # fmt: skip
    log = Log(time, {"control": u}, meta=meta)
    return Explored(log, params, used, min(condition, 1e300), value, history)
