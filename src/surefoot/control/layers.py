"""Layers that a policy wears, as a file: safety.json, and the net of a reach-avoid value beside it.

    {"format": 1, "layers": [{"kind": "reach_avoid", "value": "value.onnx", "sha256": ...}, {"kind": "limits", ...}]}

The first layer is the innermost: it gets the policy's action first, and the last one has the last word. A file may be written by
hand; the net is named with its hash, and read only from the same folder.
"""

from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from surefoot import files
from surefoot.control.adaptive import Adapted, Adaptive
from surefoot.control.barrier import Barrier, BaseLimits, Filter, Filtered, JointLimits
from surefoot.control.reach_avoid import Guarded, ReachAvoid, Recovery
from surefoot.errors import SurefootError, unknown
from surefoot.onnx_file import read as read_net
from surefoot.policy import Policy
from surefoot.typed import known_fields, record, text

FORMAT = 1
NAME, VALUE = "safety.json", "value.onnx"
MOST = 16  # layers, and barriers of one
Layer = Filter | Adaptive | ReachAvoid
KINDS = ("limits", "adaptive", "reach_avoid")
BARRIERS: Mapping[str, type[Barrier]] = {"joint": JointLimits, "base": BaseLimits}


def wear(policy: Policy, layers: tuple[Layer, ...]) -> Policy:
    """The policy in its layers, first the innermost; refused where its observation lacks what a layer reads."""
    for layer in layers:
        if isinstance(layer, Filter):
            policy = Filtered(policy.contract, policy, layer)
        elif isinstance(layer, Adaptive):
            policy = Adapted(policy.contract, policy, layer)
        else:
            policy = Guarded(policy.contract, policy, layer)
    return policy


def write(folder: Path, layers: tuple[Layer, ...]) -> Path:
    """safety.json and the nets it names, in a folder. Returns its path."""
    path = Path(folder) / NAME
    if sum(isinstance(x, ReachAvoid) for x in layers) > 1:
        raise SurefootError(f"{path}: expected at most one reach-avoid layer")
    for layer in layers:
        if isinstance(layer, ReachAvoid):
            files.write(path.with_name(VALUE), layer.value.data)
    files.write_json(path, {"format": FORMAT, "layers": [to_json(x) for x in layers]})
    return path


def to_json(layer: Layer) -> dict[str, Any]:
    if isinstance(layer, Filter):
        names = {kind: name for name, kind in BARRIERS.items()}
        return {"kind": "limits", "barriers": [{"kind": names[type(b)]} | asdict(b) for b in layer.barriers]}  # type: ignore[call-overload]
    if isinstance(layer, Adaptive):
        return {"kind": "adaptive"} | asdict(layer)
    rest = {"terms": layer.terms, "recovery": asdict(layer.recovery), "threshold": layer.threshold}
    return {"kind": "reach_avoid", "value": VALUE, "sha256": files.sha256(layer.value.data)} | rest


def located(path: Path) -> Path:
    """The file that a path means: itself, or the safety.json of a folder."""
    return Path(path) / NAME if Path(path).is_dir() else Path(path)


def read(path: Path) -> tuple[Layer, ...]:
    """The layers in a file, or in the safety.json of a folder."""
    path = located(path)
    body = known_fields(files.read_json(path), {"format", "layers"}, {"format", "layers"}, str(path))
    if body["format"] != FORMAT:
        raise SurefootError(f"{path}: format: expected {FORMAT}, found {str(body['format'])[:80]}")
    found = _list(body["layers"], f"{path}: layers")
    return tuple(_layer(x, path, f"{path}: layers[{i}]") for i, x in enumerate(found))


def _list(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list) or not 0 < len(value) <= MOST:
        raise SurefootError(f"{where}: expected a list of 1 to {MOST}, found {str(value)[:80]}")
    return value


def _kind(data: Any, kinds: Any, where: str) -> tuple[str, dict[str, Any]]:
    if not isinstance(data, Mapping) or "kind" not in data:
        raise SurefootError(f"{where}: expected an object with a kind, found {str(data)[:80]}")
    kind = text(data["kind"], f"{where}: kind")
    if kind not in kinds:
        raise unknown("kind", kind, kinds, where)
    return kind, {k: v for k, v in data.items() if k != "kind"}


def _layer(data: Any, path: Path, where: str) -> Layer:
    kind, body = _kind(data, KINDS, where)
    if kind == "adaptive":
        adaptive: Adaptive = record(Adaptive, body, where)
        return adaptive
    if kind == "limits":
        body = known_fields(body, {"barriers"}, {"barriers"}, where)
        given = _list(body["barriers"], f"{where}: barriers")
        kinds = [
            (_kind(b, BARRIERS, f"{where}: barriers[{i}]"), f"{where}: barriers[{i}]") for i, b in enumerate(given)
        ]
        return Filter(tuple(record(BARRIERS[name], rest, at) for (name, rest), at in kinds))
    return _reach_avoid(body, path, where)


def _reach_avoid(body: dict[str, Any], path: Path, where: str) -> ReachAvoid:
    known = {f.name for f in fields(ReachAvoid)} | {"sha256"}
    body = known_fields(body, known, {"value", "sha256", "terms", "recovery"}, where)
    name = text(body["value"], f"{where}: value")
    if Path(name).name != name or not name.endswith(".onnx"):
        raise SurefootError(
            f"{where}: value: expected the name of an ONNX file in the same folder, found {name[:80]!r}"
        )
    net = read_net(path.with_name(name))
    if files.sha256(net.data) != body["sha256"]:
        raise SurefootError(f"{path.with_name(name)}: not the net that {path.name} names (sha256 differs)")
    rest = {k: v for k, v in body.items() if k not in ("value", "sha256")}
    readers = {Recovery: lambda v, at: record(Recovery, v, at)}
    kinds = {"value": type(net)}
    made: ReachAvoid = record(ReachAvoid, rest | {"value": net}, where, kinds, {**readers, type(net): lambda v, at: v})
    return made
