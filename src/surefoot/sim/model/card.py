"""A robot's card: the contents of a compiled model as JSON data."""

from typing import Any

import mujoco

from surefoot.sim.model.vet import integrator


def describe(m: mujoco.MjModel) -> dict[str, Any]:
    """A summary of a robot model: masses, joints, motors, sensors, contacts, timing."""
    return {
        "name": bytes(m.names).split(b"\0", 1)[0].decode(errors="replace"),
        "mass": float(m.body_subtreemass[0]),
        "nq": m.nq,
        "nv": m.nv,
        "nu": m.nu,
        "timestep": m.opt.timestep,
        "integrator": integrator(m),
        "gravity": m.opt.gravity.tolist(),
        "bodies": [{"name": m.body(i).name, "mass": float(m.body_mass[i])} for i in range(1, m.nbody)],
        "joints": [_joint(m, i) for i in range(m.njnt)],
        "actuators": [_actuator(m, i) for i in range(len(m.actuator_trntype))],
        "sensors": [_sensor(m, i) for i in range(m.nsensor)],
        "geoms": [_geom(m, i) for i in range(m.ngeom) if m.geom_contype[i] or m.geom_conaffinity[i]],
        "keyframes": [m.key(i).name for i in range(m.nkey)],
    }


def _joint(m: mujoco.MjModel, i: int) -> dict[str, Any]:
    dof = m.jnt_dofadr[i]
    return {
        "name": m.joint(i).name,
        "type": _word(mujoco.mjtJoint, m.jnt_type[i]),
        "range": m.jnt_range[i].tolist() if m.jnt_limited[i] else None,
        "damping": float(m.dof_damping[dof]),
        "armature": float(m.dof_armature[dof]),
        "frictionloss": float(m.dof_frictionloss[dof]),
    }


def _actuator(m: mujoco.MjModel, i: int) -> dict[str, Any]:
    kind = actuator_kind(m, i)
    _, kp, kd = 0.0 - m.actuator_biasprm[i, :3]
    control = m.actuator_ctrladr[i]
    target, name = _target(m, i)
    return {
        "name": mujoco.mj_id2name(m, mujoco.mjtObj.mjOBJ_ACTUATOR, i) or "",
        "joint": name if target == "joint" else None,
        "target": f"{target} {name}",
        "kind": kind,
        "kp": float(kp) if kind in ("position", "intvelocity", "pid") else None,
        "kd": float(kd) if kind in ("position", "intvelocity", "pid", "velocity") else None,
        "gear": m.actuator_gear[i].tolist() if m.actuator_gear[i, 1:].any() else float(m.actuator_gear[i, 0]),
        "ctrl_range": m.actuator_ctrlrange[control].tolist() if m.actuator_ctrllimited[control] else None,
        "force_range": m.actuator_forcerange[i].tolist() if m.actuator_forcelimited[i] else None,
        "delay": float(m.actuator_delay[i]),
    }


def actuator_kind(m: mujoco.MjModel, i: int) -> str:
    """motor, position, velocity, intvelocity, pid, dcmotor, muscle or general: MuJoCo keeps the gains, not the word."""
    gain, bias = mujoco.mjtGain(m.actuator_gaintype[i]), mujoco.mjtBias(m.actuator_biastype[i])
    if gain not in (mujoco.mjtGain.mjGAIN_FIXED, mujoco.mjtGain.mjGAIN_AFFINE):
        return _word(mujoco.mjtGain, gain)
    k, (_, kp, kd) = m.actuator_gainprm[i, 0], 0.0 - m.actuator_biasprm[i, :3]
    integrates = m.actuator_dyntype[i] == int(mujoco.mjtDyn.mjDYN_INTEGRATOR)
    if gain == mujoco.mjtGain.mjGAIN_FIXED and bias == mujoco.mjtBias.mjBIAS_NONE and not integrates:
        return "motor"
    if gain == mujoco.mjtGain.mjGAIN_FIXED and bias == mujoco.mjtBias.mjBIAS_AFFINE and k != 0:
        if kp == k:
            return "intvelocity" if integrates else "position"
        if kp == 0 and kd == k:
            return "velocity"
    return "general"


def _target(m: mujoco.MjModel, i: int) -> tuple[str, str]:
    """What an actuator acts on: joint, tendon, site or body, and its name."""
    words = {"JOINTINPARENT": "JOINT", "SO3": "JOINT", "SLIDERCRANK": "SITE"}
    transmission = mujoco.mjtTrn(m.actuator_trntype[i]).name.removeprefix("mjTRN_")
    kind = words.get(transmission, transmission)
    if not hasattr(mujoco.mjtObj, f"mjOBJ_{kind}"):
        return kind.lower(), ""
    return kind.lower(), mujoco.mj_id2name(m, getattr(mujoco.mjtObj, f"mjOBJ_{kind}"), m.actuator_trnid[i, 0]) or ""


def _sensor(m: mujoco.MjModel, i: int) -> dict[str, Any]:
    return {
        "name": m.sensor(i).name,
        "type": _word(mujoco.mjtSensor, m.sensor_type[i]),
        "dim": int(m.sensor_dim[i]),
        "noise": float(m.sensor_noise[i]),
        "delay": float(m.sensor_delay[i]),
    }


def _geom(m: mujoco.MjModel, i: int) -> dict[str, Any]:
    return {
        "name": m.geom(i).name,
        "body": m.body(m.geom_bodyid[i]).name,
        "type": _word(mujoco.mjtGeom, m.geom_type[i]),
        "friction": m.geom_friction[i].tolist(),
    }


def _word(enum: Any, value: Any) -> str:
    """mjJNT_HINGE -> hinge."""
    return str(enum(value).name).split("_", 1)[1].lower()
