"""The columns of a log, read from a simulation, and the difference of two readings.

y = h(x): one Signal for each column of a log that the model can predict. Differences are taken on the manifold: of an
unlimited hinge on the circle, of a quaternion as a rotation vector, rad.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from surefoot.errors import LogError, unknown
from surefoot.log import Log
from surefoot.robot import Layout
from surefoot.rotation import between
from surefoot.world import Motion, Start, State, World

Readable = State | Motion  # both have q, v, act and y, with the state's axis last
JOINT = {"joint_pos": "rad", "joint_vel": "rad/s"}
PAUSE = 3.5  # median steps between two rows: a longer interval is a pause, which no window crosses
SETTLED = 7.0  # time constants after which a slow actuator has forgotten its first state
BASE = {"base_pos": ("m", 3), "base_quat": ("", 4), "base_lin_vel": ("m/s", 3), "base_ang_vel": ("rad/s", 3)}


@dataclass(frozen=True)
class Signal:
    """One column of a log that a simulation predicts."""

    name: str
    parts: tuple[str, ...]
    """names of its components"""
    unit: str
    read: Callable[[Readable], np.ndarray]  # (..., k)
    kind: Literal["line", "turn", "quat"] = "line"
    turns: np.ndarray | None = None  # (k,) bool: components on the circle

    @property
    def size(self) -> int:
        """Components of an error: a quaternion's is a rotation vector."""
        return 3 if self.kind == "quat" else len(self.parts)

    def error(self, found: np.ndarray, measured: np.ndarray) -> np.ndarray:
        """found minus measured, on the manifold; (..., size)."""
        if self.kind == "quat":
            return between(measured, found)
        difference = found - measured
        if self.kind == "turn" and self.turns is not None:
            wrapped = (difference + np.pi) % (2 * np.pi) - np.pi
            return np.where(self.turns, wrapped, difference)
        return difference


def signals(world: World, log: Log, only: tuple[str, ...] = ()) -> tuple[Signal, ...]:
    """The columns of a log that a world predicts, or the named ones of them."""
    found = [s for name in log.columns if (s := _signal(world, log, name)) is not None]
    for name in only:
        if name not in [s.name for s in found]:
            raise unknown("signal", name, [s.name for s in found], "log")
    chosen = tuple(s for s in found if not only or s.name in only)
    for s in chosen:
        refuse_empty(log, s.name, s.parts)
    if not chosen:
        raise LogError(
            f"found columns {', '.join(log.columns) or 'none'}; expected one that the model predicts: "
            f"joint_pos, joint_vel, base_pos, base_quat, base_lin_vel, base_ang_vel or a sensor "
            f"({', '.join(world.state.y) or 'the model has none'})"
        )
    return chosen


def _signal(world: World, log: Log, name: str) -> Signal | None:
    layout = world.layout
    if name in JOINT:
        joints = joints_of(layout, log, name)
        at = np.array(layout.places if name == "joint_pos" else layout.speeds, int)[joints]
        parts, hinges = tuple(layout.joints[j] for j in joints), np.array(layout.hinges, bool)[joints]
        unit = JOINT[name] if hinges.any() or not joints else JOINT[name].replace("rad", "m")
        if name == "joint_vel":
            return Signal(name, parts, unit, lambda x: x.v[..., at])
        turns = hinges & np.isinf(np.array(layout.limits, float).reshape(-1, 2)[joints, 1])
        return Signal(name, parts, unit, lambda x: x.q[..., at], "turn", turns)
    if name in BASE and layout.base is not None:
        found = layout.columns(name)
        assert found is not None
        (of_v, columns), (unit, count) = found, BASE[name]
        read: Callable[[Readable], np.ndarray] = lambda x: (x.v if of_v else x.q)[..., columns]  # noqa: E731
        return Signal(name, tuple("wxyz" if count == 4 else "xyz"), unit, read, "quat" if count == 4 else "line")
    if name in world.state.y:
        count = world.state.y[name].shape[1]
        column = log[name]
        if (column.shape[1] if column.ndim == 2 else 1) != count:
            raise LogError(f"column {name}: found shape {column.shape}, expected {count} a row as the sensor")
        return Signal(name, tuple(map(str, range(count))), log.units.get(name, ""), lambda x: x.y[name])
    return None


def joints_of(layout: Layout, log: Log, column: str) -> list[int]:
    """The robot's joints in the order of a column's parts: by name where the log names them, else all in order."""
    joints, column_ = layout.joints, measured(log, column)
    names = log.meta.get("names", {}).get(column)
    if names is None:
        if column_.shape[1] != len(joints):
            raise LogError(
                f"column {column}: found {column_.shape[1]} parts without names, expected {len(joints)}, one for "
                f"each joint: {', '.join(joints)}"
            )
        return list(range(len(joints)))
    for name in names:
        if name not in joints:
            raise unknown("joint", str(name), joints, f"names of {column}", LogError)
    if len(names) != column_.shape[1]:
        raise LogError(f"column {column}: found {len(names)} names for {column_.shape[1]} parts")
    return [joints.index(name) for name in names]


def names_in(layout: Layout, log: Log, column: str) -> list[str]:
    """The joint of each part of a column."""
    return [layout.joints[j] for j in joints_of(layout, log, column)]


def measured(log: Log, name: str) -> np.ndarray:
    """A column as (T, k)."""
    column = log[name]
    return column if column.ndim == 2 else column[:, None]


def refuse_empty(log: Log, name: str, parts: Sequence[str]) -> None:
    """Refuse a column with a part that has no number in any row."""
    empty = np.flatnonzero(~np.isfinite(measured(log, name)).any(0))
    if len(empty):
        part = parts[empty[0]] if empty[0] < len(parts) else empty[0]
        raise LogError(f"column {name}: {part}: found no number in any of {len(log)} rows")


def controls(world: World, log: Log) -> np.ndarray:
    """(T, nu) the controls, in the model's order of actuators."""
    known = list(world.layout.actuators)
    if known and "control" not in log.columns:
        raise LogError(f"found no column control (commands to the actuators); found {', '.join(log.columns) or 'none'}")
    column = measured(log, "control") if known else np.zeros((len(log), 0))
    names = log.meta.get("names", {}).get("control")
    if names is None:
        if column.shape[1] != len(known):
            raise LogError(
                f"column control: found {column.shape[1]} parts without names, expected {len(known)}, one for each "
                f"actuator: {', '.join(known)}"
            )
        return column
    for name in names:
        if name not in known:
            raise unknown("actuator", str(name), known, "names of control", LogError)
    if sorted(names) != sorted(known):
        raise LogError(f"control: found {', '.join(names)}; expected every actuator: {', '.join(known)}")
    return column[:, [list(names).index(name) for name in known]]


def starts(world: World, log: Log, rows: np.ndarray) -> Start:
    """The state at some rows of a log, as far as it was measured; other joints are at the model's default.

    Velocities that were not logged come from a parabola through the five nearest positions. The state of delayed and
    slow actuators is the control of the row before.
    """
    layout, n = world.layout, len(rows)
    q, v = np.tile(layout.rest, (n, 1)), np.zeros((n, world.nv))
    places, speeds = np.array(layout.places, int), np.array(layout.speeds, int)
    if "joint_pos" in log.columns:
        joints = joints_of(layout, log, "joint_pos")
        q[:, places[joints]] = measured(log, "joint_pos")[rows]
        if "joint_vel" not in log.columns:
            v[:, speeds[joints]] = slope(log.time, measured(log, "joint_pos"))[rows]
    if "joint_vel" in log.columns:
        v[:, speeds[joints_of(layout, log, "joint_vel")]] = measured(log, "joint_vel")[rows]
    for name in BASE if layout.base is not None else ():
        found = layout.columns(name)
        if found is not None and name in log.columns:
            (q, v)[found[0]][:, found[1]] = measured(log, name)[rows]
        elif found is not None and name == "base_lin_vel" and "base_pos" in log.columns:
            v[:, found[1]] = slope(log.time, measured(log, "base_pos"))[rows]
    rows = np.asarray(rows)
    before = np.maximum(rows - 1, 0)
    before = np.where(log.time[rows] - log.time[before] > PAUSE / log.rate, rows, before)
    u = controls(world, log)[before]
    return Start(q, v, u, u.copy() if world.na == world.nu else None)


def settling(world: World) -> int:
    """Rows until slow actuators have forgotten their first state, which is not measured."""
    return _rows(SETTLED * max(world.layout.slow, default=0.0), world.dt)


def _rows(seconds: float, dt: float) -> int:
    return int(np.ceil(seconds / dt - 1e-9))


def remembered(world: World, e: np.ndarray | None = None) -> int:
    """Earlier rows of controls that still act through slow or delayed actuators, under any of e (m, ne), or any possible e.

    0 or 1 row needs none: every start has the control of the row before.
    """
    high = {p.name: p.high if e is None else float(e[:, i].max()) for i, p in enumerate(world.params)}
    ways = {"set": lambda _, x: x, "scale": lambda own, x: own * x, "add": lambda own, x: own + x}
    slow, late = max(world.layout.slow, default=0.0), world.layout.delay
    for p in world.params:
        if p.target == "motor_time" and slow:
            slow = max(slow, ways[p.op](slow, high[p.name]))
        if p.target == "action_delay":
            late = max(late, ways[p.op](late, high[p.name]))
    rows = _rows(late, world.dt)
    return max(_rows(SETTLED * slow, world.dt), rows if rows > 1 else 0)


def slope(time: np.ndarray, x: np.ndarray) -> np.ndarray:
    """(T, k) derivative of x (T, k), of a parabola fitted to five neighbours, which halves white noise.

    Stretches between pauses are differentiated one by one.
    """
    step = np.diff(time)
    pauses = np.flatnonzero(step > PAUSE * np.median(step)) + 1 if len(step) else np.zeros(0, int)
    if len(pauses):
        return np.concatenate([slope(t, y) for t, y in zip(np.split(time, pauses), np.split(x, pauses))])
    if len(time) < 5:
        return np.gradient(x, time, axis=0) if len(time) > 1 else np.zeros_like(x)
    middle = np.clip(np.arange(len(time)), 2, len(time) - 3)
    around = middle[:, None] + np.arange(-2, 3)  # (T, 5)
    t = time[around] - time[:, None]
    basis = np.stack([np.ones_like(t), t, t * t], -1)  # (T, 5, 3)
    return np.einsum("tj,tjk->tk", np.linalg.pinv(basis)[:, 1], x[around])
