"""Edits of a model for training: what is added, what collides, and stepping that agrees with a fine one."""

import mujoco
import numpy as np
import pytest

from surefoot.errors import SurefootError
from surefoot.robot import Robot
from surefoot.sim.anatomy.feet import Foot
from surefoot.sim.model import edits
from surefoot.sim.model.accuracy import TOLERANCE, choose
from surefoot.sim.model.edits import Servo, Timing
from surefoot.sim.model.load import load_robot

HOPPER = """<mujoco><compiler angle="radian"/><option timestep="0.002"/><worldbody>
  <body name="trunk" pos="0 0 1"><joint name="up" type="slide" axis="0 0 1"/><geom type="box" size=".1 .1 .05" mass="5"/>
    <body name="thigh"><joint name="hip" axis="0 1 0"/><geom type="capsule" fromto="0 0 0 0 0 -.3" size=".02" mass=".5"/>
      <body name="shank" pos="0 0 -.3"><joint name="knee" axis="0 1 0" damping=".1"/>
        <geom name="bone" type="capsule" fromto="0 0 0 0 0 -.3" size=".02" mass=".3"/></body></body></body>
  </worldbody>
  <actuator><motor name="drive" joint="knee" gear="10" ctrlrange="-2 2"/></actuator>
  <sensor><jointpos joint="hip" name="own"/></sensor><keyframe><key name="home" qpos=".6 0 0"/></keyframe></mujoco>"""
FOOT = Foot("toe", "shank", ((0.0, 0.0, -0.3),), 0.02)


def hopper() -> mujoco.MjSpec:
    return mujoco.MjSpec.from_string(HOPPER)


def test_only_soles_and_trunk_collide_and_only_with_the_floor():
    spec = hopper()
    for edit in (edits.without_extras, edits.only_drawn, edits.add_floor):
        assert edit(spec)
    edits.add_soles(spec, [FOOT])
    edits.add_trunk(spec, "trunk", ((0.0, 0.0, 0.0), (0.1, 0.1, 0.05)))
    m = spec.compile()
    meets = {
        frozenset((m.geom(a).name, m.geom(b).name))
        for a in range(m.ngeom)
        for b in range(a)
        if m.geom_contype[a] & m.geom_conaffinity[b] or m.geom_contype[b] & m.geom_conaffinity[a]
    }
    assert meets == {frozenset(("floor", "sole/toe/0")), frozenset(("floor", "trunk/trunk"))}
    assert (m.nkey, m.npair) == (0, 0)
    assert m.body_subtreemass[0] == pytest.approx(5.8)


def test_a_touch_reads_the_weight_of_what_stands():
    spec = hopper()
    edits.without_extras(spec)
    edits.only_drawn(spec)
    edits.add_floor(spec)
    edits.add_soles(spec, [FOOT])
    edits.add_servos(spec, {"hip": Servo(400, 20, np.inf), "knee": Servo(400, 20, np.inf)})
    m = spec.compile()
    d = mujoco.MjData(m)
    d.qpos[0] = 0.62 - 1.0
    for _ in range(1500):
        mujoco.mj_step(m, d)
    assert d.sensor("touch/toe").data[0] == pytest.approx(5.8 * 9.81, rel=0.01)
    assert d.sensor("foot_pos/toe").data[2] == pytest.approx(0.02, abs=0.002)


def test_a_motor_becomes_a_servo_with_the_limit_given_and_a_bare_joint_gets_one():
    spec = hopper()
    said = edits.add_servos(spec, {"knee": Servo(30.0, 2.0, 9.0), "hip": Servo(40.0, 1.0, 7.0, armature=0.02)})
    assert "1 servos added" in said and "1 motors made position servos" in said
    m = spec.compile()
    d = mujoco.MjData(m)
    d.ctrl[:] = [0.1, 0.2]  # the model's motor is the first
    mujoco.mj_forward(m, d)
    assert [m.actuator(i).name for i in range(m.nu)] == ["drive", "hip"]
    assert d.actuator_force == pytest.approx([30.0 * 0.1, 7.0])  # 40 * 0.2 is beyond the limit
    assert m.dof_armature[m.joint("hip").dofadr[0]] == 0.02


def test_an_unknown_joint_is_named_with_the_nearest():
    with pytest.raises(SurefootError, match="knee"):
        edits.add_servos(hopper(), {"kne": Servo(1, 1, 1)})


def test_encoders_and_imu_are_added_at_the_site_given_or_at_a_new_one():
    spec = hopper()
    assert edits.add_imu(spec, "trunk") == "imu: a site in the origin of trunk"
    edits.add_joint_sensors(spec)
    m = spec.compile()
    names = [m.sensor(i).name for i in range(m.nsensor)]
    assert names == ["own", "gyro", "attitude", *(f"joint_{k}/{j}" for k in ("pos", "vel") for j in ("up", "hip", "knee"))]  # fmt: skip
    assert edits.add_imu(spec := hopper(), "shank") and [s.name for s in spec.sites] == ["imu"]


def test_the_first_timing_within_tolerance_is_taken_and_a_stiff_model_needs_a_finer_one():
    def timing(kp: float, kd: float) -> tuple[Timing, float]:
        spec = hopper()
        edits.without_extras(spec)
        edits.only_drawn(spec)
        edits.add_floor(spec)
        edits.add_soles(spec, [FOOT])
        edits.add_servos(spec, {"hip": Servo(kp, kd, np.inf), "knee": Servo(kp, kd, np.inf)})
        found = choose(spec, np.array([-0.38, 0.0, 0.0]), np.zeros(2))
        assert [error <= TOLERANCE for _, error in found.tried] == [False] * (len(found.tried) - 1) + [True]
        return found.timing, found.error

    soft, stiff = timing(40.0, 4.0), timing(4000.0, 0.0)
    assert soft[0].steps < stiff[0].steps
    assert soft[0].timestep == pytest.approx(0.02 / soft[0].steps)


def test_a_urdfs_shapes_are_still_there_to_be_drawn(tmp_path):
    """MuJoCo discards what does not collide when it compiles a URDF: the film of an arm was black."""
    link = '<link name="{}"><inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial><collision><geometry><box size=".1 .1 .1"/></geometry></collision></link>'
    hinge = '<joint name="hinge" type="continuous"><parent link="a"/><child link="b"/><axis xyz="0 1 0"/></joint>'
    path = tmp_path / "robot.urdf"
    path.write_text(f'<robot name="r">{link.format("a")}{link.format("b")}{hinge}</robot>')
    model = load_robot(Robot.file(path).edited(edits.only_drawn)).model
    assert model.ngeom == 2 and not model.geom_contype.any() and model.body_mass.sum() == 2
