"""Reads what real robots wrote: CSV, JSON, NPZ, MATLAB, Parquet, MCAP, rosbag2, LeRobot v3, into a Log.

    file -> Raw (streams of named columns) -> [mapping: our names, SI units] -> one clock -> Log

Foreign files are broken or hostile until read: whatever is wrong with one is a SurefootError that names it.
"""

import itertools
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from surefoot import files
from surefoot.errors import MissingExtra, SurefootError, nearest
from surefoot.formats.raw import LARGEST, Raw, check
from surefoot.log import Log

SMALL = 1 << 20  # bytes of text or of an npz that are read in this process; all else in one of its own
ARRAYS = 16 << 20  # bytes of arrays in such an npz
FILES = 100_000  # in a folder


def _csv(path: Path, episode: int) -> Raw:
    from surefoot.formats.text import read_csv

    return read_csv(path)


def _json(path: Path, episode: int) -> Raw:
    from surefoot.formats.text import read_json

    return read_json(path)


def _npz(path: Path, episode: int) -> Raw:
    from surefoot.formats.arrays import read_npz

    return read_npz(path)


def _mat(path: Path, episode: int) -> Raw:
    from surefoot.formats.arrays import read_mat

    return read_mat(path)


def _parquet(path: Path, episode: int) -> Raw:
    from surefoot.formats.tables import read_parquet

    return read_parquet(path)


def _lerobot(path: Path, episode: int) -> Raw:
    from surefoot.formats.tables import read_lerobot

    return read_lerobot(path, episode)


def _mcap(path: Path, episode: int) -> Raw:
    from surefoot.formats.bags import read_mcap

    return read_mcap(path)


def _rosbag2(path: Path, episode: int) -> Raw:
    from surefoot.formats.bags import read_rosbag2

    return read_rosbag2(path)


READERS: dict[str, Callable[[Path, int], Raw]] = {
    "csv": _csv, "json": _json, "npz": _npz, "mat": _mat, "parquet": _parquet, "lerobot": _lerobot, "mcap": _mcap, "rosbag2": _rosbag2,
}  # fmt: skip
SUFFIXES = {
    ".csv": "csv", ".tsv": "csv", ".txt": "csv", ".json": "json", ".npz": "npz", ".mat": "mat", ".parquet": "parquet", ".mcap": "mcap", ".db3": "rosbag2",
}  # fmt: skip
MAGIC = {
    b"\x89MCAP0\r\n": "mcap",
    b"PAR1": "parquet",
    b"PK\x03\x04": "npz",
    b"MATLAB ": "mat",
    b"SQLite format 3": "rosbag2",
}
NEEDS = {
    "mat": ["scipy"], "parquet": ["pyarrow"], "lerobot": ["pyarrow"], "mcap": ["mcap", "mcap_ros2"], "rosbag2": ["rosbags", "mcap", "mcap_ros2"],
}  # fmt: skip


def read(path: str | Path, mapping: Any = None, rate: float | None = None, episode: int = 0, mend: bool = False) -> Log:
    """The log in a file; see Log.read."""
    from surefoot.formats.align import assemble
    from surefoot.formats.mapping import Mapping

    if isinstance(mapping, str | Path):
        mapping = Mapping.read(mapping)
    elif isinstance(mapping, dict):
        mapping = Mapping.from_json(mapping)
    path = Path(path)
    what = kind(path)
    raw = read_raw(path, what, episode)
    try:
        return assemble(raw, mapping, rate, mend, {"path": path.name, "format": what})
    except SurefootError as error:
        raise SurefootError(f"{path}: {error}") from None


def kind(path: Path) -> str:
    """Which reader a file or folder is for: by content where that is plain, else by its name."""
    if os.path.isdir(path):  # false also of a name that no file can have
        return _folder(path)
    head = files.read_head(path, 16)
    for magic, name in MAGIC.items():
        if head.startswith(magic):
            return name
    if path.suffix.lower() in SUFFIXES:
        return SUFFIXES[path.suffix.lower()]
    known = ", ".join(SUFFIXES)
    raise SurefootError(
        f"{path}: found a file called {path.suffix or 'nothing'}, expected {known}{nearest(path.suffix, SUFFIXES)}"
    )


def _folder(path: Path) -> str:
    if (path / "meta" / "info.json").is_file():
        return "lerobot"
    if (path / "metadata.yaml").is_file() or any(path.glob("*.mcap")):
        return "rosbag2"
    raise SurefootError(f"{path}: found neither meta/info.json (LeRobot) nor metadata.yaml (rosbag2) in this folder")


def read_raw(path: Path, what: str, episode: int = 0) -> Raw:
    """What the file holds, under its own names."""
    import importlib.util

    if missing := [n for n in NEEDS.get(what, []) if importlib.util.find_spec(n) is None]:
        raise MissingExtra(f"reading {what} ({', '.join(missing)})", "logs")
    size = _size(path)
    try:
        if what in ("csv", "json", "npz") and size <= SMALL and (what != "npz" or _unpacked(path) <= ARRAYS):
            return check(READERS[what](path, episode), str(path))
    except (MemoryError, OverflowError, RecursionError) as error:
        raise SurefootError(f"{path}: found more than can be read: {type(error).__name__} {error}") from None
    from surefoot.formats.jail import read_apart

    return read_apart(what, path, episode, size)


def _unpacked(path: Path) -> int:
    from surefoot.formats.arrays import unpacked

    return unpacked(path)


def _size(path: Path) -> int:
    """Bytes of a file, or of all in a folder, where no pipe, device or link to files elsewhere may hide."""
    inside = list(itertools.islice(path.rglob("*"), FILES + 1)) if path.is_dir() else [path]
    if len(inside) > FILES:
        raise SurefootError(f"{path}: found more than {FILES} files, expected a folder of one log")
    size, root = 0, os.path.realpath(path)
    for file in inside:
        if not file.is_dir():
            with open(files.open_regular(file), "rb") as opened:
                size += os.fstat(opened.fileno()).st_size
        if file.is_symlink() and path.is_dir() and not Path(os.path.realpath(file)).is_relative_to(root):
            raise SurefootError(
                f"{file}: found a link to what is not in {path}, expected a folder that holds its files; cp -rL makes one"
            )
    if size > LARGEST:
        raise SurefootError(f"{path}: found {size} bytes, expected at most {LARGEST}")
    return size


def clean(value: Any) -> Any:
    """A copy that JSON can hold: nan and infinity become null."""
    return json.loads(json.dumps(value, default=str), parse_constant=lambda _: None)
