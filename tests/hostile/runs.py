"""Run folders, learned Terms, special files, folders with Python files in them, and names that are no names."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from .arrays import TIME, Q, archive, pickled, saved
from .case import ESCAPE, FORGED, Case, Place, spoilt
from .logs import GOOD
from .models import arm
from .policies import CARDS, GONE, SPECIAL, WEIGHTS, card_of, louder, odd, put, read, replaced, seal_with, sealed

RESUME = ("train", "--resume", "run", "--threads", "1")


def run() -> Iterator[Case]:
    def one(name: str, change: Callable[[Path, Place], Any], want: str = "refuse", argv: tuple[str, ...] = RESUME, **more: Any) -> Case:  # fmt: skip
        def build(p: Place) -> None:
            shutil.copytree(p.good / "run", p.here / "run")
            change(p.here / "run", p)

        return Case("run", name, build, argv, want, **more)

    def about(name: str, path: str, value: Any, want: str = "refuse", argv: tuple[str, ...] = RESUME) -> Case:
        """A run.json that says something else, sealed again, and so is the copy in the checkpoint."""

        def change(r: Path, p: Place) -> None:
            told = put(read(r / "run.json"), path, value)
            resealed(r / "run.json", told)
            resealed(
                newest(r, "json"), read(newest(r, "json")) | {"run": {k: v for k, v in told.items() if k != "sha256"}}
            )

        return one(name, change, want, argv)

    def card(name: str, path: str, value: Any, want: str = "refuse") -> Case:
        """A checkpoint's card that says something else, sealed again."""
        return one(name, lambda r, p: resealed(at := newest(r, "json"), put(read(at), path, value)), want)

    ev = ("eval", "run", "--episodes", "2")
    yield one("sound", lambda r, p: None, "accept")
    yield one("edited", lambda r, p: (r / "run.json").write_text(json.dumps(put(read(r / "run.json"), "seed", 7))))
    for field in ("task", "seed", "belief", "settings", "versions", "resumed", "settings/envs", "settings/steps", "settings/hidden", "settings/lr", "settings/activation"):  # fmt: skip
        for k, v in odd(field).items():
            fine = field in ("resumed", "versions") or (field, k) in {("settings/steps", "-1")}
            yield about(f"{field.replace('/', ' ')} {k}", field, v, "either" if fine else "refuse")
    for name, path, value in (
        ("task gone", "task", GONE), ("task file", "task", "evil.py"), ("task escape", "task", ESCAPE), ("task forged", "task", f"x\n{FORGED}"), ("settings unknown", "settings/lrr", 1), ("envs 1e9", "settings/envs", 10**9), ("hidden 1e9", "settings/hidden", [10**9, 10**9]), ("minibatches 0", "settings/minibatches", 0), ("teacher", "teacher", 5), ("terms 1e9", "terms", 10**9), ("obs", "obs", 5), ("obs unknown", "obs", {"x": 1}), ("unknown field", "sees", {}), ("ranges unknown", "ranges", {"kind": "adrr"}), ("ranges bad", "ranges", {"kind": "adr", "step": "x"}), ("versions gone", "versions", GONE),
    ):  # fmt: skip
        yield about(name, path, value)
    for name, path, value in (
        ("eval seed list", "seed", [1]), ("eval start number", "start", {"run": 5}), ("eval start itself", "start", {"run": "run"}), ("eval start out", "start", {"run": "../outside"}), ("eval start nul", "start", {"run": "a\0b"}), ("eval task text", "task", 5),
    ):  # fmt: skip
        yield about(name, path, value, "either", ev)
    for name, path, value in (
        ("iteration text", "numbers/iteration", "x"), ("iteration -5", "numbers/iteration", -5), ("iteration 1e9", "numbers/iteration", 10**9), ("iteration 1.5", "numbers/iteration", 1.5), ("rate text", "numbers/lr", "x"), ("numbers list", "numbers", [1]), ("metrics number", "metrics", 5), ("metrics gone", "metrics", GONE), ("metrics here text", "metrics/here", "abc"), ("metrics rows", "metrics/here/0", 10**9), ("metrics since list", "metrics/since", [[1]]), ("copy list", "run", []),
    ):  # fmt: skip
        yield card(name, path, value, "either")
    for name in ("header of 2^64-1", "header no JSON", "offset beyond", "dtype bf16", "no tensors", "1e5 tensors", "name escape"):  # fmt: skip
        yield one(f"checkpoint {name}", lambda r, p, make=WEIGHTS[name]: _checkpoint(newest(r, "json"), make()), "either")  # fmt: skip
    yield one("checkpoint pickle", lambda r, p: _checkpoint(newest(r, "json"), pickled(p)), "either")
    yield one("checkpoint turned", lambda r, p: newest(r, "safetensors").write_bytes(spoilt(newest(r, "safetensors").read_bytes(), 1, 1)), "either")  # fmt: skip
    yield one("checkpoint gone", lambda r, p: shutil.rmtree(r / "checkpoints"), "either")
    yield one("checkpoint card deep", lambda r, p: newest(r, "json").write_text("[" * 100_000), "either")
    for how in SPECIAL:
        yield one(f"checkpoint {how}", lambda r, p, how=how: replaced(newest(r, "safetensors"), how), "either")
        yield one(f"metrics {how}", lambda r, p, how=how: replaced(r / "metrics.jsonl", how), "either")
        yield one(f"run.json {how}", lambda r, p, how=how: replaced(r / "run.json", how))
    yield one("checkpoints out", lambda r, p: ((r / "checkpoints").rename(p.outside / "c"), (r / "checkpoints").symlink_to(p.outside / "c")), "either")  # fmt: skip
    yield one("metrics binary", lambda r, p: (r / "metrics.jsonl").write_bytes(bytes(range(256)) * 99), "either")
    yield one("metrics out", lambda r, p: (os.remove(r / "metrics.jsonl"), (r / "metrics.jsonl").symlink_to(p.outside / "secret.txt")), "either")  # fmt: skip
    yield one("lock a pipe", lambda r, p: ((r / "run.lock").unlink(missing_ok=True), os.mkfifo(r / "run.lock")), "either")  # fmt: skip
    yield one("lock a folder", lambda r, p: ((r / "run.lock").unlink(missing_ok=True), (r / "run.lock").mkdir()))
    yield one("run.json deep", lambda r, p: (r / "run.json").write_text("[" * 100_000))
    yield one("run.json list", lambda r, p: (r / "run.json").write_text("[]"))
    yield one("eval run.json list", lambda r, p: (r / "run.json").write_text("[]"), "either", ev)
    yield one("start from it", lambda r, p: (r / "run.json").write_text("{}"), "refuse", ("train", "balance", "--start", "run", "--out", "new"))  # fmt: skip


def newest(run: Path, end: str) -> Path:
    return sorted((run / "checkpoints").glob(f"*.{end}"))[-1]


def resealed(path: Path, told: Any) -> None:
    """A JSON file whose seal agrees with what it says: a check of the seal alone does not find it."""
    rest = {k: v for k, v in told.items() if k != "sha256"}
    body = json.dumps(rest, sort_keys=True, separators=(",", ":"))
    path.write_text(json.dumps(rest | {"sha256": hashlib.sha256(body.encode()).hexdigest()}))


def _checkpoint(card: Path, data: bytes) -> None:
    card.with_suffix(".safetensors").write_bytes(data)
    resealed(card, read(card) | {"arrays": hashlib.sha256(data).hexdigest()})


def terms() -> Iterator[Case]:
    FILE = "term.onnx"

    def one(name: str, change: Callable[[Path, Place], Any], want: str = "refuse", good: str = "term") -> Case:
        argv = ("eval", "{good}/run", "--episodes", "2", "--terms", "t")
        return Case("term", name, lambda p: (shutil.copytree(p.good / good, p.here / "t"), change(p.here / "t", p)), argv, want)  # fmt: skip

    def card(name: str, path: str, value: Any, good: str = "term") -> Case:
        return one(name, lambda t, p: sealed(t, put(card_of(t, FILE), path, value), name=FILE), good=good)

    def net(name: str, change: Callable[[Any], Any], good: str = "term") -> Case:
        return one(name, lambda t, p: sealed(t, card_of(t, FILE), change, FILE), good=good)

    for good in ("term", "motor"):
        yield one(f"sound {good}", lambda t, p: None, "accept", good)
        yield net(f"{good} answers otherwise", louder, good)
    yield one("edited", lambda t, p: (t / FILE).write_bytes((t / FILE).read_bytes().replace(b"residual force", b"residual farce")))  # fmt: skip
    for field in ("format", "kind", "term", "golden", "about", "term/features", "term/features/joints", "term/features/places", "term/features/turns", "term/features/base", "term/features/nv", "term/features/controls"):  # fmt: skip
        for k, v in odd(field).items():
            yield card(f"{field.replace('/', ' ')} {k}", field, v)
    for field in ("term", "term/dt", "term/drives", "term/slow", "term/limit", "term/drives/0", "term/drives/0/gain", "term/drives/0/actuator", "term/drives/0/gear"):  # fmt: skip
        for k, v in odd(field).items():
            yield card(f"motor {field.replace('/', ' ')} {k}", field, v, "motor")
    at = "term/features"
    for name, path, value in (
        ("place beyond", f"{at}/places/0", 99), ("place negative", f"{at}/places/0", -99), ("na 1e9", f"{at}/na", 10**9), ("joint forged", f"{at}/joints/0", f"x\n{FORGED}"), ("joint escape", f"{at}/joints/0", ESCAPE), ("kind escape", "kind", ESCAPE), ("kind other", "kind", "delta action"), ("kind actuator", "kind", "actuator net"), ("speeds short", f"{at}/speeds", [0]), ("unknown field", f"{at}/nvv", 2), ("earlier format", "format", 2), ("golden other", "golden/0/0", 99.0), ("golden short", "golden", [[0.0]]), ("golden gone", "golden", GONE), ("a contract", "contract", {}),
    ):  # fmt: skip
        yield card(name, path, value)
    for name, path, value in (("dt 1e-300", "term/dt", 1e-300), ("dt other", "term/dt", 0.5), ("slow 0", "term/slow", [0.0]), ("limits two", "term/limit", [1.0, 1.0]), ("no drives", "term/drives", []), ("gain other", "term/drives/0/gain", 7.0), ("actuator forged", "term/drives/0/actuator", f"x\n{FORGED}")):  # fmt: skip
        yield card(f"motor {name}", path, value, "motor")
    for name, text in CARDS.items():
        yield one(f"card {name}", lambda t, p, text=text: sealed(t, text, name=FILE))
    for name, data in {"gone": b"", "twice": b"0" * 64, "other": b"f" * 64}.items():
        yield one(f"seal {name}", lambda t, p, data=data: seal_with(t / FILE, data))
    for name, change in (
        ("weights nan", _nan), ("weights elsewhere", _elsewhere), ("operator unknown", lambda m: setattr(m.graph.node[0], "op_type", f"x\n{FORGED}")), ("inputs two", lambda m: m.graph.input.add().CopyFrom(m.graph.output[0])), ("metadata twice", lambda m: m.metadata_props.add(key="surefoot", value="{}")), ("width 2^40", lambda m: setattr(m.graph.output[0].type.tensor_type.shape.dim[1], "dim_value", 1 << 40)), ("no nodes", lambda m: m.graph.ClearField("node")),
    ):  # fmt: skip
        yield net(name, change)
    for k in range(2):
        yield one(f"turned {k}", lambda t, p, k=k: (t / FILE).write_bytes(spoilt((t / FILE).read_bytes(), k, 1 + 3 * k)))  # fmt: skip
    yield one("cut", lambda t, p: (t / FILE).write_bytes(spoilt((t / FILE).read_bytes(), 1, 0)))
    yield one("pickle", lambda t, p: (t / FILE).write_bytes(pickled(p)))
    for how in SPECIAL:
        yield one(f"file {how}", lambda t, p, how=how: replaced(t / FILE, how))
    yield one("a policy", lambda t, p: shutil.copy(p.good / "run/policy.onnx", t / FILE))
    yield one("of others", lambda t, p: shutil.copy(p.good / "policy.onnx", t / FILE))
    yield one("of an earlier version", lambda t, p: (os.remove(t / FILE), (t / "term.json").write_text('{"format": 2, "layout": {}}')))  # fmt: skip
    yield one("nothing", lambda t, p: os.remove(t / FILE))


def _nan(model: Any) -> None:
    from onnx import numpy_helper

    first = next(t for t in model.graph.initializer if len(t.dims) >= 2)
    first.CopyFrom(numpy_helper.from_array(float("nan") * numpy_helper.to_array(first), first.name))


def _elsewhere(model: Any) -> None:
    """Weights in another file, outside."""
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = 1
    tensor.external_data.add(key="location", value="../../outside/secret.txt")


def special() -> Iterator[Case]:
    def one(name: str, build: Callable[[Place], Any], *argv: str, want: str = "refuse", **more: Any) -> Case:
        return Case("special", name, build, argv, want, **more)

    nothing: Callable[[Place], Any] = lambda p: None  # noqa: E731
    unread = "either" if os.geteuid() == 0 else "refuse"  # root reads all
    for end in ("csv", "json", "npz", "mat", "parquet", "mcap"):
        yield one(f"{end} to zero", lambda p, end=end: (p.here / f"a.{end}").symlink_to("/dev/zero"), "log", f"a.{end}")
        yield one(f"{end} a pipe", lambda p, end=end: os.mkfifo(p.here / f"a.{end}"), "log", f"a.{end}")
    yield one("csv a folder", lambda p: (p.here / "a.csv").mkdir(), "log", "a.csv")
    yield one("csv to nothing", lambda p: (p.here / "a.csv").symlink_to("none"), "log", "a.csv")
    for name, path in (("zero", "/dev/zero"), ("full", "/dev/full"), ("null", "/dev/null"), ("tty", "/dev/tty"), ("mem", "/proc/self/mem"), ("environ", "/proc/self/environ"), ("stdin", "/dev/stdin"), ("root", "/"), ("proc", "/proc")):  # fmt: skip
        verb = "look" if name in ("full", "tty", "environ", "root") else "log"
        yield one(f"{verb} {name}", nothing, verb, path)
    yield one("look mem", nothing, "look", "/proc/self/mem")
    yield one("model to zero", lambda p: (p.here / "r.xml").symlink_to("/dev/zero"), "look", "r.xml")
    yield one("model a pipe", lambda p: os.mkfifo(p.here / "r.xml"), "look", "r.xml")
    yield one("model a folder", lambda p: (p.here / "r.xml").mkdir(), "look", "r.xml")
    yield one("link to itself", lambda p: (p.here / "a.csv").symlink_to("a.csv"), "log", "a.csv")
    yield one("not to be read", lambda p: p.write("a.csv", GOOD).chmod(0), "log", "a.csv", want=unread)
    yield one("model not to be read", lambda p: p.write("r.xml", arm()).chmod(0), "look", "r.xml", want=unread)
    yield one("folder not to be read", lambda p: (p.write("d/meta/info.json", "{}"), (p.here / "d").chmod(0)), "log", "d")  # fmt: skip
    yield one("below a file", lambda p: p.write("a", GOOD), "log", "a/b.csv")
    yield one("saved over a link out", lambda p: (p.write("a.csv", GOOD), (p.here / "s.npz").symlink_to(p.outside / "secret.txt")), "log", "a.csv", "--save", "s.npz", want="either")  # fmt: skip
    yield one("saved into a file", lambda p: (p.write("a.csv", GOOD), p.write("x", "")), "log", "a.csv", "--save", "x/s.npz")  # fmt: skip
    copied = lambda p: shutil.copytree(p.good / "run", p.here / "r")  # noqa: E731
    yield one("run locked through a link", lambda p: (copied(p), (p.here / "r/run.lock").symlink_to(p.outside / "secret.txt")), "train", "--resume", "r")  # fmt: skip
    yield one("run locked by a second name", lambda p: (copied(p), os.link(p.outside / "secret.txt", p.here / "r/run.lock")), "train", "--resume", "r")  # fmt: skip
    yield one("run locked by a pipe", lambda p: (copied(p), os.mkfifo(p.here / "r/run.lock")), "train", "--resume", "r")
    yield one("gate locked through a link", lambda p: (p.here / "g").mkdir() or (p.here / "g/gate.lock").symlink_to(p.outside / "secret.txt"), "gate", "{good}/run", "--episodes", "20", "--out", "g")  # fmt: skip
    yield one("checkpoints outside", lambda p: (copied(p), (p.here / "r/checkpoints").rename(p.outside / "c"), (p.here / "r/checkpoints").symlink_to(p.outside / "c")), "train", "--resume", "r")  # fmt: skip
    yield one("sparse of 1 TiB", lambda p: os.truncate(p.write("a.csv", ""), 1 << 40), "log", "a.csv")
    yield one("sparse npz of 1 TiB", lambda p: os.truncate(p.write("a.npz", ""), 1 << 40), "log", "a.npz")


SHADOWS = ("numpy", "surefoot", "onnx", "onnxruntime", "sitecustomize", "usercustomize", "scipy", "json", "pyarrow", "mcap", "rosbags", "resource", "mujoco", "zipfile", "struct")  # fmt: skip


def shadow() -> Iterator[Case]:
    """Python files beside the data, with the verb run there."""

    def beside(p: Place) -> None:
        for name in SHADOWS:
            p.write(f"{name}.py", p.code + "\nraise ImportError('shadow')\n")
        p.write("mcap_ros2/__init__.py", p.code)

    def one(name: str, build: Callable[[Place], Any], *argv: str, want: str = "accept", past: str = "") -> Iterator[Case]:  # fmt: skip
        both = lambda p: (beside(p), build(p))  # noqa: E731
        yield Case("shadow", name, both, argv, want, past)
        yield Case("shadow", f"{name}, new interpreter", both, argv, want, past, fresh=True)

    from tests.formats import makers

    yield from one("csv", lambda p: p.write("a.csv", GOOD), "log", "a.csv")
    yield from one("npz", lambda p: archive(p, {"time.npy": saved(TIME), "q.npy": saved(Q)}), "log", "a.npz")
    yield from one("mat", lambda p: makers.mat_file(p.here / "a.mat", 9), "log", "a.mat")
    yield from one("parquet", lambda p: makers.parquet_file(p.here / "a.parquet", 9), "log", "a.parquet")
    yield from one("mcap", lambda p: makers.mcap_file(p.here / "a.mcap", 9), "log", "a.mcap")
    yield from one("rosbag2", lambda p: makers.rosbag2_folder(p.here / "bag", 9), "log", "bag")
    yield from one("lerobot", lambda p: makers.lerobot_folder(p.here / "d"), "log", "d")
    yield from one("model", lambda p: p.write("r.xml", arm()), "look", "r.xml")
    yield from one("model tried apart", lambda p: p.write("r.xml", arm(pre='<size memory="300M"/>')), "look", "r.xml")
    gate = ("gate", "p.onnx", "--model", "{good}/robot.xml", "--contract", "{good}/contract.json", "--belief", "absent.json", "--episodes", "20")  # fmt: skip
    yield from one("onnx", lambda p: shutil.copy(p.good / "policy.onnx", p.here / "p.onnx"), *gate, past="absent.json: no such file")  # fmt: skip
    yield from one("eval", lambda p: None, "eval", "{good}/run", "--episodes", "2")
    yield from one("belief", lambda p: shutil.copy(p.good / "belief.json", p.here / "b.json"), "try", "balance", "--episodes", "2", "--belief", "b.json")  # fmt: skip


def names() -> Iterator[Case]:
    """Names of files, which errors and pages repeat."""
    for name, stem in {
        "escape": "a\x1b[2Jb", "title": "a\x1b]0;owned\x07b", "newline": f"a\n{FORGED}", "carriage return": f"a\r{FORGED}", "markup": "[red]a[", "percent": "%s%n{0}", "quote": "a'b\"c", "dollar": "$(touch x)`touch y`;touch z", "spaces": " a ", "dash": "-rf", "star": "*", "bidi": "a\u202egpj", "c1": "a\u009b31mb", "backspace": "a\b\b\bb", "delete": "a\x7fb", "long": "a" * 240, "dots": "a..", "unicode": "\u0430\u0308\U0001f600", "zero width": "a\u200bb", "not UTF-8": "a\udcffb", "html": "<script>alert(1)<", "tab": "a\tb",
    }.items():  # fmt: skip
        model = arm(joint='damping="-1"')
        four = [
            Case("names", f"log {name}", lambda p, s=stem: (p.here / f"{s}.csv").write_text(GOOD), ("log", f"./{stem}.csv"), "either"),
            Case("names", f"broken log {name}", lambda p, s=stem: (p.here / f"{s}.csv").write_text("time,q\n0,x\n1\n"), ("log", f"./{stem}.csv")),
            Case("names", f"broken model {name}", lambda p, s=stem, m=model: (p.here / f"{s}.xml").write_text(m), ("look", f"./{stem}.xml")),
            Case("names", f"absent {name}", lambda p: None, ("eval", f"./{stem}")),
        ]  # fmt: skip
        yield from four[len(name) % 2 :: 2]  # two of the four verbs for each name
    yield Case("names", "log with nul", lambda p: None, ("log", "a\0b.csv"))
    yield Case("names", "model with nul", lambda p: None, ("look", "a\0b.xml"))
    yield Case("names", "name of 10k", lambda p: None, ("log", "a" * 10_000 + ".csv"))
    yield Case("names", "model of 10k", lambda p: None, ("look", "a" * 10_000 + ".xml"))
    yield Case("names", "path of 5k folders", lambda p: None, ("log", "a/" * 5_000 + "b.csv"))
    yield Case("names", "empty", lambda p: None, ("log", ""))


def everything() -> Iterator[Case]:
    yield from run()
    yield from terms()
    yield from special()
    yield from shadow()
    yield from names()
