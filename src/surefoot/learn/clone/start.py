"""Where a clone's file begins: at a draw of noise whose answers move little when it is moved.

    unrest(z) = mean over rows o of the logs and nudges delta ~ N(0, NUDGE^2) of |x(o, z + delta) - x(o, z)|^2 / d
    calm: unrest(z) <= AS_CALM times the least of some draws;   the start is the first calm one

A net is continuous, so between noise that becomes one way and noise that becomes another there is some that becomes neither.
There a nudge decides, and unrest is large. Among draws that are about as calm none is preferred: the very calmest of single
actions are the ones that commit themselves least.
"""

import torch
from torch import Tensor

from surefoot.learn.nets.flow import NoiseActor

DRAWS, NUDGES, ROWS = 16, 4, 256
NUDGE, AS_CALM = 0.1, 2.0


@torch.no_grad()
def unrest(actor: NoiseActor, seen: Tensor, starts: Tensor, rng: torch.Generator) -> Tensor:
    """(K,) of starts (K, width), over rows (n, .) of normalised observations."""
    nudges = NUDGE * torch.randn((NUDGES, actor.width), generator=rng)
    found = []
    for z in starts:
        x = actor.sample(seen, z.expand(len(seen), -1))
        moved = [actor.sample(seen, (z + nudge).expand(len(seen), -1)) - x for nudge in nudges]
        found.append(torch.stack(moved).square().mean())
    return torch.stack(found)


def calm(actor: NoiseActor, seen: Tensor, starts: Tensor, rng: torch.Generator) -> Tensor:
    """(k, width) those of some starts that are calm, in their order; over ROWS of the logs' rows."""
    rows = torch.randint(len(seen), (min(ROWS, len(seen)),), generator=rng)
    found = unrest(actor, seen[rows], starts, rng)
    return starts[found <= AS_CALM * found.min()]


def calm_start(actor: NoiseActor, seen: Tensor, spread: float, rng: torch.Generator) -> Tensor:
    """(width,) the first of DRAWS, of standard deviation `spread`, that is calm."""
    return calm(actor, seen, spread * torch.randn((DRAWS, actor.width), generator=rng), rng)[0]
