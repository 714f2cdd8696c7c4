"""The Layout of a MuJoCo model: joints, base, actuators, and the sensors that tell what a robot reads."""

import mujoco

from surefoot.robot import Layout

S = mujoco.mjtSensor
FREE, HINGE, SLIDE = (int(getattr(mujoco.mjtJoint, f"mjJNT_{k}")) for k in ("FREE", "HINGE", "SLIDE"))
AT_SITE = {int(S.mjSENS_GYRO): "base_ang_vel", int(S.mjSENS_VELOCIMETER): "base_lin_vel", int(S.mjSENS_FRAMEQUAT): "base_quat"}  # fmt: skip
OF_JOINT = {int(S.mjSENS_JOINTPOS): "joint_pos", int(S.mjSENS_JOINTVEL): "joint_vel"}


def layout_of(model: mujoco.MjModel) -> Layout:
    joints = [j for j in range(model.njnt) if model.jnt_type[j] in (HINGE, SLIDE)]
    free = [j for j in range(model.njnt) if model.jnt_type[j] == FREE]
    base = (int(model.jnt_qposadr[free[0]]), int(model.jnt_dofadr[free[0]])) if free else None
    return Layout(
        joints=tuple(model.joint(j).name for j in joints),
        places=tuple(int(model.jnt_qposadr[j]) for j in joints),
        speeds=tuple(int(model.jnt_dofadr[j]) for j in joints),
        base=base,
        actuators=tuple(
            model.actuator(i).name for i in range(model.nactuator) for _ in range(model.actuator_ctrlnum[i])
        ),
        sensors=_sensors(model, joints),
    )


def _sensors(model: mujoco.MjModel, joints: list[int]) -> dict[str, str]:
    """Reading -> sensor: `base_ang_vel@site` of sensors at a site, and `joint_pos` where all joints have theirs, in order."""
    found: dict[str, str] = {}
    tells: dict[str, list[tuple[int, str]]] = {}
    for i in range(model.nsensor):
        kind, name, target = int(model.sensor_type[i]), model.sensor(i).name, int(model.sensor_objid[i])
        at_site = int(model.sensor_objtype[i]) == int(mujoco.mjtObj.mjOBJ_SITE) and model.sensor_refid[i] < 0
        if kind in AT_SITE and at_site:
            found.setdefault(f"{AT_SITE[kind]}@{model.site(target).name}", name)
        if kind in OF_JOINT:
            tells.setdefault(OF_JOINT[kind], []).append((target, name))
    for reading, rows in tells.items():
        families = {name.split("/")[0] for _, name in rows}
        if [j for j, _ in rows] == joints and len(families) == 1 and all("/" in name for _, name in rows):
            found[reading] = families.pop()
    return found
