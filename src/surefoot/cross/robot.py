"""A robot as `cross` knows it: policies and motions go in, logs and counted successes come out. Its physics stay hidden.

    log(policy, seconds)      one robot, as it would be recorded on hardware
    trial(policy, episodes)   how many episodes of the task succeed

A `SimulatedRobot` stands for one machine; a trial runs copies of it side by side, each from another start.
"""

from dataclasses import dataclass
from typing import Any, Protocol

from surefoot.belief import point
from surefoot.env import Env
from surefoot.log import Log
from surefoot.policy import Policy
from surefoot.report import Watch, unwatched
from surefoot.sim.realities import Reality
from surefoot.task import Task, quiet
from surefoot.tasks.record import record
from surefoot.tasks.rollout import Evaluation, evaluate
from surefoot.verdict import clopper_pearson


@dataclass(frozen=True)
class Rate:
    """k of n episodes succeeded."""

    k: int
    n: int

    @property
    def value(self) -> float:
        return self.k / self.n

    @property
    def interval(self) -> tuple[float, float]:
        """Exact, 95 %."""
        return clopper_pearson(self.k, self.n)

    def __str__(self) -> str:
        low, high = self.interval
        return f"{100 * self.value:.0f} % ({100 * low:.0f} - {100 * high:.0f})"

    def to_json(self) -> dict[str, int]:
        return {"k": self.k, "n": self.n}

    @staticmethod
    def of(found: Evaluation) -> "Rate":
        return Rate(int(found.success.sum()), len(found.success))


class Robot(Protocol):
    """What `cross` may ask of a robot."""

    def log(self, how: Policy | Log | None, seconds: float, seed: int, watch: Watch = unwatched) -> Log:
        """Drive it by a policy, play a plan, or with None random actions; the log has what it measured."""
        ...

    def trial(self, policy: Policy, episodes: int, seed: int) -> Rate:
        """Successes of the task."""
        ...

    def reveal(self) -> dict[str, Any]:
        """What it was, for the report alone; empty where nobody knows."""
        ...


@dataclass(frozen=True)
class HiddenRobot:
    """A simulated machine with wrong numbers and missing physics."""

    task: Task
    reality: Reality

    def log(self, how: Policy | Log | None, seconds: float, seed: int, watch: Watch = unwatched) -> Log:
        return record(self.task, self.reality, how, seconds, seed, watch, observation=isinstance(how, Policy))

    def trial(self, policy: Policy, episodes: int, seed: int) -> Rate:
        return Rate.of(evaluate(policy, self.env(episodes, seed)))

    def env(self, n: int, seed: int) -> Env:
        """n copies of the robot, each from another start."""
        own, e = quiet(self.task)
        world = self.reality.world(own, n, threads=0)
        world.sense_after_step = True  # as the robot of a log is read
        return Env(own, world, point(own.params, self.reality.values(own, e)), seed)

    def reveal(self) -> dict[str, Any]:
        return self.reality.to_json()
