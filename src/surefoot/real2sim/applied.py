"""Terms whose value is given: a force or an offset to the controls, one row for each simulation."""

from dataclasses import dataclass

import numpy as np

from surefoot.world import Chance, OnAction, OnForce, State


@dataclass(frozen=True, eq=False)
class AppliedForce(OnForce):
    force: np.ndarray  # (n, nv)

    def __call__(self, x: State, u: np.ndarray, chance: Chance) -> np.ndarray:
        return self.force


@dataclass(frozen=True, eq=False)
class AppliedOffset(OnAction):
    offset: np.ndarray  # (n, nu)

    def __call__(self, x: State, u: np.ndarray, chance: Chance) -> np.ndarray:
        return u + self.offset
