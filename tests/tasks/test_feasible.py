"""Where a motion presses on the floor, against closed forms."""

from dataclasses import replace

import numpy as np
import pytest

from surefoot import tasks
from surefoot.motion.made import from_poses
from surefoot.motion.retarget.pressure import G
from surefoot.motion.retarget.pressure import off as distance
from surefoot.robot import Robot
from surefoot.sim.anatomy.links import posed
from surefoot.tasks.build.feasible import doubts, pressed
from surefoot.tasks.build.legged import read_legged
from surefoot.tasks.ready.humanoid_model import CORNERS, JOINTS, stand, xml

ROBOT = Robot.text(xml(), "humanoid")
HOME = {j: stand(j) for j in JOINTS}
STILL = tasks.track(ROBOT, from_poses(ROBOT, read_legged(ROBOT)[0].feet, [(0.0, HOME), (1.0, HOME)])).clip.begin
T = np.arange(len(STILL.ref.q)) * STILL.ref.period


def centre() -> np.ndarray:
    d = posed(STILL.body.model, STILL.ref.q[0])
    return d.subtree_com[STILL.body.model.body("pelvis").id]


def heel() -> float:
    """m: x of the rearmost ball of the soles."""
    d = posed(STILL.body.model, STILL.ref.q[0])
    return float(d.body("left_foot").xpos[0] + min(x for x, _ in CORNERS))


def sliding(a: float):
    """The robot stands stiffly on a floor that carries it forward with a m/s^2."""
    q, v = STILL.ref.q.copy(), STILL.ref.v.copy()
    q[:, 0] += a * T**2 / 2
    v[:, 0] = a * T
    return replace(STILL.ref, q=q, v=v)


def test_a_robot_that_stands_presses_under_its_centre_of_mass_and_that_far_from_its_toes():
    toes = heel() + max(x for x, _ in CORNERS) - min(x for x, _ in CORNERS)
    assert np.allclose(pressed(STILL.body, STILL.ref).off(), centre()[0] - toes, atol=1e-4)
    assert not any("presses" in words for words in doubts(STILL.body, STILL.ref))


def test_a_rigid_robot_that_is_carried_forward_presses_behind_its_heels_by_its_height_times_a_over_g():
    x, _, z = centre()
    a = 4.0
    far = pressed(STILL.body, sliding(a)).off()
    assert far[5:-5] == pytest.approx(heel() - (x - z * a / G), abs=0.002)
    said = [words for words in doubts(STILL.body, sliding(a)) if "presses" in words]
    assert len(said) == 1 and "for 100 % of its time" in said[0]


def test_a_robot_that_sinks_is_lighter_and_tips_sooner():
    """Its feet sink, too, by 16 mm in 80 ms; the same acceleration then acts at the longer lever z a / (g - 5)."""
    x, _, z = centre()
    ref = sliding(4.0)
    t = np.clip(T - 0.5, -0.08, 0.08)
    q = ref.q.copy()
    q[:, 2] += 0.018 - 2.5 * (t + 0.0) ** 2
    v = ref.v.copy()
    v[:, 2] = -5.0 * t * (np.abs(T - 0.5) < 0.08)
    far = pressed(STILL.body, replace(ref, q=q, v=v)).off()
    assert far[len(far) // 2] == pytest.approx(heel() - (x - z * 4.0 / (G - 5.0)), abs=0.02)


def test_a_robot_in_the_air_presses_on_nothing():
    q = STILL.ref.q.copy()
    q[:, 2] += 0.5
    assert len(pressed(STILL.body, replace(STILL.ref, q=q)).off()) == 0
    assert not any("presses" in words for words in doubts(STILL.body, replace(STILL.ref, q=q)))


def test_near_the_edge_of_its_feet_a_motion_is_told_to_be_tipped_easily():
    """Leaning back until the centre of mass is 1 cm from the heels: carried forward with g (distance - 1 cm) / z."""
    x, _, z = centre()
    said = doubts(STILL.body, sliding(G * (x - heel() - 0.01) / z))
    assert any("1.0 cm from the edge of its feet" in words for words in said)


@pytest.mark.parametrize(
    "p, off", [((0.5, 0.5), -0.5), ((0.9, 0.5), -0.1), ((2, 0.5), 1), ((2, 2), 2**0.5), ((0, -3), 3), ((1, 0.5), 0)]
)
def test_the_distance_from_a_unit_square(p, off):
    square = np.array([[0, 0], [1, 0], [0, 1], [1, 1], [0.5, 0.5], [0.5, 0]])
    assert distance(np.array(p, float), square) == pytest.approx(off, abs=1e-9)


def test_the_distance_from_a_point_or_a_line_is_never_below_0():
    assert distance(np.array([3.0, 4.0]), np.zeros((1, 2))) == pytest.approx(5.0)
    line = np.array([[0.0, 0], [1, 0]])
    assert distance(np.array([0.5, 0.0]), line) == pytest.approx(0.0) and distance(
        np.array([2.0, 0.0]), line
    ) == pytest.approx(1.0)
