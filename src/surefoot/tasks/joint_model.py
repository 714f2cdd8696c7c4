"""The joints of a task's robot as a controller knows them: links, gains and efforts, read from the compiled model."""

import mujoco
import numpy as np

from surefoot.contract import Contract
from surefoot.control.barrier import JointLimits
from surefoot.control.dynamics import Joints, Link
from surefoot.errors import SurefootError
from surefoot.sim.layout import FREE, layout_of
from surefoot.sim.model.load import load_robot
from surefoot.task import Task

WIDE = 1e6  # rad or m: the limit of a joint that has none


def joints_of(model: mujoco.MjModel, actuators: tuple[str, ...] = ()) -> Joints:
    """Of all actuators that move a joint, or of the named ones. A free base, or joints that nobody drives: diagonal inertia alone."""
    layout = layout_of(model)
    drives = [d for d in layout.drives if not actuators or d.actuator in actuators]
    if not drives:
        raise SurefootError("model: found no actuator that turns or slides a joint, expected at least one")
    names, dofs = tuple(d.joint for d in drives), [d.dof for d in drives]
    data = mujoco.MjData(model)
    mujoco.mj_resetData(model, data)
    mujoco.mj_forward(model, data)
    fixed = not any(kind == FREE for kind in model.jnt_type) and sorted(dofs) == list(range(model.nv))
    M = np.zeros((model.nv, model.nv))
    mujoco.mj_fullM(model, data, M)
    own = [max((d.kp if d.servo else model.actuator_gainprm[d.number, 0]) * d.gear, 1e-9) for d in drives]
    return Joints(
        names,
        gain=tuple(float(g) for g in own),
        kp=tuple(float(d.kp * d.gear**2) for d in drives),
        kd=tuple(float(d.kd * d.gear**2 + model.dof_damping[d.dof]) for d in drives),
        effort=tuple(float(1e6 if d.limit is None else d.limit * abs(d.gear)) for d in drives),
        armature=tuple(float(x) for x in (model.dof_armature if fixed else np.diag(M))[dofs]),
        links=_links(model, data, dofs) if fixed else (),
        gravity=tuple(model.opt.gravity.tolist()),
    )


def _links(model: mujoco.MjModel, data: mujoco.MjData, dofs: list[int]) -> tuple[Link, ...]:
    """A link for each joint, in the order of `dofs`; bodies without a joint count to the one they are fixed to."""
    if (model.qpos0 != 0).any():
        raise SurefootError("model: expected every joint at 0 where the model begins")
    number = {dof: i for i, dof in enumerate(dofs)}
    last = {0: -1}  # body -> its last degree of freedom, or that of the body it is fixed to
    above: dict[int, int] = {}
    for body in range(1, model.nbody):
        at = last[int(model.body_parentid[body])]
        for dof in range(model.body_dofadr[body], model.body_dofadr[body] + model.body_dofnum[body]):
            above[dof], at = at, dof
        last[body] = at
    if any(above[d] >= 0 and number[above[d]] >= number[d] for d in dofs):
        raise SurefootError("model: actuators: expected the joints' own order, from the base on")
    return tuple(
        _link(model, data, dof, number.get(above[dof], -1), [b for b, d in last.items() if d == dof]) for dof in dofs
    )


def _link(model: mujoco.MjModel, data: mujoco.MjData, dof: int, parent: int, bodies: list[int]) -> Link:
    joint = int(model.dof_jntid[dof])
    slides = bool(model.jnt_type[joint] == mujoco.mjtJoint.mjJNT_SLIDE)
    masses = model.body_mass[bodies]
    mass = float(masses.sum())
    com = (masses[:, None] * data.xipos[bodies]).sum(0) / max(mass, 1e-12)
    total = np.zeros((3, 3))
    for b in bodies:
        R, r = data.ximat[b].reshape(3, 3), data.xipos[b] - com
        total += R @ np.diag(model.body_inertia[b]) @ R.T + model.body_mass[b] * (r @ r * np.eye(3) - np.outer(r, r))
    inertia = (*np.diag(total).tolist(), total[0, 1].item(), total[0, 2].item(), total[1, 2].item())
    place, axis = data.xanchor[joint].tolist(), data.xaxis[joint].tolist()
    return Link(parent, tuple(place), tuple(axis), slides, mass, tuple(com.tolist()), inertia)


def limits_of(task: Task, contract: Contract, speed: float) -> JointLimits:
    """The model's own ranges of the joints that a policy moves, and one limit of their speeds."""
    model = load_robot(task.robot).model
    joints, layout = joints_of(model, contract.action.names), layout_of(model)
    ends = dict(zip(layout.joints, layout.limits))
    low, high = zip(*(np.clip(ends[name], -WIDE, WIDE).tolist() for name in joints.names))
    return JointLimits(joints, low, high, (speed,) * len(joints.names))
