"""What the training loop knows of a learner, whatever it learns and by which algorithm.

    s_{k+1}, metrics = iterate(s_k)        k = 0 .. iterations - 1;   load(save(s)) = s, bit for bit

All randomness comes from streams keyed by (seed, purpose, k), so a learner that loads what another saved goes on as that one
would have.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import nn

from surefoot.belief import Belief
from surefoot.contract import Contract
from surefoot.learn.collect import Envs, Rollout
from surefoot.learn.nets.policy_net import PolicyNet

Saved = tuple[dict[str, np.ndarray], dict[str, Any]]
"""arrays and numbers of a checkpoint; `iteration` is among the numbers"""


class Learner(ABC):
    """The state of learning."""

    seed: int
    iteration: int = 0
    """how many are done"""
    iterations: int
    batch: int
    """env steps of an iteration"""
    env: Envs | None = None
    """where it collects; None where it learns without one"""

    @abstractmethod
    def iterate(self) -> dict[str, Any]:
        """One iteration; returns what to log."""

    @abstractmethod
    def save(self) -> Saved:
        """Arrays and numbers from which load() goes on with the same bits."""

    @abstractmethod
    def load(self, arrays: Mapping[str, np.ndarray], numbers: Mapping[str, Any]) -> None: ...


class Auxiliary(ABC):
    """What is done with each rollout beside the algorithm that collected it: a model learns from it, or its reward is added to."""

    groups: Sequence[str]
    """of observations that a rollout must keep for it"""

    def meet(self, learner: "PolicyLearner", actor: nn.Module, see: nn.Module) -> None:
        """Called once, with the learner, its actor and its normaliser."""
        return

    def waits(self, iteration: int, iterations: int) -> bool:
        """Whether the learner's own algorithm leaves the actor alone now."""
        return False

    @abstractmethod
    def take(self, r: Rollout, iteration: int, iterations: int) -> dict[str, float]:
        """Learn from a rollout, or change its reward in place; returns what to log."""

    @abstractmethod
    def products(self) -> Mapping[str, bytes]:
        """Files that go with the policy, by name."""

    @abstractmethod
    def save(self) -> dict[str, np.ndarray]: ...

    @abstractmethod
    def load(self, arrays: Mapping[str, np.ndarray]) -> None: ...


class PolicyLearner(Learner):
    """A learner of policies."""

    env: Envs

    @abstractmethod
    def policy(self, contract: Contract) -> PolicyNet:
        """What has been learned so far; learning goes on without moving it."""

    @property
    def reached(self) -> Belief | None:
        """The belief that ranges have grown to; None where they do not grow."""
        return None

    def products(self) -> Mapping[str, bytes]:
        """Further files of a run, by name, that were learned beside the policy."""
        return {}
