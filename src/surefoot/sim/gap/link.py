"""The wires between policy and robot, and what the robot's sensors say: delays, losses and lies.

Motors' delays and the model's own sensors' are the engine's; what no sensor of the model tells (q and v, read straight)
passes the same delay here. Noise, bias and drift come in multiples of each column's spread (signals.py).
"""

from dataclasses import dataclass, field

import mujoco
import numpy as np

from surefoot.rotation import exp, product, to_body
from surefoot.sim.gap.recipe import HINGE, Ingredient, Making, Plain
from surefoot.sim.gap.signals import Signals
from surefoot.world import Chance, OnAction, OnSense, State

SENDING, READING = 0.06, 0.04  # s, at s = 1
UNSURE, DROPPED = 0.5, 0.3  # chances at s = 1: of a command one period late, of a packet lost
SLOW = 10.0  # s in which a drift grows by one spread
OFFSET = {True: 0.05, False: 0.005}  # rad, m: of an encoder's zero
CROOKED = 0.1  # rad: how an IMU is mounted
S = mujoco.mjtSensor


def action_latency(make: Making, s: float) -> None:
    make.sending = s * SENDING
    make.tell("delay of commands", make.sending, "s")


def observation_latency(make: Making, s: float) -> None:
    make.reading = s * READING
    make.tell("age of readings", make.reading, "s")
    make.terms.append(Late(Signals(make.plain), make.reading))


def action_jitter(make: Making, s: float) -> None:
    make.tell("chance of a late command", s * UNSURE)
    make.terms.append(Held("jitter", s * UNSURE))


def dropped_packets(make: Making, s: float) -> None:
    make.tell("chance of a lost packet", s * DROPPED)
    make.terms += [Held("dropped commands", s * DROPPED), Lost(Signals(make.plain), s * DROPPED)]


def sensor_noise(make: Making, s: float) -> None:
    signals = Signals(make.plain)
    _tell(make, signals, "sd of", s * signals.spread)
    make.terms.append(Noisy(signals, s * signals.spread))


def sensor_bias(make: Making, s: float) -> None:
    signals = Signals(make.plain)
    bias = s * signals.spread * make.rng.uniform(-1, 1, len(signals.spread))
    _tell(make, signals, "bias of", bias)
    make.terms.append(Biased(signals, bias))


def sensor_drift(make: Making, s: float) -> None:
    signals = Signals(make.plain)
    slope = s * signals.spread * make.rng.uniform(-1, 1, len(signals.spread)) / SLOW
    _tell(make, signals, "drift a second of", slope)
    make.terms.append(Biased(signals, 0 * slope, slope))


def _tell(make: Making, signals: Signals, what: str, z: np.ndarray) -> None:
    for name, (at, unit) in signals.parts.items():
        if z[at].any():
            make.tell(f"{what} {name}", z[at] if z[at].size > 1 else z[at][0], unit)


def encoder_offset(make: Making, s: float) -> None:
    """Encoders' zeros are off: readings by o, and servos, which trust them, hold their joints at u - o."""
    plain, signals = make.plain, Signals(make.plain)
    offset, moved = np.zeros(len(signals.spread)), np.zeros(plain.model.nu)
    for j in plain.joints:
        o = s * OFFSET[bool(plain.model.jnt_type[j] == HINGE)] * make.rng.choice([-1.0, 1.0]) * make.rng.uniform(0.5, 1)
        offset[signals.encoders(j)] = o
        make.tell(f"offset of {plain.model.joint(j).name}", o, "rad" if plain.model.jnt_type[j] == HINGE else "m")
        for d in plain.drives:
            if d.joint == plain.model.joint(j).name and d.servo:
                moved[plain.model.actuator_ctrladr[d.number]] = d.gear * o
    make.terms += [Biased(signals, offset), Moved(-moved)]


def imu_misalignment(make: Making, s: float) -> None:
    """The IMU is mounted askew: its site is turned, or, where the model has none, the base's attitude and rates."""
    axis = make.rng.standard_normal(3)
    r, m = s * CROOKED * axis / np.linalg.norm(axis), make.plain.model
    turn = exp(r)
    make.tell("turn of the IMU", r, "rad")
    for i in _imus(make.plain):
        site = make.spec.site(m.site(i).name)
        site.alt.type, site.quat = mujoco.mjtOrientation.mjORIENTATION_QUAT, product(m.site_quat[i], turn)
    if not _imus(make.plain) and make.plain.free is not None:
        j = make.plain.free
        make.terms.append(Askew(turn, int(m.jnt_qposadr[j]) + 3, int(m.jnt_dofadr[j]) + 3))


def _imus(plain: Plain) -> list[int]:
    """Sites that inertial sensors sit on."""
    m = plain.model
    kinds = (S.mjSENS_GYRO, S.mjSENS_ACCELEROMETER, S.mjSENS_MAGNETOMETER, S.mjSENS_FRAMEQUAT)
    site = int(mujoco.mjtObj.mjOBJ_SITE)
    return sorted({int(m.sensor_objid[i]) for i in plain.sensors(*kinds) if m.sensor_objtype[i] == site})


@dataclass(frozen=True)
class Held(OnAction):
    """With some chance a command does not come in time, and the last one holds for another period."""

    purpose: str
    chance: float

    def __call__(self, x: State, u: np.ndarray, chance: Chance) -> np.ndarray:
        missed = chance.rows(self.purpose, np.arange(len(u))).random(len(u)) < self.chance
        return np.where(missed[:, None], x.u, u)


@dataclass(frozen=True)
class Moved(OnAction):
    by: np.ndarray  # (nu,)

    def __call__(self, x: State, u: np.ndarray, chance: Chance) -> np.ndarray:
        return u + self.by


@dataclass(frozen=True)
class Noisy(OnSense):
    """White noise of standard deviation sd, anew in each control period."""

    signals: Signals
    sd: np.ndarray

    def __call__(self, x: State, ids: np.ndarray, chance: Chance) -> State:
        z = self.signals.row(x)
        z += self.sd * chance.rows("sensor noise", ids).standard_normal(z.shape)
        return self.signals.state(x, z)


@dataclass(frozen=True)
class Biased(OnSense):
    """A constant offset, and one that grows with the time since the robot was switched on."""

    signals: Signals
    offset: np.ndarray
    slope: np.ndarray | float = 0.0  # a second

    def __call__(self, x: State, ids: np.ndarray, chance: Chance) -> State:
        return self.signals.state(x, self.signals.row(x) + self.offset + self.slope * (chance.step * chance.dt))


@dataclass(frozen=True)
class Askew(OnSense):
    """A base's attitude and rates in a frame turned against its own: R' = R D, w' = D^T w."""

    turn: np.ndarray  # quaternion of D
    quat: int  # where in q
    rates: int  # where in v

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
class Late(OnSense):
    """q and v as they were `delay` seconds ago, between two control periods in proportion."""

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
class Lost(OnSense):
    """With some chance a packet of readings is lost, and whoever asks is told the last one again."""

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
    Ingredient("action_latency", "commands reach motors up to 60 ms later", "actuators", lambda p: p.model.nu > 0, action_latency),
    Ingredient("action_jitter", "up to every second command is a period late", "actuators", lambda p: p.model.nu > 0, action_jitter),
    Ingredient("encoder_offset", "joints' zeros up to 0.05 rad or 5 mm off, for readings and servos", "hinges or slides", lambda p: bool(p.joints), encoder_offset),
    Ingredient("imu_misalignment", "the IMU is mounted up to 0.1 rad askew", "an IMU or a free base", lambda p: bool(_imus(p)) or p.free is not None, imu_misalignment),
    Ingredient("sensor_bias", "constant offsets of sensors", "joints", lambda p: p.model.njnt > 0, sensor_bias),
    Ingredient("sensor_drift", "offsets of sensors that grow over seconds", "joints", lambda p: p.model.njnt > 0, sensor_drift),
    Ingredient("sensor_noise", "noise of sensors", "joints", lambda p: p.model.njnt > 0, sensor_noise),
    Ingredient("observation_latency", "readings are up to 40 ms old", "joints", lambda p: p.model.njnt > 0, observation_latency),
    Ingredient("dropped_packets", "up to 0.3 of packets are lost, both ways", "actuators", lambda p: p.model.nu > 0, dropped_packets),
)  # fmt: skip
