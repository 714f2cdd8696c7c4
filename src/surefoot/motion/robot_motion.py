"""A motion in a robot's own joints: its places by kinematics, cut, resampled, mirrored, and what can be measured on it."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import mujoco
import numpy as np

from surefoot.errors import SurefootError
from surefoot.log import Log
from surefoot.motion.figure import Panel
from surefoot.motion.person import FLIP, MIRROR, between_rows
from surefoot.robot import Layout, Robot
from surefoot.rotation import slerp, unit
from surefoot.sim.anatomy.links import Links
from surefoot.sim.anatomy.study import Anatomy, study
from surefoot.sim.layout import layout_of
from surefoot.sim.model import edits
from surefoot.sim.model.load import load_robot


@dataclass(frozen=True, eq=False)
class Kinematic:
    """A robot's model with a free base, for kinematics alone."""

    model: mujoco.MjModel
    layout: Layout
    anatomy: Anatomy

    @cached_property
    def data(self) -> mujoco.MjData:
        return mujoco.MjData(self.model)

    @property
    def base(self) -> int:
        """Where the base's place begins in q."""
        assert self.layout.base is not None
        return self.layout.base[0]

    def q(self, log: Log) -> np.ndarray:
        """(T, nq) of a motion; joints that it does not name are in the default pose."""
        q = np.tile(self.anatomy.home, (len(log), 1))
        q[:, self.base : self.base + 3] = log["base_pos"]
        q[:, self.base + 3 : self.base + 7] = unit(log["base_quat"])
        places = dict(zip(self.layout.joints, self.layout.places))
        q[:, [places[j] for j in log.meta["names"]["joint_pos"]]] = log["joint_pos"]
        return q

    def log(self, time: np.ndarray, q: np.ndarray, meta: dict[str, Any] | None = None) -> Log:
        """The motion of positions (T, nq)."""
        at = self.base
        columns = {
            "base_pos": q[:, at : at + 3],
            "base_quat": q[:, at + 3 : at + 7],
            "joint_pos": q[:, list(self.layout.places)],
        }
        about = {"names": {"joint_pos": list(self.layout.joints)}} | (meta or {})
        return Log(time, columns, {"base_pos": "m", "joint_pos": "rad"}, about)

    def bodies(self, q: np.ndarray) -> np.ndarray:
        """(T, nbody, 3) places of all bodies."""
        out = np.zeros((len(q), self.model.nbody, 3))
        for k, row in enumerate(q):
            self.data.qpos[:] = row
            mujoco.mj_kinematics(self.model, self.data)
            out[k] = self.data.xpos
        return out

    def soles(self, q: np.ndarray) -> np.ndarray:
        """(T, feet, 3 + 1): middle of each sole, and the lowest point under it."""
        m, d, feet = self.model, self.data, self.anatomy.feet
        out = np.zeros((len(q), len(feet), 4))
        for k, row in enumerate(q):
            d.qpos[:] = row
            mujoco.mj_kinematics(m, d)
            for i, f in enumerate(feet):
                b = m.body(f.body).id
                points = d.xpos[b] + np.array(f.points) @ d.xmat[b].reshape(3, 3).T
                out[k, i, :3], out[k, i, 3] = points.mean(0), points[:, 2].min() - f.radius
        return out

    def numbers(self, log: Log) -> dict[str, float]:
        """What a motion asks of the robot."""
        q = self.q(log)
        joints = q[:, list(self.layout.places)]
        low, high = np.array(self.layout.limits).T
        beyond = np.maximum(low - joints, joints - high).max()
        fast = np.abs(np.diff(joints, axis=0)).max() * log.rate
        soles = self.soles(q[:: max(1, len(q) // 300)])[..., 3]
        walk = np.linalg.norm(np.diff(log["base_pos"][:, :2], axis=0), axis=1).sum()
        return {
            "fastest_joint": float(fast), "beyond_limits": float(max(beyond, 0.0)), "lowest_sole": float(soles.min()), "path": float(walk),
        }  # fmt: skip

    def rows(self, log: Log) -> Iterable[tuple[str, float, str]]:
        n = self.numbers(log)
        yield "fastest joint", n["fastest_joint"], "rad/s"
        yield "farthest beyond a joint's range", n["beyond_limits"], "rad"
        yield "lowest point under a foot", n["lowest_sole"], "m"
        yield "path of the base", n["path"], "m"

    def panel(self, log: Log, title: str) -> Panel:
        tree = Links(self.model)
        pos = self.bodies(self.q(log))
        bones = [(tree.parent(x), x) for x in tree.robot if tree.parent(x)]
        ends = [x for x in tree.ends if x in tree.robot]
        tips = np.stack([self._tip(x, log) for x in ends], 1) if ends else np.zeros((len(log), 0, 3))
        all_pos = np.concatenate([pos, tips], 1)
        bones += [(x, self.model.nbody + k) for k, x in enumerate(ends)]
        return Panel(title, all_pos, bones, log["base_pos"][:, :2])

    def _tip(self, link: int, log: Log) -> np.ndarray:
        """(T, 3) middle of a last link's mass, so that feet and hands show."""
        out = np.zeros((len(log), 3))
        for k, row in enumerate(self.q(log)):
            self.data.qpos[:] = row
            mujoco.mj_kinematics(self.model, self.data)
            out[k] = self.data.xipos[link]
        return out


def kinematic(robot: Robot) -> Kinematic:
    """The robot for kinematics; raises where it has no free base or no legs."""
    spec = load_robot(robot).spec
    edits.name_parts(spec)
    edits.free_base(spec)
    m = spec.compile()
    layout = layout_of(m)
    found = study(m)
    if layout.base is None or len(found.legs) < 2:
        raise SurefootError(f"robot {robot.name}: found {len(found.legs)} legs on {'no ' if layout.base is None else 'a '}free base, expected a robot that walks")  # fmt: skip
    return Kinematic(m, layout, found)


def cut(log: Log, begin: float, end: float) -> Log:
    t = log.time - log.time[0]
    rows = (t >= begin - 1e-9) & (t <= end + 1e-9)
    if rows.sum() < 3:
        raise SurefootError(f"cut: found {int(rows.sum())} rows from {begin:g} to {end:g} s, expected at least 3; it lasts {t[-1]:.3f} s")  # fmt: skip
    return Log(t[rows] - t[rows][0], {k: v[rows] for k, v in log.columns.items()}, log.units, log.meta)


def resampled(log: Log, rate: float) -> Log:
    """At an even rate: joints and places by lines, attitudes the shorter way round."""
    t = np.arange(int((log.time[-1] - log.time[0]) * rate + 1e-6) + 1) / rate
    i, s = between_rows(log.time - log.time[0], t)
    columns = {k: v[i] * (1 - s)[:, None] + v[i + 1] * s[:, None] for k, v in log.columns.items() if v.ndim == 2}
    quat = unit(log["base_quat"])
    columns["base_quat"] = slerp(quat[i], quat[i + 1], s)
    return Log(t, columns, {k: u for k, u in log.units.items() if k in columns}, log.meta)


def mirrored(log: Log, body: Kinematic) -> Log:
    """Left and right exchanged, by the robot's own symmetry."""
    names = log.meta["names"]["joint_pos"]
    pairs = body.anatomy.mirror.pairs
    lacks = [j for j in names if j not in pairs or pairs[j][0] not in names]
    if lacks:
        raise SurefootError(f"mirror: found no joint that is the mirror image of {', '.join(lacks[:6])}")
    q = np.stack([pairs[j][1] * log["joint_pos"][:, names.index(pairs[j][0])] for j in names], 1)
    columns = {"base_pos": log["base_pos"] * MIRROR, "base_quat": log["base_quat"] * FLIP, "joint_pos": q}
    return Log(log.time, columns, {"base_pos": "m", "joint_pos": "rad"}, log.meta)
