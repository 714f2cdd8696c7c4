"""A person's motion for a robot: the round trip is known, the feet stand, every Jacobian is a derivative."""

from dataclasses import replace

import mujoco
import numpy as np
import pytest

from surefoot.errors import SurefootError
from surefoot.motion import made_person
from surefoot.motion.contacts import contacts
from surefoot.motion.landmarks import landmarks
from surefoot.motion.person import resampled as resampled_person
from surefoot.motion.person import turned_about_vertical
from surefoot.motion.read import read_motion
from surefoot.motion.readers import read_person
from surefoot.motion.retarget.humanoid import BONES, SIDES, hanging, humanoid, least_turn
from surefoot.motion.retarget.ik import FREE, HELD, Frame, Solver
from surefoot.motion.retarget.inverse import TALLER, person_of
from surefoot.motion.retarget.metrics import metrics
from surefoot.motion.retarget.retarget import retarget
from surefoot.motion.retarget.targets import targets
from surefoot.motion.robot_motion import kinematic, mirrored, resampled
from surefoot.robot import Robot
from surefoot.rotation import to_world
from surefoot.tasks.ready.humanoid_model import xml


@pytest.fixture(scope="module")
def robot():
    return humanoid(kinematic(Robot.text(xml(), "humanoid")))


@pytest.fixture(scope="module")
def walk(robot):
    return retarget(made_person.walking(seconds=2.0), robot)


def places(robot, q):
    return q[:, list(robot.kin.layout.places)]


def test_landmarks_are_where_the_model_has_its_joints(robot):
    m = robot.kin.model
    assert {k: str(m.body(b).name) for k, (b, _) in robot.parts.items()} == {
        "pelvis": "pelvis", "torso": "torso", "left_foot": "left_foot", "right_foot": "right_foot", "left_hand": "left_hand", "right_hand": "right_hand",
    }  # fmt: skip
    assert robot.length("left_knee>left_ankle") == pytest.approx(
        np.hypot(0.3 + 0.009, 0), abs=0.002
    )  # ankle axes 0.3 and 0.318 below the knee
    assert robot.length("left_elbow>left_wrist") == pytest.approx(0.12, abs=1e-6)
    assert robot.ankle_height == pytest.approx(0.035 + 0.009, abs=0.002)


def test_the_least_turn_and_a_hanging_hand():
    a, b = np.array([0.0, 0, -1]), np.array([0.0, 1, 0])
    assert np.allclose(to_world(least_turn(a, b), a), b) and np.allclose(to_world(least_turn(a, -a), a), -a)
    forward = hanging(np.array([1.0, 0, 0]))  # a forearm that points forward: the thumb, forward when it hangs, is up
    assert np.allclose(to_world(forward, np.array([1.0, 0, 0])), [0, 0, 1], atol=1e-12)
    turned = hanging(np.array([0, 0, -1.0]), np.pi / 2)
    assert np.allclose(to_world(turned, np.array([1.0, 0, 0])), [0, 1, 0], atol=1e-12)


def test_every_row_of_the_jacobian_is_a_derivative(robot):
    solver, rng = Solver(robot), np.random.default_rng(0)
    q = robot.kin.anatomy.home.copy()
    mujoco.mj_integratePos(solver.m, q, 0.3 * rng.standard_normal(solver.m.nv), 1.0)
    asked = targets(made_person.walking(seconds=0.5), landmarks(made_person.NAMES), robot)
    frame = Frame(
        asked.root[3],
        {k: x[3] for k, x in asked.parts.items()},
        {k: x[3] for k, x in asked.bones.items()},
        {s: np.zeros(3) for s in SIDES},
    )
    J, e = solver.errors(q, frame, HELD)
    J, e = J.copy(), e.copy()
    for k in range(solver.m.nv):
        dq, moved = np.zeros(solver.m.nv), q.copy()
        dq[k] = 1e-6
        mujoco.mj_integratePos(solver.m, moved, dq, 1.0)
        change = (solver.errors(moved, frame, HELD)[1] - e) / 1e-6
        # an error is target minus value; for attitudes the derivative of the logarithm is the identity near 0 alone
        rows = [r for r in range(len(e)) if not 3 + 24 <= r < 3 + 24 + 3 * len(asked.parts)]
        assert np.abs(change + J[:, k])[rows].max() < 1e-4


def test_an_attitude_is_reached_exactly(robot):
    """A frame made from the robot's own pose is met by that pose, from another start."""
    solver, q = Solver(robot), robot.kin.anatomy.home.copy()
    q[solver.place] += 0.2 * np.random.default_rng(1).uniform(-1, 1, len(solver.place))
    q[solver.place] = np.clip(q[solver.place], *solver.range.T)
    marks = robot.landmarks(q[None])
    solver.pose(q)
    bodies = {k: solver.d.xquat[b].copy() for k, (b, _) in robot.parts.items()}
    bones = {}
    for bone in BONES:
        a, b = bone.split(">")
        v = (marks[b] - marks[a])[0]
        bones[bone] = v / np.linalg.norm(v)
    root = (marks["left_hip"] + marks["right_hip"])[0] / 2
    found, cost, _ = solver.solve(robot.kin.anatomy.home, Frame(root, bodies, bones), FREE, 60)
    assert cost < 1e-5 and np.abs(found - q)[solver.place].max() < 0.02


def test_the_round_trip_gives_the_joints_back(robot, walk):
    """Robot to a person with limbs 1.35 and 1.5 times as long, and back: the joints are known."""
    again = retarget(person_of(robot, walk.targets.time, walk.q), robot)
    rmse = np.sqrt(((places(robot, again.q) - places(robot, walk.q)) ** 2).mean())
    assert rmse < 0.05
    assert again.targets.scale == pytest.approx(1 / TALLER["leg"], rel=0.02)


def test_the_roll_of_a_nearly_straight_arm_comes_back(robot):
    """The elbow bent by 3 deg moves the wrist 6 mm a radian of the upper arm's roll: little, and yet it decides, not the default pose."""
    kin = robot.kin
    places_of = dict(zip(kin.layout.joints, kin.layout.places))
    q = np.tile(kin.anatomy.home, (12, 1))
    q[:, places_of["right_shoulder_pitch"]] = -1.2 + 0.01 * np.arange(12)
    q[:, places_of["right_shoulder_yaw"]], q[:, places_of["right_wrist_roll"]] = 0.8, -1.2
    bends = np.linspace(-0.6, 0.6, 121)
    trial = np.tile(q[0], (121, 1))
    trial[:, places_of["right_elbow"]] = bends
    at = robot.landmarks(trial)
    upper, fore = at["right_elbow"] - at["right_shoulder"], at["right_wrist"] - at["right_elbow"]
    cosine = (upper * fore).sum(1) / np.linalg.norm(upper, axis=1) / np.linalg.norm(fore, axis=1)
    straight = int(cosine.argmax())
    q[:, places_of["right_elbow"]] = bends[straight] - np.radians(3)
    found = retarget(person_of(robot, np.arange(12) / 50, q), robot)
    off = found.q[:, places_of["right_shoulder_yaw"]] - 0.8
    assert cosine[straight] > 0.995 and np.abs(off).max() < 0.1, np.abs(off).max()


def test_feet_stand_still_on_the_floor_and_plain_inverse_kinematics_does_not_hold_them(walk):
    ours, plain = metrics(walk), metrics(walk, walk.plain)
    assert ours["sliding"] <= 0.2 * plain["sliding"] and plain["sliding"] > 0.01
    assert ours["floating"] <= 0.01 and ours["sunk"] <= 0.01 and plain["floating"] > 0.01


def test_joints_stay_within_their_ranges(robot, walk):
    low, high = np.array(robot.kin.layout.limits).T
    q = places(robot, walk.q)
    assert (q >= low - 1e-6).all() and (q <= high + 1e-6).all()


@pytest.mark.parametrize("yaw", [-2.5, 1.0, np.pi])
def test_a_turned_person_gives_the_same_joints(robot, yaw):
    p = made_person.squatting(seconds=1.0)
    a, b = retarget(p, robot), retarget(turned_about_vertical(p, yaw), robot)
    assert np.abs(places(robot, a.q) - places(robot, b.q)).max() < 0.01


def test_people_of_any_size_give_nearly_the_same_joints(robot):
    """No height is assumed: a child and a giant squat alike, and both stand on the floor."""
    found = [retarget(made_person.squatting(tall, seconds=1.0), robot) for tall in (1.2, 2.1)]
    assert np.abs(places(robot, found[0].q) - places(robot, found[1].q)).max() < 0.02
    assert all(metrics(f)["floating"] < 0.01 for f in found)


def test_same_seed_same_motion(robot):
    p = made_person.squatting(seconds=0.5)
    assert np.array_equal(retarget(p, robot, seed=3).q, retarget(p, robot, seed=3).q)


def test_the_result_is_a_motion_file_that_tracking_reads(robot, walk, tmp_path):
    path = walk.log.save(tmp_path / "walk.npz")
    log = read_motion(path, robot.kin.layout.joints)
    assert np.allclose(robot.kin.q(log), walk.q) and len(log) == len(walk.q)
    half = resampled(walk.log, 30.0)
    assert half.rate == pytest.approx(30.0) and np.allclose(half["joint_pos"][1], walk.log["joint_pos"][2])


def test_a_mirrored_robots_motion_has_left_and_right_exchanged(robot, walk):
    image = mirrored(walk.log, robot.kin)
    marks, back = robot.landmarks(walk.q), robot.landmarks(robot.kin.q(image))
    assert np.allclose(back["left_ankle"], marks["right_ankle"] * [1, -1, 1], atol=1e-3)
    again = mirrored(image, robot.kin)
    assert np.allclose(again["joint_pos"], walk.log["joint_pos"])


def test_standing_feet_are_levelled_by_what_the_recording_says(robot):
    """A recording whose ankle frames are all tilted by 0.3 rad gives level standing feet."""
    p = made_person.squatting(seconds=1.0)
    pos = p.pos.copy()
    pos[:, p.names.index("left_toe"), 2] += 0.02
    tilted = replace(p, pos=pos)
    parts = targets(tilted, landmarks(p.names), robot).parts
    up = to_world(parts["left_foot"], np.broadcast_to([0.0, 0, 1], (len(p), 3)))
    assert contacts(tilted, landmarks(p.names)).of("left_foot").all() and up[:, 2].min() > 0.98


def test_a_robot_without_arms_is_refused():
    legs = Robot.text(xml(), "humanoid")

    def armless(spec):
        for side in SIDES:
            spec.delete(spec.body(f"{side}_shoulder"))
        for key in list(spec.keys):
            spec.delete(key)

    with pytest.raises(SurefootError, match="no arm on the left"):
        humanoid(kinematic(legs.edited(armless)))


def test_a_recorded_walk_stands_on_the_floor(robot, motions):
    person = resampled_person(read_person(motions / "cmu_bvh" / "02_01.bvh"), 30.0)
    found = retarget(person, robot)
    ours, plain = metrics(found), metrics(found, found.plain)
    assert ours["sliding"] <= 0.2 * plain["sliding"] and ours["floating"] <= 0.01 and ours["sunk"] <= 0.01
    assert ours["direction"] < 0.1 and ours["fastest"] <= 20.001  # bones within 6 degrees of the person's
    walked = np.linalg.norm(np.ptp(found.q[:, :2], axis=0)) / np.linalg.norm(np.ptp(person.at("Hips")[:, :2], axis=0))
    assert walked == pytest.approx(found.targets.scale, rel=0.05)
