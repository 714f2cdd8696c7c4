"""Where feet are in the frame of the IMU, with their Jacobians, as one table.

A hinge turns what hangs on it by a matrix that is linear in (1, cos q, sin q), a slide moves it by one linear in (1, q). So a
point at the end of k joints is linear in the 3^k products of such triples, one of each joint, and so are its derivatives and
the axes of the joints:

    (h, dh/dq, axes) = T (m_1 x ... x m_k)        m_i = (1, cos q_i, sin q_i), or (1, q_i, 0)

T is found once, from forward kinematics at three values of each joint. Of legs that only turn the same is a sum of waves,

    T (m_1 x ... x m_k) = W cos(A q + a)        columns of A: 0, then n, n of each n in {-1, 0, 1}^k up to sign;  a: 0, then 0, -pi/2

which one robot has sooner: a product, a cosine and a product.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np

from surefoot.errors import SurefootError
from surefoot.rotation import forward_kinematics
from surefoot.typed import known_fields, real, text

LINK = 7  # numbers of a joint: a point of its axis, the axis, 1 if it slides
DEEPEST = 7  # joints of a leg: 3^7 products
NODES = np.array([0.0, np.pi / 2, np.pi])
TURNS = np.array([[0.0, 0, 0], [0, 0, -1], [0, 1, 0]])  # d(1, cos, sin)/dq of (1, cos, sin)
SLIDES = np.array([[0.0, 0, 0], [1, 0, 0], [0, 0, 0]])  # d(1, q, 0)/dq of (1, q, 0)


@dataclass(frozen=True)
class Leg:
    """What carries a foot: joints from the base on, and where everything is when all of them are at 0, in the IMU's frame."""

    name: str
    joints: tuple[str, ...]
    links: tuple[float, ...]
    """for each joint a point of its axis, the axis and 1 if it slides; then the middle of the foot"""
    radius: float = 0.0
    """m: of a foot that is a ball and rolls; 0: it does not roll"""

    def check(self, where: str) -> None:
        where = f"{where}: leg {self.name}"
        if not 1 <= len(self.joints) <= DEEPEST:
            raise SurefootError(f"{where}: joints: expected 1 to {DEEPEST}, found {len(self.joints)}")
        if len(self.links) != LINK * len(self.joints) + 3:
            want = LINK * len(self.joints) + 3
            raise SurefootError(f"{where}: links: expected {want} numbers, found {len(self.links)}")
        if not 0 <= self.radius < 1:
            raise SurefootError(f"{where}: radius: expected 0 to 1 m, found {self.radius:g}")

    @property
    def rows(self) -> np.ndarray:
        """(joints, 7)"""
        return np.reshape(self.links[:-3], (-1, LINK))

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "joints": list(self.joints), "links": list(self.links), "radius": self.radius}

    @staticmethod
    def from_json(data: Any, where: str) -> "Leg":
        body = known_fields(data, {"name", "joints", "links", "radius"}, {"name", "joints", "links"}, where)
        if not isinstance(body["joints"], list) or not isinstance(body["links"], list):
            raise SurefootError(f"{where}: expected lists of joints and links, found {str(body)[:80]}")
        joints = tuple(text(j, f"{where}: joints") for j in body["joints"])
        links = tuple(real(x, f"{where}: links") for x in body["links"])
        leg = Leg(
            text(body["name"], f"{where}: name"), joints, links, real(body.get("radius", 0.0), f"{where}: radius")
        )
        leg.check(where)
        return leg


@dataclass(frozen=True)
class Legs:
    """Legs of a robot, all worked out at once; shorter ones are as if their first joints did nothing."""

    legs: tuple[Leg, ...]
    joints: tuple[str, ...]
    """order of the joints that are read"""

    @cached_property
    def deep(self) -> int:
        return max(len(leg.joints) for leg in self.legs)

    @cached_property
    def radius(self) -> np.ndarray:
        """(legs,)"""
        return np.array([leg.radius for leg in self.legs])

    @cached_property
    def order(self) -> np.ndarray:
        """(legs, k) which reading each joint has; a joint that does nothing has the first."""
        pad = lambda leg: [0] * (self.deep - len(leg.joints))  # noqa: E731
        return np.array([pad(leg) + [self.joints.index(j) for j in leg.joints] for leg in self.legs])

    @cached_property
    def slides(self) -> np.ndarray:
        """(legs, k) bool"""
        pad = lambda leg: [True] * (self.deep - len(leg.joints))  # noqa: E731
        return np.array([pad(leg) + [bool(x) for x in leg.rows[:, 6]] for leg in self.legs])

    @cached_property
    def table(self) -> np.ndarray:
        """(legs, 3 + 6 k, 3^k): h, then each joint's dh/dq and axis (0 of a slide), 3 numbers each."""
        return np.stack([_table(self._padded(leg), np.array(leg.links[-3:])) for leg in self.legs])

    def _padded(self, leg: Leg) -> np.ndarray:
        still = np.tile([0.0, 0, 0, 0, 0, 0, 1], (self.deep - len(leg.joints), 1))
        return np.concatenate([still, leg.rows])

    def ordered(self, x: np.ndarray) -> np.ndarray:
        """(n, joints) -> (n, legs, k), by leg."""
        return x.reshape(-1, len(self.legs), self.deep) if self.in_order else x[:, self.order]

    @cached_property
    def in_order(self) -> bool:
        return bool(np.array_equal(self.order.ravel(), np.arange(len(self.joints))))

    @cached_property
    def sliding(self) -> bool:
        return bool(self.slides.any())

    def vectors(self, q: np.ndarray) -> np.ndarray:
        """Of joint positions (n, joints): (n, legs, 1 + 2 k, 3) the foot, then each joint's dh/dq and axis."""
        q = self.ordered(q)
        m = np.empty((*q.shape, 3))
        m[..., 0] = 1.0
        np.cos(q, out=m[..., 1])
        np.sin(q, out=m[..., 2])
        if self.sliding:
            m[:, self.slides, 1], m[:, self.slides, 2] = q[:, self.slides], 0.0
        z, n, legs = m[:, :, 0], len(q), len(self.legs)
        for i in range(1, self.deep):
            z = (z[..., None] * m[:, :, i, None]).reshape(n, legs, -1)
        return (self.table @ z[..., None]).reshape(n, legs, -1, 3)

    def __call__(self, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The same as feet (n, legs, 3), and (n, legs, k, 6): dh/dq and axis of each joint."""
        out = self.vectors(q)
        return out[:, :, 0], out[:, :, 1:].reshape(*out.shape[:2], self.deep, 6)


class Waves:
    """Legs that only turn, as sums of waves, for one robot: its table times `scale` (3 + 6 k, 1), of joints less `home`."""

    def __init__(self, legs: Legs, home: np.ndarray | float, scale: np.ndarray) -> None:
        """(1, cos q, sin q) in (e^-iq, 1, e^iq): T becomes c_n, and c_n e^inq + its conjugate = 2 Re c_n cos nq - 2 Im c_n sin nq."""
        k, rows, U = legs.deep, scale * legs.table, np.array([[0, 1, 0], [0.5, 0, 0.5], [0.5j, 0, -0.5j]])
        c, middle = rows.reshape(*rows.shape[:2], *[3] * k).astype(complex), 3**k // 2
        for i in range(k):
            c = np.moveaxis(np.tensordot(c, U, (2 + i, 0)), -1, 2 + i)
        still, waves = np.split(c.reshape(rows.shape)[..., middle:], [1], -1)
        self.W = np.concatenate([still.real, 2 * waves.real, -2 * waves.imag], -1)  # (legs, 3 + 6 k, 3^k)
        n = np.array(list(product((-1.0, 0.0, 1.0), repeat=k)))[middle:]
        A = np.zeros((len(legs.joints), len(legs.legs), 3**k))
        for leg, order in enumerate(legs.order):
            A[order, leg] = np.concatenate([n, n[1:]]).T
        self.A = A.reshape(len(legs.joints), -1)
        late = np.repeat([0.0, -np.pi / 2], [middle + 1, middle])  # sin is cos, a quarter turn late
        self.a = np.tile(late, len(legs.legs)) + np.broadcast_to(home, len(legs.joints)) @ self.A
        self.phase = np.empty(len(self.a))
        self.wave = self.phase.reshape(len(legs.legs), -1, 1)

    def __call__(self, q: np.ndarray, out: np.ndarray) -> None:
        """Of joint positions (joints,), into (legs, 3 + 6 k, 1)."""
        phase = self.phase
        q.dot(self.A, phase)
        phase += self.a
        np.cos(phase, phase)
        np.matmul(self.W, self.wave, out)


def _table(links: np.ndarray, tip: np.ndarray) -> np.ndarray:
    """(3 + 6 k, 3^k) of one leg."""
    k = len(links)
    nodes = np.array(list(product(NODES, repeat=k)))
    at = [_inverse(bool(row[6])) for row in links]
    h = _linear(forward_kinematics(links, nodes, tip), at)
    rows = [h]
    for i, link in enumerate(links):
        D = SLIDES if link[6] else TURNS
        rows.append(_each(h, D.T, i))
        turned = [forward_kinematics(links[:i], nodes[:, :i], link[:3] + a) for a in (link[3:6], np.zeros(3))]
        rows.append(np.zeros_like(h) if link[6] else _linear(turned[0] - turned[1], at))
    return np.concatenate([r.reshape(3, -1) for r in rows])


def _inverse(slides: bool) -> np.ndarray:
    """Coefficients from values at the three nodes: C with m(node_j) C = row j of I."""
    m = np.stack([np.ones(3), NODES, 0 * NODES] if slides else [np.ones(3), np.cos(NODES), np.sin(NODES)], 1)
    return np.linalg.pinv(m)


def _linear(values: np.ndarray, at: list[np.ndarray]) -> np.ndarray:
    """Values at all nodes (3^k, 3) -> coefficients (3, 3, ..., 3), the vector's axis first."""
    c = values.reshape(*[3] * len(at), 3)
    c = np.moveaxis(c, -1, 0)
    for i, inverse in enumerate(at):
        c = _each(c, inverse, i)
    return c


def _each(c: np.ndarray, M: np.ndarray, i: int) -> np.ndarray:
    """M applied along joint i's axis."""
    return np.moveaxis(np.tensordot(M, c, (1, i + 1)), 0, i + 1)
