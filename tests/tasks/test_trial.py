"""Several episodes in one world, with one memory."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from surefoot import tasks
from surefoot.cli import main
from surefoot.deploy import bundle
from surefoot.errors import SurefootError
from surefoot.learn.on_policy.ppo import PPO
from surefoot.learn.ranges.adr import ADR
from surefoot.learn.train import settings_for
from surefoot.params import Param
from surefoot.policy import Zero
from surefoot.tasks import ObsOverride
from surefoot.tasks.rollout import all_succeed, contract, evaluate, trials


def task(k: int = 3, history: int = 4):
    """A pole that nobody balances falls within a second or two, so trials are short."""
    return tasks.with_override(tasks.resolve("balance"), ObsOverride(history=history, trial=k))


def test_the_world_stays_for_a_trial_and_changes_with_the_next():
    env = tasks.env(task(3), 5, tasks.resolve("balance").belief, seed=1)
    env.reset()
    met, finals = [[env.world.state.e[0].copy()]], 0
    while finals < 3:
        step = env.step(np.zeros((5, 1)))
        if step.final[0]:
            assert step.terminated[0]
            finals += 1
            met.append([])
        if step.terminated[0]:
            met[-1].append(env.world.state.e[0].copy())
    worlds = [np.unique(np.array(trial), axis=0) for trial in met[:-1]]
    assert [len(trial) for trial in met[:-1]] == [3, 3, 3] and all(len(w) == 1 for w in worlds)
    assert len(np.unique(np.concatenate(worlds), axis=0)) == 3


def test_the_history_runs_on_within_a_trial_and_tells_action_reward_and_where_an_episode_began():
    env = tasks.env(task(2, history=3), 1, tasks.nominal(tasks.resolve("balance")), seed=1)
    obs = env.reset()["actor"].reshape(3, 7)
    assert (obs[:, 4:6] == 0.0).all() and (obs[:, 6] == 1.0).all()  # copies of the first frame, which nothing led to
    before, seen_final = obs, False
    while not seen_final:
        step = env.step(np.full((1, 1), 0.25))
        obs, seen_final = step.obs["actor"].reshape(3, 7), bool(step.final[0])
        if seen_final:
            break
        assert np.array_equal(obs[:-1], before[1:])
        assert obs[-1, 4] == (0.0 if step.terminated[0] else 0.25)  # in a new episode nothing has been done yet
        assert obs[-1, 5] == pytest.approx(step.reward[0]) and obs[-1, 6] == float(step.terminated[0])
        before = obs
    assert (obs == obs[0]).all() and (obs[0, 4:6] == 0.0).all()  # another world: nothing is remembered


def test_a_task_that_tells_the_last_action_tells_it_once():
    told = [
        t.name for t in tasks.with_override(tasks.resolve("hover"), ObsOverride(trial=2)).observations["actor"].terms
    ]
    assert told.count("last_action") == 1 and told[-2:] == ["last_reward", "begun"]


def test_a_memory_leaves_walks_symmetry_and_one_more_unknown_does_too():
    walk = tasks.resolve("walk")
    more = tasks.with_unknown(walk, Param("pull", "task", 0.0, 0.0, 9.0, op="set"), 0.0, 9.0)
    for task, sees in (
        (walk, ObsOverride(trial=2)),
        (walk, ObsOverride(also=("touch", "base_height"))),
        (more, ObsOverride(also=("e",))),
    ):
        group = tasks.with_override(task, sees).observations["actor"]
        mirror = task.symmetry.of(group)
        assert mirror is not None
        assert (mirror.obs_order[mirror.obs_order] == np.arange(group.dim)).all(), "mirrored twice, it is itself"


def test_what_is_judged_of_a_trial_is_its_last_episode():
    t = task(3)
    made = lambda: tasks.env(t, 6, t.belief, seed=4)  # noqa: E731
    policy = Zero(contract(t, made().world))
    *_, last = trials(policy, made())
    found = evaluate(policy, made())
    assert np.array_equal(found.returns, last.returns) and np.array_equal(found.e, last.e)
    assert not np.array_equal(found.returns, trials(policy, made())[0].returns)


def test_learning_over_trials_goes_on_with_the_same_bits():
    settings = replace(settings_for("balance"), envs=8, horizon=16, minibatches=4, encoder="gru", latent=3)
    make = lambda: PPO(tasks.env(task(3), 8, tasks.resolve("balance").belief, 0, stagger=True), settings, 0)  # noqa: E731
    straight = make()
    for _ in range(3):
        straight.iterate()
    saved = straight.save()
    assert saved[0]["env.ended"].any()
    again = make()
    again.load(*saved)
    for learner in (straight, again):
        for _ in range(3):
            learner.iterate()
    a, b = straight.save()[0], again.save()[0]
    assert a.keys() == b.keys() and all(np.array_equal(a[k], b[k]) for k in a)


def test_a_divergence_ends_a_trial_and_the_rest_of_it_is_not_judged_elsewhere():
    t = task(3)
    env = tasks.env(t, 4, t.belief, seed=2)
    policy, broken = Zero(contract(t, env.world)), []

    def break_once(k, env):
        if not broken:
            env.world.state.q[0] = np.nan
            broken.append(k)

    found = trials(policy, env, break_once)
    assert [x.reasons.get("diverged", 0) for x in found] == [1, 1, 1]
    assert [x.lengths[0] > 0 for x in found] == [True, False, False] and not any(x.success[0] for x in found)


def test_growing_ranges_and_trials_do_not_go_together():
    with pytest.raises(SurefootError, match="1 episode a world"):
        env = tasks.env(task(2), 8, tasks.resolve("balance").belief, 0)
        ranges = ADR().start(tasks.resolve("balance").belief, env.steps, 1000)
        PPO(env, replace(settings_for("balance"), envs=8), 0, ranges)


def test_returns_flow_from_one_episode_of_a_trial_into_the_next_and_no_further():
    """With a critic that says 0 and lambda 1, targets are discounted sums of reward to the end of the trial."""
    settings = replace(settings_for("balance"), envs=16, horizon=64, minibatches=4, lam=1.0)
    learner = PPO(tasks.env(task(2), 16, None, 0), settings, 0)
    torch.nn.init.zeros_(learner.critic[-1].weight)
    rollout = learner.collect()
    assert rollout.final.any() and (rollout.terminated - rollout.final).any()
    adv = torch.zeros_like(rollout.reward)
    running = torch.zeros(16)
    for t in reversed(range(64)):
        running = rollout.reward[t] + settings.gamma * (1 - rollout.final[t]) * running
        adv[t] = running
    adv = (adv - adv.mean()) / (adv.std() + 1e-8)
    found, _ = learner.estimate(rollout)
    assert torch.allclose(found, adv, atol=1e-4)


def test_trials_are_judged_episode_by_episode():
    t = task(3)
    env = tasks.env(t, 20, t.belief, seed=2)
    first, second, third = trials(Zero(contract(t, env.world)), env)
    assert all(np.array_equal(x.e, first.e) for x in (second, third))
    assert all(x.lengths.min() > 5 and sum(x.reasons.values()) == 20 for x in (first, second, third))
    assert not np.array_equal(first.lengths, second.lengths)  # other starts


def test_a_policy_over_trials_is_trained_and_judged_from_the_command_line(tmp_path, capsys):
    out = str(tmp_path / "r")
    small = ["--envs", "8", "--horizon", "8", "--steps", "256", "--hidden", "8", "--encoder", "gru"]
    assert main(["train", "balance", "--obs.trial", "2", "--obs.history", "6", *small, "--out", out, "--json"]) == 0
    capsys.readouterr()
    assert main(["eval", out, "--episodes", "5", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert len(facts["trial"]) == 2 and facts["trial"][0]["episodes"] == 5
    contract = bundle.load(tmp_path / "r").contract
    assert contract.trial == 2 and contract.terms[-1].name == "begun"


def test_trials_of_nothing_and_terms_that_are_not_there_are_refused():
    with pytest.raises(SurefootError, match="expected 1 to 4096 episodes, found 0"):
        tasks.with_override(tasks.resolve("balance"), ObsOverride(trial=0))
    with pytest.raises(SurefootError, match="base_lin_vel"):
        tasks.with_override(tasks.resolve("hover"), ObsOverride(only=("base_linvel",)))


def test_whether_all_succeed_is_known_at_the_first_failure():
    from surefoot.learn.nets.policy_net import linear

    pole = replace(tasks.resolve("balance"), seconds=3.0, window=1.0)
    make = lambda: tasks.env(pole, 6, seed=4)  # noqa: E731
    c = contract(pole, make().world)
    for policy in (linear(c, {"cart_pole": [[1.0, 2.0, 30.0, 6.0]]}), Zero(c)):
        env, found = make(), evaluate(policy, make())
        assert all_succeed(policy, env) == found.success.all()
        first = found.lengths[~found.success].min() if not found.success.all() else found.lengths.max()
        assert env.world.state.time.max() <= first * env.world.dt + 1e-6
    assert not found.success.any()  # of the one that does nothing
