"""Episodes for the gate: how near each came to failing, and how many it takes until a success rate is clear.

    margin = 1 - error / tolerance, at least -1, of an episode that lasted;   length / longest - 2  of one that ended early

Failures are below 0, falls below -1, earlier falls lower. Batch b in every world has seed + b: the same starts, draws and noise,
so that results differ by the world alone.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from surefoot.env import Env
from surefoot.gate.statistics.sequential import Decision, RateTest
from surefoot.params import Params
from surefoot.policy import Policy
from surefoot.tasks.rollout import Evaluation, evaluate

Make = Callable[[int, int], Env]
"""n, seed -> n episodes of a world"""
BATCH = 50


@dataclass(frozen=True)
class Runs:
    """Episodes, one row each."""

    success: np.ndarray
    margin: np.ndarray
    lasted: np.ndarray
    """(n,) bool: did not end early"""
    error: np.ndarray
    """nan for those that ended early"""
    e: np.ndarray
    reasons: Mapping[str, int]

    def __len__(self) -> int:
        return len(self.success)

    @property
    def won(self) -> tuple[int, int]:
        """How many succeeded, of how many."""
        return int(self.success.sum()), len(self)

    @staticmethod
    def of(found: Evaluation, env: Env) -> "Runs":
        lasted = np.isfinite(found.error)
        near = 1.0 - np.minimum(np.where(lasted, found.error, 0.0) / env.task.tolerance, 2.0)
        margin = np.where(lasted, near, found.lengths / env.steps - 2.0)
        return Runs(found.success, margin, lasted, found.error, found.e, found.reasons)

    def rows(self, at: slice) -> "Runs":
        """Some of them; why they ended is not known of a part."""
        return Runs(self.success[at], self.margin[at], self.lasted[at], self.error[at], self.e[at], {})

    def __add__(self, other: "Runs") -> "Runs":
        join = lambda k: np.concatenate([getattr(self, k), getattr(other, k)])  # noqa: E731
        reasons = Counter(self.reasons) + Counter(other.reasons)
        return Runs(join("success"), join("margin"), join("lasted"), join("error"), join("e"), reasons)

    def endings(self) -> str:
        """Why episodes failed, with counts, for people."""
        ended = {k: n for k, n in self.reasons.items() if k != "time"}
        late = int((self.lasted & ~self.success).sum())
        words = [f"{k} {n}" for k, n in sorted(ended.items(), key=lambda kv: -kv[1])]
        return ", ".join(words + ([f"error too large {late}"] if late else []))


def episodes(
    policy: Policy, env: Env, e: np.ndarray | None = None, show: Callable[[float], None] | None = None
) -> Runs:
    """One episode in each of env's worlds, or in worlds e."""
    watch = None if show is None else (lambda k, env: show((k + 1) / env.steps))
    return Runs.of(evaluate(policy, env, watch, e), env)


def until_clear(
    policy: Policy, make: Make, test: RateTest, seed: int, show: Callable[[float], None] | None = None, early: bool = True
) -> tuple[Runs, Decision]:  # fmt: skip
    """Batches of episodes until the test decides, or until `test.most`; without `early`, all of them."""
    most, done, found, b = test.most or 10 * BATCH, 0, None, 0
    while True:
        n = min(BATCH, most - done)
        part = None if show is None else (lambda share, at=done, n=n: show((at + share * n) / most))  # noqa: B023
        more = episodes(policy, make(n, seed + b), show=part)
        found = more if found is None else found + more
        done, b = done + n, b + 1
        decision = test.decide(found.success)
        if done >= most or (early and decision.answer != "undecided"):
            return found, decision


@dataclass(frozen=True)
class Separation:
    """Failures are where an unknown is high, or low.

    auc: the probability that it is higher (lower) in a failure than in a success; 0.5: unrelated.
    """

    unknown: str
    side: Literal["high", "low"]
    auc: float
    at: float
    """the threshold that best separates failures from successes"""
    beyond: float
    """success rate beyond it"""
    within: float
    """success rate on the other side"""

    def sentence(self, params: Params) -> str:
        p = params[self.unknown]
        unit = f" {p.unit}" if p.unit else " times nominal" if p.op == "scale" else ""
        return (
            f"{p.name} separates failures from successes: {100 * self.beyond:.0f} % succeed where it is "
            f"{'above' if self.side == 'high' else 'below'} {self.at:.3g}{unit}, {100 * self.within:.0f} % elsewhere "
            f"(AUC {self.auc:.2f})"
        )


def separation(runs: Runs, names: list[str], least: float = 0.7) -> Separation | None:
    """By the unknown with the largest AUC; None below `least`, and where nothing failed, or all did."""
    bad = ~runs.success
    if not bad.any() or bad.all():
        return None
    failed, passed = runs.e[bad][:, None], runs.e[~bad][None]
    above = (failed > passed).mean((0, 1)) + 0.5 * (failed == passed).mean((0, 1))
    i = int(np.argmax(np.abs(above - 0.5)))
    auc, high = max(float(above[i]), 1 - float(above[i])), bool(above[i] > 0.5)
    if auc < least:
        return None
    x = np.unique(runs.e[:, i])
    cuts = (x[1:] + x[:-1]) / 2
    out = (runs.e[:, i] > cuts[:, None]) == high  # (cuts, n): beyond the cut
    k = int(np.argmax(out[:, bad].mean(1) - out[:, ~bad].mean(1)))
    rate = lambda mask: float(runs.success[mask].mean())  # noqa: E731
    return Separation(names[i], "high" if high else "low", auc, float(cuts[k]), rate(out[k]), rate(~out[k]))
