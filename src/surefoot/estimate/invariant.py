"""A right-invariant extended Kalman filter: IMU, feet on the ground, position and attitude fixes, air drag.

State: X = (R, v, p, d_1 .. d_k) in SE_{2+k}(3), biases b = (b_g, b_a). R: IMU to world, z up; v, p: of the IMU; d_i: of feet.

    R' = R (w - b_g)^      v' = R (a - b_a) + g      p' = v      d_i' = rolling + slip            w: gyro, a: accelerometer
    error: X_hat X^-1 = exp(xi),   b_hat - b = zeta

    xi' = A xi + B zeta    A: v <- g^ xi_R,  p <- xi_v        B: R <- -R,  x_i <- -x_i^ R  of b_g;   v <- -R  of b_a
    a foot in contact:  d_i - p - R h_i(q) = xi_di - xi_p - R J n_q         X_hat <- exp(-K r) X_hat

A and the measurement do not depend on the estimate: that is the invariance, and what is lost in it is the biases' part alone
(Hartley, Ghaffari, Eustice, Grizzle, 2020). A foot that lands, or that has slipped by more than the gate, is put down anew:
d_i = p + R h_i, with p's covariance and its own. Heading and place are measured by none of this: their covariance grows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from surefoot.errors import SurefootError, unknown
from surefoot.estimate import lie, tells
from surefoot.estimate.abstract import Estimate, Estimator, EstimatorState
from surefoot.estimate.legs import Leg, Legs
from surefoot.estimate.settings import Contact, Delay, Deviations, Start
from surefoot.estimate.single import Single
from surefoot.estimate.tells import POS, ROT, VEL, G
from surefoot.observation import ObsTerm
from surefoot.rotation import from_matrix, matrix

SURE = 1e-6  # rad, m: how well the place and heading are known that define the world's frame
REST = 3.0  # m/s^2: an accelerometer within this of gravity shows which way is down
IMU = ("base_ang_vel", "base_lin_acc")
FORCES = ("foot_force", "joint_torque")
FIXES = ("base_pos", "rotation")  # by kind of formula, whatever the term is called
ROLLS = np.array([[0.0, -1, 0], [1, 0, 0], [0, 0, 0]])  # w @ ROLLS = w x (0, 0, 1)
ONES, THREE = np.ones(3), np.ones(3, bool)


@dataclass(frozen=True, eq=False)
class InvariantFilter(Estimator):
    """The filter of one kind of robot. Inputs are found by name: IMU, then joint_pos, joint_vel and forces, or fixes."""

    dt: float
    inputs: tuple[ObsTerm, ...]
    """base_ang_vel, base_lin_acc (specific force); joint_pos, joint_vel, foot_force or joint_torque; fixes: base_pos, rotation"""
    legs: tuple[Leg, ...] = ()
    sd: Deviations = Deviations()
    start: Start = Start()
    contact: Contact = Contact()
    delay: Delay = Delay()
    drag: float = 0.0
    """1/s: air drag / mass, along the IMU's x and y; 0: not used"""
    base: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """m: origin of the base in the IMU's frame, whose axes are the base's"""

    def __post_init__(self) -> None:
        have = {t.name: t for t in self.inputs}
        needs = (*IMU, *(("joint_pos", "joint_vel") if self.legs else ()))
        for name in needs:
            if name not in have:
                raise unknown("input of the estimator", name, have)
        if self.legs and not any(name in have for name in FORCES):
            raise SurefootError(
                f"estimator: inputs: expected {' or '.join(FORCES)}, which tell contacts; found {', '.join(have)}"
            )
        for leg in self.legs:
            leg.check("estimator")
        if not 0 < self.dt < 1:
            raise SurefootError(f"estimator: dt: expected 0 to 1 s, found {self.dt:g}")

    @cached_property
    def at(self) -> dict[str, slice]:
        """Input -> its columns of a frame."""
        ends = np.cumsum([t.dim for t in self.inputs]).tolist()
        kinds = [t.formula.kind if t.formula is not None and t.formula.kind in FIXES else t.name for t in self.inputs]
        return {kind: slice(end - t.dim, end) for kind, t, end in zip(kinds, self.inputs, ends)}

    @cached_property
    def feet(self) -> Legs | None:
        """None where there are none."""
        formula = {t.name: t.formula for t in self.inputs}.get("joint_pos")
        return Legs(self.legs, formula.joints) if self.legs and formula is not None else None

    @cached_property
    def home(self) -> np.ndarray | float:
        """What the reading of joint positions is less by."""
        formula = {t.name: t.formula for t in self.inputs}.get("joint_pos")
        return np.array(formula.offset) if formula is not None and formula.offset else 0.0

    @property
    def size(self) -> tuple[int, int]:
        """Numbers of xi, and of (xi, zeta)."""
        M = 9 + 3 * len(self.legs)
        return M, M + 6

    @cached_property
    def drift(self) -> np.ndarray:
        """(1, N, N) exp(A dt), whose part of the biases is blank."""
        M, N = self.size
        F, g = np.eye(N), lie.skew(G)
        F[VEL, ROT], F[POS, ROT], F[POS, VEL] = self.dt * g, 0.5 * self.dt**2 * g, self.dt * lie.EYE
        return F[None]

    @cached_property
    def driven(self) -> np.ndarray:
        """(6,) variances of an IMU's reading."""
        return np.repeat([self.sd.gyro**2, self.sd.accel**2], 3)

    @cached_property
    def walk(self) -> np.ndarray:
        """(N,) variances that a period adds to what nothing drives."""
        M, N = self.size
        q = np.zeros(N)
        q[M:] = np.repeat([self.sd.gyro_walk**2, self.sd.accel_walk**2], 3) * self.dt
        return q

    @cached_property
    def reach(self) -> np.ndarray:
        """(2, 1) what an acceleration adds to velocity and place in a period."""
        return np.array([[self.dt], [0.5 * self.dt**2]])

    @cached_property
    def steady(self) -> float:
        """Of a foot's noise, what its velocity may show without slip: 4 sd^2 of joint speeds against the sd^2 of joints."""
        return 4.0 * (self.sd.joint_vel / max(self.sd.joint, 1e-9)) ** 2

    @cached_property
    def alone(self) -> np.ndarray:
        """What stands in the innovation's covariance for feet that do not count."""
        return np.eye(3 * len(self.legs))

    @cached_property
    def single(self) -> Single:
        """The same law for one robot, which has no time to waste on an axis of rows."""
        return Single(self)

    @cached_property
    def fixed(self) -> bool:
        """Whether anything but feet corrects."""
        return bool(self.drag or "base_pos" in self.at or "rotation" in self.at)

    # the contract of an estimator

    @property
    def quantities(self) -> Mapping[str, tuple[int, str]]:
        own = {
            "base_lin_vel": (3, "m/s, body frame"), "base_lin_vel_world": (3, "m/s, world frame"), "base_pos": (3, "m, world frame"),
            "projected_gravity": (3, "unit vector, body frame"), "yaw": (1, "rad"), "gyro_bias": (3, "rad/s"), "accel_bias": (3, "m/s^2"),
        }  # fmt: skip
        return own | ({"contact": (len(self.legs), "probability")} if self.legs else {})

    def init(self, n: int) -> EstimatorState:
        m, N, k = 2 + len(self.legs), self.size[1], len(self.legs)
        shapes = {"R": (3, 3), "x": (m, 3), "b": (6,), "P": (N, N), "u": (6,), "contact": (k,), "age": ()}
        return {name: np.zeros((n, *shape)) for name, shape in shapes.items()}

    def step(self, s: EstimatorState, frame: np.ndarray) -> EstimatorState:
        if len(frame) == 1 and s["age"][0]:
            return self.single.row.step(s, frame)
        if s["age"].all():
            return self._step(s, frame)
        if not s["age"].any():
            return self._begin(frame)
        first, later = np.flatnonzero(s["age"] == 0), np.flatnonzero(s["age"])
        parts = self._begin(frame[first]), self._step({k: v[later] for k, v in s.items()}, frame[later])
        out = {k: np.empty_like(v) for k, v in s.items()}
        for k, v in out.items():
            v[first], v[later] = parts[0][k], parts[1][k]
        return out

    def with_inputs(self, inputs: tuple[ObsTerm, ...]) -> "InvariantFilter":
        return replace(self, inputs=inputs)

    # one period

    def _begin(self, frame: np.ndarray) -> dict[str, np.ndarray]:
        n, N, k = len(frame), self.size[1], len(self.legs)
        u = self._imu(frame)
        R = self._level(frame, u[:, 3:])
        x, P = np.zeros((n, 2 + k, 3)), np.zeros((n, N, N))
        level = self.sd.attitude or self.start.tilt
        sd = [
            level,
            level,
            self.sd.attitude or SURE,
            *[self.start.speed] * 3,
            *[self.sd.position or SURE] * 3,
            *[0] * 3 * k,
        ]
        _diagonal(P)[:] = np.square([*sd, *[self.start.gyro_bias] * 3, *[self.start.accel_bias] * 3])
        if "base_pos" in self.at:
            x[:, 1] = frame[:, self.at["base_pos"]] - (R @ np.array(self.base))
        c = np.zeros((n, k))
        if self.feet is not None:
            h, J, _ = self._seen(frame, R)
            c = self._contact(frame, J)
            self._land(x, P, h, self._foot_noise(J), np.ones((n, k), bool))
        return {"R": R, "x": x, "b": np.zeros((n, 6)), "P": P, "u": u, "contact": c, "age": np.ones(n)}

    def _step(self, s: EstimatorState, frame: np.ndarray) -> dict[str, np.ndarray]:
        u = self._imu(frame)
        w = 0.5 * (s["u"] + u) - s["b"]
        R, x, P = self._predict(s, w)
        b, c = s["b"], s["contact"]
        if self.feet is not None:
            R, x, b, P, c = self._stand(R, x, b, P, (s["contact"], w, frame))
        if self.fixed:
            R, x, b, P = self._fix(R, x, b, P, frame)
        return {"R": R, "x": x, "b": b, "P": P, "u": u, "contact": c, "age": s["age"] + 1.0}

    def _imu(self, frame: np.ndarray) -> np.ndarray:
        """(n, 6) gyro and accelerometer."""
        gyro, acc = self.at[IMU[0]], self.at[IMU[1]]
        if gyro.stop == acc.start:
            return frame[:, gyro.start : acc.stop]
        return np.concatenate([frame[:, gyro], frame[:, acc]], 1)

    def _level(self, frame: np.ndarray, acc: np.ndarray) -> np.ndarray:
        """Attitude at the beginning: as a fix says, or level by an accelerometer that is near rest."""
        if "rotation" in self.at:
            return matrix(from_matrix(frame[:, self.at["rotation"]].reshape(-1, 3, 3)))
        size = np.sqrt((acc * acc).sum(1, keepdims=True))
        still = np.abs(size + G[2]) < REST
        return lie.upright(np.where(still, -acc / np.maximum(size, 1e-9), [0.0, 0.0, -1.0]))

    def _predict(self, s: EstimatorState, w: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """R, x and P after a period at rates w (n, 6), the mean of what was read at its ends, less biases."""
        dt, (M, _), x = self.dt, self.size, s["x"]
        n = len(x)
        half = lie.rotation((0.5 * dt) * w[:, :3])
        mid = s["R"] @ half
        f = (mid @ w[:, 3:, None])[:, :, 0] + G
        F = self.drift.repeat(n, 0)
        B, turn = F[:, :M, M:], -dt * mid
        B[:, ROT, :3] = turn
        B[:, 3:, :3] = (x @ lie.SKEW).reshape(n, M - 3, 3) @ turn
        B[:, VEL, 3:] = turn
        B[:, POS, 3:] = (0.5 * dt) * turn
        P = F @ s["P"] @ F.transpose(0, 2, 1)
        P[:, :M, :M] += (B * self.driven) @ B.transpose(0, 2, 1)
        diagonal = _diagonal(P)
        diagonal += self.walk
        new = x.copy()
        new[:, :2] += self.reach * f[:, None]
        new[:, 1] += dt * x[:, 0]
        return mid @ half, new, P

    # feet

    def _seen(self, frame: np.ndarray, R: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """In the world's frame: feet from the IMU on (n, feet, 3), dh/dq (n, feet, k, 3), and of both it and the axes (n, feet, k, 6)."""
        assert self.feet is not None
        out = self.feet.vectors(frame[:, self.at["joint_pos"]] + self.home)
        n, legs, rows, _ = out.shape
        world = (out.reshape(n, -1, 3) @ R.transpose(0, 2, 1)).reshape(n, legs, rows, 3)
        both = world[:, :, 1:].reshape(n, legs, -1, 6)
        return world[:, :, 0], both[..., :3], both

    def _contact(self, frame: np.ndarray, J: np.ndarray) -> np.ndarray:
        """(n, feet) probability that each bears: 1 / (1 + exp(-z)) = (1 + tanh(z / 2)) / 2."""
        if "foot_force" in self.at:
            force = frame[:, self.at["foot_force"]]
        else:
            force = self._pushed(frame[:, self.at["joint_torque"]], J)
        return 0.5 + 0.5 * np.tanh((force - self.contact.least) * (0.5 / self.contact.width))

    def _pushed(self, torque: np.ndarray, J: np.ndarray) -> np.ndarray:
        """(n, feet) N upward on each foot, from joint torques: tau = -J^T f, by least squares, legs without weight."""
        assert self.feet is not None
        tau, Jt = self.feet.ordered(torque)[..., None], J.transpose(0, 1, 3, 2)  # (n, feet, k, 1), (n, feet, 3, k)
        return -np.linalg.solve(Jt @ J + 1e-6 * lie.EYE, Jt @ tau)[..., 2, 0]

    def _moving(
        self, x: np.ndarray, turn: np.ndarray, frame: np.ndarray, h: np.ndarray, both: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """(n, feet, 3) m/s at which feet that are balls roll on, and (n, feet) m^2/s^2 at which they move besides.

        A ball's middle moves by (turn rate of its link) x (radius up). `turn`: the base's turn rate, world frame.
        """
        assert self.feet is not None
        speed = (self.feet.ordered(frame[:, self.at["joint_vel"]])[:, :, None] @ both)[:, :, 0]  # (n, feet, 6)
        rolls = (speed[..., 3:] + turn) @ ROLLS * self.feet.radius[:, None]
        slips = speed[..., :3] - h @ (turn @ lie.SKEW).reshape(-1, 3, 3) - rolls + x[:, :1]  # v + J q' + w x h - roll
        return rolls, slips * slips @ ONES

    def _foot_noise(self, J: np.ndarray) -> np.ndarray:
        """(n, feet, 3, 3) m^2, world frame: what the joints' readings are wrong by at each foot."""
        return self.sd.joint**2 * (J.transpose(0, 1, 3, 2) @ J) + self.sd.foot**2 * lie.EYE

    def _stand(
        self, R: np.ndarray, x: np.ndarray, b: np.ndarray, P: np.ndarray, rest: tuple[np.ndarray, ...]
    ) -> tuple[np.ndarray, ...]:
        """Correct by the feet that stood before and stand now; those that land, or have slipped, are put down anew.

        A foot that moves by more than joint speeds are wrong by slips: its variance grows by (|velocity|^2 - 4 sd^2) / 3.
        """
        was, w, frame = rest
        k, M, n, dt2 = len(self.legs), self.size[0], len(x), self.dt**2
        h, J, both = self._seen(frame, R)
        N, c, stood = self._foot_noise(J), self._contact(frame, J), was > 0.5
        rolls, moves = self._moving(x, w[:, None, :3] @ R.transpose(0, 2, 1), frame, h, both)
        x[:, 2:] += (self.dt * stood)[..., None] * rolls
        still = N.reshape(n, k, 9)[:, :, ::4] @ ONES - 3.0 * self.sd.foot**2
        slip = np.maximum(moves - self.steady * still, 0.0)
        slips = (self.sd.slip**2 * dt2 + (self.sd.free**2 * dt2) * (1.0 - c)) + (dt2 / 3.0) * slip
        feet = _diagonal(P)[:, 9:M].reshape(n, k, 3)
        feet += slips[..., None]
        r = x[:, 2:] - x[:, 1:2] - h  # (n, feet, 3)
        HP = P[:, 9:M].reshape(n, k, 3, -1) - P[:, None, POS]
        S = HP[..., 9:M].reshape(n, k, 3, k, 3) - HP[..., None, POS]
        own = np.einsum("niaib->niab", S)
        own += N
        S = S.reshape(n, 3 * k, 3 * k)
        bears = c > 0.5
        keep = bears & stood & (r * r <= self.contact.gate**2 * _diagonal(S).reshape(n, k, 3)).all(-1)
        if not keep.all():
            on = keep[..., None] & THREE
            S = np.where(on.reshape(n, -1, 1) & on.reshape(n, 1, -1), S, self.alone)
            HP, r = HP * on[..., None], r * on
        before = R
        R, x, b, P = _corrected(R, x, b, P, HP.reshape(n, 3 * k, -1), S, r.reshape(n, 1, 3 * k))
        new = bears & ~keep
        if new.any():
            self._land(x, P, h @ before @ R.transpose(0, 2, 1), N, new)
        return R, x, b, P, c

    def _land(self, x: np.ndarray, P: np.ndarray, h: np.ndarray, N: np.ndarray, new: np.ndarray) -> None:
        """Put feet `new` (n, feet) down where they are, in place: xi_d = xi_p + R J n."""
        for i in np.flatnonzero(new.any(0)):
            rows, d = np.flatnonzero(new[:, i]), slice(9 + 3 * i, 12 + 3 * i)
            own = P[rows]
            own[:, d] = own[:, POS]
            own[:, :, d] = own[:, :, POS]
            own[:, d, d] += N[rows, i]
            P[rows], x[rows, 2 + i] = own, x[rows, 1] + h[rows, i]

    # fixes and drag

    def _fix(
        self, R: np.ndarray, x: np.ndarray, b: np.ndarray, P: np.ndarray, frame: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Correct by what measures place, attitude or, through drag, velocity."""
        for name in (*FIXES, "drag"):
            if name in self.at or (name == "drag" and self.drag):
                H, r, N = self.measured(name, R, x, b, frame)
                HP = H @ P
                R, x, b, P = _corrected(R, x, b, P, HP, HP @ H.transpose(0, 2, 1) + N, r[:, None])
        return R, x, b, P

    def measured(
        self, name: str, R: np.ndarray, x: np.ndarray, b: np.ndarray, frame: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """H, residual r = H (xi, zeta) + noise, and the noise's covariance, of one measurement."""
        n, (M, N) = len(x), self.size
        if name == "base_pos":
            place, H = x[:, 1] + R @ np.array(self.base), np.zeros((n, 3, N))
            H[:, :, ROT], H[:, :, POS] = -lie.skew(place), lie.EYE
            return H, place - frame[:, self.at[name]], self.sd.position**2 * lie.EYE
        if name == "rotation":
            H, fix = np.zeros((n, 3, N)), frame[:, self.at[name]].reshape(-1, 3, 3)
            H[:, :, ROT] = lie.EYE
            return H, lie.log(R @ fix.transpose(0, 2, 1)), self.sd.attitude**2 * lie.EYE
        H, acc = np.zeros((n, 2, N)), frame[:, self.at[IMU[1]]] - b[:, 3:]
        H[:, :, VEL], H[:, 0, M + 3], H[:, 1, M + 4] = self.drag * R.transpose(0, 2, 1)[:, :2], -1.0, -1.0
        r = self.drag * (x[:, :1] @ R)[:, 0, :2] + acc[:, :2]
        return H, r, self.sd.accel**2 * np.eye(2)

    # what it tells

    def terms(self, s: EstimatorState, names: Sequence[str] = ()) -> dict[str, Estimate]:
        return {name: tells.TELLS[name](self, s) for name in names or self.quantities}

    def to_json(self) -> dict[str, Any]:
        parts = {k: getattr(self, k).to_json() for k in ("sd", "start", "contact", "delay")}
        rows = {"inputs": [t.to_json() for t in self.inputs], "legs": [leg.to_json() for leg in self.legs]}
        return {"kind": "invariant", "dt": self.dt, **rows, **parts, "drag": self.drag, "base": list(self.base)}


def _diagonal(P: np.ndarray) -> np.ndarray:
    """(n, N) view of what is laid out row by row."""
    n, N, _ = P.shape
    return P.reshape(n, -1)[:, :: N + 1]


def _corrected(
    R: np.ndarray, x: np.ndarray, b: np.ndarray, P: np.ndarray, HP: np.ndarray, S: np.ndarray, r: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """After a measurement with residual r (n, 1, m): X <- exp(-K r) X, b <- b - K r, P <- P - K H P, kept symmetric."""
    K = np.linalg.solve(S, HP)  # (n, m, N), transposed
    xi = (-r @ K)[:, 0]
    P = P - HP.transpose(0, 2, 1) @ K
    P = 0.5 * (P + P.transpose(0, 2, 1))
    M = 3 + 3 * x.shape[1]
    R, x = lie.moved(R, x, xi[:, :3], xi[:, 3:M].reshape(x.shape))
    return R, x, b + xi[:, M:], P
