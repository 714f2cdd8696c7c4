"""Unknowns of a robot, as far as its model has them, and ranges to train over, scaled to its mass and size.

A range is what an engineer would not bet against before measuring: payloads of -4 to +15 % of the mass, gains within
10 %, the longest latency most of a control period, pushes that change the velocity by 0.5 m/s.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import mujoco

from surefoot.belief import Box
from surefoot.errors import unknown
from surefoot.params import Param, Params

SHOVE, SHOVED = 60 / 12.7, 0.1  # m/s^2 of the whole robot, for so many s: a push of strength 1
PROPRIOCEPTION = "gyro|attitude|joint_pos/.*|joint_vel/.*"
Row = tuple[Param, tuple[float, float]]


@dataclass(frozen=True)
class Driven:
    """Names that the unknowns of servos are addressed by, and numbers that decide which unknowns there are."""

    model: mujoco.MjModel
    joints: tuple[str, ...]
    actuators: tuple[str, ...]

    def has(self, field: str) -> bool:
        """Whether any of the joints has a number other than 0 there."""
        dofs = [int(self.model.joint(j).dofadr[0]) for j in self.joints]
        return bool((getattr(self.model, field)[dofs] > 0).any())

    def servos(self) -> list[Row]:
        m, ids = self.model, [self.model.actuator(a).id for a in self.actuators]
        motors, joints = any_of(self.actuators), any_of(self.joints)
        rows: list[tuple[Param, tuple[float, float], bool]] = [
            (Param("strength", "strength", 1.0, 0.5, 1.4, motors, about="motors' whole torque law, as a multiple"), (0.9, 1.1), True),
            (Param("kp", "kp", 1.0, 0.5, 1.5, motors, about="servos' stiffness, as a multiple"), (0.9, 1.1), True),
            (Param("kd", "kd", 1.0, 0.3, 2.0, motors, about="servos' damping, as a multiple"), (0.8, 1.2), bool((m.actuator_biasprm[ids, 2] < 0).any())),
            (Param("joint_damping", "damping", 1.0, 0.3, 3.0, joints, about="viscous joint friction, as a multiple"), (0.8, 1.2), self.has("dof_damping") and not (m.actuator_biasprm[ids, 2] < 0).any()),
            (Param("torque_limit", "force_limit", 1.0, 0.4, 1.2, motors, about="largest torque, as a multiple"), (0.9, 1.0), bool(m.actuator_forcelimited[ids].all())),
            (Param("armature", "armature", 1.0, 0.4, 2.5, joints, log=True, about="rotor inertia, as a multiple"), (0.7, 1.4), self.has("dof_armature")),
            (Param("joint_friction", "frictionloss", 1.0, 0.0, 4.0, joints, about="dry joint friction, as a multiple"), (0.0, 2.0), self.has("dof_frictionloss")),
        ]  # fmt: skip
        return [(p, ends) for p, ends, there in rows if there]


def base(body: str, mass: float, own: float, size: float) -> list[Row]:
    """Mass and centre of mass of a base of `own` kg in a robot of `mass` kg and about `size` m."""
    match, lightest = re.escape(body), max(-0.28 * mass, -0.7 * own)
    return [
        (Param("payload", "mass", 0.0, lightest, 0.5 * mass, match, "add", "kg", about="mass carried by the base"), (max(-0.04 * mass, lightest), 0.15 * mass)),
        (Param("com_x", "com_x", 0.0, -0.25 * size, 0.25 * size, match, "add", "m", about="base's centre of mass, forward"), (-0.07 * size, 0.07 * size)),
        (Param("com_y", "com_y", 0.0, -0.12 * size, 0.12 * size, match, "add", "m", about="base's centre of mass, left"), (-0.05 * size, 0.05 * size)),
    ]  # fmt: skip


def ground(soles: str, slope: float = 0.05) -> list[Row]:
    return [
        (Param("friction", "friction", 0.8, 0.1, 1.6, soles, "set", log=True, about="feet on the ground"), (0.4, 1.2)),
        (Param("slope_x", "slope_x", 0.0, -0.4, 0.4, op="set", unit="rad", about="ground tilted sideways"), (-slope, slope)),
        (Param("slope_y", "slope_y", 0.0, -0.4, 0.4, op="set", unit="rad", about="ground tilted along x"), (-slope, slope)),
    ]  # fmt: skip


def wires(period: float = 0.02, sensors: str = PROPRIOCEPTION) -> list[Row]:
    """Latencies, in shares of a control period."""
    late = [(Param("latency", "action_delay", 0.0, 0.0, 3 * period, op="set", unit="s", about="from command to motor"), (0.0, 0.75 * period))]  # fmt: skip
    if not sensors:
        return late
    return [*late, (Param("sensor_latency", "sensor_delay", 0.0, 0.0, period, sensors, "set", "s", about="from motion to reading"), (0.0, 0.5 * period))]  # fmt: skip


def payload(body: str, most: float) -> list[Row]:
    """Mass in an arm's hand, trained up to `most` kg."""
    return [(Param("payload", "mass", 0.0, 0.0, 5 * most, re.escape(body), "add", "kg", about="mass in the hand"), (0.0, most))]  # fmt: skip


def noise(bias: str = "base_ang_vel") -> list[Row]:
    rows = [(Param("noise", "noise", 1.0, 0.0, 5.0, about="sensor noise, as a multiple"), (0.5, 1.5))]
    if not bias:
        return rows
    return [*rows, (Param("gyro_bias", "bias", 0.0, -0.3, 0.3, bias, "set", "rad/s", about="constant gyro offset"), (-0.05, 0.05))]  # fmt: skip


def accelerometer() -> list[Row]:
    return [(Param("accel_bias", "bias", 0.0, -1.0, 1.0, "base_lin_acc", "set", "m/s^2", about="constant accelerometer offset"), (-0.2, 0.2))]  # fmt: skip


def push(mass: float) -> list[Row]:
    said = f"sideways pushes, as a multiple of {SHOVE * mass:.3g} N for {SHOVED:g} s"
    return [(Param("push", "push", 0.0, 0.0, 3.0, op="set", about=said), (0.0, 1.0))]


def belief(rows: Iterable[Row], ranges: Mapping[str, tuple[float, float]]) -> Box:
    """Params and their ranges; those of the user in place of ours."""
    rows = list(rows)
    params = Params(tuple(p for p, _ in rows))
    for name in ranges:
        if name not in params.names:
            raise unknown("unknown", name, params.names, "ranges")
    return Box.ranges(params, {p.name: ends for p, ends in rows} | dict(ranges))


def any_of(names: Iterable[str]) -> str:
    return "|".join(re.escape(n) for n in names)
