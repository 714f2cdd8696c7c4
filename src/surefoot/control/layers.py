"""Layers that a policy wears, as a file: safety.json, and the net of a reach-avoid value beside it.

    {"format": 1, "layers": [{"kind": "reach_avoid", "value": "value.onnx", "sha256": ...}, {"kind": "limits", ...}]}

The first layer is the innermost: it gets the policy's action first, and the last one has the last word. A file may be written by
hand; the net is named with its hash, and read only from the same folder.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from surefoot import files
from surefoot.control.adaptive import Adapted, Adaptive
from surefoot.control.barrier import Barrier, BaseLimits, Filter, Filtered, JointLimits
from surefoot.control.command_limits import CommandLimits, Governed
from surefoot.control.reach_avoid import Guarded, ReachAvoid, Recovery
from surefoot.errors import SurefootError, unknown
from surefoot.onnx_file import LARGEST, graph_in
from surefoot.policy import Policy, PolicyState
from surefoot.typed import known_fields, record, text

FORMAT = 1
NAME, VALUE = "safety.json", "value.onnx"
MOST = 16  # layers, and barriers of one
Layer = Filter | Adaptive | ReachAvoid | CommandLimits
KINDS = ("limits", "adaptive", "reach_avoid", "command_limits")
BARRIERS: Mapping[str, type[Barrier]] = {"joint": JointLimits, "base": BaseLimits}


def wear(policy: Policy, layers: tuple[Layer, ...]) -> Policy:
    """The policy in its layers, first the innermost; refused where its observation lacks what a layer reads."""
    for layer in layers:
        if isinstance(layer, Filter):
            policy = Filtered(policy.contract, policy, layer)
        elif isinstance(layer, Adaptive):
            policy = Adapted(policy.contract, policy, layer)
        elif isinstance(layer, CommandLimits):
            policy = Governed(policy.contract, policy, layer)
        else:
            policy = Guarded(policy.contract, policy, layer)
    return policy


def contents(layers: tuple[Layer, ...], where: str = NAME) -> dict[str, bytes]:
    """safety.json and the net it names, by file name."""
    values = [x.value.data for x in layers if isinstance(x, ReachAvoid)]
    if len(values) > 1:
        raise SurefootError(f"{where}: expected at most one reach-avoid layer")
    body = {"format": FORMAT, "layers": [to_json(x) for x in layers]}
    found = {NAME: (json.dumps(body, indent=2, allow_nan=False) + "\n").encode()}
    return found | ({VALUE: values[0]} if values else {})


def write(folder: Path, layers: tuple[Layer, ...]) -> Path:
    """safety.json and the nets it names, in a folder. Returns its path."""
    path = Path(folder) / NAME
    for name, data in contents(layers, str(path)).items():
        files.write(path.with_name(name), data)
    return path


def counted(s: PolicyState) -> dict[str, int]:
    """What the layers of one robot did, in control periods, of the state of the policy that wears them."""
    found: dict[str, int] = {}
    if "barrier.done" in s:
        found |= {f"limits {k}": int(n) for k, n in zip(("passed", "changed", "braked", "held"), s["barrier.done"][0])}
    if "command.changed" in s:
        found["commands limited"] = int(s["command.changed"][0, 0])
    if "reach_avoid.recovering" in s:
        found["recovery"] = int(s["reach_avoid.recovering"][0, 0])
    return found


def to_json(layer: Layer) -> dict[str, Any]:
    if isinstance(layer, Filter):
        names = {kind: name for name, kind in BARRIERS.items()}
        return {"kind": "limits", "barriers": [{"kind": names[type(b)]} | asdict(b) for b in layer.barriers]}  # type: ignore[call-overload]
    if isinstance(layer, Adaptive):
        return {"kind": "adaptive"} | asdict(layer)
    if isinstance(layer, CommandLimits):
        return {"kind": "command_limits"} | asdict(layer)
    rest = {"terms": layer.terms, "recovery": asdict(layer.recovery), "threshold": layer.threshold}
    return {"kind": "reach_avoid", "value": VALUE, "sha256": files.sha256(layer.value.data)} | rest


def located(path: Path) -> Path:
    """The file that a path means: itself, or the safety.json of a folder."""
    return Path(path) / NAME if Path(path).is_dir() else Path(path)


def read(path: Path) -> tuple[Layer, ...]:
    """The layers in a file, or in the safety.json of a folder."""
    path = located(path)
    beside = lambda name: files.read_bytes(path.with_name(name), LARGEST)  # noqa: E731
    return read_from(files.read_bytes(path, files.LARGEST_JSON), beside, str(path))


def read_from(data: bytes, beside: Callable[[str], bytes], where: str) -> tuple[Layer, ...]:
    """The layers in the bytes of a safety.json; `beside` gives the bytes of a net that it names."""
    body = known_fields(files.parse_json(data, where), {"format", "layers"}, {"format", "layers"}, where)
    if body["format"] != FORMAT:
        raise SurefootError(f"{where}: format: expected {FORMAT}, found {str(body['format'])[:80]}")
    found = _list(body["layers"], f"{where}: layers")
    return tuple(_layer(x, beside, f"{where}: layers[{i}]") for i, x in enumerate(found))


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


def _layer(data: Any, beside: Callable[[str], bytes], where: str) -> Layer:
    kind, body = _kind(data, KINDS, where)
    if kind == "adaptive":
        adaptive: Adaptive = record(Adaptive, body, where)
        return adaptive
    if kind == "command_limits":
        limits: CommandLimits = record(CommandLimits, body, where)
        return limits
    if kind == "limits":
        body = known_fields(body, {"barriers"}, {"barriers"}, where)
        given = _list(body["barriers"], f"{where}: barriers")
        kinds = [
            (_kind(b, BARRIERS, f"{where}: barriers[{i}]"), f"{where}: barriers[{i}]") for i, b in enumerate(given)
        ]
        return Filter(tuple(record(BARRIERS[name], rest, at) for (name, rest), at in kinds))
    return _reach_avoid(body, beside, where)


def _reach_avoid(body: dict[str, Any], beside: Callable[[str], bytes], where: str) -> ReachAvoid:
    known = {f.name for f in fields(ReachAvoid)} | {"sha256"}
    body = known_fields(body, known, {"value", "sha256", "terms", "recovery"}, where)
    name = text(body["value"], f"{where}: value")
    if Path(name).name != name or not name.endswith(".onnx"):
        raise SurefootError(
            f"{where}: value: expected the name of an ONNX file in the same folder, found {name[:80]!r}"
        )
    data = beside(name)
    if files.sha256(data) != body["sha256"]:
        raise SurefootError(f"{where}: value: {name}: not the net that {NAME} names (sha256 differs)")
    net = graph_in(data, f"{where}: value: {name}")
    rest = {k: v for k, v in body.items() if k not in ("value", "sha256")}
    readers = {Recovery: lambda v, at: record(Recovery, v, at)}
    kinds = {"value": type(net)}
    made: ReachAvoid = record(ReachAvoid, rest | {"value": net}, where, kinds, {**readers, type(net): lambda v, at: v})
    return made
