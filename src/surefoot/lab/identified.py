"""A log of a hidden robot, what it tells about e, and the belief to train over then.

log        the hidden robot's, RECORD long: a policy drives it, with random actions added
identify   surefoot identify TASK log: e^ with 95 % intervals, y(e) ~ N(mu, S)
train over y ~ N(mu, S) itself where nothing is randomized; else a box around mu, as wide as the range that is asked for
"""

from pathlib import Path
from typing import Any

import numpy as np

from surefoot import tasks
from surefoot.belief import Belief, Box, Gaussian, point
from surefoot.errors import SurefootError
from surefoot.lab.subject import Subject
from surefoot.log import Log
from surefoot.policy import Driver, Policy
from surefoot.rng import stream
from surefoot.sim.engine import Engine
from surefoot.sim.gap.recipe import Plain
from surefoot.sim.simulated_robot import LogColumns

SHAKE, HOLD, RECORD = 0.3, 0.2, 20.0  # of the action's range; s that it is held; s of a log
NOISE = {"joint_pos": 1e-3, "joint_vel": 1e-2}  # rad or m, rad/s or m/s: of a log's readings
SETTLE = 0.1  # s without action at the start of an episode
FEW, LAST = 2.0, 1.0  # s: of windows in the stages before the last, and of each window in the last one
HANDS = ("push", "pull")  # unknowns that are what somebody does to the robot
TOLD = 0.9  # of the whole range: a log whose interval is wider tells nothing about that unknown


def command(subject: Subject, log: Path, out: Path, contacts: bool) -> list[str]:
    """The arguments that identify this log, of a robot with or without contacts."""
    args = ["identify", subject.reference, str(log), "--save", str(out)]
    return [*args, "--enough", f"{FEW:g}", "--last", f"{LAST:g}"] if contacts else args


def touches(subject: Subject) -> bool:
    """Whether the robot has contacts: each simulation is slow then, and the cost rough."""
    world = tasks.env(subject.task, 1, threads=1).world
    return isinstance(world, Engine) and len(Plain(world.model).touching) > 0


def around(belief: Box, whole: Box, found: Belief) -> Belief:
    """The belief moved to what was found, as wide as it was or as uncertain as that is, within the whole range.

    An unknown that the log does not tell, whose 95 % interval is as wide as the whole range, stays as it was. A belief
    without a width becomes what was found itself, with its correlations; a range has none.
    """
    p = belief.params
    low, high = (p.y(x) for x in found.interval(0.95))
    least, most = p.y(whole.low), p.y(whole.high)
    told = high - low < TOLD * (most - least)
    if isinstance(found, Gaussian) and (belief.low == belief.high).all():
        mu = np.where(told, np.clip(found.mu, least, most), p.y(belief.low))
        return Gaussian(p, mu, np.where(np.outer(told, told), found.cov, 0.0))
    half = 0.5 * np.maximum(p.y(belief.high) - p.y(belief.low), high - low)
    middle = 0.5 * (low + high)
    ends = (np.clip(middle + sign * half, least, most) for sign in (-1, 1))
    return Box(p, *(np.where(told, p.e(y), own) for y, own in zip(ends, (belief.low, belief.high))))


def recorded(subject: Subject, e: np.ndarray, policy: Policy | None) -> Log:
    """A log of the robot with this e: driven by a policy, with random actions added, each held for a moment.

    An episode begins with a moment without action: so what a delayed motor was commanded before the first row is known.
    """
    task = subject.task if policy is None else tasks.for_contract(subject.task, policy.contract)
    left_alone = np.where([p.target in HANDS for p in task.params], task.params.nominal, e)
    env = tasks.env(task, 1, point(task.params, left_alone), subject.seed, threads=1)
    env.world.sense_after_step = True
    if not isinstance(env.world, Engine):
        raise SurefootError(f"{task.name}: only a mujoco world can be recorded here")
    columns = LogColumns(Plain(env.world.model))
    rows: list[dict[str, Any]] = []
    gaps: list[list[float]] = []
    obs, drive = env.reset(), None if policy is None else Driver(policy, 1)
    every, dt = max(1, round(HOLD / env.world.dt)), env.world.dt
    for k in range(round(RECORD / dt)):
        shake = SHAKE * stream(subject.seed, "lab record", k // every).uniform(-1, 1, len(task.action.names))
        action = (np.zeros((1, len(shake))) if drive is None else drive(obs["actor"])) + (
            0 if task.action.choices else shake
        )
        if env.age[0] * dt < SETTLE:
            action = np.zeros_like(action)
        before, now = columns(env.world.state), round(k * dt + len(gaps), 9)
        step = env.step(action)
        control = env.task.action.control(task.action.bounded(action))[0]
        rows.append({"time": now, "control": np.array(control), **before})
        if step.episodes is not None and len(step.episodes.ids):
            gaps.append([now + dt, now + dt + 1.0])
        if drive is not None:
            drive.begin(step.final)
        obs = step.obs
    names = {"control": list(columns.actuators), **columns.names}
    data = {k: np.array([row[k] for row in rows]) for k in rows[0] if k != "time"}
    for name, sd in NOISE.items():
        if name in data:
            data[name] = data[name] + sd * stream(subject.seed, f"lab noise of {name}").standard_normal(
                data[name].shape
            )
    time = np.array([row["time"] for row in rows])
    return Log(time, data, {}, {"names": names, "rate": 1 / dt, "gaps": gaps, "robot": "simulated"})
