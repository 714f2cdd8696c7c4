"""Multiples of a model's values, in SI: 2.1 x the armature of the model is 0.021 kg m^2."""

import mujoco
import numpy as np

from surefoot.params import Param
from surefoot.sim.fields import writer
from surefoot.sim.layout import ON_JOINT, SLIDE

READ = {  # target -> field of the model, its columns, unit of what turns, and of what slides where that differs
    "mass": ("body_mass", None, "kg", ""), "inertia": ("body_inertia", slice(0, 3), "kg m^2", ""),
    "armature": ("dof_armature", None, "kg m^2", "kg"), "damping": ("dof_damping", 0, "N m s/rad", "N s/m"),
    "frictionloss": ("dof_frictionloss", None, "N m", "N"), "friction": ("geom_friction", 0, "", ""),
    "kp": ("actuator_gainprm", 0, "N m/rad", "N/m"), "kd": ("actuator_biasprm", 2, "N m s/rad", "N s/m"),
    "motor_time": ("actuator_dynprm", 0, "s", ""), "torque_constant": ("actuator_gainprm", 0, "N m/A", "N/A"),
    "yaw_torque": ("actuator_gear", slice(3, 6), "m", ""), "force_limit": ("actuator_forcerange", 1, "N m", "N"),
    "tendon_limit": ("tendon_actfrcrange", 1, "N m", "N"),
}  # fmt: skip


def in_si(model: mujoco.MjModel, param: Param, value: float) -> tuple[float, float, str] | None:
    """The smallest and largest of the model's values that a multiple makes, and their unit; None where it is no multiple."""
    if param.op != "scale" or param.target not in READ:
        return None
    field, k, turns, slides = READ[param.target]
    ids = writer(model, param).ids
    rows = np.asarray(getattr(model, field))[ids]
    own = np.abs(rows if k is None or rows.ndim == 1 else rows[:, k])
    own = own[own > 0]
    units = {slides if slides and _slides(model, field.split("_")[0], int(i)) else turns for i in ids}
    return (float(own.min() * value), float(own.max() * value), " or ".join(sorted(units))) if own.size else None


def _slides(model: mujoco.MjModel, kind: str, i: int) -> bool:
    """Whether a dof, actuator or tendon acts along a line, so that its force is one in N."""
    if kind == "tendon":
        return bool(model.wrap_type[model.tendon_adr[i]] != mujoco.mjtWrap.mjWRAP_JOINT)
    if kind == "actuator" and model.actuator_trntype[i] not in ON_JOINT:
        return bool(model.actuator_gear[i, :3].any())
    joint = model.dof_jntid[i] if kind == "dof" else model.actuator_trnid[i, 0]
    return bool(model.jnt_type[joint] == SLIDE)
