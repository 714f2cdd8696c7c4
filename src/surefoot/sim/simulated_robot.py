"""A robot at the end of a wire: observations come in, actions go out, a Log is left. What it is made of stays hidden.

    connect -> observe -> act -> observe -> ... -> log

Row k of the log is what was measured at time[k] and what was commanded from then until time[k + 1]. When an episode of
the task ends, someone puts the robot back: the log has a hole of PAUSE seconds there (meta `gaps`).
"""

from dataclasses import replace
from typing import Any, Literal

import mujoco
import numpy as np

import surefoot
from surefoot.belief import point
from surefoot.contract import Action
from surefoot.env import Env
from surefoot.errors import SurefootError
from surefoot.log import Log
from surefoot.sim.gap.link import LostReadings
from surefoot.sim.gap.recipe import Plain
from surefoot.sim.layout import model_of
from surefoot.sim.model.load import load_robot
from surefoot.sim.realities import Reality
from surefoot.task import Task, quiet
from surefoot.world import State

PAUSE = 1.0  # s
UNITS = {
    "joint_pos": "rad or m", "joint_vel": "rad/s or m/s", "joint_torque": "N m or N", "base_pos": "m", "base_quat": "w x y z",
    "base_lin_vel": "m/s, world frame", "base_ang_vel": "rad/s, body frame",
}  # fmt: skip
S = mujoco.mjtSensor


class SimulatedRobot:
    """One machine. `drive` says what act() is given: the task's actions, or its actuators' controls as they are."""

    def __init__(
        self,
        task: Task,
        reality: Reality,
        seed: int = 0,
        drive: Literal["action", "control"] = "action",
        observation: bool = False,
    ):
        """With `observation`, the log also has the policy's observations."""
        world = reality.world(task, torque=True)
        world.sense_after_step = True  # else readings of its joints would be a timestep older than its base's
        own, e = quiet(task)
        self._env = Env(driven(own, drive), world, point(task.params, reality.values(task, e)), seed)
        self._columns = LogColumns(Plain(model_of(world)))
        self._parents = {"model": load_robot(task.robot).hash, "task": task.name}
        self._seed, self._reality, self._tells = seed, reality.seed, observation
        self._rows: list[dict[str, Any]] = []
        self._gaps: list[list[float]] = []
        self._now: dict[str, np.ndarray] = {}
        self._told: np.ndarray | None = None
        self.ended = ""
        """why the last episode ended; empty while it goes on"""

    @property
    def rate(self) -> float:
        """Hz: control periods per second."""
        return 1.0 / self._env.world.dt

    @property
    def names(self) -> dict[str, list[str]]:
        """Column of the log -> names of its parts."""
        return {"control": list(self._columns.actuators), **self._columns.names}

    def connect(self) -> np.ndarray:
        """Put it at its start and switch it on: the first observation."""
        self._told = self._env.reset()["actor"][0]
        self._now, self.ended = self._measure(), ""
        return self.observe()

    def observe(self) -> np.ndarray:
        """(obs_dim,) float32: the observation of a policy of the task."""
        if self._told is None:
            raise SurefootError("robot: not connected; expected connect() before observe() and act()")
        return np.array(self._told)

    def act(self, action: np.ndarray) -> np.ndarray:
        """Do this for one control period; returns the observation at its end."""
        observation = self.observe()
        own = {"observation": observation} if self._tells else {}
        a = np.asarray(action, float).reshape(1, -1)
        bounded = self._env.task.action.bounded(a)
        control = np.array(np.broadcast_to(self._env.control(bounded), (1, len(self._columns.actuators)))[0])
        step = self._env.step(a)
        self._rows.append({"time": self._clock(), "action": bounded[0], "control": control, **self._now, **own})
        self.ended = ""
        if step.episodes is not None and len(step.episodes.ids):
            self.ended = step.episodes.reason[0]
            self._gaps.append([self._clock(), self._clock() + PAUSE])
        self._told, self._now = step.obs["actor"][0], self._measure()
        return self.observe()

    def log(self) -> Log:
        """All since the first connect()."""
        if not self._rows:
            raise SurefootError("robot: log: found no row, expected at least one act()")
        names = [k for k in self._rows[0] if k != "time"]
        columns = {k: np.array([row[k] for row in self._rows]) for k in names}
        meta = {
            "names": self.names, "rate": self.rate, "gaps": [g for g in self._gaps if g[1] <= self._rows[-1]["time"] + 1e-9],
            "robot": "simulated", "reality": self._reality, "seed": self._seed, "surefoot": surefoot.__version__,
            "parents": self._parents,
        }  # fmt: skip
        units = {k: u for k, u in UNITS.items() if k in columns}
        return Log(np.array([row["time"] for row in self._rows]), columns, units, meta)

    def _clock(self) -> float:
        return round(len(self._rows) * self._env.world.dt + len(self._gaps) * PAUSE, 9)

    def _measure(self) -> dict[str, np.ndarray]:
        """What its sensors say now, nan where the packet was lost; and what it is asked to do."""
        found = self._columns(self._env.sensed().x)
        if any(term.lost[0] for term in self._env.observer.senses if isinstance(term, LostReadings)):
            found = {k: np.full_like(v, np.nan) for k, v in found.items()}
        return found | ({"command": self._env.command[0].copy()} if self._env.command.shape[1] else {})


class LogColumns:
    """The log's columns of a model: from its sensors where it has one, else from the state as it is sensed."""

    def __init__(self, plain: Plain):
        m = plain.model
        joints = [m.joint(j).name for j in plain.joints]
        torques = [d.joint for d in plain.drives if f"joint_torque/{d.joint}" in _sensors(m)]
        self.actuators = [m.actuator(i).name for i in range(m.nactuator) for _ in range(m.actuator_ctrlnum[i])]
        self.pos = [_place(plain, j, S.mjSENS_JOINTPOS, int(m.jnt_qposadr[j])) for j in plain.joints]
        self.vel = [_place(plain, j, S.mjSENS_JOINTVEL, int(m.jnt_dofadr[j])) for j in plain.joints]
        self.torque = {f"joint_torque/{d.joint}": d.gear for d in plain.drives if d.joint in torques}
        used = {name for name, _ in (*self.pos, *self.vel)} | set(self.torque)
        self.others = [name for name in _sensors(m) if name not in used]
        self.base = None
        if plain.free is not None:
            self.base = int(m.jnt_qposadr[plain.free]), int(m.jnt_dofadr[plain.free])
        self.names = {"joint_pos": joints, "joint_vel": joints, "joint_torque": torques} if joints else {}
        self.names = {k: v for k, v in self.names.items() if v}

    def __call__(self, x: State) -> dict[str, np.ndarray]:
        found = {}
        if self.pos:
            found["joint_pos"] = np.array([x.y[name][0, 0] if name else x.q[0, a] for name, a in self.pos])
            found["joint_vel"] = np.array([x.y[name][0, 0] if name else x.v[0, a] for name, a in self.vel])
        if self.torque:
            found["joint_torque"] = np.array([gear * x.y[name][0, 0] for name, gear in self.torque.items()])
        if self.base is not None:
            q, v = self.base
            found |= {"base_pos": x.q[0, q : q + 3], "base_quat": x.q[0, q + 3 : q + 7]}
            found |= {"base_lin_vel": x.v[0, v : v + 3], "base_ang_vel": x.v[0, v + 3 : v + 6]}
        found |= {name: x.y[name][0] for name in self.others}
        return {k: np.array(v, float) for k, v in found.items()}


def _sensors(m: mujoco.MjModel) -> list[str]:
    return [m.sensor(i).name for i in range(m.nsensor)]


def _place(plain: Plain, j: int, kind: mujoco.mjtSensor, address: int) -> tuple[str, int]:
    """The model's sensor of a joint, or no name and where it is in the state."""
    own = [i for i in plain.sensors(kind) if plain.model.sensor_objid[i] == j]
    return (plain.model.sensor(own[0]).name if own else "", address)


def driven(task: Task, drive: str) -> Task:
    """The task as it is driven: by its actions, or by controls, when nothing ends it."""
    if drive == "action":
        return task
    width = len(task.action.names)
    action = Action(task.action.names, np.zeros(width), np.ones(width), task.action.unit, np.inf)
    return replace(task, action=action, ended={}, seconds=1e6, clip=None)
