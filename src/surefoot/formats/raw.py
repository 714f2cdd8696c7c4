"""Raw: the content of a file before a mapping: streams, each with columns over rows of its own.

    streams[s].columns[c] (T_s,) or (T_s, k)        constants: single numbers and texts

Every reader returns a `Raw`. A file with a single stream has it under the name "".
"""

import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from surefoot.errors import SurefootError

WIDEST = 4096  # parts of a column: wider ones are images and point clouds, which a Log does not have
MOST = 10_000  # columns, streams, arrays or constants in one file
SPARSE = 64  # cells of a table of records for each that is filled
LARGEST = 4 << 30  # bytes of a file


@dataclass(frozen=True, eq=False)
class Stream:
    """Columns that share their rows. `names` has the names of a wide column's parts, where the file has them."""

    columns: dict[str, np.ndarray]
    names: dict[str, list[str]] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return len(next(iter(self.columns.values()))) if self.columns else 0


@dataclass(frozen=True, eq=False)
class Raw:
    streams: dict[str, Stream]
    constants: dict[str, Any] = field(default_factory=dict)
    units: dict[str, str] = field(default_factory=dict)
    meta: dict[str, Any] = field(default_factory=dict)
    """of a log that Log.save wrote"""
    notes: list[str] = field(default_factory=list)
    """what was left out and why, and what looks wrong"""


def check_count(what: str, n: int, where: str, most: int = MOST) -> None:
    if n > most:
        raise SurefootError(f"{where}: found {n} {what}, expected at most {most}")


def check(raw: Raw, where: str) -> Raw:
    """The Raw; refused where it has more streams, columns or constants than a log."""
    check_count("streams", len(raw.streams), where)
    check_count("columns", sum(len(s.columns) for s in raw.streams.values()), where)
    check_count("constants", len(raw.constants), where)
    check_count("notes", len(raw.notes), where)
    return raw


def with_header(raw: Raw, names: Sequence[str]) -> Raw:
    """A table without a header line, whose columns are called 0, 1, ..., with names for them."""
    stream = raw.streams.get("")
    columns = stream.columns if stream else {}
    if list(columns) != [str(k) for k in range(len(columns))] or not columns:
        raise SurefootError(
            f"header: found a file that names its columns: {listed(columns or raw.streams)}; leave `header` out"
        )
    if len(names) != len(columns):
        raise SurefootError(f"header: found {len(names)} names for {len(columns)} columns")
    return replace(raw, streams={"": Stream(dict(zip(names, columns.values())))})


def full(stream: str, column: str) -> str:
    """Name of a column with its stream."""
    return f"{stream}.{column}" if stream else column


def from_arrays(arrays: dict[str, np.ndarray], where: str) -> Raw:
    """Named arrays of any shapes: those with the commonest number of rows are columns, single numbers are constants."""
    constants, tall, notes = {}, {}, []
    for name, a in arrays.items():
        if a.dtype.kind in "US" and a.size == 1:
            constants[name] = str(a.reshape(-1)[0])
        elif a.dtype.kind not in "biuf":
            notes.append(f"{name}: {a.dtype.name} values are not numbers")
        elif a.size == 1:
            constants[name] = plain(a.reshape(-1)[0])
        elif a.ndim == 2 and 1 in a.shape:
            tall[name] = a.reshape(-1)
        elif a.ndim in (1, 2) and a.size:
            tall[name] = a
        else:
            notes.append(f"{name}: shape {a.shape} is not (T,) or (T, k)")
    if not tall:
        raise SurefootError(f"{where}: found {listed(arrays)}, expected an array with rows")
    rows = Counter(len(a) for a in tall.values()).most_common()
    most = max(count for _, count in rows)
    T = max(n for n, count in rows if count == most)  # of equally common lengths the longest
    notes += [f"{name}: {len(a)} rows where others have {T}" for name, a in tall.items() if len(a) != T]
    return Raw({"": Stream({k: a for k, a in tall.items() if len(a) == T})}, constants, notes=notes)


def from_records(records: Sequence[dict[str, Any]], where: str) -> tuple[Stream, list[str]]:
    """Records as rows: nested names joined by dots; a list of numbers is a wide column, absent or null is nan."""
    flat = [dict(_flat(r)) for r in records]
    order = list(dict.fromkeys(name for r in flat for name in r))
    filled, cells = sum(map(len, flat)), len(flat) * len(order)
    check_count("columns", len(order), where)
    if cells > max(100 * MOST, SPARSE * filled):
        raise SurefootError(
            f"{where}: found {len(order)} columns in {len(flat)} records, with {filled} of {cells} values; "
            f"expected at least 1 of {SPARSE}"
        )
    columns: dict[str, np.ndarray] = {}
    names: dict[str, list[str]] = {}
    notes: list[str] = []
    texts: dict[str, list[Any]] = {}
    for name in order:
        values = [None if v == [] else v for v in (r.get(name) for r in flat)]
        if any(_is_text(v) for v in values) and all(v is None or _is_text(v) for v in values):
            texts[name] = values
            notes.append(f"{name}: text")
        else:
            column = _column(values, f"{where}: {name}", notes, name)
            if column is not None:
                columns[name] = column
    for name, values in texts.items():
        if isinstance(values[0], list):
            _name_parts(name, values, columns, names, where)
    return Stream(columns, names), notes


def _name_parts(
    name: str, values: list[Any], columns: dict[str, np.ndarray], names: dict[str, list[str]], where: str
) -> None:
    """A list of texts names the parts of the number lists of its length beside it, as in ROS joint states."""
    if name.split(".")[-1] not in ("name", "names", "joint_names"):
        return
    for k, v in enumerate(values):
        if v != values[0]:  # otherwise joints would be exchanged silently
            raise SurefootError(f"{where}: {name}: row {k}: found {v} after {values[0]}, expected one order throughout")
    beside = name.rpartition(".")[0]
    for column, a in columns.items():
        if column.rpartition(".")[0] == beside and a.ndim == 2 and a.shape[1] == len(values[0]):
            names[column] = list(values[0])


def _flat(record: dict[str, Any], prefix: str = "", depth: int = 0) -> Iterable[tuple[str, Any]]:
    if depth > 32:
        raise SurefootError(f"{prefix[:60]}: found more than 32 levels of nesting")
    for key, value in record.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            yield from _flat(value, f"{name}.", depth + 1)
        else:
            yield name, value


def _is_text(value: Any) -> bool:
    return isinstance(value, str) or (
        isinstance(value, list) and bool(value) and all(isinstance(v, str) for v in value)
    )


def _column(values: list[Any], where: str, notes: list[str], name: str) -> np.ndarray | None:
    """Numbers, or lists of numbers of one length, as an array; otherwise None and a note."""
    widths = {len(v) if isinstance(v, list) else 0 for v in values if v is not None}
    if not widths:
        notes.append(f"{name}: empty")
        return None
    if len(widths) > 1 or max(widths) > WIDEST or any(_deep(v) for v in values):
        notes.append(f"{name}: lists of different or great length")
        return None
    width = widths.pop()
    if not width:
        return _numbers(values, where)
    empty = np.full(width, np.nan)
    return np.stack([empty if v is None else _numbers(v, where, k) for k, v in enumerate(values)])


def _deep(value: Any) -> bool:
    return isinstance(value, list) and any(isinstance(v, list | dict) for v in value)


def _numbers(values: Sequence[Any], where: str, row: int | None = None) -> np.ndarray:
    if all(isinstance(v, bool) for v in values):
        return np.array(values, bool)
    for k, v in enumerate(values):
        if v is not None and not isinstance(v, int | float):
            at = k if row is None else row
            raise SurefootError(f"{where}: row {at}: found {str(v)[:40]!r}, expected a number")
    if all(type(v) is int and abs(v) < 2**63 for v in values):
        return np.array(values, np.int64)
    try:
        return np.array([math.nan if v is None else float(v) for v in values])
    except OverflowError:
        raise SurefootError(f"{where}: found a number beyond 1e308") from None


def plain(value: Any) -> Any:
    """A numpy scalar for JSON; nan and infinity become null."""
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and not math.isfinite(value) else value


def clean(value: Any) -> Any:
    """A copy for JSON; nan and infinity become null."""
    return json.loads(json.dumps(value, default=str), parse_constant=lambda _: None)


def listed(names: Iterable[str], most: int = 12) -> str:
    names = list(names)
    return (", ".join(names[:most]) + (", ..." if len(names) > most else "")) or "nothing"
