"""Innovations of many hypotheses as jobs: each simulates some of them, to the bits that one batch here has.

A worker finds the task as the user named it, and gets the log and the variants as arrays.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from surefoot.doctor.evidence.innovations import Gain, Variant, innovations, segments
from surefoot.doctor.hypotheses.model_errors import errors_of, world_with
from surefoot.log import Log
from surefoot.report import Watch
from surefoot.sim.gap.build import world_of

if TYPE_CHECKING:
    from surefoot.learn.cluster.jobs import Jobs

FEWEST = 4  # variants of a job: fewer take less time than asking


@dataclass(frozen=True)
class ByJobs:
    jobs: "Jobs"
    who: Mapping[str, Any]
    """the arguments of `candidate` that give the policy and its task at a worker"""
    log: Log
    workers: int

    def variants(self, variants: Sequence[Variant], gain: Gain) -> np.ndarray:
        """(m, s, w, 2 nv), as `innovations` has them."""
        count = max(1, min(self.workers, len(variants) // FEWEST))
        ends = [round(i * len(variants) / count) for i in range(count + 1)]
        asked = [(tuple(variants[a:b]), None) for a, b in zip(ends, ends[1:])]
        return np.concatenate(self._each("hypotheses", asked, gain))

    def gaps(self, strengths: Sequence[Mapping[str, float]], gain: Gain) -> list[np.ndarray]:
        """(s, w, 2 nv) of the task's world with ingredients of the reality gap, each."""
        return [eps[0] for eps in self._each("effects", [((), x) for x in strengths], gain)]

    def _each(self, name: str, asked: Sequence[tuple[Any, Any]], gain: Gain) -> list[np.ndarray]:
        from surefoot.learn.cluster.jobs import Job

        jobs = [Job(f"{name} {i + 1}", (self.who, self.log, *x, gain)) for i, x in enumerate(asked)]
        return self.jobs.each(simulated, jobs)


def simulated(
    given: tuple[Any, Log, tuple[Variant, ...], Mapping[str, float] | None, Gain], watch: Watch
) -> np.ndarray:
    """The job: innovations of variants, or of a world with ingredients."""
    from surefoot.gate.candidate import candidate

    who, log, variants, strengths, gain = given
    task = candidate(**who).task
    world = world_with(task, errors_of(task))
    at = segments(world, log)
    if strengths is None:
        return innovations(world, at, list(variants), gain)
    return innovations(world_of(task, dict(strengths), 0, len(at.rows)), at, [Variant(task.params.nominal)], gain)
