"""Collecting: a policy drives envs for T control periods, and what happened comes back as arrays.

    o_t, w_t -> act(o_t, w_t) = (a_t, k_t) -> env.step(a_t) -> r_t, o_{t+1}        t = 0 .. T - 1, n simulations side by side

w_t is what chance gives each simulation, drawn before the rollout begins. Blocks of envs are half a step apart: while the
engine advances one, the policy and the observations of another are computed.

A learner says how to act and what k to keep beside each action, such as its net's outputs or labels; it never steps an env
itself. Whoever collects elsewhere, in other processes or on other machines (cluster/), has these methods to offer.

The last bits of a product of matrices depend on how many rows it has, and not on what is in the other rows. So which
envs a policy is asked about together, a Tile, depends on n alone: who holds a part of a tile fills the rest with zeros.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from surefoot.belief import Belief
from surefoot.blocks import Blocks
from surefoot.env import AbstractEnv, Episodes, OnDivergence, Step
from surefoot.learn.ranges.starts import Starts
from surefoot.task import Task
from surefoot.world import World

Obs = Mapping[str, np.ndarray]
Draws = Mapping[str, np.ndarray]
"""what chance gives: name -> (T, n, .) of a rollout, (k, .) of k envs in one step"""
Act = Callable[[Obs, Draws], tuple[np.ndarray, Mapping[str, np.ndarray]]]
"""observations by group (k, .) and draws (k, .) of k envs -> actions (k, na), and what to keep of this step"""
NOTHING: Draws = MappingProxyType({})
FLAGS = ("terminated", "truncated", "final", "valid")
TILE = 512  # envs at most that a policy is asked about together
Tile = slice
"""numbers of envs, from start to stop"""


def tiles(blocks: Sequence[int], first: int = 0) -> list[Tile]:
    """Which envs a policy is asked about together, where blocks of so many envs follow each other."""
    found = []
    for n in blocks:
        found += [slice(first + a, first + min(a + TILE, n)) for a in range(0, n, TILE)]
        first += n
    return found


@dataclass
class Rollout:
    """T steps of n simulations."""

    obs: dict[str, np.ndarray]  # group -> (T + 1, n, .), of the groups asked for
    kept: dict[str, np.ndarray]  # name -> (T, n, .)
    reward: np.ndarray  # (T, n) float32
    flags: dict[str, np.ndarray]  # name -> (T, n) bool
    last: list[tuple[int, np.ndarray, dict[str, np.ndarray]]] = field(default_factory=list)
    """(t, rows, observations by group) of the last states of episodes that ran out of time"""
    episodes: list[Episodes] = field(default_factory=list)
    ended: list[tuple[int, int]] = field(default_factory=list)
    """of each of `episodes`: t, and the first row of its block"""


class Elsewhere(ABC):
    """Envs that other processes hold: what a learner may know of them here."""

    n: int
    task: Task
    world: World
    """one simulation of the same kind"""
    belief: Belief
    seed: int
    counter: int
    diverged: int
    not_finite: Counter[str]
    on_divergence: OnDivergence | None
    chances: np.ndarray | None
    device: str = "cpu"
    """where rollouts are, and the nets that learn from them"""

    @property
    def steps(self) -> int:
        """Control periods of an episode, as an Env has them."""
        return round(self.task.seconds / self.world.dt)

    @abstractmethod
    def collector(self) -> "Collector": ...

    @abstractmethod
    def close(self) -> None:
        """Let those who hold them go."""


Envs = AbstractEnv | Blocks | Elsewhere


def collector_of(env: Envs) -> "Collector":
    return env.collector() if isinstance(env, Elsewhere) else LocalCollector(env)


class Collector(ABC):
    """Where the envs stand, and what they showed last."""

    def __init__(self, env: Blocks | Elsewhere):
        self.env = env
        clip = env.task.clip
        self.starts = Starts(clip, env.world.dt) if clip is not None else None
        """where in a reference motion episodes begin"""
        self._aim()
        self.obs: dict[str, np.ndarray] = {}
        self.terms: dict[str, float] = {}
        """reward/NAME -> mean of this weighted term over the last rollout, a second; and facts about where episodes begin"""

    @abstractmethod
    def collect(self, act: Act, horizon: int, groups: Sequence[str] = (), draws: Draws = NOTHING) -> Rollout:
        """Act for `horizon` periods, going on where the last call ended; keeps the observations of `groups`."""

    @abstractmethod
    def reset(self, seed: int) -> None: ...

    @abstractmethod
    def _saved(self) -> dict[str, np.ndarray]:
        """What one Env of all rows would save."""

    @abstractmethod
    def _load(self, saved: Mapping[str, np.ndarray]) -> None: ...

    def save(self) -> dict[str, np.ndarray]:
        own = self.starts.save() if self.starts is not None else {}
        return {f"env.{k}": v for k, v in self._saved().items()} | {f"starts.{k}": v for k, v in own.items()}

    def load(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Go on from what save() gave, here among other arrays."""
        if self.starts is not None:
            self.starts.load({k.removeprefix("starts."): v for k, v in arrays.items() if k.startswith("starts.")})
            self._aim()
        self._load({k.removeprefix("env."): v for k, v in arrays.items() if k.startswith("env.")})

    def _note_rewards(self, sums: np.ndarray, r: Rollout) -> None:
        """What to log of a rollout: sums (terms, n) of each weighted term of each env over it."""
        T, n = r.reward.shape
        mean = np.ascontiguousarray(sums).sum(1) / (T * n * self.env.world.dt)
        self.terms = {f"reward/{name}": float(value) for name, value in zip(self.env.task.rewards, mean)}
        if self.starts is not None:
            self.starts.tell(r.episodes, T)
            self._aim()
            self.terms |= self.starts.facts()

    def _aim(self) -> None:
        if self.starts is not None:
            self.env.chances = self.starts.chances


class LocalCollector(Collector):
    """Collects from envs of this process."""

    def __init__(self, env: AbstractEnv | Blocks, among: Sequence[Tile] = ()):
        """`among`: the tiles of all envs, where these are some of them."""
        self.blocks = env if isinstance(env, Blocks) else Blocks([env])
        super().__init__(self.blocks)
        first, last = self.blocks.envs[0].first, self.blocks.envs[-1]
        every = among or tiles([e.n for e in self.blocks.envs], first)
        self.tiles = [t for t in every if t.start < last.first + last.n and t.stop > first]
        self.first = self.tiles[0].start
        """the first env of draws"""
        self.obs = self.blocks.reset()

    def collect(self, act: Act, horizon: int, groups: Sequence[str] = (), draws: Draws = NOTHING) -> Rollout:
        T, blocks = horizon, self.blocks
        seen = {g: np.empty((T + 1, *self.obs[g].shape), np.float32) for g in groups}
        flags = {k: np.empty((T, blocks.n), bool) for k in FLAGS}
        r = Rollout(seen, {}, np.empty((T, blocks.n), np.float32), flags)
        now = [{g: a[rows] for g, a in self.obs.items()} for rows in blocks.rows]
        for env in blocks.envs:
            env.reward_sums[:] = 0.0

        def turn(k: int, t: int) -> None:
            env, rows = blocks.envs[k], blocks.rows[k]
            if t:
                now[k] = _note(r, t - 1, rows, env.end())
            for g in groups:
                seen[g][t, rows] = now[k][g]
            if t < T:
                chance = {name: v[t] for name, v in draws.items()}
                env.begin(_acted(r, t, rows, self._asked(act, now[k], chance, env.first)))

        blocks.run(T + 1, turn)
        self.obs = {g: np.concatenate([o[g] for o in now]) for g in self.obs}
        self._note_rewards(np.concatenate([env.reward_sums for env in blocks.envs], 1), r)
        return r

    def _asked(self, act: Act, obs: Obs, chance: Draws, first: int) -> tuple[np.ndarray, Mapping[str, np.ndarray]]:
        """What the policy says to a block whose first env is `first`, asked tile by tile."""
        last = first + len(next(iter(obs.values())))
        found = []
        for tile in (t for t in self.tiles if t.start < last and t.stop > first):
            own = slice(max(tile.start, first), min(tile.stop, last))
            here = {g: _filled(o[own.start - first : own.stop - first], own, tile) for g, o in obs.items()}
            given = {k: v[tile.start - self.first : tile.stop - self.first] for k, v in chance.items()}
            action, keep = act(here, given)
            at = slice(own.start - tile.start, own.stop - tile.start)
            found.append((action[at], {k: v[at] for k, v in keep.items()}))
        if len(found) == 1:
            return found[0]
        actions, kept = zip(*found)
        return np.concatenate(actions), {k: np.concatenate([each[k] for each in kept]) for k in kept[0]}

    def reset(self, seed: int) -> None:
        self.obs = self.blocks.reset(seed)

    def _saved(self) -> dict[str, np.ndarray]:
        return self.blocks.save()

    def _load(self, saved: Mapping[str, np.ndarray]) -> None:
        self.obs = self.blocks.load(saved)


def _filled(rows: np.ndarray, own: slice, tile: Tile) -> np.ndarray:
    """Rows of a tile, of which `own` are here; the others are zeros. Their layout in memory stays as it is."""
    if own == tile:
        return rows
    shape = (tile.stop - tile.start, *rows.shape[1:])
    by_row = rows.strides[0] >= rows.strides[-1]
    whole = np.zeros(shape, rows.dtype) if by_row else np.zeros(shape[::-1], rows.dtype).T
    whole[own.start - tile.start : own.stop - tile.start] = rows
    return whole


def _acted(r: Rollout, t: int, rows: slice, answer: tuple[np.ndarray, Mapping[str, np.ndarray]]) -> np.ndarray:
    """Keep what a block's policy wants kept; returns its actions."""
    action, keep = answer
    for k, v in keep.items():
        if k not in r.kept:
            r.kept[k] = np.empty((*r.reward.shape, *v.shape[1:]), v.dtype)
        r.kept[k][t, rows] = v
    return action


def _note(r: Rollout, t: int, rows: slice, step: Step) -> dict[str, np.ndarray]:
    """Keep what came of a block's step; returns what it shows now."""
    r.reward[t, rows] = step.reward
    for k in FLAGS:
        r.flags[k][t, rows] = getattr(step, k)
    late = np.flatnonzero(step.truncated & step.final)
    if len(late):
        at = np.searchsorted(np.flatnonzero(step.terminated | step.truncated), late)
        r.last.append((t, rows.start + late, {g: step.last[g][at] for g in r.obs}))
    if step.episodes is not None:
        r.episodes.append(step.episodes)
        r.ended.append((t, rows.start))
    return step.obs


def summary(episodes: list[Episodes]) -> dict[str, float]:
    """Means over the episodes that ended in a batch; nothing when none did."""
    episodes = [e for e in episodes if len(e.ids)]
    if not episodes:
        return {"episodes": 0}
    returns, success, lengths = (
        np.concatenate([getattr(e, k) for e in episodes]) for k in ("returns", "success", "lengths")
    )
    return {
        "episodes": len(returns),
        "return": float(returns.mean()),
        "success": float(success.mean()),
        "length": float(lengths.mean()),
    }
