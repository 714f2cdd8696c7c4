"""How p(e) grows while a policy learns: from certainty at the nominal towards a target, as fast as the policy follows.

A Ranges has the belief that new episodes draw from, and moves it by how episodes end. An episode is judged
once its time limit has passed since it began, however early it ended: otherwise failures, which are short, would be
heard of first, and every new belief would look worse than it is. Where in a reference motion they begin: starts.py.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from surefoot.belief import Belief, Box
from surefoot.env import Episodes
from surefoot.errors import SurefootError

if TYPE_CHECKING:
    from surefoot.learn.collect import Envs  # which has where episodes begin, of this room

REACHED = "reached.json"  # in a run's folder: the belief its ranges have grown to


class Ranges(ABC):
    """What every way of growing shares: the target, the belief now, and the episodes that wait to be judged."""

    belief: Belief
    """p(e) that new episodes draw from"""

    def __init__(self, target: Belief, episode: int):
        if not isinstance(target, Box) or not (target.low < target.high).any():
            found = "no width" if isinstance(target, Box) else f"a {type(target).__name__}"
            raise SurefootError(
                f"--ranges: the belief to grow towards (--belief): expected a box with some width, found {found}"
            )
        self.target, self.episode = target, episode  # control periods of a whole episode
        self.free = target.low < target.high
        self.centre = np.clip(target.share(target.params.nominal), 0.0, 1.0)  # where growing begins, in the target's z
        d = len(target.params)
        self.waiting_e, self.waiting = np.zeros((0, d)), np.zeros((0, 2), np.int64)  # rows: (began, success)

    def tell(self, e: np.ndarray, success: np.ndarray, began: np.ndarray, now: int) -> None:
        """Episodes that ended by step `now`: their e (k, d), whether they succeeded, and the steps they began at.

        One that began at `now` itself was drawn before this call could move the belief.
        """
        self.waiting_e = np.concatenate([self.waiting_e, e])
        self.waiting = np.concatenate([self.waiting, np.stack([began, success], 1).astype(np.int64)])
        due = self.waiting[:, 0] + self.episode <= now
        if due.any():
            e, (began, success) = self.waiting_e[due], self.waiting[due].T
            self.waiting_e, self.waiting = self.waiting_e[~due], self.waiting[~due]
            self.judge(e, success.astype(float), began, now)

    @abstractmethod
    def judge(self, e: np.ndarray, success: np.ndarray, began: np.ndarray, now: int) -> None:
        """Learn from episodes whose time has come, and move the belief."""

    @abstractmethod
    def facts(self) -> dict[str, float]:
        """What to log: `ranges_entropy`, mean nats a parameter below the target's (0: as wide), and `width`, 0 to 1: that of a
        uniform range with as many nats, in the mean over parameters."""

    @abstractmethod
    def state(self) -> dict[str, np.ndarray]:
        """The arrays that are this method's own."""

    @abstractmethod
    def restore(self, state: Mapping[str, np.ndarray]) -> None: ...

    def save(self) -> dict[str, np.ndarray]:
        return self.state() | {"waiting_e": self.waiting_e.copy(), "waiting": self.waiting.copy()}

    def load(self, saved: Mapping[str, np.ndarray]) -> None:
        self.waiting_e, self.waiting = saved["waiting_e"].copy(), saved["waiting"].copy()
        self.restore(saved)

    def between(self, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """e of two edges given in the target's z; a fixed parameter stays fixed."""
        t = self.target
        return tuple(np.where(self.free, t.at(z), t.low) for z in (low, high))  # type: ignore[return-value]


def begun(ranges: Ranges | None, env: "Envs") -> None:
    """Let an env's belief be the one that ranges begin with."""
    if ranges is not None and env.task.trial > 1:
        raise SurefootError("ranges: they are judged episode by episode; expected 1 episode a world (--obs.trial 1)")
    if ranges is not None:
        env.belief = ranges.belief


def grown(ranges: Ranges | None, env: "Envs", episodes: Sequence[Episodes]) -> dict[str, float]:
    """Let an env's belief follow what the policy can do; returns what to log."""
    if ranges is None:
        return {}
    if episodes:
        e, success, began = (np.concatenate([getattr(x, k) for x in episodes]) for k in ("e", "success", "began"))
        ranges.tell(e, success, began, env.counter)
        env.belief = ranges.belief
    return ranges.facts()


def spread(low: np.ndarray, high: np.ndarray) -> dict[str, float]:
    """Entropy and width of a box with these edges, against one of width 1."""
    width = high - low
    return {"ranges_entropy": float(np.log(np.maximum(width, 1e-3)).mean()), "width": float(width.mean())}
