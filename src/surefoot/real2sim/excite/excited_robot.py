"""The robot that an excitation is designed for: a task's or a model file's, with the unknowns to learn and its start."""

from dataclasses import dataclass

import numpy as np

from surefoot import tasks
from surefoot.belief import Belief, Box
from surefoot.errors import unknown
from surefoot.params import Params
from surefoot.real2sim.excite.excitation import machine
from surefoot.real2sim.identify.param_grammar import learnable
from surefoot.real2sim.plant import Plant
from surefoot.rng import stream
from surefoot.robot import Layout
from surefoot.sim.engine import Engine
from surefoot.sim.fields import TARGETS
from surefoot.world import Start


@dataclass(frozen=True)
class ExcitedRobot:
    world: Engine
    belief: Belief
    start: Start | None
    """where it stands before it moves; None: the model's own pose"""


def excited_robot(plant: Plant, learn: tuple[str, ...], rate: float) -> ExcitedRobot:
    """A task's robot with the task's belief, or a model file's with unknowns in the words of `identify --learn`."""
    name = plant.model
    task = tasks.resolve(name) if tasks.is_reference(name) else None
    spec = plant.spec()
    params = chosen_params(task.params, learn) if task else learnable(spec.compile(), learn)
    world = machine(spec, params, rate)
    start = None
    if task:
        begun = task.episode(stream(0, "explore start"), 1).start
        if plant.fixed:  # without the seven numbers of a base's pose, and the six of its velocity
            begun = Start(begun.q[:, 7:], begun.v[:, 6:], begun.u, begun.act)
        start = start_at_rest(world.layout, begun, task.action.names, task.action.offset)
    return ExcitedRobot(world, _ranges(task.belief, params) if task else Box.full(params), start)


def chosen_params(params: Params, learn: tuple[str, ...]) -> Params:
    """The named unknowns of a task that are physics, or all of those."""
    known = [p.name for p in params if p.target in TARGETS]
    for word in learn:
        if word not in known:
            raise unknown("unknown", word, known, "--learn")
    return params.only(learn or known)


def start_at_rest(layout: Layout, begun: Start, names: tuple[str, ...], middle: np.ndarray) -> Start:
    """A task's start with no speed, its servos and their joints at the middle of its actions: the same whatever the seed."""
    q, u, middles = begun.q.copy(), begun.u.copy(), dict(zip(names, middle))
    for d in layout.drives:
        if d.kp > 0 and d.actuator in middles:
            u[:, d.control] = q[:, layout.places[layout.joints.index(d.joint)]] = middles[d.actuator]
    return Start(q, np.zeros_like(begun.v), u, begun.act)


def _ranges(belief: Belief, params: Params) -> Box:
    """The belief's ranges of some params; a param that it fixes gets its physical bounds."""
    low, high = belief.support()
    at = [belief.params.index(p.name) for p in params]
    free = low[at] < high[at]
    return Box(params, np.where(free, low[at], params.low), np.where(free, high[at], params.high))
