"""Person: where the joints of a recorded body are over time. SI units, z up.

    pos (T, J, 3) m        quat (T, J, 4) w x y z, attitude of each joint's frame; None where only places were recorded

The rest pose tells what the frames of the joints mean: a person who stands upright, in the attitudes `rest_quat`. A file of a
person is a Log with the columns body_pos (T, 3 J) and body_quat (T, 4 J).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from surefoot.errors import SurefootError, unknown
from surefoot.log import Log
from surefoot.rotation import conjugate, product, slerp, unit

MIRROR = np.array([1.0, -1.0, 1.0])
FLIP = np.array([1.0, -1.0, 1.0, -1.0])  # of a quaternion, under the same mirror


@dataclass(frozen=True, eq=False)
class Rest:
    """A pose that is known to be a person who stands."""

    pos: np.ndarray  # (J, 3) m
    quat: np.ndarray  # (J, 4)


@dataclass(frozen=True, eq=False)
class Person:
    time: np.ndarray  # (T,) s
    names: tuple[str, ...]
    parents: tuple[int, ...]
    """number of each joint's parent, -1 for a root; all -1 for markers"""
    pos: np.ndarray  # (T, J, 3)
    quat: np.ndarray | None = None
    rest: Rest | None = None
    notes: tuple[str, ...] = ()
    """what was found out about the file: unit, up axis, rate"""

    def __post_init__(self) -> None:
        T, J = len(self.time), len(self.names)
        if self.pos.shape != (T, J, 3) or (self.quat is not None and self.quat.shape != (T, J, 4)):
            raise SurefootError(f"person: pos: found shape {self.pos.shape}, expected ({T}, {J}, 3)")
        if T < 3 or not (np.diff(self.time) > 0).all():
            raise SurefootError(f"person: time: found {T} rows, expected at least 3, at times that increase")
        if len(self.parents) != J or any(not -1 <= p < k for k, p in enumerate(self.parents)):
            raise SurefootError("person: parents: expected for each joint the number of one before it, or -1")
        for k, name in enumerate(self.names):
            bad = np.flatnonzero(~np.isfinite(self.pos[:, k]).all(1))
            if len(bad):
                raise SurefootError(f"person: {name}: row {bad[0]}: found a number that is not finite")

    def __len__(self) -> int:
        return len(self.time)

    @property
    def seconds(self) -> float:
        return float(self.time[-1] - self.time[0])

    @property
    def rate(self) -> float:
        return float(1 / np.median(np.diff(self.time)))

    def at(self, name: str) -> np.ndarray:
        """(T, 3) of a joint."""
        if name not in self.names:
            raise unknown("joint", name, self.names, "person")
        return self.pos[:, self.names.index(name)]

    def log(self) -> Log:
        T = len(self)
        columns = {"body_pos": self.pos.reshape(T, -1)}
        meta: dict[str, Any] = {"names": {"body_pos": list(self.names)}, "parents": list(self.parents), "notes": list(self.notes)}  # fmt: skip
        if self.quat is not None:
            columns["body_quat"] = self.quat.reshape(T, -1)
        if self.rest is not None:
            meta |= {"rest_pos": self.rest.pos.tolist(), "rest_quat": self.rest.quat.tolist()}
        return Log(self.time, columns, {"body_pos": "m"}, meta)

    def save(self, path: str | Path) -> Path:
        return self.log().save(path)


def from_log(log: Log) -> Person:
    """The person that `Person.log` made a log of."""
    names = tuple(map(str, log.meta.get("names", {}).get("body_pos", ())))
    T, J = len(log), len(names)
    if log["body_pos"].shape != (T, 3 * J):
        raise SurefootError(
            f"body_pos: found shape {log['body_pos'].shape}, expected 3 columns for each of the {J} names"
        )
    quat = log["body_quat"].reshape(T, J, 4) if "body_quat" in log.columns else None
    rest = None
    if "rest_pos" in log.meta and "rest_quat" in log.meta:
        rest = Rest(_rows(log.meta["rest_pos"], (J, 3), "rest_pos"), _rows(log.meta["rest_quat"], (J, 4), "rest_quat"))
    parents = log.meta.get("parents", [-1] * J)
    if not isinstance(parents, list) or not all(isinstance(p, int) for p in parents):
        raise SurefootError("parents: expected a list of whole numbers")
    notes = tuple(map(str, log.meta.get("notes", ())))
    return Person(log.time, names, tuple(parents), log["body_pos"].reshape(T, J, 3), quat, rest, notes)


def _rows(value: Any, shape: tuple[int, int], where: str) -> np.ndarray:
    try:
        rows = np.array(value, float)
    except (TypeError, ValueError):
        rows = np.zeros(0)
    if rows.shape != shape or not np.isfinite(rows).all():
        raise SurefootError(f"{where}: found shape {rows.shape}, expected finite numbers {shape}")
    return rows


def cut(person: Person, begin: float, end: float) -> Person:
    """From `begin` to `end`, seconds after its first row."""
    t = person.time - person.time[0]
    rows = (t >= begin - 1e-9) & (t <= end + 1e-9)
    if rows.sum() < 3:
        raise SurefootError(f"cut: found {int(rows.sum())} rows from {begin:g} to {end:g} s, expected at least 3; it lasts {t[-1]:.3f} s")  # fmt: skip
    quat = None if person.quat is None else person.quat[rows]
    return replace(person, time=person.time[rows] - person.time[rows][0], pos=person.pos[rows], quat=quat)


def resampled(person: Person, rate: float) -> Person:
    """At an even rate: places by lines, attitudes the shorter way round."""
    if not 1 <= rate <= 1000:
        raise SurefootError(f"rate: found {rate:g}, expected 1 to 1000 Hz")
    t = np.arange(int(person.seconds * rate + 1e-6) + 1) / rate + person.time[0]
    i, s = between_rows(person.time, t)
    pos = person.pos[i] * (1 - s)[:, None, None] + person.pos[i + 1] * s[:, None, None]
    quat = None if person.quat is None else slerp(person.quat[i], person.quat[i + 1], np.broadcast_to(s[:, None], (len(t), len(person.names))))  # fmt: skip
    return replace(person, time=t - t[0], pos=pos, quat=quat)


def between_rows(time: np.ndarray, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each t the row before it, and how far it is on the way to the next one, 0 to 1."""
    i = np.clip(np.searchsorted(time, t, "right") - 1, 0, len(time) - 2)
    return i, np.clip((t - time[i]) / (time[i + 1] - time[i]), 0.0, 1.0)


def mirrored(person: Person, pairs: Sequence[int]) -> Person:
    """Left and right exchanged: pairs[k] is the number of joint k's image. Attitudes need the rest pose, else they are left out."""
    own = list(pairs)
    pos = person.pos[:, own] * MIRROR
    if person.quat is None or person.rest is None:
        return replace(person, pos=pos, quat=None, rest=None)
    turn = product(person.quat, conjugate(person.rest.quat)[None])  # from rest, in the world
    return replace(person, pos=pos, quat=unit(product(turn[:, own] * FLIP, person.rest.quat[None])))


def turned_about_vertical(person: Person, yaw: float) -> Person:
    """The whole recording turned by an angle, rad."""
    c, s = np.cos(yaw), np.sin(yaw)
    R = np.array([[c, -s, 0], [s, c, 0], [0, 0, 1.0]])
    turn = np.array([np.cos(yaw / 2), 0, 0, np.sin(yaw / 2)])
    quat = None if person.quat is None else product(np.broadcast_to(turn, person.quat.shape), person.quat)
    return replace(person, pos=person.pos @ R.T, quat=quat)
