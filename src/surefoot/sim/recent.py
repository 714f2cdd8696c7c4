"""What led n simulations to where they are, so that one that diverges can be replayed.

state k periods ago (k < KEEP), then controls and forces of each period since: the engine does the rest again
"""

import numpy as np

KEEP = 8  # control periods from one copy of the state to the next


class Recent:
    """A copy of all states now and then, and of what goes into the engine always: a whole copy each period costs more."""

    def __init__(self, state: np.ndarray, controls: np.ndarray, forces: np.ndarray):
        """Live arrays of n rows: the engine's state, the controls and the generalised forces in it."""
        self.state, self.controls, self.forces = state, controls, forces
        self.kept, self.since = state.copy(), np.zeros(len(state), np.int64)  # row i began `since[i]` after the copy
        self.given = [(np.empty_like(controls, order="C"), np.empty_like(forces, order="C")) for _ in range(KEEP)]
        self.wrenches: list[np.ndarray | None] = []  # in each period since the copy, where a Term holds a body

    def keep(self, wrench: np.ndarray | None) -> None:
        """A period begins, with what is in the live arrays now and with these wrenches on the bodies."""
        if len(self.wrenches) == KEEP:
            self.restart()
        controls, forces = self.given[len(self.wrenches)]
        np.copyto(controls, self.controls)
        np.copyto(forces, self.forces)
        self.wrenches.append(None if wrench is None else wrench.copy())

    def restart(self) -> None:
        """All simulations are replayed from their state now."""
        np.copyto(self.kept, self.state)
        self.since[:] = 0
        self.wrenches.clear()

    def begin(self, ids: np.ndarray) -> None:
        """Some simulations are replayed from their state now."""
        self.kept[ids], self.since[ids] = self.state[ids], len(self.wrenches)

    def record(self, i: int) -> dict[str, np.ndarray]:
        """Of simulation i; `wrenches` are there where a Term put them."""
        periods = range(self.since[i], len(self.wrenches))
        kept = {"state": self.kept[i].copy()}
        kept |= {
            name: np.array([self.given[k][j][i] for k in periods]) for j, name in enumerate(("controls", "forces"))
        }
        wrenches = [w[i] for w in self.wrenches[self.since[i] :] if w is not None]
        return kept | ({"wrenches": np.array(wrenches)} if wrenches else {})
