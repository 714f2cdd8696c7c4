"""Loads a robot model, MJCF or URDF, and vets it before anything trusts it.

    scan (paths, sizes, counts) -> trial compile in a cage, if something in it could grow -> compile -> physical sense
    load_robot: the same, then the robot's edits -> compile -> physical sense

MuJoCo finds the length ranges of muscles by simulating while it compiles, without end if that simulation diverges. So
only the cage does that: it answers with the ranges, and the compile here takes them as given.

What leaves its directory, hangs or eats the machine's memory is always refused. What is physically impossible is
refused too, unless `strict=False` turns it into warnings. What merely looks wrong is returned as warnings.
"""

import hashlib
import json
import os
import re
import struct
import warnings
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from threading import Lock
from typing import TypeVar

import mujoco
import numpy as np

from surefoot import isolated
from surefoot.errors import SurefootError, in_users_code, nearest
from surefoot.robot import Robot
from surefoot.sim.model.card import describe
from surefoot.sim.model.growth import MAX_DOFS, MAX_NUMBERS
from surefoot.sim.model.scan import Scan, scan_file, scan_string
from surefoot.sim.model.vet import model_problems, model_warnings, xml_problems, xml_warnings

__all__ = ["Loaded", "describe", "load_model", "load_robot", "load_string", "vet_model"]

ENGINE = f"MuJoCo {mujoco.__version__}"
Made = TypeVar("Made")
TRIAL = isolated.Limits(memory=2 << 30, seconds=8, wall=30.0)  # the rest of 10 s is for scan, imports and refusal

Ranges = list[tuple[float, float]]

HINTS = (
    (
        "mass and inertia of moving bodies",
        "; expected mass > 0 and inertia > 0: give the body an <inertial> or a geom with mass",
    ),
    (
        "A + B >= C",
        "; expected an inertia that some mass distribution has: no principal moment above the sum of the others",
    ),
    ("repeated name", "; expected each name once per kind of element"),
    ("Could not allocate memory", "; expected a model that fits in memory: look for large counts"),
)


@dataclass(frozen=True)
class Loaded:
    """A vetted model. `spec` can be edited and compiled again; `vet_model` then vets the result.

    A muscle added to `spec` needs a lengthrange: compiling it simulates nothing.
    """

    own: tuple[mujoco.MjModel, mujoco.MjSpec] = field(repr=False)
    """which others may have, too: not to be changed"""
    path: str
    hash: str
    """sha256 over the content of the XML and of every file it names"""
    warnings: list[str] = field(default_factory=list)
    sources: Mapping[str, str] = field(default_factory=dict)
    """real path of each file that was read, or the name of the text -> sha256 of its content"""

    @cached_property
    def model(self) -> mujoco.MjModel:
        """A copy that nobody else has."""
        return copy(self.own[0])

    @cached_property
    def spec(self) -> mujoco.MjSpec:
        """A copy that nobody else has."""
        return self.own[1].copy()

    @cached_property
    def compiled_hash(self) -> str:
        """sha256 of the compiled model: the same in every process that has the same engine, on any machine"""
        return model_hash(self.own[0])


def model_hash(model: mujoco.MjModel) -> str:
    """Over all fields, by name. Their numbers count to the digits of single precision: processors differ in the last bits."""
    digest = hashlib.sha256()
    for where in (model, model.opt, model.stat):
        for name in sorted(k for k in dir(where) if not k.startswith("_")):
            value = getattr(where, name)
            if isinstance(value, (int, float, np.ndarray)) and np.asarray(value).dtype.kind in "biuf":
                digest.update(name.encode() + _coarse(np.asarray(value)))
    digest.update(model.names)
    return digest.hexdigest()


def _coarse(x: np.ndarray) -> bytes:
    """The bytes of whole numbers, and of others without their last bits; what is left of a difference of equals is 0."""
    return (x if x.dtype.kind in "biu" else np.round(x, 12).astype(np.float32) + np.float32(0)).tobytes()


def load_model(
    path: str | os.PathLike[str], asset_root: str | os.PathLike[str] | None = None, strict: bool = True
) -> Loaded:
    """Load an MJCF or URDF file whose assets lie in its own directory tree, or in `asset_root`."""
    file = os.path.abspath(path)
    scan = scan_file(file, os.fspath(asset_root) if asset_root is not None else None)
    return _load(scan, file, strict)


def load_string(xml: str, name: str = "model made in code", strict: bool = True) -> Loaded:
    """Load a model made in code; it may name no files, and `name` stands for the file in errors."""
    scan = scan_string(xml, name)
    return _load(scan, name, strict)


@dataclass(frozen=True)
class _Kept:
    robot: Robot  # alive, so that no other edit gets the id of one of its edits
    loaded: Loaded
    stamps: Mapping[str, tuple[int, int, int]]


class _Shelf:
    """The robots last loaded, so that meshes are read and compiled once; one whose files have changed is read again."""

    def __init__(self, most: int):
        self.most, self.lock = most, Lock()
        self.kept: dict[tuple[object, ...], _Kept] = {}

    def get(self, robot: Robot) -> Loaded:
        key = (replace(robot, edits=()), *map(id, robot.edits))
        with self.lock:
            found = self.kept.get(key)
        if found is None or found.stamps != _stamps(found.stamps):
            loaded = _edited(robot) if robot.edits else _plain(robot)
            found = _Kept(robot, loaded, _stamps(loaded.sources) if robot.path else {})
            with self.lock:
                self.kept.pop(key, None)
                self.kept[key] = found
                for old in list(self.kept)[: -self.most]:
                    del self.kept[old]
        return replace(found.loaded, warnings=list(found.loaded.warnings))


_shelf = _Shelf(8)


def load_robot(robot: Robot) -> Loaded:
    """Load a robot's model and make its edits. Files are read again only if they have changed."""
    return _shelf.get(robot)


def _stamps(paths: Iterable[str]) -> dict[str, tuple[int, int, int]]:
    found = {}
    for path in paths:
        try:
            at = os.stat(path)
        except OSError:
            continue
        found[path] = at.st_mtime_ns, at.st_size, at.st_ino
    return found


def _plain(robot: Robot) -> Loaded:
    if robot.path:
        return load_model(robot.path, robot.asset_root or None)
    if not robot.xml:
        raise SurefootError(f"robot {robot.name}: no model; expected a path or xml")
    return load_string(robot.xml, robot.name)


def _edited(robot: Robot) -> Loaded:
    loaded = load_robot(replace(robot, edits=()))
    for edit in robot.edits:
        try:
            edit(loaded.spec)
        except SurefootError:
            raise
        except Exception as error:
            name = getattr(getattr(edit, "func", edit), "__name__", type(edit).__name__)
            raise in_users_code(error, f"{loaded.path}: edit {name}") from None
    where = f"{loaded.path}, with its edits"
    model = _translate(where, loaded.spec.compile, loaded.spec)
    _check_sizes(model, where)
    of_file = set(loaded.warnings) - set(model_warnings(loaded.own[0]))
    noted = dict.fromkeys([*(w for w in loaded.warnings if w in of_file), *vet_model(model, where)])
    return replace(loaded, own=(model, loaded.spec), warnings=list(noted))


def vet_model(model: mujoco.MjModel, where: str = "model", strict: bool = True) -> list[str]:
    """Refuse a compiled model that is physically impossible; returns what merely looks wrong."""
    return _judge(model_problems(model), where, strict) + model_warnings(model)


def _load(scan: Scan, where: str, strict: bool) -> Loaded:
    noted = _judge([p for doc in scan.docs for p in xml_problems(doc)], where, strict)
    noted += [*scan.notes, *(w for doc in scan.docs for w in xml_warnings(doc))]
    ranges = _trial(scan, where, scan.growth.reasons) if scan.growth.reasons else None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        spec = _translate(where, lambda: mujoco.MjSpec.from_string(scan.xml, include=scan.models, assets=scan.assets))
        if scan.docs[0].tag == "robot":  # MuJoCo would melt a URDF's base into the world, its mass with it
            spec.compiler.fusestatic = False
        _settle_ranges(scan, where, spec, ranges)
        model = _compiled(where, spec, scan.docs[0].tag == "robot")
    _check_sizes(model, where)
    noted += [" ".join(str(w.message).split()) for w in caught]
    noted += vet_model(model, where, strict)
    return Loaded((model, spec), where, scan.hash, list(dict.fromkeys(noted)), scan.seen)


def _compiled(where: str, spec: mujoco.MjSpec, urdf: bool) -> mujoco.MjModel:
    """A URDF's links have masses of their own, so that a mesh without a volume is taken as a shell."""
    try:
        return _translate(where, spec.compile, spec)
    except SurefootError:
        if not urdf or not len(spec.meshes):
            raise
        for mesh in spec.meshes:
            mesh.inertia = mujoco.mjtMeshInertia.mjMESH_INERTIA_SHELL
        return _translate(where, spec.compile, spec)


def _check_sizes(model: mujoco.MjModel, where: str) -> None:
    """What only the compiled model says for certain: defaults and nested models had their say by then."""
    for size, found, most in (
        ("degrees of freedom", model.nv, MAX_DOFS),
        ("numbers that sensors read", model.nsensordata, MAX_NUMBERS),
        ("states of actuators", model.na, MAX_NUMBERS),
        ("numbers in buffers of delays", model.nhistory, 4 * MAX_NUMBERS),
        ("numbers in keyframes", model.nkey * (model.nq + model.nv + model.na + model.nu), 4 * MAX_NUMBERS),
    ):
        if found > most:
            raise SurefootError(f"{where}: {found} {size}, expected at most {most}")


def _judge(problems: list[str], where: str, strict: bool) -> list[str]:
    """Raise the problems, all in one message, or hand them on as warnings."""
    if not problems or not strict:
        return problems
    shown = [p if p.startswith(where) else f"{where}: {p}" for p in problems[:8]]
    raise SurefootError("\n".join(shown + ([f"and {len(problems) - 8} more"] if len(problems) > 8 else [])))


def _translate(where: str, make: Callable[[], Made], spec: mujoco.MjSpec | None = None) -> Made:
    """Run one of MuJoCo's steps; its refusals become ours, with the file named and the nearest valid name."""
    try:
        return make()
    except (ValueError, RuntimeError, MemoryError, mujoco.FatalError) as e:
        raise SurefootError(_refusal(where, str(e), spec)) from None


def _refusal(where: str, said: str, spec: mujoco.MjSpec | None = None) -> str:
    text = " ".join(said.split()).removeprefix("Error: ").removeprefix("XML Error: ")
    text = re.sub(r"\b[0-9a-f]{32}/", "", text)  # the folder a file was packed in
    hint = next((h for key, h in HINTS if key in said), "")
    lost = re.search(r"(?:unknown transmission target|unrecognized name|mesh|joint|body|geom|site) '([^']*)'", said)
    if spec is not None and lost:
        names = [n for n in _names(spec) if n != lost[1]]
        hint += nearest(lost[1], names)
    return f"{where}: MuJoCo refuses the model: {text}{hint}"


def _names(spec: mujoco.MjSpec) -> Iterable[str]:
    for kind in (spec.joints, spec.tendons, spec.sites, spec.bodies, spec.meshes, spec.geoms, spec.actuators):
        yield from (e.name for e in kind if e.name)


def _settle_ranges(scan: Scan, where: str, spec: mujoco.MjSpec, ranges: Ranges | None) -> None:
    """Give actuators the length ranges that the cage found; from here on a compile simulates nothing."""
    if count := sum(_simulated(spec, a) for a in spec.actuators):
        why = f"the length ranges of {count} actuators are found by simulating, give each a lengthrange"
        ranges = ranges if ranges is not None else _trial(scan, where, [why])
        for actuator, (low, high) in zip(spec.actuators, ranges, strict=True):
            if low < high:
                actuator.lengthrange = (low, high)
    spec.compiler.LRopt.mode = mujoco.mjtLRMode.mjLRMODE_NONE


def _simulated(spec: mujoco.MjSpec, actuator: mujoco.MjsActuator) -> bool:
    """Whether a compile finds this actuator's length range by simulating."""
    options, (low, high) = spec.compiler.LRopt, actuator.lengthrange
    if options.useexisting and low < high:
        return False
    gain, bias, modes = mujoco.mjtGain, mujoco.mjtBias, mujoco.mjtLRMode
    muscle = actuator.gaintype == gain.mjGAIN_MUSCLE or actuator.biastype == bias.mjBIAS_MUSCLE
    user = actuator.gaintype == gain.mjGAIN_USER or actuator.biastype == bias.mjBIAS_USER
    return bool(
        {
            modes.mjLRMODE_NONE: False,
            modes.mjLRMODE_MUSCLE: muscle,
            modes.mjLRMODE_MUSCLEUSER: muscle or user,
            modes.mjLRMODE_ALL: True,
        }[modes(options.mode)]
    )


def _trial(scan: Scan, where: str, reasons: list[str]) -> Ranges:
    """Compile once in a process with limits on time and memory: what would hang or crash does so there.

    Returns the length range of each actuator of the spec, in its order.
    """
    order, why = _packed(scan), "; ".join(reasons[:3])
    try:
        answer = isolated.run("surefoot.sim.model.load:compiled", order, TRIAL, f"{where}: compiling")
    except isolated.Exceeded as error:
        raise SurefootError(f"{error}, expected a smaller model: {why}") from None
    except SurefootError as error:
        raise SurefootError(f"{_refusal(where, str(error))} ({why})") from None
    return [(float(low), float(high)) for low, high in json.loads(answer)]


def _packed(scan: Scan) -> bytes:
    """What was read of a model, for the child, which must not read its files a second time: a header, then all bytes."""
    parts = [(kind, name, data) for kind in ("models", "assets") for name, data in getattr(scan, kind).items()]
    head = json.dumps({"xml": scan.xml, "parts": [(kind, name, len(data)) for kind, name, data in parts]}).encode()
    return struct.pack("<Q", len(head)) + head + b"".join(data for _, _, data in parts)


def compiled(order: bytes) -> bytes:
    """In the child: the compile, MjData, which allocates the arena, and a step; answers with the length ranges."""
    at = 8 + struct.unpack("<Q", order[:8])[0]
    job = json.loads(order[8:at])
    files: dict[str, dict[str, bytes]] = {"models": {}, "assets": {}}
    for kind, name, size in job["parts"]:
        files[kind][name], at = order[at : at + size], at + size
    try:
        spec = mujoco.MjSpec.from_string(job["xml"], include=files["models"], assets=files["assets"])
        actuators = list(spec.actuators)
        model = spec.compile()
        mujoco.mj_step(model, mujoco.MjData(model))
    except Exception as error:  # MuJoCo's own kinds
        if isinstance(error, MemoryError) or "alloc" in str(error).lower():
            raise MemoryError from None
        raise SurefootError(str(error)) from None
    return json.dumps(model.actuator_lengthrange[[a.id for a in actuators]].tolist()).encode()
