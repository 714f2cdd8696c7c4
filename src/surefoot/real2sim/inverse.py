"""Inverse dynamics: the torque a model needs for a measured motion, against the torque that was measured.

    tau = M(q) a + c(q, v) - tau_passive - J^T f            row by row: errors do not add up over time

q, v and a are polynomials of third order fitted to `smooth` seconds around each row (Savitzky-Golay), and the measured torque passes
the same filter: both then have the same bandwidth. A motor's torque from its current needs kt: {"expr": "kt * current"} in a mapping.
"""

import mujoco
import numpy as np

from surefoot.errors import LogError
from surefoot.log import Log
from surefoot.real2sim.replay import Replay, encoder_shift, score, sized, stretches
from surefoot.real2sim.signals import Signal, joints_of, measured, refuse_empty, starts
from surefoot.sim.engine import Engine
from surefoot.world import Start, World

SMOOTH = 0.06  # s around each row
ORDER = 3  # of the polynomials
TORQUE = "joint_torque"


def inverse(world: World, log: Log, e: np.ndarray | None = None, smooth: float = SMOOTH) -> Replay:
    """The column joint_torque, predicted from the motion; growth and horizon do not apply."""
    if not isinstance(world, Engine) or world.mover is not None:
        raise LogError("inverse: expected a world that MuJoCo simulates")
    for name in (TORQUE, "joint_pos"):
        if name not in log.columns:
            raise LogError(f"inverse: found no column {name}; found {', '.join(log.columns) or 'none'}")
    joints = joints_of(world.layout, log, TORQUE)
    signal = Signal(TORQUE, tuple(world.layout.joints[j] for j in joints), "N m", lambda x: x.v)
    refuse_empty(log, TORQUE, signal.parts)
    e = world.params.nominal if e is None else e
    there = np.isfinite(measured(log, TORQUE)).all(1) & np.isfinite(measured(log, "joint_pos")).all(1)
    width = 2 * max(round(smooth / world.dt / 2), (ORDER + 1) // 2 + 1) + 1
    parts = [(a, b + 1) for a, b in stretches(world, log, there, there) if b + 1 - a >= width]
    if not parts:
        raise LogError(f"inverse: found no {width} consecutive rows without a gap, expected {smooth:g} s of them")
    each = [_stretch(world, log, e, np.arange(a, b), width) for a, b in parts]
    found, given = (np.concatenate(x)[:, np.array(world.layout.speeds, int)[joints]] for x in zip(*each))
    rows = np.concatenate([np.arange(a, b) for a, b in parts])
    scores = (score(signal, found - given, given),)
    return Replay(log.time[rows], {TORQUE: given}, {TORQUE: found}, scores, {TORQUE: float("nan")}, {}, 0)


def _stretch(world: Engine, log: Log, e: np.ndarray, rows: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
    """(T, nv) predicted and measured torque of rows without a gap."""
    from scipy.signal import savgol_filter

    begin = starts(world, log, rows)
    given = np.zeros((len(rows), world.nv))
    speeds = np.array(world.layout.speeds, int)
    given[:, speeds[joints_of(world.layout, log, TORQUE)]] = measured(log, TORQUE)[rows]
    filtered = lambda x, k: savgol_filter(x, width, ORDER, k, world.dt, axis=0)  # noqa: E731
    q = begin.q - encoder_shift(world, e[None])
    places = np.array(world.layout.places, int)
    if "joint_vel" in log.columns:
        v, a = filtered(begin.v, 0), filtered(begin.v, 1)
    else:  # a base's attitude has no derivative by parts: its velocity is as logged
        v, a = filtered(begin.v, 0), filtered(begin.v, 1)
        v[:, speeds], a[:, speeds] = filtered(q[:, places], 1), filtered(q[:, places], 2)
    q[:, places] = filtered(q[:, places], 0)
    given = filtered(given, 0)
    return torques(world, e, q, v, a), given


def torques(world: Engine, e: np.ndarray, q: np.ndarray, v: np.ndarray, a: np.ndarray) -> np.ndarray:
    """(T, nv) torque of the motors at states q (T, nq), v and accelerations a (T, nv).

    Gears whose friction has a law carry what moves the links: M a + c without the rotors' part.
    """
    one = sized(world, 1)
    assert isinstance(one, Engine)
    one.reset(np.arange(1), e[None], Start(q[:1], v[:1], np.zeros((1, one.nu))))
    model = one.batch.get_model(0)
    data, found = mujoco.MjData(model), np.empty_like(a)
    for k in range(len(q)):
        data.qpos, data.qvel, data.qacc = q[k], v[k], a[k]
        if one.rubbing:
            model.dof_frictionloss[:] = 0.0
            mujoco.mj_inverse(model, data)
            gear = (data.qfrc_inverse + data.qfrc_damper - model.dof_armature * a[k])[None]
            model.dof_frictionloss[:] = one.rubbing.law(one.rubbing.loss0, e[None], v[k : k + 1], gear, v[k : k + 1])[0]
        mujoco.mj_inverse(model, data)
        found[k] = data.qfrc_inverse
    return found - one.offset(e[None])
