"""Robot: where a model is and what a task adds to it. Layout: where its named parts are in a simulator's state.

    model = compile(edit_k(... edit_1(spec of the file)))        the user's file stays as it is

A term asks for `joint_pos` by joint name:

    joint_pos_j = q[place_j]        joint_vel_j = v[speed_j]        base: position, quaternion (w x y z), velocities

A reading at a site is written `base_ang_vel@imu`: the angular velocity as the gyro at the site `imu` tells it.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from surefoot.errors import SurefootError, unknown

BASE = {"base_pos": (0, 0, 3), "base_quat": (0, 3, 7), "base_lin_vel": (1, 0, 3), "base_ang_vel": (1, 3, 6)}
"""reading of a free base -> (0: of q, 1: of v; first column, end), counted from where the base begins"""
SIDES = re.compile(r"^(?:[FRMHBL][LR]|left|right|L|R|l|r)_|_(?:left|right|L|R|l|r)(?=_|$)")


def kind_of(name: str) -> str:
    """What a joint or body is called on either side: hip of FL_hip, knee of knee_left."""
    return SIDES.sub("", name)


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
        own = where.parent.name if where.stem.startswith("scene") else where.stem
        return Robot(name or own, str(where), asset_root=root)

    @staticmethod
    def text(xml: str, name: str) -> "Robot":
        """A model made in code."""
        return Robot(name, xml=xml)

    def edited(self, *edits: Edit) -> "Robot":
        """The same robot with more edits, after those it has."""
        return replace(self, edits=(*self.edits, *edits))


@dataclass(frozen=True)
class Layout:
    """Named parts of a robot. Joints are hinges and slides; a free base is not one of them."""

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


@cache
def _together(at: tuple[int, ...]) -> np.ndarray | slice:
    """Neighbouring columns as a slice, which costs no copy."""
    if at and at == tuple(range(at[0], at[0] + len(at))):
        return slice(at[0], at[0] + len(at))
    return np.array(at, int)


@cache
def order(have: tuple[str, ...], want: tuple[str, ...], where: str = "joints") -> np.ndarray | None:
    """Where each wanted name is among those there are; None where the order is the same."""
    if have == want:
        return None
    for name in want:
        if name not in have:
            raise unknown("joint", name, have, where)
    return np.array([have.index(name) for name in want], int)
