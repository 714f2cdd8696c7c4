"""Recordings of people, into a Person: BVH, AMASS and SMPL npz, C3D markers, our own npz.

    file -> [process with limits: Skeletal, in the file's own unit and axes] -> unit, up axis, rest pose found -> Person

A file may be broken or hostile: whatever is wrong with it is a SurefootError that names the file.
"""

import io
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from surefoot import files, isolated
from surefoot.errors import MissingExtra, SurefootError, nearest
from surefoot.formats.readers.arrays import load
from surefoot.log import FORMAT
from surefoot.motion.landmarks import UNITS, landmarks, needed, stature, unit_of, up_axis, upright
from surefoot.motion.person import Person, Rest, from_log
from surefoot.rotation import from_matrix, product

KINDS = {".bvh": "bvh", ".npz": "npz", ".c3d": "c3d"}
LARGEST = 512 << 20  # bytes of a file
CELLS = 30_000_000  # numbers of a recording
ADDED = 5.0  # times the usual largest step: how far from the second frame a first one is that was added


@dataclass(frozen=True, eq=False)
class Skeletal:
    """What a file says, in its own unit and axes."""

    rate: float
    names: tuple[str, ...]
    parents: tuple[int, ...]
    pos: np.ndarray  # (T, J, 3)
    quat: np.ndarray | None = None
    rest_pos: np.ndarray | None = None
    """(J, 3) where all rotations are zero, or whatever pose the file calls its own"""
    unit: str = ""
    """where the file states one"""
    notes: tuple[str, ...] = field(default=())


def read_person(
    path: str | Path, joints: Mapping[str, str] | None = None, unit: float | None = None, up: str = "", skeleton: Path | None = None
) -> Person:  # fmt: skip
    """The person in a file. `joints`: landmark -> name of a joint; `unit` in m; `up` such as y or -z; `skeleton`: a table of offsets."""
    path = Path(path)
    kind = _kind(path)
    if kind == "npz" and FORMAT in str(load(path, only={"header"}).get("header", "")):
        from surefoot.log import Log

        return from_log(Log.load(path))
    size = path.stat().st_size
    table = files.read_bytes(skeleton, 1 << 20).decode("utf-8", "replace") if skeleton else ""
    request = json.dumps([kind, str(path.absolute()), table]).encode()
    seconds = max(20, size // 500_000)
    limits = isolated.Limits(min(8 << 30, max(1 << 30, 40 * size)), seconds, 60 + 4 * seconds)
    answer = isolated.run("surefoot.motion.readers:read_here", request, limits, f"{path}: reading")
    try:
        return as_person(unpack(answer, path), joints, unit, up)
    except SurefootError as error:
        raise SurefootError(f"{path}: {error}") from None


def _kind(path: Path) -> str:
    with open(files.open_regular(path), "rb") as opened:  # no pipe, no device
        if os.fstat(opened.fileno()).st_size > LARGEST:
            raise SurefootError(f"{path}: found more than {LARGEST} bytes, expected a recording of one person")
    kind = KINDS.get(path.suffix.lower())
    if kind is None:
        raise SurefootError(f"{path}: found the suffix {path.suffix!r}, expected {', '.join(KINDS)}{nearest(path.suffix, KINDS)}")  # fmt: skip
    if kind == "c3d":
        import importlib.util

        if importlib.util.find_spec("ezc3d") is None:
            raise MissingExtra("reading c3d", "motion")
    return kind


def read_here(request: bytes) -> bytes:
    """In the child."""
    kind, path, table = json.loads(request)
    try:
        return pack(_read(kind, Path(path), table))
    except SurefootError as error:
        raise SurefootError(str(error) if str(error).startswith(path) else f"{path}: {error}") from None


def _read(kind: str, path: Path, table: str) -> Skeletal:
    if kind == "bvh":
        from surefoot.motion.readers.bvh import read_bvh

        return read_bvh(files.read_bytes(path, LARGEST).decode("utf-8", "replace"))
    if kind == "c3d":
        from surefoot.motion.readers.c3d import read_c3d

        return read_c3d(path)
    from surefoot.motion.readers.smpl import read_smpl

    return read_smpl(path, table)


def pack(found: Skeletal) -> bytes:
    header: dict[str, Any] = {k: getattr(found, k) for k in ("rate", "names", "parents", "unit", "notes")}
    arrays = {k: v for k in ("pos", "quat", "rest_pos") if (v := getattr(found, k)) is not None}
    out = io.BytesIO()
    np.savez(out, header=np.array(json.dumps(header)), **arrays)  # type: ignore[arg-type]
    return out.getvalue()


def unpack(data: bytes, path: Path) -> Skeletal:
    arrays = dict(load(path, data))
    header = json.loads(str(arrays.pop("header")))
    tuples = {k: tuple(header[k]) for k in ("names", "parents", "notes")}
    return Skeletal(header["rate"], pos=arrays["pos"], quat=arrays.get("quat"), rest_pos=arrays.get("rest_pos"), unit=header["unit"], **tuples)  # fmt: skip


def as_person(found: Skeletal, joints: Mapping[str, str] | None = None, unit: float | None = None, up: str = "") -> Person:  # fmt: skip
    """In metres, z up, its lowest point on the floor; what was found out is in its notes."""
    if not np.isfinite(found.rate) or not 1 <= found.rate <= 2000:
        raise SurefootError(f"rate: found {found.rate:.4g} frames a second, expected 1 to 2000")
    if not np.isfinite(found.pos).all():
        raise SurefootError("found a place that is not finite")
    marks = landmarks(found.names, joints)
    needed(marks, found.names)
    found, first = _without_added(found)
    axis, sign = _up(up) if up else up_axis(found.pos, marks)
    size, called = _unit(found, marks, unit)
    R = upright(axis, sign)
    pos = size * found.pos @ R.T
    floor = float(np.quantile(pos[..., 2].min(1), 0.02))
    pos = pos - np.array([0.0, 0.0, floor])
    turn = from_matrix(R)
    quat = None if found.quat is None else product(np.broadcast_to(turn, found.quat.shape), found.quat)
    rest = _rest(found, marks, size) if quat is not None else None
    tall = size * stature(found.pos, marks)
    notes = (
        f"unit: {called}; the person is about {tall:.2f} m tall",
        f"up: {'-' if sign < 0 else ''}{'xyz'[axis]}",
        f"rate: {found.rate:.5g} Hz, {len(pos)} frames",
        *first,
        *found.notes,
        *(
            []
            if quat is None or rest is not None
            else ["the file's zero pose is no person who stands: attitudes are found from places"]
        ),  # fmt: skip
    )
    return Person(np.arange(len(pos)) / found.rate, found.names, found.parents, pos, quat, rest, notes)


def _up(word: str) -> tuple[int, float]:
    bare = word.lstrip("+-").lower()
    if bare not in ("x", "y", "z"):
        raise SurefootError(f"up: found {word!r}, expected x, y, z, -x, -y or -z")
    return "xyz".index(bare), -1.0 if word.startswith("-") else 1.0


def _unit(found: Skeletal, marks: Mapping[str, int], given: float | None) -> tuple[float, str]:
    if given is not None:
        return given, f"{given:g} m, as given"
    if found.unit:
        return UNITS[found.unit], f"{found.unit}, as the file says"
    called, size = unit_of(stature(found.pos, marks))
    return size, called


def _without_added(found: Skeletal) -> tuple[Skeletal, list[str]]:
    """Without a first frame that was added to show the skeleton: the body jumps after it as nowhere else."""
    step = np.linalg.norm(np.diff(found.pos - found.pos[:, :1], axis=0), axis=2).max(1)
    if len(step) < 4 or step[0] <= ADDED * np.max(step[1:]):
        return found, []
    quat = None if found.quat is None else found.quat[1:]
    return replace(found, pos=found.pos[1:], quat=quat), ["the first frame is left out: it is an added pose, far from the second"]  # fmt: skip


def _rest(found: Skeletal, marks: Mapping[str, int], size: float) -> Rest | None:
    """The file's zero pose, upright, if that is a person who stands: legs down, trunk up, hips level."""
    if found.rest_pos is None:
        return None
    try:
        R = upright(*up_axis(found.rest_pos[None], marks))
    except SurefootError:
        return None
    pos = size * found.rest_pos @ R.T
    at = lambda *names: np.mean([pos[marks[n]] for n in names], 0)  # noqa: E731
    hips, ankles = at("left_hip", "right_hip"), at("left_ankle", "right_ankle")
    shoulders = at("left_shoulder", "right_shoulder")
    legs, trunk, across = hips - ankles, shoulders - hips, pos[marks["left_hip"]] - pos[marks["right_hip"]]
    steep = [v[2] / max(float(np.linalg.norm(v)), 1e-9) for v in (legs, trunk)]
    level = abs(across[2]) / max(float(np.linalg.norm(across)), 1e-9)
    if min(steep) < 0.9 or level > 0.2:
        return None
    return Rest(pos, np.tile(from_matrix(R), (len(pos), 1)))
