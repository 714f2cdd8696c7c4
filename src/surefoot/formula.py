"""How an observation term follows from readings: a Formula, by the name of its kind, for n simulations, the rows of a log,
or one robot.

Readings are columns (n, k) by name: joint_pos, joint_vel (parts are joints), base_pos [m], base_quat (w x y z),
base_lin_vel [m/s, world frame], base_ang_vel [rad/s, body frame], sensors by their names, `base_ang_vel@site` in the frame
of a site, command, action (the last one), time [s into the episode], phase [s into a reference motion], gravity [m/s^2, world
frame]. What a state estimator makes of them is read likewise: estimate/base_lin_vel, and spread/base_lin_vel for its standard
deviations (estimate/).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Protocol

import numpy as np

from surefoot.arrays import by_column, namespace
from surefoot.errors import SurefootError, unknown
from surefoot.estimate.abstract import PREFIX, SPREAD
from surefoot.robot import order
from surefoot.rotation import conjugate, direction, forward_kinematics, matrix, product, slerp, to_body, to_world

LINK = 7  # numbers of a joint in Formula.links
ESTIMATED = ("estimate", "spread")  # kinds of formula that an estimator answers
WIDTHS = {
    "base_pos": 3,
    "rotation": 9,
    "base_lin_vel": 3,
    "base_ang_vel": 3,
    "projected_gravity": 3,
    "begun": 1,
    "tip_pos": 3,
    "reference_rotation": 6,
}
REFERENCES = {
    "reference_joints": 0,
    "reference_rotation": 4,
    "prompt": 0,
}  # numbers in a row of the table; 0: one a joint, or `columns`
WAVES = ("sin", "cos")
LONGEST = 1_000_000  # numbers of a reference motion: ten minutes of 33 joints at 50 Hz


class Readings(Protocol):
    """What a robot, a simulator or a log measures at one instant or in each of n rows."""

    def reading(self, name: str) -> np.ndarray:
        """(n, k) of one column."""

    def parts(self, name: str) -> tuple[str, ...]:
        """Names of its k parts, where they have names."""


@dataclass(frozen=True)
class Columns:
    """Readings as plain columns: those of a robot's driver, or of a log."""

    values: Mapping[str, np.ndarray]
    names: Mapping[str, tuple[str, ...]]

    def reading(self, name: str) -> np.ndarray:
        if name not in self.values:
            raise unknown("reading", name, self.values)
        return self.values[name]

    def parts(self, name: str) -> tuple[str, ...]:
        return self.names.get(name, ())


@dataclass(frozen=True)
class Formula:
    """How a term follows from readings; `kind` names an entry of FORMULAS."""

    kind: str
    joints: tuple[str, ...] = ()
    """order of its columns, where it has one for each joint"""
    offset: tuple[float, ...] = ()
    """subtracted from the reading, such as the default pose"""
    frame: str = ""
    """world, base, or the name of a site; empty: the frame the reading is in"""
    reading: str = ""
    """the column it takes, where the kind does not say"""
    frequency: float = 0.0
    """of a clock, or of the rows of a reference motion, Hz"""
    still: float = 0.0
    """of a clock: it stands still while no command is larger than this; below 0: never"""
    phases: tuple[float, ...] = ()
    """of a clock: the phase of each foot at time 0, rad; none: one, which starts at 0"""
    waves: tuple[str, ...] = ()
    """of a clock: sin or cos of all phases, in this order; none: sin, cos"""
    stand: tuple[float, ...] = ()
    """of a clock: the phases while it stands still, rad; none: all its numbers are 0 then"""
    parts: tuple[int, ...] = ()
    """of a command: which columns it takes; none: all"""
    links: tuple[float, ...] = ()
    """of a tip: for each joint a point of its axis, the axis and 1 if it slides, then the tip; all where every joint is at 0"""
    table: tuple[float, ...] = ()
    """of a reference motion, row by row: the positions of `joints`, the base's quaternion (w x y z), or what is asked of the policy"""
    columns: int = 0
    """of a prompt: numbers in a row of the table"""

    def __post_init__(self) -> None:
        if self.kind not in FORMULAS:
            raise unknown("formula", self.kind, FORMULAS)
        for wave in self.waves:
            if wave not in WAVES:
                raise unknown("wave", wave, WAVES)

    def __hash__(self) -> int:
        return hash((self.kind, self.frame, self.reading))  # of the names: it is looked up many times a step

    def __call__(self, r: Readings) -> np.ndarray:
        return FORMULAS[self.kind](self, r)

    @cached_property
    def shift(self) -> np.ndarray:
        """The offset, as an array."""
        return np.array(self.offset)

    @cached_property
    def starts(self) -> np.ndarray:
        """Of a clock: the phases at time 0, as an array."""
        return np.array(self.phases or (0.0,))

    @cached_property
    def stood(self) -> np.ndarray:
        """Of a clock: the phases while it stands still, as an array."""
        return np.array(self.stand)

    @cached_property
    def chain(self) -> np.ndarray:
        """Of a tip: (joints, 7) its links, as an array."""
        return np.reshape(self.links[:-3], (-1, LINK))

    @cached_property
    def tip(self) -> np.ndarray:
        """Of a tip: where it is while all joints are at 0, as an array."""
        return np.array(self.links[-3:])

    def at(self, quantity: str) -> str:
        """The reading of a quantity in this formula's frame."""
        return quantity if self.frame in ("", "base", "world") else f"{quantity}@{self.frame}"

    @property
    def estimate(self) -> str:
        """The reading of a state estimator that it takes; empty: none."""
        return {"estimate": PREFIX, "spread": SPREAD}[self.kind] + self.reading if self.kind in ESTIMATED else ""

    @property
    def width(self) -> int | None:
        """How many numbers it gives; None where its reading decides."""
        if self.kind == "clock":
            return len(self.phases or (0.0,)) * len(self.waves or WAVES)
        if self.kind == "prompt":
            return self.columns
        return len(self.parts) or None if self.kind == "command" else WIDTHS.get(self.kind)

    @property
    def row(self) -> int:
        """Numbers in a row of its table."""
        return REFERENCES[self.kind] or self.columns or len(self.joints)

    @property
    def needs(self) -> tuple[str, ...]:
        """Readings it takes, of the robot."""
        fixed = {
            "joint_pos": ("joint_pos",), "joint_vel": ("joint_vel",), "joint_state": ("joint_pos", "joint_vel"),
            "base_pos": ("base_pos",), "rotation": (self.at("base_quat"),), "last_action": ("action",),
            "command": ("command",), "clock": ("time", "command") if self.still >= 0 else ("time",), "begun": ("time",), "reading": (self.reading,),
            "projected_gravity": (self.at("base_quat"), "gravity"), "tip_pos": ("joint_pos",),
            "reference_joints": ("phase",), "prompt": ("phase",), "reference_rotation": ("phase", self.at("base_quat")),
            "estimate": (), "spread": (),
        }  # fmt: skip
        if self.kind in fixed:
            return fixed[self.kind]
        own = "world" if self.kind == "base_lin_vel" else "base"
        turned = self.frame not in ("", own) and self.at(self.kind) == self.kind
        return (self.at(self.kind), "base_quat") if turned else (self.at(self.kind),)

    def check(self, dim: int, where: str) -> None:
        """Whether its parts fit each other and a term of `dim` columns."""
        each = {"joint_state": 2, "reference_joints": 2, "tip_pos": 0}.get(self.kind, 1)
        if self.kind == "tip_pos" and len(self.links) != LINK * len(self.joints) + 3:
            raise SurefootError(
                f"{where}: links: expected {LINK} numbers for each joint and 3, found {len(self.links)}"
            )
        if len(self.joints) * each not in (0, dim):
            raise SurefootError(f"{where}: joints: expected {dim} columns, found {len(self.joints)} joints")
        if self.width not in (None, dim):
            raise SurefootError(f"{where}: dim: expected {self.width} for {self.kind}, found {dim}")
        if len(self.stand) not in (0, len(self.phases or (0.0,))):
            raise SurefootError(f"{where}: stand: expected one phase for each foot, found {len(self.stand)}")
        if self.kind in ("reading", *ESTIMATED) and not self.reading:
            raise SurefootError(f"{where}: reading: found nothing, expected the name of a reading")
        if self.kind == "joint_state" and self.offset:
            raise SurefootError(f"{where}: offset: expected none for joint_state, found {len(self.offset)} numbers")
        if len(self.offset) * (2 if self.kind == "reference_joints" else 1) not in (0, dim):
            raise SurefootError(f"{where}: offset: expected {dim} numbers, found {len(self.offset)}")
        if self.kind in REFERENCES:
            self._check_table(self.row, where)

    def _check_table(self, width: int, where: str) -> None:
        if not width or not self.table or len(self.table) % width or len(self.table) < 2 * width:
            words = f"at least two rows of {width or 'as many numbers as there are joints'}"
            raise SurefootError(f"{where}: table: expected {words}, found {len(self.table)} numbers")
        if not self.frequency > 0:
            raise SurefootError(f"{where}: frequency: expected the table's rows in a second, found {self.frequency:g}")


def _joint(name: str) -> Callable[[Formula, Readings], np.ndarray]:
    def take(f: Formula, r: Readings) -> np.ndarray:
        x = r.reading(name)
        at = order(r.parts(name), f.joints) if f.joints else None
        return _less_offset(f, x if at is None else x[:, namespace(x).asarray(at)])

    return take


def _joint_state(f: Formula, r: Readings) -> np.ndarray:
    """Position and speed of each joint in turn; it has no offset."""
    q, v = (FORMULAS[name](f, r) for name in ("joint_pos", "joint_vel"))
    if (xp := namespace(q)) is not np:
        return xp.stack([q, v], 2).reshape(len(q), -1)
    out = by_column(len(q), 2 * q.shape[1], q.dtype)
    out[:, 0::2], out[:, 1::2] = q, v
    return out


def _velocity(name: str, own: str) -> Callable[[Formula, Readings], np.ndarray]:
    """A velocity of the base that is read in the frame `own`."""

    def take(f: Formula, r: Readings) -> np.ndarray:
        x = r.reading(f.at(name))
        if f.frame in ("", own) or f.at(name) != name:
            return x
        turn = to_body if f.frame == "base" else to_world
        return turn(r.reading("base_quat"), x)

    return take


def _clock(f: Formula, r: Readings) -> np.ndarray:
    """sin and cos of each foot's phase; while the command asks to stand, of the phases it stands in, or 0."""
    time = r.reading("time")
    xp = namespace(time)
    phases = 2 * np.pi * f.frequency * xp.asarray(time).reshape(-1, 1) + xp.asarray(f.starts)
    stands: Any = ~(abs(r.reading("command")) > f.still).any(1) if f.still >= 0 else xp.zeros_like(phases[:, 0], bool)
    if f.stand:
        phases = xp.where(stands[:, None], xp.asarray(f.stood), phases)
    (n, feet), waves = phases.shape, f.waves or WAVES
    if n == 1 or xp is not np:
        out = xp.concatenate([getattr(xp, wave)(phases) for wave in waves], 1)
    else:
        out = by_column(n, len(waves) * feet)
        for k, wave in enumerate(waves):
            out[:, k * feet : (k + 1) * feet] = getattr(np, wave)(phases)
    if not f.stand:
        out *= ~stands[:, None]
    return out


def _tip(f: Formula, r: Readings) -> np.ndarray:
    return forward_kinematics(f.chain, FORMULAS["joint_pos"](f, r), f.tip)


@lru_cache(16)
def _table(f: Formula) -> tuple[np.ndarray, np.ndarray]:
    """(rows, width) of a reference motion and their rates of change, a second."""
    rows = np.reshape(f.table, (-1, f.row))
    return rows, np.gradient(rows, axis=0) * f.frequency


def _place(f: Formula, r: Readings, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """(n,) the row at or before the phase, and how far it is to the next, 0 to 1; it stays in the last row."""
    xp = namespace(r.reading("phase"))
    x = xp.clip(xp.asarray(r.reading("phase")).reshape(-1) * f.frequency, 0.0, rows - 1)
    i = xp.minimum(xp.astype(x + 1e-6, xp.int64), rows - 2)
    return i, x - i


def _reference_joints(f: Formula, r: Readings) -> np.ndarray:
    """Positions of the reference motion's joints, then their speeds."""
    tables = _table(f)
    i, s = _place(f, r, len(tables[0]))
    xp = namespace(s)
    q, v = ((1 - s[:, None]) * x[i] + s[:, None] * x[i + 1] for x in map(xp.asarray, tables))
    return xp.concatenate([_less_offset(f, q), v], 1)


def _reference_rotation(f: Formula, r: Readings) -> np.ndarray:
    """From the base's attitude to the reference's: the first two columns of R(base)^T R(reference), row by row."""
    rows, _ = _table(f)
    i, s = _place(f, r, len(rows))
    rows = namespace(s).asarray(rows)
    wanted = slerp(rows[i], rows[i + 1], s)
    return matrix(product(conjugate(r.reading(f.at("base_quat"))), wanted))[:, :, :2].reshape(-1, 6)


def _prompt(f: Formula, r: Readings) -> np.ndarray:
    """What is asked of the policy at this phase."""
    rows, _ = _table(f)
    i, s = _place(f, r, len(rows))
    rows = namespace(s).asarray(rows)
    return (1 - s[:, None]) * rows[i] + s[:, None] * rows[i + 1]


def _less_offset(f: Formula, x: np.ndarray) -> np.ndarray:
    return x - namespace(x).asarray(f.shift) if f.offset else x


FORMULAS: dict[str, Callable[[Formula, Readings], np.ndarray]] = {
    "joint_pos": _joint("joint_pos"),
    "joint_vel": _joint("joint_vel"),
    "joint_state": _joint_state,
    "base_pos": lambda f, r: _less_offset(f, r.reading("base_pos")),
    "rotation": lambda f, r: matrix(r.reading(f.at("base_quat"))).reshape(-1, 9),
    "base_lin_vel": _velocity("base_lin_vel", "world"),
    "base_ang_vel": _velocity("base_ang_vel", "base"),
    "projected_gravity": lambda f, r: direction(r.reading(f.at("base_quat")), r.reading("gravity")),
    "last_action": _joint("action"),
    "command": lambda f, r: r.reading("command")[:, f.parts] if f.parts else r.reading("command"),
    "clock": _clock,
    "begun": lambda f, r: namespace(r.reading("time")).asarray(r.reading("time")).reshape(-1, 1) == 0.0,
    "reading": lambda f, r: _less_offset(f, r.reading(f.reading)),
    "tip_pos": _tip,
    "reference_joints": _reference_joints,
    "reference_rotation": _reference_rotation,
    "prompt": _prompt,
    "estimate": lambda f, r: r.reading(f.estimate),
    "spread": lambda f, r: r.reading(f.estimate),
}
