"""n episodes of a task side by side on a device: the steps of env/of_task.py, in which nothing waits for the host.

    action -> control -> world -> reward, ends -> observations        where few envs begin anew, all draw, and a mask chooses

Draws are those of an Env, keyed by (seed, purpose, step, env), so episodes begin in the same worlds and states.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from surefoot.belief import Belief, Box
from surefoot.env import OnDivergence
from surefoot.errors import SurefootError
from surefoot.learn.collect import Elsewhere
from surefoot.learn.on_device.arrays import ARRAYS as xp
from surefoot.learn.on_device.check import check_terms
from surefoot.learn.on_device.observer import DeviceObserver, Frames, refuse, renewed
from surefoot.learn.on_device.world import DeviceWorld, nobody, put
from surefoot.rng import Rows
from surefoot.task import Moment, Task
from surefoot.task_check import check_groups, in_task_words
from surefoot.world import Chance

if TYPE_CHECKING:
    from surefoot.learn.on_device.collect import DeviceCollector

OWN = ("age", "action", "previous", "command", "reward", "returns", "error", "partial")


@dataclass(frozen=True)
class Ends:
    """Episodes that end in this step: rows of all envs, of which `done` counts."""

    done: Tensor  # (n,) bool
    terminated: Tensor
    returns: Tensor
    lengths: Tensor
    error: Tensor
    reason: Tensor  # (n,) which of `reasons`
    partial: Tensor  # (n,) bool: begun at a later age, so its return and success mean nothing
    e: Tensor  # (n, ne)


@dataclass(frozen=True)
class DeviceStep:
    """What one step gives back, of all envs; `obs` after auto-reset."""

    obs: Frames
    reward: Tensor
    terminated: Tensor
    truncated: Tensor
    valid: Tensor
    ends: Ends


class DeviceEnv(Elsewhere):
    """A Task in a DeviceWorld under a belief."""

    def __init__(self, task: Task, world: DeviceWorld, belief: Belief, seed: int = 0, stagger: bool = False):
        _refuse(task)
        check_groups(task, ("actor", "critic"))
        self.task, self.sims, self.world, self.seed, self.stagger = task, world, world.one, seed, stagger
        self.belief, self.chances = belief, None
        self.n, self.device, self.counter = world.n, str(world.device), 0
        self.span = max(1, round(min(task.window, task.seconds) / world.dt))
        order = task.control_order(world.layout)
        self.order = None if order is None else xp.asarray(order)
        self.layout = replace(world.layout, actions=task.action.names)
        self.ids, zeros = xp.arange(self.n), xp.zeros
        self.age, self.partial = 0 * self.ids, self.ids < 0
        n, na = self.n, len(task.action.names)
        self.action, self.previous, self.command = zeros((n, na)), zeros((n, na)), zeros((n, len(task.command_names)))
        self.reward, self.returns, self.error = zeros(n), zeros(n), zeros(n)
        self.observer = DeviceObserver(task, world.params, self.ids)
        self.reasons = [*task.ended, "diverged", "time"]
        self.reward_sums = zeros((len(task.rewards), n))
        self.bad_count = zeros(())
        self.not_finite: Counter[str] = Counter()
        self.on_divergence: OnDivergence | None = None
        self.checked = False

    @property
    def belief(self) -> Belief:
        return self._belief

    @belief.setter
    def belief(self, belief: Belief) -> None:
        if type(belief) is not Box:
            words = "is drawn on the host; expected ranges, fixed or growing by ramp or widen"
            raise SurefootError(f"engine warp: a belief of kind {type(belief).__name__} {words}")
        self._belief = belief

    @property
    def diverged(self) -> int:
        return int(self.bad_count)

    @property
    def moment(self) -> Moment:
        time = self.age * self.world.dt
        now: tuple[Any, ...] = (
            self.sims.state,
            self.action,
            self.previous,
            self.command,
            time,
            self.reward,
            self.layout,
        )
        return Moment(*now, reference=xp.zeros_like(self.age), phase=time)

    @property
    def chance(self) -> Chance:
        return Chance(self.seed, self.counter, self.world.dt)

    def collector(self) -> "DeviceCollector":
        from surefoot.learn.on_device.collect import DeviceCollector  # which collects from it

        return DeviceCollector(self)

    def close(self) -> None:
        pass

    def reset(self, seed: int | None = None) -> Frames:
        """Begin everywhere; given a seed, from its streams' start. With `stagger`, at random ages."""
        if seed is not None:
            self.seed, self.counter = seed, 0
        everyone = self.sims.everyone
        with in_task_words(self.task):
            self._begin(everyone)
            if not self.checked:
                check_terms(self.task, self.belief, self.moment)
                self.checked = True
            if self.stagger:
                ages = Rows(self.seed, "age", 0, self.ids).integers(0, self.steps, self.n)
                self.age.copy_(ages), self.partial.fill_(True)
            return self.observer.push(self._frames(), everyone)

    def _frames(self) -> Frames:
        return self.observer.frames(self.moment, self.seed, self.counter)

    def step(self, action: Tensor, last: Mapping[str, Tensor] | None = None) -> DeviceStep:
        """One control period. `last`: group -> where to write what it would have observed before auto-reset."""
        with in_task_words(self.task):
            return self._step(action, last or {})

    def _step(self, action: Tensor, last: Mapping[str, Tensor]) -> DeviceStep:
        self.previous, self.action = self.action, self.task.action.bounded(action)
        bad: Tensor = self.sims.step(self._control(self.action), self.chance)
        self.counter += 1
        self.age += 1
        self.sims.contain(bad)
        now = self.moment
        terms = self._reward_terms(now)
        self.reward.copy_(self._floored(terms))
        frames = self.observer.frames(now, self.seed, self.counter)
        sound = [self.reward.isfinite(), *(f.isfinite().all(1) for f in frames.values())]
        bad = bad | ~torch.stack(sound).all(0)
        self.bad_count += bad.sum()
        self.reward_sums += torch.where(bad, 0.0, terms)
        self.reward.copy_(torch.where(bad, 0.0, self.reward))
        terminated, reason = self._judge(now, bad)
        truncated = (self.age >= self.steps) & ~terminated
        done, reward = terminated | truncated, self.reward.clone()
        self.returns += reward
        self._measure(now)
        own = (self.returns, self.age, self.error, reason, self.partial, self.sims.state.e)
        ends = Ends(done, terminated, *(a.clone() for a in own))
        self.observer.last(frames, last)
        self._begin(done)
        changed = done | self._recommand()
        if not nobody(changed):
            renewed(frames, changed, self._frames())
        return DeviceStep(self.observer.push(frames, done), reward, terminated, truncated, ~bad, ends)

    def _control(self, action: Tensor) -> Tensor:
        control: Tensor = self.task.action.control(action)
        if self.order is None:
            return control
        u: Tensor = self.sims.state.u.clone()
        u[:, self.order] = control.to(u.dtype)
        return u

    def _reward_terms(self, now: Moment) -> Tensor:
        """(terms, n): each reward's weight times what it computes, over one control period."""
        if not self.task.rewards:
            return xp.zeros((0, self.n))
        return torch.stack([r.compute(now) * (self.world.dt * r.weight) for r in self.task.rewards.values()]).float()

    def _floored(self, terms: Tensor) -> Tensor:
        floor = self.task.reward_floor
        return terms.sum(0).clamp(min=self.world.dt * floor) if np.isfinite(floor) else terms.sum(0)

    def _judge(self, now: Moment, bad: Tensor) -> tuple[Tensor, Tensor]:
        """Who failed, and why: the first reason that holds."""
        hits = torch.stack([*(test(now) for test in self.task.ended.values()), bad])
        order = xp.arange(len(hits))[:, None]
        return hits.any(0), torch.where(hits, order, len(hits)).amin(0)

    def _measure(self, now: Moment) -> None:
        """The episode's error so far, over its last `window` seconds."""
        error = torch.where(self.age > self.steps - self.span, self.task.error(now), 0.0)
        if self.task.measure == "max":
            self.error.copy_(torch.maximum(self.error, error))
        else:
            self.error += error / self.span

    def _begin(self, mask: Tensor) -> None:
        """New e and Episode where the mask is true."""
        if nobody(mask):
            return
        episode = self.task.episode(self._rows("start"), self.n)
        self.sims.reset(mask, self.belief.sample(self._rows("e"), self.n), episode.start)
        for rows in (self.age, self.returns, self.error, self.partial, self.reward):
            rows.masked_fill_(mask, 0)
        for rows in (self.action, self.previous):
            rows.masked_fill_(mask[:, None], 0.0)
        if episode.command is not None:
            put(mask, self.command, episode.command)
        elif self.task.command is not None:
            put(mask, self.command, self.task.command(self._rows("command"), self.n))

    def _recommand(self) -> Tensor:
        """(n,) bool: the envs whose time had come for another command."""
        if self.task.command is None or not np.isfinite(self.task.command_every):
            return self.ids < 0
        due = (self.age > 0) & (self.age % round(self.task.command_every / self.world.dt) == 0)
        if not nobody(due):
            put(due, self.command, self.task.command(self._rows("recommand"), self.n))
        return due

    def _rows(self, purpose: str) -> Rows:
        return Rows(self.seed, purpose, self.counter, self.ids)

    def save(self) -> dict[str, np.ndarray]:
        own = {k: getattr(self, k).cpu().numpy().copy() for k in (*OWN, "bad_count")}
        own |= self.observer.save() | {"counter": np.array(self.counter)}
        return own | {f"world.{k}": v for k, v in self.sims.save().items()}

    def load(self, saved: Mapping[str, np.ndarray]) -> Frames:
        for k in (*OWN, "bad_count"):
            setattr(self, k, torch.from_numpy(saved[k].copy()).to(self.device))
        self.counter = int(saved["counter"])
        self.sims.load({k.removeprefix("world."): v for k, v in saved.items() if k.startswith("world.")})
        return self.observer.load(saved)


def _refuse(task: Task) -> None:
    """What needs the host, by name."""
    refuse(task)
    if task.clip is not None:
        raise SurefootError(f"engine warp: {task.name} follows a reference motion; expected a task that does not")
    if task.trial > 1:
        raise SurefootError(f"engine warp: {task.name}: expected 1 episode a world (--obs.trial 1), found {task.trial}")
    if task.action.choices:
        raise SurefootError(f"engine warp: {task.name} chooses among few actions; expected continuous ones")
