"""The reach-avoid value: its Bellman targets by hand, what it learns of a chain whose value is known, and that a seed repeats."""

from dataclasses import replace

import numpy as np
import pytest

from surefoot import tasks
from surefoot.control.reach_avoid import Recovery
from surefoot.errors import SurefootError
from surefoot.learn.off_policy.reach_avoid import (
    SOFT,
    Samples,
    ValueSettings,
    accuracy,
    collect,
    driving,
    guard,
    learn_value,
    softened,
    targets,
)
from surefoot.policy import Zero
from surefoot.tasks.rollout import contract

EXACT = ValueSettings(gamma=1.0)


def run(g, l, ended, width=1):
    """One robot's rollout."""
    T = len(g)
    rows = [np.array(x, float).reshape(T, 1) for x in (g, l)]
    flags = np.array(ended, bool).reshape(T, 1)
    blank = np.zeros((T, 1, width), np.float32)
    return Samples(blank, *rows, flags, np.array(g).reshape(T, 1) >= 1, np.ones((T, 1), bool), blank)


def test_targets_follow_the_bellman_equation_backwards():
    """Fails at the end: unsafe, by how far it stayed from the goal. Reaches first (l < 0): safe up to there. Never reaches: unsafe."""
    fails = run([-1, -1, 1], [0.9, 0.8, 0.7], [0, 0, 1])
    assert targets(fails, np.ones((3, 1)), EXACT).ravel().tolist() == [0.8, 0.8, 1]
    reaches = run([-1, -1, 1], [0.9, -0.4, 0.7], [0, 0, 1])
    assert targets(reaches, np.ones((3, 1)), EXACT).ravel().tolist() == pytest.approx([-0.4, -0.4, 1])
    stays = run([-1, -1, -1], [0.9, 0.8, 0.7], [0, 0, 1])
    assert targets(stays, np.ones((3, 1)), EXACT).ravel().tolist() == pytest.approx([0.7, 0.7, 0.7])
    avoid = replace(EXACT, reach=False)
    assert targets(stays, -np.ones((3, 1)), avoid).ravel().tolist() == [-1, -1, -1]
    assert targets(fails, -np.ones((3, 1)), avoid).ravel().tolist() == [1, 1, 1]


def test_a_discount_takes_away_from_what_is_far():
    """V = gamma max(g, V') + (1 - gamma) g of a failure three periods ahead."""
    g, gamma = [-1.0, -1.0, 1.0], 0.9
    found = targets(run(g, [0, 0, 0], [0, 0, 1]), -np.ones((3, 1)), ValueSettings(reach=False, gamma=gamma)).ravel()
    two = gamma * 1.0 - (1 - gamma)
    assert found.tolist() == pytest.approx([gamma * two - (1 - gamma), two, 1.0])


def test_episodes_do_not_leak_into_one_another():
    two = run([-1, -1, -1, 1], [0.9, -0.5, 0.9, 0.9], [0, 1, 0, 1])
    assert targets(two, np.ones((4, 1)), EXACT).ravel().tolist() == pytest.approx([-0.5, -0.5, 0.9, 1])


def test_g_rises_over_the_periods_before_a_failure_within_its_episode():
    failed, ended = np.zeros((30, 1), bool), np.zeros((30, 1), bool)
    failed[20], ended[[8, 20]] = True, True
    g = softened(failed, ended).ravel()
    assert g[20] == 1 and g[19] == pytest.approx(1 - 2 / SOFT) and g[20 - SOFT] == pytest.approx(-1)
    assert (g[:9] == -1).all() and (g[21:] == -1).all()


def test_the_value_of_a_chain_is_learned_with_its_sign():
    """x walks by +-1 from a start to 0 (fails) or 20 (reaches); it goes up from 10 and above, down from below."""
    rng, T, n = np.random.default_rng(0), 120, 100
    x, rows = rng.integers(1, 20, n), []
    for _ in range(T):
        following = np.where(x >= 10, x + 1, x - 1)
        failed, done = following <= 0, (following <= 0) | (following >= 20)
        l = np.where(following >= 20, -1.0, np.where(done, 1.0, 0.5))
        rows.append((x[:, None].astype(np.float32), np.where(failed, 1.0, -1.0), l, done, failed))
        x = np.where(done, rng.integers(1, 20, n), following)
    s, g, l, ended, failed = (np.array(c) for c in zip(*rows))
    samples = Samples(s, g, l, ended, failed, np.ones((T, n), bool), s)
    value = learn_value(samples, ValueSettings(epochs=20), 0)
    V = value(np.arange(1, 20, dtype=np.float32)[:, None])[:, 0]
    assert (V[:8] > 0.25).all() and (V[11:] < -0.5).all()  # l = 0.5 on the way down
    found = accuracy(value, samples, ValueSettings())
    assert found.sign > 0.97 and found.of_failures > 0.9 and 0.3 < found.safe < 0.7
    assert np.array_equal(
        V, learn_value(samples, ValueSettings(epochs=20), 0)(np.arange(1, 20, dtype=np.float32)[:, None])[:, 0]
    )


def small(task):
    return lambda seed: tasks.env(task, 32, task.belief, seed, threads=1)


def test_the_fall_of_a_pole_that_nobody_holds_is_foreseen():
    """balance under zero actions: the pole falls from everywhere but the middle, in all episodes."""
    task = tasks.resolve("balance")
    policy = Zero(contract(task, tasks.env(task, 1).world))
    recovery = Recovery((("cart_pole", 1),), (-1.0,), (1.0,), (3,), "drive", ((1.0,),))
    switch, found = guard(policy, small(task), recovery, ValueSettings(reach=False, episodes=1, alone=0.5, epochs=4), 3)
    assert switch.terms == ("cart_pole",) and found.safe < 0.5
    assert found.of_failures > 0.9
    assert switch.value(np.array([[0, 0, 0.15, 1.0]], np.float32))[0, 0] > 0.5


def test_rollouts_repeat_with_a_seed_and_what_somebody_else_drove_is_no_sample():
    task = tasks.resolve("course")
    policy = Zero(contract(task, tasks.env(task, 1).world))
    recovery = task.recovery
    settings = ValueSettings(episodes=1, alone=1.0)
    runs = [
        collect(policy, small(task)(s), ("velocity", "ray"), settings, s, driving(recovery, policy.contract))
        for s in (1, 1, 2)
    ]
    assert all(np.array_equal(getattr(runs[0], k), getattr(runs[1], k)) for k in vars(runs[0]))
    assert not np.array_equal(runs[0].x, runs[2].x)
    assert 0.6 < runs[0].own.mean() < 0.95 and runs[0].x.shape == (350, 32, 18)
    assert np.abs(runs[0].x[100:, :, 0]).max() > 0.2  # it was driven
    known = runs[0].known
    assert not known[~runs[0].own].any() and known[runs[0].ended & runs[0].own].all()


def test_too_few_samples_are_refused():
    with pytest.raises(SurefootError, match="expected at least 1024 samples, found 3"):
        learn_value(run([-1, -1, 1], [1, 1, 1], [0, 0, 1]), ValueSettings(), 0)
