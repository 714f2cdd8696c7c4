"""People that were recorded: landmarks, units, contacts, and what can be done with a recording."""

import numpy as np
import pytest

from surefoot.errors import SurefootError
from surefoot.log import Log
from surefoot.motion import made_person, person
from surefoot.motion.contacts import contacts, runs, smoothed
from surefoot.motion.landmarks import landmarks, pairs, stature, unit_of, up_axis, upright

CMU = "Hips LHipJoint LeftUpLeg LeftLeg LeftFoot LeftToeBase RightUpLeg RightLeg RightFoot Neck Head LeftShoulder LeftArm LeftForeArm LeftHand LeftHandIndex1 RightShoulder RightArm RightForeArm RightHand".split()
SOMA = "Hips LeftLeg LeftShin LeftFoot RightLeg RightShin RightFoot LeftShoulder LeftArm LeftForeArm LeftHand RightShoulder RightArm RightForeArm RightHand".split()
UNREAL = "pelvis thigh_l calf_l foot_l ball_l thigh_r calf_r foot_r upperarm_l lowerarm_l hand_l clavicle_r upperarm_r lowerarm_r hand_r".split()


@pytest.mark.parametrize(
    "names, hip, knee, shoulder",
    [
        (CMU, "LeftUpLeg", "LeftLeg", "LeftArm"),
        (SOMA, "LeftLeg", "LeftShin", "LeftArm"),
        (UNREAL, "thigh_l", "calf_l", "upperarm_l"),
    ],
    ids=["cmu", "soma", "unreal"],
)
def test_landmarks_are_found_in_the_names_of_several_conventions(names, hip, knee, shoulder):
    found = {k: names[i] for k, i in landmarks(names).items()}
    assert (found["left_hip"], found["left_knee"], found["left_shoulder"]) == (hip, knee, shoulder)
    assert found["left_hip"] != found["left_knee"] and found["right_wrist"] == names[-1]


def test_a_map_overrules_names_and_a_wrong_one_is_refused():
    assert landmarks(CMU, {"left_hip": "LHipJoint"})["left_hip"] == 1
    with pytest.raises(SurefootError, match="left_hip.*did you mean LHipJoint"):
        landmarks(CMU, {"left_hip": "LHipJiont"})


def test_left_and_right_are_each_others_images():
    swap = pairs(CMU)
    assert CMU[swap[CMU.index("LeftUpLeg")]] == "RightUpLeg" and swap[0] == 0
    assert all(swap[swap[k]] == k for k in range(len(CMU)) if swap[k] != k)


@pytest.mark.parametrize(
    "unit, size", [("m", 1.0), ("cm", 0.01), ("mm", 0.001), ("inch", 0.0254), ("the CMU converter's unit", 0.05644)]
)
def test_the_unit_is_the_one_in_which_a_person_is_as_tall_as_a_person(unit, size):
    p = made_person.walking(1.7)
    tall = stature(p.pos / size, landmarks(p.names))
    assert unit_of(tall)[0] == unit and unit_of(tall)[1] * tall == pytest.approx(1.7, rel=0.1)


def test_nobody_is_four_metres_tall():
    with pytest.raises(SurefootError, match="give --unit"):
        unit_of(400.0)


@pytest.mark.parametrize("axis", range(3))
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_up_axis_is_found_and_turned_upright(axis, sign):
    p = made_person.squatting()
    R = upright(axis, sign)
    assert np.linalg.det(R) == pytest.approx(1.0)
    seen = p.pos @ R  # as a file with that up axis has it
    assert up_axis(seen, landmarks(p.names)) == (axis, sign)
    assert np.allclose(seen @ R.T, p.pos)


def test_a_walking_persons_stance_is_labelled_as_it_was_made():
    p = made_person.walking(speed=1.0, stride=1.1, seconds=4.4)
    touch = contacts(p, landmarks(p.names))
    assert touch.of("left_foot").mean() == pytest.approx(made_person.STANCE, abs=0.08)
    assert not touch.of("left_hand").any()
    both = touch.of("left_foot") & touch.of("right_foot")
    assert 0.1 < both.mean() < 0.35  # 2 * 0.62 - 1 = 0.24


def test_a_walking_person_who_sways_presses_on_the_foot_that_stands():
    """A point mass at y, h m high, presses on the floor at y - h y'' / g: within 1 cm of the left ankle while that foot stands alone."""
    p = made_person.walking(speed=0.6, seconds=4.4, sway=0.02)
    y, h = p.pos[:, p.names.index("pelvis")][:, 1], p.pos[:, p.names.index("pelvis"), 2].mean()
    pressed = y - h * np.gradient(np.gradient(y, p.time), p.time) / 9.81
    middle = np.abs(p.time % 1.1 - 1.1 * made_person.STANCE / 2) < 0.1
    assert np.allclose(pressed[middle], p.pos[middle, p.names.index("left_ankle"), 1], atol=0.015)


def test_short_touches_and_gaps_are_smoothed_away():
    flag = np.array([1, 1, 1, 0, 1, 1, 1, 0, 0, 0, 0, 1, 0, 0, 0], bool)
    assert runs(smoothed(flag, 2)) == [(0, 7)]


def test_cut_resample_and_mirror(tmp_path):
    p = made_person.walking(seconds=3.0, rate=60.0)
    short = person.resampled(person.cut(p, 0.5, 2.0), 30.0)
    assert len(short) == 46 and short.seconds == pytest.approx(1.5) and np.allclose(short.pos[0], p.pos[30])
    swap = pairs(p.names)
    image = person.mirrored(p, swap)
    left, right = p.names.index("left_ankle"), p.names.index("right_ankle")
    assert np.allclose(image.pos[:, left], p.pos[:, right] * [1, -1, 1])
    assert np.allclose(person.mirrored(image, swap).pos, p.pos)
    with pytest.raises(SurefootError, match="lasts 3.000 s"):
        person.cut(p, 5, 6)


def test_a_person_survives_a_file(tmp_path):
    p = made_person.squatting(seconds=1.0)
    quat = np.tile([1.0, 0, 0, 0], (len(p), len(p.names), 1))
    full = person.Person(p.time, p.names, p.parents, p.pos, quat, person.Rest(p.pos[0], quat[0]), p.notes)
    again = person.from_log(Log.load(full.save(tmp_path / "p.npz")))
    assert again.names == p.names and again.parents == p.parents and again.notes == p.notes
    assert np.array_equal(again.pos, p.pos) and again.rest is not None and np.array_equal(again.rest.pos, p.pos[0])


def test_mirrored_attitudes_turn_the_other_way():
    """A left arm that is turned by +a about z is a right arm turned by -a."""
    names, parents = ("left_hand", "right_hand"), (-1, -1)
    a = np.linspace(0, 1, 5)
    quat = np.zeros((5, 2, 4))
    quat[:, 0] = np.stack([np.cos(a / 2), 0 * a, 0 * a, np.sin(a / 2)], 1)
    quat[:, 1, 0] = 1
    p = person.Person(np.arange(5.0), names, parents, np.zeros((5, 2, 3)), quat, person.Rest(np.zeros((2, 3)), quat[0]))
    image = person.mirrored(p, [1, 0]).quat
    assert np.allclose(image[:, 1, 3], -np.sin(a / 2)) and np.allclose(image[:, 0, 0], 1)
