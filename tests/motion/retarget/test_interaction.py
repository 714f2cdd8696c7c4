"""A person carries a box, leans on a wall and steps up, and so does the robot: hands and feet where they belong, nothing inside."""

import numpy as np
import pytest

from surefoot.errors import SurefootError
from surefoot.motion import made_person
from surefoot.motion.contacts import contacts, leg_length
from surefoot.motion.landmarks import landmarks
from surefoot.motion.retarget.interaction import interact, laplacian
from surefoot.motion.retarget.metrics import metrics
from surefoot.motion.retarget.things import Change, box, changes, ground, placed_for, step, surface, wall
from surefoot.motion.retarget.touch import contact_metrics, distances
from surefoot.robot import Robot
from surefoot.tasks.ready.humanoid_model import xml

HALF = np.array([0.15, 0.17, 0.12])
ROBOT = Robot.text(xml(), "humanoid")


def block(frames: int, high: float = 0.2):
    at, long, wide = made_person.STEP_AT
    return step(at, 0.0, 0.0, (long, wide, high), frames)


@pytest.fixture(scope="module")
def carried():
    person, path = made_person.carrying(rate=20.0)
    return person, interact(person, ROBOT, [box(HALF, path)])


def test_the_laplacian_does_not_see_translations_and_has_neighbours_of_the_mesh():
    points = np.random.default_rng(0).uniform(-1, 1, (20, 3))
    L = laplacian(points)
    assert np.allclose(L @ np.ones(20), 0) and np.allclose(L @ (points + [1, 2, 3]), L @ points)
    tetra = np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]])
    assert np.allclose(laplacian(tetra), np.eye(4) - (np.ones((4, 4)) - np.eye(4)) / 3)


def test_points_are_on_the_surface_and_of_a_wall_only_those_near_the_person():
    nobody = np.zeros((1, 1, 3))
    of_box = surface(box(HALF, np.zeros((1, 3))), nobody, 0.3)
    assert np.allclose(np.abs(of_box).max(1), 1.0) and np.abs(of_box.mean(0)).max() < 0.02 and len(of_box) == 30
    front = wall(0.8, 0.0, np.pi, 1)
    person = np.array([[[0.75, 0.2, 1.3], [0.75, -0.2, 1.3]]])
    near = front.world(surface(front, person, 0.3) * front.half, 0)
    assert near[:, 0].min() == pytest.approx(0.8) and near[:, 0].max() == pytest.approx(0.9)  # front and back
    assert np.abs(near[:, 1]).max() <= 0.5 + 1e-9 and near[:, 2].min() >= 1.0 - 1e-9
    with pytest.raises(SurefootError, match="wall: the person never comes within 0.30 m"):
        surface(wall(5.0, 0.0, np.pi, 1), person, 0.3)


def test_a_changed_step_stands_on_the_floor_and_a_changed_box_turns_about_its_middle():
    high = placed_for(block(2), 0.8, 0.03, Change(1.5, (0.1, 0.0, 0.7)))
    assert high.top == pytest.approx(0.8 * 0.2 * 1.5) and high.pos[0, 2] == pytest.approx(high.half[2])
    assert high.pos[0, 0] == pytest.approx(0.8 * made_person.STEP_AT[0] + 0.1)
    turned = placed_for(box(HALF, np.ones((2, 3))), 0.8, 0.03, Change(2.0, (0.0, 0.0, 0.0), np.pi / 2))
    assert np.allclose(turned.pos, [0.8, 0.8, 0.83]) and np.allclose(turned.half, 1.6 * HALF)
    assert np.allclose(turned.world(np.array([[0.1, 0, 0]]), 0), [[0.8, 0.9, 0.83]])
    assert changes(3, 0) == changes(3, 0) != changes(3, 1) and changes(3, 0)[0] == Change()


def test_a_foot_on_a_step_stands_though_it_is_high():
    person = made_person.stepping(rate=20.0)
    marks = landmarks(person.names)
    under = ground(person, marks, [block(len(person))], 1.0, Change())
    blind, seeing = contacts(person, marks), contacts(person, marks, under.person)
    assert not blind.of("left_foot")[30:].any() and seeing.of("left_foot")[32:].all()
    assert set(np.unique(under.person["left"])) == {0.0, 0.2} and seeing.of("left_foot")[:6].all()


def test_hands_are_at_the_box_and_nothing_is_inside_it(carried):
    person, found = carried
    held = np.arange(len(person)) / len(person) > 0.4
    ours, inside = distances(found.robot, found.q, found.things)
    theirs, through = distances(found.robot, found.plain.plain, found.things)
    assert np.abs(ours[held]).mean() <= 0.3 * np.abs(theirs[held]).mean()
    assert (inside < -0.01).mean() <= 0.01 and (through < -0.01).mean() >= 0.1 and found.relaxed == 0


def test_feet_stand_still_while_the_box_is_carried(carried):
    _, found = carried
    assert metrics(found.plain, found.q)["sliding"] < 0.005 and metrics(found.plain, found.q)["floating"] < 0.01
    low, high = np.array(found.robot.kin.layout.limits).T
    q = found.q[:, list(found.robot.kin.layout.places)]
    assert (q >= low - 1e-6).all() and (q <= high + 1e-6).all()


@pytest.mark.parametrize("shift", [0.0, -0.1])
def test_palms_are_on_the_wall_also_where_the_robots_is_nearer(shift):
    """Plain inverse kinematics leaves the hands 3 cm short of the person's wall, and 7 cm inside the nearer one."""
    person, x = made_person.leaning(rate=20.0)
    found = interact(person, ROBOT, [wall(x, 0.0, np.pi, len(person))], Change(shift=(shift, 0.0, 0.0)))
    ours, plain = contact_metrics(found), contact_metrics(found, found.plain.plain)
    assert ours["hands_off"] <= 0.3 * plain["hands_off"] and ours["contacts"] >= 0.95 > 0.1 >= plain["contacts"]
    assert ours["inside"] == 0.0 and ours["sliding"] < 0.005 and ours["floating"] < 0.01 and found.relaxed == 0


@pytest.mark.parametrize("size", [1.0, 1.4])
def test_feet_stand_on_the_step_also_where_the_robots_is_higher(size):
    person = made_person.stepping(rate=20.0)
    found = interact(person, ROBOT, [block(len(person))], Change(size))
    ours, plain = contact_metrics(found), contact_metrics(found, found.plain.plain)
    assert ours["contacts"] == 1.0 and ours["steps_off"] < 0.01 and ours["inside"] == 0.0 and ours["sliding"] < 0.005
    assert size == 1.0 or (plain["contacts"] == 0.0 and plain["steps_off"] > 0.05)
    rise = found.plain.targets.scale * 0.2 * size
    base = found.q[:, found.robot.kin.base + 2]
    assert base[-1] - base[0] == pytest.approx(rise, abs=0.03)


def test_synthetic_people_have_limbs_that_keep_their_lengths():
    for person in (made_person.leaning()[0], made_person.stepping()):
        at = {n: person.pos[:, i] for i, n in enumerate(person.names)}
        for a, b in (("hip", "knee"), ("knee", "ankle"), ("shoulder", "elbow"), ("elbow", "wrist")):
            assert np.ptp(np.linalg.norm(at[f"left_{a}"] - at[f"left_{b}"], axis=1)) < 1e-6, (a, b)
        assert leg_length(person, landmarks(person.names)) == pytest.approx(0.491 * 1.7)
