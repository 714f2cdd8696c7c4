"""Particles: weighted points, as a sampler or a filter leaves them."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np

from surefoot.belief.abstract import Belief
from surefoot.belief.checks import check_physical, comparable, freeze, no_kl, positive, require, rows, tail, within
from surefoot.errors import SurefootError
from surefoot.rng import Draw


@final
@dataclass(frozen=True, eq=False)
class Particles(Belief):
    """e is points[i] with probability weights[i] / sum(weights): a discrete law, so its numbers are discrete ones.

    log_prob is the log of the probability at exactly e. entropy() is that of the weights, -sum p log p, equal points
    counted apart, hence exp(entropy) is an effective number of particles. inside() is the bounding box of the points
    that have weight.
    """

    points: np.ndarray
    weights: np.ndarray

    def __post_init__(self) -> None:
        n = len(np.atleast_1d(np.asarray(self.weights, dtype=object)))
        freeze(self, "weights", (n,))
        require(self, "weights", self.weights >= 0, "at least 0")
        if not 0 < self.weights.sum() < math.inf:
            raise SurefootError(f"particles.weights: found total {self.weights.sum()}, expected a finite total above 0")
        freeze(self, "points", (n, len(self.params)))
        check_physical(self, "points", self.params.low, self.params.high)

    @cached_property
    def _p(self) -> np.ndarray:
        return self.weights / self.weights.sum()  # (N,)

    def sample(self, rng: Draw, n: int) -> np.ndarray:
        cdf = np.cumsum(self._p)
        return self.points[np.searchsorted(cdf / cdf[-1], rng.random(n), side="right")]

    def log_prob(self, e: np.ndarray) -> np.ndarray:
        match = (rows(self, e)[:, None, :] == self.points).all(-1)  # (n, N)
        with np.errstate(divide="ignore"):
            return np.log((match * self._p).sum(-1))

    def entropy(self) -> float:
        p = self._p[self._p > 0]
        return float(-(p * np.log(p)).sum())

    def kl(self, other: Belief) -> float:
        comparable(self, other)
        if not isinstance(other, Particles):
            raise no_kl(self, other)
        p, points = self._p[self._p > 0], self.points[self._p > 0]
        return float((p * (self.log_prob(points) - other.log_prob(points))).sum())

    def widen(self, factor: float) -> "Particles":
        y = self.params.y(self.points)
        centre = self._p @ y
        return Particles(self.params, self.params.e(centre + positive(factor) * (y - centre)), self.weights)

    def inside(self, e: np.ndarray) -> np.ndarray:
        return within(rows(self, e), *self.support())

    def support(self, level: float = 0.9999) -> tuple[np.ndarray, np.ndarray]:
        possible = self.points[self._p > 0]
        return possible.min(0), possible.max(0)

    def estimate(self) -> np.ndarray:
        """The heaviest point; of equally heavy ones, the one nearest to the mean, in standard deviations of y."""
        y = self.params.y(self.points)
        away = y - self._p @ y
        sd = np.sqrt(self._p @ away**2)
        distance = np.square(away / np.where(sd > 0, sd, 1.0)).sum(1)
        return self.points[np.lexsort((distance, -self.weights))[0]].copy()

    def mean(self) -> np.ndarray:
        return self._p @ self.points

    def sd(self) -> np.ndarray:
        return np.sqrt(self._p @ (self.points - self.mean()) ** 2)

    def interval(self, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        p, low, high = tail(level), np.empty(len(self.params)), np.empty(len(self.params))
        for j, column in enumerate(self.points.T):
            order = np.argsort(column)
            cdf = np.cumsum(self._p[order])
            low[j], high[j] = column[order[np.searchsorted(cdf / cdf[-1], [p, 1 - p])]]
        return low, high
