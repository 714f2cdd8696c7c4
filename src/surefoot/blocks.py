"""Blocks: n envs as a few Envs that take turns, so that no core waits for another.

    block k:  begin (controls) -> advance (the engine, in a thread of its own, on all cores) -> end (rewards, resets, observations)

While the engine advances one block, the caller works on another. Which envs are in which block depends on n alone, what an
env draws on its own number alone, and the blocks are worked on in a fixed order: bits depend neither on threads nor on time.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from surefoot.belief import Belief
from surefoot.env import Env, OnDivergence, Step
from surefoot.task import Task
from surefoot.world import World

LEAST = 512  # envs of a block: with fewer, what a step costs whatever n is outweighs what is won


def sizes(n: int) -> list[int]:
    """How many envs each block has."""
    return [n - n // 2, n // 2] if n >= 2 * LEAST else [n]


class Blocks:
    """Envs with the same task, seed and belief, which count their envs on from each other."""

    def __init__(self, envs: Sequence[Env]):
        self.envs, self.n = tuple(envs), sum(env.n for env in envs)
        ends = np.cumsum([env.n for env in envs]).tolist()
        self.rows = [slice(end - env.n, end) for env, end in zip(envs, ends)]
        """the envs of each block"""
        self._engine = ThreadPoolExecutor(1, "engine") if len(envs) > 1 else None
        self._under_way: list[Future[None] | None] = [None] * len(envs)

    @staticmethod
    def like(env: Env, more: Sequence[int]) -> "Blocks":
        """An env, and beside it blocks of more envs of the same kind."""
        envs = [env]
        for n in more:
            envs.append(env.like(n, envs[-1].first + envs[-1].n))
        return Blocks(envs)

    def begin(self, k: int, action: np.ndarray) -> None:
        """Begin a step of block k; the engine takes it up when it is done with those before."""
        self.envs[k].begin(action)
        if self._engine is not None:
            self._under_way[k] = self._engine.submit(self.envs[k].world.advance)

    def end(self, k: int) -> Step:
        """End the step of block k."""
        under_way = self._under_way[k]
        if under_way is None:
            self.envs[k].world.advance()
        else:
            under_way.result()
        self._under_way[k] = None
        return self.envs[k].end()

    def wait(self) -> None:
        """Until the engine is idle, whatever came of it."""
        for k, under_way in enumerate(self._under_way):
            if under_way is not None:
                under_way.exception()
            self._under_way[k] = None

    def reset(self, seed: int | None = None) -> dict[str, np.ndarray]:
        return _rows([env.reset(seed) for env in self.envs])

    def save(self) -> dict[str, np.ndarray]:
        """All that load() needs to go on with the same bits: what one Env of all rows would save."""
        saved = [env.save() for env in self.envs]
        whole = {k: np.array(sum(s[k] for s in saved)) if k == "diverged" else v for k, v in saved[0].items()}
        return {k: np.concatenate([s[k] for s in saved]) if v.ndim else v for k, v in whole.items()}

    def load(self, saved: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        obs = []
        for k, (env, rows) in enumerate(zip(self.envs, self.rows)):
            own = {name: v[rows] if v.ndim else v for name, v in saved.items()}
            obs.append(env.load(own if k == 0 else own | {"diverged": np.array(0)}))
        return _rows(obs)

    @property
    def task(self) -> Task:
        return self.envs[0].task

    @property
    def world(self) -> World:
        """That of the first block: its model, params and period are those of all."""
        return self.envs[0].world

    @property
    def seed(self) -> int:
        return self.envs[0].seed

    @property
    def steps(self) -> int:
        return self.envs[0].steps

    @property
    def counter(self) -> int:
        return self.envs[0].counter

    @property
    def diverged(self) -> int:
        return sum(env.diverged for env in self.envs)

    @property
    def not_finite(self) -> Counter[str]:
        return sum((env.not_finite for env in self.envs), Counter())

    @property
    def belief(self) -> Belief:
        return self.envs[0].belief

    @belief.setter
    def belief(self, belief: Belief) -> None:
        self._set("belief", belief)

    @property
    def on_divergence(self) -> OnDivergence | None:
        return self.envs[0].on_divergence

    @on_divergence.setter
    def on_divergence(self, tell: OnDivergence | None) -> None:
        self._set("on_divergence", tell)

    def _set(self, name: str, value: Any) -> None:
        for env in self.envs:
            setattr(env, name, value)


def _rows(parts: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The rows of all blocks, by name."""
    return {k: np.concatenate([p[k] for p in parts]) if len(parts) > 1 else v for k, v in parts[0].items()}
