"""A whole robot's motion as a reference for the search (dynamic.py): its positions, and the angles that its servos are asked to hold.

q*_t    the motion a row each control period;  u*_t = its joints' positions at t, for each position servo its own joint's
W       base: place 3, attitude 1;  joints 0.3                                             (1 / m, 1 / rad)
"""

import numpy as np

from surefoot.errors import SurefootError
from surefoot.log import Log
from surefoot.motion.dynamic import Reference
from surefoot.motion.robot_motion import resampled
from surefoot.robot import Robot
from surefoot.sim.layout import layout_of
from surefoot.sim.model.load import load_robot

PLACE, ATTITUDE, JOINT = 3.0, 1.0, 0.3


def whole_body(robot: Robot, motion: Log, period: float) -> Reference:
    """Of a robot that stands on a floor and has a position servo on each joint that moves, such as the robot of a track task."""
    m = load_robot(robot).model
    layout = layout_of(m)
    if layout.base is None:
        raise SurefootError(f"robot {robot.name}: found no free base, expected one that moves")
    log = resampled(motion, 1 / period)
    names = log.meta["names"]["joint_pos"]
    q = np.tile(m.qpos0, (len(log), 1))
    at, dof = layout.base
    q[:, at : at + 3], q[:, at + 3 : at + 7] = log["base_pos"], log["base_quat"]
    places = dict(zip(layout.joints, layout.places))
    for k, name in enumerate(names):
        q[:, places[name]] = log["joint_pos"][:, k]
    driven = [int(m.jnt_qposadr[m.actuator_trnid[a, 0]]) for a in range(m.nu)]
    weights = np.full(m.nv, JOINT)
    weights[dof : dof + 3], weights[dof + 3 : dof + 6] = PLACE, ATTITUDE
    return Reference(q, q[:, driven].copy(), weights)
