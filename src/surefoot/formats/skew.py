"""How late one stream is behind another, and how fast their clocks part.

    b(t) = g a(t - tau(t)) + c,   tau(t) = tau_0 + d (t - t_mid)     tau [s], d [s/s], 1 ppm = 1e-6

tau is where the correlation of b with a shifted a is largest: first over whole samples, then between them on a cubic spline of a.
d is the median slope (Theil-Sen) of tau over windows, so that a window in which nothing moved cannot bend it.
"""

from dataclasses import dataclass

import numpy as np

from surefoot.errors import SurefootError
from surefoot.formats.resample import resample
from surefoot.log import Log

TRUSTED = 0.5  # correlation below which a window tells nothing


@dataclass(frozen=True)
class Skew:
    latency: float
    """seconds that b is behind a, in the middle of the log"""
    drift_ppm: float
    """how much later b gets, microseconds a second; nan where too few windows tell"""
    correlation: float
    """of b with a at that latency, over the whole log"""
    windows: int
    """how many windows told"""


def skew(log: Log, a: str, b: str, part: int = 0, most: float = 0.5, windows: int = 12) -> Skew:
    """Latency of column b behind column a, searched within +-`most` seconds. Of wide columns, one part."""
    step = np.diff(log.time)
    if len(step) and step.max() - step.min() > 1e-3 * np.median(step):
        log = resample(log, log.rate)
    x, y = _part(log, a, part), _part(log, b, part)
    x, y = _smooth(_filled(x, a)), _smooth(_filled(y, b))
    h, L = 1 / log.rate, max(1, round(most * log.rate))
    if len(log) < 4 * L + 16:
        raise SurefootError(f"skew: found {len(log)} rows, expected at least {4 * L + 16} to search within {most:g} s")
    whole, r = _shift(x, y, 0, len(y), -L, L)
    near = max(4, round(0.2 * L))  # windows look beside the whole: far away lie other peaks
    low, high = int(np.floor(whole)) - near, int(np.ceil(whole)) + near
    edges = np.linspace(0, len(y), windows + 1).astype(int)
    found = [
        (0.5 * (i + j) * h, *_shift(x, y, i, j, low, high)) for i, j in zip(edges, edges[1:]) if j - i > 4 * near + 16
    ]
    told = np.array([(t, tau * h) for t, tau, c in found if c > TRUSTED])
    if len(told) < 3:
        return Skew(whole * h, np.nan, r, len(told))
    slope = _slope(told)
    middle = float(np.median(told[:, 1] - slope * (told[:, 0] - 0.5 * len(y) * h)))
    return Skew(middle, 1e6 * slope, r, len(told))


def _slope(told: np.ndarray) -> float:
    i, j = np.triu_indices(len(told), 1)
    return float(np.median((told[j, 1] - told[i, 1]) / (told[j, 0] - told[i, 0])))


def _part(log: Log, name: str, part: int) -> np.ndarray:
    column = log[name].astype(float)
    if column.ndim == 1:
        return column
    if not 0 <= part < column.shape[1]:
        raise SurefootError(f"{name}: part {part}: found {column.shape[1]} parts")
    return column[:, part]


def _filled(x: np.ndarray, name: str) -> np.ndarray:
    """Holes at the mean, where they count for nothing."""
    there = np.isfinite(x)
    if there.sum() < 16 or np.ptp(x[there]) == 0:
        raise SurefootError(f"{name}: found no movement, expected a column that changes")
    return np.where(there, x, x[there].mean())


def _smooth(x: np.ndarray) -> np.ndarray:
    """Both sides alike, so no shift: white noise would be least between samples, and draw the peak there."""
    from scipy.ndimage import gaussian_filter1d

    return gaussian_filter1d(x, 1.5, mode="nearest")


def _shift(x: np.ndarray, y: np.ndarray, i: int, j: int, low: int, high: int) -> tuple[float, float]:
    """The shift in samples within [low, high] by which y[i:j] follows x, and the correlation there."""
    from scipy.interpolate import CubicSpline
    from scipy.optimize import minimize_scalar

    rows = np.arange(max(i, high + 1, 0), min(j, len(x) + low - 1, len(x)))  # whose shifted partners all exist
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
