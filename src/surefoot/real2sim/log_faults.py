"""A log in the model's joint order, and the faults that a preflight tries on it."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from surefoot.fault import JOINTS, Fault, on_columns
from surefoot.fault.logs import Driven, of_axes, of_clock, of_joints, of_motors
from surefoot.log import Log
from surefoot.real2sim.signals import BASE, PAUSE, controls, joints_of, measured, slope
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
    return (*joints, *(name for name in SPEEDS if name in log.columns and world.layout.base is not None))


def case(world: World, log: Log) -> Case:
    """Joints in the order of joint_pos, controls in the model's; velocities that were not logged are derivatives."""
    layout, signals = world.layout, predicted(world, log)
    kept = {"control": controls(world, log)}
    joints = joints_of(layout, log, "joint_pos") if "joint_pos" in signals else []
    names = tuple(layout.joints[j] for j in joints)
    if joints:
        kept["joint_pos"] = measured(log, "joint_pos")
        if "joint_vel" in log.columns:
            at = joints_of(layout, log, "joint_vel")
            v = measured(log, "joint_vel")
            kept["joint_vel"] = np.stack([v[:, at.index(j)] if j in at else np.zeros(len(log)) for j in joints], 1)
        else:
            kept["joint_vel"] = slope(log.time, kept["joint_pos"])
    kept |= {name: measured(log, name) for name in BASE if name in log.columns and layout.base is not None}
    if "base_pos" in kept and "base_lin_vel" not in kept:
        kept["base_lin_vel"] = slope(log.time, kept["base_pos"])
    driven = {d.joint: d.control for d in layout.drives}
    turning = tuple(layout.hinges[j] for j in joints)
    plain = Log(log.time, kept, meta={"names": dict.fromkeys(JOINTS, list(names))} if joints else {})
    motors = tuple(driven.get(name, -1) for name in names)
    return Case(world, plain, Driven(names, motors, world.nu, turning), signals)


def edited(case: Case, fault: Fault) -> Log:
    """The log under a fault; controls are shifted in time within their stretch."""
    step = np.diff(case.log.time)
    stretch = np.concatenate([[0], np.cumsum(step > PAUSE * np.median(step))])
    spans = np.searchsorted(stretch, stretch), np.searchsorted(stretch, stretch, "right") - 1
    return Log(case.log.time, on_columns(fault, case.log.columns, spans), meta=case.log.meta)


def possible_faults(case: Case) -> Iterator[Fault]:
    layout = case.world.layout
    yield from of_joints(case.driven, OFFSET)
    yield from of_clock(case.world.dt, LATE)
    driven = {d.control for d in layout.drives}
    yield from of_motors({a: name for a, name in enumerate(layout.actuators) if a not in driven}, case.world.nu)
    if set(SPEEDS) & set(case.signals):
        yield from of_axes()
