"""Resampling onto an even clock, with nan where nothing was measured.

    t_n = t_0 + n / rate,  a_k <= t_n <= a_k+1 stamps,  w = (t_n - a_k) / (a_k+1 - a_k)
    x(t_n) = (1 - w) x_k + w x_k+1     numbers        slerp(q_k, q_k+1; w)  quaternions        x_k  controls and booleans

A gap, more than two samples lost in a row (round((a_k+1 - a_k) / median step) - 1 > 2), is not interpolated: its rows are nan.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from surefoot.errors import SurefootError
from surefoot.log import Log
from surefoot.rotation import slerp

LOST = 2  # samples in a row over which values are interpolated
DROPPED = 0.1  # share of rows that may be dropped: with more the clock itself is broken
SLOWEST, FASTEST = 1e-3, 1e6  # Hz
ROWS = 50_000_000  # of a clock: otherwise one wrong stamp takes all memory


def gaps(time: np.ndarray) -> list[list[float]]:
    """Gaps [t0, t1] between neighbouring stamps, with more than two samples lost in each."""
    return [[float(time[k]), float(time[k + 1])] for k in np.flatnonzero(_gaps(time, time))]


def _gaps(stamps: np.ndarray, clock: np.ndarray) -> np.ndarray:
    """Which steps between `stamps` are gaps, by the median step of `clock`."""
    if len(clock) < 3 or len(stamps) < 2:
        return np.zeros(max(0, len(stamps) - 1), bool)
    return np.round(np.diff(stamps) / np.median(np.diff(clock))) - 1 > LOST


def mend(time: np.ndarray, where: str, mending: bool) -> tuple[np.ndarray, list[str]]:
    """Rows with good stamps, and notes on the others; without `mending` they are an error."""
    finite = np.isfinite(time)
    last = np.concatenate([[-np.inf], np.maximum.accumulate(np.where(finite, time, -np.inf))[:-1]])
    good = finite & (time > last)
    bad = np.flatnonzero(~good)
    if not len(bad):
        return good, []
    k = int(bad[0])
    kind = "not finite" if not finite[k] else "a duplicate" if time[k] == last[k] else "going back"
    story = f"{where}: row {k}: found {time[k]:.9g} after {last[k]:.9g}, {kind}"
    if not mending:
        raise SurefootError(
            f"{story}; {len(bad)} such of {len(time)} rows; expected strictly increasing (--mend drops them)"
        )
    if len(bad) > DROPPED * len(time):
        anew = "; was the clock reset there?" if kind == "going back" else ""
        raise SurefootError(
            f"{story}; {len(bad)} such of {len(time)} rows, expected at most {DROPPED:g} of them to drop{anew}"
        )
    return good, [f"{story}; dropped {len(bad)} such of {len(time)} rows, the first of equal stamps kept"]


def check_rate(rate: Any, where: str) -> None:
    """Refuses a number that is no rate of a robot's log."""
    number = isinstance(rate, int | float) and not isinstance(rate, bool)
    if not (number and SLOWEST <= rate <= FASTEST):
        raise SurefootError(
            f"{where}: found {rate!r}, expected a positive number of Hz, from {SLOWEST:g} to {FASTEST:g}"
        )


def even(start: float, end: float, rate: float, where: str = "rate") -> np.ndarray:
    """An even clock from start to end."""
    if not (np.isfinite(rate) and rate > 0):
        raise SurefootError(f"{where}: found {rate}, expected a positive number of Hz")
    n = np.floor((end - start) * rate + 1e-6) + 1
    if n > ROWS:
        raise SurefootError(
            f"{where}: found {end - start:.3g} s at {rate:.6g} Hz, {n:.3g} rows; expected at most {ROWS}"
        )
    return start + np.arange(int(n)) / rate


@dataclass(frozen=True)
class Onto:
    """Resamples columns with stamps `time` onto the clock `t`; nan outside the stamps."""

    time: np.ndarray
    t: np.ndarray

    def column(self, x: np.ndarray, how: str) -> np.ndarray:
        """`how` is linear, hold or slerp."""
        if how == "slerp":
            return self._part(x, np.isfinite(x).all(axis=1), how)
        if x.ndim == 1:
            return self._part(x, np.isfinite(x), how)
        return np.stack([self._part(x[:, j], np.isfinite(x[:, j]), how) for j in range(x.shape[1])], axis=1)

    def _part(self, x: np.ndarray, there: np.ndarray, how: str) -> np.ndarray:
        out = np.full((len(self.t), *x.shape[1:]), np.nan)
        a, x = self.time[there], x[there].astype(float)
        if not len(a):
            return out
        step = np.median(np.diff(self.time)) if len(self.time) > 1 else 0.0
        tiny = 1e-9 + 1e-6 * step  # stamps that differ by rounding alone are equal
        k = np.clip(np.searchsorted(a, self.t + tiny, "right") - 1, 0, len(a) - 1)
        nxt = np.minimum(k + 1, len(a) - 1)
        step = np.where(nxt > k, a[nxt] - a[k], 1.0)
        w = np.clip((self.t - a[k]) / step, 0.0, 1.0)
        w = np.where((np.abs(self.t - a[k]) <= tiny) | (nxt == k), 0.0, w)
        gap = np.append(_gaps(a, self.time), True)[k]  # also after the last stamp
        ok = (self.t >= a[0] - tiny) & (~gap | (np.abs(self.t - a[k]) <= tiny))
        out[ok] = _between(x[k], x[nxt], w, how)[ok]
        return out


def _between(x: np.ndarray, y: np.ndarray, w: np.ndarray, how: str) -> np.ndarray:
    if how == "hold":
        return x
    if how == "linear":
        return np.where(w == 0, x, (1 - w) * x + w * y)
    return slerp(x, y, w)


def kind(name: str, column: np.ndarray) -> str:
    """How a column is interpolated."""
    if name == "control" or column.dtype.kind == "b":
        return "hold"
    return "slerp" if name.endswith("quat") and column.ndim == 2 and column.shape[1] == 4 else "linear"


def resample(log: Log, rate: float) -> Log:
    """The log on an even clock. Gaps stay gaps: nan rows, listed in meta["gaps"]."""
    if len(log) < 2:
        raise SurefootError(f"resample: found {len(log)} rows, expected at least 2")
    t = even(float(log.time[0]), float(log.time[-1]), rate)
    onto, held = Onto(log.time, t), set(log.meta.get("hold", []))
    columns = {k: onto.column(v, "hold" if k in held else kind(k, v)) for k, v in log.columns.items()}
    return Log(t, columns, log.units, log.meta | {"gaps": merged([*log.meta.get("gaps", []), *gaps(log.time)])})


def merged(gaps: list[Any]) -> list[list[float]]:
    """Gaps in order, overlapping ones as one."""
    out: list[list[float]] = []
    for t0, t1 in sorted([float(a), float(b)] for a, b in gaps):
        if out and t0 <= out[-1][1] and t1 > out[-1][0]:
            out[-1][1] = max(out[-1][1], t1)
        else:
            out.append([t0, t1])
    return out
