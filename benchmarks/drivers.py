"""Hand-written policies that keep each robot where a policy in training keeps it, so that speed is measured there.

What is simulated matters: a fallen robot has other contacts, and one that fails at once spends its time in resets.
"""

from collections.abc import Callable, Mapping

import numpy as np

from surefoot.rng import stream
from surefoot.tasks.ready.hover import ARM, GRAVITY, ROTORS
from surefoot.tasks.ready.hover import hover as task

Driver = Callable[[Mapping[str, np.ndarray], int], np.ndarray]
"""observations, step -> actions"""
NAMES = task().params.names
LEVER = ARM / np.sqrt(2)  # m, of a rotor about roll and pitch


def balance(obs: Mapping[str, np.ndarray], k: int) -> np.ndarray:
    """State feedback that holds the pole up and the cart in the middle."""
    return obs["actor"] @ np.array([[0.1], [0.17], [3.0], [0.7]])


def hover(obs: Mapping[str, np.ndarray], k: int) -> np.ndarray:
    """Proportional-derivative control: position asks for a tilt, the tilt's error for a turn, height for thrust.

    It is told e, as the critic is, and undoes what e does to balance and lift: it only has to keep the states sensible.
    """
    o, e = obs["actor"].astype(float), dict(zip(NAMES, obs["critic"][:, -len(NAMES) :].T.astype(float)))
    x, R, v, w = o[:, :3], o[:, 3:12].reshape(-1, 3, 3), o[:, 12:15] / 0.5, o[:, 15:18] / 0.1
    aim = np.concatenate([np.clip(-(2.0 * x + 2.5 * v)[:, :2] / GRAVITY, -0.4, 0.4), np.ones((len(o), 1))], 1)
    off = np.einsum("nji,nj->ni", R, np.cross(R[:, :, 2], aim))  # axis, in the body's frame, to turn about
    turn = 0.03 * off - 0.008 * w
    roll, pitch = turn[:, 0] + e["com_y"] / LEVER, turn[:, 1] - e["com_x"] / LEVER
    lift = -(8.0 * x[:, 2] + 4.0 * v[:, 2]) / GRAVITY
    front, left, _ = np.array(list(ROTORS.values()), float).T
    thrust = 1.0 + lift[:, None] + roll[:, None] * left - pitch[:, None] * front
    thrust *= (e["mass"] / e["strength"])[:, None]
    thrust[:, 0] /= e["rotor_1"]  # front left
    return thrust - 1.0


def walk(obs: Mapping[str, np.ndarray], k: int) -> np.ndarray:
    """Stand, with small random motions: four feet on the ground, now and then a fall and a reset."""
    return 0.1 * stream(0, "gentle", k).standard_normal((len(obs["actor"]), 12))


DRIVERS: dict[str, Driver] = {"balance": balance, "hover": hover, "walk": walk}
