"""The connection between policy and robot: delays, lost packets and sensor errors.

Delays of motors and of the model's sensors are the engine's; q and v, which have no sensor, get the same delay here.
Noise, bias and drift are multiples of each column's spread (signals.py).
"""

from dataclasses import dataclass, field

import mujoco
import numpy as np

from surefoot.rotation import exp, product, to_body
from surefoot.sim.gap.recipe import Ingredient, Plain, Recipe
from surefoot.sim.gap.signals import Signals
from surefoot.sim.layout import HINGE
from surefoot.world import Chance, OnAction, OnSense, State

SENDING, READING = 0.06, 0.04  # s, at s = 1
UNSURE, DROPPED = 0.5, 0.3  # probabilities at s = 1: of a command one period late, of a lost packet
SLOW = 10.0  # s in which a drift reaches one spread
OFFSET = {True: 0.05, False: 0.005}  # rad, m: encoder offset
CROOKED = 0.1  # rad: misalignment of an IMU
S = mujoco.mjtSensor


def action_latency(recipe: Recipe, s: float) -> None:
    recipe.command_delay = s * SENDING
    recipe.record("delay of commands", recipe.command_delay, "s")


def observation_latency(recipe: Recipe, s: float) -> None:
    recipe.sensor_delay = s * READING
    recipe.record("delay of readings", recipe.sensor_delay, "s")
    recipe.terms.append(DelayedState(Signals(recipe.plain), recipe.sensor_delay))


def action_jitter(recipe: Recipe, s: float) -> None:
    recipe.record("probability of a late command", s * UNSURE)
    recipe.terms.append(HeldCommand("jitter", s * UNSURE))


def dropped_packets(recipe: Recipe, s: float) -> None:
    recipe.record("probability of a lost packet", s * DROPPED)
    recipe.terms += [HeldCommand("dropped commands", s * DROPPED), LostReadings(Signals(recipe.plain), s * DROPPED)]


def sensor_noise(recipe: Recipe, s: float) -> None:
    signals = Signals(recipe.plain)
    _record(recipe, signals, "sd of", s * signals.spread)
    recipe.terms.append(Noisy(signals, s * signals.spread))


def sensor_bias(recipe: Recipe, s: float) -> None:
    signals = Signals(recipe.plain)
    bias = s * signals.spread * recipe.rng.uniform(-1, 1, len(signals.spread))
    _record(recipe, signals, "bias of", bias)
    recipe.terms.append(Biased(signals, bias))


def sensor_drift(recipe: Recipe, s: float) -> None:
    signals = Signals(recipe.plain)
    slope = s * signals.spread * recipe.rng.uniform(-1, 1, len(signals.spread)) / SLOW
    _record(recipe, signals, "drift per second of", slope)
    recipe.terms.append(Biased(signals, 0 * slope, slope))


def _record(recipe: Recipe, signals: Signals, what: str, z: np.ndarray) -> None:
    for name, (at, unit) in signals.parts.items():
        if z[at].any():
            recipe.record(f"{what} {name}", z[at] if z[at].size > 1 else z[at][0], unit)


def encoder_offset(recipe: Recipe, s: float) -> None:
    """Encoder offsets o: readings are off by o, and servos, which use them, hold their joints at u - o."""
    plain, signals = recipe.plain, Signals(recipe.plain)
    offset, moved = np.zeros(len(signals.spread)), np.zeros(plain.model.nu)
    for j in plain.joints:
        o = (
            s
            * OFFSET[bool(plain.model.jnt_type[j] == HINGE)]
            * recipe.rng.choice([-1.0, 1.0])
            * recipe.rng.uniform(0.5, 1)
        )
        offset[signals.encoders(j)] = o
        recipe.record(f"offset of {plain.model.joint(j).name}", o, "rad" if plain.model.jnt_type[j] == HINGE else "m")
        for d in plain.drives:
            if d.joint == plain.model.joint(j).name and d.servo:
                moved[plain.model.actuator_ctrladr[d.number]] = d.gear * o
    recipe.terms += [Biased(signals, offset), ActionOffset(-moved)]


def imu_misalignment(recipe: Recipe, s: float) -> None:
    """The IMU is misaligned: its site is rotated, or without one the base's attitude and angular velocity."""
    axis = recipe.rng.standard_normal(3)
    r, m = s * CROOKED * axis / np.linalg.norm(axis), recipe.plain.model
    turn = exp(r)
    recipe.record("rotation of the IMU", r, "rad")
    for i in _imus(recipe.plain):
        site = recipe.spec.site(m.site(i).name)
        site.alt.type, site.quat = mujoco.mjtOrientation.mjORIENTATION_QUAT, product(m.site_quat[i], turn)
    if not _imus(recipe.plain) and recipe.plain.free is not None:
        j = recipe.plain.free
        recipe.terms.append(Misaligned(turn, int(m.jnt_qposadr[j]) + 3, int(m.jnt_dofadr[j]) + 3))


def _imus(plain: Plain) -> list[int]:
    """Sites with inertial sensors."""
    m = plain.model
    kinds = (S.mjSENS_GYRO, S.mjSENS_ACCELEROMETER, S.mjSENS_MAGNETOMETER, S.mjSENS_FRAMEQUAT)
    site = int(mujoco.mjtObj.mjOBJ_SITE)
    return sorted({int(m.sensor_objid[i]) for i in plain.sensors(*kinds) if m.sensor_objtype[i] == site})


@dataclass(frozen=True)
class HeldCommand(OnAction):
    """With some probability a command is late, and the previous one acts for another period."""

    purpose: str
    chance: float

    def __call__(self, x: State, u: np.ndarray, chance: Chance) -> np.ndarray:
        missed = chance.rows(self.purpose, np.arange(len(u))).random(len(u)) < self.chance
        return np.where(missed[:, None], x.u, u)


@dataclass(frozen=True)
class ActionOffset(OnAction):
    by: np.ndarray  # (nu,)

    def __call__(self, x: State, u: np.ndarray, chance: Chance) -> np.ndarray:
        return u + self.by


@dataclass(frozen=True)
class Noisy(OnSense):
    """White noise of standard deviation sd, drawn in each control period."""

    signals: Signals
    sd: np.ndarray

    def __call__(self, x: State, ids: np.ndarray, chance: Chance) -> State:
        z = self.signals.row(x)
        z += self.sd * chance.rows("sensor noise", ids).standard_normal(z.shape)
        return self.signals.state(x, z)


@dataclass(frozen=True)
class Biased(OnSense):
    """A constant offset, and a drift that grows from the start of the run."""

    signals: Signals
    offset: np.ndarray
    slope: np.ndarray | float = 0.0  # per second

    def __call__(self, x: State, ids: np.ndarray, chance: Chance) -> State:
        return self.signals.state(x, self.signals.row(x) + self.offset + self.slope * (chance.step * chance.dt))


@dataclass(frozen=True)
class Misaligned(OnSense):
    """A base's attitude and angular velocity in a frame rotated by D: R' = R D, w' = D^T w."""

    turn: np.ndarray  # quaternion of D
    quat: int  # address in q
    rates: int  # address in v

    def __call__(self, x: State, ids: np.ndarray, chance: Chance) -> State:
        q, v, attitude, rates = (
            x.q.copy(),
            x.v.copy(),
            slice(self.quat, self.quat + 4),
            slice(self.rates, self.rates + 3),
        )
        q[:, attitude] = product(x.q[:, attitude], self.turn)
        v[:, rates] = to_body(self.turn, x.v[:, rates])
        return State(x.time, q, v, x.u, x.act, x.y, x.e, x.gravity, x.wrench)


@dataclass
class DelayedState(OnSense):
    """q and v as they were `delay` seconds ago, interpolated between control periods."""

    signals: Signals
    delay: float
    past: np.ndarray = field(default_factory=lambda: np.zeros((0, 0, 0)))  # (n, periods, nq + nv), newest last
    step: int = -1

    def __call__(self, x: State, ids: np.ndarray, chance: Chance) -> State:
        z, m = self.signals.row(x), self.signals.plain.model
        late, width = self.delay / chance.dt, m.nq + m.nv
        k, share = int(late), late - int(late)
        if self.past.shape[1] != k + 2:
            self.past = np.repeat(z[:, None, :width], k + 2, 1)
        if chance.step != self.step:
            self.past, self.step = np.roll(self.past, -1, 1), chance.step
        self.past[ids, -1] = z[:, :width]
        begun = ids[x.time == 0.0]
        self.past[begun] = self.past[begun, -1:]
        z[:, :width] = (1 - share) * self.past[ids, -1 - k] + share * self.past[ids, -2 - k]
        return self.signals.state(x, z)


@dataclass
class LostReadings(OnSense):
    """With some probability a packet of readings is lost, and the previous one is read again."""

    signals: Signals
    chance: float
    before: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))
    now: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))
    lost: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))
    """(n,) in this step"""
    step: int = -1

    def __call__(self, x: State, ids: np.ndarray, chance: Chance) -> State:
        z = self.signals.row(x)
        if not len(self.now):
            self.now, self.lost = z.copy(), np.zeros(len(z), bool)
        if chance.step != self.step:
            self.before, self.step = self.now.copy(), chance.step
        missed = chance.rows("dropped readings", ids).random(len(ids)) < self.chance
        missed &= x.time > 0.0
        z[missed] = self.before[ids[missed]]
        self.now[ids], self.lost[ids] = z, missed
        return self.signals.state(x, z)


LINKS = (
    Ingredient("action_latency", "commands are delayed by up to 60 ms", "actuators", lambda p: p.model.nu > 0, action_latency),
    Ingredient("action_jitter", "up to every second command is a period late", "actuators", lambda p: p.model.nu > 0, action_jitter),
    Ingredient("encoder_offset", "encoder offsets up to 0.05 rad or 5 mm, in readings and servos", "hinges or slides", lambda p: bool(p.joints), encoder_offset),
    Ingredient("imu_misalignment", "the IMU is rotated by up to 0.1 rad", "an IMU or a free base", lambda p: bool(_imus(p)) or p.free is not None, imu_misalignment),
    Ingredient("sensor_bias", "constant sensor offsets", "joints", lambda p: p.model.njnt > 0, sensor_bias),
    Ingredient("sensor_drift", "sensor offsets that grow over seconds", "joints", lambda p: p.model.njnt > 0, sensor_drift),
    Ingredient("sensor_noise", "sensor noise", "joints", lambda p: p.model.njnt > 0, sensor_noise),
    Ingredient("observation_latency", "readings are delayed by up to 40 ms", "joints", lambda p: p.model.njnt > 0, observation_latency),
    Ingredient("dropped_packets", "up to 0.3 of packets are lost, both ways", "actuators", lambda p: p.model.nu > 0, dropped_packets),
)  # fmt: skip
