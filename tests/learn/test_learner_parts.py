"""One gradient step, one batch, one lesson: what each leaves behind, against numbers worked out by hand."""

import math

import numpy as np
import pytest
import torch

from surefoot import tasks
from surefoot.learn.distill import Distill, classroom
from surefoot.learn.loop import policy_of
from surefoot.learn.nets import Actor
from surefoot.learn.nets.policy_net import PolicyNet
from surefoot.learn.on_policy.ppo import PPO
from surefoot.learn.settings import DistillSettings, PPOSettings
from surefoot.tasks.rollout import contract


def learner(name="balance", **changes):
    """One whose nets say 0 until their last biases say otherwise, with a spread of 0.5 that can go from 0.25 to 1."""
    small = {"envs": 2, "horizon": 1, "minibatches": 1, "hidden": (4,), "learner_threads": 1}
    settings = PPOSettings(**{**small, "spread": (0.25, 0.5, 1.0), "kl": 0.0, "clip_gradient": 1e3, **changes})
    lea = PPO(tasks.env(tasks.resolve(name), 2), settings, 0)
    with torch.no_grad():
        lea.actor.body[-1].weight.zero_(), lea.critic[-1].weight.zero_()
    return lea


def rows(lea, *columns, old=0.0):
    """A minibatch of (ratio to the old probability, advantage, action, target), all in one state."""
    ratio, adv, action, target = torch.tensor(columns).T[..., None]
    n, sees = len(ratio), lea.env.task.observations
    obs, critic_obs = torch.ones(n, sees["actor"].dim), torch.ones(n, sees["critic"].dim)
    with torch.no_grad():
        log_prob = lea.head.log_prob(lea.actor(obs), action)[:, None]
    before = torch.full((n, lea.head.outputs), old)
    return [obs, critic_obs, action, before, log_prob - ratio.log(), adv, target, torch.ones(n, 1)]


FIVE = (
    (1.0, 2.0, 0.5, 1.0),
    (1.5, 1.0, 0.25, 2.0),  # already 1.5 as likely, and good: pays no further
    (0.5, -1.0, 0.25, 3.0),  # already half as likely, and bad: likewise
    (1.5, -1.0, 1.0, 4.0),  # more likely, and bad: counts
    (0.5, 1.0, 0.0, 5.0),  # less likely, and good: counts
)


def test_a_gradient_step_has_the_gradients_of_the_loss_written_down_and_goes_against_them():
    """Policy N(0, 0.5^2), clip 0.2, V = 2. Three rows count, as 1/5 rho A times
    d log pi / d mean = a / 0.25:  2 * 2, -1.5 * 4, 0.5 * 0;   d log pi / d log sd = (a / 0.5)^2 - 1:  2 * 0, -1.5 * 3, 0.5 * -1.
    The entropy grows as log sd does; log sd = log 0.25 + log 4 sigmoid(raw) at raw = 0, so d log sd / d raw = log 4 / 4."""
    lea = learner(entropy=0.25, value=0.5, lr=1e-3)
    with torch.no_grad():
        lea.critic[-1].bias.fill_(2.0)
    own = (lea.actor.body[-1].bias, lea.head.raw, lea.critic[-1].bias)
    start = [p.item() for p in own]
    told = lea._gradient_step(rows(lea, *FIVE, old=0.5), lea.head.log_sd.detach())
    by_hand = (-(4 - 6) / 5, (-(-4.5 - 0.5) / 5 - 0.25) * math.log(4) / 4, 0.5 * 2 * (2 - 3))
    assert [p.grad.item() for p in own] == pytest.approx(by_hand, abs=1e-5)
    moved = [p.item() - was for p, was in zip(own, start)]
    assert moved == pytest.approx([-1e-3, -1e-3, 1e-3], rel=1e-3)  # Adam's first step is the step size
    entropy = math.log(0.5) + 0.5 * math.log(2 * math.pi * math.e)
    assert told.tolist() == pytest.approx([-(2 + 1.2 - 0.8 - 1.5 + 0.5) / 5, 3.0, entropy, 0.5], abs=1e-5)


def test_a_gradient_that_is_too_long_is_shortened_and_not_turned():
    gradients = []
    for most in (1e3, 0.1):
        lea = learner(clip_gradient=most)
        lea._gradient_step(rows(lea, *FIVE), lea.head.log_sd.detach())
        gradients.append(torch.cat([p.grad.flatten() for p in lea.modules.parameters()]))
    free, short = gradients
    assert free.norm() > 1 and float(short.norm()) == pytest.approx(0.1, rel=1e-3)
    assert torch.allclose(short, 0.1 * free / free.norm(), atol=1e-6)


def test_on_one_batch_a_probability_grows_until_the_clip_and_a_value_becomes_the_mean_of_its_targets():
    """Two choices at 1/2 each, the first always good: 0.5 * 1.2 = 0.6. Targets 0 and 1 in one state: least squares says 0.5."""
    lea = learner("balance-discrete", entropy=0.0, clip=0.2, lr=1e-3)
    batch = rows(lea, (1.0, 1.0, 0.0, 0.0), (1.0, 1.0, 0.0, 1.0))
    told = torch.stack([lea._gradient_step(batch, lea.head.log_sd) for _ in range(300)])
    assert told[0, :2].tolist() == pytest.approx([-1.0, 0.5])
    assert told[-1, :2].tolist() == pytest.approx([-1.2, 0.25], abs=1e-4)
    with torch.no_grad():
        likely = torch.softmax(lea.actor(batch[0]), 1)[0, 0]
        assert 0.6 <= float(likely) < 0.65 and float(lea.critic(batch[1])[0]) == pytest.approx(0.5, abs=0.01)


def test_steps_shrink_above_twice_the_kl_asked_for_grow_below_half_of_it_and_late_less_is_asked_for():
    lea = learner(lr=1e-3, kl=0.01, settle=0.9, steps=200)
    for kl, lr in ((0.021, 1e-3 / 1.5), (0.019, 1e-3 / 1.5), (0.006, 1e-3 / 1.5), (0.004, 1e-3), (0.0, 1.5e-3)):
        lea._pace(kl)
        assert lea.lr == pytest.approx(lr) and lea.optimiser.param_groups[0]["lr"] == lea.lr
    lea.iteration = lea.settings.iterations
    lea._pace(0.004)  # 0.001 is asked for by now
    assert lea.lr == pytest.approx(1e-3)
    for kl, limit in ((1.0, 1e-5), (0.0, 1e-2)):
        for _ in range(50):
            lea._pace(kl)
        assert lea.lr == pytest.approx(limit)


@pytest.mark.parametrize("old, step", [(1.0, 1e-3 / 1.5), (0.0, 1.5e-3)])
def test_a_gradient_step_is_as_long_as_the_kl_it_finds_allows(old, step):
    """From N(1, 0.5^2) to N(0, 0.5^2) the KL is 2; from N(0, 0.5^2) it is 0."""
    lea = learner(lr=1e-3, kl=0.01)
    lea._gradient_step(rows(lea, *FIVE, old=old), lea.head.log_sd.detach())
    assert abs(lea.actor.body[-1].bias.item()) == pytest.approx(step, rel=1e-3)


def told_e(task):
    """A teacher at random that reads e by an encoder, whose latent is far from 0."""
    settings = PPOSettings(envs=2, horizon=1, minibatches=1, hidden=(8,), encoder="e", latent=3, learner_threads=1)
    net = policy_of(PPO(tasks.env(tasks.with_override(task, tasks.ObsOverride(also=("e",))), 2), settings, 0))
    with torch.no_grad():
        net.actor.encoder.out.weight *= 100
    return net


@torch.no_grad()
def latent(net, obs):
    return net.actor.encoder(net.normalised(torch.from_numpy(obs))).numpy()


def law(task):
    """A teacher by hand: a = 0.1 v + 4 angle + 0.8 rate, told observations in tenths."""
    layer = torch.nn.Linear(4, 1)
    with torch.no_grad():
        layer.weight[:], layer.bias[:] = torch.tensor([0.0, 0.01, 0.4, 0.08]), 0.0
    scales = np.zeros(4, np.float32), np.full(4, 0.1, np.float32)
    return PolicyNet(contract(task, tasks.env(task, 1).world), Actor(torch.nn.Sequential(layer), None), scales)


def apprentice(of=law, **changes):
    small = {
        "label": "action",
        "envs": 64,
        "horizon": 8,
        "minibatches": 2,
        "history": 2,
        "hidden": (16,),
        "learner_threads": 1,
    }
    lesson, task = DistillSettings(**{**small, **changes}), tasks.resolve("balance")
    teacher = of(task)
    return Distill(tasks.env(classroom(task, teacher, lesson.history), lesson.envs), lesson, 0, teacher)


def recorded(a):
    """What the student and its teacher were told before each of the env's steps, and what was sent to it."""
    seen, told, begin, end = [], [a.obs], a.env.begin, a.env.end

    def note(action):
        seen.append((told[-1]["actor"], told[-1]["teacher"], action.copy()))
        begin(action)

    def look():
        step = end()
        told.append(step.obs)
        return step

    a.env.begin, a.env.end = note, look
    return seen


@pytest.mark.parametrize("mix", [0.0, 0.25, 1.0])
def test_the_teacher_drives_its_share_of_simulations_and_the_student_all_others_with_noise(mix):
    a = apprentice(mix=mix, mix_until=1.0, noise=0.1)
    seen = recorded(a)
    a.collect()
    student = policy_of(a)
    right = np.array([np.ravel(action - a.teacher(told)) for _, told, action in seen])  # (T, n)
    noise = np.array([np.ravel(action - student(told)) for told, _, action in seen])
    driven = np.abs(right).max(0) < 1e-6
    assert len(seen) == 8 and driven.mean() == pytest.approx(mix, abs=0.1 * (0 < mix < 1))
    assert (np.abs(right[:, ~driven]) > 1e-6).all()  # none is driven by turns
    if mix < 1:
        own = noise[:, ~driven]
        assert own.std() == pytest.approx(0.1, abs=0.01) and abs(own.mean()) < 0.02


@pytest.mark.parametrize("label", ["action", "latent"])
def test_labels_are_what_the_teacher_says_where_the_student_came(label):
    a = apprentice(told_e if label == "latent" else law, label=label)
    seen, teacher = recorded(a), a.teacher
    obs, labels, *_ = a.collect()
    said = (lambda o: latent(teacher, o)) if label == "latent" else teacher
    expected = np.concatenate([said(told) for _, told, _ in seen])
    assert np.allclose(labels, expected, atol=1e-5) and np.abs(expected).mean() > 0.05
    assert np.allclose(obs, np.concatenate([(told - a.mean) / a.sd for told, _, _ in seen]), atol=1e-5)


def test_a_student_by_actions_comes_to_do_what_its_teacher_does():
    """One that does nothing leaves all of the teacher's variance unexplained."""
    a = apprentice(lr=1e-2, noise=0.5, steps=64 * 8 * 20)
    first, *_, last = [a.iterate() for _ in range(20)]
    right = a.teacher(a.obs["teacher"])
    lacks = policy_of(a)(a.obs["actor"]) - right
    assert np.square(lacks).mean() < 0.1 * right.var()
    assert first["unexplained"] > 0.3 and last["unexplained"] < 0.1


def test_in_one_world_a_student_by_latents_comes_to_know_the_teachers_latent_of_it():
    a = apprentice(told_e, label="latent", lr=1e-2, steps=64 * 8 * 15)
    losses = [a.iterate()["loss"] for _ in range(15)]
    teacher, student = a.teacher, policy_of(a)
    known, found = latent(teacher, a.obs["teacher"]), latent(student, a.obs["actor"])
    assert np.ptp(known, 0).max() < 1e-5 and np.abs(known).min() > 0.5
    assert np.abs(found - known).mean() < 0.1 and losses[-1] < 0.03 * losses[0]


def test_a_student_that_keeps_three_batches_learns_from_every_row_of_the_newest_three():
    a = apprentice(keep=3, epochs=1, minibatches=2)
    batches, learned, collect = [], [], a.collect

    def note():
        out = collect()
        batches.append(out[0])
        return out

    a.collect = note
    a.actor.register_forward_hook(lambda _, told, out: learned.append(told[0]) if out.requires_grad else None)
    for kept in (1, 2, 3, 3):
        learned.clear()
        a.iterate()
        found, expected = torch.cat(learned), torch.cat(batches[-3:])
        assert len(found) == kept * 64 * 8 and len(learned) == kept * 2
        assert torch.equal(found.unique(dim=0), expected.unique(dim=0))
