"""FastTD3: twin delayed deterministic policy gradients on many simulations at once.

a = pi(o) + s w,   w ~ N(0, 1),   s ~ U(explore) for each episode: some simulations stray far, some hardly
y = R + gamma^k min_i Z_i(o_k, pi(o_k) + clip(noise))        the whole distribution of the critic with the lower mean
the actor climbs the first critic's mean value less c |f|^2, pi = tanh(f), every `actor_every` steps of the critics
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from surefoot.learn.collect import Envs, Rollout
from surefoot.learn.learner import Saved
from surefoot.learn.off_policy.learner import ENDS, Explore, Gradient, OffPolicy, size
from surefoot.learn.off_policy.replay import Sample
from surefoot.learn.off_policy.settings import FastTD3Settings
from surefoot.learn.ranges import Ranges
from surefoot.rng import key


def strayed(out: Tensor, noise: Tensor) -> Tensor:
    return (torch.tanh(out) + noise).clamp_(-1, 1)


class FastTD3(OffPolicy):
    """The state of learning; beside what all share, how far each simulation strays."""

    settings: FastTD3Settings

    def __init__(self, env: Envs, settings: FastTD3Settings, seed: int, ranges: Ranges | None = None):
        OffPolicy.__init__(self, env, settings, seed, ranges)
        self.strays = self._drawn_strays()

    def _drawn_strays(self) -> Tensor:
        """(n, 1) standard deviations of the noise, for episodes that begin now."""
        low, high = self.settings.explore
        rng = torch.Generator().manual_seed(key(self.seed, "strays", self.iteration) >> 1)
        return low + (high - low) * torch.rand((self.env.n, 1), generator=rng)

    @property
    def explore(self) -> Explore:
        return strayed

    def noise(self, rng: torch.Generator) -> Tensor:
        return self.strays * OffPolicy.noise(self, rng)

    def collect(self) -> Rollout:
        """A simulation whose episode ended strays by another amount from the next batch on."""
        r = OffPolicy.collect(self)
        ended = torch.from_numpy(r.flags["final"].any(0))[:, None]
        self.strays = torch.where(ended, self._drawn_strays(), self.strays)
        return r

    def critic_gradient(self, b: Sample, noise: Tensor) -> Gradient:
        s, head = self.settings, self.head
        with torch.no_grad():
            stray = (s.target_noise * noise[0]).clamp_(-s.target_clip, s.target_clip)
            u = (torch.tanh(self.actor(b.next_actor)) + stray).clamp_(-1, 1)
            both = self.target(b.next_critic, u)  # (2, n, outputs)
            value = head.value(both)
            lower = torch.where((value[0] <= value[1])[:, None], both[0], both[1])
            y = head.target(b.reward, b.discount, lower)
            means = b.reward + b.discount * value.min(0).values
        out = self.critic(b.critic, b.action)
        loss = (head.loss(out, y) * b.weight).sum()
        value = (head.value(out.detach())[0] * b.weight).sum()
        facts = torch.stack([loss.detach(), value, *torch.quantile(means, ENDS)])
        return torch.autograd.grad(loss, self.critic_params), facts

    def actor_gradient(self, b: Sample, noise: Tensor) -> Gradient:
        f = self.actor(b.actor)
        value = self.head.value(self.critic.first(b.critic, torch.tanh(f)))
        loss = ((self.penalty * f.square().sum(1) - value / size(value)) * b.weight).sum()
        return torch.autograd.grad(loss, self.actor_params), loss.detach()[None]

    def save(self) -> Saved:
        arrays, numbers = OffPolicy.save(self)
        return arrays | {"strays": self.strays.numpy().copy()}, numbers

    def load(self, arrays: Mapping[str, np.ndarray], numbers: Mapping[str, Any]) -> None:
        OffPolicy.load(self, arrays, numbers)
        self.strays = torch.from_numpy(arrays["strays"].copy()).reshape(self.env.n, 1)
