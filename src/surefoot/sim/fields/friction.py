"""Dry friction of joints that grows with the torque in the gears and at low speed.

    loss = loss0 + (load + back [T v < 0]) |T| + stiction exp(-|v| / stribeck)          N m, each step of the engine
    T    = tau_motor + tau_damper - armature v' - loss sign(v)                         what the gears pass on to the link

loss0 is the joint's frictionloss. T is the torque in the teeth: a weight that is held loads them, one that falls freely does
not. `back` is lost only where the link drives the motor (T v < 0), as in gears that hold what they can hardly lift: their
loss in the other direction looks like a weaker motor. stiction is Stribeck's. T is that of the last step. The engine's
solver applies the loss, so a joint at rest stays at rest.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import mujoco
import numpy as np
from mujoco.batch import Batch

from surefoot.errors import unknown
from surefoot.params import Params

LAWS = {
    "friction_load": ("dry friction per N m that the gears pass on", ("set",)),
    "friction_back": ("further dry friction per N m where the link drives the motor", ("set",)),
    "stiction": ("dry friction at rest minus that in motion, N m", ("set",)),
    "stribeck": ("speed at which stiction has fallen to a third, rad/s", ("set",)),
}
SLOW = 0.1  # rad/s: default Stribeck speed
STILL = 0.01  # rad/s: below it a joint may be at rest
ROUNDS = 8  # of torque and loss at a start: each leaves at most the law's share of the error


@dataclass(frozen=True)
class Friction:
    """The unknowns of friction laws and the degrees of freedom they act on."""

    parts: tuple[tuple[str, int, np.ndarray], ...]  # target, index in e, degrees of freedom

    def __call__(
        self, loss: np.ndarray, e: np.ndarray, v: np.ndarray, gear: np.ndarray, toward: np.ndarray
    ) -> np.ndarray:
        """(n, nv) loss from loss0, e, velocity, torque in the gears, and where the joint moves or would without friction."""
        found, still, slow = loss.copy(), np.zeros_like(v), np.full_like(v, SLOW)
        load, back = np.abs(gear), np.abs(gear) * (gear * toward < 0)
        for target, i, dofs in self.parts:
            value = e[:, i, None]
            if target in ("friction_load", "friction_back"):
                found[:, dofs] += value * (load if target == "friction_load" else back)[:, dofs]
            elif target == "stiction":
                still[:, dofs] = value
            else:
                slow[:, dofs] = value
        return found + still * np.exp(-np.abs(v) / np.maximum(slow, 1e-6))


class Rubbing:
    """A law in a batch of simulations: before each step of the engine, the loss that follows from the step before."""

    def __init__(self, law: Friction, batch: Batch, fields: Mapping[str, np.ndarray], armature: np.ndarray):
        self.law, self.batch, self.loss = law, batch, fields["dof_frictionloss"]
        self.loss0 = self.loss.copy()  # the joints' own, before the law adds to it
        self.armature = fields.get("dof_armature", armature)
        self.motor, self.damper, self.constraint, self.acc = (
            batch.bind(name) for name in ("qfrc_actuator", "qfrc_damper", "qfrc_constraint", "qacc")
        )

        self.gear, self.toward = np.zeros(self.loss.shape), np.zeros(self.loss.shape)

    def read(self, v: np.ndarray, ids: np.ndarray | slice = slice(None)) -> None:
        """The torque in the gears after a step, or where the engine has just computed the forces at a start."""
        loss, v = self.loss[ids], v[ids]
        moves = np.abs(v) > STILL
        rub = np.where(moves, -loss * np.sign(v), np.clip(self.constraint[ids], -loss, loss))  # at rest, what holds it
        armature = self.armature[ids] if self.armature.ndim > 1 else self.armature
        self.gear[ids] = self.motor[ids] + self.damper[ids] - armature * self.acc[ids] + rub
        self.toward[ids] = np.where(moves, v, -rub)

    def write(self, e: np.ndarray, v: np.ndarray, ids: np.ndarray | slice = slice(None)) -> None:
        """The loss of the next step."""
        self.loss[ids] = self.law(self.loss0[ids], e[ids], v[ids], self.gear[ids], self.toward[ids])

    def begin(self, e: np.ndarray, v: np.ndarray, ids: np.ndarray) -> None:
        """Torque and loss at a start, where each follows from the other: a weight at rest is held from the first step on."""
        for _ in range(ROUNDS):
            self.batch.forward(ids)
            self.read(v, ids)
            self.write(e, v, ids)


def law(model: mujoco.MjModel, params: Params) -> Friction | None:
    parts, names = [], [model.joint(j).name for j in range(model.njnt)]
    for i, p in enumerate(params):
        if p.target in LAWS:
            joints = [j for j, name in enumerate(names) if re.fullmatch(p.match, name)]
            if not joints:
                raise unknown("joint", p.match, [n for n in names if n], f"param {p.name}")
            parts.append((p.target, i, np.flatnonzero(np.isin(model.dof_jntid, joints))))
    return Friction(tuple(parts)) if parts else None
