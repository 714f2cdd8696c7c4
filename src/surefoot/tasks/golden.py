"""Golden vectors of a task: some seconds of its nominal robot, without noise, driven by a policy from the start of an episode."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from surefoot.belief import point
from surefoot.env import Env
from surefoot.observation import ObsGroup
from surefoot.policy import Driver, Policy
from surefoot.task import Moment, Task, quiet
from surefoot.world import World

ROWS, NUMBERS = 50, 20_000  # control periods at most, and numbers of all observations together


class Recorder:
    """A quiet robot of a task, to be driven again and again."""

    def __init__(self, task: Task, env: Env):
        """`env` is one simulation of `quiet(task)`."""
        self.group, self.env = task.observations["actor"], env

    def __call__(
        self, policy: Policy, most: int = ROWS, numbers: int = NUMBERS, also: Sequence[str] = ()
    ) -> dict[str, Any]:
        """Observations (T, obs_dim) and the readings they came from, by name, and `also` further ones; at most `most` periods."""
        rows = int(np.clip(numbers // (self.group.dim + self.group.frame), 4, most))
        obs, drive = self.env.reset(0)["actor"], Driver(policy, 1)
        rows_obs, seen = [], []
        for _ in range(min(rows, self.env.steps - 1)):
            rows_obs.append(obs[0].copy())
            seen.append(_readings(self.group, self.env.sensed(), also))
            step = self.env.step(drive(obs))
            if step.terminated[0] or step.truncated[0]:
                break
            obs = step.obs["actor"]
        merged = {k: {n: np.array([row[k][n] for row in seen]) for n in seen[0][k]} for k in ("readings", "raw")}
        names = {n: self.env.layout.parts(n) for n in merged["readings"]}
        return {"obs": np.array(rows_obs), **merged, "parts": {k: v for k, v in names.items() if v}}


def recorder(task: Task, world: World) -> Recorder:
    """Of a task in a world of its kind."""
    still, e = quiet(task)
    return Recorder(task, Env(still, world.with_(1), point(still.params, e)))


def _readings(group: ObsGroup, now: Moment, also: Sequence[str]) -> dict[str, dict[str, np.ndarray]]:
    needs = dict.fromkeys([*group.needs, *also])
    raw = {t.name: np.array(t.source(now)[0], float) for t in group.terms if t.formula is None and t.source is not None}
    return {"readings": {n: np.array(now.reading(n)[0], float) for n in needs}, "raw": raw}
