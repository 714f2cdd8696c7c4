"""Sequential tests of success rates: look after every episode, stop when it is clear, and keep the error rate.

After n episodes with k successes, against H0: p <= p0, the mixture over p0 < q < 1 of likelihood ratios

    E_n = 1 / (1 - p0)  integral_{p0}^1  (q / p0)^k ((1 - q) / (1 - p0))^(n - k) dq

is a supermartingale under H0, so P(E_n >= 1 / alpha for any n) <= alpha (Ville): stopping when it first reaches 1 / alpha is
wrong with probability at most alpha, however often one looks. Where at most N episodes are run, 1 / alpha is more than
needed; the smallest c with P(E_n >= c for any n <= N | p0) <= alpha is computed exactly and saves episodes. The test of
p < p1 is the same on failures.

Two policies: of matched episodes only those with different outcomes count, and each policy wins half of these if neither is better
(also if episodes are independent). So "a is better" is p0 = 1/2 among the episodes that only one of them won.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from scipy import special
from scipy.optimize import brentq

from surefoot.errors import SurefootError
from surefoot.gate.statistics import Estimate, outcomes
from surefoot.verdict import counted

EXACT = 2000  # episodes: for longer horizons 1 / alpha is used, which is close to the exact threshold
Answer = Literal["holds", "fails", "undecided"]


def anytime(successes: int, episodes: int, level: float = 0.95) -> tuple[float, float]:
    """The interval (low, high) of p that is valid after every episode: it covers p for all n at once.

    Those p against which the mixture of likelihood ratios with weights Beta(1/2, 1/2) has not reached 1 / (1 - level).
    """
    (k, n), most = counted(successes, episodes, level, "anytime"), -math.log1p(-level)
    if n == 0:
        return 0.0, 1.0
    mixed = special.betaln(k + 0.5, n - k + 0.5) - special.betaln(0.5, 0.5)
    over = lambda p: mixed - special.xlogy(k, p) - special.xlog1py(n - k, -p) - most  # noqa: E731
    low = 0.0 if k == 0 else brentq(over, 1e-300, k / n, xtol=1e-16)
    high = 1.0 if k == n else brentq(over, k / n, 1 - 1e-16, xtol=1e-16)
    return low, high


def log_evidence(k: np.ndarray | int, n: np.ndarray | int, limit: float) -> np.ndarray:
    """log E_n against p <= limit after k successes in n episodes; -inf where it is too small for a float."""
    k, n = np.asarray(k, float), np.asarray(n, float)
    with np.errstate(divide="ignore"):
        above = np.log(special.betaincc(k + 1, n - k + 1, limit))
    mixed = special.betaln(k + 1, n - k + 1) + above - math.log1p(-limit)
    return mixed - k * math.log(limit) - (n - k) * math.log1p(-limit)


@lru_cache(maxsize=64)
def threshold(limit: float, alpha: float, most: int | None = None) -> float:
    """log c: E_n reaches c within `most` episodes with probability at most alpha if p <= limit."""
    ville = -math.log(alpha)
    if most is None or most > EXACT:
        return ville
    e = np.full((most + 1, most + 1), -np.inf)
    for n in range(1, most + 1):
        e[n, : n + 1] = log_evidence(np.arange(n + 1), np.array(n), limit)
    low, high = 0.0, ville
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (low, middle) if _crossing(e >= middle, limit) <= alpha else (middle, high)
    return high


def _crossing(stops: np.ndarray, p: float) -> float:
    """P(stops at (n, k_n) for any n), k_n ~ Binomial(n, p), by forward recursion."""
    going, stopped = np.zeros(len(stops)), 0.0
    going[0] = 1.0
    for here in stops[1:]:
        going = going * (1 - p) + p * np.concatenate([[0.0], going[:-1]])
        stopped += going[here].sum()
        going[here] = 0.0
    return float(stopped)


@dataclass(frozen=True)
class Decision:
    """The answer, after how many episodes, and the rate at that time with its anytime-valid interval."""

    answer: Answer
    episodes: int
    rate: Estimate | None
    words: str
    """the answer for people, or what to do without one"""


@dataclass(frozen=True)
class RateTest:
    """Is a success rate above `limit`? Call `decide` with all outcomes so far, as often as you like.

    holds: p > limit; wrong with probability at most 1 - level.
    fails: p < limit + margin; wrong with probability at most 1 - level.
    """

    limit: float
    margin: float = 0.0
    """how far above the limit a policy must be to pass reliably; a wider margin ends sooner"""
    level: float = 0.95
    most: int | None = None
    """largest number of episodes; None: no end is planned, which needs a few more of them"""

    def __post_init__(self) -> None:
        if not 0 < self.limit < 1 or not 0 <= self.margin < 1 - self.limit:
            raise SurefootError(
                f"limit {self.limit} with margin {self.margin}: expected 0 < limit and limit + margin < 1"
            )
        if not 0 < self.level < 1:
            raise SurefootError(f"level: found {self.level}, expected between 0 and 1, for example 0.95")
        if self.most is not None and self.most < 1:
            raise SurefootError(f"most: found {self.most}, expected at least 1 episode")

    def look(self, successes: int, episodes: int) -> Answer:
        """The answer by what is known now, in whatever order it came: for episodes in rounds, looked at after each round."""
        (k, n), top, alpha = (successes, episodes), self.limit + self.margin, 1 - self.level
        if log_evidence(k, n, self.limit) >= threshold(self.limit, alpha, self.most):
            return "holds"
        return "fails" if log_evidence(n - k, n, 1 - top) >= threshold(1 - top, alpha, self.most) else "undecided"

    def decide(self, success: Sequence[bool] | np.ndarray) -> Decision:
        """The answer at the first episode at which it was clear. Later episodes do not change it."""
        x = outcomes(success, "success")
        if self.most is not None and len(x) > self.most:
            raise SurefootError(f"success: found {len(x)} episodes, expected at most the {self.most} that were planned")
        n, k = np.arange(1, len(x) + 1), np.cumsum(x)
        top, alpha = self.limit + self.margin, 1 - self.level
        good = log_evidence(k, n, self.limit) >= threshold(self.limit, alpha, self.most)
        bad = log_evidence(n - k, n, 1 - top) >= threshold(1 - top, alpha, self.most)
        at = int(np.argmax(good | bad)) if (good | bad).any() else len(x) - 1
        if not len(x):
            return Decision("undecided", 0, None, "run episodes")
        interval = anytime(int(k[at]), at + 1, self.level)
        rate = Estimate(float(k[at] / n[at]), *interval, at + 1, self.level, "anytime")
        if good[at]:
            return Decision("holds", at + 1, rate, f"the rate is above {self.limit:g}")
        if bad[at]:
            return Decision("fails", at + 1, rate, f"the rate is below {top:g}")
        ended = len(x) == self.most
        words = "undecided: too near the limit for so few episodes" if ended else "run more episodes"
        return Decision("undecided", len(x), rate, words)


@dataclass(frozen=True)
class Comparison:
    """Which of two policies is better, after how many episodes of each; difference is p(a) - p(b), anytime-valid."""

    better: Literal["a", "b", "undecided"]
    episodes: int
    won: int
    lost: int
    difference: Estimate | None


def compare(
    a: Sequence[bool] | np.ndarray, b: Sequence[bool] | np.ndarray, sides: Literal[1, 2] = 2, level: float = 0.95,
    most: int | None = None,
) -> Comparison:  # fmt: skip
    """Successes of two policies, episode i of both with the same seed. Call it as often as you like.

    sides=2: of two equal policies one is called better with probability at most 1 - level. sides=1 tests only whether a is better.
    Episodes with different seeds are fine if they are independent.
    """
    x, y = outcomes(a, "a"), outcomes(b, "b")
    if len(x) != len(y):
        raise SurefootError(f"compare: found {len(x)} and {len(y)} episodes, expected as many of both")
    if sides not in (1, 2) or not 0 < level < 1:
        raise SurefootError(f"compare: found sides={sides}, level={level}; expected 1 or 2, and between 0 and 1")
    if most is not None and len(x) > most:
        raise SurefootError(f"compare: found {len(x)} episodes, expected at most the {most} that were planned")
    won, lost = np.cumsum(x & ~y), np.cumsum(y & ~x)
    enough = threshold(0.5, (1 - level) / sides, most)  # episodes with different outcomes are at most all of them
    up, down = (log_evidence(k, won + lost, 0.5) >= enough for k in (won, lost))
    down = down & (sides == 2)
    at = int(np.argmax(up | down)) if (up | down).any() else len(x) - 1
    if not len(x):
        return Comparison("undecided", 0, 0, 0, None)
    w, l, n = int(won[at]), int(lost[at]), at + 1
    return Comparison("a" if up[at] else "b" if down[at] else "undecided", n, w, l, _difference(w, l, n, level))


def _difference(won: int, lost: int, n: int, level: float) -> Estimate:
    """p(only a) - p(only b): each by its own anytime interval, at half the error rate."""
    (w0, w1), (l0, l1) = (anytime(k, n, (1 + level) / 2) for k in (won, lost))
    return Estimate((won - lost) / n, w0 - l1, w1 - l0, n, level, "anytime")
