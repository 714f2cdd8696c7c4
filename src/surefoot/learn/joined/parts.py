"""Parts of a batch that are envs of different kinds, as one learner sees them.

    rows 0 .. n_1 - 1: the first part        rows n_1 .. n_1 + n_2 - 1: the second        ...

Every part has the same task, observations and control period. Its episodes are also reported under its own name, such as
robot/success or mujoco:half-step/success.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from surefoot.belief import Belief
from surefoot.blocks import Blocks
from surefoot.env import Env, OnDivergence
from surefoot.learn.collect import NOTHING, Act, Collector, Draws, Elsewhere, LocalCollector, Rollout, summary


class Joined(Elsewhere):
    """Parts of this process, by name; `reported` are those whose episodes are logged apart, too."""

    def __init__(self, parts: Mapping[str, Blocks | Env], belief: Belief, reported: Sequence[str]):
        self.parts, self.reported = dict(parts), tuple(reported)
        first = next(iter(self.parts.values()))
        self.n, self.task, self.world, self.seed = sum(p.n for p in parts.values()), first.task, first.world, first.seed
        self.belief, self.chances = belief, None

    @property
    def _last(self) -> Blocks | Env:
        return list(self.parts.values())[-1]

    @property
    def counter(self) -> int:  # type: ignore[override]
        return self._last.counter

    @property
    def diverged(self) -> int:  # type: ignore[override]
        return sum(part.diverged for part in self.parts.values())

    @property
    def not_finite(self) -> Counter[str]:  # type: ignore[override]
        return sum((part.not_finite for part in self.parts.values()), Counter())

    @property
    def on_divergence(self) -> OnDivergence | None:  # type: ignore[override]
        return self._last.on_divergence

    @on_divergence.setter
    def on_divergence(self, tell: OnDivergence | None) -> None:
        for part in self.parts.values():
            part.on_divergence = tell

    def collector(self) -> "JoinedCollector":
        return JoinedCollector(self)

    def close(self) -> None:
        pass


class JoinedCollector(Collector):
    """Collects from one part after the other."""

    def __init__(self, env: Joined):
        super().__init__(env)
        self.parts, self.reported = {name: LocalCollector(part) for name, part in env.parts.items()}, env.reported
        self._show()

    def _show(self) -> None:
        parts = list(self.parts.values())
        self.obs = {g: np.concatenate([p.obs[g] for p in parts]) for g in parts[0].obs}

    def collect(self, act: Act, horizon: int, groups: Sequence[str] = (), draws: Draws = NOTHING) -> Rollout:
        found: dict[str, Rollout] = {}
        first = 0
        for name, part in self.parts.items():
            n = part.blocks.n
            given = {k: v[:, first : first + n] for k, v in draws.items()}
            found[name] = part.collect(act, horizon, groups, given)
            first += n
        self._show()
        self.terms = dict(next(iter(self.parts.values())).terms)
        for name in self.reported:
            self.terms |= {f"{name}/{k}": v for k, v in summary(found[name].episodes).items()}
        return beside(list(found.values()))

    def reset(self, seed: int) -> None:
        for part in self.parts.values():
            part.reset(seed)
        self._show()

    def _saved(self) -> dict[str, np.ndarray]:
        return {f"{name}.{k}": v for name, p in self.parts.items() for k, v in p.blocks.save().items()}

    def _load(self, saved: Mapping[str, np.ndarray]) -> None:
        for name, part in self.parts.items():
            own = {k.removeprefix(f"{name}."): v for k, v in saved.items() if k.startswith(f"{name}.")}
            part.obs = part.blocks.load(own)
        self._show()


def beside(parts: Sequence[Rollout]) -> Rollout:
    """Rollouts of as many steps, their rows one after the other."""
    if len(parts) == 1:
        return parts[0]
    join = lambda name: {k: np.concatenate([getattr(p, name)[k] for p in parts], 1) for k in getattr(parts[0], name)}  # noqa: E731
    r = Rollout(join("obs"), join("kept"), np.concatenate([p.reward for p in parts], 1), join("flags"))
    first = 0
    for p in parts:
        r.last += [(t, rows + first, obs) for t, rows, obs in p.last]
        r.episodes += p.episodes
        r.ended += [(t, row + first) for t, row in p.ended]
        first += p.reward.shape[1]
    return r
