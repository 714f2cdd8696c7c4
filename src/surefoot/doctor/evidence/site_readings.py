"""Readings in the frame of a site that a log does not have, from those of base and joints that it has.

    base_quat@s = R_s        base_ang_vel@s = R_s^T w_s        base_lin_vel@s = R_s^T v_s        at the q and v of each row

R_s, w_s and v_s are the engine's own: attitude, angular velocity and velocity of the site. A site on the base needs no joints; one
on another link needs all joints between them.
"""

from collections.abc import Iterable, Mapping

import mujoco
import numpy as np

from surefoot.robot import Layout

NEEDS = {
    "base_quat": ("base_quat",),
    "base_ang_vel": ("base_ang_vel",),
    "base_lin_vel": ("base_quat", "base_ang_vel", "base_lin_vel"),
}
SITE = mujoco.mjtObj.mjOBJ_SITE


def site_readings(
    model: mujoco.MjModel, layout: Layout, motion: Mapping[str, np.ndarray], joints: tuple[str, ...], wanted: Iterable[str]
) -> dict[str, np.ndarray]:  # fmt: skip
    """Those of the wanted readings, such as base_ang_vel@imu, that follow from the motion; its joint columns are `joints`."""
    found: dict[str, np.ndarray] = {}
    for reading in wanted:
        quantity, _, name = reading.partition("@")
        site = mujoco.mj_name2id(model, SITE, name)
        if quantity not in NEEDS or layout.base is None or site < 0:
            continue
        between = _between(model, layout, site)
        more = ("joint_pos", "joint_vel") if between else ()
        if between <= set(joints) and all(name in motion for name in (*NEEDS[quantity], *more)):
            rows = _states(layout, motion, joints if between else ())
            found[reading] = _computed(model, *rows, site, quantity)
    return found


def _between(model: mujoco.MjModel, layout: Layout, site: int) -> set[str]:
    """Joints that move a site against the base."""
    body, found = int(model.site_bodyid[site]), set[str]()
    while body:
        own = range(model.body_jntadr[body], model.body_jntadr[body] + model.body_jntnum[body])
        found |= {model.joint(j).name for j in own if model.joint(j).name in layout.joints}
        body = int(model.body_parentid[body])
    return found


def _states(layout: Layout, motion: Mapping[str, np.ndarray], joints: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
    """(T, nq) and (T, nv): base and joints as logged, the rest at rest."""
    assert layout.base is not None  # site_readings has checked it
    (a, b), length = layout.base, len(next(iter(motion.values())))
    q, v = np.tile(layout.rest, (length, 1)), np.zeros((length, len(layout.rest)))
    for name, state, at in (("base_quat", q, a + 3), ("base_lin_vel", v, b), ("base_ang_vel", v, b + 3)):
        if name in motion:
            state[:, at : at + motion[name].shape[1]] = motion[name]
    for k, name in enumerate(joints):
        j = layout.joints.index(name)
        q[:, layout.places[j]], v[:, layout.speeds[j]] = motion["joint_pos"][:, k], motion["joint_vel"][:, k]
    return q, v


def _computed(model: mujoco.MjModel, q: np.ndarray, v: np.ndarray, site: int, quantity: str) -> np.ndarray:
    data, twist, quat = mujoco.MjData(model), np.zeros(6), np.zeros(4)
    out = np.full((len(q), 4 if quantity == "base_quat" else 3), np.nan)
    for k in np.flatnonzero(np.isfinite(q).all(1) & np.isfinite(v).all(1)):
        data.qpos[:], data.qvel[:] = q[k], v[k, : model.nv]
        mujoco.mj_kinematics(model, data)
        if quantity == "base_quat":
            mujoco.mju_mat2Quat(quat, data.site_xmat[site])
            out[k] = quat
            continue
        mujoco.mj_comPos(model, data)
        mujoco.mj_comVel(model, data)
        mujoco.mj_objectVelocity(model, data, SITE, site, twist, 1)
        out[k] = twist[:3] if quantity == "base_ang_vel" else twist[3:]
    return out
