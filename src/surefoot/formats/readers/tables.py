"""Parquet files, and LeRobot v3 datasets, which are folders of them.

meta/info.json (fps, features)   meta/episodes/chunk-*/file-*.parquet   data/chunk-000/file-000.parquet
"""

import math
from pathlib import Path
from typing import Any

import numpy as np

from surefoot import files
from surefoot.errors import SurefootError
from surefoot.formats.raw import WIDEST, Raw, Stream, from_arrays, plain

MOST = 512 << 20  # bytes of one table in memory


def read_parquet(path: Path, only: tuple[str, int] | None = None) -> Raw:
    """The numeric columns of a table; with `only`, the rows where a column has that value."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(path, page_checksum_verification=True)
        size = file.metadata.num_rows * max(1, file.metadata.num_columns)
        if not 0 <= size <= MOST // 8:
            raise SurefootError(f"{path}: found {size} cells declared, expected at most {MOST // 8}")
        keep, notes = _numeric(file.schema_arrow)
        table = file.read(columns=keep, use_threads=False)
        if only is not None:
            table = table.filter(pc.equal(table[only[0]], only[1]))
        arrays = {name: _array(table[name].combine_chunks(), name, notes) for name in keep}
    except (SurefootError, MemoryError):
        raise
    except Exception as error:  # arrow's errors are OSError, ValueError, KeyError and kinds of its own
        raise SurefootError(f"{path}: {type(error).__name__}: {str(error)[:200]}; expected Parquet") from None
    raw = from_arrays({k: a for k, a in arrays.items() if a is not None}, str(path))
    stamps = {f.name: "ns" for f in file.schema_arrow if pa.types.is_timestamp(f.type) or pa.types.is_duration(f.type)}
    return Raw(raw.streams, raw.constants, stamps, notes=notes + raw.notes)


def _numeric(schema: Any) -> tuple[list[str], list[str]]:
    """Names of columns of numbers or of lists of numbers, and notes on the others."""
    import pyarrow.types as t

    def number(kind: Any) -> bool:
        return t.is_integer(kind) or t.is_floating(kind) or t.is_boolean(kind) or t.is_timestamp(kind) or t.is_duration(kind)  # fmt: skip

    def numbers(kind: Any) -> bool:
        lists = t.is_list(kind) or t.is_large_list(kind) or t.is_fixed_size_list(kind)
        return number(kind) or (lists and number(kind.value_type))

    keep = [f.name for f in schema if numbers(f.type)]
    if not keep:
        raise SurefootError(f"found columns {', '.join(f'{f.name} ({f.type})' for f in schema)}, expected numbers")
    return keep, [f"{f.name}: {f.type}" for f in schema if not numbers(f.type)]


def _array(column: Any, name: str, notes: list[str]) -> np.ndarray | None:
    """An arrow column as (T,) or (T, k); nulls are nan. None, with a note, where lists differ in length."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        return column.cast(pa.int64()).to_numpy(zero_copy_only=False) * _ns(kind.unit)
    if not hasattr(kind, "value_type"):
        return column.to_numpy(zero_copy_only=False)
    lengths = np.unique(pc.list_value_length(column).to_numpy(zero_copy_only=False))
    if len(lengths) != 1 or math.isnan(lengths[0]) or not 0 < lengths[0] <= WIDEST:
        notes.append(f"{name}: lists of different or great length")
        return None
    return column.flatten().to_numpy(zero_copy_only=False).reshape(len(column), int(lengths[0]))


def _ns(unit: str) -> int:
    return {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}[unit]


def read_lerobot(folder: Path, episode: int) -> Raw:
    info = files.read_json(folder / "meta" / "info.json")
    version = info.get("codebase_version") if isinstance(info, dict) else None
    if not str(version).startswith("v3"):
        raise SurefootError(f"{folder}: meta/info.json: codebase_version: found {version!r}, expected v3.x")
    row = _episode(folder, episode)
    chunk, number = int(row["data/chunk_index"]), int(row["data/file_index"])
    path = folder / "data" / f"chunk-{chunk:03d}" / f"file-{number:03d}.parquet"
    if not path.is_file():
        raise SurefootError(f"{folder}: episode {episode}: found no {path.relative_to(folder)}")
    raw = read_parquet(path, ("episode_index", episode))
    features = info["features"] if isinstance(info.get("features"), dict) else {}
    columns = {k: v for k, v in raw.streams[""].columns.items() if k not in ("index", "episode_index")}
    names = {k: n for k, v in columns.items() if v.ndim == 2 and len(n := _names(features.get(k))) == v.shape[1]}
    constants = {k: plain(info[k]) for k in ("fps", "robot_type") if isinstance(info.get(k), str | int | float)}
    constants |= {"episode": episode}
    films = [f"{k}: video" for k, f in features.items() if isinstance(f, dict) and f.get("dtype") == "video"]
    units = {"timestamp": "s"} | raw.units
    return Raw({"": Stream(columns, names)}, constants, units, notes=raw.notes + films)


def _episode(folder: Path, episode: int) -> dict[str, Any]:
    """The file of an episode, from the dataset's own table."""
    seen = []
    for path in sorted((folder / "meta" / "episodes").glob("chunk-*/file-*.parquet")):
        columns = read_parquet(path)
        table = columns.streams[""].columns | {k: np.array([v]) for k, v in columns.constants.items()}
        for name in ("episode_index", "data/chunk_index", "data/file_index"):
            if name not in table:
                raise SurefootError(f"{path}: found no column {name}")
        seen += list(table["episode_index"])
        at = np.flatnonzero(table["episode_index"] == episode)
        if len(at):
            return {k: v[at[0]] for k, v in table.items() if k.startswith("data/")}
    range_ = f"{min(seen):.0f} to {max(seen):.0f}" if seen else "none"
    raise SurefootError(f"{folder}: episode: found {episode}, expected {range_}")


def _names(feature: Any) -> list[str]:
    """Names of a feature's parts: a list, or an object with one list ({"motors": [...]})."""
    names = feature.get("names") if isinstance(feature, dict) else None
    if isinstance(names, dict) and len(names) == 1:
        names = next(iter(names.values()))
    return [str(n) for n in names] if isinstance(names, list) else []
