"""surefoot cross: the whole story against a hidden reality, with a page of evidence."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

import numpy as np
from tyro.conf import Positional

from surefoot import files, tasks
from surefoot.belief import Belief, Box
from surefoot.errors import SurefootError
from surefoot.policy import Policy
from surefoot.report import Axis, Badge, Block, Column, Picture, Plot, Report, Rule, Series, Table, Text, Tone, Watch
from surefoot.task import Task
from surefoot.verbs.arguments import belief_of, count, goal, hashes, portrait

if TYPE_CHECKING:
    from surefoot.cross import Crossed
    from surefoot.tasks.rollout import Evaluation

FAILED = 1
NAMES = {"nominal": "trained in the nominal world", "belief": "trained over the belief"}
WORLDS = {"nominal": "nominal world", "reality": "hidden reality", "belief": "over the belief"}
TONES: dict[str, Tone] = {"nominal": "bad", "belief": "good"}


@dataclass(frozen=True)
class Cross:
    task: Positional[str]
    """a task: its name (see `surefoot tasks`), file.py, or module:function"""
    seed: int = 0
    """seed of training"""
    reality: int = 0
    """seed of the hidden reality"""
    episodes: int = 200
    """episodes in each world"""
    out: Path | None = None
    """folder of the runs and the page; default: runs/cross-<task>/<time>"""
    belief: str = "task"
    """p(e) to train over, and whose outer part the reality is drawn from: `task`, a preset, or a belief's JSON file"""
    range: tuple[str, ...] = ()
    """a range by hand, in place of the belief's own: mass=0.8..1.2x (multiples of nominal), latency=0..0.02 (in its unit)"""
    steps: int | None = None
    """env steps of each training; default: the task's own number"""

    def run(self, watch: Watch) -> Report:
        from surefoot.cross import cross
        from surefoot.tasks.known import task_flag

        task = tasks.resolve(self.task)
        out = self.out or Path("runs") / f"cross-{task.name}" / time.strftime("%Y-%m-%d_%H-%M-%S")
        page = out / "report.html"
        files.check_writable(page, "--out")
        belief = belief_of(task, self.belief, watch, ranges=self.range)
        done = cross(self.task, out, self.seed, self.reality, count(self.episodes), self.steps, belief, watch)
        facts = done.facts
        blocks: tuple[Block, ...] = (
            Text(f"Task {task.name}: {task.about}. Success: {goal(task)}."),
            _table(done), _rates(done), *(_film(done.policies[k], task, done.worlds["reality"], name) for k, name in NAMES.items()),
            _errors(done, task), _numbers(task, done.worlds),
        )  # fmt: skip
        about = hashes(**{f"{k} policy": out / k for k in NAMES})
        about |= {
            "seed": str(self.seed),
            "reality": f"drawn from the outer part of the belief's ranges by seed {self.reality}",
        }
        return Report(
            f"surefoot cross {task.name}", facts, blocks, f"surefoot play {quote(str(out / 'belief'))}{task_flag(self.task, done.policies['belief'].contract)}",
            Badge(facts["verdict"], facts["crossed"] or (None if not facts["gap"] else False)),
            FAILED if facts["gap"] and not facts["crossed"] else 0, page, portrait(task), about,
        )  # fmt: skip


def _percent(r: "Evaluation") -> str:
    low, high = r.interval
    return f"{100 * r.rate:.1f} % ({100 * low:.0f} - {100 * high:.0f})"


def _table(done: "Crossed") -> Table:
    rows = [[NAMES[kind], *(_percent(row[w]) for w in WORLDS)] for kind, row in done.results.items()]
    return Table.of(["policy", *WORLDS.values()], rows, "success (95 % interval)")


def _rates(done: "Crossed") -> Plot:
    """Both policies in each world, a row apart."""
    series = []
    for k, (kind, name) in enumerate(NAMES.items()):
        found = [done.results[kind][w] for w in WORLDS]
        x, at = [100 * r.rate for r in found], np.arange(len(found)) + 0.3 * (k - 0.5)
        low, high = ([100 * r.interval[i] for r in found] for i in (0, 1))
        series.append(Series.of(name, x, at, low, high, style="dots", tone=TONES[kind]))
    percent, rows = Axis("success", "%", low=0, high=100), Axis(names=tuple(WORLDS.values()))
    caption = "Exact 95 % intervals; both policies meet the same episodes."
    return Plot("Success", tuple(series), percent, rows, caption=caption)


def _errors(done: "Crossed", task: Task) -> Plot:
    from surefoot.cross import errors

    series = []
    for kind, name in NAMES.items():
        t, found = errors(done.policies[kind], task, done.worlds["reality"])
        lasting = np.isfinite(found).sum(1) >= 10
        t, found = t[lasting], found[lasting]
        middle = np.nanmedian(found, 1)
        series.append(Series.of(name, t, middle, middle, np.nanquantile(found, 0.9, axis=1), tone=TONES[kind]))
    caption = "Median of 100 episodes; the band reaches to the worst tenth."
    rules = (Rule(task.tolerance, "y", "tolerance"),)
    error = Axis("error", task.error_unit)
    return Plot("Error over time in the hidden reality", tuple(series), Axis("time", "s"), error, rules, caption)


def _numbers(task: Task, worlds: Mapping[str, Belief]) -> Table:
    belief, e = worlds["belief"], worlds["reality"].estimate()
    assert isinstance(belief, Box)  # cross() has refused any other
    low, high = belief.low, belief.high
    rows = [
        [p.name, p.about, p.nominal, f"{low[i]:.3g} .. {high[i]:.3g}", float(e[i]), p.unit or "-"]
        for i, p in enumerate(task.params)
    ]
    number = lambda name: Column(name, form=".3g")  # noqa: E731
    title = "What reality was: neither policy observed these numbers"
    return Table.of(["unknown", "what", number("model"), "belief", number("reality"), "unit"], rows, title)


def _film(policy: Policy, task: Task, real: Belief, name: str) -> Block:
    """A few seconds of it; where nothing can render, the page says so and does without."""
    from surefoot.cross import JUDGED

    caption = f"The policy {name}, in the hidden reality"
    try:
        from surefoot.tasks.view.picture import film

        data = film(policy, tasks.env(task, 1, real, JUDGED), seconds=3.0, fps=12, size=(320, 240))
        return Picture(data, "gif", caption)
    except (SurefootError, ImportError) as error:
        return Text(f"{caption}: no film, because {error}", "quiet")
