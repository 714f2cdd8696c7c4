"""Where a clone's file begins: of several draws of noise, the one whose answers move least when it is moved.

    unrest(z) = mean over rows o of the logs and nudges delta ~ N(0, NUDGE^2) of |x(o, z + delta) - x(o, z)|^2 / d

A net is continuous, so between noise that becomes one way and noise that becomes another there is some that becomes neither.
There a nudge decides, and unrest is large.
"""

import torch
from torch import Tensor

from surefoot.learn.nets.flow import NoiseActor

DRAWS, NUDGES, ROWS = 16, 4, 256
NUDGE = 0.1


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


def calmest(actor: NoiseActor, seen: Tensor, spread: float, rng: torch.Generator) -> Tensor:
    """(width,) the start with the least unrest of DRAWS, of standard deviation `spread`, over ROWS of the logs' rows."""
    starts = spread * torch.randn((DRAWS, actor.width), generator=rng)
    rows = torch.randint(len(seen), (min(ROWS, len(seen)),), generator=rng)
    return starts[int(unrest(actor, seen[rows], starts, rng).argmin())]
