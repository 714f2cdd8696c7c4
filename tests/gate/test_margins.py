"""Margins: the load at which a policy breaks is found between two loads, and each load is what it says."""

from dataclasses import replace

import numpy as np
import pytest

from surefoot import tasks
from surefoot.belief import point
from surefoot.gate.measures.margins import Asked, Push, climb, latency, push
from surefoot.gate.runs import Runs, Separation, separation
from surefoot.learn.nets.policy_net import linear
from surefoot.params import Param, Params
from surefoot.policy import Zero
from surefoot.sim.engine import Engine
from surefoot.sim.gap.recipe import Plain
from surefoot.sim.model.load import load_string
from surefoot.tasks.rollout import contract, evaluate
from surefoot.world import Chance, Start


def outcome(good: int, n: int = 10) -> Runs:
    ok = np.arange(n) < good
    return Runs(ok, np.where(ok, 1.0, -1.5), ok, np.where(ok, 0.0, np.nan), np.zeros((n, 1)), {})


@pytest.mark.parametrize("first", [1, 6])
@pytest.mark.parametrize("breaks", [1, 2, 3, 7, 13, 40])
def test_a_climb_ends_just_below_what_breaks_it(breaks, first):
    """Loads of 0.5; at `breaks` steps and above nothing succeeds."""
    tried = {}

    def run(load, begun, n):
        assert begun == tried.get(load, 0)  # those that are known are not run again
        tried[load] = begun + n
        return outcome(0 if load >= 0.5 * breaks - 1e-9 else n, n)

    found = climb(run, 0.5, 50.0, 0.9, 40, first)
    assert found.tolerated < 0.5 * breaks - 1e-9 <= found.failing
    assert found.failing - found.tolerated <= max(0.5, 0.1 * found.tolerated) + 1e-9  # a step, or a tenth
    assert found.falls == found.failing and len(tried) <= 6 + 2 * np.log2(breaks + 1)
    assert (
        list(tried.values()).count(40) <= 3
    )  # without load, and the two between which it breaks; the others: a quarter


def test_what_never_breaks_is_told_so_and_what_fails_unloaded_bears_nothing():
    never = climb(lambda load, first, n: outcome(n, n), 1.0, 20.0, 0.9, 40)
    assert never.tolerated == 20.0 and never.failing == np.inf and never.falls is None
    hopeless = climb(lambda load, first, n: outcome(n // 2, n), 1.0, 20.0, 0.9, 40)
    assert hopeless.tolerated is None and hopeless.failing == 0.0 and len(hopeless.rungs) == 1


@pytest.mark.parametrize("first", [1, 3, 6, 12])
@pytest.mark.parametrize("seed", range(8))
def test_a_margin_is_that_of_all_episodes_where_a_quarter_of_them_misleads(seed, first):
    """Each of 40 episodes breaks at a load of its own: the margin is where the fifth of them does, by sorting."""
    breaks = np.random.default_rng(seed).integers(1, 30, 40)

    def run(load, begun, n):
        ok = load < breaks[begun : begun + n]
        return Runs(ok, np.where(ok, 1.0, -1.5), ok, np.where(ok, 0.0, np.nan), np.zeros((n, 1)), {})

    found, exact = climb(run, 1.0, 50.0, 0.9, 40, first), int(np.sort(breaks)[4]) - 1  # 36 of 40 are 90 %
    assert found.tolerated <= exact < found.failing and found.failing - found.tolerated <= max(1, exact // 10)
    assert all(r.n == 40 for r in found.rungs if r.load in (found.tolerated, found.failing))


BALL = '<mujoco><option gravity="0 0 0"/><worldbody><body name="ball"><freejoint/><geom size=".1" mass="2"/></body></worldbody></mujoco>'


def test_a_blow_gives_a_free_body_its_impulse_over_its_mass():
    """m v = J: 3 N s on 2 kg are 1.5 m/s, sideways, and none before or after."""
    model = load_string(BALL).model
    body, axes, mass = Plain(model).push_point
    assert body == "ball" and mass == 2.0
    world = Engine(model, Params(), 16, 5, terms=(Push(body, 3.0, axes, 2.0),))
    q = np.zeros((16, 7))
    q[:, 3] = 1
    world.reset(np.arange(16), np.zeros((16, 0)), Start(q, np.zeros((16, 6)), np.zeros((16, 0))))
    speeds = []
    for k in range(200):
        world.step(np.zeros((16, 0)), Chance(7, k, world.dt))
        speeds.append(np.linalg.norm(world.state.v[:, :3], axis=1))
    assert np.allclose(speeds[-1], 1.5) and np.allclose(world.state.v[:, 2], 0)
    began = (np.array(speeds) > 1e-9).argmax(0) * world.dt
    assert (began >= 0.2 * 2.0 - world.dt).all() and (began <= 0.5 * 2.0).all() and np.ptp(began) > 0.1


def hand():
    task = tasks.resolve("balance")
    task = replace(task, observations={"actor": task.observations["actor"]}, seconds=4.0, window=4.0)
    c = contract(task, tasks.env(task, 1).world)
    return task, linear(c, {"cart_pole": [[1.0, 2.0, 20.0, 4.0]]}), c


def test_the_latency_margin_is_where_an_evaluation_with_that_latency_breaks():
    """By another route: the task's own unknown `latency`, set to the delays that are tolerated and not."""
    task, policy, _ = hand()
    found = latency(Asked(policy, task, 20, 5, 0.9, threads=1))
    assert found.tolerated is not None and found.failing == pytest.approx(
        found.tolerated + 0.02
    )  # an engine step of 20 ms
    for delay, good in ((found.tolerated, True), (found.failing, False)):
        e = task.params.vector({"latency": delay - 0.005})
        rate = evaluate(policy, tasks.env(task, 20, point(task.params, e), 5, threads=1)).rate
        assert (rate >= 0.9) == good
        assert rate == next(r.rate for r in found.rungs if r.load == pytest.approx(delay))


def test_episodes_run_in_two_parts_are_those_run_at_once():
    """Envs 0 to 5 and 6 to 15 of a seed, with pushes: the same outcome in each row as in one batch of 16."""
    task, policy, _ = hand()
    terms = (Push("cart", 0.6, np.array([[1.0, 0.0, 0.0]]), task.seconds),)
    one = tasks.env(task, 1, task.belief, 5, 1, terms=terms)
    parts = [evaluate(policy, one.like(n, first)) for first, n in ((0, 6), (6, 10))]
    whole = evaluate(policy, one.like(16, 0))
    assert 0 < whole.rate < 1
    for name in ("success", "lengths", "e"):
        assert np.array_equal(np.concatenate([getattr(p, name) for p in parts]), getattr(whole, name))


def test_a_policy_that_observes_e_has_a_latency_margin_and_does_not_observe_the_added_delay():
    task = tasks.resolve("balance")
    teacher = tasks.with_override(replace(task, seconds=0.1, window=0.1), tasks.ObsOverride(also=("e",)))
    policy = Zero(contract(teacher, tasks.env(teacher, 1).world))
    found = latency(Asked(policy, teacher, 2, 5, 0.5, threads=1))
    assert found.rungs[0].rate == 1.0 and policy.contract.obs_dim == 4 + len(task.params)


def test_a_cart_is_pushed_along_its_rail_and_a_better_law_tolerates_more():
    task, policy, c = hand()
    body, axes, mass = Plain(tasks.env(task, 1).world.model).push_point
    assert body == "cart" and np.allclose(np.abs(axes), [[1, 0, 0]]) and mass == pytest.approx(1.1)
    strong = push(Asked(policy, task, 16, 5, 0.9, threads=1, limit=0.3))
    nobody = push(Asked(Zero(c), task, 16, 5, 0.9, threads=1, limit=0.3))
    assert strong.tolerated is not None and strong.tolerated > 0.2 and nobody.tolerated is None


def test_the_unknown_that_separates_failures_is_named():
    rng = np.random.default_rng(0)
    e = rng.random((200, 3))
    runs = Runs(e[:, 1] < 0.8, 0.8 - e[:, 1], np.ones(200, bool), np.zeros(200), e, {})
    cut = (e[runs.success, 1].max() + e[~runs.success, 1].min()) / 2
    by = separation(runs, ["a", "b", "c"])
    assert by == Separation("b", "high", 1.0, pytest.approx(cut), 0.0, 1.0)
    params = Params((Param("b", "mass", 0.5, 0.0, 1.0, op="set", unit="kg"),))
    words = (
        f"b separates failures from successes: 0 % succeed where it is above {cut:.3g} kg, 100 % elsewhere (AUC 1.00)"
    )
    assert by.sentence(params) == words
    low = separation(replace(runs, success=e[:, 2] > 0.3), ["a", "b", "c"])
    assert (low.unknown, low.side, low.beyond, low.within) == ("c", "low", 0.0, 1.0) and low.at == pytest.approx(
        0.3, abs=0.02
    )
    assert separation(replace(runs, success=np.ones(200, bool)), ["a", "b", "c"]) is None
