"""rsl_rl's contract holds on our tasks, and its runner trains on them."""

import importlib
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from rsl_rl.runners import OnPolicyRunner
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from surefoot.errors import MissingExtra, SurefootError
from surefoot.tasks import env, resolve
from surefoot.tasks.adapters.rsl import RslVecEnv, runner_settings


def short(name, n, seconds=0.2, seed=0):
    task = resolve(name)
    return RslVecEnv(env(replace(task, seconds=seconds), n, task.belief, seed))


def play(vec, steps, seed=0):
    rng = torch.Generator().manual_seed(seed)
    told = list(vec.get_observations().values())
    for _ in range(steps):
        obs, reward, done, _ = vec.step(torch.randn((vec.num_envs, vec.num_actions), generator=rng))
        told += [*obs.values(), reward, done]
    return told


def train(seed, iterations=2, log_dir=None, random_ages=False, name="hover"):
    torch.manual_seed(seed)
    task = resolve(name)
    runner = OnPolicyRunner(RslVecEnv(env(task, 64, task.belief, seed)), runner_settings(task), log_dir)
    before = [p.detach().clone() for p in runner.alg.actor.parameters()]
    runner.learn(iterations, random_ages)
    return before, [p.detach() for p in runner.alg.actor.parameters()], runner


def test_groups_shapes_and_time_outs():
    vec = short("hover", 5)
    obs = vec.get_observations()
    assert {k: tuple(v.shape) for k, v in obs.items()} == {"actor": (5, 66), "critic": (5, 35)}
    assert obs.batch_size == (5,) and vec.max_episode_length == 10 and vec.num_actions == 4
    for t in range(1, 11):
        assert (vec.episode_length_buf == t - 1).all()
        obs, reward, done, extras = vec.step(torch.zeros(5, 4))
        assert reward.dtype == torch.float32 and reward.shape == done.shape == extras["time_outs"].shape == (5,)
        assert ("log" in extras) == (t == 10)
    assert (done == 1).all() and extras["time_outs"].all() and (vec.episode_length_buf == 0).all()
    assert torch.equal(obs["actor"], vec.get_observations()["actor"])
    log = extras["log"]
    assert all(v.shape == (5,) and v.isfinite().all() for v in log.values())
    assert {k: log[k].mean() for k in ("Ended/time", "Ended/flew away", "Episode/length")} == {
        "Ended/time": 1, "Ended/flew away": 0, "Episode/length": 10,
    }  # fmt: skip


def test_a_failure_is_no_time_out_and_has_no_error():
    vec = RslVecEnv(env(resolve("balance"), 4))
    for _ in range(40):
        _, reward, done, extras = vec.step(torch.ones(4, 1))
        if done.any():
            break
    assert done.any() and not extras["time_outs"].any() and (reward == 1).all()
    assert "Episode/error" not in extras["log"] and (extras["log"]["Ended/pole fell"] == 1).all()


def test_same_seed_same_bits():
    a, b, c = (play(short("hover", 4, seed=seed), 25) for seed in (1, 1, 2))
    assert all(torch.equal(x, y) for x, y in zip(a, b, strict=True))
    assert not all(torch.equal(x, y) for x, y in zip(a, c, strict=True))


def test_random_ages_are_taken_up_and_keep_out_of_the_statistics():
    vec = short("hover", 4)
    vec.episode_length_buf = torch.tensor([9, 5, 0, 9])
    _, _, done, extras = vec.step(torch.zeros(4, 4))
    assert done.tolist() == [1, 0, 0, 1] and "log" not in extras
    assert vec.episode_length_buf.tolist() == [0, 6, 1, 0]


def test_a_gaits_phase_follows_its_new_age():
    """walk sees its clock: a quarter of a period on, another observation, though nothing has moved."""
    vec = RslVecEnv(env(resolve("walk"), 2))
    at_rest = vec.get_observations()["actor"]
    vec.episode_length_buf = torch.tensor([0, 7])
    now = vec.get_observations()["actor"]
    assert torch.equal(at_rest[0], now[0]) and not torch.equal(at_rest[1], now[1])


def test_the_runner_trains_hover_and_logs_success(tmp_path):
    before, after, _ = train(0, iterations=5, log_dir=str(tmp_path), random_ages=True)
    assert all(p.isfinite().all() for p in after) and not all(torch.equal(p, q) for p, q in zip(before, after))
    events = EventAccumulator(str(tmp_path)).Reload()
    assert {"Episode/success", "Ended/flew away", "Train/mean_reward"} <= set(events.Tags()["scalars"])
    assert 0 < np.mean([e.value for e in events.Scalars("Ended/flew away")]) <= 1


def test_same_seed_same_weights():
    one, two, other = (train(seed, 1, name="balance")[1] for seed in (3, 3, 4))
    assert all(torch.equal(p, q) for p, q in zip(one, two)) and not all(torch.equal(p, q) for p, q in zip(one, other))


def test_settings_of_the_task_reach_the_runner():
    cfg = runner_settings(replace(resolve("hover"), settings={"lr": 5e-4, "hidden": (32,), "horizon": 8, "kl": 0.0}))
    runner = OnPolicyRunner(short("hover", 8), cfg)
    assert runner.alg.learning_rate == 5e-4 and runner.alg.storage.num_transitions_per_env == 8
    assert runner.alg.schedule == "fixed" and runner.alg.actor.mlp[0].out_features == 32


def test_what_cannot_be_done_is_said(monkeypatch):
    with pytest.raises(SurefootError, match="balance-discrete: this task picks one of 2"):
        RslVecEnv(env(resolve("balance-discrete"), 2))
    with pytest.raises(SurefootError, match=r"expected shape \(2, 1\), found \(2,\)"):
        RslVecEnv(env(resolve("balance"), 2)).step(torch.zeros(2))
    monkeypatch.setitem(sys.modules, "rsl_rl.env", None)
    monkeypatch.delitem(sys.modules, "surefoot.tasks.adapters.rsl")
    with pytest.raises(MissingExtra, match=r"surefoot\[rsl\]"):
        importlib.import_module("surefoot.tasks.adapters.rsl")
