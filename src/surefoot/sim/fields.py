"""The engine fields of each named unknown: target -> model fields of the matched objects.

A target is a physical quantity. Writing it keeps the model consistent: a body's inertia follows its mass (the same
shape, denser), a position servo's bias follows its gain. A Param's op combines its value with the model's.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

import mujoco
import numpy as np

from surefoot.errors import SurefootError, unknown
from surefoot.params import Param
from surefoot.rotation import exp, matrix, product
from surefoot.sim import friction, inertia
from surefoot.sim.offset import OFFSETS

Rows = dict[str, np.ndarray]  # engine field -> (k, ...) rows being written
Write = Callable[[Rows, np.ndarray, np.ndarray, str], None]  # rows, object ids, values (k, 1), op


def combine(old: np.ndarray, value: np.ndarray, op: str) -> np.ndarray:
    """set, scale or add a Param's value to the model's."""
    if op == "scale":
        return old * value
    return old + value if op == "add" else np.broadcast_to(value, old.shape)


def column(field: str, k: int | slice | None = None) -> Write:
    """Writes one engine field, or its column or columns k, of the matched objects."""

    def write(rows: Rows, ids: np.ndarray, value: np.ndarray, op: str) -> None:
        at = (slice(None), ids) if k is None else (slice(None), ids, k)
        old = rows[field][at]
        rows[field][at] = combine(old, value.reshape(-1, *[1] * (old.ndim - 1)), op)

    return write


def constraint(rows: Rows, ids: np.ndarray, value: np.ndarray, op: str) -> None:
    """Impedance d of an equality constraint. The engine divides stiffness by d^2 and damping by d, so that a soft constraint is as
    strong in the end; here they are multiplied by the same, and its force vanishes with d."""
    d = np.clip(combine(rows["eq_solimp"][:, ids, 0], value.reshape(-1, 1), op), 1e-4, 0.9999)
    rows["eq_solimp"][:, ids, :2] = d[..., None]
    rows["eq_solref"][:, ids] *= np.stack([d**2, d], -1)


def mass(rows: Rows, ids: np.ndarray, value: np.ndarray, op: str) -> None:
    """Mass in kg. The inertia is scaled by the same ratio, so the body stays physical."""
    old = rows["body_mass"][:, ids]
    new = combine(old, value, op)
    rows["body_mass"][:, ids] = new
    rows["body_inertia"][:, ids] *= (new / old)[..., None]


def strength(rows: Rows, ids: np.ndarray, value: np.ndarray, op: str) -> None:
    """The whole force law of an actuator, F = gain u + bias: a weaker or stronger motor."""
    for field in ("actuator_gainprm", "actuator_biasprm"):
        rows[field][:, ids] = combine(rows[field][:, ids], value[..., None], op)


def kp(rows: Rows, ids: np.ndarray, value: np.ndarray, op: str) -> None:
    """Position gain of a servo: F = kp (u - q) - kd v."""
    new = combine(rows["actuator_gainprm"][:, ids, 0], value, op)
    rows["actuator_gainprm"][:, ids, 0] = new
    rows["actuator_biasprm"][:, ids, 1] = -new


def kd(rows: Rows, ids: np.ndarray, value: np.ndarray, op: str) -> None:
    """Velocity gain of a servo: F = kp (u - q) - kd v."""
    rows["actuator_biasprm"][:, ids, 2] = -combine(-rows["actuator_biasprm"][:, ids, 2], value, op)


def encoder_offset(rows: Rows, ids: np.ndarray, value: np.ndarray, op: str) -> None:
    """A servo controls its encoder's reading: F = kp (u - (q + offset)) - kd v."""
    rows["actuator_biasprm"][:, ids, 0] += rows["actuator_biasprm"][:, ids, 1] * value


def body_shape(name: str) -> Write:
    """One of the ten inertial parameters of a body: J -> U J U^T, of sim/inertia.py."""

    def write(rows: Rows, ids: np.ndarray, value: np.ndarray, op: str) -> None:
        U = inertia.congruence(name, value[:, 0])[:, None]  # (k, 1, 4, 4)
        J = inertia.pseudo(*(rows[f][:, ids] for f in inertia.FIELDS))
        for field, part in zip(inertia.FIELDS, inertia.inertial_of(U @ J @ np.swapaxes(U, -1, -2))):
            rows[field][:, ids] = part

    return write


def force_limit(rows: Rows, ids: np.ndarray, value: np.ndarray, op: str) -> None:
    """Largest force of an actuator, in both directions."""
    high = combine(rows["actuator_forcerange"][:, ids, 1], value, op)
    rows["actuator_forcerange"][:, ids, 1] = high
    rows["actuator_forcerange"][:, ids, 0] = -high


def paired_friction(pairs: np.ndarray) -> Write:
    """Sliding friction of geoms, and of the contact pairs with one of them, which have their own."""

    def write(rows: Rows, ids: np.ndarray, value: np.ndarray, op: str) -> None:
        column("geom_friction", 0)(rows, ids, value, op)
        old = rows["pair_friction"][:, pairs, :2]
        rows["pair_friction"][:, pairs, :2] = combine(old, value[..., None], op)

    return write


def joint_force_limit(joints: np.ndarray, gear: np.ndarray) -> Write:
    """Largest force of actuators, and of all actuators on a joint (`actuatorfrcrange`), where the joint limits it."""

    def write(rows: Rows, ids: np.ndarray, value: np.ndarray, op: str) -> None:
        force_limit(rows, ids, value, op)
        high = combine(rows["jnt_actfrcrange"][:, joints, 1], value if op == "scale" else value * gear, op)
        rows["jnt_actfrcrange"][:, joints, 1] = high
        rows["jnt_actfrcrange"][:, joints, 0] = -high

    return write


def gravity(rows: Rows, ids: np.ndarray, value: np.ndarray, op: str) -> None:
    """Magnitude of gravity, m/s^2, in its direction, or downwards if it was zero."""
    old = rows["opt.gravity"]
    size = np.linalg.norm(old, axis=1, keepdims=True)
    there = size > 0
    direction, unit = np.where(there, old, (0.0, 0.0, -1.0)), np.where(there, size, 1.0)
    rows["opt.gravity"][:] = direction * (combine(size, value, op) / unit)


def slope(axis: int) -> Write:
    """Tilt of the ground about a horizontal world axis, rad: gravity is rotated the other way, which is equivalent."""

    def write(rows: Rows, ids: np.ndarray, value: np.ndarray, op: str) -> None:
        i, j = (1, 2) if axis == 0 else (2, 0)
        g = rows["opt.gravity"]
        c, s = np.cos(-value[:, 0]), np.sin(-value[:, 0])
        g[:, i], g[:, j] = c * g[:, i] - s * g[:, j], s * g[:, i] + c * g[:, j]

    return write


def along(field: str, k: int = 0) -> Write:
    """Writes component k of an option of the whole world, such as wind."""

    def write(rows: Rows, ids: np.ndarray, value: np.ndarray, op: str) -> None:
        flat = rows[field].reshape(len(value), -1)
        flat[:, k] = combine(flat[:, k], value[:, 0], op)

    return write


def light(rows: Rows, ids: np.ndarray, value: np.ndarray, op: str) -> None:
    """Power of every light, the headlight's too."""
    for field in LIGHTS:
        old = rows[field]
        rows[field] = combine(old, value.reshape(-1, *[1] * (old.ndim - 1)), op)


def light_tilt(axis: int) -> Write:
    """Turns the direction of directional and spot lights about a world axis, rad."""

    def write(rows: Rows, ids: np.ndarray, value: np.ndarray, op: str) -> None:
        d, i, j = rows["light_dir"], (axis + 1) % 3, (axis + 2) % 3
        c, s = np.cos(value), np.sin(value)  # (k, 1): every matched light by the same angle
        d[:, ids, i], d[:, ids, j] = c * d[:, ids, i] - s * d[:, ids, j], s * d[:, ids, i] + c * d[:, ids, j]

    return write


def channel(*which: int) -> Write:
    """Channels of a colour (red 0, green 1, blue 2, opacity 3), kept within 0..1."""

    def write(rows: Rows, ids: np.ndarray, value: np.ndarray, op: str) -> None:
        for k in which:
            rows["geom_rgba"][:, ids, k] = combine(rows["geom_rgba"][:, ids, k], value, op).clip(0, 1)

    return write


def hue(rows: Rows, ids: np.ndarray, value: np.ndarray, op: str) -> None:
    """Rotates a colour about the grey axis of red, green and blue, rad; grey stays grey."""
    rgb, a = rows["geom_rgba"][:, ids, :3], value[..., None]
    across = (np.roll(rgb, 1, -1) - np.roll(rgb, -1, -1)) / np.sqrt(3)  # the axis times rgb
    turned = np.cos(a) * rgb + (1 - np.cos(a)) * rgb.mean(-1, keepdims=True) + np.sin(a) * across
    rows["geom_rgba"][:, ids, :3] = turned.clip(0, 1)


def camera_move(axis: int) -> Write:
    """Moves a camera along its own axis (x right, y up, z backward), m."""

    def write(rows: Rows, ids: np.ndarray, value: np.ndarray, op: str) -> None:
        rows["cam_pos"][:, ids] += value[..., None] * matrix(rows["cam_quat"][:, ids])[..., axis]

    return write


def camera_turn(axis: int) -> Write:
    """Turns a camera about its own axis: pitch about x, yaw about y, roll about z, rad."""

    def write(rows: Rows, ids: np.ndarray, value: np.ndarray, op: str) -> None:
        turn = exp(value[..., None] * np.eye(3)[axis])
        rows["cam_quat"][:, ids] = product(rows["cam_quat"][:, ids], turn)

    return write


def camera_fov(rows: Rows, ids: np.ndarray, value: np.ndarray, op: str) -> None:
    """Vertical field of view, rad; the engine's own is in degrees."""
    value = value if op == "scale" else np.degrees(value)
    rows["cam_fovy"][:, ids] = combine(rows["cam_fovy"][:, ids], value, op)


@dataclass(frozen=True)
class Target:
    objects: str  # body, geom, joint, actuator, sensor, tendon, light, camera: whose names `match` is tried on; "" for the world
    fields: tuple[str, ...]  # engine fields it writes
    write: Write
    about: str
    ops: tuple[str, ...] = ("set", "scale", "add")


SERVO = ("actuator_gainprm", "actuator_biasprm")
TARGETS: dict[str, Target] = {
    "mass": Target("body", ("body_mass", "body_inertia"), mass, "body mass, inertia scaled with it, kg"),
    "inertia": Target("body", ("body_inertia",), column("body_inertia"), "principal inertia, kg m^2", ("scale",)),
    **{
        f"com_{x}": Target("body", ("body_ipos",), column("body_ipos", k), f"centre of mass along the body's {x}, m")
        for k, x in enumerate("xyz")
    },
    **{
        name: Target("body", inertia.FIELDS, body_shape(name), f"{inertia.ABOUT[name[8]]} of a physical body", ("add",))
        for name in inertia.NAMES
    },
    "friction": Target("geom", ("geom_friction",), column("geom_friction", 0), "sliding friction coefficient"),
    "armature": Target("joint", ("dof_armature",), column("dof_armature"), "reflected rotor inertia, kg m^2"),
    "damping": Target("joint", ("dof_damping",), column("dof_damping"), "viscous friction, N m s/rad or N s/m"),
    "drag": Target("joint", ("dof_damping",), column("dof_damping"), "linear drag on a free body's travel, N s/m"),
    "frictionloss": Target("joint", ("dof_frictionloss",), column("dof_frictionloss"), "dry joint friction, N m"),
    "stop_low": Target("joint", ("jnt_range",), column("jnt_range", 0), "shift of a lower stop, rad or m", ("add",)),
    "stop_high": Target("joint", ("jnt_range",), column("jnt_range", 1), "shift of an upper stop, rad or m", ("add",)),
    "strength": Target("actuator", SERVO, strength, "whole actuator force law", ("scale",)),
    "torque_constant": Target(
        "actuator",
        ("actuator_gainprm",),
        column("actuator_gainprm", 0),
        "motor torque for each unit of control, N m/A",
        ("set", "scale"),
    ),
    "yaw_torque": Target(
        "actuator",
        ("actuator_gear",),
        column("actuator_gear", slice(3, 6)),
        "rotor's reaction torque, for its thrust",
        ("scale",),
    ),
    "kp": Target("actuator", SERVO, kp, "servo position gain, N m/rad"),
    "kd": Target("actuator", ("actuator_biasprm",), kd, "servo velocity gain, N m s/rad"),
    "encoder_offset": Target("actuator", ("actuator_biasprm",), encoder_offset, "encoder offset, rad", ("add",)),
    "force_limit": Target("actuator", ("actuator_forcerange",), force_limit, "largest actuator force, N or N m"),
    "tendon_limit": Target(
        "tendon",
        ("tendon_actfrcrange",),
        column("tendon_actfrcrange"),
        "largest force of all actuators on a tendon, as a multiple",
        ("scale",),
    ),  # fmt: skip
    "constraint": Target(
        "equality",
        ("eq_solimp", "eq_solref"),
        constraint,
        "share of an equality constraint, 0 (none) to 1; its solref is stiffness and damping (negative)",
        ("set",),
    ),
    "motor_time": Target("actuator", ("actuator_dynprm",), column("actuator_dynprm", 0), "motor time constant, s"),
    "action_delay": Target(
        "actuator", ("actuator_delay",), column("actuator_delay"), "latency from command to motor, s"
    ),
    "sensor_delay": Target("sensor", ("sensor_delay",), column("sensor_delay"), "latency from world to reading, s"),
    "gravity": Target("", ("opt.gravity",), gravity, "magnitude of gravity, m/s^2"),
    "slope_x": Target("", ("opt.gravity",), slope(0), "ground tilted about world x, rad", ("set",)),
    "slope_y": Target("", ("opt.gravity",), slope(1), "ground tilted about world y, rad", ("set",)),
    **{
        f"wind_{x}": Target("", ("opt.wind",), along("opt.wind", k), f"wind along world {x}, m/s, in air with density")
        for k, x in enumerate("xyz")
    },
    "air_density": Target("", ("opt.density",), along("opt.density"), "density of the air, kg/m^3"),
}

LIGHTS = tuple(
    f"{of}{kind}" for of in ("light_", "vis.headlight.") for kind in ("ambient", "diffuse", "specular")
)  # fmt: skip
POSE = ("cam_pos", "cam_quat")

# Targets of rendering only, without physics: tasks/camera.py writes them into the model it renders.
VISIBLE: dict[str, Target] = {
    "light": Target("", LIGHTS, light, "power of every light, as a multiple", ("scale",)),
    "light_tilt_x": Target("light", ("light_dir",), light_tilt(0), "lights turned about world x, rad", ("add",)),
    "light_tilt_y": Target("light", ("light_dir",), light_tilt(1), "lights turned about world y, rad", ("add",)),
    "red": Target("geom", ("geom_rgba",), channel(0), "red of a surface, 0 to 1"),
    "green": Target("geom", ("geom_rgba",), channel(1), "green of a surface, 0 to 1"),
    "blue": Target("geom", ("geom_rgba",), channel(2), "blue of a surface, 0 to 1"),
    "shade": Target("geom", ("geom_rgba",), channel(0, 1, 2), "red, green and blue together, 0 to 1"),
    "opacity": Target("geom", ("geom_rgba",), channel(3), "0: invisible, 1: opaque"),
    "hue": Target("geom", ("geom_rgba",), hue, "turn of a surface's colour about the grey axis, rad", ("add",)),
    "camera_x": Target("camera", POSE, camera_move(0), "camera moved to its right, m", ("add",)),
    "camera_y": Target("camera", POSE, camera_move(1), "camera moved upward in its picture, m", ("add",)),
    "camera_z": Target("camera", POSE, camera_move(2), "camera moved backward, m", ("add",)),
    "camera_pitch": Target("camera", POSE, camera_turn(0), "camera turned upward, rad", ("add",)),
    "camera_yaw": Target("camera", POSE, camera_turn(1), "camera turned to its left, rad", ("add",)),
    "camera_roll": Target("camera", POSE, camera_turn(2), "camera turned about its line of sight, rad", ("add",)),
    "camera_fov": Target("camera", ("cam_fovy",), camera_fov, "vertical field of view, rad"),
}

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
    count = {"joint": "njnt", "actuator": "nu", "camera": "ncam", "equality": "neq"}.get(kind, f"n{kind}")
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
            "build it with sim.engine.compile_for"
        )
