"""A surrogate of a function from few of its values: a Gaussian process.

    f ~ GP(0, k),   k(x, x') = s^2 (1 + r + r^2 / 3) exp(-r),   r^2 = 5 sum_d ((x_d - x'_d) / l_d)^2      (Matern 5/2)
    f(x) | y ~ N(k_x^T K^-1 y,  k(x, x) - k_x^T K^-1 k_x),   K = k(X, X) + v I

x is (n, d), of about unit spread; y is (n,), standardised. Each input has a length l_d, fitted by maximum likelihood: an
input that does not matter gets a long one.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_solve, cholesky, solve_triangular
from scipy.optimize import minimize

MOST = 120  # points that lengths are fitted to: the cost grows with the cube


@dataclass(frozen=True)
class Surrogate:
    """Mean and sd at any x."""

    x: np.ndarray  # (n, d)
    lengths: np.ndarray  # (d,)
    noise: float  # v / s^2
    scale: tuple[float, float]  # mean and sd of y
    s: float
    root: np.ndarray  # (n, n), of K / s^2
    weights: np.ndarray  # (n,), K^-1 y s^2

    def mean(self, x: np.ndarray) -> np.ndarray:
        """(n,) that of __call__ without the sd, which costs n times as much."""
        return np.concatenate([self._mean(_kernel(part, self.x, self.lengths)) for part in _parts(x)])

    def __call__(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(mean, sd), each (n,)."""
        means, sds = [], []
        for part in _parts(x):
            k = _kernel(part, self.x, self.lengths)
            left = solve_triangular(self.root, k.T, lower=True)
            means.append(self._mean(k))
            sds.append(self.scale[1] * self.s * np.sqrt(np.maximum(1.0 - (left**2).sum(0), 1e-12)))
        return np.concatenate(means), np.concatenate(sds)

    def _mean(self, k: np.ndarray) -> np.ndarray:
        return self.scale[0] + self.scale[1] * (k @ self.weights)

    def away(self, x: np.ndarray, at: np.ndarray) -> np.ndarray:
        """(n,) share of the sd that is left at x if f is known at `at`, about: sqrt(1 - correlation^2)."""
        return np.sqrt(np.maximum(1.0 - _kernel(x, at[None], self.lengths)[:, 0] ** 2, 0.0))


def fit(x: np.ndarray, y: np.ndarray, start: np.ndarray | None = None) -> tuple[Surrogate, np.ndarray]:
    """The surrogate of y at x, and log (lengths, noise), from which the next fit may start."""
    scale = float(y.mean()), float(y.std()) or 1.0
    z = (y - scale[0]) / scale[1]
    chosen = np.argsort(y)[:MOST] if len(y) > MOST else np.arange(len(y))  # the lowest matter most
    first = np.concatenate([np.zeros(x.shape[1]), [math.log(1e-3)]]) if start is None else start
    bounds = [(math.log(0.05), math.log(50.0))] * x.shape[1] + [(math.log(1e-6), math.log(0.3))]
    loss = lambda t: _loss(t, x[chosen], z[chosen])  # noqa: E731
    t = minimize(loss, first, method="L-BFGS-B", bounds=bounds, options={"maxiter": 20}).x
    lengths, noise = np.exp(t[:-1]), float(np.exp(t[-1]))
    root = cholesky(_kernel(x, x, lengths) + noise * np.eye(len(x)), lower=True)
    weights = cho_solve((root, True), z)
    return Surrogate(x, lengths, noise, scale, math.sqrt(max(float(z @ weights) / len(z), 1e-12)), root, weights), t


def _loss(t: np.ndarray, x: np.ndarray, z: np.ndarray) -> float:
    """-log p(z) up to a constant, at its best s, with a weak prior of lengths near 1."""
    K = _kernel(x, x, np.exp(t[:-1])) + np.exp(t[-1]) * np.eye(len(x))
    root = cholesky(K, lower=True)
    s2 = max(float((solve_triangular(root, z, lower=True) ** 2).mean()), 1e-12)
    return 0.5 * len(z) * math.log(s2) + float(np.log(np.diag(root)).sum()) + 0.05 * float((t[:-1] ** 2).sum())


def _parts(x: np.ndarray, rows: int = 1000) -> list[np.ndarray]:
    """Rows in blocks that fit in a processor's cache, which is three times as fast."""
    return [x[i : i + rows] for i in range(0, len(x), rows)]


def _kernel(a: np.ndarray, b: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    a, b = a / lengths, b / lengths
    r2 = np.maximum((a**2).sum(1)[:, None] + (b**2).sum(1) - 2.0 * a @ b.T, 0.0)
    r = np.sqrt(5.0 * r2)
    return (1.0 + r + r * r / 3.0) * np.exp(-r)
