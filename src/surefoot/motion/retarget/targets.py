"""What a person's motion asks of a robot's body: where its hips are, how its parts are turned, where its bones point.

    root     s (x, y of the middle of the hips);  z = s (height of the hips above standing ankles) + height of the robot's ankles
    parts    A(t) = R_joint(t) R_joint(rest)^T N(rest), the neutral frame carried by the joint; from places where there is no rest pose
    bones    unit vectors hip > knee > ankle, shoulder > elbow > wrist

s is the ratio of the legs' lengths. A bone keeps its direction and has the robot's length, so every limb is scaled by itself.
Feet are level while they stand: what they are tilted then on average, in their own frame, is taken out. No height of a sole is assumed.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from surefoot.motion.contacts import Contacts, contacts, leg_length
from surefoot.motion.person import Person
from surefoot.motion.retarget.humanoid import BONES, SIDES, Humanoid, hanging, least_turn, yaw_quat
from surefoot.motion.retarget.things import Ground, level
from surefoot.rotation import conjugate, from_matrix, product, to_body


@dataclass(frozen=True, eq=False)
class Targets:
    time: np.ndarray
    root: np.ndarray  # (T, 3) m
    parts: Mapping[str, np.ndarray]  # (T, 4) neutral frames in the world
    bones: Mapping[str, np.ndarray]  # (T, 3) unit vectors
    contacts: Contacts
    scale: float
    ground: Ground


def targets(person: Person, marks: Mapping[str, int], robot: Humanoid, ground: Ground | None = None) -> Targets:
    """`ground`: what is under the feet; without it one floor at 0."""
    ground = level(len(person)) if ground is None else ground
    touch = contacts(person, marks, ground.person)
    at = {k: person.pos[:, i] for k, i in marks.items()}
    s = robot.leg / leg_length(person, marks)
    hips = (at["left_hip"] + at["right_hip"]) / 2
    low = float(np.mean([touch.floor[f"{side}_ankle"] for side in SIDES]))
    root = np.column_stack([s * hips[:, :2], s * (hips[:, 2] - low) + robot.ankle_height])
    bones = {}
    for bone in BONES:
        a, b = bone.split(">")
        v = at[b] - at[a]
        bones[bone] = v / np.maximum(np.linalg.norm(v, axis=1, keepdims=True), 1e-9)
    return Targets(person.time - person.time[0], root, parts_of(person, marks, touch), bones, touch, s, ground)


def parts_of(person: Person, marks: Mapping[str, int], touch: Contacts) -> dict[str, np.ndarray]:
    """(T, 4) neutral frames of the parts that the recording tells."""
    found = _carried(person, marks) if person.quat is not None and person.rest is not None else _placed(person, marks)
    for side in SIDES:
        name, stands = f"{side}_foot", touch.of(f"{side}_foot")
        if name in found and stands.any():
            up = to_body(found[name][stands], np.broadcast_to([0.0, 0, 1], (int(stands.sum()), 3))).mean(0)
            level = conjugate(least_turn(up, np.array([0.0, 0, 1])))
            found[name] = product(found[name], np.broadcast_to(level, found[name].shape))
    return found


def _carried(person: Person, marks: Mapping[str, int]) -> dict[str, np.ndarray]:
    """By the attitudes of joints, from the rest pose."""
    assert person.quat is not None and person.rest is not None
    rest = person.rest
    across = rest.pos[marks["left_hip"]] - rest.pos[marks["right_hip"]]
    facing = float(np.arctan2(-across[0], across[1]))
    joints = {
        "pelvis": _common(person, marks, "hip"), "torso": _common(person, marks, "shoulder"),
        **{f"{s}_foot": marks[f"{s}_ankle"] for s in SIDES}, **{f"{s}_hand": marks[f"{s}_wrist"] for s in SIDES},
    }  # fmt: skip
    out = {}
    for part, j in joints.items():
        neutral = yaw_quat(np.array(facing))
        if part.endswith("hand"):
            side = part.partition("_")[0]
            neutral = hanging(rest.pos[marks[f"{side}_wrist"]] - rest.pos[marks[f"{side}_elbow"]], facing)
        own = product(conjugate(rest.quat[j]), neutral)
        out[part] = product(person.quat[:, j], np.broadcast_to(own, (len(person), 4)))
    return out


def _common(person: Person, marks: Mapping[str, int], what: str) -> int:
    """The last joint on which both the left and the right one hang."""
    chains = []
    for side in SIDES:
        k, chain = marks[f"{side}_{what}"], list[int]()
        while k >= 0:
            chain.append(k)
            k = person.parents[k]
        chains.append(chain[1:] or chain)
    return next((k for k in chains[0] if k in chains[1]), marks["pelvis"])


def _placed(person: Person, marks: Mapping[str, int]) -> dict[str, np.ndarray]:
    """By places alone: hands have no attitude then."""
    at = {k: person.pos[:, i] for k, i in marks.items()}
    hips, shoulders = ((at[f"left_{k}"] + at[f"right_{k}"]) / 2 for k in ("hip", "shoulder"))
    out = {
        "pelvis": _frame(at["left_hip"] - at["right_hip"], shoulders - hips),
        "torso": _frame(at["left_shoulder"] - at["right_shoulder"], shoulders - hips),
    }
    for side in SIDES:
        if f"{side}_toe" in at:
            along, up = at[f"{side}_toe"] - at[f"{side}_ankle"], at[f"{side}_knee"] - at[f"{side}_ankle"]
            out[f"{side}_foot"] = _frame(np.cross(up, along), np.cross(along, np.cross(up, along)))
    return out


def _frame(y: np.ndarray, z: np.ndarray) -> np.ndarray:
    """(T, 4) of frames whose y axis is given, and z as near as it can be."""
    unit = lambda v: v / np.maximum(np.linalg.norm(v, axis=1, keepdims=True), 1e-9)  # noqa: E731
    y = unit(y)
    x = unit(np.cross(y, z))
    return from_matrix(np.stack([x, y, np.cross(x, y)], 2))
