"""Log: named columns over time and their origin: a rollout, a real log, a reference motion, an excitation plan.

    time (T,) seconds, strictly increasing        columns[name] (T,) or (T, k), one row per time

On disk it is one npz: `time`, `columns/<name>`, and `header`, a JSON text with units and meta. While it grows it is a file of
rows, of which every whole row can be read, wherever its writer was killed:

    magic, a line of JSON {"columns": [[name, width, type], ...], "units", "meta"}, rows of float64; a width of 0 is a plain number
"""

import io
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from surefoot import files
from surefoot.errors import SurefootError, unknown

FORMAT = "surefoot.log/1"
ROWS, LONGEST = b"SFROWS1\n", 1 << 20  # magic of a file of rows, and bytes of its line of JSON
TYPES: dict[str, Any] = {"f8": np.float64, "f4": np.float32, "i8": np.int64, "b1": np.bool_}
WIDEST = 1 << 20  # numbers in a row


@dataclass(frozen=True, eq=False)
class Log:
    """Arrays are read-only copies. Times are finite; a column is nan where nothing was measured, and for infinities."""

    time: np.ndarray
    columns: dict[str, np.ndarray]
    units: dict[str, str] = field(default_factory=dict)
    meta: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "time", _frozen("time", np.array(self.time, copy=True)))
        object.__setattr__(self, "columns", {k: _measured(f"column {k}", np.array(v)) for k, v in self.columns.items()})
        object.__setattr__(self, "units", dict(self.units))
        object.__setattr__(self, "meta", dict(self.meta))
        _check_time(self.time)
        for name, column in self.columns.items():
            if column.ndim not in (1, 2) or len(column) != len(self):
                raise SurefootError(
                    f"column {name}: found shape {column.shape}, expected ({len(self)},) or ({len(self)}, k)"
                )
        for name in self.units:
            if name not in self.columns:
                raise unknown("column", name, self.columns, "units")

    def __len__(self) -> int:
        return len(self.time)

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self.columns:
            raise unknown("column", name, self.columns)
        return self.columns[name]

    @property
    def rate(self) -> float:
        """Rows per second, from the median step."""
        if len(self) < 2:
            raise SurefootError(f"rate: found {len(self)} rows, expected at least 2")
        return float(1 / np.median(np.diff(self.time)))

    def slice(self, t0: float, t1: float) -> "Log":
        """The rows with t0 <= time < t1, at their own times; neighbouring slices share no row."""
        rows = (t0 <= self.time) & (self.time < t1)
        return Log(self.time[rows], {k: v[rows] for k, v in self.columns.items()}, self.units, self.meta)

    def save(self, path: str | Path) -> Path:
        """Write the npz atomically. Equal logs give equal bytes."""
        path = Path(path)
        files.check_writable(path, "log", ".npz")
        try:
            header = json.dumps({"format": FORMAT, "units": self.units, "meta": self.meta}, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise SurefootError(f"{path}: meta: {error}; expected JSON values") from None
        arrays = {"header": np.array(header), "time": self.time, **{f"columns/{k}": v for k, v in self.columns.items()}}
        npz = io.BytesIO()
        np.savez(npz, **arrays)  # type: ignore[arg-type]
        files.write(path, npz.getvalue())
        return path

    @staticmethod
    def load(path: str | Path) -> "Log":
        """The log `save` wrote, bit for bit. Nothing in the file is executed."""
        from surefoot.formats.readers.arrays import load  # the readers need more than numpy

        arrays = load(Path(path))
        try:
            header = read_header(arrays)
            columns = {k.removeprefix("columns/"): v for k, v in arrays.items() if k.startswith("columns/")}
            return Log(arrays["time"], columns, header["units"], header["meta"])
        except SurefootError as error:
            raise SurefootError(f"{path}: {error}") from None

    @staticmethod
    def read(
        path: str | Path, mapping: Any = None, rate: float | None = None, episode: int = 0, mend: bool = False
    ) -> "Log":
        """A robot's recording: CSV, JSON, NPZ, MATLAB, Parquet, MCAP, a rosbag2 or LeRobot v3 folder (docs/logs.md).

        Without a mapping (a formats.mapping.Mapping, its JSON file, or the object in it) columns keep their own names.
        `rate` [Hz] is the rate of the result: of the rows if the file has no clock, else it is resampled to it. `episode`
        selects one of a dataset. Time stamps that repeat or go back are an error; `mend` drops them and reports it.
        """
        from surefoot.formats import read  # the readers need more than numpy

        return read(path, mapping, rate, episode, mend)


def _frozen(where: str, array: np.ndarray) -> np.ndarray:
    if array.dtype.kind not in "biuf":
        raise SurefootError(f"{where}: found {array.dtype.name} values, expected numbers")
    array.setflags(write=False)
    return array


def _measured(where: str, array: np.ndarray) -> np.ndarray:
    """No sensor reads infinity: it counts as not measured."""
    if array.dtype.kind == "f":
        array[np.isinf(array)] = np.nan
    return _frozen(where, array)


def _check_time(time: np.ndarray) -> None:
    if time.ndim != 1:
        raise SurefootError(f"time: found shape {time.shape}, expected (T,)")
    bad = np.flatnonzero(~np.isfinite(time))
    if len(bad):
        raise SurefootError(f"time: row {bad[0]}: found {time[bad[0]]}, expected a finite number of seconds")
    bad = np.flatnonzero(~(time[1:] > time[:-1])) + 1
    if len(bad):
        raise SurefootError(
            f"time: row {bad[0]}: found {time[bad[0]]} after {time[bad[0] - 1]}, expected strictly increasing"
        )


Column = tuple[str, int, str]
"""name, width (0: a plain number), type"""


def rows_head(columns: Sequence[Column], units: Mapping[str, str], meta: Mapping[str, Any]) -> bytes:
    """How a file of rows begins; `time` is the first column."""
    body = {"columns": [list(c) for c in columns], "units": dict(units), "meta": dict(meta)}
    return ROWS + json.dumps(body, allow_nan=False).encode() + b"\n"


def from_rows(data: bytes) -> Log:
    """The log in a file of rows: its whole rows. Times begin at 0; rows that were measured at one instant are 1 us apart."""
    end = data.find(b"\n", len(ROWS), LONGEST)
    if not data.startswith(ROWS) or end < 0:
        raise SurefootError("found no line of JSON at its beginning, expected a file of rows that `surefoot run` wrote")
    header = files.parse_json(data[len(ROWS) : end], "header")
    columns = _columns(header)
    widths = [max(w, 1) for _, w, _ in columns]
    size = 8 * sum(widths)
    rows = (len(data) - end - 1) // size
    if rows < 2:
        raise SurefootError(f"found {rows} whole rows, expected at least 2")
    table = np.frombuffer(data, "<f8", rows * (size // 8), end + 1).reshape(rows, -1)
    parts = np.split(table, np.cumsum(widths)[:-1], 1)
    with np.errstate(invalid="ignore", over="ignore"):  # of what a stranger wrote
        found = {name: (x[:, 0] if not w else x).astype(TYPES[t]) for (name, w, t), x in zip(columns, parts)}
        time = found.pop("time")
        time = time - time[0]
    for k in np.flatnonzero(np.diff(time) <= 0) + 1:
        time[k] = max(time[k], time[k - 1] + 1e-6)
    return Log(time, found, {k: u for k, u in header["units"].items() if k in found}, header["meta"])


def _columns(header: Any) -> list[Column]:
    if not isinstance(header, dict):
        raise SurefootError(f"header: expected an object, found {type(header).__name__}")
    check_header(header)
    found = header.get("columns")
    plain = isinstance(found, list) and all(
        isinstance(c, list) and len(c) == 3 and isinstance(c[0], str) for c in found
    )
    if not plain or not found or found[0] != ["time", 0, "f8"] or len({c[0] for c in found}) != len(found):
        raise SurefootError("header: columns: expected [name, width, type] of each column once, `time` first")
    for name, width, kind in found:
        if type(width) is not int or not 0 <= width <= WIDEST or kind not in TYPES:
            raise SurefootError(f"header: columns: {name[:80]}: expected a width and one of {', '.join(TYPES)}")
    if sum(c[1] for c in found) > WIDEST:
        raise SurefootError(f"header: columns: found more than {WIDEST} numbers in a row")
    return [(c[0], c[1], c[2]) for c in found]


def read_header(arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """The header among the arrays of an npz that `save` wrote."""
    for name in ("header", "time"):
        if name not in arrays:
            raise SurefootError(f"{name}: found none among {', '.join(arrays) or 'no arrays'}; expected a {FORMAT} npz")
    header = files.parse_json(str(arrays["header"]), "header")
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        found = header.get("format") if isinstance(header, dict) else header
        raise SurefootError(f"header: found format {found!r:.80}, expected {FORMAT!r}")
    check_header(header)
    return header


def check_header(header: dict[str, Any]) -> None:
    """Units and meta of a log's header are what verbs expect."""
    for name in ("units", "meta"):
        if not isinstance(header.get(name), dict):
            raise SurefootError(f"header: {name}: found {header.get(name)!r:.80}, expected an object")
    for name, unit in header["units"].items():
        if not isinstance(unit, str):
            raise SurefootError(f"header: units: {name}: found {unit!r:.80}, expected a text")
    _check_meta(header["meta"])


def _check_meta(meta: dict[str, Any]) -> None:
    """Entries of meta that verbs use have the expected type; others are free."""
    for key, (fits, words) in META.items():
        if key in meta and not fits(meta[key]):
            raise SurefootError(f"header: meta: {key}: found {meta[key]!r:.80}, expected {words}")


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(v, str) for v in value)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _holes(value: Any) -> bool:
    pairs = isinstance(value, list) and all(isinstance(g, list) and len(g) == 2 for g in value)
    return pairs and all(_number(t0) and _number(t1) and t0 <= t1 for t0, t1 in value)


def _objects(value: Any, inner: Callable[[Any], bool]) -> bool:
    return isinstance(value, dict) and all(map(inner, value.values()))


META: dict[str, tuple[Callable[[Any], bool], str]] = {
    "names": (lambda v: _objects(v, _texts), "a list of texts for each column"),
    "hold": (_texts, "a list of texts"),
    "notes": (_texts, "a list of texts"),
    "mended": (_texts, "a list of texts"),
    "gaps": (_holes, "a list of [start, end] in seconds"),
    "constants": (lambda v: isinstance(v, dict), "an object"),
    "streams": (lambda v: _objects(v, lambda x: isinstance(x, dict) and _number(x.get("rows"))), "rows of each stream"),
    "epoch": (_number, "a number of seconds"),
}
