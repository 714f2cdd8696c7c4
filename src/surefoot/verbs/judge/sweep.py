"""surefoot sweep: success against one unknown, for several policies on the same episodes."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import Any

from tyro.conf import Positional

from surefoot import files, shipped
from surefoot.errors import SurefootError
from surefoot.report import Axis, Plot, Report, Rule, Series, Table, Text, Watch
from surefoot.verbs.arguments import (
    belief_of,
    chosen,
    count,
    hashes,
    met_before,
    portrait,
    seconds,
    task_for,
)


@dataclass(frozen=True)
class Sweep:
    policies: Positional[tuple[Path, ...]]
    """runs' folders, policy.onnx files, or a task with a shipped policy; all of one task"""
    over: str
    """the unknown, as `surefoot look TASK` names it"""
    best: bool = False
    """use the best policy of the run (kept by --judge-every) instead of the last one"""
    points: int = 9
    """number of values"""
    low: float | None = None
    """first value; default: the physical minimum"""
    high: float | None = None
    """last value; default: the physical maximum"""
    episodes: int = 100
    """episodes at each value"""
    batches: int = 1
    """batches of so many episodes, with seeds `seed`, `seed` + 1, ...; all of them are counted"""
    belief: str = "nominal"
    """where the other unknowns come from: `nominal`, `task`, a preset (see `surefoot presets`), or a belief's JSON file"""
    range: tuple[str, ...] = ()
    """your own range for an unknown, instead of the belief's: mass=0.8..1.2x (multiples of nominal), latency=0..0.02 (in its unit)"""
    task: str = ""
    """the policy's task file, if it has changed or moved, or another task that the policy fits"""
    specialists: bool = False
    """also train one policy at each value, with the first run's settings, to measure the price of robustness"""
    seed: int = 1
    """seed of the episodes"""
    on: str = ""
    """workers for policies and specialists: local:2, or a Ray cluster's ray://HOST:10001, HOST:6379 or auto"""
    workers: int = 0
    """how many workers of a cluster; 0: one for each of its cores"""
    out: Path | None = None
    """the page; default: sweep-<unknown>.html beside the first policy"""

    def run(self, watch: Watch) -> Report:
        if self.best:
            return replace(self, best=False, policies=tuple(chosen(p) for p in self.policies)).run(watch)
        from surefoot.deploy import bundle
        from surefoot.gate.measures.sweep import Points, price, specialists, sweep, sweep_files, values_over
        from surefoot.learn.cluster.address import On
        from surefoot.learn.cluster.jobs import Jobs
        from surefoot.tasks.known import reference_of, task_flag

        if not self.policies:
            raise SurefootError("sweep: expected at least one policy")
        policies = {str(p): bundle.load(p) for p in self.policies}
        task = task_for(next(iter(policies.values())), self.task, self.policies[0])
        for label, policy in policies.items():
            task_for(policy, task, label)
        values = values_over(task, self.over, self.points, self.low, self.high)
        others, first = belief_of(task, self.belief, watch, ranges=self.range), bundle.find(self.policies[0]).parent
        products = shipped.products(self.policies[0])
        path = self.out or products / f"sweep-{self.over}.html"
        files.check_writable(path, "--out")
        points = Points(self.over, values, others, count(self.episodes), self.seed, count(self.batches, "--batches"))
        best, on = None, On.parse(self.on, self.workers)
        jobs = Jobs(on, None if on is None else path.with_suffix(".jobs"), watch)
        if self.specialists:
            if self.episodes < 2:
                raise SurefootError(
                    f"--specialists: expected at least 2 --episodes at each point, found {self.episodes}"
                )
            best = specialists(
                self.task or reference_of(next(iter(policies.values())).contract),
                points,
                first,
                products / "specialists",
                jobs,
            )
        if jobs.on is None:
            facts = sweep(policies, task, points, seconds(watch, task))
        else:
            paths = {str(p): bundle.find(p) for p in self.policies}
            facts = sweep_files(paths, self.task, points, jobs)
        facts = facts if best is None else price(facts, best, task, points)
        jobs.forget()
        blocks = (table(facts), *map(Text, _sentences(facts)), *met_before(self.seed, self.policies), plot(facts))
        about = hashes(**{f"policy {k + 1}": p for k, p in enumerate(self.policies)}) | {"seed": str(self.seed)}
        following = f"surefoot play {quote(str(self.policies[0]))}{task_flag(self.task, next(iter(policies.values())).contract)}"
        title = f"{task.name}: success over {self.over}"
        return Report(
            title, facts | {"page": str(path)}, blocks, following, page=path, picture=portrait(task), sources=about
        )


def table(facts: Mapping[str, Any]) -> Table:
    """A row for each value, a column for each policy."""
    return Table.of(*_columns(facts), "success (95 % interval)")


def _columns(facts: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Head and cells: success of each policy at each value; where there are specialists, their success and extra return."""
    policies, best = facts["policies"], facts.get("specialists")
    cell = lambda p: f"{100 * p['success']:.1f} % ({100 * p['low']:.0f} - {100 * p['high']:.0f})"  # noqa: E731
    head = [f"{facts['over']}{' [' + facts['unit'] + ']' if facts['unit'] else ''}", *policies]
    rows = [[f"{points[0]['value']:.4g}", *map(cell, points)] for points in zip(*policies.values())]
    if best is not None:
        head += ["specialists", *(f"price: {label}" for label in policies)]
        for row, b, points in zip(rows, best, zip(*policies.values())):
            row += [cell(b), *(f"{b['return'] - p['return']:.3g}" for p in points)]
    return head, rows


def _sentences(facts: Mapping[str, Any]) -> list[str]:
    """The price of robustness of each policy; nothing where no specialists were trained."""
    return [
        f"{label}: price of robustness {p['mean']:.3g} return ({_sure(p)}) against a specialist in each world"
        for label, p in facts.get("price", {}).items()
    ]


def _sure(p: Mapping[str, Any]) -> str:
    return p["how"] if p["low"] is None else f"95 %: {p['low']:.3g} .. {p['high']:.3g}"


def plot(facts: Mapping[str, Any]) -> Plot:
    series = []
    for label, points in facts["policies"].items():
        x = [p["value"] for p in points]
        y, low, high = ([100 * p[k] for p in points] for k in ("success", "low", "high"))
        series.append(Series.of(label, x, y, low, high, style="points"))
    if "specialists" in facts:
        best = facts["specialists"]
        values = [p["value"] for p in best]
        series.append(Series.of("specialists", values, [100 * p["success"] for p in best], style="dots", tone="quiet"))
    axis = Axis(facts["over"], facts["unit"], "log" if facts["log"] else "linear")
    percent = Axis("success", "%", low=0, high=100)
    caption = "Bands are exact 95 % intervals."
    return Plot("Success", tuple(series), axis, percent, (Rule(facts["nominal"], "x", "the model's value"),), caption)
