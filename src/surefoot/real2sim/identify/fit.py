"""The least-squares problem of identification: residuals of many windows under many e at once, and their Jacobian.

    r(z, x0) = W [h(x(k)) - y(k)]        x(k+1) = f(x(k), u(k), e(z))       k = 0..T in every window

z (d,) is e between the belief's ends, 0..1, linear in log e where the parameter is on a log scale. x0 are the first states
of the windows: as measured, or further unknowns (dq, dv), for which row 0 is a measurement like any other.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from surefoot.belief import Belief, Box
from surefoot.errors import SurefootError
from surefoot.params import Params
from surefoot.real2sim.identify.noise import Noise
from surefoot.real2sim.replay import Windows, predict, repeated
from surefoot.real2sim.signals import Signal, measured
from surefoot.world import Motion, Start, World

STEP = 1e-3  # finite difference, as a fraction of a parameter's range
NUMBERS = 32_000_000  # in the record of one rollout: a quarter of a gigabyte
FAR = 1e4  # noise sds: the residual of a diverged simulation


@dataclass(frozen=True)
class Space:
    """The free parameters of a belief as z in 0..1, and back."""

    params: Params
    low: np.ndarray  # (ne,) where z is 0
    high: np.ndarray
    grain: np.ndarray
    """(d,) in z: the step within which the engine cannot tell values apart (delays act in whole timesteps); 0: none"""

    @staticmethod
    def of(belief: Belief, timestep: float) -> "Space":
        low, high = belief.support()
        free = low < high
        if not free.any():
            raise SurefootError("belief: every parameter is fixed; nothing is left to identify")
        late = np.array([p.target in ("action_delay", "sensor_delay") for p in belief.params])
        return Space(belief.params, low, high, np.where(late, timestep / np.where(free, high - low, np.inf), 0.0)[free])

    def steps(self, size: float) -> np.ndarray:
        """(d,) finite differences in z: `size`, or where a parameter acts in steps, a whole one."""
        return np.where(self.grain > 0, np.minimum(self.grain, 0.25), size)

    @cached_property
    def free(self) -> np.ndarray:
        return self.low < self.high

    @cached_property
    def names(self) -> list[str]:
        return [n for n, f in zip(self.params.names, self.free) if f]

    @cached_property
    def _box(self) -> Box:
        return Box(self.params, self.low, self.high)

    def e(self, z: np.ndarray) -> np.ndarray:
        """(..., d) -> (..., ne)"""
        full = np.zeros((*z.shape[:-1], len(self.params)))
        full[..., self.free] = z
        return self._box.at(full)

    def z(self, e: np.ndarray) -> np.ndarray:
        return np.clip(self._box.share(e)[..., self.free], 0.0, 1.0)


@dataclass(frozen=True)
class Case:
    """One log cut into windows, and the World that should explain it."""

    world: World
    pieces: Windows
    free_start: bool
    """whether the windows' first states are unknown"""

    @property
    def nx(self) -> int:
        """Unknowns of each window's first state."""
        return 2 * self.world.nv if self.free_start else 0

    @property
    def rows(self) -> int:
        return self.pieces.length + self.free_start

    @property
    def channels(self) -> int:
        return sum(s.size for s in self.pieces.signals)

    def moved(self, dx: np.ndarray) -> Start:
        """The measured first states plus dx (m, w, 2 nv): positions on their manifold, velocities by addition."""
        m, nv, start = len(dx), self.world.nv, repeated(self.pieces.start, len(dx))
        flat = dx.reshape(-1, 2 * nv)
        q = self.world.layout.moved(start.q, flat[:, :nv])
        return Start(q, start.v + flat[:, nv:], start.u, start.act if m else None)

    def errors(self, e: np.ndarray, dx: np.ndarray | None) -> np.ndarray:
        """(m, w, rows, C) prediction minus measurement, for e (m, ne) and first states moved by dx (m, w, nx)."""
        w, found = len(self.pieces), []
        size = self.world.nq + 2 * self.world.nv + sum(y.shape[1] for y in self.world.state.y.values()) + 1
        most = max(1, int(NUMBERS // max(1, w * self.pieces.length * self.world.substeps * size)))
        for a in range(0, len(e), most):
            rows = slice(a, a + most)
            start = repeated(self.pieces.start, len(e[rows])) if dx is None else self.moved(dx[rows])
            motion = predict(self.world, self.pieces, e[rows], start)
            parts = self.pieces.errors(motion)
            error = np.concatenate([parts[s.name] for s in self.pieces.signals], -1)  # (m w, T, C)
            if self.free_start:
                error = np.concatenate([self._first(start, len(e[rows])), error], 1)
            error[motion.diverged] = np.nan
            found.append(error.reshape(-1, w, self.rows, self.channels))
        return np.concatenate(found)

    def _first(self, start: Start, m: int) -> np.ndarray:
        """Row 0: the first states minus their measurement. Sensors have no prediction at row 0: their error is 0."""
        x = Motion(start.q[:, None], start.v[:, None], np.zeros((len(start.q), 1, 0)), {}, np.zeros(len(start.q), bool))
        columns = [np.tile(self._row0(s, x, m), (1, 1, 1)) for s in self.pieces.signals]
        return np.concatenate(columns, -1)

    def _row0(self, signal: Signal, x: Motion, m: int) -> np.ndarray:
        if signal.name in self.world.state.y:
            return np.zeros((len(x.q), 1, signal.size))
        first = self.pieces.log[signal.name][self.pieces.rows].reshape(len(self.pieces), 1, -1)
        return signal.error(signal.read(x), np.tile(first, (m, 1, 1)))


def scales(case: Case) -> Noise:
    """The first guess of a channel's noise is its own standard deviation: all channels count alike."""
    spread = [_spread(case.pieces, s.name, s.size) for s in case.pieces.signals]
    s = np.concatenate(spread)
    return Noise(np.maximum(s, 1e-6 * max(float(s.max()), 1e-6)), np.zeros(len(s)))


def _spread(pieces: Windows, name: str, size: int) -> np.ndarray:
    column = measured(pieces.log, name)
    return np.nanstd(column, 0)[:size] if column.shape[1] >= size else np.full(size, float(np.nanstd(column)))


@dataclass(frozen=True)
class Problem:
    """Residuals of all cases, whitened, as a function of p = (z, dx of every window of every case)."""

    space: Space
    cases: tuple[Case, ...]
    noise: tuple[Noise, ...]
    dx_scale: float = 1e-4  # finite difference of a start, rad or m, and its speed
    step: float = STEP  # finite difference of a smooth parameter, of its range

    @property
    def d(self) -> int:
        return len(self.space.grain)

    @property
    def size(self) -> int:
        return self.d + sum(c.nx * len(c.pieces) for c in self.cases)

    def split(self, p: np.ndarray) -> Iterator[tuple[Case, Noise, np.ndarray | None, int]]:
        """Each case with its noise, its dx (w, nx), and the index of that in p."""
        at = self.d
        for case, noise in zip(self.cases, self.noise):
            count = case.nx * len(case.pieces)
            dx = p[at : at + count].reshape(len(case.pieces), case.nx) if count else None
            yield case, noise, dx, at
            at += count

    def raw(self, p: np.ndarray) -> list[np.ndarray]:
        """Residuals (w, rows, C) of each case in the units of its signals."""
        e = self.space.e(p[None, : self.d])
        return [case.errors(e, None if dx is None else dx[None])[0] for case, _, dx, _ in self.split(p)]

    def residual(self, p: np.ndarray) -> np.ndarray:
        """(nr, m) whitened residuals at the columns of p (size, m)."""
        return np.stack([self._one(column) for column in p.T], 1)

    def _one(self, p: np.ndarray) -> np.ndarray:
        raw = self.raw(p)
        return np.concatenate([_finite(noise.whiten(r)).ravel() for r, noise in zip(raw, self.noise)])

    def jacobians(self, p: np.ndarray) -> list[np.ndarray]:
        """(w, rows, C, size) of each case, in the units of its signals."""
        plain = replace(self, noise=tuple(Noise(np.ones_like(n.s), np.zeros_like(n.rho)) for n in self.noise))
        shapes = [(len(c.pieces), c.rows, c.channels) for c in self.cases]
        parts = np.split(plain.jacobian(p), np.cumsum([np.prod(x) for x in shapes])[:-1])
        return [part.reshape(*shape, self.size) for part, shape in zip(parts, shapes)]

    def jacobian(self, p: np.ndarray, r: np.ndarray | None = None, some: np.ndarray | None = None) -> np.ndarray:
        """(nr, size) by central differences; given the residual r at p, by one-sided ones, which cost half.

        All of them, for all windows, are one rollout of each case. Only the columns `some` (d,) bool of z are computed.
        """
        p = np.ravel(p)
        z, at, blocks, row = p[: self.d], np.arange(self.d) if some is None else np.flatnonzero(some), [], 0
        up, down = self._sides(z, r is None)
        for case, noise, dx, first in self.split(p):
            k, nx, w, height = len(at), case.nx, len(case.pieces), case.rows * case.channels
            ends = [(up, self.dx_scale)] + [(down, -self.dx_scale)] * (r is None)
            zs, moves = zip(*(self._moved(z, dx, at, *end) for end in ends))
            e = self.space.e(np.concatenate(zs))
            found = _finite(noise.whiten(case.errors(e, None if dx is None else np.concatenate(moves))))
            found = found.reshape(len(ends), k + nx, w, height)
            here = found[1] if r is None else np.ravel(r)[row : row + w * height].reshape(w, height)
            span = np.concatenate([(up - down)[at], np.full(nx, (1 + (r is None)) * self.dx_scale)])
            slopes = (found[0] - here) / span[:, None, None]  # (k + nx, w, rows C)
            block = np.zeros((w, height, self.size))
            block[:, :, at] = np.moveaxis(slopes[:k], 0, -1)
            for i in range(w):
                block[i, :, first + i * nx : first + (i + 1) * nx] = slopes[k:, i].T
            blocks.append(block.reshape(-1, self.size))
            row += w * height
        return np.concatenate(blocks)

    def _sides(self, z: np.ndarray, central: bool) -> tuple[np.ndarray, np.ndarray]:
        """(d,) the two values of z that make each difference: on both sides of z, or z and one inside the bounds."""
        steps = self.space.steps(self.step)
        if central:
            return np.minimum(z + steps, 1.0), np.maximum(z - steps, 0.0)
        return np.where(z + steps <= 1.0, z + steps, z - steps), z

    def _moved(
        self, z: np.ndarray, dx: np.ndarray | None, at: np.ndarray, ends: np.ndarray, step: float
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """z (k + nx, d) with one of the columns `at` at its end in each row, then dx with one start moved by a step."""
        k, nx = len(at), 0 if dx is None else dx.shape[1]
        zs = np.tile(z, (k + nx, 1))
        zs[np.arange(k), at] = ends[at]
        if dx is None:
            return zs, None
        moves = np.tile(dx, (k + nx, 1, 1))
        for j in range(nx):
            moves[k + j, :, j] += step
        return zs, moves


def _finite(r: np.ndarray) -> np.ndarray:
    return np.nan_to_num(np.clip(r, -100 * FAR, 100 * FAR), nan=FAR)
