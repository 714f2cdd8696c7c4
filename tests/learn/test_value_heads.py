"""What critics say of a return, against numbers by hand: mass, means, targets, and a range that is found."""

import math

import pytest
import torch

from surefoot.learn.nets.stacked import StackedLinear
from surefoot.learn.nets.value_heads import C51, Mean, TwoHot, project, value_head


def test_a_projection_keeps_mass_and_mean_and_splits_between_neighbours():
    """Atoms 0 1 2 3: mass at 1.25 is 3/4 at 1 and 1/4 at 2; on an atom it stays whole; beyond the ends it is on them."""
    p = torch.ones(5, 1)
    at = torch.tensor([[1.25], [2.0], [3.0], [-4.0], [9.0]])
    by_hand = [[0, 0.75, 0.25, 0], [0, 0, 1, 0], [0, 0, 0, 1], [1, 0, 0, 0], [0, 0, 0, 1]]
    assert project(p, at, 0.0, 1.0, 4).tolist() == by_hand
    rng = torch.Generator().manual_seed(0)
    p = torch.softmax(torch.randn(100, 51, generator=rng), 1)
    places = 8 * torch.rand(100, 51, generator=rng) - 4  # within the atoms
    found = project(p, places, -5.0, 0.2, 51)
    z = torch.linspace(-5, 5, 51)
    assert torch.allclose(found.sum(1), torch.ones(100), atol=1e-5)
    assert torch.allclose(found @ z, (p * places).sum(1), atol=1e-4)


@pytest.mark.parametrize("kind", ["c51", "two_hot", "mean"])
def test_the_value_of_a_target_is_reward_and_discounted_value(kind):
    """For each head: learn a target to the end, and its value is r + gamma v; where nothing follows, r alone."""
    head = value_head(kind, 101)
    head.begin(-4.0, 8.0)
    rng = torch.Generator().manual_seed(1)
    out = torch.randn(2, head.outputs, generator=rng)
    reward, discount = torch.tensor([1.0, -2.0]), torch.tensor([0.9, 0.0])
    wanted = reward + discount * head.value(out)
    target = head.target(reward, discount, out)
    learned = (target + 1e-12).log() if kind != "mean" else target[:, None]  # where the loss is least
    tolerance = 2e-3 if kind == "two_hot" else 1e-4  # two_hot: the mean of symlogs, not of values
    assert head.value(learned).tolist() == pytest.approx(wanted.tolist(), abs=tolerance)
    worse = learned + 0.1 * torch.randn(learned.shape, generator=rng)
    assert (head.loss(worse, target) > head.loss(learned, target)).all()


def test_the_loss_of_a_distribution_is_its_cross_entropy():
    """Uniform over 4 atoms against certainty: log 4; the gradient of a logit is p - p'."""
    head, out = C51(4), torch.zeros(1, 4, requires_grad=True)
    target = torch.tensor([[0.0, 1.0, 0.0, 0.0]])
    loss = head.loss(out, target).sum()
    loss.backward()
    assert loss.item() == pytest.approx(math.log(4))
    assert out.grad.tolist() == [[0.25, -0.75, 0.25, 0.25]]


def test_two_hot_holds_values_of_any_size():
    head = TwoHot(101)
    values = torch.tensor([-2000.0, -1.0, 0.0, 0.3, 50.0, 20000.0])
    target = head.target(values, torch.zeros(6), torch.zeros(6, 101))
    assert ((target > 0).sum(1) <= 2).all()
    assert head.value((target + 1e-30).log()).tolist() == pytest.approx(values.tolist(), rel=2e-3, abs=1e-4)


def test_a_range_follows_the_targets_and_what_was_learned_stays():
    """A net that says N(1, 0.5^2) in a range of +-3 is widened to hold 40; its mean moves by less than a new spacing."""
    head, layer = C51(101), StackedLinear((0, 1), 8, 101, torch.Generator().manual_seed(0))
    head.ends.copy_(torch.tensor([-3.0, 3.0]))
    x = torch.randn(2, 32, 8, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        layer.weight *= 0.1
        layer.bias.copy_((-((head.z - 1.0) ** 2) / (2 * 0.5**2)).expand(2, 1, 101))
        before = head.value(layer(x))
        moments = [torch.zeros_like(layer.weight), torch.zeros_like(layer.bias)]
        assert not head.follow(-1.0, 2.0, [layer], moments)  # well within: nothing moves
        assert torch.equal(head.value(layer(x)), before)
        rounds = 0
        while head.follow(-1.0, 40.0, [layer], moments):
            rounds += 1
        after = head.value(layer(x))
    assert head.ends[0] <= -3.0 and head.ends[1] > 40.0 and rounds < 10
    assert (after - before).abs().max() < head.step


def test_the_unit_of_a_mean_is_half_the_range_of_the_first_returns():
    head = Mean()
    head.begin(-10.0, 30.0)
    assert head.value(torch.tensor([[0.5]])).item() == 10.0
    target = head.target(torch.tensor([3.0]), torch.tensor([0.5]), torch.tensor([[1.0]]))
    assert target.item() == pytest.approx((3.0 + 0.5 * 20) / 20)
