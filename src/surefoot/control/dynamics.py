"""Joints as a controller knows them: a model small enough for a robot's computer, in numpy, that is written as JSON.

    M(q) q'' + c(q, q') = G u - Kp q - Kd q'          q (n,) rad or m, u (n,) controls, c with gravity, without damping

A servo has G = Kp. `Chain` works out M and c of a fixed base with a tree of links by the recursive Newton-Euler
algorithm: tau = ID(q, q', q''), M e_j = ID(q, 0, e_j) - ID(q, 0, 0), c = ID(q, q', 0). Links are given where every joint is at 0.
`constant` takes M as it is and c = 0: legs, of which nobody knows on what they stand.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from surefoot.errors import SurefootError
from surefoot.rotation import exp, matrix


@dataclass(frozen=True)
class Link:
    """A joint and what it moves; SI units, world frame at the zero pose."""

    parent: int
    """number of the link before it, -1: the base"""
    anchor: tuple[float, float, float]
    axis: tuple[float, float, float]
    slides: bool
    mass: float
    com: tuple[float, float, float]
    inertia: tuple[float, float, float, float, float, float]
    """about the centre of mass: xx yy zz xy xz yz"""

    @property
    def tensor(self) -> np.ndarray:
        a, b, c, d, e, f = self.inertia
        return np.array([[a, d, e], [d, b, f], [e, f, c]])


@dataclass(frozen=True)
class Joints:
    """Driven joints: their actuators, and the links they move."""

    names: tuple[str, ...]
    gain: tuple[float, ...]
    """G by joint: force per control"""
    kp: tuple[float, ...]
    kd: tuple[float, ...]
    """of the actuator and of the joint's own damping together"""
    effort: tuple[float, ...]
    """largest force of the actuator, N m or N"""
    armature: tuple[float, ...]
    """added to the diagonal of M; all of M where there are no links"""
    links: tuple[Link, ...] = ()
    gravity: tuple[float, float, float] = (0.0, 0.0, -9.81)

    def __post_init__(self) -> None:
        n = len(self.names)
        for name in ("gain", "kp", "kd", "effort", "armature"):
            if len(getattr(self, name)) != n:
                raise SurefootError(f"joints: {name}: expected {n} numbers, found {len(getattr(self, name))}")
        if len(self.links) not in (0, n):
            raise SurefootError(f"joints: links: expected none or {n}, found {len(self.links)}")
        if not self.links and min(self.armature, default=1.0) <= 0:
            raise SurefootError("joints: armature: expected numbers > 0 where there are no links")
        if any(not -1 <= link.parent < i for i, link in enumerate(self.links)):
            raise SurefootError("joints: links: parent: expected the number of a link before it, or -1")

    @cached_property
    def rotor(self) -> np.ndarray:
        return np.diag(self.armature)

    def terms(self, q: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """M (k, n, n) and c (k, n) of k rows."""
        k, n = q.shape
        if not self.links:
            return np.broadcast_to(self.rotor, (k, n, n)), np.zeros((k, n))
        a = np.concatenate([np.zeros((2, n)), np.eye(n)])  # with speed, at rest, and a unit acceleration of each
        rates = np.zeros((n + 2, k, n))
        rates[0] = v
        many = np.broadcast_to(q, (n + 2, k, n)).reshape(-1, n)
        tau = self.inverse(many, rates.reshape(-1, n), np.repeat(a, k, 0)).reshape(n + 2, k, n)
        return np.moveaxis(tau[2:] - tau[1], 0, 2) + self.rotor, tau[0]

    def gravity_force(self, q: np.ndarray) -> np.ndarray:
        """(k, n) force that holds the links still."""
        zero = np.zeros_like(q)
        return self.inverse(q, zero, zero)

    def inverse(self, q: np.ndarray, v: np.ndarray, a: np.ndarray) -> np.ndarray:
        """(k, n) forces of the joints that give accelerations a; without rotors and damping."""
        k, zero = len(q), np.zeros((len(q), 3))
        base = _Moving(np.broadcast_to(np.eye(3), (k, 3, 3)), zero, zero, zero, zero - np.array(self.gravity), np.zeros(3))
        moving: list[_Moving] = []
        for i, link in enumerate(self.links):
            before = base if link.parent < 0 else moving[link.parent]
            moving.append(_next(before, link, q[:, i], v[:, i], a[:, i]))
        tau = np.zeros((k, len(self.links)))
        for i in reversed(range(len(self.links))):
            link, here = self.links[i], moving[i]
            tau[:, i] = ((here.force if link.slides else here.moment) * here.axis).sum(1)
            if link.parent >= 0:
                below = moving[link.parent]
                below.force += here.force
                below.moment += here.moment + _cross(here.at - below.at, here.force)
        return tau


class _Moving:
    """A link in motion, k rows: rotation, anchor, angular velocity and acceleration, acceleration of the anchor."""

    def __init__(self, R: np.ndarray, at: np.ndarray, w: np.ndarray, dw: np.ndarray, acc: np.ndarray, anchor: np.ndarray):
        self.R, self.at, self.w, self.dw, self.acc, self.anchor = R, at, w, dw, acc, anchor
        self.axis = self.force = self.moment = np.zeros_like(at)


def _cross(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    out = np.empty(np.broadcast_shapes(a.shape, b.shape))
    for i, j, k in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
        out[:, i] = a[:, j] * b[:, k] - a[:, k] * b[:, j]
    return out


def _next(p: _Moving, link: Link, q: np.ndarray, v: np.ndarray, a: np.ndarray) -> _Moving:
    """A link's motion after that of the one before it, and the force and moment about its anchor that it takes."""
    anchor, axis = np.array(link.anchor), np.array(link.axis)
    z = p.R @ axis
    r = p.R @ (anchor - p.anchor) + (z * q[:, None] if link.slides else 0.0)
    acc = p.acc + _cross(p.dw, r) + _cross(p.w, _cross(p.w, r))
    vz, az, wz = z * v[:, None], z * a[:, None], _cross(p.w, z * v[:, None])
    if link.slides:
        R, w, dw, acc = p.R, p.w, p.dw, acc + az + 2 * wz
    else:
        R, w, dw = p.R @ matrix(exp(axis * q[:, None])), p.w + vz, p.dw + az + wz
    m = _Moving(R, p.at + r, w, dw, acc, anchor)
    m.axis = z
    c = R @ (np.array(link.com) - anchor)
    inertia = R @ link.tensor @ np.swapaxes(R, 1, 2)
    turn = lambda x: (inertia @ x[..., None])[..., 0]  # noqa: E731
    m.force = link.mass * (acc + _cross(dw, c) + _cross(w, _cross(w, c)))
    m.moment = turn(dw) + _cross(w, turn(w)) + _cross(c, m.force)
    return m


@dataclass(frozen=True)
class Affine:
    """x+ = x0 + Xu u after one control period, of positions and speeds; k rows."""

    q0: np.ndarray  # (k, n)
    v0: np.ndarray
    qu: np.ndarray  # (k, n, n)
    vu: np.ndarray


def ahead(joints: Joints, q: np.ndarray, v: np.ndarray, period: float, substeps: int) -> Affine:
    """Where control u leads in one period: M and c stay as they are, damping is implicit, as in the engine.

    (M + h Kd) v+ = M v + h (G u - Kp q - c),    q+ = q + h v+
    """
    k, n = q.shape
    h, M, c = period / substeps, *joints.terms(q, v)
    inverse = np.linalg.inv(M + h * np.diag(joints.kd))
    gain, kp = inverse * (h * np.array(joints.gain)), inverse * (h * np.array(joints.kp))
    keep, drift = inverse @ M, -h * (inverse @ c[..., None])[..., 0]
    state = Affine(q, v, np.zeros((k, n, n)), np.zeros((k, n, n)))
    apply = lambda A, x: (A @ x[..., None])[..., 0]  # noqa: E731
    for _ in range(substeps):
        v0 = apply(keep, state.v0) - apply(kp, state.q0) + drift
        vu = keep @ state.vu - kp @ state.qu + gain
        state = Affine(state.q0 + h * v0, v0, state.qu + h * vu, vu)
    return state
