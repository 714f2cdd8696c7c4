"""SAPG: whose steps are learned from and how, against numbers by hand; promises about bits; the leader as a policy."""

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
from surefoot.learn.on_policy.learner import advantages, table_of
from surefoot.learn.on_policy.sapg import SAPG, kl, log_prob
from surefoot.learn.on_policy.settings import SAPGSettings
from surefoot.learn.runspec import RunSpec

SMALL = {"envs": 24, "horizon": 4, "hidden": (8,), "minibatches": 2, "blocks": 3, "embed": 4, "learner_threads": 1}


def learner(task="balance", seed=0, threads=0, **changes):
    s, t = SAPGSettings(**{**SMALL, **changes}), tasks.resolve(task)
    return SAPG(tasks.env(t, s.envs, t.belief, seed, threads, stagger=True), s, seed)


def weights(lea):
    return {k: v.clone() for k, v in lea.state_dict().items()}


def test_lent_steps_are_the_followers_with_their_log_probabilities_and_one_step_returns():
    """24 envs in 3 blocks; one follower's 8 envs join as envs 24..31, as the leader's. With V_leader and rewards read off, the
    returns of lent steps are r + gamma V(o'), without V(o') where an episode failed; own steps have GAE's."""
    lea = learner(gamma=0.5, lam=0.5)
    lea.iterate()
    r = lea.collect()
    r.terminated[2, :], r.final[2, :] = 1.0, 1.0  # every episode fails in the third step
    r.last.clear()
    log_prob_of_who_acted, raw = r.log_prob.clone(), r.critic.clone()
    rows = lea.lenders()
    mean, sd = lea.returns.mean.float(), lea.returns.sd.float()
    adv, target = lea.estimate(r)
    assert len(rows) == 8 and len(set(lea.block[rows].tolist())) == 1 and lea.block[rows[0]] < lea.leader
    assert adv.shape == target.shape == (4, 32)
    assert torch.equal(r.log_prob[:, 24:], log_prob_of_who_acted[:, rows])
    assert torch.equal(r.actor[:, 24:, :-1], r.actor[:, rows, :-1]) and (r.actor[:, 24:, -1] == lea.leader).all()

    def value(block):
        x = torch.cat([lea.see_critic(raw), torch.full((5, 24, 1), float(block))], 2)
        with torch.no_grad():
            return lea.critic(x.flatten(0, 1)).reshape(5, 24) * sd + mean

    v, alive = value(lea.leader)[:, rows], torch.tensor([1.0, 1.0, 0.0, 1.0])[:, None]
    returns = target * lea.returns.sd.float() + lea.returns.mean.float()
    one_step = r.reward[:, 24:] + 0.5 * v[1:] * alive
    assert torch.allclose(returns[:, 24:], one_step, atol=1e-4)
    own = torch.stack([value(k) for k in range(3)])[lea.block, :, torch.arange(24)].T
    gae, _ = advantages(r.reward[:, :24], own[:-1], own[1:] * alive, r.final[:, :24], 0.5, 0.5)
    both = torch.cat([gae, one_step - v[:-1]], 1)
    assert torch.allclose(adv, (both - both.mean()) / both.std(), atol=1e-4)


def test_the_old_head_of_a_lent_step_is_the_leaders_so_that_kl_is_how_far_the_leader_moved():
    lea = learner()
    lea.iterate()
    r = lea.collect()
    lea.estimate(r)
    with torch.no_grad():
        now = lea.actor(r.actor.flatten(0, 1))
    assert kl(r.head.flatten(0, 1), now).abs().max() < 1e-6


def test_a_time_out_of_a_lent_step_is_worth_the_leaders_value_of_its_last_state():
    lea = learner(gamma=0.5)
    lea.iterate()
    r = lea.collect()
    rows = lea.lenders()
    late = rows[[1, 4]]
    r.last = [(1, late, r.critic[3, late].clone())]
    r.truncated[1, late] = r.final[1, late] = 1.0
    mean, sd = lea.returns.mean.float(), lea.returns.sd.float()
    raw = r.critic[3, late]
    _, target = lea.estimate(r)
    with torch.no_grad():
        seen = torch.cat([lea.see_critic(raw), torch.full((2, 1), float(lea.leader))], 1)
        after = lea.critic(seen)[:, 0] * sd + mean
    found = (target * lea.returns.sd.float() + lea.returns.mean.float())[1, 24 + torch.tensor([1, 4])]
    assert torch.allclose(found, r.reward[1, late] + 0.5 * after, atol=1e-4)


def test_without_lent_steps_the_batch_is_each_blocks_own():
    lea = learner(lent=0)
    r = lea.collect()
    adv, _ = lea.estimate(r)
    assert adv.shape == (4, 24) and r.actor.shape[1] == 24


def test_only_followers_are_paid_for_entropy_and_less_from_one_to_the_next():
    """Without advantages and value loss, the gradient of raw is that of -c_m H: c = 0.1, 0.05, 0."""
    lea = learner(entropy=0.1, value=0.0, lent=0)
    assert lea.weights.tolist() == pytest.approx([0.1, 0.05, 0.0])
    r = lea.collect()
    adv, target = lea.estimate(r)
    batch = next(lea._minibatches(*table_of(r, 0 * adv, target)))
    lea._gradient_step(batch, lea.before())
    grad = dict(lea.modules.named_parameters())["actor.raw"].grad[:, 0]
    share = torch.bincount(batch[0][:, -1].long(), minlength=3) / len(batch[0])
    low, high = lea.actor.bounds
    s = torch.sigmoid(lea.actor.raw.detach()[:, 0])
    expected = -lea.weights * share * (high - low) * s * (1 - s)
    assert torch.allclose(grad / grad.norm(), expected / expected.norm(), atol=1e-3)  # the step's norm is clipped


def test_log_probability_and_kl_equal_torchs():
    a, out, old = (torch.randn(5, k, generator=torch.Generator().manual_seed(k)) for k in (2, 4, 4))
    normal = [torch.distributions.Normal(x[:, :2], x[:, 2:].exp()) for x in (out, old)]
    assert torch.allclose(log_prob(out, a), normal[0].log_prob(a).sum(1), atol=1e-5)
    assert torch.allclose(kl(old, out), torch.distributions.kl_divergence(normal[1], normal[0]).sum(1), atol=1e-4)


@pytest.mark.parametrize("task", ["balance", "walk"])
def test_the_exported_policy_is_the_leader_without_noise(task, tmp_path):
    lea = learner(task)
    for _ in range(2):
        lea.iterate()
    net, obs = policy_of(lea), lea.obs["actor"]
    with torch.no_grad():
        seen = lea.see_actor(torch.from_numpy(obs))
        block = lambda m: lea.actor(torch.cat([seen, torch.full((len(seen), 1), float(m))], 1)).chunk(2, 1)[0].numpy()  # noqa: E731
        leader, follower = block(lea.leader), block(0)
    assert np.allclose(net(obs), leader, atol=1e-5) and not np.allclose(net(obs), follower, atol=1e-5)
    path = export.save(net, tmp_path)
    assert export.onnx_difference(net, path) < 1e-4
    assert np.allclose(bundle.load(tmp_path)(obs), leader, atol=1e-4)


def test_every_block_acts_by_its_own_spread():
    """Spreads of e^-3, e^-1 and 1 in place of one: actions stray so far from the means."""
    lea = learner(envs=300, horizon=20)
    lea.iterate()
    with torch.no_grad():
        s = (torch.tensor([-2.9, -1.0, -0.01]) - lea.actor.bounds[0]) / (lea.actor.bounds[1] - lea.actor.bounds[0])
        lea.actor.raw.copy_(torch.log(s / (1 - s))[:, None])
    r = lea.collect()
    strays = (r.action - r.head.chunk(2, 2)[0])[..., 0]
    for m, wanted in enumerate((-2.9, -1.0, -0.01)):
        assert math.log(float(strays[:, lea.block == m].std())) == pytest.approx(wanted, abs=0.08)


def test_settings_come_from_the_tasks_own_for_ppo_and_survive_json():
    spec, _ = learn.plan("arm", settings=learn.settings_for("arm", {"blocks": 4}, "sapg"))
    task = tasks.resolve("arm")
    assert spec.settings.blocks == 4 and spec.settings.envs == task.settings["envs"]
    assert spec.to_json()["learner"] == "sapg" and RunSpec.from_json(spec.to_json()) == spec
    own = learn.settings_for(replace(task, learners={"sapg": {"entropy": 0.5}}), learner="sapg")
    assert own.entropy == 0.5 and own.gamma == spec.settings.gamma


@pytest.mark.parametrize("change, said", [
    ({"blocks": 1}, "sapg.blocks: expected 2 to 64, found 1"), ({"lent": 3}, "sapg.lent: expected 0 to 2, the followers, found 3"),
    ({"lr": 0.0}, "sapg.lr: expected more than 0"), ({"spread": (1.0, 0.1, 2.0)}, "sapg.spread: expected 0 < least"),
])  # fmt: skip
def test_settings_that_cannot_be_are_refused_by_name(change, said):
    with pytest.raises(SurefootError, match=said):
        SAPGSettings(**{**SMALL, **change})


def test_what_it_cannot_do_is_refused():
    with pytest.raises(SurefootError, match="learner: sapg: balance-discrete chooses among few actions.*--learner ppo"):
        learner("balance-discrete")
    with pytest.raises(SurefootError, match="sapg.envs: expected at least one for each of 3 blocks, found 2"):
        learner(envs=2)
    with pytest.raises(SurefootError, match="base: only with --learner ppo, found sapg"):
        RunSpec("balance", tasks.resolve("balance").belief, SAPGSettings(), base="12")
