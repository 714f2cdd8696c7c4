"""What benchmarks that train share: a policy after so many env steps, a student after so many, beliefs to train over."""

import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from typing import Any, TypeVar

from surefoot import tasks
from surefoot.belief import Belief, Box
from surefoot.learn.distill import Distill, classroom
from surefoot.learn.loop import policy_of
from surefoot.learn.nets.policy_net import PolicyNet
from surefoot.learn.on_policy.ppo import PPO
from surefoot.learn.settings import DistillSettings, PPOSettings
from surefoot.learn.train import Grows
from surefoot.task import Task

Found = TypeVar("Found")
JUDGED = 1_000_000  # seed of the episodes that judge, which no training sees


def within(task: Task, **ranges: tuple[float, float]) -> Box:
    """The task's own belief with some ranges replaced."""
    assert isinstance(task.belief, Box)
    own = {n: (float(a), float(b)) for n, a, b in zip(task.params.names, task.belief.low, task.belief.high)}
    return Box.ranges(task.params, own | ranges)


def learned(
    task: Task, belief: Belief, seed: int, steps: int, grows: Grows | None = None, **changes: Any
) -> tuple[PolicyNet, PPO, list[dict[str, float]]]:
    """A policy after so many env steps, the learner it came from, and what each iteration logged. It has a core: see
    `by_seed`."""
    settings = replace(PPOSettings(**task.settings), steps=steps, learner_threads=1, **changes)
    env = tasks.env(task, settings.envs, belief, seed, stagger=True)
    ranges = None if grows is None else grows.start(belief, env.steps, settings.iterations * settings.horizon)
    learner = PPO(env, settings, seed, ranges)
    logged = [learner.iterate() for _ in range(settings.iterations)]
    return policy_of(learner), learner, logged


def by_seed(one: Callable[[int, bool], Found], seeds: int, quick: bool) -> list[Found]:
    """one(seed, quick) for seeds 0, 1, ..., side by side, a core each: two runs on a core each are 1.4 times as quick as
    one after the other on both."""
    cores = sorted(os.sched_getaffinity(0))
    if seeds == 1 or len(cores) == 1:
        return [one(seed, quick) for seed in range(seeds)]
    context = multiprocessing.get_context("spawn")
    free = context.Queue()
    for core in cores:
        free.put(core)
    with ProcessPoolExecutor(min(seeds, len(cores)), context, _settle, (free,)) as pool:
        return list(pool.map(one, range(seeds), [quick] * seeds))


def _settle(free: Any) -> None:
    os.sched_setaffinity(0, {free.get()})


def taught(task: Task, belief: Belief, teacher: PolicyNet, seed: int, lesson: DistillSettings) -> PolicyNet:
    lesson = replace(lesson, learner_threads=1)
    env = tasks.env(classroom(task, teacher, lesson.history, lesson.only), lesson.envs, belief, seed, stagger=True)
    apprentice = Distill(env, lesson, seed, teacher)
    for _ in range(lesson.iterations):
        apprentice.iterate()
    return policy_of(apprentice)
