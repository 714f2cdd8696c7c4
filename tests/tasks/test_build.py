"""Builders: tasks for robots they have not seen, made from the model alone, and the files that `surefoot new` writes."""

import ast
import json
import os
import re
from pathlib import Path

import mujoco
import numpy as np
import pytest

from surefoot import tasks
from surefoot.cli import main
from surefoot.errors import SurefootError
from surefoot.robot import Robot
from surefoot.sim.anatomy.links import posed
from surefoot.sim.model.edits import Timing
from surefoot.sim.model.load import load_robot
from surefoot.tasks.build import reach as reaching
from surefoot.tasks.build.legged import offsets, read_legged
from surefoot.tasks.build.velocity import L0, usual
from surefoot.tasks.ready import hover, walk

MODELS = Path(os.environ.get("SUREFOOT_MODELS") or Path(__file__).parents[2].parent / "shared" / "models")
BARE = re.sub(
    r"<actuator>.*</actuator>|<keyframe>.*</keyframe>|<site name=\"imu\"/>|<geom name=\"floor\"[^>]*>", "", walk.xml()
)
TWO_LINKS = """<mujoco model="two"><compiler angle="radian"/><worldbody>
  <body name="upper"><joint name="a" axis="0 1 0" range="-1 1"/><geom type="capsule" fromto="0 0 0 .3 0 0" size=".02" mass=".5"/>
    <body name="fore" pos=".3 0 0"><joint name="b" axis="0 1 0" range="-2 -.5"/><geom type="capsule" fromto="0 0 0 .2 0 0" size=".02" mass=".3"/>
      <body name="hand" pos=".2 0 0"/></body></body></worldbody></mujoco>"""


def biped() -> str:
    def side(s: int, n: str) -> str:
        return f"""<body name="hip_{n}" pos="0 {0.1 * s} 0"><joint name="roll_{n}" axis="1 0 0" range="-1 1"/><geom size=".03" mass=".5"/>
          <body name="thigh_{n}"><joint name="pitch_{n}" axis="0 1 0" range="-2 2"/><geom type="capsule" fromto="0 0 0 0 0 -.3" size=".03" mass="1"/>
            <body name="shank_{n}" pos="0 0 -.3"><joint name="knee_{n}" axis="0 1 0" range="0 2.5"/><geom type="capsule" fromto="0 0 0 0 0 -.3" size=".03" mass="1"/>
              <body name="foot_{n}" pos="0 0 -.3"><joint name="ankle_{n}" axis="0 1 0" range="-1 1"/><geom type="box" size=".1 .05 .01" pos=".03 0 -.03" mass=".5"/>
              </body></body></body></body>"""

    arm = """<body name="arm_{0}" pos="0 {1} .3"><joint name="shoulder_{0}" axis="0 1 0"/><geom type="capsule" fromto="0 0 0 0 0 -.3" size=".02" mass=".5"/></body>"""
    return f"""<mujoco model="biped"><compiler angle="radian"/><worldbody><body name="pelvis" pos="0 0 1"><freejoint/>
      <geom size=".1" mass="10"/>{side(1, "l")}{side(-1, "r")}{arm.format("l", 0.2)}{arm.format("r", -0.2)}</body></worldbody></mujoco>"""


ROBOTS = {"bare quadruped": BARE, "biped": biped()}


@pytest.mark.parametrize("name", ROBOTS)
def test_a_robot_without_floor_sensors_or_actuators_stands_in_its_task(name):
    task = tasks.velocity(Robot.text(ROBOTS[name], name.split()[-1]))
    env = tasks.env(task, 4, seed=1)
    obs = env.reset()
    at = dict(zip((t.name for t in task.observations["actor"].terms), task.observations["actor"].columns))
    assert np.allclose(obs["actor"][:, at["projected_gravity"]], [0, 0, -1], atol=0.1)
    for _ in range(10):
        step = env.step(np.zeros((4, len(task.action.names))))
    assert np.isfinite(step.reward).all() and not step.terminated.any()
    assert (env.world.state.y["touch"].sum(1) > 0).all()


@pytest.mark.parametrize("name", ROBOTS)
def test_a_mirrored_episode_is_told_and_rewarded_alike(name):
    """Two rows: a state and its mirror image, mirrored actions; what they are told stays mirrored, what they earn equal."""
    task = tasks.velocity(Robot.text(ROBOTS[name], name.split()[-1]))
    quiet = task.params.vector({"noise": 0.0})
    env = tasks.env(task, 2, seed=0)
    env.reset(e=np.tile(quiet, (2, 1)))
    x, (order, sign) = env.world.state, task.symmetry.action
    mirror = task.symmetry.of(task.observations["actor"])
    rng = np.random.default_rng(0)
    joints = task.episode.body.joints
    q, v = x.q.copy(), 0.1 * rng.standard_normal(x.v.shape)
    q[:, 3:7], q[:, :2] = [0.99, 0.1, 0.05, 0.0], 0.0
    q[:, 3:7] /= np.linalg.norm(q[0, 3:7])
    q[:, 7:], v[:, 6:] = task.episode.body.q[7:], 0.0
    q[0, joints.q] += 0.1 * rng.standard_normal(len(order))
    q[1, joints.q] = joints.home + sign * (q[0, joints.q] - joints.home)[order]
    q[1, 3:7] = q[0, 3:7] * (1, -1, 1, -1)
    v[1, :6] = v[0, :6] * (1, -1, 1, -1, 1, -1)
    env.world.set_state(q, v)
    env.command[:] = [[0.5, 0.2, 0.3], [0.5, -0.2, -0.3]]
    env.age[:] = [0, round(0.5 / task.episode.gait.frequency / env.world.dt)]  # half a stride apart
    for _ in range(5):
        a = 0.3 * rng.standard_normal(len(order))
        step = env.step(np.stack([a, (sign * a[order])]))
    told = step.obs["actor"]
    clock = [
        at
        for t, at in zip(task.observations["actor"].terms, task.observations["actor"].columns)
        if t.name == "gait_clock"
    ][0]
    same = np.ones(told.shape[1], bool)
    same[clock] = (
        abs(round(0.5 / task.episode.gait.frequency / env.world.dt) * env.world.dt - 0.5 / task.episode.gait.frequency)
        < 1e-9
    )
    image = (mirror.obs_sign * told[0][mirror.obs_order])[same]
    assert np.allclose(image, told[1][same], atol=2e-3)
    assert step.reward[0] == pytest.approx(step.reward[1], rel=0.05)


def test_phases_alternate_along_a_side_and_across_the_body():
    four = np.array([[1, 1, 0], [1, -1, 0], [-1, 1, 0], [-1, -1, 0.0]])
    assert offsets(four) == (0.0, 0.5, 0.5, 0.0)  # a trot
    assert offsets(four[:2]) == (0.0, 0.5)  # a walk
    six = np.array([[x, y, 0.0] for x in (1, 0, -1) for y in (1, -1)])
    assert offsets(six) == (0.0, 0.5, 0.5, 0.0, 0.0, 0.5)  # two tripods


def test_commands_and_strides_follow_froudes_law():
    legs = read_legged(Robot.text(walk.xml(), "quadruped"))[0]
    assert legs.length == pytest.approx(L0, abs=1e-4)
    assert usual(legs) == ((1.0, 0.5, 1.0), (2.0, 0.08))
    from dataclasses import replace

    command, stride = usual(replace(legs, length=4 * L0))
    assert command == (2.0, 1.0, 0.5) and stride == (1.0, 0.32)


def test_every_commanded_place_is_where_some_pose_has_the_tip():
    task = tasks.reach(Robot.text(TWO_LINKS, "two"))
    bolted: reaching.Bolted = task.episode.__self__
    angles, places = bolted.reachable
    tip = np.stack([0.3 * np.cos(angles[:, 0]) + 0.2 * np.cos(angles.sum(1)), 0 * angles[:, 0], -0.3 * np.sin(angles[:, 0]) - 0.2 * np.sin(angles.sum(1))], 1)  # fmt: skip
    assert np.allclose(places[:, :3], tip, atol=1e-9)
    assert (angles >= [-0.8, -1.85]).all() and (angles <= [0.8, -0.65]).all()  # the inner 80 % of the ranges


def test_a_reached_place_has_no_error_and_a_turned_hand_counts_by_its_angle():
    task = tasks.reach(Robot.text(TWO_LINKS, "two"), pose=True)
    env = tasks.env(task, 1, seed=0)
    env.reset()
    bolted = task.episode.__self__
    d = posed(bolted.model, env.world.state.q[0])
    quat, half = np.zeros(4), np.array([np.cos(0.25), 0, np.sin(0.25), 0])
    mujoco.mju_mat2Quat(quat, d.site("tip").xmat)
    env.command[0] = [*d.site("tip").xpos, *quat]
    assert task.error(env.moment)[0] == pytest.approx(0.0, abs=1e-9)
    turned = np.zeros(4)
    mujoco.mju_mulQuat(turned, quat, half)
    env.command[0, 3:] = turned
    assert task.error(env.moment)[0] == pytest.approx(reaching.ARM * 0.5, rel=1e-6)


def test_at_its_hover_control_a_multirotor_stays_where_it_is():
    task = tasks.hover(Robot.text(hover.xml(), "drone"))
    env = tasks.env(task, 1, seed=0)
    env.reset()
    env.world.set_state(np.array([[0, 0, 0, 1, 0, 0, 0.0]]), np.zeros((1, 6)))
    for _ in range(50):
        env.step(np.zeros((1, 4)))
    assert np.abs(env.world.state.q[0, :3]).max() < 2e-3


def test_a_weak_multirotor_is_thrown_less_hard():
    strong = tasks.hover(Robot.text(hover.xml(), "drone")).episode.__self__
    xml = re.sub(r'gear="0 0 1 0 0 (\S+)"', r'gear="0 0 1 0 0 \1"', hover.xml()).replace("diaginertia=\"3.85e-6 3.85e-6 5.97e-6\"", "diaginertia=\"3.85e-3 3.85e-3 5.97e-3\"")  # fmt: skip
    weak = tasks.hover(Robot.text(xml, "drone")).episode.__self__
    assert strong.tilt == pytest.approx(np.pi / 2)
    assert weak.acceleration == pytest.approx(strong.acceleration / 1000, rel=0.6)
    assert weak.tilt < 0.5


def test_no_centre_of_mass_is_trained_over_that_the_torque_cannot_hold():
    """1 kg, +-1e-3 N m about x and y: an offset of 1e-5 m takes a tenth of that; off by 1.1e-4 m it turns over."""
    xml = """<mujoco><worldbody><body name="b"><freejoint/><inertial pos="0 0 0" mass="1" diaginertia=".01 .01 .01"/><geom size=".1" mass="0"/>
    <site name="s"/></body></worldbody><actuator><motor name="lift" site="s" gear="0 0 1 0 0 0" ctrlrange="0 20"/>
    <motor name="roll" site="s" gear="0 0 0 1e-3 0 0" ctrlrange="-1 1"/><motor name="pitch" site="s" gear="0 0 0 0 1e-3 0" ctrlrange="-1 1"/></actuator></mujoco>"""
    task = tasks.hover(Robot.text(xml, "drone"))
    at = task.params.names.index("com_x")
    assert task.belief.high[at] == pytest.approx(0.2 * 1e-3 / 2 / 9.81, rel=1e-6)


@pytest.mark.parametrize("build", [tasks.velocity, tasks.reach, tasks.hover])
def test_a_robot_of_another_kind_is_refused_with_what_was_expected(build):
    cart = '<mujoco><worldbody><body name="cart"><joint name="x" type="slide"/><geom size=".1"/></body></worldbody></mujoco>'
    with pytest.raises(SurefootError, match="robot cart: .* expected"):
        build(Robot.text(cart, "cart"))


FILES = {"velocity": walk.xml(), "reach": TWO_LINKS, "hover": hover.xml()}


@pytest.mark.parametrize("kind", FILES)
def test_a_written_file_is_the_builders_task_with_everything_written_out(kind, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "robot.xml").write_text(FILES[kind])
    assert main(["new", kind, "model/robot.xml", "--out", "task.py"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "next: surefoot train task.py --out run"
    text = Path("task.py").read_text()
    written, plain = tasks.resolve("task.py"), getattr(tasks, kind)(Robot.file("model/robot.xml"))
    assert written.params == plain.params and written.action.names == plain.action.names
    assert np.allclose(written.action.offset, plain.action.offset, atol=1e-3)
    assert np.allclose(written.action.scale, plain.action.scale, rtol=1e-3)
    assert np.allclose(written.belief.low, plain.belief.low, rtol=1e-2, atol=1e-9)
    assert all("#" in line for line in text.splitlines() if re.match(r"    (base|imu|point|body|Foot|Rotor)\W", line))
    env = tasks.env(written, 2, written.belief)
    env.reset()
    assert np.isfinite(env.step(np.zeros((2, len(written.action.names)))).reward).all()


def test_new_overwrites_nothing_unless_told_and_names_the_kind_that_fits(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("robot.xml").write_text(TWO_LINKS)
    assert main(["new", "velocity", "robot.xml"]) == 2
    assert "it fits: surefoot new reach" in capsys.readouterr().err
    assert main(["new", "reach", "robot.xml"]) == 0 and Path("robot_reach.py").exists()
    assert main(["new", "reach", "robot.xml"]) == 2
    assert "is there already" in capsys.readouterr().err
    assert main(["new", "reach", "robot.xml", "--overwrite", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["file"] == "robot_reach.py" and any(m.startswith("limit") for m in facts["missing"])


RUN = 'open("pwned", "w")'
FOLDERS = [f'a"""+{RUN}.name+"""b', f'a"""\n{RUN}\n"""', f"a\n{RUN}", "a\\", r"\N{no}", os.fsdecode(b"\xff")]


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_name_of_a_folder_is_no_code_in_the_file_that_is_written(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path(folder).mkdir()
    (Path(folder) / "scene.xml").write_text(TWO_LINKS)
    assert main(["new", "reach", f"{folder}/scene.xml", "--out", "task.py"]) == 0
    assert tasks.resolve("task.py").name.isprintable() and not Path("pwned").exists()


@pytest.mark.parametrize("kind, named", [("velocity", "(?:body|joint|site|motor|position)"), ("reach", "(?:body|joint)"), ("hover", "(?:body|site|motor)"), ("blank", "(?:body|joint|motor|velocity|muscle|general|gyro)")])  # fmt: skip
def test_the_names_in_a_model_are_no_code_in_the_file_that_is_written(kind, named, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    evil = (f'"""+{RUN}+"""#' + "\\").replace('"', "&quot;")
    plain = FILES.get(kind, ODD)
    names = set(re.findall(rf'<{named} name="([^"]+)"', plain)) - {"free", "slide"}
    xml = re.sub(r'"([^"]+)"', lambda m: f'"{m[1]}{evil}"' if m[1] in names else m[0], plain)
    Path("robot.xml").write_text(xml)
    assert len(names) > 1 and main(["new", kind, "robot.xml", "--out", "task.py"]) == 0
    body = ast.parse(Path("task.py").read_text()).body
    expected = [ast.Expr, ast.FunctionDef, ast.FunctionDef] if kind == "blank" else [ast.Expr, ast.FunctionDef]
    assert [type(x) for x in body if not isinstance(x, (ast.Import, ast.ImportFrom, ast.Assign))] == expected
    assert tasks.resolve("task.py").name == f"robot-{kind}" and not Path("pwned").exists()


def test_a_line_end_between_a_copys_name_and_number_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    body = TWO_LINKS.replace("<worldbody>", f"""<worldbody><replicate count="1" sep="&#10;{RUN.replace('"', "'")}#">""")
    Path("robot.xml").write_text(body.replace("</worldbody>", "</replicate></worldbody>"))
    assert main(["new", "reach", "robot.xml", "--out", "task.py"]) == 2
    assert "sep=" in capsys.readouterr().err and not Path("task.py").exists()


def test_a_long_name_is_cut_in_the_name_of_the_file_that_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path(f"{'a' * 250}.xml").write_text(TWO_LINKS)
    assert main(["new", "reach", f"{'a' * 250}.xml"]) == 0
    assert [p.name for p in tmp_path.glob("*.py")] == [f"{'a' * 60}_reach.py"]


def test_a_model_whose_steps_are_too_short_to_try_is_refused(tmp_path, monkeypatch, capsys):
    """50,000 steps a second: trying what timing it bears would take minutes."""
    monkeypatch.chdir(tmp_path)
    Path("robot.xml").write_text(TWO_LINKS.replace("<worldbody>", '<option timestep="2e-5"/><worldbody>', 1))
    assert main(["new", "reach", "robot.xml"]) == 2
    assert "timestep: found 2e-05 s, expected at least 0.0001 s" in capsys.readouterr().err


ODD = """<mujoco model="odd"><worldbody><geom name="floor" type="plane" size="5 5 .1"/>
  <body name="box" pos="0 0 .5"><freejoint/><geom size=".1" mass="2"/><site name="a" pos=".1 0 0"/>
    <body name="arm"><joint name="turn" axis="0 1 0" range="-60 120" actuatorfrcrange="-6 6"/><geom type="capsule" fromto="0 0 0 .2 0 0" size=".02" mass=".3"/>
      <body name="rod" pos=".2 0 0"><joint name="slide" type="slide" axis="1 0 0"/><geom size=".02" mass=".1"/><site name="b"/></body></body>
    <body name="wheel" pos="0 .2 0"><joint name="spin" axis="0 1 0" armature=".01"/><geom size=".05" mass=".2"/></body>
  </body></worldbody>
  <tendon><spatial name="rope"><site site="a"/><site site="b"/></spatial></tendon>
  <actuator><motor joint="turn" gear="3"/><position name="out" joint="slide" kp="20"/><velocity name="roll" joint="spin" kv=".1"/>
    <muscle name="pull" tendon="rope" lengthrange="0.01 0.4"/><general name="odd" joint="spin" gainprm="2" biastype="affine" biasprm="1 -.1 -.2" ctrlrange="-1 3" ctrllimited="true"/>
    <position name="held" joint="turn" kp="9" ctrlrange="-1 1.5"/></actuator></mujoco>"""


def test_a_blank_file_drives_every_kind_of_actuator_over_its_range(tmp_path, monkeypatch, capsys):
    """rest and reach by hand: 6 N m / gear 3 = 2; ctrlrange -1..3 about its middle 1; a servo from 0 to the far end 1.5."""
    monkeypatch.chdir(tmp_path)
    Path("odd.xml").write_text(ODD)
    assert main(["new", "blank", "odd.xml", "--out", "task.py", "--json"]) == 0
    missing = json.loads(capsys.readouterr().out)["missing"]
    assert [m.split(":")[0] for m in missing] == ["range of out", "range of roll"]
    task = tasks.resolve("task.py")
    ends = dict(zip(task.action.names, zip(task.action.offset.tolist(), task.action.scale.tolist())))
    assert ends == {
        "actuator_0": (0, 2),
        "out": (0, 1),
        "roll": (0, 1),
        "pull": (0.5, 0.5),
        "odd": (1, 2),
        "held": (0, 1.5),
    }
    told = {t.name: t.dim for t in task.observations["actor"].terms}
    assert told == {"joint_pos": 3, "joint_vel": 3, "base_ang_vel": 3, "projected_gravity": 3, "last_action": 6}
    env = tasks.env(task, 2, task.belief, seed=1)
    env.reset()
    step = env.step(np.full((2, 6), 0.2))
    assert np.allclose(step.reward, env.world.dt)  # alive alone
    assert np.isfinite(step.obs["actor"]).all()


def test_a_filled_in_blank_has_every_example_at_work(tmp_path, monkeypatch):
    """Each commented example is code that runs once the comment sign is gone."""
    monkeypatch.chdir(tmp_path)
    Path("odd.xml").write_text(ODD.replace("<actuator>", '<sensor><gyro name="g" site="a"/></sensor><actuator>'))
    assert main(["new", "blank", "odd.xml", "--out", "task.py"]) == 0
    text = Path("task.py").read_text()
    text = re.sub(r"# example: (Param)|# example, a sensor of the model: (ObsTerm)|# (\"near\"|\"action_rate\"|\"fell\"|command=)", lambda m: next(filter(None, m.groups())), text)  # fmt: skip
    Path("task.py").write_text(re.sub(r"\}  # example: (.*)", r", \1}", text))
    task = tasks.resolve("task.py")
    assert set(task.rewards) == {"alive", "near", "action_rate"} and set(task.ended) == {"fell"}
    assert list(task.params.names) == ["latency", "noise", "mass"] and task.belief.high[2] == 1.2
    env = tasks.env(task, 2, task.belief, seed=1)
    env.reset()
    step = env.step(np.zeros((2, 6)))
    assert (
        (step.reward > env.world.dt).all()
        and env.command.shape == (2, 1)
        and "g" in [t.name for t in task.observations["actor"].terms]
    )


def test_a_blank_file_trains_as_it_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("odd.xml").write_text(ODD)
    assert main(["new", "blank", "odd.xml", "--out", "task.py"]) == 0
    assert main(["train", "task.py", "--out", "run", "--steps", "512", "--envs", "16", "--horizon", "16"]) == 0
    assert Path("run/policy.onnx").exists()


def test_a_blank_task_of_a_model_without_actuators_adds_servos_aloud(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("robot.xml").write_text(TWO_LINKS)
    assert main(["new", "blank", "robot.xml", "--out", "task.py"]) == 0
    assert "actuators: none; a position servo is added to each joint" in capsys.readouterr().out
    task = tasks.resolve("task.py")
    env = tasks.env(task, 2)
    env.reset()
    assert len(task.action.names) == 2 and np.isfinite(env.step(np.ones((2, 2))).reward).all()


def test_a_turned_model_is_refused_with_the_plane_that_it_mirrors_at(tmp_path, monkeypatch, capsys):
    """Two legs beside each other along x: read as it is, the robot would be trained to walk sideways."""
    monkeypatch.chdir(tmp_path)
    leg = """<body name="{0}" pos="{1} 0 0"><joint name="{0}_hip" axis="1 0 0" range="-2 2"/><geom type="capsule" fromto="0 0 0 0 0 -.2" size=".02"/>
      <body name="{0}_shank" pos="0 0 -.2"><joint name="{0}_knee" axis="1 0 0" range="-2 -.1"/><geom type="capsule" fromto="0 0 0 0 0 -.2" size=".02"/>
      </body></body>"""
    body = (
        '<body name="base" pos="0 0 1"><freejoint/><geom size=".1" mass="2"/>'
        + leg.format("l", -0.1)
        + leg.format("r", 0.1)
    )
    Path("robot.xml").write_text(f'<mujoco><compiler angle="radian"/><worldbody>{body}</body></worldbody></mujoco>')
    assert main(["new", "velocity", "robot.xml"]) == 2
    assert "mirror each other at the base's yz plane, expected the xz plane" in capsys.readouterr().err


STRANGERS = {
    "unitree_go1_flat.xml": "velocity", "unitree_go2.xml": "velocity", "menagerie/google_barkour_vb/scene.xml": "velocity",
    "menagerie/booster_t1/scene.xml": "velocity", "menagerie/trs_so_arm100/scene.xml": "reach",
    "menagerie/skydio_x2/scene.xml": "hover", "crazyflie_2.xml": "hover",
}  # fmt: skip


@pytest.mark.parametrize("path", STRANGERS)
def test_a_strangers_scene_becomes_a_task_that_runs(path):
    if not (MODELS / path).exists():
        pytest.skip(f"no {MODELS / path}: point SUREFOOT_MODELS at a folder with the models")
    task = getattr(tasks, STRANGERS[path])(Robot.file(MODELS / path))
    env = tasks.env(task, 2, task.belief, seed=3)
    env.reset()
    for _ in range(5):
        step = env.step(np.zeros((2, len(task.action.names))))
    assert np.isfinite(step.reward).all() and np.isfinite(step.obs["actor"]).all()
    m = load_robot(task.robot).model
    pairs = {(int(a), int(b)) for a in range(m.ngeom) for b in range(a) if m.geom_contype[a] & m.geom_conaffinity[b] or m.geom_contype[b] & m.geom_conaffinity[a]}  # fmt: skip
    assert len(pairs) <= 9  # soles and trunk with the floor


def test_every_unknown_of_a_robot_that_falls_at_once_is_seen_to_act():
    """Pushes come after two seconds on average, and a biped without a policy lies on the ground by then."""
    from surefoot.sim.audit import effects
    from surefoot.verbs.model.look import task_trace

    task = tasks.velocity(Robot.text(biped(), "biped"))
    assert [f.param.name for f in effects(task.params, task_trace(task)) if not f.acts] == []


def test_look_warns_of_no_keyframe_in_a_model_and_not_in_a_task(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("biped.xml").write_text(biped())
    assert main(["look", "biped.xml", "--audit", "False"]) == 0
    assert "no keyframe" in capsys.readouterr().out
    assert main(["new", "velocity", "biped.xml", "--out", "task.py"]) == 0
    assert "a plane at z = 0 is added" in capsys.readouterr().out
    assert main(["look", "task.py", "--audit", "False"]) == 0
    assert "no keyframe" not in capsys.readouterr().out


def test_look_names_the_task_that_a_robot_fits_also_where_its_base_is_not_free_yet(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    bolted = re.sub(r"<freejoint[^>]*/>", "", biped())
    for name, text, kind in (
        ("free", biped(), "velocity"),
        ("bolted", bolted, "velocity"),
        ("two", TWO_LINKS, "reach"),
    ):
        Path(f"{name}.xml").write_text(text)
        assert main(["look", f"{name}.xml", "--audit", "False"]) == 0
        assert capsys.readouterr().out.splitlines()[-1] == f"next: surefoot new {kind} {name}.xml"


def test_an_arm_is_not_said_to_get_a_floor(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("two.xml").write_text(TWO_LINKS)
    assert main(["new", "reach", "two.xml", "--out", "task.py"]) == 0
    assert "floor" not in capsys.readouterr().out


def test_a_root_link_without_mass_leaves_the_payload_to_the_body_it_carries():
    inner = re.sub(r'<freejoint/>\s*<geom size=".1" mass="10"/>', '<geom size=".1" mass="10"/>', biped())
    rooted = inner.replace('<body name="pelvis" pos="0 0 1">', '<body name="base_link" pos="0 0 1"><freejoint/><body name="pelvis">').replace("</body></worldbody>", "</body></body></worldbody>")  # fmt: skip
    task = tasks.velocity(Robot.text(rooted, "biped"))
    assert [p.match for p in task.params if p.name == "payload"] == ["pelvis"]
    tasks.env(task, 2, task.belief).reset()


def test_an_arm_that_hangs_below_its_origin_reaches_down_there():
    hanging = TWO_LINKS.replace('<body name="upper">', '<body name="upper" pos="0 0 -.5">')
    bolted = reaching.Bolted(reaching.prepared(Robot.text(hanging, "two"), reaching.read_arm(Robot.text(hanging, "two"))[0], Timing()), reaching.read_arm(Robot.text(hanging, "two"))[0])  # fmt: skip
    assert len(bolted.reachable[1]) > 100 and bolted.reachable[1][:, 2].max() < 0.1


def test_a_range_that_ends_at_a_physical_bound_is_written_so_that_it_can_be_read():
    from surefoot.params import Param
    from surefoot.tasks.build.text import within

    p = Param("payload", "mass", 0.0, -0.7 * 0.1, 1 / 3, "base", "add", "kg")
    assert (within(-0.7 * 0.1, p), within(1 / 3, p), within(0.12345, p)) == (
        "-0.06999999999999999",
        "0.333",
        "0.123",
    )


def test_feet_one_behind_the_other_are_not_rewarded_for_their_distance_sideways():
    line = biped().replace('pos="0 0.1 0"', 'pos="0.1 0 0"').replace('pos="0 -0.1 0"', 'pos="-0.1 0 0"')
    task = tasks.velocity(Robot.text(line, "line"))
    assert "low_base" in task.rewards and "feet_near" not in task.rewards
    assert "feet_near" in tasks.velocity(Robot.text(biped(), "biped")).rewards
