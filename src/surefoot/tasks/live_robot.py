"""A simulated robot in real time, without its wire: sensors as a driver hands them out, servos with gains, and damping.

    servo    torque = kp (target - q) - kd v, by the model's own servo of kp', kd':  u = q + (kp (target - q) - (kd - kd') v) / kp'
             kp' and kd' are the model's: a machine whose gains are off has torques that are off, whatever it is sent
    control  u = target            damping  the same with kp = 0; what is no servo gets u = -kd v / gear

A robot that falls while its joints move to the policy's first pose begins on a gantry, which lets go at the policy's first
command. A run is judged from there on.

It steps in periods of at most STEP, whatever the task's control period is, so that commands act when they come. A caller that
sends one command a control period, in lockstep, may ask for steps as long as that.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from surefoot.belief import point
from surefoot.deploy.links import About, Command
from surefoot.env import Env
from surefoot.errors import SurefootError
from surefoot.robot import Drive
from surefoot.sim.gantry import Gantry, with_gantry
from surefoot.sim.gap.link import LostReadings
from surefoot.sim.gap.recipe import Plain
from surefoot.sim.layout import model_of
from surefoot.sim.model.load import load_robot
from surefoot.sim.realities import Reality
from surefoot.sim.simulated_robot import LogColumns, driven
from surefoot.task import Task, quiet
from surefoot.tasks.rollout import contract

STEP = 0.005  # s
ALONE = 5.0  # s


@dataclass(frozen=True)
class Flown:
    """What became of a run, by the task's own measure."""

    run: int
    seconds: float
    """that it was driven"""
    ended: str
    """why the episode ended; `time` where it lasted; empty where it was cut short"""
    error: float | None
    success: bool


class LiveRobot:
    """One machine. Its readings are those that formulas of training read, and further ones that a log has."""

    def __init__(
        self,
        task: Task,
        reality: Reality,
        seed: int = 0,
        command: tuple[float, ...] = (),
        step: float = STEP,
        hangs: bool = False,
    ):
        """`command` is what its runs are asked for, to judge them by; empty: zeros. `step`: s, the longest between commands.
        `hangs`: on a gantry, until its policy acts."""
        if len(command) not in (0, len(task.command_names)):
            names = ", ".join(task.command_names) or "none"
            raise SurefootError(
                f"--command: expected {len(task.command_names)} numbers ({names}), found {len(command)}"
            )
        self.command = np.array(command or np.zeros(len(task.command_names)))
        self.task, self.seed, self.hash = task, seed, load_robot(task.robot).hash
        fine, self.dt = _finer(replace(task, robot=with_gantry(task.robot)) if hangs else task, step)
        world = reality.world(fine, torque=True)
        world.sense_after_step = True
        own, e = quiet(driven(fine, "control"))
        self.env = Env(
            replace(own, rewards={}, command_every=np.inf), world, point(task.params, reality.values(task, e)), seed
        )
        self.gantry = Gantry(world) if hangs else None
        self.columns = LogColumns(Plain(model_of(world)))
        drives = {d.actuator: d for d in Reality(0).world(fine).layout.drives}  # its gains as its maker believes them
        self.drives: list[Drive | None] = [drives.get(name) for name in task.action.names]
        self.flights: list[Flown] = []
        self.run = -1

    def about(self) -> About:
        joints = {k: tuple(v) for k, v in self.columns.names.items()}
        parts = {**joints, "control": self.task.action.names}
        return About(
            parts, 1 / self.dt, f"simulated {self.task.robot.name}", {"model": self.hash, "task": self.task.name}
        )

    def reset(self, run: int) -> None:
        self.land()
        self.env.reset(self.seed + run)
        self.env.command[:] = self.command
        self.run, self.steps, self.ended, self.error, self.begun = run, 0, "", 0.0, False
        if self.gantry is not None:
            self.gantry.hang()

    def readings(self) -> dict[str, np.ndarray] | None:
        if any(term.lost[0] for term in self.env.observer.senses if isinstance(term, LostReadings)):
            return None
        now = self.env.sensed()
        found = self.columns(now.x)
        for name in (*found, *now.layout.sensors):
            if name not in found or name in ("joint_pos", "joint_vel"):
                found[name] = np.array(now.reading(name)[0], float)
        return found

    def advance(self, command: Command | None) -> None:
        if command is not None and not command.starting and not self.begun:
            self._begin()
        self.env.step(self._controls(command)[None])
        if command is not None and self.begun:
            self.steps += 1
            self._judge()

    def _begin(self) -> None:
        """The policy acts from now on: its run, and the motion that it may follow, begin."""
        self.begun, self.env.age[:] = True, 0
        if self.gantry is not None:
            self.gantry.release()

    def land(self) -> None:
        """Note what became of the run that ends here."""
        if self.run >= 0 and self.steps:
            lasted = self.ended == "time"
            good = lasted and self.error <= self.task.tolerance
            error = self.error if lasted else None
            self.flights.append(Flown(self.run, self.steps * self.dt, self.ended, error, good))
            self.steps = 0

    def _controls(self, command: Command | None) -> np.ndarray:
        x = self.env.world.state
        if command is not None and command.mode == "control":
            return command.target
        nothing = np.zeros(len(self.drives))
        target, kp, kd = (command.target, command.kp, command.kd) if command is not None else (nothing,) * 3
        u = np.zeros(len(self.drives))
        for i, d in enumerate(self.drives):
            if d is None:
                continue
            place = x.q[0, self.env.layout.places[self.env.layout.joints.index(d.joint)]]
            speed = x.v[0, d.dof]
            if d.kp > 0:
                own = d.kd if command is None else kd[i]
                u[i] = place + (kp[i] * (target[i] - place) - (own - d.kd) * speed) / d.kp
            elif d.gear:
                u[i] = -kd[i] * speed / d.gear
        return u

    def _judge(self) -> None:
        """Ends and error of the task, at its own control rate."""
        every = max(1, round(self.period / self.dt))
        if self.ended or self.steps % every:
            return
        now, t = self.env.moment, self.steps * self.dt
        for why, test in self.task.ended.items():
            if test(now)[0]:
                self.ended = why
                return
        span = max(1, round(min(self.task.window, self.task.seconds) / self.period))
        if t > self.task.seconds - span * self.period + 1e-9:
            error = float(self.task.error(now)[0])
            self.error = max(self.error, error) if self.task.measure == "max" else self.error + error / span
        if t >= self.task.seconds - 1e-9:
            self.ended = "time"

    @property
    def period(self) -> float:
        """s, of the task's control"""
        return self.task.substeps * float(load_robot(self.task.robot).own[0].opt.timestep)


def falls(task: Task) -> bool:
    """Whether the nominal robot falls within ALONE seconds in which its servos hold the policy's first pose and nobody balances."""
    live = LiveRobot(task, Reality(0, {}))
    live.reset(0)
    law = contract(task, live.env.world)
    if not law.kp:
        return False
    hold = Command(0, "servo", np.array(law.first_pose), np.array(law.kp), np.array(law.kd), starting=True)
    for _ in range(round(ALONE / live.dt)):
        live.advance(hold)
        live.env.age[:] = 0  # a motion has not begun
        if any(test(live.env.moment)[0] for test in task.ended.values()):
            return True
    return False


def _finer(task: Task, longest: float) -> tuple[Task, float]:
    """The task with control periods of at most `longest`, and their length."""
    step = float(load_robot(task.robot).own[0].opt.timestep)
    if longest >= task.substeps * step:
        return task, task.substeps * step
    parts, substeps = max(1, math.ceil(step / longest - 1e-9)), max(1, math.floor(longest / step + 1e-9))
    if parts == 1:
        return replace(task, substeps=substeps), substeps * step
    return replace(task, robot=task.robot.edited(_timestep(step / parts)), substeps=1), step / parts


def _timestep(seconds: float) -> Callable[[Any], None]:
    def edit(spec: Any) -> None:
        spec.option.timestep = seconds

    return edit
