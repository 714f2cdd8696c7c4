"""Residual policy learning: keep the controller you have, and learn what it lacks.

    a = base(o) + c f(o),   f = 0 at the start

The base is any policy: another run, or a law written by hand. Learning begins at what it can do. The last layer of f is
zero, so f says nothing at first; and for the first iterations only the critic learns, because an actor that follows a
critic which knows nothing yet unlearns the base. c sets how far exploration strays from the base, and how fast f grows;
it does not bound f.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from surefoot.contract import Contract, base_columns
from surefoot.errors import SurefootError

if TYPE_CHECKING:  # its settings are parsed without torch, which takes seconds to import
    from surefoot.learn.nets.policy_net import PolicyNet


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


OF_THE_TASK = Residual(scale=1.0, burn_in=0.0)
"""upon the law of a task, which is no policy that could be unlearned"""
NO_BASE = Path("none")  # as a base: not even the task's own law


class BasePolicy:
    """A base under a policy: it gets its columns of that policy's observation; its action is clipped to the limit."""

    def __init__(self, contract: Contract, net: "PolicyNet"):
        self.net, self.limit, self.columns = net, contract.action.limit, base_columns(contract, net.contract)

    def __call__(self, obs: np.ndarray) -> np.ndarray:
        return np.clip(self.net(np.take(obs, self.columns, 1)), -self.limit, self.limit).astype(np.float32)


@dataclass(frozen=True)
class ResidualActor:
    """What a learner must know of the base it stands on."""

    settings: Residual
    base: BasePolicy

    def __call__(self, obs: np.ndarray, f: np.ndarray) -> np.ndarray:
        """What drives the robot."""
        return self.base(obs) + np.float32(self.settings.scale) * f

    def waits(self, iteration: int, iterations: int) -> bool:
        """Whether the actor still leaves learning to the critic."""
        return iteration < self.settings.burn_in * iterations
