"""How sure a fit may be: the covariance of e that a log leaves, and what the log does not tell.

    cov = F^-1 where what is left is noise, F = J^T J            cov = F^-1 B F^-1 where it is not

B is the gradient's own spread: from blocks of time, from what each channel would have otherwise, and widened to all e
that predict within 1 % as well. Along what no row of J sees, a belief stays as wide as it was.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy import stats

from surefoot.belief import Gaussian
from surefoot.real2sim.identify.fit import Problem, Space
from surefoot.real2sim.identify.noise import WHITE, all_white

NARROW = 0.05  # of the range: an interval whose half is less was determined by the log
KNOWN = 0.25  # of the value: or whose half is less than this
TOLD = 0.1  # of what was believed before, and of what its parts alone are known to: a combination that the log tells
AS_GOOD = 0.01  # of the error: a model that is wrong anyway and predicts this nearly as well is as good
WIDTH = 1 / np.sqrt(12)  # sd of a uniform belief, of its range


@dataclass(frozen=True)
class Certainty:
    cov: np.ndarray
    """(d, d) of z"""
    white: bool
    """is what is left noise?"""
    cost: float
    """mean square of what is left, in units of the noise"""


def certainty(problem: Problem, p: np.ndarray) -> Certainty:
    """At a minimum p of a problem."""
    J, raw = problem.jacobian(p, np.zeros(0)), problem.raw(p)
    r = np.concatenate([n.whiten(x).ravel() for n, x in zip(problem.noise, raw)])
    J, r = _without_starts(problem, J, r)
    white = all_white(problem.noise, raw) and _agree(problem, J, r)
    F = J.T @ J
    B = F if white else _between_blocks(problem, J, r) + _between_channels(problem, J, r) + 2 * AS_GOOD * (r @ r) * F
    return Certainty(_covariance(F, B, np.clip(p[: problem.d], 0.0, 1.0)), white, float(r @ r) / len(r))


def _without_starts(problem: Problem, J: np.ndarray, r: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """J and r with what the windows' unknown starts could explain taken out: each window by a projection of its own."""
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
    """B = sum of g g^T over blocks of time, g = J^T r of a block: as noisy as the gradient really is."""
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
    """Of each channel of each log: g = J^T r, where it would move e to, and F = J^T J, how strongly."""
    row = 0
    for case in problem.cases:
        rows = slice(row, row + len(case.pieces) * case.rows * case.channels)
        Jc, rc = J[rows].reshape(-1, case.channels, problem.d), r[rows].reshape(-1, case.channels)
        for c in range(case.channels):
            yield Jc[:, c].T @ rc[:, c], Jc[:, c].T @ Jc[:, c]
        row = rows.stop


def _agree(problem: Problem, J: np.ndarray, r: np.ndarray) -> bool:
    """Whether all channels would have the same e, but for noise: sum g^T F^-1 g is chi-square where they would.

    Noise that is smooth enough looks white once it is whitened, even where it is one joint's own friction.
    """
    total, rank = 0.0, -problem.d
    for g, F in _channels(problem, J, r):
        values, vectors = np.linalg.eigh(F)
        seen = values > 1e-9 * max(float(values.max()), 1e-30)
        total += float(np.square(g @ vectors[:, seen]) @ (1 / values[seen]))
        rank += int(seen.sum())
    return rank <= 0 or bool(stats.chi2.sf(total, rank) > WHITE)


def _between_channels(problem: Problem, J: np.ndarray, r: np.ndarray) -> np.ndarray:
    """B as above, over channels: where joints that share a number would have it different, the log does not tell it.

    What the model has not got stays the same in one joint for the whole log, so blocks of time agree on what is wrong.
    """
    g = np.array([g for g, _ in _channels(problem, J, r)])
    return g.T @ g * len(g) / max(len(g) - 1, 1)


def _covariance(F: np.ndarray, B: np.ndarray, z: np.ndarray) -> np.ndarray:
    """cov of z: the sandwich along what the log tells, the belief's own width along what it does not."""
    values, vectors = np.linalg.eigh(F)
    before = _width(vectors, z)
    seen = values > max(float(values.max()), 0.0) * 1e-13
    seen &= values > 0
    root = vectors[:, seen] / values[seen]
    data = root.T @ B @ root if seen.any() else np.zeros((0, 0))  # covariance along the seen directions
    # in those coordinates the belief before adds its precision to each
    inner = np.linalg.inv(np.linalg.inv(data + 1e-18 * np.eye(len(data))) + np.diag(1 / before[seen] ** 2))
    cov = vectors[:, seen] @ inner @ vectors[:, seen].T + (vectors[:, ~seen] * before[~seen] ** 2) @ vectors[:, ~seen].T
    return (cov + cov.T) / 2


def _width(vectors: np.ndarray, z: np.ndarray) -> np.ndarray:
    """(k,) root mean square distance from z of all that a box of side 1 holds along each column; at least a side's own sd.

    Along a diagonal there is more room than along a side: three masses and a force may all be twice as large. And a fit
    that does not care where it stops may stop at either end of it.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        ends = np.stack([-z[:, None] / vectors, (1 - z[:, None]) / vectors])  # where each side is met
    ends = np.where(np.abs(vectors) > 1e-12, ends, [[[-np.inf]], [[np.inf]]])
    low, high = ends.min(0).max(0), ends.max(0).min(0)  # (k,): low <= 0 <= high
    square = (high**2 + high * low + low**2) / 3
    return np.sqrt(np.maximum(square, WIDTH**2))


def combinations(cov: np.ndarray, space: Space, loose: np.ndarray) -> tuple[str, ...]:
    """Combinations that the log tells, of the free parameters `loose`, which alone it does not."""
    if len(loose) < 2:
        return ()
    here = cov[np.ix_(loose, loose)]
    alone, found = np.sqrt(np.diag(here)), []
    for vector in np.linalg.eigh(here)[1].T:
        shares = (vector / np.abs(vector).max()).round(2)
        shares[np.abs(shares) < 0.1] = 0.0
        big = np.flatnonzero(shares)
        sd = float(np.sqrt(shares @ here @ shares))
        if len(big) > 1 and sd < TOLD * min(WIDTH, float(alone[big].min())):
            words = " ".join(f"{shares[i]:+.2f} {_called(space, loose[i])}" for i in big)
            found.append(f"{words} (each in units of its range; sd {sd:.2g})")
    return tuple(found)


def _called(space: Space, i: int) -> str:
    """A free parameter as it enters a combination: by its logarithm where that is its scale."""
    name = space.names[i]
    return f"ln {name}" if space.params.items[space.params.index(name)].log else name


def belief_of(space: Space, e: np.ndarray, cov: np.ndarray) -> Gaussian:
    """cov of z as a Gaussian in y: log e where the scale is log."""
    scale = (space.params.y(space.high) - space.params.y(space.low))[space.free]
    full = np.zeros((len(space.params), len(space.params)))
    full[np.ix_(space.free, space.free)] = cov * np.outer(scale, scale)
    return Gaussian.around(space.params, e, full)


def determined(space: Space, i: int, sd: float, value: float) -> bool:
    """Whether the log told a parameter: its 95 % interval, in the parameter's own scale, is narrow by itself.

    An interval that is narrower than a belief over three decades may still say no more than 'somewhere about 0.1'.
    """
    q, half = space.params.items[i], 1.96 * sd
    if half <= NARROW:
        return True
    low, high = float(space.low[i]), float(space.high[i])
    return bool(half * np.log(high / low) <= np.log1p(KNOWN) if q.log else half * (high - low) <= KNOWN * abs(value))
