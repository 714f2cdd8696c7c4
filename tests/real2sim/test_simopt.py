"""SimOpt moves a belief to where simulation and robot do the same, within its KL bound."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from surefoot import tasks
from surefoot.belief import Box, Gaussian, point
from surefoot.errors import SurefootError
from surefoot.log import Log
from surefoot.params import Param, Params
from surefoot.policy import Policy
from surefoot.real2sim.episodes import logged
from surefoot.real2sim.infer.simopt import (
    SimOpt,
    acted,
    discrepancy,
    divergence,
    normal,
    replayed,
    reps,
    simopt,
    softmax,
    temperature_of,
)
from surefoot.rng import stream
from surefoot.tasks.ready.arm import FORE, GRAVITY, KP, MASS, MIDDLE, UPPER, arm
from surefoot.tasks.rollout import contract, evaluate

PLANE = Params((Param("a", "task", 0.0, -50.0, 50.0, op="set"), Param("b", "task", 0.0, -50.0, 50.0, op="set")))


def wide(cov=None) -> Gaussian:
    return Gaussian(PLANE, [1.0, -2.0], np.diag([1.0, 4.0]) if cov is None else cov)


def test_one_step_stays_within_its_bound_and_uses_it():
    for kl in (0.05, 0.5, 2.0):
        e = wide().sample(stream(0, "e"), 500)
        after, _ = reps(wide(), e, np.square(e - [3.0, 0.0]).sum(1), kl)
        assert 0.5 * kl < after.kl(wide()) <= kl
        assert np.linalg.norm(after.mean() - [3.0, 0.0]) < np.linalg.norm(wide().mean() - [3.0, 0.0])


def test_with_many_draws_and_a_straight_cost_the_mean_moves_as_the_closed_form_says():
    """min c'mu within KL = k: the covariance stays, and mu moves by -sqrt(2 k / c'Sc) S c."""
    e = wide().sample(stream(0, "e"), 200_000)
    c = np.array([2.0, 1.0])
    after, temperature = reps(wide(), e, e @ c, 0.1)
    S = wide().cov
    assert after.mu - wide().mu == pytest.approx(-np.sqrt(0.2 / (c @ S @ c)) * S @ c, rel=0.02)
    assert temperature == pytest.approx(np.sqrt(c @ S @ c / 0.2), rel=0.02)
    assert after.cov == pytest.approx(S, abs=0.06)


def test_a_few_draws_leave_a_covariance_with_width():
    e = wide().sample(stream(0, "e"), 3)
    after, _ = reps(wide(), e, np.array([0.0, 50.0, 100.0]), 20.0)
    assert np.linalg.eigvalsh(after.cov).min() > 0 and after.kl(wide()) <= 20.0


def test_what_is_fixed_stays_fixed():
    held = wide(np.diag([1.0, 0.0]))
    e = held.sample(stream(0, "e"), 100)
    after, _ = reps(held, e, np.square(e[:, 0] - 3.0), 1.0)
    assert after.mu[1] == -2.0 and after.cov[1, 1] == 0 and after.mu[0] > 1.0
    assert normal(Box(PLANE, [0.0, 3.0], [6.0, 3.0])).cov == pytest.approx(np.diag([3.0, 0.0]), rel=0.05)


@dataclass(frozen=True)
class Holds(Policy):
    """Sends the servos beyond the commanded angles by as much as the weight of its arm would bend them."""

    contract: object
    e: dict

    def step(self, s, obs):
        q = np.asarray(obs[:, -4:-2], float)
        upper, fore, hand = (self.e[k] for k in ("upper_mass", "fore_mass", "payload"))
        outer = (fore / 2 + hand + MASS["hand"]) * FORE * np.cos(q.sum(1))
        inner = (upper / 2 + fore + hand + MASS["hand"]) * UPPER * np.cos(q[:, 0])
        u = q + GRAVITY * np.stack([inner + outer, outer], 1) / np.array(KP)
        return s, (u - MIDDLE) / np.array([1.8, 1.5])


TASK = replace(arm(), seconds=1.2, command_every=0.6)
TRUE = TASK.params.vector({"upper_mass": 2.4, "fore_mass": 1.5, "payload": 0.6})
UNKNOWN = {"upper_mass": 0.3, "fore_mass": 0.3, "payload": 0.4}  # standard deviations, of the logarithm but for payload


def prior() -> Gaussian:
    names = TASK.params.names
    cov = np.diag([UNKNOWN.get(name, 0.0) ** 2 for name in names])
    return Gaussian.around(TASK.params, TASK.params.vector({"payload": 0.2}), cov)


def train(belief):
    c = contract(TASK, tasks.env(TASK, 1).world)
    return Holds(c, dict(zip(TASK.params.names, np.exp(belief.mu) * TASK.params.log + belief.mu * ~TASK.params.log)))


def robot(seed=0):
    env, count = tasks.env(TASK, 1, seed=seed), iter(range(1000))
    return lambda policy: logged(policy, env, e=TRUE[None], seed=1000 * seed + next(count))


def returned(policy, episodes=16):
    """Mean return on the robot."""
    return evaluate(policy, tasks.env(TASK, episodes, point(TASK.params, TRUE), 77)).returns.mean()


def judged(world, imitate, belief):
    """Mean discrepancy of a belief's worlds on a run of the robot that nothing was fitted to."""
    policy = train(prior())
    e = belief.sample(stream(5, "judge"), 48)
    return discrepancy(world, imitate, policy, robot(9)(policy), e).mean()


def test_four_rounds_of_five_runs_cut_the_discrepancy_and_raise_the_return():
    world, rounds = tasks.env(TASK, 1).world, []
    found = simopt(world, prior(), robot(), train, acted(TASK), how=SimOpt(samples=32), watch=rounds.append)
    assert [len(r.logs) for r in rounds] == [5] * 4 and max(r.kl for r in rounds) <= 1.0
    assert judged(world, acted(TASK), found) < 0.3 * judged(world, acted(TASK), prior())
    returns = [returned(r.policy) for r in rounds] + [returned(train(found))]
    assert returns[-1] > returns[0] and min(returns[1:]) > returns[0]


def test_controls_replayed_serve_as_well_where_nothing_falls():
    world = tasks.env(replace(TASK, terms=()), 1).world
    found = simopt(world, prior(), robot(), train, how=SimOpt(rounds=2, samples=48, rollouts=1))
    assert judged(world, replayed(world), found) < 0.6 * judged(world, replayed(world), prior())


def test_the_same_seed_gives_the_same_belief_and_another_does_not():
    world = tasks.env(replace(TASK, terms=()), 1).world
    run = lambda seed: simopt(world, prior(), robot(), train, how=SimOpt(1, 2, 16), seed=seed)  # noqa: E731
    assert run(0) == run(0) and run(0) != run(1)


def test_the_policy_in_the_right_simulation_does_what_the_robot_did_and_in_a_wrong_one_does_not():
    quiet = TASK.params.vector({"upper_mass": 2.4, "fore_mass": 1.5, "payload": 0.6, "noise": 0.0})
    world, policy = tasks.env(TASK, 1).world, train(prior())
    log = logged(policy, tasks.env(TASK, 1), e=quiet[None])
    same, other = discrepancy(world, acted(TASK), policy, log, np.array([quiet, TASK.params.nominal]))
    assert same < 1e-6 < 0.05 < other


def test_a_lost_packet_is_borne_and_a_gap_is_refused():
    world, policy = tasks.env(TASK, 1).world, train(prior())
    log = logged(policy, tasks.env(TASK, 1), e=TRUE[None])

    def without(rows):
        q = log["joint_pos"].copy()
        q[rows] = np.nan
        return discrepancy(world, acted(TASK), policy, Log(log.time, {**log.columns, "joint_pos": q}), TRUE[None])

    assert without([30]) == pytest.approx(without([]), rel=0.05)
    with pytest.raises(SurefootError, match="gap"):
        without(slice(30, 34))


@pytest.mark.parametrize("kl", [0.01, 0.3, 1.0, 2.5])
@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e9])
def test_reps_strays_by_exactly_what_it_may(kl, unit):
    cost = unit * np.random.default_rng(0).gamma(2.0, size=200)
    assert divergence(softmax(cost, temperature_of(cost, kl))) == pytest.approx(kl, abs=1e-3)


def test_softmax_weighs_by_hand():
    weights = np.exp([0, -0.5, -1.5])
    np.testing.assert_allclose(softmax(np.array([1.0, 2.0, 4.0]), 2.0), weights / weights.sum())


def test_reps_temperature_is_where_its_dual_is_least():
    cost, kl = np.random.default_rng(1).gamma(2.0, size=100), 0.5
    dual = lambda t: t * kl + t * np.log(np.mean(np.exp(-cost / t)))  # noqa: E731
    t = temperature_of(cost, kl)
    assert all(dual(t) < dual(t * factor) for factor in (0.9, 0.99, 1.01, 1.1))


def test_reps_that_may_stray_further_than_it_can_takes_the_best():
    cost = np.array([3.0, 1.0, 2.0, 1.0])
    assert temperature_of(cost, 5.0) == 0.0
    np.testing.assert_array_equal(softmax(cost, 0.0), [0, 0.5, 0, 0.5])
    assert divergence(np.full(7, 1 / 7)) == pytest.approx(0.0) and divergence(np.eye(7)[2]) == pytest.approx(np.log(7))
