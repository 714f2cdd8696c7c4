"""Reward terms: each takes a Moment of n rows and returns (n,); the weight is the table's, its sign too.

rewards={"action_rate": Reward(-0.02, rewards.action_rate, "..."),
         "track_lin_vel_xy": Reward(1.5, lambda s: rewards.track_lin_vel_xy(s, sigma=0.25), "...")}
"""

import numpy as np

from surefoot.observation import Formula
from surefoot.rotation import norm2, to_world
from surefoot.task import Moment
from surefoot.tasks.build.ground import FLAT, Ground
from surefoot.tasks.terms import quantities as of
from surefoot.tasks.terms.quantities import Gait, Joints

GRAVITY = Formula("projected_gravity")


def alive(s: Moment) -> np.ndarray:
    """1."""
    return s.xp.ones_like(s.time)


def track_lin_vel_xy(s: Moment, sigma: float = 0.25) -> np.ndarray:
    """exp(-e^2 / sigma^2), e the error of the commanded horizontal velocity."""
    return s.xp.exp(-s.xp.square(s.once(of.lin_vel_error)) / sigma**2)


def track_ang_vel_z(s: Moment, sigma: float = 0.35) -> np.ndarray:
    """exp(-(w_z - commanded)^2 / sigma^2); the command's third number."""
    return s.xp.exp(-s.xp.square((of.base_ang_vel(s)[:, 2] - s.command[:, 2]) / sigma))


def flat_orientation(s: Moment) -> np.ndarray:
    """Squared horizontal part of gravity's direction in the base: sin^2 of the tilt."""
    return norm2(s.once(GRAVITY)[:, :2])


def upright(s: Moment) -> np.ndarray:
    """Cosine of the tilt."""
    return of.uprightness(s)


def lin_vel_z(s: Moment) -> np.ndarray:
    """Vertical velocity squared."""
    return s.xp.square(of.base_lin_vel_world(s)[:, 2])


def ang_vel_xy(s: Moment) -> np.ndarray:
    """Roll and pitch rates squared."""
    return norm2(of.base_ang_vel(s)[:, :2])


def base_height(s: Moment, target: float, sigma: float, ground: Ground = FLAT) -> np.ndarray:
    """exp(-(height - target)^2 / sigma^2) of the base above the ground under it."""
    p = of.base_pos(s)
    return s.xp.exp(-s.xp.square((p[:, 2] - ground.height(p[:, 0], p[:, 1]) - target) / sigma))


def default_pose(s: Moment, joints: Joints, weight: np.ndarray | float = 1.0) -> np.ndarray:
    """exp(-sum w_j (q_j - home_j)^2): a prior on the pose."""
    return s.xp.exp(-(s.xp.square(joints.pos(s)) * s.xp.asarray(weight)).sum(1))


def joint_pos_limits(s: Moment, joints: Joints, margin: float = 0.05) -> np.ndarray:
    """How far joints are beyond `margin` inside their range, rad, summed."""
    q = s.q[:, joints.q]
    low, high = s.xp.asarray(joints.low) + margin, s.xp.asarray(joints.high) - margin
    return s.xp.einsum("ij->i", s.xp.abs(q - s.xp.clip(q, low, high)))


def joint_vel(s: Moment, joints: Joints) -> np.ndarray:
    """Joint speeds squared."""
    return norm2(s.v[:, joints.v])


def action_rate(s: Moment) -> np.ndarray:
    """Change of the action squared."""
    return norm2(s.action - s.previous)


def feet_gait(s: Moment, gait: Gait, sigma: float, standing: float = 0.0) -> np.ndarray:
    """Feet at the height and in the contact that the clock asks for, half each, mean over feet: 1 at best.

    `standing`: what feet that never leave the ground would earn, which then counts as 0.
    """
    lift = s.once(gait.lift)
    height = s.xp.exp(-s.xp.square((s.once(gait.clearance) - gait.height * lift) / sigma))
    contact = (lift > 0) != s.once(gait.touch)
    return ((height + contact) @ s.xp.asarray(gait.halves) - standing) / (1 - standing)


def standing_gait(height: float, sigma: float) -> float:
    """The feet_gait of feet on the ground, mean over a stride: half of the time the clock asks for nothing else.

    The mean of exp(-(height sin)^2 / sigma^2) over the swing is exp(-k) I0(k), k = (height / sigma)^2 / 2.
    """
    k = (height / sigma) ** 2 / 2
    return float(0.5 + 0.25 * np.exp(-k) * np.i0(k))


def feet_placement(s: Moment, gait: Gait, feet: np.ndarray, sigma: float) -> np.ndarray:
    """exp(-d^2 / sigma^2), mean over feet, d from where a foot should be under the base as the command is followed.

    Raibert: a foot that stands for half a stride and stays where it is goes through p_i + v_i / (4 f) (-cos phase_i) below a
    base that moves as commanded; v_i = (vx - w y_i, vy + w x_i). `feet` (feet, 3) are p_i in the base's frame; heading frame.
    """
    foot, p, q = s.y["foot_pos"].reshape(len(s.q), -1, 3), of.base_pos(s), of.base_quat(s)
    feet = s.xp.asarray(feet)
    yaw = s.xp.arctan2(2 * (q[:, 1] * q[:, 2] + q[:, 0] * q[:, 3]), 1 - 2 * (q[:, 2] ** 2 + q[:, 3] ** 2))[:, None]
    dx, dy, c, sn = foot[:, :, 0] - p[:, :1], foot[:, :, 1] - p[:, 1:2], s.xp.cos(yaw), s.xp.sin(yaw)
    vx, vy, w = (s.command[:, k : k + 1] for k in range(3))
    step = s.once(gait.swing) / (4 * gait.frequency)
    x = c * dx + sn * dy - feet[:, 0] - step * (vx - w * feet[:, 1])
    y = c * dy - sn * dx - feet[:, 1] - step * (vy + w * feet[:, 0])
    return s.xp.exp(-(x**2 + y**2) / sigma**2).mean(1)


def foot_clearance(s: Moment, gait: Gait) -> np.ndarray:
    """Squared error of each swinging foot's height, weighted by its horizontal speed."""
    v = s.y["foot_vel"].reshape(len(s.q), -1, 3)
    speed = s.xp.sqrt(v[:, :, 0] ** 2 + v[:, :, 1] ** 2)
    return (s.xp.square(s.once(gait.clearance) - gait.height) * speed).sum(1)


def feet_landing(s: Moment, gait: Gait, near: float) -> np.ndarray:
    """Squared downward speed of feet lower than `near`, about to touch."""
    down = s.xp.minimum(s.y["foot_vel"][:, 2::3], 0.0)
    return norm2(down * (s.once(gait.clearance) < near))


def feet_slide(s: Moment, gait: Gait) -> np.ndarray:
    """Squared horizontal speed of feet that bear on the ground."""
    v, touch = s.y["foot_vel"], s.once(gait.touch)
    return norm2(v[:, 0::3] * touch) + norm2(v[:, 1::3] * touch)


def feet_flat(s: Moment, normals: np.ndarray) -> np.ndarray:
    """Squared sine of each sole's tilt, summed; normals (feet, 3): across the soles, in their bodies' frames."""
    quat = s.y["foot_quat"].reshape(-1, 4)
    across = to_world(quat, s.xp.tile(s.xp.asarray(normals), (len(s.q), 1)))
    return norm2(across[:, :2]).reshape(len(s.q), -1).sum(1)


def feet_near(s: Moment, least: float) -> np.ndarray:
    """Squared shortfall of the distance of two feet, left minus right, across the base's heading, as a share of `least` m."""
    foot, q = s.y["foot_pos"], of.base_quat(s)
    d = foot[:, 0:2] - foot[:, 3:5]
    heading = s.xp.stack([1 - 2 * (q[:, 2] ** 2 + q[:, 3] ** 2), 2 * (q[:, 1] * q[:, 2] + q[:, 0] * q[:, 3])], 1)
    across = (heading[:, 0] * d[:, 1] - heading[:, 1] * d[:, 0]) / s.xp.sqrt(norm2(heading))
    return s.xp.square(s.xp.minimum(across / least - 1.0, 0.0))


def low_base(s: Moment, least: float, ground: Ground = FLAT) -> np.ndarray:
    """Squared shortfall of the base's height above the ground under it, as a share of `least` m."""
    p = of.base_pos(s)
    return s.xp.square(s.xp.minimum((p[:, 2] - ground.height(p[:, 0], p[:, 1])) / least - 1.0, 0.0))


def feet_air_time(s: Moment, gait: Gait) -> np.ndarray:
    """Share of feet in the air while they should swing: the clock's answer to rewards on air time."""
    return s.xp.mean((s.once(gait.lift) > 0) & ~s.once(gait.touch), 1)
