"""Runs of off-policy learners in the one loop: killed at any instant they end with the same bits; every verb takes them."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from surefoot import files
from surefoot.cli import main
from surefoot.errors import SurefootError
from surefoot.learn import train as learn
from surefoot.learn.run import Run
from surefoot.learn.run.parents import spec_of

CHANGES = {
    "envs": 16, "horizon": 4, "updates": 2, "samples": 64, "replay": 48, "warm_up": 128, "actor_after": 256, "hidden": (8,), "critic_hidden": (8,),
    "atoms": 11, "steps": 16 * 4 * 20, "learner_threads": 1,
}  # fmt: skip
CHILD = """
import json, os, signal, sys
from pathlib import Path
from surefoot import files
from surefoot.learn import train as learn
folder, task, learner, changes, at = Path(sys.argv[1]), sys.argv[2], sys.argv[3], json.loads(sys.argv[4]), sys.argv[5]
if at != "never":
    kind, count = at.split(":")
    left = [int(count)]
    def hit(real):
        def call(*args, **kw):
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **kw)
        return call
    setattr(files.os, kind, hit(getattr(os, kind)))  # die inside the save
changes |= {k: tuple(v) for k, v in changes.items() if isinstance(v, list)}
if (folder / "run.json").exists():
    learn.resume(folder, save_every=0)
else:
    belief = learn.tasks.resolve(task).belief
    learn.train(task, folder, seed=7, belief=belief, settings=learn.settings_for(task, changes, learner), save_every=0)
"""


def child(folder: Path, task: str, learner: str, at: str = "never") -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, str(folder), task, learner, json.dumps(CHANGES), at],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


def finished(folder: Path) -> dict[str, str]:
    """Hashes of all that must be equal: policy, the last checkpoint (nets, optimisers, replay, envs) and the metrics."""
    last = sorted((folder / "checkpoints").glob("*.safetensors"))[-1]
    paths = {"policy": folder / "policy.onnx", "checkpoint": last, "metrics": folder / "metrics.jsonl"}
    return {k: hashlib.sha256(p.read_bytes()).hexdigest() for k, p in paths.items()} | {"name": last.name}


def straight(folder: Path, task: str, learner: str) -> tuple[dict[str, str], float]:
    began = time.monotonic()
    assert child(folder, task, learner).wait(240) == 0
    return finished(folder), time.monotonic() - began


def killed_then_resumed(folder: Path, task: str, learner: str, instant: float | str) -> dict[str, str]:
    """Kill at an instant (seconds after start, or `os call:count`), then run to the end."""
    if isinstance(instant, str):
        assert child(folder, task, learner, instant).wait(240) in (-signal.SIGKILL, 0)
    else:
        process = child(folder, task, learner)
        time.sleep(instant)
        process.kill()
        process.wait()
    assert child(folder, task, learner).wait(240) == 0
    return finished(folder)


@pytest.mark.slow
@pytest.mark.parametrize("learner", ["fasttd3", "fastsac"])
def test_killed_at_twenty_instants_a_run_ends_with_the_same_bits_each_time(tmp_path, learner):
    """The replay goes round several times and holds time-outs and failures when the run is killed."""
    expected, seconds = straight(tmp_path / "straight", "balance", learner)
    rng = np.random.default_rng(0)
    same = 0
    for k in range(20):
        inside = k % 3 == 0
        instant = (
            f"{rng.choice(['fsync', 'replace'])}:{rng.integers(3, 40)}"
            if inside
            else float(rng.uniform(0.4, 1.0) * seconds)
        )
        same += killed_then_resumed(tmp_path / f"run{k}", "balance", learner, instant) == expected
    assert same == 20


def trained(folder: Path, learner: str = "fasttd3", **how) -> Path:
    belief = learn.tasks.resolve("balance").belief
    settings = learn.settings_for("balance", CHANGES, learner)
    return learn.train("balance", folder, seed=7, belief=belief, settings=settings, save_every=0, **how)


@pytest.mark.parametrize("learner", ["fasttd3", "fastsac"])
def test_a_run_stopped_at_any_iteration_ends_with_the_same_bits(tmp_path, learner):
    trained(tmp_path / "straight", learner)
    expected = finished(tmp_path / "straight")
    for at in (1, 2, 9, 19):  # before the first gradient step, at it, and after the replay has gone round

        def stop(p, at=at):
            if p.metrics.get("iteration") == at:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            trained(tmp_path / str(at), learner, watch=stop)
        learn.resume(tmp_path / str(at), save_every=0)
        assert finished(tmp_path / str(at)) == expected
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

    path = trained(tmp_path / "r", ranges=Widen(), judge=Judging(640, 4))
    rows = [json.loads(line) for line in (path.parent / "metrics.jsonl").read_text().splitlines()]
    assert [k for k, row in enumerate(rows) if "judge/success" in row] == [9, 19]
    assert (path.parent / "best.onnx").exists() and (path.parent / "reached.json").exists()
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
