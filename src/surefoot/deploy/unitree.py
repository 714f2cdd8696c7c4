"""deploy.yaml, as unitree_rl_lab writes it: poses and scales in the policy's order, gains in that of the SDK's motors.

The model's actuators are taken to be in the order of the SDK's motors, as in Unitree's own models. Tags that would make Python
objects (`!!python/object/apply:builtins.slice`) are not read; the rest of the file is, and `ignored` names what was not.
"""

import importlib.util
import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from surefoot import files, isolated
from surefoot.contract import COMMANDS
from surefoot.errors import MissingExtra, SurefootError

LARGEST = 2**20  # bytes of a contract file
DEEPEST = 100  # levels of nesting of a YAML
NEEDED = ("joint_ids_map", "step_dt", "default_joint_pos", "actions", "observations")
WHOLE = "the whole file"
PYTHON = "tag:yaml.org,2002:python/"
TUPLE = f"{PYTHON}tuple"
GYM = "use_gym_history"  # in place of a term: frames together, not terms
RANGES = ("lin_vel_x", "lin_vel_y", "ang_vel_z")  # of COMMANDS


@dataclass(frozen=True)
class Plain:
    """What a YAML says in plain values."""

    data: Any
    ignored: tuple[str, ...]
    """places with a Python tag, each with the tag; they are null in data"""


def from_deploy(data: Any, motors: Sequence[str], where: str, ignored: Sequence[str] = ()) -> dict[str, Any]:
    """The short contract that a deploy.yaml says."""
    _check_needed(data, where, ignored)
    ids = data["joint_ids_map"]
    if not isinstance(ids, list) or not ids or not all(isinstance(i, int) and 0 <= i < len(motors) for i in ids):
        raise SurefootError(
            f"{where}: joint_ids_map: expected motors 0..{len(motors) - 1} of the model, found {str(ids)[:80]}"
        )
    action = data["actions"].get("JointPositionAction") if isinstance(data["actions"], Mapping) else None
    if not isinstance(action, Mapping):
        raise SurefootError(f"{where}: actions: expected JointPositionAction, found {str(data['actions'])[:80]}")
    seen = data["observations"]
    if not isinstance(seen, Mapping):
        raise SurefootError(f"{where}: observations: expected terms by name")
    found: dict[str, Any] = {
        "joints": [motors[i] for i in ids], "home": data["default_joint_pos"], "rate": 1.0 / _real(data["step_dt"], f"{where}: step_dt"),
        "action_scale": action.get("scale", 1.0), "layout": "frames" if seen.get(GYM) is True else "terms",
        "observation": [_term(k, v, where) for k, v in seen.items() if k != GYM],
    }  # fmt: skip
    if action.get("offset") is not None:
        found["action_offset"] = action["offset"]
    for key, name in (("stiffness", "kp"), ("damping", "kd")):
        gains = data.get(key)
        if isinstance(gains, list) and len(gains) > max(ids):
            found[name] = [gains[i] for i in ids]
    return found | _phase(seen) | {"commands": _commands(data.get("commands"))}


def _check_needed(data: Any, where: str, ignored: Sequence[str]) -> None:
    tagged = {words.split(":")[0].split(".")[0]: words for words in ignored}
    for name in (WHOLE, *NEEDED):
        if name in tagged and (data is None or (isinstance(data, Mapping) and data.get(name) is None)):
            raise SurefootError(
                f"{where}: {tagged[name]}: expected plain values; a tag that makes an object is not read"
            )
    if not isinstance(data, Mapping) or any(k not in data for k in NEEDED):
        raise SurefootError(f"{where}: expected a deploy.yaml with {', '.join(NEEDED)}")


def _term(name: Any, body: Any, where: str) -> dict[str, Any]:
    body = body if isinstance(body, Mapping) else {}
    found: dict[str, Any] = {"name": str(name), "history": body.get("history_length") or 1}
    if body.get("scale") is not None:
        found["scale"] = body["scale"]
    if body.get("clip") is not None:
        ends = body["clip"] if isinstance(body["clip"], list) else [body["clip"]]
        found["clip"] = symmetric([_real(v, f"{where}: {name}: clip") for v in ends], f"{where}: {name}")
    return found


def _phase(seen: Mapping[str, Any]) -> dict[str, Any]:
    """The gait clock, where a term gait_phase has its period: sin and cos, from 0 when the policy starts."""
    try:
        return {"phase": {"period": seen["gait_phase"]["params"]["period"]}}
    except (TypeError, KeyError):
        return {}


def _commands(data: Any) -> dict[str, Any]:
    try:
        ranges = dict(data["base_velocity"]["ranges"])
    except (TypeError, KeyError, ValueError):
        return {}
    return {ours: ranges[name] for ours, name in zip(COMMANDS, RANGES) if ranges.get(name) is not None}


def symmetric(ends: Sequence[float], where: str) -> float:
    """The size of a clip, which has to be the same to both sides."""
    if len(ends) == 1:
        return abs(ends[0])
    if len(ends) != 2 or ends[0] != -ends[1]:
        raise SurefootError(f"{where}: clip: expected -c and c, found {list(ends)}")
    return abs(ends[1])


def _real(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value:
        raise SurefootError(f"{where}: expected a number other than 0, found {value!r}")
    return float(value)


def read_yaml(path: Path) -> Plain:
    """Plain YAML, as JSON can hold it; parsed in a process with limits."""
    if importlib.util.find_spec("yaml") is None:
        raise MissingExtra("reading a deploy.yaml", "export")
    data = files.read_bytes(path, LARGEST)
    try:
        found = isolated.run("surefoot.deploy.unitree:plain_yaml", data, isolated.Limits(), f"{path}: reading")
    except isolated.Exceeded:
        raise
    except SurefootError as error:
        raise SurefootError(f"{path}: {error}") from None
    body = files.parse_json(found, str(path), nan=True)
    return Plain(body["data"], tuple(body["ignored"]))


def plain_yaml(data: bytes) -> bytes:
    """In the child: YAML as JSON. No tag makes an object, no alias multiplies, no key comes twice."""
    import yaml

    try:
        text = data.decode()
        deepest = max(itertools.accumulate((c in "[{") - (c in "]}") for c in text), default=0)
        if deepest > DEEPEST:  # each level costs what all before it did
            raise SurefootError(f"found {deepest} levels of nesting, expected at most {DEEPEST}")
        if any(isinstance(event, yaml.events.AliasEvent) for event in yaml.parse(text, Loader=yaml.SafeLoader)):
            raise SurefootError("found an alias (*name), expected plain values")
        loader, ignored = yaml.SafeLoader(text), list[str]()
        node = loader.get_single_node()
        found = loader.construct_document(_no_objects(node, yaml, "", ignored)) if node else None
        return json.dumps({"data": found, "ignored": ignored}, default=str).encode()
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        if isinstance(error, SurefootError):
            raise
        raise SurefootError(f"expected YAML, found {' '.join(str(error).split())[:200]}") from None


def _no_objects(node: Any, yaml: Any, at: str, ignored: list[str]) -> Any:
    """The node with null in place of all that a Python tag makes, and lists in place of tuples; refuses a key that comes twice."""
    if node.tag.startswith(PYTHON) and not (node.tag == TUPLE and isinstance(node, yaml.SequenceNode)):
        ignored.append(f"{at or WHOLE}: !!{node.tag.removeprefix('tag:yaml.org,2002:')}"[:200])
        return yaml.ScalarNode("tag:yaml.org,2002:null", "null")
    if isinstance(node, yaml.MappingNode):
        _no_key_twice(node)
        name = lambda key: f"{at}.{key.value}".strip(".") if isinstance(key.value, str) else at  # noqa: E731
        node.value = [(key, _no_objects(value, yaml, name(key), ignored)) for key, value in node.value]
    elif isinstance(node, yaml.SequenceNode):
        node.tag = "tag:yaml.org,2002:seq" if node.tag == TUPLE else node.tag
        node.value = [_no_objects(value, yaml, f"{at}[{i}]", ignored) for i, value in enumerate(node.value)]
    return node


def _no_key_twice(node: Any) -> None:
    seen: set[str] = set()
    for key, _ in node.value:
        if isinstance(key.value, str) and key.value in seen:
            raise SurefootError(f"found the key {key.value[:80]!r} twice in one object, expected each once")
        seen.add(str(key.value))
