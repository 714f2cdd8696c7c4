"""Likelihood of a log under a hypothesis, in nats, whatever the units of its channels.

    L = -N/2 log det S,   S = mean eps eps^T + floor^2            eps: innovations (innovations.py), N rows
    evidence = L - L(nothing wrong) - p/2 log N                   p fitted numbers

S is estimated under each hypothesis, so every channel counts in units of its own noise.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from surefoot.doctor.cause import Cause
from surefoot.doctor.evidence.innovations import Gain, Segments

FLOOR = 1e-4  # of a channel's spread: smaller innovations are no evidence


@dataclass(frozen=True, eq=False)
class Likelihood:
    plain: np.ndarray  # (s, w, c) innovations with nothing wrong
    good: np.ndarray  # (s, w) rows that count
    floor: np.ndarray  # (c,)

    @staticmethod
    def of(at: Segments, plain: np.ndarray, good: np.ndarray) -> "Likelihood":
        motion = np.concatenate([at.q.std(0)[-at.world.nv :], at.v.std(0)])
        return Likelihood(plain, good, FLOOR * np.maximum(motion, 1e-6))

    @property
    def n(self) -> int:
        return int(self.good.sum())

    def rows(self, eps: np.ndarray) -> np.ndarray:
        """(N, c)"""
        return np.asarray(eps[self.good])

    def covariance(self, rows: np.ndarray) -> np.ndarray:
        """S of innovations (N, c)."""
        return np.asarray(rows.T @ rows / max(len(rows), 1) + np.diag(self.floor**2))

    def log(self, rows: np.ndarray) -> float:
        """L of innovations (N, c)."""
        if not np.isfinite(rows).all():
            return -np.inf
        return float(-0.5 * len(rows) * np.linalg.slogdet(self.covariance(rows))[1])

    @cached_property
    def nominal(self) -> float:
        """L with nothing wrong."""
        return self.log(self.rows(self.plain))

    def evidence(self, eps: np.ndarray, numbers: float) -> float:
        return self.log(self.rows(eps)) - self.nominal - 0.5 * numbers * float(np.log(self.n))

    def share(self, eps: np.ndarray) -> float:
        """Fraction of the squared innovations that is gone, each channel in units of the noise that is left."""
        return self.explained(self.rows(self.plain), self.rows(eps))

    def explained(self, before: np.ndarray, after: np.ndarray) -> float:
        """The same of rows (N, c) without and with an explanation."""
        if not (np.isfinite(after).all() and np.isfinite(before).all()):
            return 0.0
        W = np.linalg.inv(self.covariance(after))
        a, b = (float(np.einsum("ni,ij,nj->", r, W, r)) for r in (after, before))
        return max(0.0, 1 - a / b)


@dataclass(frozen=True, eq=False)
class Hypothesis:
    """What may be wrong between the controls and the signals of a log, with its numbers, and the world in which it is so."""

    kind: str
    branch: str
    about: str
    numbers: int = 1
    """fitted to the log"""
    e: np.ndarray | None = None
    """of the params of the model's errors, where it is a number of the model"""
    strengths: dict[str, float] | None = None
    """of the reality gap's ingredients, where it is one"""
    value: float | None = None
    """its one number, where people ask for it"""
    innovations: Callable[[Gain], np.ndarray] | None = None
    """(s, w, c) under it, for any gain"""


@dataclass(frozen=True, eq=False)
class Weighed:
    """A hypothesis with its evidence and the innovations that are left under it."""

    hypothesis: Hypothesis
    cause: Cause
    eps: np.ndarray


def weigh(likelihood: Likelihood, h: Hypothesis, eps: np.ndarray, evidence: float | None = None) -> Weighed:
    """`evidence` is that of the innovations unless another law gives it."""
    share = likelihood.share(eps)
    evidence = likelihood.evidence(eps, h.numbers) if evidence is None else evidence
    detail = f"{h.about}: explains {share:.0%} of the model's prediction errors"
    return Weighed(h, Cause(h.kind, h.about, float(evidence), share, detail, h.branch, h.value), eps)
