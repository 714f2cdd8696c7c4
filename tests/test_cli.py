"""The door as a person and a machine use it."""

import html
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from surefoot import tasks
from surefoot.cli import _parse, main
from surefoot.deploy import bundle
from surefoot.onnx_file.runtime import runtime
from surefoot.verbs import VERBS

SMALL = ["--envs", "32", "--horizon", "8", "--steps", "1024", "--hidden", "16", "--minibatches", "2"]


def said(capsys, *args, code=0):
    assert main([str(a) for a in args]) in ((0, 1) if code is None else (code,))
    return capsys.readouterr()


def facts(capsys, *args, code=0):
    return json.loads(said(capsys, *args, "--json", code=code).out)


def test_help_teaches_every_verb(capsys):
    text = said(capsys, "--help").out
    assert all(verb in text for verb in VERBS) and "surefoot cross hover" in text
    for verb in VERBS:
        with pytest.raises(SystemExit) as left:
            main([verb, "--help"])
        assert left.value.code == 0
    text = capsys.readouterr().out
    assert "seed of the hidden reality" in text


def test_train_help_shows_the_tasks_own_settings(capsys):
    with pytest.raises(SystemExit):
        main(["train", "walk", "--help"])
    text = capsys.readouterr().out
    assert (
        "--envs" in text and str(tasks.resolve("walk").settings["envs"]) in text and "simulations side by side" in text
    )


def test_a_verb_that_does_not_learn_does_not_wait_for_torch():
    script = (
        "import sys, surefoot.cli as door; door.main(['--help']); door.main(['tasks']); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"


def test_tasks_and_try_answer_in_facts(capsys):
    assert [t["name"] for t in facts(capsys, "tasks")["tasks"]] == list(tasks.names())
    tried = facts(capsys, "try", "balance", "--policy", "random", "--episodes", "16")
    assert tried["episodes"] == 16 and 0 <= tried["success_low"] <= tried["success"] <= tried["success_high"] <= 1


def test_look_prints_the_card_the_unknowns_and_the_next_command(capsys):
    text = said(capsys, "look", "balance").out
    assert "cart_mass" in text and "m/s^2" in text and "next: surefoot try balance" in text
    card = facts(capsys, "look", "hover")
    assert card["mass"] == pytest.approx(0.027) and not card["idle"] and min(card["effects"].values()) > 1e-9


LIMITED = """<mujoco><worldbody>{}</worldbody><actuator>
  <motor name="first_actuator_with_a_long_name" joint="shoulder_of_the_left_front_leg" gear="2" ctrlrange="-3 3"/>
  <position name="second" joint="elbow_of_the_left_front_leg_joint" kp="9"/><position name="third" joint="c" forcerange="-4 4"/>
  <motor name="fourth" joint="d"/></actuator></mujoco>"""


def test_look_reads_force_limits_wherever_the_model_has_them_and_cuts_no_name(capsys, tmp_path, monkeypatch):
    """2 x 3 N m by gear and ctrlrange; 5 by actuatorfrcrange; 4 by forcerange; none."""
    monkeypatch.setenv("COLUMNS", "80")
    names = ["shoulder_of_the_left_front_leg", "elbow_of_the_left_front_leg_joint", "c", "d"]
    body = '<body><joint name="{}" axis="0 1 0" {}/><geom size=".1" mass="1"/></body>'
    joints = "".join(body.format(n, 'actuatorfrcrange="-5 5"' if n.startswith("elbow") else "") for n in names)
    path = tmp_path / "arm.xml"
    path.write_text(LIMITED.format(joints))
    found = facts(capsys, "look", str(path), "--audit", "False")["actuators"]
    assert [(a["force_limit"], a["force_limit_from"]) for a in found] == [(6, "ctrlrange"), (5, "actuatorfrcrange"), (4, "forcerange"), (None, None)]  # fmt: skip
    text = said(capsys, "look", str(path), "--audit", "False").out.split("e: what the model")[0]
    assert all(text.count(n) == 2 for n in names[:2]) and "first_actuator_with_a_long_name" in text


def test_look_says_when_an_unknown_of_a_model_file_does_nothing(capsys, tmp_path):
    """A lone ball in empty space: its friction can change nothing, and look says so."""
    path = tmp_path / "ball.xml"
    path.write_text(
        '<mujoco><worldbody><body name="ball"><freejoint name="f"/><geom name="ball" size=".1"/></body></worldbody></mujoco>'
    )
    assert "friction" in facts(capsys, "look", path)["idle"]


def test_train_resume_eval_export_and_film(capsys, tmp_path):
    run = tmp_path / "run"
    trained = facts(capsys, "train", "balance", "--out", run, "--seed", "3", *SMALL)
    assert trained["run"] == str(run) and (run / "policy.safetensors").exists() and (run / "policy.onnx").exists()
    assert list(run.glob("events.*")) and len((run / "metrics.jsonl").read_text().splitlines()) == 4
    again = facts(capsys, "train", "--resume", run)
    assert again["sha256"] == trained["sha256"]
    score = facts(capsys, "eval", run, "--episodes", "20", "--belief", "nominal")
    assert score["task"] == "balance" and score["episodes"] == 20 and score["success_high"] > score["success_low"]
    exported = facts(capsys, "export", run)
    assert Path(exported["onnx"]).exists() and exported["largest_difference"] < 1e-4
    film = facts(capsys, "play", run, "--record", tmp_path / "film.gif", "--seconds", "0.2")
    assert Path(film["film"]).read_bytes()[:3] == b"GIF"


def test_a_belief_from_a_file_is_used(capsys, tmp_path):
    task = tasks.resolve("balance")
    path = tmp_path / "belief.json"
    path.write_text(json.dumps(task.belief.to_json()))
    assert facts(capsys, "try", "balance", "--belief", path, "--episodes", "4") == facts(
        capsys, "try", "balance", "--episodes", "4"
    )
    hover = tmp_path / "hover.json"
    hover.write_text(json.dumps(tasks.resolve("hover").belief.to_json()))
    assert "balance has no unknown with this address" in said(capsys, "try", "balance", "--belief", hover, code=2).err


@pytest.mark.parametrize(
    "args, words",
    [
        (
            ["tain"],
            "no verb matches 'tain'; there are new, tasks, look, presets, try, motion, retarget, plan, train, clone, tune, runs, ...; did you mean train?",
        ),
        (["look", "hovr"], "neither a file nor a task; did you mean hover?"),
        (["try", "hovr"], "no task matches 'hovr'"),
        (["train", "hovr"], "no task matches 'hovr'"),
        (
            ["train"],
            "train: expected a task, a task file such as `surefoot new` writes, or --resume and a run's folder; tasks are arm, balance, balance-discrete, balance-camera",
        ),
        (
            ["try", "hover", "--policy", "zeor"],
            "--policy: no policy matches 'zeor'; there are zero, random; did you mean zero?",
        ),
        (["try", "hover", "--episodes", "0"], "--episodes: expected at least 1, found 0"),
        (["try", "hover", "--belief", "nominel"], "--belief: no belief matches 'nominel'"),
        (["eval", "/nowhere"], "/nowhere: no policy here"),
        (["export", "/nowhere"], "/nowhere: no policy here"),
        (["train", "--resume", "/nowhere"], "/nowhere: no run here: run.json is missing"),
        (["train", "--resume", "/nowhere", "--lr", "0.1"], "--resume: a run keeps its task, seed, belief and settings"),
        (["train", "robot.xml"], "robot.xml: a robot's model, expected a task: surefoot new KIND robot.xml writes one"),
        (
            ["play", "balance", "--record", "/dev/null/film.gif"],
            "--record: /dev/null/film.gif: expected a folder that can be",
        ),
        (["train", "balance", "--minibatches", "7"], "minibatches: 7 does not divide"),
        (["cross", "hovr"], "no task matches 'hovr'"),
    ],
)
def test_mistakes_are_named_with_the_nearest_right_word_and_no_traceback(capsys, args, words):
    text = said(capsys, *args, code=2).err
    assert words in text and "Traceback" not in text


def test_errors_are_json_too_when_asked(capsys):
    assert "did you mean hover" in json.loads(said(capsys, "try", "hovr", "--json", code=2).out)["error"]


def test_cross_tells_the_story_and_leaves_a_page_that_needs_nothing_else(capsys, tmp_path):
    """One training is no crossing: it ends when the time of the robot is spent, and says so."""
    asked = [
        "cross",
        "balance",
        "--out",
        tmp_path / "c",
        "--steps",
        "20000",
        "--reality",
        "1",
        "--episodes",
        "20",
        "--budget",
        "16 s of robot",
    ]
    story = facts(capsys, *asked, code=None)
    page = (tmp_path / "c" / "report.html").read_text()
    assert [s["name"] for s in story["stages"]] == ["train", "gate", "robot"]
    assert 6.0 <= story["robot_seconds"] <= 16.0  # short falls until the log is long enough
    assert story["crossed"] is False and "s of robot" in story["why"] and story["after"]["n"] == 20
    assert "http://" not in page and "https://" not in page and "data:image/gif;base64," in page
    assert "What the robot was" in page and html.escape(story["verdict"]) in page
    again = facts(capsys, *asked, code=None)
    assert again["stages"] == story["stages"]  # nothing is done twice
    assert "another episodes: 20, not 30" in said(capsys, *asked[:8], "--episodes", "30", code=2).err


def test_ranges_can_grow_and_bad_ones_are_refused(tmp_path, capsys):
    found = facts(
        capsys, "train", "balance", "--out", str(tmp_path / "a"), "--ranges", "adr", "--adr.step", "0.5", *SMALL
    )
    assert 0 <= found["metrics"]["width"] <= 1
    assert json.loads((tmp_path / "a" / "run.json").read_text())["ranges"]["step"] == 0.5
    assert (
        main(["train", "balance", "--out", str(tmp_path / "b"), "--ranges", "adr", "--belief", "nominal", *SMALL]) == 2
    )
    assert "expected a box with some width, found no width" in capsys.readouterr().err


def test_an_actor_may_be_told_more_and_its_policy_is_judged_with_what_it_was_told(tmp_path, capsys):
    run = tmp_path / "teacher"
    said(capsys, "train", "balance", "--out", run, "--obs.history", "3", "--obs.also", "e", *SMALL)
    contract = bundle.load(run).contract
    assert contract.history == 3 and [t.name for t in contract.terms] == ["cart_pole", "e"]
    assert facts(capsys, "eval", run, "--episodes", "4")["episodes"] == 4
    assert "did you mean" in said(capsys, "train", "walk", "--obs.also", "base_lin_vell", *SMALL, code=2).err
    said(capsys, "train", "balance", "--out", tmp_path / "blind", "--obs.critic", "actor", *SMALL)
    assert "actor" == json.loads((tmp_path / "blind" / "run.json").read_text())["obs"]["critic"]


TINY = ["--student.steps", "128", "--student.envs", "8", "--student.horizon", "4", "--student.history", "5"]


@pytest.mark.parametrize("args, made", [
    (["--obs.history", "5"], "r"),
    (["--obs.history", "5", "--encoder", "conv"], "r"),
    (["--obs.history", "5", "--encoder", "gru"], "r"),
    (["--adapt", "rma", *TINY], "r/teacher"),
    (["--adapt", "rma", *TINY], "r/student"),
    (["--adapt", "dagger", *TINY], "r/student"),
])  # fmt: skip
def test_a_mirror_image_of_what_is_told_gives_the_mirror_image_of_the_action(args, made, tmp_path, capsys):
    """walk's actor is symmetric with five frames as with one, told e, and where it works out e; so is what is exported."""
    said(capsys, "train", "walk", "--out", tmp_path / "r", *args, *SMALL)
    policy, task = bundle.load(tmp_path / made), tasks.resolve("walk")
    m = task.symmetry.of(tasks.for_contract(task, policy.contract).observations["actor"])
    obs = np.random.default_rng(0).standard_normal((7, policy.contract.obs_dim)).astype(np.float32)
    turned = (obs[:, m.obs_order] * m.obs_sign).astype(np.float32)
    straight, flipped = (policy(x) for x in (obs, turned))
    assert np.abs(straight).max() > 0 and np.allclose(flipped, straight[:, m.action_order] * m.action_sign, atol=1e-6)
    said(capsys, "export", tmp_path / made, "--out", tmp_path / "policy.onnx")
    exported = runtime().InferenceSession(tmp_path / "policy.onnx").run(None, {"obs": obs})[0]
    assert np.allclose(exported, straight, atol=1e-5)


@pytest.mark.parametrize("args", [["--out", "walk", "hover"], ["hover", "--out", "walk"], ["--no-symmetric", "hover"]])
def test_settings_are_those_tuned_for_the_task_whatever_else_is_called_like_one(args):
    found = _parse(["train", *args])
    assert found.task == "hover" and found.settings.envs == tasks.resolve("hover").settings["envs"]


def test_a_run_in_a_folder_called_like_a_task_can_be_resumed():
    found = _parse(["train", "--resume", "walk"])
    assert found.task == "" and found.settings == type(found.settings)()


@pytest.mark.parametrize(
    "args, words",
    [
        (["--envs", "0"], "envs: expected at least 1, found 0"),
        (["--lr", "nan"], "lr: expected a finite number"),
        (["--hidden", "0"], "hidden: expected widths of at least 1"),
        (["--encoder", "e"], "the actor does not observe e"),
        (["--obs.also", "foo"], "no observation term matches 'foo'"),
        (["--obs.history", "-3"], "history: expected 1 to 4096 frames, found -3"),
        (["--student.history", "5"], "only with --adapt"),
        (["--teacher", "nowhere"], "only with --adapt"),
        (["--adr.step", "0.3"], "--adr.*: only with --ranges adr"),
        (["--adapt", "dagger", "--obs.only", "cart_pole"], "name those of its student by --student.only"),
        (["--adapt", "dagger", "--student.only", "cart_poll"], "did you mean cart_pole"),
        (["--adapt", "rma", "--student.only", "cart_pole"], "keeps the teacher's terms"),
        (["--through", "nominal", "tsk"], "--through: no belief matches 'tsk'"),
        (["--belief", "falcon-g2"], "did you mean falcon-g1"),
        (["--belief", "."], "found a folder, expected a file"),
        (["--adapt", "rma", "--student.history", "1", "--obs.history", "4"], "at least the teacher's 4, found 1"),
        (["--through", "nominal", "--adapt", "rma"], "--adapt do not go with it"),
        (["--adapt", "rma", "--teacher", "nowhere"], "--teacher: that one is trained already"),
        (["--adapt", "rma", "--obs.also", "e"], "--obs.also and --encoder do not go with it"),
        (["--adapt", "dagger", "--obs.trial", "2"], "not supported with --adapt yet"),
        (["--ranges", "adr", "--obs.trial", "2"], "expected 1 episode a world"),
        (["--start", "nowhere"], "no run here"),
    ],
)
def test_what_cannot_be_trained_is_refused_at_once_and_leaves_the_folder_free(tmp_path, capsys, args, words):
    out = tmp_path / "r"
    assert words in said(capsys, "train", "balance", "--out", out, *SMALL[:-4], *args, code=2).err
    assert not out.exists()


def test_one_folder_does_not_hold_two_different_lessons(tmp_path, capsys):
    lesson = ["--adapt", "rma", "--student.envs", "32", "--student.history", "4", "--student.steps", "512"]
    said(capsys, "train", "balance", "--out", tmp_path / "r", *SMALL, *lesson)
    said(capsys, "train", "balance", "--out", tmp_path / "r", *SMALL, *lesson)
    other = said(capsys, "train", "balance", "--out", tmp_path / "r", *SMALL, *lesson[:-1], "1024", code=2)
    assert "a run with other settings is here already (steps: 512, not 1024)" in other.err
    other = said(capsys, "train", "balance", "--out", tmp_path / "r", *SMALL, *lesson, "--belief", "nominal", code=2)
    assert "r/teacher: a run with other belief is here already" in other.err
    stages = ["train", "balance", "--out", tmp_path / "s", *SMALL, "--through", "nominal", "task"]
    said(capsys, *stages)
    said(capsys, *stages)
    assert "s/stage1: a run with other seed" in said(capsys, *stages, "--seed", "9", code=2).err
    assert "s/stage1: a run with other belief" in said(capsys, *stages[:-2], "task", "nominal", code=2).err


def test_a_lesson_that_cannot_begin_leaves_no_folder_at_all(tmp_path, capsys):
    """The teacher has no encoder of e: found out when its student would begin, two folders down."""
    said(capsys, "train", "balance", "--out", tmp_path / "plain", *SMALL)
    lesson = ["--adapt", "rma", "--teacher", tmp_path / "plain", "--out", tmp_path / "deep" / "r"]
    assert "needs a teacher with an encoder of e" in said(capsys, "train", "balance", *lesson, code=2).err
    assert not (tmp_path / "deep").exists()


def test_runs_and_policies_of_another_task_are_named_as_such(tmp_path, capsys):
    said(capsys, "train", "balance", "--out", tmp_path / "b", *SMALL)
    said(capsys, "train", "arm", "--out", tmp_path / "a", *SMALL)
    asked = ["sweep", tmp_path / "a", tmp_path / "b", "--over", "pull", "--points", "2", "--episodes", "2"]
    assert f"{tmp_path / 'b'}: a policy of balance, expected one that fits arm" in said(capsys, *asked, code=2).err
    start = ["train", "arm", "--out", tmp_path / "c", "--start", tmp_path / "b", *SMALL]
    assert f"{tmp_path / 'b'}, a run of balance: its actor observes cart_pole" in said(capsys, *start, code=2).err


def test_policies_that_are_told_different_things_can_be_swept_together(tmp_path, capsys):
    said(capsys, "train", "balance", "--out", tmp_path / "a", *SMALL)
    said(capsys, "train", "balance", "--out", tmp_path / "b", "--obs.history", "4", "--obs.also", "e", *SMALL)
    args = ["--over", "cart_mass", "--points", "2", "--episodes", "3"]
    assert len(facts(capsys, "sweep", tmp_path / "a", tmp_path / "b", *args)["policies"]) == 2


def test_a_defect_has_an_exit_code_of_its_own_and_no_traceback_unless_asked(capsys, monkeypatch):
    from surefoot.verbs.model.tasks import Tasks

    monkeypatch.setattr(Tasks, "run", lambda self, say: 1 / 0)
    assert main(["tasks"]) == 70
    text = capsys.readouterr().err
    assert "ZeroDivisionError" in text and "internal error" in text and "Traceback" not in text
    assert main(["tasks", "--json"]) == 70
    assert "ZeroDivisionError" in json.loads(capsys.readouterr().out)["error"]
    with pytest.raises(ZeroDivisionError):
        main(["tasks", "--traceback"])


def test_words_that_cannot_be_parsed_are_an_error_in_json_too(capsys):
    with pytest.raises(SystemExit):
        main(["sweep", "--points", "many", "--json"])
    assert "error" in json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("args", [["tasks"], ["tasks", "--json"], ["train", "hover", "--help"], []])
def test_a_reader_that_has_gone_ends_a_command_without_a_word(args):
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as gone:
        done = subprocess.run([sys.executable, "-m", "surefoot", *args], stdout=gone, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("more", [[], ["--json"]])
def test_an_answer_that_cannot_be_written_is_an_error(more):
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-m", "surefoot", "tasks", *more], stdout=full, stderr=subprocess.PIPE, text=True)  # fmt: skip
    assert done.returncode == 2 and "No space left" in done.stderr and "Traceback" not in done.stderr
