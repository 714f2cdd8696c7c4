"""Settings of the on-policy learners beside PPO: what a command line parses. Nothing here needs torch."""

from dataclasses import dataclass, fields
from typing import ClassVar

from surefoot.errors import SurefootError
from surefoot.learn.settings import GaussianSettings

MOST_BLOCKS = 64


@dataclass(frozen=True)
class SAPGSettings(GaussianSettings):
    """Settings of SAPG: followers that explore, and a leader that learns from their steps, too."""

    learner: ClassVar[str] = "sapg"
    shares: ClassVar[tuple[str, ...]] = tuple(f.name for f in fields(GaussianSettings) if f.name != "entropy")

    blocks: int = 6
    """equal parts of the simulations: all but one belong to followers, the last to the leader"""
    entropy: float = 0.01
    """weight of the entropy bonus of the first follower; it falls evenly to 0, the leader's"""
    lent: int = 1
    """followers whose steps of a batch the leader learns from, too, drawn for each; 0: none, and nothing is shared but the net"""
    embed: int = 16
    """numbers, learned for each block, that tell the net whose policy it is"""

    def __post_init__(self) -> None:
        self.check_gaussian("sapg.")
        self.check(("embed",), (), "sapg.")
        if not 2 <= self.blocks <= MOST_BLOCKS:
            raise SurefootError(f"sapg.blocks: expected 2 to {MOST_BLOCKS}, found {self.blocks}")
        if not 0 <= self.lent < self.blocks:
            raise SurefootError(f"sapg.lent: expected 0 to {self.blocks - 1}, the followers, found {self.lent}")
