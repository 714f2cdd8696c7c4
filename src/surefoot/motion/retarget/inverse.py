"""The way back: a person with other lengths of limbs who moves as a robot does. What retargeting makes of it is known."""

from collections.abc import Mapping

import numpy as np

from surefoot.motion.person import Person, Rest
from surefoot.motion.retarget.humanoid import SIDES, Humanoid
from surefoot.rotation import to_world

NAMES = ("pelvis", "chest", "head", *(f"{s}_{k}" for s in SIDES for k in ("hip", "knee", "ankle", "toe", "shoulder", "elbow", "wrist")))  # fmt: skip
PARENT = {
    "chest": "pelvis", "head": "chest",
    **{f"{s}_{a}": b if b in ("pelvis", "chest") else f"{s}_{b}" for s in SIDES for a, b in (
        ("hip", "pelvis"), ("knee", "hip"), ("ankle", "knee"), ("toe", "ankle"), ("shoulder", "chest"), ("elbow", "shoulder"), ("wrist", "elbow"))},
}  # fmt: skip
PART = {"pelvis": "pelvis", "chest": "torso", **{f"{s}_{a}": f"{s}_{b}" for s in SIDES for a, b in (("ankle", "foot"), ("wrist", "hand"))}}  # fmt: skip
TALLER = {"leg": 1.35, "arm": 1.5, "trunk": 1.3}


def person_of(robot: Humanoid, time: np.ndarray, q: np.ndarray, longer: Mapping[str, float] = TALLER) -> Person:
    """A person whose legs, arms and trunk are so many times as long as the robot's; its ankles are as high as its legs are long."""
    pos, quat = _pose(robot, q, longer)
    rest_pos, rest_quat = _pose(robot, robot.kin.anatomy.home[None], longer)
    parents = tuple(NAMES.index(PARENT[n]) if n in PARENT else -1 for n in NAMES)
    return Person(time, NAMES, parents, pos, quat, Rest(rest_pos[0], rest_quat[0]), ("made from a robot's motion",))


def _pose(robot: Humanoid, q: np.ndarray, longer: Mapping[str, float]) -> tuple[np.ndarray, np.ndarray]:
    at, turn = robot.landmarks(q), robot.attitudes(q)
    leg, arm, trunk = (longer[k] for k in ("leg", "arm", "trunk"))
    middle = (at["left_hip"] + at["right_hip"]) / 2
    root = leg * middle
    place = {"pelvis": root}
    shoulders = (at["left_shoulder"] + at["right_shoulder"]) / 2
    place["chest"] = root + trunk * (shoulders - middle)
    place["head"] = root + 1.4 * trunk * (shoulders - middle)
    for s in SIDES:
        place[f"{s}_hip"] = root + leg * (at[f"{s}_hip"] - middle)
        place[f"{s}_shoulder"] = place["chest"] + trunk * (at[f"{s}_shoulder"] - shoulders)
        for a, b, size in (
            ("hip", "knee", leg),
            ("knee", "ankle", leg),
            ("shoulder", "elbow", arm),
            ("elbow", "wrist", arm),
        ):
            place[f"{s}_{b}"] = place[f"{s}_{a}"] + size * (at[f"{s}_{b}"] - at[f"{s}_{a}"])
        foot = turn[f"{s}_foot"]
        place[f"{s}_toe"] = place[f"{s}_ankle"] + leg * _ahead(foot, robot.ankle_height)
    one = np.broadcast_to([1.0, 0, 0, 0], (len(q), 4))
    return np.stack([place[n] for n in NAMES], 1), np.stack([turn[PART[n]] if n in PART else one for n in NAMES], 1)


def _ahead(quat: np.ndarray, height: float) -> np.ndarray:
    return to_world(quat, np.broadcast_to([0.12, 0, -0.8 * height], (len(quat), 3)))
