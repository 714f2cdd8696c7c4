"""Suspects: what may be wrong with a machine, as numbers that would make its model, or its log, another.

A Knob is one number theta, 0 where nothing is wrong: of the model (an e), or of how the log is read (a sensor's bias). A Suspect is
a few knobs that turn together or each by itself: theta = B z, z to be fitted.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import mujoco
import numpy as np

from surefoot.doctor.evidence.innovations import Track, Variant, moved
from surefoot.fault import Fault
from surefoot.fault.usual import FEW, exchanges, signs
from surefoot.params import Param, Params
from surefoot.robot import kind_of
from surefoot.rotation import turned
from surefoot.sim.gap.recipe import Plain
from surefoot.world import Chance, OnForce, State

Reads = tuple[np.ndarray, np.ndarray, np.ndarray]  # q, v, u of every row
LONGEST = 0.12  # s: of a latency
DELAY = "delay of every control"


@dataclass(frozen=True)
class Knob:
    name: str
    step: float
    """how far it is turned to see what it does"""
    unit: str = ""
    param: Param | None = None
    read: Callable[[mujoco.MjModel, Reads, float], Reads] | None = None
    least: float = -np.inf
    most: float = np.inf

    def value(self, theta: float) -> float:
        """What the e of a param becomes: a multiple is exp(theta), which stays above 0."""
        assert self.param is not None
        return float(np.exp(theta)) if self.param.op == "scale" else self.param.nominal + theta

    def words(self, theta: float) -> str:
        theta = float(np.clip(theta, self.least, self.most))
        if self.param is not None and self.param.op == "scale":
            return f"{self.name} x {np.exp(theta):.3g}"
        return f"{self.name} {theta:+.3g} {self.unit}".rstrip()


@dataclass(frozen=True)
class Suspect:
    kind: str
    branch: str
    knobs: tuple[int, ...]
    """which knobs"""
    B: np.ndarray
    """(knobs, z)"""

    @property
    def size(self) -> int:
        return int(self.B.shape[1])


@dataclass(frozen=True)
class Suspects:
    knobs: tuple[Knob, ...]
    suspects: tuple[Suspect, ...]

    @property
    def params(self) -> Params:
        delay = Param(DELAY, "action_delay", 0.0, 0.0, LONGEST, op="add", unit="s")
        return Params((delay, *(k.param for k in self.knobs if k.param is not None)))

    def variant(self, at: Track, params: Params, theta: dict[int, float], latency: float = 0.0) -> Variant:
        """The log and the world with some knobs turned."""
        e = params.nominal.copy()
        e[0] = latency
        reads: Reads = (at.q, at.v, at.u)
        for i, value in theta.items():
            knob = self.knobs[i]
            value = float(np.clip(value, knob.least, knob.most))
            if knob.param is not None:
                p = params.index(knob.param.name)
                e[p] = np.clip(knob.value(value), knob.param.low, knob.param.high)
            if knob.read is not None and value:
                reads = knob.read(at.model, reads, value)
        q, v, u = reads
        return Variant(e, None if q is at.q else q, None if v is at.v else v, None if u is at.u else u)


def suspects(model: mujoco.MjModel) -> Suspects:
    """Every number of a model, and of its sensors, that deployments get wrong."""
    plain = Plain(model)
    kinds = [*_motors(plain), *_bodies(plain), *_friction(plain), *_air(plain), *_sensors(plain)]
    knobs: list[Knob] = []
    found: list[Suspect] = []
    names: dict[str, int] = {}
    for kind, branch, own, together in kinds:
        at = []
        for k in own:
            if k.name not in names:
                names[k.name] = len(knobs)
                knobs.append(k)
            at.append(names[k.name])
        found.append(Suspect(kind, branch, tuple(at), _turning(len(own), together)))
    return Suspects(tuple(knobs), tuple(found))


Turn = Literal["own", "same", "against"]
Kind = tuple[
    str, str, list[Knob], Turn
]  # kind, branch, knobs, and how they turn: each its own way, all the same, or against


def _turning(n: int, how: Turn) -> np.ndarray:
    """B (n, z)"""
    if how == "against":
        return np.array([[1.0], [-1.0]])
    return np.ones((n, 1)) if how == "same" else np.eye(n)


def _alike(names: list[str]) -> list[tuple[str, str]]:
    """(words, match): each by itself; of many, those of one kind together, as all knees."""
    if len(names) <= FEW:
        return [(n, re.escape(n)) for n in names]
    groups: dict[str, list[str]] = {}
    for n in names:
        groups.setdefault(kind_of(n), []).append(re.escape(n))
    return [(kind if len(own) == 1 else f"every {kind}", "|".join(own)) for kind, own in groups.items()]


def _scaled(name: str, target: str, match: str, step: float = 0.1) -> Knob:
    return Knob(name, step, "", Param(name, target, 1.0, 0.1, 10.0, match=match, op="scale"), least=-2.3, most=2.3)


def _each(kind: str, branch: str, knobs: list[Knob], together: bool = True) -> Iterator[Kind]:
    """Each knob alone, all by the same, and each by its own."""
    for k in knobs:
        yield kind, branch, [k], "own"
    if len(knobs) > 1:
        if together:
            yield kind, branch, knobs, "same"
        yield kind, branch, knobs, "own"


def _motors(plain: Plain) -> Iterator[Kind]:
    m = plain.model
    names = [m.actuator(i).name for i in range(m.nu)]
    servos = [d.actuator for d in plain.drives if d.servo]
    if servos and len(servos) == len(names):
        kp = [_scaled(f"kp of {n}", "kp", match) for n, match in _alike(names)]
        kd = [_scaled(f"kd of {n}", "kd", match) for n, match in _alike(names)]
        yield from _each("gain", "numbers", kp)
        yield from _each("gain", "numbers", kd)
        yield "gain", "numbers", kp + kd, "own"
    else:
        yield from _each(
            "gain", "numbers", [_scaled(f"strength of {n}", "strength", match) for n, match in _alike(names)]
        )
    if (m.actuator_dyntype != mujoco.mjtDyn.mjDYN_NONE).any():
        yield "motor time", "numbers", [_scaled("time constant of the motors", "motor_time", ".*")], "own"


def _bodies(plain: Plain) -> Iterator[Kind]:
    m = plain.model
    names = [m.body(b).name for b in plain.moving]
    mass = [_scaled(f"mass of {n}", "mass", match) for n, match in _alike(names)]
    yield from _each("mass", "numbers", mass, together=False)
    inertia = [_scaled(f"inertia of {n}", "inertia", match) for n, match in _alike(names)]
    yield from _each("inertia", "numbers", inertia, together=False)
    if plain.free is not None:  # a load at the middle: weight without inertia
        yield "mass", "numbers", [mass[0], inertia[0]], "against"
    shifts = []
    heavy = plain.moving if len(names) <= FEW else plain.moving[[int(np.argmax(m.body_mass[plain.moving]))]]
    for b, n in ((b, m.body(b).name) for b in heavy):
        size = float(np.sqrt(m.body_inertia[b].max() / m.body_mass[b])) or 0.01
        own = [
            Knob(f"centre of mass of {n}, {axis}", 0.05 * size, "m",
                 Param(f"com_{axis} of {n}", f"com_{axis}", 0.0, -3 * size, 3 * size, match=re.escape(n), op="add"))
            for axis in "xyz"
        ]  # fmt: skip
        yield "centre of mass", "numbers", own, "own"
        shifts += own
    if len(heavy) > 1:
        yield "centre of mass", "numbers", shifts, "own"
    yield "gravity", "numbers", [_scaled("gravity", "gravity", ".*", 0.02)], "own"


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
        yield "contact friction", "numbers", [_scaled("friction on the ground", "friction", match)], "own"


def _more(name: str, target: str, match: str, step: float, low: float, high: float, unit: str) -> Knob:
    return Knob(name, step, unit, Param(name, target, 0.0, -low, high, match=match, op="add"), least=-low)


def _air(plain: Plain) -> Iterator[Kind]:
    yield (
        "drag",
        "physics",
        [
            Knob(
                "density of the air",
                2.0,
                "kg/m^3",
                Param("density of the air", "air_density", 0.0, 0.0, 1e3, op="add"),
                least=0.0,
            )
        ],
        "own",
    )
    m = plain.model
    for j in plain.joints if len(plain.joints) <= FEW else ():
        n, c = m.joint(j).name, 0.02 * plain.load(j)
        yield "drag", "physics", [_quadratic(n, c, "N m s^2/rad^2")], "own"
    if plain.free is not None:
        n = plain.model.joint(plain.free).name
        b = 0.1 * float(plain.model.body_subtreemass[plain.model.jnt_bodyid[plain.free]])
        yield (
            "drag",
            "physics",
            [
                Knob(
                    "linear drag",
                    b,
                    "N s/m",
                    Param("linear drag", "drag", 0.0, 0.0, 1e3 * b, match=re.escape(n), op="add"),
                    least=0.0,
                )
            ],
            "own",
        )
        yield "drag", "physics", [_quadratic(n, b, "N s^2/m^2")], "own"


def _drag_of(joint: str) -> str:
    return f"quadratic drag of {joint}"


def _quadratic(joint: str, step: float, unit: str) -> Knob:
    name = _drag_of(joint)
    return Knob(
        name, step, unit, Param(name, "task", 0.0, 0.0, 1e4 * step, match=re.escape(joint), op="set"), least=0.0
    )


@dataclass(frozen=True)
class Drag(OnForce):
    """-c |v| v of each joint, and of a free base along its travel, where some e is its c."""

    parts: tuple[tuple[int, slice], ...]  # place in e, degrees of freedom

    def __call__(self, x: State, u: np.ndarray, chance: Chance) -> np.ndarray:
        force = np.zeros_like(x.v)
        for i, at in self.parts:
            v = x.v[:, at]
            force[:, at] -= x.e[:, i, None] * np.linalg.norm(v, axis=1, keepdims=True) * v
        return force


def drags(model: mujoco.MjModel, params: Params) -> Drag:
    """Of every joint whose drag is among the params."""
    parts = []
    for j in map(model.joint, range(model.njnt)):
        if _drag_of(j.name) in params.names:
            place = slice(int(j.dofadr[0]), int(j.dofadr[0]) + (3 if len(j.qpos0) == 7 else 1))
            parts.append((params.index(_drag_of(j.name)), place))
    return Drag(tuple(parts))


def _sensors(plain: Plain) -> Iterator[Kind]:
    m = plain.model
    groups: dict[str, list[Knob]] = {}
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
        yield "sensor bias", "sensors", [k for own in groups.values() for k in own], "own"
    servos = [d for d in plain.drives if d.servo and len(plain.joints) <= FEW]
    zeros = [_zero(f"zero of {d.joint}", d.dof, int(m.actuator_ctrladr[d.number]), d.gear) for d in servos]
    yield from _each("encoder offset", "sensors", zeros)
    if plain.free is not None:
        yield (
            "imu misalignment",
            "sensors",
            [_askew(f"IMU turned about {a}", k, int(m.jnt_dofadr[plain.free])) for k, a in enumerate("xyz")],
            "own",
        )


def _bias(name: str, dof: int, place: bool) -> Knob:
    """Readings are theta above the truth: the truth is what was read, less theta."""

    def read(model: mujoco.MjModel, at: Reads, theta: float) -> Reads:
        q, v, u = at
        shift = np.zeros((len(v), model.nv))
        shift[:, dof] = -theta
        return (moved(model, q, shift), v, u) if place else (q, v + shift, u)

    return Knob(name, 0.01, "", read=read)


def _zero(name: str, dof: int, control: int, gear: float) -> Knob:
    """An encoder's zero is off by theta, and the servo trusts it: the joint is held at u - theta."""

    def read(model: mujoco.MjModel, at: Reads, theta: float) -> Reads:
        q, v, u = at
        shift, told = np.zeros((len(v), model.nv)), u.copy()
        shift[:, dof] = -theta
        told[:, control] -= gear * theta
        return moved(model, q, shift), v, told

    return Knob(name, 0.01, "rad or m", read=read)


def _askew(name: str, axis: int, dof: int) -> Knob:
    """Attitude and rates are told in a frame turned by theta: R' = R D, w' = D^T w."""

    def read(model: mujoco.MjModel, at: Reads, theta: float) -> Reads:
        q, v, u = at
        a = int(model.jnt_qposadr[model.dof_jntid[dof]]) + 3
        r = np.zeros((len(q), 3))
        r[:, axis] = -theta
        q, v = q.copy(), v.copy()
        q[:, a : a + 4] = turned(q[:, a : a + 4], r)
        w = v[:, dof + 3 : dof + 6].copy()
        i, j = (axis + 1) % 3, (axis + 2) % 3
        c, s = np.cos(theta), np.sin(theta)
        v[:, dof + 3 + i], v[:, dof + 3 + j] = c * w[:, i] - s * w[:, j], s * w[:, i] + c * w[:, j]
        return q, v, u

    return Knob(name, 0.01, "rad", read=read)


def wirings(model: mujoco.MjModel) -> Iterator[Fault]:
    """Controls that reach another motor, or their own with its sign turned."""
    names = [model.actuator(i).name for i in range(model.nu)]
    yield from exchanges("control", names, "motors {} and {} exchanged", alike=True)
    limited = model.actuator_ctrllimited.astype(bool)[:, None]
    low, high = np.where(limited, model.actuator_ctrlrange, (-1.0, 1.0)).T
    able = (model.actuator_biasprm[:, 1] >= 0) & (low < 0) & (high > 0)  # a servo's sign is its encoder's, too
    yield from (f for f, may in zip(signs("control", names, "motor {} turned"), able) if may)
