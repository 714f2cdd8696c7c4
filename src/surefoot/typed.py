"""Values of a JSON file, each refused in words where it is not what was expected."""

from collections.abc import Mapping
from typing import Any

from surefoot.errors import SurefootError, unknown

MOST = 4096  # columns of a term, frames of a history, letters of a name: no policy has more


def known_fields(data: Any, known: set[str], needed: set[str], where: str) -> dict[str, Any]:
    """A JSON object's fields; refused by name where one is unknown or missing."""
    if not isinstance(data, Mapping):
        raise SurefootError(f"{where}: expected an object, found {type(data).__name__}")
    for name in data:
        if name not in known:
            raise unknown("field", str(name), sorted(known), where)
    for name in sorted(needed):
        if name not in data:
            raise SurefootError(f"{where}: {name}: found nothing, expected a value")
    return dict(data)


def real(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e9:  # also for nan
        raise SurefootError(f"{where}: expected a finite number, found {str(value)[:80]!r}")
    return float(value)


def whole(value: Any, low: int, high: int, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise SurefootError(f"{where}: expected a whole number from {low} to {high}, found {str(value)[:80]!r}")
    return value


def text(value: Any, where: str) -> str:
    if not isinstance(value, str) or len(value) > MOST:
        raise SurefootError(f"{where}: expected text, found {str(value)[:80]!r}")
    return value
