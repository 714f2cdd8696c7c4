"""Summary of a log: rows, rates, jitter, ranges, gaps; and a picture.

h = median step,  jitter = sd(step - h) over the steps that are no gaps,  lost = sum over gaps of round(step / h) - 1
mean rate = (rows - 1) / time, without the gaps;  uneven: it differs from 1 / h by more than UNEVEN
"""

import io
from pathlib import Path
from typing import Any

import numpy as np

from surefoot import files
from surefoot.errors import SurefootError
from surefoot.formats.resample import gaps
from surefoot.log import Log

UNEVEN = 0.05  # of the rate, between its median and its mean
PANELS, LINES, POINTS = 24, 12, 4000  # of a readable picture


def summary(log: Log) -> dict[str, Any]:
    """Facts about a log, for JSON."""
    columns = {name: _column(log, name) for name in log.columns}
    kept = ("source", "constants", "streams", "mended", "notes", "epoch")
    return {"rows": len(log), "columns": columns, **_clock(log), **{k: log.meta[k] for k in kept if k in log.meta}}


def _clock(log: Log) -> dict[str, Any]:
    if len(log) < 2:
        unknown = dict.fromkeys(("rate", "mean_rate", "jitter", "longest_step"))
        return {"duration": 0.0, "uneven": False, "gaps": [], "lost": 0, **unknown}
    step = np.diff(log.time)
    h, here = float(np.median(step)), gaps(log.time)
    even = step[np.round(step / h) - 1 <= 2]
    mean = 1 / float(even.mean())
    return {
        "duration": float(log.time[-1] - log.time[0]),
        "rate": 1 / h,
        "mean_rate": mean,
        "uneven": abs(mean * h - 1) > UNEVEN,
        "jitter": float(np.std(even - h)),
        "longest_step": float(step.max()),
        "gaps": log.meta.get("gaps", here),
        "lost": int(sum(round((b - a) / h) - 1 for a, b in log.meta.get("gaps", here))),
    }


def _column(log: Log, name: str) -> dict[str, Any]:
    x = log[name].astype(float)
    there = x[np.isfinite(x)]
    return {
        "parts": 1 if x.ndim == 1 else x.shape[1],
        "unit": log.units.get(name, ""),
        "names": log.meta.get("names", {}).get(name, []),
        "min": float(there.min()) if len(there) else None,
        "max": float(there.max()) if len(there) else None,
        "nan": float(np.isnan(x).mean()) if x.size else 0.0,
        **_still(x, log.meta.get("names", {}).get(name, [])),
    }


def _still(x: np.ndarray, names: list[str]) -> dict[str, list[str]]:
    """The parts that never change, and those without a number."""
    x = x.reshape(len(x), -1)
    labels = names if len(names) == x.shape[1] else [str(k) for k in range(x.shape[1])]
    there = np.isfinite(x)
    low, high = (f(np.where(there, x, fill), axis=0, initial=fill) for f, fill in ((np.min, np.inf), (np.max, -np.inf)))
    empty, still = ~there.any(0), (low == high) & (there.sum(0) > 1)
    return {"constant": [n for n, k in zip(labels, still) if k], "empty": [n for n, k in zip(labels, empty) if k]}


def draw(log: Log, path: str | Path) -> Path:
    """A panel for each column over time, gaps shaded, as a png."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    names = list(log.columns)[:PANELS]
    if not names or not len(log):
        raise SurefootError("plot: found no column with rows")
    if Path(path).suffix.lower() != ".png":
        raise SurefootError(f"{path}: expected a name that ends in .png")
    figure = Figure(figsize=(10, 1.6 * len(names) + 0.6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(names), 1, sharex=True, squeeze=False)[:, 0]
    every = max(1, len(log) // POINTS)
    for axis, name in zip(axes, names):
        x = log[name][::every].astype(float)
        x = x if x.ndim == 1 else x[:, :LINES]
        axis.plot(log.time[::every], np.where(np.isfinite(x), x, np.nan), linewidth=0.8)
        unit = log.units.get(name, "")
        axis.set_title(f"{name} [{unit}]" if unit else name, fontsize=8, loc="left", parse_math=False)
        axis.tick_params(labelsize=7)
        for t0, t1 in log.meta.get("gaps", []):
            axis.axvspan(t0, t1, color="0.85")
    axes[-1].set_xlabel("time [s]", fontsize=8)
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=100)
    files.write(Path(path), out.getvalue())
    return Path(path)
