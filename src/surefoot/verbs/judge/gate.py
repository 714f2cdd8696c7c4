"""surefoot gate: may this policy leave the simulator?"""

from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

from tyro.conf import Positional, arg

from surefoot import files, shipped
from surefoot.errors import SurefootError
from surefoot.gate.report import badge, blocks
from surefoot.report import Report, Watch
from surefoot.verbs.arguments import belief_of, chosen, hashes, numbers, portrait

FAILED, INTERRUPTED = 1, 130


@dataclass(frozen=True)
class Gate:
    policy: Positional[Path]
    """a run's folder, its policy.onnx, a task with a shipped policy, or another ONNX file with --model and --contract"""
    best: bool = False
    """use the best policy of the run (kept by --judge-every) instead of the last one"""
    engines: Annotated[tuple[str, ...], arg(name="in")] = ()
    """engines to test in: mujoco, bullet ..."""
    reality: tuple[str, ...] = ()
    """seeds of hidden realities; all: seeds 0 to 9"""
    episodes: int | None = None
    """largest number of episodes in each world; a clear result needs fewer. Default: 200, or what --claim needs"""
    claim: float | None = None
    """a success rate to claim over the belief, such as 0.99; refused if --episodes cannot support it"""
    belief: str = "task"
    """p(e): `task`, `nominal`, a preset (see `surefoot presets`), or a belief's JSON file"""
    range: tuple[str, ...] = ()
    """your own range for an unknown, instead of the belief's: mass=0.8..1.2x (multiples of nominal), latency=0..0.02 (in its unit)"""
    limits: Path | None = None
    """JSON file of limits, instead of the defaults (docs/gate.md)"""
    limit: tuple[str, ...] = ()
    """limits by name, such as latency=2,push=0.5"""
    thorough: bool = False
    """five times the episodes, plus a finer engine and all realities"""
    model: Path | None = None
    """the robot model (.xml) of a policy from elsewhere"""
    contract: Path | None = None
    """its contract: JSON, or a deploy.yaml; ONNX files from mjlab and holosoma contain it"""
    command: tuple[float, float, float] | None = None
    """vx, vy, yaw rate to follow, m/s and rad/s, instead of the contract's"""
    task: str = ""
    """the policy's task file, if it has changed or moved, or another task that the policy fits"""
    safety: Path | None = None
    """safety layers around the policy (docs/safety.md): a safety.json, or the folder that `surefoot guard` wrote"""
    out: Path | None = None
    """folder for gate.html and gate.json; default: beside the policy"""
    junit: Path | None = None
    """also write the checks as JUnit XML"""
    seed: int = 1000
    """the seeds of the episodes are derived from it; training never uses them"""
    threads: int = 0
    """threads of the physics; 0: every core"""
    on: str = ""
    """workers for what follows the nominal world: local:2, or a Ray cluster's ray://HOST:10001, HOST:6379 or auto"""
    workers: int = 0
    """how many workers of a cluster; 0: one for each of its cores"""

    def run(self, watch: Watch) -> Report:
        if self.best:
            return replace(self, best=False, policy=chosen(self.policy)).run(watch)
        from surefoot.gate import junit
        from surefoot.gate.candidate import candidate
        from surefoot.gate.gate import gate
        from surefoot.learn.cluster.address import On
        from surefoot.learn.cluster.jobs import Jobs

        plan, limits, out = self._plan(), self._limits(), self.out or shipped.products(self.policy)
        on = On.parse(self.on, self.workers)
        jobs = Jobs(on, None if on is None else out / "gate.jobs", watch)
        page = out / "gate.html"
        files.check_writable(page, "--out")
        if self.junit is not None:
            files.check_writable(self.junit, "--junit")
        who = candidate(self.policy, self.task, self.model, self.contract, self.command, safety=self.safety)
        flags = (
            f" --{k} {quote(str(v))}"
            for k, v in (("model", self.model), ("contract", self.contract), ("safety", self.safety))
            if v
        )
        again = f"surefoot gate {quote(str(self.policy))}{''.join(flags)}{who.task_flag}"
        belief = belief_of(who.task, self.belief, watch, ranges=self.range)
        with files.held(out / "gate.lock", "writing a gate's files here"):
            files.clear_parts(out, "gate.*")
            keep = lambda verdict: files.write_json(out / "gate.json", verdict.to_json())  # noqa: E731
            verdict = gate(who, belief, plan, limits, watch, again, keep, jobs)
            keep(verdict)
            if not verdict.meta["interrupted"]:
                jobs.forget()
            if self.junit is not None:
                junit.write(self.junit, verdict)
        code = INTERRUPTED if verdict.meta["interrupted"] else 0 if verdict.holds else FAILED
        about = hashes(policy=self.policy, model=self.model, contract=self.contract, safety=self._layers)
        about |= {"task": who.task.name, "seed": str(plan.seed)}
        facts = verdict.to_json() | {"page": str(page)}
        shown = blocks(verdict), verdict.next_step, badge(verdict), code, page
        return Report(verdict.title, facts, *shown, picture=portrait(who.task), sources=about)

    @property
    def _layers(self) -> Path | None:
        """The file that --safety means."""
        from surefoot.control import layers

        return None if self.safety is None else layers.located(self.safety)

    def _plan(self) -> Any:
        from surefoot.gate.plan import ALL, Plan
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
            limits = limits.with_(data, str(self.limits))
        return limits.with_(numbers(self.limit, "--limit", "latency=2"), "--limit")
