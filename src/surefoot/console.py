"""What a person sees: a live line while something runs, tables, and the answer with the next command to type.

Text may come from a file of a stranger: all of it passes `printable`, and none of it is markup.
"""

import json
import re
import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from surefoot.task import Task

if TYPE_CHECKING:  # learning takes seconds to import, and few verbs learn
    from surefoot.learn.loop import Progress
    from surefoot.tasks.rollout import Evaluation


# what moves the cursor, sets colours, turns the direction of writing or is half a character; not tab and newline
UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """The text with what a terminal would obey rather than show written as escapes: ESC as \\x1b."""
    return UNSEEN.sub(lambda m: ascii(m[0])[1:-1], text)


class Plain(Console):
    """A console that shows text as it is, and lets `main` say how a command ends whose reader has gone; rich would end it with 1, which means no."""

    def __init__(self, stderr: bool = False):
        super().__init__(stderr=stderr, soft_wrap=False, markup=False, emoji=False)

    def render_str(self, text: str, **how: Any) -> Text:
        """Every text passes here on its way to the terminal, also those in the cells of a table."""
        return super().render_str(printable(text), **how)

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


@dataclass
class Answer:
    """What a verb found: facts for machines, things to print for people, the next command, the exit code."""

    facts: dict[str, Any]
    shown: list[Any] = field(default_factory=list)
    next: str = ""
    code: int = 0


def show(answer: Answer, say: Console, as_json: bool) -> None:
    """The answer, for a machine or for a person."""
    if as_json:
        print(json.dumps(answer.facts, default=float, allow_nan=False))
        return
    for thing in answer.shown:
        say.print(thing, highlight=False, soft_wrap=isinstance(thing, str))
    if answer.next:
        say.print(f"next: {answer.next}", highlight=False, soft_wrap=True)


def goal(task: Task) -> str:
    """What counts as success, in words."""
    kind = "largest" if task.measure == "max" else "mean"
    limit = f"{task.tolerance:.3g} {task.error_unit}"
    return f"lasts {task.seconds:g} s, {kind} error of the last {task.window:g} s within {limit}"


def ready(rows: Iterable[Mapping[str, Any]]) -> Table:
    """The ready tasks, a row each."""
    table = Table("task", "what", "success", "unknowns", "rate")
    for t in rows:
        table.add_row(t["name"], t["about"], t["success"], str(len(t["params"])), f"{t['rate']:.0f} Hz")
    return table


def results(task: Task, found: "dict[str, Evaluation]") -> Table:
    """Policies side by side in one task."""
    who = Column("policy", no_wrap=True)
    table = Table(who, "success", "95 % interval", "return", f"error [{task.error_unit}]", "ended")
    for name, r in found.items():
        low, high = r.interval
        error = r.error[np.isfinite(r.error)]
        ended = ", ".join(f"{k} {v}" for k, v in sorted(r.reasons.items(), key=lambda kv: -kv[1]))
        table.add_row(
            name,
            f"{100 * r.rate:.1f} %",
            f"{100 * low:.1f} - {100 * high:.1f} %",
            f"{r.returns.mean():.2f}",
            f"{error.mean():.3f}" if len(error) else "-",
            ended,
        )
    return table


class Line:
    """One live line on a terminal; a line every few seconds elsewhere."""

    def __init__(self, say: Console):
        self.say, self.open = say, False
        self.shown = 0.0 if say.is_terminal else time.monotonic()  # what is over at once needs no line in a file
        self.last: dict[str, Any] = {}
        self.head = ""  # said before the first round
        self.first: tuple[float, int] | None = None  # when the first round was told of, and its number
        self.recent: deque[tuple[float, float, float]] = deque()  # episodes, return, success of each batch

    def __call__(self, p: "Progress") -> None:
        """How training stands."""
        if not p.metrics:
            for text in p.notes:
                self.note(f"note: {text}")
            return
        m, self.last = p.metrics, p.metrics
        if self.head:
            self.note(self.head)
            self.head = ""
        left = (p.iterations - p.iteration) * m["steps"] / p.iteration / max(1.0, p.steps_per_second)
        rates = f"{p.steps_per_second / 1000:.1f}k steps/s"
        result = self._recent(m) + (f"  ranges {100 * m['width']:.0f} %" if "width" in m else "")
        for text in p.notes:
            self.note(f"note: {text}")
        pace = f"KL {m['kl']:.4f}" if "kl" in m else ""
        pace += f"unexplained {100 * m['unexplained']:.1f} %" if "unexplained" in m else ""
        self.text(
            f"{m['steps'] / 1e6:7.2f}M steps  {rates}  {result}  {pace}  {left:4.0f} s left",
            p.iteration == p.iterations,
        )

    def _recent(self, m: Mapping[str, Any]) -> str:
        """Means over the last hundred episodes or so: one batch ends few, and its mean would jump about."""
        if "return" in m:
            self.recent.append((m["episodes"], m["return"], m["success"]))
        while len(self.recent) > 1 and sum(r[0] for r in self.recent) - self.recent[0][0] >= 100:
            self.recent.popleft()
        if not self.recent:
            return "no episode ended yet"
        episodes, returns, success = np.array(self.recent).T
        mean = lambda x: float((episodes * x).sum() / episodes.sum())  # noqa: E731
        return f"return {mean(returns):.2f}  success {100 * mean(success):.0f} %"

    def text(self, text: str, always: bool = False) -> None:
        """Show this in place of what the line said, unless it changed a moment ago."""
        every = 0.1 if self.say.is_terminal else 5.0
        if always or time.monotonic() - self.shown > every:
            self.shown = time.monotonic()
            end = "" if self.say.is_terminal else "\n"
            self.say.file.write(("\r\x1b[2K" if self.say.is_terminal else "") + printable(text) + end)
            self.say.file.flush()
            self.open = self.say.is_terminal

    def left(self, done: int, most: int) -> str:
        """`  12 s left`, after so many of the rounds, which are alike; nothing until two of them are over."""
        now = time.monotonic()
        if self.first is None or done <= self.first[1]:
            self.first = (now, done)
            return ""
        return f"  {(now - self.first[0]) / (done - self.first[1]) * (most - done):4.0f} s left"

    def note(self, text: str) -> None:
        """A line of its own, which stays."""
        self.end()
        self.say.print(text, highlight=False, soft_wrap=True)

    def end(self) -> None:
        if self.open:
            self.say.file.write("\n")
            self.open = False
