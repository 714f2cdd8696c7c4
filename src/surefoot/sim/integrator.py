"""The seam for another physics engine: who moves the bodies, in MuJoCo's place.

    M(q) v' + C(q, v) = force + constraints(q, v),    (q, v) -> (q, v) after h seconds, one engine step

MuJoCo keeps the model and its numbers e, and works out `force` at every engine step: gravity, actuators with their
dynamics, limits and delays, springs, damping and drag, Terms. It reads the sensors too. A Mover answers for inertia,
Coriolis, contacts, dry friction and joint stops, and for the readings that only they tell. So whatever e, Term or motor
works in MuJoCo works with every Mover, and what differs is the mechanics.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

import mujoco
import numpy as np


class Mover(ABC):
    @abstractmethod
    def begin(self, ids: np.ndarray) -> None:
        """Forget what simulations ids did: their numbers may have changed. Same numbers and state, same bits."""

    @abstractmethod
    def move(self, q: np.ndarray, v: np.ndarray, force: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """One engine step from q (n, nq) and v (n, nv) under force (n, nv); NaN where it diverged.

        q and v may be other than what the last call returned: then it goes on from there.
        """

    @abstractmethod
    def read(self, data: np.ndarray, wrench: np.ndarray) -> None:
        """Correct the readings (n, nsensordata) that depend on what this engine alone knows: forces, accelerations.

        `wrench` (n, bodies, 6) is what Terms put on the bodies.
        """


Numbers = Mapping[str, np.ndarray]
"""engine field -> (n, ...) live rows, of the fields that differ between simulations"""
Makes = Callable[[mujoco.MjModel, Numbers, int], Mover]


def shadowed(spec: mujoco.MjSpec) -> None:
    """Make MuJoCo the bookkeeper: no constraints of its own, and gravity where it can be read as a force.

    A body's gravcomp becomes the share of gravity that is left, so qfrc_gravcomp is the negative of gravity's force.
    """
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_EULER  # one forward pass a step, at its beginning
    off = mujoco.mjtDisableBit
    if spec.option.disableflags & off.mjDSBL_CONSTRAINT:  # say so where a Mover will look
        spec.option.disableflags |= int(off.mjDSBL_CONTACT | off.mjDSBL_LIMIT | off.mjDSBL_FRICTIONLOSS)
    spec.option.disableflags |= int(off.mjDSBL_CONSTRAINT)
    for body in spec.bodies:
        body.gravcomp = 1.0 - body.gravcomp
