"""A robot's parts by geometry: small models whose parts are known, and strangers' models where the machine has them."""

import os
from pathlib import Path

import mujoco
import numpy as np
import pytest

from surefoot.sim.anatomy.mirror import sideless
from surefoot.sim.anatomy.study import Anatomy, study
from surefoot.sim.model.edits import free_base
from surefoot.sim.model.load import load_model
from surefoot.tasks.ready import hover, walk

MODELS = Path(os.environ.get("SUREFOOT_MODELS") or Path(__file__).parents[2].parent / "shared" / "models")


def read(xml: str) -> Anatomy:
    return study(mujoco.MjSpec.from_string(xml).compile())


def stranger(path: str) -> Anatomy:
    file = MODELS / path
    if not file.exists():
        pytest.skip(f"no {file}: point SUREFOOT_MODELS at a folder with the models")
    return study(load_model(file).model)


def leg(name: str, x: float, y: float, foot: str) -> str:
    return f"""<body name="{name}_thigh" pos="{x} {y} 0"><joint name="{name}_hip" axis="0 1 0" range="-2 2"/>
      <geom type="capsule" fromto="0 0 0 0 0 -.2" size=".02"/>
      <body name="{name}_shank" pos="0 0 -.2"><joint name="{name}_knee" axis="0 1 0" range="-2.5 -.1"/>
        <geom type="capsule" fromto="0 0 0 0 0 -.2" size=".01"/>{foot}</body></body>"""


def quadruped(more: str = "") -> str:
    ball = '<geom name="{}_foot" type="sphere" size=".03" pos="0 0 -.2"/>'
    legs = "".join(leg(n, x, y, ball.format(n)) for n, x, y in (("RR", -0.2, -0.1), ("FL", 0.2, 0.1), ("RL", -0.2, 0.1), ("FR", 0.2, -0.1)))  # fmt: skip
    return f"""<mujoco><compiler angle="radian"/><worldbody>
      <body name="trunk" pos="0 0 1"><freejoint/><geom type="box" size=".2 .1 .05" mass="5"/>{legs}</body>
    </worldbody>{more}</mujoco>"""


def biped(arms: str = "", axis: str = "1 0 0") -> str:
    """Hips and feet of 20 x 10 cm; the right hip_roll's axis may point the other way."""

    def side(s: int, name: str, roll: str) -> str:
        return f"""<body name="hip_{name}" pos="0 {0.1 * s} 0"><joint name="hip_roll_{name}" axis="{roll}" range="-1 1"/>
          <geom size=".03"/>
          <body name="thigh_{name}"><joint name="hip_pitch_{name}" axis="0 1 0" range="-2 2"/>
            <geom type="capsule" fromto="0 0 0 0 0 -.3" size=".03"/>
            <body name="shank_{name}" pos="0 0 -.3"><joint name="knee_{name}" axis="0 1 0" range="0 2.5"/>
              <geom type="capsule" fromto="0 0 0 0 0 -.3" size=".03"/>
              <body name="foot_{name}" pos="0 0 -.3"><joint name="ankle_{name}" axis="0 1 0" range="-1 1"/>
                <geom type="box" size=".1 .05 .01" pos=".03 0 -.03"/></body></body></body></body>"""

    return f"""<mujoco><compiler angle="radian"/><worldbody>
      <body name="pelvis" pos="0 0 1"><freejoint/><geom size=".1" mass="10"/>{arms}
        {side(1, "l", "1 0 0")}{side(-1, "r", axis)}</body></worldbody></mujoco>"""


ARM = """<mujoco><compiler angle="radian"/><worldbody>
  <body name="ball" pos="1 1 0"><freejoint/><geom size=".05"/></body>
  <body name="column"><joint name="turn" axis="0 0 1"/><geom type="capsule" fromto="0 0 0 0 0 .3" size=".03"/>
    <body name="upper" pos="0 0 .3"><joint name="lift" axis="0 1 0"/><geom type="capsule" fromto="0 0 0 .3 0 0" size=".03"/>
      <body name="palm" pos=".3 0 0"><joint name="roll" axis="1 0 0"/><geom type="box" size=".02 .05 .02" pos=".02 0 0"/>
        <body name="one" pos=".04 .04 0"><joint name="a" type="slide" axis="0 1 0"/><geom type="box" size=".03 .005 .01" pos=".03 0 0"/></body>
        <body name="two" pos=".04 -.04 0"><joint name="b" type="slide" axis="0 1 0"/><geom type="box" size=".03 .005 .01" pos=".03 0 0"/></body>
      </body></body></body></worldbody></mujoco>"""


def test_legs_of_a_quadruped_come_front_left_first_whatever_the_order_of_its_file():
    a = read(quadruped())
    assert a.kind == "legged" and a.base == "trunk"
    assert [f.name for f in a.feet] == ["FL_foot", "FR_foot", "RL_foot", "RR_foot"]
    assert a.legs[0].joints == ("FL_hip", "FL_knee")
    assert a.feet[0].points == ((0.0, 0.0, -0.2),) and a.feet[0].radius == 0.03


def test_a_stand_has_feet_under_hips_at_the_height_of_the_triangle_of_thigh_and_shank():
    a = read(quadruped())
    hip, knee = a.home[7:9]
    assert a.leg_length == pytest.approx(0.4, abs=1e-6)
    assert knee == pytest.approx(-2 * hip, abs=0.01)
    assert 0.4 * np.cos(hip) == pytest.approx(0.75 * 0.4, abs=0.002)
    assert a.height == pytest.approx(0.3 + 0.03, abs=0.002)


def test_a_keyframe_called_home_is_the_default_pose_and_its_base_is_lowered_to_the_floor():
    base, bent, straight = "0 0 9 1 0 0 0", 4 * " .5 -1", 4 * " 0 -.2"
    keys = f'<key name="straight" qpos="{base}{straight}"/><key name="home" qpos="{base}{bent}"/>'
    a = read(quadruped(f"<keyframe>{keys}</keyframe>"))
    assert a.sources["home"].startswith("keyframe home")
    assert np.allclose(a.home[7:], np.tile([0.5, -1.0], 4))
    assert a.height == pytest.approx(0.4 * np.cos(0.5) + 0.03, abs=1e-6)


def test_a_flat_foot_is_four_balls_in_its_corners_and_level_in_the_stand():
    a = read(biped())
    assert [f.body for f in a.feet] == ["foot_l", "foot_r"]
    corners = np.array(sorted(a.feet[0].points))
    assert a.feet[0].radius == 0.01
    assert np.allclose(corners, sorted([[x, y, -0.03] for x in (-0.06, 0.12) for y in (-0.04, 0.04)]), atol=2e-4)
    roll, hip, knee, ankle = a.home[7:11]
    assert hip + knee + ankle == pytest.approx(0.0, abs=1e-3)
    assert knee > 0.1


@pytest.mark.parametrize("axis, sign", [("1 0 0", -1.0), ("-1 0 0", 1.0)])
def test_the_sign_of_a_mirrored_joint_follows_from_its_axis(axis, sign):
    a = read(biped(axis=axis))
    assert a.mirror.pairs["hip_roll_l"] == ("hip_roll_r", sign)
    assert a.mirror.pairs["knee_l"] == ("knee_r", 1.0)
    assert not a.mirror.missing


def test_a_mirrored_pose_puts_every_body_at_its_mirror_image():
    m = mujoco.MjSpec.from_string(biped(axis="-1 0 0")).compile()
    a, d = study(m), mujoco.MjData(m)
    q = a.home.copy()
    q[:7] = [0, 0, 1, 1, 0, 0, 0]
    q[7:] = [0.3, -0.4, 0.9, 0.2, -0.1, 0.5, 0.2, -0.3]
    mirrored = q.copy()
    for j, (image, sign) in a.mirror.pairs.items():
        mirrored[m.joint(image).qposadr[0]] = sign * q[m.joint(j).qposadr[0]]
    place = {}
    for pose in (q, mirrored):
        d.qpos[:] = pose
        mujoco.mj_kinematics(m, d)
        place[id(pose)] = {m.body(b).name: d.xpos[b].copy() for b in range(m.nbody)}
    assert np.allclose(place[id(mirrored)]["foot_r"], place[id(q)]["foot_l"] * (1, -1, 1), atol=1e-9)
    assert np.allclose(place[id(mirrored)]["foot_l"], place[id(q)]["foot_r"] * (1, -1, 1), atol=1e-9)


def test_arms_and_waist_belong_to_the_upper_body_and_a_pitch_joint_in_the_middle_mirrors_itself():
    torso = """<body name="torso" pos="0 0 .1"><joint name="waist" axis="0 0 1"/><joint name="bow" axis="0 1 0"/><geom size=".1"/>
      <body name="arm_l" pos="0 .2 .2"><joint name="elbow_l" axis="0 1 0"/><geom type="capsule" fromto="0 0 0 0 0 -.3" size=".02"/></body>
      <body name="arm_r" pos="0 -.2 .2"><joint name="elbow_r" axis="0 1 0"/><geom type="capsule" fromto="0 0 0 0 0 -.3" size=".02"/></body></body>"""
    a = read(biped(torso))
    assert set(a.upper) == {"waist", "bow", "elbow_l", "elbow_r"}
    assert a.mirror.pairs["waist"] == ("waist", -1.0)
    assert a.mirror.pairs["bow"] == ("bow", 1.0)
    assert a.mirror.pairs["elbow_l"] == ("elbow_r", 1.0)


def test_a_joint_without_a_mirror_image_is_named():
    tail = '<body name="tail" pos="-.2 .05 0"><joint name="tail" axis="0 1 0"/><geom size=".02" pos="-.1 0 .3"/></body>'
    a = read(biped(tail))
    assert a.mirror.missing == ("tail",)
    assert "tail" in a.missing["mirror"]


@pytest.mark.parametrize(
    "actuator, kp, kd, limit, said",
    [
        ('<position joint="FL_hip" kp="40" kv="2" forcerange="-9 9"/>', 40, 2, 9, "forcerange"),
        ('<general joint="FL_hip" biastype="affine" gainprm="30" biasprm="0 -30 -1" forcerange="-9 9"/>', 30, 1, 9, "forcerange"),
        ('<motor joint="FL_hip" gear="3" ctrlrange="-5 5"/>', 0.004 * 3947.84, 4 * 0.004 * 62.8319, 15, "ctrlrange"),
    ],
)  # fmt: skip
def test_gains_and_limits_are_the_actuators_or_follow_from_the_armature(actuator, kp, kd, limit, said):
    xml = quadruped(f"<actuator>{actuator}</actuator>").replace("<compiler", '<default><joint armature=".004"/></default><compiler')  # fmt: skip
    (drive,) = read(xml).drives
    assert (drive.kp, drive.kd, drive.limit) == pytest.approx((kp, kd, limit), rel=1e-4)
    assert said in drive.source


def test_what_a_bare_model_lacks_is_assumed_aloud():
    a = read(quadruped())
    assert {d.joint for d in a.drives} == {f"{n}_{j}" for n in ("FL", "FR", "RL", "RR") for j in ("hip", "knee")}
    assert all(set(d.assumed) == {"limit", "armature", "kp", "kd"} for d in a.drives)
    assert {"floor", "imu", "limit", "armature", "kp"} <= set(a.missing)
    hip = next(d for d in a.drives if d.joint == "FL_hip")
    assert hip.limit == pytest.approx(2 * a.mass * 9.81 / 2 * 0.5 * (0.3 + 0.03 - 0.03), rel=0.05)
    assert hip.kp > hip.armature * (2 * np.pi * 10) ** 2  # which would not hold the robot


def test_an_arm_ends_between_its_fingers_and_a_ball_nearby_is_no_part_of_it():
    a = read(ARM)
    assert a.kind == "arm" and a.base == ""
    assert a.arm.joints == ("turn", "lift", "roll") and set(a.arm.gripper) == {"a", "b"}
    assert a.arm.body == "palm"
    assert a.arm.point == pytest.approx((0.1, 0.0, 0.0), abs=0.002)


def test_an_arm_without_gripper_ends_at_its_last_body():
    xml = (
        ARM[: ARM.index('<body name="one"')]
        + '<body name="tool" pos=".07 0 0"/></body></body></body></worldbody></mujoco>'
    )
    assert read(xml).arm.body == "tool"


def test_a_flange_that_rolls_about_its_own_axis_belongs_to_the_arm():
    """Its link is as short as the one before it, as that of a jaw is; but a jaw does not roll."""
    a = read("""<mujoco><worldbody><geom type="plane" size="1 1 .1"/>
      <body name="one"><joint name="yaw" axis="0 0 1"/><geom type="capsule" fromto="0 0 0 0 0 .3" size=".03"/>
        <body name="two" pos="0 0 .3"><joint name="lift" axis="0 1 0"/><geom type="box" size=".04 .04 .08" pos="0 0 .08"/>
          <body name="flange" pos="0 0 .12"><joint name="roll" axis="0 0 1"/><geom type="cylinder" size=".03 .02" pos="0 0 .02"/>
    </body></body></body></worldbody></mujoco>""").arm
    assert a is not None and a.joints == ("yaw", "lift", "roll") and a.gripper == ()


def test_assumed_gains_follow_the_weight_that_a_leg_carries():
    """No drive is in the model. The knee carries m g / 4 at the foot's offset: it may sag by 0.2 rad. A hip has twice the stiffness of a pendulum."""
    a = read(quadruped())
    knee = next(x for x in a.drives if x.joint == "FL_knee")
    offset = 0.2 * np.sin(a.joint_home["FL_hip"])  # of the knee before the foot, which is under the hip
    hold = a.mass * 9.81 / 4 * abs(offset)
    assert knee.kp >= 0.99 * hold / 0.2 and knee.limit >= 0.99 * 4 * hold and "they hold upright" in knee.source
    hip = next(x for x in a.drives if x.joint == "FL_hip")
    assert hip.kp >= 1.9 * a.mass * 9.81 / 4 * (a.height - 0.03)


def test_a_wrench_of_rotors_lifts_exactly_the_weight_in_hover():
    a = read(hover.xml())
    assert a.kind == "multirotor" and len(a.rotors) == 4
    wrench = sum(np.array([*r.force, *r.torque]) * r.hover for r in a.rotors)
    assert np.allclose(wrench, [0, 0, hover.MASS * hover.GRAVITY, 0, 0, 0], atol=1e-5)
    assert {r.time_constant for r in a.rotors} == {0.05}


def test_our_own_quadruped_is_read_as_it_was_written():
    a = read(walk.xml())
    assert [f.name for f in a.feet] == [f"{n}_foot" for n in walk.LEGS]
    assert a.imu == "imu" and a.floor == "floor" and not a.missing
    assert {d.kp for d in a.drives} == {walk.KP} and {d.kd for d in a.drives} == {walk.KD}


def test_an_imu_that_is_turned_against_the_base_is_not_taken_for_its_frame():
    xml = quadruped().replace("<freejoint/>", '<freejoint/><site name="imu" quat="0 0 0 1"/>')
    a = read(xml)
    assert a.imu == "" and "turned" in a.missing["imu"]


def test_a_urdf_keeps_the_mass_of_its_base_and_can_be_set_free(tmp_path):
    inertia = '<inertial><mass value="{0}"/><inertia ixx=".1" iyy=".1" izz=".1" ixy="0" ixz="0" iyz="0"/></inertial>'
    box = '<collision><geometry><box size=".1 .1 .1"/></geometry></collision>'
    links = f'<link name="trunk">{inertia.format(7)}{box}</link><link name="thigh">{inertia.format(1)}{box}</link>'
    joint = '<joint name="hip" type="revolute"><parent link="trunk"/><child link="thigh"/><axis xyz="0 1 0"/><limit lower="-1" upper="1" effort="12" velocity="3"/></joint>'
    (tmp_path / "robot.urdf").write_text(f'<robot name="r">{links}{joint}</robot>')
    spec = load_model(tmp_path / "robot.urdf").spec
    assert spec.compile().body_subtreemass[0] == pytest.approx(8.0)
    assert "trunk" in free_base(spec)
    m = spec.compile()
    assert m.nq == 8 and m.jnt_actfrcrange[1].tolist() == [-12, 12]
    assert free_base(spec) == ""


@pytest.mark.parametrize(
    "name, bare",
    [
        ("FL_hip_joint", "hip_joint"), ("front_left_hip", "hip"), ("left_hip_yaw", "hip_yaw"), ("Hip_Pitch_Left", "hip_pitch"),
        ("Left_Hip_Pitch", "hip_pitch"), ("AL1", "a1"), ("knee_r", "knee"), ("L_elbow", "elbow"), ("abduction_hind_right", "abduction"),
        ("leftKnee", "knee"), ("roll", "roll"), ("lower_leg", "lower_leg"),
    ],
)  # fmt: skip
def test_names_without_their_side(name, bare):
    assert sideless(name) == bare


STRANGERS = {
    "unitree_go1_flat.xml": (4, 1, 12, 12.7),
    "unitree_go2.xml": (4, 1, 12, 15.2),
    "menagerie/google_barkour_vb/scene.xml": (4, 1, 12, 14.5),
    "menagerie/booster_t1/scene.xml": (2, 4, 23, 31.6),
}


@pytest.mark.parametrize("path", STRANGERS)
def test_legs_soles_and_sides_of_strangers(path):
    n, points, joints, mass = STRANGERS[path]
    a = stranger(path)
    assert (a.kind, len(a.legs), len(a.drives)) == ("legged", n, joints)
    assert a.mass == pytest.approx(mass, rel=0.01)
    assert all(len(f.points) == points for f in a.feet)
    assert len(a.mirror.pairs) == joints and not a.mirror.missing
    assert len({len(leg.joints) for leg in a.legs}) == 1


def test_strangers_that_do_not_walk():
    arm = stranger("menagerie/trs_so_arm100/scene.xml").arm
    assert arm.gripper == ("Jaw",) and arm.body == "Fixed_Jaw" and len(arm.joints) == 5
    x2 = stranger("menagerie/skydio_x2/scene.xml")
    assert [r.hover for r in x2.rotors] == pytest.approx([3.2495625] * 4, rel=1e-4)  # the keyframe's own controls
    crazyflie = stranger("crazyflie_2.xml")
    assert [r.hover for r in crazyflie.rotors] == pytest.approx([0.26487, 0, 0, 0], abs=1e-5)


def test_a_joint_in_the_middle_of_a_ball_foot_has_a_limit():
    """Its lever is nothing; a limit of nothing would be refused by the engine."""
    leg = """<body name="thigh{0}" pos="{1} {2} 0"><joint name="hip{0}" axis="0 1 0"/><geom size=".03"/>
      <body name="foot{0}" pos="0 0 -.2"><joint name="ankle{0}" axis="0 1 0"/><geom size=".03"/></body></body>"""
    legs = "".join(leg.format(k, x, y) for k, (x, y) in enumerate([(0.2, 0.1), (0.2, -0.1), (-0.2, 0.1), (-0.2, -0.1)]))
    a = read(
        f"""<mujoco><worldbody><body name="base" pos="0 0 .3"><freejoint/><geom size=".1"/>{legs}</body></worldbody></mujoco>"""
    )
    assert len(a.drives) == 8 and all(d.limit > 0 and d.kp > 0 for d in a.drives)


def test_actuators_on_no_joint_are_named_as_unused():
    """Of three drives one pulls at a tendon: a position servo for each joint would know nothing of it."""
    arm = """<mujoco><worldbody><body><joint name="a" range="-1 1"/><geom size="0.1"/><body pos="0.3 0 0">
    <joint name="b" range="-1 1"/><geom size="0.1"/></body></body></worldbody>
    <tendon><fixed name="both"><joint joint="a" coef="1"/><joint joint="b" coef="1"/></fixed></tendon>
    <actuator><motor name="one" joint="a"/><motor name="two" joint="b"/><motor name="pull" tendon="both"/></actuator></mujoco>"""
    found = study(mujoco.MjModel.from_xml_string(arm))
    assert found.unused == ("pull",) and [d.actuator for d in found.drives] == ["one", "two"]
    assert found.doubts == ["actuators that are on no joint are not used: pull"]
