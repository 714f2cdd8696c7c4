"""The limiter: what a policy asks for, brought within a robot's limits. A pure function over arrays; always feasible.

    target   = clip(clip(asked, last +- rate / Hz), low, high)
    servo    torque = s_i s (kp_i (target - q) - kd_i v):   s_i brings |torque_i| under its limit, s the sum of |torque v| under
             the power; a joint over its speed has kp_i = 0, so that its torque only brakes
    control  torque = gear target:   target is shrunk towards 0 for torque and power; 0 where it would speed up a joint over
             its speed. Shrinking may be faster than the rate

Every target stays within position and rate limits and gains only shrink, so the limits never contradict each other. Numbers
that are not finite, or absurd, never leave: the last target is kept, servos let go, and `sound` is False.
"""

from typing import NamedTuple

import numpy as np

from surefoot.deploy.limits import Limits

TINY = 1e-300
LARGEST = 1e6  # of any target, position or speed: more is no measurement


class Limited(NamedTuple):
    """Arrays (..., n), one number an action."""

    target: np.ndarray
    kp: np.ndarray
    kd: np.ndarray
    changed: np.ndarray
    """(...) bool: a limit was active"""
    sound: np.ndarray
    """(...) bool: all that was asked and measured is a number below LARGEST"""


def limit(
    limits: Limits, asked: np.ndarray, q: np.ndarray, v: np.ndarray, last: np.ndarray, gains: np.ndarray, dt: float
) -> Limited:
    """`asked` targets, measured q and v of their joints, the `last` target sent, `gains` (2, n) kp and kd; zeros: no servos.

    `last` must be within low..high and finite. Where actions move no joints, q and v are zeros.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        return _limit(limits, asked, q, v, last, gains, dt)


def _limit(
    limits: Limits, asked: np.ndarray, q: np.ndarray, v: np.ndarray, last: np.ndarray, gains: np.ndarray, dt: float
) -> Limited:
    sound = (np.maximum(np.abs(asked), np.maximum(np.abs(q), np.abs(v))) < LARGEST).all(-1)  # False of nan, too
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
    s = _share(limits, kp * (target - q) - gains[1] * v, v)
    return target, s * kp, s * gains[1]


def _control(
    limits: Limits, target: np.ndarray, v: np.ndarray, gains: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    gear = limits.gear
    torque = gear * target
    torque = np.where((np.abs(v) >= limits.velocity) & (torque * v > 0), 0.0, torque)
    s = np.where(torque == 0, gear == 0, _share(limits, torque, v))
    held = np.where(gear == 0, target, np.minimum(np.maximum(s * target, limits.low), limits.high))
    return held, np.broadcast_to(gains[0], target.shape), np.broadcast_to(gains[1], target.shape)


def _share(limits: Limits, torque: np.ndarray, v: np.ndarray) -> np.ndarray:
    """What may remain of each torque, 0 to 1; 0 of one that is too large to be a number."""
    size = np.abs(torque)
    s = np.minimum(1.0, limits.torque / np.maximum(size, TINY))
    if limits.power < np.inf:
        power = (np.minimum(size, limits.torque) * np.abs(v)).sum(-1, keepdims=True)
        s = s * np.minimum(1.0, limits.power / np.maximum(power, TINY))
    return s if np.isfinite(s).all() else np.where(np.isfinite(s), s, 0.0)
