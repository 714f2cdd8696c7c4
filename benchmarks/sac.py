"""rltools' soft actor-critic on surefoot's hover, for comparison: `python -m benchmarks.learn --only rltools`.

rltools compiles itself for an env at run time and drives one Gymnasium env at a time. What is on PyPI is this
interface; the native program of "Learning to fly in seconds" is not, so its published times are not measured here.
rltools refuses to be loaded beside torch, so this runs in a process of its own and prints its rows as JSON, last.
"""

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.spaces import Box

from benchmarks.measure import Row, row, skipped
from surefoot import tasks
from surefoot.contract import Contract
from surefoot.policy import Policy, PolicyState
from surefoot.tasks.rollout import contract, evaluate

LONGEST = 300.0  # s of learning, after which it is given up
EVERY = 2000  # env steps between evaluations


class Hover(gymnasium.Env):
    """One episode at a time of hover in its nominal world."""

    def __init__(self, seed: int):
        self.env = tasks.env(tasks.resolve("hover"), 1, seed=seed, threads=1)
        group, action = self.env.task.observations["actor"], self.env.task.action
        self.observation_space = Box(-np.inf, np.inf, (group.dim,), np.float32)
        self.action_space = Box(-1, 1, (len(action.names),), np.float32)
        self.spec = EnvSpec("hover-v0", max_episode_steps=self.env.steps)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        self.env.counter += 1  # another start than the last
        return self.env.reset()["actor"][0].astype(float), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        s = self.env.step(np.asarray(action)[None])
        seen = (s.last if s.last else s.obs)["actor"][0]
        return seen.astype(float), float(s.reward[0]), bool(s.terminated[0]), bool(s.truncated[0]), {}


class Theirs(Policy):
    """rltools' deterministic actor, asked row by row."""

    def __init__(self, state: object, about: Contract):
        self.state, self.contract = state, about

    def step(self, s: PolicyState, obs: np.ndarray) -> tuple[PolicyState, np.ndarray]:
        return s, np.stack([self.state.action(o.astype(float)) for o in obs])


def hover(quick: bool) -> Iterator[Row]:
    name = "hover to 95 %, nominal, rltools SAC"
    try:
        from rltools import SAC

        limit = 3000 if quick else 300_000
        maker = SAC(lambda: Hover(0), enable_evaluation=False, STEP_LIMIT=limit, GAMMA=0.98)
    except Exception as error:  # a compiler or a library is missing: whatever the build says
        yield skipped(name, f"rltools does not build here: {type(error).__name__}: {str(error)[:120]}")
        return
    state, judge = maker.PolicyState(0), tasks.env(tasks.resolve("hover"), 20 if quick else 200, seed=1_000_000)
    policy = Theirs(state, contract(judge.task, judge.world))
    spent, steps, finished, rate = 0.0, 0, False, 0.0
    while not finished and rate < 0.95 and spent < (10 if quick else LONGEST):
        began = time.perf_counter()
        for _ in range(1000 if quick else EVERY):
            finished = finished or state.step()
            steps += 1
        spent += time.perf_counter() - began
        rate = evaluate(policy, judge).rate
    note = "one env through Gymnasium, default settings"
    if rate < 0.95:
        note += f"; given up at {100 * rate:.0f} % after {spent:.0f} s"
    yield row(f"{name}: time", spent if rate >= 0.95 else np.inf, "s", note=note)
    yield row(f"{name}: experience", steps, "env steps")


if __name__ == "__main__":
    rows = [asdict(r) for r in hover("--quick" in sys.argv)]
    print("\n" + json.dumps(rows), flush=True)
