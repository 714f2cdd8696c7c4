"""FPO: the flow against what is known of it, ratios and trust regions by hand, promises about bits, and the export."""

import math

import numpy as np
import pytest
import torch

from surefoot import tasks
from surefoot.deploy import bundle
from surefoot.errors import SurefootError
from surefoot.learn import train as learn
from surefoot.learn.loop import policy_of
from surefoot.learn.nets import export
from surefoot.learn.nets.flow import FlowActor, flow_net
from surefoot.learn.on_policy.fpo import FPO, surrogate
from surefoot.learn.on_policy.learner import table_of
from surefoot.learn.on_policy.settings import FPOSettings
from surefoot.learn.runspec import RunSpec

SMALL = {"envs": 16, "horizon": 4, "hidden": (8,), "minibatches": 2, "pairs": 4, "flow_steps": 5, "learner_threads": 1}


def learner(task="balance", seed=0, threads=0, **changes):
    s, t = FPOSettings(**{**SMALL, **changes}), tasks.resolve(task)
    return FPO(tasks.env(t, s.envs, t.belief, seed, threads, stagger=True), s, seed)


def weights(lea):
    return {k: v.clone() for k, v in lea.state_dict().items()}


class Straight(torch.nn.Module):
    """The field whose paths all end at one action: at (x, t) it points there, v = (x - a) / t."""

    def __init__(self, obs: int, a: float):
        super().__init__()
        self.obs, self.a = obs, a

    def forward(self, rows):
        x = rows[:, self.obs : self.obs + 2]
        t = torch.arccos(rows[:, self.obs + 2 : self.obs + 3]) / math.pi  # the first wave of the clock
        return (x - self.a) / t


def test_a_field_that_points_at_one_action_takes_all_noise_there_and_has_no_loss():
    """x - v / S from t = 1 on ends at a exactly; of pairs that lie on the way to a, eps_hat = eps."""
    actor = FlowActor(Straight(3, 0.7), None, 2, 1, 8, "relu")
    rng = torch.Generator().manual_seed(0)
    obs, noise = torch.zeros(6, 3), torch.randn(6, 2, generator=rng)
    assert torch.allclose(actor.sample(obs, noise), torch.full((6, 2), 0.7), atol=1e-5)
    t = actor.times((6, 4), rng)
    assert set((t * 8).round().flatten().tolist()) <= set(map(float, range(1, 9)))
    losses = actor.losses(obs, torch.full((6, 2), 0.7), torch.randn(6, 4, 2, generator=rng), t.clamp(max=0.95))
    assert losses.shape == (6, 4) and losses.max() < 1e-8
    far = actor.losses(obs, torch.full((6, 2), 0.2), torch.randn(6, 4, 2, generator=rng), t.clamp(max=0.95))
    assert far.mean() > 0.01


def test_a_flow_with_a_mirror_answers_mirrored_noise_with_the_mirrored_action():
    task = tasks.resolve("walk")
    m, rng = task.symmetry.of(task.observations["actor"]), torch.Generator().manual_seed(0)
    actor = FlowActor(flow_net(47, 12, (16,), "relu", rng, last=1.0), m, 12, 1, 4, "relu")
    obs, noise = torch.randn(5, 47, generator=rng), torch.randn(5, 12, generator=rng)
    turn = lambda x, order, sign: x[:, order.copy()] * torch.from_numpy(sign).float()  # noqa: E731
    straight = actor.sample(obs, noise)
    flipped = actor.sample(turn(obs, m.obs_order, m.obs_sign), turn(noise, m.action_order, m.action_sign))
    assert torch.allclose(turn(flipped, m.action_order, m.action_sign), straight, atol=1e-5)


def test_ratios_are_of_the_mean_loss_for_fpo_and_of_each_pair_for_fpo_plus_plus():
    """log ratios 0.3 and -0.1, clip 0.1. FPO: rho = e^0.1, gain min(e^0.1, 1.1). FPO++ with A = 1: min of each, mean.
    With A = -1: rho A - (rho - 1)^2 / 0.2 of each."""
    log_ratio = torch.tensor([[0.3, -0.1]])
    a, b = math.exp(0.3), math.exp(-0.1)
    assert surrogate(log_ratio, torch.ones(1), 0.1, False).item() == pytest.approx(min(math.exp(0.1), 1.1))
    assert surrogate(log_ratio, torch.ones(1), 0.1, True).item() == pytest.approx((min(a, 1.1) + b) / 2)
    held = [-x - (x - 1) ** 2 / 0.2 for x in (a, b)]
    assert surrogate(log_ratio, -torch.ones(1), 0.1, True).item() == pytest.approx(sum(held) / 2, rel=1e-5)


def test_the_square_pulls_a_bad_actions_ratio_back_to_one_less_clip_and_no_farther():
    """d/drho of rho A - |A| (rho - 1)^2 / (2 c) at A = -1 is 0 at rho = 1 - c; where PPO's clip has no gradient, it returns."""
    for rho, sign in ((0.95, 1), (0.9, 0), (0.6, -1)):
        x = torch.tensor([[math.log(rho)]], requires_grad=True)
        surrogate(x, -torch.ones(1), 0.1, True).backward()
        assert x.grad.item() * -sign >= -1e-6 and (abs(x.grad.item()) < 1e-5) == (sign == 0)


def test_before_the_first_step_every_ratio_is_one():
    lea = learner()
    for _ in range(2):
        r = lea.collect()
        adv, target = lea.estimate(r)
        obs, _, x, head, old = next(lea._minibatches(*table_of(r, adv, target)))[:5]
        with torch.no_grad():
            assert (-old - lea._losses(obs, x, head)).abs().max() < 1e-5
        lea.iterate()


def test_losses_are_in_units_of_the_batchs_mean_so_that_a_clip_means_as_much_to_a_sharp_policy():
    """Old losses have a mean of 1, whatever the policy. Where the loss was a tenth, the same rise has ten times the log ratio."""
    lea = learner()
    lea.iterate()
    r = lea.collect()
    assert -r.log_prob.mean().item() == pytest.approx(1.0, abs=1e-4)
    obs, x, head = (part.flatten(0, 1) for part in (r.actor, r.action, r.head))
    with torch.no_grad():
        before = lea._losses(obs, x, head)
        head[:, -1] /= 10
        assert torch.allclose(lea._losses(obs, x, head), 10 * before, rtol=1e-4)


def test_an_action_that_paid_becomes_likelier_and_one_that_cost_less_likely():
    """Rewards of the sign of x: after some updates, samples at the same observations have moved up."""
    lea = learner(envs=64, horizon=8, lr=3e-3, epochs=10, clip=0.2)
    lea.iterate()
    seen = lea.see_actor(torch.from_numpy(lea.obs["actor"]))
    noise = torch.randn(64, 1, generator=torch.Generator().manual_seed(5))
    with torch.no_grad():
        before = lea.actor.sample(seen, noise).mean()
    for _ in range(3):
        r = lea.collect()
        _, target = lea.estimate(r)
        lea.update(r, torch.sign(r.action[..., 0]), target)
    with torch.no_grad():
        after = lea.actor.sample(seen, noise).mean()
    assert after > before + 0.1


@pytest.mark.parametrize("task, start", [("balance", 0.0), ("balance", 1.0), ("walk", 0.0)])
def test_the_exported_policy_is_the_flow_from_its_start(task, start, tmp_path):
    lea = learner(task, start=start)
    for _ in range(2):
        lea.iterate()
    net, obs = policy_of(lea), lea.obs["actor"]
    assert bool(net.actor.start.any()) == (start > 0)
    with torch.no_grad():
        seen = lea.see_actor(torch.from_numpy(obs))
        x = lea.actor.sample(seen, net.actor.start.expand(len(obs), -1))
    assert np.allclose(net(obs), lea.settings.spread * x.numpy(), atol=1e-5)
    path = export.save(net, tmp_path)
    assert export.onnx_difference(net, path) < 1e-4
    assert np.allclose(export.load_net(tmp_path)(obs), net(obs), atol=1e-6)
    assert np.allclose(bundle.load(tmp_path)(obs), net(obs), atol=1e-4)


def test_settings_survive_json_and_what_cannot_be_is_refused():
    spec, _ = learn.plan("arm", settings=learn.settings_for("arm", {"pairs": 3}, "fpo"))
    assert spec.settings.pairs == 3 and spec.settings.envs == tasks.resolve("arm").settings["envs"]
    assert spec.to_json()["learner"] == "fpo" and RunSpec.from_json(spec.to_json()) == spec
    for change, said in (
        ({"spread": 0.0}, "fpo.spread: expected more than 0"),
        ({"pairs": 0}, "fpo.pairs: expected at least 1"),
        ({"flow_steps": 1000}, "fpo.flow_steps: expected 1 to 256"),
    ):
        with pytest.raises(SurefootError, match=said):
            FPOSettings(**{**SMALL, **change})
    with pytest.raises(SurefootError, match="learner: fpo: balance-discrete chooses among few actions"):
        learner("balance-discrete")
    with pytest.raises(SurefootError, match="base: only with --learner ppo, found fpo"):
        RunSpec("balance", tasks.resolve("balance").belief, FPOSettings(), base="12")
