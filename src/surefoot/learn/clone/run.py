"""clone(task, logs) -> policy: a run like any other, which goes on where it stopped when it is asked for again."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType

from surefoot import tasks
from surefoot.learn.clone.demos import demos
from surefoot.learn.clone.learner import Clone
from surefoot.learn.clone.settings import CloneSettings
from surefoot.learn.loop import SAVE_EVERY, product_of, run_training
from surefoot.learn.nets import export
from surefoot.learn.run import Run
from surefoot.learn.runspec import RunSpec, content_hash
from surefoot.learn.train import check_same, restore
from surefoot.log import Log
from surefoot.report import Watch
from surefoot.tasks.known import remember
from surefoot.tasks.provenance import provenance
from surefoot.tasks.registry import Reference, located


def clone(
    task: Reference,
    logs: Mapping[str, Log],
    out: Path,
    settings: CloneSettings | None = None,
    seed: int = 0,
    watch: Watch | None = None,
    save_every: float = SAVE_EVERY,
    beside: Mapping[str, Log] = MappingProxyType({}),
) -> Path:
    """Clone a policy from logs by name, and from others beside them, such as a simulation's; returns its path.

    Resumes if `out` holds a run with the same logs and settings.
    """
    out, settings, (reference, found) = Path(out), settings or CloneSettings(), located(task)
    env = tasks.env(found, 1, seed=seed, threads=1)
    chunk = 1 if settings.by == "mse" else settings.chunk
    own, more = (demos(found, 1 / env.world.dt, x, chunk) if x else None for x in (logs, beside))
    assert own is not None
    learner = Clone(env, settings, seed, own, more)
    inputs = {"clone": asdict(settings), "logs": _hashes(logs)} | ({"beside": _hashes(beside)} if beside else {})
    spec, made_for = RunSpec(reference, tasks.nominal(found), seed=seed, inputs=inputs), provenance(found, reference)
    begun = (out / "run.json").exists()
    if begun:
        check_same(out, spec)
    remember(reference, made_for.text_hash)
    run = Run.open(out)[0] if begun else Run.create(out, spec.to_json() | {"provenance": made_for.to_json()})
    try:
        if begun:
            restore(run, learner, run.newest())
        else:
            run.begin()
        again = "give the same command again, and it goes on"
        run_training(run, learner, watch, save_every, product_of(learner, run), again)
    finally:
        run.close()
    return out / export.NAME


def _hashes(logs: Mapping[str, Log]) -> list[str]:
    return sorted(content_hash({"time": log.time, **log.columns}) for log in logs.values())
