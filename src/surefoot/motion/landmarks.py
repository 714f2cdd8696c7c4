"""Landmarks of a body by the names of its joints, whoever named them; and its unit of length and up axis, from what a person is.

left_hip <- LeftUpLeg, left_hip, thigh_l, LeftThigh, ...        legs, arms: hip knee ankle toe, shoulder elbow wrist

up      the axis along which the head is above the ankles over the recording as a whole
unit    m, cm, mm, inch or that of the CMU converter (1 / 0.45 inch): the one in which the person is 1.2 to 2.2 m tall
"""

import re
from collections.abc import Mapping, Sequence

import numpy as np

from surefoot.errors import SurefootError

SIDES = ("left", "right")
# words that a joint may be called, the surest first: LeftShoulder is a collar bone where there is a LeftArm
LIMBS: dict[str, tuple[str, ...]] = {
    "hip": ("upleg", "upperleg", "thigh", "femur", "hip", "leg"),
    "knee": ("knee", "lowleg", "lowerleg", "shin", "calf", "tibia", "leg"),
    "ankle": ("ankle", "foot"),
    "toe": ("toebase", "toe", "toes", "ball", "foot"),
    "shoulder": ("upperarm", "uparm", "humerus", "arm", "shoulder"),
    "elbow": ("forearm", "lowerarm", "lowarm", "radius", "elbow"),
    "wrist": ("wrist", "hand"),
}
MIDDLE: dict[str, tuple[str, ...]] = {
    "pelvis": ("hips", "pelvis", "root", "hip", "waist"),
    "neck": ("neck", "neck1", "upperneck", "lowerneck"),
    "head": ("head",),
    "chest": ("chest", "spine3", "spine2", "spine1", "upperback", "thorax", "spine"),
}
NEEDED = ("pelvis", *(f"{s}_{k}" for s in SIDES for k in ("hip", "knee", "ankle", "shoulder", "elbow", "wrist")))
UNITS = {"m": 1.0, "cm": 0.01, "mm": 0.001, "inch": 0.0254, "the CMU converter's unit": 0.0254 / 0.45}
TALL = (1.2, 2.2)  # m
USUAL = 1.7  # m
HEAD = 0.13  # of the stature: from the joint of the head to the top (Drillis and Contini)


def landmarks(names: Sequence[str], given: Mapping[str, str] | None = None) -> dict[str, int]:
    """Landmark -> number of its joint. `given` names joints for landmarks that are not found, or are found wrong."""
    words = [_word(n) for n in names]
    found: dict[str, int] = {}
    for mark, kinds in MIDDLE.items():
        hit = next((words.index(("", k)) for k in kinds if ("", k) in words), None)
        if hit is not None:
            found[mark] = hit
    for side in SIDES:
        for mark, kinds in LIMBS.items():
            taken = {k for m, k in found.items() if m.startswith(side)}
            hits = [words.index((side, k)) for k in kinds if (side, k) in words]
            hit = next((h for h in hits if h not in taken), None)
            if hit is not None:
                found[f"{side}_{mark}"] = hit
    for mark, name in (given or {}).items():
        if name not in names:
            from surefoot.errors import unknown

            raise unknown("joint", name, names, f"map: {mark}")
        found[mark] = list(names).index(name)
    return found


def needed(found: Mapping[str, int], names: Sequence[str]) -> None:
    """Raises where a landmark is missing that a body must have."""
    lacks = [m for m in NEEDED if m not in found]
    if lacks:
        have = ", ".join(names[:40])
        raise SurefootError(f"skeleton: found no joint for {', '.join(lacks)}; the joints are {have}; a map names them")


def _word(name: str) -> tuple[str, str]:
    """(side, what) of a name: LeftUpLeg -> left, upleg; mixamorig:RightArm -> right, arm; thigh_l -> left, thigh."""
    bare = re.sub(r"^.*:", "", name)
    bare = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", bare)
    parts = [p for p in re.split(r"[_\s.\-]+", bare.lower()) if p and not re.fullmatch(r"bip\d*|character\d*|j|jnt|joint|mixamorig\d*", p)]  # fmt: skip
    side = ""
    for word, letter in (("left", "l"), ("right", "r")):
        if word in parts or letter in parts:
            side = word
            parts = [p for p in parts if p not in (word, letter)]
    whole = "".join(parts)
    if not side and re.match(r"(left|right)", whole):
        side, whole = re.match(r"(left|right)(.*)", whole).groups()  # type: ignore[union-attr]
    return side, whole


def pairs(names: Sequence[str]) -> list[int]:
    """Number of each joint's image on the other side; a joint without one is its own."""
    other = {"left": "right", "right": "left", "": ""}
    words = [_word(n) for n in names]
    return [words.index((other[s], w)) if (other[s], w) in words else k for k, (s, w) in enumerate(words)]


def up_axis(pos: np.ndarray, marks: Mapping[str, int]) -> tuple[int, float]:
    """(axis, sign) that points up in (T, J, 3); raises where no axis does clearly."""
    top = pos[:, marks["head"] if "head" in marks else marks["left_shoulder"]]
    low = (pos[:, marks["left_ankle"]] + pos[:, marks["right_ankle"]]) / 2
    mean = (top - low).mean(0)
    axis = int(np.abs(mean).argmax())
    size = float(np.linalg.norm(top - low, axis=1).mean())
    if not abs(mean[axis]) > 0.5 * size:
        raise SurefootError("up axis: the head is not above the feet along x, y or z over the recording; give --up")
    return axis, float(np.sign(mean[axis]))


def upright(axis: int, sign: float) -> np.ndarray:
    """(3, 3) rotation that turns an axis into z: y up becomes z up, z forward becomes x forward."""
    R = np.roll(np.eye(3), 2 - axis, 0)
    return R if sign > 0 else np.diag([1.0, -1.0, -1.0]) @ R


def stature(pos: np.ndarray, marks: Mapping[str, int]) -> float:
    """Height of a person along its bones, in the unit of `pos` (T, J, 3)."""
    mean = lambda a, b: float(np.median(np.linalg.norm(pos[:, marks[a]] - pos[:, marks[b]], axis=1)))  # noqa: E731
    leg = sum(mean(f"{s}_{a}", f"{s}_{b}") for s in SIDES for a, b in (("hip", "knee"), ("knee", "ankle"))) / 2
    hips = (pos[:, marks["left_hip"]] + pos[:, marks["right_hip"]]) / 2
    top = pos[:, marks["head"]] if "head" in marks else (pos[:, marks["left_shoulder"]] + pos[:, marks["right_shoulder"]]) / 2  # fmt: skip
    trunk = float(np.quantile(np.linalg.norm(top - hips, axis=1), 0.9))
    above = HEAD if "head" in marks else 0.18  # of the stature, above the shoulders
    return (leg + trunk) / (1 - above - 0.039)  # the ankle's height, of the same table


def unit_of(tall: float) -> tuple[str, float]:
    """The unit in which somebody is as tall as a person, and its size in m."""
    fits = {name: m for name, m in UNITS.items() if TALL[0] <= tall * m <= TALL[1]}
    if not fits:
        raise SurefootError(f"unit: the person is {tall:.4g} units tall, which is a person's height in none of {', '.join(UNITS)}; give --unit in m")  # fmt: skip
    name = min(fits, key=lambda k: abs(np.log(tall * fits[k] / USUAL)))
    return name, fits[name]
