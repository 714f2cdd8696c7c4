"""Independent jobs: one after the other here, or side by side with workers; the same answers in the same order.

    answers = [work(given, watch) for given in jobs]        work is a function that a worker can import, without memory of its own

A job whose worker dies is done again. With a folder to `keep` answers in, a job that was done before is not done again:
its file is named by the content of what it was given. Whoever has all answers may `forget` them: the folder is then
what a stopped verb goes on from, and not a memory that outlives what it was asked.
"""

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from surefoot import files
from surefoot.errors import SurefootError
from surefoot.learn.cluster.address import On
from surefoot.report import Progress, Watch, unwatched

AGAIN = 3  # times that a job is done again when its worker dies

Work = Callable[[Any, Watch], Any]
"""what a job was given, and who watches -> its answer"""


@dataclass(frozen=True)
class Job:
    name: str
    given: Any
    content: Any = None
    """what `given` names without having it, such as a file's hash: part of the name of a kept answer"""


@dataclass(frozen=True)
class Jobs:
    """Where jobs are done, and where their answers are kept."""

    on: On | None = None
    """workers; None: this process"""
    keep: Path | None = None
    """folder of answers, which are then JSON; None: they are not kept"""
    watch: Watch = unwatched

    def each(self, work: Work, jobs: Sequence[Job], then: Callable[[int, Any], object] | None = None) -> list[Any]:
        """The answers, in the order of the jobs; `then` is told each one as it comes, with the number of its job."""
        found: dict[int, Any] = {i: x for i, job in enumerate(jobs) if (x := self._known(work, job)) is not None}
        left = [i for i in range(len(jobs)) if i not in found]
        self._tell(len(found), len(jobs), "")
        with self._answers(work, [jobs[i] for i in left]) as answers:
            for k, answer in answers:
                i = left[k]
                found[i] = answer
                if self.keep is not None:
                    files.write_json(self._file(work, jobs[i]), files.seal({"job": jobs[i].name, "answer": answer}))
                if then is not None:
                    then(i, answer)
                self._tell(len(found), len(jobs), jobs[i].name)
        return [found[i] for i in range(len(jobs))]

    @property
    def threads(self) -> int:
        """Of a job's physics: its share of this machine's cores; 0, all of them, where jobs follow each other."""
        if self.on is None:
            return 0
        return max(1, (os.cpu_count() or 1) // self.on.workers) if self.on.local else 1

    @contextmanager
    def connected(self) -> Iterator[tuple["Jobs", int]]:
        """These, and their number of workers, which stay between one `each` and the next."""
        if self.on is None:
            yield self, 1
            return
        with _ray(self.on) as ray:
            yield self, _workers(ray, self.on)

    def forget(self) -> None:
        """Remove the answers that were kept."""
        if self.keep is not None:
            shutil.rmtree(self.keep, ignore_errors=True)

    def _tell(self, done: int, of: int, name: str) -> None:
        if of > 1:
            self.watch(Progress(f"{done} of {of} done{': ' + name if name else ''}", done / of, stays=bool(name)))

    @contextmanager
    def _answers(self, work: Work, jobs: Sequence[Job]) -> Iterator[Iterator[tuple[int, Any]]]:
        """(number of a job, its answer), as they come."""
        if self.on is None or not jobs:
            yield ((k, work(job.given, self.watch)) for k, job in enumerate(jobs))
            return
        with _ray(self.on) as ray:
            yield _on_ray(ray, work, jobs, _workers(ray, self.on))

    def _file(self, work: Work, job: Job) -> Path:
        from surefoot import __version__
        from surefoot.learn.runspec import content_hash

        assert self.keep is not None
        key = content_hash([__version__, work.__module__, work.__name__, job.given, job.content])[:16]
        return self.keep / f"{''.join(c if c.isalnum() else '-' for c in job.name)[:60]}-{key}.json"

    def _known(self, work: Work, job: Job) -> Any:
        """The answer of a job that was done before; one that was cut or edited is done again."""
        if self.keep is None or not (path := self._file(work, job)).exists():
            return None
        try:
            return files.check_seal(files.read_json(path), str(path))["answer"]
        except (SurefootError, KeyError, TypeError):
            return None


HERE = Jobs()
"""one after the other, in this process"""


@contextmanager
def _ray(on: On) -> Iterator[Any]:
    """Ray, whose connection ends with this block unless it was there before."""
    from surefoot.learn.cluster import ray_workers

    owns = not ray_workers.connected()
    try:
        with ray_workers.ending():
            yield ray_workers.connect(on)
    finally:
        if owns:
            ray_workers.disconnect()


def _workers(ray: Any, on: On) -> int:
    """Jobs that are done at a time: a core each, where the address does not say."""
    return on.workers or max(1, int(ray.cluster_resources().get("CPU", 1)))


def _there(work: Work, given: Any, folder: str) -> Any:
    """A job at a worker, in the folder where it was asked for: paths mean the same."""
    if os.path.isdir(folder):
        os.chdir(folder)
    return work(given, unwatched)


def _on_ray(ray: Any, work: Work, jobs: Sequence[Job], workers: int) -> Iterator[tuple[int, Any]]:
    """Each worker is given its next job when it has answered: Ray gives one of several nodes most of what waits."""
    task = ray.remote(num_cpus=1, max_retries=AGAIN)(_there)
    left = iter(enumerate(jobs))
    asked: dict[Any, int] = {}

    def ask(most: int) -> None:
        asked.update({task.remote(work, job.given, os.getcwd()): k for k, job in islice(left, most)})

    try:
        ask(workers)
        while asked:
            ready, _ = ray.wait(list(asked), num_returns=1)
            k = asked.pop(ready[0])
            ask(1)
            try:
                yield k, ray.get(ready[0])
            except ray.exceptions.RayTaskError as error:
                raise error.cause from None
            except ray.exceptions.RayError as error:
                died = f"its worker died {AGAIN + 1} times ({type(error).__name__})"
                raise SurefootError(f"--on: {jobs[k].name}: {died}") from None
    finally:
        for reference in asked:
            ray.cancel(reference, force=True)
