"""A retargeted motion whose robot presses on the floor within its feet, as far as small shifts of the base can make it.

A shift delta of the centre of mass moves the zero-moment point p (pressure.py) by  A delta = delta - h delta'',  h = c_z / (g + c_z'').
Wanted is the smallest smooth shift that takes it to the nearest point s of the feet that stand, MARGIN within their edge:

    delta = argmin |U (p + A delta - s)|^2 + STAY |delta|^2 + CALM |delta'|^2         U: rows in which feet stand and are needed

s depends on delta: a few rounds. The base is then moved by delta, the feet stay where they were, and the joints follow by inverse kinematics.
"""

from dataclasses import replace

import numpy as np
from scipy import sparse
from scipy.interpolate import CubicSpline
from scipy.sparse.linalg import spsolve

from surefoot.motion.retarget.humanoid import SIDES, attitude
from surefoot.motion.retarget.ik import HELD, Frame, Solver
from surefoot.motion.retarget.pressure import Pressure, nearest, pressure
from surefoot.motion.retarget.retarget import AGAIN, FAST, Retargeted, sole_paths

STEP = 0.02  # s between two rows of second differences
MARGIN = 0.02  # m
STAY, CALM = 1e-3, 1e-4  # 1, s^2
ROUNDS, PASSES = 6, 2
SHIFTED = {**HELD, "root": 3.0, "leg": 0.05}  # weights: the base goes where it is told


def balanced(found: Retargeted) -> Retargeted:
    """The same motion, its base shifted; unchanged where no foot ever stands."""
    out = found
    for _ in range(PASSES):
        out = replace(out, q=_moved(out, shift(pressed(out, out.q), len(out.q), stride(out))))
    return out


def pressed(found: Retargeted, q: np.ndarray) -> Pressure:
    """Where the robot presses on the floor at positions q (T, nq) of the motion's frames, a row each STEP or so."""
    every = stride(found)
    kin, feet = found.robot.kin, [found.robot.feet[s] for s in SIDES]
    base = int(kin.model.body_rootid[found.robot.parts["pelvis"][0]])
    return pressure(kin.model, base, feet, q[::every], every * _period(found))


def stride(found: Retargeted) -> int:
    return max(1, round(STEP / _period(found)))


def _period(found: Retargeted) -> float:
    return float(np.diff(found.targets.time).mean())


def shift(at: Pressure, frames: int, every: int) -> np.ndarray:
    """(frames, 2) m, smooth in time; `every`: frames from one row to the next."""
    rows, n = len(at.p), np.flatnonzero(at.used).tolist()
    if rows < 4:
        return np.zeros((frames, 2))
    second = sparse.diags_array([1.0, -2.0, 1.0], offsets=[-1, 0, 1], shape=(rows, rows)).tocsr() / at.period**2
    first = sparse.diags_array([-1.0, 1.0], offsets=[0, 1], shape=(rows - 1, rows)).tocsr() / at.period
    h = np.where(at.used, at.height, 0.0)
    A = sparse.eye_array(rows) - sparse.diags_array(h) @ second
    U = sparse.diags_array(at.used.astype(float))
    H = (A.T @ U @ A + STAY * sparse.eye_array(rows) + CALM * first.T @ first).tocsc()
    delta = np.zeros((rows, 2))
    for _ in range(ROUNDS):
        now = at.p + A @ delta
        goal = now.copy()
        for k in n:
            goal[k] = _within(now[k], at.corners(k))
        delta = spsolve(H, A.T @ (U @ (goal - at.p)))
    fine = np.minimum(np.arange(frames) / every, rows - 1.0)  # what is after the last row has its shift
    return np.asarray(CubicSpline(np.arange(rows), delta)(fine))


def _within(p: np.ndarray, corners: np.ndarray) -> np.ndarray:
    """p, or the nearest point of the feet without their margin."""
    middle = corners.mean(0)
    far = np.maximum(np.linalg.norm(corners - middle, axis=1, keepdims=True), 1e-9)
    q, inside = nearest(p, middle + (corners - middle) * np.maximum(0.0, 1 - MARGIN / far))
    return p if inside else q


def _moved(found: Retargeted, delta: np.ndarray) -> np.ndarray:
    """(T, nq) with the base shifted by delta (T, 2), the feet where they are."""
    robot, asked = found.robot, found.targets
    solver = Solver(robot, FAST * _period(found))
    soles = sole_paths(solver, found.q)
    parts = {k: attitude(x, robot.parts[k][1]) for k, x in asked.parts.items()}
    hips, base, out = [robot.points[f"{s}_hip"] for s in SIDES], robot.kin.base, found.q.copy()
    for t, q in enumerate(found.q):
        solver.pose(q)
        root = np.mean([hip.world(solver.d) for hip in hips], 0) + [*delta[t], 0.0]
        bodies = {k: x[t] for k, x in parts.items()} | {f"{s}_foot": soles[s][1][t] for s in SIDES}
        frame = Frame(root, bodies, {k: x[t] for k, x in asked.bones.items()}, {s: soles[s][0][t] for s in SIDES})
        start = q.copy()
        start[base : base + 2] += delta[t]
        out[t] = solver.solve(start, frame, SHIFTED, AGAIN, out[t - 1] if t else None)[0]
    return out
