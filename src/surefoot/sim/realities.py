"""Hidden realities: seeded worlds that a policy was not trained for, to rehearse sim-to-real transfer without a robot.

`reality` is one e. Every parameter is drawn from the outer fifth of a belief's range: on the side away from nominal
where nominal is at an edge (latency, drag), on a random side elsewhere. So the robot differs from its model in
everything at once.

A `Reality` also differs from its model in structure: a seed and named ingredients (sim/gap) with strengths from 0, none,
to 1, severe; and it may have numbers of its own for the task's unknowns. `hidden` draws both, outside of the belief, too.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from surefoot.belief import Box
from surefoot.errors import SurefootError
from surefoot.rng import stream
from surefoot.sim.gap.build import INGREDIENTS, check, fitting, numbers_of, world_of
from surefoot.sim.gap.recipe import Number
from surefoot.task import Task
from surefoot.world import World

OUTER = 0.2  # of a parameter's range
FEWEST, MOST = 3, 5  # ingredients of a random reality
WEAKEST, STRONGEST = 0.3, 0.8
OUTSIDE, BEYOND = 2, (0.1, 0.5)
"""unknowns of a hidden robot that lie outside of the belief, and how far, as a share of the belief's range"""
FARTHER = {"balance": (3, (0.5, 1.5)), "arm": (4, (1.0, 2.5)), "walk": (3, (0.3, 1.0))}
"""the same for tasks with policies that tolerate more"""
LACKING = (1, 2)  # ingredients of a hidden robot
NOISE = (0.02, 0.1)  # strength of its sensors' noise
STRUCTURE = (
    "stiction", "backlash", "cable_drag", "saturation", "heating", "air_drag", "wind", "ground_effect", "soft_ground",
    "action_jitter", "dropped_packets",
)  # fmt: skip
"""ingredients that no number of a belief describes. Not among them: what hides the robot's own position from it, such as elastic
gears or a sensor that is off; that needs calibration, no policy gets around it"""
NOT_PHYSICS = ("noise", "bias", "push", "pull", "task")
"""targets of unknowns that are not properties of the machine"""


def reality(belief: Box, seed: int) -> np.ndarray:
    """e of the hidden world with this seed."""
    rng = stream(seed, "reality")
    p = belief.params
    low, high = belief.normalise(belief.low), belief.normalise(belief.high)
    nominal = belief.normalise(p.nominal)
    side = rng.random(len(p)) < 0.5
    side = np.where(nominal <= low, True, np.where(nominal >= high, False, side))
    depth = OUTER * rng.random(len(p))
    return belief.denormalise(np.where(side, high - depth * (high - low), low + depth * (high - low)))


@dataclass(frozen=True)
class Reality:
    """A robot: the effect of each ingredient is drawn from the seed."""

    seed: int
    strengths: Mapping[str, float] = field(default_factory=dict)
    e: Mapping[str, float] = field(default_factory=dict)
    """the task's unknowns that are not nominal in this robot"""

    def __post_init__(self) -> None:
        check(self.strengths)

    def world(self, task: Task, n: int = 1, threads: int = 1, torque: bool = False) -> World:
        """n copies of the robot, for a task. Without ingredients, or at strength 0, the plain world, bit for bit."""
        return world_of(task, self.strengths, self.seed, n, threads, torque, self.values(task, task.params.nominal))

    def values(self, task: Task, rest: np.ndarray) -> np.ndarray:
        """e of this robot, where `rest` is that of what it does not say."""
        e = np.array(rest, float)
        for name, value in self.e.items():
            e[task.params.index(name)] = value
        return e

    def numbers(self, task: Task) -> dict[str, list[Number]]:
        """Ingredient -> the parameters it sets in this robot, which has torque sensors."""
        return numbers_of(task, self.strengths, self.seed, torque=True)

    def to_json(self) -> dict[str, Any]:
        ingredients = {k: {"strength": float(s), "about": INGREDIENTS[k].about} for k, s in self.strengths.items()}
        return {"seed": self.seed, "ingredients": ingredients, "e": dict(self.e)}


def realities(seed: int, task: Task) -> Reality:
    """The hidden reality of a task with this seed: 3 to 5 ingredients that fit its model, of medium strength."""
    rng, names = stream(seed, "ingredients of a reality"), fitting(task)
    if len(names) < FEWEST:
        raise SurefootError(f"task {task.name}: found {len(names)} ingredients that fit, expected at least {FEWEST}")
    chosen = rng.choice(len(names), min(len(names), int(rng.integers(FEWEST, MOST + 1))), replace=False)
    return Reality(seed, {names[i]: float(rng.uniform(WEAKEST, STRONGEST)) for i in sorted(chosen)})


def hidden(seed: int, task: Task) -> Reality:
    """A robot that no belief contains: every number wrong, OUTSIDE of them outside of the task's ranges, noisy sensors, and
    ingredients that no number describes.
    """
    belief, rng = task.belief, stream(seed, "hidden robot")
    if not isinstance(belief, Box):
        raise SurefootError(f"task {task.name}: a hidden robot needs a belief of ranges, found {type(belief).__name__}")
    at = [i for i, p in enumerate(task.params) if p.target not in NOT_PHYSICS and belief.low[i] < belief.high[i]]
    z = rng.uniform(0.0, 1.0, len(task.params))  # share of the way from low to high
    count, beyond = FARTHER.get(task.name, (OUTSIDE, BEYOND))
    for i in rng.choice(at, min(count, len(at)), replace=False):
        far = rng.uniform(*beyond)
        z[i] = 1 + far if _one_sided(belief, int(i)) or rng.random() < 0.5 else -far
    e = np.clip(belief.beyond(z), task.params.low, task.params.high)
    names = [n for n in fitting(task) if n in STRUCTURE]
    count = min(len(names), int(rng.integers(LACKING[0], LACKING[1] + 1)))
    chosen = sorted(rng.choice(len(names), count, replace=False)) if count else []
    strengths = {names[k]: float(rng.uniform(WEAKEST, STRONGEST)) for k in chosen}
    strengths["sensor_noise"] = float(rng.uniform(*NOISE))
    return Reality(seed, strengths, {task.params.names[i]: float(e[i]) for i in at})


def _one_sided(belief: Box, i: int) -> bool:
    """There is nothing below the range: it begins with the nominal value, as of a latency, or at the physical bound."""
    p = belief.params
    return bool(p.nominal[i] <= belief.low[i] or belief.low[i] <= p.low[i])
