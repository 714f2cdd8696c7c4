"""Policies and what belongs to them: ONNX of others, contracts, deploy.yaml, beliefs, and policies of ours, sealed again."""

import hashlib
import json
import os
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from .arrays import pickled
from .case import ESCAPE, FORGED, Case, Place, spoilt

STOP = "absent.json: no such file"  # a gate that is told of a belief that is not there stops once all else was read
GATE = ("--belief", "absent.json", "--episodes", "20")
WIDTH = 48  # numbers that the sound contract tells


def put(where: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A JSON object with one entry changed, by a path such as contract/observation/0/dim; GONE takes it out."""
    *inner, last = path.split("/")
    at: Any = where
    for word in inner:
        at = at[int(word)] if isinstance(at, list) else at[word]
    key: Any = int(last) if isinstance(at, list) else last
    if value is GONE:
        del at[key]
    else:
        at[key] = value
    return where


GONE = object()
ODD: dict[str, Any] = {"null": None, "text": "abc", "list": [[]], "-1": -1, "10^400": 9**420}


def odd(field: str) -> dict[str, Any]:
    """Two of the odd values, other ones for other fields."""
    names, first = list(ODD), sum(map(ord, field))
    return {k: ODD[k] for k in (names[(first + 2 * j) % len(names)] for j in range(2))}


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def onnx() -> Iterator[Case]:
    from onnx import TensorProto, helper, numpy_helper

    def one(name: str, build: Callable[[Place], Any], want: str = "refuse", **more: Any) -> Case:
        argv = ("gate", "p.onnx", "--model", "{good}/robot.xml", "--contract", "{good}/contract.json", *GATE)
        return Case("onnx", name, build, argv, want, past=STOP, **more)

    def net(nodes: Any = None, extra: Any = (), inputs: Any = ("obs",), kind: int = 1, opset: int = 17, wide: int = 12, width: int = WIDTH, domain: str = "", weights: Any = None, meta: Any = None) -> bytes:  # fmt: skip
        w = np.zeros((wide, width), np.float32) if weights is None else weights
        nodes = nodes or [helper.make_node("Gemm", [inputs[0], "w"], ["actions"], transB=1)]
        ins = [helper.make_tensor_value_info(i, kind, [1, width]) for i in inputs]
        outs = [helper.make_tensor_value_info("actions", TensorProto.FLOAT, [1, wide])]
        graph = helper.make_graph(nodes, "net", ins, outs, [numpy_helper.from_array(w, "w"), *extra])
        imports = [helper.make_opsetid("", opset)] + ([helper.make_opsetid(domain, 1)] if domain else [])
        model = helper.make_model(graph, opset_imports=imports)
        model.ir_version = 8
        helper.set_model_props(model, meta or {})
        return model.SerializeToString()

    def external(location: str, length: int = 2**50) -> Any:
        tensor = TensorProto(name="w2", data_type=1, dims=[3], data_location=TensorProto.EXTERNAL)
        for key, value in (("location", location), ("offset", "0"), ("length", str(length))):
            tensor.external_data.add(key=key, value=value)
        return tensor

    def huge(n: int) -> list[Any]:
        shape = numpy_helper.from_array(np.array([n], np.int64), "shape")
        return [helper.make_node("Gemm", ["obs", "w"], ["a"], transB=1), helper.make_node("ConstantOfShape", ["shape"], ["z"]), helper.make_node("Add", ["a", "z"], ["actions"]), shape]  # fmt: skip

    loop = helper.make_graph([helper.make_node("Identity", ["c"], ["d"])], "body", [], [])
    made: dict[str, Callable[[], bytes]] = {
        "data up": lambda: net(extra=[external("../outside/secret.txt")]), "data absolute": lambda: net(extra=[external("/etc/passwd")]), "own operator": lambda: net([helper.make_node("Gemm", ["obs", "w"], ["actions"], domain="evil", transB=1)], domain="evil"), "loop": lambda: net([helper.make_node("Loop", ["", "", "obs"], ["actions"], body=loop)]), "two inputs": lambda: net(inputs=("obs", "memory")), "opset 99": lambda: net(opset=99),
        "too narrow": lambda: net(width=3), "no nodes": lambda: helper.make_model(helper.make_graph([], "x", [], [])).SerializeToString(), "reshape to 2^40": lambda: net([helper.make_node("Reshape", ["obs", "s"], ["actions"])], [numpy_helper.from_array(np.array([2**40, 2**20], np.int64), "s")]), "constant of 2^40": lambda: net(huge(2**40)[:3], huge(2**40)[3:]), "20k nodes": lambda: net([helper.make_node("Identity", ["obs" if k == 0 else f"x{k}"], [f"x{k + 1}"]) for k in range(20_000)] + [helper.make_node("Gemm", ["x20000", "w"], ["actions"], transB=1)]), "weights nan": lambda: net(weights=np.full((12, WIDTH), np.nan, np.float32)), "tensor lies": lambda: net(extra=[TensorProto(name="z", data_type=1, dims=[2**40], raw_data=b"x")], nodes=[helper.make_node("Add", ["obs", "z"], ["actions"])]),
        "name escape": lambda: net([helper.make_node("Loop" + ESCAPE, ["obs"], ["actions"])]), "name forged": lambda: net([helper.make_node(f"x\n{FORGED}", ["obs"], ["actions"])]), "square by itself": lambda: net([helper.make_node("Transpose", ["obs"], ["t"])] + [helper.make_node("MatMul", ["t" if k == 0 else f"x{k}", "obs" if k == 0 else f"x{k}"], [f"x{k + 1}"]) for k in range(3)] + [helper.make_node("Concat", ["x3"] * 40_000, ["actions"], axis=0)]),
        "ours with another's contract": lambda: net(meta={"surefoot": "{"}),
    }  # fmt: skip
    yield one("sound", lambda p: shutil.copy(p.good / "policy.onnx", p.here / "p.onnx"), "accept")
    for name, make in made.items():
        heavy = name in ("square by itself", "20k nodes")
        yield one(name, lambda p, make=make: p.write("p.onnx", make()), "either" if name == "ours with another's contract" else "refuse", heavy=heavy)  # fmt: skip
    yield one("pickle", lambda p: p.write("p.onnx", pickled(p)))
    yield one("to zero", lambda p: (p.here / "p.onnx").symlink_to("/dev/zero"))
    yield one("a pipe", lambda p: os.mkfifo(p.here / "p.onnx"))
    yield one("sparse of 1 TiB", lambda p: os.truncate(p.write("p.onnx", b""), 1 << 40))
    for k in range(2):
        yield one(f"turned {k}", lambda p, k=k: p.write("p.onnx", spoilt((p.good / "policy.onnx").read_bytes()[:200], k, 2) + (p.good / "policy.onnx").read_bytes()[200:]), "either")  # fmt: skip
        yield one(f"cut {k}", lambda p, k=k: p.write("p.onnx", spoilt((p.good / "policy.onnx").read_bytes(), k, 0)))


def changed(kind: str, source: str, file: str, argv: tuple[str, ...], rows: Any, past: str = "") -> Iterator[Case]:
    """Cases of one JSON file with one entry changed each: (name, path, value, want)."""
    for name, path, value, want in rows:

        def build(p: Place, path: str = path, value: Any = value) -> None:
            p.write(file, json.dumps(put(read(p.good / source), path, value)))

        yield Case(kind, name, build, argv, want, past=past)


def broken(kind: str, file: str, argv: tuple[str, ...], past: str = "", few: bool = False) -> Iterator[Case]:
    """What is wrong with any JSON file; all are read by one reader, so that a few show that it is used."""
    for name, content in {
        "empty": b"", "list": b"[]", "nan": b'{"a":NaN}', "deep": b'{"a":' * 100_000, "digits": b'{"a":' + b"1" * 10**6 + b"}", "not UTF-8": b'{"a":"\xff"}',
        "surrogate key": b'{"\\ud800":1}', "escape key": json.dumps({ESCAPE: 1}).encode(), "forged key": json.dumps({f"x\n{FORGED}": 1}).encode(), "target": b'{"_target_":"os.system"}',
    }.items():  # fmt: skip
        if few and name not in ("empty", "list", "deep", "surrogate key", "forged key"):
            continue
        yield Case(kind, f"file {name}", lambda p, content=content: p.write(file, content), argv, past=past)
    yield Case(kind, "file to zero", lambda p: (p.here / file).symlink_to("/dev/zero"), argv, past=past)
    yield Case(kind, "file a pipe", lambda p: os.mkfifo(p.here / file), argv, past=past)
    yield Case(kind, "file a folder", lambda p: (p.here / file).mkdir(), argv, past=past)
    yield Case(kind, "file of 1 TiB", lambda p: os.truncate(p.write(file, b""), 1 << 40), argv, past=past)


def contract() -> Iterator[Case]:
    argv = ("gate", "{good}/policy.onnx", "--model", "{good}/robot.xml", "--contract", "c.json", *GATE)
    rows: list[tuple[str, str, Any, str]] = [("sound", "about", "me", "accept")]
    for field in ("joints", "home", "observation", "rate", "action_scale", "action_limit", "latency", "kp", "commands"):
        rows += [(f"{field} {k}", field, v, "refuse") for k, v in odd(field).items() if (field, k) not in {("action_scale", "-1"), ("kp", "-1")}]  # fmt: skip
    rows += [
        ("joints gone", "joints", GONE, "refuse"), ("joints twice", "joints/1", "FL_abduction", "refuse"), ("joint unknown", "joints/0", "FL_abductoin", "refuse"), ("joint escape", "joints/0", ESCAPE, "refuse"), ("joint forged", "joints/0", f"x\n{FORGED}", "refuse"), ("joint surrogate", "joints/0", "\ud800", "refuse"), ("home 1e300", "home", [1e300] * 12, "refuse"), ("term unknown", "observation/0/name", "base_lin_vle", "refuse"), ("term dim", "observation/0/dim", 5, "refuse"), ("history abc", "observation/0/history", "abc", "refuse"), ("history 1e9", "observation/0/history", 10**9, "refuse"), ("clip -1", "observation/0/clip", -1, "refuse"), ("frame unknown", "frame", "imv", "refuse"), ("newest list", "newest", ["last"], "refuse"),
        ("commands unknown", "commands/vz", [0, 1], "refuse"), ("commands swapped", "commands/vx", [1, -1], "refuse"), ("rate 1e300", "rate", 1e300, "refuse"), ("action_scale -10", "action_scale", [-10.0], "either"), ("unknown field", "jonts", [], "refuse"), ("input unknown", "input", "x", "refuse"), ("about escape", "about", ESCAPE, "either"), ("observation 5000 terms", "observation", ["joint_pos"] * 5000, "refuse"),
    ]  # fmt: skip
    rows = [r for r in rows if r[0] not in ("commands list", "home 1e9", "commands null")]
    yield from changed("contract", "contract.json", "c.json", argv, rows, STOP)
    yield from broken("contract", "c.json", argv, STOP)


def deploy() -> Iterator[Case]:
    import yaml

    sound = {
        "joint_ids_map": list(range(12)), "step_dt": 0.02, "default_joint_pos": [0.0] * 12, "stiffness": [20.0] * 12, "damping": [0.5] * 12, "actions": {"JointPositionAction": {"scale": 0.5, "offset": [0.0] * 12}},
        "observations": {n: {"scale": 1.0, "history_length": 1} for n in ("base_lin_vel", "base_ang_vel", "projected_gravity", "joint_pos", "joint_vel", "last_action", "velocity_commands")}, "commands": {"base_velocity": {"ranges": {"lin_vel_x": [0.5, 0.5]}}},
    }  # fmt: skip

    def one(name: str, content: str | bytes, want: str = "refuse", **more: Any) -> Case:
        argv = ("gate", "{good}/policy.onnx", "--model", "{good}/robot.xml", "--contract", "d.yaml", *GATE)
        return Case("deploy", name, lambda p: p.write("d.yaml", content.replace("CANARY", str(p.canary)) if isinstance(content, str) else content), argv, want, past=STOP, **more)  # fmt: skip

    text = yaml.safe_dump(sound)
    yield one("sound", text, "accept")
    for name, path, value in (
        ("ids gone", "joint_ids_map", GONE), ("ids beyond", "joint_ids_map/0", 99), ("ids empty", "joint_ids_map", []), ("ids twice", "joint_ids_map/0", 1), ("step 0", "step_dt", 0), ("step 1e-300", "step_dt", 1e-300), ("step -1", "step_dt", -0.02), ("pose nested", "default_joint_pos", [[0]] * 12), ("actions list", "actions", []), ("actions other", "actions", {"JointTorqueAction": {}}), ("scale nan", "actions/JointPositionAction/scale", float("nan")),
        ("offset text", "actions/JointPositionAction/offset", "abc"), ("observations list", "observations", []), ("term unknown", "observations/joint_ops", {}), ("history abc", "observations/joint_pos/history_length", "abc"), ("history 1e9", "observations/joint_pos/history_length", 10**9), ("history nan", "observations/joint_pos/history_length", float("nan")), ("clip of three", "observations/joint_pos/clip", [1, 2, 3]), ("term scale text", "observations/joint_pos/scale", "abc"), ("stiffness -1", "stiffness", [-1.0] * 12), ("ranges text", "commands/base_velocity/ranges/lin_vel_x", "abc"), ("ranges swapped", "commands/base_velocity/ranges/lin_vel_x", [1, -1]),
    ):  # fmt: skip
        yield one(name, yaml.safe_dump(put(json.loads(json.dumps(sound)), path, value)))
    for name, content in {
        "empty": "", "list": "[]", "50k brackets": "[" * 50_000, "50k question marks": "? " * 50_000, "alias bomb": "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(f"{b}: &{b} [{','.join(['*' + a] * 9)}]\n" for a, b in zip("abcdefghi", "bcdefghij")) + text, "alias of itself": "a: &a [*a]\n" + text, "unknown tag": "!evil {}", "nul": text + "\0", "escape": 'joint_ids_map: "\\e]0;owned\\a"\n' + text.split("\n", 1)[1], "int of 1e6 digits": "step_dt: " + "1" * 900_000, "sexagesimal": text.replace("step_dt: 0.02", "step_dt: 1:1:1:1:1:1:1:1:1:1:1:1"), "2 MB": "# " + "x" * 2_000_000, "not UTF-8": b"\xff\xfe\xff",
    }.items():  # fmt: skip
        yield one(f"yaml {name}", content)
    tagged = text + "x: !!python/object/apply:os.system ['touch CANARY']\n"  # the tag is ignored, and said
    yield one("yaml python tag inside", tagged, "accept")
    argv = ("gate", "{good}/policy.onnx", "--model", "{good}/robot.xml", "--contract", "d.yaml", *GATE)
    yield Case("deploy", "file to zero", lambda p: (p.here / "d.yaml").symlink_to("/dev/zero"), argv, past=STOP)
    yield Case("deploy", "file a pipe", lambda p: os.mkfifo(p.here / "d.yaml"), argv, past=STOP)


def belief() -> Iterator[Case]:
    argv = ("try", "balance", "--episodes", "2", "--belief", "b.json")
    rows: list[tuple[str, str, Any, str]] = [("sound", "kind", "box", "accept"), ("kind unknown", "kind", "bxo", "refuse"), ("kind forged", "kind", f"x\n{FORGED}", "refuse"), ("params gone", "params", GONE, "refuse"), ]  # fmt: skip
    for field in ("low", "high", "params", "params/0", "params/0/nominal", "params/0/low", "params/0/name", "params/0/target", "params/0/match", "params/0/op", "params/0/log", "low/0"):  # fmt: skip
        rows += [(f"{field.replace('/', ' ')} {k}", field, v, "refuse") for k, v in odd(field).items()]
    rows = [r if r[0] not in ("params 0 log true", "params 0 target text", "params 0 match text", "params 0 low -1", "params 0 nominal 1e9") else (*r[:3], "either") for r in rows]  # fmt: skip
    rows += [("match regex bomb", "params/0/match", "(a+)+$" * 50, "either"), ("low above high", "low/0", 15.9, "either"), ("unknown field", "hihg", [], "refuse"), ("low denormal", "low/1", 5e-324, "refuse"), ("param twice", "params/1/name", "gravity", "refuse"), ("param surrogate", "params/0/name", "\ud800", "refuse"), ("log of 0", "params/1/low", 0.0, "refuse"), ("unit escape", "params/0/unit", ESCAPE, "either")]  # fmt: skip
    yield from changed("belief", "belief.json", "b.json", argv, rows)
    yield from broken("belief", "b.json", argv, few=True)
    train = ("train", "balance", "--steps", "64", "--envs", "4", "--out", "r", "--belief", "b.json")
    yield from changed("belief", "belief.json", "b.json", train, [("train over nan", "low/0", None, "refuse"), ("train over nothing", "params", [], "refuse")])  # fmt: skip


def tensors(rows: dict[str, Any], data: bytes = bytes(64), length: int | None = None) -> bytes:
    head = json.dumps(rows).encode()
    return struct.pack("<Q", len(head) if length is None else length) + head + data


def card_of(folder: Path, name: str = "policy.onnx") -> dict[str, Any]:
    """What a policy or a learned Term says of itself."""
    import onnx

    return json.loads({r.key: r.value for r in onnx.load(folder / name).metadata_props}["surefoot"])  # type: ignore[no-any-return]


def sealed(folder: Path, card: Any, change: Callable[[Any], Any] | None = None, name: str = "policy.onnx") -> None:
    """Write a file of ours with another card and a hash that agrees: a check of the seal alone does not find it."""
    import onnx

    model = onnx.load(folder / name)
    text = card if isinstance(card, str) else json.dumps(card)
    onnx.helper.set_model_props(model, {"surefoot": text, "sha256": "0" * 64})
    if change:
        change(model)
    blank = model.SerializeToString()
    hash_ = hashlib.sha256(blank).hexdigest()
    (folder / name).write_bytes(blank.replace(b"0" * 64, hash_.encode()))


def weighed(folder: Path, data: bytes) -> None:
    """Hostile weights whose hash stands in the sealed card."""
    (folder / "policy.safetensors").write_bytes(data)
    sealed(folder, card_of(folder) | {"weights": hashlib.sha256(data).hexdigest()})


def row(shape: list[int], begin: int, end: int, kind: str = "F32") -> dict[str, Any]:
    return {"dtype": kind, "shape": shape, "data_offsets": [begin, end]}


WEIGHTS: dict[str, Callable[[], bytes]] = {
    "header of 2^64-1": lambda: b"\xff" * 8 + b"{}", "header beyond": lambda: tensors({}, length=10**6), "header no JSON": lambda: struct.pack("<Q", 4) + b"{{{{", "header deep": lambda: struct.pack("<Q", 500_000) + b"[" * 500_000, "overlap": lambda: tensors({"w0": row([4], 0, 16), "b0": row([4], 8, 24)}), "offset beyond": lambda: tensors({"w0": row([4], 0, 2**62)}), "offset negative": lambda: tensors({"w0": row([4], -16, 0)}), "shape overflows": lambda: tensors({"w0": row([2**32, 2**32], 0, 16)}), "dtype bf16": lambda: tensors({"w0": row([4], 0, 8, "BF16")}, bytes(8)), "no tensors": lambda: tensors({}, b""), "1e5 tensors": lambda: tensors({f"w{k}": row([0], 0, 0) for k in range(10_000)}, b""), "name escape": lambda: tensors({ESCAPE: row([4], 0, 16)}, bytes(16)), "metadata": lambda: tensors({"__metadata__": {"x": 5}, "w0": row([4], 0, 16)}, bytes(16)), "same name": lambda: struct.pack("<Q", 118) + (b'{"w0":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"w0":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}').ljust(118) + bytes(4),
}  # fmt: skip


def replaced(path: Path, how: str) -> None:
    """A file made a thing that is none: an endless device, a pipe without a writer, or a hole of 1 TiB."""
    if how == "of 1 TiB":
        return os.truncate(path, 1 << 40)
    os.remove(path)
    os.mkfifo(path) if how == "a pipe" else path.symlink_to("/dev/zero")


SPECIAL = ("to zero", "a pipe", "of 1 TiB")
CARDS = {"no JSON": "{", "list": "[]", "deep": "[" * 100_000, "nan": '{"format": NaN}', "twice": '{"format":2,"format":2}', "surrogate": '{"\\ud800":1}', "digits": '{"format":' + "1" * 10**6 + "}", "forged": json.dumps({f"x\n{FORGED}": 1})}  # fmt: skip
"""of files of ours, that are no cards"""


def policy() -> Iterator[Case]:
    evaluate = ("eval", "run", "--episodes", "2")
    onward = ("train", "balance", "--base", "run", "--steps", "64", "--envs", "4", "--threads", "1", "--out", "new")

    def one(name: str, change: Callable[[Path, Place], Any], want: str = "refuse", argv: tuple[str, ...] = evaluate) -> Case:  # fmt: skip
        def build(p: Place) -> None:
            (p.here / "run").mkdir()
            for file in ("policy.onnx", "policy.safetensors"):
                shutil.copy(p.good / "run" / file, p.here / "run" / file)
            change(p.here / "run", p)

        return Case("policy", name, build, argv, want)

    def card(name: str, path: str, value: Any, want: str = "refuse", argv: tuple[str, ...] = evaluate) -> Case:
        return one(name, lambda r, p: sealed(r, put(card_of(r), path, value)), want, argv)

    def arrays(name: str, change: Callable[[dict[str, np.ndarray]], Any]) -> Case:
        def write(r: Path, p: Place) -> None:
            from safetensors.numpy import load, save

            a = {k: v.copy() for k, v in load((r / "policy.safetensors").read_bytes()).items()}
            change(a)
            weighed(r, save(a))

        return one(name, write, "refuse", onward)

    yield one("sound", lambda r, p: None, "accept")
    yield one("sound, sealed again", lambda r, p: sealed(r, card_of(r)), "accept")
    yield one("sound to learn on", lambda r, p: None, "accept", onward)
    fields = ("task", "rate", "observation", "observation/history", "action/names", "action/offset", "action/limit", "action/choices", "trial", "parents", "command_ranges", "ports")  # fmt: skip
    for field in fields:
        for k, v in odd(field).items():
            fine = (field, k) == ("action/unit", "text")
            yield card(f"{field.replace('/', ' ')} {k}", f"contract/{field}", v, "either" if fine else "refuse")
    term = "contract/observation/terms/0"
    for name, path, value in (
        ("task up", "contract/task", "../../outside/secret"), ("task escape", "contract/task", ESCAPE), ("task forged", "contract/task", f"x\n{FORGED}"), ("task module", "contract/task", "os:system"), ("history 1e9", "contract/observation/history", 10**9), ("dim 1e12", f"{term}/dim", 10**12), ("scale nan", f"{term}/scale", "nan"), ("clip -1", f"{term}/clip", -1), ("term unknown", f"{term}/name", "other"), ("formula unknown", f"{term}/formula/kind", "os.system"), ("formula joints", f"{term}/formula/joints", ["slide", "hinge\x1b[2J"]), ("formula joints swapped", f"{term}/formula/joints", ["hinge", "slide"]), ("formula reading", f"{term}/formula/reading", ["x"]), ("contract format", "contract/format", 9), ("contract short", "contract", {"joints": ["slide"]}), ("unknown field", "contract/raet", 5), ("format 9", "format", 9), ("extra", "extra", 1), ("control swapped", "contract/control_low", [99.0]), ("scale -10", "contract/action/scale", [-10.0]), ("choices 1", "contract/action/choices", 1), ("names escape", "contract/action/names", [ESCAPE]),
        ("golden gone", "golden", GONE), ("golden empty", "golden/obs", []), ("golden huge", "golden/obs/0/0", 1e300), ("golden 10^400", "golden/obs/0/0", 9**420), ("golden other", "golden/out/0/0", 99.0), ("golden control", "golden/control/0/0", 99.0), ("golden readings", "golden/readings/joint_pos/0/0", 99.0), ("golden readings list", "golden/readings", []), ("golden parts", "golden/parts", {"joint_pos": ["slide"]}),
    ):  # fmt: skip
        yield card(name, path, value, "either" if name in ("task module", "names escape") else "refuse")
    for name, text in CARDS.items():
        yield one(f"card {name}", lambda r, p, text=text: sealed(r, text))
    for name, data in {"gone": b"", "twice": b"0" * 64, "other": b"f" * 64}.items():
        yield one(f"seal {name}", lambda r, p, data=data: seal_with(r / "policy.onnx", data))
    yield one("net answers otherwise", lambda r, p: sealed(r, card_of(r), louder))
    yield one(
        "metadata twice", lambda r, p: sealed(r, card_of(r), lambda m: m.metadata_props.add(key="surefoot", value="{}"))
    )
    for k in range(2):
        yield one(f"turned {k}", lambda r, p, k=k: (r / "policy.onnx").write_bytes(spoilt((r / "policy.onnx").read_bytes(), k, 1 + 3 * k)))  # fmt: skip
    yield one("cut", lambda r, p: (r / "policy.onnx").write_bytes(spoilt((r / "policy.onnx").read_bytes(), 1, 0)))
    for how in SPECIAL:
        yield one(f"policy {how}", lambda r, p, how=how: replaced(r / "policy.onnx", how))
        yield one(f"weights {how}", lambda r, p, how=how: replaced(r / "policy.safetensors", how), "refuse", onward)
    yield one("policy gone", lambda r, p: os.remove(r / "policy.onnx"))
    yield one("of an earlier version", lambda r, p: (os.remove(r / "policy.onnx"), p.write("run/policy.json", "{}")))
    for end in ("pt", "ckpt"):
        yield one(end, lambda r, p, end=end: p.write(f"policy.{end}", pickled(p)), argv=("eval", f"policy.{end}", "--episodes", "2"))  # fmt: skip
    # what learning on reads: the structure and the weights
    for name, path, value in (
        ("net gone", "net", GONE), ("net list", "net", []), ("net sizes 1e9", "net/sizes", [4, 10**9, 10**9, 1]), ("net of 1e5 layers", "net/sizes", [4] * 100_000), ("net other sizes", "net/sizes", [4, 8, 1]), ("net activation", "net/activation", "os.system"), ("net scale text", "net/scale", "x"), ("net scale 10^400", "net/scale", 9**420), ("net mirrored", "net/mirrored", True), ("net encoder 1e9", "net/encoder", {"kind": "gru", "reads": 10**9, "frames": 1, "latent": 10**9, "width": 10**9, "keeps": 10**9}), ("net base of itself", "net/base", {"sizes": [4, 64, 64, 1], "activation": "tanh", "mirrored": False, "scale": 1.0, "encoder": None}), ("weights hash gone", "weights", GONE), ("about list", "about", [1]),
    ):  # fmt: skip
        yield card(name, path, value, "either" if name == "about list" else "refuse", onward)
    for name, make in WEIGHTS.items():
        yield one(f"weights {name}", lambda r, p, make=make: weighed(r, make()), "refuse", onward)
    yield one("weights pickle", lambda r, p: weighed(r, pickled(p)), "refuse", onward)
    yield one("weights torch", lambda r, p: weighed(r, b"PK\3\4" + pickled(p)), "refuse", onward)
    yield one("weights of another run", lambda r, p: (r / "policy.safetensors").write_bytes(tensors({"w0": row([4], 0, 16)}, bytes(16))), "refuse", onward)  # fmt: skip
    for name, change in (
        ("array nan", lambda a: a["actor.body.0.weight"].fill(np.nan)), ("array sd 0", lambda a: a["sd"].fill(0)), ("array more", lambda a: a.update(w9=np.zeros((1, 1), "f4"))), ("array whole", lambda a: a.update(mean=np.zeros(4, "i8"))), ("array other", lambda a: a["mean"].fill(3.0)),
    ):  # fmt: skip
        yield arrays(name, change)


def seal_with(path: Path, data: bytes) -> None:
    """The hash in a policy, replaced or written twice."""
    import onnx

    model = onnx.load(path)
    for r in model.metadata_props:
        if r.key == "sha256":
            r.value = data.decode()
    path.write_bytes(model.SerializeToString())


def louder(model: Any) -> None:
    """A net of which one array is twice as large."""
    from onnx import numpy_helper

    first = next(t for t in model.graph.initializer if len(t.dims) >= 2)
    first.CopyFrom(numpy_helper.from_array(2 * numpy_helper.to_array(first), first.name))


def everything() -> Iterator[Case]:
    yield from onnx()
    yield from contract()
    yield from deploy()
    yield from belief()
    yield from policy()
