"""Students: what a history tells, learned from one who knows."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from surefoot import tasks
from surefoot.belief import Belief, Box
from surefoot.cli import main
from surefoot.deploy import bundle
from surefoot.errors import SurefootError
from surefoot.learn import train as learn
from surefoot.learn.distill import Distill, classroom
from surefoot.learn.nets import export
from surefoot.learn.on_policy.ppo import PPO
from surefoot.learn.settings import DistillSettings
from surefoot.verbs.arguments import trained_over

SMALL = {"envs": 32, "horizon": 8, "hidden": (16,), "minibatches": 2, "steps": 512}
LESSON = DistillSettings(envs=32, horizon=8, minibatches=2, steps=32 * 8 * 6, history=6, hidden=(16,))


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    folder = tmp_path_factory.mktemp("teacher")
    settings = learn.settings_for("hover", {**SMALL, "encoder": "e", "latent": 3})
    return learn.train(
        "hover",
        folder / "t",
        belief=tasks.resolve("hover").belief,
        settings=settings,
        obs=tasks.ObsOverride(also=("e",)),
    )


def apprentice(teacher, **changes) -> Distill:
    lesson = DistillSettings(**{**vars(LESSON), **changes})
    task, master = tasks.resolve("hover"), export.load_net(teacher)
    quiet = Box.ranges(task.params, {"mass": (0.8, 1.2), "noise": (0.0, 0.0)})  # both are told the same
    env = tasks.env(classroom(task, master, lesson.history), lesson.envs, quiet, 0)
    return Distill(env, lesson, 0, master)


def test_a_teacher_reads_e_by_its_encoder_and_all_else_directly(teacher):
    net, policy = export.load_net(teacher), bundle.load(teacher)
    obs = export.plain_golden(net).obs
    frame = policy.contract.observation.frame
    at = net.actor.encoder.reads.numpy()
    assert at.tolist() == list(range(3 * frame - 9, 3 * frame)) and net.actor.encoder.kind == "mlp"
    other = obs.copy()
    other[:, at] += net.sd.numpy()[at]
    assert not np.array_equal(policy.latent(obs), policy.latent(other))
    older = obs.copy()
    older[:, frame - 9 : frame] += 1.0  # e in an older frame: read by nobody
    assert np.array_equal(policy(obs), policy(older))


def test_a_student_is_told_less_than_its_teacher_where_that_is_asked(teacher, tmp_path):
    told = ("position_error", "rotation", "base_ang_vel", "last_action")
    lesson = DistillSettings(**{**vars(LESSON), "label": "action", "only": told})
    path = learn.train("hover", tmp_path / "s", teacher=teacher, settings=lesson)
    assert tuple(t.name for t in bundle.load(path).contract.terms) == told
    again = json.loads((tmp_path / "s" / "run.json").read_text())["settings"]
    assert tuple(again["only"]) == told


def test_a_student_by_actions_is_told_as_many_frames_as_they_are_as_its_teacher(teacher):
    actor = apprentice(teacher, label="action").actor
    frame = sum(t.dim for t in tasks.resolve("hover").observations["actor"].terms)
    assert actor.keeps.tolist() == list(range(3 * frame, 6 * frame))


def test_what_the_teacher_is_not_told_is_scaled_by_its_driving_which_costs_no_step_of_the_lesson(tmp_path):
    """At the first frame every last action is 0: scaled by that, any action would be out of all bounds."""
    sees = tasks.ObsOverride(only=("position_error", "rotation", "base_lin_vel", "base_ang_vel", "e"))
    task, settings = tasks.resolve("hover"), learn.settings_for("hover", SMALL)
    master = export.load_net(learn.train("hover", tmp_path / "t", belief=task.belief, settings=settings, obs=sees))
    lesson = DistillSettings(**{**vars(LESSON), "label": "action"})
    room = classroom(task, master, lesson.history)
    a = Distill(tasks.env(room, 32, task.belief, 3), lesson, 3, master)
    assert np.array_equal(a.obs["actor"], tasks.env(room, 32, task.belief, 3).reset()["actor"])
    env, group = tasks.env(room, 32, task.belief, 3), room.observations["actor"]
    obs = env.reset()
    for _ in range(lesson.history):
        obs = env.step(master(obs["teacher"])).obs
    at = dict(zip((t.name for t in group.terms), group.columns))["last_action"]
    acted = obs["actor"].reshape(32, group.history, group.frame)[:, :, at]
    assert np.allclose(a.sd.reshape(group.history, group.frame)[:, at], acted.std(), rtol=1e-3)
    assert np.abs(acted - acted.mean((0, 1))).max() / acted.std() < 10


@pytest.mark.parametrize(
    "change, words", [({"mix": 3.0}, "mix: expected 0 to 1, found 3"), ({"lr": 0.0}, "more than 0")]
)
def test_a_lesson_that_teaches_nothing_is_refused(change, words):
    with pytest.raises(SurefootError, match=words):
        DistillSettings(**change)


def test_a_teacher_begins_as_a_policy_that_is_hardly_told_of_e():
    task = tasks.with_override(tasks.resolve("hover"), tasks.ObsOverride(also=("e",)))
    settings = learn.settings_for("hover", {**SMALL, "encoder": "e"})
    learner = PPO(tasks.env(task, 32, task.belief, 0), settings, 0)
    z = learner.actor.encoder(
        torch.randn(64, task.observations["actor"].dim, generator=torch.Generator().manual_seed(0))
    )
    assert 0 < float(z.detach().std()) < 0.05


def test_with_the_teachers_latent_the_students_body_gives_the_teachers_action(teacher):
    """Put mu(e) in the place of phi(history): what is left is the teacher, to rounding, on every column it keeps."""
    a = apprentice(teacher)
    for _ in range(3):
        step = a.env.step(np.zeros((32, 4)))
    a.collector.obs = step.obs
    told = a.teacher.normalised(torch.from_numpy(a.obs["teacher"]))
    seen = torch.from_numpy(np.clip((a.obs["actor"] - a.mean) / a.sd, -10, 10))
    with torch.no_grad():
        z = a.master.encoder(told)
        mine = a.actor.body(torch.cat([seen[:, a.actor.keeps], z], 1))
        right = a.master(told)
    assert torch.allclose(mine, right, atol=1e-5) and right.std() > 1e-4


def test_only_the_encoder_learns_by_latents_and_everything_by_actions(teacher):
    for label, body_moves in (("latent", False), ("action", True)):
        a = apprentice(teacher, label=label)
        before = [p.detach().clone() for p in a.actor.body.parameters()]
        encoder = [p.detach().clone() for p in a.actor.encoder.parameters()]
        a.iterate()
        assert any(not torch.equal(x, y) for x, y in zip(before, a.actor.body.parameters())) == body_moves
        assert any(not torch.equal(x, y) for x, y in zip(encoder, a.actor.encoder.parameters()))


def test_the_teacher_drives_as_many_as_it_is_asked_to():
    lesson = DistillSettings(mix=0.8, mix_until=0.5, steps=100, envs=1, horizon=1)
    shares = []
    for k in (0, 25, 50, 99):
        fake = type("A", (), {"settings": lesson, "iteration": k})()
        shares.append(Distill.mixed(fake))
    assert np.allclose(shares, [0.8, 0.4, 0.0, 0.0])
    cloning = type("A", (), {"settings": DistillSettings(mix=1.0, mix_until=1.0), "iteration": 10**6})()
    assert Distill.mixed(cloning) == 1.0


@pytest.mark.parametrize("label", ["latent", "action"])
def test_a_student_goes_on_with_the_same_bits(tmp_path, teacher, label):
    lesson = DistillSettings(**{**vars(LESSON), "label": label})
    about = dict(seed=3, settings=lesson, save_every=0)
    stop = lambda p: (_ for _ in ()).throw(KeyboardInterrupt) if p.metrics.get("iteration") == 3 else None  # noqa: E731
    learn.train("hover", tmp_path / "whole", teacher=teacher, **about)
    with pytest.raises(KeyboardInterrupt):
        learn.train("hover", tmp_path / "cut", teacher=teacher, watch=stop, **about)
    learn.resume(tmp_path / "cut", save_every=0)
    one, two = (export.load_net(tmp_path / k) for k in ("whole", "cut"))
    assert export.weights_of(one) == export.weights_of(two)
    assert [t.name for t in one.contract.terms] == [t.name for t in tasks.resolve("hover").observations["actor"].terms]


def test_what_cannot_be_learned_from_is_refused(tmp_path, teacher):
    plain = learn.train("hover", tmp_path / "plain", settings=learn.settings_for("hover", SMALL))
    with pytest.raises(SurefootError, match="needs a teacher with an encoder of e, as --adapt rma trains one"):
        learn.train("hover", tmp_path / "a", teacher=plain, settings=LESSON)
    with pytest.raises(SurefootError, match="expected at least the teacher's 3, found 2"):
        learn.train(
            "hover", tmp_path / "b", teacher=teacher, settings=DistillSettings(**{**vars(LESSON), "history": 2})
        )
    with pytest.raises(SurefootError, match="the actor does not observe e"):
        learn.train("hover", tmp_path / "c", settings=learn.settings_for("hover", {**SMALL, "encoder": "e"}))


@pytest.mark.parametrize("adapt", ["rma", "dagger"])
def test_one_flag_trains_teacher_and_student_and_the_student_can_be_judged_and_exported(tmp_path, capsys, adapt):
    small = ["--envs", "32", "--horizon", "8", "--steps", "512", "--hidden", "16", "--minibatches", "2"]
    lesson = ["--student.envs", "32", "--student.steps", "1024", "--student.history", "10", "--student.encoder", "gru"]
    out = str(tmp_path / "r")
    assert main(["train", "hover", "--adapt", adapt, "--out", out, *small, *lesson, "--json"]) == 0
    run = json.loads(capsys.readouterr().out.splitlines()[-1])["run"]
    assert run == str(tmp_path / "r" / "student")
    assert main(["eval", run, "--episodes", "4"]) == 0
    assert main(["export", run]) == 0


def test_ranges_of_a_teacher_grow_and_its_student_learns_over_what_they_reached(tmp_path):
    small = ["--envs", "32", "--horizon", "8", "--steps", "512", "--hidden", "16", "--minibatches", "2"]
    lesson = ["--student.envs", "32", "--student.steps", "256", "--student.history", "6"]
    asked = ["train", "hover", "--adapt", "rma", "--ranges", "adr", *small, *lesson, "--out", str(tmp_path / "r")]
    assert main(asked) == 0
    task, teacher = tasks.resolve("hover"), tmp_path / "r" / "teacher"
    reached = trained_over(teacher, task)
    assert np.allclose([reached.low, reached.high], task.params.nominal), "512 steps are no whole episode: not grown"
    about = json.loads((tmp_path / "r" / "student" / "run.json").read_text())
    assert about["belief"] == reached.to_json() == Belief.read(teacher / "reached.json").to_json()
    assert json.loads((teacher / "run.json").read_text())["belief"] == task.belief.to_json(), "the target"


def test_what_a_student_is_told_is_scaled_alike_on_both_sides(tmp_path):
    """A walker's teacher that is not told its last action: the student's mean of it is that of both sides together."""
    told = tuple(t.name for t in tasks.resolve("walk").observations["actor"].terms if t.name != "last_action")
    settings = learn.settings_for("walk", {**SMALL, "steps": 256})
    teacher = export.load_net(
        learn.train("walk", tmp_path / "t", settings=settings, obs=tasks.ObsOverride(only=(*told, "e")))
    )
    task = classroom(tasks.resolve("walk"), teacher, 6)
    student = Distill(
        tasks.env(task, 8, task.belief, 0), DistillSettings(**{**vars(LESSON), "label": "action"}), 0, teacher
    )
    mirror = task.symmetry.of(task.observations["actor"])
    at = task.observations["actor"].columns[[t.name for t in task.observations["actor"].terms].index("last_action")]
    assert np.ptp(student.mean[at]) > 0
    assert np.allclose(student.mean, mirror.obs_sign * student.mean[mirror.obs_order], atol=1e-7)
    assert np.array_equal(student.sd, student.sd[mirror.obs_order])


def test_what_is_logged_of_a_lesson_is_of_the_student_not_of_its_teacher(teacher):
    """hover's students fall within a second: all episodes that end while the teacher drives everywhere go unreported."""
    counts = {mix: 0 for mix in (0.0, 1.0)}
    for mix in counts:
        a = apprentice(teacher, label="action", mix=mix, mix_until=1.0, noise=3.0, horizon=64)
        for _ in range(4):
            counts[mix] += a.iterate()["episodes"]
    assert counts[0.0] > 0 and counts[1.0] == 0


def test_a_sensor_may_be_the_teachers_alone_though_an_unknown_moves_what_it_tells():
    """walk believes in a bias of its gyro; told without one, that bias moves nothing."""
    walk = tasks.resolve("walk")
    blind = tasks.with_actor_terms(walk, ["projected_gravity", "joint_pos"], 1)
    env = tasks.env(blind, 2, walk.belief, seed=1)
    assert np.isfinite(env.reset()["actor"]).all() and not env.observer.sensor_errors.bias
    nobody = replace(blind, observations={"actor": blind.observations["actor"], "critic": blind.observations["actor"]})
    with pytest.raises(SurefootError, match="param gyro_bias: no observation term matches 'base_ang_vel'"):
        tasks.env(nobody, 2)


@pytest.mark.parametrize(
    "words, said",
    [
        ("balance-discrete --adapt dagger", "balance-discrete has discrete actions"),
        ("hover --adapt rma --student.latent 17", "with --adapt rma the student has the teacher's sizes"),
        ("hover --latent 99", "only with --encoder or --adapt rma"),
        ("balance --encoder conv", "reads a history, found 1 frame"),
        ("balance --gamma 3", "gamma: expected 0 to 1, found 3"),
        ("balance --settle 5", "settle: expected 0 to 1, found 5"),
        ("balance --lr 0", "lr: expected more than 0"),
        ("balance --clip-gradient 0", "clip_gradient: expected more than 0"),
    ],
)
def test_what_would_be_ignored_or_fail_in_an_hour_is_refused_at_once(words, said, tmp_path, capsys):
    assert main(["train", *words.split(), "--out", str(tmp_path / "r")]) == 2
    assert said in " ".join(capsys.readouterr().err.split()) and not (tmp_path / "r").exists()


def test_a_folder_of_two_runs_names_them_and_a_teachers_export_says_no_robot_can_run_it(teacher, tmp_path, capsys):
    folder = teacher.parent.parent
    assert main(["eval", str(folder)]) == 2
    assert f"{folder}/t: name one of them" in capsys.readouterr().err
    assert main(["export", str(teacher), "--out", str(tmp_path / "t.onnx")]) == 0
    assert "no robot can run it: it observes e, which no sensor measures" in " ".join(capsys.readouterr().out.split())


def test_a_policy_judged_with_the_seed_of_its_training_is_told_of(tmp_path, capsys):
    run = str(tmp_path / "r")
    assert (
        main(["train", "balance", "--seed", "1", "--envs", "8", "--horizon", "8", "--steps", "64", "--out", run]) == 0
    )
    capsys.readouterr()
    for seed, told in (("1", True), ("2", False)):
        assert main(["eval", run, "--episodes", "2", "--seed", seed]) == 0
        assert ("it has seen some of these episodes" in " ".join(capsys.readouterr().out.split())) == told
