"""The engine fields of each named unknown: target -> model fields of the matched objects.

A Param's op combines its value with the model's own: set, scale or add.

target.py    Target: objects, engine fields, how they are written
physics.py   TARGETS: those of physics         visible.py   VISIBLE: those of rendering
friction.py, inertia.py, offset.py             laws that take more than a field
"""

import re
from dataclasses import dataclass, replace

import mujoco
import numpy as np

from surefoot.errors import SurefootError, unknown
from surefoot.params import Param
from surefoot.sim.fields import friction
from surefoot.sim.fields.offset import OFFSETS
from surefoot.sim.fields.physics import TARGETS, joint_force_limit, paired_friction
from surefoot.sim.fields.target import Rows, Target, Write
from surefoot.sim.fields.visible import POSE, VISIBLE

__all__ = [
    "OUTSIDE",
    "POSE",
    "TARGETS",
    "VISIBLE",
    "Rows",
    "Target",
    "Write",
    "Writer",
    "check_op",
    "object_names",
    "writer",
]

# Targets of observations and disturbances: env.py and Terms apply them.
OUTSIDE = (
    friction.LAWS
    | OFFSETS
    | {
        "noise": (
            "spread of observation noise: set it in each term's unit, or scale each term's own",
            ("set", "scale"),
        ),
        "bias": ("constant offset of an observation term, in the term's unit", ("set",)),
        "push": ("strength of scheduled pushes, as a multiple of the push term's own", ("set",)),
        "pull": ("largest force of a slow pull on a body: set it in N, or scale the pull term's own", ("set", "scale")),
        "task": ("no physics: read by the task's own functions, such as a hidden goal", ("set",)),
    }
)


@dataclass(frozen=True)
class Writer:
    """One Param bound to the objects of one model; writes rows of values."""

    param: Param
    target: Target
    ids: np.ndarray  # objects, or dofs for fields of dofs; empty for the whole world

    def __call__(self, rows: Rows, value: np.ndarray) -> None:
        self.target.write(rows, self.ids, value[:, None], self.param.op)


def object_names(model: mujoco.MjModel, kind: str) -> list[str]:
    count = {"joint": "njnt", "actuator": "nactuator", "camera": "ncam", "equality": "neq"}.get(kind, f"n{kind}")
    return [getattr(model, kind)(i).name for i in range(getattr(model, count))]


HEAVY = {"set": (1e-6, 1e6, " kg"), "scale": (1e-3, 1e3, " times the model's own")}  # no robot is outside


def check_op(param: Param) -> None:
    """Refuse an unknown target, or an op that the target does not have."""
    where = f"param {param.name}"
    known = {name: target.ops for name, target in (TARGETS | VISIBLE).items()} | {k: v[1] for k, v in OUTSIDE.items()}
    if param.target not in known:
        raise unknown("target", param.target, known, where)
    ops = known[param.target]
    if param.op not in ops:
        raise SurefootError(f"{where}: op: target {param.target} can be {' or '.join(ops)}, found {param.op}")
    low, high, unit = HEAVY["set" if param.op == "set" else "scale"]
    if param.target in ("mass", "inertia") and param.op != "add" and not low <= param.low <= param.high <= high:
        raise SurefootError(
            f"{where}: low, high: found {param.low:g} .. {param.high:g}, expected within {low:g} .. {high:g}{unit}: "
            "a robot's mass"
        )


def writer(model: mujoco.MjModel, param: Param) -> Writer:
    """Resolve a Param's address in a model; an error lists the names that exist."""
    where = f"param {param.name}"
    check_op(param)
    target = (TARGETS | VISIBLE)[param.target]
    if not target.objects:
        return Writer(param, target, np.array([], int))
    names = object_names(model, target.objects)
    ids = [i for i, name in enumerate(names) if re.fullmatch(param.match, name)]
    if target.objects == "body":
        ids = [i for i in ids if model.body_mass[i] > 0]
    elif target.objects == "actuator":  # one that has no input stands for a friction, not for a drive
        ids = [i for i in ids if model.actuator_ctrlnum[i] > 0]
    if not ids:
        raise unknown(target.objects, param.match, [n for n in names if n], where)
    if target.fields[0].startswith("dof_"):
        ids = _dofs(model, ids, param.target)
    elif target.objects == "joint" and not model.jnt_limited[ids].all():
        free = [names[i] for i in ids if not model.jnt_limited[i]]
        raise SurefootError(f"{where}: target {param.target}: expected joints with a range, {', '.join(free)} has none")
    _check_buffers(model, param, np.array(ids))
    return Writer(param, _in_model(model, param.target, target, np.array(ids)), np.array(ids))


def _in_model(model: mujoco.MjModel, name: str, target: Target, ids: np.ndarray) -> Target:
    """With the further fields in which this model has the quantity: friction of contact pairs, force limits of joints."""
    if name == "friction":
        pairs = np.flatnonzero(np.isin(model.pair_geom1, ids) | np.isin(model.pair_geom2, ids))
        return replace(target, fields=("geom_friction", "pair_friction"), write=paired_friction(pairs)) if len(pairs) else target  # fmt: skip
    if name == "force_limit":
        on_joint = [i for i in ids if model.actuator_trntype[i] == mujoco.mjtTrn.mjTRN_JOINT]
        gear = {int(model.actuator_trnid[i, 0]): abs(float(model.actuator_gear[i, 0])) for i in on_joint}
        joints = [j for j in gear if model.jnt_actfrclimited[j]]
        write = joint_force_limit(np.array(joints, int), np.array([gear[j] for j in joints]))
        return replace(target, fields=(*target.fields, "jnt_actfrcrange"), write=write) if joints else target
    return target


def _dofs(model: mujoco.MjModel, joints: list[int], target: str) -> list[int]:
    """The joints' degrees of freedom; for drag, the three along which a free body travels."""
    if target != "drag":
        return [int(d) for i in joints for d in np.flatnonzero(model.dof_jntid == i)]
    free = [i for i in joints if model.jnt_type[i] == mujoco.mjtJoint.mjJNT_FREE]
    if not free:
        raise SurefootError("target drag: expected a free joint, the matched joints have none; use damping")
    return [int(model.jnt_dofadr[i]) + k for i in free for k in range(3)]


def _check_buffers(model: mujoco.MjModel, param: Param, ids: np.ndarray) -> None:
    """Refuse a delay that is longer than the engine's history buffer."""
    if not param.target.endswith("_delay"):
        return
    history = model.actuator_history if param.target == "action_delay" else model.sensor_history
    longest = float(history[ids, 0].min() * model.opt.timestep)
    if param.high > longest + 1e-9:
        raise SurefootError(
            f"param {param.name}: a delay up to {param.high} s needs a history of "
            f"{param.high / model.opt.timestep:.0f} samples, the model keeps {longest:.4g} s; "
            "build it with sim.fields.compile.compile_for"
        )
