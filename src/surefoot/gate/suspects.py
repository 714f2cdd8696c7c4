"""Why a policy of others fails at home: the contract is doubted, one thing at a time, and each doubt is tried.

A policy that walks where it was made and falls here is seldom a bad policy; nearly always a number does not mean what
the contract says: joints in another order, a sign, a scale, a delay, a gain. Each hypothesis is a contract with one such
change. It is screened with a few short episodes; those that look well are put to the same test as the contract itself.
They are tried in the order in which they are common, until one explains it: delay, gain, order, sign, scale, pose, layout.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from surefoot import tasks
from surefoot.contract import Contract
from surefoot.errors import SurefootError
from surefoot.fault import Fault, on_contract
from surefoot.fault.contracts import CONTRACT
from surefoot.gate.runs import Runs, episodes, until_clear
from surefoot.gate.statistics.sequential import RateTest
from surefoot.report import Progress, Watch
from surefoot.verdict import clopper_pearson

if TYPE_CHECKING:
    from surefoot.gate.candidate import Candidate
    from surefoot.gate.gate import Plan

SCREEN, SHORT = 4, 4.0  # episodes of each hypothesis, and their length in s
KEPT = 1  # of a kind that all but explain it: tested in full, to be told as the nearest
CLOSER = 0.5  # of a margin: what fails, but so much later, is told as the nearest


@dataclass(frozen=True)
class Hypothesis:
    fault: Fault
    contract: Contract

    @property
    def kind(self) -> str:
        return self.fault.kind

    @property
    def change(self) -> str:
        """What to write in the contract, in words."""
        return self.fault.words


Doubts = Callable[[Contract], Iterator[Hypothesis]]


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


def _doubts(faults: Callable[[Contract], Iterator[Fault]]) -> Doubts:
    return lambda w: (Hypothesis(f, on_contract(f, w)) for f in faults(w))


KINDS = tuple(map(_doubts, CONTRACT))
_delays, _gains, _orders, _signs, _scales, _poses, _layouts = KINDS
