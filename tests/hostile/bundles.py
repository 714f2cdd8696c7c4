"""Bundles with one thing wrong and every hash and seal right, safety layers, and the rows that a killed run leaves."""

import hashlib
import io
import json
import os
import shutil
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from .arrays import pickled
from .case import ESCAPE, FORGED, Case, Place, spoilt
from .policies import GONE, SPECIAL, broken, odd, put, read, replaced
from .runs import resealed

RUN = ("run", "b", "--link", "udp://127.0.0.1:9", "--no-keys")
DRIVEN = "no robot answers"  # what is said once a bundle was taken
FILES = ("policy.onnx", "golden.json", "safety.json", "value.onnx")


def hashed(b: Path) -> None:
    """A manifest that knows the files as they are now, sealed again."""
    told = read(b / "manifest.json")
    told["files"] = {n: hashlib.sha256((b / n).read_bytes()).hexdigest() for n in FILES if (b / n).is_file()}
    resealed(b / "manifest.json", told)


def one(name: str, change: Callable[[Path, Place], Any], want: str = "refuse", source: str = "worn", **more: Any) -> Case:  # fmt: skip
    def build(p: Place) -> None:
        shutil.copytree(p.good / source, p.here / "b")
        change(p.here / "b", p)

    return Case("bundle", name, build, more.pop("argv", RUN), want, past=DRIVEN, **more)


def said(name: str, file: str, path: str, value: Any, want: str = "refuse") -> Case:
    """One entry of one JSON file changed, with hashes and seal that agree."""

    def change(b: Path, p: Place) -> None:
        (b / file).write_text(json.dumps(put(read(b / file), path, value)))
        hashed(b) if file != "manifest.json" else resealed(b / file, read(b / file))

    return one(f"{file} {name}", change, want)


def bundle() -> Iterator[Case]:
    yield one("sound", lambda b, p: None, "accept", "bundle", heavy=True)
    yield one("sound worn", lambda b, p: None, "accept", heavy=True)
    yield one("sound checked", lambda b, p: None, "accept", argv=("bundle", "check", "b"))
    for field in ("format", "files", "limits", "belief", "verdict", "wears", "parents", "files/golden.json", "limits/low", "limits/torque", "limits/tilt", "limits/gear", "belief/params", "belief/low", "parents/run"):  # fmt: skip
        for k, v in odd(field).items():
            fine = (field, k) in {("belief", "null"), ("verdict", "null"), ("limits/tilt", "null")}
            yield said(f"{field.replace('/', ' ')} {k}", "manifest.json", field, v, "either" if fine else "refuse")
    for name, path, value in (
        ("about gone", "about", GONE), ("verdict of another", "verdict", {"title": "x", "checks": [], "holds": True}), ("verdict forged", "verdict", {"title": f"x\n{FORGED}", "checks": [{"name": ESCAPE}], "holds": True}), ("limits nan", "limits/low", ["nan"]), ("limits 1e9 of them", "limits/low", [0.0] * 100_000), ("wears other", "wears", ["limits", "reach_avoid"]), ("wears escape", "wears", [ESCAPE]), ("unknown field", "import", "os"), ("files out", "files/..%2foutside", "0" * 64),
    ):  # fmt: skip
        yield said(name, "manifest.json", path, value)
    for field in ("readings", "parts", "raw", "obs", "out", "control", "command", "worn", "obs/0", "obs/0/0", "command/0", "worn/0/0", "readings/joint_pos", "parts/joint_pos"):  # fmt: skip
        for k, v in odd(field).items():
            yield said(f"{field.replace('/', ' ')} {k}", "golden.json", field, v)
    for name, path, value in (("1e6 rows", "obs", [[0.0]] * 300_000), ("ragged", "obs/1", [0.0]), ("no readings", "readings", {}), ("obs wide", "obs", [[0.0] * 5] * 200), ("command moved", "command/0/0", 0.5), ("worn moved", "worn/3/0", 0.9), ("reading unknown", "readings/eval", [[1.0]]), ("part forged", "parts/joint_pos/0", f"x\n{FORGED}")):  # fmt: skip
        yield said(name, "golden.json", path, value)
    for file in (*FILES, "manifest.json"):
        yield one(f"{file} gone", lambda b, p, f=file: os.remove(b / f))
        yield one(f"{file} turned", lambda b, p, f=file: (b / f).write_bytes(spoilt((b / f).read_bytes(), 1, 1)))
        yield one(f"{file} cut", lambda b, p, f=file: (b / f).write_bytes(spoilt((b / f).read_bytes(), 2, 0)))
        yield one(f"{file} out", lambda b, p, f=file: (os.remove(b / f), (b / f).symlink_to(p.outside / "secret.json")))
        yield one(f"{file} deep", lambda b, p, f=file: (b / f).write_text("[" * 100_000))
        yield one(f"{file} pickle", lambda b, p, f=file: (b / f).write_bytes(pickled(p)))
        for how in SPECIAL:
            yield one(f"{file} {how}", lambda b, p, f=file, how=how: replaced(b / f, how))
    yield one("of two", lambda b, p: shutil.copy(p.good / "bundle" / "golden.json", b / "golden.json"))
    yield one("layers of nobody", lambda b, p: shutil.copy(p.good / "safety" / "safety.json", b / "safety.json"), source="bundle")  # fmt: skip
    yield one("empty folder", lambda b, p: (shutil.rmtree(b), b.mkdir()))
    yield one("a file", lambda b, p: (shutil.rmtree(b), b.write_text("x")))
    yield from zips()


def zips() -> Iterator[Case]:
    def zipped(name: str, entries: Callable[[dict[str, bytes], Place], list[tuple[str, bytes]]], want: str = "refuse", **more: Any) -> Case:  # fmt: skip
        def build(p: Place) -> None:
            have = {f.name: f.read_bytes() for f in sorted((p.good / "worn").iterdir())}
            out = io.BytesIO()
            with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as z:
                for member, data in entries(have, p):
                    z.writestr(zipfile.ZipInfo(member), data, zipfile.ZIP_DEFLATED)
            p.write("b.zip", out.getvalue())

        return Case("bundle", f"zip {name}", build, ("run", "b.zip", *RUN[2:]), want, past=DRIVEN, **more)

    yield zipped("sound", lambda m, p: list(m.items()), "accept", heavy=True)
    yield zipped("up", lambda m, p: [*m.items(), ("../canary", b"x")])
    yield zipped("absolute", lambda m, p: [*m.items(), (str(p.canary), b"x")])
    yield zipped("another", lambda m, p: [*m.items(), ("run.py", p.code.encode())])
    yield zipped("folder inside", lambda m, p: [(f"b/{k}", v) for k, v in m.items()])
    yield zipped("bomb", lambda m, p: [(k, v + b" " * (300 << 20) if k == "golden.json" else v) for k, v in m.items()], heavy=True)  # fmt: skip
    yield zipped("10000 members", lambda m, p: [*m.items(), *((f"{k}.json", b"") for k in range(10_000))])
    yield zipped("escape", lambda m, p: [*m.items(), (ESCAPE, b"")])
    yield Case("bundle", "zip of zeros", lambda p: p.write("b.zip", bytes(1000)), ("run", "b.zip", *RUN[2:]), past=DRIVEN)  # fmt: skip


def safety() -> Iterator[Case]:
    argv = ("eval", "{good}/run", "--episodes", "2", "--threads", "1", "--safety", "s")

    def layer(name: str, path: str, value: Any, want: str = "refuse") -> Case:
        def build(p: Place) -> None:
            shutil.copytree(p.good / "safety", p.here / "s")
            at = p.here / "s" / "safety.json"
            at.write_text(json.dumps(put(read(at), path, value)))

        return Case("safety", name, build, argv, want)

    yield Case("safety", "sound", lambda p: shutil.copytree(p.good / "safety", p.here / "s"), argv, "accept")
    yield from broken("safety", "safety.json", (*argv[:-1], "safety.json"))
    switch, limits = "layers/0", "layers/1/barriers/0"
    for field in ("layers", "format", f"{switch}/kind", f"{switch}/value", f"{switch}/sha256", f"{switch}/terms", f"{switch}/recovery", f"{switch}/threshold", f"{switch}/recovery/points", f"{switch}/recovery/drive", f"{switch}/recovery/columns", "layers/1/barriers", f"{limits}/kind", f"{limits}/joints", f"{limits}/low", f"{limits}/alpha", f"{limits}/substeps", f"{limits}/joints/names", f"{limits}/joints/armature"):  # fmt: skip
        for k, v in odd(field).items():
            fine = field.endswith("threshold") and k == "-1"
            yield layer(f"{field.replace('/', ' ')} {k}", field, v, "either" if fine else "refuse")
    for name, path, value in (
        ("value up", f"{switch}/value", "../outside/secret.json"), ("value absolute", f"{switch}/value", "/etc/passwd"), ("value no onnx", f"{switch}/value", "safety.json"), ("value nul", f"{switch}/value", "a\0.onnx"), ("kind code", f"{switch}/kind", "os.system"), ("kind forged", f"{switch}/kind", f"x\n{FORGED}"), ("grid 1e12", f"{switch}/recovery/points", [10**12]), ("column beyond", f"{switch}/recovery/columns", [["cart_pole", 99]]), ("column negative", f"{switch}/recovery/columns", [["cart_pole", -1]]), ("terms twice", f"{switch}/terms", ["cart_pole", "cart_pole"]),
        ("1000 layers", "layers", [{"kind": "limits", "barriers": []}] * 1000), ("barriers none", "layers/1/barriers", []), ("substeps 1e9", f"{limits}/substeps", 10**9), ("substeps 0", f"{limits}/substeps", 0), ("joint unknown", f"{limits}/joints/names", [ESCAPE]), ("low over high", f"{limits}/low", [1e7]), ("armature 0", f"{limits}/joints/armature", [0.0]), ("gain 0", f"{limits}/joints/gain", [0.0]), ("target", f"{limits}/_target_", "os.system"),
    ):  # fmt: skip
        yield layer(name, path, value)
    yield Case("safety", "net turned", lambda p: (shutil.copytree(p.good / "safety", p.here / "s"), (p.here / "s" / "value.onnx").write_bytes(spoilt((p.good / "safety" / "value.onnx").read_bytes(), 1, 1))), argv)  # fmt: skip


def rows() -> Iterator[Case]:
    argv, head = (
        ("log", "a.rows"),
        b'SFROWS1\n{"columns": [["time", 0, "f8"], ["q", 1, "f4"]], "units": {}, "meta": {}}\n',
    )
    good = lambda p: (p.good / "run.rows").read_bytes()  # noqa: E731
    made = lambda name, data, want="refuse": Case("rows", name, lambda p: p.write("a.rows", data(p)), argv, want)  # noqa: E731
    yield made("sound", good, "accept")
    for k in range(3):
        yield made(f"cut {k}", lambda p, k=k: spoilt(good(p), k, 0), "either")
        yield made(f"turned {k}", lambda p, k=k: spoilt(good(p), k, 1), "either")
    for name, data in {
        "empty": b"", "magic alone": b"SFROWS1\n", "no rows": head, "one row": head + bytes(16), "all at one instant": head + bytes(16 * 1000), "nan times": head + b"\xff" * 1600,
        "width 1e9": head.replace(b'"q", 1', b'"q", 1000000000') + bytes(1600), "width -1": head.replace(b'"q", 1', b'"q", -1') + bytes(1600), "type of objects": head.replace(b"f4", b"O") + bytes(1600), "name twice": head.replace(b'"q"', b'"time"') + bytes(1600), "deep": b"SFROWS1\n" + b"[" * 100_000 + b"\n", "no end of the line": b"SFROWS1\n" + b" " * (2 << 20), "name escape": head.replace(b'"q"', json.dumps(ESCAPE).encode()) + bytes(160),
        "meta odd": head.replace(b'"meta": {}', b'"meta": {"names": 5}') + bytes(160), "1e5 columns": b'SFROWS1\n{"columns": [["time", 0, "f8"]' + b"".join(b',["c%d", 0, "f8"]' % k for k in range(40_000)) + b'], "units": {}, "meta": {}}\n' + bytes(1 << 20),
    }.items():  # fmt: skip
        want = "either" if name in ("all at one instant", "name escape", "1e5 columns", "nan times") else "refuse"
        yield made(name, lambda p, data=data: data, want)
    yield Case("rows", "to zero", lambda p: (p.here / "a.rows").symlink_to("/dev/zero"), argv)
    yield Case("rows", "a pipe", lambda p: os.mkfifo(p.here / "a.rows"), argv)


def everything() -> Iterator[Case]:
    yield from bundle()
    yield from safety()
    yield from rows()
