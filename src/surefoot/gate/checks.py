"""The checks of the gate: each a number from episodes, its interval, its limit, and whether it passes.

A success rate passes if the episodes prove that it is above its limit; an undecided rate fails the check.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from surefoot.errors import SurefootError, unknown
from surefoot.gate.measures.margins import Margin
from surefoot.gate.measures.motion import Motion
from surefoot.gate.runs import Runs
from surefoot.gate.statistics import claim, mean
from surefoot.gate.statistics.rare_failures import Search
from surefoot.gate.statistics.sequential import Answer, Decision, anytime
from surefoot.params import Params
from surefoot.verdict import Check, clopper_pearson


@dataclass(frozen=True)
class Limits:
    """The numbers a policy must keep."""

    success: float = 0.9
    """least success rate in the nominal world, over the belief, in each engine, and at each load of a margin"""
    worst_decile: float = 0.5
    """least success rate in the hardest tenth of worlds"""
    reality: float = 0.8
    """least success rate in a hidden reality"""
    at_limit: float = 0.2
    """largest share of time and actuators at the force limit"""
    joint_speed: float = 30.0
    """rad/s, of the driven hinges"""
    slide_speed: float = 10.0
    """m/s, of the driven slides"""
    action_change: float = 0.5
    """root mean square change of action between two control periods, in units of the action"""
    cost_of_transport: float = 3.0
    """power / (weight x speed)"""
    power: float = float("inf")
    """W, mean mechanical power of the driven joints; infinite: not checked"""
    push: float = 0.3
    """m/s: the tolerated push, impulse / mass"""
    latency: float = 1.0
    """control periods: the tolerated added delay"""

    def __post_init__(self) -> None:
        for f in fields(self):
            value = getattr(self, f.name)
            share = f.name in ("success", "worst_decile", "reality")
            if not value >= 0 or (share and not 0 < value < 1):
                what = "a rate between 0 and 1" if share else "a number >= 0"
                raise SurefootError(f"limits: {f.name}: expected {what}, found {value}")

    def with_(self, changes: Mapping[str, Any], where: str) -> "Limits":
        """With other numbers."""
        names = [f.name for f in fields(Limits)]
        for name, value in changes.items():
            if name not in names:
                raise unknown("limit", str(name), names, where)
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise SurefootError(f"{where}: {name}: expected a number, found {value!r}")
        return replace(self, **{k: float(v) for k, v in changes.items()})


WORST_DECILE, RARE_FAILURES, LATENCY, PUSH = "worst decile", "rare failures", "latency margin", "push margin"


def success_name(world: str) -> str:
    """Of the check of success in a kind of world."""
    return f"success, {world}"


def success(name: str, runs: Runs, decision: Decision, limit: float, level: float, planned: bool = False) -> Check:
    """A success rate with a sequential test: above its limit, below it, or undecided.

    The interval is valid at every look; it is the exact one where the number of episodes was `planned`.
    """
    k, n = int(runs.success.sum()), len(runs)
    words = {"holds": "above the limit", "fails": "below the limit", "undecided": "undecided, more episodes are needed"}
    low, high = clopper_pearson(k, n, level) if planned else anytime(k, n, level)
    why = f"; {runs.endings()}" if k < n else ""
    evidence = f"{k} of {n} episodes: {words[decision.answer]}{why}"
    return Check(name, k / n, limit, decision.answer == "holds", evidence, low, high)


def claimed(runs: Runs, level: float, success_rate: float) -> Check:
    """Do all of these episodes together support the claim?"""
    found = claim(int(runs.success.sum()), len(runs), round(1 - success_rate, 12), level)
    return replace(found, name=f"claim: at most {100 * (1 - success_rate):g} % fail")


def worst_decile(runs: Runs, answer: Answer, worlds: int, limit: float, level: float, params: Params) -> Check:
    """New episodes in the worlds that looked hardest. The interval is valid at every look."""
    k, n = int(runs.success.sum()), len(runs)
    low, high = anytime(k, n, level)
    hardest = runs.e[int(np.argmin(runs.margin))]
    evidence = f"{k} of {n} new episodes in the hardest {worlds} worlds; worst: {world(params, hardest)}"
    return Check(WORST_DECILE, k / n, limit, answer == "holds", evidence, low, high)


def rare_failures(found: Search, drawn: Runs, limit: float, level: float, params: Params) -> Check:
    """The failure rate by a search for failures and by worlds drawn from the belief: the tighter bound of both.

    Each bound is at (1 + level) / 2, so that both hold together at `level`; the upper end must be within the limit.
    """
    r, k, n = found.rate, int((~drawn.success).sum()), len(drawn)
    low, high = anytime(k, n, (1 + level) / 2)
    searched = 1.0 if r.high is None else r.high
    value = r.value if searched <= high else k / n
    first = "no failure"
    if found.first is not None:
        first = f"first failure after {found.first}, {len(found.failures)} in all"
    worst = world(params, found.worst)
    evidence = f"{found.episodes} episodes of search: {first}; {k} of {n} drawn worlds fail; worst: {worst}"
    least = max(low, r.low or 0.0) if searched <= high else low
    return Check(RARE_FAILURES, value, limit, min(searched, high) <= limit, evidence, min(least, value), min(searched, high))  # fmt: skip


def world(params: Params, e: np.ndarray, most: int = 3) -> str:
    """The unknowns of a world that are furthest from nominal, for people."""
    names = furthest(params, e)[:most]
    parts = (f"{name} {e[params.index(name)]:.3g} {params[name].unit}".strip() for name in names)
    return ", ".join(parts) or "the nominal one"


def furthest(params: Params, e: np.ndarray) -> list[str]:
    """Unknowns by their distance from nominal, as a share of their bounds, largest first; without those at nominal."""
    far = np.abs(params.y(e) - params.y(params.nominal)) / (params.y(params.high) - params.y(params.low))
    return [params.names[i] for i in np.argsort(-far, kind="stable") if far[i] > 0.01]


def motion(it: Motion, limits: Limits) -> tuple[list[Check], dict[str, str]]:
    """Checks of the motion, and those that could not be made, with the reason."""
    checks, skipped = [], {}
    if it.at_limit is None:
        skipped["torque"] = "the model has no force limits and no control ranges"
    else:
        busiest, share = it.busiest or ("", 0.0)
        note = f"most: {busiest} {100 * share:.1f} % of the time; peak {100 * (it.peak or 0):.0f} % of its limit"
        checks.append(_most("torque at its limit", it.at_limit, limits.at_limit, note, "of time"))
    for name, values, limit, unit in (
        ("joint speed", it.hinge_speed, limits.joint_speed, "rad/s"),
        ("slide speed", it.slide_speed, limits.slide_speed, "m/s"),
    ):
        if values is not None:
            top, median = float(values.max()), float(np.median(values))
            note = f"largest of {len(values)} episodes; median episode {median:.3g}"
            checks.append(Check(name, top, limit, top <= limit, note, unit=unit))
    if it.hinge_speed is None and it.slide_speed is None:
        skipped["speed"] = "no joint has a motor of its own"
    if it.change is None:
        skipped["smoothness"] = "the policy has discrete actions"
    else:
        checks.append(
            _most("action change", it.change, limits.action_change, "root mean square between control periods")
        )
    if it.transport is not None and it.power is not None:
        note = f"{float(it.power.mean()):.3g} W of mechanical power"
        checks.append(_most("cost of transport", it.transport, limits.cost_of_transport, note))
    else:
        skipped["cost of transport"] = "the robot does not travel, or not by its joints"
    if it.power is not None and np.isfinite(limits.power):
        checks.append(_most("power", it.power, limits.power, "mean mechanical power of the driven joints", "W"))
    return checks, skipped


def _most(name: str, values: np.ndarray, limit: float, note: str, unit: str = "") -> Check:
    """The upper end of the mean's interval must be within the limit."""
    found = mean(values)
    high = found.value if found.high is None else found.high
    return Check(name, found.value, limit, high <= limit, f"{found.n} episodes; {note}", found.low, found.high, unit)


def latency(found: Margin, limit: float, period: float) -> Check:
    """In ms. The interval is from the largest tolerated delay to the smallest that fails."""
    return _margin(LATENCY, found, 1000.0, 1000 * limit * period, "ms", f"{limit:g} control periods")


def push(found: Margin, speed: float, mass: float) -> Check:
    return _margin(PUSH, found, 1.0, speed * mass, "N s", f"{speed:g} m/s of {mass:.3g} kg")


def _margin(name: str, found: Margin, factor: float, limit: float, unit: str, what: str) -> Check:
    n, bar = found.whole[0].n, f"{100 * found.bar:g} %"
    if found.tolerated is None:
        note = f"without load {100 * found.rungs[0].rate:.0f} % of {n} episodes succeed"
        return Check(name, 0.0, limit, False, note, 0.0, 0.0, unit)
    value = factor * found.tolerated
    high = factor * min(found.failing, found.rungs[-1].load)
    falls = f"; half of them end early at {factor * found.falls:.3g} {unit}" if found.falls is not None else ""
    more = "" if np.isfinite(found.failing) else ", the largest load"
    note = f"at least {bar} of {n} episodes succeed up to {value:.3g} {unit}{more}{falls}; the limit is {what}"
    return Check(name, value, limit, value >= limit - 1e-9, note, value, max(value, high), unit)
