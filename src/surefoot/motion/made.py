"""Motions made from poses: joints run smoothly from one to the next, and the base goes where the feet stay on the ground.

q(t) = q_k + (q_k+1 - q_k) s,   s = (1 - cos(pi (t - t_k) / (t_k+1 - t_k))) / 2
base: upright; x, y: the mean of the feet stays where it was; z: the lowest point under a foot is at 0
"""

from collections.abc import Mapping, Sequence

import mujoco
import numpy as np

from surefoot.errors import SurefootError
from surefoot.log import Log
from surefoot.robot import Robot
from surefoot.sim.anatomy.feet import Foot
from surefoot.sim.anatomy.links import posed
from surefoot.sim.layout import layout_of
from surefoot.sim.model.load import load_robot

Pose = Mapping[str, float]


def from_poses(robot: Robot, feet: Sequence[Foot], poses: Sequence[tuple[float, Pose]], rate: float = 50.0) -> Log:
    """A motion through poses at given times [s]; a joint that a pose does not name has its angle of the pose before, first 0."""
    if len(poses) < 2 or any(a[0] >= b[0] for a, b in zip(poses, poses[1:])):
        raise SurefootError("poses: expected two or more, at times that increase")
    m = load_robot(robot).model
    layout = layout_of(m)
    if layout.base is None:
        raise SurefootError(f"robot {robot.name}: found no free base, expected one that moves")
    names, rows, now = layout.joints, [], dict.fromkeys(layout.joints, 0.0)
    for _, pose in poses:
        now |= pose
        rows.append([now[j] for j in names])
    times = np.array([t for t, _ in poses], float)
    t = times[0] + np.arange(int((times[-1] - times[0]) * rate + 1e-6) + 1) / rate
    joints = _smooth(times, np.array(rows), t)
    q = np.tile(m.qpos0, (len(t), 1))
    q[:, list(layout.places)] = joints
    at = layout.base[0]
    q[:, at : at + 7] = [0, 0, 0, 1, 0, 0, 0]
    soles = np.array([_soles(m, row, feet) for row in q])  # (T, points, 4)
    q[:, at : at + 2] = (soles[:1, :, :2] - soles[:, :, :2]).mean(1)
    q[:, at + 2] = -(soles[:, :, 2] - soles[:, :, 3]).min(1)
    columns = {"base_pos": q[:, at : at + 3], "base_quat": q[:, at + 3 : at + 7], "joint_pos": joints}
    return Log(t - t[0], columns, {"base_pos": "m", "joint_pos": "rad"}, {"names": {"joint_pos": list(names)}})


def _smooth(times: np.ndarray, rows: np.ndarray, t: np.ndarray) -> np.ndarray:
    k = np.clip(np.searchsorted(times, t, "right") - 1, 0, len(times) - 2)
    s = (1 - np.cos(np.pi * (t - times[k]) / (times[k + 1] - times[k]))) / 2
    return rows[k] + (rows[k + 1] - rows[k]) * s[:, None]


def _soles(m: mujoco.MjModel, q: np.ndarray, feet: Sequence[Foot]) -> np.ndarray:
    """(points, 4) centres of the balls under the feet, and their radius."""
    d = posed(m, q)
    return np.array([
        [*(d.body(f.body).xpos + d.body(f.body).xmat.reshape(3, 3) @ p), f.radius] for f in feet for p in f.points
    ])  # fmt: skip
