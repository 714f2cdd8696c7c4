"""A policy on disk: policy.safetensors (weights) beside policy.json (contract, hash, golden vectors); and ONNX.

Reading refuses what does not fit together: weights of another run, wrong shapes, numbers that are not finite, or
answers that differ from the golden ones. Nothing here unpickles, and nothing needs mujoco or torch.
"""

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from surefoot import files
from surefoot.errors import MissingExtra, SurefootError
from surefoot.policy import CLIP, DEEPEST, STRIDE, Contract, Net, Policy

LARGEST = 256 * 2**20  # bytes of weights; a policy of this toolkit is a few hundred kB
LONGEST_HEADER = 2**20  # bytes; a hundred tensors take ten thousand
ACTS = {"relu": "Relu", "elu": "Elu", "tanh": "Tanh"}
GOLDEN = 1e-5  # how far a runtime's answer may be from the golden one, relative to its size
BASE = "base/"  # before the names of what belongs to a policy's base


def save(policy: Net, folder: Path, about: dict[str, Any] | None = None) -> Path:
    """Write both files; the JSON, which commits them, last. Returns the path of the weights."""
    folder = Path(folder)
    card, arrays = _parts(policy)
    data = save_tensors(arrays)
    obs, out = policy.golden()
    files.write(folder / "policy.safetensors", data)
    files.write_json(folder / "policy.json", card | {
        "sha256": files.sha256(data),
        "golden": {"obs": obs.tolist(), "out": out.tolist()},
        "about": about or {},
    })  # fmt: skip
    return folder / "policy.safetensors"


def digest(policy: Net) -> str:
    """Content hash of all that a policy is: weights, contract, and those of its base."""
    card, arrays = _parts(policy)
    return files.sha256(save_tensors(arrays) + json.dumps(card, sort_keys=True).encode())


def _parts(policy: Net) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What the JSON says of a policy, and its arrays; a base's below its own."""
    card = {"contract": policy.contract.to_json(), "activation": policy.activation, "encoder": policy.encoder}
    arrays = {k: np.ascontiguousarray(v) for k, v in policy.arrays.items()}
    if policy.base is None:
        return card, arrays
    inner, below = _parts(_net(policy.base, f"policy for {policy.contract.task}"))
    return card | {"base": inner}, arrays | {BASE + k: v for k, v in below.items()}


def _net(base: Policy, where: str) -> Net:
    if not isinstance(base, Net):
        raise SurefootError(
            f"{where}: base: expected a Net, found a {type(base).__name__}, which is code and cannot be written; "
            "policy.linear makes a Net of a linear law"
        )
    return base


def find(path: Path) -> Path:
    """The policy.safetensors meant by a run folder, a bundle folder or the file itself."""
    path = Path(path)
    if path.is_dir():
        inside = [p.parent for p in sorted(path.glob("*/policy.safetensors"), reverse=True)]
        path = path / "policy.safetensors"
        if not path.exists() and inside:
            raise SurefootError(f"{path}: no policy here, but in {' and '.join(map(str, inside))}: name one of them")
    if not path.exists():
        raise SurefootError(f"{path}: no policy here; a run writes policy.safetensors when it ends or is saved")
    if path.suffix != ".safetensors":
        raise SurefootError(f"{path}: found {_kind(path)}, expected a run's folder or its policy.safetensors")
    return path


def is_one(path: Path) -> bool:
    """Whether a path is that of a policy of ours."""
    try:
        return find(path).is_file()
    except SurefootError:
        return False


def _kind(path: Path) -> str:
    """What a file is that is no policy of ours, by its name."""
    if path.suffix == ".onnx":
        return "an ONNX file, which `surefoot gate` takes"
    if path.suffix in (".npz", ".csv", ".tsv", ".mcap", ".parquet", ".mat", ".db3"):
        return f"a log or a table ({path.suffix})"
    return f"a file called {path.suffix or 'nothing'}"


def load(path: Path) -> Net:
    path = find(path)
    beside = path.with_suffix(".json")
    if not beside.exists():
        raise SurefootError(f"{beside}: no such file; expected it beside {path.name}: copy both files of one run")
    card = files.read_json(beside)
    _told(card, str(beside))
    data = files.read_bytes(path, LARGEST)
    if files.sha256(data) != card.get("sha256"):
        raise SurefootError(
            f"{path}: these are not the weights {beside.name} was written with (sha256 differs); "
            "copy both files of one run"
        )
    policy = _whole(card, read_tensors(data, str(path)), str(beside))
    check_golden(policy, card.get("golden"), str(beside))
    return policy


def _whole(card: Any, arrays: dict[str, np.ndarray], where: str, depth: int = 0) -> Net:
    """The inverse of _parts."""
    contract = _told(card, where)
    own = {k: v for k, v in arrays.items() if not k.startswith(BASE)}
    below = {k.removeprefix(BASE): v for k, v in arrays.items() if k.startswith(BASE)}
    if ("base" in card) != bool(below):
        raise SurefootError(
            f"{where}: base: expected it in the JSON and in the weights, or in neither; found it in one"
        )
    if depth > DEEPEST:
        raise SurefootError(f"{where}: base: expected at most {DEEPEST} on each other")
    base = _whole(card["base"], below, f"{where}: base", depth + 1) if below else None
    return Net(contract, own, str(card.get("activation")), str(card.get("encoder", "")), base)


def _told(card: Any, where: str) -> Contract:
    if not isinstance(card, dict) or "contract" not in card:
        raise SurefootError(f"{where}: contract: missing; expected the JSON that surefoot writes beside a policy")
    return Contract.from_json(card["contract"], where)


def check_golden(policy: Net, golden: Any, where: str) -> None:
    """The policy must still answer as it did when it was written."""
    try:
        obs, out = (np.array(golden[k], np.float32) for k in ("obs", "out"))
    except (TypeError, KeyError, ValueError) as error:
        raise SurefootError(f"{where}: golden: expected obs and out, found {type(golden).__name__}") from error
    if obs.ndim != 2 or obs.shape[1] != policy.contract.obs_dim:
        raise SurefootError(
            f"{where}: golden: expected observations of {policy.contract.obs_dim} numbers, found shape {obs.shape}"
        )
    found = policy.scores(obs)
    if found.shape != out.shape or not np.allclose(found, out, rtol=GOLDEN, atol=GOLDEN):
        raise SurefootError(
            f"{where}: golden: the policy answers differently from when it was written; it is not the same policy"
        )


def read_tensors(data: bytes, where: str) -> dict[str, np.ndarray]:
    """Arrays of a safetensors file; its header is checked against the file and against reason before it is parsed."""
    header = struct.unpack("<Q", data[:8])[0] if len(data) >= 8 else len(data)
    if header > min(len(data) - 8, LONGEST_HEADER):
        raise SurefootError(
            f"{where}: not a safetensors file of ours: a header of {header} bytes in a file of {len(data)}"
        )
    try:
        return load_tensors(data)
    except (SafetensorError, ValueError, KeyError, TypeError, OverflowError) as error:
        raise SurefootError(f"{where}: not a safetensors file: {error}") from error


def export_onnx(policy: Net, path: Path) -> Path:
    """One .onnx file: obs -> actions, the contract in its metadata under `surefoot`, the field's usual keys beside."""
    try:
        import onnx
    except ImportError:
        raise MissingExtra("ONNX export", "export") from None
    model = onnx.helper.make_model(
        _graph(policy), opset_imports=[onnx.helper.make_opsetid("", 17)], producer_name="surefoot"
    )
    model.ir_version = 9
    onnx.helper.set_model_props(model, _metadata(policy))
    onnx.checker.check_model(model)
    files.write(Path(path), model.SerializeToString())
    return Path(path)


def _graph(policy: Net) -> Any:
    from onnx import TensorProto, helper, numpy_helper

    nodes, constants = _nodes(policy)
    used = {name for n in nodes for name in n.input}
    n_out = policy.contract.choices or len(policy.contract.action_names)
    return helper.make_graph(
        nodes, "policy",
        [helper.make_tensor_value_info("obs", TensorProto.FLOAT, ["n", policy.contract.obs_dim])],
        [helper.make_tensor_value_info("actions", TensorProto.FLOAT, ["n", n_out])],
        [numpy_helper.from_array(v, k) for k, v in constants.items() if k in used],
    )  # fmt: skip


def _nodes(policy: Net) -> tuple[list[Any], dict[str, np.ndarray]]:
    """Nodes from `obs` to `actions`, and the constants they use."""
    from onnx import helper

    a, nodes = policy.arrays, []
    constants = dict(a) | {"low": np.array(-CLIP, np.float32), "high": np.array(CLIP, np.float32)}
    if policy.mirrored:
        constants["half"] = np.array(0.5, np.float32)

    def node(op: str, inputs: list[str], out: str | tuple[str, ...], **kw: Any) -> str:
        nodes.append(helper.make_node(op, inputs, [out] if isinstance(out, str) else list(out), **kw))
        return out if isinstance(out, str) else out[-1]

    def body(x: str, tag: str) -> str:
        if policy.encoder:
            latent = _encoder(policy, lambda op, i, out, **kw: node(op, i, _tagged(out, tag), **kw), constants, x)
            x = node("Concat", [node("Gather", [x, "keeps"], f"{tag}kept", axis=1), latent], f"{tag}told", axis=1)
        for k in range(policy.depth):
            x = node("Gemm", [x, f"w{k}", f"b{k}"], f"{tag}h{k}", transB=1)
            if k < policy.depth - 1:
                x = node(ACTS[policy.activation], [x], f"{tag}a{k}")
        return x

    z = node("Clip", [node("Div", [node("Sub", ["obs", "mean"], "o"), "sd"], "s"), "low", "high"], "z")
    out = body(z, "x")
    if policy.mirrored:
        turned = node("Mul", [node("Gather", [z, "obs_order"], "zo", axis=1), "obs_sign"], "zm")
        back = node("Mul", [node("Gather", [body(turned, "m"), "action_order"], "mo", axis=1), "action_sign"], "mm")
        out = node("Mul", [node("Add", [out, back], "both"), "half"], "mean_of_both")
    if policy.beneath is not None:
        below, theirs = _nodes(_net(policy.beneath.base, "ONNX export"))
        limit = np.array(policy.contract.action_limit, np.float32)
        constants |= {BASE + k: v for k, v in theirs.items()}
        constants |= {"columns": policy.beneath.columns, "least": -limit, "most": limit}
        node("Gather", ["obs", "columns"], BASE + "obs", axis=1)
        nodes += [_renamed(n) for n in below]
        out = node("Add", [out, node("Clip", [BASE + "actions", "least", "most"], "held")], "sum")
    node("Identity", [out], "actions")
    return nodes, constants


def _renamed(node: Any) -> Any:
    """A base's node, its names apart from those of the policy above; an output nobody wants has no name."""
    node.input[:] = [BASE + name if name else "" for name in node.input]
    node.output[:] = [BASE + name if name else "" for name in node.output]
    return node


def _tagged(out: str | tuple[str, ...], tag: str) -> str | tuple[str, ...]:
    """Names of outputs, apart from those of the same nodes for a mirror image; an output nobody wants has no name."""
    return tag + out if isinstance(out, str) else tuple(tag + name if name else "" for name in out)


def _encoder(policy: Net, node: Callable[..., str], constants: dict[str, np.ndarray], z: str) -> str:
    """The encoder's nodes; constants it needs beside the policy's arrays are added to those."""
    a, history, act = policy.arrays, policy.contract.history, ACTS[policy.activation]
    x = node("Gather", [z, "reads"], "read", axis=1)
    if policy.encoder == "gru":
        hidden, order = (
            a["enc_wh"].shape[1],
            lambda m: np.concatenate([m[1:2], m[0:1], m[2:]]),
        )  # ONNX: update, reset, new
        gates = {k: order(a[k].reshape(3, hidden, -1)).reshape(1, 3 * hidden, -1) for k in ("enc_wi", "enc_wh")}
        biases = [order(a[k].reshape(3, hidden)).reshape(1, -1) for k in ("enc_bi", "enc_bh")]
        constants |= {"onnx_wi": gates["enc_wi"], "onnx_wh": gates["enc_wh"], "onnx_b": np.concatenate(biases, 1)}
        constants["in_frames"] = np.array([0, history, len(a["reads"]) // history], np.int64)
        x = node("Transpose", [node("Reshape", [x, "in_frames"], "frames")], "by_time", perm=[1, 0, 2])
        told = [x, "onnx_wi", "onnx_wh", "onnx_b"]
        x = node("GRU", told, ("", "last"), hidden_size=hidden, linear_before_reset=1)
        x = node("Squeeze", [x, "zero"], "state")
        constants["zero"] = np.array([0], np.int64)
    else:
        for k in range(sum(name.startswith("enc_w") for name in a)):
            if policy.encoder == "conv":
                constants["in_frames"] = np.array([0, history, len(a["reads"]) // history], np.int64)
                x = node("Reshape", [x, "in_frames"], "frames")
            constants[f"enc_t{k}"] = np.ascontiguousarray(a[f"enc_w{k}"].T)
            x = node("Add", [node("MatMul", [x, f"enc_t{k}"], f"em{k}"), f"enc_b{k}"], f"eb{k}")
            x = node(act, [x], f"ea{k}")
        if policy.encoder == "conv":
            x = node("Transpose", [x], "channels_first", perm=[0, 2, 1])
            for k in range(sum(name.startswith("enc_k") for name in a)):
                x = node(act, [node("Conv", [x, f"enc_k{k}", f"enc_c{k}"], f"cv{k}", strides=[STRIDE])], f"ca{k}")
            x = node("Flatten", [node("Transpose", [x], "time_first", perm=[0, 2, 1])], "features", axis=1)
    return node("Gemm", [x, "latent_w", "latent_b"], "latent", transB=1)


def _metadata(policy: Net) -> dict[str, str]:
    c = policy.contract
    listed = lambda values: ",".join(str(v) for v in values)  # noqa: E731
    obs, out = policy.golden()
    return {
        "surefoot": json.dumps(c.to_json()),
        "golden": json.dumps({"obs": obs.tolist(), "out": out.tolist()}),
        "joint_names": listed(c.action_names),
        "joint_stiffness": listed(c.kp),
        "joint_damping": listed(c.kd),
        "default_joint_pos": listed(c.action_offset),
        "action_scale": listed(c.action_scale),
        "observation_names": listed(t.name for t in c.observation),
        "observation_terms_scale": listed(t.scale for t in c.observation),
        "observation_terms_clip": listed("inf" if t.clip is None else t.clip for t in c.observation),
        "observation_terms_history_length": listed(c.history for _ in c.observation),
        "command_names": listed(c.command_names),
    }
