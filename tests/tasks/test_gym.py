"""Gymnasium's contract holds on our tasks, its users' loops learn on them, and nothing is lost as an episode ends."""

import importlib
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from gymnasium.utils.env_checker import check_reset_options, check_reset_return_type, check_reset_seed_determinism
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers.vector import RecordEpisodeStatistics

from surefoot.errors import MissingExtra, SurefootError
from surefoot.learn.on_policy.learner import advantages
from surefoot.tasks import env, resolve
from surefoot.tasks.adapters import gym as gym_module
from surefoot.tasks.adapters.gym import GymVectorEnv, make_gym
from surefoot.tasks.ready.balance import TILT


def short(name, n, seconds=0.2, seed=0):
    return GymVectorEnv(env(replace(resolve(name), seconds=seconds), n, seed=seed))


def play(envs, steps, seed=None):
    """Everything the env says in some steps of always the same random actions."""
    envs.action_space.seed(3)
    told = [envs.reset(seed=seed)[0]]
    for _ in range(steps):
        told += envs.step(envs.action_space.sample())[:4]
    return told


def equal(a, b):
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("name", ["balance", "balance-discrete", "hover", "walk"])
def test_gymnasiums_own_checks_pass(name):
    envs = make_gym(name, 3, resolve(name).belief)
    for check in (check_reset_seed_determinism, check_reset_return_type, check_reset_options):
        check(envs)
    envs.action_space.seed(0)
    for _ in range(5):
        obs, reward, terminated, truncated, info = envs.step(envs.action_space.sample())
        assert obs in envs.observation_space and obs.dtype == np.float32
        assert reward.shape == terminated.shape == truncated.shape == (3,)
        assert terminated.dtype == truncated.dtype == bool and isinstance(info, dict)
    assert envs.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP


def test_spaces_are_the_tasks():
    discrete, hover, walk = (make_gym(name, 2) for name in ("balance-discrete", "hover", "walk"))
    assert discrete.single_action_space == Discrete(2)
    assert hover.single_action_space == Box(-1.0, 1.0, (4,), np.float32)
    limit, joints = resolve("walk").action.limit, len(resolve("walk").action.names)
    assert walk.single_action_space == Box(-limit, limit, (joints,), np.float32)
    assert walk.action_space.shape == (2, joints)
    high = hover.single_observation_space.high
    assert (
        high.shape == (resolve("hover").observations["actor"].dim,) and high[0] == 3.0 and high[12] == 10.0 * 0.5
    )  # clip * scale


def test_same_seed_same_bits_in_one_env_and_in_two():
    a, b = make_gym("hover", 4, resolve("hover").belief), make_gym("hover", 4, resolve("hover").belief, seed=7)
    first = play(a, 80, seed=7)
    assert equal(first, play(a, 80, seed=7))
    assert equal(first, play(b, 80))  # the seed it was made with
    assert not equal(first, play(a, 80, seed=8))


def test_a_reset_without_a_seed_starts_elsewhere():
    envs = make_gym("balance", 4)
    assert not np.array_equal(envs.reset(seed=0)[0], envs.reset()[0])


@pytest.mark.parametrize("history, noisy", [(1, False), (1, True), (3, True)])
def test_final_observation_of_a_time_out_is_what_would_have_been_seen(history, noisy):
    """A twin whose episodes go on is told then, with the same noise, what the time-out reports."""
    task = resolve("balance")
    sees = dict(task.observations) | {"actor": replace(task.observations["actor"], history=history)}
    belief = task.belief if noisy else None
    brief, long = (GymVectorEnv(env(replace(task, observations=sees, seconds=s), 3, belief)) for s in (0.2, 10.0))
    assert np.array_equal(brief.reset(seed=1)[0], long.reset(seed=1)[0])
    for t in range(10):
        action = np.full((3, 1), 0.1 * (-1) ** t, np.float32)
        obs, _, terminated, truncated, info = brief.step(action)
        seen, *_ = long.step(action)
        if t < 9:
            assert not truncated.any() and info == {} and np.array_equal(obs, seen)
    assert truncated.all() and not terminated.any() and info["_final_obs"].all()
    np.testing.assert_allclose(np.stack(info["final_obs"]), seen, rtol=0, atol=1e-7)
    assert noisy or np.abs(obs).max() <= 0.05  # and obs is already the next episode's start
    assert (obs != seen).any(1).all()


def test_final_observation_of_a_failure_is_beyond_the_limit_and_of_a_time_out_within():
    """Episodes end for all as the first pole falls: each env is told its own last angle, the fallen one's too large."""
    envs = short("balance", 64, seconds=0.16)
    obs, _ = envs.reset(seed=0)
    for _ in range(8):
        assert (np.abs(obs[:, 2]) <= TILT).all()
        obs, _, terminated, truncated, info = envs.step(np.ones((64, 1), np.float32))
    angle = np.abs(np.stack(info["final_obs"])[:, 2])
    assert terminated.any() and truncated.any() and (terminated ^ truncated).all()
    assert np.array_equal(angle > TILT, terminated)
    assert (0.1 < angle).all() and (angle < 0.3).all()  # no start is as far, and one step no longer
    assert (np.abs(obs[:, 2]) <= 0.05).all()


def test_final_info_tells_who_ended_and_why():
    """Pushed to one side the pole falls in each env at its own time: CartPole's reward is one a step."""
    envs = RecordEpisodeStatistics(make_gym("balance", 8))
    envs.reset(seed=0)
    for _ in range(40):
        _, _, terminated, _, info = envs.step(np.ones((8, 1), np.float32))
        if terminated.any():
            break
    assert terminated.any() and not terminated.all()
    end = info["final_info"]
    for key in ("final_obs", "final_info"):
        assert np.array_equal(info[f"_{key}"], terminated)
    for key in ("success", "error", "reason", "return", "length"):
        assert np.array_equal(end[f"_{key}"], terminated)
    assert set(end["reason"][terminated]) == {"pole fell"} and set(end["reason"][~terminated]) == {None}
    assert not end["success"].any() and np.isnan(end["error"][terminated]).all()
    assert np.array_equal(end["return"], end["length"]) and np.array_equal(info["episode"]["l"], end["length"])
    assert all((row is None) == (not over) for row, over in zip(info["final_obs"], terminated))


def test_a_kept_pole_is_a_success():
    envs = short("balance", 4)
    envs.reset(seed=0)
    for _ in range(10):
        *_, info = envs.step(np.zeros((4, 1), np.float32))
    end = info["final_info"]
    assert end["success"].all() and set(end["reason"]) == {"time"}
    assert (0 < end["error"]).all() and (end["error"] < 0.3).all() and (end["length"] == 10).all()


def test_what_cannot_be_done_is_said():
    hover, discrete = make_gym("hover", 4), make_gym("balance-discrete", 2)
    hover.reset(seed=0)
    with pytest.raises(SurefootError, match=r"expected shape \(4, 4\), found \(4,\)"):
        hover.step(np.zeros(4))
    with pytest.raises(SurefootError, match=r"finite numbers, found .* in row 2"):
        hover.step(np.where(np.arange(4)[:, None] == 2, np.nan, np.zeros((4, 4))))
    discrete.reset()
    for wrong in (2, 0.5):
        with pytest.raises(SurefootError, match=f"whole numbers from 0 to 1, found {wrong}.* in row 1"):
            discrete.step(np.array([0, wrong]))
    with pytest.raises(SurefootError, match="takes none, found reset_mask"):
        hover.reset(options={"reset_mask": np.ones(4, bool)})
    hover.close()
    with pytest.raises(SurefootError, match="closed"):
        hover.step(np.zeros((4, 4)))


def test_without_gymnasium_or_sb3_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "stable_baselines3.common.vec_env", None)
    with pytest.raises(SurefootError, match="pip install stable-baselines3"):
        gym_module._sb3.__wrapped__()
    monkeypatch.setitem(sys.modules, "gymnasium.spaces", None)
    monkeypatch.delitem(sys.modules, "surefoot.tasks.adapters.gym")
    with pytest.raises(MissingExtra, match=r"surefoot\[gym\]"):
        importlib.import_module("surefoot.tasks.adapters.gym")


def test_a_cleanrl_loop_learns_to_balance():
    """PPO on the plain vector API. An untaught policy drops the pole after about 20 steps; a taught one keeps it up."""
    torch.manual_seed(0)
    envs, lengths = make_gym("balance-discrete", 32), []
    net = torch.nn.Sequential(torch.nn.Linear(4, 64), torch.nn.Tanh(), torch.nn.Linear(64, 3))  # two logits, a value
    optimiser = torch.optim.Adam(net.parameters(), 3e-3)
    obs = torch.from_numpy(envs.reset(seed=0)[0])
    for _ in range(25):
        rows = []
        for _ in range(32):
            with torch.no_grad():
                action = torch.distributions.Categorical(logits=net(obs)[:, :2]).sample()
            new, reward, terminated, truncated, info = envs.step(action.numpy())
            done, after = terminated | truncated, new.copy()
            if done.any():
                after[done] = np.stack(info["final_obs"][done])
                lengths += info["final_info"]["length"][done].tolist()
            said = (torch.from_numpy(x.astype(np.float32)) for x in (reward, terminated, done, after))
            rows.append((obs, action[:, None], *said))
            obs = torch.from_numpy(new)
        seen, action, reward, terminated, done, after = (torch.stack(x) for x in zip(*rows))
        with torch.no_grad():
            old, value, following = net(seen)[..., :2].log_softmax(-1), net(seen)[..., 2], net(after)[..., 2]
            adv, target = advantages(0.1 * reward, value, following * (1 - terminated), done, 0.98, 0.95)
            adv = (adv - adv.mean()) / adv.std()
        for _ in range(8):
            out = net(seen)
            ratio = (out[..., :2].log_softmax(-1) - old).gather(-1, action)[..., 0].exp()
            gain = torch.minimum(ratio * adv, ratio.clamp(0.8, 1.2) * adv).mean()
            optimiser.zero_grad()
            ((out[..., 2] - target).square().mean() - gain).backward()
            optimiser.step()
    assert np.mean(lengths[:100]) < 40 < 80 < np.mean(lengths[-50:])


def test_sb3_vec_env_keeps_sb3s_contract():
    vec = gym_module.SB3VecEnv(short("balance", 4))
    assert gym_module.SB3VecEnv is type(vec) and vec.render_mode is None and vec.env_is_wrapped(object) == [False] * 4
    vec.seed(5)
    start = vec.reset()
    for _ in range(10):
        obs, reward, done, infos = vec.step(np.zeros((4, 1), np.float32))
    assert done.all() and reward.dtype == np.float32 and len(infos) == 4
    for i, info in enumerate(infos):
        assert info["TimeLimit.truncated"] is True and info["is_success"] is True and info["reason"] == "time"
        assert info["episode"] == {"r": 10.0, "l": 10}
        assert (info["terminal_observation"] != obs[i]).any() and info["terminal_observation"].shape == (4,)
    vec.seed(5)
    assert np.array_equal(start, vec.reset())
    assert vec.get_attr("num_envs", [0, 2]) == [4, 4]
    with pytest.raises(SurefootError, match="all rows are one environment"):
        vec.set_attr("spec", None, indices=[1])


def test_sb3_ppo_trains_and_knows_success():
    from stable_baselines3 import PPO
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.vec_env import VecMonitor

    model = PPO("MlpPolicy", gym_module.SB3VecEnv(make_gym("balance-discrete", 8)), n_steps=128, seed=0, device="cpu")
    before = [p.detach().clone() for p in model.policy.parameters()]
    model.learn(2048)
    after = list(model.policy.parameters())
    assert all(p.isfinite().all() for p in after) and any(not torch.equal(p, q) for p, q in zip(before, after))
    assert len(model.ep_info_buffer) == len(model.ep_success_buffer) > 20
    assert 10 < np.mean([e["l"] for e in model.ep_info_buffer]) < 100
    mean, _ = evaluate_policy(model, VecMonitor(gym_module.SB3VecEnv(make_gym("balance-discrete", 8))), 8)
    assert 5 < mean <= 500
