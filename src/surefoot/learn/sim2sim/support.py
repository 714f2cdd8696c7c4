"""The support world: the task's robot and its kinematics, with dynamics that are easy to learn in; and what both worlds share.

    tau = g kp (u - q) - sqrt(g) kd v,   no limit, no dry friction, no latency         g < 1
    k   = (q_j, v_j of joints;  up, v, omega of the base in its frame, its height;  contacts)

With the gains that a robot needs, random targets saturate its motors: a^2 times larger and a^3 times heavier gains ask for
m l^2 ~ a^5, and motors give a^3. With soft servos and no limits, exploration moves the robot smoothly.
"""

from dataclasses import replace
from functools import partial

import mujoco
import numpy as np

from surefoot.belief import Belief, Box, point
from surefoot.learn.sim2sim.settings import Easy
from surefoot.observation import ObsGroup, ObsTerm
from surefoot.params import Param
from surefoot.robot import Layout
from surefoot.rotation import to_body
from surefoot.sim.layout import layout_of
from surefoot.sim.model.load import load_robot
from surefoot.task import Moment, Task
from surefoot.tasks import ObsOverride

KINEMATIC = "kinematic"  # group of what both worlds share
LATE = ("action_delay", "sensor_delay")
DRY = "frictionloss"
ACTIONS = ("last_action", "last_reward")  # terms whose numbers mean something else in another world
OF_TASK = ("base_height", "touch")  # terms that a task's critic may have: the ground and the feet are the task's own


def easy(task: Task, how: Easy) -> Task:
    """The same task in its support world."""
    return replace(task, robot=task.robot.edited(partial(_ease, how=how)), params=task.params)


def _ease(spec: mujoco.MjSpec, how: Easy) -> None:
    stiffened(spec, how.gain)
    for a in spec.actuators:
        if not how.limits and _holds(a):
            a.forcelimited = 0
    for j in spec.joints:
        if not how.limits:
            j.actfrclimited = 0
        if not how.friction:
            j.frictionloss = 0.0


def stiffened(spec: mujoco.MjSpec, gain: float) -> None:
    """Each position servo `gain` times as stiff, at the same damping ratio; motors stay as they are."""
    for a in spec.actuators:
        if _holds(a):
            a.gainprm[0] *= gain
            a.biasprm[1] *= gain
            if a.biasprm[2] < 0:  # above 0 it is a damping ratio, which stays
                a.biasprm[2] *= np.sqrt(gain)


def _holds(a: mujoco.MjsActuator) -> bool:
    """Whether it holds a position."""
    return bool(a.biastype == mujoco.mjtBias.mjBIAS_AFFINE and a.gainprm[0] > 0 and a.biasprm[1] == -a.gainprm[0])


def easy_belief(belief: Belief, how: Easy) -> Belief:
    """What is believed, without what the support world leaves out; a belief that is no box becomes its best guess."""
    params = belief.params
    gone = np.array([_left_out(p, how) for p in params], bool)
    if not gone.any():
        return belief
    low, high = (belief.low, belief.high) if isinstance(belief, Box) else (belief.estimate(), belief.estimate())
    low, high = (np.where(gone, params.low, np.clip(x, params.low, params.high)) for x in (low, high))
    return Box(params, low, high) if (low < high).any() else point(params, low)


def _left_out(p: Param, how: Easy) -> bool:
    return (p.target in LATE and not how.latency) or (p.target == DRY and not how.friction and p.op != "scale")


def teachers(task: Task, obs: ObsOverride | None = None) -> ObsOverride:
    """What a teacher observes: without its last action, which means another torque in the student's world."""
    obs = obs or ObsOverride()
    names = tuple(t.name for t in task.observations["actor"].terms)
    kept = tuple(name for name in names if name not in ACTIONS)
    return obs if obs.only or kept == names or not kept else replace(obs, only=kept)


def with_kinematics(task: Task) -> Task:
    """The task with a group of what its support and validation worlds share."""
    layout = layout_of(load_robot(task.robot).own[0])
    return replace(task, observations={**task.observations, KINEMATIC: kinematics(task, layout)})


def kinematics(task: Task, layout: Layout) -> ObsGroup:
    """k, in SI units. Where links are follows from the joints, so links are no terms of their own."""
    terms = []
    if layout.joints:
        q, v, n = list(layout.places), list(layout.speeds), len(layout.joints)
        terms += [ObsTerm("joint_pos", lambda s: s.q[:, q], n, "rad or m")]
        terms += [ObsTerm("joint_vel", lambda s: s.v[:, v], n, "rad/s or m/s")]
    if layout.base is not None:
        a, b = layout.base
        terms += [
            ObsTerm("base_up", partial(_up, at=a), 3, "world's z axis in the base's frame"),
            ObsTerm("base_lin_vel", lambda s: to_body(s.q[:, a + 3 : a + 7], s.v[:, b : b + 3]), 3, "m/s, base frame"),
            ObsTerm("base_ang_vel", lambda s: s.v[:, b + 3 : b + 6], 3, "rad/s, base frame"),
        ]
    known = {t.name: t for group in task.observations.values() for t in group.terms if t.formula is None}
    return ObsGroup((*terms, *(replace(known[name], scale=1.0, noise=0.0) for name in OF_TASK if name in known)))


def _up(s: Moment, at: int) -> np.ndarray:
    return to_body(s.q[:, at + 3 : at + 7], np.broadcast_to([0.0, 0.0, 1.0], (len(s.q), 3)))
