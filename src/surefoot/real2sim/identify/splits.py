"""How runs are left out to test a model: by kind of motion, by gain, and at the extremes of speed and load.

The end of a log is more of the same motion. A model that predicts it may still fail on a motion of another kind, and a policy
makes motions of another kind. So whole groups of runs are left out, and those that are faster, slower, more loaded or less
loaded than all that was fitted.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from surefoot.log import Log
from surefoot.real2sim.inverse import torques
from surefoot.real2sim.signals import starts
from surefoot.sim.engine import Engine

FEWEST = 3  # runs; fewer logs are cut into pieces
PIECES = 6  # of them, in all
GROUPS = 6  # values of a constant that are left out one by one; more are left out in neighbouring groups
APART = 10  # steps between runs that stand in one log


@dataclass(frozen=True)
class Split:
    """Runs that are left out of a fit and predicted by it."""

    family: str
    """what they have in common: a constant of the logs (kp, trajectory), speed, load, or the log"""
    value: str
    out: tuple[int, ...]

    @property
    def name(self) -> str:
        return f"{self.family} {self.value}"


def runs(logs: Sequence[Log]) -> list[Log]:
    """The logs, or where there are fewer than three, pieces of equal length."""
    if len(logs) >= FEWEST:
        return list(logs)
    count = -(-PIECES // len(logs))
    return [piece for log in logs for piece in _pieces(log, count)]


def _pieces(log: Log, count: int) -> Iterator[Log]:
    edges = np.linspace(0, len(log), count + 1).astype(int)
    for a, b in zip(edges[:-1], edges[1:]):
        yield log.slice(log.time[a], log.time[b] if b < len(log) else np.inf)


def splits(world: Engine, logs: Sequence[Log]) -> tuple[Split, ...]:
    """What to leave out of some runs: each value of each constant that differs between them, or else each run by itself;
    and the third at each end of speed and of load. A set of runs is left out once."""
    found = [s for name, values in _constants(logs).items() for s in _by_value(name, values)]
    found = found or _by_value("run", [str(i + 1) for i in range(len(logs))])
    efforts = np.array([_effort(world, log) for log in logs])  # (runs, 2, nv)
    ranks = (efforts / np.maximum(efforts.mean(0), 1e-12)).mean(2)  # joints count alike
    third = max(1, len(logs) // 3)
    for k, (family, low, high) in enumerate((("speed", "slowest", "fastest"), ("load", "least", "most"))):
        order = np.argsort(ranks[:, k], kind="stable")
        found += [Split(family, high, tuple(sorted(order[-third:].tolist())))]
        found += [Split(family, low, tuple(sorted(order[:third].tolist())))]
    once: dict[tuple[int, ...], Split] = {}
    for s in found:
        once.setdefault(s.out, s)
    return tuple(s for s in once.values() if len(s.out) < len(logs))


def _constants(logs: Sequence[Log]) -> dict[str, list[str]]:
    """Constants of the logs that differ, each with its value in each log; those that part the logs alike count once."""
    every: list[dict[str, Any]] = [log.meta.get("constants", {}) for log in logs]
    found: dict[tuple[int, ...], tuple[str, list[str]]] = {}
    for name in dict.fromkeys(k for constants in every for k in constants):
        values = [str(constants.get(name, "")) for constants in every]
        order = list(dict.fromkeys(values))
        if len(order) > 1:
            found.setdefault(tuple(order.index(v) for v in values), (name, values))
    return dict(found.values())


def _by_value(family: str, values: list[str]) -> list[Split]:
    order = sorted(set(values), key=lambda v: (_number(v), v))
    groups = [list(g) for g in np.array_split(np.array(order, dtype=object), min(len(order), GROUPS))]
    return [
        Split(family, g[0] if len(g) == 1 else f"{g[0]} .. {g[-1]}", tuple(i for i, v in enumerate(values) if v in g))
        for g in groups
    ]


def _number(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        return np.inf


def _effort(world: Engine, log: Log) -> np.ndarray:
    """(2, nv) root mean square speed, and torque that the model needs for the measured motion."""
    rows = np.arange(len(log))
    begin = starts(world, log, rows)
    ok = np.isfinite(begin.q).all(1) & np.isfinite(begin.v).all(1)
    q, v = begin.q[ok], begin.v[ok]
    a = np.gradient(v, world.dt, axis=0) if len(v) > 1 else np.zeros_like(v)
    tau = torques(world, world.params.nominal, q, v, a)
    return np.sqrt(np.stack([np.square(v).mean(0), np.square(tau).mean(0)]))


def joined(logs: Sequence[Log]) -> list[Log]:
    """Runs of the same columns and rate one after the other in one log, with pauses between: one batch simulates them all."""
    groups: dict[Any, list[Log]] = {}
    for log in logs:
        key = (round(log.rate, 3), *log.columns, str(log.meta.get("names", "")))
        groups.setdefault(key, []).append(log)
    return [_chained(group) for group in groups.values()]


def _chained(logs: list[Log]) -> Log:
    at, times = 0.0, []
    for log in logs:
        times.append(log.time - log.time[0] + at)
        at = float(times[-1][-1]) + APART / log.rate
    columns = {name: np.concatenate([log[name] for log in logs]) for name in logs[0].columns}
    return Log(np.concatenate(times), columns, logs[0].units, logs[0].meta)
