"""A model file with fitted numbers: e written into the elements of a MjSpec, so that any user of MJCF has them.

    fields of the compiled model at e -> attributes of the spec's elements -> XML

What MJCF has no place for (dry friction that grows with load, constant torques) is listed, not written.
"""

import math
from collections.abc import Callable
from typing import Any

import mujoco
import numpy as np

from surefoot.errors import SurefootError
from surefoot.params import Params
from surefoot.sim.fields import TARGETS, Rows, writer
from surefoot.sim.fields.compile import compile_for

ATTRIBUTES = {  # field of the compiled model -> attribute of a spec's element, where their names differ
    "jnt_range": "range", "geom_friction": "friction", "pair_friction": "friction", "tendon_actfrcrange": "actfrcrange",
    "jnt_actfrcrange": "actfrcrange", "sensor_delay": "delay",
}  # fmt: skip
INERTIAL = ("body_mass", "body_inertia", "body_ipos", "body_iquat")


def write_fitted(spec: mujoco.MjSpec, params: Params, e: np.ndarray) -> list[str]:
    """Changes the spec in place; returns the names of unknowns that MJCF cannot have."""
    model = compile_for(spec.copy(), params)
    wide = {f for p in params if p.target in TARGETS for f in writer(model, p).target.fields}
    wide |= set(INERTIAL) if any(f.startswith("body_") for f in wide) else set()
    rows: Rows = {f: _field(model, f)[None].copy() for f in wide}
    before = {f: x.copy() for f, x in rows.items()}
    left = []
    for i, p in enumerate(params):
        if p.target in TARGETS:
            writer(model, p)(rows, e[None, i])
        else:
            left.append(p.name)
    spec.compile()  # gives elements their ids
    changed = {f: x[0] for f, x in rows.items() if not np.array_equal(x, before[f])}
    _write(spec, model, changed, rows)
    _check(spec.compile(), changed)
    return left


def _field(model: mujoco.MjModel, name: str) -> np.ndarray:
    return np.asarray(getattr(model.opt, name[4:]) if name.startswith("opt.") else getattr(model, name), float)


def _write(spec: mujoco.MjSpec, model: mujoco.MjModel, changed: dict[str, np.ndarray], rows: Rows) -> None:
    for name, value in changed.items():
        if name.startswith("opt."):
            setattr(spec.option, name[4:], value if value.ndim else float(value))
        elif name.startswith("body_"):
            _inertial(spec, value != _field(model, name), rows)
        else:
            _elements(spec, model, name, value)


def _inertial(spec: mujoco.MjSpec, moved: np.ndarray, rows: Rows) -> None:
    """Mass, inertia and frame of the bodies that changed, in place of what their shapes would give."""
    which = np.flatnonzero(moved.reshape(len(moved), -1).any(1))
    for body in spec.bodies:
        if body.id in which:
            body.explicitinertial = True
            body.mass, body.inertia, body.ipos, body.iquat = (rows[f][0, body.id] for f in INERTIAL)
            body.fullinertia = [math.nan] * 6  # principal moments in the frame iquat take their place


def _elements(spec: mujoco.MjSpec, model: mujoco.MjModel, name: str, value: np.ndarray) -> None:
    """One field of the elements that have it; a joint has one number for all of its degrees of freedom."""
    kind, _, own = name.partition("_")
    attribute = ATTRIBUTES.get(name, own)
    found: dict[str, tuple[Any, Callable[[int], int]]] = {
        "dof": (spec.joints, lambda i: int(model.jnt_dofadr[i])), "jnt": (spec.joints, int), "geom": (spec.geoms, int),
        "pair": (spec.pairs, int), "actuator": (spec.actuators, int), "tendon": (spec.tendons, int), "sensor": (spec.sensors, int),
    }  # fmt: skip
    before = _field(model, name)
    elements, place = found[kind]
    for element in elements:
        at = place(element.id)
        if np.array_equal(value[at], before[at]):
            continue
        old, new = np.array(getattr(element, attribute)), np.atleast_1d(value[at])
        if old.ndim:
            old[: len(new)] = new[: len(old)]  # of a damping, the first of a polynomial's coefficients
        setattr(element, attribute, old if old.ndim else float(new[0]))
        if attribute == "delay":
            element.nsample = max(element.nsample, math.ceil(float(new[0]) / spec.option.timestep - 1e-9) + 1)
            element.interp = 1  # as it was fitted: between two steps


def _check(model: mujoco.MjModel, changed: dict[str, np.ndarray]) -> None:
    for name, value in changed.items():
        if not np.allclose(_field(model, name), value, rtol=1e-6, atol=1e-12):
            raise SurefootError(
                f"model: {name}: the compiled model differs from the fitted numbers; nothing was written"
            )
