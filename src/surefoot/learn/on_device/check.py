"""Before episodes begin: whether all that a task computes can be computed on a device, said by its term and its author's line.

torch's meta device has shapes and no memory. What works there neither asks the host for a number nor uses an array of the host,
so it works on any device; what NumPy is given there raises.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from surefoot.belief import Belief
from surefoot.errors import SurefootError
from surefoot.learn.on_device.arrays import ARRAYS as xp
from surefoot.rng import Rows
from surefoot.task import Moment, Task
from surefoot.task_check import TaskCodeError, place
from surefoot.world import Sensors

META = torch.device("meta")


@contextmanager
def on_meta() -> Iterator[None]:
    before, xp.device = xp.device, META
    try:
        yield
    finally:
        xp.device = before


def shapes_of(now: Moment) -> Moment:
    """The moment without its numbers."""

    def bare(a: Any) -> Any:
        return a.to(META) if isinstance(a, Tensor) else a

    x = {k: bare(v) for k, v in vars(now.x).items()} | {"y": Sensors({k: bare(v) for k, v in now.x.y.items()})}
    own = {k: bare(v) for k, v in vars(now).items()} | {"x": replace(now.x, **x), "known": {}}
    return Moment(**own)


def check_terms(task: Task, belief: Belief, now: Moment) -> None:
    """Refuse a task with a term that computes elsewhere than on the device, or whose result has another shape."""
    n = len(now.q)
    with on_meta():
        bare = shapes_of(now)
        rows = lambda: Rows(0, "check", 0, xp.arange(n))  # noqa: E731
        say = f"task {task.name}: "
        for k, r in task.rewards.items():
            _check(r.compute, bare, (n,), f"{say}reward '{k}'")
        for k, f in task.ended.items():
            _check(f, bare, (n,), f"{say}termination '{k}'")
        _check(task.error, bare, (n,), f"{say}error")
        for g, group in task.observations.items():
            for t in group.terms:
                _check(t.source, bare, (n, t.dim), f"{say}observation '{t.name}' of {g}")
        if task.command is not None:
            _check(lambda _: task.command(rows(), n), bare, (n, len(task.command_names)), f"{say}command")
        for part, shape in _starts(now).items():
            _check(
                lambda _, part=part: getattr(task.episode(rows(), n).start, part),
                bare,
                shape,
                f"{say}episode: start.{part}",
            )
        _check(lambda _: belief.sample(rows(), n), bare, (n, len(task.params)), f"{say}belief")


def _starts(now: Moment) -> Mapping[str, tuple[int, ...]]:
    return {k: tuple(getattr(now.x, k).shape) for k in ("q", "v", "u")}


def _check(f: Callable[[Moment], Any], now: Moment, shape: tuple[int, ...], where: str) -> None:
    where = f"{where}{place(f)}"
    try:
        found = f(now)
    except SurefootError:
        raise
    except Exception as error:
        words = " ".join(str(error).split())[:200]
        raise TaskCodeError(
            f"{where}: it cannot be computed on a device ({words}); compute by m.xp, not by NumPy"
        ) from error
    if not isinstance(found, Tensor) or found.device != META:
        raise TaskCodeError(f"{where}: expected an array on the device, found {type(found).__name__}; compute by m.xp")
    if tuple(found.shape) != shape:
        raise TaskCodeError(f"{where}: expected shape {shape}, found {tuple(found.shape)}")
