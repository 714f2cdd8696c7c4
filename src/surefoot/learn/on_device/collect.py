"""Rollouts that stay on the device: arrays (T, n, .) are filled there, and what the host has to know of them is read once, at the end."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from surefoot.env import Episodes
from surefoot.learn.collect import NOTHING, Act, Collector, Draws, Rollout
from surefoot.learn.on_device.env import DeviceEnv, DeviceStep
from surefoot.learn.on_device.observer import Frames

Kept = dict[str, Tensor]
"""name -> (T, n, .)"""


class DeviceCollector(Collector):
    """Where the envs stand, and what they showed last."""

    env: DeviceEnv

    def __init__(self, env: DeviceEnv):
        super().__init__(env)
        self.obs: Frames = env.reset()

    def collect(self, act: Act, horizon: int, groups: Sequence[str] = (), draws: Draws = NOTHING) -> Rollout:
        """As every collector; the arrays of the rollout are tensors."""
        T, env = horizon, self.env
        there = {k: torch.from_numpy(v).to(env.device) for k, v in draws.items()}
        seen = {g: _room(self.obs[g], T + 1) for g in groups}
        last = {g: _room(self.obs[g], T) for g in groups}
        kept: Kept = {}
        steps: Kept = {}
        env.reward_sums.zero_()
        for t in range(T):
            for g, room in seen.items():
                room[t].copy_(self.obs[g])
            action, keep = act(self.obs, {k: v[t] for k, v in there.items()})
            _keep(kept, keep, t, T)
            step = env.step(action, {g: room[t] for g, room in last.items()})
            _keep(steps, _row(step), t, T)
            self.obs = step.obs
        for g, room in seen.items():
            room[T].copy_(self.obs[g])
        return self._rollout(seen, last, kept, steps)

    def _rollout(self, seen: Kept, last: Kept, kept: Kept, steps: Kept) -> Rollout:
        flags: Any = {k: steps[k] for k in ("terminated", "truncated", "valid")} | {"final": steps["done"]}
        r = Rollout(seen, kept, steps["reward"], flags)
        late = steps["truncated"].cpu()
        for t in late.any(1).nonzero()[:, 0].tolist():
            rows = late[t].nonzero()[:, 0].to(self.env.device)
            r.last.append((t, rows, {g: room[t, rows] for g, room in last.items()}))
        r.episodes, r.ended = episodes(self.env, {k: v.cpu().numpy() for k, v in steps.items()})
        self._note_rewards(self.env.reward_sums.cpu().numpy(), r)
        return r

    def reset(self, seed: int) -> None:
        self.obs = self.env.reset(seed)

    def _saved(self) -> dict[str, np.ndarray]:
        return self.env.save()

    def _load(self, saved: Mapping[str, np.ndarray]) -> None:
        self.obs = self.env.load(saved)


def _room(like: Tensor, steps: int) -> Tensor:
    return torch.empty((steps, *like.shape), dtype=like.dtype, device=like.device)


def _keep(kept: Kept, rows: Mapping[str, Any], t: int, steps: int) -> None:
    for k, v in rows.items():
        if k not in kept:
            kept[k] = _room(v, steps)
        kept[k][t].copy_(v)


def _row(step: DeviceStep) -> Kept:
    """What to keep of a step."""
    own = {k: getattr(step, k) for k in ("reward", "terminated", "truncated", "valid")}
    return own | vars(step.ends)


def episodes(env: DeviceEnv, steps: Mapping[str, np.ndarray]) -> tuple[list[Episodes], list[tuple[int, int]]]:
    """The episodes that ended in each of T steps, and (t, 0) of those steps."""
    found, at = [], []
    T, first = len(steps["done"]), env.counter - len(steps["done"])
    for t in range(T):
        if not steps["done"][t].any():
            continue
        ids = np.flatnonzero(steps["done"][t] & ~steps["partial"][t])
        failed, age, error = (steps[k][t, ids] for k in ("terminated", "lengths", "error"))
        success = ~failed & (error <= env.task.tolerance)
        reason = [env.reasons[i] for i in steps["reason"][t, ids]]
        returns, e = steps["returns"][t, ids].astype(float), steps["e"][t, ids].astype(float)
        began, error = first + t + 1 - age, np.where(failed, np.nan, error)
        found.append(Episodes(ids, returns, age, success, error, reason, e, began, age * env.world.dt))
        at.append((t, 0))
    return found, at
