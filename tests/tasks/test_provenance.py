"""What a policy was trained for is kept with it, and what has changed since is named."""

import json
from pathlib import Path

import pytest

from surefoot import files, tasks
from surefoot.cli import main
from surefoot.deploy import bundle
from surefoot.errors import SurefootError
from surefoot.gate.candidate import candidate
from surefoot.learn.train import resume, settings_for, train
from surefoot.sim.model.load import ENGINE, load_robot
from surefoot.tasks.provenance import Provenance, changes, changes_of_hashes, provenance
from surefoot.tasks.ready.balance import XML

FILE = '''
"""Balance, as a user writes it."""
from dataclasses import replace
from surefoot import tasks
from surefoot.robot import Robot
from surefoot.task import Reward, Task
import numpy as np


def lighter(spec):
    spec.body("cart").mass = 0.9


def pole() -> Task:
    return replace(
        tasks.named("balance"), name="pole", robot=Robot.file("pole.xml", beside=__file__).edited(lighter),
        rewards={"upright": Reward(1.0, lambda s: np.cos(s.q[:, 1]), "pole up")},
    )
'''
SMALL = {"envs": 8, "horizon": 4, "steps": 64, "hidden": (8,)}
EDITS = {
    "weight": (("Reward(1.0", "Reward(-1.0"), "the task pole.py has changed .*: weight of reward upright: -1.0, was 1.0$"),
    "code": (("np.cos", "np.sin"), r"the task pole.py has changed .*: line 17: rewards=\{.*np.sin.*, was rewards=\{.*np.cos"),
    "seconds": (('name="pole",', 'name="pole", seconds=3.0,'), "the task pole.py has changed .*: seconds: 3.0, was 10.0$"),
    "edit": (("0.9", "0.8"), "the task pole.py has changed .*: line 11: .*0.8, was .*0.9.*; the compiled model of pole.xml has changed"),
}  # fmt: skip


@pytest.fixture
def file(tmp_path) -> Path:
    (tmp_path / "pole.xml").write_text(XML)
    (tmp_path / "pole.py").write_text(FILE)
    return tmp_path / "pole.py"


def now(file) -> Provenance:
    return provenance(tasks.resolve(str(file)), str(file))


def edit(path: Path, old: str, new: str) -> None:
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


def test_text_model_and_compiled_model_are_kept(file):
    found = now(file)
    assert found.text == FILE and found.source == "pole.py" and found.engine == ENGINE
    assert found.text_hash == files.sha256(FILE.encode()) and found.files == {"pole.xml": files.sha256(XML.encode())}
    assert found.numbers["weight of reward upright"] == 1.0 and found.numbers["control rate, Hz"] == 50.0
    plain = load_robot(tasks.named("balance").robot)
    assert found.compiled_hash != plain.compiled_hash  # the cart is lighter
    assert Provenance.from_json(json.loads(json.dumps(found.to_json())), "run.json") == found
    assert changes(found, now(file)) == []


@pytest.mark.parametrize("how", EDITS)
def test_a_change_of_the_task_file_is_named(file, how):
    was, (words, said) = now(file), EDITS[how]
    edit(file, *words)
    found = "; ".join(changes(was, now(file)))
    with pytest.raises(SurefootError, match=said):
        raise SurefootError(found)
    assert all("pole" in words for words in changes_of_hashes(was.parents(), now(file)))


def test_a_change_of_the_model_is_named_by_its_file(file):
    was = now(file)
    edit(file.parent / "pole.xml", 'size=".04"', 'size=".05"')
    assert changes(was, now(file)) == ["the model pole.xml has changed since this policy was trained: pole.xml"]
    assert changes_of_hashes(was.parents(), now(file)) == [
        "the model pole.xml has changed since this policy was trained"
    ]


@pytest.mark.parametrize("name", ["balance", "balance-discrete", "walk-rough", "surefoot.tasks.ready.hover:hover"])
def test_a_task_by_name_has_the_text_of_its_module(name):
    found = provenance(tasks.resolve(name), name)
    module = {"balance-discrete": "balance", "walk-rough": "walk"}.get(name, name.rpartition(":")[2])
    assert found.source == f"surefoot.tasks.ready.{module}" and f"def {module}(" in found.text


@pytest.fixture
def run(file):
    """A run of a task file, stopped halfway."""
    out = file.parent / "run"
    asked = {**SMALL, "steps": 128}
    with pytest.raises(KeyboardInterrupt):
        train(str(file), out, settings=settings_for(str(file), asked), save_every=0, watch=halfway)
    return out


def halfway(progress):
    if progress.metrics and progress.metrics["iteration"] == 2:
        raise KeyboardInterrupt


def test_a_run_keeps_it_and_goes_on_only_with_the_same_task(file, run):
    about = json.loads((run / "run.json").read_text())
    assert about["provenance"]["text"] == FILE
    edit(file, "Reward(1.0", "Reward(-1.0")
    with pytest.raises(
        SurefootError, match="task pole.py has changed.*reward upright: -1.0, was 1.0; .*--allow-changes"
    ):
        resume(run, task=str(file))
    resume(run, task=str(file), allow_changes=True)
    row = json.loads((run / "run.json").read_text())["resumed"][-1]
    assert row["bit_exact"] is False and "weight of reward upright" in row["differs"][0]


def test_the_same_task_goes_on_bit_for_bit(file, run):
    resume(run, task=str(file))
    assert json.loads((run / "run.json").read_text())["resumed"][-1] == {
        "iteration": 2,
        "bit_exact": True,
        "differs": [],
    }


def test_eval_gate_and_export_say_what_has_changed(file, capsys):
    out = file.parent / "run"
    train(str(file), out, settings=settings_for(str(file), SMALL))
    parents = bundle.load(out).contract.parents
    assert {k: parents[k] for k in ("task", "model", "compiled")} == now(file).parents()
    asked = [["eval", str(out), "--task", str(file), "--episodes", "8"], ["export", str(out), "--task", str(file)]]
    for words in asked:
        assert main([*words, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["changed"] == []
    edit(file, "Reward(1.0", "Reward(-1.0")
    edit(file.parent / "pole.xml", 'size=".04"', 'size=".05"')
    for words in asked:
        assert main(words) == 0
        shown = " ".join(capsys.readouterr().out.split())
        assert "weight of reward upright: -1.0, was 1.0" in shown and "the model pole.xml has changed" in shown
    assert len(candidate(out, str(file)).notes) == 2
    alone = file.parent / "alone.onnx"
    alone.write_bytes((out / "policy.onnx").read_bytes())
    assert candidate(alone, str(file)).notes == (
        "the task pole.py has changed since this policy was trained", "the model pole.xml has changed since this policy was trained",
    )  # fmt: skip
    assert main(["export", str(out)]) == 2  # the limits of a bundle are those of the robot's model
    assert "name that task yourself: --task" in capsys.readouterr().err


def test_another_task_of_the_same_contract_is_no_change(tmp_path):
    train("balance", tmp_path / "run", settings=settings_for("balance", SMALL))
    assert candidate(tmp_path / "run").notes == () == candidate(tmp_path / "run", "balance").notes


@pytest.mark.parametrize("field, value", [("text", 5), ("files", []), ("numbers", "x"), ("engine", None), ("more", 1)])
def test_a_run_whose_provenance_is_of_another_type_is_refused_by_field(file, field, value):
    broken = now(file).to_json() | {field: value}
    with pytest.raises(SurefootError, match=f"run.json: provenance.*{field}"):
        Provenance.from_json(broken, "run.json: provenance")
