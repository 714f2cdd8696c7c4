"""What benchmarks that train share: a policy after so many env steps, a student after so many, beliefs to train over."""

from dataclasses import replace
from typing import Any

from surefoot import tasks
from surefoot.belief import Belief, Box
from surefoot.learn.loop import policy_of
from surefoot.learn.ppo import PPO, Learner
from surefoot.learn.student import Apprentice, Student, classroom
from surefoot.learn.train import Grows
from surefoot.policy import Net
from surefoot.task import Task

JUDGED = 1_000_000  # seed of the episodes that judge, which no training sees


def within(task: Task, **ranges: tuple[float, float]) -> Box:
    """The task's own belief with some ranges replaced."""
    assert isinstance(task.belief, Box)
    own = {n: (float(a), float(b)) for n, a, b in zip(task.params.names, task.belief.low, task.belief.high)}
    return Box.ranges(task.params, own | ranges)


def learned(
    task: Task, belief: Belief, seed: int, steps: int, grows: Grows | None = None, **changes: Any
) -> tuple[Net, Learner, list[dict[str, float]]]:
    """A policy after so many env steps, the learner it came from, and what each iteration logged."""
    settings = replace(PPO(**task.settings), steps=steps, **changes)
    env = tasks.env(task, settings.envs, belief, seed, stagger=True)
    learner = Learner(env, settings, seed, grows.start(belief, env.steps) if grows is not None else None)
    logged = [learner.iterate() for _ in range(settings.iterations)]
    return policy_of(learner), learner, logged


def taught(task: Task, belief: Belief, teacher: Net, seed: int, lesson: Student) -> Net:
    env = tasks.env(classroom(task, teacher, lesson.history), lesson.envs, belief, seed, stagger=True)
    apprentice = Apprentice(env, lesson, seed, teacher)
    for _ in range(lesson.iterations):
        apprentice.iterate()
    return policy_of(apprentice)
