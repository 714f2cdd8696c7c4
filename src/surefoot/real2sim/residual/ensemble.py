"""An ensemble of nets that vanishes where there were no data.

    z = (phi - mean) / sd,     y_k(z) = f_k(z) + p_k(z)        k = 1..K members: f_k is trained, p_k is random and fixed
    value = T(d) scale mean_k y_k,     d = sd_k y_k,     T(d) = exp(-max(d / s - 1, 0)^2)

The members agree where there were data and nowhere else, because off the data each follows its own p_k (randomized priors).
s is the spread d on the data themselves, so T is 1 there and falls to 0 elsewhere: where the log has nothing, the model stays
as it was.
"""

from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from surefoot.learn.nets import Normaliser
from surefoot.learn.nets.stacked import StackedLinear, stacked_mlp
from surefoot.rng import key, stream

KNOWN = 0.99  # fraction of the data that are trusted in full: the rest lie at their edge, where little is known
WIDE = 64  # hidden units of a random part


@dataclass(frozen=True)
class FitSettings:
    """Settings of fitting a residual force or a delta action to a log."""

    spans: tuple[float, ...] = (0.02, 0.06, 0.15)
    """s: window lengths over which a label is constant; the one whose nets predict best is kept"""
    rounds: int = 2
    """how often labels are computed again, about the Term fitted so far"""
    horizon: float = 0.5
    """s: length of the predictions by which nets are selected and tested"""
    members: int = 5
    """nets in the ensemble"""
    hidden: tuple[int, ...] = (32, 32)
    """widths of their layers"""
    updates: int = 1500
    """gradient steps of each fit"""
    batch: int = 256
    """windows in each"""
    rate: float = 0.01
    """largest step size"""
    decay: float = 0.01
    """weight decay: of two nets that fit alike, the flatter"""
    share: float = 0.5
    """of the windows in each: how many are of the log, where another is learned beside it"""
    prior: float = 0.5
    """size of the random part of each net, relative to that of the labels: off the data the members differ by as much"""
    select: float = 0.16
    """fraction of the log, before its last part, that selects the span and the round"""
    held_out: float = 0.2
    """fraction of the log, its last part, that tests the result and is used for nothing else"""


class Ensemble(nn.Module):
    """phi (n, inputs) -> value (n, outputs)."""

    scale: Tensor
    spread: Tensor

    def __init__(self, inputs: int, outputs: int, s: FitSettings, rng: torch.Generator):
        super().__init__()
        every = range(s.members)
        self.see = Normaliser(inputs)
        self.fitted = stacked_mlp(every, inputs, s.hidden, outputs, nn.Tanh, rng)
        self.prior = stacked_mlp(every, inputs, (WIDE,), outputs, nn.ReLU, rng).requires_grad_(False)
        first, last = self.prior[0], self.prior[-1]
        assert isinstance(first, StackedLinear) and isinstance(last, StackedLinear)
        first.bias.normal_(generator=rng)
        last.weight.mul_(s.prior)
        self.register_buffer("scale", torch.ones(outputs))
        self.register_buffer("spread", torch.tensor(np.inf))

    def members(self, phi: Tensor) -> Tensor:
        """(K, n, outputs), before scaling."""
        z = self.see(phi)[None]
        return self.fitted(z) + self.prior(z)

    def trust(self, members: Tensor) -> Tensor:
        """(n, 1) T(d), with d over the outputs' root mean square."""
        return torch.exp(-(disagreement(members) / self.spread - 1.0).clamp(min=0.0).square())[:, None]

    def forward(self, phi: Tensor) -> Tensor:
        y = self.members(phi)
        return self.trust(y) * y.mean(0) * self.scale

    @torch.no_grad()
    def scaled(self, factor: np.ndarray) -> "Ensemble":
        """The same with each output times a factor."""
        other = deepcopy(self)
        other.scale.mul_(torch.from_numpy(factor).float())
        return other


def disagreement(members: Tensor) -> Tensor:
    """(n,) d of members (K, n, outputs)."""
    return (members - members.mean(0)).square().mean((0, 2)).sqrt()


@torch.no_grad()
def answers(net: nn.Module, phi: np.ndarray) -> np.ndarray:
    """Of a module to rows of numbers."""
    return np.asarray(net(torch.from_numpy(np.asarray(phi, np.float32))).numpy(), float)


Labelled = tuple[np.ndarray, np.ndarray]
"""windows phi (w, h, inputs) and their labels y (w, outputs)"""


def fit(data: Labelled, s: FitSettings, seed: int, beside: Labelled | None = None) -> Ensemble:
    """An ensemble whose mean along windows phi is y: controls may jump within a window, a label does not. Members are given other
    blocks of the data, and have other random parts. With windows beside the log's, each batch has a `share` of the log's.
    """
    own = len(data[0])
    phi, y = data if beside is None else (np.concatenate(x) for x in zip(data, beside))
    torch.set_num_threads(1)  # the nets are small, and so the bits are the same on any number of cores
    rng = stream(seed, "ensemble")
    net = Ensemble(phi.shape[2], y.shape[1], s, torch.Generator().manual_seed(key(seed, "ensemble") >> 1))
    windows, scale = _tensor(phi), np.maximum(np.sqrt(np.square(y[:own]).mean(0)), 1e-12)
    net.see.update(windows.flatten(0, 1))
    net.scale.copy_(_tensor(scale))
    with torch.no_grad():
        z = net.see(windows)
        prior = net.prior(z.flatten(0, 1)[None]).unflatten(1, z.shape[:2]).mean(2)  # (K, w, outputs)
    _train(net.fitted, z, _tensor(y / scale) - prior, _tensor(_blocks(len(y), s.members, rng)), own, s, rng)
    with torch.no_grad():
        apart = disagreement(net.members(windows.flatten(0, 1))).numpy()
    net.spread.fill_(max(float(np.quantile(apart, KNOWN)), 1e-9))
    return net


def _tensor(x: np.ndarray) -> Tensor:
    return torch.from_numpy(np.asarray(x, np.float32))


def _train(
    net: nn.Sequential, z: Tensor, target: Tensor, weight: Tensor, own: int, s: FitSettings, rng: np.random.Generator
) -> None:
    """AdamW on the mean along each window z (w, h, inputs) against target (K, w, outputs); the first `own` are the log's."""
    adam = torch.optim.AdamW(net.parameters(), s.rate, weight_decay=s.decay)
    schedule = torch.optim.lr_scheduler.OneCycleLR(adam, s.rate, s.updates)
    for _ in range(s.updates):
        rows = torch.from_numpy(drawn_rows(own, len(z), min(s.batch, len(z)), s.share, rng))
        y = net(z[rows].flatten(0, 1)[None]).unflatten(1, (-1, z.shape[1])).mean(2)
        # Huber's loss: a contact that breaks within a window gives a label that explains nothing else
        loss = nn.functional.huber_loss(y, target[:, rows], reduction="none").mean(2) * weight[:, rows]
        adam.zero_grad()
        loss.mean().backward()
        adam.step()
        schedule.step()


def drawn_rows(own: int, most: int, n: int, share: float, rng: np.random.Generator) -> np.ndarray:
    """(n,) rows of a batch: a share of them among the first `own`, the others behind them; all, where nothing is behind them."""
    first = n if own == most else min(max(1, round(share * n)), n - 1)
    rows = rng.integers(0, own, first)
    return rows if first == n else np.concatenate([rows, rng.integers(own, most, n - first)])


def _blocks(n: int, members: int, rng: np.random.Generator) -> np.ndarray:
    """(K, n) how often each member is given each row: whole blocks drawn with replacement, as neighbouring rows are alike."""
    block = max(1, n // 20)
    count = -(-n // block)
    drawn = rng.multinomial(count, np.full(count, 1 / count), members)
    return np.repeat(drawn, block, 1)[:, :n].astype(float)
