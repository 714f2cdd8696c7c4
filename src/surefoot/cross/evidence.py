"""What a crossing's page shows beside its stages: predictions of the robot's log, where their error comes from, and what the
policy tolerates.

    E(f) = mean over signals of  mean |prediction - measurement|^2 / var(measurement)      windows of WINDOW s from measured states
    wrong numbers    E(model) - E(model with the robot's numbers)
    missing physics  E(model with the robot's numbers) - E(robot)
    noise            E(robot): its own physics, from states as its sensors measured them; state that no sensor
                     measures, such as a bristle's bend or a winding's heat, counts as noise

The budget needs the robot's true numbers and physics, so it is of simulated robots alone, and made when the loop is over.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from surefoot import tasks
from surefoot.cross.beliefs import physics, searched
from surefoot.cross.robot import HiddenRobot, Robot
from surefoot.cross.work import Crossing, beginnings, known, sent
from surefoot.deploy import bundle
from surefoot.errors import LogError
from surefoot.gate.measures.sweep import Points, sweep, values_over
from surefoot.log import Log
from surefoot.real2sim.replay import Windows, predict, windows
from surefoot.rng import judging
from surefoot.task import quiet
from surefoot.world import World

WINDOW = 0.3  # s of a prediction: an unstable robot amplifies any error in longer ones
SHOWN = 2.0  # s of each episode that count: in a fall everything is amplified
VALUES, EPISODES = 7, 30  # of each unknown, and at each of its values


@dataclass(frozen=True)
class Sources:
    """Where the error of a prediction comes from, in parts of the model's own error; they sum to 1."""

    numbers: float
    physics: float
    noise: float
    identified: float
    """the model's error with identified numbers and learned physics, in the same unit"""
    seconds: float
    """of the log"""


@dataclass(frozen=True)
class Curve:
    """One measured number of the robot in an episode, and two predictions of it."""

    signal: str
    part: str
    unit: str
    time: np.ndarray
    measured: np.ndarray
    model: np.ndarray
    identified: np.ndarray


@dataclass(frozen=True)
class Evidence:
    """All of it; what cannot be made of a robot is empty."""

    sources: Sources | None
    curves: list[Curve]
    tolerated: list[dict[str, Any]]

    def facts(self) -> dict[str, Any]:
        budget = None if self.sources is None else asdict(self.sources)
        success = {x["over"]: [[p["value"], p["success"]] for p in x["policies"]["shown"]] for x in self.tolerated}
        return {"error_budget": budget, "tolerated": success}


def gather(done: Crossing, robot: Robot) -> Evidence:
    budget = sources(done, robot) if isinstance(robot, HiddenRobot) else None
    return Evidence(budget, curves(done), list(tolerated(done)))


def first_log(done: Crossing) -> Log | None:
    """Of the first attempt: the model as it was is judged by what nobody had fitted yet."""
    found = next((s.facts["log"] for s in done.journal.stages if s.facts.get("log")), None)
    return None if found is None else sent(Log.load(Path(found)))


def _pieces(world: World, log: Log) -> Windows:
    return windows(world, beginnings(log, SHOWN), max(1, round(WINDOW / world.dt)))


def _error(world: World, log: Log, e: np.ndarray) -> float:
    pieces = _pieces(world, log)
    errors = pieces.errors(predict(world, pieces, e[None]))
    each = []
    for s in pieces.signals:
        var = float(np.nanvar(pieces.target(s), axis=(0, 1)).sum())
        if var > 0:
            each.append(float(np.square(errors[s.name]).mean((0, 1)).sum()) / var)
    return float(np.mean(each)) if each else float("nan")


def _learned(done: Crossing) -> tuple[World, np.ndarray]:
    """The model with all that the crossing learned."""
    task = done.question.task
    belief, terms = known(done.question, done.journal)
    plain = tasks.env(task, 1, threads=1).world
    world = plain.with_(1, (*plain.terms, *tasks.learned(task, terms))) if terms else plain
    return world, np.clip(belief.estimate(), task.params.low, task.params.high)


def sources(done: Crossing, robot: HiddenRobot) -> Sources | None:
    """The error budget of the model's predictions of the first log; None where the log has no window to predict."""
    task, log = done.question.task, first_log(done)
    if log is None:
        return None
    model, (learned, e) = tasks.env(task, 1, threads=1).world, _learned(done)
    own, rest = quiet(task)
    truth = robot.reality.values(own, rest)
    try:
        total = _error(model, log, task.params.nominal)
        numbers = _error(model, log, robot.reality.values(task, task.params.nominal))
        noise = _error(robot.reality.world(own, 1), log, truth)
        found = _error(learned, log, e)
    except LogError:
        return None
    if not np.isfinite([total, numbers, noise, found]).all() or total <= 0:
        return None
    rows = len(beginnings(log, SHOWN))
    return Sources((total - numbers) / total, (numbers - noise) / total, noise / total, found / total, rows / log.rate)


def curves(done: Crossing, most: int = 4) -> list[Curve]:
    """The first episode of the first log, predicted by the model and by what was learned: the parts with the largest errors."""
    log = first_log(done)
    if log is None:
        return []
    model, (learned, e) = tasks.env(done.question.task, 1, threads=1).world, _learned(done)
    try:
        pieces = _pieces(model, log)
        here = pieces.some(_first_episode(pieces))
        before, after = predict(model, here, model.params.nominal[None]), predict(learned, here, e[None])
    except LogError:
        return []
    time = log.time[(here.rows[:, None] + np.arange(1, here.length + 1)).ravel()]
    found = []
    for s in (x for x in here.signals if x.kind != "quat"):
        target, a, b = here.target(s), s.read(before), s.read(after)
        spread = np.nanstd(target.reshape(-1, target.shape[-1]), 0)
        for i, part in enumerate(s.parts[: target.shape[-1]]):
            off = float(np.sqrt(np.nanmean(np.square(a - target)[..., i]))) / max(float(spread[i]), 1e-12)
            curve = Curve(s.name, part, s.unit, time, target[..., i].ravel(), a[..., i].ravel(), b[..., i].ravel())
            found.append((off, curve))
    return [c for _, c in sorted(found, key=lambda x: -x[0])[:most]]


def _first_episode(pieces: Windows) -> np.ndarray:
    """Indices of the windows that follow the first one without a break."""
    steps = np.diff(pieces.log.time[pieces.rows]) * pieces.log.rate
    breaks = np.flatnonzero(steps > 1.5 * pieces.length)
    return np.arange(breaks[0] + 1 if len(breaks) else len(pieces))


def tolerated(done: Crossing) -> Iterator[dict[str, Any]]:
    """Success of the policy shown against each unknown that is physics, the others as believed; facts of a sweep each."""
    task, run = done.question.task, done.policy
    if run is None:
        return
    belief, _ = known(done.question, done.journal)
    wide, free, policy = searched(task), physics(task), bundle.load(run)
    for i in np.flatnonzero(free & (wide.low < wide.high)):
        name = task.params.names[i]
        values = values_over(task, name, VALUES, float(wide.low[i]), float(wide.high[i]))
        points = Points(name, values, belief, EPISODES, judging(done.question.seed, "cross tolerates"))
        yield sweep({"shown": policy}, task, points, threads=done.question.threads)
