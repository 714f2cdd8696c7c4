"""A task by name, file or module: found where the user points, never where a policy does."""

from dataclasses import replace

import pytest

from surefoot import tasks
from surefoot.errors import SurefootError, TaskCodeError
from surefoot.tasks.rollout import contract

FILE = """
from dataclasses import replace
from surefoot import tasks
from surefoot.task import Task
from neighbour import SECONDS

def short() -> Task:
    return replace(tasks.named("balance"), name="short", seconds=SECONDS)
"""


@pytest.fixture
def file(tmp_path):
    (tmp_path / "neighbour.py").write_text("SECONDS = 2.0\n")
    path = tmp_path / "mine.py"
    path.write_text(FILE)
    return path


def test_a_task_is_found_by_name_file_function_and_module(file, monkeypatch):
    for reference in ("balance", str(file), f"{file}:short", "surefoot.tasks.ready.balance:balance"):
        assert tasks.is_reference(reference) and tasks.resolve(reference).tolerance == tasks.named("balance").tolerance
    assert tasks.resolve(str(file)).seconds == 2.0
    monkeypatch.chdir(file.parent)
    assert tasks.resolve("mine.py:short").name == "short"
    assert not any(tasks.is_reference(x) for x in ("robot.xml", "runs/hover", "balanc", "a b:c", "log.npz"))


def test_a_file_that_is_changed_is_read_again(file):
    assert tasks.resolve(str(file)).seconds == 2.0
    file.write_text(FILE.replace("seconds=SECONDS", "seconds=3.0"))
    assert tasks.resolve(str(file)).seconds == 3.0


def test_what_cannot_be_found_is_said_with_the_nearest(file):
    for reference, said in (
        ("hoover", "no task matches 'hoover'; there are arm, .*did you mean hover"),
        (str(file.parent / "mien.py"), "mien.py: no such file; expected a task file; did you mean mine.py"),
        (f"{file}:shrot", "no function matches 'shrot'.*did you mean short"),
        ("surefoot.nowhere:x", "no module surefoot.nowhere"),
        ("surefoot.tasks.ready.balance:XML", "expected a function that returns a Task|'str' object is not callable"),
    ):
        with pytest.raises(SurefootError, match=said):
            tasks.resolve(reference)


def test_a_file_with_several_tasks_asks_which(file):
    file.write_text(FILE + "\ndef other() -> Task:\n    return short()\n")
    with pytest.raises(SurefootError, match="found short, other; name it"):
        tasks.resolve(str(file))
    assert tasks.resolve(f"{file}:other").name == "short"


@pytest.mark.parametrize(
    "code, said",
    [
        ("x = = 1", r"SyntaxError.*\n.*mine.py, line 1: x = = 1"),
        ("import surefoot\n1 / 0", r"ZeroDivisionError: division by zero\n.*mine.py, line 2: 1 / 0"),
        ("def task():\n    return {}['kp']", r"KeyError: 'kp'\n.*mine.py, line 2: return {}\['kp'\]"),
        (
            "def task():\n    return 3",
            r"mine.py \(mine.py, line 1\): expected a function that returns a Task, found int",
        ),
    ],
)
def test_an_error_in_the_users_file_shows_the_users_line(file, code, said):
    file.write_text(code)
    with pytest.raises(SurefootError, match=said) as caught:
        tasks.resolve(str(file))
    assert isinstance(caught.value, TaskCodeError) or "found int" in str(caught.value)


def test_a_policy_that_names_a_file_does_not_have_it_imported(file):
    """A stranger's policy may name any file or module: the user has to."""
    canary = file.parent / "ran"
    file.write_text(f"open({str(canary)!r}, 'w').close()\n" + FILE)
    task = tasks.named("balance")
    plain = contract(task, tasks.env(task, 1).world)
    for name in (str(file), f"{file}:short", "this:x", "os:getcwd"):
        with pytest.raises(SurefootError, match="name that task yourself: --task"):
            tasks.of(replace(plain, task=name))
    assert not canary.exists()
    assert tasks.of(replace(plain, task=str(file)), f"{file}:short").name == "short" and canary.exists()


def test_a_package_that_is_installed_may_add_tasks(monkeypatch):
    class Entry:
        name = "theirs"

        def load(self):
            return lambda: replace(tasks.named("arm"), name="theirs")

    monkeypatch.setattr("surefoot.tasks.registry.entry_points", lambda group: [Entry()])
    assert tasks.names()[-1] == "theirs" and tasks.resolve("theirs").name == "theirs" and tasks.is_reference("theirs")


def test_a_file_is_trained_and_the_command_printed_next_finds_it_again(file, tmp_path, capsys, monkeypatch):
    import shlex

    from surefoot.cli import main

    monkeypatch.chdir(file.parent)
    small = ["--envs", "8", "--horizon", "8", "--steps", "128", "--hidden", "8", "--learner-threads", "1"]
    assert main(["train", "mine.py", *small, "--out", "r"]) == 0
    for _ in range(2):  # eval, and what eval says is next
        step = capsys.readouterr().out.strip().splitlines()[-1].removeprefix("next: surefoot ")
        assert "--task" not in step  # it is found by the hash of its text
        if step.startswith("eval"):
            assert main([*shlex.split(step), "--episodes", "4"]) == 0
    assert main(["export", "r"]) == 0
    assert capsys.readouterr().out.strip().splitlines()[-1] == "next: surefoot gate r"
