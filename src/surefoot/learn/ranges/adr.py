"""Automatic domain randomization: every range has two edges, and each edge moves on its own evidence.

In half of the episodes one parameter is put on one of its edges, the others drawn between theirs. An edge that was met
in `episodes` episodes moves outward if their success is at least `widen_at`, inward if at most `narrow_at`; then its
count begins anew. A parameter that is too hard stops there while the others grow.

How far an edge moves is its own, too: further each time it goes on the way it went, half as far when it turns round.
One step for all targets would leap past what can be borne where a target is wide, and crawl where it is narrow.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from surefoot.belief import Belief, Box
from surefoot.errors import SurefootError, unknown
from surefoot.learn.ranges import Ranges, spread
from surefoot.learn.settings import within
from surefoot.rng import Draw

QUICKEN, SLOW = 1.5, 0.5  # an edge's step that goes on the way it went, and one that turns round, against its last
KEPT = ("edges", "met", "won", "went", "pace")  # arrays that are its state
LEAST, MOST = 0.01, 0.25  # steps, of the target's width


@dataclass(frozen=True)
class ADR:
    """Settings of automatic domain randomization."""

    boundary: float = 0.5
    """share of episodes that are put on an edge"""
    episodes: int = 10
    """episodes on an edge that decide where it goes"""
    step: float = 0.2
    """how far an edge moves at first, of the target's width"""
    widen_at: float = 0.6
    """success from which an edge moves outward"""
    narrow_at: float = 0.4
    """success down from which it moves inward"""
    only: tuple[str, ...] = ()
    """parameters whose ranges grow; the others have their whole range from the first step; empty: all grow"""

    def __post_init__(self) -> None:
        within(self, "adr.", boundary=(0.01, 1), episodes=(1, 1e9), step=(1e-3, 1), widen_at=(0, 1), narrow_at=(0, 1))
        if self.narrow_at >= self.widen_at:
            raise SurefootError(f"adr.narrow_at: expected below widen_at {self.widen_at:g}, found {self.narrow_at:g}")

    def start(self, target: Belief, episode: int, training: int) -> "Edges":
        return Edges(self, target, episode)


@dataclass(frozen=True, eq=False)
class OnEdges(Box):
    """A Box of which a share of the draws has one of some columns on an edge. Its density is the Box's all the same."""

    columns: np.ndarray
    on_edge: float

    def sample(self, rng: Draw, n: int) -> np.ndarray:
        e, u, k = super().sample(rng, n), rng.random((n, 2)), len(self.columns)
        rows = np.flatnonzero(u[:, 0] < self.on_edge)
        which = np.minimum((u[rows, 1] * 2 * k).astype(int), 2 * k - 1)
        column = self.columns[which // 2]
        e[rows, column] = np.where(which % 2 == 1, self.high[column], self.low[column])
        return e

    def to_json(self) -> dict[str, Any]:
        return Box(self.params, self.low, self.high).to_json()


class Edges(Ranges):
    def __init__(self, settings: ADR, target: Belief, episode: int):
        super().__init__(target, episode)
        self.settings, names = settings, target.params.names
        for name in settings.only:
            if name not in names:
                raise unknown("parameter", name, names, "adr.only")
        self.grows = self.free & np.isin(names, settings.only or names)
        if not self.grows.any():
            raise SurefootError(
                f"adr.only: expected a parameter whose range has some width, found {', '.join(settings.only)}"
            )
        whole = np.stack([np.zeros(len(names)), np.ones(len(names))])
        self.edges = np.where(self.grows, self.centre, whole)  # (low | high, d), in the target's z
        self.met, self.won, self.went = (np.zeros_like(self.edges) for _ in range(3))
        self.pace = np.full_like(self.edges, settings.step)
        self.heard = 0  # episodes so far
        self._set()

    def _set(self) -> None:
        low, high = self.between(*self.edges)
        columns = np.flatnonzero(self.grows)
        self.belief: Belief = OnEdges(self.target.params, low, high, columns, self.settings.boundary)

    def judge(self, e: np.ndarray, success: np.ndarray, began: np.ndarray, now: int) -> None:
        """An episode tells of the edge it was put on.

        On ranges of no width, as all are at first, it was on every edge, and tells of each in turn: were it to tell of
        all, they would all move at once, into worlds where nothing that was learned holds.
        """
        s, (low, high) = self.settings, self.between(*self.edges)
        turn = (self.heard + np.arange(len(e))) % (2 * int(self.grows.sum()))
        place, none = np.cumsum(self.grows) - 1, self.edges[0] == self.edges[1]
        self.heard += len(e)
        for k, edge in enumerate((low, high)):
            on = (e == edge) & self.grows & (~none | (turn[:, None] == 2 * place + k))
            self.met[k] += on.sum(0)
            self.won[k] += (on * success[:, None]).sum(0)
        ready = self.met >= s.episodes
        if not ready.any():
            return
        rate = self.won / np.maximum(self.met, 1.0)
        out = (ready & (rate >= s.widen_at)).astype(float) - (ready & (rate <= s.narrow_at))
        again = out * self.went
        factor = np.where(again > 0, QUICKEN, np.where(again < 0, SLOW, 1.0))
        pace = np.clip(self.pace * factor, min(LEAST, s.step), max(MOST, s.step))
        edges = np.stack([
            np.clip(self.edges[0] - pace[0] * out[0], 0.0, self.centre),
            np.clip(self.edges[1] + pace[1] * out[1], self.centre, 1.0),
        ])  # fmt: skip
        moved = edges != self.edges
        self.edges, self.pace, self.went = edges, np.where(moved, pace, self.pace), np.where(moved, out, self.went)
        self.met[ready], self.won[ready] = 0.0, 0.0
        self._set()

    def facts(self) -> dict[str, float]:
        return spread(*self.edges[:, self.grows])

    def state(self) -> dict[str, np.ndarray]:
        return {k: getattr(self, k).copy() for k in KEPT} | {"heard": np.array(self.heard)}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        self.edges, self.met, self.won, self.went, self.pace = (state[k].copy() for k in KEPT)
        self.heard = int(state["heard"])
        self._set()
