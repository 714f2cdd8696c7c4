"""Cause: one way in which a deployment may be wrong, with its evidence.

`evidence` is in nats: how much better the log is predicted with it than without anything wrong, less what its fitted
numbers cost (half the logarithm of the number of rows for each, as BIC has it). Causes of all branches meet on this scale:

    P(cause | log) ~ prior exp(evidence),    healthy: evidence 0
"""

from dataclasses import asdict, dataclass
from math import isnan
from typing import Any


@dataclass(frozen=True)
class Cause:
    kind: str
    about: str
    """in words, with its numbers"""
    evidence: float
    share: float
    """of the mismatch that it explains, 0 to 1; nan where it was counted and predicts none"""
    told: str
    """the evidence, in words"""
    branch: str
    """contract, timing, numbers or physics"""

    @property
    def explains(self) -> str:
        """The share in words."""
        return "-" if isnan(self.share) else f"{self.share:.0%}"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
