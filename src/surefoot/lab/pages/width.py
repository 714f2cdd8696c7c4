"""Randomization width: success against one unknown, of policies trained over narrow and wide ranges.

    s(v) = P(success | e_k = v, the others nominal)        k of n episodes at each v, exact 95 % intervals

All policies have the same episodes, those of `surefoot sweep`: batch b has seed + b. The longer one looks, the more batches
there are and the narrower the bands. The hidden truth is drawn from the outer fifths of the task's range.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from shlex import quote

import numpy as np

from surefoot import tasks
from surefoot.gate.measures.sweep import Points, values_over
from surefoot.lab.controls import Button, Choice, Control, Range, Slider, Toggle
from surefoot.lab.counting import BATCH, MOST, Counting, Tally, percent
from surefoot.lab.jobs import Curves, Job, training
from surefoot.lab.page import SLICE, Page, Scene
from surefoot.lab.subject import Subject
from surefoot.report import Axis, Block, Note, Plot, Rule, Series, Table, Text
from surefoot.sim.realities import reality

POINTS = 11  # values


@dataclass(frozen=True)
class Asked:
    over: str
    range: tuple[float, float]
    truth: float = 3.0
    reveal: bool = False


class Width(Page):
    key, title = "width", "Randomization width"
    about = "Train over a range of worlds that is too narrow, and reality lies outside; too wide, and the policy gets timid."

    def __init__(self, subject: Subject):
        super().__init__(subject)
        first = subject.unknowns[0]
        self.asked = Asked(first, self._usual(first))
        self.job: Job | None = None
        self.curves: Curves | None = None
        self._begin()

    def _usual(self, name: str) -> tuple[float, float]:
        i = self.subject.task.params.index(name)
        return float(self.subject.belief.low[i]), float(self.subject.belief.high[i])

    def controls(self) -> Mapping[str, Control]:
        a, p = self.asked, self.subject.task.params[self.asked.over]
        busy = self.job is not None and self.job.running
        train = {
            "narrow": Button("train narrow", "in the nominal world alone"),
            "wide": Button("train wide", "over the task's own ranges"),
            "own": Button("train over this range", "of this unknown; the others stay nominal"),
        }
        stop = {"stop": Button("stop training", "saves the policy as it is")}
        return {
            "over": Choice("unknown", self.subject.unknowns, a.over, p.about),
            "range": Range(f"range {p.unit}".strip(), p.low, p.high, a.range, "drag both ends"),
            "truth": Slider("hidden robot", 0, 99, a.truth, 1, "another one has another value"),
            "reveal": Toggle("reveal the truth", a.reveal),
            **(stop if busy else train),
        }  # fmt: skip

    def moved(self, name: str) -> None:
        if name == "over":
            self.asked = replace(self.asked, range=self._usual(self.asked.over))
        if name in ("over", "truth"):
            self._begin()
        if name in ("narrow", "wide", "own"):
            self._train(name)
        if name == "stop" and self.job is not None:
            self.job.stop()
        self.fresh = True

    def _train(self, which: str) -> None:
        """Start a training, one at a time."""
        if self.job is not None and self.job.running:
            return
        (low, high), over = self.asked.range, self.asked.over
        label = which if which != "own" else f"{over}-{low:.3g}-{high:.3g}"
        own = ("--belief", "nominal", "--range", f"{over}={low:.6g}..{high:.6g}")
        flags = {"narrow": ("--belief", "nominal"), "wide": (), "own": own}[which]
        self.job = training(self.subject.reference, self.subject.folder(label), *flags)
        self.curves = None

    @property
    def truth(self) -> float:
        return float(
            reality(self.subject.belief, int(self.asked.truth))[self.subject.task.params.index(self.asked.over)]
        )

    def _begin(self) -> None:
        """Forget what was counted: the unknown or the truth is another one."""
        p = self.subject.task.params[self.asked.over]
        self.values = np.append(values_over(self.subject.task, self.asked.over, POINTS, p.low, p.high), self.truth)
        self.counting = Counting(self.subject, self._worlds, len(self.values))
        self.fresh = True

    def _worlds(self, seed: int) -> np.ndarray:
        return Points(self.asked.over, self.values, tasks.nominal(self.subject.task), BATCH, seed).worlds()

    @property
    def tallies(self) -> dict[str, Tally]:
        return self.counting.tallies

    def work(self) -> bool:
        until = time.monotonic() + SLICE
        self._look()
        while time.monotonic() < until and self.counting.step() is not None:
            self.fresh = True
        fresh, self.fresh = self.fresh, False
        return fresh

    def _look(self) -> None:
        """What a training has written."""
        if self.job is not None:
            if self.curves is None and self.job.out is not None and (self.job.out / "run.json").exists():
                self.curves = Curves(self.job.out)
            if self.curves is not None and self.curves.fresh():
                self.fresh = True
        self.counting.look()

    def finish(self) -> None:
        while self.counting.step() is not None:
            pass

    def blocks(self) -> Sequence[Block]:
        out: list[Block] = []
        if not self.subject.policies():
            out.append(Note("no policy of this task is here yet: train one"))
        if self.job is not None:
            share = None if self.curves is None else self.curves.share
            done = "" if share is None or not self.job.running else f"{100 * share:.0f} % · "
            out.append(Text(done + self.job.words(), "bad" if self.job.failed not in ("", "stopped") else "quiet"))
        if self.counting.share is not None:
            out.append(Text(f"counting {self.counting.label}: {100 * self.counting.share:.0f} % of a batch", "quiet"))
        return [*out, self._plot(), self._table()]

    def _plot(self) -> Plot:
        p, series = self.subject.task.params[self.asked.over], []
        for label, tally in self.tallies.items():
            rates = 100 * np.array([tally.rate(np.array([i])) for i in range(POINTS)])
            series.append(Series.of(label, self.values[:-1], *rates.T, style="points"))
        low, high = self.asked.range
        rules = [Rule(low, "x", "range, from"), Rule(high, "x", "range, to")]
        if self.asked.reveal:
            series.append(Series.of("the hidden truth", [self.truth] * 2, [0, 100], tone="bad"))
        axis = Axis(
            p.name, p.unit, "log" if p.log else "linear", low=float(self.values[0]), high=float(self.values[-2])
        )
        caption = (
            f"Bands are exact 95 % intervals of {max((t.episodes for t in self.tallies.values()), default=0)} episodes."
        )
        return Plot("Success", tuple(series), axis, Axis("success", "%", low=0, high=100), tuple(rules), caption)

    def _table(self) -> Table:
        """Each policy over the range, and at the hidden truth."""
        low, high = self.asked.range
        inside = np.append((self.values[:-1] >= low) & (self.values[:-1] <= high), False)
        rows = [
            [label, percent(t.rate(inside)) if inside.any() else "-", percent(t.rate(slice(-1, None))), t.episodes]
            for label, t in self.tallies.items()
        ]
        at = f"at the truth, {self.truth:.4g}" if self.asked.reveal else "at the hidden truth"
        return Table.of(["policy", f"over {low:.4g} .. {high:.4g}", at, "episodes a point"], rows)

    def scene(self) -> Scene | None:
        """A robot for each value, as it is counted; the last one is the hidden one."""
        p = self.subject.task.params[self.asked.over]
        hidden = f"hidden: {self.truth:.3g}" if self.asked.reveal else "hidden"
        return self.counting.scene([*(f"{v:.3g} {p.unit}".strip() for v in self.values[:-1]), hidden])

    def command(self) -> str:
        paths = " ".join(quote(str(p)) for p in self.subject.policies().values()) or "RUN"
        p = self.subject.task.params[self.asked.over]
        seed = "" if self.subject.seed == 1 else f" --seed {self.subject.seed}"
        more = (
            f" --points {POINTS} --low {p.low:g} --high {p.high:g} --episodes {BATCH} --batches {MOST // BATCH}{seed}"
        )
        return f"surefoot sweep {paths}{self.subject.flag} --over {self.asked.over}{more}"

    def close(self) -> None:
        if self.job is not None:
            self.job.close()
