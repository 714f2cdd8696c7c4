"""Errors of a model's predictions of pieces of a log, as it is and under edits.

error of a column of a piece = mean over its rows of (predicted - measured)^2, in the log's own units
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from surefoot.fault import PLAIN, Fault, on_columns
from surefoot.log import Log
from surefoot.real2sim.log_faults import SPEEDS, Case, edited
from surefoot.real2sim.replay import Windows, predict, windows
from surefoot.real2sim.signals import measured
from surefoot.real2sim.streams import PIECES
from surefoot.sim.layout import model_of
from surefoot.world import Motion, Start

LOST = 1e3  # rad: the error of a simulation that diverged
UNMOVED = 1e-4  # rad, m, ...: below an encoder's resolution
ONCE = 64  # edits in one rollout

Part = Callable[[Windows], Windows]
"""some of the pieces, or a part of each"""


def width(case: Case) -> int:
    """Columns of errors: joints, and velocities of a base."""
    return len(case.names) + 3 * sum(name in SPEEDS for name in case.signals)


def columns_of(case: Case, fault: Fault = PLAIN) -> list[int]:
    """The columns of errors that count for a fault: of its joints, of the base, or of all joints."""
    count, whole_ = len(case.names), width(case)
    if fault.of == "base" and whole_ > count:
        return list(range(count, whole_))
    return case.driven.joints(fault) or list(range(count or whole_))


def errors_under(case: Case, pieces: Windows, faults: list[Fault], part: Part = lambda x: x) -> np.ndarray:
    """(faults, w, columns) mean square error of each piece, or of a part of them, under each fault, many in one rollout."""
    if len(faults) > ONCE:
        return np.concatenate(
            [errors_under(case, pieces, faults[i : i + ONCE], part) for i in range(0, len(faults), ONCE)]
        )
    whole, pieces = pieces, part(pieces)
    if not faults:
        return np.zeros((0, len(pieces), width(case)))
    each = [part(_piece(case, whole, edited(case, x))) for x in faults]
    join = lambda read: np.concatenate([read(x) for x in each])  # noqa: E731
    act = None if pieces.start.act is None else join(lambda x: x.start.act)
    start = Start(join(lambda x: x.start.q), join(lambda x: x.start.v), join(lambda x: x.start.u), act)
    all_ = replace(pieces, rows=np.tile(pieces.rows, len(faults)), start=start, u=join(lambda x: x.u),
                   before=None if pieces.before is None else join(lambda x: x.before))  # fmt: skip
    motion = predict(case.world, all_, case.world.params.nominal[None])
    found = _squared(case, motion, {s.name: join(lambda x, s=s: x.target(s)) for s in pieces.signals}, pieces)
    found, count = found.reshape(len(faults), len(pieces), -1), len(case.names)
    for k, x in enumerate(faults):
        at_0, at_1 = (on_columns(x, {"joint_pos": np.full((1, count), v)})["joint_pos"] for v in (0.0, 1.0))
        found[k, :, :count] /= np.square(at_1 - at_0)  # in the log's units
    return found


def _piece(case: Case, pieces: Windows, log: Log) -> Windows:
    """The same rows of an edited log."""
    found = windows(case.world, log, pieces.length, stride(log, pieces.length), case.signals)
    return replace(found, signals=pieces.signals)


def halves(pieces: Windows, few: np.ndarray) -> Windows:
    """The first half of some pieces."""
    some, length = pieces.some(few), max(2, pieces.length // 2)
    return replace(some, length=length, u=some.u[:, :length])


def stride(log: Log, length: int) -> int:
    return max(1, (len(log) - length - 1) // PIECES)


def _squared(case: Case, motion: Motion, target: dict[str, np.ndarray], pieces: Windows) -> np.ndarray:
    """(n, columns) mean square error of each simulation; of the base, relative to its columns' standard deviations."""
    found = []
    for s in pieces.signals:
        error = s.error(s.read(motion), target[s.name])
        error = np.where(np.isfinite(target[s.name]), error, 0.0)  # a lost packet is no evidence against a prediction
        error[motion.diverged] = LOST
        with np.errstate(over="ignore"):
            found.append(np.square(error / _size(case, s.name)).mean(1))
    return np.concatenate(found, 1)


def _size(case: Case, name: str) -> float:
    """The unit of a column's errors: velocities of a base differ in unit and are summed, so they are relative."""
    return max(float(np.nanstd(case.log[name])), UNMOVED) if name in SPEEDS else 1.0


def errors_of_a_constant(case: Case, pieces: Windows) -> np.ndarray:
    """(w, columns) mean square error of a constant prediction: each piece stays at its first row."""
    found = []
    for s in pieces.signals:
        target, first = pieces.target(s), measured(case.log, s.name)[pieces.rows]
        error = s.error(np.broadcast_to(first[:, None], target.shape), target) / _size(case, s.name)
        found.append(np.square(np.where(np.isfinite(error), error, 0.0)).mean(1))
    return np.concatenate(found, 1)


def errors_under_gravity(case: Case, pieces: Windows, gravity: np.ndarray) -> np.ndarray:
    """(w, columns) mean square errors under another gravity."""
    model, target = model_of(case.world), {s.name: pieces.target(s) for s in pieces.signals}
    kept = model.opt.gravity.copy()
    try:
        model.opt.gravity[:] = gravity
        fresh = case.world.with_(len(pieces))
        return _squared(case, predict(fresh, pieces, case.world.params.nominal[None]), target, pieces)
    finally:
        model.opt.gravity[:] = kept
