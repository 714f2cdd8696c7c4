"""What an invariant filter tells of its state: quantities with covariance. Letters are those of invariant.py."""

from collections.abc import Callable
from typing import Protocol

import numpy as np

from surefoot.estimate import lie
from surefoot.estimate.abstract import Estimate, EstimatorState
from surefoot.estimate.settings import Delay

G = np.array([0.0, 0.0, -9.81])  # m/s^2
ROT, VEL, POS = slice(0, 3), slice(3, 6), slice(6, 9)  # of xi


class Filter(Protocol):
    """What is needed of the filter beside its state."""

    @property
    def delay(self) -> Delay: ...
    @property
    def base(self) -> tuple[float, float, float]: ...
    @property
    def size(self) -> tuple[int, int]: ...


def _base_lin_vel(f: Filter, s: EstimatorState) -> Estimate:
    """Of the base's origin, predicted over the delay: error R^T xi_v, and acceleration times what is unknown of it."""
    R, w = s["R"], s["u"] - s["b"]
    body = (s["x"][:, :1] @ R)[:, 0]
    turn = lie.skew(w[:, :3])
    gain = w[:, 3:] + R[:, 2] * G[2] - (turn @ body[..., None])[..., 0]  # d/dt of R^T v
    value = body + f.delay.mean * gain
    if any(f.base):
        value = value + turn @ np.array(f.base)
    late = f.delay.sd * gain
    cov = R.transpose(0, 2, 1) @ s["P"][:, VEL, VEL] @ R + late[:, :, None] * late[:, None]
    return Estimate(value, cov)


def _base_lin_vel_world(f: Filter, s: EstimatorState) -> Estimate:
    own = _base_lin_vel(f, s)
    value, R = (s["R"] @ own.value[..., None])[..., 0], s["R"]
    turned = _turned(s, value, VEL)
    return Estimate(
        value, turned + R @ (own.cov - R.transpose(0, 2, 1) @ s["P"][:, VEL, VEL] @ R) @ R.transpose(0, 2, 1)
    )


def _base_pos(f: Filter, s: EstimatorState) -> Estimate:
    value = s["x"][:, 1] + s["R"] @ np.array(f.base)
    return Estimate(value, _turned(s, value, POS))


def _turned(s: EstimatorState, value: np.ndarray, at: slice) -> np.ndarray:
    """Covariance of a world vector x: its error is xi_x - x^ xi_R."""
    H = np.concatenate([-lie.skew(value), np.broadcast_to(lie.EYE, (len(value), 3, 3))], -1)
    P = np.concatenate([s["P"][:, ROT], s["P"][:, at]], 1)
    P = np.concatenate([P[:, :, ROT], P[:, :, at]], 2)
    return np.asarray(H @ P @ H.transpose(0, 2, 1))


def _projected_gravity(f: Filter, s: EstimatorState) -> Estimate:
    """-R^T z, whose error is -R^T z^ xi_R: of length 1, so that it has none along itself."""
    R = s["R"]
    H = R.transpose(0, 2, 1) @ lie.skew(np.array([0.0, 0.0, -1.0]))
    return Estimate(-R[:, 2], H @ s["P"][:, ROT, ROT] @ H.transpose(0, 2, 1))


def _yaw(f: Filter, s: EstimatorState) -> Estimate:
    """Heading of the nose r = R e_x since the beginning: its error is xi_R about z, and about r where that is not level."""
    x, y, z = s["R"][:, :, 0].T
    level = np.maximum(x * x + y * y, 1e-12)
    H = np.stack([-z * x / level, -z * y / level, np.ones_like(z)], -1)[:, None]
    return Estimate(np.arctan2(y, x)[:, None], H @ s["P"][:, ROT, ROT] @ H.transpose(0, 2, 1))


def _gyro_bias(f: Filter, s: EstimatorState) -> Estimate:
    M = f.size[0]
    return Estimate(s["b"][:, :3], s["P"][:, M : M + 3, M : M + 3])


def _accel_bias(f: Filter, s: EstimatorState) -> Estimate:
    M = f.size[0]
    return Estimate(s["b"][:, 3:], s["P"][:, M + 3 :, M + 3 :])


def _bearing(f: Filter, s: EstimatorState) -> Estimate:
    p = s["contact"]
    return Estimate(p, (p * (1 - p))[..., None] * np.eye(p.shape[1]))


TELLS: dict[str, Callable[[Filter, EstimatorState], Estimate]] = {
    "base_lin_vel": _base_lin_vel,
    "base_lin_vel_world": _base_lin_vel_world,
    "base_pos": _base_pos,
    "projected_gravity": _projected_gravity,
    "yaw": _yaw,
    "gyro_bias": _gyro_bias,
    "accel_bias": _accel_bias,
    "contact": _bearing,
}
