"""Limits of a base that follows a command, for robots whose controls do not move the base by any formula: legs.

    v+ = v + r (c - v),  r = 1 - exp(-dt / lag)          speeds v of the base towards the command c, m/s and rad/s
    safe: |v| <= v_max, tilt <= tilt_max                 b(v+) >= (1 - gamma) b(v)  of  b = v_max -+ v

    c* = argmin |c - c_asked|^2:   c* = clip(s c_asked, v - gamma (v_max + v) / r, v + gamma (v_max - v) / r)  within +-v_max
    s = clip((alpha (tilt_max - tilt) - tilt') / (alpha tilt_max / 2), 0, 1)

Each condition has one command in it, so the QP of barrier.py is a clip here, and always has a solution. The policy acts on c* in
place of the command that it was asked for. Where a speed is not observed, its command is kept within +-v_max and no more is known.
A leaning base is asked for less: nothing as soon as the tilt would pass its limit at the rate 1 / alpha. This is a request to the
policy: how well the base keeps its limits is how well the policy follows commands.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from surefoot.contract import Contract
from surefoot.control.observed import Observed, parted, prefixed
from surefoot.errors import SurefootError
from surefoot.policy import Policy, PolicyState

OWN = "command."  # names of its own in a policy's state
Place = tuple[str, int]
"""observation term, and which of its numbers"""


@dataclass(frozen=True)
class CommandLimits:
    """Of one robot. Where the command and the base's speeds are in the observation, and how large they may be."""

    command: tuple[Place, ...]
    top: tuple[float, ...]
    """v_max of each command, m/s or rad/s"""
    measured: tuple[Place | None, ...]
    """the speed that follows each command; None: it is not observed"""
    tilt: float = 0.0
    """rad, largest; 0: no limit"""
    gravity: str = "projected_gravity"
    """observation term of the direction of gravity, base frame"""
    gyro: str = "base_ang_vel"
    """observation term of the angular velocity, base frame"""
    lag: float = 0.3
    """s, time constant with which the base follows a command"""
    alpha: float = 4.0
    """1/s: how quickly the tilt may approach its limit"""
    gamma: float = 0.2
    """share of a barrier that one control period may use up"""

    def __post_init__(self) -> None:
        n = len(self.command)
        if not n or len(self.top) != n or len(self.measured) != n:
            raise SurefootError(f"command limits: top, measured: expected one for each of {n} commands")
        if (
            min(self.top) <= 0
            or self.lag < 0
            or not self.alpha > 0
            or not 0 < self.gamma <= 1
            or not 0 <= self.tilt < np.pi
        ):
            raise SurefootError(
                "command limits: expected top > 0, lag >= 0, alpha > 0, gamma above 0 and at most 1, tilt from 0 to below pi"
            )

    def check(self, contract: Contract) -> None:
        observed = Observed(contract)
        for term, k in (*self.command, *(m for m in self.measured if m is not None)):
            if not 0 <= k < len(observed.columns(term)):
                raise SurefootError(f"command limits: {term}: expected a number from 0, found {k}")
        for name in (self.gravity, self.gyro) if self.tilt else ():
            if len(observed.columns(name)) != 3:
                raise SurefootError(f"command limits: {name}: expected 3 numbers, found {len(observed.columns(name))}")

    def upright(self, down: np.ndarray, w: np.ndarray) -> np.ndarray:
        """(n,) s: what remains of a command, of gravity's direction (n, 3) and the angular velocity (n, 3), both base frame."""
        size = np.sqrt((down * down).sum(1))
        tilt = np.arccos(np.clip(-down[:, 2] / np.maximum(size, 1e-9), -1.0, 1.0))
        across = np.sqrt(down[:, 0] ** 2 + down[:, 1] ** 2)
        rate = (down[:, 0] * w[:, 1] - down[:, 1] * w[:, 0]) / np.maximum(across, 1e-6)  # of the tilt
        return np.clip((self.alpha * (self.tilt - tilt) - rate) / (0.5 * self.alpha * self.tilt), 0.0, 1.0)

    def within(self, asked: np.ndarray, v: np.ndarray, dt: float) -> np.ndarray:
        """(n, k) commands nearest to those asked for; v is nan where it is not known."""
        top, r = np.array(self.top), 1.0 if self.lag == 0 else 1 - np.exp(-dt / self.lag)
        known = np.isfinite(v)
        v = np.where(known, v, 0.0)
        low = np.where(known, v - self.gamma * (top + v) / r, -top)
        high = np.where(known, v + self.gamma * (top - v) / r, top)
        return np.clip(np.clip(asked, low, high), -top, top)


@dataclass(frozen=True)
class Governed(Policy):
    """A policy that is asked for what these limits allow. Its state counts periods in which that is another command."""

    contract: Contract
    policy: Policy
    limits: CommandLimits

    def __post_init__(self) -> None:
        self.limits.check(self.contract)

    @cached_property
    def _scales(self) -> np.ndarray:
        """(dim,) of the newest frame's columns; 1 elsewhere."""
        out, observed = np.ones(self.contract.obs_dim), Observed(self.contract)
        for t in self.contract.terms:
            out[observed.columns(t.name)] = t.scale
        return out

    @cached_property
    def _columns(self) -> np.ndarray:
        observed = Observed(self.contract)
        return np.array([observed.columns(term)[k] for term, k in self.limits.command])

    def _units(self, obs: np.ndarray, term: str) -> np.ndarray:
        columns = Observed(self.contract).columns(term)
        return np.asarray(obs[:, columns], float) / self._scales[columns]

    def init(self, n: int) -> PolicyState:
        return {**self.policy.init(n), **prefixed(OWN, {"changed": np.zeros((n, 1), np.int64)})}

    def step(self, s: PolicyState, obs: np.ndarray) -> tuple[PolicyState, np.ndarray]:
        own, rest = parted(OWN, s)
        asked = np.asarray(obs[:, self._columns], float) / self._scales[self._columns]
        allowed = self.allowed(obs, asked)
        changed = obs.copy()
        changed[:, self._columns] = allowed * self._scales[self._columns]
        inner, action = self.policy.step(rest, changed)
        count = own["changed"] + (np.abs(allowed - asked) > 1e-6).any(1)[:, None]
        return {**inner, **prefixed(OWN, {"changed": count})}, action

    def allowed(self, obs: np.ndarray, asked: np.ndarray) -> np.ndarray:
        """(n, k) commands in place of those asked for."""
        limits, n = self.limits, len(obs)
        if limits.tilt:
            s = limits.upright(self._units(obs, limits.gravity), self._units(obs, limits.gyro))
            asked = np.where(np.isfinite(s), s, 0.0)[:, None] * asked
        unknown = np.full(n, np.nan)
        v = [unknown if m is None else self._units(obs, m[0])[:, m[1]] for m in limits.measured]
        return limits.within(asked, np.stack(v, 1), 1 / self.contract.rate)
