"""Quantities that rewards, terminations and privileged observations share. Use them through `s.once`: computed once a step.

They are the simulator's truth, not what a sensor reads.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from surefoot.observation import Formula
from surefoot.rotation import norm2, to_body
from surefoot.task import Moment
from surefoot.tasks.build.ground import FLAT, Ground

Columns = np.ndarray | slice


def base_pos(s: Moment) -> np.ndarray:
    """(n, 3) m, world frame."""
    return s.q[:, _base(s, 0) : _base(s, 0) + 3]


def base_quat(s: Moment) -> np.ndarray:
    """(n, 4) w x y z."""
    return s.q[:, _base(s, 0) + 3 : _base(s, 0) + 7]


def base_lin_vel_world(s: Moment) -> np.ndarray:
    """(n, 3) m/s, world frame."""
    return s.v[:, _base(s, 1) : _base(s, 1) + 3]


def base_lin_vel(s: Moment) -> np.ndarray:
    """(n, 3) m/s, base frame."""
    return to_body(base_quat(s), base_lin_vel_world(s))


def base_ang_vel(s: Moment) -> np.ndarray:
    """(n, 3) rad/s, base frame."""
    return s.v[:, _base(s, 1) + 3 : _base(s, 1) + 6]


def uprightness(s: Moment) -> np.ndarray:
    """(n,) cosine of the base's tilt."""
    q = base_quat(s)
    return 1 - 2 * (q[:, 1] ** 2 + q[:, 2] ** 2)


def lin_vel_error(s: Moment) -> np.ndarray:
    """(n,) |commanded - actual| horizontal velocity, m/s; the command begins with vx, vy."""
    return s.xp.sqrt(norm2(s.once(base_lin_vel)[:, :2] - s.command[:, :2]))


def _base(s: Moment, which: int) -> int:
    return s.layout.base[which] if s.layout.base is not None else 0


@dataclass(frozen=True, eq=False)
class Joints:
    """Some of a robot's joints: where they are in q and v, their default pose and range."""

    names: tuple[str, ...]
    q: Columns
    v: Columns
    home: np.ndarray
    low: np.ndarray
    high: np.ndarray

    def pos(self, s: Moment) -> np.ndarray:
        """(n, k) rad from the default pose."""
        return s.q[:, self.q] - s.xp.asarray(self.home)


@dataclass(frozen=True, eq=False)
class Gait:
    """A clock that gives each foot a swing and a stance; sensors foot_pos, foot_vel and touch are those of the feet.

    phase_i = 2 pi (frequency t + offset_i);  lift_i = max(sin phase_i, 0): 0 in stance, 1 at the top of the swing
    """

    frequency: float
    """Hz, of a whole stride"""
    height: float
    """m, of a sole at the top of its swing"""
    offsets: tuple[float, ...]
    """of each foot, in strides"""
    radius: tuple[float, ...]
    """m, from each foot's site down to its sole"""
    still: float = 0.05
    """a command smaller than this asks to stand"""
    ground: Ground = FLAT

    @cached_property
    def clock(self) -> Formula:
        return Formula("clock", frequency=self.frequency, still=self.still)

    @cached_property
    def _turns(self) -> tuple[np.ndarray, np.ndarray]:
        """(2, feet) each: sin(a + p) = (sin p, cos p) . (cos a, sin a);  -cos(a + p) = (sin p, cos p) . (sin a, -cos a)."""
        a = 2 * np.pi * np.array(self.offsets)
        return np.round([np.cos(a), np.sin(a)], 12), np.round([np.sin(a), -np.cos(a)], 12)

    @cached_property
    def halves(self) -> np.ndarray:
        """(feet,) half of each foot's share in a mean."""
        return np.full(len(self.offsets), 0.5 / len(self.offsets))

    @cached_property
    def _radius(self) -> np.ndarray:
        return np.array(self.radius)

    def lift(self, s: Moment) -> np.ndarray:
        """(n, feet) how far into its swing each foot should be."""
        return s.xp.maximum(s.once(self.clock) @ s.xp.asarray(self._turns[0]), 0.0)

    def swing(self, s: Moment) -> np.ndarray:
        """(n, feet) -cos phase_i: -1 where a foot leaves the ground, 1 where it lands, and back while it stands; 0 when standing."""
        return s.once(self.clock) @ s.xp.asarray(self._turns[1])

    def touch(self, s: Moment) -> np.ndarray:
        """(n, feet) bool: which feet bear on the ground."""
        return s.y["touch"] > 0.5

    def clearance(self, s: Moment) -> np.ndarray:
        """(n, feet) height of each sole above the ground under it, m."""
        foot = s.y["foot_pos"].reshape(len(s.q), -1, 3)
        return foot[:, :, 2] - s.xp.asarray(self._radius) - self.ground.height(foot[:, :, 0], foot[:, :, 1])
