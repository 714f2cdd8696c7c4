"""The robot of a log: a model file, whether its base was fixed, and how its joints were driven.

A log of a robot hung in the air needs a model with a fixed trunk; a log of position targets needs servos with the
robot's gains, where the model file has bare motors.
"""

from dataclasses import dataclass
from pathlib import Path

import mujoco
import numpy as np

from surefoot import tasks
from surefoot.errors import SurefootError, nearest
from surefoot.log import Log
from surefoot.params import Params
from surefoot.sim.engine import Engine
from surefoot.sim.fields.compile import compile_for
from surefoot.sim.learned import load
from surefoot.sim.model.load import load_model, load_robot
from surefoot.world import Term


@dataclass(frozen=True)
class Plant:
    """How a model file becomes the robot of a log."""

    model: str
    """a model file, or a task's name"""
    fixed: bool = False
    """the base is fixed in the air: its free joint is removed, a metre above its pose"""
    kp: float | None = None
    """position gain of servos that replace the model's motors, N m/rad"""
    kd: float = 0.0
    """velocity gain of those servos, N m s/rad"""
    timestep: float | None = None
    """longest engine step, s; default: the model's own"""
    net: str | None = None
    """an actuator net by `surefoot actuator`, added to the model's actuators"""

    def spec(self) -> mujoco.MjSpec:
        task = tasks.resolve(self.model) if tasks.is_reference(self.model) else None
        if task is None and not Path(self.model).exists():
            raise SurefootError(
                f"{self.model}: neither a file nor a task{nearest(self.model, tasks.names())}; tasks are {', '.join(tasks.names())}"
            )
        spec = (load_robot(task.robot) if task else load_model(self.model)).spec
        if self.fixed:
            fix_base(spec, self.model)
        if self.kp is not None:
            servos(spec, self.kp, self.kd, self.model)
        if self.timestep is not None:
            spec.option.timestep = self.timestep
        return spec

    def world(self, params: Params, log: Log, n: int = 1, terms: tuple[Term, ...] = ()) -> Engine:
        """A World whose control period is the log's step."""
        made = world(self.spec(), params, 1 / log.rate, n, terms)
        return made if self.net is None else made.with_(n, (*terms, load(Path(self.net), made.model)))


def world(spec: mujoco.MjSpec, params: Params, dt: float, n: int = 1, terms: tuple[Term, ...] = ()) -> Engine:
    """A World of control period dt: the engine's step is the longest that divides dt and is no longer than the model's."""
    substeps = max(1, int(np.ceil(dt / spec.option.timestep - 1e-6)))
    spec.option.timestep = dt / substeps
    for actuator in spec.actuators:
        actuator.interp = 1  # delays between two steps interpolate: a smooth delay can be identified
    return Engine(compile_for(spec, params), params, n, substeps, terms=terms)


def fix_base(spec: mujoco.MjSpec, where: str | Path) -> None:
    free = [j for j in spec.joints if j.type == mujoco.mjtJoint.mjJNT_FREE]
    if not free:
        raise SurefootError(f"{where}: fixed: found no free joint to remove; the base is already fixed")
    for joint in free:
        joint.parent.pos[2] += 1.0  # moving limbs must not touch the ground
        spec.delete(joint)
    for key in list(spec.keys):
        spec.delete(key)  # their poses include the base


def servos(spec: mujoco.MjSpec, kp: float, kd: float, where: str | Path = "model") -> None:
    """F = kp (u - q) - kd v in place of F = u, within the motor's own limits."""
    for actuator in spec.actuators:
        if actuator.biastype != mujoco.mjtBias.mjBIAS_NONE:
            raise SurefootError(
                f"{where}: kp: actuator {actuator.name}: found a servo (gain {actuator.gainprm[0]:g}), expected a bare motor: "
                "leave --machine.kp out, change the model's own gain, or learn it (--learn kp)"
            )
        limit = np.array(actuator.forcerange if actuator.forcelimited else actuator.ctrlrange)
        actuator.gainprm[0], actuator.biasprm[:3] = kp, (0.0, -kp, -kd)
        actuator.biastype = mujoco.mjtBias.mjBIAS_AFFINE
        actuator.gaintype = mujoco.mjtGain.mjGAIN_FIXED
        actuator.ctrllimited = 0
        if limit[1] > limit[0]:
            actuator.forcerange, actuator.forcelimited = limit, 1
