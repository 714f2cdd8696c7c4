"""The loop around a learner: progress, checkpoints, a stop that loses nothing, and the policy at its end."""

import signal
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from shlex import quote
from types import FrameType
from typing import Any

from surefoot import files
from surefoot.deploy import bundle
from surefoot.errors import SurefootError
from surefoot.learn.ppo import Learner
from surefoot.learn.ranges import REACHED
from surefoot.learn.run import Run
from surefoot.learn.student import Apprentice
from surefoot.policy import Net
from surefoot.report import Progress, Watch
from surefoot.tasks.rollout import contract

FEW = 3  # divergences in a batch that never stop a run, however few simulations there are
BAD_SHARE = 0.01  # of the simulations, in one batch: with more diverged, the model or the belief is at fault


class Stopped(Exception):
    """Training was asked to stop by a signal and has saved where it stands."""

    def __init__(self, signum: int, folder: Path, again: bool = False):
        self.signum, self.folder = signum, folder
        advice = f"give the same command again with --out {quote(str(folder.parent))}, and it goes on" if again else (
            f"go on with: surefoot train --resume {quote(str(folder))}"
        )  # fmt: skip
        super().__init__(f"stopped by {signal.Signals(signum).name}; {advice}")


def go(run: Run, learner: Learner | Apprentice, watch: Watch | None, save_every: float, again: bool = False) -> Path:
    """Iterate to the end, saving on the way; each checkpoint is followed by the policy as it then is."""
    total, began, first = learner.settings.iterations, time.monotonic(), learner.iteration
    board = _Board(run, learner.iteration)
    saves = _Saves(run, learner, save_every)
    with _signals() as asked, closing(board):
        while learner.iteration < total:
            diverged = learner.env.diverged
            row = learner.iterate()
            run.log(row)
            _check_share(learner, diverged, run)
            spent = time.monotonic() - began
            rate = (learner.iteration - first) * learner.settings.batch / spent
            board.add(row | {"steps_per_second": rate}, learner.iteration)
            if watch is not None:
                for words in run.said:
                    watch(Progress(f"note: {words}", stays=True))
                run.said.clear()
                watch(
                    Progress(
                        f"{rate / 1000:.1f}k steps/s", learner.iteration / total, row | {"iteration": learner.iteration}
                    )
                )
            if learner.iteration < total:
                saves.maybe(forced=bool(asked))
            if asked and learner.iteration < total:
                raise Stopped(asked[0], run.folder, again)
    saves.maybe(forced=True)
    return _write(learner, run.folder)


def _write(learner: Learner | Apprentice, folder: Path) -> Path:
    """The policy; and, where ranges grow, the belief they have reached, which is what it was trained over."""
    if isinstance(learner, Learner) and learner.ranges is not None:
        files.write_json(folder / REACHED, learner.ranges.belief.to_json())
    return bundle.save(policy_of(learner), folder)


class _Board:
    """TensorBoard's files. A disk that is full costs the pictures, not the run."""

    def __init__(self, run: Run, iteration: int):
        from torch.utils.tensorboard import SummaryWriter

        self.run = run
        self.writer: Any = SummaryWriter(str(run.folder), purge_step=iteration)

    def add(self, row: dict[str, Any], iteration: int) -> None:
        try:
            for k, v in row.items() if self.writer is not None else ():
                self.writer.add_scalar(k, v, iteration)
        except OSError as error:
            self.writer = None
            self.run.said.append(
                f"TensorBoard's file cannot be written ({error.strerror}); training goes on without it"
            )

    def close(self) -> None:
        try:
            if self.writer is not None:
                self.writer.close()
        except OSError as error:
            self.run.said.append(f"TensorBoard's file was not finished ({error.strerror})")


class _Saves:
    """When to save: every so many seconds, never so often that it takes over a hundredth of the time; 0: always."""

    def __init__(self, run: Run, learner: Learner | Apprentice, every: float):
        self.run, self.learner, self.every, self.last, self.cost = run, learner, every, time.monotonic(), 0.0

    def maybe(self, forced: bool) -> None:
        if not forced and self.every > 0 and time.monotonic() - self.last < max(self.every, 100 * self.cost):
            return
        began = time.monotonic()
        if self.run.save(*self.learner.save()):
            self._policy()
        self.last = time.monotonic()
        self.cost = self.last - began

    def _policy(self) -> None:
        """What has been learned so far, to look at while the rest is learned, or after a stop."""
        try:
            _write(self.learner, self.run.folder)
        except (OSError, SurefootError) as error:
            self.run.said.append(f"the policy so far was not saved ({error}); training goes on")


def _check_share(learner: Learner | Apprentice, before: int, run: Run) -> None:
    count = learner.env.diverged - before
    share = count / learner.env.n
    if share > BAD_SHARE and count > FEW:
        raise SurefootError(
            f"{run.folder}: {100 * share:.1f} % of the last batch's simulations diverged, "
            f"more than {100 * BAD_SHARE:.0f} %: the model's timestep or the belief's ranges are at fault; "
            f"see {run.folder / 'diverged'}"
        )


@contextmanager
def _signals() -> Iterator[list[int]]:
    """Collect SIGINT and SIGTERM, so that the iteration under way ends and is saved; a second one is not waited for."""
    asked: list[int] = []

    def note(signum: int, frame: FrameType | None) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(signum)

    try:
        before = {s: signal.signal(s, note) for s in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not in the main thread: whoever runs us there handles signals
        yield asked
        return
    try:
        yield asked
    finally:
        for s, handler in before.items():
            signal.signal(s, handler)


def policy_of(learner: Learner | Apprentice) -> Net:
    """The learner's actor as a policy that needs neither torch nor the simulator."""
    env = learner.env
    parents = {
        "model": files.sha256(env.task.xml.encode()),
        "belief": files.sha256(repr(env.belief.to_json()).encode()),
        "seed": str(learner.seed),
        "iterations": str(learner.iteration),
    }
    arrays, activation, encoder, base = learner.policy_parts()
    if isinstance(base, Net):
        parents["base"] = bundle.digest(base)
    return Net(contract(env.task, env.world.model, parents), arrays, activation, encoder, base)
