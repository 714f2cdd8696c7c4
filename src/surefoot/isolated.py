"""Runs a function of this package on a stranger's bytes in a process of its own, which can compute and answer, nothing else.

    bytes -> [python -I: memory <= M, CPU <= S, wall time <= W, no file written, no network, no program started] -> bytes

The child is started without the current folder and PYTHONPATH on its path. Resource limits hold on every POSIX system;
Landlock (files) and seccomp (sockets, programs) on Linux. What a system lacks is said once, as a warning.
"""

import ctypes
import errno
import importlib
import json
import os
import platform
import signal
import struct
import subprocess
import sys
import threading
import warnings
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from surefoot.errors import SurefootError

REFUSED, MEMORY, BROKE = 3, 4, 5  # exit codes of a child that could still speak
WORDS = 1000  # bytes of a child's last words that are passed on
# The child takes the very package that its parent runs, wherever that lies, and nothing else from there if it can.
BOOT = """
import importlib.util, os, sys
there = importlib.util.find_spec("surefoot")
if there is None or os.path.realpath(there.origin) != os.path.realpath(sys.argv[1]):
    sys.path.insert(0, os.path.dirname(os.path.dirname(sys.argv[1])))
from surefoot.isolated import _child
_child(sys.argv[2], sys.argv[3])
"""
# threads reserve memory that the work does not need
CALM = {
    "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "ARROW_DEFAULT_MEMORY_POOL": "system", "ORT_DISABLE_TELEMETRY": "1",
}  # fmt: skip

_said: set[str] = set()


@dataclass(frozen=True)
class Limits:
    """What a child may use."""

    memory: int = 1 << 30
    """bytes of data"""
    seconds: int = 10
    """of CPU time"""
    wall: float = 60.0
    """seconds on the clock: generous, because a busy machine gives a child a share of it"""


class Exceeded(SurefootError):
    """A child went beyond a limit, or crashed."""


def run(function: str, data: bytes, limits: Limits, doing: str) -> bytes:
    """What `function` ("surefoot.module:name", bytes to bytes) answers; `doing` ("x.csv: reading") begins every error.

    A SurefootError that the function raises is raised here with the same words; limits and crashes are Exceeded.
    """
    package = str(Path(__file__).with_name("__init__.py"))
    job = [sys.executable, "-I", "-c", BOOT, package, function, json.dumps(asdict(limits))]
    code, out, said, late = _talk(job, data, limits)
    head, _, answer = out.partition(b"\n")
    if late:
        raise Exceeded(f"{doing} took more than {limits.wall:g} s")
    if len(out) > limits.memory or code == MEMORY or b"bad_alloc" in said:
        raise Exceeded(f"{doing} takes more than {limits.memory >> 20} MiB of memory")
    if -code in (getattr(signal, "SIGXCPU", 0), getattr(signal, "SIGKILL", 0)):
        raise Exceeded(f"{doing} took more than {limits.seconds} s of CPU time")
    if code == REFUSED:
        raise SurefootError(answer.decode(errors="replace"))
    if code:
        words = answer if code == BROKE else (said.strip().splitlines() or [b"no word"])[-1]
        raise Exceeded(f"{doing} broke off (code {code}: {words.decode(errors='replace')[:200]})")
    _warn(json.loads(head))
    return answer


def _talk(job: list[str], data: bytes, limits: Limits) -> tuple[int, bytes, bytes, bool]:
    """Exit code, output up to one byte beyond the limit, last words, and whether the time was up."""
    child = subprocess.Popen(
        job,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | CALM,
        cwd=os.path.abspath(os.sep),
    )
    assert child.stdin and child.stdout and child.stderr
    words: deque[bytes] = deque(maxlen=8)
    late = threading.Event()
    clock = threading.Timer(limits.wall, lambda: [end() for end in (late.set, child.kill)])
    helpers = [
        threading.Thread(target=_feed, args=(child.stdin, data), daemon=True),
        threading.Thread(target=_drain, args=(child.stderr, words), daemon=True),
        clock,
    ]
    with child.stdout, child.stderr:
        try:
            for helper in helpers:
                helper.start()
            out = child.stdout.read(limits.memory + 1)
            if len(out) > limits.memory:
                child.kill()
            code = child.wait()
        finally:
            clock.cancel()
            child.kill()
            child.wait()
            for helper in helpers:
                helper.join()
    return code, out, b"".join(words)[-WORDS:], late.is_set()


def _feed(pipe: IO[bytes], data: bytes) -> None:
    try:
        with pipe:
            pipe.write(data)
    except OSError:
        pass  # a child that has ended tells why by its code


def _drain(pipe: IO[bytes], words: deque[bytes]) -> None:
    try:
        while block := os.read(pipe.fileno(), WORDS):
            words.append(block)
    except (OSError, ValueError):
        pass


def _warn(lacks: list[str]) -> None:
    for words in lacks:
        if words not in _said:
            _said.add(words)
            warnings.warn(f"files of strangers are read with fewer limits: {words}", RuntimeWarning, stacklevel=3)


# In the child --------------------------------------------------------------------------------------------------------


def _child(function: str, limits: str) -> None:
    out, data = os.fdopen(os.dup(1), "wb"), sys.stdin.buffer.read()
    os.dup2(2, 1)  # what a library prints is no answer
    code, answer = 0, b""
    module, name = function.split(":")
    work = getattr(
        importlib.import_module(module), name
    )  # our own code, which may start a program as mujoco's import does
    lacks = confine(Limits(**json.loads(limits)))
    try:
        answer = work(data)
    except SurefootError as error:
        code, answer = REFUSED, str(error).encode(errors="backslashreplace")
    except MemoryError:
        code = MEMORY
    except Exception as error:
        code = MEMORY if "alloc" in str(error).lower() else BROKE
        answer = f"{type(error).__name__}: {error}".encode(errors="backslashreplace")
    with out:
        out.write(json.dumps(lacks).encode() + b"\n")
        out.write(answer)
    sys.stderr.flush()
    os._exit(code)  # at once: nothing that the work left behind runs


def confine(limits: Limits) -> list[str]:
    """Put this process under limits, for good; what the system could not give, in words."""
    return [words for words in (_resources(limits), _no_writes(), _no_network()) if words]


def _resources(limits: Limits) -> str:
    try:
        import resource
    except ImportError:
        return "no resource limits on this system, the wall clock alone bounds a reader"
    for what, most in (
        (resource.RLIMIT_DATA, limits.memory),
        (resource.RLIMIT_AS, limits.memory + (2 << 30)),  # address space also counts libraries and reserves
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CPU, limits.seconds),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(what)[1]
        soft = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (soft, soft))
    return ""


def _kernel() -> Any:
    return ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def _no_writes() -> str:
    """Landlock: no file is opened for writing, made, removed, moved or executed; nor TCP, nor signals to others."""
    lacks = "no Landlock (Linux 5.13), a reader that is broken into could make or remove files"
    libc = _kernel()
    version = libc.syscall(444, None, ctypes.c_size_t(0), ctypes.c_uint32(1)) if libc else -1
    if version < 1:
        return lacks
    writes = 0b1_1111_1111_0011  # execute, write, and from removing folders to making symlinks
    writes |= sum(1 << bit for bit, since in ((13, 2), (14, 3), (15, 5)) if version >= since)  # refer, truncate, ioctl
    rules = struct.pack("<QQQ", writes, 3 if version >= 4 else 0, 3 if version >= 6 else 0)
    ruleset = libc.syscall(444, rules, ctypes.c_size_t(len(rules)), ctypes.c_uint32(0))
    if ruleset < 0 or libc.prctl(38, 1, 0, 0, 0) or libc.syscall(446, ruleset, ctypes.c_uint32(0)):
        return lacks
    os.close(ruleset)
    return ""


# numbers of: socket, socketpair, execve, execveat, fork, vfork, kill, ptrace, process_vm_writev, io_uring_setup; clone
CALLS = {
    "x86_64": (0xC000003E, (41, 53, 59, 322, 57, 58, 62, 101, 311, 425), 56),
    "aarch64": (0xC00000B7, (198, 199, 221, 281, 129, 117, 271, 425), 220),
}
CLONE3, CLONE_THREAD = 435, 0x10000


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]


def _no_network() -> str:
    """seccomp: sockets, programs and processes are refused with EPERM; threads are not."""
    lacks = "no seccomp filter for this system, a reader that is broken into could use the network"
    libc = _kernel()
    if libc is None or platform.machine() not in CALLS or ctypes.sizeof(ctypes.c_void_p) != 8:
        return lacks
    code = b"".join(struct.pack("<HBBI", *step) for step in _filter(*CALLS[platform.machine()]))
    program = _Program(len(code) // 8, code)
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, ctypes.byref(program), 0, 0):
        return lacks
    return ""


def _filter(machine: int, refused: tuple[int, ...], clone: int) -> Iterator[tuple[int, int, int, int]]:
    """The program in the kernel's own steps: (code, to skip if so, to skip if not, number)."""
    load, equal, above, any_bit, leave = 0x20, 0x15, 0x35, 0x45, 0x06
    allow, deny, absent = 0x7FFF0000, 0x50000 | errno.EPERM, 0x50000 | errno.ENOSYS
    yield from ((load, 0, 0, 4), (equal, 1, 0, machine), (leave, 0, 0, deny))
    yield from ((load, 0, 0, 0), (above, 0, 1, 0x40000000), (leave, 0, 0, deny))  # calls of another ABI
    yield from ((equal, 0, 1, CLONE3), (leave, 0, 0, absent))  # its flags cannot be seen: clone is used instead
    for call in refused:
        yield from ((equal, 0, 1, call), (leave, 0, 0, deny))
    yield from ((equal, 0, 3, clone), (load, 0, 0, 16), (any_bit, 1, 0, CLONE_THREAD), (leave, 0, 0, deny))
    yield (leave, 0, 0, allow)
