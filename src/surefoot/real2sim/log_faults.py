"""A log in the model's joint order, and the faults that a preflight tries on it."""

from collections.abc import Iterator
from dataclasses import dataclass

import mujoco
import numpy as np

from surefoot.fault import JOINTS, Fault, on_columns
from surefoot.fault.logs import Driven, of_axes, of_clock, of_joints, of_motors
from surefoot.log import Log
from surefoot.real2sim.signals import BASE, PAUSE, controls, has_base, joints_of, measured, slope
from surefoot.real2sim.streams import LATE
from surefoot.world import World

OFFSET = 0.1  # rad: the offset that is tried
SPEEDS = ("base_lin_vel", "base_ang_vel")


@dataclass(frozen=True)
class Case:
    """A log in the model's joint order, with its joints and actuators."""

    world: World
    log: Log
    driven: Driven
    """joints as joint_pos has them, with their actuators"""
    signals: tuple[str, ...]
    """the columns that are predicted"""

    @property
    def names(self) -> tuple[str, ...]:
        return self.driven.names


def predicted(world: World, log: Log) -> tuple[str, ...]:
    """The columns that are predicted."""
    joints = ("joint_pos",) if "joint_pos" in log.columns and measured(log, "joint_pos").shape[1] else ()
    return (*joints, *(name for name in SPEEDS if name in log.columns and has_base(world.model)))


def case(world: World, log: Log) -> Case:
    """Joints in the order of joint_pos, controls in the model's; velocities that were not logged are derivatives."""
    m, signals = world.model, predicted(world, log)
    kept = {"control": controls(world, log)}
    joints = joints_of(m, log, "joint_pos") if "joint_pos" in signals else []
    names = tuple(m.joint(j).name for j in joints)
    if joints:
        kept["joint_pos"] = measured(log, "joint_pos")
        if "joint_vel" in log.columns:
            at = joints_of(m, log, "joint_vel")
            v = measured(log, "joint_vel")
            kept["joint_vel"] = np.stack([v[:, at.index(j)] if j in at else np.zeros(len(log)) for j in joints], 1)
        else:
            kept["joint_vel"] = slope(log.time, kept["joint_pos"])
    kept |= {name: measured(log, name) for name in BASE if name in log.columns and has_base(m)}
    if "base_pos" in kept and "base_lin_vel" not in kept:
        kept["base_lin_vel"] = slope(log.time, kept["base_pos"])
    driven = {int(m.actuator_trnid[a, 0]): a for a in range(m.nu) if m.actuator_trntype[a] == mujoco.mjtTrn.mjTRN_JOINT}
    turning = tuple(bool(m.jnt_type[j] == mujoco.mjtJoint.mjJNT_HINGE) for j in joints)
    plain = Log(log.time, kept, meta={"names": dict.fromkeys(JOINTS, list(names))} if joints else {})
    motors = tuple(driven.get(j, -1) for j in joints)
    return Case(world, plain, Driven(names, motors, m.nu, turning), signals)


def edited(case: Case, fault: Fault) -> Log:
    """The log under a fault; controls are shifted in time within their stretch."""
    step = np.diff(case.log.time)
    stretch = np.concatenate([[0], np.cumsum(step > PAUSE * np.median(step))])
    spans = np.searchsorted(stretch, stretch), np.searchsorted(stretch, stretch, "right") - 1
    return Log(case.log.time, on_columns(fault, case.log.columns, spans), meta=case.log.meta)


def possible_faults(case: Case) -> Iterator[Fault]:
    m = case.world.model
    yield from of_joints(case.driven, OFFSET)
    yield from of_clock(case.world.dt, LATE)
    free = [a for a in range(m.nu) if m.actuator_trntype[a] != mujoco.mjtTrn.mjTRN_JOINT]
    yield from of_motors({a: m.actuator(a).name for a in free}, m.nu)
    if set(SPEEDS) & set(case.signals):
        yield from of_axes()
