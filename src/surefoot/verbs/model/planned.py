"""What `surefoot plan` plans: a made example, or a whole robot's motion with the worlds of its task's belief, and what came of it.

The examples are of motion/made_hands.py and made_gripper.py. Their worlds differ in friction, from 1 down to LEAST of it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from surefoot import tasks
from surefoot.errors import SurefootError, unknown
from surefoot.log import Log
from surefoot.motion import made_gripper, made_hands
from surefoot.motion.dynamic import PLAN, Case, Make, Plan, Reference, replayed
from surefoot.motion.dynamic_body import whole_body
from surefoot.motion.made_gripper import ThreeFingers
from surefoot.motion.made_hands import Hands
from surefoot.motion.read import read_motion
from surefoot.motion.robot_motion import cut
from surefoot.params import Params
from surefoot.report import Block, Note, Picture, Text
from surefoot.rng import stream
from surefoot.robot import Robot
from surefoot.sim.layout import layout_of
from surefoot.sim.model.load import load_robot
from surefoot.sim.simulate import make_world
from surefoot.task import Task

BODY = Plan(noise=0.1, samples=64, rounds=4, horizon=0.4, knot=0.1, apply=0.1, temperature=0.6)
LEAST = 0.45  # of the nominal friction, in the last world of a made example

Made = Callable[[], tuple[Callable[[int], Make], Reference, Params, str, tuple[int, int], str]]


def _hands(reference: Callable[[], Reference]) -> Made:
    return lambda: (Hands, reference(), made_hands.PARAMS, "box", (0, 2), "m")


def _gripper(reference: Callable[[], Reference], places: tuple[int, int], unit: str) -> Made:
    return lambda: (ThreeFingers, reference(), made_gripper.PARAMS, "can", places, unit)


MADE: dict[str, Made] = {
    "lift": _hands(made_hands.lift),
    "push": _hands(made_hands.push),
    "pivot": _hands(made_hands.pivot),
    "hand-lift": _gripper(made_gripper.lift, (0, 3), "m"),
    "hand-turn": _gripper(made_gripper.turn, (3, 7), "rad"),
}


def made(name: str, worlds: int = 1, threads: int = 1) -> Case:
    """A made example: two fingers lift, push or pivot a box; a hand of three lifts or turns a can."""
    if name not in MADE:
        raise unknown("example", name, MADE)
    make, reference, params, part, places, unit = MADE[name]()
    e = np.tile(params.nominal, (worlds, 1))
    e[:, params.names.index("friction")] = np.linspace(1.0, LEAST, worlds) if worlds > 1 else 1.0
    return Case(name, part, make(threads), reference, params, e, PLAN, places, unit)


@dataclass(frozen=True, eq=False)
class Whole:
    """A robot and its motion."""

    name: str
    robot: Robot
    """as it was given"""
    task: Task
    """that follows the motion: its robot has a floor and servos"""
    motion: Log

    @property
    def notes(self) -> list[str]:
        things = "box_pos" in self.motion.columns or "things" in self.motion.meta.get("constants", {})
        return ["the motion has things; the plan has the robot and the floor alone"] if things else []

    def case(self, worlds: int, seed: int, threads: int) -> Case:
        """The nominal world, and others drawn from the task's belief."""
        task = self.task
        make: Make = lambda n: make_world(task.robot, task.params, n, task.substeps, threads)  # noqa: E731
        e = task.params.nominal[None]
        if worlds > 1:
            e = np.concatenate([e, task.belief.sample(stream(seed, "plan"), worlds - 1)])
        reference = whole_body(task.robot, self.motion, make(1).dt)
        at, _ = self._base
        return Case(self.name, "base", make, reference, task.params, e, BODY, (at, at + 3))

    @property
    def _base(self) -> tuple[int, int]:
        base = layout_of(load_robot(self.task.robot).model).base
        assert base is not None  # whole_body says so where it has none
        return base

    def log(self, log: Log) -> Log:
        """Also with the columns of a motion file, so that a policy can track what physics did."""
        model = load_robot(self.task.robot).model
        layout, (at, _), q = layout_of(model), self._base, log["q"]
        more = {
            "base_pos": q[:, at : at + 3],
            "base_quat": q[:, at + 3 : at + 7],
            "joint_pos": q[:, list(layout.places)],
        }
        names = {"joint_pos": list(layout.joints), "control": [str(model.actuator(k).name) for k in range(model.nu)]}
        units = {"base_pos": "m", "joint_pos": "rad", "control": "rad"}
        return Log(log.time, {**log.columns, **more}, units, log.meta | {"names": names})

    def facts(self, log: Log, case: Case) -> dict[str, Any]:
        """rad RMSE of the joints from the motion's, planned and where its joints are replayed as they are, in the nominal world."""
        places = list(layout_of(load_robot(self.task.robot).model).places)
        ref = case.reference
        rmse = lambda q: float(np.sqrt(((q - ref.q[: len(q)])[:, places] ** 2).mean()))  # noqa: E731
        return {"joint_rmse": rmse(log["q"]), "kinematic_joint_rmse": rmse(replayed(case.make, ref.u, ref.q[0], case.e[:1])[0])}  # fmt: skip

    def blocks(self, facts: dict[str, Any]) -> list[Block]:
        words = f"joints {facts['joint_rmse']:.3g} rad (RMSE) from the motion; kinematic replay {facts['kinematic_joint_rmse']:.3g} rad"
        return [Text(words), *map(Note, self.notes)]

    def film(self, log: Log, case: Case) -> Picture:
        """The motion, its kinematic replay, and the plan, side by side."""
        from surefoot.motion.figure import film
        from surefoot.motion.robot_motion import kinematic

        kin, ref = kinematic(self.task.robot), case.reference
        plain = replayed(case.make, ref.u, ref.q[0], case.e[:1])[0]
        titles = {"motion": ref.q, "kinematic replay": plain, "planned": log["q"]}
        shown = [kin.panel(kin.log(log.time, q[: len(log)]), title) for title, q in titles.items()]
        return Picture(film(shown, log.rate), "svg+xml", self.name)


def whole(motion: Path, robot: str, asset_root: str, rate: float | None, part: tuple[float, float] | None) -> Whole:
    """Of a motion file and a robot's model or task."""
    from surefoot.verbs.arguments import robot_of

    given = tasks.resolve(robot) if tasks.is_reference(robot) else None
    body = robot_of(robot, asset_root) if given is None else given.robot
    log = read_motion(motion, layout_of(load_robot(body).model).joints, rate)
    log = cut(log, *part) if part else log
    try:
        task = given if given is not None and given.clip is not None else tasks.track(body, log)
    except SurefootError as error:
        raise SurefootError(f"{robot}: {error}") from None
    return Whole(f"{motion.name}, {task.robot.name}", body, task, log)
