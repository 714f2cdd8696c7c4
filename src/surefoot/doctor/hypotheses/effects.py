"""Effects that are no number of the model: latency, late commands, exchanged motors, limits, and effects with states of their own.

Each has at most one number, searched on a grid.
"""

from collections.abc import Callable

import numpy as np

from surefoot.doctor.evidence.innovations import Gain, Variant, innovations
from surefoot.doctor.evidence.likelihood import Hypothesis, Weighed, weigh
from surefoot.doctor.hypotheses.fit import Fit
from surefoot.doctor.hypotheses.late_commands import late_commands
from surefoot.doctor.hypotheses.model_errors import LONGEST, wiring_faults
from surefoot.fault import on_columns
from surefoot.sim.gap.build import fitting, world_of
from surefoot.task import Task

STRENGTHS = (0.15, 0.4, 0.8)  # and then half-way to either side of the best
INGREDIENTS = ("stiction", "backlash", "saturation")
"""of the reality gap that have states, or a shape, which no number of the model gives"""
LEVELS = 10  # of a motor's limit on the grid


def latencies(fit: Fit) -> dict[float, Weighed]:
    """By seconds, in order: a coarse grid, and a finer one around the best."""
    tried: dict[float, Weighed] = {}
    for times in (np.arange(0.02, LONGEST + 1e-9, 0.02), np.array([-0.01, 0.01]), np.array([-0.005, 0.005])):
        best = max(tried, key=lambda t: tried[t].cause.evidence) if tried else 0.0
        variants = [fit.errors.variant(fit.at, {}, best + float(t)) for t in times]
        for t, x, eps in zip((best + times).tolist(), variants, fit.innovations(variants)):
            about = f"controls act {1e3 * t:.0f} ms late"
            h = Hypothesis("latency", "timing", about, e=x.e, value=t, innovations=fit.filtered(x))
            tried[t] = weigh(fit.likelihood, h, eps)
    return {t: tried[t] for t in sorted(tried)}


def wirings(fit: Fit) -> list[Weighed]:
    """Two motors exchanged, or one reversed, behind the logged controls."""
    faults = list(wiring_faults(fit.at.layout))
    if not faults:
        return []
    controls = [on_columns(f, {"control": fit.at.u})["control"] for f in faults]
    variants = [Variant(fit.params.nominal, u=u) for u in controls]
    return [
        weigh(fit.likelihood, Hypothesis("wiring", "contract", f.words, 0, innovations=fit.filtered(x)), eps)
        for f, x, eps in zip(faults, variants, fit.innovations(variants))
    ]


def lateness(fit: Fit) -> Weighed:
    """Commands that miss their period (late_commands.py)."""
    L = fit.likelihood
    late = late_commands(fit.world, fit.at, fit.gain, fit.params.nominal, L)
    nominal = L.nominal - 0.5 * L.n * fit.at.channels  # with a Gaussian's own quadratic form
    evidence = late.likelihood - nominal - 0.5 * np.log(L.n)
    about = f"{late.p:.0%} of the commands are a period late or lost"
    strengths = {"action_jitter": float(min(1.0, 2 * late.p))}
    h = Hypothesis("jitter", "timing", about, strengths=strengths, value=late.p)
    return weigh(L, h, late.eps, float(evidence))


def limits(fit: Fit) -> list[Weighed]:
    """Motors that saturate: controls cut off at a level within the range of the logged controls."""
    u, L = fit.at.u, fit.likelihood
    if any(d.kp > 0 for d in fit.at.layout.drives):
        return []  # servos: their controls are positions, not forces
    low, high = float(np.quantile(np.abs(u), 0.2)), float(np.abs(u).max())
    best: tuple[float, float, np.ndarray] = (-np.inf, high, L.plain)
    for _ in range(2):
        levels = np.linspace(low, high, LEVELS)[:-1]
        eps = fit.innovations([Variant(fit.params.nominal, u=np.clip(u, -x, x)) for x in levels])
        best = max([best, *((L.log(L.rows(e)), float(x), e) for x, e in zip(levels, eps))], key=lambda x: x[0])
        step = float(levels[1] - levels[0])
        low, high = best[1] - step, best[1] + step
    about = f"motors saturate at a control of {best[1]:.3g}"
    cut = Variant(fit.params.nominal, u=np.clip(u, -best[1], best[1]))
    h = Hypothesis("saturation", "physics", about, value=best[1], innovations=fit.filtered(cut))
    return [weigh(L, h, best[2])]


def ingredients(fit: Fit, task: Task) -> list[Weighed]:
    """Worlds with backlash in the gears, stiction in the joints, motors whose torque falls with speed."""
    able = fitting(task)
    names = [n for n in INGREDIENTS if n in able]
    found = _tried(fit, task, [(name, s) for name in names for s in STRENGTHS])
    closer, ends = [], [0.0, *STRENGTHS, 1.0]
    for name in names:
        best = _best(found, name)
        if best.cause.evidence > 0 and best.cause.value is not None:
            at = ends.index(best.cause.value)
            closer += [(name, 0.5 * (ends[at] + ends[k])) for k in (at - 1, at + 1)]
    found += _tried(fit, task, closer)
    return [_best(found, name) for name in names]


def _best(found: list[Weighed], kind: str) -> Weighed:
    return max((x for x in found if x.cause.kind == kind), key=lambda x: x.cause.evidence)


def _tried(fit: Fit, task: Task, asked: list[tuple[str, float]]) -> list[Weighed]:
    """Each ingredient at a strength."""
    made = [_ingredient(fit, task, name, s) for name, s in asked]
    if fit.by is None:
        return [weigh(fit.likelihood, h, under(fit.gain)) for h, under in made]
    eps = fit.by.gaps([{name: s} for name, s in asked], fit.gain)
    return [weigh(fit.likelihood, h, left) for (h, _), left in zip(made, eps)]


def _ingredient(fit: Fit, task: Task, name: str, s: float) -> tuple[Hypothesis, Callable[[Gain], np.ndarray]]:
    def filtered(gain: Gain) -> np.ndarray:
        world = world_of(task, {name: s}, 0, len(fit.at.rows))
        return innovations(world, fit.at, [Variant(task.params.nominal)], gain)[0]

    about = f"{name} of strength {s:.2g}"
    return Hypothesis(name, "physics", about, strengths={name: s}, value=s, innovations=filtered), filtered
