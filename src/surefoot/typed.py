"""Values of a JSON file, each refused in words where it is not what was expected; and dataclasses made of them, field by field."""

import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from surefoot.errors import SurefootError, unknown

MOST = 4096  # columns of a term, frames of a history, letters of a name: no policy has more
Readers = Mapping[Any, Callable[[Any, str], Any]]
NAMES = {int: "a whole number", float: "a number", str: "text", bool: "true or false", Path: "a path"}


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


def row(value: Any, where: str) -> tuple[float, ...]:
    """A number, or a list of numbers."""
    values = list(value) if isinstance(value, list | tuple) else [value]
    if len(values) > MOST:
        raise SurefootError(f"{where}: expected at most {MOST} numbers, found {len(values)}")
    return tuple(real(v, where) for v in values)


def texts(value: Any, where: str) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or len(value) > MOST:
        raise SurefootError(f"{where}: expected a list of names, found {str(value)[:80]}")
    return tuple(text(v, where) for v in value)


def record(
    kind: type[Any], value: Any, where: str, kinds: Mapping[str, Any] | None = None, readers: Readers | None = None
) -> Any:
    """A dataclass of this kind. `kinds` are types of fields in place of their own, `readers` the types that read themselves."""
    if not isinstance(value, dict):
        raise SurefootError(f"{where}: expected an object, found {type(value).__name__}")
    known = {f.name: f for f in fields(kind)}
    for k in value:
        if k not in known:
            raise unknown("field", k, known, where)
    for k, f in known.items():
        if k not in value and f.default is MISSING and f.default_factory is MISSING:
            raise SurefootError(f"{where}: {k}: missing")
    hints = get_type_hints(kind) | dict(kinds or {})
    found = {k: typed(hints[k], v, f"{where}: {k}", readers or {}) for k, v in value.items()}
    try:
        return kind(**found)
    except SurefootError as error:
        raise SurefootError(f"{where}: {error}") from None


def typed(kind: Any, value: Any, where: str, readers: Readers | None = None) -> Any:
    """A value of JSON or TOML as one of this type: exact, but whole numbers are floats, too, lists tuples, text paths."""
    origin, args = get_origin(kind), get_args(kind)
    readers = readers or {}
    if kind in readers:
        return readers[kind](value, where)
    if origin in (Union, UnionType) and len(args) == 2 and NoneType in args:
        return None if value is None else typed(next(k for k in args if k is not NoneType), value, where, readers)
    if kind is Path and isinstance(value, str):
        return Path(value)
    if is_dataclass(kind) and isinstance(kind, type):
        return record(kind, value, where, readers=readers)
    if origin is tuple and isinstance(value, list):
        each = args[:1] * len(value) if args[-1] is Ellipsis else args
        if len(each) == len(value):
            return tuple(typed(k, v, f"{where}[{i}]", readers) for i, (k, v) in enumerate(zip(each, value)))
    if kind is float and type(value) is int and abs(value) < 2**1000:
        return float(value)
    if type(value) is kind or (origin is Mapping and isinstance(value, dict)):
        return value
    if origin is Literal and isinstance(value, str) and value in args:
        return value
    other = "a list" if origin is tuple else "none"
    expected = ", ".join(map(str, args)) if origin is Literal else NAMES.get(kind, other)
    raise SurefootError(f"{where}: expected {expected}, found {json.dumps(value, default=str)[:80]}")
