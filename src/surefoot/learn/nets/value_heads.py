"""What critics say of a return: its mean, or its distribution on atoms, and how each learns from a target.

    Z' = r + gamma Z,  put back on the atoms z_i so that mass and mean stay (Bellemare's projection):
    p'_i = sum_j p_j [1 - |clip(r + gamma z_j) - z_i| / dz]_+        loss = -sum_i p'_i log p_i

A two-hot head learns a number the same way, as the distribution at that number. C51's atoms span a range of returns, which
is found here: where targets come near its ends it is widened, and the last layer is interpolated to the new atoms.
"""

from abc import ABC, abstractmethod
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import huber_loss, log_softmax, softmax

from surefoot.learn.nets.stacked import StackedLinear

NEAR, WIDER = 0.05, 0.5  # shares of the range: from an end where it is widened, and by how much
FALLS = 1.0  # nats by which the logit of a new atom falls with each old spacing beyond the old range
SYMLOG = 10.0  # of the outermost atoms of a two-hot head: returns up to 22,000


def project(p: Tensor, at: Tensor, low: float, step: float, atoms: int) -> Tensor:
    """Mass p (..., k) at places `at` (..., k) -> on the atoms low + i step; what lies beyond their ends is put on these."""
    b = ((at - low) / step).clamp(0, atoms - 1)
    left = b.floor().clamp(max=atoms - 2)
    right, at_left = (
        b - left,
        left.nan_to_num().long(),
    )  # what is not finite stays so in `right`, and learning is undone
    out = torch.zeros(*p.shape[:-1], atoms)
    out.scatter_add_(-1, at_left, p * (1 - right))
    return out.scatter_add_(-1, at_left + 1, p * right)


class ValueHead(nn.Module, ABC):
    """How a critic's outputs (..., outputs) mean a return."""

    outputs: int

    @abstractmethod
    def value(self, out: Tensor) -> Tensor:
        """(...) the mean return."""

    @abstractmethod
    def target(self, reward: Tensor, discount: Tensor, out: Tensor) -> Tensor:
        """What to learn where `out` (..., n, outputs) was said of the state after reward (n,)."""

    @abstractmethod
    def loss(self, out: Tensor, target: Tensor) -> Tensor:
        """(...) of each row."""

    def begin(self, low: float, high: float) -> None:
        """Returns of this range were met before learning began."""
        return None

    def follow(self, low: float, high: float, layers: list[StackedLinear], moments: list[Tensor]) -> bool:
        """Targets of this range were met: widens the range where it has one; returns whether it did.

        `moments` are tensors of the shape of the layers' weights and biases that have to follow them.
        """
        return False


class Mean(ValueHead):
    """In a unit that the first returns give: squared error below one unit, its absolute value beyond (Huber)."""

    unit: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.outputs = 1
        self.register_buffer("unit", torch.ones(()))

    def begin(self, low: float, high: float) -> None:
        self.unit.fill_(max(0.5 * (high - low), 1e-6))

    def value(self, out: Tensor) -> Tensor:
        return self.unit * out[..., 0]

    def target(self, reward: Tensor, discount: Tensor, out: Tensor) -> Tensor:
        return (reward + discount * self.value(out)) / self.unit

    def loss(self, out: Tensor, target: Tensor) -> Tensor:
        value = out[..., 0]
        return huber_loss(value, target.expand(value.shape), reduction="none")


class TwoHot(ValueHead):
    """The mean, by cross-entropy, on atoms evenly spaced in symlog(v) = sign(v) log(1 + |v|)."""

    z: Tensor

    def __init__(self, atoms: int):
        super().__init__()
        self.outputs = atoms
        self.register_buffer("z", torch.linspace(-SYMLOG, SYMLOG, atoms), persistent=False)

    def value(self, out: Tensor) -> Tensor:
        y = (softmax(out, -1) * self.z).sum(-1)
        return y.sign() * torch.expm1(y.abs())

    def target(self, reward: Tensor, discount: Tensor, out: Tensor) -> Tensor:
        v = reward + discount * self.value(out)
        y = (v.sign() * torch.log1p(v.abs()))[..., None]
        return project(torch.ones_like(y), y, -SYMLOG, 2 * SYMLOG / (self.outputs - 1), self.outputs)

    def loss(self, out: Tensor, target: Tensor) -> Tensor:
        return -(target * log_softmax(out, -1)).sum(-1)


class C51(ValueHead):
    """The distribution, on atoms from low to high."""

    ends: Tensor

    def __init__(self, atoms: int):
        super().__init__()
        self.outputs = atoms
        self.register_buffer("ends", torch.tensor([-1.0, 1.0]))

    @property
    def z(self) -> Tensor:
        return torch.linspace(float(self.ends[0]), float(self.ends[1]), self.outputs)

    @property
    def step(self) -> float:
        return float(self.ends[1] - self.ends[0]) / (self.outputs - 1)

    def begin(self, low: float, high: float) -> None:
        span = max(high - low, 1e-6)
        self.ends.copy_(torch.tensor([low - WIDER * span, high + WIDER * span]))

    def value(self, out: Tensor) -> Tensor:
        return (softmax(out, -1) * self.z).sum(-1)

    def target(self, reward: Tensor, discount: Tensor, out: Tensor) -> Tensor:
        at = reward[..., None] + discount[..., None] * self.z
        return project(softmax(out, -1), at.expand(out.shape), float(self.ends[0]), self.step, self.outputs)

    def loss(self, out: Tensor, target: Tensor) -> Tensor:
        return -(target * log_softmax(out, -1)).sum(-1)

    @torch.no_grad()
    def follow(self, low: float, high: float, layers: list[StackedLinear], moments: list[Tensor]) -> bool:
        was, span = self.z, float(self.ends[1] - self.ends[0])
        down = WIDER * span if low < float(self.ends[0]) + NEAR * span else 0.0
        up = WIDER * span if high > float(self.ends[1]) - NEAR * span else 0.0
        if not down and not up:
            return False
        old_step = self.step
        self.ends += torch.tensor([-down, up])
        at = self.z.clamp(float(was[0]), float(was[-1]))
        share = project(torch.ones(self.outputs, 1), at[:, None], float(was[0]), old_step, self.outputs)  # (new, old)
        for layer in layers:
            layer.weight.copy_(layer.weight @ share.T)
            layer.bias.copy_(layer.bias @ share.T - FALLS * (self.z - at).abs() / old_step)
        for moment in moments:
            moment.copy_(moment @ share.T)
        return True


def value_head(kind: Literal["c51", "two_hot", "mean"], atoms: int) -> ValueHead:
    return Mean() if kind == "mean" else TwoHot(atoms) if kind == "two_hot" else C51(atoms)
