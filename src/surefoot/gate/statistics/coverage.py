"""Does the training range cover a posterior? The share of one belief's mass in another's support, and the gaps.

    inside = P(e in support of q),  e ~ p        in all dimensions at once, and in each alone: p the posterior, q the training range
    gap_d  = the widest interval of dimension d's range without a sample, as a share of that range (its ends count)
    even_d = 1 / (20 sum_b h_b^2),  h_b the share of samples in the b-th twentieth of the range: 1 for a uniform distribution

An unknown that q fixes is covered where p fixes it at the same value.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from surefoot.belief import Belief, Box
from surefoot.errors import SurefootError
from surefoot.gate.statistics import Estimate, rate

BINS = 20


@dataclass(frozen=True)
class Coverage:
    """The share of p in q's support: jointly with an exact interval, and for each unknown."""

    inside: Estimate
    each: Mapping[str, float]

    @property
    def worst(self) -> str:
        return min(self.each, key=lambda name: self.each[name])


def coverage(p: Belief, q: Belief, rng: np.random.Generator, n: int = 10_000, level: float = 0.95) -> Coverage:
    """The share of p's mass inside q's support, by n draws. 10,000 draws distinguish 99 % from 98.8 %."""
    if p.params.names != q.params.names:
        raise SurefootError(f"coverage: found params {q.params.names}, expected {p.params.names}, in that order")
    if not p.params.names:
        raise SurefootError("coverage: found no unknowns, expected at least 1")
    e = p.sample(rng, n)
    low, high = q.support(0.95)
    each = ((e >= low) & (e <= high)).mean(0)
    return Coverage(rate(q.inside(e), level), dict(zip(p.params.names, each.tolist())))


@dataclass(frozen=True)
class Gaps:
    """Of one unknown: the widest interval without a sample as a share of its range, its ends, and how even the samples are."""

    share: float
    low: float
    high: float
    even: float


def gaps(e: np.ndarray, q: Belief) -> dict[str, Gaps]:
    """The gaps that samples e (n, d), for example those of an evaluation, leave in the ranges of q.

    Distances are on each unknown's own scale: ratios where it is on a log scale. Unknowns that q fixes have none.
    """
    e = np.asarray(e, float)
    if e.ndim != 2 or e.shape[1] != len(q.params) or not len(e):
        raise SurefootError(f"e: found shape {e.shape}, expected (n >= 1, {len(q.params)})")
    low, high = q.support(0.95)
    box, found = Box(q.params, low, high), {}
    for d in np.flatnonzero(high > low):
        z = np.sort(np.clip(box.share(e)[:, d], 0.0, 1.0))
        ends = np.concatenate([[0.0], z, [1.0]])
        at = int(np.argmax(np.diff(ends)))
        since, until = box.at(np.array([[x] * len(q.params) for x in ends[at : at + 2]]))[:, d].tolist()
        h = np.bincount(np.minimum((z * BINS).astype(int), BINS - 1)) / len(z)
        found[q.params.names[d]] = Gaps(float(ends[at + 1] - ends[at]), since, until, float(1 / (BINS * (h**2).sum())))
    return found
