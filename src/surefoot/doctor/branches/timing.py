"""Timing branch: does the log have the contract's rate, even time stamps and all of its rows?

rate      rows per second, from the log's time stamps, against the contract's
drops     rows without a measurement, or equal to the last one bit for bit.  With n rows and k dropped:
          evidence = k log(p / p_0) + (n - k) log((1 - p) / (1 - p_0)),  p = k / n, and p_0 one in a thousand
"""

import numpy as np

from surefoot.contract import Contract
from surefoot.doctor.cause import Cause
from surefoot.doctor.evidence.observation import episodes
from surefoot.log import Log
from surefoot.real2sim.signals import measured

USUAL = 1e-3  # share of rows that a good link drops
OFF = 0.02  # of a period: how far the median step may be from the contract's
UNEVEN = 0.1  # of a period: spread of the stamps that a policy does not notice
SIGNALS = ("joint_pos", "joint_vel", "base_quat", "base_ang_vel")


def timing_causes(log: Log, contract: Contract) -> list[Cause]:
    """Causes in time stamps and dropped rows."""
    return [*_rate(log, contract), *_uneven(log), *_drops(log)]


def _rate(log: Log, contract: Contract) -> list[Cause]:
    ratio = log.rate / contract.rate
    if abs(ratio - 1) < OFF:
        return []
    words = f"the log has {log.rate:.4g} rows per second, the contract {contract.rate:.4g}"
    return [Cause("rate", words, float(len(log)), np.nan, words, "timing", log.rate)]


def _uneven(log: Log) -> list[Cause]:
    step = np.diff(log.time)
    step = step[step < 1.5 * np.median(step)] / np.median(step)
    spread = float(step.std())
    if spread < UNEVEN:
        return []
    words = f"time stamps scatter by {spread:.0%} of a period"
    return [Cause("jitter", words, float(len(step) * np.log(spread / 0.01)), np.nan, words, "timing", spread)]


def _drops(log: Log) -> list[Cause]:
    names = [n for n in SIGNALS if n in log.columns]
    if not names:
        return []
    whole = np.concatenate([measured(log, n) for n in names], 1)
    begins = episodes(log)
    inside = np.arange(len(log)) != begins
    there = np.isfinite(measured(log, "control")).all(1)
    same = np.concatenate([[False], (whole[1:] == whole[:-1]).all(1)])
    lost = (~np.isfinite(whole).all(1) | same) & inside & there
    n, k = int((inside & there).sum()), int(lost.sum())
    p = k / max(n, 1)
    if p <= USUAL or k < 3:
        return []
    evidence = k * np.log(p / USUAL) + (n - k) * np.log((1 - p) / (1 - USUAL)) if k < n else k * np.log(1 / USUAL)
    words = f"{k} of {n} rows of measurements are lost or repeated ({p:.1%})"
    return [Cause("drops", words, float(evidence), np.nan, words, "timing", p)]
