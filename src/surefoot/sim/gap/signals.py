"""All measurements of a robot in one row z = (q, v, y): positions, velocities, and the model's sensors in their order.

Each column has a spread: the error of an ordinary bad sensor of its kind, in the column's unit.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import mujoco
import numpy as np

from surefoot.sim.gap.recipe import Plain
from surefoot.sim.layout import BALL, FREE, HINGE, sensor_columns
from surefoot.world import State

ANGLE, LENGTH, RATE, SPEED = 0.02, 0.01, 0.5, 0.1  # rad, m, rad/s, m/s: encoders and velocities derived from them
PLACE, TILT, GYRO, TRAVEL = 0.02, 0.03, 0.2, 0.1  # m, rad, rad/s, m/s: of a base
FORCE = 0.05  # of the largest force
S = mujoco.mjtSensor
SENSORS = {
    int(S.mjSENS_JOINTVEL): RATE, int(S.mjSENS_GYRO): GYRO, int(S.mjSENS_ACCELEROMETER): 1.0, int(S.mjSENS_VELOCIMETER): TRAVEL,
    int(S.mjSENS_FRAMEPOS): PLACE, int(S.mjSENS_FRAMEQUAT): TILT / 2, int(S.mjSENS_FRAMELINVEL): TRAVEL, int(S.mjSENS_FRAMEANGVEL): GYRO,
}  # fmt: skip


@dataclass(frozen=True)
class Signals:
    plain: Plain

    @cached_property
    def names(self) -> list[str]:
        return [self.plain.model.sensor(i).name for i in range(self.plain.model.nsensor)]

    @cached_property
    def columns(self) -> dict[str, slice]:
        """Sensor, or family of sensors -> columns of z."""
        first = self.plain.model.nq + self.plain.model.nv
        return {name: slice(first + a, first + b) for name, (a, b) in sensor_columns(self.plain.model).items()}

    @cached_property
    def parts(self) -> dict[str, tuple[slice, str]]:
        """Measured quantity -> columns of z and their unit, if they have one: joints, bases, then sensors."""
        m = self.plain.model
        found: dict[str, tuple[slice, str]] = {}
        for j in range(m.njnt):
            a, d, name = int(m.jnt_qposadr[j]), m.nq + int(m.jnt_dofadr[j]), m.joint(j).name
            if m.jnt_type[j] == FREE:
                found |= {f"{name} position": (slice(a, a + 3), "m"), f"{name} quaternion": (slice(a + 3, a + 7), "")}
                found |= {f"{name} velocity": (slice(d, d + 3), "m/s"), f"{name} rates": (slice(d + 3, d + 6), "rad/s")}
            elif j in self.plain.joints:
                unit = "rad" if m.jnt_type[j] == HINGE else "m"
                found |= {
                    f"{name} position": (slice(a, a + 1), unit),
                    f"{name} velocity": (slice(d, d + 1), f"{unit}/s"),
                }
        first = m.nq + m.nv
        at = lambda i: slice(first + m.sensor_adr[i], first + m.sensor_adr[i] + m.sensor_dim[i])  # noqa: E731
        return found | {f"sensor {m.sensor(i).name}": (at(i), "") for i in range(m.nsensor)}

    def row(self, x: State) -> np.ndarray:
        """(n, width) z, a copy."""
        return np.concatenate([x.q, x.v, *(x.y[name] for name in self.names)], 1)

    def state(self, x: State, z: np.ndarray) -> State:
        """x with the measurements z."""
        m = self.plain.model
        for at in self.quats:
            z[:, at] /= np.maximum(
                np.linalg.norm(z[:, at], axis=1, keepdims=True), 1e-9
            )  # 0 where a simulation diverged
        y = {name: z[:, at] for name, at in self.columns.items()}
        return replace(x, q=z[:, : m.nq], v=z[:, m.nq : m.nq + m.nv], y=y)

    @cached_property
    def quats(self) -> list[slice]:
        m, found = self.plain.model, []
        for j in range(m.njnt):
            if m.jnt_type[j] in (FREE, BALL):
                a = int(m.jnt_qposadr[j]) + (3 if m.jnt_type[j] == FREE else 0)
                found.append(slice(a, a + 4))
        return found + [self.columns[self.names[i]] for i in self.plain.sensors(S.mjSENS_FRAMEQUAT)]

    @cached_property
    def spread(self) -> np.ndarray:
        m = self.plain.model
        q, v, y = np.zeros(m.nq), np.zeros(m.nv), np.zeros(m.nsensordata)
        for j in range(m.njnt):
            a, d, hinge = int(m.jnt_qposadr[j]), int(m.jnt_dofadr[j]), m.jnt_type[j] == HINGE
            if m.jnt_type[j] == FREE:
                q[a : a + 3], q[a + 3 : a + 7], v[d : d + 3], v[d + 3 : d + 6] = PLACE, TILT / 2, TRAVEL, GYRO
            elif j in self.plain.joints:
                q[a], v[d] = (ANGLE, RATE) if hinge else (LENGTH, SPEED)
        limits = {d.number: d.limit or 0.0 for d in self.plain.drives}
        for i in range(m.nsensor):
            kind, at = int(m.sensor_type[i]), slice(m.sensor_adr[i], m.sensor_adr[i] + m.sensor_dim[i])
            if kind == S.mjSENS_JOINTPOS:
                y[at] = ANGLE if m.jnt_type[m.sensor_objid[i]] == HINGE else LENGTH
            elif kind == S.mjSENS_ACTUATORFRC:
                y[at] = FORCE * limits.get(int(m.sensor_objid[i]), 0.0)
            else:
                y[at] = SENSORS.get(kind, 0.0)
        return np.concatenate([q, v, y])

    def encoders(self, j: int) -> list[int]:
        """Columns of z with the position of joint j."""
        m = self.plain.model
        own = [i for i in self.plain.sensors(S.mjSENS_JOINTPOS) if m.sensor_objid[i] == j]
        return [int(m.jnt_qposadr[j]), *(self.columns[self.names[i]].start for i in own)]
