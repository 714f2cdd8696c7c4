"""Terms of rewards and observations against closed forms and the engine's own kinematics."""

import numpy as np
import pytest

from surefoot import tasks
from surefoot.errors import SurefootError
from surefoot.observation import Columns, Formula, ObsTerm
from surefoot.robot import Robot
from surefoot.rotation import from_axis_angle
from surefoot.sim.anatomy.links import posed
from surefoot.tasks.terms import rewards

CRANE = """<mujoco model="crane"><compiler angle="radian"/><worldbody>
  <body name="mast" pos=".1 .2 .3" euler=".1 .2 .3"><joint name="slew" axis="0 0 1" pos=".02 0 0" range="-2 2"/><geom size=".05" mass="1"/>
    <body name="jib" pos=".1 0 .4" euler="0 .5 0"><joint name="out" type="slide" axis="1 0 0" range="0 .4"/><geom type="capsule" fromto="0 0 0 .3 0 0" size=".02" mass=".5"/>
      <body name="wrist" pos=".3 0 0"><joint name="tilt" axis="0 1 1" range="-1 1"/><geom type="capsule" fromto="0 0 0 .2 0 0" size=".02" mass=".3"/>
        <body name="hook" pos=".2 0 .05"/></body></body></body></worldbody></mujoco>"""


class Rows:
    """A moment with these states and readings."""

    def __init__(self, q, **y):
        self.q, self.y, self.layout = q, y, type("L", (), {"base": (0, 0)})()


def test_forward_kinematics_by_screws_are_the_engines():
    """Hinges with anchors off their bodies' origins, a slide, skew axes: a product of exponentials against mj_kinematics."""
    task = tasks.reach(Robot.text(CRANE, "crane"))
    bolted, rng = task.episode.__self__, np.random.default_rng(0)
    term = next(t for t in task.observations["actor"].terms if t.name == "tip_pos")
    q = rng.uniform(-1, 1, (20, 3))
    found = term.formula(Columns({"joint_pos": q[:, ::-1]}, {"joint_pos": bolted.joints.names[::-1]}))
    for angles, tip in zip(q, found):
        full = bolted.q.copy()
        full[bolted.joints.q] = angles
        assert tip == pytest.approx(posed(bolted.model, full).site("tip").xpos, abs=1e-8)


def test_a_tip_is_written_into_the_contract_and_links_of_another_length_are_refused():
    task = tasks.reach(Robot.text(CRANE, "crane"))
    actor = task.observations["actor"]
    assert type(actor).from_json(actor.to_json(), "policy") == actor
    with pytest.raises(SurefootError, match="links: expected 7 numbers for each joint and 3, found 9"):
        ObsTerm("tip", Formula("tip_pos", ("a",), links=(0.0,) * 9), 3).check("policy")


def test_a_tilted_sole_costs_its_squared_sine():
    level, tilted = [1.0, 0, 0, 0], from_axis_angle(np.array([[0.0, 1, 0]]), np.array([0.3]))[0]
    s = Rows(np.zeros((2, 7)), foot_quat=np.array([[*level, *level], [*tilted, *level]]))
    normals = np.array([[0, 0, 1.0], [0, 0, -1]])
    assert rewards.feet_flat(s, normals) == pytest.approx([0.0, np.sin(0.3) ** 2])


def test_feet_are_near_by_their_distance_across_the_heading():
    """Headed 90 degrees to the left, feet apart along the world's x are apart sideways; the left one is at -x."""
    yaw = from_axis_angle(np.array([[0.0, 0, 1]]), np.array([np.pi / 2]))[0]
    q = np.zeros((3, 7))
    q[:, 3] = 1.0
    q[2, 3:7] = yaw
    feet = np.array([[0.3, 0.1, 0, 0, -0.1, 0], [0.0, 0.04, 0, 0, -0.04, 0], [-0.05, 0.3, 0, 0.05, 0, 0]])
    assert rewards.feet_near(Rows(q, foot_pos=feet), 0.16) == pytest.approx([0.0, 0.25, (1 - 0.1 / 0.16) ** 2])


def test_a_base_that_sinks_costs_the_square_of_its_share():
    q = np.zeros((2, 7))
    q[:, 2] = 0.9, 0.6
    assert rewards.low_base(Rows(q), 0.8) == pytest.approx([0.0, 0.0625])
