"""From a spec to Shards: workers are started, each builds its envs, and what differs from here is said."""

import os
from typing import TYPE_CHECKING

from surefoot import tasks
from surefoot.errors import SurefootError
from surefoot.learn.cluster.ray_workers import RayWorkers
from surefoot.learn.cluster.shards import Shards, Workers
from surefoot.learn.cluster.worker import Plan
from surefoot.learn.on_policy.learner import OnPolicy
from surefoot.learn.run import versions
from surefoot.learn.run.parents import FOLDERS, Parents
from surefoot.learn.runspec import RunSpec
from surefoot.learn.settings import DistillSettings
from surefoot.task import Task
from surefoot.tasks.registry import is_reference, task_file

if TYPE_CHECKING:
    from surefoot.learn.envs import Place
    from surefoot.learn.run import Run


def start(spec: RunSpec, parents: Parents, task: Task, place: "Place", run: "Run") -> Shards:
    """The envs of a run, with workers; `task` is the learner's."""
    assert place.on is not None and spec.settings is not None
    made = plan(spec, place, run)
    return shards(spec, parents, task, RayWorkers(place.on, made, spec.settings.envs, run.notes), run)


def shards(spec: RunSpec, parents: Parents, task: Task, workers: Workers, run: "Run") -> Shards:
    """Envs with workers that are there."""
    try:
        for about in workers.each("about", [()] * len(workers.shards)):
            note_differences(about, run)
        world = tasks.env(task, 1, spec.belief, spec.seed, 1, stagger=True, terms=parents.terms).world
    except BaseException:
        workers.close()
        raise
    return Shards(workers, task, world, spec.belief, spec.seed)


def share_update(learner: OnPolicy, spec: RunSpec, place: "Place", run: "Run") -> None:
    """Have peers take part in a learner's updates, until the run is closed."""
    from surefoot.learn.cluster.peers import Peers

    assert place.on is not None
    peers = Peers(place.on, plan(spec, place, run), run)
    learner.peers = peers
    run.beside.append(peers.close)  # the last one ends first: before the connection


def plan(spec: RunSpec, place: "Place", run: "Run") -> Plan:
    """What workers build from."""
    reference, file = place.reference, task_file(place.reference)
    if not is_reference(reference):
        raise SurefootError(
            f"--on: {reference} was made in a script, and no worker can find it: give the file that makes it (FILE.py)"
        )
    if file is not None:
        path = str(file[0].resolve())
        reference = f"{path}:{file[1]}" if file[1] else path
    beside = {
        str(p.relative_to(run.folder)): p.read_bytes()
        for name in FOLDERS
        for p in sorted((run.folder / name).rglob("*"))
        if p.is_file()
    }
    own = spec.settings.learner_threads if isinstance(spec.settings, DistillSettings) else 1
    return Plan(spec.to_json(), reference, run.about["provenance"], beside, _threads(place), own)


def _threads(place: "Place") -> int:
    """Of each worker's physics: one, or its share of this machine."""
    assert place.on is not None
    cores = place.threads or os.cpu_count() or 1
    return max(1, cores // place.on.workers) if place.on.local else max(1, place.threads)


def note_differences(about: dict[str, str], run: "Run") -> None:
    """Say where a worker's libraries or processor are not those of the learner."""
    found = [f"{k} {about.get(k)}, here {v}" for k, v in versions().items() if about.get(k) != v]
    if found:
        words = f"worker on {about['host']}: {', '.join(found)}: the result may not be bit-identical"
        if words not in run.notes:
            run.notes.append(words)
