"""Effects that are no number of the model: latency, late commands, exchanged motors, limits, and what has states of its own.

Each has at most one number, looked for on a grid.
"""

import numpy as np

from surefoot.doctor.evidence.innovations import Variant, follow
from surefoot.doctor.evidence.likelihood import Weighed, weigh
from surefoot.doctor.hypotheses.fit import Fits
from surefoot.doctor.hypotheses.late_commands import held
from surefoot.doctor.hypotheses.suspects import LONGEST, wirings
from surefoot.fault import on_columns
from surefoot.sim.gap.build import fitting, world_of
from surefoot.task import Task

STRENGTHS = (0.15, 0.4, 0.8)  # and then half-way to either side of the best
INGREDIENTS = ("stiction", "backlash", "saturation")
"""of the reality gap that have states, or a shape, which no number of the model gives"""
LEVELS = 10  # of a motor's limit on the grid


def late(fits: Fits) -> dict[float, Weighed]:
    """Latencies in s: a coarse row of them, and finer ones about the best; in order."""
    tried: dict[float, Weighed] = {}
    for times in (np.arange(0.02, LONGEST + 1e-9, 0.02), np.array([-0.01, 0.01]), np.array([-0.005, 0.005])):
        best = max(tried, key=lambda t: tried[t].cause.evidence) if tried else 0.0
        variants = [fits.known.variant(fits.at, fits.params, {}, best + float(t)) for t in times]
        for t, x, eps in zip(best + times, variants, fits.follow(variants)):
            words = f"controls act {1e3 * t:.0f} ms late"
            tried[float(t)] = weigh(fits.judge, "latency", "timing", words, eps, 1, x.e, again=fits.again(x))
    return {t: tried[t] for t in sorted(tried)}


def wired(fits: Fits) -> list[Weighed]:
    """Two motors exchanged, or one turned, behind the log."""
    faults = list(wirings(fits.at.model))
    if not faults:
        return []
    sent = [on_columns(f, {"control": fits.at.u})["control"] for f in faults]
    variants = [Variant(fits.params.nominal, u=u) for u in sent]
    return [
        weigh(fits.judge, "wiring", "contract", f.words, e, 0, again=fits.again(x))
        for f, x, e in zip(faults, variants, fits.follow(variants))
    ]


def missed(fits: Fits) -> Weighed:
    """Commands that came too late for their period."""
    j = fits.judge
    S = j.spread(j.rows(j.plain))
    L, p, believed = held(fits.world, fits.at, fits.gain, fits.params.nominal, j.good, S, j.floor)
    base = j.base - 0.5 * j.n * fits.at.channels  # a Gaussian's own quadratic form
    evidence = L - base - 0.5 * np.log(j.n)
    words = f"{p:.0%} of the commands a period late or lost"
    strengths = {"action_jitter": float(min(1.0, 2 * p))}
    return weigh(j, "jitter", "timing", words, believed, 1, strengths=strengths, evidence=float(evidence))


def limited(fits: Fits) -> list[Weighed]:
    """Motors that give no more than so much: controls cut off at a level found among the controls themselves."""
    m, u, j = fits.at.model, fits.at.u, fits.judge
    if (m.actuator_biasprm[:, 1] < 0).any():
        return []  # servos: their controls are places, not forces
    low, high = float(np.quantile(np.abs(u), 0.2)), float(np.abs(u).max())
    best: tuple[float, float, np.ndarray] = (-np.inf, high, j.plain)
    for _ in range(2):
        levels = np.linspace(low, high, LEVELS)[:-1]
        eps = fits.follow([Variant(fits.params.nominal, u=np.clip(u, -x, x)) for x in levels])
        best = max([best, *((j.likelihood(j.rows(e)), float(x), e) for x, e in zip(levels, eps))], key=lambda x: x[0])
        step = float(levels[1] - levels[0])
        low, high = best[1] - step, best[1] + step
    words = f"motors give no more than a control of {best[1]:.3g}"
    cut = Variant(fits.params.nominal, u=np.clip(u, -best[1], best[1]))
    return [weigh(j, "saturation", "physics", words, best[2], 1, again=fits.again(cut))]


def ingredients(fits: Fits, task: Task) -> list[Weighed]:
    """Worlds with a gap in the gears, bristles in the joints, motors that fade with speed."""
    found, able = [], fitting(task)
    for name in (n for n in INGREDIENTS if n in able):
        tried = {s: _ingredient(fits, task, name, s) for s in STRENGTHS}
        best = max(tried, key=lambda s: tried[s].cause.evidence)
        if tried[best].cause.evidence > 0:
            ends = [0.0, *STRENGTHS, 1.0]
            at = ends.index(best)
            for s in (0.5 * (best + ends[at - 1]), 0.5 * (best + ends[at + 1])):
                tried[s] = _ingredient(fits, task, name, s)
        found.append(max(tried.values(), key=lambda x: x.cause.evidence))
    return found


def _ingredient(fits: Fits, task: Task, name: str, s: float) -> Weighed:
    world = world_of(task, {name: s}, 0, len(fits.at.rows))
    again = lambda gain: follow(world, fits.at, [Variant(task.params.nominal)], gain)[0]  # noqa: E731
    words = f"{name} of strength {s:.2g}"
    return weigh(fits.judge, name, "physics", words, again(fits.gain), 1, strengths={name: s}, again=again)
