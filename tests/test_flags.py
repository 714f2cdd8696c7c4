"""Flags: one grammar for lists, help that begins with examples, settings from a file."""

import json
from dataclasses import MISSING
from shlex import split

import pytest

from surefoot import tasks
from surefoot.cli import _parse, main
from surefoot.cli.flags import flags, with_lists
from surefoot.verbs import GROUPS, VERBS, load
from surefoot.verbs.judge.gate import Gate
from surefoot.verbs.train.train import Train

SMALL = ["--envs", "16", "--horizon", "8", "--steps", "256", "--hidden", "8", "--minibatches", "2"]


@pytest.mark.parametrize("words", [
    "--hidden 64 32", "--hidden 64,32", "--hidden 64, 32", "--hidden 64 --hidden 32", "--hidden=64,32", "--hidden=64 --hidden=32",
])  # fmt: skip
def test_a_list_is_words_commas_or_its_flag_again(words):
    assert _parse(["train", "hover", *words.split()]).settings.hidden == (64, 32)
    assert _parse(["train", *words.split(), "--seed", "3", "hover"]).task == "hover"


@pytest.mark.parametrize("words, steps", [("--steps 1e5", 100_000), ("--steps=2.5E6", 2_500_000), ("--steps 7", 7)])
def test_a_whole_number_may_have_an_exponent(words, steps):
    assert _parse(["train", "hover", *words.split()]).settings.steps == steps


def test_what_is_no_whole_number_is_refused_as_it_was_written(capsys):
    assert main(["train", "hover", "--steps", "1e-5"]) == 2
    assert "--steps: expected a whole number, found 1e-5" in capsys.readouterr().err


def test_every_list_of_every_verb_follows_the_same_grammar():
    for name in VERBS:
        verb = load(name)
        for flag in (f for f in flags(verb) if f.many and not f.positional and f.commas and ... in _items(f)):
            wanted = ["A", f"--{flag.name}", "1", "2"]
            for form in (["A", f"--{flag.name}", "1,2"], [f"--{flag.name}", "1", f"--{flag.name}", "2"]):
                found = with_lists(verb, form)
                assert found[-3:] == wanted[-3:], (name, flag.name)


def _items(flag):
    return flag.kind.__args__


LISTED = [(name, f.name) for name in VERBS for f in flags(load(name)) if f.many and not f.positional]


@pytest.mark.parametrize("name, flag", LISTED)
def test_a_list_before_positional_arguments_leaves_them_theirs(name, flag):
    """`surefoot gate --in bullet RUN`: words, commas and the flag again, each before what the verb cannot do without."""
    verb, f = load(name), next(f for f in flags(load(name)) if f.name == flag)
    places = [p.name for p in flags(verb) if p.positional and (p.default is MISSING or p.name == "task")]
    item = "1" if f.kind.__args__[0] in (int, float) else "nominal" if flag == "through" else "a=1"
    items = [item] * (1 if ... in f.kind.__args__ else len(f.kind.__args__))
    given = ["hover"] * len(places)
    wanted = with_lists(verb, [*given, f"--{flag}", *items])
    assert with_lists(verb, [f"--{flag}", *items, *given]) == wanted
    assert with_lists(verb, [f"--{flag}", *items, "--seed", "3", *given]) == ["--seed", "3", *wanted]
    if f.commas:
        assert with_lists(verb, [f"--{flag}", ",".join(items), *given]) == wanted


def test_lists_that_could_each_have_swallowed_an_argument_say_what_to_write(capsys):
    assert main(["gate", "--in", "bullet", "mujoco", "--limit", "push=1", "latency=2"]) == 2
    assert "--in: a list takes every word after it, and POLICY is missing; write POLICY first: surefoot gate POLICY --in bullet" in capsys.readouterr().err  # fmt: skip
    assert main(["identify", "--learn", "kp", "robot.xml", "a.csv", "b.csv"]) == 2
    assert "write MODEL LOGS first: surefoot identify MODEL LOGS --learn kp" in capsys.readouterr().err
    gate = _parse(["gate", "--in", "mujoco", "bullet", "RUN", "--limit", "push=1"])
    assert str(gate.policy) == "RUN" and gate.engines == ("mujoco", "bullet") and gate.limit == ("push=1",)
    again = _parse(["train", "--range", "mass=0.9..1.1x", "latency=0..0.01", "--resume", "run"])
    assert again.task == "" and again.range == ("mass=0.9..1.1x", "latency=0..0.01")


def test_numbers_below_zero_and_paths_with_commas_survive():
    gate = _parse(["gate", "runs/a,b", "--command", "-0.5,0,1e-1", "--in", "mujoco,bullet", "--in", "mujoco:rk4"])
    assert gate.command == (-0.5, 0.0, 0.1) and gate.engines == ("mujoco", "bullet", "mujoco:rk4")
    assert str(gate.policy) == "runs/a,b"
    assert list(map(str, _parse(["eval", "r", "--terms", "one,two", "three"]).terms)) == ["one,two", "three"]


def test_lists_with_a_default_are_replaced_not_extended():
    assert _parse(["explore", "arm", "--learn", "pull"]).noise == ("joint_pos=0.002",)
    found = _parse(["explore", "arm", "--learn", "pull,kp", "--noise", "gyro=1"])
    assert found.noise == ("gyro=1",) and found.learn == ("pull", "kp")


@pytest.mark.parametrize("name", VERBS)
def test_help_of_each_verb_begins_with_two_examples_that_are_commands(name, capsys):
    with pytest.raises(SystemExit) as left:
        main([name, "--help"])
    shown = capsys.readouterr().out
    assert left.value.code == 0 and len(VERBS[name].examples) == 2
    lines = shown.splitlines()
    assert lines[0].startswith(f"surefoot {name}: ") and lines[2] == "examples"
    for words, line in zip(VERBS[name].examples, lines[3:5]):
        assert line.strip() == f"surefoot {name} {words}".strip()
        assert type(_parse([name, *(w for w in split(words) if w != "--json")])) is load(name)
    assert max(map(len, lines)) <= 120


@pytest.mark.parametrize("name", VERBS)
def test_help_all_says_every_flag_with_its_text_and_help_names_how_many_more(name, capsys):
    for flag in ("--help", "--help-all"):
        with pytest.raises(SystemExit):
            main([name, flag])
    brief, whole = capsys.readouterr().out.split(f"surefoot {name}: ")[1:]
    for f in flags(load(name)):
        assert f.about, f"{name}: {f.name} has no text"
        assert f.words in whole
    more = [f for f in flags(load(name)) if f.words not in brief]
    assert f"{len(more)} more: surefoot {name} --help-all" in brief if more else "--help-all" not in brief


def test_help_of_train_fits_a_screen_and_shows_what_people_use_first(capsys):
    with pytest.raises(SystemExit):
        main(["train", "hover", "--help"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) < 45 and "--student" not in "".join(lines) and any("--steps INT" in line for line in lines)
    assert any(f"(default: {tasks.resolve('hover').settings['envs']})" in line for line in lines)


def test_verbs_are_in_four_groups():
    assert list(GROUPS) == ["model", "train", "judge", "robot"] and len(VERBS) == sum(map(len, GROUPS.values()))


def written(tmp_path, text):
    path = tmp_path / "my.toml"
    path.write_text(text)
    return str(path)


def test_flags_win_over_a_settings_file_and_the_file_over_the_task(tmp_path):
    file = written(
        tmp_path,
        'steps = 5000\nlr = 1\nbelief = "nominal"\nsave-every = 0\n[obs]\nhistory = 4\n[range]\nmass = [0.9, 1.1]\nlatency = "0..0.02"\n',
    )
    found = _parse(["train", "hover", "--settings", file, "--lr", "0.5"])
    assert (found.settings.steps, found.settings.lr, found.belief, found.obs.history) == (5000, 0.5, "nominal", 4)
    assert found.range == ("mass=0.9..1.1", "latency=0..0.02") and found.save_every == 0.0
    assert found.settings.envs == tasks.resolve("hover").settings["envs"]
    assert (
        _parse(["train", "--settings", written(tmp_path, 'task = "hover"\n')]).settings
        == _parse(["train", "hover"]).settings
    )


@pytest.mark.parametrize("text, said", [
    ("stepz = 3", "my.toml: no setting matches 'stepz'; there are task"),
    ("stepz = 3", "did you mean steps?"),
    ("steps = 3.5", "my.toml: steps: expected a whole number, found 3.5"),
    ("hidden = 64", "my.toml: hidden: expected a list, found 64"),
    ("student = 3", "my.toml: student: expected a table [student], found 3"),
    ("[student]\nhistry = 3", "did you mean history?"),
    ("seed = 1979-05-27", "my.toml: seed: expected a whole number"),
    ("lr = -1", "my.toml: lr: expected a finite number >= 0"),
    ("ranges = 'adrr'", "my.toml: ranges: expected task, fixed, ramp, widen, adr, doraemon"),
    ("settings = 3", "no setting matches 'settings'"),
    ("steps = ", "my.toml: expected TOML: Invalid value"),
    ("task = 'evil.py'", "my.toml: task: found 'evil.py', expected one of arm, balance"),
    ("task = 'evil:task'", "which is code, on the command line"),
    ("wandb = 'theirs'", "my.toml: wandb: it sends metrics elsewhere"),
    ("save-every = 1\nsave_every = 2", "found twice, expected each setting once"),
    ("[obs]\nhistory = 1_000_000_000", "history: expected 1 to 4096 frames, found 1000000000"),
    ("steps = 1" + "0" * 5000, "my.toml: line 1: found 5009 characters, expected at most 1000"),
    ("seed = 0x" + "f" * 900, "seed: expected 0 to"),
    ("lr = 0x" + "f" * 900, "my.toml: lr: expected a number, found 5"),
    ("a" + ".a" * 500 + " = 1", "my.toml: line 1: found 1005 characters, expected at most 1000"),
    ("[range]\nmass = [1, 0x" + "f" * 900 + "]", "--range: mass: found 1..5"),
    ("horizon = 100_000_000_000", "my.toml: envs x horizon: expected at most 268435456"),
    ("learner_threads = 1_000_000", "my.toml: learner_threads: expected at most 1024"),
    ("threads = 1_000_000", "--threads: expected at most 1024, found 1000000"),
    ("judge_every = 1\njudge_episodes = 1_000_000_000", "judge.episodes: expected at most 1048576"),
    ("[range]\nmas = [1, 2]", "--range: no param matches 'mas'"),
])  # fmt: skip
def test_a_settings_file_is_refused_by_key_with_the_nearest_name(tmp_path, capsys, text, said):
    assert main(["train", "hover", "--settings", written(tmp_path, text), "--out", str(tmp_path / "r")]) == 2
    assert said in capsys.readouterr().err and not (tmp_path / "r").exists()


def test_a_settings_file_runs_no_code(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evil.py").write_text("open('pwned', 'w').close()\n")
    assert main(["train", "--settings", written(tmp_path, "task = 'evil.py'"), "--out", "r"]) == 2
    assert not (tmp_path / "pwned").exists()


def test_steps_that_are_no_whole_batches_say_what_is_run(tmp_path, capsys):
    """10 steps of balance: 16 simulations x 8 steps are one batch of 128."""
    small = ["--envs", "16", "--horizon", "8", "--steps", "10", "--hidden", "8", "--minibatches", "2"]
    assert main(["train", "balance", "--out", str(tmp_path / "a"), *small]) == 0
    assert "note: 10 steps are run as 128: whole batches of 16 simulations x 8 steps" in capsys.readouterr().out
    assert main(["train", "balance", "--out", str(tmp_path / "b"), *SMALL]) == 0
    assert "note:" not in capsys.readouterr().out


def test_steps_reach_the_student_in_proportion_unless_it_has_its_own(tmp_path, capsys):
    task = tasks.resolve("balance")
    few = task.settings["steps"] // 100
    teacher = ["--envs", "16", "--horizon", "8", "--steps", str(few), "--hidden", "8", "--minibatches", "2"]
    student = ["--adapt", "dagger", "--student.envs", "8", "--student.horizon", "5", "--student.history", "3"]
    assert main(["train", "balance", "--out", str(tmp_path / "a"), *teacher, *student]) == 0
    own = Train.tuned("balance").student.steps
    assert _steps(tmp_path / "a" / "student") == own // 100 and f"{own // 100} steps" in capsys.readouterr().out
    assert main(["train", "balance", "--out", str(tmp_path / "b"), *teacher, *student, "--student.steps", "80"]) == 0
    assert _steps(tmp_path / "b" / "student") == 80


def _steps(run):
    return json.loads((run / "run.json").read_text())["settings"]["steps"]


def test_gate_has_no_other_name_for_its_engines():
    assert "--in TEXT ..." in [f.words for f in flags(Gate)]
