"""surefoot adapt: what an adaptive policy has inferred about its world."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np
from tyro.conf import Positional

from surefoot import files, shipped
from surefoot.report import Axis, Column, Plot, Report, Rule, Series, Table, Text, Watch
from surefoot.verbs.arguments import belief_of, chosen, hashes, portrait, seconds, task_for


@dataclass(frozen=True)
class Adapt:
    policy: Positional[Path]
    """a run's folder or a policy.onnx, with an encoder: of --adapt rma, or of --encoder conv or gru"""
    best: bool = False
    """use the best policy of the run (kept by --judge-every) instead of the last one"""
    show: str = ""
    """the unknown to follow; default: the one that the probe reads best"""
    before: float | None = None
    """its value before the change; default: the belief's 10 % quantile"""
    after: float | None = None
    """its value after the change; default: the belief's 90 % quantile"""
    at: float | None = None
    """time of the change, s; default: the middle of the episode"""
    episodes: int = 256
    """half to fit the linear probe, half to test it"""
    belief: str = "task"
    """p(e) of all unknowns: `task`, a preset (see `surefoot presets`), or a belief's JSON file"""
    range: tuple[str, ...] = ()
    """your own range for an unknown, instead of the belief's: mass=0.8..1.2x (multiples of nominal), latency=0..0.02 (in its unit)"""
    task: str = ""
    """the policy's task file, if it has changed or moved, or another task that the policy fits"""
    seed: int = 1
    """seed of the episodes"""
    out: Path | None = None
    """the page; default: adapt.html beside the policy"""

    def run(self, watch: Watch) -> Report:
        if self.best:
            return replace(self, best=False, policy=chosen(self.policy)).run(watch)
        from surefoot.deploy import bundle
        from surefoot.gate.measures.latent import Change, inferred
        from surefoot.tasks.known import task_flag

        policy = bundle.load(self.policy)
        task = task_for(policy, self.task, self.policy)
        path = self.out or shipped.products(self.policy) / "adapt.html"
        files.check_writable(path, "--out")
        change, belief = (
            Change(self.show, self.before, self.after, self.at),
            belief_of(task, self.belief, watch, ranges=self.range),
        )
        facts = inferred(policy, task, belief, change, self.episodes, self.seed, seconds(watch, task))
        following = (
            f"surefoot sweep {quote(str(self.policy))} --over {facts['unknown']}{task_flag(self.task, policy.contract)}"
        )
        blocks, about = (_table(facts), Text(_sentence(facts)), *_plots(facts)), hashes(policy=self.policy)
        title = f"{facts['task']}: what the policy has inferred"
        return Report(
            title, facts | {"page": str(path)}, blocks, following, page=path, picture=portrait(task), sources=about
        )


def _table(facts: Mapping[str, Any]) -> Table:
    """Unknowns, the best known first."""
    known = sorted(facts["r2"].items(), key=lambda pair: np.inf if pair[1]["soon"] is None else -pair[1]["soon"])
    rows = [[name, r2["soon"], r2["end"]] for name, r2 in known]
    columns = ["unknown", Column(f"R2 at {facts['soon']:g} s", form=".2f"), Column("R2 at the end", form=".2f")]
    return Table.of(columns, rows, "R2 of a linear probe of the latent (1: everything, 0 or less: nothing)")


def _sentence(facts: Mapping[str, Any]) -> str:
    """How the change was followed, in words."""
    what = f"{facts['unknown']} from {facts['before']:.3g} to {facts['after']:.3g} {facts['unit']}".strip()
    if facts["read"] is None:
        return f"{what} at {facts['at']:g} s: no episode lasted to the end, so there is nothing to read"
    if facts["settles"] is None:
        return f"{what} at {facts['at']:g} s: the latent does not follow it"
    return f"{what} at {facts['at']:g} s: the estimate settles in {facts['settles']:.2f} s (history {facts['history']:.2f} s)"


def _plots(facts: Mapping[str, Any]) -> tuple[Plot, Plot]:
    """How the change is followed, and how soon the unknown is known."""
    t = facts["dt"] * np.arange(len(facts["r2_over_time"]))
    name, at, read = facts["unknown"], facts["at"], facts["read"]
    true = Series.of(
        "true", [0, at, t[-1]], [facts["before"], facts["after"], facts["after"]], style="step", tone="quiet"
    )
    series = [true]
    if read:
        series.append(Series.of("read from the latent, median", t, read["median"], read["low"], read["high"]))
    time = Axis("time into the episode", "s")
    r2 = np.clip(np.array(facts["r2_over_time"], float), -0.2, 1)
    return (
        Plot(f"A change of {name}", tuple(series), time, Axis(name, facts["unit"]), (Rule(at, "x", "the change"),),
             "The state stays the same. The band holds 80 % of episodes."),
        Plot(f"How well {name} is known", (Series.of("", t, r2),), time, Axis("R2", low=-0.25, high=1.05),
             (Rule(facts["soon"], "x", f"{facts['soon']:g} s"),),
             f"Fraction of the variance of {name} that a linear probe of the latent explains."),
    )  # fmt: skip
