"""Runs of forward-backward representations in the one loop: stopped or killed at any instant they end with the same bits."""

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
from surefoot.learn import train as learn
from surefoot.learn.run.parents import spec_of

CHANGES = {
    "envs": 16, "horizon": 4, "updates": 2, "samples": 64, "replay": 48, "warm_up": 128, "hidden": (8,), "forward_hidden": (8,),
    "backward_hidden": (8,), "z": 6, "ask_every": 12, "steps": 16 * 4 * 20, "learner_threads": 1,
}  # fmt: skip
CHILD = """
import json, os, signal, sys
from pathlib import Path
from surefoot import files
from surefoot.learn import train as learn
folder, changes, at = Path(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3]
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
    belief = learn.tasks.resolve("balance").belief
    learn.train("balance", folder, seed=7, belief=belief, settings=learn.settings_for("balance", changes, "fb"), save_every=0)
"""


def child(folder: Path, at: str = "never") -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, str(folder), json.dumps(CHANGES), at],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


def finished(folder: Path) -> dict[str, str]:
    """Hashes of all that must be equal: policy, the last checkpoint and the metrics."""
    last = sorted((folder / "checkpoints").glob("*.safetensors"))[-1]
    paths = {"policy": folder / "policy.onnx", "checkpoint": last, "metrics": folder / "metrics.jsonl"}
    return {k: hashlib.sha256(p.read_bytes()).hexdigest() for k, p in paths.items()} | {"name": last.name}


@pytest.mark.slow
def test_killed_at_twenty_instants_a_run_ends_with_the_same_bits_each_time(tmp_path):
    began = time.monotonic()
    assert child(tmp_path / "straight").wait(240) == 0
    expected, seconds, same = finished(tmp_path / "straight"), time.monotonic() - began, 0
    rng = np.random.default_rng(0)
    for k in range(20):
        folder = tmp_path / f"run{k}"
        if k % 3 == 0:
            at = f"{rng.choice(['fsync', 'replace'])}:{rng.integers(3, 40)}"
            assert child(folder, at).wait(240) in (-signal.SIGKILL, 0)
        else:
            process = child(folder)
            time.sleep(float(rng.uniform(0.4, 1.0) * seconds))
            process.kill()
            process.wait()
        assert child(folder).wait(240) == 0
        same += finished(folder) == expected
    assert same == 20


def trained(folder: Path, **how) -> Path:
    belief, settings = learn.tasks.resolve("balance").belief, learn.settings_for("balance", CHANGES, "fb")
    return learn.train("balance", folder, seed=7, belief=belief, settings=settings, save_every=0, **how)


def test_a_run_stopped_at_any_iteration_ends_with_the_same_bits(tmp_path):
    trained(tmp_path / "straight")
    expected = finished(tmp_path / "straight")
    for at in (1, 2, 9, 19):  # before the first gradient step, at it, and after the replay has gone round

        def stop(p, at=at):
            if p.metrics.get("iteration") == at:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            trained(tmp_path / str(at), watch=stop)
        learn.resume(tmp_path / str(at), save_every=0)
        assert finished(tmp_path / str(at)) == expected
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
