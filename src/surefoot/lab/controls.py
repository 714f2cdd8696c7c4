"""What a page lets a person set. A control has a value; whatever a browser or an address sends is checked here.

accept(value) -> the value as the page may use it, or None where it is none of this control
text(value) <-> read(text)     in an address: /width&over=mass&range=0.8,1.2
"""

import math
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, final

LINKED = re.compile(r"[A-Za-z0-9_.,+~-]{1,80}")
"""values that an address can hold as they are"""


class Control(ABC):
    """One thing to set; `label` is what a person reads, `about` what it does."""

    label: str
    value: Any
    about: str

    @abstractmethod
    def accept(self, value: Any) -> Any: ...

    def text(self) -> str:
        """The value in an address; "" where it cannot be there."""
        return str(self.value) if LINKED.fullmatch(str(self.value)) else ""

    def read(self, text: str) -> Any:
        """The value of an address, as accept gives it."""
        return self.accept(text)


@final
@dataclass(frozen=True)
class Slider(Control):
    label: str
    low: float
    high: float
    value: float
    step: float = 0.0
    """0: a hundredth of the range"""
    about: str = ""

    def accept(self, value: Any) -> float | None:
        return _within(value, self.low, self.high)

    def text(self) -> str:
        return f"{self.value:.6g}"

    def read(self, text: str) -> float | None:
        return self.accept(_number(text))


@final
@dataclass(frozen=True)
class Range(Control):
    """A lower and an upper end."""

    label: str
    low: float
    high: float
    value: tuple[float, float]
    about: str = ""

    def accept(self, value: Any) -> tuple[float, float] | None:
        if not isinstance(value, (tuple, list)) or len(value) != 2:
            return None
        ends = [_within(v, self.low, self.high) for v in value]
        return None if ends[0] is None or ends[1] is None else (min(ends[0], ends[1]), max(ends[0], ends[1]))

    def text(self) -> str:
        return ",".join(f"{v:.6g}" for v in self.value)

    def read(self, text: str) -> tuple[float, float] | None:
        return self.accept([_number(v) for v in text.split(",")])


@final
@dataclass(frozen=True)
class Choice(Control):
    label: str
    options: tuple[str, ...]
    value: str
    about: str = ""

    def accept(self, value: Any) -> str | None:
        return value if isinstance(value, str) and value in self.options else None


@final
@dataclass(frozen=True)
class Toggle(Control):
    label: str
    value: bool
    about: str = ""

    def accept(self, value: Any) -> bool | None:
        return value if isinstance(value, bool) else None

    def text(self) -> str:
        return "on" if self.value else "off"

    def read(self, text: str) -> bool | None:
        return {"on": True, "off": False}.get(text)


@final
@dataclass(frozen=True)
class Button(Control):
    """Pressed, not set: no address presses it."""

    label: str
    about: str = ""
    value: bool = field(default=False, init=False)

    def accept(self, value: Any) -> bool | None:
        return True if value is True else None

    def text(self) -> str:
        return ""

    def read(self, text: str) -> None:
        return None


def _within(value: Any, low: float, high: float) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return float(min(max(value, low), high))


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
