"""What a control loop needs around it: signals that stop it, no garbage collection, and progress that cannot hold it up."""

import gc
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from surefoot.report import Progress, Watch, unwatched

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
SHOW = 0.2  # s between two lines of progress


@contextmanager
def signals(stop: Callable[[str], None]) -> Iterator[None]:
    """Ctrl-C, terminate, hangup and SIGUSR1 call stop(name of the signal); only a process's first thread hears signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def heard(number: int, _: Any) -> None:
        stop(signal.Signals(number).name)

    before = {n: signal.signal(n, heard) for n in STOPS}
    try:
        yield
    finally:
        for n, handler in before.items():
            signal.signal(n, handler)


@contextmanager
def undisturbed() -> Iterator[None]:
    """No collection of garbage between two deadlines."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


@contextmanager
def shown(progress: Callable[[], Progress], watch: Watch) -> Iterator[None]:
    """Progress from a thread of its own: a terminal that hangs must not hold up the robot."""
    done = threading.Event()

    def show() -> None:
        while not done.wait(SHOW):
            watch(progress())

    thread = threading.Thread(target=show, daemon=True)
    if watch is not unwatched:
        thread.start()
    try:
        yield
    finally:
        done.set()
        if thread.is_alive():
            thread.join(2 * SHOW)
