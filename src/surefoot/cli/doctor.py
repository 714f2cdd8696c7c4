"""The verb that says why a policy failed on its robot."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import tyro
from rich.console import Console
from rich.table import Table
from tyro.conf import FlagConversionOff, Positional

from surefoot.cli.words import belief_of, task_for
from surefoot.console import Answer, Line
from surefoot.log import Log

if TYPE_CHECKING:
    from surefoot.gate.doctor import Diagnosis

FOUND = 1
SHOWN = 5


@dataclass
class Doctor:
    """Why did this policy fail on its robot? A log of it, against the contract, the clock and the model; ranked causes."""

    policy: Positional[Path]
    """a run's folder or a policy.safetensors"""
    log: Positional[Path]
    """what the robot did, with `action` and `control`: any file that `surefoot log` reads"""
    mapping: Annotated[Path | None, tyro.conf.arg(name="map")] = None
    """JSON file that says what the log's columns are; see docs/logs.md"""
    task: str = ""
    """another task than the policy's own, whose contract it fits"""
    belief: str = "task"
    """what the policy was trained over: task, nominal, a preset or a JSON file"""
    whole: bool = False
    """look at every branch, also below a contract that is broken"""
    success: FlagConversionOff[bool] = True
    """simulate whether the policy would succeed at home, and where the first cause is true"""
    out: Path | None = None
    """write a page with plots (.html)"""

    def run(self, say: Console) -> Answer:
        from surefoot.deploy import bundle
        from surefoot.gate.doctor import course, diagnose, page, remedy

        line = Line(say)
        policy = bundle.load(self.policy)
        task = task_for(policy, self.task)
        belief = belief_of(task, self.belief, say)
        line.text(f"reading {self.log}")
        log = Log.read(self.log, self.mapping)
        found = diagnose(policy, task, log, line.text, self.whole)
        first = found.found[0] if found.found else None
        after, param = None, ""
        if self.success:
            line.text("would it succeed?")
            after = course.course(policy, task, belief, found.weighed(first))
            param = after.param
        line.end()
        cure = remedy.remedy(task, str(self.policy), str(self.log), first, param)
        second = found.found[1] if len(found.found) > 1 else None
        further = remedy.decide(task, first, second) if first else ""
        branches = found.branches()
        said = [_verdict(found), *(course.words(after) if after else []), f"do: {cure.do}"]
        said += [f"a further log that would decide: {further}"] if further else []
        facts = found.to_json() | {
            "branches": [dict(zip(("branch", "holds", "evidence"), b)) for b in branches],
            "course": after.to_json() if after else None, "prescription": {"do": cure.do, "command": cure.command}, "further": further,
        }  # fmt: skip
        if self.out:
            facts["page"] = str(
                page.write(self.out, f"{self.policy} on {self.log}", found, branches, said, _plain(facts))
            )
            said.append(f"page: {self.out}")
        return Answer(
            _plain(facts), [_tree(branches), _causes(found), *said], cure.command, FOUND if found.found else 0
        )


def _verdict(found: "Diagnosis") -> str:
    if found.healthy:
        return "healthy: nothing found; noise explains the rest"
    first, *rest = found.found
    words = f"first cause: {first.kind}: {first.told}"
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
            table.add_row(c.kind, c.about, f"{c.evidence:.1f} nats", f"{c.share:.0%}", f"{chances[c.kind]:.3f}")
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
