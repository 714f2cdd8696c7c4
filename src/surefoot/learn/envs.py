"""The envs of a run: what a spec's task looks like to its learner, and where its simulations are.

spec, parents -> task as actor, critic and teacher see it -> n envs: Blocks of this process, or Shards of workers
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from surefoot import tasks
from surefoot.blocks import Blocks, share, sizes
from surefoot.errors import SurefootError
from surefoot.learn.collect import Envs
from surefoot.learn.distill import classroom
from surefoot.learn.joined.engines import in_engines
from surefoot.learn.on_robot.envs import with_robot
from surefoot.learn.on_robot.limited import behind_runtime
from surefoot.learn.run.parents import Parents, seen
from surefoot.learn.runspec import RunSpec
from surefoot.learn.settings import DistillSettings
from surefoot.learn.sim2sim.forward import seen_by
from surefoot.learn.sim2sim.imitate import TEACHER
from surefoot.learn.sim2sim.support import easy, with_kinematics
from surefoot.sim.engine import Engine
from surefoot.task import Task

if TYPE_CHECKING:
    from surefoot.learn.cluster.address import On
    from surefoot.learn.run import Run

ON_DEVICE = "warp"  # the engine that has a batch on a device


@dataclass(frozen=True)
class Place:
    """Where a run's simulations are."""

    threads: int = 0
    """of the physics, in this process; 0: every core"""
    on: "On | None" = None
    """workers elsewhere; None: in this process"""
    reference: str = ""
    """by which a worker finds the task"""


def learners_task(spec: RunSpec, task: Task, parents: Parents) -> Task:
    """The task as the learner of a spec sees it."""
    s = spec.settings
    if isinstance(s, DistillSettings):
        assert parents.teacher is not None
        return classroom(task, parents.teacher, s.history, s.only)
    task = task if spec.easy is None else easy(task, spec.easy)
    task = task if spec.robot is None else behind_runtime(task, late=0.0)
    own = seen(task, spec.obs)
    own = with_kinematics(own) if spec.forward is not None or parents.reference is not None else own
    if parents.reference is None:
        return own
    return replace(own, observations={**own.observations, TEACHER: seen_by(task, parents.reference.meaning)})


def make(spec: RunSpec, parents: Parents, task: Task, place: Place, run: "Run") -> Envs:
    """The envs of a run; `task` is the learner's. What holds envs elsewhere is let go when the run is closed."""
    assert spec.settings is not None
    if spec.robot is not None:
        if place.on is not None:
            raise SurefootError("--on: workers hold simulations, not a robot; leave it out")
        s = spec.settings
        return with_robot(task, spec.belief, spec.robot, s.envs, spec.seed, place.threads, parents.terms)
    if ON_DEVICE in spec.engines:
        return on_device(spec, parents, task, place, run.notes)
    if spec.engines:
        if place.on is not None:
            raise SurefootError("--on: workers hold simulations of one engine; leave it out, or --engines")
        n = spec.settings.envs
        return in_engines(task, spec.belief, spec.engines, n, spec.seed, place.threads, parents.terms)
    if place.on is not None:
        from surefoot.learn.cluster.start import start

        shards = start(spec, parents, task, place, run)
        run.beside.append(shards.close)
        return shards
    return part(spec, parents, task, slice(0, spec.settings.envs), place.threads)


def on_device(spec: RunSpec, parents: Parents, task: Task, place: Place, notes: list[str]) -> Envs:
    """All envs on the device of mujoco-warp; what is not done there is refused by name."""
    assert spec.settings is not None
    if len(spec.engines) > 1:
        raise SurefootError(
            f"engines: warp has a whole batch on its device; expected it alone, found {', '.join(spec.engines)}"
        )
    host = {
        "--on": place.on,
        "--terms": parents.terms,
        "--base": parents.base,
        "--support": spec.forward or parents.reference,
    }
    for flag, given in host.items():
        if given:
            raise SurefootError(
                f"{flag}: engine warp has a whole batch on its device; expected --engines warp without it"
            )
    from surefoot.learn.on_device.env import DeviceEnv
    from surefoot.learn.on_device.world import DeviceWorld

    one = tasks.env(task, 1, spec.belief, spec.seed, 1).world
    assert isinstance(one, Engine)
    env = DeviceEnv(task, DeviceWorld(one, spec.settings.envs), spec.belief, spec.seed, stagger=True)
    if env.device == "cpu":
        notes.append("mujoco-warp found no GPU: it runs on the CPU, several times as slowly as engine mujoco")
    return env


def part(spec: RunSpec, parents: Parents, task: Task, rows: slice, threads: int) -> Blocks:
    """Envs `rows` of a spec, in the blocks that all of its envs have."""
    assert spec.settings is not None
    overlaps, first = [], 0
    for n in sizes(spec.settings.envs):
        overlaps.append((max(first, rows.start), min(first + n, rows.stop)))
        first += n
    (a, b), *more = [(a, b) for a, b in overlaps if a < b]
    own = share(threads, 1 + len(more))
    n = b - a if a == 0 else 1
    env = tasks.env(task, n, spec.belief, spec.seed, own, stagger=True, terms=parents.terms)
    return Blocks.like(env if a == 0 else env.like(b - a, a), [b - a for a, b in more], threads)
