"""An estimator that learns beside PPO: by maximum likelihood, without moving the actor, and resumed to the bit."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import norm

from surefoot import tasks
from surefoot.deploy import bundle
from surefoot.errors import SurefootError
from surefoot.estimate.learned import LearnedEstimator
from surefoot.learn.loop import policy_of
from surefoot.learn.nets import unlikely
from surefoot.learn.on_policy.ppo import PPO
from surefoot.learn.settings import PPOSettings
from surefoot.tasks import ObsOverride, with_override

onnx = pytest.importorskip("onnx", reason="needs the export extra")
from surefoot.learn.nets import export  # noqa: E402

SMALL = {
    "envs": 32,
    "horizon": 8,
    "hidden": (16,),
    "minibatches": 2,
    "encoder": "conv",
    "estimate": ("base_lin_vel",),
    "learner_threads": 1,
}
BLIND = ("position_error", "rotation", "base_ang_vel", "last_action")  # a drone that is not told its velocity


def learner(seed=0, only=BLIND, history=6, **changes):
    task = with_override(tasks.resolve("hover"), ObsOverride(only=only, history=history))
    settings = PPOSettings(**{**SMALL, **changes})
    return PPO(tasks.env(task, settings.envs, task.belief, seed, 1, stagger=True), settings, seed)


def test_the_loss_is_the_normal_laws():
    mean, log_var, y = np.array([[0.3, -1.0]]), np.array([[-1.0, 0.7]]), np.array([[0.1, 0.4]])
    wanted = -norm.logpdf(y, mean, np.exp(0.5 * log_var)).sum() - 2 * 0.5 * np.log(2 * np.pi)
    found = unlikely(torch.from_numpy(np.concatenate([mean, log_var], 1)), torch.from_numpy(y))
    assert np.isclose(float(found[0]), wanted, atol=1e-12)


def test_gradients_of_the_actor_stop_at_the_estimate():
    lea = learner()
    obs = torch.randn(5, lea.env.task.observations["actor"].dim)
    own = list(lea.actor.encoder.parameters())
    through = torch.autograd.grad(lea.actor(obs).sum(), own, allow_unused=True)
    assert all(g is None for g in through)
    body = torch.autograd.grad(lea.actor.encoder(obs).sum(), list(lea.actor.body.parameters()), allow_unused=True)
    assert all(g is None for g in body)


def test_an_actor_moves_as_it_would_whatever_the_encoder_learns_in_one_step():
    """One gradient step from the same batch, with and without the encoder's loss: the body's weights are the same to the bit."""
    after = []
    for weight in (0.0, 1.0):
        lea = learner(epochs=1, minibatches=1)
        if not weight:
            lea.truth = []  # nothing to learn from
        lea.iterate()
        after.append([p.detach().clone() for p in lea.actor.body.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*after))


def test_it_resumes_to_the_bit():
    one = learner()
    one.iterate()
    saved = one.save()
    other = learner()
    other.load(*saved)
    rows = [(a.iterate(), b.iterate()) for a, b in [(one, other)] * 2]
    assert all(a == b and "estimate_loss" in a for a, b in rows)
    assert all(torch.equal(v, other.state_dict()[k]) for k, v in one.state_dict().items())


def test_what_it_estimates_is_in_the_file_in_units(tmp_path):
    lea = learner()
    for _ in range(3):
        lea.iterate()
    net = policy_of(lea)
    policy = bundle.load(export.save(net, tmp_path))
    obs = lea.obs["actor"]
    with torch.no_grad():
        wanted = net.actor.encoder.in_units(net.actor.encoder(net.normalised(torch.from_numpy(obs)))).numpy()
    assert list(policy.graph.outputs) == ["actions", "estimate"] and not policy.adapts
    e = LearnedEstimator(lambda x: policy.graph.run(x, "estimate"), {"base_lin_vel": (3, "m/s")}, 0.02)
    found = e.terms(e.step(e.init(len(obs)), obs))["base_lin_vel"]
    assert np.allclose(found.value, wanted[:, :3], atol=1e-5) and np.allclose(found.sd, wanted[:, 3:], atol=1e-5)
    again = export.load_net(tmp_path)
    assert torch.equal(again.actor.encoder.unit, net.actor.encoder.unit)
    column = lea.truth
    assert np.allclose(
        net.actor.encoder.unit[0] * 0.5, lea.see_critic.mean[column], atol=1e-6
    )  # the critic's term has scale 0.5


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"encoder": "none"}, "estimate: expected an encoder of the history"),
        ({"estimate": ("base_lin_vle",)}, "did you mean base_lin_vel"),
    ],
)
def test_what_cannot_be_estimated_is_refused(changes, said):
    with pytest.raises(SurefootError, match=said):
        learner(**changes)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_it_learns_a_velocity_that_nobody_tells_and_how_sure_it_is(seed):
    """A drone's velocity from where it was in six frames: more than half of its variance, and NEES near 1 a number."""
    lea = learner(seed, envs=256, horizon=16, minibatches=4, hidden=(64, 64))
    for _ in range(30):
        lea.iterate()
    net, obs = policy_of(lea), lea.obs
    with torch.no_grad():
        value, sd = (
            net.actor.encoder.in_units(net.actor.encoder(net.normalised(torch.from_numpy(obs["actor"]))))
            .numpy()
            .T.reshape(2, 3, -1)
        )
    truth = obs["critic"][:, lea.truth].T / 0.5
    error = value - truth
    assert np.sqrt((error**2).mean()) < 0.7 * truth.std()
    assert 0.7 < np.mean((error / sd) ** 2) < 1.4


def test_a_symmetric_actor_stays_symmetric():
    task = with_override(tasks.resolve("walk"), ObsOverride(history=6))
    lea = PPO(tasks.env(task, 8, task.belief, 0, 1), replace(PPOSettings(**SMALL), envs=8, minibatches=1), 0)
    lea.iterate()
    obs, mirror = torch.randn(4, task.observations["actor"].dim), task.symmetry.of(task.observations["actor"])
    turned = obs[:, mirror.obs_order] * torch.from_numpy(mirror.obs_sign).float()
    with torch.no_grad():
        a, b = lea.actor(obs), lea.actor(turned)
    assert torch.allclose(b, a[:, mirror.action_order] * torch.from_numpy(mirror.action_sign).float(), atol=1e-6)
