"""Runs in processes of their own that are killed at any instant, and what must be equal once they were resumed."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from surefoot import tasks
from surefoot.learn import train as learn

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


def finished(folder: Path) -> dict[str, str]:
    """Hashes of all that must be equal: policy, weights, the last checkpoint (nets, optimisers, replay, envs), metrics."""
    last = sorted((folder / "checkpoints").glob("*.safetensors"))[-1]
    paths = {
        "policy": folder / "policy.onnx", "weights": folder / "policy.safetensors",
        "checkpoint": last, "metrics": folder / "metrics.jsonl",
    }  # fmt: skip
    return {k: hashlib.sha256(p.read_bytes()).hexdigest() for k, p in paths.items()} | {"name": last.name}


@dataclass(frozen=True)
class Killable:
    """A short run."""

    learner: str
    changes: Mapping[str, Any]
    task: str = "balance"

    def train(self, folder: Path, **how: Any) -> Path:
        """In this process; returns the folder."""
        belief, settings = tasks.resolve(self.task).belief, learn.settings_for(self.task, self.changes, self.learner)
        learn.train(self.task, folder, seed=7, belief=belief, settings=settings, save_every=0, **how)
        return folder

    def stopped_at(self, folder: Path, iteration: int) -> dict[str, str]:
        """In this process: stopped as by Ctrl-C, then resumed."""

        def stop(p: Any) -> None:
            if p.metrics.get("iteration") == iteration:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            self.train(folder, watch=stop)
        learn.resume(folder, save_every=0)
        return finished(folder)

    def child(self, folder: Path, at: str = "never") -> subprocess.Popen:
        words = [str(folder), self.task, self.learner, json.dumps(dict(self.changes)), at]
        return subprocess.Popen(
            [sys.executable, "-c", CHILD, *words],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip

    def straight(self, folder: Path) -> tuple[dict[str, str], float]:
        began = time.monotonic()
        assert self.child(folder).wait(240) == 0
        return finished(folder), time.monotonic() - began

    def killed(self, folder: Path, instants: Sequence[float | str]) -> dict[str, str]:
        """Killed at each instant in turn (seconds after start, or `os call:count`), then run to the end."""
        for instant in instants:
            if isinstance(instant, str):
                assert self.child(folder, instant).wait(240) in (-signal.SIGKILL, 0)
            else:
                process = self.child(folder)
                time.sleep(instant)
                process.kill()
                process.wait()
        assert self.child(folder).wait(240) == 0
        return finished(folder)

    def equal_of_twenty(self, folder: Path) -> int:
        """How many of twenty runs, each killed at an instant of its own, end as one that was not."""
        expected, seconds = self.straight(folder / "straight")
        rng, same = np.random.default_rng(0), 0
        for k in range(20):
            inside = f"{rng.choice(['fsync', 'replace'])}:{rng.integers(3, 20)}"
            instant = inside if k % 3 == 0 else float(rng.uniform(0.4, 1.0) * seconds)
            same += self.killed(folder / f"run{k}", [instant]) == expected
        return same
