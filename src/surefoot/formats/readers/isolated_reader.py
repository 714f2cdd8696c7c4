"""Readers in a process of their own, with limits on memory and time.

    memory <= 1 GiB, or 20 times the file, at most 16 GiB        CPU <= 10 s, or 1 s for each MB of the file

The result comes back as an npz of plain numbers and a JSON header.
"""

import io
import json
from pathlib import Path

import numpy as np

from surefoot import isolated
from surefoot.formats.raw import Raw, Stream, check
from surefoot.formats.readers.arrays import load

LEAST, MOST = 1 << 30, 16 << 30  # bytes


def limits(size: int) -> isolated.Limits:
    """For a file of `size` bytes."""
    seconds = max(10, size // 1_000_000)
    return isolated.Limits(min(MOST, max(LEAST, 20 * size)), seconds, 30 + 4 * seconds)


def read_isolated(kind: str, path: Path, episode: int, size: int) -> Raw:
    request = json.dumps([kind, str(path.absolute()), episode]).encode()
    try:
        found = isolated.run(
            "surefoot.formats.readers.isolated_reader:read_here", request, limits(size), f"{path}: reading"
        )
    except isolated.Exceeded as error:
        raise isolated.Exceeded(f"{error}, too much for a {kind} of {size} bytes") from None
    return unpack(found, path)


def read_here(request: bytes) -> bytes:
    """In the child."""
    from surefoot.formats.readers import reader

    kind, path, episode = json.loads(request)
    return pack(check(reader(kind, episode)(Path(path)), path))


def pack(raw: Raw) -> bytes:
    """A Raw as an npz."""
    streams = [{"name": s, "columns": list(t.columns), "names": t.names} for s, t in raw.streams.items()]
    header = {"streams": streams} | {k: getattr(raw, k) for k in ("constants", "units", "meta", "notes")}
    columns = [c for t in raw.streams.values() for c in t.columns.values()]
    out = io.BytesIO()
    np.savez(out, header=np.array(json.dumps(header)), **{f"c{k}": c for k, c in enumerate(columns)})  # type: ignore[arg-type]
    return out.getvalue()


def unpack(data: bytes, path: Path) -> Raw:
    arrays, k = load(path, data), 0
    header = json.loads(str(arrays["header"]))
    streams = {}
    for s in header.pop("streams"):
        columns = {c: arrays[f"c{k + j}"] for j, c in enumerate(s["columns"])}
        k += len(columns)
        streams[s["name"]] = Stream(columns, s["names"])
    return Raw(streams, **header)
