"""Policies from ONNX files: our own, whose contract is inside, and other people's, with a contract file.

A contract is read from JSON (contract.py), from the metadata that mjlab (here) and holosoma (holosoma.py) write into their ONNX
files, or from a deploy.yaml of unitree_rl_lab (unitree.py). What these leave open is said in `notes`, never guessed silently.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from surefoot import files
from surefoot.contract import COMMANDS, Contract
from surefoot.deploy import holosoma
from surefoot.deploy.holosoma import from_holosoma
from surefoot.deploy.unitree import LARGEST, from_deploy, read_yaml, symmetric
from surefoot.errors import SurefootError
from surefoot.onnx_file import Graph

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
    inside, ignored = _inside(metadata, where), tuple[str, ...]()
    given: dict[str, Any] = {}
    if path is not None and path.suffix in (".yaml", ".yml"):
        plain = read_yaml(path)
        given, ignored = from_deploy(plain.data, motors, str(path), plain.ignored), plain.ignored
    elif path is not None:
        data = files.read_json(path, LARGEST)
        if not isinstance(data, dict):
            raise SurefootError(f"{path}: expected an object, found {type(data).__name__}")
        if not inside:
            return Found(Contract.from_json(data, str(path)))
        given = data
    elif not inside:
        raise SurefootError(
            f"{where}: no contract in it, neither surefoot's nor mjlab's nor holosoma's; "
            "give one with --contract (docs/gate.md)"
        )
    both = inside | given
    notes = [f"ignored, as it would make a Python object: {words}" for words in ignored]
    return Found(Contract.from_json({"rate": RATE} | both, str(path or where)), (*notes, *_left(both)))


def _inside(metadata: Mapping[str, str], where: str) -> dict[str, Any]:
    """The short contract that an ONNX file's metadata say; empty where they say none."""
    if all(k in metadata for k in MJLAB):
        return from_metadata(metadata, where)
    return from_holosoma(metadata, where) if holosoma.is_one(metadata) else {}


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
        found["clip"] = symmetric(ends, place)
    return found


def _number(word: str, where: str) -> float:
    try:
        return float(word)
    except ValueError:
        raise SurefootError(f"{where}: expected a number, found {word[:80]!r}") from None
