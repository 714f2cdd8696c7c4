"""Scheduled disturbances, as Terms on the force socket."""

from dataclasses import dataclass

import numpy as np

from surefoot.params import Params
from surefoot.world import Chance, OnForce, State


@dataclass(frozen=True)
class Push(OnForce):
    """A push of `force` N (times e's `push`) in a random horizontal direction, for `seconds`, every `every` seconds.

    The moment within each period is drawn per simulation, so that they are not all pushed at once.
    """

    joint_dofs: slice
    force: float
    seconds: float
    every: float
    params: Params

    def __call__(self, x: State, u: np.ndarray, chance: Chance) -> np.ndarray:
        n = len(x.q)
        multiple = np.ones(n)
        for i, p in enumerate(self.params):
            if p.target == "push":
                multiple = multiple * x.e[:, i]
        out = np.zeros((n, x.v.shape[1]))
        if not multiple.any():
            return out
        period, length = round(self.every / chance.dt), round(self.seconds / chance.dt)
        rng = chance.draw("push", every=period)
        begin, angle = rng.integers(0, period - length + 1, n), rng.uniform(-np.pi, np.pi, n)
        since = chance.step % period - begin
        hit = (since >= 0) & (since < length)
        size = np.where(hit, self.force * multiple, 0.0)
        out[:, self.joint_dofs] = size[:, None] * np.stack([np.cos(angle), np.sin(angle)], 1)
        return out
