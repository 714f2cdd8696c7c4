"""A motion made from poses keeps its feet on the ground."""

import numpy as np
import pytest

from surefoot.errors import SurefootError
from surefoot.motion.made import from_poses
from surefoot.robot import Robot
from surefoot.sim.anatomy.links import posed
from surefoot.sim.model.load import load_robot
from surefoot.tasks.build.legged import read_legged
from surefoot.tasks.ready.humanoid_model import JOINTS, SOLE, stand, xml

ROBOT = Robot.text(xml(), "humanoid")
FEET = read_legged(ROBOT)[0].feet
HOME = {j: stand(j) for j in JOINTS}


def test_a_squat_keeps_both_soles_where_they_are_and_lowers_the_pelvis():
    bent = {
        f"{s}_{j}": a
        for s in ("left", "right")
        for j, a in (("hip_pitch", -0.75), ("knee", 1.5), ("ankle_pitch", -0.75))
    }
    log = from_poses(ROBOT, FEET, [(0, HOME), (1, bent), (2, HOME)])
    m = load_robot(ROBOT).model
    feet = []
    for p, quat, q in zip(log["base_pos"], log["base_quat"], log["joint_pos"]):
        d = posed(m, np.concatenate([p, quat, q]))
        feet.append([d.body(f"{side}_foot").xpos.copy() for side in ("left", "right")])
    feet = np.array(feet)
    assert np.ptp(feet, axis=0).max() < 0.01 and np.allclose(feet[..., 2], SOLE, atol=0.005)
    assert log["base_pos"][0, 2] - log["base_pos"][50, 2] > 0.1
    assert len(log) == 101 and np.isclose(log.time[-1], 2.0)


def test_joints_pass_through_the_poses_at_rest_halfway_at_half_time():
    log = from_poses(ROBOT, FEET, [(0, HOME), (1, {"waist_yaw": 0.6})])
    waist = log["joint_pos"][:, JOINTS.index("waist_yaw")]
    assert np.allclose(waist[[0, 25, 50]], [0, 0.3, 0.6], atol=1e-12)
    assert abs(waist[1]) < 0.6 * (np.pi / 50) ** 2 / 4 * 1.01  # (1 - cos x) / 2 < x^2 / 4


def test_poses_that_go_back_in_time_are_refused():
    with pytest.raises(SurefootError, match="poses: expected two or more, at times that increase"):
        from_poses(ROBOT, FEET, [(1, HOME), (0, HOME)])
