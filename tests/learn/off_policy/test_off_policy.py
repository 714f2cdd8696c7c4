"""FastTD3 and FastSAC: gradients and targets by hand, promises about bits, exports, and what is refused."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from surefoot import tasks
from surefoot.deploy import bundle
from surefoot.errors import SurefootError
from surefoot.learn import train as learn
from surefoot.learn.loop import policy_of
from surefoot.learn.nets import export
from surefoot.learn.off_policy.fast_sac import FastSAC
from surefoot.learn.off_policy.fast_td3 import FastTD3
from surefoot.learn.off_policy.replay import Sample
from surefoot.learn.off_policy.settings import FastSACSettings, FastTD3Settings
from surefoot.learn.runspec import LEARNERS, RunSpec
from surefoot.tasks.rollout import evaluate

KINDS = {"fasttd3": (FastTD3, FastTD3Settings), "fastsac": (FastSAC, FastSACSettings)}
SMALL = {
    "envs": 16, "horizon": 4, "updates": 2, "samples": 32, "replay": 64, "warm_up": 100, "actor_after": 150, "hidden": (8,), "critic_hidden": (8,),
    "atoms": 11, "learner_threads": 1,
}  # fmt: skip
both = pytest.mark.parametrize("name", KINDS)


def learner(name="fasttd3", task="balance", seed=0, threads=0, **changes):
    kind, settings = KINDS[name]
    s, t = settings(**{**SMALL, **changes}), tasks.resolve(task)
    return kind(tasks.env(t, s.envs, t.belief, seed, threads, stagger=True), s, seed)


def weights(lea):
    return torch.cat([v.double().flatten() for v in lea.state_dict().values()])


@both
def test_equal_seeds_have_equal_bits_and_other_seeds_others(name):
    one, again, other = (learner(name, seed=k, threads=t) for k, t in ((3, 1), (3, 2), (4, 1)))
    for lea in (one, again, other):
        rows = [lea.iterate() for _ in range(4)]
    assert torch.equal(weights(one), weights(again)) and not torch.equal(weights(one), weights(other))
    assert rows[-1]["steps"] == 4 * 64 and rows[-1]["replay"] >= 4 * 64 and math.isfinite(rows[-1]["critic_loss"])


@both
@pytest.mark.parametrize("at", [1, 3])
def test_a_loaded_learner_goes_on_bit_for_bit(name, at):
    """Before and after learning begins: the replay, the optimisers and where the envs stand are all in what is saved."""
    one = learner(name)
    for _ in range(at):
        one.iterate()
    arrays, numbers = one.save()
    other = learner(name, seed=0)
    other.load({k: v.copy() for k, v in arrays.items()}, numbers)
    for _ in range(3):
        rows = one.iterate(), other.iterate()
        assert rows[0] == rows[1]
    a, b = one.save()[0], other.save()[0]
    assert a.keys() == b.keys() and all(np.array_equal(a[k], b[k]) for k in a)


def sample(lea, n=3):
    """Rows in one state, with rewards 1 2 3 and a last row that weighs nothing."""
    g = lea.env.task.observations
    obs = {k: torch.ones(n, g[k].dim) for k in ("actor", "critic")}
    reward, discount = torch.arange(1.0, n + 1), torch.tensor([0.5, 0.0, 0.5])
    u = torch.zeros(n, lea.actions)
    return Sample(
        obs["actor"], obs["critic"], u, obs["actor"], obs["critic"], reward, discount, torch.tensor([0.5, 0.5, 0.0])
    )


def say(critics, values):
    """Critics that say the same of everything: a number each."""
    with torch.no_grad():
        for p in critics.parameters():
            p.zero_()
        critics.last.bias.copy_(torch.tensor(values)[:, None, None])


def test_td3_targets_are_the_lower_critics_and_failures_bootstrap_nothing():
    """Targets say 4 and 6; rewards 1 and 2, discounts 1/2 and 0: y = 3 and 2. Critics say 0: errors beyond one unit count as
    |error| - 1/2. Loss: two critics, half of each row: 2.5 + 1.5."""
    lea = learner(value="mean")
    say(lea.target, [4.0, 6.0]), say(lea.critic, [0.0, 0.0])
    gradients, told = lea.critic_gradient(sample(lea), torch.zeros(2, 3, 1))
    assert told[0].item() == pytest.approx(2.5 + 1.5) and told[1].item() == 0.0
    last = [g for p, g in zip(lea.critic_params, gradients) if p is lea.critic.last.bias][0]
    assert last.flatten().tolist() == pytest.approx([-1.0, -1.0])  # of each critic: -sign(error), half and half


def test_sac_targets_are_each_critics_own_and_pay_for_entropy():
    """Targets say 4 and 6. alpha 0.1 and log pi = l lower them by 0.1 l / 2 where something follows."""
    lea = learner("fastsac", value="mean", alpha=0.1)
    say(lea.target, [4.0, 6.0]), say(lea.critic, [0.0, 0.0])
    noise = torch.zeros(2, 3, 1)
    b = sample(lea)
    l = lea.squashed.drawn(lea.actor(b.next_actor), noise[0])[1][0].item()
    _, told = lea.critic_gradient(b, noise)
    by_hand = 0.5 * (3.0 - 0.05 * l - 0.5) + 0.5 * (2 - 0.5) + 0.5 * (4.0 - 0.05 * l - 0.5) + 0.5 * (2 - 0.5)
    assert told[0].item() == pytest.approx(by_hand, rel=1e-5)


def test_the_log_probability_of_a_squashed_action_integrates_to_one():
    """sum over a grid of u in (-1, 1) of exp(log pi) du = 1, and it is the density of the samples' own histogram."""
    lea = learner("fastsac", log_sd=(-2.0, 0.0))
    out = torch.tensor([[0.4, 0.3]])
    low, high = lea.settings.log_sd
    sd = math.exp(low + 0.5 * (high - low) * (1 + math.tanh(0.3)))
    u = torch.linspace(-0.9999, 0.9999, 20001)
    noise = ((torch.atanh(u) - 0.4) / sd)[:, None]
    again, log_prob = lea.squashed.drawn(out.expand(len(u), 2), noise)
    assert torch.allclose(again[:, 0], u, atol=1e-5)
    assert torch.trapezoid(log_prob.exp(), u).item() == pytest.approx(1.0, abs=2e-3)


@both
def test_the_exported_actor_is_the_average_of_the_last_steps(name):
    """Over one gradient step: average + tau (actor - average), parameter by parameter."""
    lea = learner(name, updates=1, tau=0.25)
    for _ in range(3):
        before = [p.clone() for p in lea.average.parameters()]
        lea.iterate()
    for was, now, actor in zip(before, lea.average.parameters(), lea.actor.parameters()):
        assert torch.allclose(now, was + 0.25 * (actor - was), atol=1e-6)


def test_alpha_rises_where_entropy_is_below_its_target_and_falls_above():
    for wanted, sign in ((5.0, 1), (-5.0, -1)):
        lea = learner("fastsac", target_entropy=wanted, value="mean")
        before = lea.alpha.log.item()
        for _ in range(4):
            lea.iterate()
        assert math.copysign(1, lea.alpha.log.item() - before) == sign


@both
def test_an_actor_climbs_a_value_that_is_known(name):
    """A critic that says -(u - 0.5)^2 near enough: one whose first layer passes u. The actor's mean goes to it."""
    lea = learner(name, value="mean", layer_norm=False, critic_hidden=(2,), action_penalty=0.0, lr=0.02, alpha=1e-4) if name == "fastsac" else learner(name, value="mean", layer_norm=False, critic_hidden=(2,), action_penalty=0.0, lr=0.02)  # fmt: skip
    say(lea.critic, [1.0, 1.0])
    first, last = lea.critic.body[0], lea.critic.last
    with torch.no_grad():  # 1 - 2 relu(u - 0.5) - 2 relu(0.5 - u)
        first.weight[:, -1, 0], first.weight[:, -1, 1] = 1.0, -1.0
        first.bias[:, 0, 0], first.bias[:, 0, 1] = -0.5, 0.5
        last.weight.fill_(-2.0)
    lea.pace()
    b = sample(lea)._replace(weight=torch.full((3,), 1 / 3))
    rng = torch.Generator().manual_seed(0)
    for _ in range(200):
        parts = [(b, torch.randn(2, 3, 1, generator=rng))]
        lea._step(lea.actor_gradient, parts, lea.actor_params, lea.actor_optimiser)
    u = torch.tanh(lea.actor(lea._seen(b).actor)[:, 0])
    assert u.mean().item() == pytest.approx(0.5, abs=0.1)


@both
@pytest.mark.parametrize("task", ["balance", "walk"])
def test_the_exported_policy_is_the_averaged_mean_squashed_and_within_its_limit(name, task, tmp_path):
    lea = learner(name, task)
    for _ in range(3):
        lea.iterate()
    net = policy_of(lea)
    obs = lea.collector.obs["actor"]
    with torch.no_grad():
        mean = lea.average(lea.see_actor(torch.from_numpy(obs)))[:, : lea.actions]
    assert np.allclose(net(obs), lea.limit * np.tanh(mean.numpy()), atol=1e-5)
    assert np.abs(net(1e3 * obs)).max() <= lea.limit
    path = export.save(net, tmp_path)
    assert export.onnx_difference(net, path) < 1e-4
    assert np.allclose(export.load_net(tmp_path)(obs), net(obs), atol=1e-6)  # its squash is in the file
    assert np.allclose(bundle.load(tmp_path)(obs), net(obs), atol=1e-4)


def test_an_actor_of_a_symmetric_task_is_symmetric_in_mean_and_spread():
    lea = learner("fastsac", "walk")
    m = lea.mirror
    obs = torch.randn(5, lea.env.task.observations["actor"].dim, generator=torch.Generator().manual_seed(0))
    turned = obs[:, m.obs_order.copy()] * torch.from_numpy(m.obs_sign).float()
    (mean, spread), (mean2, spread2) = (lea.actor(x).chunk(2, 1) for x in (obs, turned))
    order, sign = m.action_order.copy(), torch.from_numpy(m.action_sign).float()
    assert torch.allclose(mean2, mean[:, order] * sign, atol=1e-5)
    assert torch.allclose(spread2, spread[:, order], atol=1e-5)


def test_an_update_that_is_not_finite_is_undone_and_three_in_a_row_stop():
    lea = learner()
    for _ in range(3):
        lea.iterate()
    good = weights(lea)
    lea.replay.reward.fill_(float("nan"))
    for k in (1, 2):
        row = lea.learn()
        assert row == {"rejected": k} and torch.equal(weights(lea), good)
    with pytest.raises(SurefootError, match="three updates in a row were not finite.*lower --fasttd3.lr"):
        lea.learn()


def test_the_range_of_returns_is_found():
    """balance pays 1 a step and gamma is 0.9: no return exceeds 10; the first ones are short."""
    lea = learner(gamma=0.9, atoms=51, updates=8, lr=3e-3)
    for _ in range(60):
        row = lea.iterate()
    low, high = lea.head.ends.tolist()
    assert row["target_high"] < high and low <= 1.0 and 9.0 < high < 30.0


@both
def test_choices_and_what_only_ppo_can_do_are_refused(name):
    with pytest.raises(
        SurefootError, match=f"learner: {name}: balance-discrete chooses among few actions.*--learner ppo"
    ):
        learner(name, "balance-discrete")
    belief = tasks.resolve("balance").belief
    with pytest.raises(SurefootError, match=f"base: only with --learner ppo, found {name}"):
        RunSpec("balance", belief, LEARNERS[name](), base="12")


@pytest.mark.parametrize("change, said", [
    ({"tau": 0.0}, "fasttd3.tau: expected more than 0"), ({"gamma": 1.5}, "fasttd3.gamma: expected 0 to 1, found 1.5"),
    ({"replay": 2}, "fasttd3.replay: expected more than n_step and horizon"), ({"samples": 0}, "fasttd3.samples: expected at least 1"),
    ({"explore": (0.5, 0.1)}, "fasttd3.explore: expected 0 <= least <= largest"), ({"critic_hidden": ()}, "fasttd3.critic_hidden"),
])  # fmt: skip
def test_settings_that_cannot_be_are_refused_by_name(change, said):
    with pytest.raises(SurefootError, match=said):
        FastTD3Settings(**change)


def test_settings_by_learner_come_from_the_task_and_survive_json():
    task = tasks.resolve("arm")
    for name in KINDS:
        spec, _ = learn.plan("arm", settings=learn.settings_for("arm", {"steps": 1000}, name))
        assert spec.settings.steps == 1000 and spec.to_json()["learner"] == name
        assert RunSpec.from_json(spec.to_json()) == spec
        assert spec.settings.gamma == task.learners[name].get("gamma", LEARNERS[name]().gamma)
    assert type(learn.settings_for("arm", learner="auto")) is LEARNERS[task.learner]
    with pytest.raises(SurefootError, match="no learner matches 'td3'.*did you mean"):
        learn.settings_for("arm", learner="td3")
    odd = replace(task, learners={"fasttd3": {"gama": 0.9}})
    with pytest.raises(SurefootError, match="task arm: learners: fasttd3.*gama.*did you mean gamma"):
        learn.settings_for(odd, learner="fasttd3")


@pytest.mark.slow
@both
def test_the_arm_is_learned_in_100_000_steps(name):
    """Three seeds: the middle one has at least 80 % success in 100 unseen episodes of the nominal world."""
    rates = []
    for seed in range(3):
        s = learn.settings_for("arm", {"steps": 100_000}, name)
        task = tasks.resolve("arm")
        lea = KINDS[name][0](tasks.env(task, s.envs, None, seed, stagger=True), s, seed)
        while lea.iteration < lea.iterations:
            lea.iterate()
        rates.append(evaluate(policy_of(lea), tasks.env(task, 100, None, 1_000_000 + seed)).rate)
    assert sorted(rates)[1] >= 0.8, rates
