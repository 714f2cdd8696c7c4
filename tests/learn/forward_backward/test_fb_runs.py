"""Runs of forward-backward representations in the one loop: stopped or killed at any instant they end with the same bits."""

import pytest

from surefoot import files
from surefoot.cli import main
from surefoot.learn.run.parents import spec_of
from tests.learn.killed_runs import Killable, finished

CHANGES = {
    "envs": 16, "horizon": 4, "updates": 2, "samples": 64, "replay": 48, "warm_up": 128, "hidden": (8,), "forward_hidden": (8,),
    "backward_hidden": (8,), "z": 6, "ask_every": 12, "steps": 16 * 4 * 20, "learner_threads": 1,
}  # fmt: skip
RUN = Killable("fb", CHANGES)


@pytest.mark.slow
def test_killed_at_twenty_instants_a_run_ends_with_the_same_bits_each_time(tmp_path):
    assert RUN.equal_of_twenty(tmp_path) == 20


def test_a_run_stopped_at_any_iteration_ends_with_the_same_bits(tmp_path):
    expected = finished(RUN.train(tmp_path / "straight"))
    for at in (1, 2, 9, 19):  # before the first gradient step, at it, and after the replay has gone round
        assert RUN.stopped_at(tmp_path / str(at), at) == expected
    assert files.read_json(tmp_path / "9" / "run.json")["resumed"][-1]["bit_exact"] is True


def test_the_verbs_take_a_run(tmp_path, capsys):
    flags = [f"--fb.{k.replace('_', '-')}={v}" for k, v in CHANGES.items() if not isinstance(v, tuple)]
    flags += ["--fb.hidden", "8", "--fb.forward-hidden", "8", "--fb.backward-hidden", "8"]
    out = str(tmp_path / "r")
    assert (
        main(
            [
                "train",
                "balance",
                "--learner",
                "fb",
                *flags,
                "--judge-every",
                "640",
                "--judge-episodes",
                "4",
                "--out",
                out,
            ]
        )
        == 0
    )
    assert spec_of(out).to_json()["learner"] == "fb" and (tmp_path / "r" / "best.onnx").exists()
    assert main(["eval", out, "--episodes", "4"]) == 0
    assert "error" not in capsys.readouterr().err
    for words, said in (
        (["--learner", "fb", "--steps", "10"], "--steps: only with --learner ppo, found fb; give --fb.steps"),
        (["--fb.z", "8"], "--fb.*: only with --learner fb"),
    ):
        assert main(["train", "balance", *words, "--out", str(tmp_path / "no")]) == 2
        assert said in capsys.readouterr().err
