"""Faults: mistakes in the numbers between a robot and a policy, in one library for those who find faults and those who plant them.

A Fault is a few edits. The fields of an edit say what it does to named columns x, each (T, k), or to a contract:

    Order     y_i = x_order[i]             Turn     y = R(q)^T x or R(q) x           Late     y(t) = x(t - rows)
    Times     y_i = by x_i                 Inverse  R -> R^T, q -> q*                History  frames of other ages, or in another layout
    Plus      y_i = x_i + by               Chain    y_i = x_i + by x_i-1             Exchange two columns exchanged

`on_columns` applies it to columns (of a log, or `action`), `on_frames` to frames of observations, `on_contract` to a contract.
contracts.py, observations.py and logs.py list the usual faults of each. The words are for people: no program reads them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from surefoot.contract import Contract
from surefoot.observation import ObsGroup, ObsTerm
from surefoot.rotation import conjugate, to_body, to_world, unit

Kind = Literal["order", "sign", "scale", "unit", "offset", "frame", "delay", "history", "gain", "pose", "rate"]
Names = tuple[str, ...]
Parts = tuple[int, ...]
DEGREES = 180 / np.pi
JOINTS = ("joint_pos", "joint_vel")
Of = Literal["", "joints", "control", "readings", "base"]


@dataclass(frozen=True)
class Order:
    names: Names
    order: Parts = ()
    """which part each part is taken from"""
    joints: Names = ()
    """in a contract: the joint of each column"""


@dataclass(frozen=True)
class Times:
    names: Names
    parts: Parts = ()
    """none: all of them"""
    by: float | tuple[float, ...] = -1.0


@dataclass(frozen=True)
class Plus:
    names: Names
    parts: Parts = ()
    by: float | tuple[float, ...] = 0.0


@dataclass(frozen=True)
class Turn:
    names: Names
    to: Literal["body", "world"]


@dataclass(frozen=True)
class Inverse:
    names: Names


@dataclass(frozen=True)
class Chain:
    """A joint's angle from the ground instead of from the previous link, or (by = -1) the reverse."""

    names: Names
    part: int
    by: float = 1.0


@dataclass(frozen=True)
class Exchange:
    a: str
    b: str


@dataclass(frozen=True)
class Late:
    rows: int
    names: Names = ()
    """none: all columns"""


@dataclass(frozen=True)
class History:
    ages: Parts = ()
    """of the frames, in periods, in place of oldest first"""
    layout: Literal["", "frames", "terms"] = ""
    newest: Literal["", "first", "last"] = ""


@dataclass(frozen=True)
class Unset:
    """In a contract: gains are the model's own, home is not subtracted from positions, an action of 0 means home."""

    names: Names


@dataclass(frozen=True)
class Clock:
    """In a contract: a gait clock with other waves, or other phases of its feet."""

    name: str
    waves: Names = ()
    phases: tuple[float, ...] = ()


Edit = Order | Times | Plus | Turn | Inverse | Chain | Exchange | Late | History | Unset | Clock


@dataclass(frozen=True)
class Fault:
    kind: Kind
    words: str
    """for people; `{}` stands for a number that is still to be fitted"""
    edits: tuple[Edit, ...]
    of: Of = ""
    """in a log: joints with their controls, controls alone, readings alone, or the base; empty: the columns it names"""
    guesses: tuple[float, ...] = ()
    """of its number, from which the fit starts; empty: it has no number"""
    twin: "Fault | None" = None
    """of a fault of controls: the fault of readings that looks the same on a symmetric machine"""

    def at(self, number: float, shown: float | None = None) -> "Fault":
        """The same with its number known; `shown` is the number in the words where that is another."""
        edits = tuple(replace(e, by=number) if isinstance(e, Times | Plus) else e for e in self.edits)
        return Fault(self.kind, self.words.format(number if shown is None else shown), edits, self.of)

    @property
    def ages(self) -> Parts:
        return next((e.ages for e in self.edits if isinstance(e, History)), ())

    @property
    def rows(self) -> int:
        """Delay, in rows."""
        return sum(e.rows for e in self.edits if isinstance(e, Late))

    def parts(self, name: str) -> set[int]:
        """The parts of a column that it reorders or multiplies; empty where it changes all parts or none."""
        mine = [e for e in self.edits if isinstance(e, Order | Times) and name in e.names]
        moved = {i for e in mine if isinstance(e, Order) for i, j in enumerate(e.order) if i != j}
        return moved | {i for e in mine if isinstance(e, Times) for i in e.parts}


PLAIN = Fault("order", "no fault", ())


def _spread(e: Times | Plus, width: int, rest: float) -> np.ndarray:
    out = np.full(width, rest)
    out[list(e.parts) or slice(None)] = e.by
    return out


Columns = Mapping[str, np.ndarray]
Spans = tuple[np.ndarray, np.ndarray]
"""(T,) the first and the last row of the episode that each row is in"""


def on_columns(fault: Fault, columns: Columns, spans: Spans | None = None, quat: np.ndarray | None = None) -> dict[str, np.ndarray]:  # fmt: skip
    """Columns (T, k) with the fault; names that are not there are skipped. Vectors are turned by base_quat, or quat."""
    out = dict(columns)
    for edit in fault.edits:
        _edit(edit, out, spans, out.get("base_quat", quat))
    return out


def _edit(edit: Edit, x: dict[str, np.ndarray], spans: Spans | None, quat: np.ndarray | None) -> None:
    if isinstance(edit, Exchange):
        x[edit.a], x[edit.b] = x[edit.b], x[edit.a]
    elif isinstance(edit, Late):
        for name in (n for n in tuple(x) if not edit.names or n in edit.names):
            x[name] = _late(x[name], edit.rows, spans)
    elif isinstance(edit, Order | Times | Plus | Turn | Inverse | Chain):
        for name in (n for n in edit.names if n in x):
            x[name] = _column(edit, x[name], quat)


def _column(edit: Order | Times | Plus | Turn | Inverse | Chain, x: np.ndarray, quat: np.ndarray | None) -> np.ndarray:
    if isinstance(edit, Order):
        return x[:, list(edit.order)]
    if isinstance(edit, Times):
        return x * _spread(edit, x.shape[1], 1.0)
    if isinstance(edit, Plus):
        return x + _spread(edit, x.shape[1], 0.0)
    if isinstance(edit, Turn):
        assert quat is not None  # generators ask for it
        return (to_body if edit.to == "body" else to_world)(unit(quat), x)
    if isinstance(edit, Inverse):
        return conjugate(x) if x.shape[1] == 4 else x.reshape(-1, 3, 3).swapaxes(1, 2).reshape(-1, 9)
    x = x.copy()
    x[:, edit.part] += edit.by * x[:, edit.part - 1]
    return x


def _late(x: np.ndarray, rows: int, spans: Spans | None) -> np.ndarray:
    """Each row has the value of so many rows before it in its episode; lost values (nan) stay where they are."""
    first, last = spans if spans is not None else (0, len(x) - 1)
    moved = x[np.clip(np.arange(len(x)) - rows, first, last)]
    return np.where(np.isfinite(moved) & np.isfinite(x), moved, x)


def on_frames(fault: Fault, group: ObsGroup, raw: np.ndarray, spans: Spans | None = None, quat: np.ndarray | None = None) -> np.ndarray:  # fmt: skip
    """Frames (T, frame) in the terms' units with the fault; ages of a history are left to the caller."""
    names = [t.name for t in group.terms]
    made = on_columns(fault, {n: raw[:, at] for n, at in zip(names, group.columns)}, spans, quat)
    return np.concatenate([made[n] for n in names], 1)


def on_contract(fault: Fault, w: Contract) -> Contract:
    """The contract with the fault."""
    for edit in fault.edits:
        w = _written(edit, w)
    return w


def _written(edit: Edit, w: Contract) -> Contract:
    group = w.observation
    if isinstance(edit, Times):
        return _multiplied(edit, w)
    if isinstance(edit, Order):
        return _ordered(edit, w)
    if isinstance(edit, Unset):
        return _unset(edit, w)
    if isinstance(edit, Turn):
        frame = "base" if edit.to == "body" else "world"
        return w.with_terms(edit.names, lambda t: _formula(t, frame=frame))
    if isinstance(edit, Exchange):
        other = {edit.a: edit.b, edit.b: edit.a}
        own = {t.name: t for t in w.terms}
        return replace(w, observation=replace(group, terms=tuple(own[other.get(t.name, t.name)] for t in w.terms)))
    if isinstance(edit, Clock):
        change = {k: v for k in ("waves", "phases") if (v := getattr(edit, k))}
        return w.with_terms((edit.name,), lambda t: _formula(t, **change))
    if isinstance(edit, History):
        group = replace(group, layout=edit.layout or group.layout, newest=edit.newest or group.newest)
        return replace(w, observation=group)
    raise TypeError(f"{type(edit).__name__}: no contract has it")


def _multiplied(edit: Times, w: Contract) -> Contract:
    by = edit.by
    assert not isinstance(by, tuple)
    change: dict[str, Any] = {n: by * getattr(w, n) for n in edit.names if n in ("latency", "rate")}
    change |= {n: tuple(by * k for k in getattr(w, n)) for n in edit.names if n in ("kp", "kd")}
    if "action" in edit.names:
        change["action"] = replace(w.action, scale=by * w.action.scale)
    scaled = lambda s: tuple(by * k for k in s) if isinstance(s, tuple) else by * s  # noqa: E731
    return replace(w, **change).with_terms(edit.names, lambda t: replace(t, scale=scaled(t.scale)))


def _ordered(edit: Order, w: Contract) -> Contract:
    """Terms in another joint order, each with its own joint's home subtracted where the contract does so."""
    joints = edit.joints
    if "action" in edit.names:
        w = replace(w, joints=joints, action=replace(w.action, names=joints))
    home = dict(zip(w.joints, w.home))
    offset = lambda t: tuple(home[j] for j in joints) if t.formula and t.formula.offset else ()  # noqa: E731
    return w.with_terms(edit.names, lambda t: _formula(t, joints=joints, offset=offset(t)))


def _unset(edit: Unset, w: Contract) -> Contract:
    change: dict[str, Any] = {n: () for n in edit.names if n in ("kp", "kd")}
    if "action" in edit.names:
        change["action"] = replace(w.action, offset=np.array(w.home))
    return replace(w, **change).with_terms(edit.names, lambda t: _formula(t, offset=()))


def _formula(t: ObsTerm, **change: Any) -> ObsTerm:
    return t if t.formula is None else replace(t, source=replace(t.formula, **change))


def swapped(count: int, i: int, j: int) -> Parts:
    """An order with two parts exchanged."""
    order = list(range(count))
    order[i], order[j] = j, i
    return tuple(order)
