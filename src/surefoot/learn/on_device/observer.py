"""What the groups of a task observe in n simulations on a device: the pipeline of env/observer.py, without estimators and delays of Terms.

terms -> noise, bias -> clip, scale -> history
"""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from surefoot.errors import SurefootError
from surefoot.learn.on_device.arrays import ARRAYS as xp
from surefoot.learn.on_device.world import put, rows_of
from surefoot.noise import SensorErrors
from surefoot.observation import ObsGroup
from surefoot.params import Params
from surefoot.rng import NormalRows
from surefoot.task import Moment, Task

Frames = dict[str, Tensor]
"""group -> (n, frame)"""


class DeviceObserver:
    """Histories of each group of n envs, whose numbers are `ids`."""

    def __init__(self, task: Task, params: Params, ids: Tensor):
        self.task, self.groups = task, dict(task.observations)
        self.errors = SensorErrors(params, self.groups, 0, 0)
        self.noises = [(noise, xp.asarray(noise.sd)) for noise in self.errors.noises]
        self.normal = NormalRows(ids, self.errors.noises[-1].drawn.stop) if self.noises else None
        self.ends = {g: xp.asarray(group.clips) for g, group in self.groups.items()}
        self.scales = {g: xp.asarray(group.scales) for g, group in self.groups.items()}
        self.histories = {
            g: torch.zeros((len(ids), group.history, group.frame), device=ids.device)
            for g, group in self.groups.items()
        }

    def frames(self, now: Moment, seed: int, step: int) -> Frames:
        """One frame of each group; the actor's is as its sensors measure it."""
        return {g: self._frame(g, group, now, (seed, step)) for g, group in self.groups.items()}

    def _frame(self, g: str, group: ObsGroup, now: Moment, at: tuple[int, int]) -> Tensor:
        found = torch.cat([now.once(t.source).to(torch.float32) for t in group.terms if t.source is not None], 1)
        if group.terms == self.groups["actor"].terms:
            self._disturb(found, now.x.e, at)
        return found.clamp(-self.ends[g], self.ends[g]) * self.scales[g]

    def _disturb(self, frame: Tensor, e: Tensor, at: tuple[int, int]) -> None:
        if self.normal is not None:
            drawn = self.normal.draw(at[0], "noise", at[1])
            for noise, sd in self.noises:
                frame[:, noise.columns] += drawn[:, noise.drawn] * sd * noise.multiple(e)
        for columns, i in self.errors.bias:
            frame[:, columns] += e[:, i, None]

    def push(self, frames: Frames, fresh: Tensor) -> Frames:
        """Take in a frame of every group; the history of `fresh` envs (n,) begins with copies of it."""
        for g, frame in frames.items():
            old = self.histories[g]
            new = torch.cat([old[:, 1:], frame[:, None]], 1)
            self.histories[g] = torch.where(rows_of(fresh, old), frame[:, None], new) if old.shape[1] > 1 else new
        return {g: self._flat(g, h) for g, h in self.histories.items()}

    def last(self, frames: Frames, groups: Mapping[str, Tensor]) -> None:
        """What each of `groups` would observe now, into its tensor; no NaN, even where one diverged."""
        for g, out in groups.items():
            seen = self._flat(g, torch.cat([self.histories[g][:, 1:], frames[g][:, None]], 1))
            torch.nan_to_num(seen, nan=0.0, posinf=0.0, neginf=0.0, out=out)

    def _flat(self, g: str, frames: Tensor) -> Tensor:
        return self.groups[g].flat(frames)

    def save(self) -> dict[str, np.ndarray]:
        return {f"frames.{g}": h.cpu().numpy().copy() for g, h in self.histories.items()}

    def load(self, saved: Mapping[str, np.ndarray]) -> Frames:
        for g, h in self.histories.items():
            h.copy_(torch.from_numpy(saved[f"frames.{g}"]))
        return {g: self._flat(g, h) for g, h in self.histories.items()}


def renewed(old: Frames, changed: Tensor, new: Frames) -> None:
    """The frames of envs that have changed since, in place."""
    for g, frame in old.items():
        put(changed, frame, new[g])


def refuse(task: Task) -> None:
    """What needs the host."""
    for g, group in task.observations.items():
        if group.estimator is not None:
            raise SurefootError(f"engine warp: {task.name}: {g} has an estimator, which computes on the host")
        for t in group.terms:
            if t.source is None:
                raise SurefootError(f"task {task.name}: {t.name}: no simulator knows how to compute it")
