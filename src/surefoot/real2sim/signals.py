"""The columns of a log, read from a simulation, and the difference of two readings.

y = h(x): one Signal for each column of a log that the model can predict. Differences are taken on the manifold: of an
unlimited hinge on the circle, of a quaternion as a rotation vector, rad.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import mujoco
import numpy as np

from surefoot.errors import LogError, unknown
from surefoot.log import Log
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
    m = world.model
    if name in JOINT:
        joints = joints_of(m, log, name)
        at = (m.jnt_qposadr if name == "joint_pos" else m.jnt_dofadr)[joints]
        parts = tuple(m.joint(j).name for j in joints)
        slides = bool((m.jnt_type[joints] == mujoco.mjtJoint.mjJNT_SLIDE).all())
        unit = JOINT[name].replace("rad", "m") if slides else JOINT[name]
        if name == "joint_vel":
            return Signal(name, parts, unit, lambda x: x.v[..., at])
        turns = (m.jnt_type[joints] == mujoco.mjtJoint.mjJNT_HINGE) & (m.jnt_limited[joints] == 0)
        return Signal(name, parts, unit, lambda x: x.q[..., at], "turn", turns)
    if name in BASE and has_base(m):
        unit, count = BASE[name]
        where = {"base_pos": slice(0, 3), "base_quat": slice(3, 7)}.get(name)
        v = slice(0, 3) if name == "base_lin_vel" else slice(3, 6)
        read: Callable[[Readable], np.ndarray] = (
            (lambda x: x.q[..., where]) if where is not None else (lambda x: x.v[..., v])
        )
        return Signal(name, tuple("wxyz" if count == 4 else "xyz"), unit, read, "quat" if count == 4 else "line")
    if name in world.state.y:
        count = world.state.y[name].shape[1]
        column = log[name]
        if (column.shape[1] if column.ndim == 2 else 1) != count:
            raise LogError(f"column {name}: found shape {column.shape}, expected {count} a row as the sensor")
        return Signal(name, tuple(map(str, range(count))), log.units.get(name, ""), lambda x: x.y[name])
    return None


def has_base(model: mujoco.MjModel) -> bool:
    return bool(model.njnt and model.jnt_type[0] == mujoco.mjtJoint.mjJNT_FREE)


def movable(model: mujoco.MjModel) -> list[int]:
    """Joints of one degree of freedom, in the model's order."""
    one = np.isin(model.jnt_type, [int(mujoco.mjtJoint.mjJNT_HINGE), int(mujoco.mjtJoint.mjJNT_SLIDE)])
    return [int(j) for j in np.flatnonzero(one)]


def joints_of(model: mujoco.MjModel, log: Log, column: str) -> list[int]:
    """The model's joints in the order of a column's parts: by name where the log names them, else all in order."""
    joints, column_ = movable(model), measured(log, column)
    names = log.meta.get("names", {}).get(column)
    if names is None:
        if column_.shape[1] != len(joints):
            raise LogError(
                f"column {column}: found {column_.shape[1]} parts without names, expected {len(joints)}, one for "
                f"each joint: {', '.join(model.joint(j).name for j in joints)}"
            )
        return joints
    known = {model.joint(j).name: j for j in joints}
    for name in names:
        if name not in known:
            raise unknown("joint", str(name), known, f"names of {column}", LogError)
    if len(names) != column_.shape[1]:
        raise LogError(f"column {column}: found {len(names)} names for {column_.shape[1]} parts")
    return [known[name] for name in names]


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
    m = world.model
    if m.nu and "control" not in log.columns:
        raise LogError(f"found no column control (commands to the actuators); found {', '.join(log.columns) or 'none'}")
    column = measured(log, "control") if m.nu else np.zeros((len(log), 0))
    names = log.meta.get("names", {}).get("control")
    if names is None:
        if column.shape[1] != m.nu:
            raise LogError(
                f"column control: found {column.shape[1]} parts without names, expected {m.nu}, one for each "
                f"actuator: {', '.join(m.actuator(i).name for i in range(m.nu))}"
            )
        return column
    known = [m.actuator(i).name for i in range(m.nu)]
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
    m, n = world.model, len(rows)
    q, v = np.tile(m.qpos0, (n, 1)), np.zeros((n, m.nv))
    if "joint_pos" in log.columns:
        joints = joints_of(m, log, "joint_pos")
        q[:, m.jnt_qposadr[joints]] = measured(log, "joint_pos")[rows]
        if "joint_vel" not in log.columns:
            v[:, m.jnt_dofadr[joints]] = slope(log.time, measured(log, "joint_pos"))[rows]
    if "joint_vel" in log.columns:
        v[:, m.jnt_dofadr[joints_of(m, log, "joint_vel")]] = measured(log, "joint_vel")[rows]
    if has_base(m):
        places = {"base_pos": (q, 0, 3), "base_quat": (q, 3, 7), "base_lin_vel": (v, 0, 3), "base_ang_vel": (v, 3, 6)}
        for name, (into, a, b) in places.items():
            if name in log.columns:
                into[:, a:b] = measured(log, name)[rows]
        if "base_lin_vel" not in log.columns and "base_pos" in log.columns:
            v[:, :3] = slope(log.time, measured(log, "base_pos"))[rows]
    rows = np.asarray(rows)
    before = np.maximum(rows - 1, 0)
    before = np.where(log.time[rows] - log.time[before] > PAUSE / log.rate, rows, before)
    u = controls(world, log)[before]
    return Start(q, v, u, u.copy() if m.na == m.nu else None)


def settling(model: mujoco.MjModel, dt: float) -> int:
    """Rows until slow actuators have forgotten their first state, which is not measured."""
    return _rows(SETTLED * _slowest(model), dt)


def _rows(seconds: float, dt: float) -> int:
    return int(np.ceil(seconds / dt - 1e-9))


def _slowest(model: mujoco.MjModel) -> float:
    """The largest time constant of an actuator, s; 0 without actuator dynamics."""
    return float(model.actuator_dynprm[model.actuator_dyntype != mujoco.mjtDyn.mjDYN_NONE, 0].max(initial=0.0))


def remembered(world: World, e: np.ndarray | None = None) -> int:
    """Earlier rows of controls that still act through slow or delayed actuators, under any of e (m, ne), or any possible e.

    0 or 1 row needs none: every start has the control of the row before.
    """
    m = world.model
    high = {p.name: p.high if e is None else float(e[:, i].max()) for i, p in enumerate(world.params)}
    ways = {"set": lambda _, x: x, "scale": lambda own, x: own * x, "add": lambda own, x: own + x}
    slow, late = _slowest(m), float(m.actuator_delay.max(initial=0.0))
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
