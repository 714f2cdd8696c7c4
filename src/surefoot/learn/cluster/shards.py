"""Shards: a run's n envs, held by w workers, whose rollouts become the one that this process would have collected.

    shard i = envs round(i n / w) .. round((i + 1) n / w)        row j of a rollout is env j, whoever held it

Draws are keyed by env, a policy is asked by tiles that depend on n alone, and what ended in one step is put together
by the blocks that n envs have here: bits depend neither on w nor on who died on the way.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from itertools import groupby
from typing import Any

import numpy as np

from surefoot.belief import Belief
from surefoot.blocks import joined, parted, sizes
from surefoot.env import Episodes, OnDivergence
from surefoot.learn.cluster.worker import Aim, Order, Part, Stand
from surefoot.learn.collect import NOTHING, Act, Collector, Draws, Elsewhere, Rollout, tiles
from surefoot.task import Task
from surefoot.world import World


def cut(n: int, workers: int) -> list[slice]:
    """The envs of each worker; of more workers than envs, only as many have some."""
    w = min(workers, n)
    ends = [round(i * n / w) for i in range(w + 1)]
    return [slice(a, b) for a, b in zip(ends, ends[1:])]


class Workers(ABC):
    """Processes that hold a shard each."""

    shards: list[slice]

    @abstractmethod
    def share(self, value: Any) -> Any:
        """A handle to give to `each` in place of the value, which then travels once."""

    @abstractmethod
    def each(self, method: str, arguments: Sequence[tuple[Any, ...]], saved: Sequence[Any] = ()) -> list[Any]:
        """Worker i's answer to method(*arguments[i]). One that dies is replaced; its successor loads saved[i] first."""

    @abstractmethod
    def close(self) -> None: ...


class Shards(Elsewhere):
    """A run's envs, elsewhere."""

    def __init__(self, workers: Workers, task: Task, world: World, belief: Belief, seed: int):
        self.workers, self.task, self.world, self.belief, self.seed = workers, task, world, belief, seed
        self.n = workers.shards[-1].stop
        self.counter = self.diverged = 0
        self.not_finite: Counter[str] = Counter()
        self.on_divergence: OnDivergence | None = None
        self.chances: np.ndarray | None = None

    def collector(self) -> "ShardedCollector":
        return ShardedCollector(self)

    def close(self) -> None:
        self.workers.close()

    @property
    def aim(self) -> Aim:
        return Aim(self.belief, self.chances)


class ShardedCollector(Collector):
    """Collects from workers."""

    def __init__(self, env: Shards):
        super().__init__(env)
        self.shards, self.workers = env, env.workers
        every, self.tiles = tiles(sizes(env.n)), []
        for rows in self.workers.shards:
            some = [t for t in every if t.start < rows.stop and t.stop > rows.start]
            self.tiles.append(slice(some[0].start, some[-1].stop))  # whose draws the worker needs
        self.saved: list[dict[str, np.ndarray]] = []
        self.reset(env.seed)

    def reset(self, seed: int) -> None:
        self.shards.seed, self.shards.counter = seed, 0
        self._stand(self.workers.each("begin", [(self.shards.aim, seed)] * len(self.tiles)))

    def collect(self, act: Act, horizon: int, groups: Sequence[str] = (), draws: Draws = NOTHING) -> Rollout:
        env, shared = self.shards, self.workers.share(act)
        orders = [
            Order(env.aim, horizon, tuple(groups), {k: v[:, cover] for k, v in draws.items()}) for cover in self.tiles
        ]
        parts: list[Part] = self.workers.each("collect", [(shared, order) for order in orders], self.saved)
        self._stand([p.stand for p in parts])
        env.counter = parts[0].counter
        env.diverged += sum(p.diverged for p in parts)
        env.not_finite = sum((p.not_finite for p in parts), env.not_finite)
        for name, arrays in (bundle for p in parts for bundle in p.bundles):
            if env.on_divergence is not None:
                env.on_divergence(name, arrays)
        r = merged([p.rollout for p in parts], self.workers.shards)
        self._note_rewards(np.concatenate([p.sums for p in parts], 1), r)
        return r

    def _stand(self, found: Sequence[Stand]) -> None:
        self.saved = [s.saved for s in found]
        self.obs = {g: np.concatenate([s.obs[g] for s in found]) for g in found[0].obs}

    def _saved(self) -> dict[str, np.ndarray]:
        return joined(self.saved) | {"diverged": np.array(self.shards.diverged)}

    def _load(self, saved: Mapping[str, np.ndarray]) -> None:
        self.shards.counter, self.shards.diverged = int(saved["counter"]), int(saved["diverged"])
        self._stand(self.workers.each("load", [(own,) for own in parted(saved, self.workers.shards)]))


def merged(parts: Sequence[Rollout], shards: Sequence[slice]) -> Rollout:
    """The rollout of all envs, as one process would have collected it in its blocks."""
    whole = lambda name: {  # noqa: E731
        k: np.concatenate([getattr(p, name)[k] for p in parts], 1) for k in getattr(parts[0], name)
    }
    reward = np.concatenate([p.reward for p in parts], 1)
    r = Rollout(whole("obs"), whole("kept"), reward, whole("flags"))
    firsts = np.cumsum([0, *sizes(reward.shape[1])])
    block = lambda row: int(np.searchsorted(firsts, row, "right"))  # noqa: E731
    last = [(t, s.start + rows, obs) for p, s in zip(parts, shards) for t, rows, obs in p.last]
    for (t, _), some in _together(last, lambda x: (x[0], block(x[1][0]))):
        rows, obs = np.concatenate([x[1] for x in some]), [x[2] for x in some]
        r.last.append((t, rows, {g: np.concatenate([o[g] for o in obs]) for g in obs[0]}))
    ended = [((t, block(s.start + a)), e) for p, s in zip(parts, shards) for (t, a), e in zip(p.ended, p.episodes)]
    for (t, k), alike in _together(ended, lambda x: x[0]):
        r.ended.append((t, int(firsts[k - 1])))
        r.episodes.append(_joined_episodes([e for _, e in alike]))
    return r


def _together(found: list[Any], key: Callable[[Any], tuple[int, int]]) -> list[tuple[tuple[int, int], list[Any]]]:
    """What is of one step and one block, in their order; within it, in the order of the workers, which is that of envs."""
    return [(k, list(some)) for k, some in groupby(sorted(found, key=key), key)]


def _joined_episodes(parts: list[Episodes]) -> Episodes:
    rows = {f.name: [getattr(p, f.name) for p in parts] for f in fields(Episodes)}
    reason: list[str] = sum(rows.pop("reason"), [])
    return Episodes(**{k: np.concatenate(v) for k, v in rows.items()}, reason=reason)
