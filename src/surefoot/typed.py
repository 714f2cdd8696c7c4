"""A dataclass out of JSON: known names alone, each of its field's type. An error names the field, what is expected and found."""

import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from surefoot.errors import SurefootError, unknown

Readers = Mapping[Any, Callable[[Any, str], Any]]
NAMES = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}


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


def typed(kind: Any, value: Any, where: str, readers: Readers) -> Any:
    """A value of JSON as one of this type: exact, but that whole numbers are floats, too, and lists tuples."""
    origin, args = get_origin(kind), get_args(kind)
    if kind in readers:
        return readers[kind](value, where)
    if origin in (Union, UnionType) and len(args) == 2 and NoneType in args:
        return None if value is None else typed(next(k for k in args if k is not NoneType), value, where, readers)
    if is_dataclass(kind) and isinstance(kind, type):
        return record(kind, value, where, readers=readers)
    if origin is tuple and isinstance(value, list):
        each = args[:1] * len(value) if args[-1] is Ellipsis else args
        if len(each) == len(value):
            return tuple(typed(k, v, f"{where}[{i}]", readers) for i, (k, v) in enumerate(zip(each, value)))
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is kind or (origin is Mapping and isinstance(value, dict)):
        return value
    if origin is Literal and isinstance(value, str) and value in args:
        return value
    other = "a list" if origin is tuple else "none"
    expected = ", ".join(map(str, args)) if origin is Literal else NAMES.get(kind, other)
    raise SurefootError(f"{where}: expected {expected}, found {json.dumps(value)[:80]}")
