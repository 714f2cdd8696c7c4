"""Where in a reference motion training begins: more often in the parts where episodes fail (BeyondMimic).

    f_b <- (1 - a)^T f_b + (1 - (1 - a)^T) failures in part b / T        after each rollout of T control periods
    p_b  = (1 - u) f_b / sum f + u / parts                               uniform before the first failure

A share u of the episodes begins anywhere, so that no part is forgotten. Failures are counted in the part where they happen.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from surefoot.env import Episodes
from surefoot.task import Clip

RATE, UNIFORM = 0.001, 0.1  # a, a control period; u


class Starts:
    """Failures in each part of a clip, and the chances of beginning there."""

    def __init__(self, clip: Clip):
        self.clip, self.failed = clip, np.zeros(clip.parts)

    @property
    def chances(self) -> np.ndarray:
        """(parts,) probabilities."""
        parts, total = self.clip.parts, self.failed.sum()
        if total <= 0:
            return np.full(parts, 1 / parts)
        return (1 - UNIFORM) * self.failed / total + UNIFORM / parts

    def tell(self, episodes: Sequence[Episodes], periods: int) -> None:
        """Episodes that ended in a rollout of so many control periods."""
        count, keep = np.zeros(self.clip.parts), (1 - RATE) ** periods
        for e in episodes:
            fell = e.phase[np.array([why != "time" for why in e.reason], bool)]
            part = np.clip(fell / self.clip.seconds * self.clip.parts, 0, self.clip.parts - 1).astype(int)
            count += np.bincount(part, minlength=self.clip.parts)
        self.failed = keep * self.failed + (1 - keep) * count / periods

    def facts(self) -> dict[str, float]:
        """`starts_entropy`: of the chances, as a share of a uniform start's; `starts_hardest`: s, the most likely part."""
        p = self.chances
        entropy = -(p * np.log(p)).sum() / np.log(len(p)) if len(p) > 1 else 1.0
        return {"starts_entropy": float(entropy), "starts_hardest": float(p.argmax() * self.clip.seconds / len(p))}

    def save(self) -> dict[str, np.ndarray]:
        return {"failed": self.failed.copy()}

    def load(self, saved: Mapping[str, np.ndarray]) -> None:
        self.failed = saved["failed"].copy()
