"""diagnose: the decision tree, with evidence at each branch.

    contract   what was told, against what was logged       contract.py        what was sent, against what was answered   sent.py
    timing     rate, stamps, losses                         timing.py          latency and late commands                  physics.py, held.py
    numbers    which number of the model is wrong           suspects.py, physics.py
    physics    which effect the model has not got           physics.py

Every cause of every branch is weighed in nats against "nothing is wrong" (cause.py). A wrong rate, and then a contract that is
broken, come first: no law of the machine makes a program answer otherwise. Healthy is a verdict: of rows enough, nothing weighs
more than HEALTHY, and noise explains what is left.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from surefoot.doctor.branches.action_path import sent
from surefoot.doctor.branches.contract import FEWEST, mismatch, observed
from surefoot.doctor.branches.physics import Examined, Left, examine, left_by
from surefoot.doctor.branches.timing import timed
from surefoot.doctor.cause import Cause
from surefoot.doctor.evidence.likelihood import Weighed
from surefoot.doctor.evidence.observation import Told, checked, rebuilt
from surefoot.errors import LogError
from surefoot.log import Log
from surefoot.policy import Policy
from surefoot.real2sim.signals import measured
from surefoot.report import Progress, Watch, unwatched
from surefoot.sim.engine import Engine, compile_for
from surefoot.sim.gap.recipe import Plain
from surefoot.sim.model.load import load_robot
from surefoot.task import Task

HEALTHY = (
    10.0  # nats: below it, what was found may be chance; odds of 1 to 22,000 a cause, of which some fifty are tried
)
PRIOR = {"mass": -2.0, "inertia": -3.0, "gravity": -5.0, "motor time": -2.0}
"""nats: of two that predict alike, the commoner comes first. Motors weaken and warm; masses have been weighed"""
CLEAR = 0.5  # of the surprise: what a cause must explain where there are contacts
ENOUGH = 150
"""rows, complete ones, of which healthy can be said: on a cart, 30 ms of latency are found from 20 rows on; motors 11 to 22 %
off in no log of 30 rows, in three of four of 100 rows, and in all of 150"""


@dataclass(frozen=True, eq=False)
class Diagnosis:
    causes: tuple[Cause, ...]
    """one of each kind, most telling first; all that were weighed"""
    mismatch: float
    """of the policy's answers, as a share of their spread"""
    told: Told
    physics: Examined | None
    """None where the contract is broken, or too few rows follow each other"""
    left: Left | None = None
    """what the first cause leaves of what the model did not expect"""
    behind: frozenset[str] = frozenset()
    """kinds that come behind a wrong rate or a broken contract, whatever they weigh: they do not explain it"""

    @property
    def found(self) -> tuple[Cause, ...]:
        """The causes that weigh more than chance."""
        return tuple(c for c in self.causes if c.evidence > HEALTHY)

    @property
    def first(self) -> Cause | None:
        return next(iter(self.found), None)

    @property
    def second(self) -> Cause | None:
        """The next that may be the cause in place of the first."""
        return next((c for c in self.found[1:] if c.kind not in self.behind), None)

    @property
    def healthy(self) -> bool:
        return not self.found

    def weighed(self, cause: Cause | None) -> Weighed | None:
        """A cause of physics with the world in which it is true."""
        return None if cause is None or self.physics is None else _of_kind(self.physics, cause.kind)

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
        if x is None or self.left is None:
            words = "not looked at: too few rows follow each other without a hole"
            if self._contract()[0][1] == "no":
                words = "not looked at: the contract comes first; --whole looks all the same"
            return [("does the model expect what came?", "?", words)]
        rows = []
        for branch, question in (("numbers", "are the model's numbers right?"), ("sensors", "are the sensors right?"),
                                 ("physics", "does the model have all the physics?")):  # fmt: skip
            own = [c for c in self.causes if c.branch == branch]
            bad = own and own[0].evidence > HEALTHY
            words = own[0].told if bad else "no better than as it is"
            rows.append((question, "doubtful" if bad else "yes", words))
        rows.append(("is what is left noise?", "yes" if self.left.white else "no", self._rest(self.left)))
        varies = self.left.varies
        rows.append(
            ("do the numbers stay?", "no" if varies else "yes", varies or "both halves of the log say the same")
        )
        return rows

    def _rest(self, left: Left) -> str:
        """How the surprise divides, by the first cause."""
        rest = (1 - left.share) * left.generic
        others = f"a law without a name {rest:.0%}, noise {1 - left.share - rest:.0%}"
        if self.first is None:
            return f"no cause explains any of the surprise, {others}"
        if not left.share:
            return f"{self.first.kind} says nothing of the surprise: {others}"
        return f"{self.first.kind} explains {left.share:.0%} of the surprise, {others}"

    def chances(self) -> dict[str, float]:
        """Kind -> probability, healthy among them, were one thing wrong and all alike before the log was seen."""
        names = ["healthy", *(c.kind for c in self.causes)]
        weight = np.array([HEALTHY, *(-np.inf if c.kind in self.behind else c.evidence for c in self.causes)])
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


def diagnose(policy: Policy, task: Task, log: Log, watch: Watch = unwatched, whole: bool = False) -> Diagnosis:
    """What is wrong between a policy of a task and the robot that a log is of.

    A broken contract ends the search, as what is below it is to be looked at when it is mended; with `whole`, all branches
    are. A log that is too short to tell is refused, unless it tells a cause.
    """
    c = policy.contract
    model = compile_for(load_robot(task.robot).spec, task.params)
    world = Engine(model, task.params, 1, task.substeps, 1, (), task.explicit)
    watch(Progress("rebuilding what the policy was told"))
    if len(log) < FEWEST:
        raise LogError(_short(len(log), log))
    log = checked(log)
    told = rebuilt(task, c, world, log)
    complete = ~told.lost & np.isfinite(told.action).all(1) & np.isfinite(measured(log, "control")).all(1)
    rows = int(complete.sum())
    if rows < FEWEST:
        raise LogError(_short(rows, log))
    watch(Progress("asking the policy"))
    off = mismatch(told, policy)
    causes = [*observed(told, policy), *sent(told, measured(log, "control")), *timed(log, c)]
    heads, broken = _heads(causes), any(x.branch == "contract" and x.evidence > HEALTHY for x in causes)
    physics = None if broken and not whole else examine(task, log, watch)
    if physics is not None and len(Plain(model).touching):
        physics = clear(physics)
    ranked = _ranked([*causes, *([x.cause for x in physics.weighed] if physics is not None else [])])
    behind = frozenset(x.kind for x in ranked if heads and x.kind not in heads)
    found = Diagnosis(tuple(sorted(ranked, key=lambda x: x.kind in behind)), off, told, physics, behind=behind)
    if found.healthy and (rows < ENOUGH or physics is None):
        raise LogError(_short(rows, log))
    return found if physics is None else replace(found, left=left_by(physics, _shown(physics, found.first)))


def _heads(causes: list[Cause]) -> set[str]:
    """Kinds that come first, whatever others weigh: rows that are not the policy's periods, or a broken contract."""
    sure = [c for c in causes if c.evidence > HEALTHY]
    return {c.kind for c in sure if c.kind == "rate"} or {c.kind for c in sure if c.branch == "contract"}


def _short(rows: int, log: Log) -> str:
    return (
        f"too short to tell: found {rows} complete rows of {len(log)}, and no cause in them; expected at least {ENOUGH} that "
        "follow each other before it is called healthy; record ten seconds or more"
    )


def _of_kind(found: Examined, kind: str) -> Weighed | None:
    return next((x for x in found.weighed if x.cause.kind == kind), None)


def _shown(found: Examined, first: Cause | None) -> Weighed | None:
    """The world in which the first cause is true. Of losses it has what was lost on the way out (_ranked)."""
    if first is None or first.kind != "drops":
        return None if first is None else _of_kind(found, first.kind)
    late = _of_kind(found, "jitter")
    return late if late is not None and late.cause.evidence > 0 else None


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
            best["drops"],
            evidence=best["drops"].evidence + late.evidence,
            told=f"{best['drops'].told}; {late.told}",
            share=late.share,
        )
    return sorted(best.values(), key=lambda c: -c.evidence)
