"""Dry friction of joints that grows with the load and at low speed.

    loss = loss0 + load |tau_motor - tau_external| + stiction exp(-|v| / stribeck)          N m, each control period

loss0 is the joint's frictionloss. The first addition is that of a gearbox under load; the second is Stribeck's. The
engine's solver applies the loss, so a joint at rest stays at rest.
"""

import re
from dataclasses import dataclass

import mujoco
import numpy as np

from surefoot.errors import unknown
from surefoot.params import Params

LAWS = {
    "friction_load": ("dry friction per N m of load on the gears", ("set",)),
    "stiction": ("dry friction at rest minus that in motion, N m", ("set",)),
    "stribeck": ("speed at which stiction has fallen to a third, rad/s", ("set",)),
}
SLOW = 0.1  # rad/s: default Stribeck speed


@dataclass(frozen=True)
class Friction:
    """The unknowns of friction laws and the degrees of freedom they act on."""

    parts: tuple[tuple[str, int, np.ndarray], ...]  # target, index in e, degrees of freedom

    def __call__(
        self, loss: np.ndarray, e: np.ndarray, v: np.ndarray, motor: np.ndarray, bias: np.ndarray
    ) -> np.ndarray:
        """(n, nv) loss from loss0, e, velocity, motor force and bias force (gravity, Coriolis)."""
        found, still, slow = loss.copy(), np.zeros_like(v), np.full_like(v, SLOW)
        for target, i, dofs in self.parts:
            value = e[:, i, None]
            if target == "friction_load":
                found[:, dofs] += value * np.abs(motor + bias)[:, dofs]
            elif target == "stiction":
                still[:, dofs] = value
            else:
                slow[:, dofs] = value
        return found + still * np.exp(-np.abs(v) / np.maximum(slow, 1e-6))


def law(model: mujoco.MjModel, params: Params) -> Friction | None:
    parts, names = [], [model.joint(j).name for j in range(model.njnt)]
    for i, p in enumerate(params):
        if p.target in LAWS:
            joints = [j for j, name in enumerate(names) if re.fullmatch(p.match, name)]
            if not joints:
                raise unknown("joint", p.match, [n for n in names if n], f"param {p.name}")
            parts.append((p.target, i, np.flatnonzero(np.isin(model.dof_jntid, joints))))
    return Friction(tuple(parts)) if parts else None
