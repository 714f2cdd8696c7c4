"""What is learned from a log by iteration is a run: stopped anywhere and asked again, it ends with the same bits."""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from surefoot import tasks
from surefoot.belief import point
from surefoot.errors import SurefootError
from surefoot.learn.loop import Stopped
from surefoot.learn.on_policy.ppo import PPO
from surefoot.learn.settings import PPOSettings
from surefoot.learn.train import resume
from surefoot.policy import Random
from surefoot.real2sim.actuator import fake_motor
from surefoot.real2sim.actuator.dataset import Settings, prepare
from surefoot.real2sim.actuator.matching import Matching
from surefoot.real2sim.actuator.unlabelled import WeightSearch, follow_log
from surefoot.real2sim.episodes import logged
from surefoot.real2sim.residual import delta
from surefoot.real2sim.residual.delta import SETTINGS, by_reinforcement
from surefoot.sim.engine import Engine
from surefoot.tasks.rollout import contract

ARM = tasks.resolve("arm")
FEW = PPOSettings(**{**SETTINGS, "envs": 8, "horizon": 8, "steps": 8 * 8 * 4, "hidden": (4,), "minibatches": 2})
SMALL = {"labels": False, "hidden": 4, "history": 2, "window": 0.05, "rounds": 3}


@pytest.fixture(scope="module")
def arm_log():
    weak = point(ARM.params, ARM.params.vector({"kp": 0.65}))
    env = tasks.env(ARM, 4, weak, 0)
    return logged(Random(contract(ARM, env.world), 0), env)


@pytest.fixture(scope="module")
def data():
    def make(s):
        return prepare(fake_motor.model(), np.zeros(0), fake_motor.recorded(0, 8.0), s, False)

    return make


def stop_after(monkeypatch, kind, k):
    """SIGTERM comes while the k-th iteration is under way."""
    real = kind.iterate

    def iterate(self):
        row = real(self)
        if self.iteration == k:
            os.kill(os.getpid(), signal.SIGTERM)
        return row

    monkeypatch.setattr(kind, "iterate", iterate)


def last(folder: Path) -> tuple[bytes, bytes]:
    return sorted((folder / "checkpoints").glob("*.safetensors"))[-1].read_bytes(), (
        folder / "metrics.jsonl"
    ).read_bytes()


def practise(log, folder, settings=FEW):
    with suppress(SurefootError):  # so few steps may teach nothing, and that is said at the end
        by_reinforcement(ARM, tasks.nominal(ARM), log, settings, folder=folder)


@pytest.mark.parametrize("k", [1, 3])
def test_delta_by_reinforcement_stopped_and_asked_again_ends_with_the_same_bits(arm_log, tmp_path, monkeypatch, k):
    practise(arm_log, tmp_path / "whole")
    with monkeypatch.context() as patch:
        stop_after(patch, PPO, k)
        with pytest.raises(Stopped, match="stopped by SIGTERM; give the same command again"):
            practise(arm_log, tmp_path / "cut")
    assert len(last(tmp_path / "cut")[1].splitlines()) == k
    practise(arm_log, tmp_path / "cut")
    assert last(tmp_path / "whole") == last(tmp_path / "cut")


def test_a_run_of_a_log_goes_on_by_its_own_command_alone(arm_log, tmp_path):
    practise(arm_log, tmp_path / "r")
    with pytest.raises(SurefootError, match="it learns from a log: repeat the command that started it"):
        resume(tmp_path / "r")
    with pytest.raises(SurefootError, match=r"a run with other settings is here already \(steps: 256, not 512\)"):
        by_reinforcement(ARM, tasks.nominal(ARM), arm_log, replace(FEW, steps=512), folder=tmp_path / "r")
    with pytest.raises(SurefootError, match=r"a run with other inputs is here already \(delta"):
        how = delta.ReinforcementSettings(reach=0.25)
        by_reinforcement(ARM, tasks.nominal(ARM), arm_log, FEW, how, folder=tmp_path / "r")


def test_simulations_of_a_log_that_keep_diverging_stop_the_run_with_a_diagnosis(arm_log, tmp_path, monkeypatch):
    real = Engine.begin

    def begin(self, u, chance):
        if self.n == FEW.envs:
            self.state.v[:4] = np.inf
        return real(self, u, chance)

    monkeypatch.setattr(Engine, "begin", begin)
    with pytest.raises(SurefootError, match="times a simulation diverged in the last batch"):
        by_reinforcement(ARM, tasks.nominal(ARM), arm_log, FEW, folder=tmp_path / "r")
    assert list((tmp_path / "r" / "diverged").glob("*.npz"))


@pytest.mark.parametrize("by, k", [("gradient", 1), ("gradient", 2), ("es", 2), ("ppo", 2)])
def test_an_actuator_net_stopped_and_asked_again_ends_with_the_same_bits(data, tmp_path, monkeypatch, by, k):
    s = Settings(by=by, **SMALL)
    say = lambda text: None  # noqa: E731
    whole = follow_log(data(s), s, say, tmp_path / "whole")
    with monkeypatch.context() as patch:
        stop_after(patch, Matching if by == "ppo" else WeightSearch, k)
        with pytest.raises(Stopped):
            follow_log(data(s), s, say, tmp_path / "cut")
    cut = follow_log(data(s), s, say, tmp_path / "cut")
    assert last(tmp_path / "whole") == last(tmp_path / "cut")
    one, other = whole.state_dict(), cut.state_dict()
    assert all(torch.equal(one[name], other[name]) for name in one)


WARM = """
import hashlib, json, os, signal, sys, time
from contextlib import suppress
from functools import partial
from pathlib import Path
import numpy as np
from surefoot import tasks
from surefoot.errors import SurefootError
from surefoot.learn import train
from surefoot.learn.settings import PPOSettings
from surefoot.log import Log
from surefoot.onnx_file.runtime import runtime
from surefoot.real2sim.actuator import fake_motor, matching, unlabelled
from surefoot.real2sim.actuator.dataset import Settings, prepare
from surefoot.real2sim.actuator.net import exported
from surefoot.real2sim.residual.delta import SETTINGS, by_reinforcement
from surefoot.sim.learned import save

by, log, root = sys.argv[1], Log.load(sys.argv[2]), Path(sys.argv[3])
train.run_learner = unlabelled.run_learner = partial(train.run_learner, save_every=0.0)
runtime()


def learn(out):
    if by == "delta":
        task, few = tasks.resolve("arm"), {"envs": 16, "horizon": 8, "steps": 16 * 8 * 30, "hidden": (8,)}
        with suppress(SurefootError):  # so few steps may explain nothing, which is said at the end
            by_reinforcement(task, tasks.nominal(task), log, PPOSettings(**{**SETTINGS, **few}), folder=out)
        return
    s = Settings(by=by, labels=False, hidden=8, history=3, window=0.05, rounds=30 if by != "ppo" else 6)
    data = prepare(fake_motor.model(), np.zeros(0), log, s, False)
    module = unlabelled.follow_log(data, s, lambda p: None, out)
    save(exported(module, data.actuators, data.world.model), out)


def child(out):
    pid = os.fork()
    if pid == 0:
        try:
            learn(out)
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    return pid


def ended(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def hashes(out):
    last = sorted((out / "checkpoints").glob("*.safetensors"))[-1]
    files = [last, out / "metrics.jsonl"] + ([] if by == "delta" else [out / "term.onnx"])
    return [last.name] + [hashlib.sha256(f.read_bytes()).hexdigest() for f in files]


began = time.monotonic()
assert ended(child(root / "whole")) == 0
seconds, wanted, rng = time.monotonic() - began, hashes(root / "whole"), np.random.default_rng(0)
same = cut = resumed = 0
for k in range(20):
    out, pid = root / str(k), child(root / str(k))
    time.sleep(float(rng.uniform(0.1, 0.95)) * seconds)
    os.kill(pid, signal.SIGKILL)
    cut += ended(pid) == -signal.SIGKILL
    resumed += bool(list((out / "checkpoints").glob("*.json")))
    assert ended(child(out)) == 0
    same += hashes(out) == wanted
print(json.dumps({"same": same, "cut": cut, "resumed": resumed, "seconds": seconds}))
"""


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("by", ["delta", "gradient", "es", "ppo"])
def test_killed_at_twenty_random_instants_a_run_of_a_log_ends_with_the_same_bits_each_time(arm_log, tmp_path, by):
    (arm_log if by == "delta" else fake_motor.recorded(0, 8.0)).save(tmp_path / "log.npz")
    job = [sys.executable, "-c", WARM, by, str(tmp_path / "log.npz"), str(tmp_path)]
    env = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(job, env=env, capture_output=True, text=True, timeout=3500)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert found["same"] == 20 and found["cut"] >= 10 and found["resumed"] >= 5, found
