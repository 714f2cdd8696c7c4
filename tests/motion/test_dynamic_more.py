"""A hand of three fingers, and a whole robot, as references of the search."""

import numpy as np
import pytest

from surefoot.motion import made_gripper as hand
from surefoot.motion.dynamic import Plan, Reference, feasible, replayed
from surefoot.motion.dynamic_body import whole_body
from surefoot.motion.made import from_poses
from surefoot.motion.made_hands import Hands
from surefoot.params import Params
from surefoot.robot import Robot
from surefoot.sim.simulate import make_world, simulate
from surefoot.tasks.build import track as tracking
from surefoot.tasks.build.legged import read_legged
from surefoot.tasks.ready.humanoid_model import JOINTS, stand, xml

CART = """<mujoco><option timestep="0.01" integrator="implicitfast"/><worldbody><body><joint name="x" type="slide" axis="1 0 0"/><joint name="y" type="slide" axis="0 1 0"/>
<geom size=".1" mass="1"/></body></worldbody><actuator><motor joint="x"/><motor joint="y"/></actuator></mujoco>"""


def test_fingertips_touch_the_can_and_squeeze_nothing():
    """Three tips, each one radius from the can's side: no force until a finger is told to press, and the can stays when the palm rises."""
    world, ref = hand.ThreeFingers()(1), hand.lift()
    tip = hand.RIM + hand.FIRST * np.sin(hand.NEAR) + hand.SECOND * np.sin(hand.NEAR + hand.FAR)
    assert tip == pytest.approx(hand.CAN + hand.TIP)
    path = simulate(world, np.ones((1, 1)), ref.q[:1], np.zeros((1, 14)), ref.u[None]).q[0]
    assert path[-1, 2] == pytest.approx(hand.TALL / 2, abs=2e-3) and path[-1, 7] == pytest.approx(0.12, abs=2e-3)


def test_a_squeeze_of_a_tenth_of_a_radian_lifts_the_can():
    """kp x 0.1 rad over a lever of a finger's length is several N at each tip: friction 0.8 holds 2 N of can."""
    world, ref = hand.ThreeFingers()(1), hand.lift()
    u = ref.u.copy()
    u[:, 2::2] -= 0.15
    path = simulate(world, np.ones((1, 1)), ref.q[:1], np.zeros((1, 14)), u[None]).q[0]
    assert path[-1, 2] - hand.TALL / 2 == pytest.approx(0.12, abs=0.01)


def test_noise_reaches_as_far_as_each_control_says():
    """A control whose reach is nearly none stays as the reference has it; the other one moves the cart."""
    t = np.arange(1, 26) * 0.02
    goal = np.stack([t**2 / 2, t**2 / 2], 1)
    ref = Reference(goal, np.zeros((25, 2)), np.ones(2), np.array([1.0, 1e-9]))
    make = lambda n: make_world(Robot.text(CART, "cart"), Params(()), n, 2, 1)  # noqa: E731
    log = feasible(make, ref, np.zeros((1, 0)), Plan(noise=1.0, samples=32, rounds=6, horizon=0.3, knot=0.1, apply=0.1))
    path = replayed(make, log["control"], goal[0], np.zeros((1, 0)))[0]
    assert np.abs(path[:, 0] - goal[:, 0]).max() < 0.02 and np.abs(path[:, 1] - goal[0, 1]).max() < 1e-6
    assert np.array_equal(path, log["q"])  # the log holds what an open-loop replay gives, to the bit


def test_a_whole_body_reference_holds_the_joints_of_the_motion():
    robot = Robot.text(xml(), "humanoid")
    legs, home = read_legged(robot, "free")[0], {j: stand(j) for j in JOINTS}
    motion = from_poses(robot, legs.feet, [(0.0, home), (0.5, home | {"left_elbow": -0.3})])
    ready = tracking.prepared(robot, legs, tracking.Timing(steps=4), ())
    ref = whole_body(ready, motion, 0.02)
    assert (
        ref.q.shape == (26, 30) and ref.u.shape == (26, 23) and np.allclose(np.sort(ref.u[-1]), np.sort(ref.q[-1, 7:]))
    )
    assert ref.weights[:6].tolist() == [3, 3, 3, 1, 1, 1] and ref.q[0, 2] == pytest.approx(motion["base_pos"][0, 2])


def test_a_heavier_box_weighs_what_it_is_said_to():
    world, e = Hands(mass=0.6)(1), np.array([[1.0, 0.0]])
    q, v = np.zeros((1, 7)), np.zeros((1, 7))
    q[0, 1] = 0.3  # in the air, and pressed by nothing
    fall = simulate(world, e, q, v, np.zeros((1, 5, 4))).q[0, :, 1]
    assert fall[-1] == pytest.approx(0.3 - 9.81 * 0.1**2 / 2, abs=6e-3)
