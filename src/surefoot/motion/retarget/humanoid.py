"""A humanoid's landmarks, found in its model by geometry: where it has hips, knees, ankles, shoulders, elbows and wrists.

    a limb       the joints between the trunk and its end
    its middle   knee or elbow: the joint j called so that bends the limb, else with the largest |p_j - p_first| |axis_j x (tip - p_j)|
    hip          the point nearest to the axes of all joints before the middle;  ankle, wrist: of those behind it

Left is +y of the base. A part's attitude is given by its neutral frame N: x forward, z up for pelvis, torso
and feet in the default pose; for hands the turn of a hanging hand, thumb forward, into the direction of the forearm.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import mujoco
import numpy as np

from surefoot.errors import SurefootError, unknown
from surefoot.motion.robot_motion import Kinematic
from surefoot.rotation import conjugate, exp, product, to_world
from surefoot.sim.anatomy.feet import Foot
from surefoot.sim.anatomy.links import Links, posed
from surefoot.sim.anatomy.shapes import placed

SIDES = ("left", "right")
BONES = tuple(f"{s}_{a}>{s}_{b}" for s in SIDES for a, b in (("hip", "knee"), ("knee", "ankle"), ("shoulder", "elbow"), ("elbow", "wrist")))  # fmt: skip
PARTS = ("pelvis", "torso", "left_foot", "right_foot", "left_hand", "right_hand")
NAMED = re.compile("knee|elbow", re.IGNORECASE)
BENDS = 0.7  # sine of the angle between the axis of a knee or elbow and what it moves
BESIDE = 0.03  # of the robot's size: an end of a limb is at least so far from the middle plane


@dataclass(frozen=True, eq=False)
class Point:
    """A place that is fixed in a body."""

    body: int
    at: np.ndarray  # (3,) m in its frame

    def world(self, d: mujoco.MjData) -> np.ndarray:
        return np.asarray(d.xpos[self.body] + d.xmat[self.body].reshape(3, 3) @ self.at)


@dataclass(frozen=True, eq=False)
class Limb:
    links: list[int]
    joints: list[int]
    middle: int
    """number in `joints` of the knee or elbow"""
    tip: np.ndarray


@dataclass(frozen=True, eq=False)
class Humanoid:
    kin: Kinematic
    points: Mapping[str, Point]
    parts: Mapping[str, tuple[int, np.ndarray]]
    """part -> its body, and the neutral frame in the frame of the body (quaternion)"""
    feet: Mapping[str, Foot]

    @cached_property
    def home(self) -> mujoco.MjData:
        return posed(self.kin.model, self.kin.anatomy.home)

    def length(self, bone: str) -> float:
        """m, in the default pose."""
        a, b = bone.split(">")
        return float(np.linalg.norm(self.points[b].world(self.home) - self.points[a].world(self.home)))

    @cached_property
    def leg(self) -> float:
        """m from hip to ankle along the bones."""
        return float(np.mean([self.length(f"{s}_hip>{s}_knee") + self.length(f"{s}_knee>{s}_ankle") for s in SIDES]))

    def flat(self, side: str, yaw: np.ndarray) -> np.ndarray:
        """(T, 4) attitudes of a foot's body that stands level with these headings."""
        return attitude(yaw_quat(yaw), self.parts[f"{side}_foot"][1])

    @cached_property
    def ankle_height(self) -> float:
        """m of the ankles above the floor where the feet stand level."""
        found = []
        for side, foot in self.feet.items():
            quat = self.flat(side, np.zeros(1))[0]
            low = min(to_world(quat, np.array(p))[2] for p in foot.points) - foot.radius
            own = self.points[f"{side}_ankle"]
            found.append(float(to_world(quat, own.at)[2] - low))
        return float(np.mean(found))

    def landmarks(self, q: np.ndarray) -> dict[str, np.ndarray]:
        """(T, 3) of each landmark."""
        m, d = self.kin.model, self.kin.data
        out = {k: np.zeros((len(q), 3)) for k in self.points}
        for t, row in enumerate(q):
            d.qpos[:] = row
            mujoco.mj_kinematics(m, d)
            for k, p in self.points.items():
                out[k][t] = p.world(d)
        return out

    def attitudes(self, q: np.ndarray) -> dict[str, np.ndarray]:
        """(T, 4) of each part: the neutral frame, in the world."""
        m, d = self.kin.model, self.kin.data
        out = {k: np.zeros((len(q), 4)) for k in self.parts}
        for t, row in enumerate(q):
            d.qpos[:] = row
            mujoco.mj_kinematics(m, d)
            for k, (b, _) in self.parts.items():
                out[k][t] = d.xquat[b]
        return {k: product(x, np.broadcast_to(self.parts[k][1], x.shape)) for k, x in out.items()}


def attitude(neutral: np.ndarray, own: np.ndarray) -> np.ndarray:
    """Attitude of a body whose neutral frame is to be turned so."""
    return product(neutral, np.broadcast_to(conjugate(own), neutral.shape))


def yaw_quat(yaw: np.ndarray) -> np.ndarray:
    zero = np.zeros_like(yaw)
    return np.stack([np.cos(yaw / 2), zero, zero, np.sin(yaw / 2)], -1)


def heading(quat: np.ndarray) -> np.ndarray:
    """rad: the turn about the vertical in attitudes (..., 4)."""
    w, x, y, z = np.moveaxis(quat, -1, 0)
    return np.asarray(np.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z)))


def least_turn(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Quaternion of the smallest rotation that takes the direction a (3,) to b (3,)."""
    a, b = a / np.linalg.norm(a), b / np.linalg.norm(b)
    axis = np.cross(a, b)
    size = float(np.linalg.norm(axis))
    if size < 1e-9:
        side = np.array([1.0, 0, 0]) if abs(a[0]) < 0.9 else np.array([0, 1.0, 0])
        across = np.cross(a, side)
        return np.array([1.0, 0, 0, 0]) if a @ b > 0 else exp(np.pi * across / np.linalg.norm(across))
    return exp(axis / size * np.arctan2(size, float(a @ b)))


def hanging(direction: np.ndarray, facing: float = 0.0) -> np.ndarray:
    """Neutral frame of a hand whose forearm points in a direction, of somebody with this heading."""
    turn = yaw_quat(np.array(facing))
    local = to_world(conjugate(turn), direction)
    return product(turn, least_turn(np.array([0, 0, -1.0]), local))


def humanoid(kin: Kinematic, given: Mapping[str, str] | None = None) -> Humanoid:
    """The landmarks of a robot with two legs and two arms. `given`: landmark -> body whose origin it is."""
    m, d, tree = kin.model, posed(kin.model, kin.anatomy.home), Links(kin.model)
    legs, arms = _legs(kin, d), _arms(kin, tree, d)
    pelvis = _common([tree.path(x.links[-1]) for x in legs.values()])
    torso = _common([tree.path(x.links[-1]) for x in arms.values()])
    points: dict[str, Point] = {}
    for side in SIDES:
        points |= _joints(m, d, legs[side], pelvis, (f"{side}_hip", f"{side}_knee", f"{side}_ankle"))
        points |= _joints(m, d, arms[side], torso, (f"{side}_shoulder", f"{side}_elbow", f"{side}_wrist"))
    for mark, name in (given or {}).items():
        points[mark] = _given(m, mark, name, points)
    parts, feet = {"pelvis": (pelvis, _own(d, pelvis)), "torso": (torso, _own(d, torso))}, _feet(kin, d)
    for side in SIDES:
        foot, hand = m.body(feet[side].body).id, arms[side].links[-1]
        along = points[f"{side}_wrist"].world(d) - points[f"{side}_elbow"].world(d)
        parts[f"{side}_foot"] = (foot, _own(d, foot))
        parts[f"{side}_hand"] = (hand, product(conjugate(d.xquat[hand]), hanging(along)))
    return Humanoid(kin, points, parts, feet)


def _joints(
    m: mujoco.MjModel, d: mujoco.MjData, limb: Limb, trunk: int, names: tuple[str, str, str]
) -> dict[str, Point]:
    """The three landmarks of a limb: fixed in the trunk, in what its middle joint moves, in its last link."""
    k, middle = limb.middle, limb.joints[limb.middle]
    ends = (
        _nearest(d, limb.joints[:k] or limb.joints[:1]),
        _nearest(d, limb.joints[k + 1 :]) if limb.joints[k + 1 :] else limb.tip,
    )
    bodies = trunk, int(m.jnt_bodyid[middle]), limb.links[-1]
    places = ends[0], d.xanchor[middle], ends[1]
    return {name: _point(d, body, place) for name, body, place in zip(names, bodies, places)}


def _given(m: mujoco.MjModel, mark: str, name: str, points: Mapping[str, Point]) -> Point:
    if mark not in points:
        raise unknown("landmark", mark, points, "map")
    names = [str(m.body(b).name) for b in range(m.nbody)]
    if name not in names:
        raise unknown("body", name, names, f"map: {mark}")
    return Point(names.index(name), np.zeros(3))


def _feet(kin: Kinematic, d: mujoco.MjData) -> dict[str, Foot]:
    feet = sorted(kin.anatomy.feet, key=lambda f: -float(d.xpos[kin.model.body(f.body).id][1]))
    return dict(zip(SIDES, feet))


def _own(d: mujoco.MjData, body: int) -> np.ndarray:
    """x forward, z up of the default pose, in a body's frame."""
    return np.asarray(conjugate(d.xquat[body]))


def _point(d: mujoco.MjData, body: int, place: np.ndarray) -> Point:
    return Point(body, np.asarray((place - d.xpos[body]) @ d.xmat[body].reshape(3, 3)))


def _nearest(d: mujoco.MjData, joints: list[int]) -> np.ndarray:
    """The point nearest to the axes of joints; along a single axis, or where all are parallel, nearest to the last anchor."""
    A, b = 1e-6 * np.eye(3), 1e-6 * d.xanchor[joints[-1]]
    for j in joints:
        P = np.eye(3) - np.outer(d.xaxis[j], d.xaxis[j])
        A, b = A + P, b + P @ d.xanchor[j]
    return np.linalg.solve(A, b)


def _legs(kin: Kinematic, d: mujoco.MjData) -> dict[str, Limb]:
    m, legs = kin.model, kin.anatomy.legs
    if len(legs) != 2:
        raise SurefootError(f"robot: found {len(legs)} legs, expected the two of a humanoid")
    feet = _feet(kin, d)
    out = {}
    for side in SIDES:
        leg = next(x for x in legs if x.foot == feet[side])
        b = m.body(leg.foot.body).id
        tip = d.xpos[b] + d.xmat[b].reshape(3, 3) @ leg.foot.centre
        joints = [m.joint(j).id for j in leg.joints]
        out[side] = Limb(list(leg.links), joints, _middle(m, d, joints, tip), tip)
    return out


def _arms(kin: Kinematic, tree: Links, d: mujoco.MjData) -> dict[str, Limb]:
    m = kin.model
    legs = {x for leg in kin.anatomy.legs for x in leg.links}
    ends = [x for x in tree.ends if not legs & set(tree.path(x))]
    size = float(np.ptp(d.xpos[tree.robot], axis=0).max())
    out, paths = {}, {}
    for side, sign in (("left", 1), ("right", -1)):
        own = [tree.path(x) for x in ends if sign * (d.xpos[x][1] - d.xpos[tree.base][1]) > BESIDE * size]
        if not own:
            raise SurefootError(f"robot: found no arm on the {side}, expected the two of a humanoid")
        most = max(own, key=len)
        kin_of = [p for p in own if len(set(p) & set(most)) > 2]  # fingers of one hand
        paths[side] = most[: most.index(_common(kin_of)) + 1] if len(kin_of) > 1 else most
    torso = _common(list(paths.values()))
    for side, path in paths.items():
        links = path[path.index(torso) + 1 :]
        joints = [j for x in links for j in tree.joints(x)]
        if len(joints) < 3:
            raise SurefootError(f"robot: found {len(joints)} joints in the {side} arm, expected at least 3")
        tip = _tip(m, d, tree, links[-1], d.xanchor[joints[0]])
        out[side] = Limb(links, joints, _middle(m, d, joints, tip), tip)
    return out


def _common(paths: list[list[int]]) -> int:
    """The last link that all paths have."""
    shared = [x[0] for x in zip(*paths) if len(set(x)) == 1]
    return shared[-1]


def _tip(m: mujoco.MjModel, d: mujoco.MjData, tree: Links, link: int, origin: np.ndarray) -> np.ndarray:
    """The point of a last link's shapes that is farthest from where its limb begins; its mass where it has no shape."""
    clouds = [placed(m, d, g)[0] for g in tree.geoms(link)]
    cloud = np.concatenate([c for c in clouds if len(c)] or [d.xipos[link][None]])
    axis = cloud.mean(0) - origin
    far = float(((cloud - origin) @ axis).max() / (axis @ axis))
    return np.asarray(origin + far * axis)


def _middle(m: mujoco.MjModel, d: mujoco.MjData, joints: list[int], tip: np.ndarray) -> int:
    """Number of the knee or elbow among a limb's joints: one that is called so and bends the limb, or else by the product."""
    first, scores, bends = d.xanchor[joints[0]], [], []
    for j in joints:
        p, out = d.xanchor[j], tip - d.xanchor[j]
        bends.append(float(np.linalg.norm(np.cross(d.xaxis[j], out)) / max(float(np.linalg.norm(out)), 1e-9)))
        scores.append(float(np.linalg.norm(p - first)) * float(np.linalg.norm(out)) * bends[-1])
    named = [k for k, j in enumerate(joints) if NAMED.search(m.joint(j).name) and bends[k] > BENDS]
    return max(named or range(len(joints)), key=lambda k: scores[k])
