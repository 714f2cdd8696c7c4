"""Inverse kinematics as a quadratic program, solved again and again from where the last one ended:

    min_dq  sum_k w_k^2 |e_k - J_k dq|^2 + mu |dq|^2 + POSTURE^2 |q + dq - home|^2 + CALM^2 |q + dq - before|^2
            low <= q + dq <= high,  |dq| <= STEP,  |q + dq - before| <= reach

    place of a point      e = p* - p                      J: its own
    place of the hips     e = p* - (p_l + p_r) / 2        J: their mean
    attitude of a part    e = L log(R* R^T), world        J: L times that of its rotation
    direction of a bone   e = l (u* - u),  u = v / |v|    J: l (I - u u^T) / |v| (J_b - J_a)

Errors are in metres; L is a length that makes them so. Where no bound is met the program is a linear system; daqp solves the others.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import mujoco
import numpy as np

from surefoot.errors import MissingExtra, SurefootError
from surefoot.motion.retarget.humanoid import BONES, SIDES, Humanoid
from surefoot.rotation import conjugate, log, product

STEP = 0.5  # rad or m
MU = 1e-6
# m a radian: what nothing else decides is as in the default pose. Where an arm is straight its roll is hardly decided, and ends where POSTURE
# draws it: with 0.003 a dance comes back from its round trip with shoulders 0.17 rad off, with 0.001 0.06 rad
POSTURE = 0.001
CALM = 0.006  # m a radian: and does not jump from frame to frame
LIMB = {b: "leg" if "knee" in b else "arm" for b in BONES}
LEVER = 0.3  # m: of attitudes


@dataclass(frozen=True, eq=False)
class Frame:
    """What is asked of one frame: place of the hips, attitudes of bodies, directions of bones, places of feet."""

    root: np.ndarray
    bodies: Mapping[str, np.ndarray]
    """part -> quaternion of its body"""
    bones: Mapping[str, np.ndarray]
    feet: Mapping[str, np.ndarray] = field(default_factory=dict)
    """side -> place of the middle of the sole"""


Weights = Mapping[str, float]
FREE: Weights = {
    "root": 1.0, "pelvis": 0.6, "torso": 0.3, "left_foot": 0.25, "right_foot": 0.25, "left_hand": 0.1, "right_hand": 0.1, "leg": 1.0, "arm": 1.0, "sole": 0.0,
}  # fmt: skip
HELD: Weights = {**FREE, "root": 0.3, "left_foot": 3.0, "right_foot": 3.0, "leg": 0.2, "sole": 10.0}


class Solver:
    """The program of one robot: all points and bodies of a step at once."""

    def __init__(self, robot: Humanoid, reach: float = np.inf):
        """`reach`: rad that a joint may turn from one frame to the next."""
        self.reach = reach
        self.robot, self.m = robot, robot.kin.model
        self.d = mujoco.MjData(self.m)
        nv = self.m.nv
        hinges = [j for j in range(self.m.njnt) if self.m.jnt_limited[j]]
        self.dof, self.place = self.m.jnt_dofadr[hinges], self.m.jnt_qposadr[hinges]
        self.range = self.m.jnt_range[hinges]
        self.home = robot.kin.anatomy.home[self.place]
        self.low, self.high = np.full(nv, -STEP), np.full(nv, STEP)
        self.soles = {s: np.asarray(f.centre) for s, f in robot.feet.items()}
        names = list(robot.points)
        feet = [(robot.parts[f"{s}_foot"][0], self.soles[s]) for s in SIDES]
        self.body = np.array([*(robot.points[n].body for n in names), *(b for b, _ in feet)])
        self.at = np.stack([*(robot.points[n].at for n in names), *(at for _, at in feet)])
        self.hips = [names.index(f"{s}_hip") for s in SIDES]
        self.bones = np.array([[names.index(k) for k in b.split(">")] for b in BONES])
        self.length = np.array([robot.length(b) for b in BONES])
        self.moves = self._moves()  # (nbody, nv) whether a joint moves a body
        self.base = int(self.m.body_rootid[robot.parts["pelvis"][0]])

    def _moves(self) -> np.ndarray:
        out = np.zeros((self.m.nbody, self.m.nv))
        for b in range(1, self.m.nbody):
            out[b] = out[self.m.body_parentid[b]]
            first, n = int(self.m.body_dofadr[b]), int(self.m.body_dofnum[b])
            out[b, first : first + n] = 1.0 if n else 0.0
        return out

    def pose(self, q: np.ndarray) -> None:
        self.d.qpos[:] = q
        mujoco.mj_kinematics(self.m, self.d)
        mujoco.mj_comPos(self.m, self.d)

    def solve(
        self, q: np.ndarray, frame: Frame, weights: Weights, most: int, before: np.ndarray | None = None, tolerance: float = 1e-3
    ) -> tuple[np.ndarray, float, int]:  # fmt: skip
        """q that meets a frame, its last cost, and how many steps it took; ends after a step that was shorter than the tolerance.

        `before`: positions of the frame before this one.
        """
        q, cost = q.copy(), np.inf
        for k in range(most):
            J, e = self.errors(q, frame, weights)
            cost = float(e @ e)
            dq = self._step(q, J, e, before)
            mujoco.mj_integratePos(self.m, q, dq, 1.0)
            if np.abs(dq).max() < tolerance:
                return q, cost, k + 1
        return q, cost, most

    def cost(self, q: np.ndarray, frame: Frame, weights: Weights) -> float:
        e = self.errors(q, frame, weights)[1]
        return float(e @ e)

    def _step(self, q: np.ndarray, J: np.ndarray, e: np.ndarray, before: np.ndarray | None) -> np.ndarray:
        H, f = J.T @ J, J.T @ e
        H.flat[:: len(H) + 1] += MU + 1e-3 * float(e @ e)
        low, high = self.low.copy(), self.high.copy()
        now = q[self.place]
        H[self.dof, self.dof] += POSTURE**2
        f[self.dof] += POSTURE**2 * (self.home - now)
        low[self.dof] = np.maximum(low[self.dof], np.minimum(self.range[:, 0] - now, 0))
        high[self.dof] = np.minimum(high[self.dof], np.maximum(self.range[:, 1] - now, 0))
        if before is not None:
            back = before[self.place] - now
            H[self.dof, self.dof] += CALM**2
            f[self.dof] += CALM**2 * back
            high[self.dof] = np.minimum(high[self.dof], back + self.reach)
            low[self.dof] = np.minimum(np.maximum(low[self.dof], back - self.reach), high[self.dof])
        dq = np.linalg.solve(H, f)
        return bounded(H, f, low, high) if ((dq < low) | (dq > high)).any() else dq

    def errors(self, q: np.ndarray, frame: Frame, w: Weights) -> tuple[np.ndarray, np.ndarray]:
        """J (rows, nv) and e (rows,) at q."""
        self.pose(q)
        d = self.d
        P = d.xpos[self.body] + np.einsum("kij,kj->ki", d.xmat[self.body].reshape(-1, 3, 3), self.at)
        Jp = self._jacobian(P)  # (K, 3, nv)
        rows, errors = [w["root"] * Jp[self.hips].mean(0)], [w["root"] * (frame.root - P[self.hips].mean(0))]
        for J, e in (self._bones(frame, w, P, Jp), self._attitudes(frame, w), self._feet(frame, w, P, Jp)):
            rows.append(J.reshape(-1, self.m.nv))
            errors.append(e.reshape(-1))
        return np.concatenate(rows), np.concatenate(errors)

    def _jacobian(self, P: np.ndarray) -> np.ndarray:
        """(K, 3, nv) of points, as mj_jac has them."""
        axis, line = self.d.cdof[:, :3], self.d.cdof[:, 3:]
        r = P - self.d.subtree_com[self.base]
        turn = np.empty((len(P), 3, self.m.nv))
        turn[:, 0] = axis[:, 1] * r[:, 2:] - axis[:, 2] * r[:, 1:2]
        turn[:, 1] = axis[:, 2] * r[:, :1] - axis[:, 0] * r[:, 2:]
        turn[:, 2] = axis[:, 0] * r[:, 1:2] - axis[:, 1] * r[:, :1]
        turn += line.T
        turn *= self.moves[self.body][:, None]
        return turn

    def _bones(self, frame: Frame, w: Weights, P: np.ndarray, Jp: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        a, b = self.bones.T
        v, J = P[b] - P[a], Jp[b] - Jp[a]
        size = np.sqrt(np.einsum("ki,ki->k", v, v))
        u = v / size[:, None]
        weight = self.length * np.array([w[LIMB[name]] for name in BONES])
        J = J - u[:, :, None] * np.einsum("ki,kij->kj", u, J)[:, None]
        return J * (weight / size)[:, None, None], weight[:, None] * (
            np.stack([frame.bones[name] for name in BONES]) - u
        )

    def _attitudes(self, frame: Frame, w: Weights) -> tuple[np.ndarray, np.ndarray]:
        ids = [self.robot.parts[part][0] for part in frame.bodies]
        weight = LEVER * np.array([w[part] for part in frame.bodies])
        J = self.d.cdof[:, :3].T * self.moves[ids][:, None]
        off = log(product(np.stack(list(frame.bodies.values())), conjugate(self.d.xquat[ids])))
        return J * weight[:, None, None], weight[:, None] * off

    def _feet(self, frame: Frame, w: Weights, P: np.ndarray, Jp: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if not frame.feet:
            return Jp[:0], P[:0]
        goal = np.stack([frame.feet[s] for s in SIDES])
        return w["sole"] * Jp[-2:], w["sole"] * (goal - P[-2:])


def bounded(
    H: np.ndarray,
    f: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    A: np.ndarray | None = None,
    least: np.ndarray | None = None,
) -> np.ndarray:
    """argmin x'Hx/2 - f'x within bounds, and A x >= least."""
    try:
        import daqp
    except ImportError:
        raise MissingExtra("retargeting", "motion") from None
    rows = np.zeros((0, len(f))) if A is None else np.ascontiguousarray(A)
    below = low if least is None else np.concatenate([low, least])
    above = high if least is None else np.concatenate([high, np.full(len(least), 1e30)])
    x, _, flag, _ = daqp.solve(H, -f, rows, above, below)
    if flag != 1 or not np.isfinite(x).all():
        raise SurefootError(f"retarget: the quadratic program has no solution (daqp {flag})")
    return np.array(x)
