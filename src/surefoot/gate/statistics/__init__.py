"""Estimates from samples: a number with its interval, or the number and the reason why it has none.

    success rate p:   P(X >= k | low) = P(X <= k | high) = (1 - level) / 2,   X ~ Binomial(n, p)     (Clopper-Pearson)
    "p(fail) <= f":   P(X <= k | f) <= 1 - level,   X ~ Binomial(n, f); k = 0 needs n >= log(1 - level) / log(1 - f)
    median of seeds:  P(x_(r) <= median <= x_(n + 1 - r)) = 1 - 2 P(X < r),   X ~ Binomial(n, 1/2), whatever their law
    mean of numbers:  m +- t s / sqrt(n),   t the (1 + level) / 2 quantile of Student's law with n - 1 degrees
    IQM of runs on tasks: the mean of the middle half of all scores; runs are drawn again within each task

These are for a number of episodes or runs that is fixed beforehand; for tests after every episode see sequential.py.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import bdtr, ndtr, stdtrit  # scipy.stats takes a second to import

from surefoot.errors import SurefootError
from surefoot.verdict import Check, clopper_pearson

FEWEST = 5  # runs: fewer have no useful interval over training seeds
DRAWS = 4000  # of a bootstrap


@dataclass(frozen=True)
class Estimate:
    """A value and its interval at `level`. Without an interval, low and high are None and `how` says why."""

    value: float
    low: float | None
    high: float | None
    n: int
    level: float
    how: str

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return f"{self.value:.4g} ({self.how})"
        return f"{self.value:.4g} ({100 * self.level:g} %: {self.low:.4g} .. {self.high:.4g}, n = {self.n})"


def rate(success: Sequence[bool] | np.ndarray, level: float = 0.95) -> Estimate:
    """The share of episodes that succeeded, with its exact interval."""
    x = outcomes(success, "success")
    if not len(x):
        raise SurefootError("success: found 0 episodes, expected at least 1")
    return Estimate(float(x.mean()), *clopper_pearson(int(x.sum()), len(x), level), len(x), level, "Clopper-Pearson")


def needed(failure: float, level: float = 0.95, failures: int = 0) -> int:
    """Episodes needed to support "at most `failure` of episodes fail" at `level` when `failures` of them fail."""
    _between(failure, "failure")
    _between(level, "level")
    if failures < 0 or failures != int(failures):
        raise SurefootError(f"failures: found {failures}, expected a whole number >= 0")
    supports = lambda n: bdtr(failures, n, failure) <= 1 - level  # noqa: E731
    high = 1
    while not supports(high):
        high *= 2
    low = high // 2  # does not support it, or is 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if supports(middle) else (middle, high)
    return high


def claim(successes: int, episodes: int, failure: float, level: float = 0.95) -> Check:
    """Do these episodes support "at most `failure` of episodes fail" at `level`? The interval's upper end is one-sided.

    No failure in too few episodes is no proof: the check fails and says how many are needed.
    """
    if not 0.5 < level < 1:
        raise SurefootError(f"level: found {level}, expected between 0.5 and 1, for example 0.95")
    if episodes == 0:
        raise SurefootError("claim: found 0 episodes, expected at least 1")
    failed = episodes - successes
    low, high = clopper_pearson(failed, episodes, 2 * level - 1)
    least = needed(failure, level, failed)
    evidence = (
        f"{failed} of {episodes} episodes failed; a claim of {100 * failure:g} % at {100 * level:g} % needs {least}"
    )
    return Check("failure rate", failed / episodes, failure, episodes >= least, evidence, low, high)


def mean(x: Sequence[float] | np.ndarray, level: float = 0.95) -> Estimate:
    """The mean of independent numbers with Student's interval; no interval for one number or for equal ones."""
    x, _ = _numbers(x, "values", 1), _between(level, "level")
    value = float(x.mean())
    why = _none(x, 2)
    if why:
        return Estimate(value, None, None, len(x), level, why)
    half = float(stdtrit(len(x) - 1, (1 + level) / 2) * x.std(ddof=1) / math.sqrt(len(x)))
    return Estimate(value, value - half, value + half, len(x), level, "Student")


def seeds(x: Sequence[float] | np.ndarray, level: float = 0.95) -> Estimate:
    """The median over training seeds, one number for each, between the order statistics that cover it at `level`.

    Valid for any distribution; Student's interval of the mean covers only 70 % where one seed in five fails. 5 seeds reach at most
    93.75 %, from the smallest to the largest: `level` of the result is what is reached. Fewer seeds have no interval.
    """
    x, _ = np.sort(_numbers(x, "seeds", 1)), _between(level, "level")
    value, n = float(np.median(x)), len(x)
    why = _none(x, FEWEST)
    if why:
        return Estimate(value, None, None, n, level, why)
    reached = 1 - 2 * bdtr(np.arange(n // 2), n, 0.5)  # from x[r] to x[n - 1 - r]
    r = max(int((reached >= level).sum()) - 1, 0)
    return Estimate(value, float(x[r]), float(x[n - 1 - r]), n, float(reached[r]), "order statistics of the median")


def iqm(scores: np.ndarray) -> float:
    """The mean of the middle half of all scores: robust to outliers, less noisy than the median."""
    return float(_middle(_numbers(scores, "scores", None).reshape(1, -1))[0])


def _middle(x: np.ndarray) -> np.ndarray:
    """The mean of the middle half of each row."""
    cut, n = x.shape[1] // 4, x.shape[1]
    return np.asarray(np.partition(x, (cut, n - cut - 1), axis=1)[:, cut : n - cut].mean(1))


def iqm_interval(scores: np.ndarray, rng: np.random.Generator, level: float = 0.95, draws: int = DRAWS) -> Estimate:
    """IQM of (runs, tasks) scores; each draw takes as many runs with replacement, separately for each task.

    A plain percentile interval is too narrow by sqrt((n - 1) / n), and by the normal quantile instead of Student's:
    with 5 runs it covers 89 %. So its quantiles are taken at Phi(+- t sqrt(n / (n - 1))), where t has n - 1 degrees of
    freedom: more tasks do not replace runs.
    """
    x = _numbers(scores, "scores", None)
    if x.ndim not in (1, 2):
        raise SurefootError(f"scores: found shape {x.shape}, expected (runs, tasks)")
    x = x.reshape(len(x), -1)  # (n, m)
    n, m = x.shape
    _between(level, "level")
    why = _none(x, FEWEST)
    if why:
        return Estimate(iqm(x), None, None, n, level, why)
    drawn = x[rng.integers(0, n, (draws, n, m)), np.arange(m)]
    found = _middle(drawn.reshape(draws, n * m))
    far = ndtr(stdtrit(n - 1, (1 + level) / 2) * math.sqrt(n / (n - 1)))
    low, high = np.quantile(found, [1 - far, far])
    return Estimate(iqm(x), float(low), float(high), n, level, "stratified bootstrap, widened for few runs")


def outcomes(x: Sequence[bool] | np.ndarray, where: str) -> np.ndarray:
    """A row of successes as booleans; 0 and 1 are accepted, other numbers are refused."""
    x = np.asarray(x)
    if x.ndim != 1 or (len(x) and not np.isin(x, (0, 1)).all()):
        raise SurefootError(f"{where}: expected a row of successes, each true or false")
    return x.astype(bool)


def _numbers(x: Sequence[float] | np.ndarray, where: str, ndim: int | None) -> np.ndarray:
    x = np.asarray(x, float)
    if ndim is not None and x.ndim != ndim:
        raise SurefootError(f"{where}: found shape {x.shape}, expected {ndim} dimension{'s' if ndim > 1 else ''}")
    if not x.size:
        raise SurefootError(f"{where}: found none, expected at least 1")
    if not np.isfinite(x).all():
        raise SurefootError(f"{where}: found {x[~np.isfinite(x)][0]}, expected finite numbers")
    return x


def _none(x: np.ndarray, fewest: int) -> str:
    """Why these rows have no interval; empty where they have one."""
    if len(x) < fewest:
        return f"no interval: n = {len(x)}, it needs {fewest}"
    return f"no interval: all {len(x)} are equal" if np.ptp(x) == 0 else ""


def _between(x: float, where: str) -> float:
    if not 0 < x < 1:
        raise SurefootError(f"{where}: found {x}, expected between 0 and 1")
    return x
