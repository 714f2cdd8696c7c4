"""Learned Terms on disk: one ONNX file that torch exported and onnxruntime runs, with a sealed card.

    term.onnx: the net; in its metadata the card {format, kind, term, golden, about} and the seal (onnx_file/seal.py)

`term` holds the model that the Term was learned on: another robot refuses it. `golden` are answers to fixed inputs, computed
again at every load: a runtime that answers otherwise is noticed before anything is simulated.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import mujoco
import numpy as np

from surefoot import files
from surefoot.errors import SurefootError, unknown
from surefoot.onnx_file import Graph, read
from surefoot.onnx_file.seal import read_card, sealed
from surefoot.sim.learned.actuator_net import ActuatorNet
from surefoot.sim.learned.state_terms import DeltaAction, ResidualForce
from surefoot.typed import known_fields, text

FORMAT = 3
NAME = "term.onnx"
CARD = {"format", "kind", "term", "golden", "about"}
GOLDEN = 1e-4  # how far an answer may be from the golden one, relative to the largest of its column

LearnedTerm = ResidualForce | DeltaAction | ActuatorNet
KINDS: dict[str, Any] = {k.kind: k for k in (ResidualForce, DeltaAction, ActuatorNet)}


def file_bytes(term: LearnedTerm) -> bytes:
    """The file that holds a Term; the same bytes for the same Term."""
    assert isinstance(term.net, Graph)
    card = {"format": FORMAT, "kind": term.kind, "term": term.card(), "golden": _golden(term.net), "about": term.about}
    return sealed(term.net.data, card)


def save(term: LearnedTerm, path: Path) -> Path:
    """Write a Term to a file, or to term.onnx in a folder. Returns the file."""
    path = Path(path) if Path(path).suffix == ".onnx" else Path(path) / NAME
    files.write(path, file_bytes(term))
    return path


def digest(term: LearnedTerm) -> str:
    return files.sha256(file_bytes(term))


def load(path: Path, model: mujoco.MjModel) -> LearnedTerm:
    """The Term in a file or folder; refused where it was learned on another model, or is not as it was written."""
    path = find(path)
    net = read(path)
    card = _card(net, str(path))
    term: LearnedTerm = KINDS[card["kind"]].from_card(card["term"], net, model, f"{path}: term")
    if term.shape != (net.width, net.wide):
        raise SurefootError(
            f"{path}: term: expected a net of {term.shape[0]} inputs and {term.shape[1]} outputs, "
            f"found {net.width} and {net.wide}"
        )
    return replace(term, about=card["about"])


def find(path: Path) -> Path:
    """The ONNX file of a Term, meant by itself or by its folder."""
    path = Path(path)
    old = path / "term.json" if path.is_dir() and not (path / NAME).exists() else path
    if old.suffix == ".json" and old.is_file() and _is_earlier(files.read_json(old)):
        raise SurefootError(f"{old}: an earlier version of surefoot wrote this Term; learn it again")
    found = path / NAME if path.is_dir() else path
    if found.suffix != ".onnx" or not found.is_file():
        what = f"a folder without {NAME}" if path.is_dir() else "another file" if path.exists() else "nothing"
        raise SurefootError(
            f"{path}: found {what}, expected the folder that `surefoot missing` or `surefoot delta` wrote, "
            "or the ONNX file of `surefoot actuator`"
        )
    return found


def _is_earlier(data: Any) -> bool:
    """Whether a JSON file is a Term as earlier versions wrote it, beside its weights."""
    return isinstance(data, dict) and "format" in data and ("card" in data or "layout" in data)


def _card(net: Graph, where: str) -> dict[str, Any]:
    card = read_card(net, where)
    if isinstance(card, dict) and "contract" in card:
        raise SurefootError(f"{where}: found a policy, expected a learned Term")
    card = known_fields(card, CARD, CARD, f"{where}: card")
    if card["format"] != FORMAT:
        raise SurefootError(f"{where}: format: expected {FORMAT}, found {str(card['format'])[:80]}")
    if text(card["kind"], f"{where}: kind") not in KINDS:
        raise unknown("kind", card["kind"], KINDS, where)
    if not isinstance(card["about"], dict):
        raise SurefootError(f"{where}: about: expected an object, found {type(card['about']).__name__}")
    _check_golden(net, card["golden"], f"{where}: golden")
    return card


def _golden(net: Graph) -> list[list[float]]:
    """Answers to three rows of small numbers."""
    rows = 0.1 * np.sin(1.0 + np.arange(3 * net.width)).reshape(3, -1)
    return [[float(f"{v:.9g}") for v in row] for row in net(rows)]


def _check_golden(net: Graph, written: Any, where: str) -> None:
    now = np.array(_golden(net))
    try:
        was = np.array(written, float)
    except (TypeError, ValueError):
        raise SurefootError(f"{where}: expected rows of numbers, found {str(written)[:80]}") from None
    if was.shape != now.shape or not (np.abs(was - now) <= GOLDEN * np.abs(was).max(0) + 1e-12).all():
        raise SurefootError(f"{where}: the net answers differently from when it was written")
