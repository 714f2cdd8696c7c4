"""Model errors: which numbers of a model, or of its sensors, may be wrong.

A Deviation is one number theta, 0 where nothing is wrong: of the model (an e), or of a sensor (its bias corrects the log). A
ModelError is a few deviations, which change together or independently: theta = B z, with z to be fitted.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import mujoco
import numpy as np

from surefoot.doctor.evidence.innovations import Segments, Variant
from surefoot.fault import Fault
from surefoot.fault.joint_orders import FEW, exchanges, signs
from surefoot.params import Param, Params
from surefoot.robot import Layout, kind_of
from surefoot.rotation import turned
from surefoot.sim.engine import Engine, Law
from surefoot.sim.fields.compile import compile_for
from surefoot.sim.gap.recipe import Plain
from surefoot.sim.model.load import load_robot
from surefoot.task import Task
from surefoot.world import Chance, OnForce, State

Rows = tuple[np.ndarray, np.ndarray, np.ndarray]  # q, v, u of every row
LONGEST = 0.12  # s: largest latency
DELAY = "delay of every control"


@dataclass(frozen=True)
class Deviation:
    name: str
    step: float
    """of finite differences"""
    unit: str = ""
    param: Param | None = None
    correct: Callable[[Layout, Rows, float], Rows] | None = None
    """of a sensor: the log's rows without it"""
    least: float = -np.inf
    most: float = np.inf

    def value(self, theta: float) -> float:
        """Of the param: a multiple is exp(theta), which stays above 0."""
        assert self.param is not None
        return float(np.exp(theta)) if self.param.op == "scale" else self.param.nominal + theta

    def words(self, theta: float) -> str:
        theta = float(np.clip(theta, self.least, self.most))
        if self.param is not None and self.param.op == "scale":
            return f"{self.name} x {np.exp(theta):.3g}"
        return f"{self.name} {theta:+.3g} {self.unit}".rstrip()


@dataclass(frozen=True)
class ModelError:
    kind: str
    branch: str
    deviations: tuple[int, ...]
    """by number"""
    B: np.ndarray
    """(deviations, z)"""

    @property
    def size(self) -> int:
        return int(self.B.shape[1])


@dataclass(frozen=True)
class ModelErrors:
    deviations: tuple[Deviation, ...]
    errors: tuple[ModelError, ...]

    @cached_property
    def params(self) -> Params:
        delay = Param(DELAY, "action_delay", 0.0, 0.0, LONGEST, op="add", unit="s")
        return Params((delay, *(d.param for d in self.deviations if d.param is not None)))

    def variant(self, at: Segments, theta: dict[int, float], latency: float = 0.0) -> Variant:
        """The log and the world with some deviations, by number."""
        e = self.params.nominal.copy()
        e[0] = latency
        rows: Rows = (at.q, at.v, at.u)
        for i, value in theta.items():
            d = self.deviations[i]
            value = float(np.clip(value, d.least, d.most))
            if d.param is not None:
                e[self.params.index(d.param.name)] = np.clip(d.value(value), d.param.low, d.param.high)
            if d.correct is not None and value:
                rows = d.correct(at.layout, rows, value)
        q, v, u = rows
        return Variant(e, None if q is at.q else q, None if v is at.v else v, None if u is at.u else u)


def model_errors(model: mujoco.MjModel) -> ModelErrors:
    """Every number of a model, and of its sensors, that deployments get wrong."""
    plain = Plain(model)
    kinds = [*_motors(plain), *_bodies(plain), *_friction(plain), *_air(plain), *_sensors(plain)]
    by_name = {d.name: d for _, _, own, _ in kinds for d in own}
    number = {name: i for i, name in enumerate(by_name)}
    errors = [ModelError(k, branch, tuple(number[d.name] for d in own), _mixing(len(own), how)) for k, branch, own, how in kinds]  # fmt: skip
    return ModelErrors(tuple(by_name.values()), tuple(errors))


How = Literal["independent", "equal", "opposite"]
Kind = tuple[str, str, list[Deviation], How]  # kind, branch, deviations, and how they change


def _mixing(n: int, how: How) -> np.ndarray:
    """B (n, z)"""
    if how == "opposite":
        return np.array([[1.0], [-1.0]])
    return np.ones((n, 1)) if how == "equal" else np.eye(n)


def _alike(names: list[str]) -> list[tuple[str, str]]:
    """(words, match): each by itself; of many, those of one kind together, such as all knees."""
    if len(names) <= FEW:
        return [(n, re.escape(n)) for n in names]
    groups: dict[str, list[str]] = {}
    for n in names:
        groups.setdefault(kind_of(n), []).append(re.escape(n))
    return [(kind if len(own) == 1 else f"every {kind}", "|".join(own)) for kind, own in groups.items()]


def _scaled(name: str, target: str, match: str, step: float = 0.1) -> Deviation:
    return Deviation(name, step, "", Param(name, target, 1.0, 0.1, 10.0, match=match, op="scale"), least=-2.3, most=2.3)


def _each(kind: str, branch: str, own: list[Deviation], together: bool = True) -> Iterator[Kind]:
    """Each alone, all by the same amount, and all independently."""
    for d in own:
        yield kind, branch, [d], "independent"
    if len(own) > 1:
        if together:
            yield kind, branch, own, "equal"
        yield kind, branch, own, "independent"


def _motors(plain: Plain) -> Iterator[Kind]:
    m = plain.model
    names = [m.actuator(i).name for i in range(m.nactuator)]
    servos = [d.actuator for d in plain.drives if d.servo]
    if servos and len(servos) == len(names):
        kp = [_scaled(f"kp of {n}", "kp", match) for n, match in _alike(names)]
        kd = [_scaled(f"kd of {n}", "kd", match) for n, match in _alike(names)]
        yield from _each("gain", "numbers", kp)
        yield from _each("gain", "numbers", kd)
        yield "gain", "numbers", kp + kd, "independent"
    else:
        yield from _each(
            "gain", "numbers", [_scaled(f"strength of {n}", "strength", match) for n, match in _alike(names)]
        )
    if (m.actuator_dyntype != mujoco.mjtDyn.mjDYN_NONE).any():
        yield "motor time", "numbers", [_scaled("time constant of the motors", "motor_time", ".*")], "independent"


def _bodies(plain: Plain) -> Iterator[Kind]:
    m = plain.model
    names = [m.body(b).name for b in plain.moving]
    mass = [_scaled(f"mass of {n}", "mass", match) for n, match in _alike(names)]
    yield from _each("mass", "numbers", mass, together=False)
    inertia = [_scaled(f"inertia of {n}", "inertia", match) for n, match in _alike(names)]
    yield from _each("inertia", "numbers", inertia, together=False)
    if plain.free is not None:  # a load at the centre: mass without inertia
        yield "mass", "numbers", [mass[0], inertia[0]], "opposite"
    shifts = []
    heavy = plain.moving if len(names) <= FEW else plain.moving[[int(np.argmax(m.body_mass[plain.moving]))]]
    for b, n in ((b, m.body(b).name) for b in heavy):
        size = float(np.sqrt(m.body_inertia[b].max() / m.body_mass[b])) or 0.01
        own = [
            Deviation(f"centre of mass of {n}, {axis}", 0.05 * size, "m",
                 Param(f"com_{axis} of {n}", f"com_{axis}", 0.0, -3 * size, 3 * size, match=re.escape(n), op="add"))
            for axis in "xyz"
        ]  # fmt: skip
        yield "centre of mass", "numbers", own, "independent"
        shifts += own
    if len(heavy) > 1:
        yield "centre of mass", "numbers", shifts, "independent"
    yield "gravity", "numbers", [_scaled("gravity", "gravity", ".*", 0.02)], "independent"


def _friction(plain: Plain) -> Iterator[Kind]:
    m = plain.model
    driven = {d.joint for d in plain.drives}
    joints = {m.joint(j).name: j for j in plain.joints}
    viscous, dry = [], []
    for words, match in _alike(list(joints)):
        own = [j for n, j in joints.items() if re.fullmatch(match, n)]
        scale = min(plain.load(j) for j in own)
        low = float(m.dof_damping[m.jnt_dofadr[own]].min())
        viscous.append(_more(f"damping of {words}", "damping", match, 0.02 * scale, low, 10 * scale, "N m s/rad"))
        if any(m.joint(j).name in driven for j in own):
            low = float(m.dof_frictionloss[m.jnt_dofadr[own]].min())
            dry.append(_more(f"dry friction of {words}", "frictionloss", match, 0.02 * scale, low, scale, "N m"))
    yield from _each("friction", "numbers", viscous)
    yield from _each("stiction", "physics", dry)
    feet = [m.geom(g).name for g in plain.touching if m.geom(g).name and m.body_weldid[m.geom_bodyid[g]]]
    if feet:
        match = "|".join(map(re.escape, feet))
        yield "contact friction", "numbers", [_scaled("friction on the ground", "friction", match)], "independent"


def _more(name: str, target: str, match: str, step: float, low: float, high: float, unit: str) -> Deviation:
    return Deviation(name, step, unit, Param(name, target, 0.0, -low, high, match=match, op="add"), least=-low)


def _air(plain: Plain) -> Iterator[Kind]:
    air = Param("density of the air", "air_density", 0.0, 0.0, 1e3, op="add")
    yield "drag", "physics", [Deviation(air.name, 2.0, "kg/m^3", air, least=0.0)], "independent"
    m = plain.model
    for j in plain.joints if len(plain.joints) <= FEW else ():
        n, c = m.joint(j).name, 0.02 * plain.load(j)
        yield "drag", "physics", [_quadratic(n, c, "N m s^2/rad^2")], "independent"
    if plain.free is not None:
        n = plain.model.joint(plain.free).name
        b = 0.1 * float(plain.model.body_subtreemass[plain.model.jnt_bodyid[plain.free]])
        linear = Param("linear drag", "drag", 0.0, 0.0, 1e3 * b, match=re.escape(n), op="add")
        yield "drag", "physics", [Deviation(linear.name, b, "N s/m", linear, least=0.0)], "independent"
        yield "drag", "physics", [_quadratic(n, b, "N s^2/m^2")], "independent"


def _drag_of(joint: str) -> str:
    return f"quadratic drag of {joint}"


def _quadratic(joint: str, step: float, unit: str) -> Deviation:
    param = Param(_drag_of(joint), "task", 0.0, 0.0, 1e4 * step, match=re.escape(joint), op="set")
    return Deviation(param.name, step, unit, param, least=0.0)


@dataclass(frozen=True)
class Drag(OnForce):
    """-c |v| v on each joint, and on a free base along its velocity; c is an e."""

    parts: tuple[tuple[int, slice], ...]  # place in e, degrees of freedom

    def __call__(self, x: State, u: np.ndarray, chance: Chance) -> np.ndarray:
        force = np.zeros_like(x.v)
        for i, at in self.parts:
            v = x.v[:, at]
            force[:, at] -= x.e[:, i, None] * np.linalg.norm(v, axis=1, keepdims=True) * v
        return force


def drags(model: mujoco.MjModel, params: Params) -> Drag:
    """On every joint whose drag is among the params."""
    parts = []
    for j in map(model.joint, range(model.njnt)):
        if _drag_of(j.name) in params.names:
            place = slice(int(j.dofadr[0]), int(j.dofadr[0]) + (3 if len(j.qpos0) == 7 else 1))
            parts.append((params.index(_drag_of(j.name)), place))
    return Drag(tuple(parts))


def _sensors(plain: Plain) -> Iterator[Kind]:
    m = plain.model
    groups: dict[str, list[Deviation]] = {}
    for j in range(m.njnt):
        d, n = int(m.jnt_dofadr[j]), m.joint(j).name
        if m.jnt_type[j] == mujoco.mjtJoint.mjJNT_FREE:
            parts = {"attitude": (True, 3), "lin_vel": (False, 0), "ang_vel": (False, 3)}
            for name, (place, first) in parts.items():
                groups[name] = [_bias(f"{name} {a}", d + first + k, place) for k, a in enumerate("xyz")]
        elif len(plain.joints) <= FEW:
            groups.setdefault("joint_pos", []).append(_bias(f"position of {n}", d, True))
            groups.setdefault("joint_vel", []).append(_bias(f"speed of {n}", d, False))
    for own in groups.values():
        yield from _each("sensor bias", "sensors", own)
    if len(groups) > 1:
        yield "sensor bias", "sensors", [d for own in groups.values() for d in own], "independent"
    servos = [d for d in plain.drives if d.servo and len(plain.joints) <= FEW]
    zeros = [_zero(f"zero of {d.joint}", d.dof, int(m.actuator_ctrladr[d.number]), d.gear) for d in servos]
    yield from _each("encoder offset", "sensors", zeros)
    if plain.free is not None:
        turns = [_misaligned(f"IMU rotation about {a}", k, int(m.jnt_dofadr[plain.free])) for k, a in enumerate("xyz")]
        yield "imu misalignment", "sensors", turns, "independent"


def _bias(name: str, dof: int, place: bool) -> Deviation:
    """Readings are the truth plus theta."""

    def correct(layout: Layout, at: Rows, theta: float) -> Rows:
        q, v, u = at
        shift = np.zeros_like(v)
        shift[:, dof] = -theta
        return (layout.moved(q, shift), v, u) if place else (q, v + shift, u)

    return Deviation(name, 0.01, "", correct=correct)


def _zero(name: str, dof: int, control: int, gear: float) -> Deviation:
    """An encoder's zero is off by theta and its servo uses it: the servo holds the joint at u - theta."""

    def correct(layout: Layout, at: Rows, theta: float) -> Rows:
        q, v, u = at
        shift, target = np.zeros_like(v), u.copy()
        shift[:, dof] = -theta
        target[:, control] -= gear * theta
        return layout.moved(q, shift), v, target

    return Deviation(name, 0.01, "rad or m", correct=correct)


def _misaligned(name: str, axis: int, dof: int) -> Deviation:
    """Attitude and rates are read in a frame turned by theta: R' = R D, w' = D^T w."""

    def correct(layout: Layout, at: Rows, theta: float) -> Rows:
        q, v, u = at
        a = next(a for a, b in layout.quats if b == dof + 3)
        r = np.zeros((len(q), 3))
        r[:, axis] = -theta
        q, v = q.copy(), v.copy()
        q[:, a : a + 4] = turned(q[:, a : a + 4], r)
        w = v[:, dof + 3 : dof + 6].copy()
        i, j = (axis + 1) % 3, (axis + 2) % 3
        c, s = np.cos(theta), np.sin(theta)
        v[:, dof + 3 + i], v[:, dof + 3 + j] = c * w[:, i] - s * w[:, j], s * w[:, i] + c * w[:, j]
        return q, v, u

    return Deviation(name, 0.01, "rad", correct=correct)


def wiring_faults(layout: Layout) -> Iterator[Fault]:
    """Controls that reach another motor, or a motor that is reversed."""
    names, servos = list(layout.actuators), {d.control for d in layout.drives if d.kp > 0}
    yield from exchanges("control", names, "motors {} and {} are exchanged", alike=True)
    able = [
        low < 0 < high and k not in servos for k, (low, high) in enumerate(layout.control_limits)
    ]  # of a servo, the encoder's sign, too
    yield from (f for f, may in zip(signs("control", names, "motor {} is reversed"), able) if may)


def errors_of(task: Task) -> ModelErrors:
    return model_errors(compile_for(load_robot(task.robot).spec, task.params))


def world_with(task: Task, errors: ModelErrors, n: int = 1) -> Engine:
    """The task's world with every number that may be wrong as an e."""
    model = compile_for(load_robot(task.robot).spec, errors.params)
    return Engine(model, errors.params, n, task.substeps, 1, (drags(model, errors.params),), Law(task.explicit))
