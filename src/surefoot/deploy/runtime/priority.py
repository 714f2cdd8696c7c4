"""Real-time priority, where the system allows it: a process that has it is not held up by ordinary ones."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

ROBOT, RUNTIME, WATCHDOG = 10, 20, 30  # the watchdog comes before what it watches


@contextmanager
def real_time(level: int) -> Iterator[bool]:
    """For as long as a block of code takes; whether it was allowed. On Linux it takes root or an rtprio limit."""
    got = take(level)
    try:
        yield got
    finally:
        if got:
            with suppress(OSError):
                os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def take(level: int) -> bool:
    """For the rest of the process; programs that it starts have ordinary priority."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(level))
    except (AttributeError, OSError):  # another system, or not allowed
        return False
    return True
