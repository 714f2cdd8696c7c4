"""Policies and what belongs to them: ONNX, contracts, deploy.yaml, beliefs, policy cards with weights, runs, learned Terms."""

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
ODD: dict[str, Any] = {"null": None, "text": "abc", "list": [[]], "-1": -1, "10^400": 10**400}


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
        "data up": lambda: net(extra=[external("../outside/secret.txt")]), "data absolute": lambda: net(extra=[external("/etc/passwd")]), "data beside": lambda: net(extra=[external("weights.bin", 12)]), "data proc": lambda: net(extra=[external("/proc/self/mem")]), "own operator": lambda: net([helper.make_node("Gemm", ["obs", "w"], ["actions"], domain="evil", transB=1)], domain="evil"), "loop": lambda: net([helper.make_node("Loop", ["", "", "obs"], ["actions"], body=loop)]), "if": lambda: net([helper.make_node("If", ["obs"], ["actions"], then_branch=loop, else_branch=loop)]), "two inputs": lambda: net(inputs=("obs", "memory")), "whole numbers": lambda: net(kind=7), "opset 99": lambda: net(opset=99), "opset 1": lambda: net(opset=1), "opset -5": lambda: net(opset=-5),
        "too narrow": lambda: net(width=3), "too wide": lambda: net(wide=5), "shapes do not fit": lambda: net([helper.make_node("Gemm", ["obs", "w"], ["actions"])]), "cycle": lambda: net([helper.make_node("Add", ["b", "obs"], ["actions"]), helper.make_node("Identity", ["actions"], ["b"])]), "no nodes": lambda: helper.make_model(helper.make_graph([], "x", [], [])).SerializeToString(), "undefined input": lambda: net([helper.make_node("Gemm", ["nope", "w"], ["actions"], transB=1)]), "reshape to 2^40": lambda: net([helper.make_node("Reshape", ["obs", "s"], ["actions"])], [numpy_helper.from_array(np.array([2**40, 2**20], np.int64), "s")]), "constant of 2^40": lambda: net(huge(2**40)[:3], huge(2**40)[3:]), "20k nodes": lambda: net([helper.make_node("Identity", ["obs" if k == 0 else f"x{k}"], [f"x{k + 1}"]) for k in range(20_000)] + [helper.make_node("Gemm", ["x20000", "w"], ["actions"], transB=1)]), "weights nan": lambda: net(weights=np.full((12, WIDTH), np.nan, np.float32)), "weights inf": lambda: net(weights=np.full((12, WIDTH), np.inf, np.float32)), "tensor lies": lambda: net(extra=[TensorProto(name="z", data_type=1, dims=[2**40], raw_data=b"x")], nodes=[helper.make_node("Add", ["obs", "z"], ["actions"])]),
        "tensor of 2^62": lambda: net(extra=[TensorProto(name="z", data_type=1, dims=[2**31, 2**31], raw_data=b"")], nodes=[helper.make_node("Add", ["obs", "z"], ["actions"])]), "name escape": lambda: net([helper.make_node("Loop" + ESCAPE, ["obs"], ["actions"])]), "name forged": lambda: net([helper.make_node(f"x\n{FORGED}", ["obs"], ["actions"])]), "square by itself": lambda: net([helper.make_node("Transpose", ["obs"], ["t"])] + [helper.make_node("MatMul", ["t" if k == 0 else f"x{k}", "obs" if k == 0 else f"x{k}"], [f"x{k + 1}"]) for k in range(3)] + [helper.make_node("Concat", ["x3"] * 40_000, ["actions"], axis=0)]),
        "ours with another's contract": lambda: net(meta={"surefoot": "{"}),
    }  # fmt: skip
    yield one("sound", lambda p: shutil.copy(p.good / "policy.onnx", p.here / "p.onnx"), "accept")
    for name, make in made.items():
        heavy = name in ("square by itself", "20k nodes")
        yield one(name, lambda p, make=make: p.write("p.onnx", make()), "either" if name == "ours with another's contract" else "refuse", heavy=heavy)  # fmt: skip
    yield one("empty", lambda p: p.write("p.onnx", b""))
    yield one("pickle", lambda p: p.write("p.onnx", pickled(p)))
    yield one("zip of torch", lambda p: p.write("p.onnx", b"PK\3\4" + pickled(p)))
    yield one("text", lambda p: p.write("p.onnx", "policy"))
    yield one("bytes of 10", lambda p: p.write("p.onnx", b"\x0a" * 5000))
    yield one("to zero", lambda p: (p.here / "p.onnx").symlink_to("/dev/zero"))
    yield one("a pipe", lambda p: os.mkfifo(p.here / "p.onnx"))
    yield one("sparse of 1 TiB", lambda p: os.truncate(p.write("p.onnx", b""), 1 << 40))
    for k in range(4):
        yield one(f"turned {k}", lambda p, k=k: p.write("p.onnx", spoilt((p.good / "policy.onnx").read_bytes()[:200], k, 2) + (p.good / "policy.onnx").read_bytes()[200:]), "either")  # fmt: skip
        yield one(f"cut {k}", lambda p, k=k: p.write("p.onnx", spoilt((p.good / "policy.onnx").read_bytes(), k, 0)))

    def ours(name: str, key: str, value: str, want: str = "refuse") -> Case:
        def build(p: Place) -> None:
            import onnx

            model = onnx.load(p.good / "ours.onnx")
            for row in model.metadata_props:
                if row.key == key:
                    row.value = value
            p.write("p.onnx", model.SerializeToString())

        return Case("onnx", name, build, ("gate", "p.onnx", *GATE), want, past=STOP)

    for name, key, value in (
        ("ours contract no JSON", "surefoot", "{"), ("ours contract list", "surefoot", "[]"), ("ours contract number", "surefoot", "5"), ("ours contract deep", "surefoot", "[" * 100_000), ("ours golden gone", "golden", ""), ("ours golden empty", "golden", '{"obs":[],"out":[]}'), ("ours golden nan", "golden", '{"obs":[[NaN,0,0,0]],"out":[[NaN]]}'), ("ours golden other", "golden", '{"obs":[[1,2,3,4]],"out":[[99]]}'), ("ours golden list", "golden", "[]"), ("ours golden ragged", "golden", '{"obs":[[1],[1,2]],"out":[[1]]}'), ("ours golden of 1e6", "golden", json.dumps({"obs": [[0] * 4] * 10, "out": [[0]] * 9})),
    ):  # fmt: skip
        yield ours(name, key, value)


def changed(kind: str, source: str, file: str, argv: tuple[str, ...], rows: Any, past: str = "") -> Iterator[Case]:
    """Cases of one JSON file with one entry changed each: (name, path, value, want)."""
    for name, path, value, want in rows:

        def build(p: Place, path: str = path, value: Any = value) -> None:
            p.write(file, json.dumps(put(read(p.good / source), path, value)))

        yield Case(kind, name, build, argv, want, past=past)


def broken(kind: str, file: str, argv: tuple[str, ...], past: str = "") -> Iterator[Case]:
    """What is wrong with any JSON file."""
    for name, content in {
        "empty": b"", "half": b'{"a":', "list": b"[]", "number": b"5", "null": b"null", "text": b'"x"', "nan": b'{"a":NaN}', "deep": b'{"a":' * 100_000, "lists deep": b"[" * 100_000, "digits": b'{"a":' + b"1" * 10**6 + b"}", "utf-16": '{"a":1}'.encode("utf-16"), "not UTF-8": b'{"a":"\xff"}', "nul": b'{"a":1}\0',
        "surrogate key": b'{"\\ud800":1}', "escape key": json.dumps({ESCAPE: 1}).encode(), "forged key": json.dumps({f"x\n{FORGED}": 1}).encode(), "yaml": b"a: !!python/object/apply:os.system [id]", "python": b"__import__('os')", "target": b'{"_target_":"os.system"}',
    }.items():  # fmt: skip
        yield Case(kind, f"file {name}", lambda p, content=content: p.write(file, content), argv, past=past)
    yield Case(kind, "file to zero", lambda p: (p.here / file).symlink_to("/dev/zero"), argv, past=past)
    yield Case(kind, "file a pipe", lambda p: os.mkfifo(p.here / file), argv, past=past)
    yield Case(kind, "file a folder", lambda p: (p.here / file).mkdir(), argv, past=past)
    yield Case(kind, "file of 1 TiB", lambda p: os.truncate(p.write(file, b""), 1 << 40), argv, past=past)


def contract() -> Iterator[Case]:
    argv = ("gate", "{good}/policy.onnx", "--model", "{good}/robot.xml", "--contract", "c.json", *GATE)
    rows: list[tuple[str, str, Any, str]] = [("sound", "about", "me", "accept")]
    for field in ("joints", "home", "observation", "rate", "action_scale", "action_limit", "latency", "kp", "commands"):
        rows += [(f"{field} {k}", field, v, "refuse") for k, v in ODD.items() if (field, k) not in {("kp", "1e9"), ("action_limit", "1e9")}]  # fmt: skip
    rows += [
        ("joints gone", "joints", GONE, "refuse"), ("joints twice", "joints/1", "FL_abduction", "refuse"), ("joint unknown", "joints/0", "FL_abductoin", "refuse"), ("joint escape", "joints/0", ESCAPE, "refuse"), ("joint forged", "joints/0", f"x\n{FORGED}", "refuse"), ("joint surrogate", "joints/0", "\ud800", "refuse"), ("home short", "home", [0.0], "refuse"), ("home 1e300", "home", [1e300] * 12, "refuse"), ("term unknown", "observation/0/name", "base_lin_vle", "refuse"), ("term dim", "observation/0/dim", 5, "refuse"), ("history abc", "observation/0/history", "abc", "refuse"), ("history 1e9", "observation/0/history", 10**9, "refuse"), ("history 0", "observation/0/history", 0, "refuse"), ("scale text", "observation/0/scale", "x", "refuse"), ("clip -1", "observation/0/clip", -1, "refuse"), ("frame unknown", "frame", "imv", "refuse"), ("frame number", "frame", 5, "refuse"), ("layout", "layout", "spiral", "refuse"), ("newest list", "newest", ["last"], "refuse"),
        ("commands unknown", "commands/vz", [0, 1], "refuse"), ("commands swapped", "commands/vx", [1, -1], "refuse"), ("rate 1e-300", "rate", 1e-300, "refuse"), ("rate 1e300", "rate", 1e300, "refuse"), ("action_scale -10", "action_scale", [-10.0], "either"), ("action_scale 0", "action_scale", [0.0], "either"), ("kp 1e8", "kp", [1e8], "either"), ("unknown field", "jonts", [], "refuse"), ("input unknown", "input", "x", "refuse"), ("output number", "output", 5, "refuse"), ("about escape", "about", ESCAPE, "either"), ("observation 5000 terms", "observation", ["joint_pos"] * 5000, "refuse"), ("latency 0.9", "latency", 0.9, "either"),
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
        ("ids gone", "joint_ids_map", GONE), ("ids text", "joint_ids_map", "abc"), ("ids beyond", "joint_ids_map/0", 99), ("ids empty", "joint_ids_map", []), ("ids true", "joint_ids_map", [True] * 12), ("ids twice", "joint_ids_map/0", 1), ("step 0", "step_dt", 0), ("step nan", "step_dt", float("nan")), ("step 1e-300", "step_dt", 1e-300), ("step text", "step_dt", "fast"), ("step -1", "step_dt", -0.02), ("step inf", "step_dt", float("inf")), ("pose text", "default_joint_pos", "abc"), ("pose nested", "default_joint_pos", [[0]] * 12), ("pose date", "default_joint_pos/0", "x"), ("actions list", "actions", []), ("actions other", "actions", {"JointTorqueAction": {}}), ("scale text", "actions/JointPositionAction/scale", "abc"), ("scale nan", "actions/JointPositionAction/scale", float("nan")), ("scale map", "actions/JointPositionAction/scale", {"a": 1}),
        ("offset text", "actions/JointPositionAction/offset", "abc"), ("observations list", "observations", []), ("observations empty", "observations", {}), ("term unknown", "observations/joint_ops", {}), ("history abc", "observations/joint_pos/history_length", "abc"), ("history 1e9", "observations/joint_pos/history_length", 10**9), ("history list", "observations/joint_pos/history_length", [1]), ("history 1.5", "observations/joint_pos/history_length", 1.5), ("history nan", "observations/joint_pos/history_length", float("nan")), ("clip text", "observations/joint_pos/clip", "ab"), ("clip number", "observations/joint_pos/clip", 5), ("clip of three", "observations/joint_pos/clip", [1, 2, 3]), ("clip empty", "observations/joint_pos/clip", []), ("term scale text", "observations/joint_pos/scale", "abc"), ("stiffness text", "stiffness", ["a"] * 12), ("stiffness -1", "stiffness", [-1.0] * 12), ("ranges text", "commands/base_velocity/ranges/lin_vel_x", "abc"), ("ranges swapped", "commands/base_velocity/ranges/lin_vel_x", [1, -1]),
    ):  # fmt: skip
        yield one(name, yaml.safe_dump(put(json.loads(json.dumps(sound)), path, value)))
    for name, content in {
        "empty": "", "number": "5", "list": "[]", "50k brackets": "[" * 50_000, "50k braces": "{a: " * 50_000, "20k dashes": "- " * 20_000, "50k question marks": "? " * 50_000, "alias bomb": "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(f"{b}: &{b} [{','.join(['*' + a] * 9)}]\n" for a, b in zip("abcdefghi", "bcdefghij")) + text, "alias of itself": "a: &a [*a]\n" + text, "merge bomb": "a: &a {x: 1}\nb: {<<: [*a, *a]}\n" + text, "python object": "!!python/object/apply:builtins.open ['CANARY', 'w']", "python tag inside": text + "x: !!python/object/apply:os.system ['touch CANARY']\n", "unknown tag": "!evil {}", "binary tag": "!!binary aGVsbG8=", "two documents": text + "---\n" + text, "nul": text + "\0", "tab": "\tjoint_ids_map: []", "escape": 'joint_ids_map: "\\e]0;owned\\a"\n' + text.split("\n", 1)[1], "int of 1e6 digits": "step_dt: " + "1" * 900_000, "sexagesimal": text.replace("step_dt: 0.02", "step_dt: 1:1:1:1:1:1:1:1:1:1:1:1"), "2 MB": "# " + "x" * 2_000_000, "not UTF-8": b"\xff\xfe\xff", "utf-16": text.encode("utf-16"),
    }.items():  # fmt: skip
        yield one(f"yaml {name}", content)
    argv = ("gate", "{good}/policy.onnx", "--model", "{good}/robot.xml", "--contract", "d.yaml", *GATE)
    yield Case("deploy", "file to zero", lambda p: (p.here / "d.yaml").symlink_to("/dev/zero"), argv, past=STOP)
    yield Case("deploy", "file a pipe", lambda p: os.mkfifo(p.here / "d.yaml"), argv, past=STOP)


def belief() -> Iterator[Case]:
    argv = ("try", "balance", "--episodes", "2", "--belief", "b.json")
    rows: list[tuple[str, str, Any, str]] = [("sound", "kind", "box", "accept"), ("kind unknown", "kind", "bxo", "refuse"), ("kind list", "kind", ["box"], "refuse"), ("kind escape", "kind", ESCAPE, "refuse"), ("kind forged", "kind", f"x\n{FORGED}", "refuse"), ("params gone", "params", GONE, "refuse"), ("params empty", "params", [], "refuse")]  # fmt: skip
    for field in ("low", "high", "params", "params/0", "params/0/nominal", "params/0/low", "params/0/name", "params/0/target", "params/0/match", "params/0/op", "params/0/log", "low/0"):  # fmt: skip
        rows += [(f"{field.replace('/', ' ')} {k}", field, v, "refuse") for k, v in ODD.items()]
    rows = [r if r[0] not in ("params 0 log true", "params 0 target text", "params 0 match text", "params 0 low -1", "params 0 nominal 1e9") else (*r[:3], "either") for r in rows]  # fmt: skip
    rows += [("match regex bomb", "params/0/match", "(a+)+$" * 50, "either"), ("match broken regex", "params/0/match", "(((", "either"), ("low above high", "low/0", 15.9, "either"), ("unknown field", "hihg", [], "refuse"), ("unknown param field", "params/0/nmae", "x", "refuse"), ("low denormal", "low/1", 5e-324, "refuse"), ("param twice", "params/1/name", "gravity", "refuse"), ("param surrogate", "params/0/name", "\ud800", "refuse"), ("log of 0", "params/1/low", 0.0, "refuse"), ("unit escape", "params/0/unit", ESCAPE, "either")]  # fmt: skip
    yield from changed("belief", "belief.json", "b.json", argv, rows)
    yield from broken("belief", "b.json", argv)
    train = ("train", "balance", "--steps", "64", "--envs", "4", "--out", "r", "--belief", "b.json")
    yield from changed("belief", "belief.json", "b.json", train, [("train over nan", "low/0", None, "refuse"), ("train over words", "params/0/nominal", "abc", "refuse"), ("train over nothing", "params", [], "refuse")])  # fmt: skip


def tensors(rows: dict[str, Any], data: bytes = bytes(64), length: int | None = None) -> bytes:
    head = json.dumps(rows).encode()
    return struct.pack("<Q", len(head) if length is None else length) + head + data


def signed(folder: Path, data: bytes, card: str = "policy.json", weights: str = "policy.safetensors") -> None:
    """Hostile weights whose hash agrees with the card: a check of the hash alone does not find them."""
    (folder / weights).write_bytes(data)
    (folder / card).write_text(json.dumps(read(folder / card) | {"sha256": hashlib.sha256(data).hexdigest()}))


def row(shape: list[int], begin: int, end: int, kind: str = "F32") -> dict[str, Any]:
    return {"dtype": kind, "shape": shape, "data_offsets": [begin, end]}


WEIGHTS: dict[str, Callable[[], bytes]] = {
    "header of 2^63": lambda: struct.pack("<Q", 2**63) + b"{}", "header of 2^64-1": lambda: b"\xff" * 8 + b"{}", "header beyond": lambda: tensors({}, length=10**6), "header no JSON": lambda: struct.pack("<Q", 4) + b"{{{{", "header list": lambda: struct.pack("<Q", 2) + b"[]", "header deep": lambda: struct.pack("<Q", 500_000) + b"[" * 500_000, "overlap": lambda: tensors({"w0": row([4], 0, 16), "b0": row([4], 8, 24)}), "offset beyond": lambda: tensors({"w0": row([4], 0, 2**62)}), "offset negative": lambda: tensors({"w0": row([4], -16, 0)}), "offset swapped": lambda: tensors({"w0": row([4], 16, 0)}), "shape overflows": lambda: tensors({"w0": row([2**32, 2**32], 0, 16)}), "shape negative": lambda: tensors({"w0": row([-4], 0, 16)}), "shape text": lambda: tensors({"w0": {"dtype": "F32", "shape": "x", "data_offsets": [0, 4]}}), "dtype unknown": lambda: tensors({"w0": row([4], 0, 16, "F99")}), "dtype bf16": lambda: tensors({"w0": row([4], 0, 8, "BF16")}, bytes(8)), "dtype fp8": lambda: tensors({"w0": row([4], 0, 4, "F8_E4M3")}, bytes(4)), "hole": lambda: tensors({"w0": row([4], 32, 48)}), "empty": lambda: b"", "eight bytes": lambda: bytes(8), "no tensors": lambda: tensors({}, b""), "1e5 tensors": lambda: tensors({f"w{k}": row([0], 0, 0) for k in range(10_000)}, b""), "name escape": lambda: tensors({ESCAPE: row([4], 0, 16)}, bytes(16)), "metadata": lambda: tensors({"__metadata__": {"x": 5}, "w0": row([4], 0, 16)}, bytes(16)), "same name": lambda: struct.pack("<Q", 118) + (b'{"w0":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"w0":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}').ljust(118) + bytes(4),
}  # fmt: skip


def policy() -> Iterator[Case]:
    argv = ("eval", "run", "--episodes", "2")

    def one(name: str, change: Callable[[Path, Place], Any], want: str = "refuse", argv: tuple[str, ...] = argv, **more: Any) -> Case:  # fmt: skip
        def build(p: Place) -> None:
            (p.here / "run").mkdir()
            for file in ("policy.json", "policy.safetensors"):
                shutil.copy(p.good / "run" / file, p.here / "run" / file)
            change(p.here / "run", p)

        return Case("policy", name, build, argv, want, **more)

    def card(name: str, path: str, value: Any, want: str = "refuse") -> Case:
        return one(name, lambda r, p: (r / "policy.json").write_text(json.dumps(put(read(r / "policy.json"), path, value))), want)  # fmt: skip

    def arrays(name: str, change: Callable[[dict[str, np.ndarray]], Any], want: str = "refuse") -> Case:
        def write(r: Path, p: Place) -> None:
            from safetensors.numpy import load, save

            a = load((r / "policy.safetensors").read_bytes())
            change(a)
            signed(r, save(a))

        return one(name, write, want)

    yield one("sound", lambda r, p: None, "accept")
    for field in ("task", "rate", "observation", "history", "action_names", "action_offset", "action_scale", "action_limit", "trial", "choices", "kp", "parents", "command_names", "action_unit"):  # fmt: skip
        for k, v in ODD.items():
            fine = (field, k) in {("action_unit", "text"), ("parents", "text"), ("action_limit", "1e9"), ("action_limit", "true"), ("rate", "true"), ("history", "true"), ("trial", "true"), ("command_names", "text"), ("action_names", "text")}  # fmt: skip
            yield card(f"{field} {k}", f"contract/{field}", v, "either" if fine else "refuse")
    for name, path, value in (
        ("task 5", "contract/task", 5), ("task up", "contract/task", "../../outside/secret"), ("task escape", "contract/task", ESCAPE), ("task forged", "contract/task", f"x\n{FORGED}"), ("task module", "contract/task", "os:system"), ("trial 1e9", "contract/trial", 10**9), ("history 1e9", "contract/history", 10**9), ("dim 1e12", "contract/observation/0/dim", 10**12), ("dim abc", "contract/observation/0/dim", "abc"), ("scale nan", "contract/observation/0/scale", "nan"), ("scale list", "contract/observation/0/scale", [1]), ("clip text", "contract/observation/0/clip", "x"), ("term unknown", "contract/observation/0/name", "other"), ("term number", "contract/observation/0/name", 5), ("format 9", "contract/format", 9), ("contract gone", "contract", GONE), ("contract list", "contract", []), ("unknown field", "contract/raet", 5), ("activation unknown", "activation", "relv"), ("activation list", "activation", ["tanh"]), ("encoder unknown", "encoder", "cnov"), ("encoder mlp", "encoder", "mlp"), ("hash gone", "sha256", GONE), ("hash other", "sha256", "0" * 64), ("hash list", "sha256", []), ("golden gone", "golden", GONE), ("golden list", "golden", []), ("golden empty", "golden", {"obs": [], "out": []}), ("golden text", "golden/obs", "x"), ("golden huge", "golden/obs/0/0", 1e300), ("golden other", "golden/out/0/0", 99.0), ("golden 10^400", "golden/obs/0/0", 10**400), ("base alone", "base", {}), ("base deep", "base", {"base": {"base": {}}}), ("action_scale -10", "contract/action_scale", [-10.0]), ("choices 1e9", "contract/choices", 10**9),
    ):  # fmt: skip
        yield card(name, path, value)
    for name, make in WEIGHTS.items():
        yield one(f"weights {name}", lambda r, p, make=make: signed(r, make()))
    yield one("weights pickle", lambda r, p: signed(r, pickled(p)))
    yield one("weights torch", lambda r, p: signed(r, b"PK\3\4" + pickled(p)))
    yield one("pt", lambda r, p: p.write("policy.pt", pickled(p)), argv=("eval", "policy.pt", "--episodes", "2"))
    yield one("ckpt", lambda r, p: p.write("policy.ckpt", pickled(p)), argv=("eval", "policy.ckpt", "--episodes", "2"))
    yield one("weights of another run", lambda r, p: (r / "policy.safetensors").write_bytes(tensors({"w0": row([4], 0, 16)}, bytes(16))))  # fmt: skip
    yield one("weights to zero", lambda r, p: (os.remove(r / "policy.safetensors"), (r / "policy.safetensors").symlink_to("/dev/zero")))  # fmt: skip
    yield one("weights a pipe", lambda r, p: (os.remove(r / "policy.safetensors"), os.mkfifo(r / "policy.safetensors")))
    yield one("weights of 1 TiB", lambda r, p: os.truncate(r / "policy.safetensors", 1 << 40))
    yield one("card to zero", lambda r, p: (os.remove(r / "policy.json"), (r / "policy.json").symlink_to("/dev/zero")))
    yield one("card a pipe", lambda r, p: (os.remove(r / "policy.json"), os.mkfifo(r / "policy.json")))
    yield one("card deep", lambda r, p: (r / "policy.json").write_text("[" * 100_000))
    yield one("card gone", lambda r, p: os.remove(r / "policy.json"))
    for name, change in (
        ("array nan", lambda a: a["w0"].fill(np.nan)), ("array inf", lambda a: a["b0"].fill(np.inf)), ("array sd 0", lambda a: a["sd"].fill(0)), ("array sd nan", lambda a: a["sd"].fill(np.nan)), ("array double", lambda a: a.update(w0=a["w0"].astype("f8"))), ("array whole", lambda a: a.update(w0=a["w0"].astype("i4"))), ("array gone", lambda a: a.pop("b0")), ("array more", lambda a: a.update(w9=np.zeros((1, 1), "f4"))), ("array w named", lambda a: a.update(wx=np.zeros((1, 1), "f4"))), ("array mirror", lambda a: a.update(obs_order=np.array([99] * 4), obs_sign=np.ones(4, "f4"), action_order=np.array([0]), action_sign=np.ones(1, "f4"))), ("array mirror negative", lambda a: a.update(obs_order=np.array([-9] * 4), obs_sign=np.ones(4, "f4"), action_order=np.array([0]), action_sign=np.ones(1, "f4"))), ("array mirror alone", lambda a: a.update(obs_order=np.arange(4))), ("array flat", lambda a: a.update(w0=a["w0"].reshape(-1))), ("array scalar", lambda a: a.update(w0=np.array(1.0, "f4"))),
    ):  # fmt: skip
        yield arrays(name, change)


def everything() -> Iterator[Case]:
    yield from onnx()
    yield from contract()
    yield from deploy()
    yield from belief()
    yield from policy()
