"""Engine randomization: a share of the simulations of each batch in each of several engines (sim/engines).

A policy that lives on one engine's friction cone, solver, integrator or timestep loses there what it gains here. A simulation
stays in its engine, because MuJoCo shares these options among all simulations of a batch; e is drawn alike in all.

Bullet is left out: it is 3 to 15 times as slow, and what its contacts remember is not in a checkpoint.
"""

from surefoot import tasks
from surefoot.belief import Belief
from surefoot.blocks import Blocks, share, sizes
from surefoot.errors import SurefootError
from surefoot.learn.joined.parts import Joined
from surefoot.sim.engines import DEFAULT, known
from surefoot.sim.learned import LearnedTerm
from surefoot.task import Task

MIXED = (DEFAULT, "mujoco:euler", "mujoco:half-step", "mujoco:elliptic", "mujoco:pgs")
"""another integrator, timestep, cone and solver, beside the model's own"""


def in_engines(
    task: Task,
    belief: Belief,
    names: tuple[str, ...],
    envs: int,
    seed: int,
    threads: int = 0,
    terms: tuple[LearnedTerm, ...] = (),
) -> Joined:
    """n envs of a task, of which each engine has an equal share."""
    check(names)
    if task.clip is not None:
        raise SurefootError(f"engines: {task.name} follows a reference motion; expected a task that does not")
    if len(names) > envs:
        raise SurefootError(f"engines: expected at least as many envs as engines, {len(names)}, found {envs}")
    parts, first = {}, 0
    for k, name in enumerate(names):
        n = envs * (k + 1) // len(names) - first
        head, *more = sizes(n)
        one = tasks.env(task, 1, belief, seed, share(threads, 1 + len(more)), stagger=True, terms=terms, engine=name)
        parts[name] = Blocks.like(one.like(head, first), more, threads)
        first += n
    return Joined(parts, belief, reported=names)


def check(names: tuple[str, ...]) -> None:
    """Refuse what cannot be mixed, before anything is built."""
    for name in names:
        kind = known(name, "engines")
        if kind.mover is not None or kind.stepper is not None:
            raise SurefootError(f"engines: expected MuJoCo with other options, such as {MIXED[1]}, found {name}")
    if len(set(names)) < len(names):
        raise SurefootError(f"engines: expected each once, found {', '.join(names)}")
