"""The loop around a learner: progress, checkpoints, a stop that loses nothing, and the policy at its end."""

import errno
import io
import itertools
import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from shlex import quote
from types import FrameType
from typing import Any

from surefoot import files
from surefoot.errors import SurefootError
from surefoot.learn import export
from surefoot.learn.policy_net import PolicyNet
from surefoot.learn.ppo import Learner
from surefoot.learn.ranges import REACHED
from surefoot.learn.run import Run
from surefoot.learn.student import Apprentice
from surefoot.report import Progress, Watch
from surefoot.tasks import golden
from surefoot.tasks.rollout import contract

FEW = 3  # divergences in a batch that never stop a run, however few simulations there are
BAD_SHARE = 0.01  # of the simulations, in one batch: with more diverged, the model or the belief is at fault

_boards = itertools.count()  # so that two runs of one process and second have files of their own


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
            stop = bool(asked) and learner.iteration < total  # a signal after this waits for the next iteration
            saves.maybe(forced=stop or learner.iteration == total)
            spent = time.monotonic() - began
            rate = (learner.iteration - first) * learner.settings.batch / spent
            board.add(row | {"steps_per_second": rate}, learner.iteration)
            try:
                _tell_notes(watch, run)
                if watch is not None:
                    metrics = row | {"iteration": learner.iteration}
                    watch(Progress(f"{rate / 1000:.1f}k steps/s", learner.iteration / total, metrics))
            except OSError as error:  # whoever watched is gone
                saves.maybe(forced=True)
                if error.errno != errno.EIO:
                    raise
                asked.append(signal.SIGHUP)  # a closed terminal, whose signal is under way
                stop = True
            if stop:
                raise Stopped(asked[0], run.folder, again)
        path = saves.write()
    _tell_notes(watch, run)
    return path


def _tell_notes(watch: Watch | None, run: Run) -> None:
    if watch is not None:
        for words in run.said:
            watch(Progress(f"note: {words}", stays=True))
        run.said.clear()


class _Board:
    """TensorBoard's file, written here and now: a disk that refuses costs the pictures, not the run."""

    def __init__(self, run: Run, iteration: int):
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog

        self.run, self.file = run, None
        name = f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}.{next(_boards)}"
        try:
            self.file = open(run.folder / name, "ab", buffering=0)
        except OSError as error:
            self._give_up(error)
        self._write(Event(wall_time=time.time(), file_version="brain.Event:2"))
        log = SessionLog(status=SessionLog.START)  # what a run that was stopped wrote after its checkpoint is not shown
        self._write(Event(wall_time=time.time(), step=iteration + 1, session_log=log))

    def add(self, row: dict[str, Any], iteration: int) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        values = [Summary.Value(tag=k, simple_value=float(v)) for k, v in row.items()]
        self._write(Event(wall_time=time.time(), step=iteration, summary=Summary(value=values)))

    def _write(self, event: Any) -> None:
        from tensorboard.summary.writer.record_writer import RecordWriter

        record = io.BytesIO()
        RecordWriter(record).write(event.SerializeToString())
        try:
            if self.file is not None and self.file.write(record.getvalue()) != len(record.getvalue()):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        self.close()
        self.run.said.append(f"TensorBoard's file cannot be written ({error.strerror}); training goes on without it")

    def close(self) -> None:
        if self.file is not None:
            with suppress(OSError):
                self.file.close()
        self.file = None


class _Saves:
    """When to save: every so many seconds, never so often that it takes over a hundredth of the time; 0: always."""

    def __init__(self, run: Run, learner: Learner | Apprentice, every: float):
        self.run, self.learner, self.every, self.last, self.cost = run, learner, every, time.monotonic(), 0.0
        self.record = golden.recorder(learner.env)

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
            self.write()
        except (OSError, SurefootError) as error:
            self.run.said.append(f"the policy so far was not saved ({error}); training goes on")

    def write(self) -> Path:
        """The policy; and, where ranges grow, the belief they have reached, which is what it was trained over."""
        if isinstance(self.learner, Learner) and self.learner.ranges is not None:
            self.learner.ranges.belief.write(self.run.folder / REACHED)
        net = policy_of(self.learner)
        return export.save(net, self.run.folder, export.golden_of(net, **self.record(net)))


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
    """Collect SIGINT, SIGTERM and SIGHUP, so that the iteration under way ends and is saved; a second is not waited for.

    A terminal that closes may send SIGHUP twice; under nohup it is ignored, and stays so.
    """
    asked: list[int] = []

    def note(signum: int, frame: FrameType | None) -> None:
        if asked and signum != signal.SIGHUP:
            raise KeyboardInterrupt
        asked.append(signum)

    try:
        hangs_up = () if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN else (signal.SIGHUP,)
        before = {s: signal.signal(s, note) for s in (signal.SIGINT, signal.SIGTERM, *hangs_up)}
    except ValueError:  # not in the main thread: whoever runs us there handles signals
        yield asked
        return
    try:
        yield asked
    finally:
        for s, handler in before.items():
            signal.signal(s, handler)


def policy_of(learner: Learner | Apprentice) -> PolicyNet:
    """The learner's actor as a policy."""
    env = learner.env
    parents = {
        "model": files.sha256(env.task.xml.encode()),
        "belief": files.sha256(repr(env.belief.to_json()).encode()),
        "seed": str(learner.seed),
        "iterations": str(learner.iteration),
    }
    net = learner.policy(contract(env.task, env.world.model, parents))
    if net.base is not None:
        net.contract = replace(net.contract, parents=parents | {"base": export.digest(net.base)})
    return net
