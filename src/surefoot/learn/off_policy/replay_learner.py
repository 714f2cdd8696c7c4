"""What every learner with a replay shares: an iteration, a step size that falls, and exact resume with the replay.

collect -> replay;   once it is warm: gradient steps on samples of it        lr: evenly down to a tenth
"""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np

from surefoot.learn.chunks import Chunks
from surefoot.learn.collect import Collector, Envs, Rollout, collector_of, summary
from surefoot.learn.learner import NetLearner, Saved, check_continuous, under
from surefoot.learn.off_policy.replay import Replay
from surefoot.learn.off_policy.settings import ReplaySettings
from surefoot.learn.ranges import Ranges, begun, grown


class ReplayLearner(NetLearner):
    """The state of learning: nets, optimisers, the replay, and where the envs stand."""

    settings: ReplaySettings
    collector: Collector
    slower: float = 1.0
    """factor of the step size"""

    def __init__(self, env: Envs, settings: ReplaySettings, seed: int, ranges: Ranges | None = None):
        check_continuous(env.task, settings.learner)
        self.flag = f"{settings.learner}."
        self.chunks = Chunks(settings.learner_threads)
        self.env, self.settings, self.seed, self.ranges = env, settings, seed, ranges
        begun(ranges, env)
        self.iterations, self.batch = settings.iterations, settings.batch
        self.actions = len(env.task.action.names)
        self._build()
        widths = [env.task.observations[g].dim for g in ("actor", "critic")]
        self.replay = Replay(env.n, settings.replay, [*widths, self.columns], f"{settings.learner}.replay")
        self.collector = collector_of(env)

    @abstractmethod
    def _build(self) -> None: ...

    @property
    def columns(self) -> int:
        """Numbers of an action that the replay keeps."""
        return self.actions

    @abstractmethod
    def collect(self) -> Rollout: ...

    @abstractmethod
    def learn(self) -> dict[str, float]:
        """Gradient steps on samples of the replay; returns what to log."""

    @property
    def warm(self) -> bool:
        """Whether there is enough to learn from."""
        return (self.iteration + 1) * self.batch >= self.settings.warm_up

    def iterate(self) -> dict[str, Any]:
        rollout = self.collect()
        self.replay.add(rollout)
        learned = self.learn() if self.warm else {}
        self.iteration += 1
        self.after(rollout)
        return learned | summary(rollout.episodes) | grown(self.ranges, self.env, rollout.episodes) | self.collector.terms | {
            "steps": self.iteration * self.batch,
            "reward": float(rollout.reward.mean()) / self.env.world.dt,
            "diverged": self.env.diverged,
            "replay": int(self.replay.count.sum()),
        }  # fmt: skip

    def after(self, rollout: Rollout) -> None:
        """What else follows a rollout."""
        return

    def pace(self) -> None:
        """The step size falls to a tenth, evenly."""
        late = min(1.0, self.iteration / self.iterations)
        for optimiser in self.optimisers:
            for group in optimiser.param_groups:
                group["lr"] = self.slower * self.settings.lr * (1 - 0.9 * late)

    def halve(self) -> float:
        self.slower /= 2
        return self.slower * self.settings.lr

    def save(self) -> Saved:
        arrays, numbers = super().save()
        return arrays | {f"replay.{k}": v for k, v in self.replay.save().items()}, numbers | {"slower": self.slower}

    def load(self, arrays: Mapping[str, np.ndarray], numbers: Mapping[str, Any]) -> None:
        super().load(arrays, numbers)
        self.replay.load(under("replay.", arrays))
        self.slower = float(numbers["slower"])
