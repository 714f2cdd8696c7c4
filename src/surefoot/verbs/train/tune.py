"""surefoot tune: settings of training by search, each trial a run; Optuna's tree-structured Parzen estimator asks.

s_k ~ TPE(s, scores of all trials so far),   score = mean over seeds of the metric's last tenth
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from shlex import quote
from typing import Any

from tyro.conf import Positional

from surefoot import tasks
from surefoot.errors import LearningFailed, SurefootError, in_words, unknown
from surefoot.learn.cluster.address import On
from surefoot.learn.cluster.jobs import Job, Jobs
from surefoot.learn.settings import PPOSettings, tuned
from surefoot.report import Axis, Column, Plot, Progress, Report, Series, Table, Text, Watch
from surefoot.verbs.train.train import Train

TOGETHER = 4  # trials asked for before any score is known: the search does not depend on the number of workers
WORST = -1e9  # score of a run that could not go on


@dataclass(frozen=True)
class Range:
    """Values of one setting."""

    name: str
    low: float
    high: float
    log: bool
    whole: bool

    @staticmethod
    def parse(text: str) -> "Range":
        """lr=1e-4..1e-2:log, epochs=2..8"""
        name, _, values = text.partition("=")
        first, dots, last = values.removesuffix(":log").partition("..")
        kinds = {f.name: f.type for f in fields(PPOSettings) if f.type in (int, float)}
        if not dots:
            raise SurefootError(f"--over: expected NAME=LOW..HIGH, or NAME=LOW..HIGH:log, found {text}")
        if name not in kinds:
            raise unknown("setting", name, kinds, "--over")
        try:
            low, high = float(first), float(last)
        except ValueError:
            raise SurefootError(f"--over: {name}: expected two numbers, found {first} and {last}") from None
        log = values.endswith(":log")
        if not (math.isfinite(low) and low < high < math.inf) or (log and low <= 0):
            raise SurefootError(f"--over: {name}: expected LOW < HIGH{', both above 0' * log}, found {text}")
        if kinds[name] is int and math.ceil(low) > math.floor(high):
            raise SurefootError(f"--over: {name}: expected a range with a whole number in it, found {text}")
        return Range(name, low, high, log, kinds[name] is int)

    def suggested(self, trial: Any) -> float | int:
        if self.whole:
            return int(trial.suggest_int(self.name, math.ceil(self.low), math.floor(self.high), log=self.log))
        return float(trial.suggest_float(self.name, self.low, self.high, log=self.log))


@dataclass(frozen=True)
class Tune:
    task: Positional[str]
    """a task: its name (see `surefoot tasks`), file.py, or module:function"""
    over: tuple[str, ...]
    """settings and their ranges: lr=1e-4..1e-2:log entropy=0..0.01"""
    trials: int = 20
    """how many settings are tried"""
    seeds_each: int = 1
    """runs of each trial, with seeds 0, 1, ...; the score is their mean"""
    steps: int = 0
    """env steps of each run; 0: the task's own number"""
    envs: int = 0
    """simulations side by side; 0: the task's own number"""
    metric: str = "return"
    """metric to maximise, by its name in metrics.jsonl"""
    belief: str = "task"
    """p(e) to train over, as `surefoot train` has it"""
    on: str = ""
    """workers for the runs: local:2, or a Ray cluster's ray://HOST:10001, HOST:6379 or auto"""
    workers: int = 0
    """how many workers of a cluster; 0: one for each of its cores"""
    seed: int = 0
    """seed of the search"""
    out: Path | None = None
    """folder of the runs; default: runs/<task>/tune. A search that is there already is continued"""

    def run(self, watch: Watch) -> Report:
        ranges = [Range.parse(text) for text in self.over]
        if not ranges or min(self.trials, self.seeds_each) < 1:
            raise SurefootError("tune: expected --over NAME=LOW..HIGH, and at least one trial and one seed")
        if twice := [r.name for k, r in enumerate(ranges) if r.name in [x.name for x in ranges[:k]]]:
            raise SurefootError(f"--over: {twice[0]}: expected one range of each setting, found two")
        out = (self.out or Path("runs") / tasks.resolve(self.task).name / "tune").absolute()
        jobs, rows = Jobs(On.parse(self.on, self.workers), out / "answers", watch), list[dict[str, Any]]()
        study = self._study()
        while len(rows) < self.trials:
            asked = [study.ask() for _ in range(min(TOGETHER, self.trials - len(rows)))]
            given = [{r.name: r.suggested(trial) for r in ranges} for trial in asked]
            for trial, settings, score in zip(asked, given, self._scores(given, len(rows), out, jobs)):
                study.tell(trial, score)
                rows.append({"trial": len(rows), "score": score, "settings": settings})
            best = max(r["score"] for r in rows)
            watch(
                Progress(f"{len(rows)} of {self.trials} trials, best {best:.4g}", len(rows) / self.trials, stays=True)
            )
        return self._report(rows, ranges, out)

    def _study(self) -> Any:
        with in_words("tune"):
            import optuna
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        return optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=self.seed))

    def _scores(self, given: Sequence[dict[str, Any]], first: int, out: Path, jobs: Jobs) -> list[float]:
        """The mean over seeds of each; a run that breaks down has the worst score of all."""
        own = tuned(PPOSettings, tasks.resolve(self.task))
        fixed = {k: v for k, v in (("steps", self.steps), ("envs", self.envs)) if v}
        asked = []
        for k, settings in enumerate(given):
            for seed in range(self.seeds_each):
                folder = out / f"trial{first + k}" / f"seed{seed}"
                verb = Train(self.task, seed=seed, belief=self.belief, out=folder, settings=replace(own, **fixed | settings), together=True, threads=jobs.threads)  # fmt: skip
                asked.append(Job(f"trial {first + k} seed {seed}", (verb, self.metric)))
        found = jobs.each(scored, asked)
        parts = [found[k : k + self.seeds_each] for k in range(0, len(found), self.seeds_each)]
        return [sum(p) / len(p) for p in parts]

    def _report(self, rows: list[dict[str, Any]], ranges: Sequence[Range], out: Path) -> Report:
        best = max(rows, key=lambda r: r["score"])
        flags = " ".join(f"--{k.replace('_', '-')} {v:.6g}" for k, v in best["settings"].items())
        order = sorted(rows, key=lambda r: -r["score"])
        head = ["trial", Column(self.metric, form=".4g"), *(Column(r.name, form=".4g") for r in ranges)]
        cells = [[str(r["trial"]), r["score"], *r["settings"].values()] for r in order]
        plots = [
            Plot(r.name, (Series.of("trials", [x["settings"][r.name] for x in rows], [x["score"] for x in rows], style="dots"),),
                 Axis(r.name, scale="log" if r.log else "linear"), Axis(self.metric))
            for r in ranges
        ]  # fmt: skip
        words = "The best trial was chosen by its score, so this score is optimistic: train it with other seeds."
        facts = {"out": str(out), "metric": self.metric, "best": best, "trials": rows}
        following = f"surefoot train {quote(self.task)} {flags} --seeds 1..3"
        blocks = (Table.of(head, cells, "best first", [0]), Text(words, "quiet"), *plots)
        return Report(f"settings of {self.task}", facts, blocks, following, page=out / "tune.html")


def scored(given: tuple[Train, str], watch: Watch) -> float:
    """The job of one run: its score."""
    from surefoot.learn.records.runs import read

    verb, metric = given
    assert verb.out is not None
    try:
        verb.run(watch)
    except LearningFailed:
        return WORST
    score = read(verb.out).score(metric)
    if score is None:
        raise SurefootError(f"--metric: {metric}: the run logged no such number; see {verb.out / 'metrics.jsonl'}")
    return score
