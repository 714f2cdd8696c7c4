"""Readers, one for each format: file -> Raw. Large files, and formats that other packages read, are read in a process of their own."""

import itertools
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from surefoot import files
from surefoot.errors import MissingExtra, SurefootError, nearest
from surefoot.formats.raw import LARGEST, Raw, check
from surefoot.log import ROWS

Reader = Callable[[Path], Raw]
SMALL = 1 << 20  # bytes of text or of an npz that are read in this process
ARRAYS = 16 << 20  # bytes of arrays in such an npz
FILES = 100_000  # in a folder
SUFFIXES = {
    ".csv": "csv", ".tsv": "csv", ".txt": "csv", ".json": "json", ".npz": "npz", ".mat": "mat", ".parquet": "parquet", ".mcap": "mcap", ".db3": "rosbag2", ".rows": "rows",
}  # fmt: skip
MAGIC = {
    b"\x89MCAP0\r\n": "mcap",
    b"PAR1": "parquet",
    b"PK\x03\x04": "npz",
    b"MATLAB ": "mat",
    b"SQLite format 3": "rosbag2",
    ROWS: "rows",
}
NEEDS = {
    "mat": ["scipy"], "parquet": ["pyarrow"], "lerobot": ["pyarrow"], "mcap": ["mcap", "mcap_ros2"], "rosbag2": ["rosbags", "mcap", "mcap_ros2"],
}  # fmt: skip


def reader(kind: str, episode: int = 0) -> Reader:
    """Imported when needed: each needs packages of its own. `episode` is of a dataset."""
    if kind in ("csv", "json"):
        from surefoot.formats.readers import text

        return text.read_csv if kind == "csv" else text.read_json
    if kind in ("npz", "rows", "mat"):
        from surefoot.formats.readers import arrays

        return {"npz": arrays.read_npz, "rows": arrays.read_rows, "mat": arrays.read_mat}[kind]
    if kind in ("parquet", "lerobot"):
        from surefoot.formats.readers import tables

        return tables.read_parquet if kind == "parquet" else partial(tables.read_lerobot, episode=episode)
    from surefoot.formats.readers import bags

    return bags.read_mcap if kind == "mcap" else bags.read_rosbag2


def kind(path: Path) -> str:
    """Format of a file or folder: by its first bytes, else by its suffix."""
    if os.path.isdir(path):  # also false for a name that no file can have
        return _folder(path)
    head = files.read_head(path, 16)
    for magic, name in MAGIC.items():
        if head.startswith(magic):
            return name
    if path.suffix.lower() in SUFFIXES:
        return SUFFIXES[path.suffix.lower()]
    known = ", ".join(SUFFIXES)
    raise SurefootError(f"{path}: found the suffix {path.suffix!r}, expected {known}{nearest(path.suffix, SUFFIXES)}")


def _folder(path: Path) -> str:
    if (path / "meta" / "info.json").is_file():
        return "lerobot"
    if (path / "metadata.yaml").is_file() or any(path.glob("*.mcap")):
        return "rosbag2"
    raise SurefootError(f"{path}: found neither meta/info.json (LeRobot) nor metadata.yaml (rosbag2) in this folder")


def read_raw(path: Path, what: str, episode: int = 0) -> Raw:
    """The content of a file, under its own names."""
    import importlib.util

    if missing := [n for n in NEEDS.get(what, []) if importlib.util.find_spec(n) is None]:
        raise MissingExtra(f"reading {what} ({', '.join(missing)})", "logs")
    size = _size(path)
    try:
        if what in ("csv", "json", "npz") and size <= SMALL and (what != "npz" or _unpacked(path) <= ARRAYS):
            return check(reader(what, episode)(path), str(path))
    except (MemoryError, OverflowError, RecursionError) as error:
        raise SurefootError(f"{path}: found more than fits into memory: {type(error).__name__} {error}") from None
    from surefoot.formats.readers.isolated_reader import read_isolated

    return read_isolated(what, path, episode, size)


def _unpacked(path: Path) -> int:
    from surefoot.formats.readers.arrays import unpacked

    return unpacked(path)


def _size(path: Path) -> int:
    """Bytes of a file or of all files in a folder; refuses pipes, devices and links to files elsewhere."""
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
                f"{file}: found a link to a file outside {path}, expected a folder with all of its files; cp -rL makes one"
            )
    if size > LARGEST:
        raise SurefootError(f"{path}: found {size} bytes, expected at most {LARGEST}")
    return size
