"""The verb that says why a policy failed on its robot."""

from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import tyro
from rich.console import Console
from rich.table import Table
from tyro.conf import FlagConversionOff, Positional

from surefoot import files
from surefoot.belief import Belief
from surefoot.cli.real import naming, read
from surefoot.cli.words import belief_of, task_for, trained_over
from surefoot.console import Answer, Line
from surefoot.errors import SurefootError
from surefoot.gate.lineage import run_of
from surefoot.task import Task

if TYPE_CHECKING:
    from surefoot.gate.doctor import Diagnosis
    from surefoot.gate.doctor.remedy import Asked

FOUND = 1
SHOWN = 5


@dataclass
class Doctor:
    """Why did this policy fail on its robot? A log of it, against the contract, the clock and the model; ranked causes."""

    policy: Positional[Path]
    """a run's folder or a policy.onnx"""
    log: Positional[Path]
    """what the robot did, with `action` and `control`: any file that `surefoot log` reads"""
    mapping: Annotated[Path | None, tyro.conf.arg(name="map")] = None
    """JSON file that says what the log's columns are; see docs/logs.md"""
    task: str = ""
    """another task than the policy's own, whose contract it fits"""
    belief: str = ""
    """what the policy was trained over: task, nominal, a preset or a JSON file; left out, what run.json beside the policy
    says, else the task's"""
    whole: bool = False
    """look at every branch, also below a contract that is broken"""
    success: FlagConversionOff[bool] = True
    """simulate whether the policy would succeed at home, and where the first cause is true"""
    out: Path | None = None
    """write a page with plots (.html)"""

    def run(self, say: Console) -> Answer:
        from surefoot.deploy import bundle
        from surefoot.gate.doctor import course, diagnose, page, remedy

        if self.out:
            files.check_writable(self.out, "--out", ".html")
        line = Line(say)
        _in_order(self.policy, self.log)
        policy = bundle.load(self.policy)
        task = task_for(policy, self.task)
        belief, over = self._belief(task, say)
        log = read(self.log, self.mapping, line)
        with naming(self.log):
            found = diagnose(policy, task, log, line.text, self.whole)
        first, after = found.first, None
        if self.success:
            line.text("would it succeed?")
            after = course.course(policy, task, belief, found.weighed(first))
        line.end()
        unfit = after is not None and after.unfit
        cure = remedy.remedy(self._asked(task), first, after, found.left)
        settled = after is not None and (after.unfit or after.harmless)
        further = remedy.decide(task, first, found.second) if first and not settled else ""
        branches = found.branches()
        said = [_verdict(found, unfit), *(course.words(after, over) if after else []), f"do: {cure.do}"]
        said += [f"a further log that would decide: {further}"] if further else []
        facts = found.to_json() | {
            "healthy": found.healthy and not unfit, "trained_over": over,
            "branches": [dict(zip(("branch", "holds", "evidence"), b)) for b in branches],
            "course": after.to_json() if after else None, "prescription": {"do": cure.do, "command": cure.command}, "further": further,
        }  # fmt: skip
        if self.out:
            facts["page"] = str(
                page.write(self.out, f"{self.policy} on {self.log}", found, branches, said, _plain(facts))
            )
            said.append(f"page: {self.out}")
        return Answer(
            _plain(facts), [_tree(branches), _causes(found), *said], cure.command, FOUND if found.found or unfit else 0
        )

    def _belief(self, task: Task, say: Console) -> tuple[Belief, str]:
        """What the policy was trained over, and in words what that is."""
        own = None if self.belief else trained_over(self.policy, task)
        if own is not None:
            return own, "what it was trained over"
        if not self.belief:
            return task.belief, "the task's belief; no run.json says what it was trained over"
        return belief_of(task, self.belief, say), f"what it was trained over (--belief {self.belief})"

    def _asked(self, task: Task) -> "Asked":
        from surefoot.gate.doctor.remedy import Asked

        steps = (run_of(self.policy).get("settings") or {}).get("steps", 0)
        log = quote(str(self.log)) + (f" --map {quote(str(self.mapping))}" if self.mapping else "")
        return Asked(task, quote(str(self.policy)), log, int(steps))


def _in_order(policy: Path, log: Path) -> None:
    """Refuses a log where the policy should be, and the other way."""
    from surefoot.deploy import bundle

    if not bundle.is_one(policy) and bundle.is_one(log):
        raise SurefootError(
            f"{policy} and {log}: exchanged: the second is the policy; expected surefoot doctor {log} {policy}"
        )


def _verdict(found: "Diagnosis", unfit: bool) -> str:
    if found.first is None:
        nothing = "nothing found; noise explains the rest"
        return f"not the robot: the policy fails at home; in the log {nothing}" if unfit else f"healthy: {nothing}"
    first, *rest = found.found
    words = f"first cause: {first.kind}: {first.told}"
    if unfit:
        words = f"not the robot, at first: the policy fails at home; in the log: {first.kind}: {first.told}"
    near = [c.kind for c in rest if first.evidence - c.evidence < 3.0]
    return words + (f"; this log does not tell it from {' or '.join(near)}" if near else "")


def _tree(branches: list[tuple[str, str, str]]) -> Table:
    table = Table("branch", "", "evidence")
    for row in branches:
        table.add_row(*row)
    return table


def _causes(found: "Diagnosis") -> Table:
    table, chances = Table("cause", "what", "evidence", "explains", "probability"), found.chances()
    for c in found.causes[:SHOWN]:
        if c.evidence > 0:
            table.add_row(c.kind, c.about, f"{c.evidence:.1f} nats", c.explains, f"{chances[c.kind]:.3f}")
    return table


def _plain(facts: Any) -> Any:
    """JSON knows no nan and no infinity."""
    if isinstance(facts, dict):
        return {k: _plain(v) for k, v in facts.items()}
    if isinstance(facts, (list, tuple)):
        return [_plain(v) for v in facts]
    if isinstance(facts, float | np.floating):
        return float(facts) if np.isfinite(facts) else None
    return facts
