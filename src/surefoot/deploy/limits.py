"""Limits of a robot on its own power: what the runtime never sends beyond, and when it lets the robot sink down.

    low <= target <= high        |target - last target| <= rate / Hz        |torque| <= torque        sum |torque v| <= power

A target is a joint's position where the actuators are servos, else the actuator's control. Arrays have one number an
action, in the contract's order. JSON has null where no limit is known.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from surefoot.contract import Contract
from surefoot.errors import SurefootError, unknown
from surefoot.robot import Layout
from surefoot.typed import known_fields, real

SPEED, SLIDE = 30.0, 10.0  # rad/s, m/s: of joints, where nobody says
TILT = 1.0  # rad, of a robot on legs
SOFT_START = 2.0  # s
HOT = 80.0  # degrees Celsius
EACH = ("low", "high", "velocity", "torque", "rate", "gear", "damping")  # one number an action
ALL = ("power", "tilt", "temperature", "soft_start")  # one number for the robot


@dataclass(frozen=True, eq=False)
class Limits:
    """One robot's. Infinite: no limit."""

    low: np.ndarray
    """smallest target: rad or m of a servo, else the control's unit"""
    high: np.ndarray
    velocity: np.ndarray
    """rad/s or m/s of the joint: from here on it is braked"""
    torque: np.ndarray
    """N m or N at the joint"""
    rate: np.ndarray
    """largest change of a target, per second"""
    gear: np.ndarray
    """torque at the joint per unit of control, of actuators that are no servos; 0: it moves no joint"""
    damping: np.ndarray
    """N m s/rad with which joints sink down in damping"""
    power: float = np.inf
    """W of all joints together"""
    tilt: float = np.inf
    """rad from upright: beyond, the robot has fallen"""
    temperature: float = HOT
    """degrees Celsius of a motor"""
    soft_start: float = SOFT_START
    """s in which servos move from the measured pose to the default pose"""

    @cached_property
    def rows(self) -> list[tuple[float, ...]]:
        """Of each action its low, high, velocity, torque, rate and gear, as plain numbers."""
        own = (self.low, self.high, self.velocity, self.torque, self.rate, self.gear)
        return list(zip(*(np.asarray(x, float).tolist() for x in own)))

    def check(self, n: int, where: str) -> None:
        for name in EACH:
            x = getattr(self, name)
            if len(x) != n or np.isnan(x).any():
                raise SurefootError(f"{where}: {name}: expected {n} numbers, one an action, found {x.tolist()}")
        if not (np.isfinite(self.low).all() and np.isfinite(self.high).all() and (self.low <= self.high).all()):
            raise SurefootError(f"{where}: low: expected finite numbers, each at most that of high")
        if ((self.gear != 0) & ((self.low > 0) | (self.high < 0))).any():
            raise SurefootError(
                f"{where}: low, high: expected 0 between them, for a motor must be able to give no torque"
            )
        for name in ("velocity", "torque", "rate"):
            if not (getattr(self, name) > 0).all():
                raise SurefootError(f"{where}: {name}: expected numbers > 0, found {getattr(self, name).tolist()}")
        if not (self.damping >= 0).all() or not np.isfinite(self.damping).all():
            raise SurefootError(f"{where}: damping: expected numbers >= 0, found {self.damping.tolist()}")
        for name in ALL:
            if not getattr(self, name) > 0:
                raise SurefootError(f"{where}: {name}: expected a number > 0, found {getattr(self, name)}")
        if not self.soft_start <= 60:
            raise SurefootError(f"{where}: soft_start: expected at most 60 s, found {self.soft_start:g}")

    def with_(self, changes: Mapping[str, float], where: str = "--limit") -> "Limits":
        """The same with other numbers, for all joints alike; gears are the robot's own."""
        known = [f.name for f in fields(Limits) if f.name != "gear"]
        found: dict[str, Any] = {}
        for name, value in changes.items():
            if name not in known:
                raise unknown("limit", name, known, where)
            found[name] = np.full_like(self.low, value) if name in EACH else float(value)
        new = replace(self, **found)
        new.check(len(self.low), where)
        return new

    def to_json(self) -> dict[str, Any]:
        plain = lambda v: None if np.isinf(v) else float(v)  # noqa: E731
        each = {k: [plain(v) for v in getattr(self, k)] for k in EACH}
        return each | {k: plain(getattr(self, k)) for k in ALL}

    @staticmethod
    def from_json(data: Any, n: int, where: str) -> "Limits":
        body = known_fields(data, {*EACH, *ALL}, {*EACH, *ALL}, where)
        number = lambda v, at: np.inf if v is None else real(v, at)  # noqa: E731
        for k in EACH:
            if not isinstance(body[k], list) or len(body[k]) != n:
                raise SurefootError(f"{where}: {k}: expected {n} numbers, one an action, found {str(body[k])[:80]}")
            body[k] = np.array([number(v, f"{where}: {k}") for v in body[k]])
        found = Limits(**body | {k: number(body[k], f"{where}: {k}") for k in ALL})
        found.check(n, where)
        return found


def limits_of(contract: Contract, layout: Layout, kind: str = "") -> Limits:
    """What a robot's model says, and for what it does not say the numbers above; `kind` is the task's."""
    names, servo = contract.action.names, bool(contract.kp)
    drives = {d.actuator: d for d in layout.drives}
    ends = dict(zip(layout.joints, layout.limits))
    turns = dict(zip(layout.joints, layout.hinges))
    found: dict[str, Any] = {k: np.zeros(len(names)) for k in EACH}
    for i, name in enumerate(names):
        d = drives.get(name)
        torque = np.inf if d is None or d.limit is None else d.limit * abs(d.gear)
        low, high = _range(contract, i, torque, ends.get(d.joint) if d else None)
        speed = SPEED if d is None or turns.get(d.joint, True) else SLIDE
        gear = 0.0 if d is None or servo else d.gear
        rate = speed if servo else contract.rate * max(high - low, 1e-6) / 2  # all of its range in two periods
        damping = (contract.kd[i] or 0.05 * contract.kp[i]) if servo else 0.0
        for k, v in zip(EACH, (low, high, speed, torque, rate, gear, damping)):
            found[k][i] = v
    limits = Limits(**found, tilt=TILT if kind == "legged" else np.inf)
    limits.check(len(names), "limits of the model")
    return limits


def _range(contract: Contract, i: int, torque: float, joint: tuple[float, float] | None) -> tuple[float, float]:
    """Of one target: the control's own range; else the joint's, and as far beyond as asks for all of the motor's torque."""
    if contract.control_low:
        return contract.control_low[i], contract.control_high[i]
    if joint is not None and np.isfinite(joint).all() and contract.kp:
        beyond = min(torque / max(contract.kp[i], 1e-9), 0.5)
        return joint[0] - beyond, joint[1] + beyond
    a = contract.action
    reach = abs(float(a.scale[i])) * (1.0 if a.choices else a.limit)
    return float(a.offset[i]) - reach, float(a.offset[i]) + reach
