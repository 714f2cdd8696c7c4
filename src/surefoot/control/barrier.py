"""Safety filter: the action nearest to the policy's that keeps every barrier function from running out.

    safe:  h(x) >= 0        continuous:  h'(x, u) + alpha h(x) >= 0        discrete:  b(x+) >= (1 - gamma) b(x),  0 < gamma <= 1

    u* = argmin |W (u - u_policy)|^2    subject to  b_i(x0 + Xu u) >= (1 - gamma) b_i(x),   low <= u <= high

x+ = x0 + Xu u is the state after one control period. A joint's position has relative degree two: h = q_max - q does not
see u at once, so its continuous condition is itself the barrier that the QP holds:

    b = alpha (q_max - q) - q' - m        b = alpha (q - q_min) + q' - m        b = v_max -+ q' - m

m = margin v_max is kept in reserve for what the prediction does not know. Where b >= 0, q approaches its limit no faster than exp(-alpha t), which takes a deceleration of at most alpha v_max: choose
alpha below what the actuator can give over v_max. A base that is driven by its wheels has (v, w) = D u, reached with a lag:

    b = v_max -+ v        b = w_max -+ w        b = alpha (d_i - r) - v cos a_i    for each ray of length d_i at angle a_i

The model is wrong by some amount: y+ = y0 + Yu u + w, of the speeds y. An observer takes w from what was predicted one
period ago, w += beta (y - y_predicted), bounded, and every barrier is predicted with it.

Where no u satisfies all of it, the QP is not relaxed and the policy is not passed through: the recovery action brakes,
u = argmin |v+|^2 within the bounds. Where a reading is not finite, the last safe action is held.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from surefoot.contract import Contract
from surefoot.control.dynamics import Joints, ahead, check_substeps, times
from surefoot.control.observed import Observed, ordered, parted, prefixed
from surefoot.errors import MissingExtra, SurefootError, unknown
from surefoot.observation import Readings
from surefoot.policy import Policy, PolicyState
from surefoot.robot import order

TOLERANCE = 1e-9  # of a barrier's row: what counts as satisfied
BETA = 0.5  # of the observer of the model's error
LARGEST_ERROR = 0.5  # of a speed's limit in one period: beyond it, something else is wrong
FAR = 1e3  # m: nothing ahead
OWN = "barrier."  # names of its own in a policy's state


@dataclass(frozen=True)
class Rows:
    """What a barrier asks of the controls of k robots: A u >= b, low <= u <= high; and the speeds that follow, S u + s."""

    A: np.ndarray  # (k, rows, nu)
    b: np.ndarray  # (k, rows)
    low: np.ndarray  # (k, nu)
    high: np.ndarray  # (k, nu)
    S: np.ndarray  # (k, m, nu)
    s: np.ndarray  # (k, m)


class Barrier(ABC):
    """A set in which a robot stays."""

    @property
    @abstractmethod
    def needs(self) -> tuple[str, ...]:
        """Readings it takes."""

    @property
    @abstractmethod
    def top(self) -> np.ndarray:
        """(m,) limits of the speeds y that it predicts."""

    @abstractmethod
    def speeds(self, r: Readings) -> np.ndarray:
        """(k, m) y as it is read."""

    @abstractmethod
    def rows(self, r: Readings, w: np.ndarray, contract: Contract) -> Rows:
        """What it asks of the controls, in the order of the contract's actions; w (k, m) is known of the model's error."""


@dataclass(frozen=True)
class JointLimits(Barrier):
    """Positions and speeds of joints, by name."""

    joints: Joints
    low: tuple[float, ...]
    high: tuple[float, ...]
    """rad or m, by joint"""
    speed: tuple[float, ...]
    """rad/s or m/s"""
    alpha: float = 8.0
    """1/s: how quickly a joint may approach its limit"""
    gamma: float = 0.5
    """share of a barrier that one control period may use up"""
    margin: float = 0.1
    """share of the speed limit kept in reserve for what the model does not know"""
    substeps: int = 4
    """steps of the prediction in one control period"""

    def __post_init__(self) -> None:
        n = len(self.joints.names)
        for name in ("low", "high", "speed"):
            if len(getattr(self, name)) != n:
                raise SurefootError(f"joint limits: {name}: expected {n} numbers, found {len(getattr(self, name))}")
        if not all(a < b for a, b in zip(self.low, self.high)) or min(self.speed, default=1.0) <= 0:
            raise SurefootError("joint limits: expected low < high and speed > 0 for each joint")
        if not 0 <= self.margin < 1:
            raise SurefootError(f"joint limits: margin: expected 0 to below 1, found {self.margin:g}")
        _check_rates(self.alpha, self.gamma)
        check_substeps(self.substeps, "joint limits")

    @property
    def needs(self) -> tuple[str, ...]:
        return ("joint_pos", "joint_vel")

    @property
    def top(self) -> np.ndarray:
        return np.array(self.speed)

    def speeds(self, r: Readings) -> np.ndarray:
        return ordered(r, "joint_vel", self.joints.names)

    def values(self, q: np.ndarray, v: np.ndarray) -> np.ndarray:
        """(k, 4 n) of the barriers: upper and lower position, upper and lower speed."""
        base, of_q = self._linear
        n = q.shape[1]
        out = np.empty((len(q), 4, n))
        out[:] = base
        out[:, :2] += of_q * q[:, None]
        out[:, ::2] -= v[:, None]
        out[:, 1::2] += v[:, None]
        return out.reshape(len(q), -1)

    @cached_property
    def _linear(self) -> tuple[np.ndarray, np.ndarray]:
        """(4, n) values at q = v = 0, and (2, 1) what a position adds to the first two."""
        a, low, high, top = self.alpha, np.array(self.low), np.array(self.high), np.array(self.speed)
        return np.stack([a * high, -a * low, top, top]) - self.margin * top, np.array([[-a], [a]])

    def rows(self, r: Readings, w: np.ndarray, contract: Contract) -> Rows:
        names, dt, a = contract.joints or contract.action.names, 1 / contract.rate, self.alpha
        q, v = ordered(r, "joint_pos", self.joints.names), self.speeds(r)
        x = ahead(self.joints, q, v, dt, self.substeps)
        q0, v0 = x.q0 + dt * w / 2, x.v0 + w
        A = np.concatenate([-a * x.qu - x.vu, a * x.qu + x.vu, -x.vu, x.vu], 1)  # (k, 4 n, n)
        least = (1 - self.gamma) * self.values(q, v) - self.values(q0, v0)
        gain, kp, kd, effort = self.joints.arrays
        held = kp * q + kd * v
        one, other = (held - effort) / gain, (held + effort) / gain
        lowest, highest = np.minimum(one, other), np.maximum(one, other)
        at = order(self.joints.names, names, "joint limits")
        if at is None:
            return Rows(A, least, lowest, highest, x.vu, v0)
        return Rows(A[:, :, at], least, lowest[:, at], highest[:, at], x.vu[:, :, at], v0)


@dataclass(frozen=True)
class BaseLimits(Barrier):
    """Speeds of a wheeled base, and its distance from what its rays see."""

    drive: tuple[tuple[float, ...], tuple[float, ...]]
    """D: forward speed m/s and turn rate rad/s of the controls, when they are reached"""
    lag: float
    """s, time constant with which they are reached"""
    speed: float
    turn: float
    """rad/s"""
    angles: tuple[float, ...] = ()
    """rad, of each ray, 0 ahead; none: distances are not limited"""
    clearance: float = 0.0
    """m from the rays' origin that nothing may come closer than"""
    corridor: bool = False
    """only what the base would touch if it drove straight on counts, by its distance ahead; else everything in front"""
    alpha: float = 2.0
    gamma: float = 0.5
    velocity: str = "velocity"
    """reading of the linear velocity, robot's frame"""
    gyro: str = "gyro"
    ray: str = "ray"

    def __post_init__(self) -> None:
        _check_rates(self.alpha, self.gamma)
        if min(self.speed, self.turn) <= 0 or self.lag < 0:
            raise SurefootError("base limits: expected speed > 0, turn > 0 and lag >= 0")

    @property
    def needs(self) -> tuple[str, ...]:
        return (self.velocity, self.gyro, *((self.ray,) if self.angles else ()))

    @property
    def top(self) -> np.ndarray:
        return np.array([self.speed, self.turn])

    def speeds(self, r: Readings) -> np.ndarray:
        return np.stack([r.reading(self.velocity)[:, 0], r.reading(self.gyro)[:, 2]], 1)

    def _gaps(self, d: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(k, rays) m left before what each ray sees, and how much of the speed goes there."""
        cos, sin = np.cos(self.angles), np.sin(self.angles)
        if not self.corridor:
            return d - self.clearance, np.maximum(cos, 0.0)
        across = np.abs(d * sin)
        edge = np.sqrt(np.maximum(self.clearance**2 - across**2, 0.0))  # of a round base
        return np.where((across < self.clearance) & (cos > 0), d * cos - edge, FAR), np.ones_like(cos)

    def rows(self, r: Readings, w: np.ndarray, contract: Contract) -> Rows:
        dt, y, D, top = 1 / contract.rate, self.speeds(r), np.array(self.drive), self.top
        reach = 1.0 if self.lag == 0 else 1 - np.exp(-dt / self.lag)
        S = np.broadcast_to(reach * D, (len(y), *D.shape))  # y+ = s + S u
        s = (1 - reach) * y + w
        A, now, rest = np.concatenate([-S, S], 1), np.concatenate([top - y, top + y], 1), np.concatenate([top - s, top + s], 1)  # fmt: skip
        if self.angles:
            gap, ahead_ = self._gaps(r.reading(self.ray))
            A = np.concatenate([A, -(1 + self.alpha * dt) * ahead_[:, None] * S[:, :1]], 1)
            closing = lambda v: self.alpha * gap - ahead_ * v[:, None]  # noqa: E731
            now = np.concatenate([now, closing(y[:, 0])], 1)
            rest = np.concatenate([rest, self.alpha * gap - (1 + self.alpha * dt) * ahead_ * s[:, :1]], 1)
        wide = np.full((len(y), D.shape[1]), np.inf)
        return Rows(A, (1 - self.gamma) * now - rest, -wide, wide, S, s)


def _check_rates(alpha: float, gamma: float) -> None:
    if not alpha > 0 or not 0 < gamma <= 1:
        raise SurefootError(f"barrier: expected alpha > 0 and 0 < gamma <= 1, found {alpha:g} and {gamma:g}")


@dataclass(frozen=True)
class Filter:
    """Barriers of one robot: from readings and the policy's action to a safe action."""

    barriers: tuple[Barrier, ...]

    def check(self, contract: Contract) -> None:
        """Refused where a policy's observation does not have what a barrier reads."""
        for barrier in self.barriers:
            Observed(contract).check(barrier.needs, type(barrier).__name__)
            if isinstance(barrier, JointLimits):
                for name in contract.joints or contract.action.names:
                    if name not in barrier.joints.names:
                        raise unknown("joint", name, barrier.joints.names, "joint limits")
        if contract.action.choices:
            raise SurefootError("filter: expected continuous actions, found choices")
        _solver()

    def init(self, n: int, contract: Contract) -> PolicyState:
        m = sum(len(b.top) for b in self.barriers)
        action = np.zeros((n, len(contract.action.names)))
        return {"action": action, "w": np.zeros((n, m)), "predicted": np.full((n, m), np.nan), "done": np.zeros((n, 4), np.int64)}  # fmt: skip

    def step(
        self, s: PolicyState, r: Readings, action: np.ndarray, contract: Contract
    ) -> tuple[PolicyState, np.ndarray]:
        """The next state, and (k, na) safe actions. `done` counts periods: passed, changed, recovery, held the last safe action."""
        law, top = contract.action, np.concatenate([b.top for b in self.barriers])
        asked = law.control(law.bounded(action))
        with np.errstate(invalid="ignore", over="ignore"):
            y = np.concatenate([b.speeds(r) for b in self.barriers], 1)
            w = s["w"] + BETA * np.nan_to_num(y - s["predicted"], posinf=0.0, neginf=0.0)
            w = np.clip(w, -LARGEST_ERROR * top, LARGEST_ERROR * top)
            parts = np.split(w, np.cumsum([len(b.top) for b in self.barriers])[:-1], 1)
            found = _joined([b.rows(r, part, contract) for b, part in zip(self.barriers, parts)], contract)
            every = found.A.sum((1, 2)) + found.b.sum(1) + found.S.sum((1, 2)) + found.s.sum(1) + asked.sum(1)
            fine = np.isfinite(every)
        done = np.where(fine, 0, 3)
        u = np.where(fine[:, None], asked, law.control(s["action"]))
        slack = times(found.A, u) - found.b
        inside = ((u >= found.low) & (u <= found.high)).all(1) & (slack >= -TOLERANCE).all(1)
        for i in np.flatnonzero(fine & ~inside):
            u[i], done[i] = _nearest(asked[i], found, int(i), law.scale)
        safe = law.bounded((u - law.offset) / law.scale)
        predicted = found.s + times(found.S, law.control(safe))
        counts = s["done"] + (done[:, None] == np.arange(4))
        return {"action": safe, "w": w, "predicted": predicted, "done": counts}, safe


def _joined(rows: list[Rows], contract: Contract) -> Rows:
    law = contract.action
    reach = law.limit * np.abs(law.scale)
    ends = law.offset - reach, law.offset + reach
    low, high = rows[0].low, rows[0].high
    for r in rows[1:]:
        low, high = np.maximum(low, r.low), np.minimum(high, r.high)
    low, high = np.clip(low, *ends), np.clip(high, *ends)  # an actuator beyond its effort: the end that is nearest
    if len(rows) == 1:
        return Rows(rows[0].A, rows[0].b, low, high, rows[0].S, rows[0].s)
    A, b, S, s = (np.concatenate([getattr(r, k) for r in rows], 1) for k in ("A", "b", "S", "s"))
    return Rows(A, b, low, high, S, s)


def _nearest(asked: np.ndarray, rows: Rows, i: int, scale: np.ndarray) -> tuple[np.ndarray, int]:
    """The QP of one robot; its recovery where it has no solution."""
    weight = np.diag(1 / scale**2)
    bounds = rows.low[i], rows.high[i]
    u = solve(weight, -weight @ asked, rows.A[i], rows.b[i], bounds)
    if u is not None:
        return u, 1
    S, s = rows.S[i], rows.s[i]
    brake = solve(S.T @ S + 1e-6 * weight, S.T @ s - 1e-6 * weight @ asked, rows.A[i][:0], rows.b[i][:0], bounds)
    return (np.clip(asked, *bounds) if brake is None else brake), 2


def _solver() -> Any:
    try:
        import daqp
    except ImportError:
        raise MissingExtra("a safety filter", "control") from None
    return daqp


def solve(
    H: np.ndarray, f: np.ndarray, A: np.ndarray, least: np.ndarray, bounds: tuple[np.ndarray, np.ndarray]
) -> np.ndarray | None:
    """argmin u'Hu/2 + f'u with A u >= least, low <= u <= high; None where there is none."""
    low, high = bounds
    upper = np.concatenate([high, np.full(len(A), 1e30)])
    lower = np.concatenate([low, least])
    if (lower > upper).any():
        return None
    u, _, flag, _ = _solver().solve(
        np.ascontiguousarray(H, float), np.ascontiguousarray(f, float), np.ascontiguousarray(A, float), upper, lower
    )
    return np.array(u) if flag == 1 and np.isfinite(u).all() else None


@dataclass(frozen=True)
class Filtered(Policy):
    """A policy that wears a filter. Its state counts what the filter did in the episode."""

    contract: Contract
    policy: Policy
    filter: Filter

    def __post_init__(self) -> None:
        self.filter.check(self.contract)

    @cached_property
    def observed(self) -> Observed:
        return Observed(self.contract)

    def init(self, n: int) -> PolicyState:
        return {**self.policy.init(n), **prefixed(OWN, self.filter.init(n, self.contract))}

    def step(self, s: PolicyState, obs: np.ndarray) -> tuple[PolicyState, np.ndarray]:
        own, rest = parted(OWN, s)
        inner, action = self.policy.step(rest, obs)
        own, safe = self.filter.step(own, self.observed(obs), action, self.contract)
        return {**inner, **prefixed(OWN, own)}, safe.astype(np.float32)
