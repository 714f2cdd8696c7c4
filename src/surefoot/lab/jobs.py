"""Work that takes long: a surefoot command in a process of its own, as a person would type it, and the curves it writes.

A page that trains a policy starts `surefoot train`: its bits are those of the command, pausing it (SIGSTOP) or looking at its
metrics.jsonl changes none, and stopping it (SIGINT) saves where it stands.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from shlex import join
from typing import Any

from surefoot import files
from surefoot.errors import SurefootError

LARGEST = 64 << 20  # bytes of metrics.jsonl that are drawn
LONGEST = 4096  # characters of a child's last words


NICE = (
    15  # of a page's thread: a training beside it comes first, if it is of the same session (Linux compares within one)
)
_starter = ThreadPoolExecutor(1)  # a child has the priority of the thread that starts it, which is not a page's
_starter.submit(os.getpid).result()


def come_second() -> None:
    """Let whatever else this computer does come before the thread that calls; where a thread has a priority of its own."""
    if sys.platform == "linux":
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)


class Job:
    """One command under way."""

    def __init__(self, args: Sequence[str], out: Path | None = None):
        self.args, self.out, self.began, self.paused = tuple(args), out, time.monotonic(), False
        self.said, self.wrong = (tempfile.TemporaryFile() for _ in range(2))
        self.kept: dict[Any, str] = {}  # what they held, once they are closed
        child = [sys.executable, "-P", "-m", "surefoot", *args, "--json"]  # -P: nothing is imported from this folder
        quiet = {"stdin": subprocess.DEVNULL, "stdout": self.said, "stderr": self.wrong}
        start = partial(subprocess.Popen, child, process_group=0, **quiet)  # type: ignore[arg-type]
        self.process: subprocess.Popen[Any] = _starter.submit(start).result()

    @property
    def command(self) -> str:
        return f"surefoot {join(self.args)}"

    @property
    def running(self) -> bool:
        return bool(self.process.poll() is None)

    @property
    def failed(self) -> str:
        """Why it ended without a result, or ""."""
        if self.running or not self.process.returncode:
            return ""
        if self.process.returncode == 128 + signal.SIGINT:
            return "stopped"
        lines = [x for x in self._read(self.wrong).splitlines() if x.strip()]
        return next((x for x in lines[::-1] if x.startswith("error:")), lines[-1] if lines else "no words")

    def said_last(self, before: str = "") -> str:
        """The last line of its progress, after what comes before it; empty where there is none."""
        if not self.running:
            return ""
        lines = [x for x in self._read(self.wrong)[-LONGEST:].splitlines() if x.strip()]
        return before + " ".join(lines[-1].split()) if lines else ""

    def facts(self) -> dict[str, Any]:
        """What the command found, once it has ended with an answer, be it no."""
        text = "" if self.running else self._read(self.said)
        return dict(json.loads(text)) if text.strip() else {}

    def _read(self, file: Any) -> str:
        if file in self.kept:
            return self.kept[file]
        size = os.fstat(file.fileno()).st_size  # the command writes at the place of this file, which stays where it is
        return os.pread(file.fileno(), LARGEST, max(0, size - LARGEST)).decode(errors="replace")

    def pause(self) -> None:
        self._send(signal.SIGSTOP)
        self.paused = True

    def go_on(self) -> None:
        self._send(signal.SIGCONT)
        self.paused = False

    def stop(self) -> None:
        """Ask it to save and end."""
        if self.paused:
            self.go_on()
        self._send(signal.SIGINT)

    def close(self) -> None:
        """End it, whatever it is doing."""
        if self.running:
            self.stop()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(10)
        if self.running:
            self._send(signal.SIGKILL)
            self.process.wait()
        for file in (self.said, self.wrong):
            self.kept[file] = self._read(file)
            file.close()

    def _send(self, what: signal.Signals) -> None:
        if self.running:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, what)

    def words(self) -> str:
        """What it is doing, in a line."""
        if self.running:
            state = "paused" if self.paused else "running"
            return f"{state} for {time.monotonic() - self.began:.0f} s: {self.command}"
        return f"{self.failed or 'done'}: {self.command}"


class Curves:
    """The rows of a run's metrics.jsonl, read as they are written."""

    def __init__(self, folder: Path):
        self.path, self.read, self.rows = folder / "metrics.jsonl", 0, list[dict[str, float]]()
        self.total = _steps(folder)

    def fresh(self) -> bool:
        """Read what is new; of a file that became shorter, as after a resume, all of it."""
        try:
            size = self.path.stat().st_size
        except OSError:
            return False
        if size < self.read:
            self.read, self.rows = 0, []
        if size == self.read or size > LARGEST:
            return False
        with open(self.path, "rb") as f:
            f.seek(self.read)
            data = f.read(size - self.read)
        whole = data[: data.rfind(b"\n") + 1]  # a row that is being written is left for the next time
        self.read += len(whole)
        self.rows += [row for row in map(_row, whole.splitlines()) if row]
        return bool(whole)

    def column(self, name: str, over: str = "steps") -> tuple[list[float], list[float]]:
        """x, y of the rows that have both."""
        rows = [r for r in self.rows if name in r and over in r]
        return [r[over] for r in rows], [r[name] for r in rows]

    def names(self, prefix: str = "") -> list[str]:
        found = dict.fromkeys(k for r in self.rows for k in r)
        return [k for k in found if k.startswith(prefix)]

    @property
    def share(self) -> float | None:
        """Of the steps that were asked for."""
        return self.rows[-1].get("steps", 0.0) / self.total if self.rows and self.total else None


def _row(line: bytes) -> dict[str, float]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    numbers = found.items() if isinstance(found, dict) else ()
    return {str(k): float(v) for k, v in numbers if isinstance(v, (int, float)) and not isinstance(v, bool)}


def _steps(folder: Path) -> float:
    """Env steps of a run's settings; 0 where they are not known."""
    try:
        about = files.read_json(folder / "run.json")
        return float(about["settings"]["steps"])
    except (OSError, SurefootError, KeyError, TypeError, ValueError):
        return 0.0


def training(reference: str, out: Path, *flags: str) -> Job:
    """Train into a folder; resumes where a run is there already."""
    if (out / "run.json").exists():
        return Job(["train", *([reference] if "." in reference or ":" in reference else []), "--resume", str(out)], out)
    return Job(["train", reference, *flags, "--out", str(out)], out)
