"""Readers of foreign files run in a process of their own, with bounded memory and time.

    memory <= 1 GiB, or 20 times the file        CPU <= 5 s + 1 s a MB of file        no file written beyond that memory

What comes back is an npz of plain numbers and a JSON header. A reader that crashes, hangs or eats memory is an error.
"""

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np

from surefoot.errors import SurefootError
from surefoot.formats.raw import Raw, Stream

REFUSED, MEMORY = 3, 4
LEAST = 1 << 30  # bytes


def limits(size: int) -> tuple[int, int]:
    """Bytes of memory and seconds of CPU for a file of `size` bytes."""
    return max(LEAST, 20 * size), 5 + size // 1_000_000


def read_apart(kind: str, path: Path, episode: int, size: int) -> Raw:
    memory, seconds = limits(size)
    src = str(Path(__file__).parents[2])
    env = os.environ | {
        "PYTHONPATH": os.pathsep.join([src, os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep),
        "OPENBLAS_NUM_THREADS": "1",  # threads reserve memory that the reading does not need
        "OMP_NUM_THREADS": "1",
        "ARROW_DEFAULT_MEMORY_POOL": "system",
    }
    job = [
        sys.executable,
        "-m",
        "surefoot.formats.jail",
        kind,
        str(path.absolute()),
        str(episode),
        str(memory),
        str(seconds),
    ]
    try:
        done = subprocess.run(job, capture_output=True, env=env, stdin=subprocess.DEVNULL, timeout=30 + 8 * seconds)
    except subprocess.TimeoutExpired:
        raise SurefootError(f"{path}: reading took more than {30 + 8 * seconds} s") from None
    if done.returncode == 0:
        return unpack(done.stdout)
    if done.returncode == REFUSED:
        raise SurefootError(done.stderr.decode(errors="replace").strip())
    if done.returncode == MEMORY:
        raise SurefootError(f"{path}: reading takes more than {memory >> 20} MiB, too much for a file of {size} bytes")
    if -done.returncode in (getattr(signal, "SIGXCPU", 0), getattr(signal, "SIGKILL", 0)):
        raise SurefootError(f"{path}: reading took more than {seconds} s of CPU, too much for a file of {size} bytes")
    last = (done.stderr.decode(errors="replace").strip().splitlines() or ["no word"])[-1]
    raise SurefootError(f"{path}: the {kind} reader broke on it (code {done.returncode}: {last[:200]})")


def pack(raw: Raw) -> bytes:
    """A Raw as an npz."""
    streams = [{"name": s, "columns": list(t.columns), "names": t.names} for s, t in raw.streams.items()]
    header = {"streams": streams} | {k: getattr(raw, k) for k in ("constants", "units", "meta", "notes")}
    columns = [c for t in raw.streams.values() for c in t.columns.values()]
    out = io.BytesIO()
    np.savez(out, header=np.array(json.dumps(header)), **{f"c{k}": c for k, c in enumerate(columns)})  # type: ignore[arg-type]
    return out.getvalue()


def unpack(data: bytes) -> Raw:
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        header, k = json.loads(str(arrays["header"])), 0
        streams = {}
        for s in header.pop("streams"):
            columns = {c: arrays[f"c{k + j}"] for j, c in enumerate(s["columns"])}
            k += len(columns)
            streams[s["name"]] = Stream(columns, s["names"])
    return Raw(streams, **header)


def _bound(memory: int, seconds: int) -> None:
    try:
        import resource
    except ImportError:  # not on Windows: there only the wall clock bounds a reader
        return
    for what, most in (
        (resource.RLIMIT_DATA, memory),
        (resource.RLIMIT_AS, memory + (1 << 30)),  # address space also counts libraries and reserves
        (resource.RLIMIT_FSIZE, memory),
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(what)[1]
        resource.setrlimit(what, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def main(kind: str, path: str, episode: str, memory: str, seconds: str) -> int:
    from surefoot.formats import READERS

    _bound(int(memory), int(seconds))
    try:
        data = pack(READERS[kind](Path(path), int(episode)))
    except SurefootError as error:
        print(error, file=sys.stderr)
        return REFUSED
    except MemoryError:
        return MEMORY
    except Exception as error:
        if "alloc" not in str(error).lower():
            raise
        return MEMORY
    sys.stdout.buffer.write(data)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
