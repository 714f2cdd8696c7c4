"""What lifts a flying robot: the wrench of each control on the base, and the controls that hover.

    w = B u,  B_i = (R g_f, r x R g_f + R g_t) k        u_hover = argmin |u / (high - low)|^2  with  B u = (0, 0, m g, 0, 0, 0)

g: the actuator's gear, force then torque, in its site's frame; r: from the centre of mass to the site; k: its gain.
"""

from dataclasses import dataclass

import mujoco
import numpy as np

from surefoot.sim.anatomy.links import Links


@dataclass(frozen=True)
class Rotor:
    """One control that pushes or turns the base. Force in N and torque in N m for each unit of control, base frame."""

    actuator: str
    force: tuple[float, ...]
    torque: tuple[float, ...]
    """about the centre of mass"""
    low: float
    high: float
    hover: float
    """control at which the robot stays where it is"""
    time_constant: float
    """s, of the motor's lag; 0: none"""
    source: str = ""


def rotors(m: mujoco.MjModel, d: mujoco.MjData, tree: Links) -> tuple[Rotor, ...]:
    """Controls at sites of a free base; none where they cannot lift it."""
    ids = [i for i in range(m.nactuator) if _lifts(m, i, tree)]
    if not ids or not tree.base:
        return ()
    B = np.array([_wrench(m, d, i, tree) for i in ids]).T  # (6, nu)
    weight = float(m.body_subtreemass[tree.base] * np.linalg.norm(m.opt.gravity))
    if not (B[2] != 0).any():
        return ()
    low, high = np.array([_range(m, i) for i in ids]).T
    u = _hover(B, weight, low, high)
    return tuple(_rotor(m, i, B[:, k], (low[k], high[k]), float(u[k])) for k, i in enumerate(ids))


def _lifts(m: mujoco.MjModel, i: int, tree: Links) -> bool:
    site = m.actuator_trntype[i] == mujoco.mjtTrn.mjTRN_SITE and m.actuator_trnid[i, 1] < 0
    return bool(site and m.body_weldid[m.site_bodyid[m.actuator_trnid[i, 0]]] == tree.base)


def _wrench(m: mujoco.MjModel, d: mujoco.MjData, i: int, tree: Links) -> np.ndarray:
    site, base = int(m.actuator_trnid[i, 0]), d.xmat[tree.base].reshape(3, 3)
    R = base.T @ d.site_xmat[site].reshape(3, 3)
    r = base.T @ (d.site_xpos[site] - d.subtree_com[tree.base])
    gear = m.actuator_gear[i] * m.actuator_gainprm[i, 0]
    force = R @ gear[:3]
    return np.concatenate([force, np.cross(r, force) + R @ gear[3:]])


def _range(m: mujoco.MjModel, i: int) -> tuple[float, float]:
    k = int(m.actuator_ctrladr[i])
    return tuple(m.actuator_ctrlrange[k].tolist()) if m.actuator_ctrllimited[k] else (-np.inf, np.inf)


def _hover(B: np.ndarray, weight: float, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Least controls, in shares of their ranges, that carry the weight; torques vanish as far as they can."""
    span = np.where(np.isfinite(high - low), high - low, 1.0)
    arm = np.abs(B[3:]).max() / max(np.abs(B[:3]).max(), 1e-12) or 1.0
    rows = np.array([1, 1, 1, 1 / arm, 1 / arm, 1 / arm])[:, None]
    want = np.array([0, 0, weight, 0, 0, 0])
    return np.clip(span * (np.linalg.pinv(rows * B * span) @ (rows[:, 0] * want)), low, high)


def _rotor(m: mujoco.MjModel, i: int, w: np.ndarray, ends: tuple[float, float], hover: float) -> Rotor:
    lag = float(m.actuator_dynprm[i, 0]) if m.actuator_dyntype[i] in (int(mujoco.mjtDyn.mjDYN_FILTER), int(mujoco.mjtDyn.mjDYN_FILTEREXACT)) else 0.0  # fmt: skip
    site = m.site(m.actuator_trnid[i, 0]).name
    what = "thrust" if abs(w[2]) > 0 else "torque"
    force, torque = (tuple(float(f"{x:.7g}") for x in part) for part in (w[:3], w[3:]))
    return Rotor(str(m.actuator(i).name), force, torque, *ends, float(f"{hover:.8g}"), lag, f"{what} at site {site}")
