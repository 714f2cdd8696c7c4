"""Mapping: what a file's columns are in our schema, with our units, signs, order and frames.

value = sign * factor(unit) * (scale * x) + offset     offset in SI; sign, scale, offset: one number, or one for each part

{"rate": 200,
 "time": {"from": "timestamp", "unit": "ms"},
 "columns": {"joint_pos": {"from": "jpos{0..11}", "names": "{FL,FR,RL,RR}_{hip,thigh,calf}_joint", "unit": "deg"},
             "joint_torque": {"expr": "kt * current{0..11}"}},
 "constants": {"kt": 0.6}}

x is a column of the file (`from`), or arithmetic over columns and constants (`expr`, expression.py).
"""

import itertools
import math
import re
from collections.abc import Iterable
from collections.abc import Mapping as Dict
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from surefoot import files
from surefoot.errors import SurefootError, nearest, unknown
from surefoot.formats.expression import Expression, parse
from surefoot.formats.raw import check_count, listed
from surefoot.formats.resample import check_rate
from surefoot.formats.units import si
from surefoot.rotation import to_body, to_world

FRAMES = {"base_lin_vel": "world", "base_ang_vel": "body"}
UNITS = {"joint_pos": "rad", "joint_vel": "rad/s", "joint_torque": "N m", "base_pos": "m", "base_quat": "1", "base_lin_vel": "m/s", "base_ang_vel": "rad/s"}  # fmt: skip
SCHEMA = (*UNITS, "control", "action", "command", "observation")  # any other column is a sensor, by its name
ALIKE = 0.8  # similarity of two names, from 0 to 1, above which one is taken for a misspelling
WIDTHS = {"base_pos": 3, "base_quat": 4, "base_lin_vel": 3, "base_ang_vel": 3}
QUATERNIONS = {"wxyz": [0, 1, 2, 3], "xyzw": [3, 0, 1, 2]}


@dataclass(frozen=True)
class Column:
    """One column of the log and where it comes from."""

    source: tuple[str, ...]
    """`from`: names in the file; {0..11} counts, {a,b} lists, x[3:7] takes parts of a wide one; those in `expr`"""
    unit: str = ""
    """of scale * x; it becomes SI"""
    names: tuple[str, ...] = ()
    """of the parts; where the file names its parts, they are picked by these names"""
    sign: tuple[float, ...] = (1.0,)
    scale: tuple[float, ...] = (1.0,)
    offset: tuple[float, ...] = (0.0,)
    quaternion: str = "wxyz"
    """order of a quaternion's parts in the file: wxyz or xyzw"""
    frame: str = ""
    """world or body: the frame of the file's velocities; they are turned into the schema's"""
    signed: int = 0
    """bits of a raw register in two's complement: 65533 of 16 bits is -3"""
    hold: bool = False
    """keep the last value between stamps instead of interpolating"""
    terms: tuple[Expression, ...] = ()
    """`expr`: arithmetic over columns and constants, in place of `from`; several stand side by side"""


@dataclass(frozen=True)
class Mapping:
    """The columns of a file, in our schema."""

    columns: dict[str, Column]
    time: str = ""
    """column of the clock; default: one of the usual names"""
    time_unit: str = ""
    rate: float | None = None
    """Hz: of the rows, where the file has no clock; else the rate after resampling"""
    constants: dict[str, Any] = field(default_factory=dict)
    """for meta["constants"]: gains, masses"""
    header: tuple[str, ...] = ()
    """names of the columns of a CSV without a header line, from left to right"""

    @staticmethod
    def read(path: str | Path) -> "Mapping":
        return Mapping.from_json(files.read_json(Path(path)), str(path))

    @staticmethod
    def from_json(value: Any, where: str = "mapping") -> "Mapping":
        _keys(value, {"rate", "time", "columns", "constants", "about", "header"}, where)
        if not isinstance(value.get("columns"), dict) or not value["columns"]:
            raise SurefootError(f"{where}: columns: found {value.get('columns')!r}, expected an object of columns")
        check_count("columns", len(value["columns"]), where)
        columns = {k: _column(k, v, f"{where}: columns: {k}") for k, v in value["columns"].items()}
        time = value.get("time", {})
        time = {"from": time} if isinstance(time, str) else time
        _keys(time, {"from", "unit"}, f"{where}: time")
        if time.get("unit") and si(time["unit"], f"{where}: time: unit")[0] != "s":
            raise SurefootError(f"{where}: time: unit: found {time['unit']!r}, expected a unit of time: s, ms, us, ns")
        constants = value.get("constants", {})
        if not isinstance(constants, dict):
            raise SurefootError(f"{where}: constants: found {constants!r}, expected an object")
        rate = value.get("rate")
        if rate is not None:
            check_rate(rate, f"{where}: rate")
        header = _names(value.get("header", []), f"{where}: header")
        return Mapping(columns, str(time.get("from", "")), str(time.get("unit", "")), rate, constants, header)


def odd_names(mapping: Mapping) -> list[str]:
    """Notes on columns whose names are nearly those of the schema: sensors, or misspellings."""
    outside = [name for name in mapping.columns if name not in SCHEMA]
    hints = {name: nearest(name, SCHEMA, ALIKE) for name in outside}
    return [f"column {name}: not in the schema, taken as a sensor{hint}" for name, hint in hints.items() if hint]


def _keys(value: Any, known: Iterable[str], where: str) -> None:
    if not isinstance(value, dict):
        raise SurefootError(f"{where}: found {value!r}, expected an object")
    for key in value:
        if key not in known:
            raise unknown("key", key, sorted(known), where)


def _column(name: str, value: Any, where: str) -> Column:
    value = {"from": value} if isinstance(value, str | list) else value
    known = {f.name for f in fields(Column)} - {"source", "terms"} | {"from", "expr"}
    _keys(value, known, where)
    unit = value.get("unit", "")
    if unit:
        _fits(name, si(unit, f"{where}: unit")[0], where)
    for key, choices in (("quaternion", QUATERNIONS), ("frame", ("world", "body"))):
        if key in value and value[key] not in list(choices):
            raise unknown(key, str(value[key])[:80], choices, where)
    if "frame" in value and name not in FRAMES:
        raise SurefootError(f"{where}: frame: only {' and '.join(FRAMES)} have one")
    sign, scale, offset = (
        _per_part(value, k, f"{where}: {k}", d) for k, d in (("sign", 1.0), ("scale", 1.0), ("offset", 0.0))
    )
    source, terms = _origin(value, where)
    return Column(
        source, unit, _names(value.get("names", []), f"{where}: names"), sign, scale, offset,
        value.get("quaternion", "wxyz"), value.get("frame", ""), _bits(value, where), bool(value.get("hold", False)), terms,
    )  # fmt: skip


def _origin(value: Dict[str, Any], where: str) -> tuple[tuple[str, ...], tuple[Expression, ...]]:
    """The names in the file that a column needs, and the arithmetic over them, if any."""
    key = "expr" if "expr" in value else "from"
    if {"from", "expr"} <= value.keys() or (key == "expr" and value.get("signed")):
        raise SurefootError(
            f"{where}: expr: found `{'from' if 'from' in value else 'signed'}` beside it, expected one of them"
        )
    given = value.get(key)
    given = [given] if isinstance(given, str) else given
    if not isinstance(given, list) or not given or not all(isinstance(s, str) for s in given):
        kind = "an expression" if key == "expr" else "a name"
        raise SurefootError(f"{where}: {key}: found {value.get(key)!r}, expected {kind} or a list of them")
    if key == "from":
        return tuple(p for s in given for p in expand(s, where)), ()
    check_count("expressions", len(given), where, 4096)
    terms = tuple(parse(text, f"{where}: expr") for text in given)
    return tuple(dict.fromkeys(p for t in terms for n in t.names() for p in expand(n, where))), terms


def _names(value: Any, where: str) -> tuple[str, ...]:
    """Different names: a list, each of which may be a pattern, or one pattern."""
    given = [value] if isinstance(value, str) else value
    if not isinstance(given, list) or not all(isinstance(n, str) for n in given):
        raise SurefootError(f"{where}: found {value!r}, expected a list of different names")
    names = tuple(p for n in given for p in expand(n, where))
    if len(set(names)) < len(names):
        raise SurefootError(f"{where}: found {value!r}, expected a list of different names")
    return names


def _fits(name: str, unit: str, where: str) -> None:
    """A column of the schema has a dimension: degrees are no torque. A slide joint is in metres."""
    want = UNITS.get(name, unit)
    linear = {"rad": "m", "rad/s": "m/s", "N m": "N"}
    if unit != want and not (name.startswith("joint_") and unit == linear[want]):
        raise SurefootError(f"{where}: unit: found {unit}, expected a unit of {want}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _per_part(value: Dict[str, Any], key: str, where: str, default: float) -> tuple[float, ...]:
    found = value.get(key, default)
    found = found if isinstance(found, list) else [found]
    if not found or not all(_is_number(v) for v in found):
        raise SurefootError(f"{where}: found {value.get(key)!r}, expected a number or a list of them")
    if key == "sign" and not all(abs(v) == 1 for v in found):
        raise SurefootError(f"{where}: found {value.get(key)!r}, expected 1 or -1; other factors are `scale`")
    return tuple(float(v) for v in found)


def _bits(value: Dict[str, Any], where: str) -> int:
    bits = value.get("signed", 0)
    if type(bits) is not int or not (bits == 0 or 2 <= bits <= 32):
        raise SurefootError(f"{where}: signed: found {bits!r}, expected a number of bits, 2 to 32")
    return bits


def expand(pattern: str, where: str = "from") -> list[str]:
    """jpos{0..2} -> jpos0 jpos1 jpos2;  {FL,FR}_{hip,calf} -> FL_hip FL_calf FR_hip FR_calf."""
    pieces: list[list[str]] = []
    for text in re.split(r"(\{[^{}]*\})", pattern):
        if not text.startswith("{"):
            pieces.append([text])
        elif count := re.fullmatch(r"\{(\d{1,4})\.\.(\d{1,4})\}", text):
            first, last = int(count[1]), int(count[2])
            pieces.append([str(k) for k in (range(first, last + 1) if first <= last else range(first, last - 1, -1))])
        elif "," in text:
            pieces.append([w.strip() for w in text[1:-1].split(",")])
        else:
            raise SurefootError(f"{where}: found {text} in {pattern!r}, expected {{0..11}} or {{a,b}}")
    if math.prod(len(p) for p in pieces) > 4096:
        raise SurefootError(f"{where}: {pattern!r} is more than 4096 names")
    return ["".join(p) for p in itertools.product(*pieces)]


def pick(
    column: Column, columns: Dict[str, np.ndarray], names: Dict[str, list[str]], where: str, constants: Dict[str, Any]
) -> np.ndarray:
    """A column from the file's numbers, in SI, (T,) or (T, k), with parts in the order of its names."""
    if column.terms:
        x, called = _computed(column, columns, names, where, constants), [""]
    else:
        found = [_source(source, columns, names, where) for source in column.source]
        x = np.concatenate([x for x, _ in found], axis=1)
        called = [n for x, here in found for n in here or [""] * x.shape[1]]
    if column.names and all(called):
        missing = [n for n in column.names if n not in called]
        if missing:
            raise unknown("part", missing[0], called, where)
        x = x[:, [called.index(n) for n in column.names]]
    elif column.names and len(column.names) != x.shape[1]:
        raise SurefootError(f"{where}: names: found {len(column.names)} for {x.shape[1]} parts")
    if column.signed:
        half = 2.0 ** (column.signed - 1)
        x = (x + half) % (2 * half) - half
    factor = si(column.unit, where)[1] if column.unit else 1.0
    sign, scale, offset = (_wide(v, x.shape[1], where) for v in (column.sign, column.scale, column.offset))
    value = sign * factor * (scale * x) + offset
    single = len(column.terms or column.source) == 1 and x.shape[1] == 1 and not column.names
    return value[:, 0] if single else value


def _computed(
    column: Column, columns: Dict[str, np.ndarray], names: Dict[str, list[str]], where: str, constants: Dict[str, Any]
) -> np.ndarray:
    """(T, k) of a column's expressions, side by side."""

    def look(name: str) -> np.ndarray:
        each = expand(name, where)
        if len(each) == 1 and name not in columns and _is_number(constants.get(name)):
            return np.full((1, 1), float(constants[name]))
        return np.concatenate([_source(n, columns, names, where, constants)[0] for n in each], axis=1)

    rows = len(next(iter(columns.values()))) if columns else 0
    each = [term.value(look, where) for term in column.terms]
    return np.concatenate([np.broadcast_to(x, (rows, x.shape[1])) for x in each], axis=1)


def _wide(values: tuple[float, ...], k: int, where: str) -> np.ndarray:
    if len(values) not in (1, k):
        raise SurefootError(f"{where}: found {len(values)} numbers of sign, scale or offset for {k} parts")
    return np.broadcast_to(np.array(values), k)


def _source(
    source: str,
    columns: Dict[str, np.ndarray],
    names: Dict[str, list[str]],
    where: str,
    constants: Iterable[str] | None = None,
) -> tuple[np.ndarray, list[str]]:
    """One source as (T, k), and the names of its parts in the file; `constants` are further names that could be meant."""
    if source in columns:
        x = columns[source]
        return (x[:, None] if x.ndim == 1 else x).astype(float), names.get(source, [])
    part = re.fullmatch(r"(.+)\[(\d+)(?::(\d+))?\]", source)
    if not part or part[1] not in columns:
        key = "from" if constants is None else "expr"
        raise unknown(
            "column of the file", part[1] if part else source, [*columns, *(constants or ())], f"{where}: {key}"
        )
    x = columns[part[1]]
    x = x[:, None] if x.ndim == 1 else x
    first, end = int(part[2]), int(part[3] or int(part[2]) + 1)
    if not first < end <= x.shape[1]:
        raise SurefootError(f"{where}: from: found {source}, {part[1]} has parts 0 to {x.shape[1] - 1}")
    return x[:, first:end].astype(float), names.get(part[1], [])[first:end]


def finish(name: str, column: Column, x: np.ndarray, where: str) -> np.ndarray:
    """With the width and quaternion order of the schema."""
    if name in WIDTHS and (x.ndim != 2 or x.shape[1] != WIDTHS[name]):
        raise SurefootError(f"{where}: found {1 if x.ndim == 1 else x.shape[1]} parts, expected {WIDTHS[name]}")
    if name in ("joint_pos", "joint_vel", "joint_torque", "control") and x.ndim == 1:
        x = x[:, None]
    if not name.endswith("quat"):
        return x
    q = x[:, QUATERNIONS[column.quaternion]]
    size = np.linalg.norm(q, axis=1)
    bad = np.flatnonzero(np.abs(size - 1) > 0.02)
    if len(bad):
        raise SurefootError(
            f"{where}: row {bad[0]}: found {listed(map(str, q[bad[0]]))} of length {size[bad[0]]:.3g}, expected a unit quaternion"
        )
    return q / size[:, None]


def turned(columns: dict[str, np.ndarray], mapped: Mapping) -> dict[str, np.ndarray]:
    """Velocities in the schema's frames: base_lin_vel in the world frame, base_ang_vel in the body frame."""
    out = dict(columns)
    for name, frame in FRAMES.items():
        given = mapped.columns[name].frame if name in mapped.columns else ""
        if given and given != frame:
            if "base_quat" not in columns:
                raise SurefootError(f"columns: {name}: frame: found {given}; turning it needs base_quat in the mapping")
            out[name] = (to_body if frame == "body" else to_world)(columns["base_quat"], columns[name])
    return out
