"""Scheduled disturbances: Push, a short force on joints; Pull, a slow force on a body."""

import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from surefoot.arrays import namespace
from surefoot.errors import SurefootError
from surefoot.params import Params
from surefoot.rng import Rows
from surefoot.world import Chance, OnBody, OnForce, State


@dataclass(frozen=True)
class Push(OnForce):
    """A push of `force` N (times e's `push`) in a random horizontal direction, for `seconds`, every `every` seconds.

    The time within each period is drawn for each simulation, so that they are not all pushed at once.
    """

    joint_dofs: slice
    force: float
    seconds: float
    every: float
    params: Params

    def __call__(self, x: State, u: np.ndarray, chance: Chance) -> np.ndarray:
        period, length = round(self.every / chance.dt), round(self.seconds / chance.dt)
        if (xp := namespace(x.v)) is not np:
            return self._of_all(xp, x, chance, period, length)
        n = len(x.q)
        out = np.zeros((n, x.v.shape[1]))
        begin, way = _schedule(
            chance.seed, chance.step // period, range(chance.first, chance.first + n), period - length + 1
        )
        since = chance.step % period - begin
        hit = np.flatnonzero((since >= 0) & (since < length))
        size = np.full(len(hit), self.force)
        for i, p in enumerate(self.params):
            if p.target == "push":
                size *= x.e[hit, i]
        out[hit, self.joint_dofs] = size[:, None] * way[hit]
        return out

    def _of_all(self, xp: Any, x: State, chance: Chance, period: int, length: int) -> Any:
        """The same where states are on a device: all simulations alike, pushed or not."""
        rows = chance.rows("push", xp.arange(len(x.v)), chance.step // period)
        begin, angle = rows.integers(0, period - length + 1, len(x.v)), rows.uniform(-np.pi, np.pi, len(x.v))
        since = chance.step % period - begin
        size = self.force * ((since >= 0) & (since < length))
        for i, p in enumerate(self.params):
            if p.target == "push":
                size = size * x.e[:, i]
        out = xp.zeros_like(x.v)
        out[:, self.joint_dofs] = size[:, None] * xp.stack([xp.cos(angle), xp.sin(angle)], 1)
        return out


@lru_cache(maxsize=4)
def _schedule(seed: int, period: int, envs: range, starts: int) -> tuple[np.ndarray, np.ndarray]:
    """(n,) start of each push within its period, in steps, and (n, 2) its direction."""
    rng, n = Rows(seed, "push", period, np.array(envs)), len(envs)
    begin, angle = rng.integers(0, starts, n), rng.uniform(-np.pi, np.pi, n)
    return begin, np.stack([np.cos(angle), np.sin(angle)], 1)


STEP_BITS = 40  # bits of a 64-bit row number for the step at which an episode or period began; the others are the env


@dataclass(frozen=True)
class Pull(OnBody):
    """A force on a body that rises and falls slowly: someone leans on it, or hands it a load and takes it away.

        F_k(t) = clip(s w_k (1 - |2 t / T - 1|), low_k, high_k),   0 <= t < T, along world axis k;  then it is drawn again

    s >= 0 is the largest force in N: e's `pull` if its op is set; the term's `force` times it if it scales. For each episode
    a period T is drawn uniformly from `seconds`, and its phase. For each period the weights w are drawn: |w| uniform over
    those that sum to 1 over the axes in `along`, with random signs; then each w_k is 0 with probability `none`. So
    |F| <= s. Draws of one simulation never affect another.
    """

    body: str
    params: Params
    force: float = 1.0
    """s where no param of e sets it, N"""
    seconds: tuple[float, float] = (6.0, 10.0)
    none: float = 0.25
    along: tuple[bool, bool, bool] = (True, True, True)
    low: tuple[float, float, float] = (-np.inf, -np.inf, -np.inf)
    high: tuple[float, float, float] = (np.inf, np.inf, np.inf)

    def __post_init__(self) -> None:
        where, (shortest, longest) = f"pull on {self.body}", self.seconds
        if not 0 < shortest <= longest < np.inf:
            raise SurefootError(f"{where}: seconds: expected 0 < shortest <= longest, found {self.seconds}")
        if not 0 <= self.none <= 1:
            raise SurefootError(f"{where}: none: expected a probability from 0 to 1, found {self.none}")
        if not any(self.along):
            raise SurefootError(f"{where}: along: expected at least one axis, found none")

    @property
    def bodies(self) -> tuple[str, ...]:
        return (self.body,)

    @cached_property
    def _ends(self) -> tuple[np.ndarray, np.ndarray]:
        return np.array(self.low), np.array(self.high)

    @cached_property
    def _axes(self) -> np.ndarray:
        return np.flatnonzero(self.along)

    def __call__(self, x: State, u: np.ndarray, chance: Chance) -> np.ndarray:
        size, xp = self.size(x.e), namespace(x.e)
        if xp is np and not size.any():
            return np.zeros((len(x.q), 1, 6))
        share, weights = self.draws(x.time, chance)
        wave = 1.0 - xp.abs(2.0 * share - 1.0)
        force = xp.clip((size * wave)[:, None] * weights, *(xp.asarray(a) for a in self._ends))
        return xp.concatenate([force, xp.zeros_like(force)], 1)[:, None]

    def size(self, e: np.ndarray) -> np.ndarray:
        """s of each simulation, (n,) N."""
        size = namespace(e).full(len(e), self.force)
        for i, p in enumerate(self.params):
            if p.target == "pull" and re.fullmatch(p.match, self.body):
                size = e[:, i] * (size if p.op == "scale" else 1.0)
        return size

    def draws(self, time: np.ndarray, chance: Chance) -> tuple[np.ndarray, np.ndarray]:
        """(n,) t / T now, and (n, 3) the weights of this period.

        Draws of an episode are keyed by env and by its first step, those of a period likewise.
        """
        n, xp = len(time), namespace(time)
        axes, age = xp.asarray(self._axes), xp.astype(xp.rint(time / chance.dt), xp.int64)

        def rows(purpose: str, ago: np.ndarray) -> Rows:
            began = (chance.step - ago) % (1 << STEP_BITS)
            envs = chance.first + xp.arange(n)
            return Rows(chance.seed, f"pull {self.body}, {purpose}", 0, (envs << STEP_BITS) + began)

        shortest, longest = (max(1, round(s / chance.dt)) for s in self.seconds)
        episode = rows("episode", age)
        length, phase = episode.integers(shortest, longest + 1, n), episode.random(n)
        into = (age + xp.astype(phase * length, xp.int64)) % length  # steps into the period
        u = rows("period", xp.minimum(into, age)).random((n, 3, len(axes)))
        shares = -xp.log1p(-u[:, 0])  # exponentials over their sum are uniform on the simplex
        shares *= xp.where(u[:, 1] < 0.5, -1.0, 1.0) / xp.maximum(shares.sum(1, keepdims=True), 1e-300)
        weights = xp.zeros((n, 3))
        weights[:, axes] = xp.astype(xp.where(u[:, 2] < self.none, xp.zeros_like(shares), shares), float)
        return into / length, weights
