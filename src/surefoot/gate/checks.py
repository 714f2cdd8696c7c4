"""The lines of the gate's verdict: each a number from episodes, its interval, its limit, and whether it holds.

A success rate holds where the episodes show that it is above its limit, not where it merely looks so: an open question
holds nothing back on the robot, so it does here. Limits are the defaults below unless told.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from surefoot.errors import SurefootError, unknown
from surefoot.gate.margins import Margin
from surefoot.gate.motion import Motion
from surefoot.gate.runs import Runs, suspect_unknown
from surefoot.gate.statistics import claim, mean, rate
from surefoot.gate.statistics.sequential import Decision, anytime
from surefoot.gate.worst import Worst
from surefoot.params import Params
from surefoot.verdict import Check, clopper_pearson


@dataclass(frozen=True)
class Limits:
    """What a policy has to keep to."""

    success: float = 0.9
    """least success in the nominal world, over the belief, and in each engine; also the bar of both margins"""
    worst_decile: float = 0.5
    """least success in the tenth of worlds it finds hardest"""
    reality: float = 0.8
    """least success in a hidden reality"""
    at_limit: float = 0.2
    """largest share of time and actuators at the limit of force"""
    joint_speed: float = 30.0
    """rad/s, of the driven hinges"""
    slide_speed: float = 10.0
    """m/s, of the driven slides"""
    action_change: float = 0.5
    """root mean square change of action between two control periods, in units of the action"""
    cost_of_transport: float = 3.0
    """power / (weight x speed)"""
    power: float = float("inf")
    """W, mean mechanical power of the driven joints; not checked unless told"""
    push: float = 0.3
    """m/s: the speed that a push borne would give the whole robot, impulse / mass"""
    latency: float = 1.0
    """control periods of added delay borne"""

    def __post_init__(self) -> None:
        for f in fields(self):
            value = getattr(self, f.name)
            share = f.name in ("success", "worst_decile", "reality")
            if not value >= 0 or (share and not 0 < value < 1):
                what = "a rate between 0 and 1" if share else "a number >= 0"
                raise SurefootError(f"limits: {f.name}: expected {what}, found {value}")

    def but(self, changes: Mapping[str, Any], where: str) -> "Limits":
        """The same with other numbers."""
        names = [f.name for f in fields(Limits)]
        for name, value in changes.items():
            if name not in names:
                raise unknown("limit", str(name), names, where)
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise SurefootError(f"{where}: {name}: expected a number, found {value!r}")
        return replace(self, **{k: float(v) for k, v in changes.items()})


def success(name: str, runs: Runs, decision: Decision, limit: float, level: float, planned: bool = False) -> Check:
    """A rate looked at while it came in: shown above its limit, shown below, or open.

    The interval is valid at every look; the exact one where the number of episodes was `planned`.
    """
    k, n = int(runs.success.sum()), len(runs)
    said = {"holds": "shown above the limit", "fails": "shown below the limit", "undecided": "open: too near the limit for so few episodes"}  # fmt: skip
    low, high = clopper_pearson(k, n, level) if planned else anytime(k, n, level)
    why = f"; {runs.why()}" if k < n else ""
    return Check(
        name, k / n, limit, decision.answer == "holds", f"{k} of {n} episodes: {said[decision.answer]}{why}", low, high
    )


def claimed(runs: Runs, level: float, success_rate: float) -> Check:
    """Do all of these episodes together bear the claim?"""
    found = claim(int(runs.success.sum()), len(runs), round(1 - success_rate, 12), level)
    return replace(found, name=f"claim: at most {100 * (1 - success_rate):g} % fail")


def worst_decile(runs: Runs, worlds: int, limit: float, params: Params) -> Check:
    """Fresh episodes in the worlds that looked hardest."""
    found = rate(runs.success)
    hardest = runs.e[int(np.argmin(runs.margin))]
    evidence = f"{int(runs.success.sum())} of {len(runs)} new episodes in the hardest {worlds} worlds; worst: {world(params, hardest)}"
    return Check("worst decile", found.value, limit, bool(found.low is not None and found.low >= limit), evidence, found.low, found.high)  # fmt: skip


def rare_failures(found: Worst, drawn: Runs, limit: float, level: float, params: Params) -> Check:
    """The failure rate by a search that goes where failures are, and by worlds drawn from the belief: the surer of both.

    Each bound is at (1 + level) / 2, so that both hold together at `level`; the high end has to be within the limit.
    """
    r, k, n = found.rate, int((~drawn.success).sum()), len(drawn)
    low, high = anytime(k, n, (1 + level) / 2)
    searched = 1.0 if r.high is None else r.high
    value = r.value if searched <= high else k / n
    first = (
        "none failed" if found.first is None else f"the first failure after {found.first}, {len(found.failures)} in all"
    )
    evidence = (
        f"{found.episodes} episodes of search: {first}; {k} of {n} drawn fail; worst: {world(params, found.worst)}"
    )
    least = max(low, r.low or 0.0) if searched <= high else low
    return Check("rare failures", value, limit, min(searched, high) <= limit, evidence, min(least, value), min(searched, high))  # fmt: skip


def world(params: Params, e: np.ndarray, most: int = 3) -> str:
    """What sets a world apart, in words: the unknowns furthest from nominal."""
    names = furthest(params, e)[:most]
    told = (f"{name} {e[params.index(name)]:.3g} {params[name].unit}".strip() for name in names)
    return ", ".join(told) or "the nominal one"


def furthest(params: Params, e: np.ndarray) -> list[str]:
    """Unknowns in the order of how far they are from nominal, as shares of their bounds; those that are there left out."""
    far = np.abs(params.y(e) - params.y(params.nominal)) / (params.y(params.high) - params.y(params.low))
    return [params.names[i] for i in np.argsort(-far, kind="stable") if far[i] > 0.01]


def blamed(runs: Runs, params: Params) -> tuple[str, str, float] | None:
    """The unknown that parts failures from successes well enough: (name, high or low, AUC)."""
    found = suspect_unknown(runs, params.names)
    return None if found is None or found[2] < 0.7 else found


def where_it_fails(blamed: tuple[str, str, float] | None) -> str:
    """The same in words; empty where none does."""
    return "" if blamed is None else f"it fails where {blamed[0]} is {blamed[1]} (AUC {blamed[2]:.2f})"


def motion(seen: Motion, limits: Limits) -> tuple[list[Check], dict[str, str]]:
    """Checks of how it moves, and those that could not be made, with the reason."""
    checks, left = [], {}
    if seen.at_limit is None:
        left["torque"] = "the model gives no limits of force, and no ranges of control"
    else:
        busiest, share = seen.busiest or ("", 0.0)
        note = f"most: {busiest} {100 * share:.1f} % of the time; peak {100 * (seen.peak or 0):.0f} % of its limit"
        checks.append(_most("torque at its limit", seen.at_limit, limits.at_limit, note, "of time"))
    for name, values, limit, unit in (
        ("joint speed", seen.turning, limits.joint_speed, "rad/s"),
        ("slide speed", seen.sliding, limits.slide_speed, "m/s"),
    ):
        if values is not None:
            top, median = float(values.max()), float(np.median(values))
            note = f"largest of {len(values)} episodes; median episode {median:.3g}"
            checks.append(Check(name, top, limit, top <= limit, note, unit=unit))
    if seen.turning is None and seen.sliding is None:
        left["speed"] = "no joint is driven by a motor of its own"
    if seen.change is None:
        left["smoothness"] = "the policy chooses among a few actions, which have no size"
    else:
        checks.append(_most("action change", seen.change, limits.action_change, "root mean square a control period"))
    if seen.transport is not None and seen.power is not None:
        note = f"{float(seen.power.mean()):.3g} W of mechanical power"
        checks.append(_most("cost of transport", seen.transport, limits.cost_of_transport, note))
    else:
        left["cost of transport"] = "the robot does not travel by its joints"
    if seen.power is not None and np.isfinite(limits.power):
        checks.append(_most("power", seen.power, limits.power, "mean mechanical power of the driven joints", "W"))
    return checks, left


def _most(name: str, values: np.ndarray, limit: float, note: str, unit: str = "") -> Check:
    """The mean over episodes has to be within the limit, with its interval."""
    found = mean(values)
    high = found.value if found.high is None else found.high
    return Check(name, found.value, limit, high <= limit, f"{found.n} episodes; {note}", found.low, found.high, unit)


def latency(found: Margin, limit: float, period: float) -> Check:
    """In ms. The interval is from what it bears to what breaks it."""
    return _margin("latency margin", found, 1000.0, 1000 * limit * period, "ms", f"{limit:g} control period")


def push(found: Margin, speed: float, mass: float) -> Check:
    return _margin("push borne", found, 1.0, speed * mass, "N s", f"{speed:g} m/s of {mass:.3g} kg")


def _margin(name: str, found: Margin, factor: float, limit: float, unit: str, what: str) -> Check:
    n, bar = found.rungs[0].n, f"{100 * found.bar:g} %"
    if found.borne is None:
        note = f"succeeds in {100 * found.rungs[0].rate:.0f} % of {n} episodes without any"
        return Check(name, 0.0, limit, False, note, 0.0, 0.0, unit)
    value = factor * found.borne
    high = factor * min(found.broken, found.rungs[-1].load)
    falls = f"; half of them fall at {factor * found.falls:.3g} {unit}" if found.falls is not None else ""
    more = "" if np.isfinite(found.broken) else ", the most that was tried"
    note = f"success stays above {bar} of {n} episodes up to {value:.3g} {unit}{more}{falls}; the limit is {what}"
    return Check(name, value, limit, value >= limit - 1e-9, note, value, max(value, high), unit)
