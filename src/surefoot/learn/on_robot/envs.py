"""Simulations and a robot side by side, as one learner sees them.

    rows 0 .. n - m - 1: simulations, each with its own e ~ p(e)        rows n - m .. n - 1: the robot, whose e nobody knows

m rows of a simulated robot are m times as long a drive of one. Its critic is given the e that is believed, not the robot's own;
its sensors' noise is the machine's. The reward, and the critic's other terms, are computed from the robot's state: on a real robot
from what is measured or estimated of it.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from surefoot import tasks
from surefoot.belief import Belief, point
from surefoot.blocks import Blocks, sizes
from surefoot.env import Env, OnDivergence
from surefoot.errors import SurefootError
from surefoot.learn.collect import NOTHING, Act, Collector, Draws, Elsewhere, LocalCollector, Rollout, summary
from surefoot.learn.on_robot.settings import OnRobot
from surefoot.observation import ObsGroup, ObsTerm
from surefoot.sim.learned import LearnedTerm
from surefoot.task import Moment, Task, quiet


def with_robot(
    task: Task,
    belief: Belief,
    how: OnRobot,
    envs: int,
    seed: int,
    threads: int = 0,
    terms: tuple[LearnedTerm, ...] = (),
) -> "WithRobot":
    """Envs of a task, of which the last are the robot's; `task` has the runtime's limiter already."""
    if task.clip is not None:
        raise SurefootError(f"robot: {task.name} follows a reference motion; expected a task that does not")
    m = how.rows(envs)
    sim = None
    if m < envs:
        first, *more = sizes(envs - m)
        env = tasks.env(task, first, belief, seed, threads, stagger=True, terms=terms)
        sim = Blocks.like(env, more, threads)
    return WithRobot(sim, robot_env(task, belief, how, m, seed, envs - m, threads), belief)


def robot_env(task: Task, belief: Belief, how: OnRobot, n: int, seed: int, first: int, threads: int) -> Env:
    """n rows of the robot."""
    still, e = quiet(task)
    groups = {**task.observations, "actor": still.observations["actor"]}
    own = replace(task, observations={g: _without_truth(group, belief) for g, group in groups.items()})
    world = how.reality.world(own, n, threads=max(threads, 1))
    world.sense_after_step = True  # as the robot of a log is read
    return Env(own, world, point(own.params, how.reality.values(own, e)), seed, stagger=True, first=first)


def _without_truth(group: ObsGroup, belief: Belief) -> ObsGroup:
    """A group whose e is the one that is believed."""
    guess = np.clip(belief.estimate(), belief.params.low, belief.params.high)
    return replace(group, terms=tuple(_guessed(t, guess) if t.name == "e" else t for t in group.terms))


def _guessed(term: ObsTerm, e: np.ndarray) -> ObsTerm:
    return replace(term, source=partial(_rows_of, e=e))


def _rows_of(s: Moment, e: np.ndarray) -> np.ndarray:
    return np.broadcast_to(e, (len(s.q), len(e)))


class WithRobot(Elsewhere):
    """Simulations of this process, or none, and the robot."""

    def __init__(self, sim: Blocks | None, robot: Env, belief: Belief):
        self.sim, self.robot, first = sim, robot, sim or robot
        self.n, self.task, self.world, self.seed = robot.n + (sim.n if sim else 0), first.task, first.world, first.seed
        self.belief, self.chances = belief, None

    @property
    def parts(self) -> list[Blocks | Env]:
        return [self.robot] if self.sim is None else [self.sim, self.robot]

    @property
    def counter(self) -> int:  # type: ignore[override]
        return self.robot.counter

    @property
    def diverged(self) -> int:  # type: ignore[override]
        return sum(part.diverged for part in self.parts)

    @property
    def not_finite(self) -> Counter[str]:  # type: ignore[override]
        return sum((part.not_finite for part in self.parts), Counter())

    @property
    def on_divergence(self) -> OnDivergence | None:  # type: ignore[override]
        return self.robot.on_divergence

    @on_divergence.setter
    def on_divergence(self, tell: OnDivergence | None) -> None:
        for part in self.parts:
            part.on_divergence = tell

    def collector(self) -> "JoinedCollector":
        return JoinedCollector(self)

    def close(self) -> None:
        pass


class JoinedCollector(Collector):
    """Collects from simulations and from the robot, one after the other."""

    def __init__(self, env: WithRobot):
        super().__init__(env)
        self.parts = [LocalCollector(part) for part in env.parts]
        self._show()

    def _show(self) -> None:
        self.obs = {g: np.concatenate([p.obs[g] for p in self.parts]) for g in self.parts[0].obs}

    def collect(self, act: Act, horizon: int, groups: Sequence[str] = (), draws: Draws = NOTHING) -> Rollout:
        found, first = [], 0
        for part in self.parts:
            n = part.blocks.n
            given = {k: v[:, first : first + n] for k, v in draws.items()}
            found.append(part.collect(act, horizon, groups, given))
            first += n
        self._show()
        on_robot = summary(found[-1].episodes)
        self.terms = self.parts[0].terms | {f"robot/{k}": v for k, v in on_robot.items()}
        return beside(found)

    def reset(self, seed: int) -> None:
        for part in self.parts:
            part.reset(seed)
        self._show()

    def _saved(self) -> dict[str, np.ndarray]:
        return {f"{name}.{k}": v for name, p in zip(self._names(), self.parts) for k, v in p.blocks.save().items()}

    def _load(self, saved: Mapping[str, np.ndarray]) -> None:
        for name, part in zip(self._names(), self.parts):
            own = {k.removeprefix(f"{name}."): v for k, v in saved.items() if k.startswith(f"{name}.")}
            part.obs = part.blocks.load(own)
        self._show()

    def _names(self) -> tuple[str, ...]:
        return ("sim", "robot")[-len(self.parts) :]


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
