"""Targets of physics: masses, friction, servos, delays, gravity, wind.

Writing one keeps the model consistent: a body's inertia follows its mass (the same shape, denser), a position servo's
bias follows its gain.
"""

import numpy as np

from surefoot.arrays import namespace
from surefoot.sim.fields import inertia
from surefoot.sim.fields.target import Rows, Target, Write, column, combine

DOWN = np.array([0.0, 0.0, -1.0])


def constraint(rows: Rows, ids: np.ndarray, value: np.ndarray, op: str) -> None:
    """Impedance d of an equality constraint. The engine divides stiffness by d^2 and damping by d, so that a soft constraint is as
    strong in the end; here they are multiplied by the same, and its force vanishes with d."""
    xp = namespace(value)
    d = xp.clip(combine(rows["eq_solimp"][:, ids, 0], value.reshape(-1, 1), op), 1e-4, 0.9999)
    rows["eq_solimp"][:, ids, :2] = d[..., None]
    rows["eq_solref"][:, ids] *= xp.stack([d**2, d], -1)


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
    """Position gain of a servo: F = kp (u - q) - kd v. A `pid` has its gains in the bias alone."""
    gain = rows["actuator_gainprm"][:, ids, 0]
    new = combine(namespace(gain).where(gain == 0, -rows["actuator_biasprm"][:, ids, 1], gain), value, op)
    rows["actuator_gainprm"][:, ids, 0] = new
    rows["actuator_biasprm"][:, ids, 1] = -new


def kd(rows: Rows, ids: np.ndarray, value: np.ndarray, op: str) -> None:
    """Velocity gain of a servo: F = kp (u - q) - kd v."""
    rows["actuator_biasprm"][:, ids, 2] = -combine(-rows["actuator_biasprm"][:, ids, 2], value, op)


def encoder_offset(rows: Rows, ids: np.ndarray, value: np.ndarray, op: str) -> None:
    """A servo controls its encoder's reading: F = kp (u - (q + offset)) - kd v."""
    rows["actuator_biasprm"][:, ids, 0] += rows["actuator_biasprm"][:, ids, 1] * value


def body_shape(name: str) -> Write:
    """One of the ten inertial parameters of a body: J -> U J U^T, of inertia.py."""

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
        high = combine(
            rows["jnt_actfrcrange"][:, joints, 1],
            value if op == "scale" else value * namespace(value).asarray(gear),
            op,
        )
        rows["jnt_actfrcrange"][:, joints, 1] = high
        rows["jnt_actfrcrange"][:, joints, 0] = -high

    return write


def gravity(rows: Rows, ids: np.ndarray, value: np.ndarray, op: str) -> None:
    """Magnitude of gravity, m/s^2, in its direction, or downwards if it was zero."""
    old = rows["opt.gravity"]
    xp = namespace(old)
    size = xp.linalg.norm(old, axis=1, keepdims=True)
    there = size > 0
    direction, unit = xp.where(there, old, xp.asarray(DOWN)), xp.where(there, size, 1.0)
    rows["opt.gravity"][:] = direction * (combine(size, value, op) / unit)


def slope(axis: int) -> Write:
    """Tilt of the ground about a horizontal world axis, rad: gravity is rotated the other way, which is equivalent."""

    def write(rows: Rows, ids: np.ndarray, value: np.ndarray, op: str) -> None:
        i, j = (1, 2) if axis == 0 else (2, 0)
        g = rows["opt.gravity"]
        xp = namespace(value)
        c, s = xp.cos(-value[:, 0]), xp.sin(-value[:, 0])
        g[:, i], g[:, j] = c * g[:, i] - s * g[:, j], s * g[:, i] + c * g[:, j]

    return write


def along(field: str, k: int = 0) -> Write:
    """Writes component k of an option of the whole world, such as wind."""

    def write(rows: Rows, ids: np.ndarray, value: np.ndarray, op: str) -> None:
        flat = rows[field].reshape(len(value), -1)
        flat[:, k] = combine(flat[:, k], value[:, 0], op)

    return write


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
