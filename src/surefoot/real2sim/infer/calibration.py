"""Calibration of posteriors of any method, from their draws where the truth is known.

    e* ~ p(e),  x ~ p(x | e*),  e_1 .. e_L ~ q(e | x):     rank of e*_j among e_1j .. e_Lj is uniform on 0 .. L  if q = p(. | x)

SBC (Talts et al. 2018) tests each param's ranks by Kolmogorov-Smirnov, the p-values times the number of params (Bonferroni).
TARP (Lemos et al. 2023) tests all params together: the fraction of draws nearer to a random point than the truth is uniform,
too, so that a region with credibility a covers the truth with probability a. Its deviation is max_a |coverage(a) - a|, which
for a perfect q is near 0.83 / sqrt(runs): a deviation of 0.05 needs 700 runs or more.

Ranks at both ends mean an overconfident posterior; in the middle, an underconfident one; at one end, a bias.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from surefoot.errors import SurefootError
from surefoot.rng import stream
from surefoot.verdict import Check, Verdict

LEAST_P = 0.01
MOST_DEVIATION = 0.05


@dataclass(frozen=True, eq=False)
class Calibration:
    """Ranks and coverage of a method's posteriors."""

    names: tuple[str, ...]
    ranks: np.ndarray  # (runs, d) in 0..draws
    draws: int
    p: np.ndarray  # (d,) Kolmogorov-Smirnov, times d, at most 1
    levels: np.ndarray  # (101,) a
    coverage: np.ndarray  # (101,) of regions of credibility a
    deviation: float
    coverage90: np.ndarray
    """(d,) coverage of each param's central 90 % interval"""

    @property
    def holds(self) -> bool:
        return self.verdict().holds

    def verdict(self) -> Verdict:
        runs = len(self.ranks)
        checks = [
            Check(f"ranks of {name} are uniform", p, LEAST_P, p > LEAST_P, f"KS over {runs} runs; 90 % interval covers {100 * c:.0f} %")
            for name, p, c in zip(self.names, self.p, self.coverage90)
        ]  # fmt: skip
        checks.append(Check("joint coverage (TARP)", self.deviation, MOST_DEVIATION, self.deviation <= MOST_DEVIATION, f"largest deviation over {runs} runs"))  # fmt: skip
        good = all(c.holds for c in checks)
        step = "use it" if good else "more simulations, or a wider density: ranks at both ends mean overconfidence"
        return Verdict(tuple(checks), step, "calibration")


def calibration(truths: np.ndarray, draws: np.ndarray, names: Sequence[str] = (), seed: int = 0) -> Calibration:
    """Truths (runs, d) against draws (runs, L, d) of their posteriors. Ties are broken at random."""
    from scipy.stats import kstest  # takes a second to import

    truths, draws = np.asarray(truths, float), np.asarray(draws, float)
    if truths.ndim != 2 or draws.ndim != 3 or draws.shape[::2] != truths.shape:
        raise SurefootError(
            f"calibration: found truths {truths.shape} and draws {draws.shape}, expected (runs, d) and (runs, draws, d)"
        )
    if len(truths) < 2 or not (np.isfinite(truths).all() and np.isfinite(draws).all()):
        raise SurefootError(f"calibration: found {len(truths)} runs, expected at least 2, all numbers finite")
    (runs, L, d), rng = draws.shape, stream(seed, "calibration")
    below, ties = (draws < truths[:, None]).sum(1), (draws == truths[:, None]).sum(1)
    ranks = below + np.floor(rng.random((runs, d)) * (ties + 1)).astype(int)  # (runs, d)
    u = (ranks + rng.random((runs, d))) / (L + 1)  # continuous, as the test requires
    p = np.array([min(1.0, d * kstest(u[:, j], "uniform").pvalue) for j in range(d)])
    levels = np.linspace(0, 1, 101)
    coverage = np.searchsorted(np.sort(_nearer(truths, draws, rng)), levels, side="right") / runs
    covered = (np.abs(u - 0.5) <= 0.45).mean(0)
    names = tuple(names) or tuple(f"e{j}" for j in range(d))
    return Calibration(names, ranks, L, p, levels, coverage, float(np.abs(coverage - levels).max()), covered)


def _nearer(truths: np.ndarray, draws: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """(runs,) fraction of draws nearer to a random point than the truth, in units of the truths' range."""
    low, width = truths.min(0), np.ptp(truths, axis=0)
    width = np.where(width > 0, width, 1.0)
    a, b, at = (truths - low) / width, (draws - low) / width, rng.random(truths.shape)
    nearer = (np.linalg.norm(b - at[:, None], axis=2) < np.linalg.norm(a - at, axis=1)[:, None]).sum(1)
    return (nearer + rng.random(len(a))) / (draws.shape[1] + 1)
