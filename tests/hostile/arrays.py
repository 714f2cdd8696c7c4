"""Robot logs as arrays: NPZ, our own and others', MATLAB files, Parquet tables and LeRobot folders of them."""

import io
import json
import os
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tests.formats import makers

from .case import ESCAPE, FORGED, Case, Place, spoilt, text

Build = Callable[[Place], Any]


def pickled(p: Place) -> bytes:
    """A pickle that makes the canary when it is loaded."""
    return b"cbuiltins\nexec\n(V" + p.code.encode() + b"\ntR."


def archive(p: Place, members: dict[str, bytes], name: str = "a.npz", how: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(p.here / name, "w", how) as z:
        for member, data in members.items():
            z.writestr(member, data)
    return p.here / name


def saved(array: Any) -> bytes:
    out = io.BytesIO()
    np.save(out, np.asarray(array), allow_pickle=False)
    return out.getvalue()


def patched(path: Path, magic: bytes, at: int, value: bytes) -> None:
    """Overwrite bytes of the last record that begins with `magic`."""
    raw = bytearray(path.read_bytes())
    begin = raw.rindex(magic) + at
    raw[begin : begin + len(value)] = value
    path.write_bytes(raw)


TIME, Q = np.arange(5) / 100, np.arange(5.0)


def npz() -> Iterator[Case]:
    def one(name: str, build: Build, want: str = "refuse", **more: Any) -> Case:
        return Case("npz", name, build, ("log", "a.npz"), want, **more)

    def arrays(name: str, want: str = "refuse", **columns: Any) -> Case:
        return one(name, lambda p: archive(p, {f"{k}.npy": v if isinstance(v, bytes) else saved(v) for k, v in columns.items()}), want)  # fmt: skip

    def own(name: str, header: str, want: str = "refuse", **more: Any) -> Case:
        columns = {"time.npy": saved(TIME), "columns/q.npy": saved(Q)} | {k: saved(v) for k, v in more.items()}
        return one(name, lambda p: archive(p, {"header.npy": saved(header)} | columns), want)

    def headed(**more: Any) -> str:
        return json.dumps({"format": "surefoot.log/1", "units": {"q": "rad"}, "meta": {}} | more)

    yield arrays("sound", "accept", time=TIME, q=Q, gain=3.5)
    yield own("sound own", headed(), "accept")
    for name, body in {
        "own units of numbers": headed(units={"q": 5}), "own meta list": headed(meta=[1]),
        "own meta names of numbers": headed(meta={"names": {"q": [1]}}), "own meta mended": headed(meta={"mended": 5}),
        "own meta gaps": headed(meta={"gaps": "x", "rate": "x", "lost": None}), "own header deep": '{"units":' + "[" * 50_000, "own header surrogate": headed(meta={"source": {"path": "\ud800"}}), "own forged": headed(meta={"source": {"path": f"x\n{FORGED}"}}),
        "own units escape": headed(units={"q": ESCAPE}),
    }.items():  # fmt: skip
        yield own(name, body, "either")
    npy = makers.npy
    yield one("pickle", lambda p: archive(p, {"time.npy": npy("'|O'", "(3,)") + pickled(p)}))
    yield one("code that makes a file", lambda p: archive(p, {"time.npy": npy(f"({p.code})"[:90], "(3,)")}))
    for name, descr, shape, data in (
        ("shape 1e12", "'<f8'", "(1000000000000,)", 64), ("shape overflows", "'<f8'", f"({2**62}, 16)", 64),
        ("shape float", "'<f8'", "(2.0,)", 16), ("shape true", "'<f8'", "(True,)", 8), ("shape deep", "'<f8'", "(" * 30 + "1", 64), ("dtype huge", "'|S2147483647'", "(9,)", 64),
        ("empty of 1e12 columns", "'<f8'", "(0, 1000000000000)", 0),
    ):  # fmt: skip
        yield arrays(name, "either" if data == 0 else "refuse", time=npy(descr, shape) + bytes(data))
    yield arrays("npy header of 4 GiB", time=b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + bytes(100))
    for name, columns in {
        "clock back": {"time": TIME[::-1], "q": Q}, "complex": {"time": TIME + 0j, "q": Q + 1j},

    }.items():  # fmt: skip
        yield arrays(name, "refuse", **columns)
    for name, columns in {
        "unsigned clock": {"time": np.arange(5, dtype="u8") + 2**63, "q": Q},

    }.items():  # fmt: skip
        yield arrays(name, "either", **columns)
    good = {"time.npy": saved(TIME), "q.npy": saved(Q)}
    yield one("60k members", lambda p: archive(p, {"time.npy": saved(TIME)} | {f"q{k}.npy": saved(Q) for k in range(60_000)}), "either", heavy=True)  # fmt: skip
    yield one("member twice", lambda p: twice(p, good), "either")
    yield one("member up", lambda p: archive(p, good | {"../../outside/x.npy": saved(Q)}), "either")
    yield one("member escape", lambda p: archive(p, good | {f"{ESCAPE}.npy": saved(Q)}), "either")
    yield one("member forged", lambda p: archive(p, {"time.npy": saved(TIME), f"q\n{FORGED}.npy": npy("'<f8'", "(9,)")}))  # fmt: skip
    yield one("bomb of 1 GiB", bomb, heavy=True)
    yield one("size lies high", lambda p: patched(archive(p, good), b"PK\x01\x02", 24, b"\xf0\xff\xff\xff"))
    yield one("size lies low", lambda p: patched(archive(p, good), b"PK\x01\x02", 24, b"\x01\0\0\0"))
    yield one("offset beyond", lambda p: patched(archive(p, good), b"PK\x01\x02", 42, b"\xff\xff\xff\x7f"))
    yield one("65535 members declared", lambda p: patched(archive(p, good), b"PK\x05\x06", 8, b"\xff\xff\xff\xff"), "either")  # fmt: skip
    for k in range(2):
        yield one(f"cut {k}", lambda p, k=k: p.write("a.npz", spoilt(archive(p, good).read_bytes(), k, 0)))
        yield one(f"turned {k}", lambda p, k=k: p.write("a.npz", spoilt(archive(p, good).read_bytes(), 60 + k, 1 + k)), "either")  # fmt: skip


def twice(p: Place, members: dict[str, bytes]) -> None:
    path = archive(p, members | {"r.npy": saved(Q)})
    path.write_bytes(path.read_bytes().replace(b"r.npy", b"q.npy"))


def bomb(p: Place) -> None:
    """A member of 1 GiB of zeros in 1 MB, one deflate block of zeros told over and over."""
    with zipfile.ZipFile(p.here / "a.npz", "w", zipfile.ZIP_DEFLATED) as z, z.open("time.npy", "w") as f:
        f.write(makers.npy("'<f8'", f"({(1 << 30) // 8},)"))
        for _ in range(64):
            f.write(bytes(1 << 24))


def element(kind: int, size: int, data: bytes = b"") -> bytes:
    return b"MATLAB 5.0 MAT-file".ljust(116) + bytes(8) + b"\x00\x01IM" + struct.pack("<II", kind, size) + data


def mat() -> Iterator[Case]:
    from scipy.io import savemat

    def one(name: str, content: Any, want: str = "refuse", **more: Any) -> Case:
        return text("mat", name, "a.mat", content, "log", "a.mat", want=want, **more)

    def of(name: str, want: str, **arrays: Any) -> Case:
        def write() -> bytes:
            out = io.BytesIO()
            savemat(out, arrays, do_compression=True)
            return out.getvalue()

        return one(name, write, want)

    column = TIME[:, None]
    yield of("sound", "accept", t=column, q=np.stack([Q, Q], 1))
    yield of("cells", "either", t=column, q=np.array([[1, "a", Q]], object))
    yield of("struct", "either", t=column, q={"a": 1, "b": {"c": Q}})
    yield of("clock back", "refuse", t=column[::-1], q=Q[:, None])
    yield one("7.3", b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM" + bytes(384) + b"\x89HDF\r\n\x1a\n" + bytes(64))
    yield one("size of 4 GiB", element(14, 0xFFFFFFF0))
    yield one("shape of 2^62", element(14, 48, struct.pack("<IIIIIIiiIII", 6, 8, 6, 0, 5, 8, 2**31 - 1, 2**31 - 1, 0x10001, 9, 0)))  # fmt: skip
    yield one("shape negative", element(14, 48, struct.pack("<IIIIIIiiIII", 6, 8, 6, 0, 5, 8, -1, -1, 0x10001, 9, 0)))
    yield one("function object", element(14, 48, struct.pack("<IIIIIIiiIII", 6, 8, 16, 0, 5, 8, 1, 1, 0x10001, 9, 0)))
    yield one("nested elements", lambda: element(15, 60_000, b"".join(struct.pack("<II", 15, 60_000 - 8 * k) for k in range(7_000))))  # fmt: skip
    for n in (30,):
        yield one(f"bomb of 2^{n}", lambda n=n: element(15, len(x := zlib.compress(struct.pack("<II", 14, 1 << n) + bytes(1 << n), 1)), x), heavy=True)  # fmt: skip
    yield one("rubbish compressed", element(15, 64, bytes(64)))
    yield one("version 4, 1e9 rows", struct.pack("<iiiii", 0, 10**9, 10**9, 0, 2) + b"t\0", "refuse")
    yield one("version 4, name of 2 GiB", struct.pack("<iiiii", 0, 1, 1, 0, 2**31 - 1) + b"t\0", "refuse")
    yield Case("mat", "pickle", lambda p: p.write("a.mat", pickled(p)), ("log", "a.mat"))
    for k in range(2):
        yield Case("mat", f"cut {k}", lambda p, k=k: p.write("a.mat", spoilt(makers.mat_file(p.here / "a.mat", 30).read_bytes(), k, 0)), ("log", "a.mat"), "either")  # fmt: skip
        yield Case("mat", f"turned {k}", lambda p, k=k: p.write("a.mat", spoilt(makers.mat_file(p.here / "a.mat", 30).read_bytes(), 60 + k, 1 + k)), ("log", "a.mat"), "either")  # fmt: skip


def table(path: Path, columns: dict[str, Any], **how: Any) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table(columns), path, **how)
    return path


def parquet() -> Iterator[Case]:
    import pyarrow as pa

    def one(name: str, build: Build, want: str = "refuse", **more: Any) -> Case:
        return Case("parquet", name, build, ("log", "a.parquet"), want, **more)

    def of(name: str, want: str, columns: dict[str, Any], **how: Any) -> Case:
        return one(name, lambda p: table(p.here / "a.parquet", columns, **how), want)

    yield one("sound", lambda p: makers.parquet_file(p.here / "a.parquet", 30), "accept")
    yield of("clock back", "refuse", {"time": TIME[::-1].copy(), "q": Q})
    yield of("clock null", "refuse", {"time": pa.array([None] * 5, pa.float64()), "q": Q})
    yield of("ragged lists", "either", {"time": TIME, "q": pa.array([[1.0], [1.0, 2.0], [], None, [3.0]])})
    yield of("nested lists", "either", {"time": TIME, "q": pa.array([[[1.0]]] * 5)})
    yield of(
        "dates to the end", "either", {"time": pa.array([2**62 + k for k in range(5)], pa.timestamp("ns")), "q": Q}
    )
    yield of("binary", "either", {"time": TIME, "q": pa.array([b"\x80\x04cos\nsystem"] * 5)})
    yield of("escape in a name", "either", {"time": TIME, ESCAPE: Q})
    yield of("forged line", "refuse", {f"q\n{FORGED}": ["a"] * 5})
    yield of("2000 columns", "either", {"time": TIME} | {f"q{k}": Q for k in range(2000)})
    yield one("1e8 equal rows in 10 kB", lambda p: table(p.here / "a.parquet", {"time": pa.array(np.zeros(10**8, "i1"))}, compression="zstd"), heavy=True)  # fmt: skip
    yield one("a list of 3e7", lambda p: table(p.here / "a.parquet", {"time": [0.0], "q": pa.array([np.zeros(3 * 10**7)])}, compression="zstd"), "either", heavy=True)  # fmt: skip
    yield one("footer of 2 GiB", lambda p: p.write("a.parquet", b"PAR1" + b"\xff\xff\xff\x7fPAR1"))
    yield one("footer deep", lambda p: p.write("a.parquet", b"PAR1" + b"\x1c" * 10**6 + struct.pack("<I", 10**6) + b"PAR1"))  # fmt: skip
    yield one("empty", lambda p: p.write("a.parquet", b""))
    yield one("encrypted", lambda p: p.write("a.parquet", b"PARE" + bytes(64) + b"PARE"))
    yield one("pickle", lambda p: p.write("a.parquet", pickled(p)))
    yield one("page crc wrong", wrong_page)
    for k in range(2):
        yield one(f"cut {k}", lambda p, k=k: p.write("a.parquet", spoilt(makers.parquet_file(p.here / "a.parquet", 30).read_bytes(), k, 0)))  # fmt: skip
        yield one(f"turned {k}", lambda p, k=k: p.write("a.parquet", spoilt(makers.parquet_file(p.here / "a.parquet", 30).read_bytes(), 60 + k, 1 + k)), "either")  # fmt: skip


def wrong_page(p: Place) -> None:
    """A bit of a page's data turned, whose CRC is in the file."""
    path = table(p.here / "a.parquet", {"time": TIME, "q": Q}, compression="none", use_dictionary=False, write_page_checksum=True)  # fmt: skip
    raw = bytearray(path.read_bytes())
    raw[raw.index(struct.pack("<d", TIME[3])) + 3] ^= 1
    path.write_bytes(raw)


def lerobot() -> Iterator[Case]:
    def one(name: str, change: Callable[[Path, Place], Any], want: str = "refuse", *flags: str, **more: Any) -> Case:
        return Case("lerobot", name, lambda p: change(makers.lerobot_folder(p.here / "d"), p), ("log", "d", *flags), want, **more)  # fmt: skip

    def info(name: str, want: str, **change: Any) -> Case:
        def write(d: Path, p: Place) -> None:
            path = d / "meta/info.json"
            path.write_text(json.dumps(json.loads(path.read_text()) | change))

        return one(name, write, want)

    def episodes(name: str, want: str, **change: Any) -> Case:
        base = {"episode_index": [0, 1, 2], "data/chunk_index": [0] * 3, "data/file_index": [0] * 3}
        at = "meta/episodes/chunk-000/file-000.parquet"
        return one(name, lambda d, p: table(d / at, base | change), want)

    data = "data/chunk-000/file-000.parquet"
    yield one("sound", lambda d, p: None, "accept")
    yield one("episode 9", lambda d, p: None, "refuse", "--episode", "9")
    yield one("episode 1e30", lambda d, p: None, "refuse", "--episode", str(10**30))
    for name, want, change in (
        ("version 2", "refuse", {"codebase_version": "v2.1"}), ("fps text", "either", {"fps": "fast"}), ("fps -1", "either", {"fps": -50}),
        ("features list", "either", {"features": []}), ("names deep", "either", {"features": {"action": {"names": {"a": {"b": ["c"]}}}}}), ("names escape", "either", {"features": {"action": {"names": [ESCAPE, "b"]}}}), ("robot surrogate", "either", {"robot_type": "\ud800"}),
        ("data path up", "either", {"data_path": "../../outside/{chunk}"}),
    ):  # fmt: skip
        yield info(name, want, **change)
    for name, change in (
        ("chunk 2^62", {"data/chunk_index": [2**62] * 3}), ("chunk inf", {"data/chunk_index": [float("inf")] * 3}), ("file null", {"data/file_index": [None] * 3}),
    ):  # fmt: skip
        yield episodes(name, "refuse", **change)
    yield one("info empty", lambda d, p: (d / "meta/info.json").write_text(""))
    yield one("info deep", lambda d, p: (d / "meta/info.json").write_text("[" * 100_000))
    yield one("info of 50 MB", lambda d, p: (d / "meta/info.json").write_text('{"codebase_version":"v3.0","x":"' + "x" * 50_000_000 + '"}'), "either", heavy=True)  # fmt: skip
    yield one("info out", lambda d, p: (os.remove(d / "meta/info.json"), (d / "meta/info.json").symlink_to(p.outside / "secret.json")))  # fmt: skip
    yield one("data out", lambda d, p: (table(p.outside / "x.parquet", {"episode_index": [0, 0], "timestamp": [0.0, 1.0], "SECRET5d1c0ffee": [1.0, 2.0]}), os.remove(d / data), (d / data).symlink_to(p.outside / "x.parquet")))  # fmt: skip
    yield one("data to zero", lambda d, p: (os.remove(d / data), (d / data).symlink_to("/dev/zero")))
    yield one("data a pipe", lambda d, p: (os.remove(d / data), os.mkfifo(d / data)))
    yield one("data no parquet", lambda d, p: (d / data).write_bytes(pickled(p)))
    yield one("no episode column", lambda d, p: table(d / data, {"timestamp": TIME}))
    yield one("folder to itself", lambda d, p: (d / "loop").symlink_to(d), "either")
    yield one("20k files", lambda d, p: [(d / f"x{k}").touch() for k in range(20_000)], "either", heavy=True)
    for k in range(3):
        yield one(f"turned {k}", lambda d, p, k=k: (d / data).write_bytes(spoilt((d / data).read_bytes(), k, 1 + k)), "either")  # fmt: skip
        yield one(f"cut {k}", lambda d, p, k=k: (d / data).write_bytes(spoilt((d / data).read_bytes(), k, 0)))


def everything() -> Iterator[Case]:
    yield from npz()
    yield from mat()
    yield from parquet()
    yield from lerobot()
