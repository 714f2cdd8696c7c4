"""Readings that a policy's observation contains: the pipeline of observation.py, backwards.

    reading = raw + offset,    raw = newest frame / scale        what was clipped stays clipped

A wrapper around a policy gets the policy's observation and nothing else. This gives it the readings by name, so that the
same wrapper works in training, in the gate and on a robot, where `Readings` may also come straight from the sensors.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from surefoot.contract import Contract
from surefoot.errors import unknown
from surefoot.observation import Columns, ObsTerm, Readings
from surefoot.policy import PolicyState
from surefoot.robot import order

PLAIN = ("joint_pos", "joint_vel", "base_pos", "command")
FIXED = {"base_lin_vel": ("", "world"), "base_ang_vel": ("", "base")}  # the frame in which the reading itself is


def _reading(term: ObsTerm) -> str:
    """The reading that a term is, but for scale and offset; empty where it is made of others."""
    f = term.formula
    if f is None:
        return ""
    if f.kind == "last_action":
        return "action"
    if f.kind == "reading":
        return f.reading
    own = f.kind in PLAIN or f.frame in FIXED.get(f.kind, ()) or (f.kind in FIXED and f.at(f.kind) != f.kind)
    return f.at(f.kind) if own else ""


@dataclass(frozen=True)
class Observed:
    """Takes readings out of observations of one contract."""

    contract: Contract

    @cached_property
    def newest(self) -> dict[str, np.ndarray]:
        """term -> columns of its newest frame in the observation."""
        group = self.contract.observation
        frames = np.zeros((1, group.history, group.frame), np.int64) - 1
        frames[0, -1] = np.arange(group.frame)
        flat = group.flat(frames)[0]
        where = {int(k): i for i, k in enumerate(flat) if k >= 0}
        return {
            t.name: np.array([where[k] for k in range(at.start, at.stop)]) for t, at in zip(group.terms, group.columns)
        }

    @cached_property
    def _scales(self) -> dict[str, np.ndarray]:
        """float64, so that what is divided by them is."""
        return {t.name: np.asarray(t.scale, float) * np.ones(t.dim) for t in self.contract.terms}

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Readings that it finds."""
        found = [_reading(t) for t in self.contract.terms]
        states = any(t.formula is not None and t.formula.kind == "joint_state" for t in self.contract.terms)
        return tuple(dict.fromkeys([*(n for n in found if n), *(("joint_pos", "joint_vel") if states else ())]))

    def columns(self, term: str) -> np.ndarray:
        """Where in an observation a term's newest frame is."""
        if term not in self.newest:
            raise unknown("observation term", term, self.newest, "the policy's observation")
        return self.newest[term]

    def check(self, needed: tuple[str, ...], where: str) -> None:
        for name in needed:
            if name not in self.names:
                raise unknown("reading", name, self.names, f"{where}: the policy's observation")

    def __call__(self, obs: np.ndarray) -> Columns:
        values: dict[str, np.ndarray] = {}
        parts: dict[str, tuple[str, ...]] = {}
        for t in self.contract.terms:
            f = t.formula
            if f is None:
                continue
            raw = obs[:, self.newest[t.name]] / self._scales[t.name]
            if f.kind == "joint_state":
                values |= {"joint_pos": raw[:, 0::2], "joint_vel": raw[:, 1::2]}
                parts |= {"joint_pos": f.joints, "joint_vel": f.joints}
            elif name := _reading(t):
                values[name] = raw + f.shift if f.offset else raw
                if f.joints:
                    parts[name] = f.joints
        return Columns(values, parts)


def ordered(r: Readings, name: str, joints: tuple[str, ...]) -> np.ndarray:
    """(n, joints) of a reading, in this order."""
    x, have = np.asarray(r.reading(name), float), r.parts(name)
    at = order(have, joints, name) if have else None
    return x if at is None else x[:, at]


def prefixed(own: str, s: PolicyState) -> PolicyState:
    """A wrapper's state under names of its own, beside that of the policy it wraps."""
    return {f"{own}{k}": v for k, v in s.items()}


def parted(own: str, s: PolicyState) -> tuple[PolicyState, PolicyState]:
    """A wrapper's state, and that of the policy it wraps."""
    mine = {k.removeprefix(own): v for k, v in s.items() if k.startswith(own)}
    return mine, {k: v for k, v in s.items() if not k.startswith(own)}
