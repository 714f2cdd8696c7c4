"""surefoot gate: may this policy leave the simulator?"""

from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import numpy as np
from tyro.conf import Positional, arg

from surefoot import files
from surefoot.errors import SurefootError
from surefoot.report import (
    Axis,
    Badge,
    Block,
    Checks,
    Column,
    Details,
    Note,
    Plot,
    Report,
    Rule,
    Series,
    Table,
    Text,
    Watch,
)
from surefoot.verbs.arguments import belief_of, chosen, hashes, numbers, portrait, products_of
from surefoot.verdict import Verdict

FAILED, INTERRUPTED = 1, 130
ROWS = ("success", "low", "high", "limit")


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

        plan, limits, out = self._plan(), self._limits(), self.out or products_of(self.policy)
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
        notes = (Note(words, True) for words in who.notes)
        shown = (*notes, *blocks(verdict)), verdict.next_step, badge(verdict), code, page
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


def badge(verdict: Verdict) -> Badge:
    failed, n = [c.name for c in verdict.checks if not c.holds], len(verdict.checks)
    if verdict.meta["interrupted"]:
        return Badge(f"FAIL: interrupted after {n - 1} checks, {len(failed) - 1} of them fail", False)
    if failed:
        return Badge(f"FAIL: {len(failed)} of {n} checks: {', '.join(failed)}", False)
    return Badge(f"PASS: {n} of {n} checks", True)


def blocks(verdict: Verdict) -> tuple[Block, ...]:
    """The checks, the explanation of a failure, and the evidence as plots."""
    meta, evidence = verdict.meta, verdict.meta["evidence"]
    shown: list[Block] = [Checks(verdict.checks)]
    shown += [Text(words, "bad") for words in meta["why"]]
    shown += [Text(f"not checked: {k}: {why}", "quiet") for k, why in meta["skipped"].items()]
    shown.append(Text(meta["seeds"]["sentence"], "quiet"))
    rates = {k: v for k, v in evidence.items() if isinstance(v, dict) and "success" in v}
    shown += [_rates(rates)] if rates else []
    if "latency" in evidence:
        shown.append(_margin("Added latency", evidence["latency"], 1000.0, "ms", meta["limits"]["success"]))
    if "push" in evidence:
        shown.append(_margin("Push", evidence["push"], 1.0, "N s", meta["limits"]["success"]))
    if "worst decile" in evidence:
        shown.append(_worlds(np.array(evidence["worst decile"]["margins"])))
    return (*shown, *_failures(evidence.get("rare failures", {}).get("failures")))


def _rates(rates: dict[str, dict[str, Any]]) -> Plot:
    """Success in each world, with its limit."""
    rows = [dict(r, at=i) | {k: 100 * r[k] for k in ROWS} for i, r in enumerate(rates.values())]
    series = []
    for name, good, tone in (("passes", True, "good"), ("fails", False, "bad")):
        x, at, low, high = ([r[k] for r in rows if r["holds"] is good] for k in ("success", "at", "low", "high"))
        series += [Series.of(name, x, at, low, high, style="dots", tone=tone)] if x else []
    series.append(Series.of("limit", [r["limit"] for r in rows], range(len(rows)), style="ticks", tone="quiet"))
    percent, worlds = Axis("success", "%", low=0, high=100), Axis(names=tuple(rates))
    caption = "95 % intervals. A world that was clear early has fewer episodes and a wider interval."
    return Plot("Success", tuple(series), percent, worlds, caption=caption)


def _margin(title: str, rungs: list[dict[str, float]], factor: float, unit: str, limit: float) -> Plot:
    """Success and survival against load."""
    x = [factor * r["load"] for r in rungs]
    y, low, high, lasted = ([100 * r[k] for r in rungs] for k in ("success", "low", "high", "lasted"))
    series = (
        Series.of("success", x, y, low, high, style="points", tone="good"),
        Series.of("lasts to the end", x, lasted, style="dashed", tone="quiet"),
    )
    rules = (Rule(100 * limit, "y", "limit"),)
    percent = Axis("episodes", "%", low=0, high=100)
    return Plot(title, series, Axis(title.lower(), unit), percent, rules, "The band is the 95 % interval.")


def _worlds(margins: np.ndarray) -> Plot:
    """Margins of episodes over the belief, in order."""
    x, bad = 100 * (np.arange(len(margins)) + 0.5) / len(margins), margins < 0
    series = (
        Series.of("success", x[~bad], margins[~bad], style="dots", tone="good"),
        Series.of("failure", x[bad], margins[bad], style="dots", tone="bad"),
    )
    caption = "Episodes over the belief, by margin (1 - error / tolerance): failures are below 0, falls below -1."
    rules = (Rule(0, "y"), Rule(10, "x", "worst decile"))
    return Plot("Worlds", series, Axis("episodes", "%", low=0, high=100), Axis("margin"), rules, caption)


def _failures(failures: list[dict[str, float]] | None) -> tuple[Block, ...]:
    if not failures:
        return ()
    columns = [Column(name, form=".3g") for name in failures[0]]
    rows = [list(world.values()) for world in failures]
    return (Details("Worlds in which it fails, worst first", (Table.of(columns, rows),)),)
