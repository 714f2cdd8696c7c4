"""Logs from a simulated robot whose reality is hidden: a policy, a plan or random controls, played on it.

And of the simulation itself, over a belief: what a policy observes and does in one episode of each of many worlds.

A plan is a Log with a column `control`: its rows are held until the next, from the plan's first time on.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from surefoot.env import Env
from surefoot.errors import SurefootError
from surefoot.log import Log
from surefoot.policy import Driver, Policy
from surefoot.report import Progress, Watch, unwatched
from surefoot.rng import stream
from surefoot.sim.realities import Reality
from surefoot.sim.simulated_robot import SimulatedRobot
from surefoot.task import Task

GAP = 1.0  # s between episodes of the simulation
HOLD = 0.2  # s for which a random action is held: shorter ones hardly move a heavy robot


def record(
    task: Task,
    reality: Reality,
    how: Policy | Log | None = None,
    seconds: float | None = None,
    seed: int = 0,
    watch: Watch = unwatched,
    parents: Mapping[str, str] | None = None,
    observation: bool = False,
) -> Log:
    """Play a policy, a plan, or with None random actions; without seconds, for an episode or the whole plan.

    `parents` are content hashes of what was played, for the log's provenance. With `observation` the log also holds what
    a policy observed.
    """
    plan = isinstance(how, Log)
    robot = SimulatedRobot(task, reality, seed, "control" if plan else "action", observation)
    length = seconds
    if length is None:
        length = _length(how, robot.rate) if isinstance(how, Log) else task.seconds
    if not (np.isfinite(length) and length * robot.rate >= 2):
        raise SurefootError(f"seconds: expected at least two control periods of {1 / robot.rate:g} s, found {length:g}")
    player = (
        _plan(how, robot) if isinstance(how, Log) else _policy(how) if how is not None else _random(task, robot, seed)
    )
    obs = robot.connect()
    for k in range(round(length * robot.rate)):
        obs = robot.act(player(k, obs))
        t = (k + 1) / robot.rate
        watch(Progress(f"second {t:5.1f} of {length:g}", t / length))
    log = robot.log()
    return replace(log, meta=log.meta | {"parents": log.meta["parents"] | dict(parents or {})})


def simulated(policy: Policy, env: Env, watch: Watch = unwatched) -> Log:
    """The first episode of every env: the columns `observation` and `action`, one episode after another with a gap of 1 s."""
    obs, drive, going = env.reset()["actor"], Driver(policy, env.n), np.ones(env.n, bool)
    seen, done, lengths = list[np.ndarray](), list[np.ndarray](), np.zeros(env.n, int)
    for k in range(env.steps):
        action = drive(obs)
        seen.append(obs.copy())
        done.append(action.copy())
        step = env.step(action)
        obs, lengths = step.obs["actor"], lengths + going
        going &= ~(step.terminated | step.truncated)
        drive.begin(step.final)
        watch(Progress(f"control period {k + 1} of {env.steps}", (k + 1) / env.steps))
        if not going.any():
            break
    dt, o, a = env.world.dt, np.stack(seen, 1), np.stack(done, 1)  # (n, T, .)
    first = np.cumsum([0.0, *(lengths[:-1] * dt + GAP)])
    clock = np.concatenate([t + dt * np.arange(n) for t, n in zip(first, lengths)])
    columns = {
        k: np.concatenate([x[:n] for x, n in zip(rows, lengths)]) for k, rows in (("observation", o), ("action", a))
    }
    gaps = [[float(t + n * dt), float(t + n * dt + GAP)] for t, n in zip(first[:-1], lengths)]
    meta = {"rate": 1 / dt, "gaps": gaps, "names": {"action": list(env.task.action.names)}, "task": env.task.name}
    return Log(clock, columns, meta=meta)


def _policy(policy: Policy) -> Callable[[int, np.ndarray], np.ndarray]:
    drive = Driver(policy, 1)
    return lambda k, obs: drive(obs[None])[0]


def _random(task: Task, robot: SimulatedRobot, seed: int) -> Callable[[int, np.ndarray], np.ndarray]:
    every, a = max(1, round(HOLD * robot.rate)), task.action
    if a.choices:
        return lambda k, obs: stream(seed, "random controls", k // every).integers(0, a.choices, 1).astype(float)
    high = min(a.limit, 1.0)
    return lambda k, obs: stream(seed, "random controls", k // every).uniform(-high, high, len(a.names))


def _length(plan: Log, rate: float) -> float:
    """From the first row to the end of the last."""
    return float(plan.time[-1] - plan.time[0]) + (1 / plan.rate if len(plan) > 1 else 1 / rate)


def _plan(plan: Log, robot: SimulatedRobot) -> Callable[[int, np.ndarray], np.ndarray]:
    control, names = plan["control"], robot.names["control"]
    control = control[:, None] if control.ndim == 1 else control
    theirs = plan.meta.get("names", {}).get("control", names)
    if sorted(theirs) != sorted(names) or control.shape[1] != len(names):
        raise SurefootError(
            f"plan: control: expected {', '.join(names)}; found {control.shape[1]}: {', '.join(theirs)}"
        )
    if not np.isfinite(control).all():
        raise SurefootError("plan: control: expected finite numbers, found nan or infinity")
    control = control[:, [list(theirs).index(name) for name in names]]
    since = plan.time - plan.time[0]
    return lambda k, obs: control[np.searchsorted(since, (k + 1e-6) / robot.rate, "right") - 1]
