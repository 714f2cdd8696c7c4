"""A reward in words: arithmetic over what a task observes and rewards, by name; parsed, never run as code.

    "exp(-4 * (joint_pos.elbow - 1)^2) - 0.01 * joint_vel[0]^2"

A name is an observation term of the task (in its unit, without noise), a part of one (joint_vel[0], base_lin_vel[0:2], or
joint_pos.elbow by its joint), a term of the task's reward (without its weight), or `error`. Where a reward term has the name of
an observation, it is reward.NAME.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from surefoot.errors import SurefootError, unknown
from surefoot.formats.expression import Expression, parse
from surefoot.task import Moment, Reward, Task

PART = re.compile(r"^(.*)\[(\d+)(?::(\d+))?\]$")
Quantity = Callable[[Moment], np.ndarray]
"""(n, k) of a moment's n rows"""


def quantities(task: Task) -> dict[str, Quantity]:
    """What a reward may name."""
    found: dict[str, Quantity] = {}
    for group in task.observations.values():
        for t in group.terms:
            if t.source is None or t.formula is not None and t.formula.estimate:
                continue
            found.setdefault(t.name, t.source)
            for k, joint in enumerate(t.formula.joints if t.formula is not None else ()):
                if t.dim == len(t.formula.joints):  # type: ignore[union-attr]
                    found.setdefault(f"{t.name}.{joint}", _column(t.source, k))
    for name, r in task.rewards.items():
        found[f"reward.{name}" if name in found else name] = _row(r.compute)
    found.setdefault("error", _row(task.error))
    return found


def _column(f: Quantity, k: int) -> Quantity:
    return lambda s: s.once(f)[:, k : k + 1]


def _row(f: Callable[[Moment], np.ndarray]) -> Quantity:
    return lambda s: np.asarray(f(s), float).reshape(-1, 1)


def reward_of(task: Task, text: str, where: str = "--reward") -> Reward:
    """The reward that a text means; unknown names are answered with the nearest."""
    known, tree = quantities(task), parse(text, where)
    names = list(tree.names())
    if not names:
        raise SurefootError(
            f"{where}: found {text!r}, expected at least one quantity of {task.name}: {', '.join(known)}"
        )
    for name in names:
        if _split(name)[0] not in known:
            raise unknown("quantity", _split(name)[0], known, f"{where}: task {task.name}")
    return Reward(1.0, _Computed(tree, known, where), text)


def rewarded(task: Task, reward: Reward) -> Task:
    """The task with this reward in place of its own."""
    return replace(task, rewards={"prompt": reward}, reward_floor=-np.inf, symmetry=None)


def _split(name: str) -> tuple[str, slice | None]:
    found = PART.match(name)
    if found is None:
        return name, None
    first, end = int(found[2]), int(found[3] or int(found[2]) + 1)
    return found[1], slice(first, end)


class _Computed:
    """An expression over a moment: (n,)."""

    def __init__(self, tree: Expression, known: Mapping[str, Quantity], where: str):
        self.tree, self.known, self.where = tree, known, where

    def __call__(self, s: Moment) -> np.ndarray:
        found = self.tree.value(lambda name: self._look(s, name), self.where)
        if found.shape[1] != 1:
            raise SurefootError(
                f"{self.where}: found {found.shape[1]} numbers, expected one: take a part, such as NAME[0]"
            )
        return np.broadcast_to(found[:, 0], (len(s.q),)).astype(float)

    def _look(self, s: Moment, name: str) -> np.ndarray:
        own, part = _split(name)
        x = np.asarray(s.once(self.known[own]), float)
        if part is None:
            return x
        if not part.start < part.stop <= x.shape[1]:
            raise SurefootError(f"{self.where}: {name}: expected parts of 0 to {x.shape[1] - 1}")
        return x[:, part]
