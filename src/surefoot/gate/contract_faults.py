"""Which fault of its contract explains that a policy from elsewhere fails in the nominal world?

A policy that walks where it was trained and falls here is seldom bad; nearly always a number does not mean what the
contract says: joints in another order, a sign, a scale, a delay, a gain. Each hypothesis is a contract with one such fault put
right. It is screened with a few short episodes; those that succeed get the same test as the contract itself. Kinds of faults are
tried in the order in which they are common, until one passes: delay, gain, order, sign, scale, pose, layout.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from surefoot import tasks
from surefoot.errors import SurefootError
from surefoot.fault import Fault, on_contract
from surefoot.fault.contracts import CONTRACT
from surefoot.gate.runs import Runs, episodes, until_clear
from surefoot.gate.statistics.sequential import RateTest
from surefoot.policy import Policy
from surefoot.report import Progress, Watch
from surefoot.task import Task
from surefoot.verdict import clopper_pearson

if TYPE_CHECKING:
    from surefoot.gate.candidate import Candidate
    from surefoot.gate.gate import Plan

SCREEN, SHORT = 4, 4.0  # episodes of each hypothesis, and their length in s
KEPT = 1  # of a kind that nearly succeed: tested in full, to be named as the nearest
CLOSER = 0.5  # of a margin: a hypothesis that fails, but so much later, is named as the nearest


@dataclass(frozen=True)
class Explanation:
    """A change of the contract, and the policy's success with and without it."""

    kind: str
    change: str
    """what to write in the contract, for people"""
    passes: bool
    success: float
    low: float
    high: float
    episodes: int
    without: float
    margin: float
    """mean, of its episodes"""


@dataclass(frozen=True)
class _Tests:
    who: "Candidate"
    nominal: Runs
    plan: "Plan"
    limit: float
    watch: Watch

    def rewired(self, fault: Fault) -> tuple[Policy, Task]:
        assert self.who.given is not None and self.who.rewire is not None  # explain() has checked it
        return self.who.rewire(on_contract(fault, self.who.given))

    def screen(self, fault: Fault) -> Runs | None:
        """A few short episodes; None where the model cannot have the change."""
        self.watch(Progress(f"is the contract wrong? {fault.words}"))
        try:
            policy, task = self.rewired(fault)
        except SurefootError:
            return None
        task = replace(task, seconds=min(SHORT, task.seconds), window=min(SHORT / 2, task.window))
        return episodes(policy, tasks.env(task, SCREEN, seed=self.plan.seed, threads=self.plan.threads))

    def test(self, fault: Fault) -> Explanation:
        self.watch(Progress(f"testing in full: {fault.words}"))
        policy, task = self.rewired(fault)
        plan = self.plan
        make = lambda n, seed: tasks.env(task, n, seed=seed, threads=plan.threads)  # noqa: E731
        runs, decision = until_clear(
            policy, make, RateTest(self.limit, level=plan.level, most=plan.episodes), plan.seed
        )
        k, n = int(runs.success.sum()), len(runs)
        without, margin = float(self.nominal.success.mean()), float(runs.margin.mean())
        passes = decision.answer == "holds"
        return Explanation(fault.kind, fault.words, passes, k / n, *clopper_pearson(k, n), n, without, margin)


def explain(who: "Candidate", nominal: Runs, plan: "Plan", limit: float, watch: Watch) -> list[Explanation]:
    """The changes of the contract under which the policy succeeds, best first; the nearest ones where none does."""
    if who.given is None or who.rewire is None:
        return []
    tests = _Tests(who, nominal, plan, limit, watch)
    found: list[Explanation] = []
    for kind in CONTRACT:
        near: list[tuple[float, Fault]] = []
        for fault in kind(who.given):
            runs = tests.screen(fault)
            if runs is None:
                continue
            if not runs.success.all():
                near.append((float(runs.margin.mean()), fault))
                continue
            found.append(tests.test(fault))
            if found[-1].passes:
                return found[-1:] + found[:-1]
        near = [x for x in sorted(near, key=lambda x: -x[0])[:KEPT] if x[0] > nominal.margin.mean() + CLOSER]
        found += [tests.test(fault) for _, fault in near]
    return sorted(found, key=lambda f: (-f.passes, -f.success, -f.margin))


def sentences(found: list[Explanation]) -> list[str]:
    """For people."""
    if not found:
        return []
    passes = [f for f in found if f.passes]
    if not passes:
        best = found[0]
        return [
            f"no single change of the contract makes it pass; nearest: {best.change} ({100 * best.success:.0f} % success); "
            "check the contract term by term: docs/gate.md"
        ]
    return [
        f"it passes if, in the contract, {f.change}: success {100 * f.success:.0f} % "
        f"({100 * f.low:.0f} - {100 * f.high:.0f}) of {f.episodes}, {100 * f.without:.0f} % without"
        for f in passes
    ]
