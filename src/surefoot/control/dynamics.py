"""Joints as a controller knows them: a model small enough for a robot's computer, in numpy, that is written as JSON.

    M(q) q'' + c(q, q') = G u - Kp q - Kd q'          q (n,) rad or m, u (n,) controls, c with gravity, without damping

A servo has G = Kp. With links on a fixed base, M and c follow from inverse dynamics tau = ID(q, q', q''):
M e_j = ID(q, 0, e_j) - ID(q, 0, 0) and c = ID(q, q', 0). Without links M is constant and c = 0: legs, of which nobody
knows on what they stand. ID in homogeneous matrices, with a twist xi of each joint and a pseudo-inertia J of each link, all
4 x 4, where every joint is at 0:

    T_i = T_p E_i,   E_i = exp(xi_i q_i)        T_i', T_i'' by the product rule, T_base'' = -g
    tau_i = trace(T_p xi_i T_p^-1 A_i),         A_i = sum over the links j that joint i moves of T_j J_j T_j''^T
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from surefoot.errors import SurefootError

MOST = 100  # steps of a prediction in one control period


def check_substeps(value: int, where: str) -> None:
    if not 1 <= value <= MOST:
        raise SurefootError(f"{where}: substeps: expected 1 to {MOST}, found {value}")


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

    @property
    def pseudo(self) -> np.ndarray:
        """J: second, first and zeroth moments of the mass."""
        I, c = self.tensor, np.array(self.com)
        J = np.zeros((4, 4))
        J[:3, :3] = np.trace(I) / 2 * np.eye(3) - I + self.mass * np.outer(c, c)
        J[:3, 3] = J[3, :3] = self.mass * c
        J[3, 3] = self.mass
        return J

    @property
    def twist(self) -> np.ndarray:
        """xi: of a unit speed of the joint."""
        (x, y, z), xi = self.axis, np.zeros((4, 4))
        if self.slides:
            xi[:3, 3] = self.axis
        else:
            xi[:3, :3] = [[0, -z, y], [z, 0, -x], [-y, x, 0]]
            xi[:3, 3] = -xi[:3, :3] @ np.array(self.anchor)
        return xi


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
        if 0.0 in self.gain or min((*self.kp, *self.kd, *self.effort, *self.armature), default=0.0) < 0:
            raise SurefootError("joints: expected gain other than 0, and kp, kd, effort and armature >= 0")
        if not self.links and min(self.armature, default=1.0) <= 0:
            raise SurefootError("joints: armature: expected numbers > 0 where there are no links")
        if any(not -1 <= link.parent < i for i, link in enumerate(self.links)):
            raise SurefootError("joints: links: parent: expected the number of a link before it, or -1")

    @cached_property
    def rotor(self) -> np.ndarray:
        return np.diag(self.armature)

    @cached_property
    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """gain, kp, kd, effort: (n,) each."""
        return np.array(self.gain), np.array(self.kp), np.array(self.kd), np.array(self.effort)

    @cached_property
    def _steady(self) -> dict[tuple[float, int], tuple[np.ndarray, ...]]:
        return {}

    def steady(self, period: float, substeps: int) -> tuple[np.ndarray, ...]:
        """Where M is constant: q0 = Qq q + Qv v, v0 = Vq q + Vv v, and what controls add, qu and vu; see `ahead`."""
        if (period, substeps) not in self._steady:
            G, Kp, Kd, _ = self.arrays
            h, n = period / substeps, len(self.names)
            inverse = np.linalg.inv(self.rotor + h * np.diag(Kd))
            keep, kp, gain = inverse @ self.rotor, inverse * (h * Kp), inverse * (h * G)
            Q, V = np.eye(n, 3 * n), np.eye(n, 3 * n, n)  # columns: of q, of v, of u
            push = np.concatenate([np.zeros((n, 2 * n)), gain], 1)
            for _ in range(substeps):
                V = keep @ V - kp @ Q + push
                Q = Q + h * V
            self._steady[period, substeps] = tuple(X[:, i * n : (i + 1) * n] for i, X in ((0, Q), (1, Q), (0, V), (1, V), (2, Q), (2, V)))  # fmt: skip
        return self._steady[period, substeps]

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

    @cached_property
    def matrices(self) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """xi, xi^2 and J of each link."""
        return [(xi, xi @ xi, link.pseudo) for link in self.links for xi in (link.twist,)]

    def inverse(self, q: np.ndarray, v: np.ndarray, a: np.ndarray) -> np.ndarray:
        """(k, n) forces of the joints that give accelerations a; without rotors and damping."""
        k = len(q)
        down = np.zeros((4, 4))
        down[:3, 3] = -np.array(self.gravity)
        base = _Place(np.eye(4), np.eye(4), np.zeros((4, 4)), down)
        places: list[_Place] = []
        for i, link in enumerate(self.links):
            before = base if link.parent < 0 else places[link.parent]
            places.append(before.next(link, self.matrices[i], (q[:, i], v[:, i], a[:, i])))
        tau = np.zeros((k, len(self.links)))
        for i in reversed(range(len(self.links))):
            parent, here = self.links[i].parent, places[i]
            tau[:, i] = (here.axis * np.swapaxes(here.A, 1, 2)).sum((-2, -1))
            if parent >= 0:
                places[parent].A += here.A
        return tau


class _Place:
    """A link of k robots: T, its inverse, T', T''; `axis` its joint's twist in the world frame, A of the law above."""

    def __init__(self, T: np.ndarray, back: np.ndarray, rate: np.ndarray, rate2: np.ndarray):
        self.T, self.back, self.rate, self.rate2 = T, back, rate, rate2
        self.axis = self.A = np.zeros((4, 4))

    def next(self, link: Link, known: tuple[np.ndarray, ...], moves: tuple[np.ndarray, ...]) -> "_Place":
        xi, xi2, J = known
        q, v, a = (x[:, None, None] for x in moves)
        turn, bend = (q, 0.0) if link.slides else (np.sin(q), 1 - np.cos(q))
        even, odd = np.eye(4) + bend * xi2, turn * xi
        E, x = even + odd, self.rate @ xi
        T = self.T @ E
        rate = self.rate @ E + (T @ xi) * v
        out = _Place(T, (even - odd) @ self.back, rate, self.rate2 @ E + (2 * v) * (x @ E) + T @ (xi2 * v**2 + xi * a))
        out.axis = self.T @ xi @ self.back
        out.A = T @ J @ np.swapaxes(out.rate2, 1, 2)
        return out


@dataclass(frozen=True)
class Affine:
    """x+ = x0 + Xu u after one control period, of positions and speeds; k rows."""

    q0: np.ndarray  # (k, n)
    v0: np.ndarray
    qu: np.ndarray  # (k, n, n)
    vu: np.ndarray
    M: np.ndarray  # (k, n, n) at the start of the period
    c: np.ndarray  # (k, n)


def ahead(joints: Joints, q: np.ndarray, v: np.ndarray, period: float, substeps: int) -> Affine:
    """Where control u leads in one period: M and c stay as they are, damping is implicit, as in the engine.

    (M + h Kd) v+ = M v + h (G u - Kp q - c),    q+ = q + h v+
    """
    k, n = q.shape
    if not joints.links:
        Qq, Qv, Vq, Vv, qu, vu = joints.steady(period, substeps)
        wide = lambda X: np.broadcast_to(X, (k, n, n))  # noqa: E731
        q0, v0 = q @ Qq.T + v @ Qv.T, q @ Vq.T + v @ Vv.T
        return Affine(q0, v0, wide(qu), wide(vu), wide(joints.rotor), np.zeros((k, n)))
    G, Kp, Kd, _ = joints.arrays
    h, M, c = period / substeps, *joints.terms(q, v)
    inverse = np.linalg.inv(M + h * np.diag(Kd))
    gain, kp, keep, drift = inverse * (h * G), inverse * (h * Kp), inverse @ M, -h * times(inverse, c)
    q0, v0, qu, vu = q, v, np.zeros((k, n, n)), np.zeros((k, n, n))
    for _ in range(substeps):
        v0, vu = times(keep, v0) - times(kp, q0) + drift, keep @ vu - kp @ qu + gain
        q0, qu = q0 + h * v0, qu + h * vu
    return Affine(q0, v0, qu, vu, M, c)


def times(A: np.ndarray, x: np.ndarray) -> np.ndarray:
    """A x, row by row: (k, m, n), (k, n) -> (k, m)."""
    return (A @ x[..., None])[..., 0]
