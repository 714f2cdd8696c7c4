"""Uncertainty of a fit: the covariance of e, and which unknowns and combinations a log determines.

    cov = F^-1 where residuals are white noise, F = J^T J            cov = F^-1 B F^-1 (sandwich) where they are not

B is the covariance of the gradient: between blocks of time, between channels, and widened to every e within 1 % of the
best error. Along directions that J does not see, the prior width stays. J is made of differences, and differs by E from the
one with half the steps: where |J v| is no more than a few |E v|, the log says nothing along v, however little noise it has.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import chdtrc

from surefoot.belief import Gaussian
from surefoot.real2sim.identify.fit import Problem, Space, scales
from surefoot.real2sim.identify.noise import WHITE, Noise, all_white

NARROW = 0.05  # of the range: an unknown with a smaller half-interval is determined
KNOWN = 0.25  # of the value: so is one with a half-interval below this
TOGETHER = 0.1  # of the prior sd and of its parts' own sds: a combination with a smaller sd is determined
AS_GOOD = 0.01  # of the error: a model with missing physics that predicts this nearly as well is as good
SEEN = 3.0  # times E: what J must be along a direction, to be more than the error of its differences
FINEST = 1e-6  # of a range, of a channel's spread: the smallest sd, for no simulation is right to more
ROUNDING = 0.1  # mean square residual, in units of the noise: less is where noise is smaller than FINEST
WIDTH = 1 / np.sqrt(12)  # sd of a uniform distribution, of its range


@dataclass(frozen=True)
class Uncertainty:
    cov: np.ndarray
    """(d, d) of z"""
    white: bool
    """whether residuals are white noise"""
    cost: float
    """mean square residual, in units of the noise"""


def uncertainty(problem: Problem, p: np.ndarray) -> Uncertainty:
    """Of a fit that ended at p. Noise counts as at least FINEST of a channel's spread: residuals below that are rounding."""
    least = (FINEST * scales(c).s for c in problem.cases)
    problem = replace(problem, noise=tuple(Noise(np.maximum(n.s, s), n.rho) for n, s in zip(problem.noise, least)))
    J, raw = problem.jacobian(p), problem.raw(p)
    r = np.concatenate([n.whiten(x).ravel() for n, x in zip(problem.noise, raw)])
    E = _without_starts(problem, replace(problem, step=problem.step / 2).jacobian(p), r)[0]
    J, r = _without_starts(problem, J, r)
    E -= J
    white = r @ r < ROUNDING * len(r) or (all_white(problem.noise, raw) and _agree(problem, J, r))
    F = J.T @ J
    B = F if white else _between_blocks(problem, J, r) + _between_channels(problem, J, r) + 2 * AS_GOOD * (r @ r) * F
    return Uncertainty(_covariance(F, B, np.clip(p[: problem.d], 0.0, 1.0), E.T @ E), white, float(r @ r) / len(r))


def _without_starts(problem: Problem, J: np.ndarray, r: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """J and r with the windows' unknown starts projected out, window by window."""
    out_J, out_r, row = [], [], 0
    for case, _, _, at in problem.split(np.zeros(problem.size)):
        height = case.rows * case.channels
        for i in range(len(case.pieces)):
            rows = slice(row, row + height)
            Je, re = J[rows, : problem.d], r[rows]
            if case.nx:
                Q, R = np.linalg.qr(J[rows, at + i * case.nx : at + (i + 1) * case.nx])
                Q = Q[:, np.abs(np.diag(R)) > 1e-9 * max(float(np.abs(np.diag(R)).max()), 1e-30)]
                Je, re = Je - Q @ (Q.T @ Je), re - Q @ (Q.T @ re)
            out_J.append(Je)
            out_r.append(re)
            row += height
    return np.concatenate(out_J), np.concatenate(out_r)


def _between_blocks(problem: Problem, J: np.ndarray, r: np.ndarray, blocks: int = 30) -> np.ndarray:
    """B = sum of g g^T over blocks of time, g = J^T r of a block: the gradient's empirical covariance."""
    B, row = np.zeros((problem.d, problem.d)), 0
    total = sum(len(c.pieces) * c.rows for c in problem.cases)
    for case in problem.cases:
        count = len(case.pieces) * case.rows
        edges = np.linspace(0, count, max(2, round(blocks * count / total)) + 1).astype(int)
        for a, b in zip(edges[:-1], edges[1:]):
            rows = slice(row + a * case.channels, row + b * case.channels)
            g = J[rows].T @ r[rows]
            B += np.outer(g, g)
        row += count * case.channels
    return B * blocks / max(blocks - problem.d, 1)


def _channels(problem: Problem, J: np.ndarray, r: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Of each channel of each log: its gradient g = J^T r and its information F = J^T J."""
    row = 0
    for case in problem.cases:
        rows = slice(row, row + len(case.pieces) * case.rows * case.channels)
        Jc, rc = J[rows].reshape(-1, case.channels, problem.d), r[rows].reshape(-1, case.channels)
        for c in range(case.channels):
            yield Jc[:, c].T @ rc[:, c], Jc[:, c].T @ Jc[:, c]
        row = rows.stop


def _agree(problem: Problem, J: np.ndarray, r: np.ndarray) -> bool:
    """Whether all channels agree on e within the noise: then sum g^T F^-1 g is chi-square.

    A smooth model error looks white once it is whitened, even where it is the friction of one joint.
    """
    total, rank = 0.0, -problem.d
    for g, F in _channels(problem, J, r):
        values, vectors = np.linalg.eigh(F)
        seen = values > 1e-9 * max(float(values.max()), 1e-30)
        total += float(np.square(g @ vectors[:, seen]) @ (1 / values[seen]))
        rank += int(seen.sum())
    return rank <= 0 or bool(chdtrc(rank, total) > WHITE)


def _between_channels(problem: Problem, J: np.ndarray, r: np.ndarray) -> np.ndarray:
    """B as above, between channels: joints that share an unknown and disagree about it make it uncertain.

    Missing physics in one joint is the same in all of the log, so blocks of time agree on a wrong value.
    """
    g = np.array([g for g, _ in _channels(problem, J, r)])
    return g.T @ g * len(g) / max(len(g) - 1, 1)


def _covariance(F: np.ndarray, B: np.ndarray, z: np.ndarray, E: np.ndarray) -> np.ndarray:
    """cov of z: the sandwich along directions that the log informs, the prior width along the others.

    E: as F, of the error of J. Directions of an exact degeneracy are those of F, whose least eigenvalues are this error's.
    """
    values, vectors = np.linalg.eigh(F)
    before = _width(vectors, z)
    seen = values > max(float(values.max()), 0.0) * 1e-13
    seen &= values > SEEN**2 * np.maximum(np.einsum("ik,ij,jk->k", vectors, E, vectors), 0.0)
    seen &= values > 0
    root = vectors[:, seen] / values[seen]
    data = root.T @ B @ root if seen.any() else np.zeros((0, 0))  # covariance along the informed directions
    # the prior adds its precision to each of them
    inner = np.linalg.inv(np.linalg.inv(data + FINEST**2 * np.eye(len(data))) + np.diag(1 / before[seen] ** 2))
    cov = vectors[:, seen] @ inner @ vectors[:, seen].T + (vectors[:, ~seen] * before[~seen] ** 2) @ vectors[:, ~seen].T
    return (cov + cov.T) / 2


def _width(vectors: np.ndarray, z: np.ndarray) -> np.ndarray:
    """(k,) prior sd along each column: root mean square distance from z within the unit box, at least WIDTH.

    A diagonal of the box is longer than a side, as where three masses and a force are all twice as large. And a fit that
    is indifferent along a line may stop at either end of it.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        ends = np.stack([-z[:, None] / vectors, (1 - z[:, None]) / vectors])  # where the line leaves each side
    ends = np.where(np.abs(vectors) > 1e-12, ends, [[[-np.inf]], [[np.inf]]])
    low, high = ends.min(0).max(0), ends.max(0).min(0)  # (k,): low <= 0 <= high
    square = (high**2 + high * low + low**2) / 3
    return np.sqrt(np.maximum(square, WIDTH**2))


def combinations(cov: np.ndarray, space: Space, loose: np.ndarray) -> tuple[str, ...]:
    """Combinations that the log determines, of the free parameters `loose`, which it does not determine one by one."""
    if len(loose) < 2:
        return ()
    here = cov[np.ix_(loose, loose)]
    alone, found = np.sqrt(np.diag(here)), []
    for vector in np.linalg.eigh(here)[1].T:
        shares = (vector / np.abs(vector).max()).round(2)
        shares[np.abs(shares) < 0.1] = 0.0
        big = np.flatnonzero(shares)
        sd = float(np.sqrt(shares @ here @ shares))
        if len(big) > 1 and sd < TOGETHER * min(WIDTH, float(alone[big].min())):
            words = " ".join(f"{shares[i]:+.2f} {_called(space, loose[i])}" for i in big)
            found.append(f"{words} (each in units of its range; sd {sd:.2g})")
    return tuple(found)


def _called(space: Space, i: int) -> str:
    """The name of a free parameter in a combination: with ln where its scale is logarithmic."""
    name = space.names[i]
    return f"ln {name}" if space.params.items[space.params.index(name)].log else name


def belief_of(space: Space, e: np.ndarray, cov: np.ndarray) -> Gaussian:
    """cov of z as a Gaussian in y: log e where the scale is log."""
    scale = (space.params.y(space.high) - space.params.y(space.low))[space.free]
    full = np.zeros((len(space.params), len(space.params)))
    full[np.ix_(space.free, space.free)] = cov * np.outer(scale, scale)
    return Gaussian.around(space.params, e, full)


def determined(space: Space, i: int, sd: float, value: float) -> bool:
    """Whether the log determines a parameter: its 95 % interval is narrow against its range, or against its value.

    On a range of three decades, an interval that is narrower than the prior may still say little.
    """
    q, half = space.params.items[i], 1.96 * sd
    if half <= NARROW:
        return True
    low, high = float(space.low[i]), float(space.high[i])
    return bool(half * np.log(high / low) <= np.log1p(KNOWN) if q.log else half * (high - low) <= KNOWN * abs(value))
