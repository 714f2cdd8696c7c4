"""Skew: how far one stream is behind another, and how fast their clocks drift.

    b(t) = g a(t - tau(t)) + c,   tau(t) = tau_0 + d (t - t_mid)     tau [s], d [s/s], 1 ppm = 1e-6

tau maximises the correlation of b with a shifted a: first over whole samples, then between them on a cubic spline of a.
d is the median slope (Theil-Sen) of tau over windows, which is robust to windows without motion.
"""

from dataclasses import dataclass

import numpy as np

from surefoot.errors import SurefootError
from surefoot.formats.resample import resample
from surefoot.log import Log

TRUSTED = 0.5  # correlation below which a window is not used


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
    """Symmetric, so without shift. Without it, interpolation reduces white noise between samples, which draws the peak there."""
    from scipy.ndimage import gaussian_filter1d

    return gaussian_filter1d(x, 1.5, mode="nearest")


def _shift(x: np.ndarray, y: np.ndarray, i: int, j: int, low: int, high: int) -> tuple[float, float]:
    """The shift in samples within [low, high] by which y[i:j] follows x, and the correlation there."""
    from scipy.interpolate import CubicSpline
    from scipy.optimize import minimize_scalar

    rows = np.arange(max(i, high + 1, 0), min(j, len(x) + low - 1, len(x)))  # all shifted rows exist
    y = y[rows]

    def correlation(z: np.ndarray) -> float:
        z, v = z - z.mean(), y - y.mean()
        size = np.sqrt((z * z).sum() * (v * v).sum())
        return float((z * v).sum() / size) if size > 0 else 0.0

    if len(rows) < 16:
        return 0.0, 0.0
    shifts = range(low, high + 1)
    best = max(shifts, key=lambda s: correlation(x[rows - s]))
    span = slice(max(0, rows[0] - best - 8), rows[-1] - best + 9)
    spline = CubicSpline(np.arange(len(x))[span], x[span])
    fine = minimize_scalar(lambda s: -correlation(spline(rows - s)), bounds=(best - 1, best + 1), method="bounded", options={"xatol": 1e-4})  # fmt: skip
    return float(fine.x), -float(fine.fun)
