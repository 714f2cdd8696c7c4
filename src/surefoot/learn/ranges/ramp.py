"""The schedule that asks for no evidence: ranges grow with the steps of training, whatever comes of its episodes.

    width = 0 until `begin`, 1 from `end` on, linear between (shares of the training's steps)

For tasks where success comes late, as when two legs have to learn to stand, to step and to follow a command before an
episode succeeds: a schedule that waits for success would never begin. It cannot stop where a range is too hard.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from surefoot.belief import Belief, Box
from surefoot.errors import SurefootError
from surefoot.learn.ranges import Ranges, spread
from surefoot.learn.settings import within


@dataclass(frozen=True)
class Ramp:
    """Settings of the ramp."""

    begin: float = 0.15
    """share of the training's steps after which the ranges begin to grow"""
    end: float = 0.5
    """share after which they are whole"""

    def __post_init__(self) -> None:
        within(self, "ramp.", begin=(0, 1), end=(0, 1))
        if self.end <= self.begin:
            raise SurefootError(f"ramp.end: expected more than ramp.begin {self.begin:g}, found {self.end:g}")

    def start(self, target: Belief, episode: int, training: int) -> "Ramping":
        return Ramping(self, target, episode, training)


class Ramping(Ranges):
    def __init__(self, settings: Ramp, target: Belief, episode: int, training: int):
        super().__init__(target, episode)
        self.settings, self.training = settings, training
        self._grow(0.0)

    def _grow(self, size: float) -> None:
        self.size = size
        self.edges = self.centre * (1 - size), self.centre + (1 - self.centre) * size
        self.belief: Belief = Box(self.target.params, *self.between(*self.edges))

    def tell(self, e: np.ndarray, success: np.ndarray, began: np.ndarray, now: int) -> None:
        s = self.settings
        self._grow(float(np.clip((now / self.training - s.begin) / (s.end - s.begin), 0.0, 1.0)))

    def judge(self, e: np.ndarray, success: np.ndarray, began: np.ndarray, now: int) -> None:
        """Episodes decide nothing."""

    def facts(self) -> dict[str, float]:
        low, high = self.edges
        return spread(low[self.free], high[self.free])

    def state(self) -> dict[str, np.ndarray]:
        return {"size": np.array(self.size)}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        self._grow(float(state["size"]))
