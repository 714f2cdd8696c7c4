"""humanoid: 35 kg and 23 joints follow a commanded velocity (vx, vy, yaw rate) at 50 Hz, blind.

The task is what build/velocity.py makes of humanoid_model.py: legs and waist walk, arms stay in the default pose.
"""

from dataclasses import replace

from surefoot.robot import Robot
from surefoot.task import Task
from surefoot.tasks.build.velocity import velocity
from surefoot.tasks.ready.humanoid_model import xml


def humanoid() -> Task:
    task = velocity(Robot.text(xml(), "humanoid"))
    return replace(task, name="humanoid", about="humanoid follows a velocity")
