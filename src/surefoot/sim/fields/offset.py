"""Constant torques on joints: cables, springs near their rest, a current sensor with a wrong zero.

M v' + c = tau_motor + tau_passive + offset          N m, N on a slide; no motor's limit cuts it
"""

import re

import mujoco
import numpy as np

from surefoot.errors import unknown
from surefoot.params import Params

OFFSETS = {"torque_offset": ("constant torque on a joint, N m", ("set",))}


class Offset:
    """The unknown constant torques of some params, and the degrees of freedom they act on."""

    def __init__(self, model: mujoco.MjModel, params: Params):
        names = [model.joint(j).name for j in range(model.njnt)]
        self.nv, self.parts = model.nv, list[tuple[int, np.ndarray]]()
        for i, p in enumerate(params):
            if p.target in OFFSETS:
                joints = [j for j, name in enumerate(names) if re.fullmatch(p.match, name)]
                if not joints:
                    raise unknown("joint", p.match, [n for n in names if n], f"param {p.name}")
                self.parts.append((i, np.flatnonzero(np.isin(model.dof_jntid, joints))))

    def __bool__(self) -> bool:
        return bool(self.parts)

    def __call__(self, e: np.ndarray) -> np.ndarray:
        """(n, nv) of e (n, ne)."""
        found = np.zeros((len(e), self.nv))
        for i, dofs in self.parts:
            found[:, dofs] += e[:, i, None]
        return found
