"""Left and right: which joint is the mirror image of which, and with which sign, from geometry.

The plane y = y0 of the base's frame maps a joint at p with axis a to one at p' = (p_x, 2 y0 - p_y, p_z) with axis

    hinge  a' = (-a_x, a_y, -a_z)   (an axis of rotation is a pseudovector)        slide  a' = (a_x, -a_y, a_z)

Joint j is the image of i where its place is p' within TOLERANCE of the robot's size and its axis is s a', s = +1 or -1:
then q_j = s q_i in the mirrored pose. A joint in the plane is its own image. Names decide only between equal places.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import mujoco
import numpy as np

from surefoot.sim.anatomy.links import Links, posed
from surefoot.sim.layout import HINGE

TOLERANCE = 0.03
SIDE = re.compile(
    r"(?<![a-z])(?:front|fore|hind|rear|back|mid|middle)?_?(?:left|right)(?![a-z])"  # left_knee, front_right_hip
    r"|(?<![a-z])[frhbm]?[lr](?![a-z])"  # FL_hip, knee_r
    r"|(?<=^a)[lr](?=\d)"  # AL1
)


@dataclass(frozen=True)
class Mirrored:
    """Joint -> (its image, sign)."""

    pairs: Mapping[str, tuple[str, float]]
    missing: tuple[str, ...] = ()
    """joints without an image"""
    doubts: tuple[str, ...] = field(default=())
    """where names and geometry, or the ranges of a pair, disagree"""
    turned: str = ""
    """yz or xy: the plane at which left and right mirror each other, where no two joints do at xz"""


def sideless(name: str) -> str:
    """What a part is called on either side: hip of FL_hip, Hip_Pitch of Hip_Pitch_Left, A1 of AL1."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
    return re.sub(r"[_/ .-]+", "_", SIDE.sub("", words)).strip("_")


def mirrored(m: mujoco.MjModel, tree: Links, poses: list[np.ndarray]) -> Mirrored:
    """Images of the robot's joints, in the pose of several that leaves the fewest joints without one."""
    found = min((_in_pose(m, tree, q) for q in poses), key=lambda x: len(x.missing))
    if _crosses(found):
        return found
    planes = {"yz": 0, "xy": 2}
    other = [
        k
        for k, across in planes.items()
        for q in poses
        if _crosses(x := _in_pose(m, tree, q, across)) and not x.missing
    ]
    return replace(found, turned=other[0] if other else "")


def _crosses(x: Mirrored) -> bool:
    """Whether a joint has an image that is not itself."""
    return any(a != b for a, (b, _) in x.pairs.items())


def _in_pose(m: mujoco.MjModel, tree: Links, q: np.ndarray, across: int = 1) -> Mirrored:
    """Images at the plane across an axis of the base's frame, y unless said otherwise."""
    at, axes = _places(m, tree, q)
    joints = tree.moved
    if not joints:
        return Mirrored({})
    flip = np.where(np.arange(3) == across, -1.0, 1.0)
    middle = np.where(flip < 0, (at.min(0) + at.max(0)) / 2, 0.0)
    size = float(np.linalg.norm(np.ptp(at, axis=0))) or 1.0
    pairs, missing = {}, []
    for i, j in enumerate(joints):
        p = at[i] * flip + 2 * middle
        a = axes[i] * (-flip if m.jnt_type[j] == HINGE else flip)
        near = np.linalg.norm(at - p, axis=1) / size
        fits = [k for k in range(len(joints)) if near[k] < TOLERANCE and abs(axes[k] @ a) > 0.98 and m.jnt_type[joints[k]] == m.jnt_type[j]]  # fmt: skip
        if not fits:
            missing.append(str(m.joint(j).name))
            continue
        own = sideless(m.joint(j).name)
        k = min(fits, key=lambda k: (sideless(m.joint(joints[k]).name) != own, near[k]))
        pairs[str(m.joint(j).name)] = (str(m.joint(joints[k]).name), float(np.sign(axes[k] @ a)))
    lone = [a for a, (b, _) in pairs.items() if pairs.get(b, ("",))[0] != a]
    kept = {a: x for a, x in pairs.items() if a not in lone}
    return Mirrored(kept, (*missing, *lone), tuple(_doubts(m, kept)))


def _places(m: mujoco.MjModel, tree: Links, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Anchors and axes of the joints in the base's frame."""
    d = posed(m, q)
    R, origin = (d.xmat[tree.base].reshape(3, 3), d.xpos[tree.base])
    return (d.xanchor[tree.moved] - origin) @ R, d.xaxis[tree.moved] @ R


def _doubts(m: mujoco.MjModel, pairs: Mapping[str, tuple[str, float]]) -> list[str]:
    found = []
    for a, (b, sign) in pairs.items():
        i, j = m.joint(a).id, m.joint(b).id
        if a < b and sideless(a) != sideless(b):
            found.append(f"{a} and {b} mirror each other by geometry, their names do not say so")
        ends = np.sort(sign * m.jnt_range[i])
        if a <= b and m.jnt_limited[i] and m.jnt_limited[j] and np.abs(ends - m.jnt_range[j]).max() > 0.1:
            found.append(f"{a} and {b}: ranges {m.jnt_range[i].tolist()} and {m.jnt_range[j].tolist()} do not mirror each other")  # fmt: skip
    return found
