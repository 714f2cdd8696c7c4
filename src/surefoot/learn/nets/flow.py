"""Actors whose distribution is what a net makes of noise: as many modes as it takes, one net, a few steps.

x is an action, or a chunk of several, oldest first, of which the first few are executed; t runs from 1 (noise) to 0 (action).

flow        x_t = t eps + (1 - t) a;   the net learns dx/dt = eps - a
            act:   x <- x - v(o, x, t) / S   at t = 1, 1 - 1/S, .. 1/S                 Euler's rule, S steps
            loss:  |eps - a - v|^2 / d, which clones learn;   (1 - t)^2 of it, which is |eps - eps_hat|^2 / d, makes FPO's ratios
diffusion   x_t = sqrt(h) a + sqrt(1 - h) eps,   h(t) = cos^2(pi/2 (t + s) / (1 + s)) / h_0
            the net learns w = sqrt(h) eps - sqrt(1 - h) a; where it predicts noise, as older files do, eps
            act:   a_hat = sqrt(h) x - sqrt(1 - h) w, clipped;   x <- sqrt(h') a_hat + sqrt(1 - h' - sd^2) eps_hat + sd z
                   sd = 0: DDIM, a few steps;   sd^2 = (1 - h') / (1 - h) (1 - h / h'): DDPM, all of its steps
            loss:  |w - w_hat|^2 / d

At t = 1, where nearly all is noise, an action by way of eps is a hundred times the net's error; by way of w it is once that.

From one start the answer is one: what is exported begins at `start`, zero or a draw that is kept, so that a file is a
function of the observation.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from surefoot.errors import SurefootError
from surefoot.learn.nets import mlp
from surefoot.task import Mirror

WAVES = 4  # of t, each as cos and sin
TIMES = 100  # of a diffusion
OFFSET = 0.008  # s of its schedule
ZEROTH = math.cos(OFFSET / (1 + OFFSET) * math.pi / 2) ** 2
LEAST = 1e-4  # of h
PREDICTED = ("velocity", "noise")  # by the net of a diffusion
FARTHEST = 1.5  # largest magnitude of an action that a diffusion expects, in units of its data's largest


def clock(t: Tensor) -> Tensor:
    """(n, 2 WAVES) of times (n, 1): cos and sin of pi t, 2 pi t, 4 pi t ..."""
    angle = t * (math.pi * 2.0 ** torch.arange(WAVES, dtype=t.dtype))
    return torch.cat([angle.cos(), angle.sin()], 1)


class NoiseActor(nn.Module, ABC):
    """Observation (normalised) -> the action that the net makes of `start`; with a mirror, its field is exactly symmetric."""

    kind: str
    start: Tensor
    obs_order: Tensor
    obs_sign: Tensor
    x_order: Tensor
    x_sign: Tensor
    encoder = None
    squash = 0.0

    def __init__(
        self,
        body: nn.Sequential,
        mirror: Mirror | None,
        actions: int,
        chunk: int,
        steps: int,
        activation: str,
        execute: int = 1,
    ):
        super().__init__()
        if not 1 <= execute <= chunk:
            raise SurefootError(f"execute: expected 1 to {chunk}, the actions of a chunk, found {execute}")
        self.execute = execute
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

    def answer(self, obs: Tensor, x: Tensor, t: Tensor) -> Tensor:
        """(n, width) of the net at observations (n, .), x (n, width) and times (n, 1)."""
        when = clock(t)
        if not self.mirrored:
            found: Tensor = self.body(torch.cat([obs, x, when], 1))
            return found
        sides = ((obs, self.obs_order, self.obs_sign), (x, self.x_order, self.x_sign))
        turned = [y.index_select(1, order) * sign for y, order, sign in sides]
        both = self.body(torch.cat([torch.cat([obs, x, when], 1), torch.cat([*turned, when], 1)]))
        straight, flipped = both.chunk(2)
        return 0.5 * (straight + flipped.index_select(1, self.x_order) * self.x_sign)

    @abstractmethod
    def sample(self, obs: Tensor, noise: Tensor) -> Tensor:
        """(n, width) what becomes of noise (n, width)."""

    @abstractmethod
    def errors(self, obs: Tensor, x: Tensor, noise: Tensor, t: Tensor) -> Tensor:
        """(n, width) how far the net is off at noise (n, width) and times (n, 1)."""

    @abstractmethod
    def times(self, shape: Sequence[int], rng: torch.Generator) -> Tensor:
        """Drawn among those that are learned."""

    def losses(self, obs: Tensor, x: Tensor, noise: Tensor, t: Tensor) -> Tensor:
        """(n, N) of noise (n, N, width) and times (n, N), each pair by itself."""
        n, pairs, width = noise.shape
        obs, x = obs.repeat_interleave(pairs, 0), x.repeat_interleave(pairs, 0)
        found = self.errors(obs, x, noise.reshape(-1, width), t.reshape(-1, 1)).square().mean(1).reshape(n, pairs)
        return self.weight(t) * found

    def weight(self, t: Tensor) -> Tensor:
        """Of a pair's loss."""
        return torch.ones_like(t)

    def plan(self, obs: Tensor) -> Tensor:
        """(n, execute * actions) of a chunk, those to execute before the next one."""
        noise = self.start.expand(obs.shape[0], self.width)
        return self.sample(obs, noise)[:, : self.execute * self.actions]

    def forward(self, obs: Tensor) -> Tensor:
        return self.plan(obs)[:, : self.actions]

    def spec(self) -> dict[str, int | str]:
        """Beside what every actor has."""
        counts = {"actions": self.actions, "chunk": self.chunk, "steps": self.steps}
        return {"kind": self.kind, **counts, **({"execute": self.execute} if self.execute > 1 else {})}


class FlowActor(NoiseActor):
    kind = "flow"

    def sample(self, obs: Tensor, noise: Tensor) -> Tensor:
        x = noise
        for k in range(self.steps):
            t = torch.full_like(x[:, :1], 1 - k / self.steps)
            x = x - self.answer(obs, x, t) / self.steps
        return x

    def errors(self, obs: Tensor, x: Tensor, noise: Tensor, t: Tensor) -> Tensor:
        return noise - x - self.answer(obs, t * noise + (1 - t) * x, t)

    def weight(self, t: Tensor) -> Tensor:
        """So that an error of velocity counts as the error of noise that it makes: none at t = 1."""
        return (1 - t).square()

    def times(self, shape: Sequence[int], rng: torch.Generator) -> Tensor:
        return 1 - torch.randint(self.steps, tuple(shape), generator=rng) / self.steps


def kept(t: float) -> float:
    """h: the share of the action's variance that is left at a time; never quite 0."""
    own = lambda x: math.cos((x + OFFSET) / (1 + OFFSET) * math.pi / 2) ** 2  # noqa: E731
    return max(own(t) / own(0.0), LEAST)


class DiffusionActor(NoiseActor):
    kind = "diffusion"
    predicts: str = PREDICTED[0]
    """velocity: w; noise: eps"""

    def spec(self) -> dict[str, int | str]:
        return NoiseActor.spec(self) | {"predicts": self.predicts}

    def sample(self, obs: Tensor, noise: Tensor) -> Tensor:
        """By DDIM."""
        return self.walk(obs, noise, self.steps)

    def walk(self, obs: Tensor, x: Tensor, steps: int, rng: torch.Generator | None = None) -> Tensor:
        """Down in equal steps of t: without a generator DDIM; with one, and all TIMES steps, DDPM."""
        for k in range(steps):
            t = torch.full_like(x[:, :1], 1 - k / steps)
            h, after = kept(1 - k / steps), kept(1 - (k + 1) / steps)
            a = self._action(x, self.answer(obs, x, t), h).clamp(-FARTHEST, FARTHEST)
            eps = (x - math.sqrt(h) * a) / math.sqrt(1 - h)
            variance = 0.0 if rng is None else (1 - after) / (1 - h) * (1 - h / after)
            x = math.sqrt(after) * a + math.sqrt(max(0.0, 1 - after - variance)) * eps
            if rng is not None:
                x = x + math.sqrt(variance) * torch.randn(x.shape, generator=rng)
        return x

    def errors(self, obs: Tensor, x: Tensor, noise: Tensor, t: Tensor) -> Tensor:
        h = (((t + OFFSET) / (1 + OFFSET) * (math.pi / 2)).cos().square() / ZEROTH).clamp(min=LEAST)
        found = self.answer(obs, h.sqrt() * x + (1 - h).sqrt() * noise, t)
        return (noise if self.predicts == "noise" else h.sqrt() * noise - (1 - h).sqrt() * x) - found

    def _action(self, x: Tensor, found: Tensor, h: float) -> Tensor:
        """a_hat, of what the net has found."""
        if self.predicts == "noise":
            return (x - math.sqrt(1 - h) * found) / math.sqrt(h)
        return math.sqrt(h) * x - math.sqrt(1 - h) * found

    def times(self, shape: Sequence[int], rng: torch.Generator) -> Tensor:
        return 1 - torch.randint(TIMES, tuple(shape), generator=rng) / TIMES


NOISE_ACTORS: dict[str, type[NoiseActor]] = {"flow": FlowActor, "diffusion": DiffusionActor}


def flow_net(
    obs: int, actions: int, hidden: Sequence[int], activation: str, rng: torch.Generator, chunk: int = 1, last: float = 0.25
) -> nn.Sequential:  # fmt: skip
    """The body of a NoiseActor."""
    return mlp(obs + actions * chunk + 2 * WAVES, hidden, actions * chunk, activation, last, rng)
