"""Robot: where a model is and what a task adds to it. Layout: where its named parts are in a simulator's state.

    model = compile(edit_k(... edit_1(spec of the file)))        the user's file stays as it is

A term asks for `joint_pos` by joint name:

    joint_pos_j = q[place_j]        joint_vel_j = v[speed_j]        base: position, quaternion (w x y z), velocities

A reading at a site is written `base_ang_vel@imu`: the angular velocity as the gyro at the site `imu` tells it.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from surefoot.errors import SurefootError, unknown
from surefoot.rotation import between, turned

BASE = {"base_pos": (0, 0, 3), "base_quat": (0, 3, 7), "base_lin_vel": (1, 0, 3), "base_ang_vel": (1, 3, 6)}
"""reading of a free base -> (0: of q, 1: of v; first column, end), counted from where the base begins"""
SIDES = re.compile(r"^(?:[FRMHBL][LR]|left|right|L|R|l|r)_|_(?:left|right|L|R|l|r)(?=_|$)")


def kind_of(name: str) -> str:
    """What a joint or body is called on either side: hip of FL_hip, knee of knee_left."""
    return SIDES.sub("", name)


def mirror_of(name: str) -> str:
    """The same joint or body of the other side: FR_hip of FL_hip; empty where the name has no side."""
    found = SIDES.search(name)
    if found is None:
        return ""
    word = found.group()
    for a, b in (("left", "right"), ("right", "left"), ("L", "R"), ("R", "L"), ("l", "r"), ("r", "l")):
        at = word.rfind(a)
        if at >= 0 and word[at + len(a) :] in ("", "_"):
            return name[: found.start()] + word[:at] + b + word[at + len(a) :] + name[found.end() :]
    return ""


Edit = Callable[[Any], None]
"""changes the engine's editable model (MuJoCo: an MjSpec) in place; the same result at every call"""


@dataclass(frozen=True)
class Robot:
    """A robot's model: a file of MJCF or URDF, or text made in code; and edits made after it is read, in order."""

    name: str
    path: str = ""
    """absolute path of the file; empty where the model is text"""
    xml: str = ""
    """the text, which names no other file; empty where the model is a file"""
    asset_root: str = ""
    """folder that may hold meshes and textures, beside the file's own"""
    edits: tuple[Edit, ...] = ()

    def __post_init__(self) -> None:
        if self.path and self.xml:
            raise SurefootError(f"robot {self.name}: expected a path or xml, found both")

    @staticmethod
    def file(
        path: str | PathLike[str], beside: str = "", asset_root: str | PathLike[str] = "", name: str = ""
    ) -> "Robot":
        """The model in a file. With `beside=__file__`, a relative path starts at the folder of the task file."""
        start = Path(beside).absolute().parent if beside else Path.cwd()
        where, root = start / path, str(start / asset_root) if asset_root else ""
        if not where.exists():
            raise SurefootError(f"{where}: no such model file")
        own = where.parent.name if where.stem.startswith("scene") else where.stem
        shown = "".join(c if c.isprintable() else "_" for c in own)  # a file's name may hold any byte
        return Robot(name or shown, str(where), asset_root=root)

    @staticmethod
    def text(xml: str, name: str) -> "Robot":
        """A model made in code."""
        return Robot(name, xml=xml)

    def edited(self, *edits: Edit) -> "Robot":
        """The same robot with more edits, after those it has."""
        return replace(self, edits=(*self.edits, *edits))


@dataclass(frozen=True)
class Drive:
    """An actuator that turns or slides one joint: F = kp (u - q) - kd v where it is a servo, else F = gear u."""

    actuator: str
    number: int
    """of the actuator"""
    control: int
    """column of u"""
    joint: str
    dof: int
    """column of v"""
    gear: float
    limit: float | None
    """largest force at the actuator, N or N m; None: no limit is known"""
    servo: bool
    """holds a position"""
    kp: float
    """N m/rad or N/m; 0: of no position"""
    kd: float
    """N m s/rad or N s/m, of the actuator alone"""


@dataclass(frozen=True)
class Layout:
    """Named parts of a robot, and what its makers say of them. Joints are hinges and slides; a free base is not one of them."""

    joints: tuple[str, ...]
    places: tuple[int, ...]
    """column of q for each joint"""
    speeds: tuple[int, ...]
    """column of v for each joint"""
    base: tuple[int, int] | None = None
    """columns of q and v at which the free base begins"""
    actuators: tuple[str, ...] = ()
    """one name a control"""
    actions: tuple[str, ...] = ()
    """one name a number of the policy's action"""
    sensors: Mapping[str, str] = field(default_factory=dict)
    """reading -> the sensor that tells it; what is not here is read from the state"""
    quats: tuple[tuple[int, int], ...] = ()
    """columns of q and v at which a quaternion, and the angular velocity that turns it, begin"""
    hinges: tuple[bool, ...] = ()
    """of each joint: it turns; else it slides"""
    limits: tuple[tuple[float, float], ...] = ()
    """of each joint, rad or m; infinite where it has none"""
    rest: tuple[float, ...] = ()
    """q as the model begins"""
    drives: tuple[Drive, ...] = ()
    """the actuators that turn or slide one joint"""
    control_limits: tuple[tuple[float, float], ...] = ()
    """of each control; infinite where it has none"""
    slow: tuple[float, ...] = ()
    """s: time constant of each actuator; 0: it answers at once"""
    delay: float = 0.0
    """s: longest from a control to its actuator"""
    mass: float = 0.0
    """kg, of all bodies"""

    def parts(self, reading: str) -> tuple[str, ...]:
        """Names of a reading's columns, where they have names."""
        if reading in ("joint_pos", "joint_vel"):
            return self.joints
        return {"control": self.actuators, "action": self.actions}.get(reading, ())

    def columns(self, reading: str) -> tuple[int, np.ndarray | slice] | None:
        """(0: of q, 1: of v; which columns) that hold a reading; None where the state does not."""
        if reading in ("joint_pos", "joint_vel"):
            at = self.places if reading == "joint_pos" else self.speeds
            return (0 if reading == "joint_pos" else 1), _together(at)
        if reading in BASE and self.base is not None:
            which, first, end = BASE[reading]
            return which, slice(self.base[which] + first, self.base[which] + end)
        return None

    def moved(self, q: np.ndarray, d: np.ndarray) -> np.ndarray:
        """Positions q (n, nq) moved by the tangent vector d (n, nv)."""
        out, (at_q, at_v) = q.copy(), _lines(q.shape[1], d.shape[1], self.quats)
        out[:, at_q] += d[:, at_v]
        for a, b in self.quats:
            out[:, a : a + 4] = turned(q[:, a : a + 4], d[:, b : b + 3])
        return out

    def difference(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """(n, nv) tangent vector from positions a to b (n, nq); a hinge without limits turns the shorter way round."""
        nv = a.shape[1] - len(self.quats)
        out, (at_q, at_v) = np.zeros((len(a), nv)), _lines(a.shape[1], nv, self.quats)
        out[:, at_v] = b[:, at_q] - a[:, at_q]
        round_ = [v for v, hinge, ends in zip(self.speeds, self.hinges, self.limits) if hinge and np.isinf(ends[1])]
        out[:, round_] = (out[:, round_] + np.pi) % (2 * np.pi) - np.pi
        for i, j in self.quats:
            out[:, j : j + 3] = between(a[:, i : i + 4], b[:, i : i + 4])
        return out


@cache
def _lines(nq: int, nv: int, quats: tuple[tuple[int, int], ...]) -> tuple[np.ndarray, np.ndarray]:
    """The columns of q that are no part of a quaternion, and those of v that move them."""
    turning_q = {a + k for a, _ in quats for k in range(4)}
    turning_v = {b + k for _, b in quats for k in range(3)}
    at_q, at_v = ([i for i in range(n) if i not in some] for n, some in ((nq, turning_q), (nv, turning_v)))
    return np.array(at_q, int), np.array(at_v, int)


@cache
def _together(at: tuple[int, ...]) -> np.ndarray | slice:
    """Neighbouring columns as a slice, which costs no copy."""
    if at and at == tuple(range(at[0], at[0] + len(at))):
        return slice(at[0], at[0] + len(at))
    return np.array(at, int)


@cache
def order(have: tuple[str, ...], want: tuple[str, ...], where: str = "joints") -> np.ndarray | None:
    """Where each wanted name is among those there are; None where the order is the same."""
    return None if have == want else _order(have, want, where)


@lru_cache(256)
def _order(have: tuple[str, ...], want: tuple[str, ...], where: str) -> np.ndarray:
    for name in want:
        if name not in have:
            raise unknown("joint", name, have, where)
    found = np.array([have.index(name) for name in want], int)
    found.setflags(write=False)
    return found
