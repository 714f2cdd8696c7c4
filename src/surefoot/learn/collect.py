"""Collecting: a policy drives an env for T control periods, and what happened comes back as arrays.

    o_t -> act(o_t) = (a_t, k_t) -> env.step(a_t) -> r_t, o_{t+1}        t = 0 .. T - 1, n simulations side by side

A learner says how to act and what k to keep beside each action, such as its net's outputs or labels; it never steps an env
itself. Whoever collects elsewhere, in other processes or on other machines, has this one method to offer.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from surefoot.env import Env, Episodes

Obs = Mapping[str, np.ndarray]
Act = Callable[[Obs], tuple[np.ndarray, Mapping[str, np.ndarray]]]
"""observations by group (n, .) -> actions (n, na), and what to keep of this step"""
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

    def __init__(self, env: Env):
        self.env, self.obs = env, env.reset()
        self.terms: dict[str, float] = {}
        """reward/NAME -> mean of this weighted term over the last rollout, a second"""

    def collect(self, act: Act, horizon: int, groups: Sequence[str] = ()) -> Rollout:
        """Act for `horizon` periods, going on where the last call ended; keeps the observations of `groups`."""
        T, n = horizon, self.env.n
        seen = {g: np.empty((T + 1, *self.obs[g].shape), np.float32) for g in groups}
        r = Rollout(seen, {}, np.empty((T, n), np.float32), {k: np.empty((T, n), bool) for k in FLAGS})
        self.env.reward_sums[:] = 0.0
        for t in range(T):
            for g in groups:
                seen[g][t] = self.obs[g]
            action, keep = act(self.obs)
            for k, v in keep.items():
                r.kept.setdefault(k, np.empty((T, *v.shape), v.dtype))[t] = v
            self._step(r, t, action)
        for g in groups:
            seen[g][T] = self.obs[g]
        mean = self.env.reward_sums / (T * n * self.env.world.dt)
        self.terms = {f"reward/{name}": value for name, value in zip(self.env.task.rewards, mean.tolist())}
        return r

    def _step(self, r: Rollout, t: int, action: np.ndarray) -> None:
        step = self.env.step(action)
        r.reward[t] = step.reward
        for k in FLAGS:
            r.flags[k][t] = getattr(step, k)
        late = np.flatnonzero(step.truncated & step.final)
        if len(late):
            at = np.searchsorted(np.flatnonzero(step.terminated | step.truncated), late)
            r.last.append((t, late, {g: step.last[g][at] for g in r.obs}))
        if step.episodes is not None:
            r.episodes.append(step.episodes)
        self.obs = step.obs

    def reset(self, seed: int) -> None:
        self.obs = self.env.reset(seed)

    def save(self) -> dict[str, np.ndarray]:
        return {f"env.{k}": v for k, v in self.env.save().items()}

    def load(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Go on from what save() gave, here among other arrays."""
        own = {k.removeprefix("env."): v for k, v in arrays.items() if k.startswith("env.")}
        self.obs = self.env.load(own)
