"""Blocks: n envs as a few Envs that take turns, so that no core waits for another.

    block k, in a thread of its own:  turn (rewards, resets, observations, policy, controls) -> advance (the engine)

While the engine advances one block, another has its turn; each has its share of the cores, so that no thread waits for a core.
Which envs are in which block depends on n alone, what an env draws on its own number alone, and turns have a fixed order:
bits depend neither on threads nor on time.
"""

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from threading import Event, Semaphore
from typing import Any

import numpy as np

from surefoot.belief import Belief
from surefoot.env import AbstractEnv, OnDivergence
from surefoot.task import Task
from surefoot.world import World

LEAST = 512  # envs of a block: with fewer, what a step costs whatever n is outweighs what is won


def sizes(n: int) -> list[int]:
    """How many envs each block has."""
    return [n - n // 2, n // 2] if n >= 2 * LEAST else [n]


def share(threads: int, blocks: int) -> int:
    """Threads of each block's engine; 0: every core, both as `threads` and as the answer."""
    return threads if blocks == 1 else max((threads or os.cpu_count() or 1) // blocks, 1)


class Blocks:
    """Envs with the same task, seed and belief, which count their envs on from each other."""

    def __init__(self, envs: Sequence[AbstractEnv], threads: int = 0):
        self.envs, self.n = tuple(envs), sum(env.n for env in envs)
        ends = np.cumsum([env.n for env in envs]).tolist()
        self.rows = [slice(end - env.n, end) for env, end in zip(envs, ends)]
        """the envs of each block"""
        cores = threads or os.cpu_count() or 1
        self._engines = Semaphore(min(cores, len(envs)))
        """engines that may run at the same time"""
        self._threads = ThreadPoolExecutor(len(envs) - 1, "block") if len(envs) > 1 else None

    @staticmethod
    def like(env: AbstractEnv, more: Sequence[int], threads: int = 0) -> "Blocks":
        """An env, and beside it blocks of more envs of the same kind; on all cores, or as many threads."""
        envs = [env]
        for n in more:
            envs.append(env.like(n, envs[-1].first + envs[-1].n))
        return Blocks(envs, threads)

    def run(self, turns: int, turn: Callable[[int, int], None]) -> None:
        """turn(k, t) for each block k and t = 0, 1, ..., one at a time, ordered by t and then by k.

        Between two turns of a block its engine advances, while other blocks have theirs. Each block has a thread.
        """
        due = [Semaphore(int(k == 0)) for k in range(len(self.envs))]
        failed = Event()

        def work(k: int) -> None:
            try:
                for t in range(turns):
                    due[k].acquire()
                    if failed.is_set():
                        return
                    turn(k, t)
                    due[(k + 1) % len(due)].release()
                    if t + 1 < turns:
                        with self._engines:
                            self.envs[k].advance()
            except BaseException:
                failed.set()
                for other in due:
                    other.release()
                raise

        others = [self._threads.submit(work, k) for k in range(1, len(self.envs))] if self._threads else []
        try:
            work(0)
        finally:
            wait(others)
        for other in others:
            other.result()

    def reset(self, seed: int | None = None) -> dict[str, np.ndarray]:
        return _rows([env.reset(seed) for env in self.envs])

    def save(self) -> dict[str, np.ndarray]:
        """All that load() needs to go on with the same bits: what one Env of all rows would save."""
        return joined([env.save() for env in self.envs])

    def load(self, saved: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return _rows([env.load(own) for env, own in zip(self.envs, parted(saved, self.rows))])

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
    def chances(self) -> np.ndarray | None:
        return self.envs[0].chances

    @chances.setter
    def chances(self, chances: np.ndarray | None) -> None:
        self._set("chances", chances)

    @property
    def on_divergence(self) -> OnDivergence | None:
        return self.envs[0].on_divergence

    @on_divergence.setter
    def on_divergence(self, tell: OnDivergence | None) -> None:
        self._set("on_divergence", tell)

    def _set(self, name: str, value: Any) -> None:
        for env in self.envs:
            setattr(env, name, value)


def joined(saved: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """What one Env of all rows would save, of what Envs that follow each other saved."""
    whole = {k: np.array(sum(s[k] for s in saved)) if k == "diverged" else v for k, v in saved[0].items()}
    return {k: np.concatenate([s[k] for s in saved]) if v.ndim else v for k, v in whole.items()}


def parted(saved: Mapping[str, np.ndarray], parts: Sequence[slice]) -> list[dict[str, np.ndarray]]:
    """The inverse, for parts of these rows; the first has the count of all that diverged."""
    found = [{name: v[rows] if v.ndim else v for name, v in saved.items()} for rows in parts]
    return [own if k == 0 else own | {"diverged": np.array(0)} for k, own in enumerate(found)]


def _rows(parts: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The rows of all blocks, by name."""
    return {k: np.concatenate([p[k] for p in parts]) if len(parts) > 1 else v for k, v in parts[0].items()}
