"""Box: uniform between low and high, on the scale y(e). It and Beta are both Ranged: a Beta law between two ends."""

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from surefoot.arrays import namespace
from surefoot.belief.abstract import Belief
from surefoot.belief.checks import check_range, comparable, no_kl, positive, rows, tail, within
from surefoot.errors import SurefootError
from surefoot.params import Params
from surefoot.rng import Draw
from surefoot.special import beta_quantile, exp_moments, log_beta, log_moment


class Ranged(Belief):
    """y = y(low) + z (y(high) - y(low)) with independent z ~ Beta(a, b): the law that Box and Beta share.

    low == high fixes a parameter: log_prob is then a density over the other dimensions, and the entropy is -inf.
    """

    low: np.ndarray
    high: np.ndarray

    @abstractmethod
    def _shape(self) -> tuple[np.ndarray, np.ndarray]:
        """(a, b), each (d,)."""

    @abstractmethod
    def _draw(self, rng: Draw, n: int) -> np.ndarray:
        """(n, d) draws of z."""

    @cached_property
    def _width(self) -> np.ndarray:
        return self.params.y(self.high) - self.params.y(self.low)  # (d,)

    @cached_property
    def _least(self) -> np.ndarray:
        return self.params.y(self.low)  # (d,)

    def at(self, z: np.ndarray) -> np.ndarray:
        """e at a share z of the way from low to high, straight in y."""
        xp = namespace(z)
        least, width, low, high = (xp.asarray(a) for a in (self._least, self._width, self.low, self.high))
        return xp.clip(self.params.e(least + z * width), low, high)

    def beyond(self, z: np.ndarray) -> np.ndarray:
        """The same for any z: below 0 and above 1, outside of the range."""
        return np.asarray(self.params.e(self._least + z * self._width))

    def share(self, e: np.ndarray) -> np.ndarray:
        """The inverse of at: 0 at low, 1 at high; where both are the same, 0."""
        width = self._width
        return np.where(width > 0, (self.params.y(e) - self._least) / np.where(width > 0, width, 1.0), 0.0)

    def sample(self, rng: Draw, n: int) -> np.ndarray:
        return self.at(self._draw(rng, n))

    def log_prob(self, e: np.ndarray) -> np.ndarray:
        (a, b), e, free = self._shape(), rows(self, e), self.low < self.high
        y, width = self.params.y(np.clip(e, self.low, self.high)), np.where(free, self._width, 1.0)
        z = np.clip((y - self.params.y(self.low)) / width, 0.0, 1.0)
        with np.errstate(divide="ignore", invalid="ignore"):  # at an edge where a or b is 1: 0 log 0 = 0
            shape = np.where(a == 1, 0.0, (a - 1) * np.log(z)) + np.where(b == 1, 0.0, (b - 1) * np.log1p(-z))
        each = shape - log_beta(a, b) - np.log(width) - np.where(self.params.log, y, 0.0)
        return np.where(self.inside(e), np.where(free, each, 0.0).sum(-1), -np.inf)

    def entropy(self) -> float:
        a, b = self._shape()
        with np.errstate(divide="ignore"):
            h_y = np.log(self._width) + log_beta(a, b) + log_moment(a, b, 1 - a, 1 - b)
        y_mean = self.params.y(self.low) + self._width * a / (a + b)
        return float(h_y.sum() + y_mean[self.params.log].sum())

    def kl(self, other: Belief) -> float:
        """Closed where the supports are equal, or other is uniform around self's; inf where self's sticks out."""
        comparable(self, other)
        if not isinstance(other, Ranged):
            raise no_kl(self, other)
        (a, b), (c, d), free = self._shape(), other._shape(), self.low < self.high
        same = (self.low == other.low) & (self.high == other.high)
        if (~same & (~free | (self.low < other.low) | (other.high < self.high))).any():
            return math.inf
        if (~same & ((c != 1) | (d != 1))).any():
            raise no_kl(self, other, " with different supports")
        each = log_beta(c, d) - log_beta(a, b) + log_moment(a, b, a - c, b - d)
        return float((each[free] + np.log(other._width[free]) - np.log(self._width[free])).sum())

    def inside(self, e: np.ndarray) -> np.ndarray:
        return within(rows(self, e), self.low, self.high)

    def support(self, level: float = 0.9999) -> tuple[np.ndarray, np.ndarray]:
        return self.low, self.high

    def mean(self) -> np.ndarray:
        a, b = self._shape()
        growth, _ = exp_moments(np.where(self.params.log, self._width, 0.0), a, b)
        return np.where(self.params.log, self.low * (1 + growth), self.low + (self.high - self.low) * a / (a + b))

    def sd(self) -> np.ndarray:
        a, b = self._shape()
        _, growth = exp_moments(np.where(self.params.log, self._width, 0.0), a, b)
        straight = (self.high - self.low) * np.sqrt(a * b / (a + b + 1)) / (a + b)
        return np.where(self.params.log, self.low * growth, straight)

    def interval(self, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        p, shape = tail(level), list(zip(*self._shape()))
        low = np.array([beta_quantile(p, a, b) for a, b in shape])
        high = np.array([1 - beta_quantile(p, b, a) for a, b in shape])
        return self.at(low), self.at(high)

    def _widened(self, factor: float) -> tuple[np.ndarray, np.ndarray]:
        (a, b), (low, high) = self._shape(), (self.params.y(self.low), self.params.y(self.high))
        centre, free = low + self._width * a / (a + b), self.low < self.high
        low, high = (self.params.e(centre + positive(factor) * (y - centre)) for y in (low, high))
        return np.where(free, low, self.low), np.where(free, high, self.high)


@dataclass(frozen=True, eq=False)
class Box(Ranged):
    """Uniform, and log-uniform (median sqrt(low high)) on log dimensions: a = b = 1."""

    low: np.ndarray
    high: np.ndarray

    def __post_init__(self) -> None:
        check_range(self)

    @staticmethod
    def full(params: Params) -> "Box":
        """All that is physically possible."""
        return Box(params, params.low, params.high)

    @staticmethod
    def ranges(params: Params, ranges: Mapping[str, tuple[float, float]]) -> "Box":
        """The named ranges; what is not named stays at its nominal value."""
        low = params.vector({name: r[0] for name, r in ranges.items()})
        return Box(params, low, params.vector({name: r[1] for name, r in ranges.items()}))

    @staticmethod
    def around(params: Params, fraction: float) -> "Box":
        """As wide in y as `fraction` of the bounds, about nominal and cut at the bounds; 0 is the nominal point."""
        if not 0 <= fraction < math.inf:
            raise SurefootError(f"box.around: fraction: found {fraction}, expected a number >= 0")
        if fraction == 0:
            return point(params, params.nominal)
        y, half = params.y(params.nominal), fraction / 2 * (params.y(params.high) - params.y(params.low))
        return Box(params, params.e(y - half), params.e(y + half))

    def _shape(self) -> tuple[np.ndarray, np.ndarray]:
        return np.ones(len(self.params)), np.ones(len(self.params))

    def _draw(self, rng: Draw, n: int) -> np.ndarray:
        return rng.random((n, len(self.params)))

    def estimate(self) -> np.ndarray:
        """The nominal values, clipped into the box."""
        return np.clip(self.params.nominal, self.low, self.high)

    def widen(self, factor: float) -> "Box":
        return Box(self.params, *self._widened(factor))


def point(params: Params, e: np.ndarray) -> Box:
    """Certainty: every parameter fixed at e."""
    return Box(params, e, e)
