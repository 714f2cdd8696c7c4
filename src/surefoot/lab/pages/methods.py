"""The map of Sim2Real 1.0 to 4.0: every method here by the model it stands on and by when it learns or reasons.

    model     0 reduced or nominal · 1 full simulator, randomized · 2 corrected by real data · 3 learned
    learning  0 none, or online alone · 1 offline · 2 offline, then online

The figure of a method that makes a policy is measured here: success on hidden robots, each with an e of its own from the outer
fifths of the task's ranges (sim/realities.py). That of any other follows from its command, which is given.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from surefoot.gate.training_record import run_of
from surefoot.lab.controls import Choice, Control, Toggle
from surefoot.lab.counting import BATCH, Counting, Tally, percent
from surefoot.lab.page import SLICE, Page
from surefoot.lab.subject import Subject, load
from surefoot.report import Axis, Block, Plot, Series, Table, Text
from surefoot.sim.realities import reality

HIDDEN = 12  # robots
ROUNDS = 4 * BATCH  # episodes on each of them, at most


@dataclass(frozen=True)
class Method:
    name: str
    model: float
    learning: float
    command: str
    """what does it here; TASK, RUN and LOG are the user's"""
    about: str
    kind: str = ""
    """of the policies it makes: nominal, randomized or adaptive; empty: it makes none"""

    @property
    def era(self) -> str:
        if self.learning < 0.5:
            return "1.0"
        return "4.0" if self.model > 2.5 else "3.0" if self.model > 1.5 else "2.0"


METHODS = (
    Method("model-based adaptive control", 0.0, 0.1, "surefoot.control.adaptive", "estimates mass online while it tracks; no training"),
    Method("safety filter", 0.3, 0.3, "surefoot guard RUN", "solves a small QP at every step to keep limits"),
    Method("training without randomization", 1.0, 1.0, "surefoot train TASK --belief nominal", "one world", "nominal"),
    Method("domain randomization", 1.2, 1.1, "surefoot train TASK", "a policy that bears every e of a range", "randomized"),
    Method("ranges that grow", 1.2, 1.25, "surefoot train TASK --ranges adr", "adr, doraemon, widen, ramp"),
    Method("motion tracking", 1.0, 1.3, "surefoot train TRACKING_TASK.py", "people's motions, made feasible in simulation"),
    Method("teacher and student", 1.3, 1.9, "surefoot train TASK --adapt rma", "infers e from its history while it acts", "adaptive"),
    Method("residual policy", 1.6, 1.2, "surefoot train TASK --base RUN", "learns on top of a policy that nearly works"),
    Method("system identification", 2.0, 1.0, "surefoot identify TASK LOG", "numbers of the model, with intervals"),
    Method("active exploration", 2.1, 1.2, "surefoot explore TASK", "the motion that tells most about e"),
    Method("posterior over e", 2.2, 1.05, "surefoot believe TASK LOG", "a log turned into p(e)"),
    Method("delta action", 2.4, 1.15, "surefoot delta TASK LOG", "what to add to actions so that the simulator moves as the robot"),
    Method("missing forces", 2.6, 1.1, "surefoot missing TASK LOG", "a learned force that the model lacks"),
    Method("actuator net", 2.7, 1.2, "surefoot actuator TASK LOG", "a learned motor inside the simulator"),
    Method("the whole loop", 2.8, 1.9, "surefoot cross TASK", "train, fail, learn from the log, succeed"),
)  # fmt: skip


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
    key, title = "map", "The map"
    about = "Every method here on two axes: the model it stands on, and when it learns. Choose one for its figure."

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
        while self.asked.measure and time.monotonic() < until and (ended := self.counting.step()) is not None:
            self.fresh = self.fresh or ended
        fresh, self.fresh = self.fresh, False
        return fresh

    @property
    def chosen(self) -> Method:
        return next(m for m in METHODS if m.name == self.asked.method)

    def figures(self, method: Method) -> dict[str, Tally]:
        """Policies of a method that are at hand, and what was counted of them."""
        paths = self.subject.policies()
        return {k: t for k, t in self.counting.tallies.items() if method.kind and kind_of(paths[k]) == method.kind}

    def blocks(self) -> Sequence[Block]:
        m = self.chosen
        found = self.figures(m)
        said = [
            Text(f"{m.name} (Sim2Real {m.era}): {m.about}"),
            Text(m.command.replace("TASK", self.subject.reference), "quiet"),
        ]
        rows = [[label, percent(t.rate()), t.episodes * HIDDEN] for label, t in found.items()]
        figure: Block = Table.of(["policy", f"success on {HIDDEN} hidden robots", "episodes"], rows)
        if not found:
            words = "no policy of this kind is at hand: train one" if m.kind else "its figure: run its command"
            figure = Text(words, "quiet")
        return [*said, figure, self._plot(), self._table()]

    def _plot(self) -> Plot:
        series = []
        for era in ("1.0", "2.0", "3.0", "4.0"):
            some = [m for m in METHODS if m.era == era]
            if some:
                series.append(
                    Series.of(f"Sim2Real {era}", [m.model for m in some], [m.learning for m in some], style="dots")
                )
        m = self.chosen
        series.append(Series.of(m.name, [m.model], [m.learning], style="points", tone="good"))
        x = Axis("model: nominal, simulated, corrected by data, learned", low=-0.2, high=3.2)
        return Plot("The map", tuple(series), x, Axis("learning: online, offline, both", low=-0.2, high=2.2))

    def _table(self) -> Table:
        rows = []
        for m in METHODS:
            tallies = self.figures(m).values()
            best = max(tallies, key=lambda t: t.rate()[0], default=None)
            rows.append([m.name, m.era, "-" if best is None else percent(best.rate()), m.command])
        strong = [i for i, m in enumerate(METHODS) if m.name == self.asked.method]
        return Table.of(["method", "era", "success", "command"], rows, "All methods", strong)

    def command(self) -> str:
        return self.chosen.command.replace("TASK", self.subject.reference)
