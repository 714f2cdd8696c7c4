"""The table of a leg is its forward kinematics, with derivatives and axes, for hinges and slides and chains of any length."""

import mujoco
import numpy as np
import pytest

from surefoot import tasks
from surefoot.errors import SurefootError
from surefoot.estimate.legs import Leg, Legs, Waves
from surefoot.rng import stream
from surefoot.rotation import forward_kinematics
from surefoot.sim.model.load import load_robot


def leg(name, joints, slides=()):
    rng = stream(4, f"leg {name}")
    rows = rng.normal(size=(len(joints), 7))
    rows[:, 3:6] /= np.linalg.norm(rows[:, 3:6], axis=1, keepdims=True)
    rows[:, 6] = [j in slides for j in joints]
    return Leg(name, joints, tuple([*rows.ravel(), *rng.normal(size=3)]))


JOINTS = ("a", "b", "c", "d", "e", "f")
BOTH = Legs((leg("long", ("c", "a", "b")), leg("short", ("d", "e"), slides=("d",)), leg("one", ("f",))), JOINTS)
Q = stream(4, "q").normal(size=(20, len(JOINTS)))


def test_feet_are_where_forward_kinematics_has_them():
    h, _ = BOTH(Q)
    for i, each in enumerate(BOTH.legs):
        own = Q[:, [JOINTS.index(j) for j in each.joints]]
        assert np.allclose(h[:, i], forward_kinematics(each.rows, own, np.array(each.links[-3:])), atol=1e-12)


def test_derivatives_are_those_of_finite_differences():
    _, J = BOTH(Q)
    for i, each in enumerate(BOTH.legs):
        for k, joint in enumerate(each.joints, BOTH.deep - len(each.joints)):
            step = 1e-6 * (np.array(JOINTS) == joint)
            slope = (BOTH(Q + step)[0] - BOTH(Q - step)[0])[:, i] / 2e-6
            assert np.allclose(J[:, i, k, :3], slope, atol=1e-8)


def test_legs_that_only_turn_are_sums_of_waves():
    """Of two legs whose joints are read in another order, from an offset, and with the derivatives in another unit."""
    legs = Legs((leg("left", ("c", "a", "b")), leg("right", ("f", "d", "e"))), JOINTS)
    home, scale = Q[0], np.repeat([1.0, 0.01], [3, 18])[:, None]
    found = np.empty((2, 21, 1))
    for q in Q:
        Waves(legs, home, scale)(q, found)
        assert np.allclose(found[..., 0], legs.vectors((q + home)[None])[0].reshape(2, 21) * scale[:, 0], atol=1e-13)


def test_a_turning_joint_moves_its_foot_about_its_axis():
    """dh/dq = axis x (foot - point of the axis): along the axis nothing moves. The first joint's axis is the model's own."""
    h, J = BOTH(Q)
    assert np.allclose(np.einsum("nlki,nlki->nlk", J[..., :3], J[..., 3:])[:, 0], 0, atol=1e-12)
    assert np.allclose(J[:, 0, 0, 3:], BOTH.legs[0].rows[0, 3:6], atol=1e-12)
    assert np.allclose(np.linalg.norm(J[:, 0, :, 3:], axis=-1), 1) and not J[:, 1, 1, 3:].any()


def test_a_quadrupeds_feet_and_axes_are_those_of_mujoco():
    task = tasks.resolve("walk-estimate")
    m, f = load_robot(task.robot).model, task.estimator
    d, rng = mujoco.MjData(m), stream(4, "walk")
    for _ in range(5):
        d.qpos[7:], d.qvel[6:] = rng.uniform(-1, 1, 12), rng.normal(size=12)
        mujoco.mj_forward(m, d)
        h, J = f.feet(d.qpos[None, 7:])
        speed = (d.qvel[6:][f.feet.order][:, None] @ J[0])[:, 0]
        for i, each in enumerate(f.legs):
            at, vel = d.sensor(f"foot_pos/{each.name}").data - d.site("imu").xpos, np.zeros(6)
            mujoco.mj_objectVelocity(m, d, mujoco.mjtObj.mjOBJ_SITE, m.site(f"sole/{each.name}").id, vel, 0)
            assert np.allclose(h[0, i], at, atol=1e-9) and np.allclose(speed[i], [*vel[3:], *vel[:3]], atol=1e-8)


@pytest.mark.parametrize(
    "change, said",
    [
        ({"links": [0.0] * 9}, "leg long: links: expected 10 numbers, found 9"),
        ({"joints": []}, "joints: expected 1 to 7, found 0"),
        ({"radius": -0.1}, "radius: expected 0 to 1 m, found -0.1"),
        ({"radius": "wide"}, "radius"),
        ({"knee": 1}, "knee"),
    ],
)
def test_a_leg_that_cannot_be_is_refused(change, said):
    plain = leg("long", ("a",)).to_json()
    assert Leg.from_json(plain, "legs[0]").to_json() == plain
    with pytest.raises(SurefootError, match=said):
        Leg.from_json(plain | change, "legs[0]")
