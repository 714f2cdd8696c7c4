"""follow: a world walks along a log beside the machine, corrected at every row, and says what it did not expect.

    x-(k+1) = f(x(k), u(k), e)         eps(k+1) = y(k+1) - x-(k+1)         x(k+1) = x-(k+1) + K eps(k+1)

x is q and v; what nobody measures (a rotor's thrust, commands on their way, a gap in the gears) is the world's own. y is
what was measured of q and v, their difference taken on the manifold. K is a steady Kalman gain, one 2 x 2 for each degree of
freedom, from the noise that the log itself shows: with it, eps of a right model is white and does not know what the policy
was told, as it must be for what is fitted to it: a policy that answers to noise would otherwise be taken for physics.
"""

from dataclasses import dataclass

import mujoco
import numpy as np

from surefoot.doctor.evidence.observation import episodes
from surefoot.log import Log
from surefoot.real2sim.signals import controls, settling, starts
from surefoot.rotation import between, turned
from surefoot.sim.gap.observed_world import Shown
from surefoot.world import Chance, Start, World

LENGTH, WARM = 60, 10  # rows of a segment that count, and rows before them in which the filter settles
MOST = 16  # segments, spread over a log: twenty seconds say enough
SHORTEST = 6  # rows of an episode that are worth following
ALIVE = 0.05  # process noise over measurement noise, at least: a filter that trusts its model alone goes blind


@dataclass(frozen=True, eq=False)
class Track:
    """What was measured and told, row by row, cut into segments that are followed side by side."""

    model: mujoco.MjModel
    dt: float
    q: np.ndarray  # (T, nq)
    v: np.ndarray  # (T, nv)
    u: np.ndarray  # (T, nu)
    seen: np.ndarray  # (T,) bool
    rows: np.ndarray  # (s, w) rows of each segment
    counts: np.ndarray  # (s, w) bool: whether the surprise at that row counts
    begins: np.ndarray  # (T,) the row in which each row's episode begins
    settle: int  # rows at a segment's begin in which measurements are the truth, until slow motors have settled

    @property
    def channels(self) -> int:
        return 2 * int(self.model.nv)

    def before(self, rows: np.ndarray) -> np.ndarray:
        """The row before each, or itself where its episode begins."""
        return np.maximum(rows - 1, self.begins[rows])


def track(world: World, log: Log) -> Track:
    begins, every = episodes(log), np.arange(len(log))
    x = starts(world, log, every)
    u = controls(world, log)
    seen = np.isfinite(x.q).all(1) & np.isfinite(x.v).all(1)
    told = np.isfinite(u).all(1)
    settle = settling(world.model, world.dt)
    rows, counts = _segments(begins, seen & told, seen, told, settle + WARM)
    filled = np.where(np.isfinite(x.q), x.q, np.tile(world.model.qpos0, (len(log), 1)))
    v, u = (np.where(np.isfinite(a), a, 0.0) for a in (x.v, u))
    return Track(world.model, world.dt, filled, v, u, seen, rows, counts, begins, settle)


def _segments(
    begins: np.ndarray, start: np.ndarray, seen: np.ndarray, told: np.ndarray, most: int
) -> tuple[np.ndarray, np.ndarray]:
    """Rows of each segment, all of one width, padded with the last row, which then does not count."""
    width, rows, counts = most + LENGTH, [], []
    for a in np.unique(begins):
        run = np.flatnonzero((begins == a) & told)
        run = run[np.argmax(start[run]) :] if len(run) and start[run].any() else run[:0]
        warm = min(most, max(2, len(run) // 3))
        if len(run) < SHORTEST:
            continue
        for first in range(0, max(1, len(run) - warm), LENGTH):
            while first and not start[run[first]]:
                first -= 1  # a segment begins where something was measured
            piece = run[first : first + width]
            if len(piece) <= warm:
                continue
            pad = np.full(width - len(piece), piece[-1])
            rows.append(np.concatenate([piece, pad]))
            counts.append((np.arange(width) >= warm) & (np.arange(width) < len(piece)) & seen[rows[-1]])
    if not rows:
        return np.zeros((0, width), int), np.zeros((0, width), bool)
    kept = _spread([int(c.sum()) for c in counts])
    return np.array([rows[k] for k in kept]), np.array([counts[k] for k in kept])


def _spread(counted: list[int]) -> list[int]:
    """The segments to follow: all, or so many, spread over the log, as have rows enough between them."""
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


def trusting(nv: int) -> Gain:
    """Measurements are the truth."""
    return Gain(np.tile(np.eye(2), (nv, 1, 1)))


def noise_of(eps: np.ndarray) -> np.ndarray:
    """(2 nv,) variance of the measurements' noise, from such surprises."""
    second = eps[:, 2:] - 2 * eps[:, 1:-1] + eps[:, :-2]
    power = np.nanmean(np.square(eps), (0, 1))
    return np.asarray(np.maximum(np.minimum(np.nanmean(np.square(second), (0, 1)) / 20, 0.5 * power), 1e-16))


def gain_of(eps: np.ndarray, dt: float) -> Gain:
    """K from surprises (s, w, 2 nv) of a filter that trusts measurements: nan where they do not count.

    There r = n' - n + error of the model: second differences of r hold 20 times the noise's variance and little of what
    is slow; what r has beyond twice the noise is the model's.
    """
    nv = eps.shape[-1] // 2
    power, r = np.nanmean(np.square(eps), (0, 1)), noise_of(eps)
    found = []
    for i in range(nv):
        rq, rv = r[i], r[nv + i]
        qv = max(power[nv + i] - 2 * rv, ALIVE * rv)
        qq = max(power[i] - 2 * rq - dt**2 * rv, 0.2 * ALIVE * rq)
        found.append(_steady(dt, np.diag([qq, qv]), np.diag([rq, rv])))
    return Gain(np.array(found))


def _steady(dt: float, Q: np.ndarray, R: np.ndarray) -> np.ndarray:
    """K = P (P + R)^-1 at the fixed point of P = A (P - K P) A^T + Q."""
    A, P = np.array([[1.0, dt], [0.0, 1.0]]), Q + R
    for _ in range(300):
        K = P @ np.linalg.inv(P + R)
        P = A @ (P - K @ P) @ A.T + Q
    return np.asarray(P @ np.linalg.inv(P + R))


def difference(model: mujoco.MjModel, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """(n, nv) the way from positions a to b along the tangent."""
    if model.nq == model.nv:
        d = b - a
        turns = (model.jnt_type == mujoco.mjtJoint.mjJNT_HINGE) & (model.jnt_limited == 0)
        return np.where(turns, (d + np.pi) % (2 * np.pi) - np.pi, d)
    out = np.zeros((len(a), model.nv))
    for j in range(model.njnt):
        p, d = int(model.jnt_qposadr[j]), int(model.jnt_dofadr[j])
        if model.jnt_type[j] == mujoco.mjtJoint.mjJNT_FREE:
            out[:, d : d + 3] = b[:, p : p + 3] - a[:, p : p + 3]
            out[:, d + 3 : d + 6] = between(a[:, p + 3 : p + 7], b[:, p + 3 : p + 7])
        elif model.jnt_type[j] == mujoco.mjtJoint.mjJNT_BALL:
            out[:, d : d + 3] = between(a[:, p : p + 4], b[:, p : p + 4])
        else:
            out[:, d] = b[:, p] - a[:, p]
    return out


def moved(model: mujoco.MjModel, q: np.ndarray, d: np.ndarray) -> np.ndarray:
    """Positions q moved by d (n, nv) along the tangent."""
    if model.nq == model.nv:
        return q + d
    out = q.copy()
    for j in range(model.njnt):
        p, a = int(model.jnt_qposadr[j]), int(model.jnt_dofadr[j])
        if model.jnt_type[j] == mujoco.mjtJoint.mjJNT_FREE:
            out[:, p : p + 3] += d[:, a : a + 3]
            out[:, p + 3 : p + 7] = turned(q[:, p + 3 : p + 7], d[:, a + 3 : a + 6])
        elif model.jnt_type[j] == mujoco.mjtJoint.mjJNT_BALL:
            out[:, p : p + 4] = turned(q[:, p : p + 4], d[:, a : a + 3])
        else:
            out[:, p] += d[:, a]
    return out


@dataclass(frozen=True, eq=False)
class Variant:
    """One way to read a log: e of the world, and what was measured and told, as it would have been."""

    e: np.ndarray  # (ne,)
    q: np.ndarray | None = None  # (T, nq); None: as logged
    v: np.ndarray | None = None
    u: np.ndarray | None = None


def slack(world: World) -> tuple[np.ndarray, np.ndarray] | tuple[float, float]:
    """How far links are from their motors, whose encoders make the log; 0 where there is no such gap."""
    return world.view.slack(world.engine.state) if isinstance(world, Shown) else (0.0, 0.0)


def follow(world: World, at: Track, variants: list[Variant], gain: Gain) -> np.ndarray:
    """(m, s, w, 2 nv) surprises under each variant; nan where they do not count."""
    m, (s, w) = len(variants), at.rows.shape
    world = world if world.n == m * s else world.with_(m * s)
    pick = lambda name, rows: np.concatenate(  # noqa: E731
        [(getattr(at, name) if getattr(x, name) is None else getattr(x, name))[rows] for x in variants]
    )
    first, nv = at.rows[:, 0], at.model.nv
    u0 = pick("u", at.before(first))
    act = u0.copy() if at.model.na == at.model.nu else None
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
        found = np.concatenate([difference(at.model, q, y_q), y_v - v], 1)
        fix = (found if k < at.settle else gain(found)) * np.tile(at.seen[rows], m)[:, None]
        world.set_state(moved(at.model, q, fix[:, :nv]) + gap_q, v + fix[:, nv:] + gap_v)
        eps[:, :, k + 1] = np.where((np.tile(at.counts[:, k + 1], m) & ~bad)[:, None], found, np.nan).reshape(
            m, s, 2 * nv
        )
    return eps
