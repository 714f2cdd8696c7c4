"""Hidden realities: seeded worlds a policy was not told about, to rehearse the crossing before there is a robot.

A reality is one e. It is drawn from the outer fifth of a belief's range in every parameter, on the side away from
nominal where nominal sits at an edge (latency, drag), on a random side elsewhere: a machine that differs from its model
in everything at once, as machines do.
"""

import numpy as np

from surefoot.belief import Box
from surefoot.rng import stream

OUTER = 0.2  # of a parameter's range


def reality(belief: Box, seed: int) -> np.ndarray:
    """e of the hidden world with this seed."""
    rng = stream(seed, "reality")
    p = belief.params
    low, high = belief.normalise(belief.low), belief.normalise(belief.high)
    nominal = belief.normalise(p.nominal)
    side = rng.random(len(p)) < 0.5
    side = np.where(nominal <= low, True, np.where(nominal >= high, False, side))
    depth = OUTER * rng.random(len(p))
    return belief.denormalise(np.where(side, high - depth * (high - low), low + depth * (high - low)))
