"""surefoot train --seeds: runs that differ by their seed alone, one after the other or side by side with workers."""

import time
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from surefoot import tasks
from surefoot.errors import SurefootError
from surefoot.report import Column, Report, Table, Text, Watch
from surefoot.rng import training

if TYPE_CHECKING:
    from surefoot.verbs.train.train import Train

MOST = 1000  # seeds


def seeds_of(text: str) -> list[int]:
    """Of 0..9, or 0,3,5."""
    first, dots, last = text.partition("..")
    try:
        found = list(range(int(first), int(last) + 1)[: MOST + 1]) if dots else [int(x) for x in text.split(",")]
    except ValueError:
        found = []
    if not found or len(found) > MOST or len(set(found)) < len(found):
        raise SurefootError(f"--seeds: expected 0..9, or 0,3,5, with at most {MOST} seeds, found {text}")
    return [training(seed) for seed in found]


def run_seeds(verb: "Train", watch: Watch) -> Report:
    """A run for each seed; asked again with the same --out, those that were begun go on."""
    from surefoot.learn.cluster.address import On
    from surefoot.learn.cluster.jobs import Job, Jobs

    found = seeds_of(verb.seeds)
    if verb.resume is not None or verb.seed:
        raise SurefootError(
            "--seeds: --resume and --seed do not go with it; give the same --out again, and its runs go on"
        )
    if verb.shards > 1:
        raise SurefootError("--seeds: each run is a job of one process; leave out --shards")
    name = tasks.resolve(verb.task).name if verb.task else "runs"
    out = (verb.out or Path("runs") / name / time.strftime("%Y-%m-%d_%H-%M-%S")).absolute()
    jobs = Jobs(On.parse(verb.on, verb.workers), watch=watch)
    one = replace(verb, seeds="", on="", workers=0, together=True, threads=verb.threads or jobs.threads)
    asked = [Job(f"seed {seed}", replace(one, seed=seed, out=out / f"seed{seed}")) for seed in found]
    rows = jobs.each(trained, asked)
    runs = [{"seed": seed, **row} for seed, row in zip(found, rows)]
    return Report(
        f"{len(found)} runs of {name}",
        {"out": str(out), "runs": runs},
        _blocks(runs),
        f"surefoot runs {quote(str(out))}",
    )


def trained(verb: "Train", watch: Watch) -> dict[str, Any]:
    """The job of one seed: what its report says."""
    return verb.run(watch).facts


def _blocks(rows: list[dict[str, Any]]) -> tuple[Table | Text, ...]:
    names = [k for k in ("success", "return", "length") if any(k in r["metrics"] for r in rows)]
    head: list[Any] = ["seed", *(Column(k, form=".3f") for k in names), "policy"]
    cells = [[str(r["seed"]), *(r["metrics"].get(k) for k in names), r["policy"]] for r in rows]
    return (Table.of(head, cells, "the last iteration of each run"),)
