"""How well a hypothesis expects a log, in nats, whatever the units of its channels.

    L = -N/2 log det S,   S = mean eps eps^T + floor^2            eps: surprises of follow.py, N rows
    evidence = L - L(nothing wrong) - p/2 log N                   p fitted numbers

S is estimated under each hypothesis: every channel counts in its own noise.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from surefoot.doctor.cause import Cause
from surefoot.doctor.evidence.innovations import Gain, Track

Again = Callable[[Gain], np.ndarray]
FLOOR = 1e-4  # of a channel's spread: smaller surprises tell nothing


@dataclass(frozen=True, eq=False)
class Judge:
    plain: np.ndarray  # (s, w, c) surprises with nothing wrong
    good: np.ndarray  # (s, w) rows that count
    floor: np.ndarray  # (c,)

    @staticmethod
    def of(at: Track, plain: np.ndarray, good: np.ndarray) -> "Judge":
        motion = np.concatenate([at.q.std(0)[-at.model.nv :], at.v.std(0)])
        return Judge(plain, good, FLOOR * np.maximum(motion, 1e-6))

    @property
    def n(self) -> int:
        return int(self.good.sum())

    def rows(self, eps: np.ndarray) -> np.ndarray:
        """(N, c)"""
        return np.asarray(eps[self.good])

    def spread(self, rows: np.ndarray) -> np.ndarray:
        """S of surprises (N, c)."""
        return np.asarray(rows.T @ rows / max(len(rows), 1) + np.diag(self.floor**2))

    def likelihood(self, rows: np.ndarray) -> float:
        if not np.isfinite(rows).all():
            return -np.inf
        return float(-0.5 * len(rows) * np.linalg.slogdet(self.spread(rows))[1])

    @cached_property
    def base(self) -> float:
        return self.likelihood(self.rows(self.plain))

    def evidence(self, eps: np.ndarray, numbers: float) -> float:
        return self.likelihood(self.rows(eps)) - self.base - 0.5 * numbers * float(np.log(self.n))

    def share(self, eps: np.ndarray) -> float:
        """Of the squared surprise, each channel in the noise that is left, what is gone."""
        after, before = self.rows(eps), self.rows(self.plain)
        if not np.isfinite(after).all():
            return 0.0
        W = np.linalg.inv(self.spread(after))
        a, b = (float(np.einsum("ni,ij,nj->", r, W, r)) for r in (after, before))
        return max(0.0, 1 - a / b)


@dataclass(frozen=True, eq=False)
class Weighed:
    """A cause with what is left under it, and the world in which it is true."""

    cause: Cause
    eps: np.ndarray
    e: np.ndarray | None = None
    """of the suspects' params, where it is a number of the model"""
    strengths: dict[str, float] | None = None
    """of the gap's ingredients, where it is one"""
    again: Again | None = None
    """surprises (s, w, c) of the same under another gain"""


def weigh(
    judge: Judge,
    kind: str,
    branch: str,
    words: str,
    eps: np.ndarray,
    numbers: float = 1,
    e: np.ndarray | None = None,
    strengths: dict[str, float] | None = None,
    evidence: float | None = None,
    again: Again | None = None,
) -> Weighed:
    share = judge.share(eps)
    told = f"{words}: explains {share:.0%} of what the model did not expect"
    evidence = judge.evidence(eps, numbers) if evidence is None else evidence
    return Weighed(Cause(kind, words, float(evidence), share, told, branch), eps, e, strengths, again)
