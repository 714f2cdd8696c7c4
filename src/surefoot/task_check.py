"""A task's functions are its author's own code: what is wrong in one is said by its term, its file and its line.

in_task_file                what is wrong in a task that has no line of code running: its file, and the line with the name
check_start, check_terms    once, on the moment episodes begin: shape, type and finiteness of all that a task computes
in_task_words               whenever one raises: which term it was, and the author's line
not_finite                  which terms gave NaN or infinity where the simulation itself is sound
"""

import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import CodeType
from typing import Any

import numpy as np

from surefoot.errors import HOME, MissingExtra, SurefootError, TaskCodeError
from surefoot.observation import ObsTerm
from surefoot.task import Moment, Task
from surefoot.world import State

NUMBERS, TRUTHS = "numbers", "true or false"
KINDS = {NUMBERS: "biuf", TRUTHS: "b"}


def functions(task: Task) -> Iterator[tuple[str, Any]]:
    """What a task computes, by what it is called in messages."""
    yield from ((f"reward '{k}'", r.compute) for k, r in task.rewards.items())
    yield from ((f"termination '{k}'", f) for k, f in task.ended.items())
    for g, group in task.observations.items():
        yield from ((f"observation '{t.name}' of {g}", t.source) for t in group.terms if t.source is not None)
    yield from (("error", task.error), ("episode", task.episode))
    yield from [("command", task.command)] if task.command is not None else []
    yield from ((f"term {type(t).__name__}", t) for t in task.terms)


def code_of(function: Any) -> CodeType | None:
    """The code that a call runs: of a function, a lambda, a method, a partial, or an object that can be called."""
    if isinstance(function, partial):
        return code_of(function.func)
    inner = getattr(function, "__func__", function)
    found = getattr(inner, "__code__", None) or getattr(type(inner).__call__, "__code__", None)
    return found if isinstance(found, CodeType) else None


def place(function: Any) -> str:
    """` (mine.py, line 12)` of an author's function; nothing for one of this package."""
    code = code_of(function)
    if code is None or code.co_filename.startswith(HOME):
        return ""
    return f" ({Path(code.co_filename).name}, line {code.co_firstlineno})"


def written(task: Task, word: str = "") -> str:
    """The author's file, and the first line of it that has the word in quotes; nothing for a task of this package."""
    file = next((c.co_filename for _, f in functions(task) if (c := code_of(f)) and is_theirs(c)), "")
    if not file or not Path(file).is_file():
        return ""
    lines = Path(file).read_text(errors="replace").splitlines() if word else []
    at = next((k for k, line in enumerate(lines, 1) if f'"{word}"' in line or f"'{word}'" in line), None)
    return f"\n  {file}" + (f", line {at}: {lines[at - 1].strip()}" if at else "")


@contextmanager
def in_task_file(task: Task) -> Iterator[None]:
    """What does not fit together in a task is said with its file."""
    try:
        yield
    except (TaskCodeError, MissingExtra):
        raise
    except SurefootError as error:
        at = written(task, error.unknown_name)
        if not at:
            raise
        raise TaskCodeError(f"{error}{at}") from error


def check_groups(task: Task, needed: Sequence[str]) -> None:
    """Refuse a task that lacks a group of observations which is needed."""
    for name in needed:
        if name not in task.observations:
            have = ", ".join(task.observations) or "none"
            last = list(task.observations)[-1] if task.observations else ""
            raise TaskCodeError(
                f"task {task.name}: observations: expected a group '{name}', found {have}{written(task, last)}"
            )


def check_start(task: Task, x: State, rng: Any) -> None:
    """Refuse a task whose episodes begin in states of the wrong shape."""
    n, episode = len(x.q), task.episode(rng, len(x.q))
    where = f"task {task.name}: episode{place(task.episode)}"
    for name, found in (("start.q", episode.start.q), ("start.v", episode.start.v), ("start.u", episode.start.u)):
        _check(found, getattr(x, name[-1]).shape, NUMBERS, f"{where}: {name}")
    if episode.command is not None:
        _check(episode.command, (n, len(task.command_names)), NUMBERS, f"{where}: command")
    elif task.command is not None:
        _check(task.command(rng, n), (n, len(task.command_names)), NUMBERS, f"task {task.name}: command{place(task.command)}")  # fmt: skip


def check_terms(task: Task, now: Moment) -> None:
    """Refuse a task with a term of the wrong shape, of the wrong type, or that is not finite as episodes begin."""
    n, where = len(now.q), f"task {task.name}: "
    for k, r in task.rewards.items():
        _check(r.compute(now), (n,), NUMBERS, f"{where}reward '{k}'{place(r.compute)}")
    for k, f in task.ended.items():
        _check(f(now), (n,), TRUTHS, f"{where}termination '{k}'{place(f)}")
    _check(task.error(now), (n,), NUMBERS, f"{where}error{place(task.error)}")
    for g, group in task.observations.items():
        for t in group.terms:
            if t.source is not None:
                at = f"{where}observation '{t.name}' of {g}{place(t.source)}"
                _check(
                    _computed(task, t, now, at),
                    (n, t.dim),
                    NUMBERS,
                    at,
                    "" if place(t.source) else written(task, t.name),
                )


def _computed(task: Task, term: ObsTerm, now: Moment, where: str) -> np.ndarray:
    assert term.source is not None
    try:
        return now.once(term.source)
    except SurefootError as error:
        if place(term.source):
            raise  # the author's own line is in its traceback
        name = error.unknown_name or term.name
        raise TaskCodeError(f"{where}: {error}{written(task, name) or written(task, term.name)}") from error


def _check(found: Any, shape: tuple[int, ...], kind: str, where: str, at: str = "") -> None:
    expected = f"expected {kind} of shape {shape}, a row for each of {shape[0]} simulations"
    x = np.asarray(found)
    if x.shape != shape:
        raise TaskCodeError(f"{where}: {expected}, found {_shown(found, x)}{at}")
    if x.dtype.kind not in KINDS[kind]:
        raise TaskCodeError(f"{where}: {expected}, found {x.dtype}")
    if kind == NUMBERS and not np.isfinite(x).all():
        bad = int((~np.isfinite(x.reshape(len(x), -1)).all(1)).sum())
        raise TaskCodeError(f"{where}: expected finite numbers, found NaN or infinity in {bad} of {len(x)} simulations")


def _shown(found: Any, x: np.ndarray) -> str:
    return f"shape {x.shape}" if isinstance(found, np.ndarray) else f"{type(found).__name__} of shape {x.shape}"


@contextmanager
def in_task_words(task: Task) -> Iterator[None]:
    """What one of the author's functions raises is said as theirs; all else passes."""
    try:
        yield
    except TaskCodeError:
        raise
    except Exception as error:
        said = _blamed(task, error)
        if said is None:
            raise
        raise TaskCodeError(said) from error


def _blamed(task: Task, error: Exception) -> str | None:
    """The term, the author's line and the error; None where no function of theirs was running."""
    codes = {code_of(f): name for name, f in functions(task) if place(f)}
    frames = [(f.f_code, line) for f, line in traceback.walk_tb(error.__traceback__)]
    term = next((codes[code] for code, _ in frames if code in codes), None)
    theirs = [k for k, (code, _) in enumerate(frames) if is_theirs(code)]
    if term is None or not theirs:
        return None
    last = traceback.extract_tb(error.__traceback__)[theirs[-1]]
    kind = "" if isinstance(error, SurefootError) else f"{type(error).__name__}: "
    return f"task {task.name}: {term}: {kind}{error}\n  {last.filename}, line {last.lineno}: {last.line}"


def is_theirs(code: CodeType) -> bool:
    name = code.co_filename
    return not name.startswith((HOME, "<frozen")) and "site-packages" not in name and "dist-packages" not in name


def not_finite(
    task: Task, terms: Mapping[str, np.ndarray], frames: Mapping[str, np.ndarray], rows: np.ndarray
) -> Iterator[str]:
    """Names of the terms that are not finite in some of these rows: rewards (n,), and observations in frames (n, .)."""
    for name, values in terms.items():
        if not np.isfinite(values[rows]).all():
            yield f"reward '{name}'{place(task.rewards[name].compute)}"
    for g, frame in frames.items():
        group = task.observations[g]
        for t, at in zip(group.terms, group.columns):
            if not np.isfinite(frame[rows][:, at]).all():
                yield f"observation '{t.name}' of {g}{place(t.source)}"
