"""Retargeting with things (OmniRetarget): what the person has to do with a box, a wall or a step is kept by the mesh of all.

    vertices  hips, knees, ankles, shoulders, elbows, wrists, and points on the things' surfaces
    mesh      Delaunay tetrahedra of the person's frame, scaled to the robot;  l_i = p_i - mean of its neighbours
    min_dq    W^2 sum_i |l*_i - (l_i + (L J dq)_i)|^2 + feet, pelvis and torso as in ik.py + S^2 |q + dq - q_before|^2
    with      low <= q + dq <= high,  |dq| <= STEP,  |q + dq - q_before| <= FAST / rate,  n^T J dq >= -phi - SLACK for corners of the robot's shapes near a thing

n is the direction between the nearest points of thing and shape (the engine's signed distance), phi a corner's distance along it. A thing may
be larger, smaller or elsewhere than the person's (things.py): the mesh is the person's, the things' points are the robot's. Where no dq meets
all, joints may be faster; where that is not enough, the things are entered, and the frame is counted.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import mujoco
import numpy as np

from surefoot.errors import SurefootError
from surefoot.motion.contacts import leg_length
from surefoot.motion.landmarks import landmarks, needed
from surefoot.motion.person import Person
from surefoot.motion.retarget.humanoid import SIDES, Humanoid, attitude, humanoid
from surefoot.motion.retarget.ik import HELD, Frame, Solver, bounded
from surefoot.motion.retarget.retarget import FAST, Retargeted, foot_paths, retarget
from surefoot.motion.retarget.things import (
    OBJECT,
    SAME,
    Change,
    Thing,
    ground,
    placed_for,
    scaled,
    surface,
    with_things,
)
from surefoot.motion.robot_motion import kinematic
from surefoot.report import Progress, Watch, unwatched
from surefoot.robot import Robot
from surefoot.sim.anatomy.shapes import placed

W, S = 3.0, 0.03
STEP, SLACK, NEAR = 0.2, 0.001, 0.08  # rad or m; m; m from which distances are looked at
ROUNDS = 8
CORNERS = 4  # of a shape, the nearest to a thing
MARGIN = 0.3  # of a leg: points of a wall or step are so near to where the person comes
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
class Interacted:
    robot: Humanoid
    q: np.ndarray
    things: tuple[Thing, ...]
    """the robot's: scaled, and changed as asked"""
    plain: Retargeted
    """without the mesh: hands as the person's arms point, feet where they stand"""
    touched: np.ndarray
    """(T, 2) whether the person's hands are at a box or a wall"""
    seconds: float
    """of one core, both parts"""
    relaxed: int
    """frames in which the things could not be kept out"""


TOUCHES = 0.1  # m from a person's wrist to what its hand holds


def interact(
    person: Person, robot: Robot, things: Sequence[Thing], change: Change = SAME, given: Mapping[str, str] | None = None, mapped: Mapping[str, str] | None = None, seed: int = 0, watch: Watch = unwatched
) -> Interacted:  # fmt: skip
    """The motion with the person's things kept. `given`: landmark -> the person's joint; `mapped`: landmark -> the robot's body."""
    marks = landmarks(person.names, given)
    needed(marks, person.names)
    scale = humanoid(kinematic(robot), mapped).leg / leg_length(person, marks)
    under = ground(person, marks, things, scale, change)
    sized = [placed_for(x, scale, 0.0, change) for x in things]  # distances ask for sizes alone
    plain = retarget(person, humanoid(kinematic(with_things(robot, sized)), mapped), given, seed, watch, under)
    body, began = plain.robot, time.process_time()
    low = float(np.mean([plain.targets.contacts.floor[f"{s}_ankle"] for s in SIDES]))
    lift = body.ankle_height - scale * low
    people = scale * np.stack([person.pos[:, marks[n]] for n in body.points], 1) + [0, 0, lift]
    theirs, own = [scaled(x, scale, lift) for x in things], [placed_for(x, scale, lift, change) for x in things]
    points = [surface(x, people, MARGIN * body.leg) for x in theirs]
    q, relaxed = _followed(plain, people, (theirs, own, points), watch)
    wrists = [person.pos[:, marks[f"{s}_wrist"]] for s in SIDES]
    held = [np.any([x.far(w) < TOUCHES for x in things if x.kind != "step"] or [np.zeros(len(w), bool)], 0) for w in wrists]  # fmt: skip
    return Interacted(
        body, q, tuple(own), plain, np.stack(held, 1), plain.seconds + time.process_time() - began, relaxed
    )


Meshed = tuple[Sequence[Thing], Sequence[Thing], Sequence[np.ndarray]]
"""the person's things, the robot's, and c of the points of each"""


def _followed(plain: Retargeted, people: np.ndarray, meshed: Meshed, watch: Watch) -> tuple[np.ndarray, int]:
    """Each frame from the one before it, moved on as plain retargeting does; and how many were not free."""
    theirs, own, points = meshed
    body, asked = plain.robot, plain.targets
    solver = _Mesh(body, own, FAST * float(np.median(np.diff(asked.time))))
    feet, shift = foot_paths(Solver(body), plain)
    q, out, relaxed = plain.q[0].copy(), np.zeros_like(plain.q), 0
    bodies = {k: attitude(x, body.parts[k][1]) for k, x in asked.parts.items() if k in ("pelvis", "torso")}
    of = lambda them, t: np.concatenate([x.world(c * x.half, t) for x, c in zip(them, points)])  # noqa: E731
    for t in range(len(out)):
        turned = {k: x[t] for k, x in bodies.items()} | {f"{s}_foot": feet[s][1][t] for s in SIDES}
        bones = {k: x[t] for k, x in asked.bones.items()}
        frame = Frame(asked.root[t] + shift[t], turned, bones, {s: feet[s][0][t] for s in SIDES})
        if t:
            mujoco.mj_differentiatePos(solver.m, solver.dq, 1.0, plain.q[t - 1], plain.q[t])
            mujoco.mj_integratePos(solver.m, q, solver.dq, 1.0)
        solver.put(t)
        solver.last = out[t - 1] if t else None
        q, free = solver.follow(q, frame, np.concatenate([people[t], of(theirs, t)]), of(own, t))
        out[t], relaxed = q, relaxed + (not free)
        if t % 20 == 0:
            watch(Progress("keeping things", t / len(out)))
    return out, relaxed


class _Mesh(Solver):
    """The program of a frame with things."""

    def __init__(self, robot: Humanoid, things: Sequence[Thing], reach: float):
        super().__init__(robot, reach)
        self.things, self.count = things, len(robot.points)
        self.last: np.ndarray | None = None  # q of the frame before
        self.dq, self.fromto = np.zeros(self.m.nv), np.zeros(6)
        self.pairs = [(own, g) for own, thing in zip(geoms(self.m), things) for g in shapes(robot, thing)]

    def put(self, t: int) -> None:
        """The things where they are in a frame."""
        put(self.m, self.d, self.things, t)

    def follow(self, q: np.ndarray, frame: Frame, source: np.ndarray, own: np.ndarray) -> tuple[np.ndarray, bool]:
        """q of the frame, and whether things could be kept out in every step."""
        L = laplacian(source)
        goal = L @ source
        q[self.place] = np.clip(q[self.place], *self.range.T)
        before, free = q.copy(), True
        for _ in range(ROUNDS):
            J, e = self._all(q, frame, L, goal, own)
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
        self, q: np.ndarray, frame: Frame, L: np.ndarray, goal: np.ndarray, own: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        J, e = self.errors(q, frame, SOFT)
        P = self.d.xpos[self.body] + np.einsum("kij,kj->ki", self.d.xmat[self.body].reshape(-1, 3, 3), self.at)
        P, Jp = P[: self.count], self._jacobian(P)[: self.count]
        off = goal - L @ np.concatenate([P, own])
        rows = np.einsum("vk,kij->vij", L[:, : self.count], Jp).reshape(-1, self.m.nv)
        return np.concatenate([J, W * rows]), np.concatenate([e, W * off.ravel()])

    def _kept_out(self, q: np.ndarray, H: np.ndarray, f: np.ndarray) -> tuple[np.ndarray, bool]:
        low, high = np.full(self.m.nv, -STEP), np.full(self.m.nv, STEP)
        now = q[self.place]
        low[self.dof] = np.maximum(low[self.dof], np.minimum(self.range[:, 0] - now, 0))
        high[self.dof] = np.minimum(high[self.dof], np.maximum(self.range[:, 1] - now, 0))
        A, least = self._near()
        for slow, fast in (self._slow(now, low, high), (low, high)):
            try:
                return bounded(H, f, slow, fast, A, least), True
            except SurefootError:
                continue
        return bounded(H, f, low, high), False

    def _slow(self, now: np.ndarray, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The bounds, with joints no faster than FAST since the frame before; where that is not possible, as they are."""
        if self.last is None:
            return low, high
        back = self.last[self.place] - now
        slow, fast = low.copy(), high.copy()
        slow[self.dof] = np.clip(back - self.reach, low[self.dof], high[self.dof])
        fast[self.dof] = np.clip(back + self.reach, slow[self.dof], high[self.dof])
        return slow, fast

    def _near(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows n^T J and their least values: every corner of a shape near a thing stays on its side of the plane between them."""
        rows, least = [], []
        J = np.zeros((3, self.m.nv))
        for thing, g in self.pairs:
            phi = mujoco.mj_geomDistance(self.m, self.d, thing, g, NEAR, self.fromto)
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


def geoms(m: mujoco.MjModel) -> list[int]:
    """The things' geoms in a model `with_things`, in their order."""
    return [g for g in range(m.ngeom) if m.geom(g).name.startswith(OBJECT)]


def put(m: mujoco.MjModel, d: mujoco.MjData, things: Sequence[Thing], t: int) -> None:
    for k, x in enumerate(things):
        at = int(m.body_mocapid[m.body(f"{OBJECT}_{k}").id])
        d.mocap_pos[at], d.mocap_quat[at] = x.pos[t], x.quat[t]


def shapes(robot: Humanoid, thing: Thing) -> list[int]:
    """Geoms of the robot that may not enter a thing: all of its links; but a box may stand between the feet."""
    m = robot.kin.model
    feet = {robot.parts[f"{s}_foot"][0] for s in SIDES} if thing.kind == "box" else set()
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
