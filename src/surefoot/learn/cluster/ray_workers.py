"""Workers as Ray actors: started, asked all at once, and replaced when they die.

A worker's state comes home with each answer, so a successor loads what its predecessor last said and answers the same
question again, to the same bits. Ray's own messages are Python objects: a cluster must be one that you trust.
"""

import atexit
import gc
import logging
import os
import secrets
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from surefoot.errors import SurefootError, in_words
from surefoot.learn.cluster.address import On, place
from surefoot.learn.cluster.shards import Workers, cut
from surefoot.learn.cluster.worker import Plan, Worker

DEATHS = 5  # of one worker in one question: after that something is wrong that no successor will mend
OBJECTS = 2 << 30  # bytes of shared memory at most, on this machine
ANSWER, ROOM = 10.0, 60.0  # s to wait for a cluster's port, and for cores of it that others use
QUIET = {  # before Ray is imported; what the user has set stays
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_enable_metrics_collection": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_ENABLE_AUTO_CONNECT": "0",  # asked without a connection, it would begin a cluster that listens everywhere
    "RAY_worker_niceness": "0",  # 15 by default: on a busy machine the learner would wait for workers that get no core
}
OWN = {  # of a cluster on this machine alone: it listens on loopback, and takes no work without its token
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_AUTH_MODE": "token",
}


def connect(on: On) -> Any:
    """Ray, connected to the cluster of an address, or to one of its own on this machine."""
    if "ray" not in sys.modules:  # it reads them when it is imported, and half of them would be worse than none
        token = {"RAY_AUTH_TOKEN": secrets.token_hex(32)}
        for k, v in (QUIET | (OWN | token if on.local else {})).items():
            os.environ.setdefault(k, v)
    with in_words("--on"):
        import ray
    if ray.is_initialized():
        return ray
    _check_answers(ray, on)
    quiet: Any = {"log_to_driver": False, "logging_level": logging.ERROR, "configure_logging": True}
    here: Any = {
        "num_cpus": on.workers, "num_gpus": 0, "include_dashboard": False, "_node_ip_address": "127.0.0.1",
        "object_store_memory": OBJECTS, "_temp_dir": _folder(),
    }  # fmt: skip
    try:
        with warnings.catch_warnings(), _own_signals():
            warnings.simplefilter("ignore")
            ray.init(**here, **quiet) if on.local else ray.init(address=on.address, **quiet)
    except (ConnectionError, ValueError, RuntimeError, TimeoutError) as error:
        words = " ".join(str(error).split())[:300]
        raise SurefootError(f"--on: {on.address or 'local'}: no cluster: {words}") from None
    warnings.filterwarnings("ignore", "More than 10MB of messages", UserWarning)  # through ray://: draws are that large
    ray._private.worker.print_to_stdstream = _unheard  # it writes of dead workers into what a verb prints; notes say it
    return ray


def _check_answers(ray: Any, on: On) -> None:
    """Ray itself asks for minutes where nobody is, or somebody else."""
    if there := place(on.address):
        try:
            socket.create_connection(there, ANSWER).close()
        except OSError as error:
            raise SurefootError(f"--on: {on.address}: nobody answers there ({error.strerror or error})") from None
    if there and not on.address.startswith("ray://"):
        try:
            ray._raylet.GcsClient(address=on.address)
        except ray.exceptions.RayError as error:
            expected = "expected the port of a cluster's head (6379), or ray:// with its client port (10001)"
            words = " ".join(str(error).split())[:200]
            raise SurefootError(
                f"--on: {on.address}: no head of a cluster answers there: {words}; {expected}"
            ) from None


@contextmanager
def _own_signals() -> Iterator[None]:
    """Ray takes them, and a run that is asked to stop saves first. SIGTERM with nobody to hear it ends Ray's processes, too."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Ray takes none there
        return
    handlers = {s: signal.getsignal(s) for s in (signal.SIGTERM, signal.SIGINT)}
    try:
        with ending():
            yield
    finally:
        for s, handler in handlers.items():
            signal.signal(s, _end if (s, handler) == (signal.SIGTERM, signal.SIG_DFL) else handler)


@contextmanager
def ending() -> Iterator[None]:
    """SIGTERM has its exit code; what Ray says of it is 15 or 1."""
    try:
        yield
    except SystemExit:
        _end()


def _end(*signalled: Any) -> NoReturn:
    raise SystemExit(128 + signal.SIGTERM)


def _unheard(*said: Any, **how: Any) -> None:
    pass


def connected() -> bool:
    ray = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized())


def disconnect() -> None:
    """End a connection, and with it a cluster of this machine alone."""
    import ray

    with warnings.catch_warnings():  # Ray leaves its ended processes to the garbage collector
        warnings.simplefilter("ignore")
        ray.shutdown()
        gc.collect()
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) == _end:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _folder() -> str:
    """For Ray's sockets and logs: nobody else's to read, and gone when this process ends."""
    folder = tempfile.mkdtemp(prefix="sf-")
    atexit.register(_cleared, folder)
    return os.path.join(folder, "ray")  # which Ray opens to all; the folder around it stays closed


def _cleared(folder: str) -> None:
    """At the end, also one that came in the middle: Ray ends first, or it writes on."""
    if connected():
        disconnect()
    for _ in range(20):
        shutil.rmtree(folder, ignore_errors=True)
        if not os.path.exists(folder):
            return
        time.sleep(0.1)


class Held:
    """A worker in a Ray actor; it builds its envs when it is first asked, so that what goes wrong is an answer."""

    def __init__(self, plan: Plan, rows: slice):
        self.plan, self.rows = plan, rows
        self.worker: Worker | None = None

    def ask(self, method: str, *given: Any) -> Any:
        if self.worker is None:
            self.worker = Worker(self.plan, self.rows)
        return getattr(self.worker, method)(*given)


class RayWorkers(Workers):
    def __init__(self, on: On, plan: Plan, n: int, notes: list[str]):
        self.on, self.plan, self.notes = on, plan, notes
        self.owns = not connected()
        """whether the connection ends with these workers"""
        self.ray = connect(on)
        self.actors: list[Any] = []
        self.shards = cut(n, on.workers or max(1, self._cores()))
        try:
            self._check_room(len(self.shards))
        except BaseException:
            self.close()
            raise
        self.kind = self.ray.remote(num_cpus=1, max_restarts=0, max_task_retries=0)(Held)
        self.actors = [self._new(rows) for rows in self.shards]

    def _cores(self) -> int:
        return int(self.ray.cluster_resources().get("CPU", 0))

    def _free(self, cores: int) -> bool:
        """Whether so many cores of the cluster have nobody, now or soon: Ray would wait for them without a word."""
        until = time.monotonic() + ROOM
        while (free := self.ray.available_resources().get("CPU", 0)) < cores and time.monotonic() < until:
            time.sleep(0.5)
        return bool(free >= cores)

    def _check_room(self, count: int) -> None:
        has = (
            f"--on: {self.on.address or 'local'}: {count} workers need a core each, and the cluster has {self._cores()}"
        )
        if self._cores() < count:
            raise SurefootError(f"{has}; expected fewer --workers")
        if not self._free(count):
            raise SurefootError(f"{has}, which others use; expected fewer --workers, or more patience")

    def _new(self, rows: slice, cores: int = 1) -> Any:
        return self.kind.options(num_cpus=cores).remote(self.plan, rows)

    def share(self, value: Any) -> Any:
        return self.ray.put(value)

    def each(self, method: str, arguments: Sequence[tuple[Any, ...]], saved: Sequence[Any] = ()) -> list[Any]:
        asked = [actor.ask.remote(method, *given) for actor, given in zip(self.actors, arguments)]
        found = []
        for i, answer in enumerate(asked):
            try:
                with ending():
                    found.append(self._answer(answer))
            except _Died as death:
                self.notes.append(f"worker {i} died ({death}); a new one continues with its envs, to the same bits")
                found.append(self._again(i, method, arguments[i], saved[i] if saved else None))
        return found

    def _again(self, i: int, method: str, given: tuple[Any, ...], saved: Any) -> Any:
        """The answer of a successor, which begins where the worker that died stood."""
        for _ in range(DEATHS):
            self.ray.kill(self.actors[i])
            alone = self._free(1)
            if not alone:
                self.notes.append(f"no core is left for worker {i}: it shares one")
            self.actors[i] = self._new(self.shards[i], int(alone))
            try:
                if saved is not None:
                    self._answer(self.actors[i].ask.remote("load", saved))
                return self._answer(self.actors[i].ask.remote(method, *given))
            except _Died:
                continue
        raise SurefootError(f"--on: worker {i} died {DEATHS + 1} times in a row: out of memory? see Ray's logs")

    def _answer(self, reference: Any) -> Any:
        """What a worker answers; what it raises is raised here."""
        errors = self.ray.exceptions
        try:
            return self.ray.get(reference)
        except errors.RayTaskError as error:
            raise error.cause from None
        except (errors.RayActorError, errors.ObjectLostError, errors.WorkerCrashedError, errors.OutOfMemoryError) as e:
            raise _Died(type(e).__name__) from None

    def close(self) -> None:
        for actor in self.actors:
            self.ray.kill(actor)
        self.actors = []
        if self.owns:
            disconnect()


class _Died(Exception):
    """A worker is gone, or what it had answered is."""
