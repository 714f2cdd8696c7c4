"""Policy: observation -> action, with an explicit state, and the contract that says what every number means.

    s = policy.init(n)          s, action = policy.step(s, obs)          obs (n, obs_dim) float32, action (n, na)

A policy without memory has an empty state: its past is in the observation's history. One that plans several actions at a time
keeps what is left of its plan. Nets are torch modules (learn/nets) that are deployed as ONNX (deploy/bundle.py); here are the
protocol and the laws that need no net.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from surefoot.contract import Contract
from surefoot.rng import stream

PolicyState = Mapping[str, np.ndarray]
"""name -> (n, ...): a row for each of n robots; empty where there is no memory"""


class Policy(ABC):
    """Something that acts. It is frozen: what it remembers is in the state that its caller keeps."""

    contract: Contract

    def init(self, n: int) -> PolicyState:
        """The state in which n episodes begin."""
        return {}

    @abstractmethod
    def step(self, s: PolicyState, obs: np.ndarray) -> tuple[PolicyState, np.ndarray]:
        """The next state, and (n, na) actions; for choices, (n, 1) the index chosen."""

    def __call__(self, obs: np.ndarray) -> np.ndarray:
        """The first action of episodes that begin with these observations: all there is of a policy without memory."""
        return self.step(self.init(len(obs)), obs)[1]


def no_plan(n: int, execute: int, actions: int) -> PolicyState:
    """The state of n episodes that begin, of a policy that executes so many actions of each plan; empty where it is one."""
    if execute == 1:
        return {}
    return {"plan": np.zeros((n, execute, actions), np.float32), "left": np.zeros((n, 1), np.int64)}


def follow(
    s: PolicyState, obs: np.ndarray, planned: Callable[[np.ndarray], np.ndarray]
) -> tuple[PolicyState, np.ndarray]:
    """The next action of each plan; where none is left, a new one is made first: observations (k, .) -> (k, execute * na)."""
    plan, left = s["plan"].copy(), s["left"][:, 0].copy()
    execute, due = plan.shape[1], np.flatnonzero(left == 0)
    if len(due):
        plan[due] = planned(np.asarray(obs, np.float32)[due]).reshape(len(due), *plan.shape[1:])
        left[due] = execute
    action = plan[np.arange(len(plan)), execute - left]
    return {"plan": plan, "left": (left - 1)[:, None]}, action


class Driver:
    """A policy at work on n robots: keeps its state from one control period to the next."""

    def __init__(self, policy: Policy, n: int):
        self.policy, self.state = policy, policy.init(n)

    def __call__(self, obs: np.ndarray) -> np.ndarray:
        self.state, action = self.policy.step(self.state, obs)
        return action

    def begin(self, rows: np.ndarray) -> None:
        """Rows (a mask, or numbers) begin another episode."""
        if self.state:
            first = self.policy.init(1)
            self.state = {k: v.copy() for k, v in self.state.items()}
            for k, v in self.state.items():
                v[rows] = first[k]


def along(policy: Policy, obs: np.ndarray) -> np.ndarray:
    """(T, na) actions of one episode whose observations (T, .) are given."""
    drive = Driver(policy, 1)
    return np.concatenate([drive(row[None]) for row in obs])


@dataclass(frozen=True)
class Zero(Policy):
    """Always the middle of the action range: what the robot does when nobody drives it."""

    contract: Contract

    def step(self, s: PolicyState, obs: np.ndarray) -> tuple[PolicyState, np.ndarray]:
        return s, np.zeros((len(obs), self.contract.action.width), np.float32)


@dataclass(frozen=True)
class Random(Policy):
    """Uniform over the action range. Its draws are keyed by (seed, how often it was asked)."""

    contract: Contract
    seed: int = 0

    def init(self, n: int) -> PolicyState:
        return {"asked": np.zeros((n, 1), np.int64)}

    def step(self, s: PolicyState, obs: np.ndarray) -> tuple[PolicyState, np.ndarray]:
        asked, action = s["asked"], self.contract.action
        rng = stream(self.seed, "random policy", int(asked.max(initial=0)))
        if action.choices:
            out = rng.integers(0, action.choices, (len(obs), 1)).astype(np.float32)
        else:
            high = min(action.limit, 1.0)
            out = rng.uniform(-high, high, (len(obs), len(action.names))).astype(np.float32)
        return {"asked": asked + 1}, out
