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
EDGE = 0.03  # m within the feet: a payload of 15 % moves the centre of mass as far


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
    found += _presses(*pressed(body, ref), ref.period)
    return found


def _lowest(body: Body, q: np.ndarray) -> float:
    """m above the floor: the lowest ball of a foot."""
    d = posed(body.model, q)
    return min(float(d.geom(edits.sole(f, k)).xpos[2]) - f.radius for f in body.legs.feet for k in range(len(f.points)))


def _presses(rows: np.ndarray, off: np.ndarray, period: float) -> list[str]:
    """What is to be said of where it presses."""
    if (off > FAR).any():
        share, most = 100 * (off > FAR).mean(), 100 * off.max()
        return [f"it presses on the floor outside of the feet that stand for {share:.0f} % of its time, by up to {most:.0f} cm: physics needs another motion there"]  # fmt: skip
    if len(off) and off.max() > -EDGE:
        at, within = rows[off.argmax()] * period, -100 * off.max()
        return [f"at {at:.2f} s it presses on the floor {within:.1f} cm from the edge of its feet: a slope, a payload or a push tips it"]  # fmt: skip
    return []


def pressed(body: Body, ref: Reference) -> tuple[np.ndarray, np.ndarray]:
    """(k,) rows in which feet stand and are needed, and (k,) m from the edge of these feet to the zero-moment point, below 0 within."""
    mass = float(body.model.body_mass.sum())
    c, L, soles = _path(body, ref)
    a, turn = _rate(_rate(c, ref.period), ref.period), _rate(L, ref.period)
    weight, on = mass * (G + a[:, 2]), soles[..., 2] < ON
    moment = mass * c[:, 2:] * a[:, :2] + turn[:, [1, 0]] * [1, -1]
    p = c[:, :2] - moment / np.maximum(weight, LIGHT * mass * G)[:, None]
    used = np.flatnonzero((weight > LIGHT * mass * G) & on.any(1))
    used = used[(used >= 2) & (used < len(c) - 2)]  # second differences mean nothing at the ends
    return used, np.array([_off(p[k], soles[k, on[k], :2]) for k in used])


def _rate(x: np.ndarray, period: float) -> np.ndarray:
    return np.asarray(np.gradient(x, period, axis=0))


def _path(body: Body, ref: Reference) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(T, 3) c, (T, 3) L, and (T, balls, 3) the lowest points of the balls under the feet."""
    m, rows = body.model, len(ref.q)
    d, base = mujoco.MjData(m), m.body(body.legs.base).id
    balls = [m.geom(edits.sole(f, k)).id for f in body.legs.feet for k in range(len(f.points))]
    down = np.array([[0, 0, f.radius] for f in body.legs.feet for _ in f.points])
    c, L, soles = np.zeros((rows, 3)), np.zeros((rows, 3)), np.zeros((rows, len(balls), 3))
    for k in range(rows):
        d.qpos[:], d.qvel[:] = ref.q[k], ref.v[k]
        mujoco.mj_fwdPosition(m, d)
        mujoco.mj_fwdVelocity(m, d)
        mujoco.mj_subtreeVel(m, d)
        c[k], L[k], soles[k] = d.subtree_com[base], d.subtree_angmom[base], d.geom_xpos[balls] - down
    return c, L, soles


def _off(p: np.ndarray, corners: np.ndarray) -> float:
    """m from the edge of the convex hull of some corners to a point, below 0 within it.

    A pair of corners is an edge of the hull if no corner is on its left. The point is within if it is on the left of no edge.
    """
    if len(corners) == 1:
        return float(np.linalg.norm(p - corners[0]))
    a, b = (corners[k] for k in np.nonzero(~np.eye(len(corners), dtype=bool)))
    along = b - a
    left = np.stack([-along[:, 1], along[:, 0]], 1) / np.maximum(np.linalg.norm(along, axis=1), 1e-9)[:, None]
    edge = (((corners[None] - a[:, None]) * left[:, None]).sum(2) < 1e-9).all(1)
    a, along, left = a[edge], along[edge], left[edge]
    beside = ((p - a) * left).sum(1)
    if len(beside) and beside.max() < 0:
        return float(beside.max())
    share = np.clip(((p - a) * along).sum(1) / np.maximum((along**2).sum(1), 1e-12), 0, 1)
    return float(np.linalg.norm(a + share[:, None] * along - p, axis=1).min())
