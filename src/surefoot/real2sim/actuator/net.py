"""Actuator nets in torch, from which ActuatorNet Terms are exported (sim/learned/actuator_net.py).

    (features now, memory) (n, 3 J + M) -> (r, memory of the next period) (n, J + M)

The memory begins with a 1 once the episode has begun. Then follow, of an MLP, the features of the last `history` - 1 periods,
oldest first, all of them the present ones where the episode begins; of a GRU, its state.

J joints are in U = J / k units of k joints that share one input; units of one group share their weights.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import mujoco
import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from surefoot.learn.nets import CLIP, BoundedActor
from surefoot.learn.nets.export import graph_of
from surefoot.learn.nets.stacked import StackedGRU, StackedLinear, stacked_mlp
from surefoot.rng import key
from surefoot.sim.learned.actuator_net import FEATURES, ActuatorNet, Actuators, DrivenJoints

Kind = Literal["mlp", "gru"]


@dataclass(frozen=True)
class Shape:
    kind: Kind
    groups: tuple[int, ...]
    """of each unit, which weights it uses"""
    together: int
    """k, joints in a unit"""
    history: int
    """periods in an MLP's input, this one among them"""
    hidden: int
    """width of each layer, or of a GRU's state"""

    @property
    def frames(self) -> int:
        return self.history if self.kind == "mlp" else 1

    @property
    def past(self) -> int:
        """Columns of the memory beside the first."""
        units = len(self.groups)
        return (self.frames - 1) * FEATURES * self.together * units if self.kind == "mlp" else self.hidden * units


class UnitNets(nn.Module):
    """r = offset + gain f((frames - shift) / scale): the nets of all units side by side."""

    shift: Tensor
    scale: Tensor
    gain: Tensor
    offset: Tensor

    def __init__(self, shape: Shape, scales: Mapping[str, np.ndarray], seed: int):
        """`scales`: shift, scale (U, 1, in), gain, offset (U, 1, k). The last layer is 0, so r is the offset at first."""
        super().__init__()
        self.shape, rng = shape, torch.Generator().manual_seed(key(seed, "actuator net") >> 1)
        for name, value in scales.items():
            self.register_buffer(name, torch.from_numpy(np.asarray(value, np.float32)))
        inputs, width = FEATURES * shape.together * shape.frames, shape.hidden
        if shape.kind == "gru":
            self.gru = StackedGRU(shape.groups, inputs, width, rng)
        else:
            self.mlp = nn.Sequential(stacked_mlp(shape.groups, inputs, (width,), width, nn.Tanh, rng), nn.Tanh())
        self.last = StackedLinear(shape.groups, width, shape.together, rng)
        nn.init.zeros_(self.last.weight)

    def forward(self, frames: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """r (n, J) of frames (n, frames, 3 J), and the GRU's next state (n, hidden U)."""
        z = self.inputs(frames)
        if self.shape.kind == "mlp":
            return self.output(self.mlp(z)), state
        h = self.gru(z, self.split(state, self.shape.hidden))
        return self.output(h), self.joined(h, self.shape.hidden)

    def along(self, features: Tensor) -> Tensor:
        """r (b, T, J) of a GRU along recordings (b, T, 3 J)."""
        b, T = features.shape[:2]
        z = self.inputs(features.reshape(b * T, 1, -1))[0].unflatten(1, (b, T))  # (U, b, T, in)
        return self.output(self.gru.along(z).flatten(1, 2)[None]).unflatten(0, (b, T))

    def inputs(self, frames: Tensor) -> Tensor:
        """(m, U, n / m, in) normalised."""
        H, wide = self.shape.frames, FEATURES * self.shape.together
        f = frames.reshape(-1, H, len(self.shape.groups), wide).transpose(1, 2)
        return ((self.split(f, H * wide) - self.shift) / self.scale).clamp(-CLIP, CLIP)

    def output(self, y: Tensor) -> Tensor:
        """r (n, J) of the last hidden layer."""
        return self.joined(self.offset + self.gain * self.last(y), self.shape.together)

    def split(self, x: Tensor, wide: int) -> Tensor:
        """(n, U wide) -> (m, U, n / m, wide) for m candidates, each in n / m simulations that stand together."""
        m = self.last.weight.shape[0] if self.last.weight.ndim == 4 else 1
        return x.reshape(m, -1, len(self.shape.groups), wide).transpose(1, 2)

    def joined(self, x: Tensor, wide: int) -> Tensor:
        """The inverse."""
        return x.transpose(1, 2).reshape(-1, len(self.shape.groups) * wide)


class OfActor(nn.Module):
    """A policy whose action is r: it takes the frames of all joints together."""

    def __init__(self, actor: BoundedActor):
        super().__init__()
        self.actor = actor

    def forward(self, frames: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        return self.actor(frames.flatten(1)), state


class ActuatorModule(nn.Module):
    """One control period: nets within limits, and their memory."""

    limit: Tensor

    def __init__(self, nets: UnitNets | OfActor, shape: Shape, limit: tuple[float, ...]):
        super().__init__()
        self.nets, self.shape, self.features = nets, shape, FEATURES * len(limit)
        self.register_buffer("limit", torch.tensor(limit))

    @property
    def memory(self) -> int:
        return 1 + self.shape.past

    def forward(self, x: Tensor) -> Tensor:
        F, H = self.features, self.shape.frames
        now, begun, past = x[:, :F], x[:, F : F + 1], x[:, F + 1 :]
        if self.shape.kind == "gru":
            r, past = self.nets(now[:, None], past)
        elif H == 1:
            r, _ = self.nets(now[:, None], past)
        else:
            frames = torch.cat([torch.where(begun > 0, past, torch.cat([now] * (H - 1), 1)), now], 1)
            r, past = self.nets(frames.reshape(-1, H, F), frames[:, F:])
        parts = [torch.minimum(torch.maximum(r, -self.limit), self.limit), 0 * begun + 1]
        return torch.cat([*parts, past] if self.shape.past else parts, 1)


def in_torch(
    module: ActuatorModule, actuators: Actuators, model: mujoco.MjModel, weights: Mapping[str, Tensor] | None = None
) -> ActuatorNet:
    """A module in training as a Term; `weights`, if given, are those of m candidates in place of its own."""

    @torch.no_grad()
    def net(x: np.ndarray) -> np.ndarray:
        rows = torch.from_numpy(x)
        return (module(rows) if weights is None else functional_call(module, dict(weights), (rows,))).numpy()

    return ActuatorNet(actuators, DrivenJoints.of(model, actuators.drives), net, module.memory)


def exported(module: ActuatorModule, actuators: Actuators, model: mujoco.MjModel, about: Any = None) -> ActuatorNet:
    """A trained module as a Term that onnxruntime runs."""
    graph = graph_of(module, FEATURES * len(actuators.drives) + module.memory)
    return ActuatorNet(actuators, DrivenJoints.of(model, actuators.drives), graph, module.memory, about or {})
