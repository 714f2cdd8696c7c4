"""A MuJoCo model as trees of links, and force sensors read from contacts, against MuJoCo's own kinematics and sensors."""

import mujoco
import numpy as np
import pytest

from surefoot.errors import SurefootError
from surefoot.sim.engines.force_sensors import Readers, Touch
from surefoot.sim.engines.multibody import HERE, back, placed, then, touching, trees

XML = """<mujoco><compiler angle="radian"/><worldbody><geom name="floor" type="plane" size="1 1 .1"/>
<body name="trunk" pos="0 0 .5"><freejoint/><inertial pos=".01 0 0" mass="3" diaginertia=".05 .04 .03"/><geom name="hull" size=".1"/>
  <body name="leg" pos=".1 0 0" euler="0 .3 0"><joint name="hip" axis="0 1 0" pos="0 0 .05" armature=".02"/><joint name="slide" type="slide" axis="0 0 1"/>
    <inertial pos="0 0 -.1" mass="1" diaginertia=".01 .01 .002"/><geom name="foot" size=".03" pos="0 0 -.3"/><site name="sole" size=".04" pos="0 0 -.3"/></body></body>
</worldbody><sensor><touch name="press" site="sole"/></sensor></mujoco>"""


def model():
    return mujoco.MjModel.from_xml_string(XML)


def test_poses_are_a_group():
    c, s = np.cos(0.4), np.sin(0.4)
    a = np.array([1.0, 2.0, 3.0]), np.array([[c, -s, 0], [s, c, 0], [0, 0, 1.0]])
    for p, R in (then(a, back(a)), then(back(a), a)):
        assert p == pytest.approx(HERE[0]) and R == pytest.approx(HERE[1])


def test_a_free_body_is_a_root_and_each_joint_armature_and_geom_a_link():
    m = model()
    (tree,) = trees(m, m.dof_armature > 0)
    assert m.body(tree.root).name == "trunk"
    kinds = [(x.rotor >= 0, x.joint >= 0, x.geom >= 0, x.heavy) for x in tree.links]
    assert kinds == [
        (False, False, True, False),  # hull
        (True, False, False, False),  # rotor of the hip
        (False, True, False, False),  # hip
        (False, True, False, True),  # slide, which has the leg's mass
        (False, False, True, False),  # foot
    ]


def test_geoms_touch_unless_they_are_parent_and_child():
    m = model()
    names = {tuple(sorted(m.geom(g).name for g in pair)) for pair in touching(m)}
    assert names == {("floor", "hull"), ("floor", "foot")}


def test_a_chain_of_link_poses_ends_where_mujoco_has_the_foot():
    m, d = model(), mujoco.MjData(model())
    mujoco.mj_kinematics(m, d)
    (tree,) = trees(m, m.dof_armature > 0)
    has = placed(m, tree, lambda name: getattr(m, name), {})
    at = then((d.xpos[tree.root], d.xmat[tree.root].reshape(3, 3)), has.root)
    for k in (2, 3, 4):  # hip, slide, foot
        at = then(at, has.poses[k])
    assert at[0] == pytest.approx(d.geom("foot").xpos) and has.masses.sum() + has.root_mass == 4.0


def test_parts_that_no_such_engine_has_are_refused_by_name():
    ball = XML.replace(
        '<joint name="hip" axis="0 1 0" pos="0 0 .05" armature=".02"/>', '<joint name="hip" type="ball"/>'
    )
    m = mujoco.MjModel.from_xml_string(ball)
    with pytest.raises(SurefootError, match="joint hip: a ball joint"):
        trees(m, m.dof_armature > 0)


def test_a_touch_sensor_is_the_normal_force_of_contacts_within_its_site():
    m = model()
    readers, out = Readers(m), np.zeros(1)
    d = mujoco.MjData(m)
    mujoco.mj_kinematics(m, d)
    foot, floor, down = m.geom("foot").id, m.geom("floor").id, np.array([0.0, 0.0, -1.0])
    inside = Touch(foot, floor, d.geom("foot").xpos + 0.03 * down, 7.0 * -down, down, 7.0)
    outside = Touch(foot, floor, d.geom("foot").xpos + np.array([0.2, 0.0, 0.0]), 5.0 * -down, down, 5.0)
    hull = Touch(m.geom("hull").id, floor, d.geom("foot").xpos, 3.0 * -down, down, 3.0)
    readers(
        lambda name: getattr(m, name),
        (m.qpos0, np.zeros(m.nv), np.zeros(m.nv)),
        [inside, outside, hull],
        np.zeros((m.nbody, 6)),
        out,
    )
    assert out[0] == 7.0
