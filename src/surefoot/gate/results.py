"""Results: what a gate knows so far, why the policy fails, and what to do next."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from shlex import quote
from typing import Any

from surefoot.gate import checks
from surefoot.gate.candidate import Candidate
from surefoot.gate.contract_faults import Explained
from surefoot.gate.runs import Separation
from surefoot.report import jsonable
from surefoot.verdict import Check

NOMINAL, BELIEF = "nominal", "belief"
IN_BELIEF = {checks.success_name(BELIEF), checks.WORST_DECILE, checks.RARE_FAILURES}


@dataclass
class Results:
    """What is known so far."""

    checks: list[Check] = field(default_factory=list)
    evidence: dict[str, Any] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    contract_faults: Explained = Explained()
    failed_realities: list[int] = field(default_factory=list)
    """seeds"""
    separation: Separation | None = None
    """of failures from successes over the belief"""
    separating: str = ""
    """the unknown that separates failures from successes over the belief, else the one furthest from nominal in the worst world"""
    interrupted: bool = False

    def take(self, answer: dict[str, Any], where: str) -> Iterator[Check]:
        """The checks of a job, once the rest of its answer is here (in_part)."""
        self.evidence |= answer["evidence"]
        self.skipped |= answer["skipped"]
        self.failed_realities += answer["failed_realities"]
        self.separating = self.separating or answer["separating"]
        if answer["separation"] is not None:
            self.separation = Separation(**answer["separation"])
        yield from (Check.from_json(row, where) for row in answer["checks"])

    def answer(self, made: Sequence[Check]) -> dict[str, Any]:
        """What a job that made these checks sends, for `take`."""
        facts = {k: getattr(self, k) for k in ("evidence", "skipped", "failed_realities", "separating")}
        by = None if self.separation is None else asdict(self.separation)
        found: dict[str, Any] = jsonable(facts | {"checks": [check.to_json() for check in made], "separation": by})
        return found


def why(who: Candidate, found: Results) -> list[str]:
    """Why it fails, in sentences: a fault of the contract where the nominal world fails, an unknown where only the belief does."""
    failed = [c.name for c in found.checks if not c.holds and c.name in IN_BELIEF]
    if not failed:
        return found.contract_faults.sentences()
    if found.separation is None:
        return [
            f"{failed[0]}: no single unknown separates failures from successes; the worlds in which it fails are on the page"
        ]
    return [f"{failed[0]}: {found.separation.sentence(who.task.params)}"]


def following(who: Candidate, found: Results, again: str) -> str:
    """The next command."""
    failed = {c.name for c in found.checks if not c.holds}
    own, name = who.given is None, who.name
    run = quote(str(Path(name).parent) if name.endswith(".onnx") else name)  # the run of an ONNX file of ours
    task = quote(who.reference or who.task.name)
    if found.interrupted:
        return again
    if checks.success_name(NOMINAL) in failed:
        return (
            f"surefoot play {run}{who.task_flag}" if own else again
        )  # once the contract is corrected as the report says
    if not own:
        return f"{again} --limits limits.json" if failed else f"{again} --reality all"
    if failed & IN_BELIEF:
        return f"surefoot sweep {run} --over {quote(found.separating)}{who.task_flag}"
    if found.failed_realities:
        return f"surefoot record {task} --policy {run} --reality {found.failed_realities[0]} --tell"
    if checks.LATENCY in failed and "latency" in who.task.params.names:
        return f"surefoot sweep {run} --over latency{who.task_flag}"
    if failed:
        return f"surefoot train {task}"
    return f"{again} --reality all" if name.endswith(".onnx") else f"surefoot export {run}{who.task_flag}"
