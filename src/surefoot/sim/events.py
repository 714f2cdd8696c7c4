"""Scheduled disturbances, as Terms on the force socket."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from surefoot.params import Params
from surefoot.rng import stream
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
        out = np.zeros((n, x.v.shape[1]))
        period, length = round(self.every / chance.dt), round(self.seconds / chance.dt)
        begin, way = _schedule(chance.seed, chance.step // period, n, period - length + 1)
        since = chance.step % period - begin
        hit = np.flatnonzero((since >= 0) & (since < length))
        size = np.full(len(hit), self.force)
        for i, p in enumerate(self.params):
            if p.target == "push":
                size *= x.e[hit, i]
        out[hit, self.joint_dofs] = size[:, None] * way[hit]
        return out


@lru_cache(maxsize=4)
def _schedule(seed: int, period: int, n: int, starts: int) -> tuple[np.ndarray, np.ndarray]:
    """(n,) when within a period each push begins, in steps, and (n, 2) which way it goes."""
    rng = stream(seed, "push", period)
    begin, angle = rng.integers(0, starts, n), rng.uniform(-np.pi, np.pi, n)
    return begin, np.stack([np.cos(angle), np.sin(angle)], 1)
