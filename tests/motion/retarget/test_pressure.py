"""Shifts that keep a robot's pressure within its feet, against closed forms, and on a motion."""

import numpy as np
import pytest

from surefoot.motion import made_person
from surefoot.motion.retarget.balance import MARGIN, balanced, shift
from surefoot.motion.retarget.humanoid import humanoid
from surefoot.motion.retarget.metrics import metrics
from surefoot.motion.retarget.pressure import Pressure
from surefoot.motion.retarget.retarget import retarget
from surefoot.motion.robot_motion import kinematic
from surefoot.robot import Robot
from surefoot.tasks.ready.humanoid_model import xml

DT, H, ROWS = 0.02, 0.07, 400  # s, s^2


def pressure(p: np.ndarray, soles: np.ndarray) -> Pressure:
    """Of one who presses at p (rows, 2) and stands on the same soles (balls, 2) all the time."""
    balls = np.tile(np.c_[soles, np.zeros(len(soles))], (len(p), 1, 1))
    used = np.arange(len(p)) > 1
    return Pressure(DT, p, np.full(len(p), H), balls, used & used[::-1])


def test_who_presses_outside_of_still_feet_is_shifted_as_far_as_the_margin_within():
    square = np.array([[-1, -1], [-1, 1], [1, -1], [1, 1]]) * 0.05
    delta = shift(pressure(np.tile([0.1, 0.0], (ROWS, 1)), square), ROWS, 1)
    within = 0.05 * (1 - MARGIN / np.hypot(0.05, 0.05))
    assert delta[100:-100] == pytest.approx(np.tile([within - 0.1, 0.0], (ROWS - 200, 1)), abs=2e-4)


def test_who_presses_within_is_not_shifted():
    square = np.array([[-1, -1], [-1, 1], [1, -1], [1, 1]]) * 0.05
    assert np.allclose(shift(pressure(np.zeros((ROWS, 2)), square), ROWS, 1), 0.0)


def test_a_quick_oscillation_of_the_pressure_needs_a_small_shift():
    """On one point p = A sin w t needs delta - H delta'' = -p: delta = -A / (1 + H w^2) sin w t."""
    t, w = np.arange(ROWS) * DT, 2 * np.pi
    p = np.stack([0.1 * np.sin(w * t), np.zeros(ROWS)], 1)
    delta = shift(pressure(p, np.zeros((1, 2))), ROWS, 1)[:, 0]
    assert delta[100:-100] == pytest.approx((-p[:, 0] / (1 + H * w**2))[100:-100], abs=0.002)


@pytest.mark.parametrize("every", [1, 2, 3])
def test_frames_between_rows_are_shifted_smoothly_with_them(every):
    t = np.arange(ROWS) * DT
    p = np.stack([0.1 * np.sin(3 * t), 0 * t], 1)
    at = pressure(p, np.zeros((1, 2)))
    fine = shift(at, every * (ROWS - 1) + 1, every)
    assert np.allclose(fine[::every], shift(at, ROWS, 1), atol=1e-9)
    middle = fine[5 * every : -5 * every]
    assert np.abs(np.diff(middle, 2, axis=0)).max() < 2 * 0.1 * 9 * (DT / every) ** 2


def test_a_walker_presses_within_its_feet_and_these_stay_where_they_were():
    robot = humanoid(kinematic(Robot.text(xml(), "humanoid")))
    found = retarget(made_person.walking(speed=0.6, seconds=2.5, sway=0.02), robot)
    better = balanced(found)
    before, after = metrics(found), metrics(better)
    assert before["outside"] > 0.2 and after["outside"] < 0.1
    assert np.abs(better.q - found.q)[:, :2].max() < 0.02
    assert after["sliding"] < 0.001 and after["floating"] < 0.005 and after["sunk"] < 0.001
