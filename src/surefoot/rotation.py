"""Rotations of many vectors at once. A quaternion is q = (w, u) = (w, x, y, z), unit, body to world: v_world = R(q) v_body.

    R(q) v = v + w t + u x t,  t = 2 u x v           R(a b) = R(a) R(b)           R(q*) = R(q)^T,  q* = (w, -u)
    exp(r) = (cos |r|/2, sin(|r|/2) r/|r|)           log(exp(r)) = r for |r| <= pi       q and -q are one rotation

r is a rotation vector: axis times angle, rad. Every function takes arrays (..., 4) or (..., 3), their leading sizes alike or
broadcast against each other; all that a task's terms use also take arrays on a device. Where a robot's control period needs them, a single row is worked out in plain numbers, which takes
a quarter of the time and gives the same bits.
"""

from math import sqrt

import numpy as np

from surefoot.arrays import namespace

DOUBLE = np.dtype(float)
INVERSE = np.array([1.0, -1.0, -1.0, -1.0])  # signs of q*


def to_body(quat: np.ndarray, v: np.ndarray) -> np.ndarray:
    """R(quat)^T v: a world vector in the body frame."""
    if quat.shape == (1, 4) and v.shape == (1, 3) and quat.dtype is v.dtype is DOUBLE:
        w, x, y, z = quat[0].tolist()
        return _turned_row(-w, x, y, z, v[0].tolist())
    w, u = quat[..., :1], quat[..., 1:]
    t = 2.0 * cross(u, v)
    return v - w * t + cross(u, t)


def to_world(quat: np.ndarray, v: np.ndarray) -> np.ndarray:
    """R(quat) v: a body vector in the world frame."""
    if quat.shape == (1, 4) and v.shape == (1, 3) and quat.dtype is v.dtype is DOUBLE:
        w, x, y, z = quat[0].tolist()
        return _turned_row(w, x, y, z, v[0].tolist())
    w, u = quat[..., :1], quat[..., 1:]
    t = 2.0 * cross(u, v)
    return v + w * t + cross(u, t)


def _turned_row(w: float, x: float, y: float, z: float, v: list[float]) -> np.ndarray:
    """(1, 3) v + w t + u x t; v - w t is v + (-w) t to the last bit."""
    a, b, c = v
    i, j, k = 2.0 * (y * c - z * b), 2.0 * (z * a - x * c), 2.0 * (x * b - y * a)
    return np.array([[a + w * i + (y * k - z * j), b + w * j + (z * i - x * k), c + w * k + (x * j - y * i)]])


def direction(quat: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Direction in the body frame of a world vector, one for all rows or one for each: gravity's is (0, 0, -1) when level."""
    if len(quat) == len(v) == 1 and v.dtype is DOUBLE:
        size = sqrt(norm2(v)[0])
        return to_body(quat, np.array([[x / size for x in v[0].tolist()]]))
    xp = namespace(quat)
    unit = v / xp.sqrt(norm2(v))[:, None]
    return to_body(quat, xp.broadcast_to(unit, (len(quat), 3)))


def cross(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a x b; written out because np.cross costs ten times as much on small rows. Laid out column by column."""
    ax, ay, az = a[..., 0], a[..., 1], a[..., 2]
    bx, by, bz = b[..., 0], b[..., 1], b[..., 2]
    x = ay * bz - az * by
    if (xp := namespace(x)) is not np:
        return xp.stack([x, az * bx - ax * bz, ax * by - ay * bx], -1)
    out = np.empty((3, *x.shape))
    out[0] = x
    out[1] = az * bx - ax * bz
    out[2] = ax * by - ay * bx
    return out.transpose(*range(1, out.ndim), 0)


def norm2(a: np.ndarray) -> np.ndarray:
    """Sum of squares of each row (n,); several times as fast as squaring and summing short rows."""
    return namespace(a).einsum("ij,ij->i", a, a)


def unit(quat: np.ndarray) -> np.ndarray:
    """quat / |quat|; 0 stays 0."""
    xp = namespace(quat)
    return quat / xp.maximum(xp.linalg.norm(quat, axis=-1, keepdims=True), 1e-12)


def conjugate(quat: np.ndarray) -> np.ndarray:
    """q*: the inverse of a unit quaternion."""
    return quat * namespace(quat).asarray(INVERSE)


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a b: first b, then a."""
    aw, au, bw, bu = a[..., :1], a[..., 1:], b[..., :1], b[..., 1:]
    w = aw * bw - (au * bu).sum(-1, keepdims=True)
    return namespace(w).concatenate([w, aw * bu + bw * au + cross(au, bu)], -1)


def matrix(quat: np.ndarray) -> np.ndarray:
    """R(quat), (..., 3, 3). Laid out entry by entry."""
    if quat.shape == (1, 4) and quat.dtype is DOUBLE:
        return _matrix_row(*quat[0].tolist())
    w, x, y, z = quat[..., 0], quat[..., 1], quat[..., 2], quat[..., 3]
    x2, y2, z2 = x + x, y + y, z + z
    xx, yy, zz, xy, xz, yz = x * x2, y * y2, z * z2, x * y2, x * z2, y * z2
    wx, wy, wz = w * x2, w * y2, w * z2
    if (xp := namespace(w)) is not np:
        rows = (1 - (yy + zz), xy - wz, xz + wy, xy + wz, 1 - (xx + zz), yz - wx, xz - wy, yz + wx, 1 - (xx + yy))
        return xp.stack(rows, -1).reshape(*w.shape, 3, 3)
    out = np.empty((3, 3, *w.shape))
    out[0, 0], out[0, 1], out[0, 2] = 1 - (yy + zz), xy - wz, xz + wy
    out[1, 0], out[1, 1], out[1, 2] = xy + wz, 1 - (xx + zz), yz - wx
    out[2, 0], out[2, 1], out[2, 2] = xz - wy, yz + wx, 1 - (xx + yy)
    return out.transpose(*range(2, out.ndim), 0, 1)


def _matrix_row(w: float, x: float, y: float, z: float) -> np.ndarray:
    x2, y2, z2 = x + x, y + y, z + z
    xx, yy, zz, xy, xz, yz = x * x2, y * y2, z * z2, x * y2, x * z2, y * z2
    wx, wy, wz = w * x2, w * y2, w * z2
    rows = (1 - (yy + zz), xy - wz, xz + wy), (xy + wz, 1 - (xx + zz), yz - wx), (xz - wy, yz + wx, 1 - (xx + yy))
    return np.array([rows])


def from_matrix(R: np.ndarray) -> np.ndarray:
    """The inverse of `matrix`, its largest part positive: 4 q q^T is linear in R, and its longest row is exact at every angle."""
    xx, yy, zz = R[..., 0, 0], R[..., 1, 1], R[..., 2, 2]
    wx, wy, wz = R[..., 2, 1] - R[..., 1, 2], R[..., 0, 2] - R[..., 2, 0], R[..., 1, 0] - R[..., 0, 1]
    xy, xz, yz = R[..., 0, 1] + R[..., 1, 0], R[..., 0, 2] + R[..., 2, 0], R[..., 1, 2] + R[..., 2, 1]
    rows = (
        (1 + xx + yy + zz, wx, wy, wz),
        (wx, 1 + xx - yy - zz, xy, xz),
        (wy, xy, 1 - xx + yy - zz, yz),
        (wz, xz, yz, 1 - xx - yy + zz),
    )
    K = np.stack([np.stack(row, -1) for row in rows], -2)  # (..., 4, 4) 4 q q^T
    longest = np.argmax(np.diagonal(K, axis1=-2, axis2=-1), -1)
    return unit(np.take_along_axis(K, longest[..., None, None], -2)[..., 0, :])


def exp(r: np.ndarray) -> np.ndarray:
    """The quaternion of a rotation vector."""
    xp = namespace(r)
    angle = xp.linalg.norm(r, axis=-1, keepdims=True)
    return xp.concatenate([xp.cos(angle / 2), 0.5 * xp.sinc(angle / (2 * np.pi)) * r], -1)


def log(quat: np.ndarray) -> np.ndarray:
    """The rotation vector of a quaternion, the shorter way round: at most pi long."""
    w, u = quat[..., :1], quat[..., 1:]
    xp = namespace(u)
    u, w = xp.where(w < 0, -u, u), xp.abs(w)
    size = xp.linalg.norm(u, axis=-1, keepdims=True)
    return xp.where(size > 1e-9, 2 * xp.arctan2(size, w) / xp.maximum(size, 1e-12), 2.0) * u


def between(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """log(a* b): the rotation vector that turns attitude a into b, in a's own frame. They need not be unit."""
    return log(product(conjugate(unit(a)), unit(b)))


def turned(quat: np.ndarray, r: np.ndarray) -> np.ndarray:
    """quat exp(r): turned by a rotation vector in its own frame; unit."""
    return unit(product(quat, exp(r)))


def slerp(a: np.ndarray, b: np.ndarray, s: np.ndarray) -> np.ndarray:
    """a exp(s log(a* b)): from a (s = 0) to b or -b (s = 1) at an even rate, the shorter way round."""
    return turned(a, namespace(a).asarray(s)[..., None] * between(a, b))


def angular_velocity(time: np.ndarray, quat: np.ndarray) -> np.ndarray:
    """(T, 3) rad/s about the body's own axes: between(q_k-1, q_k+1) / (t_k+1 - t_k-1); nan in the first and the last row."""
    rate = np.full((len(time), 3), np.nan)
    rate[1:-1] = between(quat[:-2], quat[2:]) / (time[2:] - time[:-2])[:, None]
    return rate


def from_axis_angle(axis: np.ndarray, angle: np.ndarray) -> np.ndarray:
    """exp(angle axis) of a unit axis (n, 3) and angle (n,)."""
    xp = namespace(axis)
    return xp.concatenate([xp.cos(angle / 2)[:, None], xp.sin(angle / 2)[:, None] * axis], 1)


def forward_kinematics(links: np.ndarray, q: np.ndarray, tip: np.ndarray) -> np.ndarray:
    """Where a chain of joints has its tip, (n, 3), as a product of exponentials: p = e^(S_1 q_1) ... e^(S_k q_k) p_0.

    links (k, 7): a point of each joint's axis, the axis and 1 if it slides, where all joints are at 0; there the tip is p_0.
    """
    xp, slides = namespace(q), links[:, 6].tolist()
    p, rows = xp.tile(xp.asarray(tip), (len(q), 1)), xp.asarray(links)
    for k in reversed(range(len(links))):
        point, axis, angle = rows[k, :3], rows[k, 3:6], q[:, k, None]
        arm = p - point
        along = axis * (arm @ axis)[:, None]
        turned = along + xp.cos(angle) * (arm - along) + xp.sin(angle) * cross(axis, arm)
        p = p + axis * angle if slides[k] else point + turned
    return p
