"""Motions that a machine may be asked to make: their shapes, and the limits they have to keep.

    u(t) = home + w(t) (g(t) - home),   low <= g <= high,   w: 0 at both ends, 1 between, smooth

So every motion starts and ends at home with no speed, and no control ever leaves its range. g is a sum of sines or a
spline of knots; x (nu, k) in 0..1 are its numbers, which a search moves.
"""

from dataclasses import dataclass
from typing import Any, Literal

import mujoco
import numpy as np

from surefoot.control import splines
from surefoot.errors import SurefootError, unknown
from surefoot.params import Params
from surefoot.real2sim.plant import world as world_of
from surefoot.real2sim.signals import has_base, movable
from surefoot.sim.engine import Engine
from surefoot.world import Chance, Motion, Start, World

FORCE, TOUCH = "actuator_force", "touching"  # sensors added to a model, so that its limits can be seen
SETTLE = 3.0  # s held at home before a motion begins
STILL = 0.02  # rad/s or m/s: settled
TOUCHED = 0.1  # what a contact counts, as a share of a limit, beside how long it lasts


@dataclass(frozen=True)
class Limits:
    """What a motion may ask of a machine."""

    seconds: float = 4.0
    """how long it takes, s"""
    speed: float = 8.0
    """largest joint speed, rad/s or m/s"""
    torque: float = 0.9
    """largest actuator force, as a share of what the model says it has"""
    margin: float = 0.05
    """kept from the ends of each joint's range, as a share of it"""
    reach: float = 0.8
    """how far a servo's target may go from home where its joint has no range, rad or m"""
    tilt: float = 0.5
    """largest lean of a free base, rad"""

    def __post_init__(self) -> None:
        for name in ("seconds", "speed", "torque", "reach", "tilt"):
            if not getattr(self, name) > 0:
                raise SurefootError(f"limits.{name}: found {getattr(self, name)}, expected more than 0")
        if not 0 <= self.margin < 0.5:
            raise SurefootError(f"limits.margin: found {self.margin}, expected a share from 0 to below 0.5")


@dataclass(frozen=True)
class Shape:
    """What g is made of."""

    kind: Literal["sines", "spline"] = "sines"
    """a sum of sines, or a cubic spline"""
    count: int = 2
    """sines of each actuator; a spline has three knots for each second, whatever this says"""
    slowest: float = 0.2
    """Hz, of a sine"""
    fastest: float = 3.0
    """Hz, of a sine"""

    def size(self, seconds: float) -> int:
        """Numbers for each actuator."""
        if self.kind not in ("sines", "spline"):
            raise unknown("shape", self.kind, ["sines", "spline"])
        return 1 + 3 * self.count if self.kind == "sines" else max(3, round(3 * seconds))

    def drawn(self, rng: np.random.Generator, n: int, nu: int, seconds: float) -> np.ndarray:
        """(n, nu * size) motions of every kind, every other one of them of any size: large ones seldom keep the limits."""
        x = rng.random((n, nu, self.size(seconds)))
        size = np.where(np.arange(n) % 2, 1.0, rng.random(n))[:, None, None]
        moved, rest = (x[..., : 1 + self.count] if self.kind == "sines" else x), np.array(0.5)
        if self.kind == "sines":
            rest = np.r_[0.5, np.zeros(self.count)]  # no offset, no amplitude
        moved[:] = rest + size * (moved - rest)
        return x.reshape(n, -1)

    def controls(self, x: np.ndarray, range_: "Range", time: np.ndarray) -> np.ndarray:
        """(n, nu * size) numbers in 0..1 -> (n, T, nu) controls."""
        n, seconds, nu = len(x), float(time[-1] - time[0]), len(range_.home)
        x = x.reshape(n, nu, self.size(seconds))
        if self.kind == "spline":
            g = np.swapaxes(splines.expand(np.swapaxes(2 * x - 1, 1, 2), len(time), rest=True), 1, 2).clip(-1, 1)
        else:
            g = self._sines(x, time - time[0])
        middle, half = (range_.low + range_.high) / 2, (range_.high - range_.low) / 2
        u = range_.home + ramp(time)[:, None] * (middle - range_.home + half * np.swapaxes(g, 1, 2))
        return np.clip(u, range_.low, range_.high)  # rounding alone

    def _sines(self, x: np.ndarray, t: np.ndarray) -> np.ndarray:
        """(n, nu, T) within -1..1: an offset and sines whose amplitudes and offset together never pass 1."""
        offset = 2 * x[..., :1] - 1
        size, pace, phase = np.split(x[..., 1:], 3, -1)  # (n, nu, count) each
        hz = self.slowest * (self.fastest / self.slowest) ** pace
        total = np.maximum(1.0, np.abs(offset) + size.sum(-1, keepdims=True))
        waves = np.sin(2 * np.pi * (hz[..., None] * t + phase[..., None]))  # (n, nu, count, T)
        return (offset + (size[..., None] * waves).sum(-2)) / total


@dataclass(frozen=True)
class Explore:
    """How to look for the motion."""

    objective: Literal["logdet", "a", "trace"] = "logdet"
    """what to make large: logdet (D-optimal), a (A-optimal, mean square error), trace (of the information)"""
    over: Literal["mean", "worst"] = "mean"
    """of the samples of e: tell most on average, or in the worst of them"""
    samples: int = 3
    """samples of e at which the search asks what a motion tells"""
    wary: int = 8
    """more samples at which the search asks whether it keeps the limits"""
    verify: int = 32
    """samples of e on which the chosen motion has to keep the limits"""
    iterations: int = 24
    """rounds of the search"""
    population: int = 40
    """motions tried in each round"""
    seed: int = 0
    """of the search and of the samples of e"""

    def __post_init__(self) -> None:
        for name in ("samples", "wary", "verify"):
            if getattr(self, name) < 1:
                raise SurefootError(f"explore.{name}: found {getattr(self, name)}, expected at least 1")
        if self.over not in ("mean", "worst"):
            raise SurefootError(f"explore.over: found {self.over!r}, expected mean or worst")


def ramp(time: np.ndarray) -> np.ndarray:
    """w (T,): half a cosine up and down, half a second each, or a fifth of a short motion."""
    t, seconds = time - time[0], float(time[-1] - time[0])
    edge = min(0.5, seconds / 5)
    return 0.5 - 0.5 * np.cos(np.pi * np.clip(np.minimum(t, seconds - t) / edge, 0.0, 1.0))


@dataclass(frozen=True)
class Range:
    """Where each actuator's control may go, (nu,) each."""

    home: np.ndarray
    low: np.ndarray
    high: np.ndarray


def is_servo(model: mujoco.MjModel, i: int) -> bool:
    """Is its control the position of a joint?"""
    on_joint = model.actuator_trntype[i] == mujoco.mjtTrn.mjTRN_JOINT
    return bool(on_joint and model.actuator_biasprm[i, 1] < 0 and model.actuator_gainprm[i, 0] > 0)


def control_range(model: mujoco.MjModel, home: np.ndarray, limits: Limits) -> Range:
    """A servo's target within its joint's range less the margin; a motor's force within the share it may use."""
    low, high = np.full(model.nu, -np.inf), np.full(model.nu, np.inf)
    for i in range(model.nu):
        if model.actuator_ctrllimited[i]:
            low[i], high[i] = model.actuator_ctrlrange[i]
        if is_servo(model, i):
            j = int(model.actuator_trnid[i, 0])
            a, b = model.jnt_range[j] if model.jnt_limited[j] else home[i] + limits.reach * np.array([-1.0, 1.0])
            inset = limits.margin * (b - a) if model.jnt_limited[j] else 0.0
            low[i], high[i] = max(low[i], a + inset), min(high[i], b - inset)
        elif model.actuator_forcelimited[i] and model.actuator_gainprm[i, 0] > 0:
            a, b = limits.torque * model.actuator_forcerange[i] / model.actuator_gainprm[i, 0]
            low[i], high[i] = max(low[i], a), min(high[i], b)
        if not (np.isfinite([low[i], high[i]]).all() and low[i] < high[i]):
            name = model.actuator(i).name or i
            raise SurefootError(f"actuator {name}: found no range of control, expected ctrlrange or forcerange")
    return Range(np.clip(home, low, high), low, high)


def instrumented(spec: mujoco.MjSpec) -> mujoco.MjSpec:
    """The model with sensors for its actuators' forces and for contacts that a motion must not make.

    A machine with a free base must not touch itself; one that is held must not touch anything.
    """
    for i, actuator in enumerate(spec.actuators):
        actuator.name = actuator.name or f"actuator_{i}"
        spec.add_sensor(
            name=f"{FORCE}/{actuator.name}", type=mujoco.mjtSensor.mjSENS_ACTUATORFRC,
            objtype=mujoco.mjtObj.mjOBJ_ACTUATOR, objname=actuator.name,
        )  # fmt: skip
    for i, body in enumerate(spec.worldbody.bodies):
        body.name = body.name or f"root_{i}"
        kind = {"objtype": mujoco.mjtObj.mjOBJ_XBODY, "objname": body.name}
        if any(j.type == mujoco.mjtJoint.mjJNT_FREE for j in body.joints):
            kind |= {"reftype": mujoco.mjtObj.mjOBJ_XBODY, "refname": body.name}
        found = [1 << int(mujoco.mjtConDataField.mjCONDATA_FOUND), 0, 1]
        spec.add_sensor(name=f"{TOUCH}/{body.name}", type=mujoco.mjtSensor.mjSENS_CONTACT, intprm=found, **kind)
    return spec


def machine(spec: mujoco.MjSpec, params: Params, rate: float) -> Engine:
    """A World of the model at a control rate, Hz, in which limits can be seen."""
    return world_of(instrumented(spec), params, 1 / rate)


@dataclass(frozen=True)
class Guard:
    """How far motions are outside a machine's limits."""

    limits: Limits
    joints: np.ndarray  # places in q of joints that have a range
    dofs: np.ndarray  # places in v of the joints whose speed counts
    low: np.ndarray
    high: np.ndarray
    force: np.ndarray  # (nu,) largest force; inf where the model has none
    base: bool

    def each(self, motion: Motion) -> dict[str, np.ndarray]:
        """Limit -> (n,) the most it was used, as a share of it; a contact counts from 1 on."""
        n, width = len(motion.q), self.high - self.low
        q, v = motion.q[..., self.joints], motion.v[..., self.dofs]
        most = lambda a: a.reshape(n, -1).max(1, initial=0.0)  # noqa: E731
        used = {"position": most(np.abs(2 * (q - self.low) / width - 1)) if len(width) else np.zeros(n)}
        used["speed"] = most(np.abs(v)) / self.limits.speed
        if FORCE in motion.y:
            used["torque"] = most(np.abs(motion.y[FORCE]) / self.force) / self.limits.torque
        if TOUCH in motion.y:
            touching = (motion.y[TOUCH] > 0).any(-1).mean(-1)
            used["contact"] = np.where(touching > 0, 1 + TOUCHED + touching, 0.0)
        if self.base:
            w, x, y, z = np.moveaxis(motion.q[..., 3:7], -1, 0)
            used["tilt"] = most(np.arccos(np.clip(1 - 2 * (x * x + y * y), -1, 1))) / self.limits.tilt
        return used

    def __call__(self, motion: Motion) -> np.ndarray:
        """(n,) sum over the limits of how far beyond each, as a share of it; 0 within them all."""
        over = [np.maximum(np.nan_to_num(used, nan=np.inf) - 1, 0.0) for used in self.each(motion).values()]
        return np.sum(over, 0)


def guard(model: mujoco.MjModel, limits: Limits) -> Guard:
    joints = movable(model)
    limited = [j for j in joints if model.jnt_limited[j]]
    low, high = model.jnt_range[limited].T
    inset = limits.margin / 2 * (high - low)  # targets keep the whole margin, so that what follows them may overshoot
    force = np.where(model.actuator_forcelimited.astype(bool), np.abs(model.actuator_forcerange).max(1), np.inf)
    at, dofs = model.jnt_qposadr[limited], model.jnt_dofadr[joints]
    return Guard(limits, at, dofs, low + inset, high - inset, force, has_base(model))


def home(model: mujoco.MjModel) -> Start:
    """The first keyframe, or the default pose with every servo told to hold it."""
    q = (model.key_qpos[0] if model.nkey else model.qpos0).copy()
    u = model.key_ctrl[0].copy() if model.nkey else np.zeros(model.nu)
    for i in range(model.nu):
        if not model.nkey and is_servo(model, i):
            u[i] = q[model.jnt_qposadr[int(model.actuator_trnid[i, 0])]]
    return Start(q[None], np.zeros((1, model.nv)), u[None])


def settled(world: World, e: np.ndarray, start: Start) -> Start:
    """Where it comes to rest when told to hold home: servos give way under gravity. The start itself where it does not."""
    one, steps = world.with_(1), round(SETTLE / world.dt)
    one.reset(np.arange(1), e[None], start)
    motion = one.rollout(np.repeat(start.u[:, None], steps, 1), Chance(0, 0, world.dt))
    if motion.diverged.any() or np.abs(motion.v[:, -1]).max(initial=0.0) > STILL:
        return start
    act = motion.act[:, -1].copy() if world.model.na else None
    return Start(motion.q[:, -1].copy(), np.zeros_like(start.v), start.u, act)


def names_of(model: mujoco.MjModel) -> dict[str, Any]:
    return {"control": [model.actuator(i).name for i in range(model.nu)]}
