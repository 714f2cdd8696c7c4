"""diagnose: the decision tree, with evidence at each branch.

    contract   what was told, against what was logged       contract.py        what was sent, against what was answered   sent.py
    timing     rate, stamps, losses                         timing.py          latency and late commands                  physics.py, held.py
    numbers    which number of the model is wrong           suspects.py, physics.py
    physics    which effect the model has not got           physics.py

Every cause of every branch is weighed in nats against "nothing is wrong" (cause.py). Healthy is a verdict: nothing weighs more
than HEALTHY, and noise explains what is left.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from surefoot.gate.doctor.cause import Cause
from surefoot.gate.doctor.contract import mismatch, observed
from surefoot.gate.doctor.judge import Weighed
from surefoot.gate.doctor.physics import Examined, examine
from surefoot.gate.doctor.sent import sent
from surefoot.gate.doctor.timing import timed
from surefoot.gate.doctor.told import Told, rebuilt
from surefoot.log import Log
from surefoot.policy import Policy
from surefoot.real2sim.signals import measured
from surefoot.sim.engine import Engine, compile_for
from surefoot.sim.gap.making import Plain
from surefoot.sim.load import load_string
from surefoot.task import Task

HEALTHY = (
    10.0  # nats: below it, what was found may be chance; odds of 1 to 22,000 a cause, of which some fifty are tried
)
PRIOR = {"mass": -2.0, "inertia": -3.0, "gravity": -5.0, "motor time": -2.0}
"""nats: of two that predict alike, the commoner comes first. Motors weaken and warm; masses have been weighed"""
CLEAR = 0.5  # of the surprise: what a cause must explain where there are contacts
PLAIN = 0.98  # of a contract's mismatch: an edit that explains so much is the fault


@dataclass(frozen=True, eq=False)
class Diagnosis:
    causes: tuple[Cause, ...]
    """one of each kind, most telling first; all that were weighed"""
    mismatch: float
    """of the policy's answers, as a share of their spread"""
    told: Told
    physics: Examined | None

    @property
    def found(self) -> tuple[Cause, ...]:
        """The causes that weigh more than chance."""
        return tuple(c for c in self.causes if c.evidence > HEALTHY)

    @property
    def healthy(self) -> bool:
        return not self.found

    def weighed(self, cause: Cause | None) -> Weighed | None:
        """A cause of physics with the world in which it is true."""
        if cause is None or self.physics is None:
            return None
        return next((x for x in self.physics.weighed if x.cause.kind == cause.kind), None)

    def branches(self) -> list[tuple[str, str, str]]:
        """The tree, branch by branch: its question, whether it holds, and the evidence."""
        return [*self._contract(), *self._timing(), *self._model()]

    def _contract(self) -> list[tuple[str, str, str]]:
        if self.told.missing:
            words = f"cannot be rebuilt from this log: {', '.join(self.told.missing)}"
            return [("is the answer that to what was logged?", "?", words)]
        own = [c for c in self.found if c.branch == "contract"]
        words = f"answers are off by {self.mismatch:.2g} of their spread"
        return [("is the contract kept?", "no" if own else "yes", own[0].told if own else words)]

    def _timing(self) -> list[tuple[str, str, str]]:
        own = [c for c in self.found if c.branch == "timing"]
        words = "rate, stamps and losses are as they should be"
        if self.physics is not None:
            words += ", and no latency explains anything"
        return [("is the timing kept?", "no" if own else "yes", own[0].told if own else words)]

    def _model(self) -> list[tuple[str, str, str]]:
        x = self.physics
        if x is None:
            return [
                ("does the model expect what came?", "?", "not looked at: mend the contract first, or a longer log")
            ]
        rows = []
        for branch, question in (("numbers", "are the model's numbers right?"), ("sensors", "are the sensors right?"),
                                 ("physics", "does the model have all the physics?")):  # fmt: skip
            own = [c for c in self.causes if c.branch == branch]
            bad = own and own[0].evidence > HEALTHY
            words = own[0].told if bad else "no better than as it is"
            rows.append((question, "doubtful" if bad else "yes", words))
        best, share = x.best.cause, x.best.cause.share if not self.healthy else 0.0
        rest = (1 - share) * x.generic
        words = f"{best.kind} explains {share:.0%} of the surprise, a law without a name {rest:.0%}, noise {1 - share - rest:.0%}"
        rows.append(("is what is left noise?", "yes" if x.white else "no", words))
        varies = "" if self.healthy else x.varies
        rows.append(
            ("do the numbers stay?", "no" if varies else "yes", varies or "both halves of the log say the same")
        )
        return rows

    def chances(self) -> dict[str, float]:
        """Kind -> probability, healthy among them, were one thing wrong and all alike before the log was seen."""
        names = ["healthy", *(c.kind for c in self.causes)]
        weight = np.array([HEALTHY, *(c.evidence for c in self.causes)])
        p = np.exp(np.clip(weight - weight.max(), -700, 0))
        return dict(zip(names, (p / p.sum()).tolist()))

    def to_json(self) -> dict[str, Any]:
        chances = self.chances()
        rows = [c.to_json() | {"probability": chances[c.kind]} for c in self.causes]
        return {
            "healthy": self.healthy,
            "mismatch": self.mismatch,
            "causes": rows,
            "chance_healthy": chances["healthy"],
        }


def diagnose(
    policy: Policy, task: Task, log: Log, watch: Callable[[str], Any] = lambda _: None, whole: bool = False
) -> Diagnosis:
    """What is wrong between a policy of a task and the robot that a log is of.

    A broken contract that is explained ends the search, as what is below it is to be looked at when it is mended; with
    `whole`, all branches are.
    """
    c = policy.contract
    model = compile_for(load_string(task.xml, task.name).spec, task.params)
    world = Engine(model, task.params, 1, task.substeps, 1, (), task.explicit)
    watch("rebuilding what the policy was told")
    told = rebuilt(task, c, world, log)
    watch("asking the policy")
    off = mismatch(told, policy)
    causes = [*observed(told, policy), *sent(told, measured(log, "control")), *timed(log, c)]
    plain = any(c.share > PLAIN and c.evidence > HEALTHY for c in causes if c.branch == "contract")
    physics = None if plain and not whole else examine(task, log, watch)
    if physics is not None and len(Plain(model).touching):
        physics = clear(physics)
    if physics is not None:
        causes += [x.cause for x in physics.weighed]
    return Diagnosis(tuple(_ranked(causes)), off, told, physics)


def clear(found: Examined) -> Examined:
    """Only what explains most of the surprise counts.

    Where feet meet the ground, a millimetre of noise is an impact: surprises are not Gaussian, any number that softens them
    seems to explain something, and nats say too much.
    """
    less = [
        x if x.cause.share >= CLEAR else replace(x, cause=replace(x.cause, evidence=min(x.cause.evidence, 0.0)))
        for x in found.weighed
    ]
    return replace(found, weighed=tuple(sorted(less, key=lambda x: -x.cause.evidence)))


def _ranked(causes: list[Cause]) -> list[Cause]:
    """The best of each kind, in order. What was lost on the way in was lost on the way out, too."""
    best: dict[str, Cause] = {}
    for c in causes:
        if c.kind not in best or c.evidence > best[c.kind].evidence:
            best[c.kind] = c
    best = {k: replace(c, evidence=c.evidence + PRIOR.get(k, 0.0)) for k, c in best.items()}
    if "drops" in best and "jitter" in best and best["jitter"].evidence > 0:
        late = best["jitter"]
        best["drops"] = replace(
            best["drops"], evidence=best["drops"].evidence + late.evidence, told=f"{best['drops'].told}; {late.told}"
        )
    return sorted(best.values(), key=lambda c: -c.evidence)
