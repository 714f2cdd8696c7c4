"""Behaviours in the style of motions: FB-CPR's discriminator, a critic of what it says, and the motions as windows.

    D(g, z) = sigmoid(l(g, z))        expert pairs: a state of a motion, and z = mean of B over a window around it
    L = E_policy softplus(l) + E_expert softplus(-l) + c E (|grad l| - 1)^2        so l -> log p_expert / p_policy
    Q(s, a, z) = E sum_t gamma^t l(g_{t+1}, z)        the actor climbs F^T z + style Q, each by its own mean size

A z that means a window of a motion is done as the motion does it; other z are done by states that motions have.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from surefoot.errors import SurefootError
from surefoot.learn.forward_backward.losses import on_sphere
from surefoot.learn.forward_backward.settings import FBSettings
from surefoot.learn.nets import mlp
from surefoot.learn.nets.stacked import stacked_mlp
from surefoot.learn.off_policy.learner import NormedActivation

LARGEST = 10.0  # of l, as a reward


class Motions:
    """States of motions as the critic observes them, one motion after the other, and windows of them."""

    def __init__(self, each: Sequence[Tensor], window: int):
        """(T_i, .) of each motion."""
        short = [len(x) for x in each if len(x) < window]
        if short:
            raise SurefootError(f"fb.motions: expected at least {window} periods each, found one of {min(short)}")
        self.table, self.window = torch.cat(list(each)), window
        ends = torch.tensor([len(x) for x in each]).cumsum(0)
        starts = torch.cat([torch.arange(end - len(x), end - window + 1) for x, end in zip(each, ends.tolist())])
        self.starts = starts
        """rows at which a window begins: none reaches into the next motion"""

    def drawn(self, n: int, rng: torch.Generator) -> Tensor:
        """(n, window, .) of windows, each as likely as any other."""
        first = self.starts[torch.randint(len(self.starts), (n,), generator=rng)]
        return self.table[first[:, None] + torch.arange(self.window)]


class Style(nn.Module):
    """The discriminator and its critics."""

    def __init__(self, goals: int, inputs: int, s: FBSettings, rng: torch.Generator):
        """`goals`: width of g; `inputs`: of s, a and z together."""
        super().__init__()
        bend = lambda: NormedActivation(s.activation)  # noqa: E731
        self.judge = mlp(goals + s.z, s.backward_hidden, 1, "tanh", 1.0, rng)
        self.value = stacked_mlp((0, 1), inputs, s.forward_hidden, 1, bend, rng)
        self.value_target = stacked_mlp((0, 1), inputs, s.forward_hidden, 1, bend, rng).requires_grad_(False)
        self.value_target.load_state_dict(self.value.state_dict())

    def logit(self, goal: Tensor, z: Tensor) -> Tensor:
        """l (n,)"""
        return self.judge(torch.cat([goal, z], 1))[:, 0]

    def values(self, net: nn.Module, critic: Tensor, action: Tensor, z: Tensor) -> Tensor:
        """(2, n)"""
        x = torch.cat([critic, action, z], 1)
        return net(x.expand(2, *x.shape))[..., 0]

    @torch.no_grad()
    def reward(self, goal: Tensor, z: Tensor) -> Tensor:
        return self.logit(goal, z).clamp(-LARGEST, LARGEST)


def windows_z(back: Tensor) -> Tensor:
    """z (n, d) of windows, of B (n, window, d)."""
    return on_sphere(back.mean(1))


def judge_loss(judge: nn.Module, expert: Tensor, policy: Tensor, w: Tensor, penalty: float, share: Tensor) -> Tensor:
    """L of rows (n, .) of each kind, of which the policy's weigh w (n,); the slope is taken between them, at shares (n, 1)."""
    count = w.sum().clamp(min=1.0)
    apart = softplus(-judge(expert)[:, 0]).mean() + (softplus(judge(policy)[:, 0]) * w).sum() / count
    if penalty == 0:
        return apart
    between = (share * expert + (1 - share) * policy).requires_grad_()
    (slope,) = torch.autograd.grad(judge(between).sum(), between, create_graph=True)
    return apart + penalty * ((slope.norm(dim=1) - 1).square() * w).sum() / count
