"""The public names: there, documented, typed, and quick to import."""

import inspect
import runpy
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import surefoot as sf
from surefoot.cli import main
from surefoot.gate.plan import Plan

ROOT = Path(__file__).parents[1]
MADE = runpy.run_path(str(ROOT / "docs" / "make_api.py"), run_name="made")


@pytest.mark.parametrize("name", sf.__all__)
def test_a_public_name_is_there_and_documented(name):
    thing = getattr(sf, name)
    assert inspect.isclass(thing) or callable(thing)
    assert inspect.getdoc(thing), f"{name} has no docstring"


def test_the_page_and_the_types_are_those_of_the_docstrings():
    assert (ROOT / "docs" / "api.md").read_text() == MADE["page"](), "run: python docs/make_api.py"
    assert (ROOT / "src" / "surefoot" / "__init__.pyi").read_text() == MADE["stub"](), "run: python docs/make_api.py"


def test_import_waits_for_nothing():
    script = "import sys, surefoot; print({'numpy', 'torch', 'mujoco'} & set(sys.modules), 'train' in dir(surefoot))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set() True"


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'trian'"):
        _ = sf.trian


SMALL = {"envs": 16, "horizon": 8, "hidden": (8,), "minibatches": 2}


def mine() -> sf.Task:
    return replace(sf.resolve("balance"), name="mine", seconds=2.0)


def test_a_script_trains_evaluates_gates_and_exports_a_task_of_its_own(tmp_path):
    task = mine()
    near = sf.Box.ranges(task.params, {"cart_mass": (0.8, 1.2)})
    run = sf.train(task, tmp_path / "r", belief=near, steps=256, change=SMALL, judge=sf.Judging(128, 4))
    assert run.task is task and run.policy.contract.task == "mine"
    found = sf.evaluate(run, belief=near, episodes=6)
    assert len(found.success) == 6 and (found.e[:, task.params.index("cart_mass")] <= 1.2).all()
    again = sf.evaluate(sf.load_policy(run), sf.make_env(task, 6, near, seed=1))
    assert (again.returns == found.returns).all()
    verdict = sf.judge(run, plan=Plan(episodes=20, per_load=4, motion=4, repeats=1, search=(4, 4, 4)))
    assert not verdict.holds and verdict.checks  # it has learned nothing
    assert sf.export(run, tmp_path / "p.onnx").read_bytes() == (tmp_path / "r" / "policy.onnx").read_bytes()


def test_a_run_of_a_task_made_in_a_script_says_how_to_give_it(tmp_path):
    run = sf.train(mine(), tmp_path / "r", steps=256, change=SMALL)
    with pytest.raises(sf.SurefootError, match="task 'mine'; name that task yourself: --task FILE.py"):
        sf.evaluate(run.folder)
    with pytest.raises(sf.SurefootError, match="mine was made in a script.* surefoot train FILE.py --resume RUN"):
        sf.resume(run.folder)
    with pytest.raises(sf.SurefootError, match="a run of mine, and it keeps its task; found hover"):
        sf.resume(run.folder, "hover")
    file = tmp_path / "made.py"
    file.write_text("from dataclasses import replace\nimport surefoot as sf\ndef task() -> sf.Task:\n    return replace(sf.resolve('balance'), name='mine', seconds=2.0)\n")  # fmt: skip
    assert main(["eval", str(run.folder), "--task", str(file), "--episodes", "4", "--json"]) == 0
    assert main(["train", str(file), "--resume", str(run.folder)]) == 0
    assert sf.resume(run).task.name == "mine"


def test_a_changed_task_of_a_script_is_noticed(tmp_path):
    run = sf.train(mine(), tmp_path / "r", steps=256, change=SMALL)
    with pytest.raises(sf.SurefootError, match="seconds: 3.0, was 2.0"):
        sf.resume(run.folder, replace(mine(), seconds=3.0))


def test_a_function_is_found_again_by_its_module(tmp_path):
    run = sf.train(mine, tmp_path / "r", steps=256, change=SMALL)
    assert f'"task": "{__name__}:mine"' in (tmp_path / "r" / "run.json").read_text()
    assert sf.evaluate(run.folder, f"{__name__}:mine", episodes=2).e.shape[0] == 2


def test_what_is_no_task_is_refused_in_words(tmp_path):
    with pytest.raises(sf.SurefootError, match="expected a Task, a function that makes one, or a reference, found int"):
        sf.train(3, tmp_path / "r")
    with pytest.raises(sf.SurefootError, match="settings say all"):
        sf.train("balance", tmp_path / "r", steps=3, settings=sf.PPOSettings())


def test_rehearse_takes_a_task_of_a_script(tmp_path):
    small = replace(mine(), settings=SMALL | {"steps": 128})  # one iteration: a training is not cut short
    done = sf.rehearse(small, tmp_path, episodes=4, budget="0.001 s of compute")
    assert [s.name for s in done.journal.stages] == ["train", "gate", "robot"]
    assert not done.crossed and "compute" in done.why and done.policy == tmp_path / "00-train"
