"""surefoot doctor: why did a policy fail on its robot?"""

from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

from tyro.conf import FlagConversionOff, Positional, arg

from surefoot import files
from surefoot.belief import Belief
from surefoot.contract import Contract
from surefoot.errors import SurefootError
from surefoot.gate.training_record import run_of
from surefoot.log import Log
from surefoot.report import Progress, Report, Watch, jsonable
from surefoot.task import Task
from surefoot.verbs.arguments import belief_of, hashes, trained_over
from surefoot.verbs.machine import naming, read

if TYPE_CHECKING:
    from surefoot.doctor import Diagnosis
    from surefoot.doctor.consequences import Consequences
    from surefoot.doctor.prescription import Case
    from surefoot.gate.candidate import Candidate

FOUND, UNCHECKED = 1, 3  # exit codes: there is a cause; none in what was checked, and not everything was


@dataclass(frozen=True)
class Doctor:
    policy: Positional[Path]
    """a run's folder, its policy.onnx, a task with a shipped policy, or another ONNX file with --model and --contract"""
    log: Positional[Path]
    """the robot's log, with `action` and `control`: any file that `surefoot log` reads"""
    mapping: Annotated[Path | None, arg(name="map")] = None
    """JSON file that maps the log's columns to our schema; see docs/logs.md"""
    model: Path | None = None
    """the robot model (.xml) of a policy from elsewhere"""
    contract: Path | None = None
    """its contract: JSON, or a deploy.yaml; ONNX files from mjlab and holosoma contain it"""
    task: str = ""
    """another task that the policy's contract fits; default: its own"""
    belief: str = ""
    """range the policy was trained over: task, nominal, a preset or a JSON file; default: that of run.json beside the policy,
    else the task's"""
    whole: bool = False
    """examine every branch, even if the contract is broken"""
    success: FlagConversionOff[bool] = True
    """also simulate the policy: in the nominal world, and in a world with the first cause"""
    out: Path | None = None
    """write a page with plots (.html), and its facts beside it (.json)"""
    on: str = ""
    """workers that simulate hypotheses: local:2, or a Ray cluster's ray://HOST:10001, HOST:6379 or auto"""
    workers: int = 0
    """how many workers of a cluster; 0: one for each of its cores"""

    def run(self, watch: Watch) -> Report:
        from surefoot.doctor.consequences import consequences
        from surefoot.doctor.prescription import further_log, prescribe
        from surefoot.doctor.report import answer, badge, blocks, evidence, sentence
        from surefoot.gate.candidate import candidate

        if self.out:
            files.check_writable(self.out, "--out", ".html")
            reads = (self.policy, self.log, self.mapping, self.contract, self.belief)
            files.check_writable(self.out.with_suffix(".json"), "--out", reads=reads)
        _in_order(self.policy, self.log)
        who = candidate(self.policy, self.task, self.model, self.contract)
        policy, task = who.policy, who.task
        belief, trained = self._belief(task, watch)
        log = read(self.log, self.mapping, watch)
        with naming(self.log):
            found = self._diagnosed(who, log, watch)
        first, after = found.first, None
        if self.success:
            watch(Progress("simulating success rates"))
            weighed = found.weighed(first)
            after = consequences(policy, task, belief, weighed.hypothesis if weighed else None)
        unfit = after is not None and after.fails_nominal
        case = self._case(task, policy.contract)
        cure = prescribe(case, first, after, found.left, found.unchecked)
        settled = after is not None and (after.fails_nominal or after.harmless)
        further = further_log(case, first, found.second) if first and not settled else ""
        facts = jsonable(found.to_json() | evidence(found) | {
            "policy": str(self.policy), "log": str(self.log), "notes": list(who.notes),
            "healthy": found.healthy and not unfit, "verdict": answer(found, unfit), "trained_over": trained,
            "words": sentence(found, unfit), "consequences": after.to_json() if after else None,
            "prescription": {"do": cure.do, "command": cure.command}, "further_log": further,
            "said": self._said(after, trained, cure.do, further), **({"page": str(self.out)} if self.out else {}),
        })  # fmt: skip
        if self.out:
            files.write_json(self.out.with_suffix(".json"), facts)
        code = {"healthy": 0, "cause": FOUND, "not checked": UNCHECKED}[facts["verdict"]]
        return Report(
            f"{self.policy} on {self.log}", facts, blocks(facts), cure.command, badge(facts),
            code, self.out, sources=hashes(policy=self.policy, log=self.log, model=self.model, contract=self.contract),
        )  # fmt: skip

    @staticmethod
    def _said(after: "Consequences | None", trained: str, do: str, further: str) -> list[str]:
        """What follows from the cause, and what to do."""
        said = [*(after.sentences(trained) if after else []), f"do: {do}"]
        return [*said, *([f"further log: {further}"] if further else [])]

    def _diagnosed(self, who: "Candidate", log: Log, watch: Watch) -> "Diagnosis":
        from surefoot.doctor import diagnose

        if not self.on:
            return diagnose(who.policy, who.task, log, watch, self.whole)
        from surefoot.doctor.hypotheses.by_jobs import ByJobs
        from surefoot.learn.cluster.address import On
        from surefoot.learn.cluster.jobs import Jobs

        with Jobs(On.parse(self.on, self.workers), watch=watch).connected() as (jobs, workers):
            by = lambda checked: ByJobs(jobs, who.files, checked, workers)  # noqa: E731
            return diagnose(who.policy, who.task, log, watch, self.whole, by)

    def _belief(self, task: Task, watch: Watch) -> tuple[Belief, str]:
        """The range the policy was trained over, and its name."""
        own = None if self.belief else trained_over(self.policy, task)
        if own is not None:
            return own, "the range it was trained over"
        if not self.belief:
            return task.belief, "the task's range (no run.json gives the training range)"
        return belief_of(task, self.belief, watch), f"the range of --belief {self.belief}"

    def _case(self, task: Task, contract: Contract) -> "Case":
        from surefoot.doctor.prescription import Case
        from surefoot.tasks.known import recall, task_flag

        settings = run_of(self.policy).get("settings")
        steps = settings.get("steps") if isinstance(settings, dict) else 0
        log = quote(str(self.log)) + (f" --map {quote(str(self.mapping))}" if self.mapping else "")
        policy, given = quote(str(self.policy)), f" --contract {quote(str(self.contract))}" if self.contract else ""
        if self.model is not None:
            gate = f"surefoot gate {policy} --model {quote(str(self.model))}{given}"
            return Case(task, policy, log, 0, str(self.model), gate)
        reference = self.task or recall(contract.parents) or ""
        policy += task_flag(self.task, contract)
        return Case(task, policy, log, steps if isinstance(steps, int) else 0, reference)


def _in_order(policy: Path, log: Path) -> None:
    """Refuses policy and log in exchanged places."""
    from surefoot.deploy import bundle

    if not bundle.is_one(policy) and bundle.is_one(log):
        raise SurefootError(
            f"{policy} and {log}: in the wrong order: the second is the policy; expected surefoot doctor {log} {policy}"
        )
