"""The limiter: what a policy asks for, brought within a robot's limits. A pure function over arrays; always feasible.

    target   = clip(clip(asked, last +- rate / Hz), low, high)
    servo    torque = s_i s (kp_i (target - q) - kd_i v):   s_i brings |torque_i| under its limit, s the sum of |torque v| under
             the power; a joint over its speed has kp_i = 0, so that its torque only brakes
    control  torque = gear target:   target is shrunk towards 0 for torque and power; 0 where it would speed up a joint over
             its speed. Shrinking may be faster than the rate

Every target stays within position and rate limits and gains only shrink, so the limits never contradict each other. Numbers
that are not finite never leave: the last target is kept, servos damp, and `sound` is False.
"""

from typing import NamedTuple

import numpy as np

from surefoot.deploy.limits import Limits


class Limited(NamedTuple):
    """Arrays (..., n), one number an action."""

    target: np.ndarray
    kp: np.ndarray
    kd: np.ndarray
    changed: np.ndarray
    """(...) bool: a limit was active"""
    sound: np.ndarray
    """(...) bool: all that was asked and measured is finite"""


def limit(
    limits: Limits, asked: np.ndarray, q: np.ndarray, v: np.ndarray, last: np.ndarray, gains: np.ndarray, dt: float
) -> Limited:
    """`asked` targets, measured q and v of their joints, the `last` target sent, `gains` (2, n) kp and kd; zeros: no servos.

    `last` must be within low..high and finite. Where actions move no joints, q and v are zeros.
    """
    sound = np.isfinite(asked + q + v).all(-1)
    every = bool(sound.all())
    if not every:
        asked, q, v = (np.where(sound[..., None], x, y) for x, y in ((asked, last), (q, last), (v, 0.0)))
    step = limits.rate * dt
    target = np.minimum(np.maximum(asked, last - step), last + step)
    target = np.minimum(np.maximum(target, limits.low), limits.high)
    made = _servo(limits, target, q, v, gains) if gains[0].any() else _control(limits, target, v, gains)
    changed = (made[0] != asked).any(-1) | (made[1] != gains[0]).any(-1)
    if not every:  # servos hold nothing, they only damp
        made = made[0], np.where(sound[..., None], made[1], 0.0), np.where(sound[..., None], made[2], 0.0)
    return Limited(*made, changed | ~sound, sound)


def _servo(
    limits: Limits, target: np.ndarray, q: np.ndarray, v: np.ndarray, gains: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    kp = np.where(np.abs(v) >= limits.velocity, 0.0, gains[0])
    with np.errstate(over="ignore", invalid="ignore"):
        torque = kp * (target - q) - gains[1] * v
        size = np.abs(torque)
        s = np.where(size > limits.torque, limits.torque / size, 1.0)
        power = (s * size * np.abs(v)).sum(-1, keepdims=True)
        s = np.where(power > limits.power, s * (limits.power / power), s)
    s = np.where(np.isfinite(s), s, 0.0)  # torques too large to be a number
    return target, s * kp, s * gains[1]


def _control(
    limits: Limits, target: np.ndarray, v: np.ndarray, gains: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    gear = limits.gear
    with np.errstate(over="ignore", invalid="ignore"):
        torque = gear * target
        size = np.abs(torque)
        s = np.where(size > limits.torque, limits.torque / size, 1.0)
        s = np.where((np.abs(v) >= limits.velocity) & (torque * v > 0), 0.0, s)
        power = (s * size * np.abs(v)).sum(-1, keepdims=True)
        s = np.where(power > limits.power, s * (limits.power / power), s)
    s = np.where(np.isfinite(s), s, 0.0)
    held = np.where(gear == 0, target, np.minimum(np.maximum(s * target, limits.low), limits.high))
    return held, np.broadcast_to(gains[0], target.shape), np.broadcast_to(gains[1], target.shape)
