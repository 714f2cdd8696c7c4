"""A switch to recovery, as in Agile But Safe: a value V says where the policy will fail, and a recovery takes over there.

    V(o) <= threshold:  the policy acts              V(o) in [-1, 1]; below 0: it reaches what it should without failing
    V(o) >  threshold:  y* = argmin_y  PENALTY (relu(V(o[y]) + MARGIN) + closing(y)) + sum_j ((y_j - y_asked_j) / width_j)^2

y are some columns of the observation that a controller can bring about: the twist of a base, or the command of a legged
robot. o[y] is the observation with these columns replaced, y_asked what the policy asks for now. The minimum is taken over a
grid, one call of the net. The action that brings y about is the policy's own in o[y] where y is its command, or drive y where
the base follows its controls: wheels, u = D^-1 (v, w).

V says what becomes of the policy that takes over at twist y, not of a robot that keeps it. Where the base has rays, a twist (v, w)
must therefore also stay clear of what they see: closing = max_i relu(v cos a_i - alpha (d_i - clearance)), in m/s.

How V is learned is in learn/off_policy/reach_avoid.py.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from surefoot.contract import Contract
from surefoot.control.observed import Observed, parted, prefixed
from surefoot.errors import SurefootError, unknown
from surefoot.onnx_file import Graph
from surefoot.policy import Policy, PolicyState

PENALTY, MARGIN = 10.0, 0.1  # of a twist that is not safe, and how safe it should be
MOST = 4096  # points of a grid
OWN = "reach_avoid."  # names of its own in a policy's state


@dataclass(frozen=True)
class Recovery:
    """What may be asked of the robot while the policy is not trusted."""

    columns: tuple[tuple[str, int], ...]
    """y: observation term, and which of its numbers"""
    low: tuple[float, ...]
    high: tuple[float, ...]
    """in the term's unit"""
    points: tuple[int, ...]
    """of the grid, along each"""
    by: Literal["command", "drive"] = "command"
    """command: the policy acts in o[y]; drive: the controls are drive y"""
    drive: tuple[tuple[float, ...], ...] = ()
    """(controls, len(y))"""
    ray: str = ""
    """observation term of distances that y[0], a forward speed in m/s, must keep clear of; empty: none"""
    angles: tuple[float, ...] = ()
    """rad, of each ray, 0 ahead"""
    clearance: float = 0.0
    """m from the rays' origin"""
    alpha: float = 3.0
    """1/s: how quickly it may approach"""

    def __post_init__(self) -> None:
        n = len(self.columns)
        if not n or any(len(getattr(self, k)) != n for k in ("low", "high", "points")):
            raise SurefootError(f"recovery: expected low, high and points for each of {n} columns")
        if any(a >= b for a, b in zip(self.low, self.high)) or min(self.points) < 1:
            raise SurefootError("recovery: expected low < high and at least 1 point along each column")
        if np.prod(self.points) > MOST:
            raise SurefootError(f"recovery: points: expected a grid of at most {MOST}, found {np.prod(self.points)}")
        if self.by == "drive" and np.shape(self.drive)[1:] != (n,):
            raise SurefootError(f"recovery: drive: expected a row of {n} numbers for each control")

    @cached_property
    def grid(self) -> np.ndarray:
        """(C, len(y))"""
        axes = [np.linspace(a, b, k) for a, b, k in zip(self.low, self.high, self.points)]
        return np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, len(axes))

    def closing(self, d: np.ndarray) -> np.ndarray:
        """(n, C) m/s by which each point of the grid is too fast for distances d (n, rays)."""
        ahead = np.maximum(np.cos(self.angles), 1e-3)
        most = (self.alpha * (d - self.clearance) / ahead).min(1)  # (n,) forward speed
        return np.maximum(self.grid[:, 0] - np.maximum(most, 0.0)[:, None], 0.0)

    def check(self, contract: Contract) -> None:
        if self.ray and len(Observed(contract).columns(self.ray)) != len(self.angles):
            raise SurefootError(
                f"recovery: angles: expected one for each number of {self.ray}, found {len(self.angles)}"
            )
        for term, k in self.columns:
            if not 0 <= k < len(Observed(contract).columns(term)):
                raise SurefootError(f"recovery: {term}: expected a column from 0, found {k}")
        if self.by == "drive" and len(self.drive) != len(contract.action.names):
            raise SurefootError(f"recovery: drive: expected {len(contract.action.names)} rows, found {len(self.drive)}")


@dataclass(frozen=True)
class ReachAvoid:
    """A value of a policy's observations, and what to do where it is too high."""

    value: Graph
    terms: tuple[str, ...]
    """of the observation, newest frame: what V reads"""
    recovery: Recovery
    threshold: float = -0.4

    def check(self, contract: Contract) -> None:
        known = {t.name: t.dim for t in contract.terms}
        for name in (*self.terms, *(term for term, _ in self.recovery.columns)):
            if name not in known:
                raise unknown("observation term", name, known, "reach-avoid")
        width = sum(known[name] for name in self.terms)
        if (self.value.width, self.value.wide) != (width, 1):
            raise SurefootError(f"reach-avoid: expected a net of {width} numbers to 1, found {self.value.width} to {self.value.wide}")  # fmt: skip
        self.recovery.check(contract)


@dataclass(frozen=True)
class Guarded(Policy):
    """A policy that wears the switch. Its state has V, and counts the periods of recovery."""

    contract: Contract
    policy: Policy
    switch: ReachAvoid

    def __post_init__(self) -> None:
        self.switch.check(self.contract)
        if self.contract.action.choices:
            raise SurefootError("reach-avoid: expected continuous actions, found choices")

    @cached_property
    def read(self) -> np.ndarray:
        """Columns of the observation that V reads."""
        observed = Observed(self.contract)
        return np.concatenate([observed.columns(name) for name in self.switch.terms])

    @cached_property
    def written(self) -> tuple[np.ndarray, np.ndarray]:
        """Columns of the observation that are y, and their scales."""
        observed, terms = Observed(self.contract), {t.name: t for t in self.contract.terms}
        scale = lambda name, k: np.broadcast_to(terms[name].scale, (terms[name].dim,))[k]  # noqa: E731
        some = self.switch.recovery.columns
        return np.array([observed.columns(n)[k] for n, k in some]), np.array([scale(n, k) for n, k in some], float)

    def distances(self, obs: np.ndarray) -> np.ndarray:
        """(n, rays) m."""
        name = self.switch.recovery.ray
        scale = next(t.scale for t in self.contract.terms if t.name == name)
        return obs[:, Observed(self.contract).columns(name)] / np.asarray(scale, float)

    def values(self, obs: np.ndarray) -> np.ndarray:
        """(n,) V."""
        return self.switch.value(obs[:, self.read])[:, 0].astype(float)

    def init(self, n: int) -> PolicyState:
        own = {"value": np.zeros((n, 1)), "recovering": np.zeros((n, 1), np.int64)}
        return {**self.policy.init(n), **prefixed(OWN, own)}

    def step(self, s: PolicyState, obs: np.ndarray) -> tuple[PolicyState, np.ndarray]:
        own, rest = parted(OWN, s)
        inner, action = self.policy.step(rest, obs)
        V = self.values(obs)
        rows = np.flatnonzero(~(V <= self.switch.threshold))  # also where it is not a number
        if len(rows):
            action = np.array(action)
            action[rows] = self._recover({k: v[rows] for k, v in rest.items()}, obs[rows], action[rows])
        count = own["recovering"].copy()
        count[rows] += 1
        return {**inner, **prefixed(OWN, {"value": V[:, None], "recovering": count})}, action

    def _recover(self, s: PolicyState, obs: np.ndarray, action: np.ndarray) -> np.ndarray:
        recovery, law = self.switch.recovery, self.contract.action
        columns, scale = self.written
        y = self.best(obs, self.asked(obs, action))
        if recovery.by == "command":
            changed = obs.copy()
            changed[:, columns] = y * scale
            return self.policy.step(s, changed)[1]
        return law.bounded((y @ np.array(recovery.drive).T - law.offset) / law.scale).astype(np.float32)

    def asked(self, obs: np.ndarray, action: np.ndarray) -> np.ndarray:
        """(n, len(y)) what the policy asks for: its command, or the twist of its controls."""
        columns, scale = self.written
        if self.switch.recovery.by == "command":
            return obs[:, columns] / scale
        control = self.contract.action.control(self.contract.action.bounded(action))
        return control @ np.linalg.pinv(np.array(self.switch.recovery.drive)).T

    def best(self, obs: np.ndarray, asked: np.ndarray) -> np.ndarray:
        """(n, len(y)) the best of the grid."""
        recovery, (columns, scale) = self.switch.recovery, self.written
        grid = recovery.grid
        many = np.repeat(obs, len(grid), 0)
        many[:, columns] = np.tile(grid * scale, (len(obs), 1))
        V = self.values(many).reshape(len(obs), len(grid))
        width = np.array(recovery.high) - np.array(recovery.low)
        away = (((grid - asked[:, None]) / width) ** 2).sum(2)
        cost = PENALTY * np.maximum(V + MARGIN, 0.0) + away
        if recovery.ray:
            cost = cost + PENALTY * recovery.closing(self.distances(obs))
        return grid[cost.argmin(1)]
