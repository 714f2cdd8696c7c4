"""Terminations: each takes a Moment of n rows and returns (n,) bool."""

import numpy as np

from surefoot.task import Moment
from surefoot.tasks.build.ground import FLAT, Ground
from surefoot.tasks.terms import quantities as of


def bad_orientation(s: Moment, least: float = 0.5) -> np.ndarray:
    """Tilted until the cosine is below `least`: 0.5 is 60 degrees."""
    return of.uprightness(s) < least


def low_base(s: Moment, least: float, ground: Ground = FLAT) -> np.ndarray:
    """The base lower than `least` m above the ground under it."""
    p = of.base_pos(s)
    return p[:, 2] - ground.height(p[:, 0], p[:, 1]) < least
