"""Skew: how far one stream is behind another, and how fast their clocks drift.

    b(t) = g a(t - tau(t)) + c,   tau(t) = tau_0 + d (t - t_mid)     tau [s], d [s/s], 1 ppm = 1e-6

tau maximises the correlation of b with a shifted a: first over whole samples, then between them on a cubic spline of a.
d is the median slope (Theil-Sen) of tau over windows, which is robust to windows without motion.
numpy alone: scipy's splines and filters take longer to import than minutes of a log take to compare.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from surefoot.errors import SurefootError
from surefoot.formats.resample import resample
from surefoot.log import Log

TRUSTED = 0.5  # correlation below which a window is not used
SIGMA, REACH = 1.5, 6  # samples: of the smoothing
POLE, TAPS = np.sqrt(3) - 2, 24  # of a cubic spline on even samples; its 24th power is rounding
GOLDEN, CLOSE = (np.sqrt(5) - 1) / 2, 1e-4  # samples: a shift is found to this


@dataclass(frozen=True)
class Skew:
    latency: float
    """seconds that b is behind a, in the middle of the log"""
    drift_ppm: float
    """how much later b gets, microseconds per second; nan where too few windows are usable"""
    correlation: float
    """of b with a at that latency, over the whole log"""
    windows: int
    """number of usable windows"""


def skew(log: Log, a: str, b: str, part: int = 0, most: float = 0.5, windows: int = 12) -> Skew:
    """Latency of column b behind column a, searched within +-`most` seconds. Of wide columns, one part. Without windows, no drift."""
    step = np.diff(log.time)
    if len(step) and step.max() - step.min() > 1e-3 * np.median(step):
        log = resample(log, log.rate)
    x, y = _part(log, a, part), _part(log, b, part)
    x, y = _smooth(_filled(x, a)), _smooth(_filled(y, b))
    h, L = 1 / log.rate, max(1, round(most * log.rate))
    if len(log) < 4 * L + 16:
        raise SurefootError(f"skew: found {len(log)} rows, expected at least {4 * L + 16} to search within {most:g} s")
    whole, r = _shift(x, y, 0, len(y), -L, L)
    near = max(4, round(0.2 * L))  # windows search near the global shift: further away are other peaks
    low, high = int(np.floor(whole)) - near, int(np.ceil(whole)) + near
    edges = np.linspace(0, len(y), windows + 1).astype(int)
    found = [
        (0.5 * (i + j) * h, *_shift(x, y, i, j, low, high)) for i, j in zip(edges, edges[1:]) if j - i > 4 * near + 16
    ]
    used = np.array([(t, tau * h) for t, tau, c in found if c > TRUSTED])
    if len(used) < 3:
        return Skew(whole * h, np.nan, r, len(used))
    slope = _slope(used)
    middle = float(np.median(used[:, 1] - slope * (used[:, 0] - 0.5 * len(y) * h)))
    return Skew(middle, 1e6 * slope, r, len(used))


def _slope(points: np.ndarray) -> float:
    """Theil-Sen, of (n, 2) points."""
    i, j = np.triu_indices(len(points), 1)
    d = points[j] - points[i]
    return float(np.median(d[:, 1] / d[:, 0]))


def _part(log: Log, name: str, part: int) -> np.ndarray:
    column = log[name].astype(float)
    if column.ndim == 1:
        return column
    if not 0 <= part < column.shape[1]:
        raise SurefootError(f"{name}: part {part}: found {column.shape[1]} parts")
    return column[:, part]


def _filled(x: np.ndarray, name: str) -> np.ndarray:
    """Gaps at the mean, where they do not affect a correlation."""
    there = np.isfinite(x)
    if there.sum() < 16 or np.ptp(x[there]) == 0:
        raise SurefootError(f"{name}: found a constant, expected a column that changes")
    return np.where(there, x, x[there].mean())


def _smooth(x: np.ndarray) -> np.ndarray:
    """Gaussian and symmetric, so without shift. Without it, interpolation reduces white noise between samples, which draws the peak there."""
    weights = np.exp(-0.5 * np.square(np.arange(-REACH, REACH + 1) / SIGMA))
    return np.convolve(np.pad(x, REACH, mode="edge"), weights / weights.sum(), "valid")


def _shift(x: np.ndarray, y: np.ndarray, i: int, j: int, low: int, high: int) -> tuple[float, float]:
    """The shift in samples within [low, high] by which y[i:j] follows x, and the correlation there."""
    rows = np.arange(max(i, high + 1, 0), min(j, len(x) + low - 1, len(x)))  # all shifted rows exist
    if len(rows) < 16:
        return 0.0, 0.0
    v = y[rows] - y[rows].mean()

    def correlation(z: np.ndarray) -> float:
        z = z - z.mean()
        size = np.sqrt((z @ z) * (v @ v))
        return float(z @ v / size) if size > 0 else 0.0

    best = max(range(low, high + 1), key=lambda s: correlation(x[rows - s]))
    bend = _curvature(x)
    return _highest(lambda s: correlation(_between(x, bend, rows, s)), best - 1.0, best + 1.0)


def _curvature(x: np.ndarray) -> np.ndarray:
    """Second derivatives M of the cubic spline through x, one sample apart: M(k-1) + 4 M(k) + M(k+1) = 6 (x(k-1) - 2 x(k) + x(k+1)).

    The inverse of (1, 4, 1) is POLE^|n| / sqrt(12). Beyond its ends x is continued by straight lines.
    """
    second = np.concatenate([[0.0], np.diff(x, 2), [0.0]])
    inverse = POLE ** np.abs(np.arange(-TAPS, TAPS + 1)) / np.sqrt(12)
    return 6 * np.convolve(np.pad(second, TAPS), inverse, "valid")


def _between(x: np.ndarray, bend: np.ndarray, rows: np.ndarray, s: float) -> np.ndarray:
    """The spline at rows - s: all of them lie equally far between two samples."""
    k = rows - int(np.ceil(s))
    f = np.ceil(s) - s
    after = np.minimum(k + 1, len(x) - 1)  # not used where f is 0
    g = 1 - f
    return g * x[k] + f * x[after] + ((g**3 - g) * bend[k] + (f**3 - f) * bend[after]) / 6


def _highest(value: Callable[[float], float], low: float, high: float) -> tuple[float, float]:
    """Where a function with one peak is highest, and its value there, by golden section."""
    a, b = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
    at_a, at_b = value(a), value(b)
    while high - low > CLOSE:
        if at_a > at_b:
            high, b, at_b = b, a, at_a
            a = high - GOLDEN * (high - low)
            at_a = value(a)
        else:
            low, a, at_a = a, b, at_b
            b = low + GOLDEN * (high - low)
            at_b = value(b)
    return (a, at_a) if at_a > at_b else (b, at_b)
