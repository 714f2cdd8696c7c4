"""Mapping: what a file's columns are in our schema, with our units, signs, order and frames.

value = sign * factor(unit) * (scale * x) + offset     offset in SI; sign, scale, offset: one number, or one for each part

{"rate": 200,
 "time": {"from": "timestamp", "unit": "ms"},
 "columns": {"joint_pos": {"from": "jpos{0..11}", "names": ["FL_hip_joint", ...], "unit": "deg"}},
 "constants": {"kp": 20.0}}
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
    """`from`: names in the file; {0..11} counts, {a,b} lists, x[3:7] takes parts of a wide one"""
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

    @staticmethod
    def read(path: str | Path) -> "Mapping":
        return Mapping.from_json(files.read_json(Path(path)), str(path))

    @staticmethod
    def from_json(value: Any, where: str = "mapping") -> "Mapping":
        _keys(value, {"rate", "time", "columns", "constants", "about"}, where)
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
        return Mapping(columns, str(time.get("from", "")), str(time.get("unit", "")), rate, constants)


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
    known = {f.name for f in fields(Column)} - {"source"} | {"from"}
    _keys(value, known, where)
    source = value.get("from")
    source = [source] if isinstance(source, str) else source
    if not isinstance(source, list) or not source or not all(isinstance(s, str) for s in source):
        raise SurefootError(f"{where}: from: found {value.get('from')!r}, expected a name or a list of names")
    unit = value.get("unit", "")
    if unit:
        _fits(name, si(unit, f"{where}: unit")[0], where)
    for key, choices in (("quaternion", QUATERNIONS), ("frame", ("world", "body"))):
        if key in value and value[key] not in list(choices):
            raise unknown(key, str(value[key])[:80], choices, where)
    if "frame" in value and name not in FRAMES:
        raise SurefootError(f"{where}: frame: only {' and '.join(FRAMES)} have one")
    names = value.get("names", [])
    if not isinstance(names, list) or not all(isinstance(n, str) for n in names) or len(set(names)) < len(names):
        raise SurefootError(f"{where}: names: found {names!r}, expected a list of different names")
    sign, scale, offset = (
        _per_part(value, k, f"{where}: {k}", d) for k, d in (("sign", 1.0), ("scale", 1.0), ("offset", 0.0))
    )
    return Column(
        tuple(p for s in source for p in expand(s, where)), unit, tuple(names), sign, scale, offset,
        value.get("quaternion", "wxyz"), value.get("frame", ""), _bits(value, where), bool(value.get("hold", False)),
    )  # fmt: skip


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
            raise SurefootError(f"{where}: from: found {text} in {pattern!r}, expected {{0..11}} or {{a,b}}")
    if math.prod(len(p) for p in pieces) > 4096:
        raise SurefootError(f"{where}: from: {pattern!r} is more than 4096 names")
    return ["".join(p) for p in itertools.product(*pieces)]


def pick(column: Column, columns: Dict[str, np.ndarray], names: Dict[str, list[str]], where: str) -> np.ndarray:
    """A column from the file's numbers, in SI, (T,) or (T, k), with parts in the order of its names."""
    parts, called = [], []
    for source in column.source:
        x, called_here = _source(source, columns, names, where)
        parts.append(x)
        called += called_here or [""] * x.shape[1]
    x = np.concatenate(parts, axis=1)
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
    single = len(column.source) == 1 and x.shape[1] == 1 and not column.names
    return value[:, 0] if single else value


def _wide(values: tuple[float, ...], k: int, where: str) -> np.ndarray:
    if len(values) not in (1, k):
        raise SurefootError(f"{where}: found {len(values)} numbers of sign, scale or offset for {k} parts")
    return np.broadcast_to(np.array(values), k)


def _source(
    source: str, columns: Dict[str, np.ndarray], names: Dict[str, list[str]], where: str
) -> tuple[np.ndarray, list[str]]:
    """One source as (T, k), and the names of its parts in the file."""
    if source in columns:
        x = columns[source]
        return (x[:, None] if x.ndim == 1 else x).astype(float), names.get(source, [])
    part = re.fullmatch(r"(.+)\[(\d+)(?::(\d+))?\]", source)
    if not part or part[1] not in columns:
        raise unknown("column of the file", part[1] if part else source, columns, f"{where}: from")
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
