"""Whom to ask: a robot by the name of a task or a model file, with the unknowns to learn and where it stands at first."""

from dataclasses import dataclass

import mujoco
import numpy as np

from surefoot import tasks
from surefoot.belief import Belief, Box
from surefoot.errors import unknown
from surefoot.params import Params
from surefoot.real2sim.excite.excitation import is_servo, machine
from surefoot.real2sim.identify.param_grammar import learnable
from surefoot.real2sim.plant import Plant
from surefoot.rng import stream
from surefoot.sim.engine import Engine
from surefoot.sim.fields import TARGETS
from surefoot.world import Start


@dataclass(frozen=True)
class Subject:
    world: Engine
    belief: Belief
    start: Start | None
    """where it stands before it moves; None: as the model says"""


def subject(plant: Plant, learn: tuple[str, ...], rate: float) -> Subject:
    """A task's robot with the task's belief, or a model file's with what the words of `identify` mean in it."""
    name = plant.model
    task = tasks.resolve(name) if tasks.is_reference(name) else None
    spec = plant.spec()
    params = chosen(task.params, learn) if task else learnable(spec.compile(), learn)
    world = machine(spec, params, rate)
    start = None
    if task:
        begun = task.start(stream(0, "explore start"), 1)
        if plant.fixed:  # without the seven numbers of a base's pose, and the six of its velocity
            begun = Start(begun.q[:, 7:], begun.v[:, 6:], begun.u, begun.act)
        start = standing(world.model, begun, task.action.names, task.action.offset)
    return Subject(world, _believed(task.belief, params) if task else Box.full(params), start)


def chosen(params: Params, learn: tuple[str, ...]) -> Params:
    """The named unknowns of a task that are physics, or all of those."""
    known = [p.name for p in params if p.target in TARGETS]
    for word in learn:
        if word not in known:
            raise unknown("unknown", word, known, "--learn")
    return params.only(learn or known)


def standing(model: mujoco.MjModel, begun: Start, names: tuple[str, ...], middle: np.ndarray) -> Start:
    """A task's start with no speed, its servos and their joints at the middle of its actions: the same whatever the seed."""
    q, u = begun.q.copy(), begun.u.copy()
    actuators = [model.actuator(i).name for i in range(model.nu)]
    for name, value in zip(names, middle):
        if name in actuators and is_servo(model, actuators.index(name)):
            i = actuators.index(name)
            u[:, i] = q[:, model.jnt_qposadr[int(model.actuator_trnid[i, 0])]] = value
    return Start(q, np.zeros_like(begun.v), u, begun.act)


def _believed(belief: Belief, params: Params) -> Box:
    """The part of a belief that is about some params, as ranges; one that is fixed there gets all that is possible."""
    low, high = belief.support()
    at = [belief.params.index(p.name) for p in params]
    free = low[at] < high[at]
    return Box(params, np.where(free, low[at], params.low), np.where(free, high[at], params.high))
