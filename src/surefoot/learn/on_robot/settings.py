"""Settings of learning with a robot. Nothing here needs torch or the engine to be imported."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from surefoot.errors import SurefootError

if TYPE_CHECKING:  # the engine takes a while to import
    from surefoot.sim.realities import Reality


@dataclass(frozen=True)
class OnRobot:
    """A share of each batch that comes from a robot: here a simulated machine with numbers and physics of its own."""

    share: float
    """rho: of the rows of a batch"""
    seed: int
    """of the machine"""
    strengths: Mapping[str, float] = field(default_factory=dict)
    """of what its model lacks, by ingredient"""
    e: Mapping[str, float] = field(default_factory=dict)
    """its own numbers for the task's unknowns"""

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise SurefootError(f"robot.share: expected a share above 0 and up to 1, found {self.share}")

    @staticmethod
    def of(reality: "Reality", share: float) -> "OnRobot":
        return OnRobot(share, reality.seed, dict(reality.strengths), dict(reality.e))

    @property
    def reality(self) -> "Reality":
        from surefoot.sim.realities import Reality

        return Reality(self.seed, self.strengths, self.e)

    def rows(self, envs: int) -> int:
        """How many of so many rows are the robot's: at least one, and all only where the share is 1."""
        return envs if self.share == 1 else min(max(1, round(self.share * envs)), envs - 1)

    def seconds(self, steps: int, envs: int, dt: float) -> float:
        """That a robot is driven in a run of so many steps: its rows one after the other."""
        return self.rows(envs) * (steps / envs) * dt
