"""Cause: one way in which a deployment may be wrong, with its evidence. Branch: one question of the doctor, with its answer.

`evidence` is in nats: the log-likelihood of the log under this cause minus that under "nothing is wrong", less half the
logarithm of the number of rows for each fitted number (BIC). Causes of all branches meet on this scale:

    P(cause | log) ~ prior exp(evidence),    healthy: evidence 0
"""

from dataclasses import asdict, dataclass
from math import isnan
from typing import Any


@dataclass(frozen=True)
class Cause:
    kind: str
    about: str
    """what is wrong, with its numbers"""
    evidence: float
    share: float
    """of the mismatch that it explains, 0 to 1; nan where rows were counted and nothing is predicted"""
    detail: str
    """the evidence as a sentence"""
    branch: str
    """contract, timing, numbers, sensors or physics"""
    value: float | None = None
    """its one number, where it has one: seconds of latency, share of late commands"""

    @property
    def explains(self) -> str:
        """The share as text."""
        return "-" if isnan(self.share) else f"{self.share:.0%}"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


NOT_CHECKED = "not checked"


@dataclass(frozen=True)
class Branch:
    """One question of the decision tree with its answer."""

    name: str
    question: str
    answer: str
    """yes, no, doubtful or not checked: the log cannot answer it"""
    evidence: str
