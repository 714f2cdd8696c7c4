"""diagnose: the decision tree, with evidence at each branch.

    contract   rebuilt observations against logged actions        branches/contract.py
               logged actions against logged controls             branches/action_path.py
    timing     rate, time stamps, drops                           branches/timing.py
               latency and late commands                          branches/physics.py
    numbers    which number of the model, or sensor, is wrong     branches/physics.py
    physics    which effect the model does not have               branches/physics.py

Every cause of every branch has its evidence in nats against "nothing is wrong" (cause.py). A wrong rate, and then a broken
contract, come first whatever their evidence: no physics changes a program's output. The verdict is healthy if the log has enough
rows, every branch was checked, and no cause has more than HEALTHY nats. A branch that the log cannot answer is not checked.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from surefoot.doctor.branches.action_path import action_causes
from surefoot.doctor.branches.contract import FEWEST, mismatch, observation_causes
from surefoot.doctor.branches.physics import Examination, Remainder, examine, remainder
from surefoot.doctor.branches.timing import timing_causes
from surefoot.doctor.cause import NOT_CHECKED, Branch, Cause
from surefoot.doctor.evidence.likelihood import Weighed
from surefoot.doctor.evidence.observation import Rebuilt, checked, rebuild
from surefoot.doctor.hypotheses.by_jobs import ByJobs
from surefoot.errors import LogError
from surefoot.log import Log
from surefoot.policy import Policy
from surefoot.real2sim.signals import measured
from surefoot.report import Progress, Watch, unwatched
from surefoot.sim.engine import Engine, Law
from surefoot.sim.fields.compile import compile_for
from surefoot.sim.gap.recipe import Plain
from surefoot.sim.model.load import load_robot
from surefoot.task import Task

HEALTHY = 10.0
"""nats: less may be chance; odds of 1 to 22,000 for each cause, of which some fifty are tried"""
PRIOR = {"mass": -2.0, "inertia": -3.0, "gravity": -5.0, "motor time": -2.0}
"""nats: of two causes that predict equally well, the commoner comes first. Motors weaken and heat up; masses are known"""
CLEAR = 0.5  # of the innovations: what a cause must explain where there are contacts
ENOUGH = 150
"""complete rows, the fewest for a healthy verdict: on a cart, 30 ms of latency show from 20 rows on; motors 11 to 22 % off show
in no log of 30 rows, in three of four of 100 rows, and in all of 150"""


@dataclass(frozen=True, eq=False)
class Diagnosis:
    causes: tuple[Cause, ...]
    """every weighed cause, the best of each kind, largest evidence first"""
    mismatch: float
    """between logged and computed actions, as a share of their spread"""
    rows: Rebuilt
    physics: Examination | None
    """None where the contract is broken, or too few rows follow each other"""
    left: Remainder | None = None
    """what the first cause does not explain"""
    behind: frozenset[str] = frozenset()
    """kinds that come after a wrong rate or a broken contract whatever their evidence: they do not explain it"""

    @property
    def significant(self) -> tuple[Cause, ...]:
        """The causes with more evidence than chance."""
        return tuple(c for c in self.causes if c.evidence > HEALTHY)

    @property
    def first(self) -> Cause | None:
        return next(iter(self.significant), None)

    @property
    def second(self) -> Cause | None:
        """The best alternative to the first."""
        return next((c for c in self.significant[1:] if c.kind not in self.behind), None)

    @property
    def unchecked(self) -> tuple[Branch, ...]:
        """Branches that this log cannot answer."""
        return tuple(b for b in self.branches() if b.answer == NOT_CHECKED)

    @property
    def healthy(self) -> bool:
        """No cause, and every branch was checked."""
        return not self.significant and not self.unchecked

    def weighed(self, cause: Cause | None) -> Weighed | None:
        """A cause of physics with its hypothesis."""
        return None if cause is None or self.physics is None else self.physics.of(cause.kind)

    def branches(self) -> list[Branch]:
        return [self._contract(), self._timing(), *self._model()]

    def _contract(self) -> Branch:
        if self.rows.missing:
            words = f"observations cannot be rebuilt from this log: no readings for {', '.join(self.rows.missing)}"
            return Branch("contract", "does the runtime follow the contract?", NOT_CHECKED, words)
        own = [c for c in self.significant if c.branch == "contract"]
        words = f"logged and computed actions differ by {self.mismatch:.2g} of their spread"
        question = "does the runtime follow the contract?"
        return Branch("contract", question, "no" if own else "yes", own[0].detail if own else words)

    def _timing(self) -> Branch:
        own = [c for c in self.significant if c.branch == "timing"]
        words = "rate, time stamps and drops are normal" + ("; no latency" if self.physics is not None else "")
        return Branch("timing", "is the timing right?", "no" if own else "yes", own[0].detail if own else words)

    def _model(self) -> list[Branch]:
        if self.physics is None or self.left is None:
            words = "not examined: too few rows follow each other without a gap"
            if self._contract().answer == "no":
                words = "not examined: the contract comes first; --whole examines it all the same"
            return [Branch("model", "does the model predict the log?", NOT_CHECKED, words)]
        rows = []
        for branch, question in (("numbers", "are the model's numbers right?"), ("sensors", "are the sensors right?"),
                                 ("physics", "does the model have all the physics?")):  # fmt: skip
            own = next((c for c in self.causes if c.branch == branch), None)
            bad = own is not None and own.evidence > HEALTHY
            words = own.detail if own is not None and bad else "no change predicts the log better"
            rows.append(Branch(branch, question, "doubtful" if bad else "yes", words))
        white, varies = self.left.white, self.left.varies
        rows.append(Branch("remainder", "is the rest noise?", "yes" if white else "no", self._rest(self.left)))
        words = varies or "both halves of the log give the same"
        rows.append(Branch("constancy", "are the numbers constant?", "no" if varies else "yes", words))
        return rows

    def _rest(self, left: Remainder) -> str:
        """How the innovations divide, given the first cause."""
        rest = (1 - left.share) * left.generic
        others = f"a law without a name {rest:.0%}, noise {1 - left.share - rest:.0%}"
        if self.first is None:
            return f"of the prediction errors, no cause explains any, {others}"
        if not left.share:
            return f"{self.first.kind} predicts nothing; of the prediction errors, {others}"
        return f"{self.first.kind} explains {left.share:.0%} of the prediction errors, {others}"

    def probabilities(self) -> dict[str, float]:
        """By kind, healthy among them, if exactly one thing is wrong and all are equally likely a priori."""
        names = ["healthy", *(c.kind for c in self.causes)]
        weight = np.array([HEALTHY, *(-np.inf if c.kind in self.behind else c.evidence for c in self.causes)])
        p = np.exp(np.clip(weight - weight.max(), -700, 0))
        return dict(zip(names, (p / p.sum()).tolist()))

    def to_json(self) -> dict[str, Any]:
        p = self.probabilities()
        rows = [c.to_json() | {"probability": p[c.kind]} for c in self.causes]
        off = None if np.isnan(self.mismatch) else self.mismatch
        return {"healthy": self.healthy, "unchecked": [b.name for b in self.unchecked], "mismatch": off, "causes": rows,
                "probability_healthy": p["healthy"] if not self.unchecked else None}  # fmt: skip


def diagnose(
    policy: Policy,
    task: Task,
    log: Log,
    watch: Watch = unwatched,
    whole: bool = False,
    by: Callable[[Log], ByJobs] | None = None,
) -> Diagnosis:
    """What is wrong between a policy of a task and the robot that recorded the log.

    A broken contract ends the search; with `whole`, all branches are examined. A log that is too short for a healthy verdict is
    refused, unless it shows a cause. `by` whom hypotheses about the log are simulated; None: here.
    """
    c = policy.contract
    model = compile_for(load_robot(task.robot).spec, task.params)
    world = Engine(model, task.params, 1, task.substeps, 1, (), Law(task.explicit))
    watch(Progress("rebuilding observations"))
    if len(log) < FEWEST:
        raise LogError(_short(len(log), log))
    log = checked(log)
    rows = rebuild(c, world, log)
    control = measured(log, "control")
    complete = int((~rows.lost & np.isfinite(rows.action).all(1) & np.isfinite(control).all(1)).sum())
    if complete < FEWEST:
        raise LogError(_short(complete, log))
    watch(Progress("running the policy"))
    off = mismatch(rows, policy)
    causes = [*observation_causes(rows, policy), *action_causes(rows, control), *timing_causes(log, c)]
    heads, broken = _heads(causes), any(x.branch == "contract" and x.evidence > HEALTHY for x in causes)
    physics = None if broken and not whole else examine(task, log, watch, None if by is None else by(log))
    if physics is not None and len(Plain(model).touching):
        physics = clear(physics)
    ranked = _ranked([*causes, *([x.cause for x in physics.weighed] if physics is not None else [])])
    behind = frozenset(x.kind for x in ranked if heads and x.kind not in heads)
    found = Diagnosis(tuple(sorted(ranked, key=lambda x: x.kind in behind)), off, rows, physics, behind=behind)
    if not found.significant and (complete < ENOUGH or physics is None):
        raise LogError(_short(complete, log))
    return found if physics is None else replace(found, left=remainder(physics, _weighed_first(physics, found.first)))


def _heads(causes: list[Cause]) -> set[str]:
    """Kinds that come first whatever their evidence: a wrong rate, or a broken contract."""
    sure = [c for c in causes if c.evidence > HEALTHY]
    return {c.kind for c in sure if c.kind == "rate"} or {c.kind for c in sure if c.branch == "contract"}


def _short(rows: int, log: Log) -> str:
    return (
        f"too short for a diagnosis: found {rows} complete rows of {len(log)}, and no cause in them; expected at least {ENOUGH} "
        "in sequence before the robot is called healthy; record ten seconds or more"
    )


def _weighed_first(physics: Examination, first: Cause | None) -> Weighed | None:
    """The hypothesis of the first cause; for drops, that of late commands (see _ranked)."""
    if first is None or first.kind != "drops":
        return None if first is None else physics.of(first.kind)
    late = physics.of("jitter")
    return late if late is not None and late.cause.evidence > 0 else None


def clear(found: Examination) -> Examination:
    """Only causes that explain most of the innovations count.

    Where feet meet the ground, a millimetre of noise is an impact: innovations are not Gaussian, any number that softens
    them seems to explain something, and nats are too large.
    """
    less = [
        x if x.cause.share >= CLEAR else replace(x, cause=replace(x.cause, evidence=min(x.cause.evidence, 0.0)))
        for x in found.weighed
    ]
    return replace(found, weighed=tuple(sorted(less, key=lambda x: -x.cause.evidence)))


def _ranked(causes: list[Cause]) -> list[Cause]:
    """The best of each kind, in order. A link that drops measurements drops commands, too: drops include late commands."""
    best: dict[str, Cause] = {}
    for c in causes:
        if c.kind not in best or c.evidence > best[c.kind].evidence:
            best[c.kind] = c
    best = {k: replace(c, evidence=c.evidence + PRIOR.get(k, 0.0)) for k, c in best.items()}
    drops, late = best.get("drops"), best.get("jitter")
    if drops and late and late.evidence > 0:
        detail = f"{drops.detail}; {late.detail}"
        best["drops"] = replace(drops, evidence=drops.evidence + late.evidence, detail=detail, share=late.share)
    return sorted(best.values(), key=lambda c: -c.evidence)
