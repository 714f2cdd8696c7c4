"""p(e): what is believed about the unknowns e. One type for a randomization range, prior, posterior, Fisher covariance.

Every belief is simple in y(e) = log e on dimensions where params.log, e elsewhere, and answers in e-space:

    p(e) = p(y(e)) prod_log 1/e        h(e) = h(y) + sum_log E[y]        KL is the same in both

e is (n, d) in the units of its Params; d may be 0. Row i of a sample never depends on how many rows follow it.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from statistics import NormalDist
from typing import Any, final

import numpy as np

from surefoot import files, special
from surefoot.errors import SurefootError, unknown
from surefoot.params import Params
from surefoot.rng import Draw
from surefoot.special import beta_quantile, chi2_quantile, exp_moments, log_beta, log_moment


@dataclass(frozen=True, eq=False)
class Belief(ABC):
    """A distribution over e that never leaves the physical bounds params.low..params.high."""

    params: Params

    @abstractmethod
    def sample(self, rng: Draw, n: int) -> np.ndarray:
        """(n, d) draws, made row by row, all inside the physical bounds."""

    @abstractmethod
    def log_prob(self, e: np.ndarray) -> np.ndarray:
        """(n,) log density of e in nats, -inf off the support."""

    @abstractmethod
    def entropy(self) -> float:
        """Differential entropy over e in nats; -inf when a dimension is fixed."""

    @abstractmethod
    def kl(self, other: "Belief") -> float:
        """KL(self || other) in nats, exact: inf where other rules out what self allows, an error if no closed form."""

    @abstractmethod
    def widen(self, factor: float) -> "Belief":
        """y - E[y] times `factor`, cut at the physical bounds."""

    @abstractmethod
    def inside(self, e: np.ndarray) -> np.ndarray:
        """(n,) bool: is e in the support?"""

    @abstractmethod
    def mean(self) -> np.ndarray:
        """(d,) E[e]."""

    @abstractmethod
    def sd(self) -> np.ndarray:
        """(d,) standard deviation of e."""

    @abstractmethod
    def interval(self, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Marginal equal-tailed (low, high), each (d,), holding `level` of the probability."""

    def normalise(self, e: np.ndarray) -> np.ndarray:
        """e -> [0, 1]: 0 at the physical low, 1 at the physical high, straight in y. Any leading shape."""
        low, high = self.params.y(self.params.low), self.params.y(self.params.high)
        return (self.params.y(e) - low) / (high - low)

    def denormalise(self, z: np.ndarray) -> np.ndarray:
        """The inverse of normalise; z beyond [0, 1] lands on the bound."""
        low, high = self.params.y(self.params.low), self.params.y(self.params.high)
        z = np.clip(z, 0.0, 1.0)
        return self.params.e((1 - z) * low + z * high)

    def to_json(self) -> dict[str, Any]:
        rest = {f.name: getattr(self, f.name).tolist() for f in fields(self)[1:]}
        return {"kind": type(self).__name__.lower(), "params": self.params.to_json(), **rest}

    @staticmethod
    def from_json(data: dict[str, Any], where: str = "") -> "Belief":
        """The belief `to_json` wrote, bit for bit. `where` (a file, a field) opens every error; a seal is checked."""
        if isinstance(data, dict) and "sha256" in data:
            data = files.check_seal(data, where or "belief")
        try:
            return _read(data)
        except SurefootError as error:
            raise SurefootError(f"{where}: {error}" if where else str(error)) from None

    def write(self, path: Path | str) -> None:
        """A sealed JSON file: what is changed in it afterwards is noticed."""
        files.write_json(Path(path), files.seal(self.to_json()))

    @staticmethod
    def read(path: Path | str) -> "Belief":
        """The belief of a file: one that `write` wrote, unchanged, or one written by hand, which has no `sha256`."""
        return Belief.from_json(files.read_json(Path(path)), str(path))

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        pairs = [(getattr(self, f.name), getattr(other, f.name)) for f in fields(self)]
        return pairs[0][0] == pairs[0][1] and all(np.array_equal(mine, theirs) for mine, theirs in pairs[1:])

    def __hash__(self) -> int:
        return hash((type(self), self.params))


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
        return np.clip(self.params.e(self._least + z * self._width), self.low, self.high)

    def share(self, e: np.ndarray) -> np.ndarray:
        """The inverse of at: 0 at low, 1 at high; where both are the same, 0."""
        width = self._width
        return np.where(width > 0, (self.params.y(e) - self._least) / np.where(width > 0, width, 1.0), 0.0)

    def sample(self, rng: Draw, n: int) -> np.ndarray:
        return self.at(self._draw(rng, n))

    def log_prob(self, e: np.ndarray) -> np.ndarray:
        (a, b), e, free = self._shape(), _rows(self, e), self.low < self.high
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
        _comparable(self, other)
        if not isinstance(other, Ranged):
            raise _no_kl(self, other)
        (a, b), (c, d), free = self._shape(), other._shape(), self.low < self.high
        same = (self.low == other.low) & (self.high == other.high)
        if (~same & (~free | (self.low < other.low) | (other.high < self.high))).any():
            return math.inf
        if (~same & ((c != 1) | (d != 1))).any():
            raise _no_kl(self, other, " with different supports")
        each = log_beta(c, d) - log_beta(a, b) + log_moment(a, b, a - c, b - d)
        return float((each[free] + np.log(other._width[free]) - np.log(self._width[free])).sum())

    def inside(self, e: np.ndarray) -> np.ndarray:
        return _within(_rows(self, e), self.low, self.high)

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
        tail, shape = _tail(level), list(zip(*self._shape()))
        low = np.array([beta_quantile(tail, a, b) for a, b in shape])
        high = np.array([1 - beta_quantile(tail, b, a) for a, b in shape])
        return self.at(low), self.at(high)

    def _widened(self, factor: float) -> tuple[np.ndarray, np.ndarray]:
        (a, b), (low, high) = self._shape(), (self.params.y(self.low), self.params.y(self.high))
        centre, free = low + self._width * a / (a + b), self.low < self.high
        low, high = (self.params.e(centre + _positive(factor) * (y - centre)) for y in (low, high))
        return np.where(free, low, self.low), np.where(free, high, self.high)


@dataclass(frozen=True, eq=False)
class Box(Ranged):
    """Uniform, and log-uniform (median sqrt(low high)) on log dimensions: a = b = 1."""

    low: np.ndarray
    high: np.ndarray

    def __post_init__(self) -> None:
        _check_range(self)

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

    def widen(self, factor: float) -> "Box":
        return Box(self.params, *self._widened(factor))


def point(params: Params, e: np.ndarray) -> Box:
    """Certainty: every parameter fixed at e."""
    return Box(params, e, e)


@final
@dataclass(frozen=True, eq=False)
class Beta(Ranged):
    """A product of Beta(a, b) on low..high, in log e on log dimensions."""

    a: np.ndarray
    b: np.ndarray
    low: np.ndarray
    high: np.ndarray

    def __post_init__(self) -> None:
        for name in ("a", "b"):
            _freeze(self, name, (len(self.params),))
            _require(self, name, getattr(self, name) > 0, "more than 0")
        _check_range(self)

    def _shape(self) -> tuple[np.ndarray, np.ndarray]:
        return self.a, self.b

    def _draw(self, rng: Draw, n: int) -> np.ndarray:
        return rng.beta(self.a, self.b, (n, len(self.params)))

    def widen(self, factor: float) -> "Beta":
        return Beta(self.params, self.a, self.b, *self._widened(factor))


@final
@dataclass(frozen=True, eq=False)
class Gaussian(Belief):
    """y ~ N(mu, cov), correlated; mu and cov are in y-space. A zero row and column of cov fixes a parameter, as in Box.

    It is an untruncated Gaussian: log_prob, entropy, kl, mean and sd are those of N(mu, cov), whose tails may pass the
    physical bounds. Draws beyond a bound are clipped onto it, coordinate by coordinate, and interval() is the quantile
    of the clipped draws. mu itself lies inside the bounds. inside() is the 95 % ellipsoid within the bounds.
    """

    mu: np.ndarray
    cov: np.ndarray

    def __post_init__(self) -> None:
        d = len(self.params)
        _freeze(self, "mu", (d,))
        _check_physical(self, "mu", self.params.y(self.params.low), self.params.y(self.params.high))
        _freeze(self, "cov", (d, d))
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
        (free, s, _, log_det), y = self._factor, self.params.y(_rows(self, e))
        jacobian = np.where(np.isfinite(y) & free & self.params.log, y, 0.0).sum(-1)
        return -0.5 * (self._distance2(y) + log_det + len(s) * math.log(2 * math.pi)) - jacobian

    def entropy(self) -> float:
        free, s, _, log_det = self._factor
        h_y = 0.5 * (log_det + len(s) * math.log(2 * math.pi * math.e)) if free.all() else -math.inf
        return h_y + float(self.mu[self.params.log].sum())

    def kl(self, other: Belief) -> float:
        _comparable(self, other)
        if not isinstance(other, Gaussian):
            raise _no_kl(self, other)
        (free, s, L, log_det), (other_free, other_s, other_L, other_log_det) = self._factor, other._factor
        if not np.array_equal(free, other_free):
            return math.inf
        ratio = np.linalg.solve(other_L, L * (s / other_s)[:, None])  # (r, r)
        spread = (ratio**2).sum() - len(s) + other_log_det - log_det
        return float(0.5 * (spread + other._distance2(self.mu[None])[0]))

    def widen(self, factor: float) -> "Gaussian":
        return Gaussian(self.params, self.mu, self.cov * _positive(factor) ** 2)

    def inside(self, e: np.ndarray) -> np.ndarray:
        e = _rows(self, e)
        near = self._distance2(self.params.y(e)) <= chi2_quantile(0.95, len(self._factor[1]))
        return near & _within(e, self.params.low, self.params.high)

    def mean(self) -> np.ndarray:
        log, var = self.params.log, np.diag(self.cov)
        return np.where(log, np.exp(np.where(log, self.mu + var / 2, 0.0)), self.mu)

    def sd(self) -> np.ndarray:
        log, var = self.params.log, np.diag(self.cov)
        return np.where(log, self.mean() * np.sqrt(np.expm1(np.where(log, var, 0.0))), np.sqrt(var))

    def interval(self, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        half = -NormalDist().inv_cdf(_tail(level)) * np.sqrt(np.diag(self.cov))
        return self.params.e(self.mu - half), self.params.e(self.mu + half)


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
        _check_range(self)
        for name in ("mu", "spread"):
            _freeze(self, name, (len(self.params),))
        _require(self, "spread", self.spread > 0, "more than 0")
        _check_physical(self, "mu", self.params.y(self.low), self.params.y(self.high))

    @cached_property
    def _cut(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Each (d,): the cuts in t, and the probabilities of N(0, 1) below them."""
        ends = np.array([(self.params.y(end) - self.mu) / self.spread for end in (self.low, self.high)])
        return ends, special.normal_cdf(ends[0]), special.normal_cdf(ends[1])

    @cached_property
    def _nodes(self) -> tuple[np.ndarray, np.ndarray]:
        """y (128, d) and weights that sum to 1: E[f(y)] = sum w f(y)."""
        (a, b), (x, w) = np.clip(self._cut[0], -9.0, 9.0), np.polynomial.legendre.leggauss(128)
        t = (a + b) / 2 + (b - a) / 2 * x[:, None]  # (128, d)
        w = w[:, None] * np.exp(-(t**2) / 2)
        return self.mu + self.spread * t, w / w.sum(0)

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
        e, free = _rows(self, e), self.low < self.high
        y = self.params.y(np.clip(e, self.low, self.high))
        jacobian = np.where(self.params.log & free, y, 0.0)
        return np.where(self.inside(e), (self._log_each(y) - jacobian).sum(-1), -np.inf)

    def entropy(self) -> float:
        y, w = self._nodes
        h = float((w * (np.where(self.params.log, y, 0.0) - self._log_each(y))).sum())
        return h if (self.low < self.high).all() else -math.inf

    def kl(self, other: Belief) -> float:
        _comparable(self, other)
        if not isinstance(other, Truncated):
            raise _no_kl(self, other)
        fixed = (self.low == self.high) != (other.low == other.high)
        if (fixed | (self.low < other.low) | (other.high < self.high)).any():
            return math.inf
        y, w = self._nodes
        return float((w * (self._log_each(y) - other._log_each(y))).sum())

    def widen(self, factor: float) -> "Truncated":
        y, w = self._nodes
        centre = (w * y).sum(0)
        scaled = lambda y: self.params.e(centre + _positive(factor) * (y - centre))  # noqa: E731
        low, high = (scaled(self.params.y(end)) for end in (self.low, self.high))
        mu = np.clip(self.params.y(scaled(self.mu)), self.params.y(low), self.params.y(high))
        return Truncated(self.params, mu, self.spread * factor, low, high)

    def inside(self, e: np.ndarray) -> np.ndarray:
        return _within(_rows(self, e), self.low, self.high)

    def mean(self) -> np.ndarray:
        y, w = self._nodes
        return (w * self.params.e(y)).sum(0)

    def sd(self) -> np.ndarray:
        y, w = self._nodes
        return np.sqrt((w * (self.params.e(y) - self.mean()) ** 2).sum(0))

    def interval(self, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        return self.quantile(_tail(level)), self.quantile(1 - _tail(level))


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
        _freeze(self, "weights", (n,))
        _require(self, "weights", self.weights >= 0, "at least 0")
        if not 0 < self.weights.sum() < math.inf:
            raise SurefootError(f"particles.weights: found total {self.weights.sum()}, expected a finite total above 0")
        _freeze(self, "points", (n, len(self.params)))
        _check_physical(self, "points", self.params.low, self.params.high)

    @cached_property
    def _p(self) -> np.ndarray:
        return self.weights / self.weights.sum()  # (N,)

    def sample(self, rng: Draw, n: int) -> np.ndarray:
        cdf = np.cumsum(self._p)
        return self.points[np.searchsorted(cdf / cdf[-1], rng.random(n), side="right")]

    def log_prob(self, e: np.ndarray) -> np.ndarray:
        match = (_rows(self, e)[:, None, :] == self.points).all(-1)  # (n, N)
        with np.errstate(divide="ignore"):
            return np.log((match * self._p).sum(-1))

    def entropy(self) -> float:
        p = self._p[self._p > 0]
        return float(-(p * np.log(p)).sum())

    def kl(self, other: Belief) -> float:
        _comparable(self, other)
        if not isinstance(other, Particles):
            raise _no_kl(self, other)
        held = self._p > 0
        return float((self._p[held] * (self.log_prob(self.points[held]) - other.log_prob(self.points[held]))).sum())

    def widen(self, factor: float) -> "Particles":
        y = self.params.y(self.points)
        centre = self._p @ y
        return Particles(self.params, self.params.e(centre + _positive(factor) * (y - centre)), self.weights)

    def inside(self, e: np.ndarray) -> np.ndarray:
        held = self.points[self._p > 0]
        return _within(_rows(self, e), held.min(0), held.max(0))

    def mean(self) -> np.ndarray:
        return self._p @ self.points

    def sd(self) -> np.ndarray:
        return np.sqrt(self._p @ (self.points - self.mean()) ** 2)

    def interval(self, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        tail, low, high = _tail(level), np.empty(len(self.params)), np.empty(len(self.params))
        for j, column in enumerate(self.points.T):
            order = np.argsort(column)
            cdf = np.cumsum(self._p[order])
            low[j], high[j] = column[order[np.searchsorted(cdf / cdf[-1], [tail, 1 - tail])]]
        return low, high


KINDS: dict[str, Any] = {"box": Box, "beta": Beta, "gaussian": Gaussian, "truncated": Truncated, "particles": Particles}


def _rows(belief: Belief, e: np.ndarray) -> np.ndarray:
    e = np.atleast_2d(np.asarray(e, float))
    if e.ndim != 2 or e.shape[1] != len(belief.params):
        raise SurefootError(f"e: found shape {e.shape}, expected (n, {len(belief.params)}), one column per param")
    return e


def _within(e: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    return np.all((low <= e) & (e <= high), axis=-1)


def _tail(level: float) -> float:
    if not 0 < level < 1:
        raise SurefootError(f"level: found {level}, expected between 0 and 1, for example 0.95")
    return (1 - level) / 2


def _positive(factor: float) -> float:
    if not 0 < factor < math.inf:
        raise SurefootError(f"factor: found {factor}, expected a finite number above 0")
    return factor


def _comparable(p: Belief, q: Belief) -> None:
    if p.params.names != q.params.names or not np.array_equal(p.params.log, q.params.log):
        raise SurefootError(
            f"kl: found params {q.params.names}, expected {p.params.names}, so ordered and on equal scales"
        )


def _no_kl(p: Belief, q: Belief, why: str = "") -> SurefootError:
    return SurefootError(f"kl: no closed form for {type(p).__name__} || {type(q).__name__}{why}")


def _read(data: dict[str, Any]) -> Belief:
    if not isinstance(data, dict):
        raise SurefootError(f"belief: found {type(data).__name__}, expected an object with a kind")
    where = str(data.get("kind"))
    if where not in KINDS:
        raise unknown("kind", where, KINDS, "belief.kind")
    names = ["kind", *(f.name for f in fields(KINDS[where]))]
    for name in data:
        if name not in names:
            raise unknown("field", str(name), names, where)
    for name in names:
        if name not in data:
            raise SurefootError(f"{where}.{name}: found nothing, expected a list")
    params = Params.from_json(data["params"], f"{where}.params")
    return KINDS[where](params, **{name: data[name] for name in names[2:]})


def _freeze(belief: Belief, name: str, shape: tuple[int, ...]) -> None:
    """Replace the field by a read-only float64 copy of that shape, or say why that cannot be."""
    where = f"{type(belief).__name__.lower()}.{name}"
    try:
        array = np.array(getattr(belief, name))
    except ValueError:
        raise SurefootError(f"{where}: found a ragged list, expected shape {shape}") from None
    if array.size == 0 and 0 in shape:
        array = np.empty(shape)
    if array.dtype.kind not in "iuf":
        raise SurefootError(f"{where}: found {array.dtype.name} values, expected numbers")
    if array.shape != shape:
        raise SurefootError(f"{where}: found shape {array.shape}, expected {shape}")
    array = array.astype(np.float64)
    array.setflags(write=False)
    object.__setattr__(belief, name, array)
    _require(belief, name, np.isfinite(array), "a finite number")


def _require(belief: Belief, name: str, ok: np.ndarray, expected: str, limit: np.ndarray | None = None) -> None:
    """Raise at the first element that is not ok, naming its row and its param."""
    if ok.all():
        return
    index = tuple(np.argwhere(~ok)[0])
    last = str(index[-1]) if name == "weights" else belief.params.names[index[-1]]
    where = f"{type(belief).__name__.lower()}.{name}[{', '.join([*map(str, index[:-1]), last])}]"
    bound = "" if limit is None else f" {np.broadcast_to(limit, ok.shape)[index]}"
    raise SurefootError(f"{where}: found {getattr(belief, name)[index]}, expected {expected}{bound}")


def _check_physical(belief: Belief, name: str, low: np.ndarray, high: np.ndarray) -> None:
    _require(belief, name, getattr(belief, name) >= low, "at least the physical bound", low)
    _require(belief, name, getattr(belief, name) <= high, "at most the physical bound", high)


def _check_range(belief: Any) -> None:
    for name in ("low", "high"):
        _freeze(belief, name, (len(belief.params),))
        _check_physical(belief, name, belief.params.low, belief.params.high)
    _require(belief, "low", belief.low <= belief.high, "at most high,", belief.high)


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
