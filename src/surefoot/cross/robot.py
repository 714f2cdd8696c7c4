"""A robot as `cross` knows it: a bundle goes in, a log and counted successes come out. What it is made of stays hidden.

    attempt(bundle, plan)        the runtime drives it, episode by episode; every second is counted
    measure(policy, episodes)    success in many more episodes, for the page alone: the loop never sees it

`HiddenRobot` is a simulated machine, driven in lockstep by the runtime's own controller, limiter and recorder. `LinkedRobot` is
whatever answers at an address, in real time.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from surefoot.belief import point
from surefoot.contract import Contract
from surefoot.deploy.links import Packet
from surefoot.deploy.manifest import Bundle
from surefoot.deploy.runtime.controller import Controller
from surefoot.deploy.runtime.loop import Settings, drive
from surefoot.deploy.runtime.recorder import Recorder
from surefoot.env import Env
from surefoot.errors import SurefootError
from surefoot.learn.on_robot.limited import behind_runtime
from surefoot.log import Log
from surefoot.policy import Policy, PolicyState
from surefoot.real2sim.signals import starts
from surefoot.report import Progress, Watch, unwatched
from surefoot.rng import stream
from surefoot.sim.realities import Reality
from surefoot.task import Task, quiet
from surefoot.tasks import env as task_env
from surefoot.tasks.live_robot import LiveRobot
from surefoot.tasks.rollout import Evaluation, evaluate
from surefoot.verdict import clopper_pearson

BREAK = 1.0  # s between two episodes, in which somebody puts the robot back
WORTHWHILE = 0.2  # s of an episode that is worth beginning
HOLD = 0.1  # s for which a random part of an action is held


@dataclass(frozen=True)
class Rate:
    """k of n episodes succeeded."""

    k: int
    n: int

    @property
    def value(self) -> float:
        return self.k / self.n

    @property
    def interval(self) -> tuple[float, float]:
        """Exact, 95 %."""
        return clopper_pearson(self.k, self.n)

    def __str__(self) -> str:
        low, high = self.interval
        return f"{100 * self.value:.0f} % ({100 * low:.0f} - {100 * high:.0f})"

    @staticmethod
    def of(found: Evaluation) -> "Rate":
        return Rate(int(found.success.sum()), len(found.success))


@dataclass(frozen=True)
class Plan:
    """How a robot is tried: it ends after `episodes`, after `failures`, or when the time is over."""

    episodes: int
    seconds: float
    """of driving, at most; an episode that would not fit is not begun"""
    failures: int = 2
    least: float = 0.0
    """s of driving before failures end it: a robot that falls at once leaves short logs"""
    dither: float = 0.0
    """standard deviation of what is added to each action, to learn more of the robot"""
    seed: int = 0
    cut: bool = False
    """whether the last episode ends with the time, so that all of it is used; else none begins that may not fit"""

    def length(self, driven: float, episode: float) -> float:
        """Of the next episode, s; the first one is as long as the task's, whatever time there is."""
        left = self.seconds - driven
        if self.cut:
            return min(episode, left)
        return episode if left >= episode - 1e-9 or not driven else 0.0

    def goes_on(self, rate: tuple[int, int], driven: float, episode: float) -> bool:
        k, n = rate
        if n >= self.episodes and driven >= self.least:
            return False
        if n and self.length(driven, episode) < WORTHWHILE:
            return False
        return n - k < self.failures or driven < self.least


@dataclass(frozen=True)
class Attempt:
    """What came of trying a policy on a robot."""

    log: Log
    rate: Rate
    seconds: float
    """that it was driven"""
    ended: Mapping[str, int]
    """why episodes ended"""


class Robot(Protocol):
    """What `cross` may ask of a robot."""

    def attempt(self, bundle: Bundle, plan: Plan, watch: Watch = unwatched) -> Attempt: ...

    def measure(self, policy: Policy, episodes: int, seed: int) -> Rate | None:
        """Success of the task in many episodes; None where nobody can spend them."""
        ...

    def reveal(self) -> dict[str, Any]:
        """What it was, for the page alone; empty where nobody knows."""
        ...


@dataclass(frozen=True)
class HiddenRobot:
    """A simulated machine with wrong numbers and missing physics."""

    task: Task
    reality: Reality

    def attempt(self, bundle: Bundle, plan: Plan, watch: Watch = unwatched) -> Attempt:
        body = LiveRobot(self.task, self.reality, plan.seed, step=np.inf)
        controller = Controller(
            dithered(bundle.policy, plan.dither, plan.seed), bundle.manifest.limits, body.about().parts
        )
        recorder, gaps, clock = Recorder(controller.contract, body.about()), [], 0.0
        k = n = 0
        while plan.goes_on((k, n), clock - BREAK * n, self.task.seconds):
            most = plan.length(clock - BREAK * n, self.task.seconds)
            clock += _episode(body, controller, recorder, clock, plan.seed + n, most)
            body.land()
            k, n = k + body.flights[-1].success, n + 1
            gaps.append([clock, clock + BREAK])
            clock += BREAK
            watch(Progress(f"episode {n}: {body.flights[-1].ended or 'cut short'}, {k} of {n} succeed"))
        log = recorder.log({"gaps": gaps[:-1], "bundle": bundle.sha256, "parents": {"manifest": bundle.sha256}})
        if log is None:
            raise SurefootError("robot: found fewer than two rows in its log; expected episodes of two control periods")
        ended = [f.ended for f in body.flights]
        return Attempt(log, Rate(k, n), clock - BREAK * n, {why: ended.count(why) for why in dict.fromkeys(ended)})

    def measure(self, policy: Policy, episodes: int, seed: int) -> Rate | None:
        return Rate.of(evaluate(policy, self.env(episodes, seed)))

    def env(self, n: int, seed: int) -> Env:
        """n copies of the robot behind the runtime's limiter, each from another start."""
        own, e = quiet(behind_runtime(self.task, late=0.0))
        world = self.reality.world(own, n, threads=0)
        world.sense_after_step = True  # as the robot of a log is read
        return Env(own, world, point(own.params, self.reality.values(own, e)), seed)

    def reveal(self) -> dict[str, Any]:
        return self.reality.to_json()


def _episode(
    body: LiveRobot, controller: Controller, recorder: Recorder, clock: float, seed: int, most: float
) -> float:
    """One episode of at most so many s, in lockstep: a period of the controller, a period of the robot. Returns its length, s."""
    task, dt = body.task, body.dt
    body.reset(seed)
    controller.begin(controller.start())
    held, every, k = body.readings() or {}, round(min(task.command_every, task.seconds) / dt), 0
    asked = np.zeros(len(task.command_names))
    if not recorder.columns:
        recorder.begin(Packet(0, 0.0, held, "driven"), asked, {})
    while not body.ended and k < round(most / dt):
        if task.command is not None and k % every == 0:
            asked = task.command(stream(seed, "what the robot is asked for", k), 1)[0]
            body.env.command[:] = asked
        now = body.readings()
        lost = {name: np.full_like(x, np.nan) for name, x in held.items()} if now is None else now
        held = held if now is None else now
        period = controller.step(held, asked)
        t = clock + k * dt
        recorder.add(t, Packet(k, t, lost, "driven"), period, asked, (0.0, 0.0, 0.0))
        body.advance(period.command)
        k += 1
    return k * dt


@dataclass(frozen=True)
class Dithered(Policy):
    """A policy whose actions have a random part, drawn anew every HOLD seconds."""

    contract: Contract
    policy: Policy
    size: float
    seed: int = 0

    def init(self, n: int) -> PolicyState:
        return {**self.policy.init(n), "asked": np.zeros((n, 1), np.int64)}

    def step(self, s: PolicyState, obs: np.ndarray) -> tuple[PolicyState, np.ndarray]:
        asked = s["asked"]
        inner, action = self.policy.step({k: v for k, v in s.items() if k != "asked"}, obs)
        block = int(asked.max(initial=0)) // max(1, round(HOLD * self.contract.rate))
        more = stream(self.seed, "dither", block).standard_normal(action.shape)
        return {**inner, "asked": asked + 1}, action + self.size * more


def dithered(policy: Policy, size: float, seed: int) -> Policy:
    return Dithered(policy.contract, policy, size, seed) if size > 0 else policy


@dataclass(frozen=True)
class LinkedRobot:
    """The robot at an address, driven in real time; each episode is a run of the runtime, with its watchdog."""

    task: Task
    address: str

    def attempt(self, bundle: Bundle, plan: Plan, watch: Watch = unwatched) -> Attempt:
        if not bundle.passed:
            raise SurefootError(
                f"robot: {self.address}: not driven, because the gate does not pass the policy; see its gate.json"
            )
        parts: list[Log] = []
        ended: list[str] = []
        k, driven = 0, 0.0
        command = tuple(np.zeros(len(self.task.command_names)))
        carried = replace(bundle, policy=dithered(bundle.policy, plan.dither, plan.seed))
        while plan.goes_on((k, len(ended)), driven, self.task.seconds):
            most = plan.length(driven, self.task.seconds)
            found = drive(carried, self.address, Settings(live=True, seconds=most, command=command), watch)
            if found.log is None:
                raise SurefootError(
                    f"robot: {self.address}: {found.states.cause.why}; expected a run that leaves a log"
                )
            log, why, good = judged(self.task, even(found.log))
            k, driven, ended = k + good, driven + len(log) / log.rate, [*ended, why]
            parts.append(log)
        counts = {why: ended.count(why) for why in dict.fromkeys(ended)}
        return Attempt(joined(parts), Rate(k, len(ended)), driven, counts)

    def measure(self, policy: Policy, episodes: int, seed: int) -> Rate | None:
        return None

    def reveal(self) -> dict[str, Any]:
        return {}


def judged(task: Task, log: Log) -> tuple[Log, str, bool]:
    """An episode's log until the task says that it ended, why it ended, and whether it succeeded; from what was measured."""
    world = task_env(task, len(log)).world
    at = starts(world, log, np.arange(len(log)))
    env = Env(task, world, point(task.params, task.params.nominal))
    env.reset()
    world.set_state(np.nan_to_num(at.q), np.nan_to_num(at.v))
    now = env.moment
    now.command[:] = log["command"] if "command" in log.columns else 0.0
    for why, test in task.ended.items():
        out = np.flatnonzero(test(now))
        if len(out):
            return log.slice(-np.inf, float(log.time[max(int(out[0]), 2)])), why, False
    span = max(1, round(min(task.window, task.seconds) * log.rate))
    error = np.asarray(task.error(now))[-span:]
    worst = float(error.max() if task.measure == "max" else error.mean())
    whole = len(log) >= 0.95 * task.seconds * log.rate
    return log, "time" if whole else "cut short", whole and worst <= task.tolerance


def even(log: Log) -> Log:
    """Rows at whole control periods: a runtime's time stamps are those of packets, which come a little early or late."""
    rate = float(log.meta["rate"])
    k = np.rint((log.time - log.time[0]) * rate).astype(int)
    rows = np.flatnonzero(np.diff(k, prepend=-1) > 0)
    return Log(k[rows] / rate, {name: x[rows] for name, x in log.columns.items()}, log.units, log.meta)


def joined(logs: list[Log]) -> Log:
    """Logs one after another, with breaks between them."""
    shifts = np.cumsum([0.0] + [float(x.time[-1] - x.time[0]) + 1 / x.rate + BREAK for x in logs[:-1]])
    time = np.concatenate([x.time - x.time[0] + shift for x, shift in zip(logs, shifts)])
    names = [name for name in logs[0].columns if all(name in x.columns for x in logs)]
    ends = [float(shift + x.time[-1] - x.time[0] + 1 / x.rate) for x, shift in zip(logs, shifts)]
    gaps = [[a, float(b)] for a, b in zip(ends[:-1], shifts[1:])]
    columns = {name: np.concatenate([x[name] for x in logs]) for name in names}
    return Log(time, columns, logs[0].units, {**logs[0].meta, "gaps": gaps})
