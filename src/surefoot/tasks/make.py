"""A task in a world: `env` makes n episodes of it, side by side."""

from collections.abc import Sequence
from pathlib import Path

from surefoot.belief import Belief, point
from surefoot.env import Env
from surefoot.errors import SurefootError
from surefoot.sim import engines
from surefoot.sim.layout import model_of
from surefoot.sim.learned import LearnedTerm, load
from surefoot.sim.model.load import load_robot
from surefoot.task import Task
from surefoot.task_check import in_task_file
from surefoot.world import Term


def nominal(task: Task) -> Belief:
    """The belief that the model is right."""
    return point(task.params, task.params.nominal)


def env(
    task: Task,
    n: int,
    belief: Belief | None = None,
    seed: int = 0,
    threads: int = 0,
    stagger: bool = False,
    terms: tuple[Term, ...] = (),
    engine: str = engines.DEFAULT,
) -> Env:
    """n episodes of a task side by side, in an engine of sim/engines.py; without a belief, in its nominal world."""
    engines.known(engine)
    with in_task_file(task):
        return _env(task, n, belief or nominal(task), seed, threads, stagger, (*task.terms, *terms), engine)


def _env(
    task: Task, n: int, belief: Belief, seed: int, threads: int, stagger: bool, terms: tuple[Term, ...], engine: str
) -> Env:
    spec = load_robot(task.robot).spec
    try:
        world = engines.make(engine, spec, task.params, n, task.substeps, threads, terms, task.explicit)
    except (MemoryError, ValueError) as error:
        if isinstance(error, ValueError) and "bad_alloc" not in str(error):
            raise
        raise SurefootError(f"{n} simulations of {task.name} do not fit into memory; expected fewer (--envs)") from None
    return Env(task, world, belief, seed, stagger)


def learned(task: Task, paths: Sequence[Path]) -> tuple[LearnedTerm, ...]:
    """Learned Terms from files or folders, refused where they were learned on another robot."""
    if not paths:
        return ()
    model = model_of(env(task, 1).world)
    return tuple(load(path, model) for path in paths)
