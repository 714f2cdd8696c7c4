"""The ways in which a log may be wrong that a preflight tries: each an edit of the log, with words for it."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, permutations
from typing import Literal

import mujoco
import numpy as np

from surefoot.log import Log
from surefoot.real2sim.learnable import kind_of
from surefoot.real2sim.signals import BASE, PAUSE, controls, has_base, joints_of, measured, slope
from surefoot.real2sim.streams import GAIN, JOINTS, LATE
from surefoot.world import World

STRAIGHT = 1.5  # gain for gravity and clocks: where a machine falls or lags, an edit that helps predicts better whatever is wrong
CLOCKS = 8  # steps of 25 ms at least that controls are tried earlier and later
OFFSET = 0.1  # rad: an offset that is tried
SPEEDS = ("base_lin_vel", "base_ang_vel")


@dataclass(frozen=True)
class Edit:
    """A way a log may be wrong: columns of joints to take in another order, times a number, plus a number; controls to read
    at other rows; columns of the base times numbers."""

    name: str
    about: str
    order: tuple[int, ...] = ()
    """joint whose column each is; none: as they stand"""
    times: tuple[float, ...] = ()
    plus: tuple[float, ...] = ()
    only: Literal["both", "control", "readings"] = "both"
    """what was measured, what was told, or both"""
    motors: tuple[int, ...] = ()
    """actuator whose control each is"""
    late: int = 0
    """rows that controls are behind"""
    base: tuple[tuple[str, tuple[float, ...]], ...] = ()
    least: float = GAIN
    twin: str = ""
    """of an edit of controls: what it is about, were the readings wrong in their place"""

    @property
    def joints(self) -> list[int]:
        """The joints it is about, which alone bear witness; none: all of them."""
        return sorted({i for i, j in enumerate(self.order) if i != j} | {i for i, s in enumerate(self.times) if s != 1})


@dataclass(frozen=True)
class Case:
    """A log in the model's own order, and who is who in it."""

    world: World
    log: Log
    names: tuple[str, ...]
    """joints, as joint_pos has them"""
    motors: tuple[int, ...]
    """the actuator of each joint, -1 where it has none"""
    signals: tuple[str, ...]
    """what is predicted"""
    turning: tuple[bool, ...]
    """the joints that are angles"""


def predicted(world: World, log: Log) -> tuple[str, ...]:
    """The columns that are predicted."""
    joints = ("joint_pos",) if "joint_pos" in log.columns and measured(log, "joint_pos").shape[1] else ()
    return (*joints, *(name for name in SPEEDS if name in log.columns and has_base(world.model)))


def case(world: World, log: Log) -> Case:
    """Joints in the order of joint_pos, controls in the model's; speeds that were not logged are slopes."""
    m, told = world.model, predicted(world, log)
    kept = {"control": controls(world, log)}
    joints = joints_of(m, log, "joint_pos") if "joint_pos" in told else []
    names = tuple(m.joint(j).name for j in joints)
    if joints:
        kept["joint_pos"] = measured(log, "joint_pos")
        if "joint_vel" in log.columns:
            at = joints_of(m, log, "joint_vel")
            v = measured(log, "joint_vel")
            kept["joint_vel"] = np.stack([v[:, at.index(j)] if j in at else np.zeros(len(log)) for j in joints], 1)
        else:
            kept["joint_vel"] = slope(log.time, kept["joint_pos"])
    kept |= {name: measured(log, name) for name in BASE if name in log.columns and has_base(m)}
    if "base_pos" in kept and "base_lin_vel" not in kept:
        kept["base_lin_vel"] = slope(log.time, kept["base_pos"])
    driven = {int(m.actuator_trnid[a, 0]): a for a in range(m.nu) if m.actuator_trntype[a] == mujoco.mjtTrn.mjTRN_JOINT}
    turning = tuple(bool(m.jnt_type[j] == mujoco.mjtJoint.mjJNT_HINGE) for j in joints)
    plain = Log(log.time, kept, meta={"names": dict.fromkeys(JOINTS, list(names))} if joints else {})
    return Case(world, plain, names, tuple(driven.get(j, -1) for j in joints), told, turning)


def edited(case: Case, edit: Edit) -> Log:
    """The log under an edit: column i holds what joint order[i] did, times times[i], plus plus[i]."""
    columns, count = dict(case.log.columns), len(case.names)
    order, times = edit.order or tuple(range(count)), np.array(edit.times or (1.0,) * count)
    if edit.only != "control" and count:
        for name in JOINTS:
            columns[name] = np.empty_like(case.log[name])
            columns[name][:, order] = case.log[name] * times
        columns["joint_pos"] += np.array(edit.plus or (0.0,) * count)
    u = case.log["control"].copy()
    if edit.only != "readings":
        for i, a in enumerate(case.motors):
            to = case.motors[order[i]]
            if a >= 0 and to >= 0:
                u[:, to] = case.log["control"][:, a] * times[i]
    if edit.motors:
        u = u[:, list(edit.motors)]
    columns["control"] = _later(case.log, u, edit.late) if edit.late else u
    for name, factor in edit.base:
        if name in columns:
            columns[name] = columns[name] * factor
    return Log(case.log.time, columns, meta=case.log.meta)


def _later(log: Log, u: np.ndarray, rows: int) -> np.ndarray:
    """Each row has the control logged so many rows later, within its own stretch of time; its end is held."""
    step = np.diff(log.time)
    stretch = np.concatenate([[0], np.cumsum(step > PAUSE * np.median(step))])
    first, last = np.searchsorted(stretch, stretch), np.searchsorted(stretch, stretch, "right") - 1
    moved = u[np.clip(np.arange(len(u)) + rows, first, last)]
    return np.where(np.isfinite(moved) & np.isfinite(u), moved, u)


def suspicions(case: Case) -> Iterator[Edit]:
    names = case.names
    one = lambda i, x, rest: tuple(x if k == i else rest for k in range(len(names)))  # noqa: E731
    for i, name in enumerate(names):
        yield Edit("signs", f"turn the sign of {name}", times=one(i, -1.0, 1.0))
        yield Edit("signs of controls", f"turn the sign of the control of {name}", times=one(i, -1.0, 1.0),
                   only="control", twin=f"turn the sign of the readings of {name}")  # fmt: skip
        yield Edit(
            "units",
            f"joint_pos and joint_vel of {name} are in degrees",
            times=one(i, np.pi / 180, 1.0),
            only="readings",
        )
        for way in (OFFSET, -OFFSET):
            yield Edit("offsets", f"an offset of {name}", plus=one(i, way, 0.0), only="readings")
    for i, j in combinations(range(len(names)), 2):
        if kind_of(names[i]) != kind_of(names[j]) and j != i + 1:
            continue  # what people mix up: the same joint of another limb, and neighbours
        order = _swapped(len(names), i, j)
        yield Edit("joint order", f"exchange {names[i]} and {names[j]}", order)
        yield Edit("order of controls", f"exchange the controls of {names[i]} and {names[j]}", order, only="control",
                   twin=f"exchange the readings of {names[i]} and {names[j]}")  # fmt: skip
    yield from _limbs(names)
    yield from _degrees(case)
    yield from _others(case)


def _swapped(count: int, i: int, j: int) -> tuple[int, ...]:
    order = list(range(count))
    order[i], order[j] = j, i
    return tuple(order)


def _limbs(names: tuple[str, ...]) -> Iterator[Edit]:
    """Whole limbs in another order, where joints of one kind occur the same number of times: SDK orders."""
    groups: dict[str, list[int]] = {}
    for i, name in enumerate(names):
        kind = kind_of(name)
        limb = (
            name[: name.index(kind)].strip("_") if kind in name and kind != name else name.replace(kind, "").strip("_")
        )
        groups.setdefault(limb, []).append(i)
    limbs = {k: v for k, v in groups.items() if len(v) > 1}
    if not 2 <= len(limbs) <= 4 or len({len(v) for v in limbs.values()}) != 1:
        return
    keys = list(limbs)
    for other in permutations(keys):
        if list(other) != keys:
            order = list(range(len(names)))
            for a, b in zip(keys, other):
                for i, j in zip(limbs[a], limbs[b]):
                    order[i] = j
            these, words = " ".join(other), f"of {' '.join(other)}, not {' '.join(keys)}"
            yield Edit("joint order", f"the columns are {words}", tuple(order))
            back = tuple(int(i) for i in np.argsort(order))
            twin = f"the readings are {words}"
            if back != tuple(order):
                twin = f"the readings, not the controls, are in another order (of {these})"
            yield Edit("order of controls", f"the controls are {words}", tuple(order), only="control", twin=twin)


def _degrees(case: Case) -> Iterator[Edit]:
    times = tuple(np.pi / 180 if turns else 1.0 for turns in case.turning)
    if not any(case.turning):
        return
    if sum(case.turning) > 1:
        yield Edit("units", "joint_pos and joint_vel are in degrees", times=times, only="readings")
        yield Edit("units", "joint_pos, joint_vel and control are in degrees", times=times)
    yield Edit("units", "control is in degrees", times=times, only="control")


def _others(case: Case) -> Iterator[Edit]:
    """What is not about single joints: clocks, actuators that drive no joint, the base's axes."""
    m = case.world.model
    rows = {round(k * max(1.0, 0.5 * LATE / case.world.dt)) for k in range(1, CLOCKS + 1)}
    for late in sorted(k for r in rows for k in (r, -r) if r * case.world.dt <= 4 * LATE):
        words = f"controls are {1e3 * abs(late) * case.world.dt:.3g} ms {'late' if late > 0 else 'early'} in this log"
        yield Edit("clock of controls", words, late=late, least=STRAIGHT)
    free = [a for a in range(m.nu) if m.actuator_trntype[a] != mujoco.mjtTrn.mjTRN_JOINT]
    for i, j in combinations(free, 2):
        words = f"exchange the controls of {m.actuator(i).name} and {m.actuator(j).name}"
        yield Edit("order of controls", words, motors=_swapped(m.nu, i, j))
    if set(SPEEDS) & set(case.signals):
        about_x, up = (1.0, -1.0, -1.0), (1.0, 1.0, -1.0)
        vectors = ("base_pos", "base_lin_vel", "base_ang_vel")
        yield Edit("axes of the base", "z points down in the base's columns (north east down)", least=STRAIGHT,
                   base=(*((name, about_x) for name in vectors), ("base_quat", (1.0, 1.0, -1.0, -1.0))))  # fmt: skip
        yield Edit("axes of the base", "z points down in base_pos and base_lin_vel", least=STRAIGHT,
                   base=(("base_pos", up), ("base_lin_vel", up)))  # fmt: skip
