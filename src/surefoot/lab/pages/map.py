"""The map of Sim2Real 1.0 to 4.0: every method here by the model it stands on and by when it learns or reasons.

A method that makes a policy has its figure measured here: success on hidden robots, each with an e of its own from the outer
fifths of the task's ranges (sim/realities.py). Each has the figure that its benchmark recorded, too (lab/methods.py).
"""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

import numpy as np

from surefoot.gate.training_record import run_of
from surefoot.lab.controls import Choice, Control, Toggle
from surefoot.lab.counting import BATCH, Counting, Tally, percent
from surefoot.lab.methods import LEARNING, METHODS, MODELS, Method
from surefoot.lab.page import SLICE, Page, Scene
from surefoot.lab.subject import Subject, load
from surefoot.report import Axis, Block, Plot, Rule, Series, Table, Text
from surefoot.sim.realities import reality

HIDDEN = 12  # robots
ROUNDS = 4 * BATCH  # episodes on each of them, at most


@dataclass(frozen=True)
class Asked:
    method: str = "domain randomization"
    measure: bool = True


def kind_of(path: Path) -> str:
    """How a policy was trained: adaptive, randomized or nominal; "" where nothing says."""
    if load(path).adapts:
        return "adaptive"
    belief = run_of(path).get("belief")
    if not isinstance(belief, dict) or "low" not in belief or "high" not in belief:
        return ""
    return "randomized" if belief["low"] != belief["high"] else "nominal"


class Map(Page):
    key, title, wide = "map", "The map", True
    about = (
        "Every method here on two axes: the model it stands on, and when it learns. 1.0 reasons online, 2.0 trains in a full "
        "simulator, 3.0 in one that real data has corrected, 4.0 learns online, too. Choose one for its figure."
    )

    def __init__(self, subject: Subject):
        super().__init__(subject)
        self.asked = Asked()
        e = np.stack([reality(subject.belief, k) for k in range(HIDDEN)])
        self.counting = Counting(subject, lambda seed: np.repeat(e, BATCH, 0), HIDDEN, ROUNDS)
        self.fresh = True

    def controls(self) -> Mapping[str, Control]:
        names = tuple(m.name for m in METHODS)
        return {
            "method": Choice("method", names, self.asked.method),
            "measure": Toggle("measure", self.asked.measure, f"policies of {self.subject.task.name} on {HIDDEN} hidden robots"),
        }  # fmt: skip

    def moved(self, name: str) -> None:
        self.fresh = True

    def work(self) -> bool:
        until = time.monotonic() + SLICE
        self.counting.look()
        while self.asked.measure and time.monotonic() < until and self.counting.step() is not None:
            self.fresh = True
        fresh, self.fresh = self.fresh, False
        return fresh

    @property
    def chosen(self) -> Method:
        return next(m for m in METHODS if m.name == self.asked.method)

    def figures(self, method: Method) -> dict[str, Tally]:
        """Policies of a method that are at hand, and what was counted of them."""
        paths = self.subject.policies()
        return {k: t for k, t in self.counting.tallies.items() if method.kind and kind_of(paths[k]) == method.kind}

    def finish(self) -> None:
        while self.counting.step() is not None:
            pass

    def blocks(self) -> Sequence[Block]:
        m = self.chosen
        out: list[Block] = [
            Text(f"{m.name} (Sim2Real {m.era}): {m.about}"),
            Text(
                f"recorded: {m.figure}" if m.figure else "no figure of it is recorded: its command gives one", "quiet"
            ),
        ]
        if found := self.figures(m):
            rows = [[label, percent(t.rate()), t.episodes * HIDDEN] for label, t in found.items()]
            out.append(
                Table.of(["policy", f"success on {HIDDEN} hidden robots (95 %)", "episodes"], rows, "Measured now")
            )
        elif m.kind:
            out.append(
                Text("no policy of this kind is at hand: train one, and it is measured on the hidden robots", "quiet")
            )
        if self.counting.share is not None:
            out.append(Text(f"counting {self.counting.label}: {100 * self.counting.share:.0f} % of a batch", "quiet"))
        return [*out, self._plot(), self._table()]

    def _plot(self) -> Plot:
        """A cell for each model and time of learning, in which methods stand below each other."""
        cells = Counter((m.model, m.learning) for m in METHODS)
        pitch, seen, at = 0.9 / max(cells.values()), Counter[tuple[int, int]](), dict[Method, tuple[float, float]]()
        for m in METHODS:
            cell = (m.model, m.learning)
            at[m] = (m.model - 0.46, m.learning + pitch * (0.5 * (cells[cell] - 1) - seen[cell]))
            seen[cell] += 1
        series = []
        for era in sorted({m.era for m in METHODS}):
            some = [m for m in METHODS if m.era == era]
            x, y = zip(*(at[m] for m in some))
            series.append(Series.of(f"Sim2Real {era}", x, y, style="dots", labels=tuple(m.name for m in some)))
        place = [[v] for v in at[self.chosen]]
        series.append(Series.of(f"chosen: {self.chosen.name}", *place, style="points", tone="good"))
        rules = tuple(Rule(k + 0.5, axis) for k in range(2) for axis in ("x", "y"))  # type: ignore[arg-type]
        return Plot("The map", tuple(series), _axis("the model", MODELS), _axis("learning", LEARNING), rules)

    def _table(self) -> Table:
        rows = []
        for m in METHODS:
            best = max(self.figures(m).values(), key=lambda t: t.rate()[0], default=None)
            now = (
                ""
                if best is None
                else f"; now {percent(best.rate())} on {HIDDEN} hidden robots of {self.subject.task.name}"
            )
            rows.append([m.name, m.era, (m.figure or "not recorded") + now])
        strong = [i for i, m in enumerate(METHODS) if m.name == self.asked.method]
        return Table.of(["method", "era", "figure, as its benchmark recorded it"], rows, "All methods", strong)

    def scene(self) -> Scene | None:
        """The hidden robots, as they are counted."""
        return self.counting.scene([f"robot {k}" for k in range(HIDDEN)])

    def command(self) -> str:
        """Of the method, with what is at hand; LOG and MOTION are the user's."""
        run = next((str(p) for p in self.subject.policies().values()), "RUN")
        found = {"TASK": quote(self.subject.reference), "RUN": quote(run), "UNKNOWN": self.subject.unknowns[0]}
        words = self.chosen.command.split(" ")
        return " ".join(found.get(word, word) for word in words)


def _axis(label: str, names: Sequence[str]) -> Axis:
    return Axis(label, low=-0.55, high=2.55, marks=tuple((float(k), name) for k, name in enumerate(names)))
