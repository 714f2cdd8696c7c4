"""mujoco-warp steps all simulations: MuJoCo's law in single precision, on a GPU where there is one, else on one core.

    state, controls and e of a Batch -> device -> substeps -> the Batch again        once a control period

Everything around the steps is the Batch's: resets, Terms, sensors of a reset, checkpoints. So a policy, a task and a belief
work as they do on MuJoCo's threads, and what differs is rounding: single precision, and the order of sums. The state goes through
the host once a control period; nothing else does.

Refused by name: dry friction that has a law, and what mujoco-warp itself does not have. A delay that ends on a sample's
border may fall on either side of it, because time is in single precision.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np
from mujoco.batch import Batch

from surefoot.errors import SurefootError, in_words
from surefoot.sim.integrator import Numbers, Stepper

GIVEN = ("time", "qpos", "qvel", "act", "ctrl", "qfrc_applied", "xfrc_applied", "qacc_warmstart", "history")
TAKEN = ("time", "qpos", "qvel", "act", "qacc_warmstart", "history")
DERIVED = ("body_subtreemass", "dof_invweight0", "body_invweight0", "tendon_invweight0", "actuator_acc0")


@dataclass(frozen=True)
class Allocated:
    """A model and n simulations on warp's device; fields of e have a row for each of them."""

    mjw: Any
    wp: Any
    model: Any
    data: Any
    derives: bool
    """whether constants of the model follow from fields of e, by set_const"""

    def has(self, field: str) -> bool:
        return bool(getattr(self.data, field).size)


def allocate(model: mujoco.MjModel, fields: Iterable[str], n: int) -> Allocated:
    """Refuses by name what mujoco-warp does not have."""
    with in_words("engine warp"):
        import mujoco_warp
        import warp
    warp.config.log_level = logging.ERROR
    fields = set(fields)
    for f in (f for f in fields if "." in f):
        if f.removeprefix("opt.") not in ("gravity", "wind"):
            raise SurefootError(
                f"engine warp: {f} is the same in all its simulations, and an unknown sets it; found in e"
            )
    derives = bool(fields & set(mujoco.MjModel._setconst_inputs))
    own = {f: n for f in (*fields, *(DERIVED if derives else ())) if "." not in f}
    try:
        there = mujoco_warp.put_model(model, batch_sizes=own)
        data = mujoco_warp.make_data(model, nworld=n)
    except (NotImplementedError, ValueError) as error:
        raise SurefootError(f"engine warp: {' '.join(str(error).split())[:300]}; mujoco does not refuse it") from None
    limits = mujoco_warp.OverflowType.ITERATIONS | mujoco_warp.OverflowType.LS_ITERATIONS
    there.opt.warn_overflow &= ~limits  # of the solver, of which MuJoCo's threads do not tell, either
    return Allocated(mujoco_warp, warp, there, data, derives)


class Warp(Stepper):
    def __init__(self, model: mujoco.MjModel, batch: Batch, numbers: Numbers):
        there = allocate(model, numbers, batch.nsim)
        self.mjw, self.wp, self.model, self.data = there.mjw, there.wp, there.model, there.data
        self.derives, self.numbers = there.derives, numbers
        bound = {f: batch.bind(f) for f in dict.fromkeys((*GIVEN, *TAKEN)) if there.has(f)}
        self.given = {f: bound[f] for f in GIVEN if f in bound}
        self.taken = {f: bound[f] for f in TAKEN if f in bound}
        self.changed = True

    def begin(self, ids: np.ndarray) -> None:
        self.changed = True

    def step(self, count: int) -> None:
        if self.changed:
            self._write_fields()
        for f, rows in self.given.items():
            self._put(getattr(self.data, f), rows)
        for _ in range(count):
            self.mjw.step(self.model, self.data)
        for f, rows in self.taken.items():
            rows[:] = getattr(self.data, f).numpy().reshape(rows.shape)
        self.sensordata = self.data.sensordata.numpy()

    def _write_fields(self) -> None:
        for f, rows in self.numbers.items():
            if f.startswith("opt."):
                single = np.ascontiguousarray(rows, np.float32)
                setattr(self.model.opt, f.removeprefix("opt."), self.wp.array(single, dtype=self.wp.vec3))
            else:
                self._put(getattr(self.model, f), rows)
        if self.derives:
            self.mjw.set_const(self.model, self.data)
        self.changed = False

    def _put(self, array: Any, rows: np.ndarray) -> None:
        there = array.numpy()
        array.assign(np.ascontiguousarray(rows, there.dtype).reshape(there.shape))
