"""Estimator: readings of one control period after the other -> named quantities with covariance.

    s = init(n)        s' = step(s, frame)        terms(s') = {name: Estimate(value (n, d), cov (n, d, d))}

An estimator is frozen. What it remembers is its state s, name -> (n, ...), which its caller keeps, saves and loads; a row of
zeros begins anew with the next frame. Rows do not know of each other: n simulations, or one robot.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from surefoot.errors import unknown

if TYPE_CHECKING:
    from surefoot.observation import ObsTerm

PREFIX, SPREAD = (
    "estimate/",
    "spread/",
)  # of the readings that terms of an observation take: a value, its standard deviations
EstimatorState = Mapping[str, np.ndarray]
"""name -> (n, ...): a row for each of n robots"""


@dataclass(frozen=True)
class Estimate:
    """A quantity of n robots, and how sure the estimator is of it."""

    value: np.ndarray  # (n, d)
    cov: np.ndarray  # (n, d, d)

    @property
    def sd(self) -> np.ndarray:
        """(n, d)"""
        return np.sqrt(np.einsum("nii->ni", self.cov))

    def nees(self, truth: np.ndarray) -> np.ndarray:
        """(n,) normalised estimation error squared, e^T cov^-1 e: chi-squared with d degrees of freedom where cov is honest."""
        error = self.value - truth
        return np.einsum("ni,ni->n", error, np.linalg.solve(self.cov, error[..., None])[..., 0])


class Estimator(ABC):
    """What every estimator does."""

    inputs: "tuple[ObsTerm, ...]"
    """what it reads, each with the noise that a simulator adds to it"""
    dt: float
    """s from one frame to the next"""

    @property
    @abstractmethod
    def quantities(self) -> Mapping[str, tuple[int, str]]:
        """What it can tell: name -> how many numbers, and their unit."""

    @abstractmethod
    def init(self, n: int) -> EstimatorState:
        """Of n rows that begin with the next frame: zeros."""

    @abstractmethod
    def step(self, s: EstimatorState, frame: np.ndarray) -> EstimatorState:
        """Take in a frame (n, width) of the inputs, side by side, in their units."""

    @abstractmethod
    def terms(self, s: EstimatorState, names: Sequence[str] = ()) -> dict[str, Estimate]:
        """The named quantities, or all, after at least one step."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]: ...

    @abstractmethod
    def with_inputs(self, inputs: "tuple[ObsTerm, ...]") -> "Estimator":
        """The same estimator of inputs with another noise."""

    def readings(self, s: EstimatorState, wanted: Sequence[str]) -> dict[str, np.ndarray]:
        """What terms of an observation ask for: `estimate/NAME` is a value, `spread/NAME` its standard deviations."""
        names = list(dict.fromkeys(w.partition("/")[2] for w in wanted))
        for name in names:
            if name not in self.quantities:
                raise unknown("estimate", name, self.quantities)
        found = self.terms(s, names)
        return {
            w: found[n].sd if w.startswith(SPREAD) else found[n].value for w in wanted for n in [w.partition("/")[2]]
        }


def begun(s: EstimatorState, rows: np.ndarray) -> dict[str, np.ndarray]:
    """The state with rows (numbers, or a mask) that begin anew."""
    out = {k: v.copy() for k, v in s.items()}
    for v in out.values():
        v[rows] = 0
    return out


def stepped(estimator: Estimator, s: EstimatorState, frame: np.ndarray) -> EstimatorState:
    """The state after a frame; rows of which something was lost stay as they are, so that one bad reading does not stay in it."""
    whole = np.isfinite(frame).all(1)
    if whole.all():
        return estimator.step(s, frame)
    out, rows = {k: v.copy() for k, v in s.items()}, np.flatnonzero(whole)
    if len(rows):
        for k, v in estimator.step({k: v[rows] for k, v in s.items()}, frame[rows]).items():
            out[k][rows] = v
    return out


def over_time(
    estimator: Estimator, frames: np.ndarray, wanted: Sequence[str], begins: np.ndarray
) -> dict[str, np.ndarray]:
    """Of one robot whose frames (T, width) follow each other: (T, d) of each reading; it begins anew in rows `begins` (T,) bool.

    A frame that was lost, or part of it, changes nothing; before the first whole one there is no estimate.
    """
    s, rows = estimator.init(1), []
    blank = {w: np.full((1, estimator.quantities[w.partition("/")[2]][0]), np.nan) for w in wanted}
    for frame, begin in zip(frames, begins):
        s = estimator.init(1) if begin else s
        s = stepped(estimator, s, frame[None])
        rows.append(estimator.readings(s, wanted) if any(v.any() for v in s.values()) else blank)
    return {w: np.concatenate([r[w] for r in rows]) for w in wanted}
