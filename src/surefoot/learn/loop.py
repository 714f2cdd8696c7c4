"""The one loop around every learner: progress, checkpoints, a stop that loses nothing, and what was learned at its end."""

import errno
import io
import itertools
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

from surefoot import files
from surefoot.errors import LearningFailed, SurefootError
from surefoot.learn import keep_freed_memory
from surefoot.learn.collect import Envs
from surefoot.learn.learner import Learner, PolicyLearner
from surefoot.learn.nets import export
from surefoot.learn.nets.policy_net import PolicyNet
from surefoot.learn.ranges import REACHED
from surefoot.learn.run import Run
from surefoot.report import Progress, Watch
from surefoot.tasks import golden
from surefoot.tasks.rollout import contract

SAVE_EVERY = 10.0  # s between checkpoints
FEW = 3  # divergences in a batch that never stop a run, however few simulations there are
BAD_SHARE = 0.01  # of the simulations, in one batch: with more diverged, the model or the belief is at fault

_boards = itertools.count()  # so that two runs of one process and second have files of their own


Product = Callable[[Path], Path]
"""writes into a run's folder what has been learned so far"""


class Stopped(Exception):
    """Training was asked to stop by a signal and has saved where it stands."""

    def __init__(self, signum: int, folder: Path, advice: str):
        self.signum, self.folder = signum, folder
        super().__init__(f"stopped by {signal.Signals(signum).name}; {advice}")


def run_training(
    run: Run,
    learner: Learner,
    watch: Watch | None = None,
    save_every: float = SAVE_EVERY,
    product: Product | None = None,
    advice: str = "give the same command again, and it goes on",
) -> None:
    """Iterate to the end, saving on the way; each checkpoint is followed by the product as it then is.

    `advice` says how to go on after a stop.
    """
    keep_freed_memory()
    total, began, first = learner.iterations, time.monotonic(), learner.iteration
    board, saves = _Board(run, learner.iteration), _Saves(run, learner, save_every, product)
    if learner.env is not None:
        learner.env.on_divergence = run.bundle
    with _signals(advice) as asked, closing(board):
        while learner.iteration < total:
            diverged = learner.env.diverged if learner.env is not None else 0
            row = learner.iterate()
            run.log(row)
            if learner.env is not None:
                _check_share(learner.env, diverged, run)
            stop = bool(asked) and learner.iteration < total  # a signal after this waits for the next iteration
            saves.maybe(forced=stop or learner.iteration == total)
            spent = time.monotonic() - began
            rate = (learner.iteration - first) * learner.batch / spent
            board.add(row | {"steps_per_second": rate}, learner.iteration)
            try:
                _tell_notes(watch, run)
                if watch is not None:
                    metrics = row | {"iteration": learner.iteration, "run": str(run.folder)}
                    watch(Progress(f"{rate / 1000:.1f}k steps/s", learner.iteration / total, metrics))
            except OSError as error:  # whoever watched is gone
                saves.maybe(forced=True)
                if error.errno != errno.EIO:
                    raise
                asked.append(signal.SIGHUP)  # a closed terminal, whose signal is under way
                stop = True
            except Exception:  # whoever watches ends it
                saves.maybe(forced=True)
                raise
            if stop:
                raise Stopped(asked[0], run.folder, advice)
        if product is not None:
            product(run.folder)
    _tell_notes(watch, run)


def _tell_notes(watch: Watch | None, run: Run) -> None:
    if watch is not None:
        for words in run.notes:
            watch(Progress(f"note: {words}", stays=True))
        run.notes.clear()


class _Board:
    """TensorBoard's file, written here and now: a disk that refuses costs the pictures, not the run."""

    def __init__(self, run: Run, iteration: int):
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog

        self.run, self.file = run, None
        name = f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}.{next(_boards)}"
        try:
            self.file = open(run.folder / name, "xb", buffering=0)
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
        self.run.notes.append(f"TensorBoard's file cannot be written ({error.strerror}); training goes on without it")

    def close(self) -> None:
        if self.file is not None:
            with suppress(OSError):
                self.file.close()
        self.file = None


class _Saves:
    """When to save: every so many seconds, never so often that it takes over a hundredth of the time; 0: always."""

    def __init__(self, run: Run, learner: Learner, every: float, product: Product | None):
        self.run, self.learner, self.every, self.product = run, learner, every, product
        self.last, self.cost = time.monotonic(), 0.0

    def maybe(self, forced: bool) -> None:
        if not forced and self.every > 0 and time.monotonic() - self.last < max(self.every, 100 * self.cost):
            return
        began = time.monotonic()
        if self.run.save(*self.learner.save()) and self.product is not None:
            try:  # to look at while the rest is learned, or after a stop
                self.product(self.run.folder)
            except (OSError, SurefootError) as error:
                self.run.notes.append(f"the policy so far was not saved ({error}); training goes on")
        self.last = time.monotonic()
        self.cost = self.last - began


def _check_share(env: Envs, before: int, run: Run) -> None:
    count = env.diverged - before
    if count > max(BAD_SHARE * env.n, FEW):
        raise LearningFailed(
            f"{run.folder}: {count} times a simulation diverged in the last batch, of {env.n} simulations, more than "
            f"{100 * BAD_SHARE:.0f} %: {_fault(env)}; see {run.folder / 'diverged'}"
        )


def _fault(env: Envs) -> str:
    """What made simulations diverge: a term of the task that is not finite, or the physics."""
    if not env.not_finite:
        return "the model's timestep or the belief's ranges are at fault"
    term, _ = env.not_finite.most_common(1)[0]
    return f"task {env.task.name}: {term} is NaN or infinite where the simulation is sound"


@contextmanager
def _signals(advice: str) -> Iterator[list[int]]:
    """Collect SIGINT, SIGTERM and SIGHUP, so that the iteration under way ends and is saved; a second is not waited for.

    A terminal that closes may send SIGHUP twice; under nohup it is ignored, and stays so.
    """
    asked: list[int] = []

    def note(signum: int, frame: FrameType | None) -> None:
        if asked and signum != signal.SIGHUP:
            raise KeyboardInterrupt(f"what came after the last checkpoint is lost; {advice}")
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


def policy_writer(learner: PolicyLearner, run: Run, name: str = export.NAME) -> Callable[..., Path]:
    """Writes the policy with its golden vectors into a folder, under this name, with what is known about it."""
    record = golden.recorder(learner.env.task, learner.env.world)

    def write(folder: Path, about: dict[str, Any] | None = None) -> Path:
        net = policy_of(learner, run.made_from)
        return export.save(net, folder, export.golden_of(net, **record(net)), about, name)

    return write


def product_of(learner: PolicyLearner, run: Run) -> Product:
    """Writes the policy, what was learned beside it, and, where ranges grow, the belief they have reached."""
    policy = policy_writer(learner, run)

    def write(folder: Path) -> Path:
        for name, data in learner.products().items():
            files.write(folder / name, data)
        if learner.reached is not None:
            learner.reached.write(folder / REACHED)
        return policy(folder)

    return write


def policy_of(learner: PolicyLearner, made_from: Mapping[str, str] = {}) -> PolicyNet:
    """The learner's actor as a policy, with the hashes of what it was made from."""
    env = learner.env
    parents = {
        **made_from,
        "belief": files.sha256(repr(env.belief.to_json()).encode()),
        "seed": str(learner.seed),
        "iterations": str(learner.iteration),
    }
    net = learner.policy(contract(env.task, env.world, parents))
    if net.base is not None:
        net.contract = replace(net.contract, parents=parents | {"base": export.digest(net.base)})
    return net
