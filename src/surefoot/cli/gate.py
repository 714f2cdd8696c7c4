"""The verb that decides: may this policy leave the simulator?"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from rich import box
from rich.console import Console
from rich.table import Table
from tyro.conf import Positional, UseAppendAction, arg

from surefoot import files
from surefoot.cli.words import belief_of, numbers
from surefoot.console import Answer, Line
from surefoot.errors import SurefootError
from surefoot.verdict import Verdict

FAILED, INTERRUPTED = 1, 130


@dataclass
class Gate:
    """May this policy leave? Success, limits and margins with intervals; exit code 1 holds it back."""

    policy: Positional[Path]
    """a run's folder, its policy.onnx, or an ONNX file of others with --model and --contract"""
    engines: Annotated[UseAppendAction[tuple[str, ...]], arg(name="in")] = ()
    """an engine to try it in, may be repeated: mujoco, bullet ..."""
    reality: UseAppendAction[tuple[str, ...]] = ()
    """seed of a hidden reality, may be repeated; all: seeds 0 to 9"""
    episodes: int | None = None
    """in each column, at most; it stops sooner where the answer is clear. 200, or what --claim takes, unless told"""
    claim: float | None = None
    """a success rate to be claimed over the belief, such as 0.99: refused where the episodes cannot bear it"""
    belief: str = "task"
    """p(e): `task`, `nominal`, a preset (see `surefoot presets`), or a belief's JSON file"""
    limits: Path | None = None
    """JSON file of limits, in place of the defaults (docs/gate.md)"""
    limit: UseAppendAction[tuple[str, ...]] = ()
    """one limit, such as latency=2; may be repeated"""
    thorough: bool = False
    """five times the episodes, a finer engine and all realities"""
    model: Path | None = None
    """the robot that a policy of others drives (.xml)"""
    contract: Path | None = None
    """what its numbers mean: JSON, or a deploy.yaml; an ONNX file of mjlab's has it inside"""
    command: tuple[float, float, float] | None = None
    """vx, vy, yaw rate to follow, m/s and rad/s, in place of the contract's"""
    task: str = ""
    """a task that the policy fits, in place of its own"""
    out: Path | None = None
    """folder for gate.html and gate.json; beside the policy unless told"""
    junit: Path | None = None
    """write the checks as JUnit XML, too"""
    seed: int = 1000
    """what the seeds of the episodes are made from; they are none of training's, whatever it is"""
    threads: int = 0
    """threads of the physics; 0: every core"""

    def run(self, say: Console) -> Answer:
        from surefoot.gate import junit, page, suspects
        from surefoot.gate.candidate import candidate
        from surefoot.gate.gate import gate

        plan, limits = self._plan(), self._limits()
        out = self.out or (self.policy if self.policy.is_dir() else self.policy.parent)
        files.check_writable(out / "gate.html", "--out")
        if self.junit is not None:
            files.check_writable(self.junit, "--junit")
        who = candidate(self.policy, self.task, self.model, self.contract, self.command)
        for note in who.notes:
            say.print(f"note: {note}", highlight=False, soft_wrap=True)
        line, belief = Line(say), belief_of(who.task, self.belief, say)
        with files.held(out / "gate.lock", "writing a gate's files here"):
            files.clear_parts(out, "gate.*")
            verdict = gate(who, belief, plan, limits, line.text)
            line.end()
            verdict = replace(verdict, next_step=self._next(verdict))
            files.write_json(out / "gate.json", verdict.to_json())
            page.page(out / "gate.html", verdict)
            if self.junit is not None:
                junit.write(self.junit, verdict)
        shown = [table(verdict), *_evidence(verdict), *suspects.sentences(verdict.meta["suspects"]), *_skipped(verdict), verdict.meta["seeds"]["said"], _said(verdict), f"page: {out / 'gate.html'}"]  # fmt: skip
        code = INTERRUPTED if verdict.meta["interrupted"] else 0 if verdict.holds else FAILED
        return Answer(verdict.to_json() | {"page": str(out / "gate.html")}, shown, verdict.next_step, code)

    def _plan(self) -> Any:
        from surefoot.gate.gate import ALL, Plan
        from surefoot.gate.statistics import needed

        try:
            seeds = tuple(s for word in self.reality for s in (ALL if word == "all" else (int(word),)))
        except ValueError:
            seeds = (-1,)
        if min(seeds, default=0) < 0:
            raise SurefootError(f"--reality: expected a seed (0, 1, ...) or `all`, found {' '.join(self.reality)}")
        if self.claim is not None and not 0.5 <= self.claim < 1:
            raise SurefootError(f"--claim: expected a success rate from 0.5 to below 1, found {self.claim:g}")
        least = 200 if self.claim is None else max(200, needed(round(1 - self.claim, 12)))
        episodes = least if self.episodes is None else self.episodes
        plan = Plan(self.engines or Plan.engines, seeds, episodes, self.claim, seed=self.seed, threads=self.threads)
        if self.thorough:
            plan = plan.thorough()
        return plan

    def _limits(self) -> Any:
        from surefoot.gate.checks import Limits

        limits = Limits()
        if self.limits is not None:
            data = files.read_json(self.limits)
            if not isinstance(data, dict):
                raise SurefootError(f"{self.limits}: expected an object of limits, found {type(data).__name__}")
            limits = limits.but(data, str(self.limits))
        return limits.but(numbers(self.limit, "--limit", "latency=2"), "--limit")

    def _next(self, verdict: Verdict) -> str:
        """For a policy of others, the flags that say what it is go on."""
        more = "".join(f" --{k} {v}" for k, v in (("model", self.model), ("contract", self.contract)) if v)
        step = verdict.next_step
        return step.replace(str(self.policy), f"{self.policy}{more}", 1) if step.startswith("surefoot gate") else step


def table(verdict: Verdict) -> Table:
    """All but the evidence, which is too long for a column."""
    head, *rows = verdict.table()
    out = Table(*head[:-1], title=verdict.title, title_justify="left", box=box.SIMPLE_HEAD)
    for row in rows:
        out.add_row(*row[:-1], style="" if row[0] == "holds" else "bold")
    return out


def _evidence(verdict: Verdict) -> list[str]:
    """Of what fails; the page and --json have that of all."""
    return [f"{c.name}: {c.evidence}" for c in verdict.checks if not c.holds]


def _skipped(verdict: Verdict) -> list[str]:
    return [f"not checked: {k}: {why}" for k, why in verdict.meta["skipped"].items()]


def _said(verdict: Verdict) -> str:
    failed = [c.name for c in verdict.checks if not c.holds]
    if verdict.meta["interrupted"]:
        asked = len(verdict.checks) - 1
        return f"stopped by hand after {asked} checks, {len(failed) - 1} of which fail: no verdict, so it is held back"
    if failed:
        return f"held back: {len(failed)} of {len(verdict.checks)} checks fail: {', '.join(failed)}"
    return f"may leave: all {len(verdict.checks)} checks hold"
