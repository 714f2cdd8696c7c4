"""Counting successes for as long as someone looks: policies in the same worlds, batch after batch.

    batch b: BATCH episodes in each of w worlds, with seed + b, one control period at a time
    tally of a policy: k successes of n episodes in each world -> rate with an exact 95 % interval

Policies take turns: the one with the fewest episodes is next. One whose file is written anew is counted anew.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import mujoco
import numpy as np

from surefoot import tasks
from surefoot.env import Env
from surefoot.lab.page import BLUE, GREEN, RED, Scene, kept, squares
from surefoot.lab.subject import Subject, load
from surefoot.sim.engine import Engine
from surefoot.tasks.rollout import Trials
from surefoot.verdict import clopper_pearson

BATCH, MOST = 8, 96  # episodes in each world: in a batch, and in all


@dataclass(frozen=True)
class Tally:
    """Successes of one policy in each world."""

    good: np.ndarray  # (worlds,) int
    episodes: int

    def rate(self, at: np.ndarray | slice = slice(None)) -> tuple[float, float, float]:
        """Success in some worlds together, with an exact 95 % interval."""
        k, n = int(self.good[at].sum()), self.episodes * len(self.good[at])
        return (k / n, *clopper_pearson(k, n)) if n else (float("nan"), 0.0, 1.0)


def percent(rate: tuple[float, float, float]) -> str:
    return f"{100 * rate[0]:.1f} % ({100 * rate[1]:.1f} - {100 * rate[2]:.1f})"


class Counting:
    """Tallies of a subject's policies in worlds that a function draws: seed -> (worlds x BATCH, ne)."""

    def __init__(self, subject: Subject, worlds: Callable[[int], np.ndarray], count: int, most: int = MOST):
        self.subject, self.worlds, self.count, self.most = subject, worlds, count, most
        self.tallies: dict[str, Tally] = {}
        self.written: dict[str, float] = {}
        self.trials: Trials | None = None
        self.label = ""
        self.model: mujoco.MjModel | None = None
        self.q = np.zeros((0, 0))  # (worlds, nq) of the first episode in each world, where it is or where it ended
        self.outcome = np.zeros(0, int)  # of it: 0 running, 1 succeeded, -1 failed

    def look(self) -> None:
        """Forget what was counted of policies that have changed since."""
        for label, path in self.subject.policies().items():
            changed = _changed(path)
            if self.written.setdefault(label, changed) != changed:
                self.written[label] = changed
                self.tallies.pop(label, None)
                self.trials = None if self.label == label else self.trials

    def step(self) -> bool | None:
        """One control period: True where a batch has ended with it; None where there is nothing left to count."""
        if self.trials is None:
            paths = self.subject.policies()
            left = {k: self.tallies[k].episodes if k in self.tallies else 0 for k in paths}
            self.label = min(left, key=lambda k: left[k], default="")
            if not self.label or left[self.label] >= self.most:
                return None
            self._next(paths[self.label], left[self.label] // BATCH)
        assert self.trials is not None
        self._step(self.trials)
        if not self.trials.over:
            return False
        good = self.trials.success[-1].reshape(self.count, BATCH).sum(1)
        old = self.tallies.get(self.label, Tally(np.zeros(self.count, int), 0))
        self.tallies[self.label] = Tally(old.good + good, old.episodes + BATCH)
        self.trials = None
        return True

    @property
    def share(self) -> float | None:
        """Of the longest episodes of the batch under way; None where none is."""
        return None if self.trials is None else min(1.0, self.trials.periods / self.trials.env.steps)

    def _step(self, trials: Trials) -> None:
        """One control period, of which the first episode of each world is kept to be drawn."""
        running = ~trials.done[::BATCH]
        trials.step()
        now = running & ~trials.done[::BATCH]
        self.q[now] = trials.env.world.state.q[::BATCH][now]
        good = trials.success[-1][::BATCH]
        self.outcome = np.where(trials.done[::BATCH], np.where(good, 1, -1), 0)

    def scene(self, names: Sequence[str]) -> Scene | None:
        """The robots that are counted now, as fast as they are counted; such as wait where there is no policy."""
        if self.model is None:
            task, seed = self.subject.task, self.subject.seed
            self._draw(tasks.env(task, self.count, tasks.nominal(task), seed, threads=1), np.arange(self.count))
        if self.model is None:
            return None
        at, room = self.squares
        colours = np.array([BLUE, GREEN, RED], np.uint8)[self.outcome]
        moved = 0.0 if self.trials is None else float(self.trials.periods)
        return Scene(self.model, self.q, at + kept(self.model, self.q, room), colours, names=tuple(names), moved=moved)

    def _next(self, path: Path, b: int) -> None:
        policy, seed = load(path), self.subject.seed + b
        e, others = self.worlds(seed), tasks.nominal(self.subject.task)
        env = tasks.env(self.subject.own(policy), len(e), others, seed, threads=1)
        self.trials = Trials(policy, env, e)
        self._draw(env, np.arange(0, env.n, BATCH))

    def _draw(self, env: Env, rows: np.ndarray) -> None:
        self.q, self.outcome = env.world.state.q[rows].copy(), np.zeros(self.count, int)
        if self.model is None and isinstance(env.world, Engine):
            self.model = env.world.batch.get_model(0)
            self.squares = squares(self.model, self.q)


def _changed(path: Path) -> float:
    """When a policy's file was written; 0 of one that ships."""
    file = path / "policy.onnx" if path.suffix != ".onnx" else path
    return file.stat().st_mtime if file.exists() else 0.0
