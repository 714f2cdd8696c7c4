"""The limiter: what a policy asks for, brought within a robot's limits. A pure function over arrays; always feasible.

    target   = clip(clip(asked, last +- rate / Hz), low, high)
    servo    torque = s_i s (kp_i (target - q) - kd_i v):   s_i brings |torque_i| under its limit, s the sum of |torque v| under
             the power; a joint over its speed has kp_i = 0, so that its torque only brakes
    control  torque = gear target:   target is shrunk towards 0 for torque and power; 0 where it would speed up a joint over
             its speed. Shrinking may be faster than the rate

Every target stays within position and rate limits and gains only shrink, so the limits never contradict each other. Numbers
that are not finite, or absurd, never leave: the last target is kept, servos let go, and `sound` is False.

Of one robot that nothing limits, which is most of the time, plain numbers show that sooner than arrays do.
"""

from typing import NamedTuple

import numpy as np

from surefoot.deploy.limits import Limits

TINY = 1e-250  # N m, W: any limit over it is a finite number
LARGEST = 1e6  # of any target, position or speed: more is no measurement
NEARLY = 1.0 - 1e-9  # of the power: sums that differ by their rounding are decided by arrays
NO, YES = np.array(False), np.array(True)


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
    if asked.ndim == 1 and _within(limits, asked, q, v, last, gains, dt):
        return Limited(asked.copy(), gains[0], gains[1], NO, YES)
    sound = np.abs(np.concatenate([asked, q, v], -1)).max(-1) < LARGEST  # False of nan, too
    every = bool(sound) if asked.ndim == 1 else bool(sound.all())
    if not every:
        asked, q, v = (np.where(sound[..., None], x, y) for x, y in ((asked, last), (q, last), (v, 0.0)))
    step = limits.rate * dt
    target = np.minimum(np.maximum(asked, last - step), last + step)
    target = np.minimum(np.maximum(target, limits.low), limits.high)
    kp, kd = gains if asked.ndim == 1 else np.broadcast_to(gains[:, None], (2, *asked.shape))
    if gains[0].any():
        target, kp, kd = _servo(limits, target, q, v, kp, kd)
        changed = ((target != asked) | (kp != gains[0])).any(-1)
    else:
        target = _control(limits, target, v)
        changed = (target != asked).any(-1)
    if not every:
        kp, kd = (np.where(sound[..., None], x, 0.0) for x in (kp, kd))
    return Limited(target, kp, kd, changed | ~sound, sound)


def _within(
    limits: Limits, asked: np.ndarray, q: np.ndarray, v: np.ndarray, last: np.ndarray, gains: np.ndarray, dt: float
) -> bool:
    """Whether no limit of one robot is active, and all is sound; False where arrays must decide."""
    power, (kps, kds) = 0.0, gains.tolist()
    servo = any(kps)
    for a, x, w, was, kp, kd, (low, high, velocity, torque, rate, gear) in zip(
        asked.tolist(), q.tolist(), v.tolist(), last.tolist(), kps, kds, limits.rows
    ):
        step = rate * dt
        if not (low <= a <= high and was - step <= a <= was + step and abs(w) < velocity):
            return False
        if not (abs(a) < LARGEST and abs(x) < LARGEST and abs(w) < LARGEST):
            return False
        size = abs(kp * (a - x) - kd * w if servo else gear * a)
        if not size <= torque:
            return False
        power += size * abs(w)
    return power <= NEARLY * limits.power


def _servo(
    limits: Limits, target: np.ndarray, q: np.ndarray, v: np.ndarray, kp: np.ndarray, kd: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    kp = np.where(np.abs(v) >= limits.velocity, 0.0, kp)
    s = _share(limits, kp * (target - q) - kd * v, v)
    return target, s * kp, s * kd


def _control(limits: Limits, target: np.ndarray, v: np.ndarray) -> np.ndarray:
    """0 lies within low..high where there is a gear, so what is shrunk stays within."""
    torque = limits.gear * target
    faster = (torque * v > 0) & (np.abs(v) >= limits.velocity)
    s = _share(limits, np.where(faster, 0.0, torque), v)
    if limits.power < np.inf:
        s = np.where(limits.gear == 0, 1.0, s)  # what moves no joint has no share in their power
    return np.where(faster, 0.0, s * target)


def _share(limits: Limits, torque: np.ndarray, v: np.ndarray) -> np.ndarray:
    """What may remain of each torque, 0 to 1."""
    size = np.abs(torque)
    s = np.minimum(1.0, limits.torque / np.maximum(size, TINY))
    if limits.power < np.inf:
        power = (np.minimum(size, limits.torque) * np.abs(v)).sum(-1, keepdims=True)
        s = s * np.minimum(1.0, limits.power / np.maximum(power, TINY))
    return s
