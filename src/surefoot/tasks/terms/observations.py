"""Observation terms under the field's names, with the noise of ordinary sensors and scales that suit a net."""

import numpy as np

from surefoot.observation import Formula, ObsTerm
from surefoot.task import Moment
from surefoot.tasks.build.ground import Ground
from surefoot.tasks.terms import quantities as of
from surefoot.tasks.terms.quantities import Gait, Joints


def base_ang_vel(frame: str = "imu", noise: float = 0.1, scale: float = 0.25, clip: float = 20.0) -> ObsTerm:
    return ObsTerm("base_ang_vel", Formula("base_ang_vel", frame=frame), 3, "rad/s, body frame", noise, scale, clip)


def projected_gravity(frame: str = "imu", noise: float = 0.02) -> ObsTerm:
    """As an attitude filter reports it: (0, 0, -1) when level."""
    return ObsTerm("projected_gravity", Formula("projected_gravity", frame=frame), 3, "unit vector, body frame", noise)


def command(width: int, unit: str) -> ObsTerm:
    return ObsTerm("command", Formula("command"), width, unit)


def joint_pos(joints: Joints, noise: float = 0.01) -> ObsTerm:
    home = tuple(joints.home.tolist())
    return ObsTerm("joint_pos", Formula("joint_pos", joints.names, home), len(home), "rad from the default pose", noise)


def joint_vel(joints: Joints, noise: float = 0.5, scale: float = 0.1, clip: float = 50.0) -> ObsTerm:
    return ObsTerm("joint_vel", Formula("joint_vel", joints.names), len(joints.names), "rad/s", noise, scale, clip)


def last_action(width: int) -> ObsTerm:
    return ObsTerm("last_action", Formula("last_action"), width)


def tip_pos(joints: Joints, links: tuple[float, ...], noise: float = 0.001) -> ObsTerm:
    """Where the end effector is, by forward kinematics of the measured joints."""
    return ObsTerm("tip_pos", Formula("tip_pos", joints.names, links=links), 3, "m in the base's frame", noise)


def base_lin_acc(noise: float = 0.1) -> ObsTerm:
    """What an accelerometer reads: (0, 0, 9.81) when level and at rest."""
    return ObsTerm(
        "base_lin_acc", Formula("reading", reading="accelerometer"), 3, "m/s^2, body frame", noise, 0.1, 100.0
    )


def foot_force(feet: int, noise: float = 1.0) -> ObsTerm:
    """How hard each foot is pushed, by its touch sensor."""
    return ObsTerm("foot_force", Formula("reading", reading="touch"), feet, "N", noise, 0.01)


def joint_torque(joints: Joints, noise: float = 0.3) -> ObsTerm:
    """What motors report, from their currents."""
    return ObsTerm("joint_torque", Formula("reading", reading="joint_torque"), len(joints.names), "N m", noise, 0.1)


def gait_clock(gait: Gait) -> ObsTerm:
    """(0, 0) when standing."""
    return ObsTerm("gait_clock", gait.clock, 2, "sin, cos")


# privileged: the simulator's truth, for critics


def base_lin_vel() -> ObsTerm:
    return ObsTerm("base_lin_vel", of.base_lin_vel, 3, "m/s, body frame")


def base_height(ground: Ground) -> ObsTerm:
    def height(s: Moment) -> np.ndarray:
        p = of.base_pos(s)
        return s.xp.asarray(p[:, 2:3] - ground.height(p[:, 0], p[:, 1])[:, None])

    return ObsTerm("base_height", height, 1, "m")


def clearance(gait: Gait) -> ObsTerm:
    return ObsTerm("clearance", gait.clearance, len(gait.offsets), "m", scale=10.0)


def touch(gait: Gait) -> ObsTerm:
    return ObsTerm("touch", gait.touch, len(gait.offsets), "")


def unknowns(count: int) -> ObsTerm:
    """e itself."""
    return ObsTerm("e", lambda s: s.x.e, count, "mixed", sensed=False)
