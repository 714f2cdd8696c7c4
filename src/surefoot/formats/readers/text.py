"""CSV and JSON.

CSV: a header line with names, then rows of numbers; `,` `;` tab or spaces between; an empty cell is nan.
JSON: {"name": [...], ...} columns, or [{"name": value, ...}, ...] records, or one such list inside an object
whose other members are constants ({"mass": 0.49, "entries": [...]}).
"""

import csv
import math
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from surefoot import files
from surefoot.errors import SurefootError
from surefoot.files import DIGITS
from surefoot.formats.raw import LARGEST, Raw, Stream, check_count, from_arrays, from_records, listed

LONGEST_NAME = 1000  # characters of a column's
MISSING = {"", "nan", "na", "n/a", "null", "none"}
TRUTH = {"true": 1.0, "false": 0.0}


def read_csv(path: Path) -> Raw:
    text = _text(path)
    lines = re.split(r"\r\n|\n|\r", text)
    first = next((k for k, line in enumerate(lines) if line.replace("#", "").strip()), None)
    if first is None:
        raise SurefootError(f"{path}: found an empty file, expected a header line and rows")
    split = _splitter(path, lines[first])
    names, body = _names(split(lines[first].lstrip("# ")), first)
    check_count("columns", len(names), f"{path}: line {first + 1}")
    longest = max(map(len, names))
    if longest > LONGEST_NAME:
        raise SurefootError(
            f"{path}: line {first + 1}: found a name of {longest} characters, expected at most {LONGEST_NAME}"
        )
    if len(set(names)) < len(names):
        twice = Counter(names).most_common(1)[0][0]
        raise SurefootError(f"{path}: line {first + 1}: found column {twice!r} twice, expected each name once")
    rows = [(k + 1, line) for k, line in enumerate(lines[body:], body) if line.strip() and line[0] != "#"]
    if not rows:
        raise SurefootError(f"{path}: found the header {listed(names)} and no rows")
    cells = split(rows[0][1])
    lists = {k: len(parts) for k, cell in enumerate(cells[: len(names)]) if (parts := _parts(cell)) is not None}
    texts = {n: None for k, (n, cell) in enumerate(zip(names, cells)) if _number(cell) is None and k not in lists}
    keep = [k for k, n in enumerate(names) if n not in texts and k not in lists]
    check_count("columns", len(names) + sum(lists.values()), f"{path}: line {rows[0][0]}")
    if not keep and not lists:
        raise SurefootError(f"{path}: line {rows[0][0]}: found no number among {listed(cells)}")
    table = _table(path, rows, split, names, keep)
    notes = [f"{n}: text" for n in texts]
    if lines[-1].strip():
        notes.append(f"line {len(lines)}: the file ends within a line; its last number may be incomplete")
    columns = {names[k]: table[:, j] for j, k in enumerate(keep)}
    columns |= {names[k]: _vectors(path, rows, split, names[k], (k, width)) for k, width in lists.items()}
    return Raw({"": Stream({n: columns[n] for n in names if n in columns})}, units=_units(names), notes=notes)


def _parts(cell: str) -> list[float] | None:
    """The numbers of a cell with a list, such as [0.1, 0.2]; None for other cells."""
    if not (cell.startswith("[") and cell.endswith("]")):
        return None
    found = [_number(word) for word in cell[1:-1].split(",")]
    return None if None in found else [x for x in found if x is not None]


def _vectors(
    path: Path, rows: list[tuple[int, str]], split: Callable[[str], list[str]], name: str, at: tuple[int, int]
) -> np.ndarray:
    """(T, width) of a column of lists; `at` is the number of the column, and the length of its first row."""
    k, width = at
    table = np.empty((len(rows), width))
    for i, (line, text) in enumerate(rows):
        parts = _parts(split(text)[k])
        if parts is None or len(parts) != width or any(map(math.isinf, parts)):
            raise SurefootError(f"{path}: line {line}: {name}: expected a list of {width} numbers, as in the first row")
        table[i] = parts
    return table


def _text(path: Path) -> str:
    try:
        text = files.read_bytes(path, LARGEST).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SurefootError(f"{path}: byte {error.start}: expected UTF-8 text") from None
    if "\0" in text:
        raise SurefootError(f"{path}: character {text.index(chr(0))}: found a zero byte, expected text")
    return text


def _splitter(path: Path, header: str) -> Callable[[str], list[str]]:
    counts = {d: header.count(d) for d in (",", ";", "\t")}
    best = max(counts, key=lambda d: counts[d])
    if not counts[best]:
        return str.split

    def split(line: str) -> list[str]:
        if '"' not in line:
            return [c.strip() for c in line.split(best)]
        try:
            return [c.strip() for c in next(csv.reader([line], delimiter=best, strict=True))]
        except csv.Error as error:
            raise SurefootError(f"{path}: found the line {line[:60]!r}: {error}") from None

    return split


def _names(cells: list[str], first: int) -> tuple[list[str], int]:
    """Names and the first line of numbers; a file without a header line has columns 0, 1, ..."""
    if all(_number(c) is not None for c in cells):
        return [str(k) for k in range(len(cells))], first
    return [c or str(k) for k, c in enumerate(cells)], first + 1


def _units(names: list[str]) -> dict[str, str]:
    """The unit in `speed [rad/s]` or `speed (rad/s)`."""
    found = {n: re.search(r"[\[(]([^\[\]()]+)[\])]$", n) for n in names}
    return {n: m.group(1) for n, m in found.items() if m}


def _table(
    path: Path, rows: list[tuple[int, str]], split: Callable[[str], list[str]], names: list[str], keep: list[int]
) -> np.ndarray:
    table = np.empty((len(rows), len(keep)))
    for i, (line, text) in enumerate(rows):
        cells = split(text)
        if len(cells) != len(names):
            raise SurefootError(f"{path}: line {line}: found {len(cells)} cells, expected {len(names)}")
        try:
            values = [float(cells[k]) for k in keep]
        except ValueError:
            values = [math.inf]  # checked below
        if math.inf in values or -math.inf in values or "_" in text:  # Python reads 1_0 as a number
            values = [_cell(cells[k], f"{path}: line {line}: {names[k]}") for k in keep]
        table[i] = values
    return table


def _cell(cell: str, where: str) -> float:
    value = _number(cell)
    if value is None or (math.isinf(value) and "inf" not in cell.lower()):
        raise SurefootError(f"{where}: found {cell[:40]!r}, expected a number within 1e308")
    return value


def _number(cell: str) -> float | None:
    word = cell.strip().lower()
    if word in MISSING:
        return math.nan
    if word in TRUTH:
        return TRUTH[word]
    try:
        return float(word) if len(word) < DIGITS and "_" not in word else None
    except ValueError:
        return None


def read_json(path: Path) -> Raw:
    value = files.parse_json(_text(path), str(path), nan=True)
    if isinstance(value, list):
        return _records(value, {}, path)
    if not isinstance(value, dict):
        raise SurefootError(f"{path}: found {str(value)[:40]!r}, expected an object of columns or a list of records")
    inside = [k for k, v in value.items() if isinstance(v, list) and v and isinstance(v[0], dict)]
    if len(inside) == 1:
        constants = {k: v for k, v in value.items() if k != inside[0] and not isinstance(v, list)}
        return _records(value[inside[0]], constants, path)
    if inside:
        raise SurefootError(f"{path}: found lists of records {listed(inside)}, expected one")
    return _columns(value, path)


def _columns(value: dict[str, Any], path: Path) -> Raw:
    lists = {k: v for k, v in value.items() if isinstance(v, list) and v}
    arrays: dict[str, np.ndarray] = {}
    notes: list[str] = []
    for name, column in lists.items():
        stream, more = from_records([{name: v} for v in column], str(path))
        arrays |= stream.columns
        notes += more
    raw = from_arrays(arrays, str(path))
    constants = {k: v for k, v in value.items() if not isinstance(v, list)}
    return Raw(raw.streams, constants | raw.constants, notes=notes + raw.notes)


def _records(records: list[Any], constants: dict[str, Any], path: Path) -> Raw:
    for k, record in enumerate(records):
        if not isinstance(record, dict):
            raise SurefootError(f"{path}: row {k}: found {str(record)[:40]!r}, expected an object")
    stream, notes = from_records(records, str(path))
    if not stream.columns:
        raise SurefootError(f"{path}: found {len(records)} records and no numbers in them")
    return Raw({"": stream}, constants, notes=notes)
