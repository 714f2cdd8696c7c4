"""Collecting: a policy drives envs for T control periods, and what happened comes back as arrays.

    o_t -> act(o_t) = (a_t, k_t) -> env.step(a_t) -> r_t, o_{t+1}        t = 0 .. T - 1, n simulations side by side

Blocks of envs are half a step apart: while the engine advances one, the policy and the observations of another are computed.

A learner says how to act and what k to keep beside each action, such as its net's outputs or labels; it never steps an env
itself. Whoever collects elsewhere, in other processes or on other machines, has this one method to offer.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from surefoot.blocks import Blocks
from surefoot.env import Env, Episodes, Step
from surefoot.learn.starts import Starts

Obs = Mapping[str, np.ndarray]
Act = Callable[[Obs, int, slice], tuple[np.ndarray, Mapping[str, np.ndarray]]]
"""observations by group (k, .), t and which k envs -> actions (k, na), and what to keep of this step"""
FLAGS = ("terminated", "truncated", "final", "valid")


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


class Collector:
    """Where the envs stand, and what they showed last."""

    def __init__(self, env: Env | Blocks):
        self.blocks = env if isinstance(env, Blocks) else Blocks([env])
        clip = self.blocks.task.clip
        self.starts = Starts(clip) if clip is not None else None
        """where in a reference motion episodes begin"""
        self._aim()
        self.obs = self.blocks.reset()
        self.terms: dict[str, float] = {}
        """reward/NAME -> mean of this weighted term over the last rollout, a second; and facts about where episodes begin"""

    def collect(self, act: Act, horizon: int, groups: Sequence[str] = ()) -> Rollout:
        """Act for `horizon` periods, going on where the last call ended; keeps the observations of `groups`."""
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
                env.begin(_acted(r, t, rows, act(now[k], t, rows)))

        blocks.run(T + 1, turn)
        self.obs = {g: np.concatenate([o[g] for o in now]) for g in self.obs}
        mean = np.sum([env.reward_sums for env in blocks.envs], 0) / (T * blocks.n * blocks.world.dt)
        self.terms = {f"reward/{name}": float(value) for name, value in zip(blocks.task.rewards, mean)}
        if self.starts is not None:
            self.starts.tell(r.episodes, T)
            self._aim()
            self.terms |= self.starts.facts()
        return r

    def _aim(self) -> None:
        if self.starts is not None:
            self.blocks.chances = self.starts.chances

    def reset(self, seed: int) -> None:
        self.obs = self.blocks.reset(seed)

    def save(self) -> dict[str, np.ndarray]:
        own = self.starts.save() if self.starts is not None else {}
        return {f"env.{k}": v for k, v in self.blocks.save().items()} | {f"starts.{k}": v for k, v in own.items()}

    def load(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Go on from what save() gave, here among other arrays."""
        own = {k.removeprefix("env."): v for k, v in arrays.items() if k.startswith("env.")}
        self.obs = self.blocks.load(own)
        if self.starts is not None:
            self.starts.load({k.removeprefix("starts."): v for k, v in arrays.items() if k.startswith("starts.")})
            self._aim()


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
