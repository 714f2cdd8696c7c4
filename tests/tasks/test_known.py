"""Task files that a user trained with are found again by their text; nobody else's are."""

from dataclasses import replace
from pathlib import Path

from surefoot import tasks
from surefoot.cli import main
from surefoot.files import sha256
from surefoot.tasks.known import recall, remember, task_flag
from surefoot.tasks.rollout import contract

FILE = """from dataclasses import replace
from surefoot import tasks
from surefoot.task import Task

def task() -> Task:
    return replace(tasks.resolve("balance"), name="mine")
"""
TINY = "--envs 4 --horizon 4 --hidden 4 --minibatches 1 --steps 16 --learner-threads 1 --threads 1".split()


def test_a_run_finds_the_file_it_was_trained_with_until_that_changes(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(FILE)
    assert main(["train", "mine.py", "--out", "run", *TINY]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "next: surefoot eval run"
    monkeypatch.chdir(tmp_path.parent)
    run = str(tmp_path / "run")
    assert main(["eval", run, "--episodes", "2"]) == 0
    (tmp_path / "mine.py").write_text(FILE + "# another line\n")
    capsys.readouterr()
    assert main(["eval", run, "--episodes", "2"]) == 2
    file = tmp_path / "mine.py"
    assert f"{file} has changed since training; name that task yourself: --task {file}" in capsys.readouterr().err
    file.unlink()
    assert main(["eval", run, "--episodes", "2"]) == 2
    assert f"{file} is not there any more; name that task yourself: --task FILE.py" in capsys.readouterr().err


def test_a_strangers_run_imports_nothing_though_its_file_lies_beside_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(FILE)
    assert main(["train", "mine.py", "--out", "run", *TINY]) == 0
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another user"))
    assert main(["eval", "run", "--episodes", "2"]) == 2
    assert "name that task yourself: --task" in capsys.readouterr().err


def test_only_files_are_listed_and_a_broken_list_is_begun_anew(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    known, path = tmp_path / "surefoot" / "tasks.json", tmp_path / "t.py"
    path.write_text("x = 1\n")
    remember("balance", "12")
    assert not known.exists()
    own = sha256(b"x = 1\n")
    remember(f"{path}:f", own)
    assert recall({"task": own}) == f"{path}:f" and recall({"task": "34"}) is None
    path.write_bytes(b"x = 1\r\n")  # the same text for another system
    assert recall({"task": own}) == f"{path}:f"
    known.write_text("not JSON")
    assert recall({"task": own}) is None
    remember(str(path), own)
    assert recall({"task": own}) == str(path)


def test_the_next_command_names_a_task_only_where_it_is_not_found_by_itself(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(FILE)
    own = sha256(FILE.encode())
    remember("mine.py", own)
    mine = replace(contract(tasks.resolve("balance"), tasks.env(tasks.resolve("balance"), 1).world), task="mine")
    known, other = replace(mine, parents={"task": own}), replace(mine, parents={"task": "12"})
    assert task_flag("mine.py", known) == task_flag(str(tmp_path / "mine.py"), known) == task_flag("", known) == ""
    assert task_flag("mine.py", other) == task_flag("./mine.py", other).replace("./", "") == " --task mine.py"
    assert task_flag("mine.py:task", known) == " --task mine.py:task"
    balance = replace(mine, task="balance", parents={})
    assert task_flag("balance", balance) == "" and task_flag("balance-camera", balance) == " --task balance-camera"
