"""An update shared by processes has the gradient of the whole minibatch, and the same bits whenever as many share it."""

import pytest
import torch

from surefoot import tasks
from surefoot.errors import SurefootError
from surefoot.learn.cluster.address import On
from surefoot.learn.off_policy.settings import FastSACSettings
from surefoot.learn.on_policy.group import Group
from surefoot.learn.on_policy.learner import table_of
from surefoot.learn.on_policy.ppo import PPO
from surefoot.learn.train import settings_for, train


def learner():
    task = tasks.resolve("hover")
    return PPO(tasks.env(task, 16, task.belief, 3, 1), settings_for("hover", {"envs": 16, "horizon": 8, "minibatches": 2, "steps": 4096}), 3)  # fmt: skip


class Half(Group):
    """A rank that knows what the other adds."""

    size = 2

    def __init__(self, other, more):
        self.other, self.more = other, more

    def total(self, numbers):
        return [a + b for a, b in zip(numbers, self.more)]

    def summed(self, gradients, losses):
        self.found = gradients, losses
        if self.other is None:
            return gradients, losses
        there, more = self.other.found
        return [g if h is None else g + h for g, h in zip(gradients, there)], losses + more


def test_two_halves_make_the_gradient_step_of_the_whole_minibatch():
    whole, shared, other = learner(), learner(), learner()
    r = whole.collect()
    adv, target = whole.estimate(r)
    table, widths = table_of(r, adv, target)
    table[::5, -1] = 0.0  # rows that do not count, more of them in one half
    parts, before = [list(x.split(widths, 1)) for x in (table, table[:40], table[40:])], whole.before()
    valid = [float(x[-1].sum()) for x in parts]
    expected = whole._gradient_step(parts[0], before)
    far = Half(None, (valid[1], len(parts[1][0])))
    far.rank = 1
    other._gradient_step(parts[2], before, far)
    near = Half(far, (valid[2], len(parts[2][0])))
    found = shared._gradient_step(parts[1], before, near)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)
    for a, b in zip(whole.learned, shared.learned):
        if a.grad is not None:
            torch.testing.assert_close(b.grad, a.grad, rtol=1e-3, atol=1e-6)
    assert all(p.grad is None for p in other.learned)  # it does not step


def test_what_cannot_share_an_update_is_refused(tmp_path):
    with pytest.raises(SurefootError, match="--shards: expected with --on local:N"):
        On.parse("", 0, 2)
    with pytest.raises(SurefootError, match="--shards: expected with --on local:N"):
        On.parse("ray://h:10001", 0, 2)
    with pytest.raises(SurefootError, match="--shards: expected 1 to 256, found 0"):
        On.parse("local:2", 0, 0)
    with pytest.raises(SurefootError, match="--shards: the update of PPO and FPO"):
        train("hover", tmp_path / "r", settings=FastSACSettings(envs=8, steps=64), on=On("", 1, 2))
    assert not (tmp_path / "r").exists()
    assert On.parse("local:2", 0, 3) == On("", 2, 3)


def test_a_resumed_run_may_share_its_update(tmp_path):
    """It is looked for, and not refused for its flags."""
    from surefoot.report import unwatched
    from surefoot.verbs.train.train import Train

    with pytest.raises(SurefootError, match="nowhere"):
        Train(resume=tmp_path / "nowhere", on="local:2", shards=2).run(unwatched)
    with pytest.raises(SurefootError, match="--shards.*may be given"):
        Train(resume=tmp_path / "nowhere", seed=3).run(unwatched)
