"""Actors whose distribution is what a flow makes of noise: as many modes as it takes, one net, a few steps.

    x_t = t eps + (1 - t) a,   eps ~ N(0, 1),   t from 1 (noise) to 0 (action);      v(o, x_t, t) learns dx/dt = eps - a
    act:   x <- x - v(o, x, t) / S   at t = 1, 1 - 1/S, .. 1/S                       Euler's rule, S steps
    loss:  |eps - eps_hat|^2 / d,   eps_hat = x_t + (1 - t) v                        d numbers of x: a velocity, judged by its noise

x may be a chunk of several actions, oldest first, of which the first is done. From one start the answer is one: what is
exported begins at `start`, zero or a draw that is kept, so that a file is a function of the observation.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from surefoot.learn.nets import mlp
from surefoot.task import Mirror

WAVES = 4  # of t, each as cos and sin


def clock(t: Tensor) -> Tensor:
    """(n, 2 WAVES) of times (n, 1): cos and sin of pi t, 2 pi t, 4 pi t ..."""
    angle = t * (math.pi * 2.0 ** torch.arange(WAVES, dtype=t.dtype))
    return torch.cat([angle.cos(), angle.sin()], 1)


class FlowActor(nn.Module):
    """Observation (normalised) -> the action that the flow makes of `start`; with a mirror, its field is exactly symmetric."""

    start: Tensor
    obs_order: Tensor
    obs_sign: Tensor
    x_order: Tensor
    x_sign: Tensor
    encoder = None
    squash = 0.0

    def __init__(
        self, body: nn.Sequential, mirror: Mirror | None, actions: int, chunk: int, steps: int, activation: str
    ):
        super().__init__()
        self.body, self.actions, self.chunk, self.steps, self.activation = body, actions, chunk, steps, activation
        self.mirrored = mirror is not None
        self.register_buffer("start", torch.zeros(actions * chunk))
        if mirror is not None:
            order = np.concatenate([np.asarray(mirror.action_order) + k * actions for k in range(chunk)])
            pairs = {"obs": (mirror.obs_order, mirror.obs_sign), "x": (order, np.tile(mirror.action_sign, chunk))}
            for k, (at, sign) in pairs.items():
                self.register_buffer(f"{k}_order", torch.from_numpy(np.asarray(at)).long())
                self.register_buffer(f"{k}_sign", torch.from_numpy(np.asarray(sign)).float())

    @property
    def width(self) -> int:
        """Numbers of x."""
        return self.actions * self.chunk

    def velocity(self, obs: Tensor, x: Tensor, t: Tensor) -> Tensor:
        """(n, width) at observations (n, .), x (n, width) and times (n, 1)."""
        when = clock(t)
        if not self.mirrored:
            found: Tensor = self.body(torch.cat([obs, x, when], 1))
            return found
        turned = [y.index_select(1, order) * sign for y, order, sign in
                  ((obs, self.obs_order, self.obs_sign), (x, self.x_order, self.x_sign))]  # fmt: skip
        both = self.body(torch.cat([torch.cat([obs, x, when], 1), torch.cat([*turned, when], 1)]))
        straight, flipped = both.chunk(2)
        return 0.5 * (straight + flipped.index_select(1, self.x_order) * self.x_sign)

    def sample(self, obs: Tensor, noise: Tensor) -> Tensor:
        """(n, width) what the flow makes of noise (n, width)."""
        x = noise
        for k in range(self.steps):
            t = torch.full_like(x[:, :1], 1 - k / self.steps)
            x = x - self.velocity(obs, x, t) / self.steps
        return x

    def losses(self, obs: Tensor, x: Tensor, noise: Tensor, t: Tensor) -> Tensor:
        """(n, N) of noise (n, N, width) and times (n, N), each pair by itself."""
        n, pairs, width = noise.shape
        when, eps = t.reshape(-1, 1), noise.reshape(-1, width)
        at = when * eps + (1 - when) * x.repeat_interleave(pairs, 0)
        v = self.velocity(obs.repeat_interleave(pairs, 0), at, when)
        return (eps - at - (1 - when) * v).square().mean(1).reshape(n, pairs)

    def times(self, shape: Sequence[int], rng: torch.Generator) -> Tensor:
        """Drawn among those that `sample` visits."""
        return 1 - torch.randint(self.steps, tuple(shape), generator=rng) / self.steps

    def forward(self, obs: Tensor) -> Tensor:
        noise = self.start.expand(obs.shape[0], self.width)
        return self.sample(obs, noise)[:, : self.actions]

    def spec(self) -> dict[str, int]:
        """Beside what every actor has."""
        return {"actions": self.actions, "chunk": self.chunk, "steps": self.steps}


def flow_net(
    obs: int, actions: int, hidden: Sequence[int], activation: str, rng: torch.Generator, chunk: int = 1, last: float = 0.25
) -> nn.Sequential:  # fmt: skip
    """The body of a FlowActor."""
    return mlp(obs + actions * chunk + 2 * WAVES, hidden, actions * chunk, activation, last, rng)
