"""Which fault of its contract explains that a policy from elsewhere fails in the nominal world?

A policy that walks where it was trained and falls here is seldom bad; nearly always a number does not mean what the
contract says: joints in another order, a sign, a scale, a delay, a gain. Each hypothesis is a contract with one such fault put
right, or a model with other gains. It is screened with a few short episodes; those that succeed get the same test as the
contract itself. Kinds of faults are tried in the order in which they are common, until one passes: delay, gain, order, sign,
scale, pose, layout. Where none passes, none is named: what fails least is no cause.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from surefoot import tasks
from surefoot.contract import Contract
from surefoot.errors import SurefootError
from surefoot.fault import Fault, on_contract
from surefoot.fault.contracts import CONTRACT, gains_of, model_gains_of
from surefoot.gate.candidate import Candidate
from surefoot.gate.plan import Plan
from surefoot.gate.runs import Runs, until_clear
from surefoot.gate.statistics.sequential import RateTest
from surefoot.policy import Policy
from surefoot.report import Progress, Watch
from surefoot.task import Task
from surefoot.tasks.rollout import all_succeed
from surefoot.verdict import clopper_pearson

SCREEN, SHORT = 4, 4.0  # episodes of each hypothesis, and their length in s


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


@dataclass(frozen=True)
class Explained:
    """What was tried to explain a failure, and what passed or nearly did."""

    found: tuple[Explanation, ...] = ()
    """first the one that passes, then those that passed the short episodes alone"""
    tried: int = 0
    """changes"""

    def sentences(self) -> list[str]:
        """For people."""
        passes = [f for f in self.found if f.passes]
        if self.tried and not passes:
            return [
                f"no cause found: none of {self.tried} single changes of the contract, or of the model's gains, makes it pass. "
                "Perhaps two things are wrong, the model is another robot's, or the policy fails by itself: compare contract and "
                "training term by term (docs/gate.md)"
            ]
        return [
            f"it passes if, in the contract, {f.change}: success {100 * f.success:.0f} % "
            f"({100 * f.low:.0f} - {100 * f.high:.0f}) of {f.episodes}, {100 * f.without:.0f} % without"
            for f in passes
        ]


@dataclass(frozen=True)
class _Tests:
    who: Candidate
    nominal: Runs
    plan: Plan
    limit: float
    watch: Watch

    def rewired(self, fault: Fault, contract: Contract) -> tuple[Policy, Task]:
        assert self.who.rewire is not None  # explain() has checked it
        return self.who.rewire(on_contract(fault, contract))

    def screen(self, fault: Fault, contract: Contract) -> bool:
        """Whether a few short episodes succeed; not where the model cannot have the change."""
        self.watch(Progress(f"is the contract wrong? {fault.words}"))
        try:
            policy, task = self.rewired(fault, contract)
        except SurefootError:
            return False
        task = replace(task, seconds=min(SHORT, task.seconds), window=min(SHORT / 2, task.window))
        env = tasks.env(task, SCREEN, seed=self.plan.seed, threads=self.plan.threads)
        return all_succeed(policy, env)

    def test(self, fault: Fault, contract: Contract) -> Explanation:
        self.watch(Progress(f"testing in full: {fault.words}"))
        policy, task = self.rewired(fault, contract)
        plan = self.plan
        make = lambda n, seed: tasks.env(task, n, seed=seed, threads=plan.threads)  # noqa: E731
        runs, decision = until_clear(
            policy, make, RateTest(self.limit, level=plan.level, most=plan.episodes), plan.seed
        )
        k, n = int(runs.success.sum()), len(runs)
        without, passes = float(self.nominal.success.mean()), decision.answer == "holds"
        return Explanation(fault.kind, fault.words, passes, k / n, *clopper_pearson(k, n), n, without)


def explain(who: Candidate, nominal: Runs, plan: Plan, limit: float, watch: Watch) -> Explained:
    """The change of the contract, or of the model's gains, under which the policy succeeds, as far as there is one."""
    if who.given is None or who.rewire is None:
        return Explained()
    tests = _Tests(who, nominal, plan, limit, watch)
    found, tried = list[Explanation](), 0
    for fault, contract in hypotheses(who.given, who.policy.contract):
        tried += 1
        if not tests.screen(fault, contract):
            continue
        found.append(tests.test(fault, contract))
        if found[-1].passes:
            return Explained((found[-1], *found[:-1]), tried)
    return Explained(tuple(found), tried)


def hypotheses(given: Contract, own: Contract) -> Iterator[tuple[Fault, Contract]]:
    """Faults, each with the contract it is of: as given, or with the gains of the model that it leaves open."""
    left = {name: getattr(own, name) for name in ("kp", "kd") if not getattr(given, name)}
    for kind in CONTRACT:
        yield from ((fault, given) for fault in kind(given))
        if kind is gains_of and left:
            named = replace(given, **left)
            left_open = replace(given, kp=left.get("kp", ()), kd=left.get("kd", ()))
            yield from ((fault, named) for fault in model_gains_of(left_open))
