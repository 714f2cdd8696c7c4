"""p(e): what is believed about the unknowns e. The law that all kinds share is in abstract.py."""

from typing import Any

from surefoot.belief.abstract import Belief
from surefoot.belief.beta import Beta
from surefoot.belief.box import Box, Ranged, point
from surefoot.belief.gaussian import Gaussian
from surefoot.belief.particles import Particles
from surefoot.belief.truncated import Truncated

KINDS: dict[str, Any] = {"box": Box, "beta": Beta, "gaussian": Gaussian, "truncated": Truncated, "particles": Particles}

__all__ = ["KINDS", "Belief", "Beta", "Box", "Gaussian", "Particles", "Ranged", "Truncated", "point"]
