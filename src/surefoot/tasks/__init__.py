"""Ready tasks and the robots they use. `make` builds one by name; `env` puts it into a world."""

from collections.abc import Callable

from surefoot.belief import Belief, point
from surefoot.errors import unknown
from surefoot.sim.engine import Engine, compile_for
from surefoot.sim.load import load_string
from surefoot.task import Env, Task
from surefoot.tasks.balance import balance
from surefoot.tasks.hover import hover
from surefoot.tasks.walk import walk
from surefoot.world import Term

TASKS: dict[str, Callable[[], Task]] = {
    "balance": balance,
    "balance-discrete": lambda: balance(discrete=True),
    "hover": hover,
    "walk": walk,
    "walk-rough": lambda: walk(rough=True),
}


def make(name: str) -> Task:
    if name not in TASKS:
        raise unknown("task", name, TASKS)
    return TASKS[name]()


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
) -> Env:
    """n episodes of a task side by side; without a belief, in its nominal world."""
    model = compile_for(load_string(task.xml, task.name).spec, task.params)
    world = Engine(model, task.params, n, task.substeps, threads, (*task.terms, *terms), task.explicit)
    return Env(task, world, belief or nominal(task), seed, stagger)
