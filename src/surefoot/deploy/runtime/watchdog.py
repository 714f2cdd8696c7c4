"""A process of its own that damps the robot when the runtime no longer can: hung, killed, suspended, its terminal closed.

    runtime --"." each period, "d" damped, "q" finished--> [watchdog] --damp, again and again, until acknowledged--> robot
    runtime <--one line: why it damps------------------------ [watchdog] <-- any key: emergency stop

It opens the link a second time, ignores the signals that end a runtime (Ctrl-C, hangup, terminate, stop) and arms itself at
the first heartbeat. From then on silence for `timeout` seconds, a closed pipe or a key make it damp. Keys are read here, so that
the emergency stop works while inference hangs.
"""

import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import Any

from surefoot.deploy.links import Link, make
from surefoot.deploy.runtime.priority import WATCHDOG, take
from surefoot.errors import SurefootError

EVERY = 0.005  # s between two calls for damping
GRACE = 3.0  # s of calls after the runtime has gone, to a robot that cannot acknowledge
LONGEST = 60.0  # s of calls to a robot that does not answer
PATIENCE = 20.0  # s for the process to start
LEFT: list[subprocess.Popen[bytes]] = []  # processes that outlive their run
ALIVE, DAMPED, FINISHED, READY = b".", b"d", b"q", b"ready\n"


class Watchdog:
    """The runtime's end of the pipe."""

    def __init__(self, address: str, timeout: float, keys: bool = False):
        job = [sys.executable, "-m", "surefoot.deploy.runtime.watchdog", address, f"{timeout:.6f}", str(int(keys))]
        self.process = subprocess.Popen(job, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.process.stdin is not None and self.process.stdout is not None
        self.into, self.out = self.process.stdin.fileno(), self.process.stdout.fileno()
        os.set_blocking(self.into, False)
        ready = select.select([self.out], [], [], PATIENCE)[0] and os.read(self.out, len(READY))
        if ready != READY:
            self.process.kill()
            raise SurefootError("watchdog: its process does not start; the robot is not driven without it")
        os.set_blocking(self.out, False)

    def beat(self) -> None:
        self._write(ALIVE)

    def damped(self) -> None:
        """The runtime is in damping: the watchdog damps, too."""
        self._write(DAMPED)

    def alarm(self) -> str | None:
        """Why the watchdog damps the robot, or that it has gone; None: all is well. Never waits."""
        try:
            words = os.read(self.out, 4096)
        except BlockingIOError:
            return None
        return words.decode(errors="replace").strip() or "the watchdog's process has ended"

    def close(self) -> None:
        """The robot is damped: the watchdog may go."""
        self._write(FINISHED)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(GRACE)
        self.leave()

    def leave(self) -> None:
        """Let it go on alone: it notices that nobody is at the pipe's other end."""
        if self.process.poll() is None:
            LEFT.append(self.process)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()

    def _write(self, data: bytes) -> None:
        with suppress(OSError):  # its end is noticed by alarm()
            os.write(self.into, data)


def watch(link: Link, timeout: float, keys: int | None) -> None:
    """Wait for a reason to damp; then damp until it is acknowledged and the runtime has finished or gone."""
    why, finished = _wait(timeout, keys)
    if finished:
        return
    with suppress(OSError):
        os.write(1, f"{why}\n".encode())
    _damp(link)


def _wait(timeout: float, keys: int | None) -> tuple[str, bool]:
    """Why the robot is to be damped; or that the runtime has finished."""
    armed, last = False, time.monotonic()
    fds = [0] + ([keys] if keys is not None else [])
    while True:
        left = timeout - (time.monotonic() - last) if armed else None
        ready = select.select(fds, [], [], None if left is None else max(0.0, left))[0]
        if keys in ready and keys is not None and os.read(keys, 64):
            return "emergency stop: a key was pressed", False
        if 0 in ready:
            said = os.read(0, 4096)
            if not said:
                return "the runtime's process has ended", not armed
            if FINISHED in said:
                return "", True
            if DAMPED in said:
                return "the runtime damps", False
            armed, last = True, time.monotonic()
        elif armed and time.monotonic() - last >= timeout:
            return f"no heartbeat for {1000 * (time.monotonic() - last):.0f} ms: the runtime hangs", False


def _damp(link: Link) -> None:
    began, gone = time.monotonic(), None
    while time.monotonic() - began < LONGEST:
        link.damp()
        while link.read() is not None:
            pass
        if gone is None and select.select([0], [], [], EVERY)[0]:
            said = os.read(0, 4096)
            gone = time.monotonic() if not said or FINISHED in said else None
        elif gone is not None:
            time.sleep(EVERY)
        known = link.acknowledged()
        if gone is not None and (known or (known is None and time.monotonic() - gone > GRACE)):
            return


def _keyboard() -> tuple[int, Any] | None:
    """The terminal, one key at a time, and how it was; None where there is none."""
    import termios
    import tty

    try:
        fd = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
        before = termios.tcgetattr(fd)
        tty.setcbreak(fd)
    except (OSError, termios.error):
        return None
    return fd, before


def main(address: str, timeout: str, keys: str) -> None:
    for name in ("SIGINT", "SIGHUP", "SIGTERM", "SIGQUIT", "SIGTSTP", "SIGTTOU", "SIGPIPE"):
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    take(WATCHDOG)
    link = make(address)
    link.open()
    terminal = _keyboard() if keys == "1" else None
    try:
        os.write(1, READY)
        watch(link, float(timeout), terminal[0] if terminal else None)
    finally:
        link.close()
        if terminal:
            import termios

            termios.tcsetattr(terminal[0], termios.TCSADRAIN, terminal[1])


if __name__ == "__main__":
    main(*sys.argv[1:])
