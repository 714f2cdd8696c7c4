"""Where things are in a MuJoCo model's arrays: the Layout of a robot, the columns of its sensors, and of what is delayed."""

from typing import Protocol, runtime_checkable

import mujoco
import numpy as np

from surefoot.errors import SurefootError
from surefoot.robot import Drive, Layout
from surefoot.world import World

S = mujoco.mjtSensor
FREE, BALL, HINGE, SLIDE = (int(getattr(mujoco.mjtJoint, f"mjJNT_{k}")) for k in ("FREE", "BALL", "HINGE", "SLIDE"))
SCALAR = (HINGE, SLIDE)  # joints of one degree of freedom
ON_JOINT = (int(mujoco.mjtTrn.mjTRN_JOINT), int(mujoco.mjtTrn.mjTRN_JOINTINPARENT))
AT_SITE = {int(S.mjSENS_GYRO): "base_ang_vel", int(S.mjSENS_VELOCIMETER): "base_lin_vel", int(S.mjSENS_FRAMEQUAT): "base_quat"}  # fmt: skip
AFFINE = int(mujoco.mjtBias.mjBIAS_AFFINE)
NO_DYNAMICS = int(mujoco.mjtDyn.mjDYN_NONE)
OF_JOINT = {int(S.mjSENS_JOINTPOS): "joint_pos", int(S.mjSENS_JOINTVEL): "joint_vel"}


@runtime_checkable
class _Modelled(Protocol):
    model: mujoco.MjModel


def model_of(world: World) -> mujoco.MjModel:
    """MuJoCo's model of a world: for pictures, and for what only the engine's own functions can tell."""
    if not isinstance(world, _Modelled):
        raise SurefootError(f"{type(world).__name__}: expected a world that MuJoCo simulates")
    return world.model


def mass_matrix(world: World, q: np.ndarray) -> np.ndarray:
    """(nv, nv) at positions q (nq,)."""
    model = model_of(world)
    data, M = mujoco.MjData(model), np.zeros((model.nv, model.nv))
    data.qpos[:] = q
    mujoco.mj_forward(model, data)
    mujoco.mj_fullM(model, data, M)
    return M


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
        quats=_quats(model),
        hinges=tuple(bool(model.jnt_type[j] == HINGE) for j in joints),
        limits=_ends(model.jnt_range[joints], model.jnt_limited[joints]),
        rest=tuple(model.qpos0.tolist()),
        drives=drives_of(model),
        control_limits=_ends(model.actuator_ctrlrange, model.actuator_ctrllimited),
        slow=tuple(np.where(model.actuator_dyntype != NO_DYNAMICS, model.actuator_dynprm[:, 0], 0.0).tolist()),
        delay=float(model.actuator_delay.max(initial=0.0)),
        mass=float(model.body_mass.sum()),
    )


def _quats(model: mujoco.MjModel) -> tuple[tuple[int, int], ...]:
    skip = {FREE: 3, BALL: 0}  # numbers of a place before the quaternion
    rows = zip(model.jnt_type.tolist(), model.jnt_qposadr.tolist(), model.jnt_dofadr.tolist())
    return tuple((a + skip[kind], b + skip[kind]) for kind, a, b in rows if kind in skip)


def _ends(ranges: np.ndarray, limited: np.ndarray) -> tuple[tuple[float, float], ...]:
    return tuple((float(a), float(b)) if on else (-np.inf, np.inf) for (a, b), on in zip(ranges, limited))


def drives_of(model: mujoco.MjModel) -> tuple[Drive, ...]:
    m, found = model, []
    for i in range(m.nactuator):
        j, k = int(m.actuator_trnid[i, 0]), int(m.actuator_ctrladr[i])
        on_joint = m.actuator_trntype[i] == mujoco.mjtTrn.mjTRN_JOINT and m.actuator_ctrlnum[i] == 1
        if on_joint and m.jnt_type[j] in (HINGE, SLIDE):
            kp, kd = (-m.actuator_biasprm[i, 1:3]).tolist() if m.actuator_biastype[i] == AFFINE else (0.0, 0.0)
            servo = bool(kp > 0 and kp == m.actuator_gainprm[i, 0])
            gear, dof, limit = float(m.actuator_gear[i, 0]), int(m.jnt_dofadr[j]), _limit(m, i, j, servo)
            found.append(Drive(m.actuator(i).name, i, k, m.joint(j).name, dof, gear, limit, servo, kp, kd))
    return tuple(found)


def _limit(m: mujoco.MjModel, i: int, j: int, servo: bool) -> float | None:
    """Largest force of actuator i on joint j: the least of its own limit, a motor's control at its end, and the joint's `actuatorfrcrange`."""
    found, k, gear = list[float](), int(m.actuator_ctrladr[i]), abs(float(m.actuator_gear[i, 0]))
    if m.actuator_forcelimited[i]:
        found.append(float(np.abs(m.actuator_forcerange[i]).max()))
    if not servo and m.actuator_ctrllimited[k]:
        found.append(float(np.abs(m.actuator_ctrlrange[k]).max() * abs(m.actuator_gainprm[i, 0])))
    if m.jnt_actfrclimited[j] and gear:
        found.append(float(np.abs(m.jnt_actfrcrange[j]).max()) / gear)
    return min(found, default=None)


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


def force_columns(model: mujoco.MjModel) -> np.ndarray:
    """Columns of sensordata that tell of forces: of the step that led to a state, not of one that would follow."""
    some = np.flatnonzero(model.sensor_needstage == mujoco.mjtStage.mjSTAGE_ACC)
    return np.concatenate(
        [np.arange(model.sensor_adr[i], model.sensor_adr[i] + model.sensor_dim[i]) for i in some] or [np.zeros(0, int)]
    )


def sensor_columns(model: mujoco.MjModel) -> dict[str, tuple[int, int]]:
    """Sensor name -> its columns of sensordata. Neighbours named `joint_pos/FL_hip` are together `joint_pos`, too."""
    columns: dict[str, tuple[int, int]] = {}
    for i in range(model.nsensor):
        name, a = model.sensor(i).name, int(model.sensor_adr[i])
        b = a + int(model.sensor_dim[i])
        columns[name] = (a, b)
        family = name.split("/")[0]
        if family != name:
            columns[family] = (columns.get(family, (a, b))[0], b)
    return columns


def memory_columns(
    history: np.ndarray, at: np.ndarray, source: np.ndarray, dim: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Columns of the engine's history that hold values, and the column of controls or readings each remembers.

    A buffer of k samples is laid out as: user slot, cursor, k times, k values of dim numbers.
    """
    columns, sources = [], []
    for k, a, s, d in zip(history[:, 0], at, source, dim):
        columns += [int(a) + 2 + int(k) + j for j in range(k * d)]
        sources += [int(s) + j % int(d) for j in range(k * d)]
    return np.array(columns, int), np.array(sources, int)
