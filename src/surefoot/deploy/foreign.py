"""Policies from ONNX files: our own, whose contract is inside, and other people's, with a contract file.

A contract is read from JSON (contract.py), from the metadata mjlab writes into its ONNX files, or from a deploy.yaml as
unitree_rl_lab writes it. What the last two leave open is said in `notes`, never guessed silently.
"""

import importlib.util
import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from surefoot import files, isolated
from surefoot.contract import ALIASES, COMMANDS, Contract, short_names
from surefoot.errors import MissingExtra, SurefootError
from surefoot.onnx_file import Graph

LARGEST = 2**20  # bytes of a contract file
DEEPEST = 100  # levels of nesting of a YAML
MJLAB = ("joint_names", "default_joint_pos", "action_scale", "observation_names")
RATE = 50.0  # Hz, where a file does not tell


def check_fits(graph: Graph, contract: Contract, where: str) -> None:
    """The net takes and gives as many numbers as its contract says."""
    if contract.obs_dim != graph.width:
        terms = ", ".join(f"{t.name} {t.dim * (t.history or contract.history)}" for t in contract.terms)
        raise SurefootError(
            f"{where}: the net takes {graph.width} numbers, the contract has {contract.obs_dim}: {terms}"
        )
    if len(contract.joints) != graph.wide:
        raise SurefootError(
            f"{where}: the net gives {graph.wide} numbers, the contract has {len(contract.joints)} joints"
        )


@dataclass(frozen=True)
class Found:
    """A contract, and what its source left open."""

    contract: Contract
    notes: tuple[str, ...] = ()


def contract_of(path: Path | None, metadata: Mapping[str, str], motors: Sequence[str], where: str) -> Found:
    """The contract in a file (.json, .yaml), over what the ONNX file's own metadata say, where they say something.

    `motors` are the model's driven joints in the order of its actuators.
    """
    inside = from_metadata(metadata, where) if all(k in metadata for k in MJLAB) else {}
    if path is None:
        if not inside:
            raise SurefootError(
                f"{where}: no contract in it, neither surefoot's nor mjlab's; give one with --contract (docs/gate.md)"
            )
        return Found(Contract.from_json(_open(inside), where), _left(inside))
    if path.suffix in (".yaml", ".yml"):
        inside |= from_deploy(_yaml(path), motors, str(path))
        return Found(Contract.from_json(_open(inside), str(path)), _left(inside))
    data = files.read_json(path, LARGEST)
    if not isinstance(data, dict):
        raise SurefootError(f"{path}: expected an object, found {type(data).__name__}")
    if not inside:
        return Found(Contract.from_json(data, str(path)))
    return Found(Contract.from_json(_open(inside | data), str(path)), _left(inside | data))


def _open(data: Mapping[str, Any]) -> dict[str, Any]:
    return {"rate": RATE} | dict(data)


def _left(data: Mapping[str, Any]) -> tuple[str, ...]:
    """What had to be assumed."""
    notes = [] if "rate" in data else [f"rate: not given, taken as {RATE:g} Hz"]
    if not data.get("frame"):
        notes.append("frame: not given, velocities and gravity are those of the base")
    return tuple(notes)


def from_metadata(data: Mapping[str, str], where: str) -> dict[str, Any]:
    """mjlab's keys: lists as text parted by commas, the parts of a list in a list by semicolons; 3 decimals."""
    listed = lambda key: [w.strip() for w in data.get(key, "").split(",") if w.strip()]  # noqa: E731
    real = lambda key: [_number(w, f"{where}: metadata {key}") for w in listed(key)]  # noqa: E731
    names = listed("observation_names")
    each = {k: listed(f"observation_terms_{k}") or [""] * len(names) for k in ("scale", "clip", "history_length")}
    for key, words in each.items():
        if len(words) != len(names):
            raise SurefootError(f"{where}: metadata observation_terms_{key}: expected {len(names)}, found {len(words)}")
    rows = zip(names, each["scale"], each["clip"], each["history_length"])
    terms = [_mjlab_term(*row, where) for row in rows]
    found: dict[str, Any] = {
        "joints": listed("joint_names"), "home": real("default_joint_pos"), "action_scale": real("action_scale"),
        "observation": terms, "layout": "terms", "commands": {k: [-1.0, 1.0] for k in COMMANDS},
    }  # fmt: skip
    sites = {w for w in listed("observation_terms_sensor_site") if w not in ("None", "none", "")}
    if len(sites) == 1:
        found["frame"] = sites.pop()
    for key, name in (("joint_stiffness", "kp"), ("joint_damping", "kd")):
        if listed(key):
            found[name] = real(key)
    return found


def _mjlab_term(name: str, scale: str, clip: str, history: str, where: str) -> dict[str, Any]:
    place = f"{where}: metadata: {name}"
    frames = _number(history or "1", place)
    found: dict[str, Any] = {"name": name, "history": max(1, int(frames)) if frames.is_integer() else frames}
    if scale:
        found["scale"] = [_number(w, place) for w in scale.split(";")]
    ends = [_number(w, place) for w in clip.split(";")] if clip else []
    if ends and np.isfinite(ends).any():
        found["clip"] = _symmetric(ends, place)
    return found


def from_deploy(data: Any, motors: Sequence[str], where: str) -> dict[str, Any]:
    """unitree_rl_lab's deploy.yaml: poses and scales in the policy's order, gains in that of the SDK's motors.

    The model's actuators are taken to be in the order of the SDK's motors, as in Unitree's own models.
    """
    need = ("joint_ids_map", "step_dt", "default_joint_pos", "actions", "observations")
    if not isinstance(data, Mapping) or any(k not in data for k in need):
        raise SurefootError(f"{where}: expected a deploy.yaml with {', '.join(need)}")
    ids = data["joint_ids_map"]
    if not isinstance(ids, list) or not ids or not all(isinstance(i, int) and 0 <= i < len(motors) for i in ids):
        raise SurefootError(
            f"{where}: joint_ids_map: expected motors 0..{len(motors) - 1} of the model, found {str(ids)[:80]}"
        )
    action = data["actions"].get("JointPositionAction") if isinstance(data["actions"], Mapping) else None
    if not isinstance(action, Mapping):
        raise SurefootError(f"{where}: actions: expected JointPositionAction, found {str(data['actions'])[:80]}")
    if not isinstance(data["observations"], Mapping):
        raise SurefootError(f"{where}: observations: expected terms by name")
    found: dict[str, Any] = {
        "joints": [motors[i] for i in ids], "home": data["default_joint_pos"], "rate": 1.0 / _real(data["step_dt"], f"{where}: step_dt"),
        "action_scale": action.get("scale", 1.0), "layout": "terms",
        "observation": [_unitree_term(k, v, where) for k, v in data["observations"].items()],
    }  # fmt: skip
    if action.get("offset") is not None:
        found["action_offset"] = action["offset"]
    for key, name in (("stiffness", "kp"), ("damping", "kd")):
        gains = data.get(key)
        if isinstance(gains, list) and len(gains) > max(ids):
            found[name] = [gains[i] for i in ids]
    found["commands"] = _unitree_commands(data.get("commands"))
    return found


def _unitree_term(name: Any, body: Any, where: str) -> dict[str, Any]:
    term = str(name) if ALIASES.get(str(name), str(name)) in short_names() else str(name)
    body = body if isinstance(body, Mapping) else {}
    found: dict[str, Any] = {"name": term, "history": body.get("history_length") or 1}
    if body.get("scale") is not None:
        found["scale"] = body["scale"]
    if body.get("clip") is not None:
        ends = body["clip"] if isinstance(body["clip"], list) else [body["clip"]]
        found["clip"] = _symmetric([_real(v, f"{where}: {name}: clip") for v in ends], f"{where}: {name}")
    return found


def _unitree_commands(data: Any) -> dict[str, Any]:
    try:
        ranges = dict(data["base_velocity"]["ranges"])
    except (TypeError, KeyError, ValueError):
        return {}
    theirs = ("lin_vel_x", "lin_vel_y", "ang_vel_z")
    return {ours_: ranges[name] for ours_, name in zip(COMMANDS, theirs) if name in ranges}


def _symmetric(ends: Sequence[float], where: str) -> float:
    if len(ends) == 1:
        return abs(ends[0])
    if len(ends) != 2 or ends[0] != -ends[1]:
        raise SurefootError(f"{where}: clip: expected -c and c, found {list(ends)}")
    return abs(ends[1])


def _number(word: str, where: str) -> float:
    try:
        return float(word)
    except ValueError:
        raise SurefootError(f"{where}: expected a number, found {word[:80]!r}") from None


def _real(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value:
        raise SurefootError(f"{where}: expected a number other than 0, found {value!r}")
    return float(value)


def _yaml(path: Path) -> Any:
    """Plain YAML, as JSON can hold it; parsed in a process with limits."""
    if importlib.util.find_spec("yaml") is None:
        raise MissingExtra("reading a deploy.yaml", "export")
    data = files.read_bytes(path, LARGEST)
    try:
        found = isolated.run("surefoot.deploy.foreign:plain_yaml", data, isolated.Limits(), f"{path}: reading")
    except isolated.Exceeded:
        raise
    except SurefootError as error:
        raise SurefootError(f"{path}: {error}") from None
    return files.parse_json(found, str(path), nan=True)


def plain_yaml(data: bytes) -> bytes:
    """In the child: YAML as JSON. No tags that make objects, no aliases that multiply, no key twice."""
    import yaml

    try:
        text = data.decode()
        deepest = max(itertools.accumulate((c in "[{") - (c in "]}") for c in text), default=0)
        if deepest > DEEPEST:  # each level costs what all before it did
            raise SurefootError(f"found {deepest} levels of nesting, expected at most {DEEPEST}")
        if any(isinstance(event, yaml.events.AliasEvent) for event in yaml.parse(text, Loader=yaml.SafeLoader)):
            raise SurefootError("found an alias (*name), expected plain values")
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        _no_key_twice(node, yaml)
        return json.dumps(loader.construct_document(node) if node else None, default=str).encode()
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        if isinstance(error, SurefootError):
            raise
        raise SurefootError(f"expected YAML, found {' '.join(str(error).split())[:200]}") from None


def _no_key_twice(node: Any, yaml: Any) -> None:
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            if isinstance(key.value, str) and key.value in seen:
                raise SurefootError(f"found the key {key.value[:80]!r} twice in one object, expected each once")
            seen.add(str(key.value))
            _no_key_twice(value, yaml)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            _no_key_twice(value, yaml)
