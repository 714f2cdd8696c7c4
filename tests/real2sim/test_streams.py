"""Of ways to misread two columns that agree equally well, the one with the fewest mistakes is named."""

import numpy as np

from surefoot.fault.logs import of_attitude
from surefoot.real2sim.streams import _best
from surefoot.rng import stream


def test_one_mistake_is_named_before_two_that_agree_a_little_better():
    faults = list(of_attitude())
    words = [f.words for f in faults]
    one = words.index("base_ang_vel is in the frame of the world, not of the base")
    two = words.index("base_quat is x y z w, base_quat is from world to base (its conjugate is expected)")
    size = np.full(len(faults), 1.0)
    size[one], size[two] = 0.101, 0.1
    errors = size[:, None, None] * stream(1, "e").normal(size=(240, 3))
    (check,) = list(_best("attitude", faults, errors, 10 * errors[0]))
    assert not check.holds and check.evidence.startswith(f"{words[one]}: the two then agree")
