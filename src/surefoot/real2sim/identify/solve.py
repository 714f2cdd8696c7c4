"""Least squares of a Problem by Gauss-Newton steps within bounds, at a price of one simulation for each unknown and step.

    p <- p - (J^T J + mu D)^-1 J^T r        J by one-sided differences from r, which the step before has simulated

A solve ends when a step lowers the cost by less than a share of it: a thousandth where windows are short and the fit goes on
to longer ones, less where the answer is. The best point so far is kept, so that a fit that is stopped has an answer.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from mujoco import minimize

from surefoot.real2sim.identify.fit import Problem
from surefoot.report import Progress, Watch

FINE = 1e-5  # finite difference, as a fraction of a range, where the cost is smooth
LADDER, STIFFEST = (
    10**0.5,
    1e5,
)  # factor of the solver's damping after a step that fails, and where it gives up: with columns of unit
# length, a step is then 1e-5 of the gradient. The solver's own 10^0.1 and 1e8 try 140 steps of which none is better, at each kink
COARSE, CLOSE = 3e-3, 1e-4  # of the cost: the least fall of a step, in the stages before the last and in the last one
UNSURE = 1e-3  # in units of the noise, squared: a smaller fall moves no unknown by more than 0.05 of its sd
AGAIN = 2  # further iterations of the best values of an unknown that acts in steps
FINALISTS = 3


class _Enough(Exception):
    """The cost falls too little to go on."""


@dataclass
class Solver:
    """Solves the problems of one fit, in turn; knows how much is done, and the best point so far."""

    watch: Watch
    stages: int
    """solves that will be shown"""
    done: int = 0
    reached: tuple[Problem, np.ndarray] | None = field(default=None)
    """the problem of the present stage, and the best point so far"""

    def solve(
        self, problem: Problem, p: np.ndarray, iterations: int, what: str = "", enough: float = COARSE
    ) -> np.ndarray:
        """Box-constrained least squares from p; z within its bounds, starts free. Unknowns that act in steps stay fixed:

        a staircase has no useful gradient, and the solver would stop for all the others. Without `what` nothing is shown.
        """
        full = np.zeros(problem.size)
        full[: len(p)] = p
        moves = np.ones(problem.size, bool)
        moves[: problem.d] = problem.space.grain == 0
        low, high = np.full(problem.size, -1e3), np.full(problem.size, 1e3)  # finite, and farther than any start moves
        low[: problem.d], high[: problem.d] = 0.0, 1.0

        def accepted(x: np.ndarray, iteration: int) -> None:
            full[moves] = np.ravel(x)
            if what:
                self.reached = problem, full.copy()
                self._show(what, iteration / iterations)

        if what:
            self.reached = problem, full.copy()
            self._show(what, 0.0)
        if moves.any():
            _least_squares(problem, full.copy(), moves, (low[moves], high[moves]), iterations, enough, accepted)
        self.done += bool(what)
        return full

    def _show(self, what: str, share: float) -> None:
        self.watch(Progress(f"fitting {what}", min((self.done + share) / self.stages, 1.0)))

    def polished(self, problem: Problem, p: np.ndarray, iterations: int, what: str) -> np.ndarray:
        """solve, then with fine differences: wide ones smooth over kinks of the cost, fine ones converge between them."""
        rows = sum(len(c.pieces) * c.rows * c.channels for c in problem.cases)
        first = self.solve(problem, p, iterations, what, CLOSE)
        return self.solve(replace(problem, step=FINE), first, iterations, what, UNSURE / rows)

    def stepped(self, problem: Problem, z: np.ndarray, wide: bool) -> np.ndarray:
        """z with each unknown that acts in whole timesteps, such as a delay, at its best value, found by trying them.

        All values, or only the neighbours of the current one (not `wide`), are compared by the cost after an iteration of
        the other unknowns; of many, the best few after some more.
        """
        for k in np.flatnonzero(problem.space.grain):
            grain = problem.space.grain[k]
            last = int(1 / grain + 1e-9)
            at = round(z[k] / grain)
            places = np.arange(last + 1) if wide else np.arange(max(at - 1, 0), min(at + 1, last) + 1)
            tried = np.tile(z, (len(places), 1))
            tried[:, k] = grain * places
            fits = sorted((self.solve(problem, one, 1) for one in tried), key=lambda p: cost(problem, p))
            if wide and len(fits) > 1:
                fits = [self.solve(problem, one, AGAIN) for one in fits[:FINALISTS]]
            z = min(fits, key=lambda p: cost(problem, p))[: problem.d]
        return z


def cost(problem: Problem, p: np.ndarray) -> float:
    return float(np.square(problem.residual(p[:, None])).sum())


def _least_squares(
    problem: Problem,
    full: np.ndarray,
    moves: np.ndarray,
    bounds: tuple[np.ndarray, np.ndarray],
    iterations: int,
    enough: float,
    accepted: Callable[[np.ndarray, int], None],
) -> None:
    """mujoco.minimize from `full`, of which `moves` may move; each accepted point goes to `accepted`."""
    tried = full[moves]

    def filled(x: np.ndarray) -> np.ndarray:
        """(size, m) from what moves (., m)."""
        out = np.tile(full[:, None], (1, x.shape[1]))
        out[moves] = x
        return out

    def residual(x: np.ndarray) -> np.ndarray:
        nonlocal tried
        tried = x[:, -1].copy()
        return problem.residual(filled(x))

    def jacobian(x: np.ndarray, r: np.ndarray) -> np.ndarray:
        return problem.jacobian(filled(np.reshape(x, (-1, 1)))[:, 0], r, moves[: problem.d])[:, moves]

    def stepped(trace: list[Any]) -> None:
        last = trace[-1]
        if last.reduction > 0:  # not the entry of the end, which has no step
            accepted(tried, len(trace))
            if last.reduction < enough * last.objective:
                raise _Enough

    try:
        minimize.least_squares(
            full[moves],
            residual,
            bounds,
            jacobian,
            max_iter=iterations,
            verbose=0,
            xtol=1e-7,
            x_scale="jac",
            mu_factor=LADDER,
            mu_max=STIFFEST,
            iter_callback=stepped,
        )
    except _Enough:
        pass
