"""A period of the invariant filter for a single robot: the law and the letters of invariant.py, without an axis of rows.

    predict:  P <- F P F^T + B Q B^T              B: what the IMU drives; a part of F
    stand:    r = D x - h      S = H P H^T + N    D: d_i - p of the feet that stand,  H = D (x) I
    correct:  K = S^-1 H P     xi = -r K          P <- P - P H^T K
              X <- X + L(r) (r^ X + y)            X = (R, x),  exp(r) = I + L(r) r^

The arithmetic of one robot is cheap and a call of numpy is not, nor is a new array or a view of one. So constants, buffers and
views of them are made once for each thread; matrices are 2-D; what has three numbers, or a few of each foot, is plain Python.
The rows of X are those of R^T, then those of x. P is made symmetric now and then: what rounding leaves becomes (I - KH) . (I - KH)^T
of itself, small where something measures and not where nothing does.
"""

import math
import threading
from typing import TYPE_CHECKING

import numpy as np

from surefoot.estimate import lie
from surefoot.estimate.abstract import EstimatorState
from surefoot.estimate.legs import Legs, Waves
from surefoot.estimate.tells import POS, VEL, G

if TYPE_CHECKING:
    from surefoot.estimate.invariant import InvariantFilter

BARELY = 1e-9  # rad: a joint's reading is not believed more than this
EVEN = 16  # periods after which P is made symmetric
HALF, ONE = np.array(0.5), np.array(1.0)  # numpy multiplies by an array sooner than by a number


class Single(threading.local):
    """One row of a filter: each thread has its own."""

    def __init__(self, f: "InvariantFilter") -> None:
        self.row = Row(f)


class Row:
    """The filter of one robot."""

    def __init__(self, f: "InvariantFilter") -> None:
        self.f, self.now = f, Now(f)
        self.motion = Motion(f, self.now)
        self.feet = Feet(f, f.feet, self.now) if f.feet is not None else None

    def step(self, s: EstimatorState, frame: np.ndarray) -> dict[str, np.ndarray]:
        f, feet, now = self.f, self.feet, self.now
        u, b, c = f._imu(frame), s["b"][0], s["contact"]
        w = now.w
        np.add(s["u"][0], u[0], w)
        w *= HALF
        w -= b
        self.motion.predict(s["R"][0], s["x"][0], s["P"][0])
        if feet is not None:
            feet.see(frame)
            bears, keep, c = feet.slide(feet.contact(frame), c[0].tolist())
            X, P, b = feet.stand(bears, keep, b)
        else:
            now.diagonal += f.walk
            X, P = now.X.copy(), now.P.copy()
        if s["age"][0] % EVEN == 0.0:
            P = 0.5 * (P + P.T)
        R, x, b, P = X[:3].T[None], X[None, 3:], b[None], P[None]
        if f.fixed:
            R, x, b, P = f._fix(R, x, b, P, frame)
        return {"R": R, "x": x, "b": b, "P": P, "u": u, "contact": c, "age": s["age"] + ONE}


class Now:
    """Buffers of X and P between prediction and correction, of rates, and of vectors that feet are worked out with."""

    def __init__(self, f: "InvariantFilter") -> None:
        m, k, N = 2 + len(f.legs), len(f.legs), f.size[1]
        rows = k * (1 + 2 * f.feet.deep) if f.feet is not None else 0
        both = np.empty((3 + m + rows, 3))
        self.X, self.known, self.world = both[: 3 + m], both[3:], both[3 + m :]
        self.Rt, self.x, self.v, self.d = both[:3], both[3 : 3 + m], both[3], both[5 : 3 + m]
        self.P = np.empty((N, N))
        self.diagonal = self.P.reshape(-1)[:: N + 1]
        self.w, self.rates = np.empty(6), np.tile(G, (3, 1))  # rates of turning and velocity, and gravity: world frame
        self.turn = self.rates[0]


class Motion:
    """What a period of an IMU does to X and P."""

    def __init__(self, f: "InvariantFilter", now: Now) -> None:
        m, dt, (M, N) = 2 + len(f.legs), f.dt, f.size
        self.now, self.share, self.gyro, self.w, self.rates = (
            now,
            0.5 * dt,
            now.w[:3],
            now.w.reshape(2, 3),
            now.rates[:2],
        )
        self.T, self.reach, self.reached = np.eye(m), np.zeros((m, 3)), np.empty((m, 3))
        self.T[1, 0], self.reach[:2, 1:] = dt, f.reach
        Z = np.zeros((N // 3, 9))  # -dt (I, x_1^ .. x_m^, 0)
        Z[0] = -dt * lie.EYE.ravel()
        self.skew, self.x, self.Zt, self.At = -dt * lie.SKEW, Z[1 : m + 1], Z.reshape(-1, 3).T, np.zeros((3, N))
        self.At[:, VEL], self.At[:, POS] = -dt * lie.EYE, -0.5 * dt**2 * lie.EYE
        both, after = np.zeros((N + 6, N)), np.empty((N + 6, N))  # F^T, below it B^T; P F^T, below it Q B^T
        both[:N] = f.drift[0].T
        self.both, self.Ft, self.biases, self.Bt = both.T, both[:N], both[M:N], both[N:]
        self.by_gyro, self.by_accel, self.still = both[N : N + 3], both[N + 3 :], both[M:N].copy()
        self.after, self.PFt, self.QBt, self.Q = after, after[:N], after[N:], np.repeat(f.driven, N).reshape(6, N)

    def predict(self, R: np.ndarray, x: np.ndarray, P: np.ndarray) -> None:
        """X and P after a period at rates w, feet where they were, but for what nothing drives."""
        now, share = self.now, self.share
        gx, gy, gz = self.gyro.tolist()
        half = lie.turn(share * gx, share * gy, share * gz)
        mid = R.dot(half).T  # in the middle of the period, transposed
        half.T.dot(mid, now.Rt)
        self.w.dot(mid, self.rates)  # R w = R exp(w) w
        x.dot(self.skew, self.x)
        mid.dot(self.Zt, self.by_gyro)
        mid.dot(self.At, self.by_accel)
        np.add(self.Bt, self.still, self.biases)
        P.dot(self.Ft, self.PFt)
        np.multiply(self.Bt, self.Q, self.QBt)
        self.both.dot(self.after, now.P)
        self.T.dot(x, now.x)
        self.reach.dot(now.rates, self.reached)
        now.x += self.reached


class Feet:
    """Where feet are, how they move, and which stand."""

    def __init__(self, f: "InvariantFilter", legs: Legs, now: Now) -> None:
        k, sd, rows = len(f.legs), f.sd, 1 + 2 * legs.deep
        self.f, self.legs, self.now, self.k, self.dt, self.M = f, legs, now, k, f.dt, f.size[0]
        self.q, self.v, self.force = f.at["joint_pos"], f.at["joint_vel"], f.at.get("foot_force")
        self.sd = max(sd.joint, BARELY)  # derivatives and axes are kept times this
        self.scale, self.speeds = np.repeat([1.0, self.sd], [3, 3 * rows - 3])[:, None], np.array(1.0 / self.sd)
        self.waves = None if legs.sliding else Waves(legs, f.home, self.scale)
        self.order = None if legs.in_order else legs.order.ravel()
        self.placed, world = np.empty((k, 3 * rows, 1)), now.world.reshape(k, rows, 3)
        self.vectors, self.h, self.both = self.placed.reshape(-1, 3), world[:, 0], world[:, 1:].reshape(k, -1, 6)
        self.J, self.Jt = self.both[:, :, :3], self.both[:, :, :3].transpose(0, 2, 1)
        self.out, self.moves, self.qv = np.empty((k, 3, 6)), np.empty((k, 1, 6)), np.empty((k, 1, legs.deep))
        self.N, self.trace = self.out[:, :, :3], self.out.reshape(k, 18)[:, 0:15:7]
        self.flat_qv, self.speed = self.qv.reshape(-1), self.moves[:, 0]
        self.spread = np.zeros((k + 1, f.size[1]))  # variances of k feet, and 1 -> what is added to P's diagonal
        self.spread[:k, 9 : self.M], self.spread[k] = np.repeat(np.eye(k), 3, 1), f.walk
        self.least, self.width = f.contact.least, 0.5 / f.contact.width
        self.slip, self.free, self.third = (sd.slip * f.dt) ** 2, (sd.free * f.dt) ** 2, f.dt**2 / 3.0
        self.radii, self.steady, self.foot, self.stands = (
            legs.radius.tolist(),
            f.steady,
            sd.foot**2,
            dict[tuple[int, ...], Standing](),
        )

    def see(self, frame: np.ndarray) -> None:
        """Put h, J, N and what joint speeds make of them into their buffers."""
        if self.waves is not None:
            self.waves(frame[0, self.q], self.placed)
        else:
            vectors = self.legs.vectors(frame[:, self.q] + self.f.home)
            np.multiply(vectors.reshape(self.placed.shape), self.scale, self.placed)
        self.vectors.dot(self.now.Rt, self.now.world)
        v = frame[0, self.v]
        np.multiply(v if self.order is None else v.take(self.order), self.speeds, self.flat_qv)
        np.matmul(self.Jt, self.both, self.out)
        np.matmul(self.qv, self.both, self.moves)

    def contact(self, frame: np.ndarray) -> list[float]:
        """Of each foot (force - least) / (2 width)."""
        if self.force is None:
            force = self.f._pushed(frame[:, self.f.at["joint_torque"]], self.J[None] / self.sd)[0]
        else:
            force = frame[0, self.force]
        least, width = self.least, self.width
        return [(x - least) * width for x in force.tolist()]

    def slide(self, pushed: list[float], was: list[float]) -> tuple[list[int], list[int], np.ndarray]:
        """Feet that are balls roll on, and all may slip. Which bear, which of those stood before, and with what probability."""
        dt, own, free, steady, third, tanh, now = (
            self.dt,
            self.slip,
            self.free,
            self.steady,
            self.third,
            math.tanh,
            self.now,
        )
        (tx, ty, tz), (vx, vy, vz), i = now.turn.tolist(), now.v.tolist(), 0
        rolls: list[float] = []
        slips, c, bears, keep = [], [], [], []
        for (hx, hy, hz), (nx, ny, nz), (sx, sy, sz, wx, wy, _), radius, stood, push in zip(
            self.h.tolist(), self.trace.tolist(), self.speed.tolist(), self.radii, was, pushed
        ):
            p = 0.5 + 0.5 * tanh(push)
            rx, ry = radius * (wy + ty), -radius * (wx + tx)
            mx, my, mz = sx + ty * hz - tz * hy - rx + vx, sy + tz * hx - tx * hz - ry + vy, sz + tx * hy - ty * hx + vz
            slip = mx * mx + my * my + mz * mz - steady * (nx + ny + nz)
            slips.append(own + free * (1.0 - p) + (third * slip if slip > 0.0 else 0.0))
            rolls += (dt * rx, dt * ry, 0.0) if stood > 0.5 else (0.0, 0.0, 0.0)
            c.append(p)
            if p > 0.5:
                bears.append(i)
                if stood > 0.5:
                    keep.append(i)
            i += 1
        new, k = np.array((*rolls, *slips, 1.0, *c)), self.k
        now.d += new[: 3 * k].reshape(-1, 3)
        now.diagonal += new[3 * k : 4 * k + 1].dot(self.spread)
        return bears, keep, new[None, 4 * k + 1 :]

    def stand(self, bears: list[int], keep: list[int], b: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """X, P and b corrected by the feet that stood and stand; those that land, or slipped, are put down anew."""
        now = self.now
        X, P = now.X, now.P
        while keep:
            at = self.stands.get(tuple(keep)) or self.standing(tuple(keep))
            fits = at.measure()
            if all(fits):
                X, P, b = at.correct(b)
                break
            keep = [i for n, i in enumerate(keep) if all(fits[3 * n : 3 * n + 3])]
        if not keep:
            X, P = X.copy(), P.copy()
        if len(keep) < len(bears):
            h = self.h.dot(now.Rt.T).dot(X[:3])
            for i in set(bears).difference(keep):
                self.land(X, P, h[i], i)
        return X, P, b

    def standing(self, keep: tuple[int, ...]) -> "Standing":
        self.stands[keep] = Standing(self, keep)
        return self.stands[keep]

    def land(self, X: np.ndarray, P: np.ndarray, h: np.ndarray, i: int) -> None:
        """xi_d = xi_p + R J n, in place."""
        d = slice(9 + 3 * i, 12 + 3 * i)
        P[d] = P[POS]
        P[:, d] = P[:, POS]
        P[d, d] += self.N[i] + self.foot * lie.EYE
        X[5 + i] = X[4] + h


class Standing:
    """What some of the feet measure while they stand."""

    def __init__(self, of: Feet, feet: tuple[int, ...]) -> None:
        j, k, M, N, every = len(feet), of.k, of.M, of.M + 6, len(of.now.world) // of.k
        self.now, self.gate, self.foot = of.now, of.f.contact.gate**2, np.array(of.foot)
        self.D, self.H = np.zeros((j, 2 + k + len(of.now.world))), np.zeros((3 * j, N))
        for n, i in enumerate(feet):
            self.D[n, 1], self.D[n, 2 + i], self.D[n, 2 + k + every * i] = -1.0, 1.0, -1.0  # d_i - p - h_i
        self.H[:, 3:M], self.r = np.kron(self.D[:, : 2 + k], lie.EYE), np.empty((j, 3))
        self.HP, self.K, self.PHt, self.KHP = (
            np.empty((3 * j, N)),
            np.empty((3 * j, N)),
            np.empty((N, 3 * j)),
            np.empty((N, N)),
        )
        self.S, self.noise, self.xi = np.empty((3 * j, 3 * j)), np.zeros((3 * j, 3 * j)), np.empty(N)
        self.Ht, self.flat_r, self.size = self.H.T.copy(), self.r.reshape(-1), self.S.reshape(-1)[:: 3 * j + 1]
        self.turn, self.move, self.bias = self.xi[:3], self.xi[3:M].reshape(-1, 3), self.xi[M:]
        blocks, step = self.noise.reshape(j, 3, j, 3), feet[1] - feet[0] if j > 1 else 1
        if feet == tuple(range(feet[0], feet[-1] + 1, step)):  # all at once
            self.own = [(np.einsum("iaib->iab", blocks), of.N[feet[0] : feet[-1] + 1 : step])]
        else:
            self.own = [(blocks[n, :, n], of.N[i]) for n, i in enumerate(feet)]

    def measure(self) -> list[bool]:
        """Residual and its covariance; whether each number of it is inside the gate."""
        P, gate = self.now.P, self.gate
        self.D.dot(self.now.known, self.r)
        self.H.dot(P, self.HP)
        self.HP.dot(self.Ht, self.S)
        for own, N in self.own:
            own[:] = N
        self.S += self.noise
        self.size += self.foot
        return [e * e <= gate * v for e, v in zip(self.flat_r.tolist(), self.size.tolist())]

    def correct(self, b: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """X, P and b after the measurement."""
        P, X = self.now.P, self.now.X
        np.linalg.inv(self.S).dot(self.HP, self.K)
        P.dot(self.Ht, self.PHt)
        self.PHt.dot(self.K, self.KHP)
        self.flat_r.dot(self.K, self.xi)
        x, y, z = self.turn.tolist()
        both = lie.step(-x, -y, -z)
        Y = X.dot(both[0])
        move = Y[3:]
        move -= self.move
        return X + Y.dot(both[1]), P - self.KHP, b - self.bias
