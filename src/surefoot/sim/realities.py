"""Hidden realities: seeded worlds that a policy was not trained for, to rehearse sim-to-real transfer without a robot.

`reality` is one e. Every parameter is drawn from the outer fifth of a belief's range: on the side away from nominal
where nominal is at an edge (latency, drag), on a random side elsewhere. So the robot differs from its model in
everything at once.

A `Reality` also differs from its model in structure: a seed and named ingredients (sim/gap) with strengths from 0, none,
to 1, severe.
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

    def __post_init__(self) -> None:
        check(self.strengths)

    def world(self, task: Task, n: int = 1, threads: int = 1, torque: bool = False) -> World:
        """n copies of the robot, for a task. Without ingredients, or at strength 0, the plain world, bit for bit."""
        return world_of(task, self.strengths, self.seed, n, threads, torque)

    def numbers(self, task: Task) -> dict[str, list[Number]]:
        """Ingredient -> the parameters it sets in this robot, which has torque sensors."""
        return numbers_of(task, self.strengths, self.seed, torque=True)

    def to_json(self) -> dict[str, Any]:
        ingredients = {k: {"strength": float(s), "about": INGREDIENTS[k].about} for k, s in self.strengths.items()}
        return {"seed": self.seed, "ingredients": ingredients}


def realities(seed: int, task: Task) -> Reality:
    """The hidden reality of a task with this seed: 3 to 5 ingredients that fit its model, of medium strength."""
    rng, names = stream(seed, "ingredients of a reality"), fitting(task)
    if len(names) < FEWEST:
        raise SurefootError(f"task {task.name}: found {len(names)} ingredients that fit, expected at least {FEWEST}")
    chosen = rng.choice(len(names), min(len(names), int(rng.integers(FEWEST, MOST + 1))), replace=False)
    return Reality(seed, {names[i]: float(rng.uniform(WEAKEST, STRONGEST)) for i in sorted(chosen)})
