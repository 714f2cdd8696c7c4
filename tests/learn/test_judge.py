"""Judging while training: what is measured, what is kept, and that learning does not notice."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from surefoot import files, tasks
from surefoot.cli import main
from surefoot.deploy import bundle
from surefoot.errors import SurefootError
from surefoot.gate.training_record import trained_with
from surefoot.learn.distill import DistillSettings
from surefoot.learn.judge import Best
from surefoot.learn.nets import export
from surefoot.learn.nets.export import load_net
from surefoot.learn.nets.policy_net import linear
from surefoot.learn.ranges.widen import Widen
from surefoot.learn.runspec import RunSpec
from surefoot.learn.settings import Judging
from surefoot.learn.train import plan, resume, settings_for, train
from surefoot.rng import JUDGING, judging
from surefoot.tasks.rollout import contract, evaluate
from surefoot.verbs.train.train import best_of

SMALL = {"envs": 32, "horizon": 8, "hidden": (16,), "minibatches": 2, "steps": 32 * 8 * 10}
BATCH = 32 * 8
TASK = tasks.resolve("balance")


def learned(out, judge, **asked):
    settings = asked.pop("settings", settings_for("balance", SMALL))
    return train("balance", out, seed=5, belief=TASK.belief, settings=settings, judge=judge, save_every=0, **asked)


def rows(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def without(row):
    return {k: v for k, v in row.items() if not k.startswith("judge/")}


@pytest.mark.parametrize("asked", [{}, {"ranges": Widen()}])
def test_learning_has_the_same_bits_with_and_without_a_judge(tmp_path, asked):
    plain, watched = (learned(tmp_path / k, j, **asked) for k, j in (("a", None), ("b", Judging(BATCH, 12))))
    assert plain.read_bytes() == watched.read_bytes()
    last = "checkpoints/00000010.safetensors"
    assert (tmp_path / "a" / last).read_bytes() == (tmp_path / "b" / last).read_bytes()
    assert rows(tmp_path / "a") == [without(r) for r in rows(tmp_path / "b")]
    assert not (tmp_path / "a" / "best.onnx").exists() and (tmp_path / "b" / "best.onnx").exists()


ODD = [{}, {"judged": [], "iteration": 1}, {"judged": {"success": "x", "low": 0, "high": 1}, "iteration": 1}]


@pytest.mark.parametrize("about", ODD)
def test_a_best_policy_that_does_not_say_how_it_was_judged_is_refused_in_words(tmp_path, about):
    net = linear(contract(TASK, tasks.env(TASK, 1).world), {"cart_pole": np.array([[1.0, 2.0, 20.0, 4.0]])})
    export.save(net, tmp_path, about=about, name=bundle.BEST)
    with pytest.raises(SurefootError, match="best.onnx: (about|judged)"):
        best_of(tmp_path / bundle.NAME)


def test_it_is_due_at_multiples_of_its_steps_and_at_the_end(tmp_path):
    learned(tmp_path / "r", Judging(3 * BATCH, 8))
    assert [k + 1 for k, row in enumerate(rows(tmp_path / "r")) if "judge/success" in row] == [3, 6, 9, 10]


def test_what_is_logged_is_what_the_policy_does_in_those_episodes(tmp_path):
    """The last judgement, worked out again from the policy on disk."""
    path = learned(tmp_path / "r", Judging(10 * BATCH, 25))
    env = tasks.env(TASK, 25, TASK.belief, judging(5, "training"))
    found, row = evaluate(bundle.load(path), env), rows(tmp_path / "r")[-1]
    low, high = found.interval
    wanted = {"success": found.rate, "low": low, "high": high, "return": found.returns.mean()}
    assert {k: row[f"judge/{k}"] for k in wanted} == pytest.approx(wanted, rel=1e-6)


def test_the_best_is_the_first_of_the_highest_success_then_return(tmp_path):
    settings = settings_for("balance", SMALL | {"steps": BATCH * 14, "lr": 0.003})
    path = learned(tmp_path / "r", Judging(BATCH, 20), settings=settings)
    scores = [(row["judge/success"], row["judge/return"]) for row in rows(path.parent)]
    about = bundle.load(path.with_name("best.onnx")).about["about"]
    assert about["iteration"] == 1 + scores.index(max(scores))
    assert (about["judged"]["success"], about["judged"]["return"]) == max(scores)
    assert load_net(path.with_name("best.onnx")).contract.parents["iterations"] == str(about["iteration"])


def test_best_is_beaten_by_success_first_and_by_return_between_equals():
    class Found:
        def __init__(self, rate, mean):
            self.rate, self.returns = rate, np.array([mean])

    best = Best(0.5, 10.0, 3)
    assert best.beaten_by(Found(0.6, 1.0)) and best.beaten_by(Found(0.5, 10.1))
    assert not best.beaten_by(Found(0.5, 10.0)) and not best.beaten_by(Found(0.4, 99.0))
    assert Best().beaten_by(Found(0.0, -1e9))


@pytest.mark.parametrize("at", [1, 3, 4, 7])
def test_a_run_that_stopped_anywhere_ends_with_the_same_best_and_last(tmp_path, at):
    learned(tmp_path / "straight", Judging(2 * BATCH, 10))

    class Cut(Exception):
        pass

    def watch(p):
        if p.metrics and p.metrics["iteration"] == at:
            raise Cut

    with pytest.raises(Cut):
        learned(tmp_path / "cut", Judging(2 * BATCH, 10), watch=watch)
    resume(tmp_path / "cut", save_every=0)
    for name in ("best.onnx", "best.safetensors", "policy.onnx", "metrics.jsonl", "checkpoints/00000010.safetensors"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "straight" / name).read_bytes(), name


def test_a_best_policy_that_was_deleted_is_replaced_and_said_to_be(tmp_path):
    learned(tmp_path / "r", Judging(BATCH, 8))
    for name in ("best.onnx", "best.safetensors"):
        (tmp_path / "r" / name).unlink()
    for k in (9, 10):
        for path in (tmp_path / "r" / "checkpoints").glob(f"{k:08d}.*"):
            path.unlink()
    said = []
    resume(tmp_path / "r", watch=lambda p: said.append(p.doing))
    assert any("best.onnx is missing" in words for words in said) and (tmp_path / "r" / "best.onnx").exists()


def test_a_disk_that_refuses_costs_the_best_policy_not_the_run(tmp_path, monkeypatch):
    plain, said = files.write, []

    def refuses(path, data):
        if path.name == "best.onnx":
            raise SurefootError("disk full")
        plain(path, data)

    monkeypatch.setattr(files, "write", refuses)
    learned(tmp_path / "r", Judging(5 * BATCH, 8), watch=lambda p: said.append(p.doing))
    assert any("best policy so far was not saved (disk full)" in words for words in said)
    assert not (tmp_path / "r" / "best.onnx").exists() and len(rows(tmp_path / "r")) == 10


def test_its_seed_is_no_one_elses_and_the_gate_knows_of_it(tmp_path):
    learned(tmp_path / "r", Judging(10 * BATCH, 4))
    own = judging(5, "training")
    assert own >= JUDGING and own != judging(5) and trained_with(tmp_path / "r") == {5, own}


def test_the_spec_has_the_setting_and_students_are_judged_too(tmp_path):
    spec, _ = plan("balance", judge=Judging(1000, 7))
    assert RunSpec.from_json(spec.to_json()) == spec and spec.to_json()["judge"] == {"every": 1000, "episodes": 7}
    assert "judge" not in plan("balance")[0].to_json()
    with pytest.raises(SurefootError, match="judge: episodes: expected a whole number"):
        RunSpec.from_json(spec.to_json() | {"judge": {"every": 10, "episodes": "all"}})
    with pytest.raises(SurefootError, match="judge.every: expected at least 1, found 0"):
        Judging(0)
    teacher = train("balance", tmp_path / "t", settings=settings_for("balance", SMALL))
    lesson = DistillSettings(label="action", envs=8, horizon=4, steps=64, history=3)
    student = train("balance", tmp_path / "s", teacher=teacher, settings=lesson, judge=Judging(32, 5))
    assert [k + 1 for k, row in enumerate(rows(tmp_path / "s")) if "judge/success" in row] == [1, 2]
    assert bundle.load(student.with_name("best.onnx")).contract.history == 3


def test_verbs_take_the_best_policy_of_a_run(tmp_path, capsys):
    small = [w for k, v in SMALL.items() if k != "hidden" for w in (f"--{k}", str(v))]
    run = tmp_path / "r"
    assert main(["train", "balance", "--out", str(run), "--judge-every", "512", "--judge-episodes", "6", *small]) == 0
    said = capsys.readouterr().out
    assert f"best: {run}/best.onnx" in said and f"next: surefoot eval {run} --best" in said
    for verb in (["eval", run, "--episodes", "4"], ["export", run, "--out", tmp_path / "x.onnx"]):
        assert main([*map(str, verb), "--best", "--json"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert found[0]["policy"] == str(run / "best.onnx")
    assert (tmp_path / "x.onnx").read_bytes() == (run / "best.onnx").read_bytes()
    film = ["play", str(run), "--best", "--record", str(tmp_path / "f.gif"), "--seconds", "0.1"]
    assert main(film) == 0 and (tmp_path / "f.gif").exists()
    (run / "best.onnx").unlink()
    assert main(["eval", str(run), "--best"]) == 2
    assert "best.onnx: no such file; `surefoot train --judge-every` keeps the best" in capsys.readouterr().err
    assert main(["train", "balance", "--judge-episodes", "5"]) == 2
    assert "--judge-episodes: only with --judge-every" in capsys.readouterr().err


def test_a_policy_under_another_name_is_learned_on_from_with_the_weights_beside_it(tmp_path):
    path = train("balance", tmp_path / "r", settings=settings_for("balance", SMALL))
    shutil.copy(path, tmp_path / "r" / "copy.onnx")
    a, b = load_net(path), load_net(tmp_path / "r" / "copy.onnx")
    assert all((a.state_dict()[k] == v).all() for k, v in b.state_dict().items())
    assert replace(a.contract, task="") == replace(b.contract, task="")
