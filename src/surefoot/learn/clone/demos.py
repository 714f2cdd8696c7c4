"""Demonstrations out of logs: what was observed, and the actions that followed, where they followed each other.

row i: o_i (obs_dim,),   a_i .. a_{i+H-1} (H, na), the last repeated where an episode ends before

A log has the columns `observation` and `action`, as `surefoot run` and `surefoot record --observation` write them. An
episode ends where the clock jumps, and where a row was not measured.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from surefoot.errors import SurefootError
from surefoot.log import Log
from surefoot.task import Task

JUMP = 1.5  # control periods between rows of one episode, at most


@dataclass(frozen=True)
class Demos:
    obs: np.ndarray  # (N, obs_dim) float32
    actions: np.ndarray  # (N, H, na) float32
    episodes: int


def joined(one: Demos, other: Demos) -> Demos:
    """The rows of one, then those of the other."""
    obs, actions = (np.concatenate([getattr(one, k), getattr(other, k)]) for k in ("obs", "actions"))
    return Demos(obs, actions, one.episodes + other.episodes)


def demos(task: Task, rate: float, logs: Mapping[str, Log], chunk: int) -> Demos:
    """Of logs by name; refused by name where one is not of this task's actor. `rate` is the task's, in Hz."""
    obs, actions = list[np.ndarray](), list[np.ndarray]()
    for name, log in logs.items():
        o, a = (_column(log, k, width, name) for k, width in _widths(task).items())
        if len(log) > 1 and not 0.9 < log.rate / rate < 1.1:
            raise SurefootError(f"{name}: expected rows at the task's {rate:g} Hz, found {log.rate:.4g} Hz")
        for rows in _episodes(log, np.isfinite(o).all(1) & np.isfinite(a).all(1), 1 / rate):
            ahead = np.minimum(rows[:, None] + np.arange(chunk), rows[-1])
            obs.append(o[rows])
            actions.append(a[ahead])
    if not obs:
        raise SurefootError(f"{', '.join(logs)}: no row with both an observation and an action")
    return Demos(np.concatenate(obs).astype(np.float32), np.concatenate(actions).astype(np.float32), len(obs))


def _widths(task: Task) -> dict[str, int]:
    return {"observation": task.observations["actor"].dim, "action": len(task.action.names)}


def _column(log: Log, name: str, width: int, where: str) -> np.ndarray:
    if name not in log.columns:
        have = ", ".join(log.columns)
        raise SurefootError(
            f"{where}: column {name}: missing; found {have}; `surefoot run` and `surefoot record --observation` write it"
        )
    found = log[name].reshape(len(log), -1)
    if found.shape[1] != width:
        raise SurefootError(
            f"{where}: column {name}: expected {width} numbers a row, the task's, found {found.shape[1]}"
        )
    return found


def _episodes(log: Log, good: np.ndarray, period: float) -> list[np.ndarray]:
    """Rows of each stretch without a jump of the clock or a row that is not good."""
    rows = np.flatnonzero(good)
    if not len(rows):
        return []
    apart = (np.diff(rows) > 1) | (np.diff(log.time[rows]) > JUMP * period)
    return np.split(rows, np.flatnonzero(apart) + 1)
