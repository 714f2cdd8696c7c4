"""Reports on a terminal: tables and sentences, one live line while a verb runs, and the next command last.

Text may come from a stranger's file: all of it passes `plain`, and none of it is markup.
"""

import json
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text as Styled

from surefoot.cli.dashboard import Dashboard
from surefoot.report import Block, Checks, Note, Progress, Report, Table, Text, plain

WIDEST = 40  # columns that a word of a table may take


class Plain(Console):
    """Shows text as it is. If the reader of a pipe has gone, `main` sets the exit code: rich would exit with 1, which means FAIL."""

    def __init__(self, stderr: bool = False):
        super().__init__(stderr=stderr, soft_wrap=False, markup=False, emoji=False)

    def render_str(self, text: str, **how: Any) -> Styled:
        """Every text passes here on its way to the terminal, also those in the cells of a table."""
        return super().render_str(plain(text), **how)

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def show(report: Report, say: Plain, as_json: bool) -> None:
    """The report, for a machine or for a person."""
    if as_json:
        print(json.dumps(report.facts, default=float, allow_nan=False))
        return
    for block in report.blocks:
        for thing in _drawn(block):
            say.print(thing, highlight=False, soft_wrap=isinstance(thing, str), crop=False)
    last = [report.badge.words if report.badge else "", f"page: {report.page}" if report.page else ""]
    for words in [*last, f"next: {report.next}" if report.next else ""]:
        if words:
            say.print(words, highlight=False, soft_wrap=True)


def _drawn(block: Block) -> list[Any]:
    """What a terminal shows of a block; nothing of a plot, a picture or details."""
    match block:
        case Text():
            return [block.words]
        case Note():
            return [_indented(f"{'warning' if block.warning else 'note'}: {block.words}")]
        case Table():
            names = [(c.head, bool(c.form)) for c in block.columns]
            return [_grid(block.title, names, block.cells(), block.strong)] if block.rows else []
        case Checks():
            return _checks(block)
    return []


def _indented(words: str) -> str:
    """A newline in a name that comes from a file starts no new line of output."""
    return words.replace("\n", "\n  ")


def _checks(block: Checks) -> list[Any]:
    """All but the evidence, which is too long for a column: that of what fails follows."""
    rows = [c.row()[:-1] for c in block.checks]
    failed = [i for i, c in enumerate(block.checks) if not c.holds]
    names = [("", False), ("check", False), ("value", True), ("limit", True), ("interval", True)]
    evidence = [f"{block.checks[i].name}: {block.checks[i].evidence}" for i in failed]
    return [_grid(block.title, names, rows, failed), *evidence]


def _grid(title: str, names: Sequence[tuple[str, bool]], rows: Sequence[Sequence[str]], strong: Any) -> Grid:
    """Columns fold between words. A table whose words do not fit is wider than the terminal: names are never cut."""
    grid = Grid(title=title or None, title_justify="left", box=box.SIMPLE_HEAD)
    for k, (name, right) in enumerate(names):
        words = [w for cell in (name, *(row[k] for row in rows)) for w in ([cell] if right else cell.split())]
        least = min(max(map(cell_len, words), default=1), WIDEST)
        whole = right or k == 0 and _short(rows)
        grid.add_column(name, justify="right" if right else "left", no_wrap=whole, min_width=least, overflow="fold")
    for i, row in enumerate(rows):
        grid.add_row(*row, style="bold" if i in strong else "")
    return grid


def _short(rows: Sequence[Sequence[str]]) -> bool:
    return all(len(row[0]) <= WIDEST for row in rows)


class Line:
    """The Watch of a terminal: one live line there; a line every few seconds elsewhere."""

    def __init__(self, say: Plain):
        self.say, self.open = say, False
        self.shown = 0.0 if say.is_terminal else time.monotonic()  # what is over at once needs no line in a file
        self.first: tuple[float, float] | None = None  # time and value of the first share
        self.judged = ""
        self.dashboard: Dashboard | None = None  # of a run on a robot
        self.recent: deque[tuple[float, float, float]] = deque()  # episodes, return, success of each batch

    def __call__(self, p: Progress) -> None:
        if p.stays:
            self.end()
            self.say.print(_indented(p.doing), highlight=False, soft_wrap=True)
            return
        if "state" in p.metrics and self.say.is_terminal:
            self.dashboard = self.dashboard or Dashboard(self.say)
            return self.dashboard(p)
        left = self.left(p.share)
        percent = f"  {100 * p.share:3.0f} %" if p.share is not None and not p.metrics else ""
        words = self._learning(p) if "steps" in p.metrics else p.doing
        self._text(f"{words}{percent}{left}", bool(p.metrics) and p.share == 1)

    def _learning(self, p: Progress) -> str:
        """How training stands."""
        m = p.metrics
        words = [f"{m['steps'] / 1e6:7.2f}M steps", p.doing, self._episodes(m)]
        if "judge/success" in m:
            self.judged = "judged {:.0%} ({:.0%} - {:.0%})".format(
                *(m[f"judge/{k}"] for k in ("success", "low", "high"))
            )
        words += [self.judged] if self.judged else []
        words += [f"ranges {100 * m['width']:.0f} %"] if "width" in m else []
        words += [f"KL {m['kl']:.4f}"] if "kl" in m else []
        words += [f"unexplained {100 * m['unexplained']:.1f} %"] if "unexplained" in m else []
        return "  ".join(words)

    def _episodes(self, m: Mapping[str, Any]) -> str:
        """Means over the last hundred episodes or so: one batch ends few, and its mean would jump about."""
        if "return" in m:
            self.recent.append((m["episodes"], m["return"], m["success"]))
        while len(self.recent) > 1 and sum(r[0] for r in self.recent) - self.recent[0][0] >= 100:
            self.recent.popleft()
        if not self.recent:
            return "no episode ended yet"
        count = sum(r[0] for r in self.recent)
        returns, success = (sum(r[0] * r[k] for r in self.recent) / count for k in (1, 2))
        return f"return {returns:.2f}  success {100 * success:.0f} %"

    def _text(self, text: str, always: bool = False) -> None:
        """Show this in place of what the line said, unless it changed a moment ago."""
        every = 0.1 if self.say.is_terminal else 5.0
        if always or time.monotonic() - self.shown > every:
            self.shown = time.monotonic()
            end = "" if self.say.is_terminal else "\n"
            self.say.file.write(("\r\x1b[2K" if self.say.is_terminal else "") + plain(text) + end)
            self.say.file.flush()
            self.open = self.say.is_terminal

    def left(self, share: float | None) -> str:
        """`  12 s left`, where shares grow evenly; nothing until two of them are known."""
        now = time.monotonic()
        if share is None or self.first is None or share <= self.first[1]:
            self.first = None if share is None else (now, share)
            return ""
        return f"  {(now - self.first[0]) / (share - self.first[1]) * (1 - share):4.0f} s left"

    def end(self) -> None:
        if self.dashboard is not None:
            self.dashboard.end()
            self.dashboard = None
        if self.open:
            self.open = False
            with suppress(OSError):  # a terminal that has closed: what is said next finds out
                self.say.file.write("\n")
