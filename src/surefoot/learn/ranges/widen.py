"""The simplest schedule: when more than 80 % of the last episodes succeeded, widen every range at once.

It grows as slowly as its hardest parameter allows, and stops for all of them where one of them is too hard.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from surefoot.belief import Belief, Box
from surefoot.learn.ranges import Ranges, spread
from surefoot.learn.settings import within


@dataclass(frozen=True)
class Widen:
    """Settings of the simple schedule."""

    above: float = 0.8
    """success at which the ranges widen"""
    episodes: int = 100
    """episodes that decide"""
    step: float = 0.1
    """how much wider, of the target's width"""

    def __post_init__(self) -> None:
        within(self, "widen.", above=(0, 1), episodes=(1, 1e9), step=(1e-3, 1))

    def start(self, target: Belief, episode: int, training: int) -> "Widening":
        return Widening(self, target, episode)


class Widening(Ranges):
    def __init__(self, settings: Widen, target: Belief, episode: int):
        super().__init__(target, episode)
        self.settings, self.size, self.since, self.seen = settings, 0.0, -1, np.zeros(0)
        self._set()

    def _edges(self) -> tuple[np.ndarray, np.ndarray]:
        return self.centre * (1 - self.size), self.centre + (1 - self.centre) * self.size

    def _set(self) -> None:
        self.belief: Belief = Box(self.target.params, *self.between(*self._edges()))

    def judge(self, e: np.ndarray, success: np.ndarray, began: np.ndarray, now: int) -> None:
        s = self.settings
        self.seen = np.concatenate([self.seen, success[began > self.since]])
        if len(self.seen) >= s.episodes:
            if self.seen.mean() > s.above and self.size < 1:
                self.size, self.since = min(1.0, self.size + s.step), now
                self._set()
            self.seen = np.zeros(0)

    def facts(self) -> dict[str, float]:
        low, high = self._edges()
        return spread(low[self.free], high[self.free])

    def state(self) -> dict[str, np.ndarray]:
        return {"size": np.array(self.size), "since": np.array(self.since), "seen": self.seen.copy()}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        self.size, self.since, self.seen = float(state["size"]), int(state["since"]), state["seen"].copy()
        self._set()
