"""The noise of a log's signals, from what a fitted model leaves unexplained, and its own metric.

    r(k) = rho r(k-1) + s w(k),  w white, unit variance     first order, one (s, rho) for each channel

A residual whitened by it, (r(k) - rho r(k-1)) / s, counts as often as it tells something new: with rho = 0.9 nineteen
rows are worth one. What is left after that and is not white is no noise: it is physics the model has not got.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

LAGS = 10
WHITE = (
    1e-6  # probability, over all channels, of calling white noise coloured: what a model lacks is seen far beyond it
)
COLOURED = 0.1  # and the smallest autocorrelation worth the word: a long log finds any departure from white
LARGEST = 0.999


@dataclass(frozen=True)
class Noise:
    """One innovation sd and one autocorrelation for each channel (C,)."""

    s: np.ndarray
    rho: np.ndarray

    @property
    def sd(self) -> np.ndarray:
        """(C,) standard deviation of the noise itself."""
        return self.s / np.sqrt(1 - self.rho**2)

    def whiten(self, r: np.ndarray) -> np.ndarray:
        """r (..., T, C) along the times of one window, each window beginning as a stationary process does."""
        first = r[..., :1, :] * np.sqrt(1 - self.rho**2)
        return np.concatenate([first, r[..., 1:, :] - self.rho * r[..., :-1, :]], -2) / self.s


def estimate(residuals: list[np.ndarray], fitted: int, coloured: bool = True) -> Noise:
    """From residuals (w, T, C) of each log after `fitted` numbers were fitted to them all."""
    channels = residuals[0].shape[-1]
    pairs = [(r[:, :-1].reshape(-1, channels), r[:, 1:].reshape(-1, channels)) for r in residuals]
    count = sum(r.shape[0] * r.shape[1] for r in residuals)
    used = fitted / channels  # each channel pays its share of the freedom
    before, after = (np.concatenate([p[i] for p in pairs]) for i in (0, 1))
    rho = np.zeros(channels)
    if coloured:
        top = (before * after).sum(0)
        rho = np.clip(top / np.maximum(np.square(before).sum(0), 1e-300), -LARGEST, LARGEST)
        rho = np.clip(rho + (1 + 3 * rho) / max(count, 10), -LARGEST, LARGEST)  # Kendall: what a short series hides
        # shrunk to 0 where it is no more than chance would make it
        rho = np.where(np.abs(rho) * np.sqrt(count) < 3.0, 0.0, rho)
    white = Noise(np.ones(channels), rho)
    total = sum(np.square(white.whiten(r)).sum((0, 1)) for r in residuals)
    s = np.sqrt(total / max(count - used, 1.0))
    return Noise(np.maximum(s, 1e-12), rho)


def is_white(whitened: list[np.ndarray]) -> bool:
    """Ljung and Box's test over the first lags of every channel, and an autocorrelation that matters."""
    channels = whitened[0].shape[-1]
    power = sum(np.square(r).sum((0, 1)) for r in whitened)
    count = sum(r.shape[0] * r.shape[1] for r in whitened)
    statistic, largest = np.zeros(channels), np.zeros(channels)
    for lag in range(1, LAGS + 1):
        top = sum((r[:, lag:] * r[:, :-lag]).sum((0, 1)) for r in whitened if r.shape[1] > lag)
        c = np.asarray(top) / np.maximum(power, 1e-300)
        statistic += count * (count + 2) * np.square(c) / max(count - lag, 1)
        largest = np.maximum(largest, np.abs(c))
    p = stats.chi2.sf(statistic, LAGS)
    return not bool(((p < WHITE / channels) & (largest > COLOURED)).any())


def all_white(noise: Sequence[Noise], residuals: Sequence[np.ndarray]) -> bool:
    """Whether each log's residuals (w, T, C) are white once whitened by its noise."""
    return all(is_white([n.whiten(r)]) for n, r in zip(noise, residuals))
