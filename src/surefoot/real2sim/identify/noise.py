"""The noise of a log's signals, estimated from the residuals of a fitted model, and the metric it defines.

    r(k) = rho r(k-1) + s w(k),  w white, unit variance     first order, one (s, rho) for each channel

A whitened residual is (r(k) - rho r(k-1)) / s: with rho = 0.9, nineteen rows carry as much information as one
independent row. A whitened residual that is still not white is no noise but physics that the model lacks.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import chdtrc  # of chi2: scipy.stats takes a second to import

LAGS = 10
WHITE = 1e-6  # probability, over all channels, of calling white noise coloured: missing physics lies far beyond it
COLOURED = 0.1  # the smallest autocorrelation that counts: in a long log any departure from white is significant
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
        """r (..., T, C) whitened along time; the first row of a window is that of a stationary process."""
        first = r[..., :1, :] * np.sqrt(1 - self.rho**2)
        return np.concatenate([first, r[..., 1:, :] - self.rho * r[..., :-1, :]], -2) / self.s


def estimate(residuals: list[np.ndarray], fitted: int, coloured: bool = True) -> Noise:
    """From residuals (w, T, C) of each log after `fitted` parameters were fitted to all of them."""
    channels = residuals[0].shape[-1]
    pairs = [(r[:, :-1].reshape(-1, channels), r[:, 1:].reshape(-1, channels)) for r in residuals]
    count = sum(r.shape[0] * r.shape[1] for r in residuals)
    used = fitted / channels  # degrees of freedom that the fit took from each channel
    before, after = (np.concatenate([p[i] for p in pairs]) for i in (0, 1))
    rho = np.zeros(channels)
    if coloured:
        top = (before * after).sum(0)
        rho = np.clip(top / np.maximum(np.square(before).sum(0), 1e-300), -LARGEST, LARGEST)
        rho = np.clip(
            rho + (1 + 3 * rho) / max(count, 10), -LARGEST, LARGEST
        )  # Kendall's bias correction of a short series
        # 0 where it is not significant
        rho = np.where(np.abs(rho) * np.sqrt(count) < 3.0, 0.0, rho)
    white = Noise(np.ones(channels), rho)
    total = sum(np.square(white.whiten(r)).sum((0, 1)) for r in residuals)
    s = np.sqrt(total / max(count - used, 1.0))
    return Noise(np.maximum(s, 1e-12), rho)


def shared(noise: Sequence[Noise], raw: Sequence[np.ndarray], J: Sequence[np.ndarray]) -> tuple[Noise, ...]:
    """One autocorrelation for all coloured channels of a log, unless the log distinguishes them.

    A short log hardly determines an autocorrelation: 0.87 and 0.93 differ threefold in slow noise, and so in a channel's
    weight. It is shared and chosen by the restricted likelihood, which accounts for the parameters p that were fitted to
    the residuals `raw` (w, T, C) with Jacobians `J` (w, T, C, size).

        -2 log L = sum_c [ T log s_c^2 - w log(1 - rho_c^2) + |r_c|^2 ] + log det J^T J,   r and J whitened
    """
    best = tuple(_scaled(noise, raw, J, i, n.rho) for i, n in enumerate(noise))
    for i in range(len(best)):
        best = _alike(best, raw, J, i)
    return best


def _alike(noise: tuple[Noise, ...], raw: Sequence[np.ndarray], J: Sequence[np.ndarray], i: int) -> tuple[Noise, ...]:
    """With one autocorrelation in log i, where the likelihood falls by less than the saved parameters are worth (BIC)."""
    from scipy.optimize import minimize_scalar

    rho, count = noise[i].rho, raw[i].shape[0] * raw[i].shape[1]
    coloured = rho != 0.0
    if coloured.sum() < 2:
        return noise

    def having(x: float) -> tuple[Noise, ...]:
        return (*noise[:i], _scaled(noise, raw, J, i, np.where(coloured, x, 0.0)), *noise[i + 1 :])

    ends = max(float(rho[coloured].min()) - 0.2, -LARGEST), min(float(rho[coloured].max()) + 0.2, LARGEST)
    one = having(minimize_scalar(lambda x: _cost(having(x), raw, J), bounds=ends, options={"xatol": 1e-3}).x)
    spared = (coloured.sum() - 1) * np.log(count * coloured.sum())  # the Bayesian information criterion's price of each
    return one if _cost(one, raw, J) < _cost(noise, raw, J) + spared else noise


def _scaled(
    noise: Sequence[Noise], raw: Sequence[np.ndarray], J: Sequence[np.ndarray], i: int, rho: np.ndarray
) -> Noise:
    """Log i's noise with these autocorrelations: each channel's s from its residuals and remaining degrees of freedom."""
    found = Noise(noise[i].s, rho)
    for _ in range(3):
        every = [*noise[:i], found, *noise[i + 1 :]]
        step, cov = _solution(every, raw, J)
        left = found.whiten(raw[i] - J[i] @ step) * found.s
        W = _whitened(found, J[i])
        used = np.einsum("wtci,ij,wtcj->c", W, cov, W, optimize=True)
        count = raw[i].shape[0] * raw[i].shape[1]
        found = Noise(np.maximum(np.sqrt(np.square(left).sum((0, 1)) / np.maximum(count - used, 1.0)), 1e-12), rho)
    return found


def _cost(noise: Sequence[Noise], raw: Sequence[np.ndarray], J: Sequence[np.ndarray]) -> float:
    step, cov = _solution(noise, raw, J)
    values = np.linalg.eigvalsh(cov)
    total = -float(np.log(values[values > 0]).sum())
    for n, r, j in zip(noise, raw, J):
        count = r.shape[0] * r.shape[1]
        total += float((2 * count * np.log(n.s) - r.shape[0] * np.log1p(-(n.rho**2))).sum())
        total += float(np.square(n.whiten(r - j @ step)).sum())
    return total


def _solution(
    noise: Sequence[Noise], raw: Sequence[np.ndarray], J: Sequence[np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """The step of p of whitened least squares, and its covariance, along the informed directions."""
    size = J[0].shape[-1]
    rows = [_whitened(n, j).reshape(-1, size) for n, j in zip(noise, J)]
    left = np.concatenate([n.whiten(r).ravel() for n, r in zip(noise, raw)])
    W = np.concatenate(rows)
    cov = np.linalg.pinv(W.T @ W, rcond=1e-12, hermitian=True)
    return cov @ (W.T @ left), cov


def _whitened(noise: Noise, J: np.ndarray) -> np.ndarray:
    return np.moveaxis(noise.whiten(np.moveaxis(J, -1, 0)), 0, -1)


def is_white(whitened: list[np.ndarray]) -> bool:
    """The Ljung-Box test over the first lags of every channel; a small autocorrelation passes, too."""
    p, largest = _lags(whitened)
    return not bool(((p < WHITE / len(p)) & (largest > COLOURED)).any())


def _lags(whitened: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """(C,) of each channel: how likely white noise has such autocorrelations, and the largest of them."""
    channels = whitened[0].shape[-1]
    power = sum(np.square(r).sum((0, 1)) for r in whitened)
    count = sum(r.shape[0] * r.shape[1] for r in whitened)
    statistic, largest = np.zeros(channels), np.zeros(channels)
    for lag in range(1, LAGS + 1):
        top = sum((r[:, lag:] * r[:, :-lag]).sum((0, 1)) for r in whitened if r.shape[1] > lag)
        c = np.asarray(top) / np.maximum(power, 1e-300)
        statistic += count * (count + 2) * np.square(c) / max(count - lag, 1)
        largest = np.maximum(largest, np.abs(c))
    return chdtrc(LAGS, statistic), largest


def all_white(noise: Sequence[Noise], residuals: Sequence[np.ndarray]) -> bool:
    """Whether each log's residuals (w, T, C) are white once whitened by its noise."""
    return all(is_white([n.whiten(r)]) for n, r in zip(noise, residuals))


def colour(noise: Sequence[Noise], residuals: Sequence[np.ndarray]) -> float:
    """The largest autocorrelation that is left in the whitened residuals of any log."""
    return max(float(_lags([n.whiten(r)])[1].max()) for n, r in zip(noise, residuals))


def innovation(noise: Sequence[Noise]) -> float:
    """The geometric mean of the innovation sds of all channels: the larger the likelihood, the smaller."""
    return float(np.exp(np.mean(np.log(np.concatenate([n.s for n in noise])))))
