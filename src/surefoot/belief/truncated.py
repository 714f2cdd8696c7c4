"""Truncated: independent normals in y(e), cut off at both ends."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np

from surefoot import special
from surefoot.belief.abstract import Belief
from surefoot.belief.checks import (
    check_physical,
    check_range,
    comparable,
    freeze,
    no_kl,
    positive,
    require,
    rows,
    tail,
    within,
)
from surefoot.rng import Draw


@final
@dataclass(frozen=True, eq=False)
class Truncated(Belief):
    """Independent y ~ N(mu, spread^2) cut off at y(low) and y(high), not clipped onto them; low == high fixes one.

    Integrals are sums over 128 nodes in t = (y - mu) / spread within 9 of 0.
    """

    mu: np.ndarray
    spread: np.ndarray
    low: np.ndarray
    high: np.ndarray

    def __post_init__(self) -> None:
        check_range(self)
        for name in ("mu", "spread"):
            freeze(self, name, (len(self.params),))
        require(self, "spread", self.spread > 0, "more than 0")
        check_physical(self, "mu", self.params.y(self.low), self.params.y(self.high))

    @cached_property
    def _cut(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Each (d,): the cuts in t, and the probabilities of N(0, 1) below them."""
        ends = np.array([(self.params.y(end) - self.mu) / self.spread for end in (self.low, self.high)])
        return ends, special.normal_cdf(ends[0]), special.normal_cdf(ends[1])

    @cached_property
    def _nodes(self) -> tuple[np.ndarray, np.ndarray]:
        """y (128, d) and weights that sum to 1: E[f(y)] = sum w f(y)."""
        t, w = special.normal_nodes(*self._cut[0])
        return self.mu + self.spread * t, w

    def quantile(self, share: np.ndarray | float) -> np.ndarray:
        """e below which lies so much of each one's probability."""
        ends, below, until = self._cut
        t = special.normal_quantile(np.clip(below + (until - below) * share, 1e-300, 1 - 1e-16))
        return np.clip(self.params.e(self.mu + self.spread * np.clip(t, *ends)), self.low, self.high)

    def _log_each(self, y: np.ndarray) -> np.ndarray:
        """(n, d) log density of each y; 0 where it is fixed."""
        _, below, until = self._cut
        free = self.low < self.high
        scale = np.log(self.spread * math.sqrt(2 * math.pi) * np.where(free, until - below, 1.0))
        return np.where(free, -0.5 * ((y - self.mu) / self.spread) ** 2 - scale, 0.0)

    def sample(self, rng: Draw, n: int) -> np.ndarray:
        return self.quantile(rng.random((n, len(self.params))))

    def log_prob(self, e: np.ndarray) -> np.ndarray:
        e, free = rows(self, e), self.low < self.high
        y = self.params.y(np.clip(e, self.low, self.high))
        jacobian = np.where(self.params.log & free, y, 0.0)
        return np.where(self.inside(e), (self._log_each(y) - jacobian).sum(-1), -np.inf)

    def entropy(self) -> float:
        y, w = self._nodes
        h = float((w * (np.where(self.params.log, y, 0.0) - self._log_each(y))).sum())
        return h if (self.low < self.high).all() else -math.inf

    def kl(self, other: Belief) -> float:
        comparable(self, other)
        if not isinstance(other, Truncated):
            raise no_kl(self, other)
        fixed = (self.low == self.high) != (other.low == other.high)
        if (fixed | (self.low < other.low) | (other.high < self.high)).any():
            return math.inf
        y, w = self._nodes
        return float((w * (self._log_each(y) - other._log_each(y))).sum())

    def widen(self, factor: float) -> "Truncated":
        y, w = self._nodes
        centre = (w * y).sum(0)
        scaled = lambda y: self.params.e(centre + positive(factor) * (y - centre))  # noqa: E731
        low, high = (scaled(self.params.y(end)) for end in (self.low, self.high))
        mu = np.clip(self.params.y(scaled(self.mu)), self.params.y(low), self.params.y(high))
        return Truncated(self.params, mu, self.spread * factor, low, high)

    def inside(self, e: np.ndarray) -> np.ndarray:
        return within(rows(self, e), self.low, self.high)

    def support(self, level: float = 0.9999) -> tuple[np.ndarray, np.ndarray]:
        return self.low, self.high

    def estimate(self) -> np.ndarray:
        """The mode in y."""
        return np.clip(self.params.e(self.mu), self.low, self.high)

    def mean(self) -> np.ndarray:
        y, w = self._nodes
        return (w * self.params.e(y)).sum(0)

    def sd(self) -> np.ndarray:
        y, w = self._nodes
        return np.sqrt((w * (self.params.e(y) - self.mean()) ** 2).sum(0))

    def interval(self, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        return self.quantile(tail(level)), self.quantile(1 - tail(level))
