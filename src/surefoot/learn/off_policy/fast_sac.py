"""FastSAC: soft actor-critic on many simulations at once.

u = tanh(mu + sd w),  w ~ N(0, 1);    log pi(u|o) = log N(w) - log sd - log(1 - u^2),  summed over actions
y_i = R + gamma^k (Z_i(o_k, u') - alpha log pi(u'|o_k))        each critic's own target; none is the minimum of both
the actor climbs the critics' mean value - alpha log pi - c |mu|^2;       alpha holds E[-log pi] at the target entropy
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from surefoot.learn.off_policy.learner import ENDS, Explore, Gradient, OffPolicy, size
from surefoot.learn.off_policy.replay import Sample
from surefoot.learn.off_policy.settings import FastSACSettings


class Alpha(nn.Module):
    """Weight of the entropy, as its logarithm."""

    def __init__(self, start: float):
        super().__init__()
        self.log = nn.Parameter(torch.tensor(math.log(start)))


@dataclass(frozen=True)
class Squashed:
    """Normal numbers of what the actor's net gives, mu and log sd, bent to +-1; log sd is kept within low and high."""

    low: float
    high: float

    def drawn(self, out: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """u (n, na) and log pi(u) (n,)."""
        mu, raw = out.chunk(2, 1)
        log_sd = self.low + 0.5 * (self.high - self.low) * (1 + torch.tanh(raw))
        x = mu + log_sd.exp() * noise
        log_slope = 2 * (math.log(2) - x - softplus(-2 * x))  # of tanh: log(1 - u^2)
        log_prob = -0.5 * (noise.square() + math.log(2 * math.pi)) - log_sd - log_slope
        return torch.tanh(x), log_prob.sum(1)

    def __call__(self, out: Tensor, noise: Tensor) -> Tensor:
        return self.drawn(out, noise)[0]


class FastSAC(OffPolicy):
    """The state of learning; beside what all share, the weight of the entropy."""

    settings: FastSACSettings
    heads = 2  # mu and log sd
    actor_facts = ("actor_loss", "entropy", "alpha")

    def more_modules(self) -> dict[str, nn.Module]:
        self.alpha = Alpha(self.settings.alpha)
        return {"alpha": self.alpha}

    @property
    def squashed(self) -> "Squashed":
        return Squashed(*self.settings.log_sd)

    @property
    def explore(self) -> Explore:
        return self.squashed

    def critic_gradient(self, b: Sample, noise: Tensor) -> Gradient:
        head = self.head
        with torch.no_grad():
            u, log_prob = self.squashed.drawn(self.actor(b.next_actor), noise[0])
            reward = b.reward - b.discount * self.alpha.log.exp() * log_prob
            both = self.target(b.next_critic, u)  # (2, n, outputs)
            y = head.target(reward, b.discount, both)
            means = reward + b.discount * head.value(both)
        out = self.critic(b.critic, b.action)
        loss = (head.loss(out, y) * b.weight).sum()
        value = (head.value(out.detach()).mean(0) * b.weight).sum()
        facts = torch.stack([loss.detach(), value, *torch.quantile(means, ENDS)])
        return torch.autograd.grad(loss, self.critic_params), facts

    def actor_gradient(self, b: Sample, noise: Tensor) -> Gradient:
        out = self.actor(b.actor)
        u, log_prob = self.squashed.drawn(out, noise[1])
        value = self.head.value(self.critic(b.critic, u)).mean(0)
        alpha = self.alpha.log.exp().detach()
        calm = self.penalty * out.chunk(2, 1)[0].square().sum(1)
        loss = ((alpha * log_prob - value + size(value) * calm) * b.weight).sum()
        entropy = -(log_prob.detach() * b.weight).sum()
        wanted = self.settings.target_entropy * self.actions
        known = self.alpha.log * (entropy - wanted * b.weight.sum())
        facts = torch.stack([loss.detach(), entropy, alpha * b.weight.sum()])
        return torch.autograd.grad(loss + known, self.actor_params), facts
