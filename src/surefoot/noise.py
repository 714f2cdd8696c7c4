"""Sensor errors of an actor's observation: noise and bias that e may move.

    frame += multiple(e) sd n + e_bias        n ~ N(0, 1), drawn once a step for all envs; column by column

`multiple` is 1, e, or a product of e, as the params of target `noise` say (op `set`, in the term's unit, or `scale`).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from surefoot.arrays import namespace
from surefoot.errors import unknown
from surefoot.observation import ObsGroup
from surefoot.params import Param, Params
from surefoot.rng import Normal

Moved = list[tuple[int, Param]]
"""(index in e, param) of the params that move one observation term"""


@dataclass(frozen=True)
class _Noise:
    """Neighbouring columns of the actor's frame whose noise the same params move: sd times multiple(e)."""

    columns: slice
    drawn: slice  # of what is drawn each step
    sd: np.ndarray
    params: Moved

    def multiple(self, e: np.ndarray) -> np.ndarray | np.float32:
        multiple: Any = np.float32(1.0)
        xp = namespace(e)
        for i, p in self.params:
            multiple = xp.astype(e[:, i, None] * multiple if p.op == "scale" else e[:, i, None], xp.float32)
        return multiple


class SensorErrors:
    """Noise and bias of n envs' actors, of which the first is env number `first` of the seed."""

    def __init__(self, params: Params, groups: Mapping[str, ObsGroup], first: int, n: int):
        self.noises = _noises(params, groups)
        self.bias = [(at, i) for at, moved in _moved(params, "bias", groups) for i, _ in moved]
        self.normal = Normal(first, n, self.noises[-1].drawn.stop) if self.noises else None
        self.at, self.drawn = (-1, -1), np.zeros(0, np.float32)  # (seed, step) of the last draw, and its rows

    def add(self, frame: np.ndarray, e: np.ndarray, ids: np.ndarray | None, at: tuple[int, int]) -> None:
        """In place, of all envs or of ids, at (seed, step); an env's noise is the same whichever others are asked for."""
        for noise in self.noises:
            multiple = noise.multiple(e)
            if multiple.any():
                rows = self._draw(at)
                frame[:, noise.columns] += (rows[:, noise.drawn] if ids is None else rows[ids, noise.drawn]) * multiple
        for columns, i in self.bias:
            frame[:, columns] += e[:, i, None]

    def _draw(self, at: tuple[int, int]) -> np.ndarray:
        """(n, noisy columns) of each column's own standard deviation, drawn once a step."""
        if self.at != at and self.normal is not None:
            self.at, self.drawn = at, self.normal.draw(at[0], "noise", at[1])
            for noise in self.noises:
                self.drawn[:, noise.drawn] *= noise.sd
        return self.drawn


def _noises(params: Params, groups: Mapping[str, ObsGroup]) -> list[_Noise]:
    found: list[_Noise] = []
    for t, (at, moved) in zip(groups["actor"].terms, _moved(params, "noise", groups)):
        if not t.noise and not moved:
            continue
        sd = np.full(t.dim, 1.0 if any(p.op == "set" for _, p in moved) else t.noise, np.float32)
        first = found[-1].drawn.stop if found else 0
        new = _Noise(at, slice(first, first + t.dim), sd, moved)
        if found and found[-1].columns.stop == at.start and found[-1].params == moved:
            old = found.pop()
            columns, drawn = slice(old.columns.start, at.stop), slice(old.drawn.start, new.drawn.stop)
            new = _Noise(columns, drawn, np.concatenate([old.sd, sd]), moved)
        found.append(new)
    return found


def _moved(params: Params, target: str, groups: Mapping[str, ObsGroup]) -> list[tuple[slice, Moved]]:
    """For each term of the actor: its columns, and the params that move its noise or bias.

    A param of a sensor that the actor lacks, and another group has, moves nothing.
    """
    actor, known = groups["actor"], [t.name for group in groups.values() for t in group.terms]
    found: list[Moved] = [[] for _ in actor.terms]
    for i, p in enumerate(params):
        if p.target != target:
            continue
        if not any(re.fullmatch(p.match, name) for name in known):
            raise unknown("observation term", p.match, list(dict.fromkeys(known)), f"param {p.name}")
        for k, t in enumerate(actor.terms):
            if t.sensed and re.fullmatch(p.match, t.name):
                found[k].append((i, p))
    return list(zip(actor.columns, found))
