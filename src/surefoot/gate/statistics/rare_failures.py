"""Rare failures: worlds a policy fails in, found with few episodes, and their probability under the belief p(e).

A world costs an episode to try and nothing to draw. So many e are drawn from p, a surrogate m(e) +- s(e) of the margin (how near
to failing an episode came) is fitted to the few that were simulated, and chooses the next ones:

    find    e with the least m(e) - 2 s(e), until one fails
    learn   e drawn from q, and the surrogate fitted again, a few times
    judge   e drawn from q, which is now fixed:   q(e) = p(e) (rho + (1 - rho) g(e) / G),   G = E_p[g]
            g(e)^2 = P(margin < t) by the surrogate,  t the margin that best separates failures from successes
    P(fail) = E_q[w fail],   w = p / q = 1 / (rho + (1 - rho) g / G) <= 1 / rho

g is a square root because the variance of w fail is least for q ~ p sqrt(E[fail]).

The share rho of q is p itself: where the surrogate is wrong the estimate stays unbiased, with a wider interval.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, stdtrit  # scipy.stats takes a second to import

from surefoot.belief import Belief
from surefoot.errors import SurefootError
from surefoot.gate.statistics import Estimate
from surefoot.gate.statistics.surrogate import Surrogate, fit
from surefoot.rng import stream
from surefoot.verdict import clopper_pearson

Score = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
"""e (n, d) -> success (n,), and margin (n,): the lower, the nearer to failing"""
RHO = 0.1
POOL = 200_000  # worlds drawn, so failures rarer than about 1e-4 are not searched for
FEWER = 50_000  # of them, in the phases find and learn
LOOKED = 4000  # of those, compared with their sd
BATCH = 10


@dataclass(frozen=True)
class Search:
    """Result of a search. `first`: episodes up to and including the first failure, None if there was none."""

    failures: np.ndarray  # (k, d), worst first
    worst: np.ndarray  # (d,), the world with the least margin
    margin: float
    first: int | None
    episodes: int
    rate: Estimate


@dataclass
class _Tried:
    """Episodes so far."""

    e: np.ndarray
    success: np.ndarray
    margin: np.ndarray

    def add(self, e: np.ndarray, score: Score) -> np.ndarray:
        success, margin = (np.asarray(x) for x in score(e))
        if success.shape != (len(e),) or margin.shape != (len(e),) or not np.isfinite(margin).all():
            raise SurefootError(f"score: expected success and a finite margin for each of {len(e)} worlds")
        self.e = np.concatenate([self.e, e])
        self.success = np.concatenate([self.success, success.astype(bool)])
        self.margin = np.concatenate([self.margin, margin.astype(float)])
        return ~success.astype(bool)


def search(
    score: Score,
    belief: Belief,
    seed: int,
    find: int = 100,
    learn: int = 100,
    judge: int = 200,
    level: float = 0.95,
    drawn: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None,
) -> Search:
    """Search for worlds where a policy fails: at most `find` episodes to find one, then `learn` and `judge` more.

    If there is none, the remaining episodes are drawn from the belief and bound the failure rate from above. `drawn`: e,
    success and margin of worlds that were drawn from the belief before, which the search then need not draw itself: its first
    two batches are of them, and where it finds no failure, the others bound the rate. It does not learn from the others: with
    many episodes whose outcome is partly chance, the surrogate would be too sure, and the interval too narrow.
    """
    if find < 2 * BATCH or min(learn, judge) < BATCH or not 0 < level < 1:
        raise SurefootError(f"search: expected find >= {2 * BATCH}, learn and judge >= {BATCH}, level between 0 and 1")
    pool = belief.sample(stream(seed, "worst pool"), POOL)
    tried, rng = _Tried(np.zeros((0, pool.shape[1])), np.zeros(0, bool), np.zeros(0)), stream(seed, "worst")
    used: list[int] = []
    rest = None
    if drawn is not None and len(drawn[0]) >= 2 * BATCH:
        first, rest = (tuple(a[part] for a in drawn) for part in (slice(2 * BATCH), slice(2 * BATCH, None)))
        pool[: 2 * BATCH], used = first[0], list(range(2 * BATCH))
        tried.add(first[0], lambda _: (first[1], first[2]))
    x = _inputs(belief, pool)
    guess, start = _find(score, pool, x[:FEWER], tried, used, find, rng)
    if tried.success.all():
        return _no_failure(score, belief, tried, learn + judge, level, rng, rest)
    for _ in range(max(learn // (2 * BATCH), 1)):
        g, _ = _chances(guess, x[:FEWER], tried)
        _drawn(score, pool, g, tried, used, 2 * BATCH, rng)
        guess, start = fit(x[used], tried.margin, start)
    g, G = _chances(guess, x, tried)
    fail, chosen = _drawn(score, pool, g, tried, used, judge, rng)
    w = 1.0 / (RHO + (1.0 - RHO) * g[chosen] / G)
    return _result(tried, _estimate(w * fail, level))


def without_search(drawn: tuple[np.ndarray, np.ndarray, np.ndarray], rate: Estimate) -> Search:
    """Of worlds drawn from the belief alone, where those say enough about the rate."""
    return _result(_Tried(*drawn), rate)


def _inputs(belief: Belief, pool: np.ndarray) -> np.ndarray:
    """(n, r) inputs of the surrogate: the unknowns that vary, on their own scale, with mean 0 and sd 1."""
    z = belief.normalise(pool)
    sd = z.std(0)
    if not (sd > 0).any():
        raise SurefootError("search: the belief fixes every unknown: there is nothing to search")
    return ((z - z.mean(0)) / np.where(sd > 0, sd, 1.0))[:, sd > 0]


def _find(
    score: Score, pool: np.ndarray, x: np.ndarray, tried: _Tried, used: list[int], most: int, rng: np.random.Generator
) -> tuple[Surrogate, np.ndarray]:
    """Episodes until the first failure; those of the first two batches are drawn from the belief."""
    if not used:
        used += rng.choice(len(x), 2 * BATCH, replace=False).tolist()
        tried.add(pool[used], score)
    guess, start = fit(x[used], tried.margin)
    while tried.success.all() and len(used) < most:
        chosen = _lowest(guess, x, used, min(BATCH, most - len(used)), rng)
        used += chosen
        tried.add(pool[chosen], score)
        guess, start = fit(x[used], tried.margin, start)
    return guess, start


def _lowest(guess: Surrogate, x: np.ndarray, used: list[int], count: int, rng: np.random.Generator) -> list[int]:
    """Worlds with the least m - 2 s, one by one, each taken as if the surrogate were right about it."""
    looked = np.argsort(guess.mean(x))[: LOOKED // 2]
    looked = np.concatenate([looked, rng.integers(0, len(x), LOOKED // 2)])
    looked = looked[~np.isin(looked, used)]
    chosen: list[int] = []
    m, s = guess(x[looked])
    for _ in range(count):
        best = int(np.argmin(m - 2.0 * s))
        chosen.append(int(looked[best]))
        s = s * guess.away(x[looked], x[looked[best]])
        m[best] = np.inf  # not twice
    return chosen


def _chances(guess: Surrogate, x: np.ndarray, tried: _Tried) -> tuple[np.ndarray, float]:
    """(g, G): square root of the failure probability of each world of the pool, and its mean."""
    t = _threshold(tried)
    m = guess.mean(x)
    near = np.argsort(m)[: len(x) // 10]  # elsewhere the largest sd of these is used: computing it costs too much
    mean, s = guess(x[near])
    g = ndtr((t - m) / s.max())
    g[near] = ndtr((t - mean) / s)
    g = np.sqrt(g)
    return g, float(g.mean())


def _threshold(tried: _Tried) -> float:
    """The margin t that best separates failures (below) from successes; of equally good ones the median."""
    edges = np.sort(tried.margin)
    between = np.concatenate([[edges[0] - 1e-9], (edges[1:] + edges[:-1]) / 2, [edges[-1] + 1e-9]])
    wrong = ((tried.margin[:, None] < between) == tried.success[:, None]).sum(0)
    return float(np.median(between[wrong == wrong.min()]))


def _drawn(
    score: Score, pool: np.ndarray, g: np.ndarray, tried: _Tried, used: list[int], n: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """n episodes in worlds drawn from q: (failed, which)."""
    q = RHO / len(g) + (1 - RHO) * g / g.sum()
    chosen = np.searchsorted(np.cumsum(q), rng.random(n) * q.sum())
    used += chosen.tolist()
    return tried.add(pool[chosen], score), chosen


def _estimate(x: np.ndarray, level: float) -> Estimate:
    """The mean of weighted failures, with an interval on its logarithm, so that it stays above 0.

    Its variance is that of the episodes and that of the pool they were chosen from.
    """
    n, value = len(x), float(x.mean())
    how = f"importance-weighted, {int((x > 0).sum())} failures in {n} episodes"
    if not (x > 0).any():
        return Estimate(0.0, 0.0, clopper_pearson(0, n, level)[1] / RHO, n, level, how)
    sd = math.sqrt(x.var(ddof=1) / n + value / POOL)
    far = math.exp(float(stdtrit(n - 1, (1 + level) / 2)) * sd / value)
    return Estimate(value, value / far, min(value * far, 1.0), n, level, how)


def _result(tried: _Tried, rate: Estimate) -> Search:
    order = np.argsort(tried.margin, kind="stable")
    failed = ~tried.success
    return Search(
        tried.e[order[failed[order]]], tried.e[order[0]], float(tried.margin.min()),
        int(np.argmax(failed)) + 1 if failed.any() else None, len(tried.e), rate,
    )  # fmt: skip


def _no_failure(
    score: Score, belief: Belief, tried: _Tried, left: int, level: float, rng: np.random.Generator,
    drawn: tuple[np.ndarray, ...] | None,
) -> Search:  # fmt: skip
    """Nothing failed: the first episodes, drawn from the belief, and the remaining ones bound the rate."""
    n = 2 * BATCH + left
    failed = np.zeros(0, bool)
    if drawn is not None:
        failed, left = tried.add(drawn[0], lambda _: (drawn[1], drawn[2])), max(left - len(drawn[0]), 0)
        n = 2 * BATCH + len(drawn[0]) + left
    if left:
        failed = np.concatenate([failed, tried.add(belief.sample(rng, left), score)])
    k = int(failed.sum())
    how = f"drawn from the belief, {k} failures in {n} episodes"
    return _result(tried, Estimate(k / n, *clopper_pearson(k, n, level), n, level, how))
