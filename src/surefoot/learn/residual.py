"""Residual policy learning: keep the controller you have, and learn what it lacks.

    a = base(o) + c f(o),   f = 0 at the start

The base is any policy: another run, or a law written by hand. Learning begins at what it can do. The last layer of f is
zero, so f says nothing at first; and for the first iterations only the critic learns, because an actor that follows a
critic which knows nothing yet unlearns the base. c sets how far exploring strays from the base, and how fast f grows;
it does not bound f. It is worked into f's last layer where the policy is written, and nothing else knows of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from surefoot.errors import SurefootError
from surefoot.policy import Beneath, Contract, Policy


@dataclass(frozen=True)
class Residual:
    """Settings of learning upon a base."""

    scale: float = 0.3
    """c: by how much of the action's unit an output of 1 of the net moves what the base does"""
    burn_in: float = 0.05
    """share of the iterations, at the start, in which only the critic learns"""

    def __post_init__(self) -> None:
        if not 0 < self.scale < float("inf"):
            raise SurefootError(f"residual.scale: expected a finite number > 0, found {self.scale}")
        if not 0 <= self.burn_in < 1:
            raise SurefootError(f"residual.burn_in: expected a share in [0, 1), found {self.burn_in}")

    def upon(self, base: Policy, contract: Contract) -> "Upon":
        """A base under a policy of this contract; refused where they do not fit."""
        return Upon(self, Beneath(contract, base))


@dataclass(frozen=True)
class Upon:
    """What a learner must know of the base it stands on."""

    settings: Residual
    beneath: Beneath

    def __call__(self, obs: np.ndarray, f: np.ndarray) -> np.ndarray:
        """What drives the robot."""
        return self.beneath(obs) + np.float32(self.settings.scale) * f

    def waits(self, iteration: int, iterations: int) -> bool:
        """Whether the actor still leaves learning to the critic."""
        return iteration < self.settings.burn_in * iterations

    def folded(self, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """A Net's arrays with the scale in the last layer."""
        last = sum(k.startswith("w") for k in arrays) - 1
        scaled = {k: arrays[k] * np.float32(self.settings.scale) for k in (f"w{last}", f"b{last}")}
        return dict(arrays) | scaled
