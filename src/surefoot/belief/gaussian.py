"""Gaussian: y(e) ~ N(mu, cov), log-normal on log dimensions."""

import math
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist
from typing import final

import numpy as np

from surefoot.belief.abstract import Belief
from surefoot.belief.checks import check_physical, comparable, freeze, no_kl, positive, rows, tail, within
from surefoot.errors import SurefootError
from surefoot.params import Params
from surefoot.rng import Draw
from surefoot.special import chi2_quantile, normal_cdf, normal_nodes


@final
@dataclass(frozen=True, eq=False)
class Gaussian(Belief):
    """y ~ N(mu, cov), correlated; mu and cov are in y-space. A zero row and column of cov fixes a parameter, as in Box.

    log_prob, entropy and kl are those of N(mu, cov), whose tails may pass the physical bounds. Draws beyond a bound are
    clipped onto it, coordinate by coordinate; mean, sd and interval are those of the clipped draws. mu itself lies
    inside the bounds. inside() is the 95 % ellipsoid within the bounds.
    """

    mu: np.ndarray
    cov: np.ndarray

    def __post_init__(self) -> None:
        d = len(self.params)
        freeze(self, "mu", (d,))
        check_physical(self, "mu", self.params.y(self.params.low), self.params.y(self.params.high))
        freeze(self, "cov", (d, d))
        _check_covariance(self.cov)

    @staticmethod
    def around(params: Params, e: np.ndarray, cov: np.ndarray) -> "Gaussian":
        """Median e in physical units, cov of y."""
        return Gaussian(params, params.y(np.asarray(e, float)), cov)

    @cached_property
    def _factor(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
        """free (d,), s (r,), L (r, r), log det cov: cov = (s L)(s L)^T over the free y, L is of the correlation."""
        free = np.diag(self.cov) > 0
        s = np.sqrt(np.diag(self.cov)[free])
        L = np.linalg.cholesky(self.cov[np.ix_(free, free)] / np.outer(s, s))
        return free, s, L, float(2 * (np.log(np.diag(L)).sum() + np.log(s).sum()))

    def _distance2(self, y: np.ndarray) -> np.ndarray:
        """(n,) squared Mahalanobis distance; inf where y leaves a fixed value or is not finite."""
        (free, s, L, _), dy = self._factor, y - self.mu
        on = (np.abs(dy) <= 1e-12 * np.maximum(1.0, np.abs(self.mu)))[:, ~free].all(-1) & np.isfinite(dy).all(-1)
        white = np.linalg.solve(L, np.where(on[:, None], dy, 0.0)[:, free].T / s[:, None])  # (r, n)
        return np.where(on, (white**2).sum(0), np.inf)

    def sample(self, rng: Draw, n: int) -> np.ndarray:
        free, s, L, _ = self._factor
        root = np.zeros_like(self.cov)
        root[np.ix_(free, free)] = s[:, None] * L
        z = rng.standard_normal((n, len(self.params)))
        dy = np.zeros_like(z)
        # term by term: a matrix product or a sum adds in another order for another n
        for k, column in enumerate(root.T):
            dy += z[:, k, None] * column
        return self.params.e(self.mu + dy)

    def log_prob(self, e: np.ndarray) -> np.ndarray:
        (free, s, _, log_det), y = self._factor, self.params.y(rows(self, e))
        jacobian = np.where(np.isfinite(y) & free & self.params.log, y, 0.0).sum(-1)
        return -0.5 * (self._distance2(y) + log_det + len(s) * math.log(2 * math.pi)) - jacobian

    def entropy(self) -> float:
        free, s, _, log_det = self._factor
        h_y = 0.5 * (log_det + len(s) * math.log(2 * math.pi * math.e)) if free.all() else -math.inf
        return h_y + float(self.mu[self.params.log].sum())

    def kl(self, other: Belief) -> float:
        comparable(self, other)
        if not isinstance(other, Gaussian):
            raise no_kl(self, other)
        (free, s, L, log_det), (other_free, other_s, other_L, other_log_det) = self._factor, other._factor
        if not np.array_equal(free, other_free):
            return math.inf
        ratio = np.linalg.solve(other_L, L * (s / other_s)[:, None])  # (r, r)
        spread = (ratio**2).sum() - len(s) + other_log_det - log_det
        return float(0.5 * (spread + other._distance2(self.mu[None])[0]))

    def widen(self, factor: float) -> "Gaussian":
        return Gaussian(self.params, self.mu, self.cov * positive(factor) ** 2)

    def inside(self, e: np.ndarray) -> np.ndarray:
        e = rows(self, e)
        near = self._distance2(self.params.y(e)) <= chi2_quantile(0.95, len(self._factor[1]))
        return near & within(e, self.params.low, self.params.high)

    def mean(self) -> np.ndarray:
        e, w = self._nodes
        return (w * e).sum(0)

    def sd(self) -> np.ndarray:
        e, w = self._nodes
        return np.sqrt((w * (e - self.mean()) ** 2).sum(0))

    @cached_property
    def _nodes(self) -> tuple[np.ndarray, np.ndarray]:
        """e (130, d) and weights: E[f(e)] = sum w f(e) of each e, clipped into the bounds; two nodes are the bounds."""
        p, s = self.params, np.sqrt(np.diag(self.cov))
        with np.errstate(divide="ignore", invalid="ignore"):
            a, b = (np.where(s > 0, (p.y(end) - self.mu) / s, far) for end, far in ((p.low, -9.0), (p.high, 9.0)))
        t, w = normal_nodes(a, b)
        below, above = normal_cdf(a), normal_cdf(-b)
        e = np.concatenate([p.low[None], p.e(self.mu + s * t), p.high[None]])
        return e, np.concatenate([below[None], (1 - below - above) * w, above[None]])

    def support(self, level: float = 0.9999) -> tuple[np.ndarray, np.ndarray]:
        return self.interval(level)

    def estimate(self) -> np.ndarray:
        """The median, which is the mode in y: what a fit found."""
        return self.params.e(self.mu)

    def interval(self, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        half = -NormalDist().inv_cdf(tail(level)) * np.sqrt(np.diag(self.cov))
        return self.params.e(self.mu - half), self.params.e(self.mu + half)


def _check_covariance(cov: np.ndarray) -> None:
    """Symmetric, and positive definite once rows and columns of zeros (fixed parameters) are left out."""
    var = np.diag(cov)
    if (var < 0).any() or cov[var == 0].any() or cov[:, var == 0].any():
        raise SurefootError(
            "gaussian.cov: found a variance below 0, or 0 beside a covariance; expected positive definite"
        )
    unit = np.sqrt(np.where(var > 0, var, 1.0))
    with np.errstate(over="ignore"):
        correlation = (cov / np.outer(unit, unit))[np.ix_(var > 0, var > 0)]
    if np.abs(correlation).max(initial=0.0) > 1 + 1e-9:
        raise SurefootError("gaussian.cov: found a correlation beyond -1..1, expected positive definite")
    if np.abs(correlation - correlation.T).max(initial=0.0) > 1e-9:
        raise SurefootError("gaussian.cov: found an asymmetric matrix, expected symmetric")
    least = np.linalg.eigvalsh(correlation).min(initial=1.0)
    if least < 1e-12:
        raise SurefootError(f"gaussian.cov: found correlation eigenvalue {least:.3g}, expected positive definite")
