"""Where in a reference motion training begins: more often in the parts in which a fall begins.

    f_b <- (1 - a)^T f_b + (1 - (1 - a)^T) blame of part b / T            after each rollout of T control periods
    n_b <- (1 - a)^T n_b + (1 - (1 - a)^T) control periods in part b / T  of the episodes that ended
    h_b  = (f_b + k h) / (n_b + k)      h = sum f / sum n, k = PRIOR sum n      falls a control period: the hazard
    p_b  = (1 - u) h_b / sum h_b + u / parts                              uniform before the first failure

BeyondMimic has p_b = f_b, with a failure in the part where it happens. But a robot that loses its balance falls a second later: its failure
is blamed on the parts of its last BLAMED seconds, and it counts relative to how long episodes are in them. Otherwise parts in which many
begin have many failures, so that more begin there, and in a short motion all begin in its last second, which ends before they fall.

A share u of the episodes begins anywhere, so that no part is forgotten.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from surefoot.env import Episodes
from surefoot.task import Clip

RATE, UNIFORM = 0.001, 0.1  # a, a control period; u
BLAMED = 1.0  # s before a failure
PRIOR = 0.01


class Starts:
    """Failures in each part of a clip, and the chances of beginning there."""

    def __init__(self, clip: Clip, period: float):
        """`period` of the control, s."""
        self.clip, self.period = clip, period
        self.failed, self.spent = np.zeros(clip.parts), np.zeros(clip.parts)

    @property
    def chances(self) -> np.ndarray:
        """(parts,) probabilities."""
        parts, falls, periods = self.clip.parts, self.failed.sum(), self.spent.sum()
        if falls <= 0:
            return np.full(parts, 1 / parts)
        h = (self.failed + PRIOR * falls) / (self.spent + PRIOR * periods)
        return (1 - UNIFORM) * h / h.sum() + UNIFORM / parts

    def tell(self, episodes: Sequence[Episodes], periods: int) -> None:
        """Episodes that ended in a rollout of so many control periods."""
        failed, spent, keep = np.zeros(self.clip.parts), np.zeros(self.clip.parts), (1 - RATE) ** periods
        for e in episodes:
            began = np.minimum(e.phase - e.lengths * self.period, e.phase - self.period)
            inside = self._inside(began, e.phase)
            spent += inside.sum(0) / self.period
            fell = np.array([why != "time" for why in e.reason], bool)
            last = self._inside(np.maximum(began, e.phase - BLAMED), e.phase)[fell]
            failed += (last / np.maximum(last.sum(1, keepdims=True), 1e-9)).sum(0)
        self.failed = keep * self.failed + (1 - keep) * failed / periods
        self.spent = keep * self.spent + (1 - keep) * spent / periods

    def _inside(self, first: np.ndarray, last: np.ndarray) -> np.ndarray:
        """(n, parts) s that the times from first to last (n,) have in common with each part; what is beyond an end is in the part there."""
        edges = np.linspace(0.0, self.clip.seconds, self.clip.parts + 1)
        edges[0], edges[-1] = -np.inf, np.inf
        return np.maximum(0.0, np.minimum(last[:, None], edges[1:]) - np.maximum(first[:, None], edges[:-1]))

    def facts(self) -> dict[str, float]:
        """`starts_entropy`: of the chances, as a share of a uniform start's; `starts_hardest`: s, the most likely part."""
        p = self.chances
        entropy = -(p * np.log(p)).sum() / np.log(len(p)) if len(p) > 1 else 1.0
        return {"starts_entropy": float(entropy), "starts_hardest": float(p.argmax() * self.clip.seconds / len(p))}

    def save(self) -> dict[str, np.ndarray]:
        return {"failed": self.failed.copy(), "spent": self.spent.copy()}

    def load(self, saved: Mapping[str, np.ndarray]) -> None:
        self.failed = saved["failed"].copy()
        self.spent = saved["spent"].copy() if "spent" in saved else np.ones_like(self.failed)
