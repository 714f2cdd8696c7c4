"""Policies that ship with the package: each fits its task, is the one that was judged, and is never written to."""

import json
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import numpy as np
import pytest

from surefoot import files, shipped, tasks
from surefoot.cli import main
from surefoot.deploy import bundle
from surefoot.gate.training_record import changed
from surefoot.learn.nets.export import load_net, onnx_difference
from surefoot.report import unwatched
from surefoot.tasks.provenance import Provenance, provenance
from surefoot.tasks.rollout import evaluate
from surefoot.verbs.judge.eval import Eval
from surefoot.verbs.judge.gate import Gate
from surefoot.verbs.judge.sweep import Sweep
from surefoot.verbs.train.export import Export
from surefoot.verdict import clopper_pearson

FILES = {"policy.onnx", "policy.safetensors", "run.json", "metrics.jsonl", "eval.json", "gate.json"}
each = pytest.mark.parametrize("name", shipped.names())


def content(folder: Path) -> dict[str, str]:
    return {p.name: files.sha256(p.read_bytes()) for p in folder.iterdir()}


def test_some_ready_tasks_have_a_policy():
    assert "balance" in shipped.names() and set(shipped.names()) <= set(tasks.names())


@each
def test_a_folder_is_slim_and_whole(name):
    found = list((shipped.HOME / name).iterdir())
    assert {p.name for p in found} == FILES and sum(p.stat().st_size for p in found) <= 350_000


@each
def test_its_contract_is_that_of_its_task(name):
    """`tasks.of` refuses a contract that differs in any term, joint, gain, rate or action."""
    policy = bundle.load(Path(name))
    assert tasks.of(policy.contract).name == name


@each
def test_its_task_has_the_numbers_and_the_model_it_was_trained_with(name):
    record = Provenance.from_json(files.read_json(shipped.HOME / name / "run.json")["provenance"], name)
    now = provenance(tasks.resolve(name), name)
    assert json.loads(json.dumps(now.numbers)) == record.numbers and now.model_hash == record.model_hash
    assert changed(Path(name), bundle.load(Path(name)), tasks.resolve(name), name) == []


@each
def test_it_is_the_policy_that_the_gate_has_judged(name):
    folder = shipped.HOME / name
    assert shipped.verdict(name).meta["parents"]["policy"] == files.sha256((folder / "policy.onnx").read_bytes())
    assert onnx_difference(load_net(Path(name)), folder / "policy.onnx") < 1e-4
    assert files.check_seal(files.read_json(folder / "run.json"), "run.json")["seed"] == 0


@each
def test_a_short_evaluation_agrees_with_the_record(name):
    """The recorded rate of 200 episodes is in the exact 99.9 % interval of 16 others."""
    policy = bundle.load(Path(name))
    task = tasks.of(policy.contract)
    found = evaluate(policy, tasks.env(task, 16, task.belief, seed=77))
    low, high = clopper_pearson(int(found.success.sum()), 16, 0.999)
    record = shipped.evaluation(name)
    assert record["episodes"] == 200 and low <= record["success"] <= high
    assert np.isfinite(found.returns).all()


def test_verbs_take_the_name_and_write_nothing_into_the_package(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before, name = content(shipped.HOME / "balance"), Path("balance")
    found = Eval(name, best=True, episodes=4).run(unwatched)
    assert found.facts["policy"] == "balance" and found.next == "surefoot play balance"
    Gate(name, episodes=20).run(unwatched)
    assert (tmp_path / "runs" / "shipped-balance" / "gate.json").is_file()
    page = Sweep((name,), "cart_mass", points=2, episodes=2).run(unwatched).page
    assert page == Path("runs/shipped-balance/sweep-cart_mass.html")
    assert Export(name).run(unwatched).facts["bundle"] == "balance-bundle"
    assert content(shipped.HOME / "balance") == before


def test_a_folder_of_the_same_name_wins_and_this_is_said(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "balance").mkdir()
    assert main(["eval", "balance", "--episodes", "2"]) == 2
    out, err = capsys.readouterr()
    assert "note: balance is in the current directory and is used, not the policy that ships" in out
    assert "balance/policy.onnx: no policy here" in err


def test_a_misspelt_name_is_answered_with_the_right_one(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["eval", "balanse"]) == 2
    assert "balanse: no policy here" in (err := capsys.readouterr().err) and "did you mean balance?" in err


@pytest.mark.parametrize("flags", [["--resume", "balance"], ["balance", "--start", "balance"]])
def test_a_shipped_policy_has_no_checkpoints_to_go_on_from(flags, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["train", *flags]) == 2
    assert "the policy that ships under this name has no checkpoints" in capsys.readouterr().err


def test_tasks_lists_the_verdict_of_each(capsys):
    assert main(["tasks", "--json"]) == 0
    found = {t["name"]: t["policy"] for t in json.loads(capsys.readouterr().out)["tasks"]}
    assert {k for k, v in found.items() if v} == set(shipped.names())
    for name in shipped.names():
        assert found[name]["verdict"].startswith("PASS" if shipped.verdict(name).holds else "FAIL")


def test_every_file_of_a_policy_is_package_data():
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
    patterns = project["tool"]["setuptools"]["package-data"]["surefoot"]
    for path in shipped.HOME.glob("*/*"):
        assert any(fnmatch(path.relative_to(shipped.HOME.parent).as_posix(), p) for p in patterns), path.name
