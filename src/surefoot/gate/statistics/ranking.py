"""How well does a simulator predict reality: does it rank n policies as reality does?

    MMRV = 1/n sum_i max_j |R_i - R_j| [(S_i > S_j) != (R_i > R_j)]      mean maximum rank violation: 0 best, 1 worst
    r    = cov(S, R) / sqrt(var S var R)                                 Pearson

S are success rates in simulation, R in reality. A pair in the wrong order counts by its distance in *reality*, so the two
arguments must not be exchanged and are given by name. Policies that are equal in reality do not count.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from surefoot.errors import SurefootError
from surefoot.gate.statistics import DRAWS, FEWEST, Estimate

Table = Sequence[float] | Sequence[Sequence[float]] | np.ndarray


def mmrv(*, sim: Table, real: Table) -> float:
    """Mean maximum rank violation of policies' rates (n,), or of their episodes (n, episodes)."""
    s, r = _rates(sim, real)
    return float(_mmrv(s[None], r[None])[0])


def pearson(*, sim: Table, real: Table) -> float:
    """Pearson's r of policies' rates. Refused where all rates are equal in either."""
    s, r = _rates(sim, real)
    for name, x in (("sim", s), ("real", r)):
        if np.ptp(x) == 0:
            raise SurefootError(f"{name}: all {len(x)} policies are at {x[0]:g}: equal policies have no correlation")
    return float(_pearson(s[None], r[None])[0])


@dataclass(frozen=True)
class Proxy:
    """A simulator as a predictor of reality, over n policies."""

    mmrv: Estimate
    pearson: Estimate
    n: int


def proxy(*, sim: Table, real: Table, rng: np.random.Generator, level: float = 0.95, draws: int = DRAWS) -> Proxy:
    """Both numbers with bootstrap intervals over policies, and over their episodes where (n, episodes) are given.

    Fewer than 5 policies have no interval. A draw of one policy alone has no correlation and is left out.
    """
    values = mmrv(sim=sim, real=real), pearson(sim=sim, real=real)
    s, r = (np.asarray(x, float) for x in (sim, real))
    n = len(s)
    if not 0 < level < 1:
        raise SurefootError(f"level: found {level}, expected between 0 and 1, for example 0.95")
    if n < FEWEST:
        why = f"no interval: n = {n} policies, it needs {FEWEST}"
        one, two = (Estimate(v, None, None, n, level, why) for v in values)
        return Proxy(one, two, n)
    chosen = rng.integers(0, n, (draws, n))
    drawn_s, drawn_r = (_again(x, chosen, rng) for x in (s, r))
    vary = (np.ptp(drawn_s, 1) > 0) & (np.ptp(drawn_r, 1) > 0)
    found = _mmrv(drawn_s, drawn_r), _pearson(drawn_s[vary], drawn_r[vary])
    how = "bootstrap over policies" + (" and episodes" if s.ndim == 2 or r.ndim == 2 else "")
    one, two = (_estimate(v, f, n, level, how) for v, f in zip(values, found))
    return Proxy(one, two, n)


def _estimate(value: float, found: np.ndarray, n: int, level: float, how: str) -> Estimate:
    low, high = np.quantile(found, [(1 - level) / 2, (1 + level) / 2])
    if low == high:
        return Estimate(value, None, None, n, level, f"no interval: it is {low:g} in every draw; try more policies")
    return Estimate(value, float(low), float(high), n, level, how)


def _again(x: np.ndarray, chosen: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """(draws, n) rates of the chosen policies; of episodes given, each policy's are drawn again."""
    if x.ndim == 1:
        return x[chosen]
    p, m = x.mean(1)[chosen], x.shape[1]
    return rng.binomial(m, p) / m


def _mmrv(s: np.ndarray, r: np.ndarray) -> np.ndarray:
    """Of each row of (draws, n)."""
    wrong = (s[:, :, None] > s[:, None, :]) != (r[:, :, None] > r[:, None, :])
    return (np.abs(r[:, :, None] - r[:, None, :]) * wrong).max(2).mean(1)


def _pearson(s: np.ndarray, r: np.ndarray) -> np.ndarray:
    s, r = s - s.mean(1, keepdims=True), r - r.mean(1, keepdims=True)
    return np.clip((s * r).sum(1) / np.sqrt((s**2).sum(1) * (r**2).sum(1)), -1.0, 1.0)


def _rates(sim: Table, real: Table) -> tuple[np.ndarray, np.ndarray]:
    """(n,) rates of both. A table of episodes is one of successes, each 0 or 1."""
    found = []
    for name, table in (("sim", sim), ("real", real)):
        x = np.asarray(table, float)
        if x.ndim not in (1, 2) or len(x) < 2 or x.size == 0:
            raise SurefootError(f"{name}: found shape {x.shape}, expected rates of >= 2 policies, or their episodes")
        if not np.isfinite(x).all() or (x < 0).any() or (x > 1).any() or (x.ndim == 2 and not np.isin(x, (0, 1)).all()):
            raise SurefootError(f"{name}: expected success rates from 0 to 1, or episodes that are each 0 or 1")
        found.append(x if x.ndim == 1 else x.mean(1))
    if len(found[0]) != len(found[1]):
        raise SurefootError(f"sim and real: found {len(found[0])} and {len(found[1])} policies, expected the same ones")
    return found[0], found[1]
