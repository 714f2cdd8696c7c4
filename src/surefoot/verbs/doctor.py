"""surefoot doctor: why did a policy fail on its robot?"""

from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import numpy as np
from tyro.conf import FlagConversionOff, Positional, arg

from surefoot import files
from surefoot.belief import Belief
from surefoot.errors import SurefootError
from surefoot.gate.lineage import run_of
from surefoot.report import Axis, Badge, Column, Plot, Progress, Report, Series, Table, Text, Watch, jsonable
from surefoot.task import Task
from surefoot.verbs.arguments import belief_of, hashes, task_for, trained_over
from surefoot.verbs.machine import naming, read

if TYPE_CHECKING:
    from surefoot.doctor import Diagnosis
    from surefoot.doctor.remedy import Asked

FOUND = 1
SHOWN, DRAWN = 5, 8  # causes in the table, and in the plot


@dataclass(frozen=True)
class Doctor:
    policy: Positional[Path]
    """a run's folder or a policy.onnx"""
    log: Positional[Path]
    """the robot's log, with `action` and `control`: any file that `surefoot log` reads"""
    mapping: Annotated[Path | None, arg(name="map")] = None
    """JSON file that says what the log's columns are; see docs/logs.md"""
    task: str = ""
    """another task than the policy's own, whose contract it fits"""
    belief: str = ""
    """what the policy was trained over: task, nominal, a preset or a JSON file; default: what run.json beside the policy
    says, else the task's"""
    whole: bool = False
    """examine every branch, even if the contract is broken"""
    success: FlagConversionOff[bool] = True
    """simulate the policy in the nominal world, and where the first cause is true"""
    out: Path | None = None
    """write a page with plots (.html)"""

    def run(self, watch: Watch) -> Report:
        from surefoot.deploy import bundle
        from surefoot.doctor import consequences as course
        from surefoot.doctor import diagnose, remedy

        if self.out:
            files.check_writable(self.out, "--out", ".html")
        _in_order(self.policy, self.log)
        policy = bundle.load(self.policy)
        task = task_for(policy, self.task)
        belief, over = self._belief(task, watch)
        log = read(self.log, self.mapping, watch)
        with naming(self.log):
            found = diagnose(policy, task, log, watch, self.whole)
        first, after = found.first, None
        if self.success:
            watch(Progress("would it succeed?"))
            after = course.course(policy, task, belief, found.weighed(first))
        unfit = after is not None and after.unfit
        cure = remedy.remedy(self._asked(task), first, after, found.left)
        settled = after is not None and (after.unfit or after.harmless)
        further = remedy.decide(task, first, found.second) if first and not settled else ""
        branches = found.branches()
        facts = found.to_json() | {
            "healthy": found.healthy and not unfit, "trained_over": over,
            "branches": [dict(zip(("branch", "holds", "evidence"), b)) for b in branches],
            "course": after.to_json() if after else None, "prescription": {"do": cure.do, "command": cure.command}, "further": further,
        }  # fmt: skip
        facts |= {"page": str(self.out)} if self.out else {}
        said = [*(course.words(after, over) if after else []), f"do: {cure.do}"]
        said += [f"a further log that would decide: {further}"] if further else []
        blocks = (Table.of(["branch", "", "evidence"], branches), _causes(found), *map(Text, said), *_plots(found))
        ill = bool(found.found) or unfit
        return Report(
            f"{self.policy} on {self.log}", jsonable(facts), blocks, cure.command, Badge(_verdict(found, unfit), not ill),
            FOUND if ill else 0, self.out, sources=hashes(policy=self.policy, log=self.log),
        )  # fmt: skip

    def _belief(self, task: Task, watch: Watch) -> tuple[Belief, str]:
        """What the policy was trained over, and in words what that is."""
        own = None if self.belief else trained_over(self.policy, task)
        if own is not None:
            return own, "what it was trained over"
        if not self.belief:
            return task.belief, "the task's belief; no run.json says what it was trained over"
        return belief_of(task, self.belief, watch), f"what it was trained over (--belief {self.belief})"

    def _asked(self, task: Task) -> "Asked":
        from surefoot.doctor.remedy import Asked

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


def _causes(found: "Diagnosis") -> Table:
    chances = found.chances()
    rows = [[c.kind, c.about, c.evidence, c.explains, chances[c.kind]] for c in found.causes[:SHOWN] if c.evidence > 0]
    columns = ["cause", "what", Column("evidence", "nats", ".1f"), "explains", Column("probability", form=".3f")]
    return Table.of(columns, rows, "causes, most likely first")


def _plots(found: "Diagnosis") -> list[Plot]:
    """Evidence of causes and latencies, and what the model did not expect."""
    top = [c for c in found.causes[:DRAWN] if np.isfinite(c.evidence)]
    nats = Axis("evidence", "nats", "symlog")
    bars = Series.of("", [max(c.evidence, 0.0) for c in top], range(len(top)), style="bars")
    shown = [Plot("Evidence for each cause", (bars,), nats, Axis(names=tuple(c.kind for c in top)),
                  caption="against nothing being wrong")]  # fmt: skip
    if found.physics is None:
        return shown
    late = {1000 * t: x.cause.evidence for t, x in found.physics.latencies.items() if np.isfinite(x.cause.evidence)}
    line = Series.of("", late, late.values(), style="points")
    shown.append(Plot("Evidence for latency", (line,), Axis("latency", "ms"), Axis("evidence", "nats")))
    judge, first = found.physics.judge, found.weighed(found.first)
    under = {"nothing wrong": judge.plain} | ({first.cause.kind: first.eps} if first else {})
    rows = {name: judge.rows(eps) for name, eps in under.items()}
    sd = np.sqrt(np.diag(judge.spread(list(rows.values())[-1])))
    size = {name: np.sqrt(np.nanmean(np.square(x / sd), 1)) for name, x in rows.items()}
    series = tuple(Series.of(name, range(len(y)), y) for name, y in size.items())
    caption = "Prediction error of each row over its noise: with nothing wrong, and under the first cause."
    return [
        *shown,
        Plot("Surprise of the model", series, Axis("row"), Axis("error / noise", scale="log"), caption=caption),
    ]
