"""Multiples of a model's values, in SI: 2.1 x the armature of the model is 0.021 kg m^2."""

import mujoco
import numpy as np

from surefoot.params import Param
from surefoot.sim.fields import writer

READ = {  # target -> field of the model, its columns, unit
    "mass": ("body_mass", None, "kg"), "inertia": ("body_inertia", slice(0, 3), "kg m^2"), "armature": ("dof_armature", None, "kg m^2"),
    "damping": ("dof_damping", 0, "N m s/rad"), "frictionloss": ("dof_frictionloss", None, "N m"), "friction": ("geom_friction", 0, ""),
    "kp": ("actuator_gainprm", 0, "N m/rad"), "kd": ("actuator_biasprm", 2, "N m s/rad"), "motor_time": ("actuator_dynprm", 0, "s"),
    "torque_constant": ("actuator_gainprm", 0, "N m/A"), "yaw_torque": ("actuator_gear", slice(3, 6), "m"),
    "force_limit": ("actuator_forcerange", 1, "N m"), "tendon_limit": ("tendon_actfrcrange", 1, "N m"),
}  # fmt: skip


def in_si(model: mujoco.MjModel, param: Param, value: float) -> tuple[float, float, str] | None:
    """The smallest and largest of the model's values that a multiple makes, and their unit; None where it is no multiple."""
    if param.op != "scale" or param.target not in READ:
        return None
    field, k, unit = READ[param.target]
    rows = np.asarray(getattr(model, field))[writer(model, param).ids]
    own = np.abs(rows if k is None or rows.ndim == 1 else rows[:, k])
    own = own[own > 0]
    return (float(own.min() * value), float(own.max() * value), unit) if own.size else None
