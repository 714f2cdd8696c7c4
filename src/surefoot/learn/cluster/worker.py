"""A worker: some of a run's envs, in a process of its own, collecting as the learner says.

It finds the task by the reference that the user gave, and refuses one that is not the learner's by content.
"""

import platform
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from surefoot import files
from surefoot.belief import Belief
from surefoot.blocks import sizes
from surefoot.errors import SurefootError
from surefoot.learn import keep_freed_memory
from surefoot.learn.collect import Act, Draws, LocalCollector, Rollout, tiles
from surefoot.learn.envs import learners_task, part
from surefoot.learn.run import versions
from surefoot.learn.run.parents import Parents, kept
from surefoot.learn.runspec import RunSpec
from surefoot.task import Task
from surefoot.tasks.provenance import Provenance, changes, provenance
from surefoot.tasks.registry import resolve

BUNDLES = 100  # diverged simulations that a rollout brings back at most


@dataclass(frozen=True)
class Plan:
    """What a worker makes its envs from: plain data."""

    spec: Mapping[str, Any]
    reference: str
    provenance: Mapping[str, Any]
    parents: Mapping[str, bytes]
    """files of a base, a teacher and learned Terms, by their place in the run's folder"""
    threads: int
    torch_threads: int
    """as the learner has them: sums split otherwise have other last bits"""


@dataclass(frozen=True)
class Aim:
    """What new episodes draw from."""

    belief: Belief
    chances: np.ndarray | None


@dataclass(frozen=True)
class Order:
    """A rollout to collect."""

    aim: Aim
    horizon: int
    groups: tuple[str, ...]
    draws: Draws
    """of the tiles that the shard's envs are in"""


@dataclass(frozen=True)
class Stand:
    """Where a shard's envs are: what they show, and all from which another worker can go on."""

    obs: dict[str, np.ndarray]
    saved: dict[str, np.ndarray]


@dataclass(frozen=True)
class Part:
    """A shard's part of a rollout."""

    rollout: Rollout
    stand: Stand
    sums: np.ndarray  # (terms, n) of rewards
    counter: int
    diverged: int
    """in this rollout"""
    not_finite: Counter[str]
    bundles: list[tuple[str, Mapping[str, np.ndarray]]]


class Worker:
    def __init__(self, plan: Plan, rows: slice):
        keep_freed_memory()
        torch.set_num_threads(plan.torch_threads)
        spec = RunSpec.from_json(dict(plan.spec))
        task = same_task(plan)
        parents = sent_parents(plan, spec, task)
        blocks = part(spec, parents, learners_task(spec, task, parents), rows, plan.threads)
        assert spec.settings is not None
        self.blocks, self.rows = blocks, rows
        self.collector = LocalCollector(blocks, tiles(sizes(spec.settings.envs)))

    def about(self) -> dict[str, str]:
        """What must be as it is at the learner, for equal bits."""
        return {"host": platform.node(), **versions()}

    def begin(self, aim: Aim, seed: int) -> Stand:
        """Begin everywhere, from the start of the seed's streams."""
        self._aim(aim)
        self.collector.reset(seed)
        return self._stand()

    def load(self, saved: Mapping[str, np.ndarray]) -> Stand:
        self.collector.obs = self.blocks.load(saved)
        return self._stand()

    def collect(self, act: Act, order: Order) -> Part:
        self._aim(order.aim)
        before, bundles = self.blocks.diverged, list[tuple[str, Mapping[str, np.ndarray]]]()
        for env in self.blocks.envs:
            env.not_finite.clear()
        self.blocks.on_divergence = lambda *found: bundles.append(found) if len(bundles) < BUNDLES else None
        rollout = self.collector.collect(act, order.horizon, order.groups, order.draws)
        sums = np.concatenate([env.reward_sums for env in self.blocks.envs], 1)
        return Part(
            rollout, self._stand(), sums, self.blocks.counter, self.blocks.diverged - before, self.blocks.not_finite,
            bundles,
        )  # fmt: skip

    def _aim(self, aim: Aim) -> None:
        self.blocks.belief, self.blocks.chances = aim.belief, aim.chances

    def _stand(self) -> Stand:
        return Stand(self.collector.obs, self.blocks.save())


def same_task(plan: Plan) -> Task:
    """The task at this machine, which must be the learner's."""
    try:
        task = resolve(plan.reference)
    except SurefootError as error:
        raise SurefootError(
            f"worker on {platform.node()}: {error}; a task that is a file must be at the same path on every machine"
        ) from None
    there = Provenance.from_json(dict(plan.provenance), "the learner's provenance")
    if found := changes(there, provenance(task, plan.reference)):
        raise SurefootError(f"worker on {platform.node()}: {'; '.join(found)}: not the learner's task")
    return task


def sent_parents(plan: Plan, spec: RunSpec, task: Task) -> Parents:
    with TemporaryDirectory() as folder:
        for name, data in plan.parents.items():
            files.write(Path(folder) / name, data)
        return kept(Path(folder), spec, task)
