"""What every on-policy learner promises: equal bits at any number of threads, from any checkpoint, after any stop."""

import pytest
import torch

from surefoot import tasks
from surefoot.learn.nets import export
from surefoot.learn.on_policy.fpo import FPO
from surefoot.learn.on_policy.ppo import PPO
from surefoot.learn.on_policy.sapg import SAPG
from surefoot.learn.train import settings_for
from tests.learn.killed_runs import Killable

SMALL = {"envs": 24, "horizon": 4, "hidden": (8,), "minibatches": 2, "learner_threads": 1}
LEARNERS = {
    "ppo": (PPO, SMALL),
    "fpo": (FPO, {**SMALL, "pairs": 4, "flow_steps": 5}),
    "sapg": (SAPG, {**SMALL, "blocks": 3, "embed": 4}),
}
every_learner = pytest.mark.parametrize("name", LEARNERS)


def learner(name, seed=0, threads=0):
    kind, changes = LEARNERS[name]
    t, s = tasks.resolve("balance"), settings_for("balance", changes, name)
    return kind(tasks.env(t, s.envs, t.belief, seed, threads, stagger=True), s, seed)


def equal(one, other):
    return all(torch.equal(v, other[k]) for k, v in one.items())


@every_learner
def test_equal_seeds_have_equal_bits_at_any_number_of_threads_and_other_seeds_others(name):
    runs = []
    for seed, threads in ((1, 1), (1, 2), (2, 1)):
        lea = learner(name, seed, threads)
        for _ in range(3):
            lea.iterate()
        runs.append(lea.memory())
    one, again, other = runs
    assert equal(one, again) and not equal(one, other)


@every_learner
@pytest.mark.parametrize("at", [1, 3])
def test_a_loaded_learner_goes_on_bit_for_bit(name, at):
    one, other = learner(name), learner(name)
    for _ in range(at):
        one.iterate()
    other.load(*one.save())
    for _ in range(2):
        assert one.iterate() == other.iterate()
    assert equal(one.state_dict(), other.state_dict())


@every_learner
def test_an_update_that_is_not_finite_is_undone_and_the_step_size_halved(name):
    lea = learner(name)
    lea.iterate()
    r = lea.collect()
    adv, target = lea.estimate(r)
    before, lr = lea.memory(), lea.lr
    assert lea.update(r, adv * torch.nan, target)["rejected"] == 1 and lea.lr == lr / 2
    assert equal(before, lea.state_dict())


@every_learner
def test_a_stopped_run_ends_with_the_same_bits(name, tmp_path):
    run = Killable(name, {**LEARNERS[name][1], "steps": 24 * 4 * 6})
    run.train(tmp_path / "straight")
    run.stopped_at(tmp_path / "stopped", 3)
    one, two = (export.load_net(tmp_path / k) for k in ("straight", "stopped"))
    assert export.digest(one) == export.digest(two)
