"""surefoot train --robot-share: fine-tuning with a robot among the simulations."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from surefoot import tasks
from surefoot.learn.on_robot.settings import OnRobot
from surefoot.report import Progress, Watch
from surefoot.task import Task

if TYPE_CHECKING:
    from surefoot.verbs.train.train import Train


def keywords(asked: "Train", task: Task, watch: Watch) -> dict[str, Any]:
    """What learn.train is given, after the robot's time was said."""
    from surefoot.sim.realities import hidden

    assert asked.reality is not None
    robot, s = OnRobot.of(hidden(asked.reality, task), asked.robot_share), asked.settings
    dt = tasks.env(task, 1).world.dt
    seconds = robot.seconds(s.iterations * s.batch, s.envs, dt)
    words = f"note: {robot.rows(s.envs)} of {s.envs} rows are the robot's: {seconds:.0f} s of driving it"
    watch(Progress(words, stays=True))
    return {"robot": robot, "ranges": None}


def disagreements(asked: "Train") -> Iterator[tuple[bool, str]]:
    """Whether some flags contradict each other, and the words for it."""
    on, share = asked.robot_share != 0, asked.robot_share
    yield not 0 <= share <= 1, f"--robot-share: expected a share from 0 to 1, found {share:g}"
    yield on and asked.start is None, "--robot-share: a robot is driven by a policy that works: give --start RUN"
    yield on and asked.reality is None, "--robot-share: which robot? give --reality SEED"
    yield not on and asked.reality is not None, "--reality: only with --robot-share"
    others = {
        "--adapt": asked.adapt != "none",
        "--through": asked.through,
        "--support": asked.support,
        "--on": asked.on,
    }
    for flag, given in others.items():
        yield on and bool(given), f"--robot-share: {flag} does not go with it"
    yield on and asked.ranges not in ("task", "fixed"), "--robot-share: ranges do not grow with a robot; --ranges fixed"
