"""What lies between a policy and a robot's motors, as a part of the simulated world: the runtime's limiter, and late commands."""

from dataclasses import dataclass, replace

import numpy as np

from surefoot.deploy.limits import limits_of
from surefoot.sim.gap.link import HeldCommand
from surefoot.task import Task
from surefoot.tasks import env as task_env
from surefoot.tasks.rollout import contract_of
from surefoot.world import Chance, OnAction, State

LATE = 0.15  # probability of a command that comes a period late, in training for a robot


@dataclass(frozen=True, eq=False)
class Limiter(OnAction):
    """The runtime's limits of range and rate, for many robots at once; (nu,) each."""

    low: np.ndarray
    high: np.ndarray
    step: np.ndarray
    """largest change in a control period"""

    def __call__(self, x: State, u: np.ndarray, chance: Chance) -> np.ndarray:
        return np.clip(np.clip(u, x.u - self.step, x.u + self.step), self.low, self.high)


def behind_runtime(task: Task, late: float = LATE) -> Task:
    """The task with the runtime's limiter before its motors, and commands that are late now and then."""
    world = task_env(task, 1).world
    limits = limits_of(contract_of(task, world.layout, 1 / world.dt), world.layout, task.kind)
    at = [world.layout.actuators.index(name) for name in task.action.names]
    rows = [np.full(world.nu, x) for x in (-np.inf, np.inf, np.inf)]
    for row, x in zip(rows, (limits.low, limits.high, limits.rate * world.dt)):
        row[at] = x
    more = (HeldCommand("late commands", late),) if late else ()
    return replace(task, terms=(*task.terms, Limiter(*rows), *more))
