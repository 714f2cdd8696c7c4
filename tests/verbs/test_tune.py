"""surefoot tune and surefoot train --seeds: runs by the dozen."""

import json

import pytest

from surefoot.errors import SurefootError
from surefoot.report import unwatched
from surefoot.verbs.train.train import Train
from surefoot.verbs.train.tune import Range, Tune
from surefoot.verbs.train.ways.seeds import seeds_of


def test_seeds_are_a_range_or_a_list():
    assert seeds_of("0..3") == [0, 1, 2, 3] and seeds_of("5,2") == [5, 2]
    for bad in ("3..1", "a", "1,1", "0..9999", "-1..2"):
        with pytest.raises(SurefootError, match="seed"):
            seeds_of(bad)


def test_each_seed_is_the_run_that_it_is_alone_and_goes_on_when_asked_again(tmp_path):
    from dataclasses import replace

    from surefoot.learn.train import settings_for

    small = settings_for("balance", {"envs": 8, "horizon": 8, "minibatches": 2, "hidden": (8,), "steps": 256})
    verb = Train("balance", settings=small, out=tmp_path / "all", seeds="0..1")
    facts = verb.run(unwatched).facts
    alone = replace(verb, seeds="", seed=1, out=tmp_path / "alone").run(unwatched).facts
    assert [r["seed"] for r in facts["runs"]] == [0, 1]
    assert facts["runs"][1]["sha256"] == alone["sha256"] != facts["runs"][0]["sha256"]
    assert [r["sha256"] for r in verb.run(unwatched).facts["runs"]] == [r["sha256"] for r in facts["runs"]]
    with pytest.raises(SurefootError, match="a run with other settings is here already"):
        replace(verb, settings=replace(small, lr=0.1)).run(unwatched)


def test_ranges_say_what_they_are():
    assert Range.parse("lr=1e-4..1e-2:log") == Range("lr", 1e-4, 1e-2, True, False)
    assert Range.parse("epochs=2..8") == Range("epochs", 2, 8, False, True)
    for text, words in (("lr", "expected NAME=LOW..HIGH"), ("lrr=0..1", "did you mean lr"), ("lr=1..x", "two numbers"), ("lr=0..1:log", "both above 0"), ("lr=2..1", "LOW < HIGH"), ("hidden=1..2", "no setting"), ("epochs=2.2..2.8", "a range with a whole number in it")):  # fmt: skip
        with pytest.raises(SurefootError, match=words):
            Range.parse(text)


def test_a_setting_has_one_range():
    with pytest.raises(SurefootError, match="--over: lr: expected one range of each setting, found two"):
        Tune("balance", ("lr=1e-4..1e-2:log", "epochs=1..3", "lr=1..2")).run(unwatched)


def test_a_search_is_the_same_again_and_goes_on_where_it_was_cut(tmp_path):
    """Six trials in two turns; the second turn is asked by what the first scored."""
    pytest.importorskip("optuna", reason="needs the extra tune: pip install 'surefoot[tune]'")
    verb = Tune(
        "balance", ("lr=1e-4..1e-1:log", "epochs=1..3"), trials=6, steps=64, envs=8, metric="reward", out=tmp_path / "t"
    )
    facts = verb.run(unwatched).facts
    assert len(facts["trials"]) == 6 and facts["best"]["score"] == max(t["score"] for t in facts["trials"])
    assert all(1e-4 <= t["settings"]["lr"] <= 1e-1 and t["settings"]["epochs"] in (1, 2, 3) for t in facts["trials"])
    run = json.loads((tmp_path / "t" / "trial5" / "seed0" / "run.json").read_text())
    assert run["settings"]["lr"] == facts["trials"][5]["settings"]["lr"]
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "t").rglob("*.onnx")}
    assert verb.run(unwatched).facts == facts
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "t").rglob("*.onnx")} == before  # nothing was trained again
