"""What the training loop knows of a learner, whatever it learns and by which algorithm.

    s_{k+1}, metrics = iterate(s_k)        k = 0 .. iterations - 1;   load(save(s)) = s, bit for bit

All randomness comes from streams keyed by (seed, purpose, k), so a learner that loads what another saved goes on as that one
would have.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from surefoot.belief import Belief
from surefoot.contract import Contract
from surefoot.errors import LearningFailed, SurefootError
from surefoot.learn.collect import Collector, Envs, Rollout
from surefoot.learn.nets import adam_state, restore_adam
from surefoot.learn.nets.policy_net import PolicyNet
from surefoot.learn.ranges import Ranges
from surefoot.task import Task

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


class NetLearner(PolicyLearner):
    """A learner whose state is nets and optimisers, where its envs stand, and its ranges. An update that is not finite is undone."""

    modules: nn.ModuleDict
    """all nets and normalisers, by name"""
    collector: Collector | None = None
    """None: it steps no env"""
    ranges: Ranges | None = None
    rejected: int = 0
    """updates in a row that were undone"""
    flag: str = ""
    """what the flags of its settings begin with"""

    @property
    @abstractmethod
    def optimisers(self) -> Sequence[torch.optim.Optimizer]: ...

    @abstractmethod
    def halve(self) -> float:
        """Halves the step size; returns it."""

    @property
    def reached(self) -> Belief | None:
        return None if self.ranges is None else self.ranges.belief

    def state_dict(self) -> dict[str, Tensor]:
        """Nets, normalisers and optimisers by name."""
        named = dict(self.modules.named_parameters())
        state = {f"net.{k}": v for k, v in self.modules.state_dict().items()}
        for optimiser in self.optimisers:
            state |= adam_state(optimiser, named)
        return state

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        self.modules.load_state_dict({k.removeprefix("net."): v for k, v in state.items() if k.startswith("net.")})
        named = dict(self.modules.named_parameters())
        for optimiser in self.optimisers:
            own = {id(p) for p in _learned(optimiser)}
            restore_adam(optimiser, {k: p for k, p in named.items() if id(p) in own}, state)

    def memory(self) -> dict[str, Tensor]:
        """The state now, for `kept`."""
        return {k: v.clone() for k, v in self.state_dict().items()}

    def kept(self, before: Mapping[str, Tensor], found: Tensor) -> bool:
        """Whether an update stays: what it found and all that it changed are finite. Else the state is as it was `before` and
        the step size is halved; three in a row stop the run."""
        learned = (p for optimiser in self.optimisers for p in _learned(optimiser))
        if all(bool(x.isfinite().all()) for x in (found, *learned)):
            self.rejected = 0
            return True
        self.load_state_dict(before)
        self.rejected += 1
        lr = self.halve()
        if self.rejected >= 3:
            raise LearningFailed(
                f"learning broke down: three updates in a row were not finite (lr {lr:.2g}); lower --{self.flag}lr"
            )
        return False

    def save(self) -> Saved:
        arrays = {k: v.detach().cpu().numpy().copy() for k, v in self.state_dict().items()}
        if self.collector is not None:
            arrays |= self.collector.save()
        if self.ranges is not None:
            arrays |= {f"ranges.{k}": v for k, v in self.ranges.save().items()}
        return arrays, {"iteration": self.iteration, "rejected": self.rejected}

    def load(self, arrays: Mapping[str, np.ndarray], numbers: Mapping[str, Any]) -> None:
        self.load_state_dict(
            {k: torch.from_numpy(v.copy()) for k, v in arrays.items() if k.startswith(("net.", "adam."))}
        )
        if self.collector is not None:
            self.collector.load(arrays)
        if self.ranges is not None:
            self.ranges.load(under("ranges.", arrays))
            self.env.belief = self.ranges.belief
        self.iteration, self.rejected = int(numbers["iteration"]), int(numbers["rejected"])


def _learned(optimiser: torch.optim.Optimizer) -> list[Tensor]:
    return [p for group in optimiser.param_groups for p in group["params"]]


def under(head: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Those whose name begins so, without it."""
    return {k.removeprefix(head): v for k, v in arrays.items() if k.startswith(head)}


def check_continuous(task: Task, learner: str) -> None:
    if task.action.choices:
        words = "chooses among few actions; expected continuous ones: --learner ppo"
        raise SurefootError(f"learner: {learner}: {task.name} {words}")
