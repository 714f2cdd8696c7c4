"""Runs surefoot on every case in a forked child and measures what it did.

    slow    more than 10 s of the processor's time by the process tree, or 60 s on the clock, a hang; the whole process
            group is killed then
    memory  peak over the base: the larger of the summed resident memory of the process tree, that it has for three looks of
            20 ms (a process that is being started counts twice for a moment), and the largest single process by wait4's
            ru_maxrss; the base is the forked worker before it reads anything
    left    on a refusal: files that are new or changed in the case's folder or its TMPDIR, and processes that still run;
            always: files that are new or changed in the folder outside
    escape  control characters in the output, or a line of an error that a name of the input forged
A worker imports all of surefoot once; each case is a fork of it, so that 650 files take minutes and share nothing.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .case import FORGED, SECRET, Case, Place

SECONDS, CLOCK, BYTES = 10.0, 60.0, 1 << 30  # what a single file may take: processor, clock, memory
REFUSED, DEFECT = 2, 70
PARSER = re.compile(r"(Parsing error|Unrecognized options|Required options|Invalid choice)")  # a case asks wrongly
CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
IGNORED = {"run.lock", ".ses"}  # stays after any run, with the lock on it; and what onnxruntime keeps in TMPDIR
FLAGS = ("outcome", "defect", "traceback", "executed", "leaked", "slow", "memory", "left", "escape")


@dataclass
class Result:
    kind: str
    name: str
    argv: list[str]
    want: str
    code: int | None = None
    """exit code; negative: the signal that ended it; None: killed at the limit"""
    taken: bool = False
    wall: float = 0.0
    cpu: float = 0.0
    memory: int = 0
    words: str = ""
    failed: dict[str, str] = field(default_factory=dict)
    """flag -> what was seen"""


@dataclass
class Running:
    case: Case
    place: Place
    out: Path
    before: dict[str, tuple[int, int]]
    began: float
    base: int
    peak: int = 0
    last: tuple[int, ...] = (0, 0, 0)
    late: bool = False


def run(cases: Sequence[Case], root: Path, good: Path, jobs: int = 1, seconds: float = SECONDS, say: Any = None) -> list[Result]:  # fmt: skip
    """All cases, in their order."""
    waiting, active, found = list(enumerate(cases))[::-1], {}, {}
    while waiting or active:
        while waiting and len(active) < jobs:
            i, case = waiting.pop()
            try:
                pid, state = _start(case, root / f"{i:04d}", good)
            except Exception as error:  # of the generator, which must not hide the other cases
                why = {"outcome": f"the case could not be built: {error!r}"}
                found[i] = Result(case.kind, case.name, list(case.argv), case.want, failed=why)
                continue
            active[pid] = (i, state)
        for pid, (i, state) in list(active.items()):
            if (result := _look(pid, state, seconds)) is not None:
                found[i] = result
                del active[pid]
                if say:
                    say(result)
        time.sleep(0.02)
    return [found[i] for i in range(len(cases))]


def _start(case: Case, folder: Path, good: Path) -> tuple[int, Running]:
    place = Place(folder / "here", folder / "outside", folder / "canary", good)
    for part in (place.here, place.outside, folder / "tmp"):
        part.mkdir(parents=True)
    _secrets(place.outside)
    case.build(place)
    before = _listed(folder)
    sys.stdout.flush()
    sys.stderr.flush()
    argv = [word.replace("{good}", str(good)).replace("{outside}", str(place.outside)) for word in case.argv]
    began = time.monotonic()
    pid = os.fork()
    if pid == 0:
        _child(argv, place, folder, case.fresh)
    return pid, Running(case, place, folder, before, began, _resident(os.getpid()))


def _child(argv: list[str], place: Place, folder: Path, fresh: bool) -> None:
    """Never returns."""
    code = 1
    try:
        os.setsid()
        os.chdir(place.here)
        os.environ["TMPDIR"] = str(folder / "tmp")
        tempfile.tempdir = None
        null, out, err = os.open(os.devnull, os.O_RDONLY), *(_made(folder / n) for n in ("stdout", "stderr"))
        for fd, at in ((null, 0), (out, 1), (err, 2)):
            os.dup2(fd, at)
        sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (2 << 30, 2 << 30))
        if fresh:
            command = Path(sys.executable).with_name("surefoot")
            os.execv(command, [str(command), *argv])
        from surefoot.cli import main

        code = main(argv)
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)


def _made(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)


def _look(pid: int, state: Running, seconds: float) -> Result | None:
    """The result if the case is over; until then its memory is noted, and it is killed at the limit."""
    state.last = (*state.last[1:], sum(map(_resident, _tree(pid))))
    state.peak = max(state.peak, min(state.last))
    wall, cpu = time.monotonic() - state.began, sum(map(_worked, _tree(pid)))
    if (cpu > seconds or wall > CLOCK) and not state.late:
        state.late = True
        _kill(pid)
    done, status, usage = os.wait4(pid, os.WNOHANG)
    if not done:
        return None
    code = os.waitstatus_to_exitcode(status)
    c = state.case
    result = Result(c.kind, c.name, list(c.argv), c.want, None if state.late else code, wall=round(wall, 2))
    result.cpu = round(usage.ru_utime + usage.ru_stime, 2)
    result.memory = max(0, max(state.peak, 1024 * usage.ru_maxrss) - state.base)
    running = _kill(pid) and not state.late
    _judge(result, state, code, running)
    return result


def _judge(r: Result, state: Running, code: int, running: bool) -> None:
    out, err = (_said(state.out / n) for n in ("stdout", "stderr"))
    both, folder, c = out + err, state.out, state.case
    errors = [line for line in err.splitlines() if line.startswith("error: ")]
    r.words = (errors[-1] if errors else err.strip()[-300:] or out.strip()[-200:])[:400]
    r.taken = code in (0, 1) or bool(c.past and c.past in err)
    refused = code == REFUSED and not r.taken
    if state.late:
        r.failed["slow"] = f"killed after {r.wall:.1f} s on the clock, {r.cpu:.1f} s of the processor"
    elif code == DEFECT:
        r.failed["defect"] = r.words
    elif code < 0:
        r.failed["outcome"] = f"ended by signal {-code} {signal.Signals(-code).name}"
    elif not refused and not r.taken:
        r.failed["outcome"] = f"exit code {code}"
    elif refused and (PARSER.search(both) or not errors):
        r.failed["outcome"] = "refused by the parser of arguments, or without words"
    elif (c.want == "refuse" and r.taken) or (c.want == "accept" and refused):
        r.failed["outcome"] = f"{'taken' if r.taken else 'refused'}, expected {c.want}"
    if "Traceback (most recent call last)" in both:
        r.failed["traceback"] = both.strip().splitlines()[-1][:200]
    if state.place.canary.exists():
        r.failed["executed"] = "the canary was made"
    new = _new(folder, state.before)
    if SECRET in both or any(SECRET.encode() in (folder / n).read_bytes() for n in new if (folder / n).is_file() and not (folder / n).is_symlink()):  # fmt: skip
        r.failed["leaked"] = "the content of a file outside was shown or kept"
    if r.memory > BYTES:
        r.failed["memory"] = f"{r.memory / 2**30:.2f} GiB over the base"
    new = new if refused else [n for n in new if n.startswith("outside/")]
    if running or new:
        r.failed["left"] = "a process" if running else ", ".join(sorted(new)[:4])
    if found := CONTROL.search(both):
        r.failed["escape"] = f"{found[0]!r} in the output"
    elif any(line.startswith(FORGED) for line in err.splitlines()):
        r.failed["escape"] = "a name of the input forged a line"


def _said(path: Path) -> str:
    return path.read_text("utf-8", "backslashreplace")[:2_000_000] if path.exists() else ""


def _listed(folder: Path) -> dict[str, tuple[int, int]]:
    """Files below a folder, by size and time of change; links are not followed."""
    found = {}
    for at, _, names in os.walk(folder):
        for name in names:
            info = os.lstat(os.path.join(at, name))
            found[os.path.relpath(os.path.join(at, name), folder)] = (info.st_size, info.st_mtime_ns)
    return found


def _new(folder: Path, before: dict[str, tuple[int, int]]) -> list[str]:
    own = {"stdout", "stderr", "canary"}
    return [
        n for n, x in _listed(folder).items() if before.get(n) != x and n not in own and Path(n).name not in IGNORED
    ]


def _tree(pid: int) -> list[int]:
    """A process and all below it."""
    found, stack = [], [pid]
    while stack:
        found.append(one := stack.pop())
        try:
            for task in os.listdir(f"/proc/{one}/task"):
                stack += [int(w) for w in Path(f"/proc/{one}/task/{task}/children").read_text().split()]
        except OSError:
            pass
    return found


def _resident(pid: int) -> int:
    """Bytes in memory; what a fork shares with the worker counts for both, and so falls out over the base."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


def _worked(pid: int) -> float:
    """Seconds of the processor, by a process and its children that have ended."""
    try:
        after = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, after[11:15])) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError):
        return 0.0


def _kill(group: int) -> bool:
    """Whether anything was left of a group of processes."""
    try:
        os.killpg(group, signal.SIGKILL)
        return True
    except (ProcessLookupError, PermissionError):
        return False


def _secrets(folder: Path) -> None:
    obj = "v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\nf 1 3 2\nf 1 2 4\nf 2 3 4\nf 1 4 3\n"
    for name, content in {
        "secret.txt": SECRET, "secret.xml": f'<mujoco model="{SECRET}"><worldbody/></mujoco>', "secret.obj": f"# {SECRET}\n{obj}",
        "secret.csv": f"time,{SECRET}\n0,1\n1,2\n2,3\n", "secret.json": json.dumps({"time": [0, 1, 2], SECRET: [1, 2, 3]}),
    }.items():  # fmt: skip
        (folder / name).write_text(content)


def load_everything() -> None:
    """What the verbs import when they are used, so that no fork has to."""
    import importlib

    import surefoot.cli  # noqa: F401

    for name in (
        "surefoot.formats.align", "surefoot.formats.summary", "surefoot.formats.readers.text", "surefoot.formats.readers.arrays",
        "surefoot.formats.readers.tables", "surefoot.formats.readers.bags", "surefoot.formats.readers.isolated_reader", "surefoot.learn.train", "surefoot.gate.gate", "surefoot.gate.candidate",
        "surefoot.verbs.model.look", "surefoot.verbs.judge.gate", "surefoot.gate.contract_faults", "surefoot.real2sim.replay", "surefoot.real2sim.plant",
        "surefoot.real2sim.preflight", "surefoot.deploy.bundle", "scipy.io", "yaml", "onnx", "onnxruntime", "safetensors.torch",
    ):  # fmt: skip
        importlib.import_module(name)


def table(found: Iterable[Result]) -> str:
    """Counts by class."""
    rows: dict[str, Counter[str]] = {}
    for r in found:
        row = rows.setdefault(r.kind, Counter())
        row.update(["files", "taken" if r.taken else "refused" if r.code == REFUSED else "neither", *r.failed])
        row["failed"] += bool(r.failed)
    total: Counter[str] = Counter()
    for row in rows.values():
        total.update(row)
    head = ("files", "refused", "taken", "failed", *FLAGS)
    lines = [f"{'class':14}" + "".join(f"{h:>11}" for h in head)]
    for kind, row in [*rows.items(), ("all", total)]:
        lines.append(f"{kind:14}" + "".join(f"{row[h] or '-':>11}" for h in head))
    return "\n".join(lines)


def report(found: Iterable[Result]) -> str:
    """Each failure in a line."""
    return "\n".join(
        f"{r.kind}/{r.name}: surefoot {' '.join(r.argv)[:60]}: " + "; ".join(f"{k}: {v}" for k, v in r.failed.items())
        for r in found
        if r.failed
    )


def as_json(found: Iterable[Result]) -> str:
    return json.dumps([asdict(r) for r in found])


def prepare(good: Path) -> None:
    """The sound things, made in a process of their own."""
    done = subprocess.run([sys.executable, "-m", "tests.hostile.good", str(good)], cwd=Path(__file__).parents[2], capture_output=True, text=True)  # fmt: skip
    if done.returncode:
        shutil.rmtree(good, ignore_errors=True)
        raise SystemExit(f"the sound files could not be made: {done.stderr[-2000:]}")
