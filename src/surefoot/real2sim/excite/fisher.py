"""Fisher information of a motion about the unknowns, before a robot moves.

    F = sum_t J_t^T R^-1 J_t        J_t = d y_t / d z   (C, d)        cov >= (F + P^-1)^-1

z is e between the belief's ends, 0..1; y_t are the signals that will be measured, with independent noise of standard
deviation r, R = diag(r^2); P is the belief's covariance of z. J comes from central differences of rollouts, all in one
batch. Where the first state of a log is estimated along with e, the information that costs is subtracted (Schur
complement): F_zz - F_zx F_xx^-1 F_xz.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from surefoot.belief import Belief
from surefoot.errors import SurefootError, unknown
from surefoot.log import Log
from surefoot.real2sim.identify.fit import Space
from surefoot.real2sim.replay import encoder_shift, repeated, sized
from surefoot.real2sim.signals import BASE, JOINT, Signal, signals
from surefoot.rng import stream
from surefoot.world import Chance, Motion, Start, World

NUMBERS = 8_000_000  # in one rollout's record: 64 MB

STEP = 0.02  # of a parameter's range. Not less: where a joint sticks, the motion is discontinuous in e, and a
# narrow difference would measure the jump; a search would seek such places, and no fit could use them
START = 1e-4  # rad or m, and per second: the finite difference of a start


@dataclass(frozen=True)
class Meter:
    """What will be measured, with which noise, from which start, and about which unknowns."""

    world: World
    start: Start  # one row: where every motion begins
    space: Space
    signals: tuple[Signal, ...]
    sd: np.ndarray  # (C,) noise of each channel, in its signal's unit
    prior: np.ndarray  # (d,) standard deviation of z under the belief
    step: float = STEP

    @property
    def d(self) -> int:
        return len(self.space.grain)


def meter(world: World, belief: Belief, start: Start, noise: Mapping[str, float]) -> Meter:
    """`noise`: signal -> standard deviation in its unit, the same for all its parts."""
    space = Space.of(belief, world.dt / world.substeps)
    for name, value in noise.items():
        if not 0 < value < math.inf:
            raise SurefootError(f"noise: {name}: found {value}, expected a standard deviation above 0")
    found = signals(world, _blank(world, tuple(noise)), tuple(noise))
    sd = np.concatenate([np.full(s.size, noise[s.name]) for s in found])
    prior = space.z(belief.sample(stream(0, "prior of z"), 2000)).std(0)
    return Meter(world, start, space, found, sd, prior)


def _blank(world: World, names: tuple[str, ...]) -> Log:
    """A log of zeros with the named columns, from which signals() makes its signals."""
    joints = len(world.layout.joints)
    size = {name: joints for name in JOINT} if joints else {}
    size |= {name: count for name, (_, count) in BASE.items()} if world.layout.base is not None else {}
    size |= {name: y.shape[1] for name, y in world.state.y.items()}
    for name in names:
        if name not in size:
            raise unknown("signal", name, size, "noise")
    return Log(np.arange(2.0), {name: np.zeros((2, size[name])) for name in names})


def information(at: Meter, u: np.ndarray, z: np.ndarray, starts: bool = False, central: bool = True) -> np.ndarray:
    """(n, m, d, d) information about z in motions under controls u (n, T, nu) at samples z (m, d).

    `starts`: the first state is estimated, too. One-sided differences cost half as much as central ones, and are good
    enough for a search.
    """
    plan = _differences(at, z, 2 * at.world.nv if starts else 0, central)
    return np.concatenate([
        _of_motion(at, motion, plan, (len(motion.q) // len(plan.e), len(z)))
        for motion in played(at, u, plan.e, plan.start)
    ])  # fmt: skip


def informed(
    at: Meter, u: np.ndarray, z: np.ndarray, over: Callable[[Motion], np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """information by one-sided differences, and (n,) how far the same motions are `over` their limits at the worst z."""
    plan = _differences(at, z, 0, central=False)
    F, far = [], []
    for motion in played(at, u, plan.e, plan.start):
        n = len(motion.q) // len(plan.e)
        F.append(_of_motion(at, motion, plan, (n, len(z))))
        plain = motion.rows(slice(None, None, plan.rows))  # the first row of each sample is not moved
        far.append(np.where(plain.diverged, np.inf, over(plain)).reshape(n, len(z)).max(1))
    return np.concatenate(F), np.concatenate(far)


def played(at: Meter, u: np.ndarray, e: np.ndarray, start: Start) -> Iterator[Motion]:
    """Each of the motions (n, T, nu) at every e (m, ne), as its encoders read it: a few motions at a time, m rows each."""
    each, world = len(e), at.world
    numbers = world.nq + world.nv + world.nu + sum(y.shape[1] for y in world.state.y.values())
    record = u.shape[1] * world.substeps * numbers
    group = int(np.clip(NUMBERS // max(1, each * record), 1, len(u)))
    for a in range(0, len(u), group):
        some = u[a : a + group]
        n = len(some)
        world, shift = sized(at.world, each * n), np.tile(encoder_shift(at.world, e), (n, 1))
        begun = repeated(start, n)
        world.reset(np.arange(world.n), np.tile(e, (n, 1)), replace(begun, q=begun.q - shift))
        motion = world.rollout(np.repeat(some, each, 0), Chance(0, 0, world.dt))
        yield replace(motion, q=motion.q + shift[:, None]) if shift.any() else motion


@dataclass(frozen=True)
class Differences:
    """The rows to simulate for one motion, m samples of e with `rows` each, and which two of them make each column of J."""

    rows: int
    e: np.ndarray  # (m * rows, ne)
    start: Start  # (m * rows, ...)
    up: np.ndarray  # (p,) of the rows; p = d + nx
    down: np.ndarray  # (p,)
    span: np.ndarray  # (m, p) how far apart they are
    nx: int


def _differences(at: Meter, z: np.ndarray, nx: int, central: bool) -> Differences:
    m, d = z.shape
    p = d + nx
    rows, up = (2 * p, np.arange(p)) if central else (1 + p, 1 + np.arange(p))
    down = p + np.arange(p) if central else np.zeros(p, int)
    wide = at.space.steps(at.step)
    steps = np.where(z + wide <= 1, wide, -wide)  # inward, where one side is all there is
    moved, span = np.repeat(z[:, None], rows, 1), np.full((m, p), (1 + central) * START)
    for k in range(d):
        moved[:, up[k], k] = np.clip(z[:, k] + steps[:, k], 0.0, 1.0)
        if central:
            moved[:, down[k], k] = np.clip(z[:, k] - steps[:, k], 0.0, 1.0)
        span[:, k] = moved[:, up[k], k] - moved[:, down[k], k]
    q, v = (np.repeat(a[:1], rows, 0) for a in (at.start.q, at.start.v))
    nv = at.world.nv
    for k in range(nx):
        for row, sign in ((up[d + k], 1.0), (down[d + k], -1.0)) if central else ((up[d + k], 1.0),):
            if k >= nv:
                v[row, k - nv] += sign * START
            else:
                q[row] = at.world.layout.moved(q[row][None], sign * START * np.eye(nv)[k : k + 1])[0]
    u = np.repeat(at.start.u[:1], rows, 0)
    start = Start(q, v, u, None if at.start.act is None else np.repeat(at.start.act[:1], rows, 0))
    return Differences(rows, at.space.e(moved.reshape(m * rows, d)), repeated(start, m), up, down, span, nx)


def _of_motion(at: Meter, motion: Motion, plan: Differences, shape: tuple[int, int]) -> np.ndarray:
    """(n, m, d, d); where a simulation diverged, no information."""
    (n, m), d, rows = shape, at.d, []
    for s in at.signals:
        y = s.read(motion)
        y = y.reshape(n, m, plan.rows, *y.shape[1:])
        rows.append(s.error(y[:, :, plan.up], y[:, :, plan.down]))  # (n, m, p, T, size)
    J = np.concatenate(rows, -1) / at.sd / plan.span[:, :, None, None]
    if plan.nx:
        J = np.concatenate([_first(at, J, d), J], 3)
    J = np.nan_to_num(J, nan=0.0, posinf=0.0, neginf=0.0).reshape(n, m, d + plan.nx, -1)
    F = J @ np.swapaxes(J, -1, -2)
    if not plan.nx:
        return F
    cross, starts = F[..., :d, d:], F[..., d:, d:]
    return F[..., :d, :d] - cross @ np.linalg.pinv(starts, rcond=1e-12, hermitian=True) @ np.swapaxes(cross, -1, -2)


def _first(at: Meter, J: np.ndarray, d: int) -> np.ndarray:
    """Row 0 measures the start: positions and velocities where they are signals; e does not change it."""
    first, nv, column = np.zeros((*J.shape[:3], 1, J.shape[-1])), at.world.nv, 0
    for s in at.signals:
        if s.name in JOINT:
            for k, dof in enumerate(at.world.layout.speeds):
                unknown_ = d + dof + (0 if s.name == "joint_pos" else nv)
                first[:, :, unknown_, 0, column + k] = 1 / at.sd[column + k]
        column += s.size
    return first


def posterior(at: Meter, F: np.ndarray) -> np.ndarray:
    """(..., d, d) covariance of z: the belief and the information F together."""
    return np.linalg.inv(F + np.diag(1 / at.prior**2))


def score(at: Meter, F: np.ndarray, objective: str) -> np.ndarray:
    """(...,) how informative F is; more is better.

    logdet  log det (F + P^-1): twice the nats by which a motion shrinks the belief; the volume of the ellipsoid
    a       -trace cov: the mean square error of all parameters, in fractions of their ranges
    trace   trace F: quick, but blind to parameters with the same effect
    """
    if objective == "trace":
        return np.trace(F, axis1=-2, axis2=-1)
    if objective == "a":
        return -np.trace(posterior(at, F), axis1=-2, axis2=-1)
    if objective == "logdet":
        return np.linalg.slogdet(F + np.diag(1 / at.prior**2))[1]
    raise unknown("objective", objective, ["logdet", "a", "trace"])


def slopes(space: Space, e: np.ndarray) -> np.ndarray:
    """(..., d) de/dz at e (..., ne)."""
    log = space.params.log[space.free]
    low, high, at = (v[..., space.free] for v in (space.low, space.high, e))
    ratio = np.where(log, high / np.where(log, low, 1.0), 1.0)
    return np.where(log, at * np.log(ratio), high - low)
