"""Excitation motions: their shapes, and the limits they keep.

    u(t) = home + w(t) (g(t) - home),   low <= g <= high,   w: 0 at both ends, 1 between, smooth

So every motion starts and ends at home at zero speed, and no control leaves its range. g is a sum of sines or a spline
of knots; a search varies its parameters x (nu, k), each in 0..1.
"""

from dataclasses import dataclass
from typing import Literal

import mujoco
import numpy as np

from surefoot.errors import SurefootError, unknown
from surefoot.params import Params
from surefoot.real2sim.plant import world as world_of
from surefoot.sim.engine import Engine
from surefoot.sim.gap.recipe import Plain
from surefoot.sim.layout import layout_of
from surefoot.world import Chance, Motion, Start, World

FORCE, TOUCH = "actuator_force", "touching"  # sensors added to a model, so that limits can be checked
SETTLE = 3.0  # s at home before a motion begins
STILL = 0.02  # rad/s or m/s: settled
TOUCHED = 0.1  # fraction of a limit that a contact adds, besides its duration


@dataclass(frozen=True)
class Limits:
    """Limits that a motion keeps."""

    seconds: float = 4.0
    """duration of the motion, s"""
    speed: float = 8.0
    """largest joint speed, rad/s or m/s"""
    torque: float = 0.9
    """largest actuator force, as a fraction of the model's force range"""
    margin: float = 0.05
    """distance from the ends of each joint's range, as a fraction of it"""
    reach: float = 0.8
    """largest distance of a servo's target from home where its joint has no range, rad or m"""
    tilt: float = 0.5
    """largest lean of a free base, rad"""

    def __post_init__(self) -> None:
        for name in ("seconds", "speed", "torque", "reach", "tilt"):
            if not getattr(self, name) > 0:
                raise SurefootError(f"limits.{name}: found {getattr(self, name)}, expected more than 0")
        if not 0 <= self.margin < 0.5:
            raise SurefootError(f"limits.margin: found {self.margin}, expected a fraction from 0 to below 0.5")


@dataclass(frozen=True)
class Shape:
    """The family of functions g."""

    kind: Literal["sines", "spline"] = "sines"
    """a sum of sines, or a cubic spline"""
    count: int = 2
    """sines of each actuator; a spline has three knots per second instead"""
    slowest: float = 0.2
    """lowest frequency of a sine, Hz"""
    fastest: float = 3.0
    """highest frequency of a sine, Hz"""

    def size(self, seconds: float) -> int:
        """Parameters of each actuator."""
        if self.kind not in ("sines", "spline"):
            raise unknown("shape", self.kind, ["sines", "spline"])
        return 1 + 3 * self.count if self.kind == "sines" else max(3, round(3 * seconds))

    def drawn(self, rng: np.random.Generator, n: int, nu: int, seconds: float) -> np.ndarray:
        """(n, nu * size) random motions; every other one has a random amplitude, since large ones seldom keep the limits."""
        x = rng.random((n, nu, self.size(seconds)))
        size = np.where(np.arange(n) % 2, 1.0, rng.random(n))[:, None, None]
        moved, rest = (x[..., : 1 + self.count] if self.kind == "sines" else x), np.array(0.5)
        if self.kind == "sines":
            rest = np.r_[0.5, np.zeros(self.count)]  # no offset, no amplitude
        moved[:] = rest + size * (moved - rest)
        return x.reshape(n, -1)

    def controls(self, x: np.ndarray, range_: "Range", time: np.ndarray) -> np.ndarray:
        """(n, nu * size) parameters in 0..1 -> (n, T, nu) controls."""
        n, seconds, nu = len(x), float(time[-1] - time[0]), len(range_.home)
        x = x.reshape(n, nu, self.size(seconds))
        if self.kind == "spline":
            g = spline(2 * x - 1, len(time)).clip(-1, 1)
        else:
            g = self._sines(x, time - time[0])
        middle, half = (range_.low + range_.high) / 2, (range_.high - range_.low) / 2
        u = range_.home + ramp(time)[:, None] * (middle - range_.home + half * np.swapaxes(g, 1, 2))
        return np.clip(u, range_.low, range_.high)  # rounding alone

    def _sines(self, x: np.ndarray, t: np.ndarray) -> np.ndarray:
        """(n, nu, T) within -1..1: an offset and sines, scaled so that the sum of their sizes is at most 1."""
        offset = 2 * x[..., :1] - 1
        size, pace, phase = np.split(x[..., 1:], 3, -1)  # (n, nu, count) each
        hz = self.slowest * (self.fastest / self.slowest) ** pace
        total = np.maximum(1.0, np.abs(offset) + size.sum(-1, keepdims=True))
        waves = np.sin(2 * np.pi * (hz[..., None] * t + phase[..., None]))  # (n, nu, count, T)
        return (offset + (size[..., None] * waves).sum(-2)) / total


@dataclass(frozen=True)
class Explore:
    """Settings of the search for a motion."""

    objective: Literal["logdet", "a", "trace"] = "logdet"
    """objective: logdet (D-optimal), a (A-optimal, mean square error), trace (of the information)"""
    over: Literal["mean", "worst"] = "mean"
    """maximise the mean of the objective over samples of e, or its worst value"""
    samples: int = 3
    """samples of e at which the search computes the objective"""
    wary: int = 8
    """further samples of e at which the search checks the limits"""
    verify: int = 32
    """samples of e at which the chosen motion must keep the limits"""
    iterations: int = 24
    """rounds of the search, at most"""
    patience: int = 12
    """rounds that gain less than 1 % of the standard deviations, after which the search ends"""
    population: int = 40
    """motions tried in each round"""
    seed: int = 0
    """seed of the search and of the samples of e"""

    def __post_init__(self) -> None:
        for name in ("samples", "wary", "verify", "iterations", "patience"):
            if getattr(self, name) < 1:
                raise SurefootError(f"explore.{name}: found {getattr(self, name)}, expected at least 1")
        if self.over not in ("mean", "worst"):
            raise SurefootError(f"explore.over: found {self.over!r}, expected mean or worst")


def spline(knots: np.ndarray, rows: int) -> np.ndarray:
    """(..., k) knots -> (..., rows), evenly spaced: cubic through the knots, at rest at both ends."""
    from scipy.interpolate import CubicHermiteSpline  # `--help` needs no scipy

    slopes = np.gradient(knots, axis=-1)
    slopes[..., [0, -1]] = 0.0
    k = knots.shape[-1]
    return CubicHermiteSpline(np.arange(k), knots, slopes, axis=-1)(np.linspace(0.0, k - 1.0, rows))


def ramp(time: np.ndarray) -> np.ndarray:
    """w (T,): a cosine ramp of half a second at either end, or of a fifth of a short motion."""
    t, seconds = time - time[0], float(time[-1] - time[0])
    edge = min(0.5, seconds / 5)
    return 0.5 - 0.5 * np.cos(np.pi * np.clip(np.minimum(t, seconds - t) / edge, 0.0, 1.0))


@dataclass(frozen=True)
class Range:
    """Range of each actuator's control, (nu,) each."""

    home: np.ndarray
    low: np.ndarray
    high: np.ndarray


def is_servo(model: mujoco.MjModel, i: int) -> bool:
    """Whether its control is the target position of a joint."""
    on_joint = model.actuator_trntype[i] == mujoco.mjtTrn.mjTRN_JOINT
    return bool(on_joint and model.actuator_biasprm[i, 1] < 0 and model.actuator_gainprm[i, 0] > 0)


def _takers(model: mujoco.MjModel) -> list[int]:
    """The actuator that takes each control: a `pid` takes several."""
    return [int(i) for i in np.repeat(np.arange(model.nactuator), model.actuator_ctrlnum)]


def control_range(model: mujoco.MjModel, home: np.ndarray, limits: Limits) -> Range:
    """A servo's target stays within its joint's range less the margin; a motor's force within the torque limit."""
    low, high = np.full(model.nu, -np.inf), np.full(model.nu, np.inf)
    for k, i in enumerate(_takers(model)):
        if model.actuator_ctrllimited[k]:
            low[k], high[k] = model.actuator_ctrlrange[k]
        if is_servo(model, i):
            j = int(model.actuator_trnid[i, 0])
            a, b = model.jnt_range[j] if model.jnt_limited[j] else home[k] + limits.reach * np.array([-1.0, 1.0])
            inset = limits.margin * (b - a) if model.jnt_limited[j] else 0.0
            low[k], high[k] = max(low[k], a + inset), min(high[k], b - inset)
        elif model.actuator_forcelimited[i] and model.actuator_gainprm[i, 0] > 0:
            a, b = limits.torque * model.actuator_forcerange[i] / model.actuator_gainprm[i, 0]
            low[k], high[k] = max(low[k], a), min(high[k], b)
        if not (np.isfinite([low[k], high[k]]).all() and low[k] < high[k]):
            name = model.actuator(i).name or i
            raise SurefootError(f"actuator {name}: found no range of control, expected ctrlrange or forcerange")
    return Range(np.clip(home, low, high), low, high)


def instrumented(spec: mujoco.MjSpec) -> mujoco.MjSpec:
    """The model with sensors for its actuators' forces and for forbidden contacts.

    With a free base, self-contact is forbidden; with a fixed base, every contact is.
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
    """A World of the model at a control rate, Hz, with sensors for its limits."""
    return world_of(instrumented(spec), params, 1 / rate)


@dataclass(frozen=True)
class Guard:
    """Checks motions against limits."""

    limits: Limits
    joints: np.ndarray  # addresses in q of joints that have a range
    dofs: np.ndarray  # addresses in v of the joints whose speed is limited
    low: np.ndarray
    high: np.ndarray
    force: np.ndarray  # (nu,) largest force; inf where the model has none
    base: bool

    def each(self, motion: Motion) -> dict[str, np.ndarray]:
        """Limit -> (n,) the largest fraction of it that was used; a contact counts as more than 1."""
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
        """(n,) sum over limits of the excess, as a fraction of each; 0 within all of them."""
        over = [np.maximum(np.nan_to_num(used, nan=np.inf) - 1, 0.0) for used in self.each(motion).values()]
        return np.sum(over, 0)


def guard(model: mujoco.MjModel, limits: Limits) -> Guard:
    joints = Plain(model).joints
    limited = [j for j in joints if model.jnt_limited[j]]
    low, high = model.jnt_range[limited].T
    inset = limits.margin / 2 * (high - low)  # targets keep the whole margin, so that joints may overshoot
    force = np.where(model.actuator_forcelimited.astype(bool), np.abs(model.actuator_forcerange).max(1), np.inf)
    at, dofs = model.jnt_qposadr[limited], model.jnt_dofadr[joints]
    return Guard(limits, at, dofs, low + inset, high - inset, force, layout_of(model).base is not None)


def home(model: mujoco.MjModel) -> Start:
    """The first keyframe, or the default pose with every servo's target there."""
    q = (model.key_qpos[0] if model.nkey else model.qpos0).copy()
    u = model.key_ctrl[0].copy() if model.nkey else np.zeros(model.nu)
    for k, i in enumerate(_takers(model)):
        if not model.nkey and is_servo(model, i):
            u[k] = q[model.jnt_qposadr[int(model.actuator_trnid[i, 0])]]
    return Start(q[None], np.zeros((1, model.nv)), u[None])


def settled(world: World, e: np.ndarray, start: Start) -> Start:
    """The pose at which servos settle under gravity while their targets hold home; the start itself if none is reached."""
    one, steps = world.with_(1), round(SETTLE / world.dt)
    one.reset(np.arange(1), e[None], start)
    motion = one.rollout(np.repeat(start.u[:, None], steps, 1), Chance(0, 0, world.dt))
    if motion.diverged.any() or np.abs(motion.v[:, -1]).max(initial=0.0) > STILL:
        return start
    act = motion.act[:, -1].copy() if world.na else None
    return Start(motion.q[:, -1].copy(), np.zeros_like(start.v), start.u, act)
