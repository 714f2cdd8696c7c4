"""Verdict: a table of checks, each a number against a limit with its evidence, and the next command.

A rate without an interval is not evidence. clopper_pearson is exact: for every p it covers p with probability at least `level`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from surefoot.errors import SurefootError, unknown


@dataclass(frozen=True)
class Check:
    """One question with its answer. `value`, `limit`, `low`, `high` are in `unit`; low..high is value's interval."""

    name: str
    value: float
    limit: float
    holds: bool
    evidence: str
    low: float | None = None
    high: float | None = None
    unit: str = ""

    def __post_init__(self) -> None:
        for name in ("value", "limit", "low", "high"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, float(getattr(self, name)))  # a numpy scalar would not go into JSON
        object.__setattr__(self, "holds", bool(self.holds))
        if self.holds and (math.isnan(self.value) or math.isnan(self.limit)):
            raise SurefootError(
                f"check {self.name}: found value {self.value} and limit {self.limit}; a check with nan cannot pass"
            )
        if self.low is not None and self.high is not None and self.low > self.high:
            raise SurefootError(f"check {self.name}: found low {self.low} above high {self.high}, expected low <= high")

    def row(self) -> list[str]:
        """PASS or FAIL, name, value, limit, interval and evidence, as text."""
        value, limit = (_words(x, self.unit) for x in (self.value, self.limit))
        return ["PASS" if self.holds else "FAIL", self.name, value, limit, _interval(self), self.evidence]

    def to_json(self) -> dict[str, Any]:
        return {f.name: _to_plain(getattr(self, f.name)) for f in fields(self)}

    @staticmethod
    def from_json(data: dict[str, Any], where: str = "check") -> "Check":
        _known(data, [f.name for f in fields(Check)], ["name", "value", "limit", "holds", "evidence"], where)
        row = dict(data)
        for name in ("name", "evidence", "unit"):
            _typed(row.get(name, ""), str, f"{where}.{name}")
        _typed(row["holds"], bool, f"{where}.holds")
        for name in ("value", "limit", "low", "high"):
            row[name] = _number(row.get(name), f"{where}.{name}", optional=name in ("low", "high"))
        return Check(**row)


@dataclass(frozen=True)
class Verdict:
    """It holds if there are checks and every one holds: without evidence it does not."""

    checks: tuple[Check, ...]
    next_step: str
    title: str = ""
    meta: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "checks", tuple(self.checks))

    @property
    def holds(self) -> bool:
        return bool(self.checks) and all(check.holds for check in self.checks)

    def to_json(self) -> dict[str, Any]:
        checks = [check.to_json() for check in self.checks]
        return {
            "title": self.title,
            "holds": self.holds,
            "checks": checks,
            "next_step": self.next_step,
            "meta": self.meta,
        }

    @staticmethod
    def from_json(data: dict[str, Any], where: str = "verdict") -> "Verdict":
        """The verdict `to_json` wrote; a `holds` that contradicts its checks is refused."""
        _known(data, ["title", "holds", "checks", "next_step", "meta"], ["checks", "next_step", "holds"], where)
        for name, kind in (("checks", list), ("next_step", str), ("holds", bool), ("title", str), ("meta", dict)):
            _typed(data.get(name, kind()), kind, f"{where}.{name}")
        checks = [Check.from_json(row, f"{where}.checks[{i}]") for i, row in enumerate(data["checks"])]
        verdict = Verdict(tuple(checks), data["next_step"], data.get("title", ""), data.get("meta", {}))
        if verdict.holds != data["holds"]:
            raise SurefootError(f"{where}.holds: found {data['holds']}, expected {verdict.holds} from the checks")
        return verdict


def clopper_pearson(successes: int, trials: int, level: float = 0.95) -> tuple[float, float]:
    """The exact interval (low, high) of a success rate p after k successes in n independent trials.

    P(X >= k | low) = P(X <= k | high) = (1 - level) / 2, X ~ Binomial(n, p). Without trials: (0, 1).
    One end alone is a one-sided bound at level (1 + level) / 2: level=0.90 gives one-sided 95 % bounds.
    """
    (k, n), target = counted(successes, trials, level, "clopper_pearson"), math.log((1 - level) / 2)
    low = 0.0 if k == 0 else _root(_log_binomial(np.arange(k, n + 1), n), target, rising=True)
    high = 1.0 if k == n else _root(_log_binomial(np.arange(k + 1), n), target, rising=False)
    return low, high


def counted(successes: int, trials: int, level: float, where: str) -> tuple[int, int]:
    """Both as integers; an error where they are no counts, or the level is not between 0 and 1."""
    k, n = successes, trials
    if k != int(k) or n != int(n) or not 0 <= k <= n:
        raise SurefootError(f"{where}: found {k} successes in {n} trials, expected whole 0 <= successes <= trials")
    if not 0 < level < 1:
        raise SurefootError(f"{where}: level: found {level}, expected between 0 and 1, for example 0.95")
    return int(k), int(n)


def _log_binomial(counts: np.ndarray, n: int) -> Callable[[float], float]:
    """p -> log P(X in counts), X ~ Binomial(n, p), 0 < p < 1: relative to the largest term, so that none underflows."""
    ways = np.array([math.lgamma(n + 1) - math.lgamma(i + 1) - math.lgamma(n - i + 1) for i in counts])

    def log_probability(p: float) -> float:
        terms = ways + counts * math.log(p) + (n - counts) * math.log1p(-p)
        return float(terms.max() + np.log(np.exp(terms - terms.max()).sum()))

    return log_probability


def _root(f: Callable[[float], float], target: float, rising: bool) -> float:
    """p in (0, 1) where the monotone f crosses target, by bisection until no float lies between."""
    low, high = 0.0, 1.0
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if (f(middle) < target) == rising else (low, middle)
    return high


def _words(value: float, unit: str) -> str:
    return f"{value:.4g} {unit}".strip()


def _interval(check: Check) -> str:
    if check.low is None and check.high is None:
        return ""
    low, high = ("" if end is None else f"{end:.4g}" for end in (check.low, check.high))
    return f"{low}..{high}"


def _to_plain(value: Any) -> Any:
    """JSON has no nan or inf: they are written as text that float() reads."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _number(value: Any, where: str, optional: bool) -> float | None:
    if optional and value is None:
        return None
    if isinstance(value, float) or value in ("nan", "inf", "-inf"):
        return float(value)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**1000:  # float() of more overflows
        return float(value)
    raise SurefootError(f"{where}: found {value!r}, expected a number")


def _typed(value: Any, kind: type, where: str) -> None:
    if not isinstance(value, kind):
        raise SurefootError(f"{where}: found {value!r}, expected {kind.__name__}")


def _known(data: Any, names: list[str], needed: list[str], where: str) -> None:
    _typed(data, dict, where)
    for name in data:
        if name not in names:
            raise unknown("field", str(name), names, where)
    for name in needed:
        if name not in data:
            raise SurefootError(f"{where}.{name}: found nothing, expected a value")
