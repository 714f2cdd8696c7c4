"""A body's ten inertial parameters, changed so that they stay physical.

    J = [[S, m c], [m c^T, m]]  (4, 4)     S = integral of x x^T dm,  c the centre of mass,  m the mass
    J' = U J U^T,  U = e^a [[e^d1, s12, s13, t1], [0, e^d2, s23, t2], [0, 0, e^d3, t3], [0, 0, 0, 1]]

J is positive definite exactly if some mass distribution has it, and so is U J U^T for every a, d, s, t: no step of a
search leaves the physical set. Each of the ten parameters is a target, 0 is the model's body; t is in m.
"""

import numpy as np

from surefoot.params import Param
from surefoot.rotation import from_matrix, matrix

FIELDS = ("body_mass", "body_ipos", "body_iquat", "body_inertia")
NAMES = {
    "inertia_a": (3, 3), "inertia_d1": (0, 0), "inertia_d2": (1, 1), "inertia_d3": (2, 2), "inertia_s12": (0, 1),
    "inertia_s13": (0, 2), "inertia_s23": (1, 2), "inertia_t1": (0, 3), "inertia_t2": (1, 3), "inertia_t3": (2, 3),
}  # fmt: skip
ABOUT = {"a": "size: mass and all", "d": "stretch along an axis", "s": "shear", "t": "shift of the centre of mass"}


def inertial(body: str, spread: float = 0.5, shift: float = 0.05) -> tuple[Param, ...]:
    """The ten unknowns of one body: ratios within e^(2 spread) about 1, its centre of mass within `shift` m."""
    return tuple(
        Param(f"{body}:{name}", name, 0.0, *((-shift, shift) if "_t" in name else (-spread, spread)), match=body,
              op="add", unit="m" if "_t" in name else "", about=ABOUT[name[8]])
        for name in NAMES
    )  # fmt: skip


def congruence(name: str, value: np.ndarray) -> np.ndarray:
    """(k, 4, 4) U of one target at values (k,)."""
    i, j = NAMES[name]
    U = np.tile(np.eye(4), (len(value), 1, 1))
    if name == "inertia_a":
        return U * np.exp(value)[:, None, None]
    U[:, i, j] = np.exp(value) if i == j else value
    return U


def pseudo(mass: np.ndarray, com: np.ndarray, quat: np.ndarray, inertia: np.ndarray) -> np.ndarray:
    """(..., 4, 4) J of bodies: mass (...), centre of mass (..., 3), principal axes (..., 4) and moments (..., 3)."""
    R = matrix(quat)
    S = (R * (inertia.sum(-1, keepdims=True) / 2 - inertia)[..., None, :]) @ np.swapaxes(R, -1, -2)
    J = np.empty((*mass.shape, 4, 4))
    h = mass[..., None] * com
    J[..., :3, :3] = S + h[..., :, None] * com[..., None, :]
    J[..., :3, 3] = J[..., 3, :3] = h
    J[..., 3, 3] = mass
    return J


def inertial_of(J: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The inverse of pseudo."""
    mass = J[..., 3, 3]
    com = J[..., :3, 3] / mass[..., None]
    values, axes = np.linalg.eigh(J[..., :3, :3] - mass[..., None, None] * com[..., :, None] * com[..., None, :])
    axes = axes * np.where(np.linalg.det(axes) < 0, -1.0, 1.0)[..., None, None]
    values = np.maximum(values, 0.0)  # below the rounding of a point mass
    return mass, com, from_matrix(axes), values.sum(-1, keepdims=True) - values
