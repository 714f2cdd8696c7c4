"""Terms of tracking a reference motion, as BeyondMimic has them.

Targets of bodies are anchored to the robot, so that drift over the ground is not an error of every body:

    target_b = (x, y of the robot's base, z of the reference's base) + R(yaw) (p_b - p_base)      yaw: heading of the robot - reference

Each reward is exp(-mean error^2 / sigma^2), from 0 to 1. Sensors body_pos, body_quat, body_lin_vel and body_ang_vel have the
tracked bodies, the base first, in the world frame.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from surefoot.arrays import namespace
from surefoot.rotation import between, conjugate, product, to_body, to_world
from surefoot.task import Moment


@dataclass(frozen=True, eq=False)
class Reference:
    """A motion, a row each control period, and where the tracked bodies then are."""

    period: float
    q: np.ndarray  # (T, nq)
    v: np.ndarray  # (T, nv)
    pos: np.ndarray  # (T, bodies, 3) m
    quat: np.ndarray  # (T, bodies, 4)
    lin_vel: np.ndarray  # (T, bodies, 3) m/s
    ang_vel: np.ndarray  # (T, bodies, 3) rad/s

    @property
    def seconds(self) -> float:
        return (len(self.q) - 1) * self.period

    def row(self, s: Moment) -> np.ndarray:
        """(n,) where in the motion each row is."""
        return s.xp.astype(s.xp.clip(s.xp.rint(s.phase / self.period), 0, len(self.q) - 1), s.xp.int64)

    def anchored(self, s: Moment) -> np.ndarray:
        """(n, bodies, 7) place and attitude that each body should have, given where the robot's base is."""
        at, base = s.once(self.row), bodies(s, "pos")[:, 0]
        pos, quat, join = s.xp.asarray(self.pos)[at], s.xp.asarray(self.quat)[at], s.xp.concatenate
        yaw = _heading(product(bodies(s, "quat")[:, 0], conjugate(quat[:, 0])))[:, None]
        place = join([base[:, :2], pos[:, 0, 2:]], 1)[:, None]
        return join([place + to_world(yaw, pos - pos[:, :1]), product(yaw, quat)], 2)


def bodies(s: Moment, what: str) -> np.ndarray:
    """(n, bodies, 3 or 4) pos, quat, lin_vel or ang_vel of the tracked bodies."""
    return s.y[f"body_{what}"].reshape(len(s.q), -1, 4 if what == "quat" else 3)


def _heading(quat: np.ndarray) -> np.ndarray:
    """The turn about the vertical in an attitude: its heading."""
    xp = namespace(quat)
    w, x, y, z = (quat[..., k] for k in range(4))
    half = xp.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z)) / 2
    zero = xp.zeros_like(half)
    return xp.stack([xp.cos(half), zero, zero, xp.sin(half)], -1)


def _kernel(square: np.ndarray, sigma: float) -> np.ndarray:
    """exp(-mean over bodies / sigma^2) of squared errors (n, bodies)."""
    return namespace(square).exp(-square.mean(1) / sigma**2)


def _square(x: np.ndarray) -> np.ndarray:
    return namespace(x).einsum("ijk,ijk->ij", x, x)


def anchor_pos(s: Moment, ref: Reference, sigma: float = 0.3) -> np.ndarray:
    """The base where the reference's is, in the world."""
    return _kernel(_square((bodies(s, "pos") - s.xp.asarray(ref.pos)[s.once(ref.row)])[:, :1]), sigma)


def anchor_ori(s: Moment, ref: Reference, sigma: float = 0.4) -> np.ndarray:
    """The base turned as the reference's."""
    return _kernel(_square(between(s.xp.asarray(ref.quat)[s.once(ref.row), :1], bodies(s, "quat")[:, :1])), sigma)


def body_pos(s: Moment, ref: Reference, sigma: float = 0.3) -> np.ndarray:
    return _kernel(_square(s.once(ref.anchored)[..., :3] - bodies(s, "pos")), sigma)


def body_ori(s: Moment, ref: Reference, sigma: float = 0.4) -> np.ndarray:
    return _kernel(_square(between(s.once(ref.anchored)[..., 3:], bodies(s, "quat"))), sigma)


def body_lin_vel(s: Moment, ref: Reference, sigma: float = 1.0) -> np.ndarray:
    return _kernel(_square(s.xp.asarray(ref.lin_vel)[s.once(ref.row)] - bodies(s, "lin_vel")), sigma)


def body_ang_vel(s: Moment, ref: Reference, sigma: float = 3.14) -> np.ndarray:
    return _kernel(_square(s.xp.asarray(ref.ang_vel)[s.once(ref.row)] - bodies(s, "ang_vel")), sigma)


def body_error(s: Moment, ref: Reference) -> np.ndarray:
    """(n,) m: mean distance of the bodies from their anchored targets."""
    return s.xp.sqrt(_square(s.once(ref.anchored)[..., :3] - bodies(s, "pos"))).mean(1)


# terminations


def anchor_height(s: Moment, ref: Reference, most: float = 0.25) -> np.ndarray:
    """The base more than `most` m above or below the reference's."""
    return s.xp.abs(bodies(s, "pos")[:, 0, 2] - s.xp.asarray(ref.pos)[s.once(ref.row), 0, 2]) > most


def anchor_tilt(s: Moment, ref: Reference, most: float = 0.8) -> np.ndarray:
    """Cosines of the base's and the reference's tilt more than `most` apart."""
    up = [
        1 - 2 * (q[:, 1] ** 2 + q[:, 2] ** 2)
        for q in (bodies(s, "quat")[:, 0], s.xp.asarray(ref.quat)[s.once(ref.row), 0])
    ]
    return s.xp.abs(up[0] - up[1]) > most


def ends_height(s: Moment, ref: Reference, ends: np.ndarray, most: float = 0.25) -> np.ndarray:
    """A hand or foot (their numbers among the bodies) more than `most` m above or below its target."""
    off = s.once(ref.anchored)[:, ends, 2] - bodies(s, "pos")[:, ends, 2]
    return (s.xp.abs(off) > most).any(1)


# privileged observations, in the frame of the robot's base


def anchor_off(ref: Reference) -> Callable[[Moment], np.ndarray]:
    """(n, 3) m from the base to the reference's."""

    def off(s: Moment) -> np.ndarray:
        return to_body(bodies(s, "quat")[:, 0], s.xp.asarray(ref.pos)[s.once(ref.row), 0] - bodies(s, "pos")[:, 0])

    return off


def body_places(s: Moment) -> np.ndarray:
    """(n, 3 bodies) m from the base to each body."""
    pos = bodies(s, "pos")
    return to_body(bodies(s, "quat")[:, :1], pos - pos[:, :1]).reshape(len(pos), -1)
