"""A robot's model: a file with all it names, or text; edits leave the file and every other load as they were."""

import os
import struct
import subprocess
import sys
from pathlib import Path

import mujoco
import numpy as np
import pytest

from surefoot import tasks
from surefoot.errors import SurefootError, TaskCodeError
from surefoot.robot import Robot
from surefoot.sim.layout import layout_of
from surefoot.sim.model import load
from surefoot.sim.model.load import load_robot, model_hash
from surefoot.sim.model.scan import scan_file

STRANGERS = Path(__file__).parents[2] / "shared" / "models" / "menagerie"
LINK = '<joint name="hinge"/><geom type="mesh" mesh="tetra" mass="2"/>'
PART = f'<mujoco><worldbody><body name="link" pos="0 0 1">{LINK}</body></worldbody></mujoco>'
SCENE = """<mujoco model="swing"><compiler meshdir="meshes"/><asset><mesh name="tetra" file="tetra.stl"/></asset>
<include file="part.xml"/></mujoco>"""
URDF = """<robot name="swing"><link name="ground"/><link name="link"><inertial><mass value="2"/>
<inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>
<collision><geometry><mesh filename="meshes/tetra.stl"/></geometry></collision></link>
<joint name="hinge" type="revolute"><parent link="ground"/><child link="link"/><axis xyz="0 0 1"/>
<limit lower="-1" upper="1" effort="1" velocity="1"/></joint></robot>"""


def tetrahedron(edge: float) -> bytes:
    """Three edges of one length along the axes, as a binary STL: volume edge^3 / 6."""
    o, x, y, z = np.zeros(3), *(edge * np.eye(3))
    faces = ((o, y, x), (o, x, z), (o, z, y), (x, y, z))
    return bytes(80) + struct.pack("<I", 4) + b"".join(struct.pack("<12fH", 0, 0, 0, *np.ravel(f), 0) for f in faces)


@pytest.fixture
def folder(tmp_path):
    """A scene that includes a robot, which has a mesh."""
    (tmp_path / "meshes").mkdir()
    (tmp_path / "meshes" / "tetra.stl").write_bytes(tetrahedron(0.6))
    for name, text in (("scene.xml", SCENE), ("part.xml", PART), ("swing.urdf", URDF)):
        (tmp_path / name).write_text(text)
    return tmp_path


def motor(spec):
    spec.add_actuator(name="motor", trntype=mujoco.mjtTrn.mjTRN_JOINT, target="hinge")


def halved(spec):
    spec.option.timestep = 0.001


@pytest.mark.parametrize("name", ["scene.xml", "swing.urdf"])
def test_a_file_with_meshes_and_includes_is_loaded(folder, name):
    model = load_robot(Robot.file(folder / name)).model
    assert (model.njnt, model.nmesh) == (1, 1) and model.body_mass.sum() == pytest.approx(2)
    if name == "scene.xml":  # a regular corner with legs a: its centre of mass is a / 4 from each face
        np.testing.assert_allclose(model.body("link").ipos, 0.15, atol=1e-6)


def test_a_relative_path_begins_at_the_task_files_folder(folder, monkeypatch):
    monkeypatch.chdir("/")
    robot = Robot.file("scene.xml", beside=str(folder / "task.py"))
    assert robot.path == str(folder / "scene.xml") and robot.name == folder.name
    assert load_robot(robot).model.nmesh == 1
    with pytest.raises(SurefootError, match="/scene.xml: no such model file"):
        load_robot(Robot.file("scene.xml"))


def test_edits_are_made_in_order_and_the_file_stays_as_it_is(folder):
    robot = Robot.file(folder / "scene.xml")
    before = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    timed = robot.edited(motor).edited(halved, lambda spec: setattr(spec.option, "timestep", 3 * spec.option.timestep))
    model = load_robot(timed).model
    assert model.nu == 1 and model.opt.timestep == pytest.approx(0.003)
    assert {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()} == before
    assert load_robot(robot).model.nu == 0 and robot.edits == ()


def test_two_loads_share_nothing(folder):
    robot = Robot.file(folder / "scene.xml").edited(motor)
    one = load_robot(robot)
    one.spec.add_actuator(name="more", trntype=mujoco.mjtTrn.mjTRN_JOINT, target="hinge")
    one.model.opt.timestep = 0.5
    one.warnings.append("mine")
    two = load_robot(robot)
    assert two.model.nu == two.spec.compile().nu == 1 and two.model.opt.timestep == 0.002 and "mine" not in two.warnings
    assert not any("no actuators" in w for w in two.warnings)  # true of the file, no longer of the robot


def test_files_are_read_once_and_again_when_one_of_them_changes(folder, monkeypatch):
    reads = []
    monkeypatch.setattr(load, "scan_file", lambda *a: reads.append(a) or scan_file(*a))
    robot = Robot.file(folder / "scene.xml")
    first = load_robot(robot)
    assert load_robot(robot.edited(halved)).compiled_hash != first.compiled_hash and len(reads) == 1
    (folder / "meshes" / "tetra.stl").write_bytes(tetrahedron(0.9))
    second = load_robot(robot.edited(halved))
    assert len(reads) == 2 and second.hash != first.hash
    np.testing.assert_allclose(second.model.body("link").ipos, 0.225, atol=1e-6)
    changed = [Path(p).name for p in first.sources if first.sources[p] != second.sources[p]]
    assert changed == ["tetra.stl"]


def test_a_compiled_models_hash_is_the_same_in_another_process(folder):
    code = "import sys; from surefoot.robot import Robot; from surefoot.sim.model.load import *\nprint(load_robot(Robot.file(sys.argv[1])).compiled_hash)"
    (folder / "other").mkdir()
    there = subprocess.run(
        [sys.executable, "-c", code, str(folder / "scene.xml")], cwd=folder / "other", capture_output=True, text=True
    )
    assert there.stdout.strip() == load_robot(Robot.file(folder / "scene.xml")).compiled_hash


def test_an_edit_that_raises_shows_the_users_line(folder):
    def wrong(spec):
        spec.body("lnik").pos[2] = 2

    with pytest.raises(
        TaskCodeError, match=r"scene.xml: edit wrong: AttributeError: .*\n.*test_robot.py, line \d+: spec.body"
    ):
        load_robot(Robot.file(folder / "scene.xml").edited(wrong))


def test_an_edit_that_spoils_the_model_is_refused(folder):
    def lost(spec):
        spec.add_actuator(name="motor", trntype=mujoco.mjtTrn.mjTRN_JOINT, target="hnge")

    def weightless(spec):
        spec.option.timestep = -1.0

    with pytest.raises(SurefootError, match="scene.xml, with its edits: .*'hnge'.*did you mean hinge"):
        load_robot(Robot.file(folder / "scene.xml").edited(lost))
    with pytest.raises(SurefootError, match="scene.xml, with its edits: .*timestep"):
        load_robot(Robot.file(folder / "scene.xml").edited(weightless))


def test_a_robot_has_one_model():
    with pytest.raises(SurefootError, match="expected a path or xml, found both"):
        Robot("r", "r.xml", "<mujoco/>")
    with pytest.raises(SurefootError, match="no model; expected a path or xml"):
        load_robot(Robot("r"))
    assert load_robot(Robot.text("<mujoco><worldbody><geom size='1'/></worldbody></mujoco>", "ball")).path == "ball"


@pytest.mark.parametrize("name", ["booster_t1", "google_barkour_vb", "skydio_x2", "trs_so_arm100"])
def test_a_strangers_folder_is_a_robot_as_it_is(name):
    scene = STRANGERS / name / "scene.xml"
    if not scene.exists():
        pytest.skip("no models of others here")
    loaded = load_robot(Robot.file(scene))
    own = mujoco.MjModel.from_xml_path(os.fspath(scene))
    for field in ("nq", "nv", "nu", "nmesh", "nkey"):
        assert getattr(loaded.model, field) == getattr(own, field)
    np.testing.assert_array_equal(loaded.model.body_mass, own.body_mass)
    assert Robot.file(scene).name == name


MIXED = """<mujoco><worldbody>
  <body name="base" pos="0 0 1"><freejoint/><geom size=".1" mass="3"/>
    <body name="leg"><joint name="knee" range="-1 2"/><geom size=".1" mass="1"/>
      <body name="foot"><joint name="slide" type="slide"/><geom size=".1" mass="0.5"/>
        <body name="wrist"><joint name="ball" type="ball"/><geom size=".1" mass="0.25"/></body></body></body></body>
</worldbody><actuator>
  <position name="servo" joint="knee" kp="20" kv="0.5" forcerange="-7 7" ctrlrange="-1 1"/>
  <motor name="motor" joint="slide" gear="3"/>
  <general name="slow" joint="slide" dyntype="filter" dynprm="0.04"/>
</actuator></mujoco>"""


def test_a_layout_says_what_the_makers_say_of_a_robot():
    layout = layout_of(load_robot(Robot.text(MIXED, "mixed")).model)
    assert (layout.joints, layout.places, layout.speeds) == (("knee", "slide"), (7, 8), (6, 7))
    assert layout.hinges == (True, False) and layout.limits == (pytest.approx(np.radians([-1, 2])), (-np.inf, np.inf))
    assert layout.quats == ((3, 3), (9, 8)) and layout.mass == pytest.approx(4.75) and len(layout.rest) == 13
    servo, motor, slow = layout.drives
    assert (servo.kp, servo.kd, servo.servo, servo.limit, servo.control) == (20, 0.5, True, 7, 0)
    assert (motor.kp, motor.kd, motor.servo, motor.limit, motor.gear) == (0, 0, False, None, 3)
    assert layout.control_limits == ((-1, 1), (-np.inf, np.inf), (-np.inf, np.inf))
    assert layout.slow == (0, 0, 0.04) and slow.joint == "slide" and layout.delay == 0


def test_positions_move_along_the_manifold_as_mujoco_moves_them():
    """Against mj_integratePos, and back by mj_differentiatePos; the knee has limits, so neither turns it round."""
    model = load_robot(Robot.text(MIXED, "mixed")).model
    layout, rng = layout_of(model), np.random.default_rng(0)
    q, d = np.tile(model.qpos0, (20, 1)), rng.normal(size=(20, model.nv))
    for row, v in zip(q, rng.normal(size=(20, model.nv))):
        mujoco.mj_integratePos(model, row, v, 1.0)
    there, found = q.copy(), layout.moved(q, d)
    for row, v in zip(there, d):
        mujoco.mj_integratePos(model, row, v, 1.0)
    np.testing.assert_allclose(found, there, atol=1e-12)
    for a, b, back in zip(q, there, layout.difference(q, there)):
        expected = np.zeros(model.nv)
        mujoco.mj_differentiatePos(model, expected, 1.0, a, b)
        np.testing.assert_allclose(back, expected, atol=1e-12)


@pytest.mark.parametrize("name", tasks.names())
def test_every_ready_task_has_a_robot(name):
    assert load_robot(tasks.named(name).robot).model.nu > 0


def test_the_hash_of_a_compiled_model_is_blind_to_last_bits_alone():
    """Processors round differently; an edit moves more than the seventh digit."""
    own = load_robot(tasks.resolve("balance").robot).model
    first = model_hash(own)
    own.body_inertia[-1] *= 1 + 4e-16
    own.qpos0[:] += 1e-17
    assert model_hash(own) == first
    own.body_inertia[-1] *= 1 + 1e-6
    assert model_hash(own) != first
    own.body_inertia[-1] /= 1 + 1e-6
    own.opt.timestep *= 2
    assert model_hash(own) != first
