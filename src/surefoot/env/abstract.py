"""AbstractEnv: n episodes of one task side by side, each with its own e. An episode that ends is followed by another one.

    obs = env.reset(seed)        group -> (n, dim) float32
    step = env.step(action)      action (n, na) -> Step

A step has three parts: begin(action), advance(), end() -> Step. advance() is the engine alone: it may run in another
thread while this one works on another Env. Learners, gate and adapters ask for nothing that is not in this file.
Randomness is keyed by (seed, counter, number of the env), so bits depend neither on threads nor on how envs are grouped.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from surefoot.belief import Belief
from surefoot.task import Task
from surefoot.world import World


@dataclass(frozen=True)
class Episodes:
    """Episodes that ended in one step: one row each."""

    ids: np.ndarray  # envs, counted from the first env of the seed
    returns: np.ndarray
    lengths: np.ndarray
    success: np.ndarray
    error: np.ndarray
    reason: list[str]
    e: np.ndarray  # (k, ne)
    began: np.ndarray  # the env's count of steps when each began
    phase: np.ndarray  # s into its reference motion when each ended

    def of(self, envs: np.ndarray) -> "Episodes":
        """Those of some envs, of which envs (n,) is true."""
        at = np.flatnonzero(envs[self.ids])
        rows = {k: v[at] for k, v in vars(self).items() if k != "reason"}
        return Episodes(**rows, reason=[self.reason[i] for i in at])


@dataclass(frozen=True)
class Step:
    """What one env step gives back: `obs` after auto-reset, `last` what each group would have observed before it."""

    obs: dict[str, np.ndarray]
    reward: np.ndarray  # (n,)
    terminated: np.ndarray  # (n,) bool: failed; nothing follows
    truncated: np.ndarray  # (n,) bool: out of time; value continues
    final: np.ndarray  # (n,) bool: done, and its trial with it; until then value goes on in the trial's next episode
    valid: np.ndarray  # (n,) bool: False where the simulation diverged, whose transition must not be learned from
    last: dict[str, np.ndarray]  # group -> rows of the envs that are done, before their reset
    episodes: Episodes | None


OnDivergence = Callable[[str, Mapping[str, np.ndarray]], None]
"""called for each simulation that diverged: its name, and what led there, to replay it"""


class AbstractEnv(ABC):
    """n episodes of a task side by side: the contract for environments of others, too."""

    task: Task
    world: World  # its control period dt, its unknowns and the robot's layout
    belief: Belief  # p(e): each episode draws its e from it; may be set at any time
    seed: int
    n: int
    first: int  # row 0 is this env of the seed
    steps: int  # control periods of an episode
    counter: int  # control periods since the seed began
    reward_sums: np.ndarray  # (reward terms, n) of each weighted term, since someone set it to 0
    chances: np.ndarray | None  # of beginning in each part of the task's clip; None: at its beginning
    diverged: int  # simulations so far
    not_finite: Counter[str]  # terms of the task that made sound simulations count as diverged
    on_divergence: OnDivergence | None

    @abstractmethod
    def reset(self, seed: int | None = None, e: np.ndarray | None = None) -> dict[str, np.ndarray]:
        """Begin everywhere; given a seed, from its streams' start; given e (n, ne), in those worlds, not in drawn ones."""

    def step(self, action: np.ndarray) -> Step:
        self.begin(action)
        self.advance()
        return self.end()

    @abstractmethod
    def begin(self, action: np.ndarray) -> None:
        """The first part of a step: actions become controls."""

    @abstractmethod
    def advance(self) -> None:
        """The second: the engine alone."""

    @abstractmethod
    def end(self) -> Step:
        """The third: rewards, ends, resets and observations."""

    @abstractmethod
    def like(self, n: int, first: int) -> "AbstractEnv":
        """n more envs of the same kind, from number `first` on."""

    @abstractmethod
    def save(self) -> dict[str, np.ndarray]:
        """All that load() needs to go on with the same bits."""

    @abstractmethod
    def load(self, saved: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Go on from save(); returns the observations that followed it."""
