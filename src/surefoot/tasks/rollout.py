"""Policies in worlds: the contract of a task, and what comes of running episodes."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from surefoot.contract import Contract
from surefoot.env import Env
from surefoot.errors import unknown
from surefoot.policy import Driver, Policy
from surefoot.robot import Layout
from surefoot.task import Task
from surefoot.verdict import clopper_pearson
from surefoot.world import World


def contract(task: Task, world: World, parents: dict[str, str] | None = None) -> Contract:
    """What a runtime must know to run a policy of this task on the robot of this world."""
    return contract_of(task, world.layout, 1 / world.dt, parents)


def contract_of(task: Task, layout: Layout, rate: float, parents: dict[str, str] | None = None) -> Contract:
    """The same, of a robot that nobody simulates yet."""
    names = task.action.names
    for name in names:
        if name not in layout.actuators:
            raise unknown("actuator", name, layout.actuators, f"task {task.name}: action")
    drives = {d.actuator: d for d in layout.drives}
    driven = [drives[name] for name in names if name in drives]
    moves, servo = len(driven) == len(names), len(driven) == len(names) and all(d.kp > 0 for d in driven)
    ends = [layout.control_limits[layout.actuators.index(name)] for name in names]
    limited = bool(np.isfinite(ends).all())
    return Contract(
        task=task.name,
        rate=rate,
        observation=task.observations["actor"],
        action=task.action,
        joints=tuple(d.joint for d in driven) if moves else (),
        home=tuple(task.action.offset.tolist()) if servo else (),
        trial=task.trial,
        command_names=task.command_names,
        kp=tuple(d.kp for d in driven) if servo else (),
        kd=tuple(d.kd for d in driven) if servo else (),
        control_low=tuple(low for low, _ in ends) if limited else (),
        control_high=tuple(high for _, high in ends) if limited else (),
        parents=parents or {},
    )


@dataclass(frozen=True)
class Evaluation:
    """One episode in each env: success with an exact 95 % interval, returns, errors, and why episodes ended."""

    returns: np.ndarray
    success: np.ndarray
    error: np.ndarray
    lengths: np.ndarray
    reasons: dict[str, int]
    e: np.ndarray

    @property
    def rate(self) -> float:
        return float(self.success.mean())

    @property
    def interval(self) -> tuple[float, float]:
        return clopper_pearson(int(self.success.sum()), len(self.success))

    def to_json(self) -> dict[str, Any]:
        error = self.error[np.isfinite(self.error)]
        low, high = self.interval
        return {
            "episodes": len(self.success), "success": self.rate, "success_low": low, "success_high": high,
            "return": float(self.returns.mean()), "error": float(error.mean()) if len(error) else None,
            "length": float(self.lengths.mean()), "ended": self.reasons,
        }  # fmt: skip


def joined(parts: Sequence[Evaluation]) -> Evaluation:
    """Batches of episodes, counted together."""
    reasons: Counter[str] = sum((Counter(p.reasons) for p in parts), Counter())
    together = {
        k: np.concatenate([getattr(p, k) for p in parts]) for k in ("returns", "success", "error", "lengths", "e")
    }
    return Evaluation(reasons=dict(reasons), **together)


def evaluate(
    policy: Policy, env: Env, watch: Callable[[int, Env], None] | None = None, e: np.ndarray | None = None
) -> Evaluation:
    """The first episode of every env, no more: those that end early must not count more often than those that last.

    Of a policy that remembers a trial of several: the last one of the first trial, when it knows what it can. Worlds are
    drawn from the env's belief, or are e, a row for each env.
    """
    return trials(policy, env, watch, e)[-1]


def all_succeed(policy: Policy, env: Env) -> bool:
    """Whether the first episode of every env succeeds; stops at the first that does not."""
    obs, drive, ended = env.reset(), Driver(policy, env.n), np.zeros(env.n, bool)
    for _ in range(env.steps):
        step = env.step(drive(obs["actor"]))
        drive.begin(step.final)
        obs = step.obs
        if step.episodes is not None:
            new = ~ended[step.episodes.ids]
            if not step.episodes.success[new].all():
                return False
            ended[step.episodes.ids] = True
        if ended.all():
            return True
    return bool(ended.all())


def trials(
    policy: Policy,
    env: Env,
    watch: Callable[[int, Env], None] | None = None,
    e: np.ndarray | None = None,
) -> list[Evaluation]:
    """The first, second, ... episode of every env's first trial: what a policy makes of having been there before.

    A simulation that diverges ends its trial: what is left of it counts as failed, for that reason.
    """
    under_way = Trials(policy, env, e)
    while not under_way.over:
        under_way.step()
        if watch is not None:
            watch(under_way.periods - 1, env)
    return under_way.evaluations()


class Trials:
    """The first trial of every env, one control period at a time: for those who look on while it runs."""

    def __init__(self, policy: Policy, env: Env, e: np.ndarray | None = None, seed: int | None = None):
        """Worlds are drawn from the env's belief, or are e; with a seed, the env begins anew from its streams' start."""
        k, n = env.task.trial, env.n
        self.env, self.count, self.periods = env, k, 0
        self.returns, self.success, self.lengths = np.zeros((k, n)), np.zeros((k, n), bool), np.zeros((k, n))
        self.error, self.reasons = np.full((k, n), np.nan), [Counter[str]() for _ in range(k)]
        self.ended = np.zeros(n, int)  # episodes ended in each env, at most k
        self.obs, self.drive = env.reset(seed, e), Driver(policy, n)
        self.e = env.world.state.e.copy()
        self._resting = 0

    @property
    def done(self) -> np.ndarray:
        """(n,) bool: the envs whose trial has ended."""
        return self.ended >= self.count

    @property
    def over(self) -> bool:
        return bool(self.done.all()) or self.periods >= self.count * self.env.steps

    def step(self) -> None:
        env, k = self.env, self.count
        step = env.step(self.drive(self.obs["actor"]))
        self.drive.begin(step.final)
        self.obs, self.periods = step.obs, self.periods + 1
        for j, i in enumerate(step.episodes.ids - env.first if step.episodes is not None else ()):
            if self.ended[i] < k and step.episodes is not None:
                for name in ("returns", "success", "error", "lengths"):
                    getattr(self, name)[self.ended[i], i] = getattr(step.episodes, name)[j]
                self.reasons[self.ended[i]][step.episodes.reason[j]] += 1
                self.ended[i] += 1
                if step.final[i]:
                    for missed in self.reasons[self.ended[i] :]:
                        missed[step.episodes.reason[j]] += 1
                    self.ended[i] = k
        if self.over:
            env.world.rest(np.zeros(0, int))
        elif self.done.sum() > self._resting:
            self._resting = int(self.done.sum())
            env.world.rest(np.flatnonzero(self.done))

    def evaluations(self) -> list[Evaluation]:
        """Of the first, second, ... episode; what has not ended counts as failed."""
        rows = zip(self.returns, self.success, self.error, self.lengths, self.reasons)
        return [Evaluation(*row[:-1], dict(row[-1]), self.e) for row in rows]
