"""e: the named physical unknowns of x' = f(x, u, e), and where each one lives in a model.

A Param is one number about the world. Its address says what it moves: `target` names a physical quantity (the
vocabulary is in sim/fields/: mass, com_x, friction, gain, action_delay, ...), `match` is a regular expression over
the names of the model's objects, `op` says how the number combines with the model's own: set, scale (times) or add.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import MISSING, asdict, dataclass, fields
from functools import cached_property
from typing import Any, Literal

import numpy as np

from surefoot.arrays import namespace
from surefoot.errors import SurefootError, unknown

MOST = 4096  # params in a file
REPEATS = re.compile(r"(?<!\\)[*+{]")
"""what may be tried in many ways: a pattern of a file with few of them, and none of a group, is soon done with a name"""
Op = Literal["set", "scale", "add"]


@dataclass(frozen=True)
class Param:
    """One unknown. `low` and `high` are physical bounds: no belief leaves them."""

    name: str
    target: str
    nominal: float
    low: float
    high: float
    match: str = ".*"
    op: Op = "scale"
    unit: str = ""
    log: bool = False
    about: str = ""

    def __post_init__(self) -> None:
        where = f"param {self.name}"
        if not all(np.isfinite([self.nominal, self.low, self.high])):
            raise SurefootError(
                f"{where}: nominal, low and high must be finite, found {self.nominal}, {self.low}, {self.high}"
            )
        if not self.low <= self.nominal <= self.high or self.low == self.high:
            raise SurefootError(
                f"{where}: expected low <= nominal <= high with low < high, "
                f"found {self.low}, {self.nominal}, {self.high}"
            )
        if self.log and self.low <= 0:
            raise SurefootError(f"{where}: a log scale needs low > 0, found {self.low}")
        if self.op not in ("set", "scale", "add"):
            raise unknown("op", str(self.op), ["set", "scale", "add"], where)
        try:
            re.compile(self.match)
        except (re.error, RecursionError, OverflowError) as error:
            raise SurefootError(f"{where}: match: found {self.match[:80]!r}, expected a pattern: {error}") from None


@dataclass(frozen=True)
class Params:
    """An ordered set of unknowns; e is an array whose last axis follows this order."""

    items: tuple[Param, ...] = ()

    def __post_init__(self) -> None:
        doubled = [n for n, count in Counter(self.names).items() if count > 1]
        if doubled:
            raise SurefootError(f"params: expected each name once, found twice: {', '.join(sorted(doubled))}")

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Param]:
        return iter(self.items)

    def __getitem__(self, name: str) -> Param:
        return self.items[self.index(name)]

    @cached_property
    def names(self) -> list[str]:
        return [p.name for p in self.items]

    def index(self, name: str) -> int:
        if name not in self.names:
            raise unknown("param", name, self.names)
        return self.names.index(name)

    def only(self, names: Iterable[str]) -> "Params":
        return Params(tuple(self[n] for n in names))

    def check_same(self, found: "Params", where: str) -> None:
        """Refuse params of a file that differ from these: other names, another address or scale, or wider bounds.

        Bounds are physical and belong to these params; a file may narrow them, never widen them. `about` may differ.
        """
        if found.names != self.names:
            lacks, others = (
                [n for n in a if n not in b] for a, b in ((self.names, found.names), (found.names, self.names))
            )
            differs = f"missing {', '.join(lacks) or 'none'}, additional {', '.join(others) or 'none'}"
            raise SurefootError(f"{where}: params: expected {', '.join(self.names)}, in this order: {differs}")
        for mine, theirs in zip(self, found):
            at = f"{where}: param {mine.name}"
            for name in ("target", "op", "unit", "match", "log", "nominal"):
                if getattr(theirs, name) != getattr(mine, name):
                    raise SurefootError(
                        f"{at}: {name}: found {getattr(theirs, name)!r}, expected {getattr(mine, name)!r}"
                    )
            for name, wider in (("low", theirs.low < mine.low), ("high", theirs.high > mine.high)):
                if wider:
                    raise SurefootError(
                        f"{at}: {name}: found {getattr(theirs, name):g}, expected within the physical bounds "
                        f"{mine.low:g} .. {mine.high:g}{' ' + mine.unit if mine.unit else ''}"
                    )

    @cached_property
    def nominal(self) -> np.ndarray:
        return np.array([p.nominal for p in self.items], float)

    @cached_property
    def low(self) -> np.ndarray:
        return np.array([p.low for p in self.items], float)

    @cached_property
    def high(self) -> np.ndarray:
        return np.array([p.high for p in self.items], float)

    @cached_property
    def log(self) -> np.ndarray:
        return np.array([p.log for p in self.items], bool)

    @cached_property
    def _ends(self) -> tuple[np.ndarray, np.ndarray]:
        return self.y(self.low), self.y(self.high)

    def y(self, e: np.ndarray) -> np.ndarray:
        """The scale of e: log e on log dimensions (-inf at 0 and below), e elsewhere."""
        with np.errstate(divide="ignore"):
            return np.where(self.log, np.log(np.maximum(np.where(self.log, e, 1.0), 0.0)), e)

    def e(self, y: np.ndarray) -> np.ndarray:
        """The inverse of y, clipped to the physical bounds and exactly on them at and beyond y(low), y(high)."""
        xp = namespace(y)
        log, least, most = (xp.asarray(a) for a in (self.log, self.low, self.high))
        low, high = (xp.asarray(a) for a in self._ends)
        e = xp.where(log, xp.exp(xp.where(log, xp.clip(y, low, high), 0.0)), y)
        return xp.where(y >= high, most, xp.where(y <= low, least, xp.clip(e, least, most)))

    def vector(self, values: dict[str, float]) -> np.ndarray:
        """e with the named values, nominal elsewhere."""
        e = self.nominal.copy()
        for name, value in values.items():
            e[self.index(name)] = value
        return e

    def to_json(self) -> list[dict[str, Any]]:
        return [asdict(p) for p in self.items]

    @staticmethod
    def from_json(rows: list[dict[str, Any]], where: str = "params") -> "Params":
        """The params `to_json` wrote. `where` (a file, a field) opens every error."""
        if not isinstance(rows, list):
            raise SurefootError(f"{where}: found {type(rows).__name__}, expected a list of params")
        if len(rows) > MOST:
            raise SurefootError(f"{where}: found {len(rows)} params, expected at most {MOST}")
        items = tuple(_read(row, i, where) for i, row in enumerate(rows))
        try:
            return Params(items)
        except SurefootError as error:
            raise SurefootError(f"{where}: {error}") from None


def _read(row: Any, i: int, where: str) -> Param:
    """Row i of a file as a Param, or an error that names the field and the expected value."""
    if not isinstance(row, dict):
        raise SurefootError(f"{where}[{i}]: found {type(row).__name__}, expected an object")
    known, place = {f.name: f for f in fields(Param)}, f"{where}: param {row.get('name', i)}"
    for name in row:
        if name not in known:
            raise unknown("field", str(name), known, place)
    missing = [name for name, f in known.items() if f.default is MISSING and name not in row]
    if missing:
        raise SurefootError(f"{place}: {', '.join(missing)}: found nothing, expected a value")
    pattern = row.get("match")
    if isinstance(pattern, str) and (len(REPEATS.findall(pattern)) > 3 or re.search(r"\)[*+{]", pattern)):
        simple = "a pattern with at most 3 of * + {, none of them after a group"
        raise SurefootError(f"{place}: match: found {pattern[:80]!r}, expected {simple}")
    values = {name: _typed(value, known[name].type, f"{place}: {name}") for name, value in row.items()}
    try:
        return Param(**values)
    except SurefootError as error:
        raise SurefootError(f"{where}: {error}") from None


def _typed(value: Any, kind: Any, where: str) -> Any:
    """The value in its field's type; numbers become floats, so that arrays of them are floats."""
    if kind is float:
        if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 2.0**1000:
            return float(value)  # larger integers, which JSON allows, have no float
        raise SurefootError(f"{where}: found {value!r}, expected a finite number")
    expected, words = (bool, "true or false") if kind is bool else (str, "text")
    if not isinstance(value, expected):
        raise SurefootError(f"{where}: found {value!r}, expected {words}")
    return value
