"""Readings of force and acceleration sensors from the contacts and accelerations of another engine than MuJoCo.

Touch is the sum of normal forces on a site's body within the site's volume; a contact sensor may count the contact points
of two geoms. The others use MuJoCo's formulas with the other engine's accelerations, and contact forces as wrenches on
bodies.
"""

import copy
from dataclasses import dataclass

import mujoco
import numpy as np

from surefoot.errors import SurefootError
from surefoot.sim.engines.multibody import Field

SENSOR = mujoco.mjtSensor
TOUCH, CONTACT = int(SENSOR.mjSENS_TOUCH), int(SENSOR.mjSENS_CONTACT)
FOUND = 1 << int(mujoco.mjtConDataField.mjCONDATA_FOUND)
MOVED = {
    int(s)
    for s in (
        SENSOR.mjSENS_ACCELEROMETER, SENSOR.mjSENS_FORCE, SENSOR.mjSENS_TORQUE,
        SENSOR.mjSENS_FRAMELINACC, SENSOR.mjSENS_FRAMEANGACC,
    )
}  # fmt: skip
KNOWN = {int(SENSOR.mjSENS_ACTUATORFRC), int(SENSOR.mjSENS_JOINTACTFRC)}  # MuJoCo computes them in any case


@dataclass(frozen=True)
class Touch:
    """A contact point of a geom."""

    geom: int
    other: int
    """the geom it touches"""
    at: np.ndarray  # (3,) m
    force: np.ndarray  # (3,) N on the geom's body
    outward: np.ndarray  # (3,) the normal, away from the body
    normal: float  # N


class Readers:
    """The sensors of a model that another engine must compute; refuses those that it cannot."""

    def __init__(self, model: mujoco.MjModel):
        kinds = model.sensor_type
        for k in range(model.nsensor):
            _check(model, k)
        self.model = copy.copy(model)
        self.data = mujoco.MjData(self.model)
        self.touch = np.flatnonzero(kinds == TOUCH)
        self.met = np.flatnonzero(kinds == CONTACT)
        self.moved = np.flatnonzero(np.isin(kinds, list(MOVED)))
        self.any = bool(len(self.touch) + len(self.met) + len(self.moved))

    def __call__(
        self, field: Field, x: tuple[np.ndarray, np.ndarray, np.ndarray], touches: list[Touch], wrench: np.ndarray, out: np.ndarray
    ) -> None:  # fmt: skip
        """Write one simulation's readings, at x = (q, v, acceleration)."""
        m, d = self.model, self.data
        d.qpos[:], d.qvel[:] = x[:2]
        mujoco.mj_kinematics(m, d)
        for k in self.touch:
            out[m.sensor_adr[k]] = self._pressed(int(m.sensor_objid[k]), touches)
        for k in self.met:
            pair = {int(m.sensor_objid[k]), int(m.sensor_refid[k])}
            out[m.sensor_adr[k]] = len({tuple(t.at) for t in touches if {t.geom, t.other} == pair})
        if len(self.moved):
            self._accelerated(field, x[2], touches, wrench, out)

    def _pressed(self, site: int, touches: list[Touch]) -> float:
        m, d = self.model, self.data
        at, R, size, kind = d.site_xpos[site], d.site_xmat[site], m.site_size[site], int(m.site_type[site])
        mine = [t for t in touches if m.geom_bodyid[t.geom] == m.site_bodyid[site]]
        return sum(t.normal for t in mine if mujoco.mju_rayGeom(at, R, size, t.at, t.outward, kind, None) >= 0)

    def _accelerated(
        self, field: Field, a: np.ndarray, touches: list[Touch], wrench: np.ndarray, out: np.ndarray
    ) -> None:
        m, d = self.model, self.data
        for name in ("body_mass", "body_inertia", "body_ipos", "body_iquat"):
            getattr(m, name)[:] = field(name)
        m.opt.gravity[:] = field("opt.gravity")
        mujoco.mj_fwdPosition(m, d)
        mujoco.mj_fwdVelocity(m, d)
        d.xfrc_applied[:], d.qacc[:] = wrench, a
        for t in touches:
            b = int(m.geom_bodyid[t.geom])
            d.xfrc_applied[b, :3] += t.force
            d.xfrc_applied[b, 3:] += np.cross(t.at - d.xipos[b], t.force)
        mujoco.mj_rnePostConstraint(m, d)
        mujoco.mj_sensorAcc(m, d)
        for k in self.moved:
            at = slice(int(m.sensor_adr[k]), int(m.sensor_adr[k]) + int(m.sensor_dim[k]))
            out[at] = d.sensordata[at]


def _check(model: mujoco.MjModel, k: int) -> None:
    kind, where = int(model.sensor_type[k]), f"sensor {model.sensor(k).name or k}"
    felt = kind == CONTACT or model.sensor_needstage[k] == int(mujoco.mjtStage.mjSTAGE_ACC)
    if not felt or kind in KNOWN:
        return
    if kind == CONTACT:
        geom = int(mujoco.mjtObj.mjOBJ_GEOM)
        between = model.sensor_objtype[k] == geom == model.sensor_reftype[k]
        if not between or model.sensor_intprm[k, 0] != FOUND or model.sensor_intprm[k, 2] != 1:
            raise SurefootError(f"{where}: only MuJoCo reads more of a contact than whether two geoms touch")
    elif kind not in MOVED | {TOUCH}:
        raise SurefootError(f"{where}: {SENSOR(kind).name[7:].lower()} is computed by MuJoCo only")
    if model.sensor_history[k, 0] > 0:
        raise SurefootError(f"{where}: a force sensor with a delay is computed by MuJoCo only")
