"""Special functions for modules that use numpy alone: psi, log B, and quantiles of normal, Beta and chi2."""

import math
from collections.abc import Callable
from statistics import NormalDist

import numpy as np


def _digamma(x: float) -> float:
    """psi(x) = d/dx log Gamma(x), x > 0: recurrence up to 12, then the asymptotic series, good to 1e-14."""
    below = 0.0
    while x < 12:
        below, x = below + 1 / x, x + 1
    f = 1 / (x * x)
    return math.log(x) - 0.5 / x - f * (1 / 12 - f * (1 / 120 - f * (1 / 252 - f * (1 / 240 - f / 132)))) - below


digamma = np.vectorize(_digamma, otypes=[float])
log_gamma = np.vectorize(math.lgamma, otypes=[float])
normal_cdf = np.vectorize(NormalDist().cdf, otypes=[float])
normal_quantile = np.vectorize(NormalDist().inv_cdf, otypes=[float])  # of 0 < p < 1


def normal_nodes(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """t and w, each (128, d): E[f(t)] = sum w f(t) of t ~ N(0, 1) given a <= t <= b, by Gauss-Legendre within 9 of 0."""
    (a, b), (x, w) = np.clip([a, b], -9.0, 9.0), np.polynomial.legendre.leggauss(128)
    t = (a + b) / 2 + (b - a) / 2 * x[:, None]
    w = w[:, None] * np.exp(-(t**2) / 2)
    return t, w / w.sum(0)


def log_beta(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """log B(a, b)."""
    return log_gamma(a) + log_gamma(b) - log_gamma(a + b)


def log_moment(a: np.ndarray, b: np.ndarray, i: np.ndarray, j: np.ndarray) -> np.ndarray:
    """E[i log z + j log(1 - z)] of z ~ Beta(a, b)."""
    return i * digamma(a) + j * digamma(b) - (i + j) * digamma(a + b)


def exp_moments(w: np.ndarray, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and sd of exp(w z) - 1, z ~ Beta(a, b), w >= 0: sums of E[z^k] w^k / k!, accurate also for tiny w."""
    term, one, two, k = np.ones_like(w), np.zeros_like(w), np.zeros_like(w), 0
    while True:
        k += 1
        term = term * w * (a + k - 1) / ((a + b + k - 1) * k)
        one, two = one + term, two + (2.0**k - 2) * term  # E[(exp(w z) - 1)^2] has 2^k - 2
        if (2.0**k * term <= 1e-17 * two).all():
            return one, np.sqrt(np.maximum(two - one**2, 0.0))


def beta_cdf(z: float, a: float, b: float) -> float:
    """I_z(a, b), the regularised incomplete beta function, by Lentz's fraction on the side where it converges."""
    if z <= 0 or z >= 1:
        return float(z >= 1)
    flip = z > (a + 1) / (a + b + 2)
    z, a, b = (1 - z, b, a) if flip else (z, a, b)
    log_b = math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
    front = math.exp(a * math.log(z) + b * math.log1p(-z) - log_b) / a
    c, d = 1.0, 1 / (1 - (a + b) * z / (a + 1))
    f = d
    for m in range(1, 100_000):
        even, odd = m * (b - m) / (a + 2 * m - 1), -(a + m) * (a + b + m) / (a + 2 * m + 1)
        for g in (even * z / (a + 2 * m), odd * z / (a + 2 * m)):
            c, d = 1 + g / c, 1 / (1 + g * d)
            f *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return 1 - front * f if flip else front * f


def _root(f: Callable[[float], float], low: float, high: float) -> float:
    """x in low..high where the increasing f crosses 0, by bisection down to neighbouring floats."""
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if f(middle) < 0 else (low, middle)
    return high


def beta_quantile(p: float, a: float, b: float) -> float:
    """z with P(Beta(a, b) <= z) = p."""
    return _root(lambda z: beta_cdf(z, a, b) - p, 0.0, 1.0)


def chi2_quantile(p: float, k: int) -> float:
    """x with P(chi2 of k degrees <= x) = p, from the finite sum for P(chi2 > x); 0 when k = 0."""

    def above(x: float) -> float:
        start = math.erfc(math.sqrt(x / 2)) if k % 2 else 0.0
        steps = (j / 2 for j in range(k % 2, k, 2))
        return start + sum(math.exp(s * math.log(x / 2) - x / 2 - math.lgamma(s + 1)) for s in steps)

    return _root(lambda x: 1 - p - above(x), 0.0, 10.0 * k + 100.0) if k else 0.0
