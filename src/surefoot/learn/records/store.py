"""A store of runs at any address that fsspec knows: a folder, s3://bucket/x, memory://x. Content is kept once.

    blobs/ab/abcd...   each file, named by its sha256        runs/<name>.json   sealed: path in the run -> sha256

A thousand runs of one robot share its model, teacher and logs: a file that is there already is not sent again. What is
read is checked against its name, and paths that lead out of the run's folder are refused.
"""

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from surefoot import files
from surefoot.errors import EXTRAS, MissingExtra, SurefootError, in_words, nearest

LARGEST = 4 << 30  # bytes of a file
NO_FOLDERS = {"s3", "s3a", "gs", "gcs", "abfs", "az", "memory"}  # to make one may make a bucket
SKIPPED = ("run.lock",)
SHA = re.compile(r"[0-9a-f]{64}")
NAME = re.compile(r"[\w.-]+(/[\w.-]+)*")


@dataclass(frozen=True)
class Sent:
    """What sharing a run took."""

    files: int
    bytes: int
    new_files: int
    new_bytes: int
    """not there before"""


class Store:
    def __init__(self, address: str):
        with in_words("a store of runs"):
            import fsspec
        self.address = address
        try:
            self.fs, self.root = fsspec.core.url_to_fs(address)
        except (ValueError, ImportError) as error:
            extra = EXTRAS.get(getattr(error.__cause__, "name", None) or "")
            if extra is not None:
                raise MissingExtra(address, extra) from None
            raise SurefootError(
                f"{address}: {' '.join(str(error).split())[:200]}; expected a folder or s3://..."
            ) from None
        if not self.root.strip("/"):
            raise SurefootError(f"{address}: expected a place in it, such as s3://bucket/runs")

    def _ask(self, method: Callable[..., Any], *given: Any, **how: Any) -> Any:
        """What the store answers; each kind of store has errors of its own."""
        try:
            return method(*given, **how)
        except Exception as error:
            words = " ".join(str(error).split())[:300]
            raise SurefootError(f"{self.address}: {type(error).__name__}: {words}") from error

    def _path(self, *parts: str) -> str:
        return "/".join((self.root.rstrip("/"), *parts))

    def names(self) -> list[str]:
        """Of the runs that are here."""
        top = self._path("runs")
        if not self._ask(self.fs.exists, top):
            return []
        found = (str(p).removeprefix("/").removeprefix(top.removeprefix("/")) for p in self._ask(self.fs.find, top))
        return sorted(p.removeprefix("/").removesuffix(".json") for p in found if p.endswith(".json"))

    def put(self, folder: Path, name: str) -> Sent:
        """Share a run, or another folder or file, under a name. The list of its files is written last: it is there whole or not at all."""
        _check_name(name)
        if not folder.exists():
            raise SurefootError(f"{folder}: no such file or folder")
        listed, count = {}, [0, 0, 0, 0]
        folder, every = (folder.parent, [folder]) if folder.is_file() else (folder, sorted(_files(folder)))
        for path in every:
            data = files.read_bytes(path, LARGEST)
            key = files.sha256(data)
            listed[path.relative_to(folder).as_posix()] = key
            new = self._write_blob(key, data)
            count = [a + b for a, b in zip(count, (1, len(data), new, new * len(data)))]
        card = files.seal({"run": name, "files": listed})
        self._write(self._path("runs", f"{name}.json"), json.dumps(card, indent=1).encode())
        return Sent(*count)

    def get(self, name: str, folder: Path) -> int:
        """Bring a run into a new folder, whole or not at all; returns how many files it has."""
        _check_name(name)
        path = self._path("runs", f"{name}.json")
        if not self._ask(self.fs.exists, path):
            raise SurefootError(f"{self.address}: no run {name}{nearest(name, self.names())}")
        if folder.exists():
            raise SurefootError(f"{folder}: is here already; choose another folder (--out)")
        listed = self._listed(path)
        beside = folder.with_name(f".{folder.name}.{os.getpid()}.part")
        try:
            for inside, key in listed.items():
                data = self._ask(self.fs.cat_file, self._blob(key))
                if files.sha256(data) != key:
                    raise SurefootError(f"{self.address}: {inside}: content and hash disagree")
                files.write(beside / inside, data)
            if listed:
                os.rename(beside, folder)
        finally:
            shutil.rmtree(beside, ignore_errors=True)
        return len(listed)

    def _listed(self, path: str) -> dict[str, str]:
        card: Any = files.check_seal(files.parse_json(self._ask(self.fs.cat_file, path), path), path)
        listed = card.get("files") if isinstance(card, dict) else None
        if not isinstance(listed, dict):
            raise SurefootError(f"{path}: files: expected an object of paths and hashes")
        for inside, key in listed.items():
            at = PurePosixPath(inside)
            if at.is_absolute() or ".." in at.parts or not at.parts or "\\" in inside:
                raise SurefootError(f"{path}: files: {inside[:80]!r} leads out of the run's folder")
            if not isinstance(key, str) or not SHA.fullmatch(key):
                raise SurefootError(f"{path}: files: {inside[:80]}: expected a sha256")
        return listed

    def _blob(self, key: str) -> str:
        return self._path("blobs", key[:2], key)

    def _write_blob(self, key: str, data: bytes) -> bool:
        """Whether it was new. One of another size was cut while it was written."""
        path = self._blob(key)
        if self._ask(self.fs.exists, path) and self._ask(self.fs.size, path) == len(data):
            return False
        self._write(path, data)
        return True

    def _write(self, path: str, data: bytes) -> None:
        """Whole or not at all where a store can rename; object stores show a file only when it is whole."""
        if "file" in _protocols(self.fs):
            return files.write(Path(path), data)
        if not NO_FOLDERS & set(_protocols(self.fs)):
            self._ask(self.fs.makedirs, path.rsplit("/", 1)[0], exist_ok=True)
        self._ask(self.fs.pipe_file, path, data)


def _protocols(fs: Any) -> tuple[str, ...]:
    return (fs.protocol,) if isinstance(fs.protocol, str) else tuple(fs.protocol)


def _files(folder: Path) -> Iterator[Path]:
    for path in Path(folder).rglob("*"):
        if path.is_file() and not path.is_symlink() and path.name not in SKIPPED and not path.name.endswith(".part"):
            yield path


def _check_name(name: str) -> None:
    if not NAME.fullmatch(name) or ".." in name.split("/"):
        raise SurefootError(f"{name!r}: expected a run's name: letters, digits, . - _ and / between them")
