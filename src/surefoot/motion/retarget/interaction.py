"""Retargeting with an object (OmniRetarget): what the person has to do with it is kept by the mesh of both.

    vertices  hips, knees, ankles, shoulders, elbows, wrists, and points on the object's surface
    mesh      Delaunay tetrahedra of the person's frame, scaled to the robot;  l_i = p_i - mean of its neighbours
    min_dq    W^2 sum_i |l*_i - (l_i + (L J dq)_i)|^2 + feet, pelvis and torso as in ik.py + S^2 |q + dq - q_before|^2
    with      low <= q + dq <= high,  |dq| <= STEP,  n^T J dq >= -phi - SLACK for corners of the robot's shapes near the object

n is the direction between the nearest points of object and shape (the engine's signed distance), phi a corner's distance along it. The object may be larger,
smaller or elsewhere than the person's: the mesh is the person's, the object's points are the robot's.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass

import mujoco
import numpy as np

from surefoot.errors import SurefootError
from surefoot.motion.contacts import leg_length
from surefoot.motion.person import Person
from surefoot.motion.retarget.humanoid import SIDES, Humanoid, attitude
from surefoot.motion.retarget.ik import HELD, Frame, Solver, bounded
from surefoot.motion.retarget.retarget import Retargeted, foot_paths
from surefoot.report import Progress, Watch, unwatched
from surefoot.robot import Robot
from surefoot.sim.anatomy.shapes import CORNERS as CORNERS_OF_BOX
from surefoot.sim.anatomy.shapes import placed

OBJECT = "surefoot_object"
POINTS = 30
W, S = 3.0, 0.03
STEP, SLACK, NEAR = 0.2, 0.001, 0.08  # rad or m; m; m from which distances are looked at
ROUNDS = 8
CORNERS = 4  # of a shape, the nearest to the object
SOFT = {
    **HELD,
    "sole": 40.0,
    "left_foot": 10.0,
    "right_foot": 10.0,
    "root": 0.05,
    "leg": 0.0,
    "arm": 0.0,
    "pelvis": 0.3,
    "torso": 0.2,
    "left_hand": 0.0,
    "right_hand": 0.0,
}


@dataclass(frozen=True, eq=False)
class Box:
    """A box that a person handles: half sizes, and where its middle is in each frame; it is not turned."""

    half: np.ndarray  # (3,) m
    path: np.ndarray  # (T, 3) m

    def surface(self, n: int = POINTS) -> np.ndarray:
        """(n, 3) points spread over its faces by area, the same for boxes of any size."""
        k = np.arange(n) + 0.5
        z, turn = 1 - 2 * k / n, np.pi * (1 + 5**0.5) * k
        r = np.sqrt(1 - z * z)
        ball = np.stack([r * np.cos(turn), r * np.sin(turn), z], 1)
        return ball / np.abs(ball).max(1, keepdims=True) * self.half

    def corners(self) -> np.ndarray:
        """(T, 8, 3) m."""
        return self.path[:, None] + CORNERS_OF_BOX * self.half


def with_box(robot: Robot, half: np.ndarray) -> Robot:
    """The robot with a box that distances can be measured to; it collides with nothing."""

    def edit(spec: mujoco.MjSpec) -> None:
        body = spec.worldbody.add_body(name=OBJECT, mocap=True, pos=[0, 0, -10])
        body.add_geom(
            name=OBJECT, type=mujoco.mjtGeom.mjGEOM_BOX, size=np.asarray(half).tolist(), contype=0, conaffinity=0
        )

    return robot.edited(edit)


@dataclass(frozen=True, eq=False)
class Interacted:
    robot: Humanoid
    q: np.ndarray
    box: Box
    """the robot's: scaled, or as asked"""
    seconds: float
    """of one core"""
    relaxed: int
    """frames in which the object could not be kept out"""


def interact(
    person: Person, marks: Mapping[str, int], box: Box, plain: Retargeted, size: float = 1.0, shift: tuple[float, float, float] = (0.0, 0.0, 0.0), watch: Watch = unwatched
) -> Interacted:  # fmt: skip
    """The motion with the object kept; `plain` is the retargeted motion of a robot `with_box`. The box may be `size` times as large, and shifted."""
    robot, began = plain.robot, time.process_time()
    scale = robot.leg / leg_length(person, marks)
    names = list(robot.points)
    low = float(np.mean([plain.targets.contacts.floor[f"{s}_ankle"] for s in SIDES]))
    lift = np.array([0, 0, robot.ankle_height - scale * low])
    people = scale * np.stack([person.pos[:, marks[n]] for n in names], 1) + lift
    own = Box(scale * size * box.half, scale * box.path + lift + np.array(shift))
    source = Box(scale * box.half, scale * box.path + lift)
    solver = _Mesh(robot, own)
    feet = foot_paths(Solver(robot), plain)
    q, out, relaxed = plain.q[0].copy(), np.zeros_like(plain.q), 0
    bodies = {k: attitude(x, robot.parts[k][1]) for k, x in plain.targets.parts.items() if k in ("pelvis", "torso")}
    for t in range(len(out)):
        turned = {k: x[t] for k, x in bodies.items()} | {f"{s}_foot": feet[s][1][t] for s in SIDES}
        bones = {k: x[t] for k, x in plain.targets.bones.items()}
        frame = Frame(plain.targets.root[t], turned, bones, {s: feet[s][0][t] for s in SIDES})
        if t:
            mujoco.mj_differentiatePos(solver.m, solver.dq, 1.0, plain.q[t - 1], plain.q[t])
            mujoco.mj_integratePos(solver.m, q, solver.dq, 1.0)
        q, free = solver.follow(q, frame, np.concatenate([people[t], source.path[t] + source.surface()]), own.path[t])
        out[t], relaxed = q, relaxed + (not free)
        if t % 20 == 0:
            watch(Progress("keeping the object", t / len(out)))
    return Interacted(robot, out, own, time.process_time() - began, relaxed)


class _Mesh(Solver):
    """The program of a frame with an object."""

    def __init__(self, robot: Humanoid, box: Box):
        super().__init__(robot)
        self.count, self.surface = len(robot.points), box.surface()
        self.geom = self.m.geom(OBJECT).id
        self.dq, self.fromto = np.zeros(self.m.nv), np.zeros(6)
        self.mocap = int(self.m.body_mocapid[self.m.body(OBJECT).id])
        self.shapes = shapes(robot)

    def follow(self, q: np.ndarray, frame: Frame, source: np.ndarray, place: np.ndarray) -> tuple[np.ndarray, bool]:
        """q of the frame, and whether the object could be kept out in every step."""
        L = laplacian(source)
        goal = L @ source
        self.d.mocap_pos[self.mocap] = place
        q[self.place] = np.clip(q[self.place], *self.range.T)
        before, free = q.copy(), True
        for _ in range(ROUNDS):
            J, e = self._all(q, frame, L, goal, place)
            mujoco.mj_differentiatePos(self.m, self.dq, 1.0, q, before)
            H, f = J.T @ J, J.T @ e + S**2 * self.dq
            H.flat[:: len(H) + 1] += S**2
            dq, fits = self._kept_out(q, H, f)
            free &= fits
            mujoco.mj_integratePos(self.m, q, dq, 1.0)
            if np.abs(dq).max() < 2e-3:
                break
        return q, free

    def _all(
        self, q: np.ndarray, frame: Frame, L: np.ndarray, goal: np.ndarray, place: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        J, e = self.errors(q, frame, SOFT)
        P = self.d.xpos[self.body] + np.einsum("kij,kj->ki", self.d.xmat[self.body].reshape(-1, 3, 3), self.at)
        P, Jp = P[: self.count], self._jacobian(P)[: self.count]
        off = goal - L @ np.concatenate([P, place + self.surface])
        rows = np.einsum("vk,kij->vij", L[:, : self.count], Jp).reshape(-1, self.m.nv)
        return np.concatenate([J, W * rows]), np.concatenate([e, W * off.ravel()])

    def _kept_out(self, q: np.ndarray, H: np.ndarray, f: np.ndarray) -> tuple[np.ndarray, bool]:
        low, high = np.full(self.m.nv, -STEP), np.full(self.m.nv, STEP)
        now = q[self.place]
        low[self.dof] = np.maximum(low[self.dof], np.minimum(self.range[:, 0] - now, 0))
        high[self.dof] = np.minimum(high[self.dof], np.maximum(self.range[:, 1] - now, 0))
        A, least = self._near()
        try:
            return bounded(H, f, low, high, A, least), True
        except SurefootError:
            return bounded(H, f, low, high), False

    def _near(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows n^T J and their least values: every corner of a shape near the object stays on its side of the plane between them."""
        rows, least = [], []
        J = np.zeros((3, self.m.nv))
        for g in self.shapes:
            phi = mujoco.mj_geomDistance(self.m, self.d, self.geom, g, NEAR, self.fromto)
            gap = self.fromto[3:] - self.fromto[:3]
            size = float(np.linalg.norm(gap))
            if phi >= NEAR or size < 1e-9:
                continue
            n = np.sign(phi) * gap / size
            corners, r = placed(self.m, self.d, g)
            corners = corners - r * n
            off = (corners - self.fromto[:3]) @ n
            for k in np.argsort(off)[:CORNERS]:
                mujoco.mj_jac(self.m, self.d, J, None, corners[k], int(self.m.geom_bodyid[g]))
                rows.append(n @ J)
                least.append(min(-off[k] - SLACK, 0.05))
        return np.array(rows).reshape(-1, self.m.nv), np.array(least)


def shapes(robot: Humanoid) -> list[int]:
    """Geoms of the robot that may not enter the object: all of its links but the feet."""
    m = robot.kin.model
    feet = {robot.parts[f"{s}_foot"][0] for s in SIDES}
    root = m.body_rootid[robot.parts["pelvis"][0]]
    return [g for g in range(m.ngeom) if m.body_rootid[m.geom_bodyid[g]] == root and int(m.geom_bodyid[g]) not in feet]


def laplacian(points: np.ndarray) -> np.ndarray:
    """(V, V): p_i - mean of the neighbours of i in the Delaunay tetrahedra of the points."""
    from scipy.spatial import Delaunay

    A = np.zeros((len(points), len(points)))
    cells = Delaunay(points).simplices
    for a in range(4):
        for b in range(4):
            if a != b:
                A[cells[:, a], cells[:, b]] = 1.0
    return np.eye(len(points)) - A / np.maximum(A.sum(1, keepdims=True), 1.0)


def distances(robot: Humanoid, q: np.ndarray, box: Box) -> tuple[np.ndarray, np.ndarray]:
    """(T, 2) m between each hand and the box, and (T,) of the deepest shape of the robot; below 0: inside."""
    m, d = robot.kin.model, mujoco.MjData(robot.kin.model)
    own, hands, all_ = m.geom(OBJECT).id, np.zeros((len(q), 2)), np.zeros(len(q))
    of = [[g for g in shapes(robot) if m.geom_bodyid[g] == robot.parts[f"{s}_hand"][0]] for s in SIDES]
    for t, row in enumerate(q):
        d.qpos[:] = row
        d.mocap_pos[m.body_mocapid[m.body(OBJECT).id]] = box.path[t]
        mujoco.mj_kinematics(m, d)
        far = {g: mujoco.mj_geomDistance(m, d, own, g, 1.0, None) for g in shapes(robot)}
        hands[t] = [min((far[g] for g in gs), default=1.0) for gs in of]
        all_[t] = min(far.values())
    return hands, all_
