"""What is learned from a log by iteration is a run: stopped anywhere and asked again, it ends with the same bits."""

import os
import signal
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
from surefoot.learn.ppo import PPO
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
    return logged(Random(contract(ARM, env.world.model), 0), env)


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
    with pytest.raises(SurefootError, match="learned from a log: give the command that began it again"):
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
    with pytest.raises(SurefootError, match="% of the last batch's simulations diverged"):
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
