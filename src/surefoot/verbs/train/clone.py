"""surefoot clone: a policy that does what logs show."""

import time
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Annotated

from tyro.conf import Positional, arg

from surefoot import files, tasks
from surefoot.errors import SurefootError
from surefoot.learn.clone.settings import CloneSettings
from surefoot.log import Log
from surefoot.report import Report, Text, Watch
from surefoot.task import Task
from surefoot.verbs.machine import naming
from surefoot.world import World


@dataclass(frozen=True)
class Clone:
    task: Positional[str]
    """a task: its name (see `surefoot tasks`), file.py, or module:function"""
    logs: Positional[tuple[Path, ...]]
    """logs with the columns `observation` and `action`, as `surefoot run` and `surefoot record --observation` write them; or
    of whatever drove the robot, with `control` and the readings that the task observes"""
    mapping: Annotated[Path | None, arg(name="map")] = None
    """JSON file that maps the logs' columns to our schema; see docs/logs.md"""
    beside: tuple[Path, ...] = ()
    """logs to learn from beside these, such as of a simulation (`surefoot record TASK --episodes 100`); --share says how much"""
    seed: int = 0
    """seed of the net and of all that is drawn"""
    out: Path | None = None
    """folder of the run; default: runs/<task>/clone-<time>. Resumes if it holds a run with the same logs and settings"""
    save_every: float = 10.0
    """seconds between checkpoints; 0: after every iteration"""
    settings: Annotated[CloneSettings, arg(name="")] = CloneSettings()

    def run(self, watch: Watch) -> Report:
        from surefoot.deploy import bundle
        from surefoot.learn.clone.run import clone
        from surefoot.tasks.known import task_flag

        if not self.logs:
            raise SurefootError("clone: expected logs to clone from, found none")
        if self.save_every < 0:
            raise SurefootError(f"--save-every: expected 0 or more, found {self.save_every:g}")
        task = tasks.resolve(self.task)
        world = tasks.env(task, 1, threads=1).world
        logs = {str(path): _read(path, task, world, self.mapping) for path in self.logs}
        beside = {str(path): _read(path, task, world, None) for path in self.beside}
        out = self.out or Path("runs") / task.name / time.strftime("clone-%Y-%m-%d_%H-%M-%S")
        path = clone(self.task, logs, out, self.settings, self.seed, watch, self.save_every, beside)
        rows, more = (sum(map(len, x.values())) for x in (logs, beside))
        facts = {"run": str(path.parent), "policy": str(path), "sha256": files.sha256(path.read_bytes()), "rows": rows,
                 "rows_beside": more}  # fmt: skip
        following = f"surefoot eval {quote(str(path.parent))}{task_flag(self.task, bundle.load(path).contract)}"
        text = f"policy: {path}, cloned from {rows} rows of {len(logs)} logs by {self.settings.by}"
        text += f", with {more} rows beside them" if more else ""
        return Report(str(path.parent), facts, (Text(text),), following)


def _read(path: Path, task: Task, world: World, mapping: Path | None) -> Log:
    """A log with observations and actions: its own, or those that follow from a robot's readings and controls."""
    from surefoot.doctor.evidence.demonstration import demonstrated

    log = Log.read(path, mapping)
    if "observation" in log.columns or "control" not in log.columns:
        return log
    with naming(path):
        return demonstrated(task, world, Log.read(path, mapping, rate=1 / world.dt))
