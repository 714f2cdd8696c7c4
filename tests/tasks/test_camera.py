"""A camera as an observation: what each visual unknown does to the picture, and to nothing else."""

import subprocess
import sys
from dataclasses import replace

import mujoco
import numpy as np
import pytest
from mujoco.rendering.classic import gl_context

from surefoot import tasks
from surefoot.belief import Belief, Box
from surefoot.cli import main
from surefoot.deploy import bundle
from surefoot.errors import SurefootError
from surefoot.learn.distill import Distill, classroom
from surefoot.learn.loop import policy_of
from surefoot.learn.nets import export
from surefoot.learn.on_policy.ppo import PPO
from surefoot.learn.settings import DistillSettings
from surefoot.learn.train import settings_for
from surefoot.params import Param, Params
from surefoot.robot import Robot
from surefoot.sim.fields import VISIBLE
from surefoot.task import Moment
from surefoot.tasks.ready.balance_camera import LOOKS
from surefoot.tasks.terms.camera import GREY, Camera
from surefoot.world import Chance, State

MARK = """
<mujoco>
  <visual><headlight ambient="1 1 1" diffuse="0 0 0" specular="0 0 0"/></visual>
  <worldbody>
    <light name="lamp" dir="0 1 -1" directional="true" diffuse=".4 .4 .4"/>
    <camera name="eye" pos="0 -2 0" xyaxes="1 0 0 0 0 1" fovy="50"/>
    <geom name="wall" type="box" pos="0 3 0" size="9 .1 9" rgba=".1 .1 .1 1"/>
    <body name="mark"><joint type="slide" axis="1 0 0"/><geom name="mark" type="box" size=".1 .001 .1" rgba="1 .4 .2 1"/></body>
  </worldbody>
</mujoco>
"""
BALL = MARK.replace("<body ", '<geom name="ball" pos="1 0 .4" size=".3" rgba=".5 .6 .7 1"/><body ')
WIDE, HIGH = 80, 40
MOVES = {  # target -> (op, nominal, a value that shows)
    "light": ("scale", 1.0, 0.5), "light_tilt_x": ("add", 0.0, 0.5), "light_tilt_y": ("add", 0.0, 0.5),
    "red": ("set", 1.0, 0.3), "green": ("scale", 1.0, 2.0), "blue": ("add", 0.0, 0.5), "shade": ("scale", 1.0, 0.4),
    "opacity": ("set", 1.0, 0.3), "hue": ("add", 0.0, 1.0), "camera_x": ("add", 0.0, 0.2), "camera_y": ("add", 0.0, 0.2),
    "camera_z": ("add", 0.0, 0.5), "camera_pitch": ("add", 0.0, 0.1), "camera_yaw": ("add", 0.0, 0.1),
    "camera_roll": ("add", 0.0, 0.3), "camera_fov": ("scale", 1.0, 1.2),
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def drawing() -> None:
    """Skip where the machine has no OpenGL at all."""
    try:
        picture(eye(), {})
    except SurefootError as error:
        if "no OpenGL" not in str(error):
            raise
        pytest.skip(str(error))


def unknown(target: str) -> Param:
    op, nominal, _ = MOVES[target]
    on = {"geom": "mark", "camera": "eye", "light": "lamp"}.get(VISIBLE[target].objects, ".*")
    return Param(target, target, nominal, nominal - 1 if op == "add" else 0.0, nominal + 2, match=on, op=op)


ALL = Params(tuple(unknown(target) for target in MOVES))


def eye(xml: str = MARK, **how) -> Camera:
    return Camera(Robot.text(xml, "marked"), ALL, "eye", (WIDE, HIGH), **{"fine": 4, **how})


def moment(q: np.ndarray, e: np.ndarray) -> Moment:
    n, none = len(q), np.zeros((len(q), 0))
    x = State(np.zeros(n), q, np.zeros_like(q), none, none, {}, e, np.zeros((1, 3)), np.zeros((n, 0, 6)))
    return Moment(x, none, none, none, np.zeros(n), np.zeros(n))


def picture(camera: Camera, values: dict[str, float], q: float = 0.0) -> np.ndarray:
    shape = (HIGH, WIDE) if camera.grey else (HIGH, WIDE, 3)
    return camera(moment(np.array([[q]]), ALL.vector(values)[None]))[0].reshape(shape)


def place(seen: np.ndarray) -> tuple[float, float]:
    """Column and row of the middle of what is brighter than the wall."""
    weight = np.clip(seen - 1.5 * np.median(seen), 0, None)
    columns, rows = np.arange(seen.shape[1]) + 0.5, np.arange(seen.shape[0]) + 0.5
    return float((weight.sum(0) * columns).sum() / weight.sum()), float((weight.sum(1) * rows).sum() / weight.sum())


def test_every_visual_target_is_tried_here():
    assert list(MOVES) == list(VISIBLE)


def test_the_nominal_picture_is_that_of_the_plain_model():
    model = mujoco.MjModel.from_xml_string(MARK)
    quality = model.vis.quality
    quality.offsamples = quality.shadowsize = 0
    quality.numslices, quality.numstacks, quality.numquads = 12, 6, 1
    model.vis.global_.offwidth, model.vis.global_.offheight = WIDE, HIGH
    data = mujoco.MjData(model)
    data.qpos[0] = 0.3
    mujoco.mj_forward(model, data)
    with mujoco.Renderer(model, HIGH, WIDE) as plain:
        plain.scene.flags[mujoco.mjtRndFlag.mjRND_SHADOW] = plain.scene.flags[mujoco.mjtRndFlag.mjRND_REFLECTION] = 0
        plain.update_scene(data, "eye")
        expected = plain.render()
    assert np.array_equal(picture(eye(fine=1, grey=False), {}, 0.3), np.float32(expected) / np.float32(255))
    assert np.array_equal(picture(eye(fine=1), {}, 0.3), np.float32(expected) @ GREY / np.float32(255))


@pytest.mark.parametrize("target", MOVES)
def test_each_visual_unknown_changes_the_picture_and_the_next_one_is_plain_again(target):
    camera = eye(BALL)  # for a light turned about the wall's normal: on the wall itself, it changes nothing
    plain = picture(camera, {})
    assert np.abs(picture(camera, {target: MOVES[target][2]}) - plain).max() > 0.02
    assert np.array_equal(picture(camera, {}), plain)


def test_rows_are_independent_and_the_same_q_and_e_give_the_same_bits():
    rng = np.random.default_rng(0)
    q = rng.uniform(-0.5, 0.5, (6, 1))
    e = np.stack(
        [
            ALL.vector({k: (1 - s) * nominal + s * moved for k, (_, nominal, moved) in MOVES.items()})
            for s in rng.random(6)
        ]
    )
    camera = eye()
    together = camera(moment(q, e))
    assert together.shape == (6, WIDE * HIGH) and together.dtype == np.float32
    assert together.min() >= 0 and together.max() <= 1 and len(np.unique(together, axis=0)) == 6
    order = rng.permutation(6)
    assert np.array_equal(camera(moment(q[order], e[order])), together[order])
    assert np.array_equal(np.concatenate([eye()(moment(q[i : i + 1], e[i : i + 1])) for i in range(6)]), together)


def test_a_brighter_light_gives_a_brighter_picture_in_proportion():
    means = [picture(eye(), {"light": power}).mean() for power in (0.25, 0.5, 0.75)]
    assert means[1] / means[0] == pytest.approx(2, rel=0.05)  # of a wall that shows as 7 of 255, to the next integer
    assert means[2] / means[0] == pytest.approx(3, rel=0.05)


def test_a_camera_that_moves_shifts_the_mark_as_a_pinhole_does():
    """f = (H / 2) / tan(fovy / 2) pixels; the mark is 2 m away, so dx shifts it by -f dx / 2."""
    f, away, camera = HIGH / 2 / np.tan(np.radians(25)), 1.999, eye()
    column, row = place(picture(camera, {}))
    assert (column, row) == pytest.approx((WIDE / 2, HIGH / 2), abs=0.05)
    for dx, dy in ((0.25, 0.0), (-0.4, 0.0), (0.0, 0.2), (0.3, -0.3)):
        moved = place(picture(camera, {"camera_x": dx, "camera_y": dy}))
        assert moved == pytest.approx((column - f * dx / away, row + f * dy / away), abs=0.1)
    assert place(picture(camera, {}, 0.4)) == pytest.approx((column + f * 0.4 / away, row), abs=0.1)


def test_a_camera_that_turns_shifts_the_mark_by_the_tangent():
    f, camera = HIGH / 2 / np.tan(np.radians(25)), eye()
    for angle in (-0.2, 0.15):
        assert place(picture(camera, {"camera_yaw": angle}))[0] == pytest.approx(WIDE / 2 + f * np.tan(angle), abs=0.15)
        assert place(picture(camera, {"camera_pitch": angle}))[1] == pytest.approx(
            HIGH / 2 + f * np.tan(angle), abs=0.15
        )
    f = HIGH / 2 / np.tan(1.2 * np.radians(25))
    assert place(picture(camera, {"camera_fov": 1.2}, 0.4))[0] == pytest.approx(WIDE / 2 + f * 0.4 / 1.999, abs=0.1)


def test_colours_are_what_the_unknowns_say():
    """Light of 1 from all around, so that a surface shows its own colour; hue turns it and keeps its sum."""
    camera = eye(MARK.replace('diffuse=".4 .4 .4"', 'diffuse="0 0 0"'), grey=False)
    middle = lambda values: picture(camera, values)[HIGH // 2, WIDE // 2]  # noqa: E731
    assert middle({}) == pytest.approx([1, 0.4, 0.2], abs=0.005)
    assert middle({"red": 0.3, "green": 2.0, "blue": 0.5}) == pytest.approx([0.3, 0.8, 0.7], abs=0.005)
    assert middle({"shade": 0.5, "hue": 2 * np.pi / 3}) == pytest.approx([0.1, 0.5, 0.2], abs=0.005)
    through = 0.5 * 0.5  # of the wall's light: the mark has a front and a back, and each hides half
    expected = through * 0.1 + (1 - through) * np.array([1, 0.4, 0.2])
    assert middle({"opacity": 0.5}) == pytest.approx(expected, abs=0.01)


def test_looks_do_not_move_the_physics_by_a_bit():
    task, plain = tasks.resolve("balance-camera"), tasks.resolve("balance")
    rng = np.random.default_rng(1)
    e = np.tile(task.belief.sample(rng, 1), (4, 1))
    e[1:, len(plain.params) :] = Box.full(task.params).sample(rng, 3)[:, len(plain.params) :]
    envs = [tasks.env(tasks.with_actor_terms(t, ["cart_pole"], 1), 4, seed=2) for t in (task, plain)]
    envs[0].reset(e=e), envs[1].reset(e=e[:, : len(plain.params)])
    for env in envs:
        env.world.state.q[:], env.world.state.v[:] = env.world.state.q[:1].copy(), env.world.state.v[:1].copy()
    for k in range(50):
        u = rng.uniform(-10, 10, (1, 1)).repeat(4, 0)
        for env in envs:
            env.world.step(u, Chance(0, k, env.world.dt))
        for x, y in zip(*((env.world.state.q, env.world.state.v) for env in envs)):
            assert (x == x[0]).all() and np.array_equal(x, y)


def test_every_look_of_balance_camera_acts_on_what_the_actor_is_told_and_beliefs_keep_them():
    task = tasks.resolve("balance-camera")
    assert Belief.from_json(task.belief.to_json()) == task.belief and len(task.params) == len(LOOKS) + 7
    pixels = task.observations["actor"].terms[0].source
    q = np.tile([0.1, 0.05], (1 + 2 * len(LOOKS), 1))
    e = np.tile(task.params.nominal, (len(q), 1))
    for i, p in enumerate(LOOKS):
        e[1 + 2 * i, 7 + i], e[2 + 2 * i, 7 + i] = p.low, p.high
    seen = pixels(moment(q, e))
    change = np.abs(seen[1:] - seen[0]).max(1).reshape(-1, 2).max(1)
    assert dict(zip((p.name for p in LOOKS), change > 0.02)) == {p.name: True for p in LOOKS}


def test_a_teacher_told_the_state_never_draws():
    """Its actor, critic and the group for a teacher are told no pixels, so the camera is not even opened."""
    task = tasks.resolve("balance-camera")
    camera = task.observations["actor"].terms[0].source
    told = tasks.with_override(task, tasks.teachers(task, tasks.ObsOverride()))
    learner = PPO(tasks.env(told, 4, task.belief), replace(settings_for(task.name), envs=4, horizon=4), 0)
    learner.iterate()
    assert camera._gl is None and [t.name for t in told.observations["actor"].terms] == ["cart_pole"]
    with pytest.raises(SurefootError, match=r"no observation term matches 'pixel'.*did you mean pixels"):
        tasks.with_override(task, tasks.ObsOverride(only=("pixel",)))


def test_a_student_of_pixels_follows_a_teacher_of_state_and_resumes_to_the_same_bits():
    task = tasks.resolve("balance-camera")
    told = tasks.with_override(task, tasks.teachers(task, tasks.ObsOverride()))
    teacher = policy_of(PPO(tasks.env(told, 4), replace(settings_for(task.name), envs=4, horizon=4), 0))
    lesson = DistillSettings(**{**task.lesson, "label": "action", "envs": 4, "horizon": 4, "minibatches": 2})
    fresh = lambda: Distill(tasks.env(classroom(task, teacher, lesson.history), 4, task.belief), lesson, 0, teacher)  # noqa: E731
    one, two = fresh(), fresh()
    one.iterate()
    two.load(*one.save())
    one.iterate(), two.iterate()
    a, b = policy_of(one), policy_of(two)
    assert export.weights_of(a) == export.weights_of(b)
    assert a.contract.terms[0].name == "pixels" and a.contract.history == lesson.history
    with pytest.raises(SurefootError, match="by latent"):
        Distill(one.env, replace(lesson, label="latent"), 0, teacher)


def test_from_the_door_a_run_of_balance_teaches_a_student_of_pixels(tmp_path, capsys):
    small = ["--envs", "8", "--horizon", "8", "--steps", "128", "--hidden", "8", "--minibatches", "2"]
    assert main(["train", "balance", *small, "--out", str(tmp_path / "teacher")]) == 0
    lesson = ["--student.envs", "4", "--student.horizon", "4", "--student.steps", "32"]
    follow = ["train", "balance-camera", "--adapt", "dagger", *lesson, "--teacher", str(tmp_path / "teacher")]
    assert main([*follow, "--out", str(tmp_path / "eyes")]) == 0
    policy = bundle.load(tmp_path / "eyes" / "student")
    assert [t.name for t in policy.contract.terms] == ["pixels"] and policy.contract.history == 4
    assert main(["eval", str(tmp_path / "eyes" / "student"), "--episodes", "2"]) == 0
    assert main(["train", "balance-camera", "--adapt", "rma", "--out", str(tmp_path / "rma")]) == 2
    assert "has other terms than its actor; use --adapt dagger" in capsys.readouterr().err
    assert not (tmp_path / "rma").exists()


def test_a_closed_camera_opens_again_and_a_dropped_one_gives_its_context_back():
    camera = eye()
    first = picture(camera, {})
    camera.close()
    assert camera._gl is None and np.array_equal(picture(camera, {}), first)
    closer = camera._closer
    del camera
    assert not closer.alive


def test_no_opengl_is_told_with_the_fix_and_only_at_the_first_picture(monkeypatch):
    class Broken:
        def __init__(self, width: int, height: int):
            raise RuntimeError("no such screen")

    monkeypatch.setenv("MUJOCO_GL", "glfw")
    monkeypatch.setattr(gl_context, "GLContext", Broken)
    env = tasks.env(tasks.resolve("balance-camera"), 1)
    with pytest.raises(SurefootError, match=r"no OpenGL.*no such screen.*MUJOCO_GL"):
        env.reset()


def test_a_process_that_leaves_a_camera_open_ends_in_silence():
    script = "from surefoot import tasks; env = tasks.env(tasks.resolve('balance-camera'), 1); env.reset()"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert not done.stderr


def test_what_cannot_be_seen_is_refused_in_words():
    with pytest.raises(SurefootError, match=r"no camera matches 'eyes'; there are eye; did you mean eye\?"):
        picture(Camera(Robot.text(MARK, "marked"), ALL, "eyes", (WIDE, HIGH)), {})
    with pytest.raises(SurefootError, match=r"param p: no geom matches 'marc'.*did you mean mark"):
        Camera(Robot.text(MARK, "marked"), Params((Param("p", "red", 0.5, 0.0, 1.0, match="marc"),)), "eye").looks(
            np.zeros((1, 1))
        )
    with pytest.raises(SurefootError, match="param p: op: target hue can be add, found scale"):
        Camera(Robot.text(MARK, "marked"), Params((Param("p", "hue", 1.0, 0.0, 2.0),)), "eye").looks(np.zeros((1, 1)))
    following = MARK.replace('name="eye"', 'name="eye" mode="track"')
    with pytest.raises(SurefootError, match="param camera_x: target camera_x: expected a camera of mode fixed"):
        eye(following).looks(ALL.nominal[None])
