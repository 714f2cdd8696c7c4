"""Report: what a verb found, as data. Progress: what it is doing meanwhile.

    verb(arguments, watch) -> Report        watch(Progress) -> None, the one callback of everything that takes long

The terminal, `--json` and an HTML page show the same Report: a block holds numbers, and a renderer decides how they look.
A terminal leaves out what it cannot draw (Plot, Picture, Details).
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from surefoot.verdict import Check

Tone = Literal["", "good", "bad", "quiet"]
Cell = str | float | int | None


@dataclass(frozen=True)
class Progress:
    """One event of a verb under way."""

    doing: str
    share: float | None = None
    """of it that is done, 0 to 1; None: unknown"""
    metrics: Mapping[str, Any] = field(default_factory=dict)
    """numbers of a learner's last iteration, with `iteration` and the folder of its `run`"""
    stays: bool = False
    """a line of its own, worth keeping after the next event"""


Watch = Callable[[Progress], None]


def unwatched(_: Progress) -> None:
    """The Watch of a caller who does not look."""


class Block:
    """A part of a report: one of the kinds below."""


@dataclass(frozen=True)
class Text(Block):
    """A paragraph."""

    words: str
    tone: Tone = ""


@dataclass(frozen=True)
class Note(Block):
    """Something to know, or with `warning` to mind."""

    words: str
    warning: bool = False


@dataclass(frozen=True)
class Column:
    """A table's column; numbers in it are written in `form`, a format such as .4g, and stand to the right."""

    name: str
    unit: str = ""
    form: str = ""

    @property
    def head(self) -> str:
        return f"{self.name} [{self.unit}]" if self.unit else self.name

    def cell(self, value: Cell) -> str:
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return "-"
        return value if isinstance(value, str) else format(value, self.form)


@dataclass(frozen=True)
class Table(Block):
    """Rows of words and numbers under named columns; `strong` rows stand out."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    title: str = ""
    strong: frozenset[int] = frozenset()

    @staticmethod
    def of(
        columns: Sequence[Any], rows: Sequence[Sequence[Any]], title: str = "", strong: Sequence[int] = ()
    ) -> "Table":
        """From names or Columns, and rows of cells."""
        named = tuple(c if isinstance(c, Column) else Column(c) for c in columns)
        return Table(named, tuple(tuple(r) for r in rows), title, frozenset(strong))

    def cells(self) -> list[list[str]]:
        return [[c.cell(value) for c, value in zip(self.columns, row)] for row in self.rows]


@dataclass(frozen=True)
class Checks(Block):
    """The rows of a verdict, each a number against its limit."""

    checks: tuple[Check, ...]
    title: str = ""


@dataclass(frozen=True)
class Axis:
    """One axis; with `names` it has a row for each of them, at 0, 1, 2 ..."""

    label: str = ""
    unit: str = ""
    scale: Literal["linear", "log", "symlog"] = "linear"
    low: float | None = None
    high: float | None = None
    names: tuple[str, ...] = ()
    marks: tuple[tuple[float, str], ...] = ()
    """values with a name each, in place of round numbers"""

    @property
    def head(self) -> str:
        return f"{self.label} [{self.unit}]" if self.unit else self.label


@dataclass(frozen=True)
class Series:
    """Points (x, y). `low` and `high` bound y as a band; where the y axis has names, they bound x as a bar."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    style: Literal["line", "dashed", "dots", "points", "step", "bars", "ticks"] = "line"
    tone: Tone = ""
    labels: tuple[str, ...] = ()
    """of dots: words beside each"""

    @staticmethod
    def of(name: str, x: Any, y: Any, low: Any = (), high: Any = (), **how: Any) -> "Series":
        """From arrays or lists."""
        numbers = lambda z: tuple(float("nan") if v is None else float(v) for v in z)  # noqa: E731
        return Series(name, numbers(x), numbers(y), numbers(low), numbers(high), **how)


@dataclass(frozen=True)
class Rule:
    """A reference line across the plot at one value of an axis."""

    at: float
    axis: Literal["x", "y"] = "y"
    name: str = ""


@dataclass(frozen=True)
class Plot(Block):
    """Series over two axes: numbers, not a picture."""

    title: str
    series: tuple[Series, ...]
    x: Axis = Axis()
    y: Axis = Axis()
    rules: tuple[Rule, ...] = ()
    caption: str = ""


@dataclass(frozen=True)
class Picture(Block):
    """An image or a film (kind gif, or svg+xml that moves by itself) of the bytes of a file. Pictures that follow each other stand side by side."""

    data: bytes
    kind: Literal["png", "jpeg", "gif", "svg+xml"]
    alt: str


@dataclass(frozen=True)
class Details(Block):
    """Blocks to unfold."""

    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Badge:
    """A verdict in a few words; good, bad, or neither."""

    words: str
    good: bool | None = None


@dataclass(frozen=True)
class Report:
    """What a verb found: facts for machines, blocks for people, and the next command to type."""

    title: str
    facts: dict[str, Any]
    blocks: tuple[Block, ...] = ()
    next: str = ""
    badge: Badge | None = None
    code: int = 0
    """exit code: 0 fine, 1 the answer is no, 130 interrupted"""
    page: Path | None = None
    """where this report is to be written as a page"""
    picture: Picture | None = None
    """of the robot"""
    sources: Mapping[str, str] = field(default_factory=dict)
    """what it was made from: name -> content hash, version or seed"""


# what moves the cursor, sets colours, turns the direction of writing or is half a character; not tab and newline
UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def plain(text: Any) -> str:
    """Text from anywhere as it may be shown: what would be obeyed rather than shown is written as escapes, ESC as \\x1b."""
    return UNSEEN.sub(lambda m: ascii(m[0])[1:-1], str(text))


def jsonable(x: Any) -> Any:
    """Facts as JSON has them: arrays as lists, numpy numbers as numbers, what is not finite as None."""
    if hasattr(x, "tolist"):
        x = x.tolist()
    if isinstance(x, Mapping):
        return {k: jsonable(v) for k, v in x.items()}
    if isinstance(x, (list, tuple)):
        return [jsonable(v) for v in x]
    return None if isinstance(x, float) and not math.isfinite(x) else x
