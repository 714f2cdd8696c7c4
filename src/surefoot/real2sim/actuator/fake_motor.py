"""A simulated arm whose motors are not those of its model: logs to try actuator nets on without hardware.

    T tau_m' = kp (u - q) - kd q' - tau_m                                        a current loop's lag, T in s
    tau = clip(tau_m, +-limit) - (F_c + (F_s - F_c) exp(-(q'/v_s)^2)) tanh(q'/v_0)     saturation, Stribeck friction

tau in N m: the torque on the joint, which a torque sensor there would measure. The arm is that of the task `arm`, whose
model has servos of the same gains without lag, with twice the torque, and with less friction.
"""

from dataclasses import dataclass, replace

import mujoco
import numpy as np

from surefoot.errors import SurefootError
from surefoot.log import Log
from surefoot.params import Params
from surefoot.real2sim.plant import world
from surefoot.rng import stream
from surefoot.sim.engine import Engine
from surefoot.tasks.ready.arm import JOINTS, KD, KP, MIDDLE, xml
from surefoot.world import Chance, OnForce, Remembers, Start, State, Term

INNER = 0.001  # s: the motor's own period


@dataclass(frozen=True, eq=False)
class Motor(OnForce, Remembers):
    """The law above for joints in the model's order; remembers tau_m."""

    kp: tuple[float, ...] = KP  # N m/rad
    kd: tuple[float, ...] = KD  # N m s/rad
    lag: float = 0.008  # s
    limit: tuple[float, ...] = (14.0, 5.0)  # N m
    coulomb: tuple[float, ...] = (0.8, 0.4)  # N m
    static: tuple[float, ...] = (1.4, 0.7)  # N m
    stribeck: float = 0.1  # rad/s: v_s
    smooth: float = 0.03  # rad/s: v_0

    @property
    def width(self) -> int:
        return len(self.kp) + 1

    def fits(self, dt: float) -> None:
        if dt > 0.25 * self.lag:
            raise SurefootError(f"motor: period: found {dt:g} s, expected at most a quarter of the lag {self.lag:g} s")

    def __call__(self, x: State, u: np.ndarray, chance: Chance) -> np.ndarray:
        memory = x.memory[self]
        wanted = np.array(self.kp) * (u - x.q) - np.array(self.kd) * x.v
        fresh = memory[:, -1:] == 0
        motor = np.where(fresh, wanted, memory[:, :-1])
        motor += (1 - np.exp(-chance.dt / self.lag)) * (wanted - motor)
        memory[:, :-1], memory[:, -1] = motor, 1.0
        return np.clip(motor, -np.array(self.limit), self.limit) - self.friction(x.v)

    def friction(self, v: np.ndarray) -> np.ndarray:
        coulomb, static = np.array(self.coulomb), np.array(self.static)
        size = coulomb + (static - coulomb) * np.exp(-np.square(v / self.stribeck))
        return size * np.tanh(v / self.smooth)


def model(dt: float = 0.005, n: int = 1, terms: tuple[Term, ...] = ()) -> Engine:
    """The arm as its data sheet describes it."""
    return world(mujoco.MjSpec.from_string(xml()), Params(()), dt, n, terms)


def machine(motor: Motor) -> Engine:
    """The arm as it is: the model's links and joints, driven by the motor alone."""
    spec = mujoco.MjSpec.from_string(xml())
    for actuator in spec.actuators:
        actuator.gainprm[0], actuator.biasprm[:3] = 0.0, 0.0
    return world(spec, Params(()), INNER, 1, (motor,))


def chirps(seed: int, seconds: float, dt: float) -> np.ndarray:
    """(T, 2) targets: in each joint two sines whose frequencies sweep up, at amplitudes that come and go."""
    rng, t = stream(seed, "chirps"), dt * np.arange(round(seconds / dt))
    u = np.tile(MIDDLE + 0.3 * rng.uniform(-1, 1, 2), (len(t), 1))
    for j in range(2):
        for low, high, size in ((0.1, 0.6, 0.6), (0.5, 3.0, 0.3)):
            rate = rng.uniform(0.8, 1.2) * (low + (high - low) * (t % 10.0) / 10.0)  # Hz
            swell = 0.6 + 0.4 * np.sin(2 * np.pi * rng.uniform(0.1, 0.3) * t + rng.uniform(0, 6))
            u[:, j] += size * swell * np.sin(2 * np.pi * np.cumsum(rate) * dt + rng.uniform(0, 6))
    return u


def recorded(
    seed: int, seconds: float = 30.0, dt: float = 0.005, motor: Motor | None = None, noise: float = 1.0
) -> Log:
    """A log of the machine under chirps, with the noise of its encoders (0.2 mrad) and torque sensors (1 %)."""
    motor = motor or Motor()
    real, u = machine(motor), chirps(seed, seconds, dt)
    real.reset(np.arange(1), np.zeros((1, 0)), Start(u[:1], np.zeros((1, 2)), u[:1]))
    inner, rows = round(dt / INNER), []
    for k, now in enumerate(u):
        x, force = real.state, real.batch.bind("qfrc_applied")
        rows.append(np.concatenate([x.q[0], x.v[0], force[0]]))
        for i in range(inner):
            real.step(now[None], Chance(0, k * inner + i, real.dt))
    rng = stream(seed, "sensors")
    sd = noise * np.repeat([2e-4, 5e-3, 1.0], 2) * [1, 1, 1, 1, *(0.01 * np.array(motor.limit))]
    q, v, tau = np.split(np.array(rows) + sd * rng.standard_normal((len(u), 6)), 3, 1)
    tau[0] = np.nan  # nothing had acted yet
    columns = {"control": u, "joint_pos": q, "joint_vel": v, "joint_torque": tau}
    names = {"control": list(JOINTS), **{k: list(JOINTS) for k in columns if k != "control"}}
    units = {"control": "rad", "joint_pos": "rad", "joint_vel": "rad/s", "joint_torque": "N m"}
    return Log(dt * np.arange(len(u)), columns, units, {"names": names, "source": f"fake motor, seed {seed}"})


def without(log: Log, *names: str) -> Log:
    """The log of a machine that does not measure these."""
    return replace(log, columns={k: v for k, v in log.columns.items() if k not in names},
                   units={k: v for k, v in log.units.items() if k not in names})  # fmt: skip
