"""Runs of off-policy learners in the one loop: killed at any instant they end with the same bits; every verb takes them."""

import json
from pathlib import Path

import pytest

from surefoot import files
from surefoot.cli import main
from surefoot.errors import SurefootError
from surefoot.learn import train as learn
from surefoot.learn.run import Run
from surefoot.learn.run.parents import spec_of
from tests.learn.killed_runs import Killable, finished

CHANGES = {
    "envs": 16, "horizon": 4, "updates": 2, "samples": 64, "replay": 48, "warm_up": 128, "actor_after": 256, "hidden": (8,), "critic_hidden": (8,),
    "atoms": 11, "steps": 16 * 4 * 20, "learner_threads": 1,
}  # fmt: skip
both = pytest.mark.parametrize("learner", ["fasttd3", "fastsac"])


def trained(folder: Path, learner: str = "fasttd3", **how) -> Path:
    return Killable(learner, CHANGES).train(folder, **how)


@pytest.mark.slow
@both
def test_killed_at_twenty_instants_a_run_ends_with_the_same_bits_each_time(tmp_path, learner):
    """The replay goes round several times and holds time-outs and failures when the run is killed."""
    assert Killable(learner, CHANGES).equal_of_twenty(tmp_path) == 20


@both
def test_a_run_stopped_at_any_iteration_ends_with_the_same_bits(tmp_path, learner):
    expected = finished(trained(tmp_path / "straight", learner))
    for at in (1, 2, 9, 19):  # before the first gradient step, at it, and after the replay has gone round
        assert Killable(learner, CHANGES).stopped_at(tmp_path / str(at), at) == expected
    assert files.read_json(tmp_path / "9" / "run.json")["resumed"][-1]["bit_exact"] is True


def test_a_checkpoint_whose_replay_was_cut_is_refused_or_the_one_before_it_used(tmp_path):
    trained(tmp_path / "r")
    newest = sorted((tmp_path / "r" / "checkpoints").glob("*.safetensors"))[-1]
    newest.write_bytes(newest.read_bytes()[:-1000])
    run, _ = Run.open(tmp_path / "r")
    assert run.newest()[1]["iteration"] == int(newest.stem) - 1
    run.close()
    learn.resume(tmp_path / "r", save_every=0)


def test_a_run_grows_its_ranges_and_is_judged_as_one_of_ppo_is(tmp_path):
    from surefoot.learn.ranges.widen import Widen
    from surefoot.learn.settings import Judging

    folder = trained(tmp_path / "r", ranges=Widen(), judge=Judging(640, 4))
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [k for k, row in enumerate(rows) if "judge/success" in row] == [9, 19]
    assert (folder / "best.onnx").exists() and (folder / "reached.json").exists()
    assert all("width" in row for row in rows)


def test_a_run_is_no_start_for_another(tmp_path):
    trained(tmp_path / "r")
    with pytest.raises(SurefootError, match="start: expected a run of PPO"):
        learn.train("balance", tmp_path / "s", start=tmp_path / "r")


def test_the_verbs_take_a_run_of_another_learner(tmp_path, capsys):
    flags = [f"--fasttd3.{k.replace('_', '-')}={v}" for k, v in CHANGES.items() if not isinstance(v, tuple)]
    flags += ["--fasttd3.hidden", "8", "--fasttd3.critic-hidden", "8"]
    out = str(tmp_path / "r")
    assert main(["train", "balance", "--learner", "fasttd3", *flags, "--out", out]) == 0
    assert spec_of(out).to_json()["learner"] == "fasttd3"
    assert main(["eval", out, "--episodes", "4"]) == 0
    assert main(["export", out, "--out", str(tmp_path / "p.onnx")]) == 0
    assert "error" not in capsys.readouterr().err
    for words, said in (
        (
            ["--learner", "fastsac", "--steps", "10"],
            "--steps: only with --learner ppo, found fastsac; give --fastsac.steps",
        ),
        (["--learner", "fastsac", "--adapt", "rma"], "--adapt: only with --learner ppo, found fastsac"),
        (["--fasttd3.tau", "0.3"], "--fasttd3.*: only with --learner fasttd3"),
    ):
        assert main(["train", "balance", *words, "--out", str(tmp_path / "no")]) == 2
        assert said in capsys.readouterr().err
