"""The learner's parts against numbers computed by hand, and the promises it makes about bits."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from surefoot import tasks
from surefoot.blocks import Blocks
from surefoot.errors import SurefootError
from surefoot.learn.loop import policy_of
from surefoot.learn.nets import Actor, Categorical, Gaussian, Normaliser, Tanh, mlp
from surefoot.learn.on_policy.learner import advantages, table_of
from surefoot.learn.on_policy.ppo import PPO
from surefoot.learn.settings import PPOSettings
from surefoot.task import Episode
from surefoot.world import Start

SMALL = {"envs": 32, "horizon": 8, "hidden": (16,), "minibatches": 2}


def learner(name="balance-discrete", seed=0, threads=0, belief=True, **changes):
    task = tasks.resolve(name)
    settings = PPOSettings(**{**SMALL, **changes})
    return PPO(
        tasks.env(task, settings.envs, task.belief if belief else None, seed, threads, stagger=True), settings, seed
    )


def test_gae_equals_numbers_computed_by_hand():
    """gamma 0.5, lambda 0.5: rewards 1 2 3, values 4 5 6, V(after) 7.
    delta = 1 + 2.5 - 4 = -0.5; 2 + 3 - 5 = 0; 3 + 3.5 - 6 = 0.5.  A2 = 0.5; A1 = 0 + 0.25 * 0.5; A0 = -0.5 + 0.25 * A1."""
    column = lambda *x: torch.tensor(x, dtype=torch.float64)[:, None]  # noqa: E731
    adv, returns = advantages(column(1, 2, 3), column(4, 5, 6), column(5, 6, 7), column(0, 0, 0), 0.5, 0.5)
    assert adv[:, 0].tolist() == [-0.46875, 0.125, 0.5]
    assert returns[:, 0].tolist() == [3.53125, 5.125, 6.5]


def test_gae_stops_at_an_end_terminations_bootstrap_nothing_and_time_outs_their_last_value():
    column = lambda *x: torch.tensor(x, dtype=torch.float64)[:, None]  # noqa: E731
    rewards, values, ends = column(1, 2, 3), column(4, 5, 6), column(0, 1, 0)
    failed, _ = advantages(rewards, values, column(5, 0, 7), ends, 0.5, 0.5)
    assert failed[:, 0].tolist() == [-0.5 + 0.25 * -3, 2 - 5, 0.5]
    timed_out, _ = advantages(rewards, values, column(5, 10, 7), ends, 0.5, 0.5)
    assert timed_out[:, 0].tolist() == [-0.5 + 0.25 * 2, 2 + 0.5 * 10 - 5, 0.5]


def test_a_learner_bootstraps_time_outs_with_the_state_before_the_reset_and_failures_with_nothing():
    """Carts roll 0.2 m a step and are paid 1; V is the position; gamma 0.5, lambda 0.5. One rolls on. In the second step
    one fails at 2.5, beyond the rail, and one is out of time at 0.9: both begin anew at 0.4, which says nothing of either.
    Rolls on:  V 1.0 1.2 1.4 1.6        delta 0.6 0.5 0.4    A 0.75 0.6 0.4      A + V 1.75 1.8 1.8
    fails:     V 2.1 2.3 | 0.4 0.6      delta 0.05 -1.3 0.9  A -0.275 -1.3 0.9   A + V 1.825 1.0 1.3
    time-out:  V 0.5 0.7 0.9 | 0.4 0.6  delta 0.85 0.75 0.9  A 1.0375 0.75 0.9   A + V 1.5375 1.45 1.3"""

    def rolling(*x):
        return Start(np.array([[k, 0.0] for k in x]), np.tile([10.0, 0.0], (len(x), 1)), np.zeros((len(x), 1)))

    task = tasks.resolve("balance")
    no_push = replace(task.action, scale=np.zeros(1))
    task = replace(task, action=no_push, episode=lambda rng, n: Episode(rolling(*[0.4] * n)))
    settings = PPOSettings(envs=3, horizon=3, minibatches=1, hidden=(1,), gamma=0.5, lam=0.5)
    lea = PPO(tasks.env(task, 3), settings, 0)
    lea.env.world.reset(np.arange(3), np.tile(task.params.nominal, (3, 1)), rolling(1.0, 2.1, 0.5))
    lea.collector.obs = lea.env.begin_at(np.array([0, 0, lea.env.steps - 2]))
    r = lea.collect()
    assert r.terminated.tolist() == [[0, 0, 0], [0, 1, 0], [0, 0, 0]]
    assert r.truncated.tolist() == [[0, 0, 0], [0, 0, 1], [0, 0, 0]]
    with torch.no_grad():
        lea.see_critic.mean.zero_(), lea.see_critic.var.fill_(1.0)
        for p, value in zip(lea.critic.parameters(), ([[1.0] + [0.0] * 10], [0.0], [[1.0]], [0.0])):
            p.copy_(torch.tensor(value))
    adv, target = lea.estimate(r)
    returns = target * lea.returns.sd.float() + lea.returns.mean.float()
    assert torch.allclose(
        returns.T, torch.tensor([[1.75, 1.8, 1.8], [1.825, 1.0, 1.3], [1.5375, 1.45, 1.3]]), atol=1e-4
    )
    by_hand = torch.tensor([[0.75, 0.6, 0.4], [-0.275, -1.3, 0.9], [1.0375, 0.75, 0.9]])
    assert torch.allclose(adv.T, (by_hand - by_hand.mean()) / by_hand.std(), atol=1e-4)


def test_the_first_batch_is_learned_from_as_it_looks_once_it_has_been_seen():
    """Where walk begins, no action was taken and little moves: what follows is hundreds of those spreads away."""
    lea = learner("walk", envs=64, horizon=16)
    r = lea.collect()
    assert (r.actor.abs() > 9.9).float().mean() < 1e-3 and r.actor.std(dim=(0, 1)).max() < 2
    assert torch.equal(r.head, lea.actor(r.actor.flatten(0, 1)).reshape(r.head.shape))
    with torch.no_grad():
        ratio = (lea.head.log_prob(r.head.flatten(0, 1), r.action.flatten(0, 1)) - r.log_prob.flatten()).exp()
    assert float(ratio.mean()) == pytest.approx(1.0, abs=0.05)
    assert ratio.std() > 0  # it was acted by what it saw then, and weighs so


def test_a_diverged_transition_weighs_nothing():
    lea = learner(epochs=1, minibatches=1, kl=0.0)
    r = lea.collect()
    adv, target = lea.estimate(r)
    batches = list(lea._minibatches(*table_of(r, adv, target)))
    poisoned = [b.clone() for b in batches[0]]
    poisoned[7][5] = 0.0  # valid
    poisoned[5][5], poisoned[6][5] = 1e6, -1e6
    kept = [torch.cat([b[:5], b[6:]]) for b in batches[0]]
    start = {k: v.clone() for k, v in lea.state_dict().items()}
    after = []
    for batch in (poisoned, kept):
        lea.load_state_dict(start)
        lea._gradient_step(batch, lea.head.log_sd.detach())
        after.append(torch.cat([p.detach().flatten() for p in lea.modules.parameters()]))
    assert torch.allclose(*after, atol=1e-6)


def test_gaussian_log_prob_entropy_and_kl_equal_torchs():
    head = Gaussian(3, 0.05, 1.0, 0.5)
    mu, old, a = (torch.randn(5, 3, generator=torch.Generator().manual_seed(k)) for k in range(3))
    peer, before = torch.distributions.Normal(mu, 0.5), torch.distributions.Normal(old, 0.3)
    assert torch.allclose(head.log_prob(mu, a), peer.log_prob(a).sum(1), atol=1e-5)
    assert torch.allclose(head.entropy(mu), peer.entropy()[0].sum(), atol=1e-5)
    kl = torch.distributions.kl_divergence(before, peer).sum(1)
    assert torch.allclose(head.kl(old, torch.full((3,), math.log(0.3)), mu), kl, atol=1e-5)


def test_the_spread_can_neither_collapse_nor_blow_up():
    head = Gaussian(2, 0.05, 1.0, 0.5)
    for push in (-1e4, 1e4):
        with torch.no_grad():
            head.raw.fill_(push)
        sd = head.log_sd.exp()
        assert (sd >= 0.05 - 1e-6).all() and (sd <= 1.0 + 1e-6).all()


def test_categorical_equals_torchs_and_samples_its_own_probabilities():
    head, logits = Categorical(3), torch.tensor([[0.0, 1.0, 2.0]]).repeat(20000, 1)
    peer = torch.distributions.Categorical(logits=logits[:5])
    a = torch.tensor([[0.0], [1], [2], [1], [0]])
    assert torch.allclose(head.log_prob(logits[:5], a), peer.log_prob(a[:, 0]), atol=1e-6)
    assert torch.allclose(head.entropy(logits[:5]), peer.entropy().mean(), atol=1e-6)
    drawn = head.sample(logits, head.noise(1, len(logits), torch.Generator().manual_seed(0))[0])
    share = torch.bincount(drawn[:, 0].long(), minlength=3) / len(drawn)
    assert torch.allclose(share, peer.probs[0], atol=0.015)


def test_tanh_and_its_gradient_are_those_of_mathematics():
    """d tanh / dx = 1 - tanh^2, against float64."""
    x = torch.linspace(-12, 12, 4001).requires_grad_()
    y = Tanh()(x)
    y.sum().backward()
    exact = np.tanh(x.detach().numpy().astype(float))
    assert np.abs(y.detach().numpy() - exact).max() < 1.2e-7
    assert np.abs(x.grad.numpy() - (1 - exact**2)).max() < 5e-7
    with torch.no_grad():
        assert torch.equal(Tanh()(x), y)


@pytest.mark.parametrize("head", [Gaussian(2, 0.1, 1.0, 0.5), Categorical(3)])
def test_noise_of_a_step_and_env_is_one_draw_whoever_asks_for_it(head):
    """Blocks of envs take their rows of it, and a batch's law is that of one draw for each."""
    noise = head.noise(4, 50, torch.Generator().manual_seed(3))
    out = torch.randn(50, head.outputs, generator=torch.Generator().manual_seed(4))
    whole = head.sample(out, noise[2])
    assert torch.equal(torch.cat([head.sample(out[a], noise[2, a]) for a in (slice(0, 20), slice(20, 50))]), whole)


def test_a_gradient_in_chunks_is_that_of_the_whole_and_has_the_same_bits_at_every_call():
    """2400 rows: on one thread a single chunk, on three three of 800."""
    found = {}
    for threads in (1, 3, 3):
        lea = learner(envs=600, horizon=4, minibatches=1, learner_threads=threads)
        r = lea.collect()
        batch = next(lea._minibatches(*table_of(r, *lea.estimate(r))))
        batch[-1][::7] = 0.0  # not valid
        assert lea.chunks.count(2400) == threads
        told = lea._gradient_step(batch, lea.head.log_sd.detach())
        found.setdefault(threads, []).append([told, *(p.grad for p in lea.learned)])
    for one, three, again in zip(*found[1], *found[3]):
        assert torch.allclose(one, three, rtol=1e-4, atol=1e-6) and torch.equal(three, again)


def test_a_normaliser_fed_in_parts_knows_the_whole():
    x = torch.randn(1000, 4, generator=torch.Generator().manual_seed(0)) * 3 + 2
    n = Normaliser(4)
    for part in x.split([1, 9, 490, 500]):
        n.update(part)
    assert torch.allclose(n.mean, x.double().mean(0)) and torch.allclose(n.var, x.double().var(0, unbiased=False))
    assert n(x).mean(0).abs().max() < 1e-5 and (n(x).std(0) - 1).abs().max() < 1e-2


def test_a_mirrored_actor_answers_the_mirrored_question_with_the_mirrored_answer():
    task = tasks.resolve("walk")
    mirror = task.symmetry.of(task.observations["actor"])
    actor = Actor(mlp(47, (16,), 12, "relu", 1.0, torch.Generator().manual_seed(0)), mirror)
    obs = torch.randn(6, 47, generator=torch.Generator().manual_seed(1))
    turned = obs[:, mirror.obs_order] * torch.from_numpy(mirror.obs_sign).float()
    answer = actor(turned)[:, mirror.action_order] * torch.from_numpy(mirror.action_sign).float()
    assert torch.allclose(answer, actor(obs), atol=1e-6)
    twice = (obs[:, mirror.obs_order] * torch.from_numpy(mirror.obs_sign).float())[
        :, mirror.obs_order
    ] * torch.from_numpy(mirror.obs_sign).float()
    assert torch.equal(twice, obs)


def test_walks_mirror_is_a_symmetry_of_its_physics():
    """Step a state and its mirror image in the air with mirrored controls: what is observed stays mirrored.
    (In contact the engine's solver visits feet in order and stops early, so the symmetry holds to its tolerance only.)"""
    from surefoot.world import Chance

    task = tasks.resolve("walk")
    env = tasks.env(task, 2, seed=0)
    env.reset()
    rng, m = np.random.default_rng(0), task.symmetry.of(task.observations["actor"])
    start = task.episode(rng, 1).start
    q = np.repeat(start.q, 2, 0)
    q[:, :3], q[:, 3:7] = [0.0, 0.0, 2.0], [1, 0, 0, 0]
    v = np.repeat(start.v, 2, 0)
    q[1, 7:] = (q[0, 7:])[m.action_order] * m.action_sign
    v[1] = np.concatenate([v[0, :3] * [1, -1, 1], v[0, 3:6] * [-1, 1, -1], v[0, 6:][m.action_order] * m.action_sign])
    env.world.reset(np.arange(2), np.tile(task.params.nominal, (2, 1)), Start(q, v, np.repeat(start.u, 2, 0)))
    a = 0.3 * rng.standard_normal(12)
    for k in range(10):
        u = task.action.control(np.stack([a, a[m.action_order] * m.action_sign]))
        env.world.step(u, Chance(0, k, env.world.dt))
    env.command[:], env.action[:] = 0.0, 0.0  # not part of the physics, and their own mirror images
    frame = np.concatenate([env.moment.once(t.source) for t in task.observations["actor"].terms], 1)
    assert np.abs(frame[0]).max() > 0.1
    assert np.allclose(frame[0][m.obs_order] * m.obs_sign, frame[1], atol=1e-5)


def weights(lea):
    return {k: v.clone() for k, v in lea.state_dict().items()}


def test_same_seed_same_weights_at_any_number_of_physics_threads_and_two_seeds_differ():
    runs = []
    for seed, threads in ((1, 1), (1, 2), (1, 4), (2, 1)):
        lea = learner(seed=seed, threads=threads)
        for _ in range(3):
            lea.iterate()
        runs.append(weights(lea))
    for other in runs[1:3]:
        assert all(torch.equal(runs[0][k], other[k]) for k in runs[0])
    assert not all(torch.equal(runs[0][k], runs[3][k]) for k in runs[0])


@pytest.mark.parametrize("name", ["balance-discrete", "hover", "walk"])
def test_saved_and_loaded_learning_goes_on_with_the_same_bits(name):
    straight, first, second = (learner(name) for _ in range(3))
    for _ in range(4):
        a = straight.iterate()
    for _ in range(2):
        first.iterate()
    second.load(*first.save())
    for _ in range(2):
        b = second.iterate()
    one, two = weights(straight), weights(second)
    assert all(torch.equal(one[k], two[k]) for k in one) and a == b


def test_learning_in_blocks_has_the_same_bits_at_any_number_of_threads_and_after_a_stop():
    task, settings = tasks.resolve("hover"), PPOSettings(envs=64, horizon=6, steps=64 * 6 * 4, hidden=(16,))

    def begun(threads):
        env = Blocks.like(tasks.env(task, 40, task.belief, 3, threads, stagger=True), [24])
        return PPO(env, settings, 3)

    one, four = begun(1), begun(4)
    for lea in (one, four):
        lea.iterate()
    again = begun(2)
    again.load(*four.save())
    told = [[lea.iterate() for _ in range(2)] for lea in (one, again)]
    assert told[0] == told[1]
    assert all(torch.equal(v, weights(again)[k]) for k, v in weights(one).items())


def test_an_update_that_is_not_finite_is_undone_and_three_in_a_row_stop():
    lea = learner()
    lea.iterate()
    before, lr = weights(lea), lea.lr
    r = lea.collect()
    adv, target = lea.estimate(r)
    out = lea.update(r, adv * np.nan, target)
    after = weights(lea)
    assert out["rejected"] == 1 and lea.lr < lr
    assert all(torch.equal(before[k], after[k]) for k in before if k.startswith(("net.actor", "net.critic.", "adam")))
    lea.update(r, adv * np.nan, target)
    with pytest.raises(SurefootError, match="three updates in a row"):
        lea.update(r, adv * np.nan, target)


def test_a_policy_taken_from_a_learner_answers_as_the_learners_net():
    for name in ("balance-discrete", "walk"):
        lea = learner(name)
        lea.iterate()
        obs = lea.obs["actor"]
        with torch.no_grad():
            expected = lea.actor(lea.see_actor(torch.from_numpy(obs))).numpy()
        assert np.allclose(policy_of(lea)(torch.from_numpy(obs)).detach(), expected, atol=1e-5)


def test_wrong_settings_say_what_is_wrong():
    with pytest.raises(SurefootError, match="spread: expected 0 < least"):
        PPOSettings(spread=(0.5, 0.1, 1.0))
    with pytest.raises(SurefootError, match="minibatches: 7 does not divide"):
        PPOSettings(minibatches=7)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_balance_learns_to_475_within_400k_steps(seed):
    from surefoot.learn.train import settings_for
    from surefoot.tasks.rollout import evaluate

    task = tasks.resolve("balance-discrete")
    settings = settings_for("balance-discrete")
    lea = PPO(tasks.env(task, settings.envs, None, seed, stagger=True), settings, seed)
    for _ in range(settings.iterations):
        lea.iterate()
    assert evaluate(policy_of(lea), tasks.env(task, 100, seed=77)).returns.mean() >= 475


def test_a_transition_that_is_not_valid_says_nothing_of_those_before_it():
    """The simulation diverges in step 2: steps 0 and 1 are judged as if the value there had been right."""
    reward, value = torch.tensor([[1.0], [1.0], [0.0]]), torch.tensor([[5.0], [6.0], [100.0]])
    after, done = torch.tensor([[6.0], [100.0], [0.0]]), torch.tensor([[0.0], [0.0], [1.0]])
    valid = torch.tensor([[1.0], [1.0], [0.0]])
    adv, _ = advantages(reward, value, after, done, 0.9, 0.95, valid)
    second = 1 + 0.9 * 100 - 6
    assert torch.allclose(adv[:, 0], torch.tensor([1 + 0.9 * 6 - 5 + 0.9 * 0.95 * second, second, 0.0]))
