"""Terms of rewards and observations against closed forms and the engine's own kinematics."""

import numpy as np
import pytest

from surefoot import tasks
from surefoot.errors import SurefootError
from surefoot.observation import Columns, Formula, ObsTerm
from surefoot.robot import Layout, Robot
from surefoot.rotation import from_axis_angle
from surefoot.sim.anatomy.links import posed
from surefoot.task import Moment
from surefoot.tasks.terms import observations, quantities, rewards, terminations
from surefoot.tasks.terms.quantities import Gait, Joints
from surefoot.world import State

CRANE = """<mujoco model="crane"><compiler angle="radian"/><worldbody>
  <body name="mast" pos=".1 .2 .3" euler=".1 .2 .3"><joint name="slew" axis="0 0 1" pos=".02 0 0" range="-2 2"/><geom size=".05" mass="1"/>
    <body name="jib" pos=".1 0 .4" euler="0 .5 0"><joint name="out" type="slide" axis="1 0 0" range="0 .4"/><geom type="capsule" fromto="0 0 0 .3 0 0" size=".02" mass=".5"/>
      <body name="wrist" pos=".3 0 0"><joint name="tilt" axis="0 1 1" range="-1 1"/><geom type="capsule" fromto="0 0 0 .2 0 0" size=".02" mass=".3"/>
        <body name="hook" pos=".2 0 .05"/></body></body></body></worldbody></mujoco>"""


class Rows:
    """A moment with these states and readings."""

    def __init__(self, q, **y):
        self.xp, self.q, self.y, self.layout = np, q, y, type("L", (), {"base": (0, 0)})()


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


def moment(q, v=None, command=None, action=None, previous=None, time=0.0, **y):
    """A real moment of a robot with a free base; rows of q decide how many."""
    n = len(q)
    v, command = np.zeros((n, 6)) if v is None else v, np.zeros((n, 3)) if command is None else command
    action = np.zeros((n, 2)) if action is None else action
    none = np.zeros((n, 0))
    x = State(np.full(n, time), q, v, none, none, y, none, np.array([[0, 0, -9.81]]), np.zeros((n, 6)))
    layout = Layout(("free",), (), (), base=(0, 0))
    return Moment(x, action, action if previous is None else previous, command, np.full(n, time), np.zeros(n), layout)


def at(quat, n=1):
    return np.tile([0.0, 0, 1, *quat], (n, 1))


def test_velocities_are_compared_in_the_frame_of_the_base():
    """Headed to the world's y at 1 m/s along it: vx = 1 in the base's frame."""
    yaw = from_axis_angle(np.array([[0.0, 0, 1]]), np.array([np.pi / 2]))[0]
    v = np.array([[0.0, 1, 0, 0, 0, 0.5]])
    s = moment(at(yaw), v, np.array([[1.0, 0, 0.5]]))
    assert quantities.base_lin_vel(s)[0] == pytest.approx([1, 0, 0], abs=1e-12)
    assert rewards.track_lin_vel_xy(s) == pytest.approx([1.0]) and rewards.track_ang_vel_z(s) == pytest.approx([1.0])
    off = moment(at(yaw), v, np.array([[0.75, 0, 0.15]]))
    assert quantities.lin_vel_error(off) == pytest.approx([0.25])
    assert rewards.track_lin_vel_xy(off, 0.25) == pytest.approx([np.exp(-1)])
    assert rewards.track_ang_vel_z(off, 0.35) == pytest.approx([np.exp(-1)])


@pytest.mark.parametrize("tilt", [0.0, 0.4, 1.0, 1.2])
def test_tilt_is_its_cosine_its_squared_sine_and_an_end_beyond_60_degrees(tilt):
    axis = np.array([[np.cos(0.7), np.sin(0.7), 0]])
    s = moment(at(from_axis_angle(axis, np.array([tilt]))[0]))
    assert quantities.uprightness(s) == pytest.approx([np.cos(tilt)])
    assert rewards.upright(s) == pytest.approx([np.cos(tilt)])
    assert rewards.flat_orientation(s) == pytest.approx([np.sin(tilt) ** 2])
    assert terminations.bad_orientation(s)[0] == (tilt > np.pi / 3)


def test_a_base_ends_an_episode_below_its_least_height_alone():
    q = at([1, 0, 0, 0], 2)
    q[:, 2] = 0.21, 0.19
    assert terminations.low_base(moment(q), 0.2).tolist() == [False, True]


def test_squares_of_speeds_and_of_changes_of_action():
    v = np.array([[0, 0, -0.5, 3, 4, 9.0]])
    s = moment(at([1, 0, 0, 0]), v, action=np.array([[1.0, -1]]), previous=np.array([[0.0, 1]]))
    assert rewards.lin_vel_z(s) == pytest.approx([0.25])
    assert rewards.ang_vel_xy(s) == pytest.approx([25.0])
    assert rewards.action_rate(s) == pytest.approx([5.0])


def test_feet_of_a_trot_swing_in_turn_and_stand_still_without_a_command():
    """At a quarter of a stride the first foot is at the top of its swing and the other in stance."""
    gait = Gait(2.0, 0.1, (0.0, 0.5), (0.02, 0.02))
    up = np.array([[0, 0, 0.12, 0, 0, 0.02]])
    s = moment(at([1, 0, 0, 0]), command=np.array([[1.0, 0, 0]]), time=0.125, foot_pos=up, touch=np.array([[0.0, 9]]))
    assert gait.lift(s)[0] == pytest.approx([1.0, 0.0], abs=1e-9)
    assert gait.clearance(s)[0] == pytest.approx([0.1, 0.0], abs=1e-12)
    assert rewards.feet_gait(s, gait, 0.03) == pytest.approx([1.0])
    assert rewards.feet_air_time(s, gait) == pytest.approx([0.5])
    stand = moment(at([1, 0, 0, 0]), time=0.125, foot_pos=up, touch=np.array([[0.0, 9]]))
    assert gait.lift(stand).tolist() == [[0, 0]]
    assert rewards.feet_gait(stand, gait, 0.03) == pytest.approx([(2 + np.exp(-((0.1 / 0.03) ** 2)) - 0) / 4])


def test_feet_that_never_leave_the_ground_earn_no_gait_reward_over_a_stride():
    """Each foot's score is 1 in stance; in swing its contact is wrong, and its height is off by the whole lift."""
    gait, down, both = (
        Gait(2.0, 0.06, (0.0, 0.5), (0.02, 0.02)),
        np.array([[0, 0, 0.02, 0, 0, 0.02]]),
        np.array([[9.0, 9]]),
    )
    standing = rewards.standing_gait(gait.height, 0.03)
    times = (np.arange(1000) + 0.5) / 2000
    go = dict(command=np.array([[1.0, 0, 0]]), foot_pos=down, touch=both)
    scores = [rewards.feet_gait(moment(at([1, 0, 0, 0]), time=t, **go), gait, 0.03, standing)[0] for t in times]
    assert np.mean(scores) == pytest.approx(0.0, abs=1e-6)
    still = moment(at([1, 0, 0, 0]), time=0.125, foot_pos=down, touch=both)
    assert rewards.feet_gait(still, gait, 0.03, standing) == pytest.approx([1.0])


def test_feet_that_slide_and_land_cost_the_square_of_their_speed():
    gait = Gait(2.0, 0.1, (0.0, 0.5), (0.0, 0.0))
    near = np.array([[0, 0, 0.001, 0, 0, 0.5]])
    moving = np.array([[3.0, 4, -0.2, 1, 1, -7]])
    s = moment(at([1, 0, 0, 0]), foot_pos=near, foot_vel=moving, touch=np.array([[9.0, 0]]))
    assert rewards.feet_slide(s, gait) == pytest.approx([25.0])  # the other foot is in the air
    assert rewards.feet_landing(s, gait, 0.01) == pytest.approx([0.04])
    assert rewards.foot_clearance(s, gait) == pytest.approx([0.099**2 * 5 + 0.4**2 * np.sqrt(2)])


def test_joints_cost_what_they_are_beyond_the_margin_of_their_range():
    joints = Joints(
        ("a", "b"), slice(7, 9), slice(6, 8), np.array([0.1, 0.0]), np.array([-1.0, -1]), np.array([1.0, 1])
    )
    q = np.concatenate([at([1, 0, 0, 0]), [[0.4, 1.05]]], 1)
    s = moment(q, np.array([[0, 0, 0, 0, 0, 0, 2.0, 1]]))
    assert rewards.joint_pos_limits(s, joints) == pytest.approx([0.1])
    assert rewards.default_pose(s, joints, np.array([1.0, 0])) == pytest.approx([np.exp(-0.09)])
    assert rewards.joint_vel(s, joints) == pytest.approx([5.0])
    term = observations.joint_pos(joints)
    assert term.formula.offset == (0.1, 0.0) and term.dim == 2


def test_feet_that_stay_on_the_ground_under_a_base_at_the_commanded_speed_are_where_they_should_be():
    """At the middle of a stance the foot is under its hip; at its ends v / (4 f) before and behind; also on a turned heading."""
    gait, feet = Gait(2.0, 0.1, (0.0, 0.5), (0.0, 0.0)), np.array([[0.0, 0.1, -1], [0.0, -0.1, -1]])
    yaw = from_axis_angle(np.array([[0.0, 0, 1]]), np.array([np.pi / 2]))[0]
    command = np.array([[0.8, 0.0, 0.0]])
    place = lambda t, foot: rewards.feet_placement(  # noqa: E731
        moment(at(yaw), command=command, time=t, foot_pos=foot), gait, feet, 0.1
    )
    # headed to the world's y: the left foot is at -x; at t = 0 the first foot leaves the ground behind, the other lands ahead
    ends = np.array([[-0.1, -0.1, 0, 0.1, 0.1, 0]])
    assert place(0.0, ends) == pytest.approx([1.0])
    assert place(0.125, np.array([[-0.1, 0, 0, 0.1, 0, 0]])) == pytest.approx([1.0])  # both pass below the hips
    assert place(0.0, ends + [[0, 0.1, 0, 0, 0, 0]]) == pytest.approx([(1 + np.exp(-1)) / 2])
    still = moment(at(yaw), time=0.0, foot_pos=np.array([[-0.1, 0, 0, 0.1, 0, 0]]))
    assert rewards.feet_placement(still, gait, feet, 0.1) == pytest.approx([1.0])
