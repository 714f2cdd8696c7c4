"""From a person's motion to a robot's, in two passes over the recording.

    1   hips, parts and bones as the person has them (targets.py), each frame from the one before; the first from several starts
    2   the same with the feet where they should be:  standing, a foot stays where pass 1 had it on average, level, its sole on the floor or step;
        swinging, it goes as in pass 1, shifted so that it leaves and comes where it stands, and never below the floor

In pass 2 the hips are shifted by the mean shift of the feet, so that legs bend as the person's do. The first pass alone is what
plain inverse kinematics gives; both are in the result, so that they can be compared.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import mujoco
import numpy as np

from surefoot.log import Log
from surefoot.motion.contacts import runs
from surefoot.motion.landmarks import landmarks, needed
from surefoot.motion.person import Person
from surefoot.motion.retarget.humanoid import SIDES, Humanoid, attitude, heading
from surefoot.motion.retarget.ik import FREE, HELD, Frame, Solver
from surefoot.motion.retarget.targets import Targets, targets
from surefoot.motion.retarget.things import Ground
from surefoot.report import Progress, Watch, unwatched
from surefoot.rng import stream
from surefoot.rotation import between, conjugate, exp, product, to_world, unit

STARTS = 8
FAST = 20.0  # rad/s: no joint of a humanoid turns faster, and one that would jumps to another branch
FIRST, NEXT, AGAIN = 60, 8, 6  # most steps: in the first frame, in those after it, in pass 2


@dataclass(frozen=True, eq=False)
class Retargeted:
    robot: Humanoid
    targets: Targets
    q: np.ndarray  # (T, nq)
    plain: np.ndarray  # (T, nq) pass 1
    seconds: float
    """of one core that both passes took"""
    steps: float
    """mean steps a frame of both passes"""
    starts: tuple[float, ...] = field(default=())
    """costs of the starts of the first frame"""

    @property
    def log(self) -> Log:
        names = ("left_foot", "right_foot")
        touch = {"contact": np.stack([self.targets.contacts.of(n) for n in names], 1).astype(float)}
        found = self.robot.kin.log(self.targets.time, self.q, {"notes": ["retargeted from a person"]})
        meta = found.meta | {"names": found.meta["names"] | {"contact": list(names)}}
        return Log(found.time, found.columns | touch, found.units, meta)


def retarget(
    person: Person, robot: Humanoid, given: Mapping[str, str] | None = None, seed: int = 0, watch: Watch = unwatched, ground: Ground | None = None
) -> Retargeted:  # fmt: skip
    """The person's motion for a robot. `given`: landmark -> the person's joint; `ground`: what is under the feet, if not one floor."""
    marks = landmarks(person.names, given)
    needed(marks, person.names)
    asked = targets(person, marks, robot, ground)
    began = time.process_time()
    solver = Solver(robot, FAST / person.rate)
    bodies = {k: attitude(x, robot.parts[k][1]) for k, x in asked.parts.items()}
    frames = [
        Frame(asked.root[t], {k: x[t] for k, x in bodies.items()}, {k: x[t] for k, x in asked.bones.items()})
        for t in range(len(asked.time))
    ]
    q, costs = first(solver, frames[0], seed)
    plain, steps = np.zeros((len(frames), len(q))), 0
    for t, frame in enumerate(frames):
        q, _, k = solver.solve(q, frame, FREE, NEXT, plain[t - 1] if t else None)
        plain[t], steps = q, steps + k
        if t % 100 == 0:
            watch(Progress("retargeting, pass 1 of 2", t / len(frames) / 2))
    out, more = _held(solver, asked, frames, plain, watch)
    return Retargeted(robot, asked, out, plain, time.process_time() - began, (steps + more) / len(frames), costs)


def first(solver: Solver, frame: Frame, seed: int) -> tuple[np.ndarray, tuple[float, ...]]:
    """The first frame from the default pose, the zero pose and random ones; the best, and the costs of all."""
    m, rng = solver.m, stream(seed, "retarget")
    home = solver.robot.kin.anatomy.home
    starts = [home, m.qpos0.copy()]
    for _ in range(STARTS - 2):
        q = home.copy()
        share = rng.uniform(0, 1, len(solver.place))
        q[solver.place] = 0.5 * home[solver.place] + 0.5 * (solver.range[:, 0] + share * np.ptp(solver.range, axis=1))
        starts.append(q)
    found = [solver.solve(_towards(solver, q, frame), frame, FREE, FIRST) for q in starts]
    costs = tuple(solver.cost(q, frame, FREE) for q, _, _ in found)
    return found[int(np.argmin(costs))][0], costs


def _towards(solver: Solver, q: np.ndarray, frame: Frame) -> np.ndarray:
    """q with the base turned so that the pelvis is as asked."""
    at, q = solver.robot.kin.base, q.copy()
    solver.pose(q)
    body = solver.robot.parts["pelvis"][0]
    turn = product(frame.bodies["pelvis"], conjugate(solver.d.xquat[body]))
    q[at + 3 : at + 7] = unit(product(turn, q[at + 3 : at + 7]))
    q[at : at + 3] = frame.root
    return q


def _held(
    solver: Solver, asked: Targets, frames: list[Frame], plain: np.ndarray, watch: Watch
) -> tuple[np.ndarray, int]:
    """Pass 2."""
    soles = sole_paths(solver, plain)
    kept = _kept(solver.robot, soles, asked)
    shift = np.mean([kept[s][0] - soles[s][0] for s in SIDES], 0)
    out, steps = plain.copy(), 0
    for t, frame in enumerate(frames):
        bodies = dict(frame.bodies) | {f"{s}_foot": kept[s][1][t] for s in SIDES}
        feet = {s: kept[s][0][t] for s in SIDES}
        start = out[t].copy()
        start[solver.robot.kin.base : solver.robot.kin.base + 3] += shift[t]
        asks = Frame(frame.root + shift[t], bodies, frame.bones, feet)
        out[t], _, k = solver.solve(start, asks, HELD, AGAIN, out[t - 1] if t else None)
        steps += k
        if t % 100 == 0:
            watch(Progress("retargeting, pass 2 of 2", 0.5 + t / len(frames) / 2))
    return out, steps


Paths = dict[str, tuple[np.ndarray, np.ndarray]]
"""side -> (T, 3) middle of a sole, (T, 4) attitude of its body"""


def _kept(robot: Humanoid, soles: Paths, asked: Targets) -> Paths:
    return {
        side: _path(robot, side, *soles[side], asked.contacts.of(f"{side}_foot"), asked.ground.robot[side])
        for side in SIDES
    }


def foot_paths(solver: Solver, found: Retargeted) -> tuple[Paths, np.ndarray]:
    """Where the feet are to be, as in pass 2, and the mean shift (T, 3) of both from pass 1."""
    soles = sole_paths(solver, found.plain)
    kept = _kept(found.robot, soles, found.targets)
    return kept, np.mean([kept[s][0] - soles[s][0] for s in SIDES], 0)


def sole_paths(solver: Solver, q: np.ndarray) -> Paths:
    """Where the soles are at positions (T, nq)."""
    return {side: _sole(solver, side, q) for side in SIDES}


def _sole(solver: Solver, side: str, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(T, 3) middle of a sole and (T, 4) attitude of its body."""
    body = solver.robot.parts[f"{side}_foot"][0]
    pos, quat = np.zeros((len(q), 3)), np.zeros((len(q), 4))
    for t, row in enumerate(q):
        solver.d.qpos[:] = row
        mujoco.mj_kinematics(solver.m, solver.d)
        pos[t] = solver.d.xpos[body] + solver.d.xmat[body].reshape(3, 3) @ solver.soles[side]
        quat[t] = solver.d.xquat[body]
    return pos, quat


def _path(
    robot: Humanoid, side: str, pos: np.ndarray, quat: np.ndarray, stands: np.ndarray, under: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Where a sole should be, and how its body should be turned: fixed while it stands, shifted while it swings.

    `under` (T, 3): shift x, y and height of what is under it.
    """
    own = robot.parts[f"{side}_foot"][1]
    shift, turn = np.zeros_like(pos), np.zeros_like(pos)
    pos_out, quat_out, spans = pos.copy(), quat.copy(), runs(stands)
    for a, b in spans:
        yaw = heading(product(quat[a:b], np.broadcast_to(own, (b - a, 4))))
        level = robot.flat(side, np.array([np.arctan2(np.sin(yaw).mean(), np.cos(yaw).mean())]))[0]
        x, y, z = np.median(under[a:b], 0)
        place = np.array([*np.median(pos[a:b, :2], 0) + [x, y], z - _below(robot, side, level)])
        pos_out[a:b], quat_out[a:b] = place, level
        shift[a:b], turn[a:b] = place - pos[a:b], between(quat[a:b], np.broadcast_to(level, (b - a, 4)))
    for a, b in runs(~stands):
        before, after = (a - 1 if a else None), (b if b < len(pos) else None)
        for x in (shift, turn):
            x[a:b] = _blend(None if before is None else x[before], None if after is None else x[after], b - a)
        pos_out[a:b] = pos[a:b] + shift[a:b]
        quat_out[a:b] = unit(product(quat[a:b], exp(turn[a:b])))
        low = np.array([p[2] + _below(robot, side, r) for p, r in zip(pos_out[a:b], quat_out[a:b])])
        pos_out[a:b, 2] += np.maximum(0.0, -low)
    return pos_out, quat_out


def _below(robot: Humanoid, side: str, quat: np.ndarray) -> float:
    """m (below 0): the lowest point of a foot that is turned so, as seen from the middle of its sole."""
    foot = robot.feet[side]
    points = to_world(np.broadcast_to(quat, (len(foot.points), 4)), np.array(foot.points) - foot.centre)
    return float(points[:, 2].min() - foot.radius)


def _blend(before: np.ndarray | None, after: np.ndarray | None, n: int) -> np.ndarray:
    """(n, 3) smoothly from one shift to another; that of one side where the recording begins or ends."""
    if before is None or after is None:
        only = before if before is not None else after
        return np.zeros((n, 3)) if only is None else np.tile(only, (n, 1))
    s = (np.arange(n) + 1) / (n + 1)
    s = (s * s * (3 - 2 * s))[:, None]
    return before * (1 - s) + after * s
