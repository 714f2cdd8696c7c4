"""A person carries a box, and so does the robot: hands at its sides, nothing inside it."""

import numpy as np
import pytest

from surefoot.motion import made_person
from surefoot.motion.contacts import leg_length
from surefoot.motion.landmarks import landmarks
from surefoot.motion.retarget.humanoid import humanoid
from surefoot.motion.retarget.interaction import Box, distances, interact, laplacian, with_box
from surefoot.motion.retarget.metrics import metrics
from surefoot.motion.retarget.retarget import retarget
from surefoot.motion.robot_motion import kinematic
from surefoot.robot import Robot
from surefoot.tasks.ready.humanoid_model import xml

HALF = np.array([0.15, 0.17, 0.12])


@pytest.fixture(scope="module")
def carried():
    person, path = made_person.carrying(rate=20.0)
    marks = landmarks(person.names)
    robot = Robot.text(xml(), "humanoid")
    scale = humanoid(kinematic(robot)).leg / leg_length(person, marks)
    body = humanoid(kinematic(with_box(robot, scale * HALF)))
    plain = retarget(person, body)
    return person, plain, interact(person, marks, Box(HALF, path), plain)


def test_the_laplacian_does_not_see_translations_and_has_neighbours_of_the_mesh():
    points = np.random.default_rng(0).uniform(-1, 1, (20, 3))
    L = laplacian(points)
    assert np.allclose(L @ np.ones(20), 0) and np.allclose(L @ (points + [1, 2, 3]), L @ points)
    tetra = np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]])
    assert np.allclose(laplacian(tetra), np.eye(4) - (np.ones((4, 4)) - np.eye(4)) / 3)


def test_points_of_a_box_are_on_its_surface():
    points = Box(HALF, np.zeros((1, 3))).surface(30)
    assert np.allclose(np.abs(points / HALF).max(1), 1.0) and np.abs(points.mean(0)).max() < 0.02


def test_hands_are_at_the_box_and_nothing_is_inside_it(carried):
    person, plain, found = carried
    held = np.arange(len(person)) / len(person) > 0.4
    ours, inside = distances(found.robot, found.q, found.box)
    theirs, through = distances(found.robot, plain.plain, found.box)
    assert np.abs(ours[held]).mean() <= 0.3 * np.abs(theirs[held]).mean()
    assert (inside < -0.01).mean() <= 0.01 and (through < -0.01).mean() >= 0.1 and found.relaxed == 0


def test_feet_stand_still_while_the_box_is_carried(carried):
    _, plain, found = carried
    assert metrics(plain, found.q)["sliding"] < 0.005 and metrics(plain, found.q)["floating"] < 0.01
    low, high = np.array(found.robot.kin.layout.limits).T
    q = found.q[:, list(found.robot.kin.layout.places)]
    assert (q >= low - 1e-6).all() and (q <= high + 1e-6).all()
