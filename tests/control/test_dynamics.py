"""Joints as a controller knows them: against the engine, and against what a rod and a slide do by hand."""

import mujoco
import numpy as np
import pytest

from surefoot import tasks
from surefoot.control.dynamics import Joints, Link, ahead
from surefoot.errors import SurefootError
from surefoot.sim.model.load import load_robot
from surefoot.tasks.joint_model import joints_of

SPATIAL = """
<mujoco><compiler angle="radian"/><option gravity="1 -2 -9"/><worldbody>
  <body pos=".1 .2 .3"><joint name="a" axis="0 0 1" armature=".1"/>
    <inertial pos=".1 .05 0" mass="2" fullinertia=".02 .03 .04 .004 -.003 .002"/>
    <body pos=".4 0 .1" quat=".9 .1 .3 .2"><joint name="b" type="slide" axis="1 1 0"/>
      <inertial pos="0 .1 .1" mass="1" diaginertia=".01 .02 .02"/>
      <body pos="0 .3 0"><joint name="c" axis="1 .5 0" pos="0 .02 0"/>
        <inertial pos=".05 0 .1" mass=".7" diaginertia=".01 .01 .005"/>
        <body pos="0 0 .2"><inertial pos="0 0 0" mass=".3" diaginertia=".001 .001 .001"/></body>
      </body></body>
    <body pos="-.3 0 0"><joint name="d" axis="0 1 0"/><inertial pos="0 0 -.2" mass="1" diaginertia=".01 .01 .01"/></body>
  </body></worldbody>
  <actuator><motor name="a" joint="a"/><motor name="b" joint="b"/><motor name="c" joint="c"/><motor name="d" joint="d" gear="3"/></actuator>
</mujoco>"""


def models():
    yield load_robot(tasks.resolve("arm").robot).model
    yield mujoco.MjModel.from_xml_string(SPATIAL)


@pytest.mark.parametrize("model", list(models()), ids=["arm", "spatial tree"])
def test_mass_matrix_and_bias_force_are_the_engines(model):
    joints, data, rng = joints_of(model), mujoco.MjData(model), np.random.default_rng(0)
    q, v = rng.normal(size=(2, 5, model.nv))
    M, c = joints.terms(q, v)
    for k in range(5):
        data.qpos[:], data.qvel[:], full = q[k], v[k], np.zeros((model.nv, model.nv))
        mujoco.mj_forward(model, data)
        mujoco.mj_fullM(model, data, full)
        np.testing.assert_allclose(M[k], full, atol=1e-12)
        np.testing.assert_allclose(c[k], data.qfrc_bias, atol=1e-12)


def test_a_period_ahead_is_the_engines_and_affine_in_the_control():
    """At rest with small moves, where freezing M and c over one period costs nothing that shows."""
    task = tasks.resolve("arm")
    model = load_robot(task.robot).model
    model.dof_frictionloss[:] = 0
    joints, data = joints_of(model), mujoco.MjData(model)
    q, v = np.array([[0.3, 0.9]]), np.array([[0.02, -0.03]])
    x = ahead(joints, q, v, 0.02, 4)
    for u in ([0.3, 0.9], [0.32, 0.95]):
        data.qpos[:], data.qvel[:], data.ctrl[:] = q[0], v[0], u
        for _ in range(4):
            mujoco.mj_step(model, data)
        np.testing.assert_allclose(x.v0[0] + x.vu[0] @ u, data.qvel, atol=2e-3)
        np.testing.assert_allclose(x.q0[0] + x.qu[0] @ u, data.qpos, atol=4e-5)


def test_a_rod_on_a_hinge_has_inertia_m_l2_over_3_and_weighs_m_g_l_over_2():
    rod = Link(-1, (0, 0, 0), (0, -1, 0), False, 3.0, (0.5, 0, 0), (0, 3 / 12, 3 / 12, 0, 0, 0))
    joints = Joints(("hinge",), (1.0,), (0.0,), (0.0,), (10.0,), (0.0,), (rod,))
    M, c = joints.terms(np.array([[0.0], [np.pi / 3]]), np.zeros((2, 1)))
    np.testing.assert_allclose(M[:, 0, 0], 3.0 / 3)
    np.testing.assert_allclose(c[:, 0], 3.0 * 9.81 * 0.5 * np.cos([0.0, np.pi / 3]))


def test_a_free_base_gives_joints_without_links():
    joints = joints_of(load_robot(tasks.resolve("walk").robot).model)
    assert len(joints.names) == 12 and not joints.links and min(joints.armature) > 0
    M, c = joints.terms(np.zeros((1, 12)), np.zeros((1, 12)))
    assert np.array_equal(M[0], np.diag(joints.armature)) and not c.any()


@pytest.mark.parametrize("change, words", [
    ({"gain": ()}, "gain: expected 1 numbers, found 0"),
    ({"armature": (0.0,)}, "armature: expected numbers > 0"),
    ({"links": (Link(0, (0, 0, 0), (0, 0, 1), False, 1.0, (0, 0, 0), (1, 1, 1, 0, 0, 0)),)}, "parent: expected"),
])  # fmt: skip
def test_joints_that_cannot_be_are_refused(change, words):
    plain = {"names": ("a",), "gain": (1.0,), "kp": (0.0,), "kd": (0.0,), "effort": (1.0,), "armature": (1.0,)}
    with pytest.raises(SurefootError, match=words):
        Joints(**plain | change)
