"""Why a policy of others fails at home: the contract is doubted, one thing at a time, and each doubt is tried.

A policy that walks where it was made and falls here is seldom a bad policy; nearly always a number does not mean what
the contract says: joints in another order, a sign, a scale, a delay, a gain. Each hypothesis is a contract with one such
change. It is screened with a few short episodes; those that look well are put to the same test as the contract itself.
They are tried in the order in which they are common, until one explains it: delay, gain, order, sign, scale, pose, layout.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from surefoot import tasks
from surefoot.contract import JOINTED, Contract
from surefoot.errors import SurefootError
from surefoot.gate.runs import Runs, episodes, until_clear
from surefoot.gate.sequential import RateTest
from surefoot.observation import ObsTerm
from surefoot.report import Progress, Watch
from surefoot.verdict import clopper_pearson

if TYPE_CHECKING:
    from surefoot.gate.candidate import Candidate
    from surefoot.gate.gate import Plan

SCREEN, SHORT = 4, 4.0  # episodes of each hypothesis, and their length in s
KEPT = 1  # of a kind that all but explain it: tested in full, to be told as the nearest
MOST_GROUPS = 4  # legs whose every order is tried; of more, only exchanges of two
CLOSER = 0.5  # of a margin: what fails, but so much later, is told as the nearest
DEGREES = 180 / np.pi


@dataclass(frozen=True)
class Hypothesis:
    kind: str
    change: str
    """what to write in the contract, in words"""
    contract: Contract


def why(who: "Candidate", home: Runs, plan: "Plan", bar: float, watch: Watch) -> list[dict[str, Any]]:
    """The changes of the contract under which the policy succeeds, best first; those that come nearest where none does."""
    if who.given is None or who.rewire is None:
        return []
    found: list[dict[str, Any]] = []
    for kind in KINDS:
        near: list[tuple[float, Hypothesis]] = []
        for idea in kind(who.given):
            runs = _screened(who, idea, plan, watch)
            if runs is None:
                continue
            if not runs.success.all():
                near.append((float(runs.margin.mean()), idea))
                continue
            found.append(_tested(who, idea, home, plan, bar, watch))
            if found[-1]["holds"]:
                return found[-1:] + found[:-1]
        near = [x for x in sorted(near, key=lambda x: -x[0])[:KEPT] if x[0] > home.margin.mean() + CLOSER]
        found += [_tested(who, idea, home, plan, bar, watch) for _, idea in near]
    return sorted(found, key=lambda f: (-f["holds"], -f["success"], -f["margin"]))


def _screened(who: "Candidate", idea: Hypothesis, plan: "Plan", watch: Watch) -> Runs | None:
    """A few short episodes; None where the model cannot have the change, which then explains nothing."""
    watch(Progress(f"what is wrong with the contract? perhaps {idea.change}"))
    assert who.rewire is not None  # why() has seen to it
    try:
        policy, task = who.rewire(idea.contract)
    except SurefootError:
        return None
    task = replace(task, seconds=min(SHORT, task.seconds), window=min(SHORT / 2, task.window))
    return episodes(policy, tasks.env(task, SCREEN, seed=plan.seed, threads=plan.threads))


def _tested(who: "Candidate", idea: Hypothesis, home: Runs, plan: "Plan", bar: float, watch: Watch) -> dict[str, Any]:
    watch(Progress(f"is it that? {idea.change}"))
    assert who.rewire is not None  # why() has seen to it
    policy, task = who.rewire(idea.contract)
    make = lambda n, seed: tasks.env(task, n, seed=seed, threads=plan.threads)  # noqa: E731
    runs, decision = until_clear(policy, make, RateTest(bar, level=plan.level, most=plan.episodes), plan.seed)
    low, high = clopper_pearson(int(runs.success.sum()), len(runs))
    return {
        "kind": idea.kind, "change": idea.change, "holds": decision.answer == "holds", "success": float(runs.success.mean()),
        "low": low, "high": high, "episodes": len(runs), "without": float(home.success.mean()),
        "margin": float(runs.margin.mean()),
    }  # fmt: skip


def sentences(found: list[dict[str, Any]]) -> list[str]:
    """What would make it pass, in words."""
    if not found:
        return []
    passes = [f for f in found if f["holds"]]
    if not passes:
        best = found[0]
        return [
            f"no single change of the contract makes it pass; nearest: {best['change']} ({100 * best['success']:.0f} % success); "
            "check the contract term by term: docs/gate.md"
        ]
    return [
        f"it passes if, in the contract, {f['change']}: success {100 * f['success']:.0f} % "
        f"({100 * f['low']:.0f} - {100 * f['high']:.0f}) of {f['episodes']}, {100 * f['without']:.0f} % without"
        for f in passes
    ]


def _delays(w: Contract) -> Iterator[Hypothesis]:
    if w.latency > 0:
        yield Hypothesis("delay", f"latency is 0 in place of {1000 * w.latency:g} ms", replace(w, latency=0.0))
        yield Hypothesis("delay", f"latency is {500 * w.latency:g} ms in place of {1000 * w.latency:g} ms", replace(w, latency=w.latency / 2))  # fmt: skip


def _gains(w: Contract) -> Iterator[Hypothesis]:
    for name in ("kp", "kd"):
        if getattr(w, name):
            own: dict[str, Any] = {name: ()}
            yield Hypothesis("gain", f"{name} is the model's own", replace(w, **own))
            for factor in (0.5, 0.7, 1.4, 2.0):
                many: dict[str, Any] = {name: tuple(factor * k for k in getattr(w, name))}
                yield Hypothesis("gain", f"{name} is {factor:g} times as large", replace(w, **many))


def groups(joints: tuple[str, ...]) -> list[list[str]]:
    """Joints that belong together, such as a leg's: alike up to the first underscore, as many in each; else none."""
    found: dict[str, list[str]] = {}
    for name in joints:
        found.setdefault(name.split("_")[0], []).append(name)
    legs = list(found.values())
    return legs if len(legs) > 1 and len({len(leg) for leg in legs}) == 1 and len(legs[0]) > 1 else []


def orders(joints: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Other orders that joints are often in, with a name for each."""
    legs = groups(joints)
    if not legs:
        return
    k = len(legs)
    swaps = (
        tuple(j if i == a else a if i == j else i for i in range(k)) for a, j in itertools.combinations(range(k), 2)
    )
    for p in itertools.permutations(range(k)) if k <= MOST_GROUPS else swaps:
        if list(p) != list(range(k)):
            yield " ".join(legs[i][0].split("_")[0] for i in p), tuple(name for i in p for name in legs[i])
    by_kind = tuple(leg[j] for j in range(len(legs[0])) for leg in legs)
    yield "all first joints, all second joints, ...", by_kind


def _in_order(w: Contract, names: Sequence[str], joints: tuple[str, ...]) -> Contract:
    """Terms read in another order of joints, each less its own home as the contract has it."""
    home = dict(zip(w.joints, w.home))

    def read(t: ObsTerm) -> ObsTerm:
        f = t.formula
        if f is None:
            return t
        return replace(t, source=replace(f, joints=joints, offset=tuple(home[j] for j in joints) if f.offset else ()))

    return w.with_terms(names, read)


def _orders(w: Contract) -> Iterator[Hypothesis]:
    jointed = [t for t in w.terms if t.formula is not None and t.name in JOINTED]
    told = [t.name for t in jointed if t.name != "last_action"]
    read = next((t.formula.joints for t in jointed if t.name in told and t.formula), w.joints)
    other = [t.name for t in jointed if t.formula and t.formula.joints != w.joints]
    if other:
        own = f"{' and '.join(other)} are read in the order of the actions, {_legs(w.joints)}"
        yield Hypothesis("order", own, _in_order(w, other, w.joints))
    for words, order in orders(read):
        if told and order != w.joints:
            yield Hypothesis("order", f"{' and '.join(told)} are read in the order {words}", _in_order(w, told, order))
    for words, order in orders(w.joints):
        acts = replace(w, joints=order, action=replace(w.action, names=order))
        yield Hypothesis(
            "order", f"joints are in the order {words}, in observation and action", _in_order(acts, JOINTED, order)
        )
        if told:
            yield Hypothesis(
                "order",
                f"actions are in the order {words}, observations as they are",
                _in_order(acts, ["last_action"], order),
            )


def _legs(joints: tuple[str, ...]) -> str:
    legs = groups(joints)
    return " ".join(leg[0].split("_")[0] for leg in legs) if legs else ", ".join(joints)


def _scaled(t: ObsTerm, factor: float) -> ObsTerm:
    many = tuple(factor * s for s in t.scale) if isinstance(t.scale, tuple) else factor * t.scale
    return replace(t, scale=many)


def _signs(w: Contract) -> Iterator[Hypothesis]:
    for t in w.terms:
        if t.name not in ("last_action", "command"):
            yield Hypothesis("sign", f"{t.name} has the other sign", w.with_terms([t.name], lambda t: _scaled(t, -1.0)))
    turned = replace(w, action=replace(w.action, scale=-w.action.scale))
    yield Hypothesis("sign", "actions have the other sign", turned)


SCALES = {
    "base_lin_vel": (2.0, 0.5), "base_ang_vel": (0.2, 0.25, 4.0, 5.0), "joint_vel": (0.05, 0.1, 10.0, 20.0),
    "joint_pos": (DEGREES, 1 / DEGREES), "command": (2.0, 0.5),
}  # fmt: skip


def _scales(w: Contract) -> Iterator[Hypothesis]:
    for t in w.terms:
        for factor in SCALES.get(t.name, ()):
            many = w.with_terms([t.name], lambda t, factor=factor: _scaled(t, factor))  # type: ignore[misc]
            yield Hypothesis("scale", f"the scale of {t.name} is {factor:.3g} times as large", many)
    for factor in (0.25, 0.5, 2.0, 4.0):
        law = replace(w.action, scale=factor * w.action.scale)
        yield Hypothesis("scale", f"action_scale is {factor:g} times as large", replace(w, action=law))


def _poses(w: Contract) -> Iterator[Hypothesis]:
    if any(w.home):
        absolute = w.with_terms(
            ["joint_pos"], lambda t: replace(t, source=replace(t.formula, offset=())) if t.formula else t
        )
        yield Hypothesis("pose", "joint_pos is told as it is, not less home", absolute)
    if w.home and not np.array_equal(w.action.offset, w.home):
        home = replace(w, action=replace(w.action, offset=np.array(w.home)))
        yield Hypothesis("pose", "an action of 0 means home", home)
    at_site = [t.name for t in w.terms if t.formula is not None and t.formula.frame not in ("", "base", "world")]
    if at_site:
        base = w.with_terms(at_site, lambda t: replace(t, source=replace(t.formula, frame="base")) if t.formula else t)
        yield Hypothesis("frame", "velocities and gravity are those of the base, not of the site", base)


def _layouts(w: Contract) -> Iterator[Hypothesis]:
    group = w.observation
    for i, j in itertools.combinations(range(len(w.terms)), 2):
        a, b = w.terms[i], w.terms[j]
        if a.dim * (a.history or w.history) == b.dim * (b.history or w.history):
            terms = list(w.terms)
            terms[i], terms[j] = b, a
            told = replace(w, observation=replace(group, terms=tuple(terms)))
            yield Hypothesis("order", f"{a.name} and {b.name} change places", told)
    if w.history > 1:
        other: Any = "terms" if group.layout == "frames" else "frames"
        yield Hypothesis("history", f"layout is {other}", replace(w, observation=replace(group, layout=other)))
        end: Any = "first" if group.newest == "last" else "last"
        yield Hypothesis("history", f"the newest frame comes {end}", replace(w, observation=replace(group, newest=end)))
    for factor in (0.5, 2.0):
        yield Hypothesis(
            "rate", f"rate is {factor * w.rate:g} Hz in place of {w.rate:g}", replace(w, rate=factor * w.rate)
        )


KINDS = (_delays, _gains, _orders, _signs, _scales, _poses, _layouts)
