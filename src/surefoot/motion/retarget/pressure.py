"""Where a robot that makes a motion exactly presses on the floor: the zero-moment point p, which only feet that stand can give it.

    p_x = c_x - (m c_z c_x'' + L_y') / (m (g + c_z''))        p_y = c_y - (m c_z c_y'' - L_x') / (m (g + c_z''))

c: centre of mass, m; m: mass, kg; L: angular momentum about c, kg m^2/s; g = 9.81 m/s^2. Where p is outside of the feet that stand, the
robot tips, or moves otherwise than the motion.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import mujoco
import numpy as np

from surefoot.sim.anatomy.feet import Foot

G = 9.81
ON = 0.02  # m: soles nearer to the floor stand
LIGHT = 0.2  # of the weight: a robot that presses less flies


@dataclass(frozen=True, eq=False)
class Pressure:
    """Of a motion of T rows, `period` s apart."""

    period: float
    p: np.ndarray  # (T, 2) m: the zero-moment point
    height: np.ndarray  # (T,) s^2: c_z / (g + c_z''), by which an acceleration of c moves p
    soles: np.ndarray  # (T, balls, 3) m: lowest points of the balls under the feet
    used: np.ndarray  # (T,) bool: feet stand and are needed; not at the ends, which have no second difference

    def corners(self, k: int) -> np.ndarray:
        """(balls, 2) of the feet that stand in row k."""
        here = self.soles[k]
        return np.asarray(here[here[:, 2] < ON, :2])

    def off(self) -> np.ndarray:
        """(k,) m from the edge of the feet that stand to p, below 0 within; in the rows in which they do."""
        return np.array([off(self.p[k], self.corners(k)) for k in np.flatnonzero(self.used).tolist()])


def pressure(m: mujoco.MjModel, base: int, feet: Sequence[Foot], q: np.ndarray, period: float) -> Pressure:
    """Of positions (T, nq) of the robot whose base is this body."""
    mass, rows = float(m.body_subtreemass[base]), len(q)
    v = np.zeros((rows, m.nv))
    for k in range(1, rows - 1):
        mujoco.mj_differentiatePos(m, v[k], 2 * period, q[k - 1], q[k + 1])
    v[0], v[-1] = v[1], v[-2]
    c, L, soles = _path(m, base, feet, q, v)
    a, turn = _rate(_rate(c, period), period), _rate(L, period)
    up = np.maximum(G + a[:, 2], LIGHT * G)
    p = c[:, :2] - (c[:, 2:] * a[:, :2] + turn[:, [1, 0]] * [1, -1] / mass) / up[:, None]
    used = (G + a[:, 2] > LIGHT * G) & (soles[..., 2] < ON).any(1)
    used[:2] = used[-2:] = False
    return Pressure(period, p, c[:, 2] / up, soles, used)


def _rate(x: np.ndarray, period: float) -> np.ndarray:
    return np.asarray(np.gradient(x, period, axis=0))


def _path(
    m: mujoco.MjModel, base: int, feet: Sequence[Foot], q: np.ndarray, v: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(T, 3) c, (T, 3) L, and (T, balls, 3) the lowest points of the balls under the feet."""
    d, rows = mujoco.MjData(m), len(q)
    body = [m.body(f.body).id for f in feet for _ in f.points]
    at = np.array([p for f in feet for p in f.points])
    down = np.array([[0, 0, f.radius] for f in feet for _ in f.points])
    c, L, soles = np.zeros((rows, 3)), np.zeros((rows, 3)), np.zeros((rows, len(body), 3))
    for k in range(rows):
        d.qpos[:], d.qvel[:] = q[k], v[k]
        mujoco.mj_fwdPosition(m, d)
        mujoco.mj_fwdVelocity(m, d)
        mujoco.mj_subtreeVel(m, d)
        c[k], L[k] = d.subtree_com[base], d.subtree_angmom[base]
        soles[k] = d.xpos[body] + np.einsum("kij,kj->ki", d.xmat[body].reshape(-1, 3, 3), at) - down
    return c, L, soles


def off(p: np.ndarray, corners: np.ndarray) -> float:
    """m from the edge of the convex hull of some corners to a point, below 0 within it."""
    q, inside = nearest(p, corners)
    return float(np.linalg.norm(p - q)) * (-1 if inside else 1)


def nearest(p: np.ndarray, corners: np.ndarray) -> tuple[np.ndarray, bool]:
    """The point of the hull's edge that is nearest to p, and whether p is within.

    A pair of corners is an edge of the hull if no corner is on its left. The point is within if it is on the left of no edge.
    """
    if len(corners) == 1:
        return corners[0], False
    a, b = (corners[k] for k in np.nonzero(~np.eye(len(corners), dtype=bool)))
    along = b - a
    left = np.stack([-along[:, 1], along[:, 0]], 1) / np.maximum(np.linalg.norm(along, axis=1), 1e-9)[:, None]
    edge = (((corners[None] - a[:, None]) * left[:, None]).sum(2) < 1e-9).all(1)
    a, along, left = a[edge], along[edge], left[edge]
    share = np.clip(((p - a) * along).sum(1) / np.maximum((along**2).sum(1), 1e-12), 0, 1)
    on = a + share[:, None] * along
    inside = bool((((p - a) * left).sum(1) < 0).all())
    return on[np.linalg.norm(on - p, axis=1).argmin()], inside
