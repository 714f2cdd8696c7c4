"""What in a motion a robot may not be able to do: joints beyond their range, fast joints, feet off the floor, and where it presses.

A robot that makes the motion exactly presses on the floor at the zero-moment point p, which only feet that stand can give it:

    p_x = c_x - (m c_z c_x'' + L_y') / (m (g + c_z''))        p_y = c_y - (m c_z c_y'' - L_x') / (m (g + c_z''))

c: centre of mass, m; m: mass, kg; L: angular momentum about c, kg m^2/s; g = 9.81 m/s^2. Where p is outside of the feet, the robot tips, or
moves otherwise than the motion: a policy has to find how.
"""

import mujoco
import numpy as np

from surefoot.sim.anatomy.links import posed
from surefoot.sim.model import edits
from surefoot.tasks.build.legged import Body
from surefoot.tasks.terms.tracking import Reference

G = 9.81
ON = 0.02  # m: soles nearer to the floor stand
LIGHT = 0.2  # of the weight: a robot that presses less flies
FAR = 0.02  # m outside of the feet that are worth a word


def doubts(body: Body, ref: Reference) -> list[str]:
    """What in a motion a robot may not be able to do, in words."""
    found: list[str] = []
    joints, off = body.joints, np.array([ref.q[:, body.joints.q] - e for e in (body.joints.low, body.joints.high)])
    beyond = np.maximum(-off[0], off[1]).max(0)
    if (beyond > 0.01).any():
        worst = int(beyond.argmax())
        found.append(
            f"{int((beyond > 0.01).sum())} joints beyond their range, {joints.names[worst]} by {beyond[worst]:.2f} rad"
        )
    fast = np.abs(ref.v[:, joints.v])
    k, j = np.unravel_index(int(fast.argmax()), fast.shape)
    found.append(
        f"{ref.seconds:.3g} s; fastest joint {joints.names[j]}, {fast[k, j]:.3g} rad/s at {k * ref.period:.2f} s"
    )
    soles = np.array([_lowest(body, q) for q in ref.q[:: max(1, len(ref.q) // 200)]])
    found.append(
        f"lowest point under the feet {100 * soles.min() + 0.0:.0f} to {100 * soles.max() + 0.0:.0f} cm above the floor"
    )
    far = outside(body, ref)
    if (far > FAR).any():
        found.append(
            f"it presses on the floor outside of the feet that stand for {100 * (far > FAR).mean():.0f} % of its time, by up to {100 * far.max():.0f} cm: physics "
            "needs another motion there"
        )
    return found


def _lowest(body: Body, q: np.ndarray) -> float:
    """m above the floor: the lowest ball of a foot."""
    d = posed(body.model, q)
    return min(float(d.geom(edits.sole(f, k)).xpos[2]) - f.radius for f in body.legs.feet for k in range(len(f.points)))


def outside(body: Body, ref: Reference) -> np.ndarray:
    """(k,) m from the zero-moment point to the nearest point of the feet that stand, 0 within them; a number for each row in which
    some stand and are needed."""
    m, rows = body.model, len(ref.q)
    d, base = mujoco.MjData(m), m.body(body.legs.base).id
    balls = [m.geom(edits.sole(f, k)).id for f in body.legs.feet for k in range(len(f.points))]
    under = np.array([f.radius for f in body.legs.feet for _ in f.points])
    c, L, soles = np.zeros((rows, 3)), np.zeros((rows, 3)), np.zeros((rows, len(balls), 3))
    for k in range(rows):
        d.qpos[:], d.qvel[:] = ref.q[k], ref.v[k]
        mujoco.mj_fwdPosition(m, d)
        mujoco.mj_fwdVelocity(m, d)
        mujoco.mj_subtreeVel(m, d)
        c[k], L[k], soles[k] = (
            d.subtree_com[base],
            d.subtree_angmom[base],
            d.geom_xpos[balls] - [0, 0, 1] * under[:, None],
        )
    mass, rate = float(m.body_mass.sum()), lambda x: np.gradient(x, ref.period, axis=0)
    a, turn = rate(rate(c)), rate(L)
    weight = mass * (G + a[:, 2])
    pressed = (
        c[:, :2]
        - (mass * c[:, 2:] * a[:, :2] + turn[:, [1, 0]] * [1, -1]) / np.maximum(weight, LIGHT * mass * G)[:, None]
    )
    on = soles[..., 2] < ON
    used = np.flatnonzero((weight > LIGHT * mass * G) & on.any(1))
    used = used[(used >= 2) & (used < rows - 2)]  # second differences mean nothing at the ends
    return np.array([_off(pressed[k], soles[k, on[k], :2]) for k in used])


def _off(p: np.ndarray, corners: np.ndarray) -> float:
    """m from a point to the convex hull of others: within it no gap between the directions to them is half a turn."""
    to = corners - p
    angles = np.sort(np.arctan2(to[:, 1], to[:, 0]))
    if np.diff(angles, append=angles[0] + 2 * np.pi).max() < np.pi:
        return 0.0
    a, b = (corners[k] for k in np.triu_indices(len(corners)))
    along = ((p - a) * (b - a)).sum(1) / np.maximum(((b - a) ** 2).sum(1), 1e-12)
    return float(np.linalg.norm(a + np.clip(along, 0, 1)[:, None] * (b - a) - p, axis=1).min())
