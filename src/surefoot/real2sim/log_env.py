"""A world whose episodes replay windows of a log, with a policy that adds to the log's controls.

    x(k+1) = f(x(k), give(u_log(k), a(k)), e)        e is fixed; the window of each episode is drawn at random

For reinforcement learning of missing physics: a delta to the controls, or the forces of actuators.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from surefoot.belief import Box
from surefoot.errors import SurefootError
from surefoot.params import Param, Params
from surefoot.real2sim.replay import Windows, picked
from surefoot.world import Chance, Motion, OnAction, OnForce, Start, State, Term, World

Give = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""the log's controls (n, nu), a policy's u -> the controls of the world"""


class LogWorld(World):
    """Windows of a log as episodes; the only unknown is the window's index, and the state is observed exactly."""

    def __init__(self, inner: World, pieces: Windows, e: np.ndarray, give: Give):
        self.inner, self.pieces, self.fixed, self.give = inner, pieces, e, give
        self.n, self.dt, self.terms = inner.n, inner.dt, ()
        self.layout = replace(inner.layout, actuators=())  # `give` interprets the policy's output
        self.params = Params((Param("window", "task", 0.0, 0.0, float(len(pieces)), op="set"),))
        self.state = State(**{**vars(inner.state), "e": np.zeros((inner.n, 1))})

    @property
    def belief(self) -> Box:
        """Uniform over the windows."""
        return Box.full(self.params)

    def now(self, x: State) -> tuple[np.ndarray, np.ndarray]:
        """(n,) window of each simulation, and its control period within the window."""
        return self._window(x.e), np.clip(np.rint(x.time / self.dt).astype(int), 0, self.pieces.length)

    def controls(self, x: State) -> np.ndarray:
        """(n, nu) the log's next controls; at a window's end, its last ones."""
        window, k = self.now(x)
        return self.pieces.u[window, np.minimum(k, self.pieces.length - 1)]

    def _window(self, e: np.ndarray) -> np.ndarray:
        return np.minimum(e[:, 0].astype(int), len(self.pieces) - 1)

    def reset(self, ids: np.ndarray, e: np.ndarray, start: Start) -> None:
        """At the windows in e; the starts are the log's."""
        begin = picked(self.pieces.start, self._window(e))
        self.inner.reset(ids, np.repeat(self.fixed[None], len(ids), 0), begin)
        self.state.e[ids] = e

    def begin(self, u: np.ndarray, chance: Chance) -> None:
        self.inner.begin(self.give(self.controls(self.state), u), chance)

    def advance(self) -> None:
        self.inner.advance()

    def end(self) -> np.ndarray:
        return self.inner.end()

    def set_state(self, q: np.ndarray, v: np.ndarray) -> None:
        self.inner.set_state(q, v)

    def delays(self) -> np.ndarray:
        return self.inner.delays()

    def sense(self) -> None:
        self.inner.sense()

    def actuator_force(self) -> np.ndarray:
        return self.inner.actuator_force()

    def set_params(self, ids: np.ndarray, e: np.ndarray) -> None:
        raise SurefootError("log world: the window of an episode cannot change before its end")

    def with_(self, n: int, terms: tuple[Term, ...] | None = None) -> World:
        raise SurefootError("log world: its size and terms are fixed; make another one")

    def rollout(self, u: np.ndarray, chance: Chance) -> Motion:
        raise SurefootError("log world: expected step(), one period at a time; it has no rollout()")

    def save(self) -> dict[str, np.ndarray]:
        return self.inner.save() | {"window": self.state.e.copy()}

    def load(self, saved: Mapping[str, np.ndarray]) -> None:
        self.inner.load(saved)
        self.state.e[:] = saved["window"]

    def replay_record(self, i: int) -> dict[str, np.ndarray]:
        return self.inner.replay_record(i)


@dataclass(frozen=True, eq=False)
class AppliedForce(OnForce):
    """A given force, one row for each simulation."""

    force: np.ndarray  # (n, nv)

    def __call__(self, x: State, u: np.ndarray, chance: Chance) -> np.ndarray:
        return self.force


@dataclass(frozen=True, eq=False)
class AppliedOffset(OnAction):
    """A given offset to the controls, one row for each simulation."""

    offset: np.ndarray  # (n, nu)

    def __call__(self, x: State, u: np.ndarray, chance: Chance) -> np.ndarray:
        return u + self.offset
