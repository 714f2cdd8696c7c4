"""MCAP files and rosbag2 folders, of sqlite and of MCAP."""

import json
import os
import sqlite3
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.formats import makers

from .arrays import pickled
from .case import ESCAPE, FORGED, Case, Place, spoilt

BOMB = 1 << 30


def record(op: int, content: bytes, length: int | None = None) -> bytes:
    return struct.pack("<BQ", op, len(content) if length is None else length) + content


def chunk(compression: bytes, data: bytes, declared: int, crc: int = 0) -> bytes:
    head = struct.pack("<QQQI", 0, 1, declared, crc) + struct.pack("<I", len(compression))
    return head + compression + struct.pack("<Q", len(data)) + data


def mcap_of(*records: bytes) -> bytes:
    return b"\x89MCAP0\r\n" + record(1, struct.pack("<I", 0) * 2) + b"".join(records)


def string(s: str | bytes) -> bytes:
    data = s if isinstance(s, bytes) else s.encode("utf-8", "surrogatepass")
    return struct.pack("<I", len(data)) + data


def schema(name: str | bytes, definition: str | bytes, encoding: str = "ros2msg", at: int = 1) -> bytes:
    return record(3, struct.pack("<H", at) + string(name) + string(encoding) + string(definition))


def channel(topic: str | bytes, encoding: str = "json", of: int = 0, at: int = 1) -> bytes:
    return record(4, struct.pack("<HH", at, of) + string(topic) + string(encoding) + struct.pack("<I", 0))


def message(data: bytes, stamp: int = 0, at: int = 1) -> bytes:
    return record(5, struct.pack("<HIQQ", at, 0, stamp, stamp) + data)


def told(*bodies: Any, topic: str | bytes = "/a", stamps: Any = None) -> bytes:
    """Messages in JSON, 10 ms apart."""
    rows = [b if isinstance(b, bytes) else json.dumps(b).encode() for b in bodies]
    stamps = stamps or [k * 10**7 for k in range(len(rows))]
    return mcap_of(channel(topic), *(message(b, t) for b, t in zip(rows, stamps)), record(15, struct.pack("<I", 0)), record(2, struct.pack("<QQI", 0, 0, 0))) + b"\x89MCAP0\r\n"  # fmt: skip


def defined(definition: str | bytes, data: bytes = bytes(64), name: str | bytes = "a/B") -> bytes:
    """Messages in CDR of a type that the file defines."""
    rows = (message(b"\0\1\0\0" + data, k * 10**7) for k in range(3))
    return mcap_of(schema(name, definition), channel("/a", "cdr", 1), *rows, record(15, struct.pack("<I", 0)), record(2, struct.pack("<QQI", 0, 0, 0))) + b"\x89MCAP0\r\n"  # fmt: skip


def zeros(kind: str, n: int) -> bytes:
    out = b""
    if kind == "lz4":
        import lz4.frame

        with lz4.frame.LZ4FrameCompressor() as press:
            out = press.begin() + b"".join(press.compress(bytes(1 << 24)) for _ in range(n >> 24))
            return out + press.flush()
    import zstandard

    press = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    return b"".join(press.compress(bytes(1 << 24)) for _ in range(n >> 24)) + press.flush()


def mcap() -> Iterator[Case]:
    def one(name: str, content: Any, want: str = "refuse", **more: Any) -> Case:
        return Case("mcap", name, lambda p: p.write("a.mcap", content() if callable(content) else content), ("log", "a.mcap"), want, **more)  # fmt: skip

    q = [{"q": k} for k in range(5)]
    yield Case("mcap", "sound", lambda p: makers.mcap_file(p.here / "a.mcap", 30), ("log", "a.mcap"), "accept")
    yield one("sound by hand", told(*q), "accept")
    for name, content in {
        "record of 4 GiB": mcap_of(record(6, b"", 1 << 32)), "record of 2^64": mcap_of(record(5, b"ab", (1 << 64) - 1)),
        "brotli": mcap_of(record(6, chunk(b"brotli", b"", 0))), "zstd rubbish": mcap_of(record(6, chunk(b"zstd", b"rubbish", 1000))),
        "chunk in a chunk": mcap_of(record(6, chunk(b"", record(6, chunk(b"", b"", 0)), len(record(6, chunk(b"", b"", 0)))))), "chunk crc wrong": mcap_of(record(6, chunk(b"", told(*q)[17:], len(told(*q)[17:]), 12345))), "message no JSON": told(b"{", b"{"),
        "message deep": told(b"[" * 100_000), "stamp of 2^64": told(*q, stamps=[2**64 - 5 + k for k in range(5)]), "topic not UTF-8": told(*q, topic=b"/\xff"),
        "definition unknown type": defined("no_such/Type x"), "definition of itself": defined("a/B x"), "message array of 2^32": defined("float64[] x", b"\xff" * 8), "message nested arrays": defined("a/C[] x\n===\nMSG: a/C\na/D[] y\n===\nMSG: a/D\nuint8[] z", b"\xff\xff\xff\x7f" * 9),
        "number 1e999": told(b'{"q":1e999}', b'{"q":"a"}'),
    }.items():  # fmt: skip
        yield one(name, content)
    for name, content in {
        "definition of 10^4 fields": defined("\n".join(f"float64 x{k}" for k in range(10_000)), bytes(80_000)), "definition escape": defined(f"float64 x{ESCAPE}"), "fixed array of 1e9": defined("uint8[1000000000] x"),
        "topic forged": told({"q": "x"}, topic=f"/x\n{FORGED}"), "key escape": told(*[{ESCAPE: k} for k in range(5)]), "same key": told(*[b'{"q":1,"q":[2]}'] * 5),


    }.items():  # fmt: skip
        yield one(name, content, "either")
    yield one("zstd bomb that lies", lambda: mcap_of(record(6, chunk(b"zstd", zeros("zstd", BOMB), 1000))), heavy=True)
    yield one("many small bombs", lambda: mcap_of(*[record(6, chunk(b"zstd", zeros("zstd", 1 << 26), 1 << 26))] * 60), heavy=True)  # fmt: skip
    yield one("20k messages of their own keys", lambda: told(*[{f"k{k}": k} for k in range(20_000)]), "either", heavy=True)  # fmt: skip
    yield Case("mcap", "pickle", lambda p: p.write("a.mcap", pickled(p)), ("log", "a.mcap"))
    for k in range(2):
        yield Case("mcap", f"cut {k}", lambda p, k=k: p.write("a.mcap", spoilt(makers.mcap_file(p.here / "a.mcap", 20).read_bytes(), k, 0)), ("log", "a.mcap"))  # fmt: skip
        yield Case("mcap", f"turned {k}", lambda p, k=k: p.write("a.mcap", spoilt(makers.mcap_file(p.here / "a.mcap", 20).read_bytes(), 60 + k, 1 + k)), ("log", "a.mcap"), "either")  # fmt: skip


def rosbag2() -> Iterator[Case]:
    def one(name: str, change: Callable[[Path, Place], Any], want: str = "refuse", **more: Any) -> Case:
        return Case("rosbag2", name, lambda p: change(makers.rosbag2_folder(p.here / "bag", 20), p), ("log", "bag"), want, **more)  # fmt: skip

    def db(d: Path) -> Path:
        return next(d.glob("*.db3"))

    def sql(name: str, want: str, *lines: str) -> Case:
        def change(d: Path, p: Place) -> None:
            with sqlite3.connect(db(d)) as c:
                for line in lines:
                    c.execute(line.replace("CANARY", str(p.canary)))
            c.close()

        return one(name, change, want)

    def yaml(name: str, make: Callable[[str], str | bytes], want: str = "refuse", **more: Any) -> Case:
        def change(d: Path, p: Place) -> None:
            path = d / "metadata.yaml"
            made = make(path.read_text())
            path.write_bytes(made if isinstance(made, bytes) else made.replace("CANARY", str(p.canary)).replace("OUTSIDE", str(p.outside)).encode())  # fmt: skip

        return one(name, change, want, **more)

    yield one("sound", lambda d, p: None, "accept")
    yield yaml("yaml of 50k brackets", lambda s: "[" * 50_000)
    yield yaml("yaml alias bomb", lambda s: "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(f"{b}: &{b} [{','.join(['*' + a] * 9)}]\n" for a, b in zip("abcdefghi", "bcdefghij")) + s, "either")  # fmt: skip
    yield yaml("yaml python object", lambda s: "x: !!python/object/apply:builtins.open ['CANARY', 'w']\n" + s)
    yield yaml("yaml not UTF-8", lambda s: b"\xff\xfe" + s.encode())
    yield yaml("yaml of 20 MB", lambda s: s + "\n# " + "x" * 20_000_000 + "\n", "either", heavy=True)
    yield yaml("version 99", lambda s: s.replace("version: 8", "version: 99"))
    yield yaml("path up", lambda s: s.replace("bag.db3", "../../outside/secret.txt"))
    yield yaml("path absolute", lambda s: s.replace("bag.db3", "OUTSIDE/secret.txt"))
    yield yaml("path gone", lambda s: s.replace("bag.db3", "other.db3"))
    yield sql("view that never ends", "either", "alter table messages rename to m", "create view messages as with recursive r(id,topic_id,timestamp,data) as (select 1,1,0,x'00010000' union all select id+1,1,id,x'00010000' from r) select * from r")  # fmt: skip
    yield sql("view of another file", "either", "alter table messages rename to m", "create view messages as select id, topic_id, timestamp, readfile('/etc/passwd') as data from m")  # fmt: skip
    yield sql("trigger", "accept", "create trigger t after insert on messages begin select 1; end")
    yield sql("data short", "refuse", "update messages set data = x'00'")
    yield sql("data lengths of 2^32", "refuse", "update messages set data = x'00010000ffffffffffffffffffffffffffffffffffffffff'")  # fmt: skip
    yield sql("data of 100 MB", "either", "update messages set data = zeroblob(100000000) where id = 1")
    yield sql("stamp text", "either", "update messages set timestamp = 'x' where id = 3")
    yield sql("topic forged", "either", f"update topics set name = char(10) || '{FORGED}'")
    yield one("database to zero", lambda d, p: (at := db(d), os.remove(at), at.symlink_to("/dev/zero")))
    yield one("database a pipe", lambda d, p: (at := db(d), os.remove(at), os.mkfifo(at)))
    yield one("database out", lambda d, p: (at := db(d), at.rename(p.outside / "x.db3"), at.symlink_to(p.outside / "x.db3")))  # fmt: skip
    yield one("metadata a pipe", lambda d, p: (os.remove(d / "metadata.yaml"), os.mkfifo(d / "metadata.yaml")))
    yield one("metadata out", lambda d, p: (os.remove(d / "metadata.yaml"), (d / "metadata.yaml").symlink_to(p.outside / "secret.txt")))  # fmt: skip
    for k in range(2):
        yield one(f"turned {k}", lambda d, p, k=k: db(d).write_bytes(spoilt(db(d).read_bytes(), k, 4)), "either")
        yield one(f"cut {k}", lambda d, p, k=k: db(d).write_bytes(spoilt(db(d).read_bytes(), k, 0)), "either")
    for name, data, want in (
        ("mcap sound", told({"q": 1}, {"q": 2}, {"q": 3}), "accept"), ("mcap broken", b"\x89MCAP0\r\n" + bytes(99), "refuse"),
    ):  # fmt: skip
        yield Case("rosbag2", name, lambda p, data=data: p.write("bag/a.mcap", data), ("log", "bag"), want)
    yield Case("rosbag2", "mcap a pipe", lambda p: (p.write("bag/x", ""), os.mkfifo(p.here / "bag/a.mcap")), ("log", "bag"))  # fmt: skip
    yield Case("rosbag2", "mcap out", lambda p: (p.write("bag/x", ""), (p.outside / "a.mcap").write_bytes(told({"SECRET5d1c0ffee": 1}, {"SECRET5d1c0ffee": 2})), (p.here / "bag/a.mcap").symlink_to(p.outside / "a.mcap")), ("log", "bag"))  # fmt: skip
    yield Case("rosbag2", "500 mcaps", lambda p: [p.write(f"bag/{k:03d}.mcap", told({"q": k}, stamps=[k * 10**7])) for k in range(500)], ("log", "bag"), "either")  # fmt: skip


def everything() -> Iterator[Case]:
    yield from mcap()
    yield from rosbag2()
