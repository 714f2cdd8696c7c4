"""Rotations of many vectors at once. Quaternions are (w, x, y, z), unit, body to world: v_world = R(quat) v_body."""

import numpy as np


def to_body(quat: np.ndarray, v: np.ndarray) -> np.ndarray:
    """R(quat)^T v: a world vector (n, 3) in the body frame."""
    w, u = quat[:, :1], -quat[:, 1:]
    t = 2.0 * cross(u, v)
    return v + w * t + cross(u, t)


def direction(quat: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Direction in the body frame of a world vector, one for all rows or one for each: gravity's is (0, 0, -1) when level."""
    unit = v / np.sqrt(norm2(v))[:, None]
    return to_body(quat, np.broadcast_to(unit, (len(quat), 3)))


def cross(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a x b row by row; written out because np.cross costs ten times as much on small rows."""
    ax, ay, az = a[:, 0], a[:, 1], a[:, 2]
    bx, by, bz = b[:, 0], b[:, 1], b[:, 2]
    out = np.empty((len(a), 3))
    out[:, 0] = ay * bz - az * by
    out[:, 1] = az * bx - ax * bz
    out[:, 2] = ax * by - ay * bx
    return out


def norm2(a: np.ndarray) -> np.ndarray:
    """Sum of squares of each row (n,); several times as fast as squaring and summing short rows."""
    return np.einsum("ij,ij->i", a, a)


def to_world(quat: np.ndarray, v: np.ndarray) -> np.ndarray:
    """R(quat) v: a body vector (n, 3) in the world frame."""
    w, u = quat[:, :1], quat[:, 1:]
    t = 2.0 * cross(u, v)
    return v + w * t + cross(u, t)


def matrix(quat: np.ndarray) -> np.ndarray:
    """R(quat), (n, 9) row-major."""
    w, x, y, z = quat.T
    out = np.empty((len(quat), 9))
    out[:, 0], out[:, 1], out[:, 2] = 1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)
    out[:, 3], out[:, 4], out[:, 5] = 2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)
    out[:, 6], out[:, 7], out[:, 8] = 2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)
    return out


def from_axis_angle(axis: np.ndarray, angle: np.ndarray) -> np.ndarray:
    """The quaternion of a turn by angle (n,) about unit axis (n, 3)."""
    return np.concatenate([np.cos(angle / 2)[:, None], np.sin(angle / 2)[:, None] * axis], 1)
