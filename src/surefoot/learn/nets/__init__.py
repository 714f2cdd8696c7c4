"""Networks that learners share: an MLP, running normalisers, and action heads that know their own log-probability.

Everything is float32. Observations enter a net normalised: (o - mean) / sd, clipped to +-10.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from surefoot.errors import SurefootError
from surefoot.task import Mirror

CLIP = 10.0  # largest magnitude of a normalised observation
MOST_WEIGHTS = 1 << 27  # of one net: 0.5 GB
STRIDE = 2  # of an encoder's convolutions
SURE, UNSURE = -8.0, 4.0  # log variance of an estimate, in units of what it estimates


def tensor(x: Any) -> Tensor:
    """An array of the host without a copy; a tensor as it is."""
    return x if isinstance(x, Tensor) else torch.from_numpy(x)


def _tanh(x: Tensor) -> Tensor:
    """By NumPy, seven times as fast as torch's own on a CPU, and as exact (6e-8)."""
    if x.device.type != "cpu":
        return torch.tanh(x)
    return torch.from_numpy(np.tanh(x.detach().numpy()))


class _Tanh(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = _tanh(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return torch.ops.aten.tanh_backward(gradient, *ctx.saved_tensors)


class Tanh(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if torch.jit.is_tracing():  # an exporter knows torch's own
            return torch.tanh(x)
        return _Tanh.apply(x) if torch.is_grad_enabled() else _tanh(x)


ACTIVATIONS = {"relu": lambda: nn.ReLU(inplace=True), "elu": lambda: nn.ELU(inplace=True), "tanh": Tanh}


def mlp(
    inputs: int, hidden: Sequence[int], outputs: int, activation: str, last: float, seed: torch.Generator
) -> nn.Sequential:
    """Linear layers with orthogonal weights (gain sqrt 2, `last` on the output) and zero biases."""
    layers: list[nn.Module] = []
    sizes = [inputs, *hidden, outputs]
    if (weights := sum(a * b for a, b in zip(sizes, sizes[1:]))) > MOST_WEIGHTS:
        raise SurefootError(f"hidden: layers of {sizes} have {weights:g} weights, expected at most {MOST_WEIGHTS:g}")
    for k, (a, b) in enumerate(zip(sizes, sizes[1:])):
        linear = nn.Linear(a, b)
        nn.init.orthogonal_(linear.weight, last if k == len(hidden) else math.sqrt(2), generator=seed)
        nn.init.zeros_(linear.bias)
        layers += [linear] if k == len(hidden) else [linear, ACTIVATIONS[activation]()]
    return nn.Sequential(*layers)


def adam_state(optimiser: torch.optim.Optimizer, named: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Adam's moments and count of steps, as adam.<what>.<name of the parameter>."""
    return {f"adam.{k}.{name}": v for name, p in named.items() for k, v in optimiser.state.get(p, {}).items()}


def restore_adam(optimiser: torch.optim.Optimizer, named: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
    """The inverse: what is not in `state` begins anew."""
    optimiser.state.clear()
    for name, p in named.items():
        keys = {k: f"adam.{k}.{name}" for k in ("step", "exp_avg", "exp_avg_sq")}
        if keys["step"] in state:
            optimiser.state[p] = {k: state[at].to(p.device, copy=True) for k, at in keys.items()}


class Normaliser(nn.Module):
    """Running mean and variance of what has been seen, in float64 (Chan's parallel update)."""

    mean: Tensor
    var: Tensor
    count: Tensor

    def __init__(self, dim: int):
        super().__init__()
        self.register_buffer("mean", torch.zeros(dim, dtype=torch.float64))
        self.register_buffer("var", torch.ones(dim, dtype=torch.float64))
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))

    @torch.no_grad()
    def update(self, x: Tensor) -> None:
        """Take in rows x (m, dim)."""
        x = x.double()
        m, total = float(len(x)), self.count + len(x)
        delta = x.mean(0) - self.mean
        spread = self.var * self.count + x.var(0, unbiased=False) * m + delta.square() * self.count * m / total
        self.var.copy_(spread / total)
        self.mean.add_(delta * m / total)
        self.count.copy_(total)

    @property
    def sd(self) -> Tensor:
        return (self.var + 1e-6).sqrt()

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean.float()).div_(self.sd.float()).clamp_(-CLIP, CLIP)


class Gaussian(nn.Module):
    """a ~ N(mu, sd^2), one sd an action, held in [low, high] by a sigmoid: it can neither collapse nor blow up."""

    def __init__(self, dim: int, low: float, high: float, start: float):
        super().__init__()
        self.bounds = (math.log(low), math.log(high))
        share = (math.log(start) - self.bounds[0]) / (self.bounds[1] - self.bounds[0])
        self.raw = nn.Parameter(torch.full((dim,), math.log(share / (1 - share))))

    @property
    def outputs(self) -> int:
        return len(self.raw)

    @property
    def log_sd(self) -> Tensor:
        low, high = self.bounds
        return low + (high - low) * torch.sigmoid(self.raw)

    def noise(self, steps: int, n: int, rng: torch.Generator) -> Tensor:
        """What `sample` needs of chance, (steps, n, .)."""
        return torch.randn((steps, n, self.outputs), generator=rng)

    def sample(self, mu: Tensor, noise: Tensor) -> Tensor:
        return torch.addcmul(mu, self.log_sd.exp(), noise)

    def log_prob(self, mu: Tensor, a: Tensor) -> Tensor:
        log_sd = self.log_sd
        z = (a - mu) * (-log_sd).exp()
        return -0.5 * z.square().sum(1) - log_sd.sum() - 0.5 * math.log(2 * math.pi) * a.shape[1]

    def entropy(self, mu: Tensor) -> Tensor:
        """In nats, a scalar: the spread is the same in every state."""
        return (self.log_sd + 0.5 * math.log(2 * math.pi * math.e)).sum()

    def kl(self, old: Tensor, old_log_sd: Tensor, mu: Tensor) -> Tensor:
        """KL(old || new) by row."""
        log_sd = self.log_sd
        ratio = (2 * (old_log_sd - log_sd)).exp()
        return (log_sd - old_log_sd - 0.5 + 0.5 * ratio).sum() + 0.5 * ((old - mu) * (-log_sd).exp()).square().sum(1)

    def best(self, mu: Tensor) -> Tensor:
        return mu


class Categorical(nn.Module):
    """a ~ softmax(logits) over k choices; a is carried as one float column."""

    log_sd: Tensor

    def __init__(self, choices: int):
        super().__init__()
        self.outputs = choices
        self.register_buffer("log_sd", torch.zeros(0), persistent=False)

    def noise(self, steps: int, n: int, rng: torch.Generator) -> Tensor:
        """What `sample` needs of chance, (steps, n, .): Gumbel's law."""
        return -torch.log(-torch.log(torch.rand((steps, n, self.outputs), generator=rng).clamp_(1e-12)))

    def sample(self, logits: Tensor, noise: Tensor) -> Tensor:
        return (logits + noise).argmax(1, keepdim=True).float()  # Gumbel's trick

    def log_prob(self, logits: Tensor, a: Tensor) -> Tensor:
        return torch.log_softmax(logits, 1).gather(1, a.long())[:, 0]

    def entropy(self, logits: Tensor) -> Tensor:
        log_p = torch.log_softmax(logits, 1)
        return -(log_p.exp() * log_p).sum(1).mean()

    def kl(self, old: Tensor, old_log_sd: Tensor, logits: Tensor) -> Tensor:
        log_p = torch.log_softmax(old, 1)
        return (log_p.exp() * (log_p - torch.log_softmax(logits, 1))).sum(1)

    def best(self, logits: Tensor) -> Tensor:
        return logits.argmax(1, keepdim=True).float()


class Encoder(nn.Module):
    """Columns `reads` of a normalised observation -> a latent: by an MLP, or by convolutions or a GRU over frames.

    One that `estimates` k quantities has as its latent their means and log variances, normalised; `unit` takes them to
    the quantities' own units. It learns from what is true, by maximum likelihood; the actor's gradients stop at it.
    """

    reads: Tensor
    unit: Tensor

    def __init__(
        self,
        kind: str,
        reads: np.ndarray,
        frames: int,
        latent: int,
        activation: str,
        seed: torch.Generator,
        width: int = 64,
        estimates: int = 0,
    ):
        super().__init__()
        self.kind, self.frames, self.width, self.estimates = kind, frames, width, estimates
        if estimates:
            latent = 2 * estimates
            self.register_buffer("unit", torch.stack([torch.zeros(estimates), torch.ones(estimates)]))
        self.register_buffer("reads", torch.from_numpy(np.asarray(reads, np.int64)))
        self.act = ACTIVATIONS[activation]()
        self.each, self.convs = nn.ModuleList(), nn.ModuleList()
        inputs, features = len(reads) // (1 if kind == "mlp" else frames), width
        if kind == "gru":
            self.gru = nn.GRU(inputs, width, batch_first=True)
        elif kind == "mlp":
            self.each.extend([nn.Linear(inputs, width), nn.Linear(width, width)])
        else:
            channels = width // 2
            self.each.append(nn.Linear(inputs, channels))
            while frames > 4:
                k = 5 if frames % 2 else 4  # so that no frame is left over
                self.convs.append(nn.Conv1d(channels, channels, k, STRIDE))
                frames = (frames - k) // STRIDE + 1
            features = channels * frames
        self.out = nn.Linear(features, latent)
        for p in self.parameters():
            if p.ndim > 1:
                nn.init.orthogonal_(p, math.sqrt(2), generator=seed)
            else:
                nn.init.zeros_(p)
        if kind == "mlp":  # of e: a teacher begins as a policy that hardly depends on e, and learns how to use it
            with torch.no_grad():
                self.out.weight *= 0.01

    def forward(self, z: Tensor) -> Tensor:
        if not self.estimates:
            return self._encoded(z)
        mean, log_var = self._encoded(z).chunk(2, 1)
        return torch.cat([mean, log_var.clamp(SURE, UNSURE)], 1)

    def in_units(self, latent: Tensor) -> Tensor:
        """(n, 2 k) estimates and their standard deviations."""
        mean, log_var = latent.chunk(2, 1)
        return torch.cat([self.unit[0] + self.unit[1] * mean, self.unit[1] * (0.5 * log_var).exp()], 1)

    def _encoded(self, z: Tensor) -> Tensor:
        x = z[:, self.reads]
        if self.kind != "mlp":
            x = x.reshape(-1, self.frames, len(self.reads) // self.frames)
        if self.kind == "gru":
            return self.out(self.gru(x)[1][0])
        for layer in self.each:
            x = self.act(layer(x))
        if len(self.convs):
            x = x.transpose(1, 2)
            for conv in self.convs:
                x = self.act(conv(x))
            x = x.transpose(1, 2)
        return self.out(x.flatten(1))


class Actor(nn.Module):
    """Observation (normalised) -> parameters of the action's distribution; with a mirror, exactly symmetric.

    With an encoder, the body gets columns `keeps` and the encoder's latent. With `squash`, answers lie within +-squash,
    by tanh.
    """

    obs_order: Tensor
    obs_sign: Tensor
    action_order: Tensor
    action_sign: Tensor
    keeps: Tensor

    def __init__(
        self,
        body: nn.Sequential,
        mirror: Mirror | None,
        encoder: Encoder | None = None,
        keeps: np.ndarray | None = None,
        activation: str = "relu",
        squash: float = 0.0,
    ):
        super().__init__()
        self.body, self.encoder, self.activation, self.squash = body, encoder, activation, squash
        self.mirrored = mirror is not None
        if encoder is not None:
            self.register_buffer("keeps", torch.from_numpy(np.asarray(keeps, np.int64)))
        if mirror is not None:
            for k in ("obs_order", "action_order"):
                self.register_buffer(k, torch.from_numpy(np.asarray(getattr(mirror, k))).long())
            for k in ("obs_sign", "action_sign"):
                self.register_buffer(k, torch.from_numpy(np.asarray(getattr(mirror, k))).float())

    def forward(self, obs: Tensor) -> Tensor:
        out = self._free(obs)
        return self.squash * torch.tanh(out) if self.squash else out

    def _free(self, obs: Tensor) -> Tensor:
        if not self.mirrored:
            return self.body(self.inputs(obs))
        both = self.body(self.inputs(torch.cat([obs, obs.index_select(1, self.obs_order) * self.obs_sign])))
        straight, flipped = both.chunk(2)
        return 0.5 * (straight + flipped.index_select(1, self.action_order) * self.action_sign)

    def inputs(self, obs: Tensor) -> Tensor:
        """Of the body."""
        if self.encoder is None:
            return obs
        latent = self.encoder(obs)
        return torch.cat([obs[:, self.keeps], latent.detach() if self.encoder.estimates else latent], 1)


def unlikely(latent: Tensor, truth: Tensor) -> Tensor:
    """(n,) -log N(truth; mean, var), less a constant, of means and log variances side by side."""
    mean, log_var = latent.chunk(2, 1)
    return 0.5 * ((truth - mean).square() * (-log_var).exp() + log_var).sum(1)


class BoundedActor(nn.Module):
    """What an actor does on average, in units of its actions and within their range: scale * clip(actor(see(obs)), +-1)."""

    scale: Tensor

    def __init__(self, see: Normaliser, actor: Actor, scale: np.ndarray):
        super().__init__()
        self.see, self.actor = see, actor
        self.register_buffer("scale", torch.from_numpy(np.asarray(scale, np.float32)))

    def forward(self, obs: Tensor) -> Tensor:
        return self.scale * self.actor(self.see(obs)).clamp(-1.0, 1.0)


class SymmetricNormaliser(Normaliser):
    """A Normaliser of the rows and their mirror images together, so that it keeps the symmetry."""

    order: Tensor
    sign: Tensor

    def __init__(self, dim: int, mirror: Mirror):
        super().__init__(dim)
        self.register_buffer("order", torch.from_numpy(mirror.obs_order).long(), persistent=False)
        self.register_buffer("sign", torch.from_numpy(mirror.obs_sign).float(), persistent=False)

    @torch.no_grad()
    def update(self, x: Tensor) -> None:
        Normaliser.update(self, torch.cat([x, x[:, self.order] * self.sign]))
