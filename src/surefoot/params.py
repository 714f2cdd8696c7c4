"""e: the named physical unknowns of x' = f(x, u, e), and where each one lives in a model.

A Param is one number about the world. Its address says what it moves: `target` names a physical quantity (the vocabulary
is in sim/fields.py: mass, com_x, friction, gain, action_delay, ...), `match` is a regular expression over the names of the
model's objects, `op` says how the number combines with the model's own value: set, scale (times) or add (plus).
"""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any, Literal

import numpy as np

from surefoot.errors import SurefootError, unknown

Op = Literal["set", "scale", "add"]


@dataclass(frozen=True)
class Param:
    """One unknown. `low` and `high` are the physical bounds it can never leave, whatever is believed about it."""

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
            raise SurefootError(f"{where}: nominal, low and high must be finite, found {self.nominal}, {self.low}, {self.high}")
        if not self.low <= self.nominal <= self.high or self.low == self.high:
            raise SurefootError(f"{where}: expected low <= nominal <= high with low < high, found {self.low}, {self.nominal}, {self.high}")
        if self.log and self.low <= 0:
            raise SurefootError(f"{where}: a log scale needs low > 0, found {self.low}")
        if self.op not in ("set", "scale", "add"):
            raise unknown("op", str(self.op), ["set", "scale", "add"], where)


@dataclass(frozen=True)
class Params:
    """An ordered set of unknowns; e is an array whose last axis follows this order."""

    items: tuple[Param, ...] = ()

    def __post_init__(self) -> None:
        doubled = {n for n in self.names if self.names.count(n) > 1}
        if doubled:
            raise SurefootError(f"params: each name may stand once, found twice: {', '.join(sorted(doubled))}")

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

    @cached_property
    def nominal(self) -> np.ndarray:
        return np.array([p.nominal for p in self.items])

    @cached_property
    def low(self) -> np.ndarray:
        return np.array([p.low for p in self.items])

    @cached_property
    def high(self) -> np.ndarray:
        return np.array([p.high for p in self.items])

    @cached_property
    def log(self) -> np.ndarray:
        return np.array([p.log for p in self.items], bool)

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
        known = [f.name for f in fields(Param)]
        for row in rows:
            for k in row:
                if k not in known:
                    raise unknown("field", k, known, f"{where}: param {row.get('name', '?')}")
        return Params(tuple(Param(**row) for row in rows))
