"""Innovations: a Kalman filter runs the model along a log; at each row, measurement minus prediction is the innovation.

    x-(k+1) = f(x(k), u(k), e)         eps(k+1) = y(k+1) - x-(k+1)         x(k+1) = x-(k+1) + K eps(k+1)

x is q and v; states that nobody measures (a rotor's thrust, delayed commands, the position inside a backlash) are simulated and not
corrected. y is the measured q and v; differences are taken on the manifold. K is a steady Kalman gain, one 2 x 2 block for each
degree of freedom, from the log's own noise. With it, the innovations of a right model are white and independent of the
observations. Fits need that: otherwise a policy's reaction to noise is mistaken for physics.
"""

from dataclasses import dataclass

import numpy as np

from surefoot.doctor.evidence.observation import episodes
from surefoot.log import Log
from surefoot.real2sim.signals import controls, settling, starts
from surefoot.robot import Layout
from surefoot.sim.gap.observed_world import ObservedWorld
from surefoot.world import Chance, Start, World

LENGTH, WARM = 60, 10  # rows of a segment that count, and rows before them in which the filter converges
MOST = 16  # segments, spread over a log: twenty seconds are enough
SHORTEST = 6  # rows of an episode that is used
ALIVE = 0.05  # least process noise over measurement noise: with less, a filter ignores its measurements


@dataclass(frozen=True, eq=False)
class Segments:
    """Measurements and controls, row by row, cut into segments that are filtered side by side."""

    world: World
    q: np.ndarray  # (T, nq)
    v: np.ndarray  # (T, nv)
    u: np.ndarray  # (T, nu)
    measured: np.ndarray  # (T,) bool: q and v are complete
    rows: np.ndarray  # (s, w) rows of each segment
    counts: np.ndarray  # (s, w) bool: whether the innovation at that row counts
    begins: np.ndarray  # (T,) the row in which each row's episode begins
    settle: int  # rows at a segment's start with gain 1, until slow motors have settled

    @property
    def dt(self) -> float:
        return self.world.dt

    @property
    def layout(self) -> Layout:
        return self.world.layout

    @property
    def channels(self) -> int:
        return 2 * self.v.shape[1]

    def before(self, rows: np.ndarray) -> np.ndarray:
        """The row before each, or itself where its episode begins."""
        return np.maximum(rows - 1, self.begins[rows])


def segments(world: World, log: Log) -> Segments:
    begins, every = episodes(log), np.arange(len(log))
    x = starts(world, log, every)
    u = controls(world, log)
    known = np.isfinite(x.q).all(1) & np.isfinite(x.v).all(1)
    sent = np.isfinite(u).all(1)
    settle = settling(world)
    rows, counts = _segments(begins, known, sent, settle + WARM)
    filled = np.where(np.isfinite(x.q), x.q, np.tile(world.layout.rest, (len(log), 1)))
    v, u = (np.where(np.isfinite(a), a, 0.0) for a in (x.v, u))
    return Segments(world, filled, v, u, known, rows, counts, begins, settle)


def _segments(begins: np.ndarray, known: np.ndarray, sent: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of each segment, all of one width, padded with the last row, which then does not count."""
    width, start = most + LENGTH, known & sent
    rows: list[np.ndarray] = []
    counts: list[np.ndarray] = []
    for a in np.unique(begins):
        run = np.flatnonzero((begins == a) & sent)
        run = run[np.argmax(start[run]) :] if len(run) and start[run].any() else run[:0]
        warm = min(most, max(2, len(run) // 3))
        if len(run) < SHORTEST:
            continue
        for first in range(0, max(1, len(run) - warm), LENGTH):
            while first and not start[run[first]]:
                first -= 1  # a segment begins at a measured row
            piece = run[first : first + width]
            if len(piece) <= warm:
                continue
            pad = np.full(width - len(piece), piece[-1])
            rows.append(np.concatenate([piece, pad]))
            counts.append((np.arange(width) >= warm) & (np.arange(width) < len(piece)) & known[rows[-1]])
    if not rows:
        return np.zeros((0, width), int), np.zeros((0, width), bool)
    kept = _spread([int(c.sum()) for c in counts])
    return np.array([rows[k] for k in kept]), np.array([counts[k] for k in kept])


def _spread(counted: list[int]) -> list[int]:
    """The segments to use: all, or as many, spread over the log, as together have enough rows."""
    enough, step = MOST * LENGTH, 1
    while sum(counted[::step]) > enough:
        step += 1
    if step == 1:
        return list(range(len(counted)))
    order = [k for first in range(step) for k in range(first, len(counted), step)]
    total = np.cumsum([counted[k] for k in order])
    return sorted(order[: int(np.searchsorted(total, enough)) + 1])


@dataclass(frozen=True)
class Gain:
    """K of every degree of freedom: (nv, 2, 2), on (dq, dv)."""

    k: np.ndarray

    def __call__(self, eps: np.ndarray) -> np.ndarray:
        nv = len(self.k)
        pair = np.stack([eps[:, :nv], eps[:, nv:]], -1)  # (n, nv, 2)
        moved = np.einsum("vij,nvj->nvi", self.k, pair)
        return np.concatenate([moved[..., 0], moved[..., 1]], 1)


def full_gain(nv: int) -> Gain:
    """Gain 1: the state is set to each measurement."""
    return Gain(np.tile(np.eye(2), (nv, 1, 1)))


def noise_variance(eps: np.ndarray) -> np.ndarray:
    """(2 nv,) of the measurements, from innovations under the full gain."""
    second = eps[:, 2:] - 2 * eps[:, 1:-1] + eps[:, :-2]
    power = np.nanmean(np.square(eps), (0, 1))
    return np.asarray(np.maximum(np.minimum(np.nanmean(np.square(second), (0, 1)) / 20, 0.5 * power), 1e-16))


def steady_gain(eps: np.ndarray, dt: float) -> Gain:
    """K from innovations (s, w, 2 nv) under the full gain; nan where they do not count.

    There eps(k+1) = n(k+1) - n(k) + model error, n: noise. Second differences of eps have 20 times the variance of n and little of a slow
    model error; the variance of eps beyond twice that of n is the process noise.
    """
    nv = eps.shape[-1] // 2
    power, r = np.nanmean(np.square(eps), (0, 1)), noise_variance(eps)
    gains = []
    for i in range(nv):
        rq, rv = r[i], r[nv + i]
        qv = max(power[nv + i] - 2 * rv, ALIVE * rv)
        qq = max(power[i] - 2 * rq - dt**2 * rv, 0.2 * ALIVE * rq)
        gains.append(_riccati(dt, np.diag([qq, qv]), np.diag([rq, rv])))
    return Gain(np.array(gains))


def _riccati(dt: float, Q: np.ndarray, R: np.ndarray) -> np.ndarray:
    """K = P (P + R)^-1 at the fixed point of P = A (P - K P) A^T + Q."""
    A, P = np.array([[1.0, dt], [0.0, 1.0]]), Q + R
    for _ in range(300):
        K = P @ np.linalg.inv(P + R)
        P = A @ (P - K @ P) @ A.T + Q
    return np.asarray(P @ np.linalg.inv(P + R))


@dataclass(frozen=True, eq=False)
class Variant:
    """A hypothesis as the filter takes it: e of the world, and corrected measurements and controls."""

    e: np.ndarray  # (ne,)
    q: np.ndarray | None = None  # (T, nq); None: as logged
    v: np.ndarray | None = None
    u: np.ndarray | None = None


def slack(world: World) -> tuple[np.ndarray, np.ndarray] | tuple[float, float]:
    """Link minus motor, in q and v, where encoders sit on the motors of gears with backlash; otherwise 0."""
    return world.view.slack(world.engine.state) if isinstance(world, ObservedWorld) else (0.0, 0.0)


def innovations(world: World, at: Segments, variants: list[Variant], gain: Gain) -> np.ndarray:
    """(m, s, w, 2 nv) under each variant; nan where they do not count."""
    m, (s, w) = len(variants), at.rows.shape
    world = world if world.n == m * s else world.with_(m * s)
    pick = lambda name, rows: np.concatenate(  # noqa: E731
        [(getattr(at, name) if getattr(x, name) is None else getattr(x, name))[rows] for x in variants]
    )
    first, nv = at.rows[:, 0], world.nv
    u0 = pick("u", at.before(first))
    act = u0.copy() if world.na == world.nu else None
    e = np.repeat(np.array([x.e for x in variants]), s, 0)
    world.reset(np.arange(m * s), e, Start(pick("q", first), pick("v", first), u0, act))
    eps = np.full((m, s, w, 2 * nv), np.nan)
    bad = np.zeros(m * s, bool)
    for k in range(w - 1):
        bad |= world.step(pick("u", at.rows[:, k]), Chance(0, k, at.dt))
        rows = at.rows[:, k + 1]
        gap_q, gap_v = slack(world)
        q, v = world.state.q - gap_q, world.state.v - gap_v
        y_q, y_v = pick("q", rows), pick("v", rows)
        q[bad], v[bad] = y_q[bad], y_v[bad]
        now = np.concatenate([at.layout.difference(q, y_q), y_v - v], 1)
        fix = (now if k < at.settle else gain(now)) * np.tile(at.measured[rows], m)[:, None]
        world.set_state(at.layout.moved(q, fix[:, :nv]) + gap_q, v + fix[:, nv:] + gap_v)
        eps[:, :, k + 1] = np.where((np.tile(at.counts[:, k + 1], m) & ~bad)[:, None], now, np.nan).reshape(
            m, s, 2 * nv
        )
    return eps
