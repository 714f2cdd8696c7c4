"""Rotations and their neighbours, n rows at once.

    exp(r) = I + A S + B S^2        L(r) = I + B S + C S^2        S = r^,  t = |r|
    A = sin t / t      B = (1 - cos t) / t^2      C = (t - sin t) / t^3

A pose with velocities and points is X = (R, x_1 .. x_m) in SE_m(3), and exp(r, y_1 .. y_m) X = (exp(r) R, exp(r) x_i + L(r) y_i).
"""

import math
from typing import Any

import numpy as np

SKEW = np.zeros((3, 9))  # x @ SKEW is x^, row by row
for _a, _b, _c in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
    SKEW[_c, 3 * _a + _b], SKEW[_c, 3 * _b + _a] = -1.0, 1.0
EYE = np.eye(3)


def skew(x: np.ndarray) -> np.ndarray:
    """(..., 3) -> (..., 3, 3): skew(a) b = a x b."""
    return (x @ SKEW).reshape(*x.shape, 3)


def _series(r: np.ndarray) -> tuple[Any, Any, Any, Any]:
    """cos t, A, B, C of rotation vectors (n, 3): (n, 1, 1), or plain numbers of a single row, which a robot has no time to waste on."""
    if len(r) == 1:
        return _numbers(*r[0].tolist())
    t2 = np.einsum("ni,ni->n", r, r)[:, None, None]
    t = np.sqrt(t2 + 1e-16)  # below 1e-8 the first terms of the series are exact to the last bit or two
    A, half = np.sin(t) / t, np.sin(0.5 * t)
    C = np.where(t2 > 1e-4, (1.0 - A) / np.maximum(t2, 1e-16), 1 / 6 - t2 / 120)
    return 1.0 - 2.0 * half * half, A, 2.0 * half * half / (t * t), C


def _numbers(x: float, y: float, z: float) -> tuple[float, float, float, float]:
    """The same of one rotation vector."""
    t2 = x * x + y * y + z * z
    t = math.sqrt(t2 + 1e-16)
    A, half = math.sin(t) / t, math.sin(0.5 * t)
    B = 2.0 * half * half
    return 1.0 - B, A, B / (t * t), (1.0 - A) / t2 if t2 > 1e-4 else 1 / 6 - t2 / 120


def _matrix(a: float, b: float, c: float, r: tuple[float, float, float]) -> tuple[float, ...]:
    """a I + b r^ + c r r^T, row by row."""
    x, y, z = r
    bx, by, bz, cx, cy = b * x, b * y, b * z, c * x, c * y
    xy, xz, yz = cx * y, cx * z, cy * z
    return a + cx * x, xy - bz, xz + by, xy + bz, a + cy * y, yz - bx, xz - by, yz + bx, a + c * z * z


def turn(x: float, y: float, z: float) -> np.ndarray:
    """(3, 3) exp(r) of one rotation vector."""
    cosine, A, B, _ = _numbers(x, y, z)
    return np.array(_matrix(cosine, A, B, (x, y, z))).reshape(3, 3)


def step(x: float, y: float, z: float) -> np.ndarray:
    """(2, 3, 3) r^ and L(r) of one rotation vector, transposed: exp(r) = I + L(r) r^."""
    _, A, B, C = _numbers(x, y, z)
    return np.array((0.0, z, -y, -z, 0.0, x, y, -x, 0.0, *_matrix(A, -B, C, (x, y, z)))).reshape(2, 3, 3)


def rotation(r: np.ndarray) -> np.ndarray:
    """exp(r) of rotation vectors (n, 3)."""
    cosine, A, B, _ = _series(r)
    return cosine * EYE + A * skew(r) + B * (r[:, :, None] * r[:, None])


def exp(r: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """exp(r) and L(r) of rotation vectors (n, 3): (n, 3, 3) each; S^2 = r r^T - t^2 I, and 1 - C t^2 = A."""
    S, rr = skew(r), r[:, :, None] * r[:, None]
    cosine, A, B, C = _series(r)
    return cosine * EYE + A * S + B * rr, A * EYE + B * S + C * rr


def log(R: np.ndarray) -> np.ndarray:
    """The inverse of exp, for angles below pi: (n, 3, 3) -> (n, 3)."""
    r = 0.5 * np.stack([R[:, 2, 1] - R[:, 1, 2], R[:, 0, 2] - R[:, 2, 0], R[:, 1, 0] - R[:, 0, 1]], -1)
    sine, cosine = np.sqrt((r * r).sum(-1)), 0.5 * (np.trace(R, axis1=1, axis2=2) - 1.0)
    return r * np.where(sine > 1e-8, np.arctan2(sine, cosine) / np.maximum(sine, 1e-12), 1.0)[:, None]


def moved(R: np.ndarray, x: np.ndarray, r: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """exp(r, y) (R, x): R (n, 3, 3), x and y (n, m, 3), r (n, 3)."""
    E, L = exp(r)
    return E @ R, x @ E.transpose(0, 2, 1) + y @ L.transpose(0, 2, 1)


def upright(down: np.ndarray) -> np.ndarray:
    """(n, 3, 3) the rotation without heading that turns unit vectors `down` (n, 3) of the body to (0, 0, -1) of the world."""
    z = -down
    x = EYE[0] - z * z[:, :1]
    x = np.where(np.abs(z[:, :1]) < 0.999, x, EYE[1] - z * z[:, 1:2])  # nose up or down: heading by the left side
    x = x / np.sqrt((x * x).sum(-1, keepdims=True))
    y = (skew(z) @ x[..., None])[..., 0]
    return np.stack([x, y, z], 1)
