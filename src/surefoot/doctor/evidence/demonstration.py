"""A robot's log as a demonstration: what a policy of a task would have observed in each row, and the action it would have taken.

    o_k = the task's observation of readings(k)        a_k = (control_k - offset) / scale, within +-limit

So whatever drove the robot, a person or another controller, its log can be cloned once it has joints and controls. A control
beyond the task's limits becomes the limit: the policy could not have sent more.
"""

from dataclasses import replace

import numpy as np

from surefoot.doctor.evidence.observation import checked, rebuild
from surefoot.errors import LogError
from surefoot.log import Log
from surefoot.real2sim.signals import controls
from surefoot.task import Task
from surefoot.tasks.rollout import contract
from surefoot.world import World


def demonstrated(task: Task, world: World, log: Log) -> Log:
    """The log with the columns `observation` and `action`; rows in which either is not known are nan."""
    if task.action.choices:
        raise LogError(f"{task.name} chooses among few actions; expected controls that are continuous")
    log, law = checked(log), task.action
    known = list(world.layout.actuators)
    sent = controls(world, log)[:, [known.index(name) for name in law.names]]
    action = np.clip((sent - law.offset) / law.scale, -law.limit, law.limit)
    log = replace(log, columns=log.columns | {"action": action})
    rows = rebuild(contract(task, world), world, log)
    if rows.missing:
        raise LogError(f"observation: {', '.join(rows.missing)}: the log has no readings of it")
    observation = rows.observations()
    unknown = ~np.isfinite(action).all(1)
    observation[unknown] = np.nan
    return replace(log, columns=log.columns | {"observation": observation})
