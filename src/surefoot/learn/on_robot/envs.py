"""Simulations and a robot side by side, as one learner sees them.

    rows 0 .. n - m - 1: simulations, each with its own e ~ p(e)        rows n - m .. n - 1: the robot, whose e nobody knows

m rows of a simulated robot are m times as long a drive of one. Its critic is given the e that is believed, not the robot's own;
its sensors' noise is the machine's. The reward, and the critic's other terms, are computed from the robot's state: on a real robot
from what is measured or estimated of it.
"""

from dataclasses import replace
from functools import partial

import numpy as np

from surefoot import tasks
from surefoot.belief import Belief, point
from surefoot.blocks import Blocks, sizes
from surefoot.env import Env
from surefoot.errors import SurefootError
from surefoot.learn.joined.parts import Joined
from surefoot.learn.on_robot.settings import OnRobot
from surefoot.observation import ObsGroup, ObsTerm
from surefoot.sim.learned import LearnedTerm
from surefoot.task import Moment, Task, quiet


def with_robot(
    task: Task,
    belief: Belief,
    how: OnRobot,
    envs: int,
    seed: int,
    threads: int = 0,
    terms: tuple[LearnedTerm, ...] = (),
) -> Joined:
    """Envs of a task, of which the last are the robot's; `task` has the runtime's limiter already."""
    if task.clip is not None:
        raise SurefootError(f"robot: {task.name} follows a reference motion; expected a task that does not")
    m = how.rows(envs)
    parts: dict[str, Blocks | Env] = {}
    if m < envs:
        first, *more = sizes(envs - m)
        env = tasks.env(task, first, belief, seed, threads, stagger=True, terms=terms)
        parts["sim"] = Blocks.like(env, more, threads)
    parts["robot"] = robot_env(task, belief, how, m, seed, envs - m, threads)
    return Joined(parts, belief, reported=("robot",))


def robot_env(task: Task, belief: Belief, how: OnRobot, n: int, seed: int, first: int, threads: int) -> Env:
    """n rows of the robot."""
    still, e = quiet(task)
    groups = {**task.observations, "actor": still.observations["actor"]}
    own = replace(task, observations={g: _without_truth(group, belief) for g, group in groups.items()})
    world = how.reality.world(own, n, threads=max(threads, 1))
    world.sense_after_step = True  # as the robot of a log is read
    return Env(own, world, point(own.params, how.reality.values(own, e)), seed, stagger=True, first=first)


def _without_truth(group: ObsGroup, belief: Belief) -> ObsGroup:
    """A group whose e is the one that is believed."""
    guess = np.clip(belief.estimate(), belief.params.low, belief.params.high)
    return replace(group, terms=tuple(_guessed(t, guess) if t.name == "e" else t for t in group.terms))


def _guessed(term: ObsTerm, e: np.ndarray) -> ObsTerm:
    return replace(term, source=partial(_rows_of, e=e))


def _rows_of(s: Moment, e: np.ndarray) -> np.ndarray:
    return np.broadcast_to(e, (len(s.q), len(e)))
