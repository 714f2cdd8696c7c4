"""Many nets of one shape computed at once: members of an ensemble, actuators of a robot, candidates of a search.

    y_k = x_k W_g(k) + b_g(k)        x (K, rows, in), W (G, in, out), b (G, 1, out); g(k): which weights net k uses

Leading axes broadcast: with weights (m, G, in, out) by torch.func.functional_call, a module computes m candidates of its nets.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn


def stacked_mlp(
    uses: Sequence[int], inputs: int, hidden: Sequence[int], outputs: int, activation: Callable[[], nn.Module], rng: torch.Generator
) -> nn.Sequential:  # fmt: skip
    """MLPs side by side, with an activation after each layer but the last."""
    sizes = [inputs, *hidden, outputs]
    layers: list[nn.Module] = [StackedLinear(uses, sizes[0], sizes[1], rng)]
    for a, b in zip(sizes[1:], sizes[2:]):
        layers += [activation(), StackedLinear(uses, a, b, rng)]
    return nn.Sequential(*layers)


class StackedLinear(nn.Module):
    """Weights W ~ N(0, 1 / in), biases 0."""

    uses: Tensor

    def __init__(self, uses: Sequence[int], inputs: int, outputs: int, rng: torch.Generator):
        super().__init__()
        count = max(uses) + 1
        self.shared = list(uses) != list(range(count))
        self.register_buffer("uses", torch.tensor(list(uses)), persistent=False)
        self.weight = nn.Parameter(torch.randn(count, inputs, outputs, generator=rng) / inputs**0.5)
        self.bias = nn.Parameter(torch.zeros(count, 1, outputs))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.each(self.weight) + self.each(self.bias)

    def each(self, w: Tensor) -> Tensor:
        """Of each net, the weights it uses."""
        return w.index_select(-3, self.uses) if self.shared else w


class StackedGRU(nn.Module):
    """GRU cells side by side, with torch's own law and order of gates:

    r, z = sigma(x W_{r,z} + h V_{r,z} + b);    g = tanh(x W_g + b_g + r (h V_g + c_g));    h' = (1 - z) g + z h
    """

    def __init__(self, uses: Sequence[int], inputs: int, hidden: int, rng: torch.Generator):
        super().__init__()
        self.hidden = hidden
        self.of_input = StackedLinear(uses, inputs, 3 * hidden, rng)
        self.of_state = StackedLinear(uses, hidden, 3 * hidden, rng)

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        """The next state (K, rows, hidden) for an input x (K, rows, in) at state h."""
        a, b = (y.split(self.hidden, -1) for y in (self.of_input(x), self.of_state(h)))
        r, z = torch.sigmoid(a[0] + b[0]), torch.sigmoid(a[1] + b[1])
        return (1 - z) * torch.tanh(a[2] + r * b[2]) + z * h

    def along(self, x: Tensor) -> Tensor:
        """States (K, rows, T, hidden) along inputs (K, rows, T, in), from 0: as T calls would, by torch's faster loop."""
        pairs = [(m.each(m.weight), m.each(m.bias)) for m in (self.of_input, self.of_state)]
        states = []
        for k, rows in enumerate(x):
            (wx, bx), (wh, bh) = ((w[k].T.contiguous(), b[k, 0]) for w, b in pairs)
            first = torch.zeros(1, len(rows), wh.shape[1])
            states.append(torch.gru(rows, first, [wx, wh, bx, bh], True, 1, 0.0, True, False, True)[0])
        return torch.stack(states)
