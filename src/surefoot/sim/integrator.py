"""The interface for another physics engine that moves the bodies in place of MuJoCo.

    M(q) v' + C(q, v) = force + constraints(q, v),    (q, v) -> (q, v) after h seconds, one engine step

MuJoCo has the model and its parameters e, and computes `force` at every engine step: gravity, actuators with their
dynamics, limits and delays, springs, damping and drag, Terms. It computes most sensors, too. A Mover computes inertia,
Coriolis forces, contacts, dry friction and joint stops, and the readings that depend on them. So every e, Term and motor
of MuJoCo works with every Mover; only the mechanics differ.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

import mujoco
import numpy as np
from mujoco.batch import Batch


class Mover(ABC):
    @abstractmethod
    def begin(self, ids: np.ndarray) -> None:
        """Discard the history of simulations ids: their parameters may have changed. Same parameters and state, same bits."""

    @abstractmethod
    def move(self, q: np.ndarray, v: np.ndarray, force: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """One engine step from q (n, nq) and v (n, nv) under force (n, nv); NaN where it diverged.

        q and v may differ from the last call's result: the step starts from them.
        """

    @abstractmethod
    def read(self, data: np.ndarray, wrench: np.ndarray) -> None:
        """Write the readings (n, nsensordata) that depend on this engine: forces, accelerations.

        `wrench` (n, bodies, 6) are the wrenches of Terms.
        """


class Stepper(ABC):
    """MuJoCo's law on other hardware: it takes the state of all simulations from a Batch, and puts the next one there."""

    sensordata: np.ndarray
    """(n, nsensordata) as the last step read it"""

    @abstractmethod
    def begin(self, ids: np.ndarray) -> None:
        """The parameters of simulations ids may have changed."""

    @abstractmethod
    def step(self, count: int) -> None:
        """So many engine steps of all simulations; sensors read as MuJoCo's step reads them."""


Numbers = Mapping[str, np.ndarray]
"""engine field -> (n, ...) current rows, of the fields that differ between simulations"""
Makes = Callable[[mujoco.MjModel, Numbers, int], Mover]
Steps = Callable[[mujoco.MjModel, Batch, Numbers], Stepper]


def shadowed(spec: mujoco.MjSpec) -> None:
    """Switch off MuJoCo's constraints, and make gravity readable as a force.

    A body's gravcomp becomes 1 minus its value, so qfrc_gravcomp is the negative of gravity's force.
    """
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_EULER  # one forward pass a step, at its beginning
    off = mujoco.mjtDisableBit
    if spec.option.disableflags & off.mjDSBL_CONSTRAINT:  # a Mover reads these flags
        spec.option.disableflags |= int(off.mjDSBL_CONTACT | off.mjDSBL_LIMIT | off.mjDSBL_FRICTIONLOSS)
    spec.option.disableflags |= int(off.mjDSBL_CONSTRAINT)
    for body in spec.bodies:
        body.gravcomp = 1.0 - body.gravcomp
