"""Envs: a Task in a World, and what must hold whatever the task."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from surefoot import tasks
from surefoot.belief import Box
from surefoot.errors import SurefootError
from surefoot.observation import ObsGroup, ObsTerm
from surefoot.params import Param, Params
from surefoot.policy import Random, Zero
from surefoot.sim.events import Pull
from surefoot.task import Episode, Reward
from surefoot.tasks.rollout import contract, evaluate
from surefoot.world import OnObservation, Start

FLAT = [n for n in tasks.names() if n != "walk-rough"]


def play(env, steps, seed=0):
    """Random actions; everything the env said, as one list of arrays."""
    policy, said = Random(contract(env.task, env.world), seed), []
    obs = env.reset()
    for _ in range(steps):
        step = env.step(policy(obs["actor"]))
        obs = step.obs
        said += [step.reward, step.terminated, step.truncated, *obs.values()]
    return said


@pytest.mark.parametrize("name", tasks.names())
def test_every_task_runs_with_finite_numbers_of_the_promised_shapes(name):
    task = tasks.resolve(name)
    env = tasks.env(task, 8, task.belief, seed=3, stagger=True)
    obs = env.reset()
    assert {g: o.shape for g, o in obs.items()} == {g: (8, group.dim) for g, group in task.observations.items()}
    assert all(np.isfinite(x).all() for x in play(env, 40))
    assert set(task.observations) >= {"actor", "critic"}


@pytest.mark.parametrize("name", FLAT)
def test_same_seed_same_bits_at_any_thread_count_and_two_seeds_differ(name):
    task = tasks.resolve(name)
    runs = [play(tasks.env(task, 16, task.belief, seed, threads), 30) for seed, threads in ((5, 1), (5, 2), (6, 2))]
    assert all(np.array_equal(a, b) for a, b in zip(runs[0], runs[1]))
    assert not all(np.array_equal(a, b) for a, b in zip(runs[0], runs[2]))


@pytest.mark.parametrize("name", FLAT)
def test_save_and_load_go_on_with_the_same_bits(name):
    task = replace(tasks.resolve(name), seconds=0.6)
    env, again = (tasks.env(task, 8, task.belief, seed=2) for _ in range(2))
    play(env, 20)
    saved = env.save()
    policy = Random(contract(task, env.world), 9)
    actions = [policy(np.zeros((8, 1))) for _ in range(40)]
    first = [env.step(a) for a in actions]
    again.load(saved)
    second = [again.step(a) for a in actions]
    for a, b in zip(first, second):
        assert np.array_equal(a.reward, b.reward) and all(np.array_equal(a.obs[g], b.obs[g]) for g in a.obs)


def test_actors_see_nothing_a_robot_cannot_measure():
    walk = {t.name for t in tasks.resolve("walk").observations["actor"].terms}
    assert walk == {
        "base_ang_vel",
        "projected_gravity",
        "command",
        "joint_pos",
        "joint_vel",
        "last_action",
        "gait_clock",
    }
    for name in tasks.names():
        assert "e" not in {t.name for t in tasks.resolve(name).observations["actor"].terms}


def test_e_is_drawn_anew_at_each_reset_from_the_belief_uniform_and_log_uniform():
    task = replace(tasks.resolve("balance"), seconds=0.04)  # two steps an episode
    env = tasks.env(task, 250, task.belief, seed=1)
    env.reset()
    drawn = [env.world.state.e.copy()]
    for _ in range(6):
        env.step(np.zeros((250, 1)))
        drawn.append(env.world.state.e.copy())
    e = np.concatenate(drawn[::2])  # 1000 draws
    for i, p in enumerate(task.params):
        z = np.log(e[:, i]) if p.log else e[:, i]
        low, high = (
            np.log([task.belief.low[i], task.belief.high[i]]) if p.log else (task.belief.low[i], task.belief.high[i])
        )
        assert stats.kstest(z, "uniform", (low, high - low)).pvalue > 0.01, p.name
    assert not np.array_equal(drawn[0], drawn[2])


def test_an_env_that_ends_moves_no_other_env_by_a_bit():
    """Kill one env's episode by hand; the others' e, starts, noise and commands stay what they would have been."""
    task = tasks.resolve("hover")
    clean, hurt = (tasks.env(task, 6, task.belief, seed=4) for _ in range(2))
    clean.reset(), hurt.reset()
    for k in range(60):
        if k == 10:
            hurt.world.state.q[2, :3] = 50.0  # far beyond reach
        a, b = (env.step(np.zeros((6, 4))) for env in (clean, hurt))
        others = [i for i in range(6) if i != 2]
        assert all(np.array_equal(a.obs[g][others], b.obs[g][others]) for g in a.obs)
        assert np.array_equal(a.reward[others], b.reward[others])
    assert not np.array_equal(a.obs["actor"][2], b.obs["actor"][2])


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf, 1e7])
@pytest.mark.parametrize("name", ["hover", "walk"])
def test_divergence_ends_that_episode_alone_with_its_reason_and_no_transition_to_learn_from(name, poison):
    task = tasks.resolve(name)
    clean, hurt = (tasks.env(task, 6, task.belief, seed=4) for _ in range(2))
    seen = []
    hurt.on_divergence = lambda name, arrays: seen.append((int(arrays["env"]), arrays))
    clean.reset(), hurt.reset()
    for k in range(12):
        if k == 5:
            hurt.world.state.v[2] = poison
        a, b = (env.step(np.zeros((6, len(task.action.names)))) for env in (clean, hurt))
        assert all(np.isfinite(x).all() for x in (b.reward, *b.obs.values(), *b.last.values()))
        others = [i for i in range(6) if i != 2]
        assert all(np.array_equal(a.obs[g][others], b.obs[g][others]) for g in a.obs)
        assert b.valid.tolist() == [not (k == 5 and i == 2) for i in range(6)]
        if k == 5:
            assert b.terminated[2] and b.episodes.reason == ["diverged"] and b.reward[2] == 0
    assert hurt.diverged == 1 and [i for i, _ in seen] == [2] and len(seen[0][1]["controls"]) == 6


def test_many_divergences_are_all_contained():
    """A thousand injections: each is seen, none spreads, nothing becomes NaN."""
    task = tasks.resolve("hover")
    env = tasks.env(task, 100, task.belief, seed=1)
    env.reset()
    rng = np.random.default_rng(0)
    for _ in range(100):
        ids = rng.choice(100, 10, replace=False)
        env.world.state.v[ids] = rng.choice([np.nan, np.inf, 1e8], (10, 1))
        step = env.step(np.zeros((100, 4)))
        assert np.flatnonzero(~step.valid).tolist() == sorted(ids)
        assert all(np.isfinite(x).all() for x in (step.reward, *step.obs.values()))
    assert env.diverged == 1000


def test_history_holds_the_newest_frame_last_and_begins_with_copies_of_the_first():
    task = tasks.resolve("balance")
    task = replace(
        task, observations=dict(task.observations, actor=replace(task.observations["actor"], history=3)), seconds=0.2
    )
    env = tasks.env(task, 2, seed=0)
    obs = env.reset()["actor"].reshape(2, 3, 4)
    assert np.array_equal(obs[:, 0], obs[:, 2])
    first = obs[:, 0].copy()
    step = env.step(np.ones((2, 1)))
    later = step.obs["actor"].reshape(2, 3, 4)
    assert np.array_equal(later[:, :2], np.stack([first, first], 1)) and not np.array_equal(later[:, 2], first)
    for _ in range(9):
        step = env.step(np.full((2, 1), 0.1))
    assert step.truncated.all()
    fresh = step.obs["actor"].reshape(2, 3, 4)
    assert np.array_equal(fresh[:, 0], fresh[:, 2])  # nothing of the old episode in the new one's history


def test_noise_has_the_spread_that_e_says_and_bias_is_constant():
    task = tasks.resolve("balance")
    e = task.params.vector({"noise": 0.1})
    env = tasks.env(task, 4000, Box(task.params, e, e), seed=0)
    told = env.reset()["actor"]
    truth = np.stack(
        [env.world.state.q[:, 0], env.world.state.v[:, 0], env.world.state.q[:, 1], env.world.state.v[:, 1]], 1
    )
    assert np.allclose((told - truth).std(0), 0.1, rtol=0.05)
    walk = tasks.resolve("walk")
    e = walk.params.vector({"gyro_bias": 0.2, "noise": 0.0})
    env = tasks.env(walk, 4, Box(walk.params, e, e), seed=0)
    told = env.reset()["actor"][:, :3] / 0.25
    assert np.allclose(told - env.world.state.y["gyro"], 0.2, atol=1e-6)


def test_pushes_come_once_a_period_with_the_force_that_e_says():
    task = tasks.resolve("walk")
    push = task.terms[0]
    from surefoot.world import Chance

    e = task.params.vector({"push": 2.0})
    env = tasks.env(task, 50, Box(task.params, e, e), seed=0)
    env.reset()
    force = np.array(
        [push(env.world.state, np.zeros((50, 12)), Chance(0, k, 0.02)) for k in range(400)]
    )  # two periods of 4 s
    size = np.linalg.norm(force[:, :, :2], axis=2)
    assert np.allclose(size[size > 0], 120.0) and not force[:, :, 2:].any()
    assert ((size > 0).sum(0) == 10).all()  # two pushes of 0.1 s at 50 Hz
    assert len({int(k) for k in (size > 0).argmax(0)}) > 10  # not all at once


def test_success_needs_the_whole_episode_and_the_error_within_tolerance():
    task = replace(tasks.resolve("balance"), seconds=0.3, window=0.1)
    env = tasks.env(task, 20, seed=0)
    c = contract(task, env.world)
    result = evaluate(Zero(c), env)
    assert result.rate == 1.0 and result.reasons == {"time": 20} and (result.lengths == 15).all()
    strict = tasks.env(replace(task, tolerance=1e-6), 20, seed=0)
    assert evaluate(Zero(c), strict).rate == 0.0
    late = tasks.env(replace(task, seconds=10.0), 20, seed=0)
    failed = evaluate(Zero(c), late)
    assert failed.rate == 0.0 and failed.reasons == {"pole fell": 20} and np.isnan(failed.error).all()


def test_evaluation_counts_each_env_once():
    task = tasks.resolve("balance")
    env = tasks.env(task, 64, seed=0)
    result = evaluate(Zero(contract(task, env.world)), env)
    assert sum(result.reasons.values()) == 64 and result.interval[0] == 0.0 and 0 < result.interval[1] < 0.06


def test_commands_are_drawn_at_reset_and_again_every_five_seconds():
    task = tasks.resolve("walk")
    env = tasks.env(task, 8, seed=0)
    env.reset()
    first = env.command.copy()
    for _ in range(249):
        env.step(np.zeros((8, 12)))
    standing = env.age == 249
    assert standing.any() and np.array_equal(env.command[standing], first[standing])
    env.step(np.zeros((8, 12)))
    assert not np.array_equal(env.command[standing], first[standing])


def follower(seconds=0.2):
    """A cart that begins on one of three straight lines, x = (clip + 1) * phase, and is told to go as fast as its line."""

    def episode(rng, n):
        drawn = rng.uniform(0.0, 1.0, (n, 2))
        clip, phase = np.floor(3 * drawn[:, 0]).astype(int), drawn[:, 1]
        q, v = np.zeros((n, 2)), np.zeros((n, 2))
        q[:, 0], v[:, 0] = (clip + 1) * phase, clip + 1
        return Episode(Start(q, v, np.zeros((n, 1))), v[:, :1], clip, phase)

    here = ObsTerm("line", lambda s: ((s.reference + 1) * s.phase)[:, None], 1, sensed=False)
    balance = tasks.resolve("balance")
    return replace(
        balance, episode=episode, command_names=("speed",), seconds=seconds, ended={}, terms=(), params=Params(),
        belief=Box.full(Params()), action=replace(balance.action, scale=np.zeros(1)),
        observations={"actor": ObsGroup((here,)), "critic": ObsGroup((here,))},
    )  # fmt: skip


@pytest.mark.parametrize("stagger", [False, True])
def test_state_command_reference_and_phase_of_an_episode_are_drawn_together(stagger):
    env = tasks.env(follower(), 64, seed=4, stagger=stagger)
    obs = env.reset()
    np.testing.assert_allclose(obs["actor"][:, 0], env.world.state.q[:, 0], rtol=1e-6)
    np.testing.assert_array_equal(env.command[:, 0], env.reference + 1)
    assert set(env.reference) == {0, 1, 2}
    first = env.reference.copy()
    for _ in range(30):  # three episodes; the cart rolls on at its line's speed, the pole pulls at it by a little
        step = env.step(np.zeros((64, 1)))
        np.testing.assert_allclose(step.obs["actor"][:, 0], env.world.state.q[:, 0], atol=2e-3)
        now = env.moment
        np.testing.assert_allclose(now.rows(np.array([5, 2])).phase, now.phase[[5, 2]])
    assert (env.reference != first).any()


def test_reference_and_phase_go_on_from_a_save():
    env, again = (tasks.env(follower(), 8, seed=2) for _ in range(2))
    env.reset()
    env.step(np.zeros((8, 1)))
    again.load(env.save())
    for _ in range(15):
        one, two = env.step(np.zeros((8, 1))), again.step(np.zeros((8, 1)))
        assert np.array_equal(one.obs["actor"], two.obs["actor"])


def test_a_belief_over_other_params_is_refused():
    with pytest.raises(SurefootError, match="expected params"):
        tasks.env(tasks.resolve("hover"), 2, tasks.resolve("balance").belief)
    with pytest.raises(SurefootError, match="no task matches 'hovr'.*did you mean hover"):
        tasks.resolve("hovr")


class Fog(OnObservation):
    """Noise on what the actor is told, drawn for all rows at once, as terms do."""

    def __call__(self, x, obs, chance):
        return obs + chance.draw("fog").standard_normal(obs.shape)


def test_a_term_on_observations_lets_no_env_move_another():
    task = tasks.resolve("hover")
    clean, hurt = (tasks.env(task, 6, task.belief, seed=4, terms=(Fog(),)) for _ in range(2))
    plain = tasks.env(task, 6, task.belief, seed=4)
    first = clean.reset()["actor"]
    assert np.abs(first - plain.reset()["actor"]).std() > 0.5 and np.array_equal(first, hurt.reset()["actor"])
    others = [i for i in range(6) if i != 2]
    for k in range(30):
        if k == 10:
            hurt.world.state.q[2, :3] = 50.0
        a, b = (env.step(np.zeros((6, 4))) for env in (clean, hurt))
        assert np.array_equal(a.obs["actor"][others], b.obs["actor"][others])
        if k == 10:
            assert b.terminated[2] and np.isfinite(b.last["actor"]).all()


def test_a_reward_or_a_reading_that_is_no_number_is_contained_though_the_engine_is_well():
    task = tasks.resolve("balance")
    broken = {
        "reward": replace(task, rewards={"odd": Reward(1.0, lambda s: np.where(s.time > 0.09, np.nan, 1.0), "")}),
        "reading": replace(task, observations=dict(task.observations, critic=ObsGroup((ObsTerm("odd", lambda s: np.where(s.time > 0.09, np.inf, 1.0)[:, None], 1),)))),
    }  # fmt: skip
    for name, odd in broken.items():
        env = tasks.env(odd, 4, seed=0)
        env.reset()
        for _ in range(5):
            step = env.step(np.zeros((4, 1)))
            assert all(np.isfinite(x).all() for x in (step.reward, *step.obs.values(), *step.last.values())), name
        assert env.diverged == 4 and not step.valid.any() and step.episodes.reason == ["diverged"] * 4, name


def test_an_action_that_is_no_number_is_refused():
    env = tasks.env(tasks.resolve("hover"), 3)
    env.reset()
    with pytest.raises(SurefootError, match="action: env 1: found .*nan.*expected finite"):
        env.step(np.array([[0.0] * 4, [0.0, np.nan, 0, 0], [0.0] * 4]))


@pytest.mark.slow
def test_a_hundred_thousand_divergences_are_all_contained():
    task = tasks.resolve("hover")
    env = tasks.env(task, 1000, task.belief, seed=1)
    env.reset()
    rng = np.random.default_rng(0)
    for _ in range(200):
        ids = rng.choice(1000, 500, replace=False)
        env.world.state.v[ids] = rng.choice([np.nan, np.inf, 1e8], (500, 1))
        step = env.step(np.zeros((1000, 4)))
        assert np.flatnonzero(~step.valid).tolist() == sorted(ids)
        assert all(np.isfinite(x).all() for x in (step.reward, *step.obs.values()))
    assert env.diverged == 100_000


def test_a_task_can_be_given_one_more_unknown_with_the_term_that_it_steers():
    """A drone that something drags along x: m v' = F at first, before drag and tilt matter; the others stay as they are."""
    hover = tasks.resolve("hover")
    drag = Param("pull", "pull", 0.0, 0.0, 1.0, op="set", unit="N", match="drone")
    params = Params((*hover.params, drag))
    task = tasks.with_unknown(hover, drag, 0.0, 0.5, Pull("drone", params, along=(True, False, False), none=0.0))
    assert task.params.names == [*hover.params.names, "pull"] and task.belief.high[-1] == 0.5
    env, plain = tasks.env(task, 5, seed=1), tasks.env(hover, 5, seed=1)
    assert env.reset(e=np.tile(task.params.vector({"pull": 0.5}), (5, 1)))["critic"].shape == (
        5,
        task.observations["critic"].dim,
    )
    plain.reset()
    env.step(np.zeros((5, 4))), plain.step(np.zeros((5, 4)))
    force = env.world.state.wrench[:, 1, 0]
    assert np.allclose((env.world.state.v - plain.world.state.v)[:, 0], force / 0.027 * env.world.dt, rtol=1e-6)
    assert np.abs(force).min() > 0


def test_a_critic_told_what_the_actor_is_told_hears_its_noise_and_one_of_other_terms_none():
    task = tasks.resolve("hover")
    same = tasks.env(tasks.with_override(task, tasks.ObsOverride(critic="actor")), 8, task.belief, seed=1)
    own = tasks.env(task, 8, task.belief, seed=1)
    for env in (same, own):
        obs = env.reset()
        for _ in range(3):
            obs = env.step(np.zeros((8, 4))).obs
        actor, critic = obs["actor"], obs["critic"]
        if env is same:
            assert np.array_equal(actor, critic)
    at = own.task.observations["actor"].columns[0]
    newest = actor.reshape(8, own.task.observations["actor"].history, -1)[:, -1, at]
    assert not np.array_equal(newest, critic[:, own.task.observations["critic"].columns[0]])
