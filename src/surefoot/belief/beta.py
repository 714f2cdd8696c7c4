"""Beta: z ~ Beta(a, b) on each dimension, from low (z = 0) to high (z = 1) on the scale y(e)."""

from dataclasses import dataclass
from typing import final

import numpy as np

from surefoot.belief.box import Ranged
from surefoot.belief.checks import check_range, freeze, require
from surefoot.rng import Draw


@final
@dataclass(frozen=True, eq=False)
class Beta(Ranged):
    """A product of Beta(a, b) on low..high, in log e on log dimensions."""

    a: np.ndarray
    b: np.ndarray
    low: np.ndarray
    high: np.ndarray

    def __post_init__(self) -> None:
        for name in ("a", "b"):
            freeze(self, name, (len(self.params),))
            require(self, name, getattr(self, name) > 0, "more than 0")
        check_range(self)

    def _shape(self) -> tuple[np.ndarray, np.ndarray]:
        return self.a, self.b

    def _draw(self, rng: Draw, n: int) -> np.ndarray:
        return rng.beta(self.a, self.b, (n, len(self.params)))

    def estimate(self) -> np.ndarray:
        """At the mean of z."""
        return self.at(self.a / (self.a + self.b))

    def widen(self, factor: float) -> "Beta":
        return Beta(self.params, self.a, self.b, *self._widened(factor))
