"""identify: the unknowns that make a model do what a log says the machine did, and how sure the log makes us of them.

    e^ = argmin sum |y(k) - h(x(k; e))|^2 in the noise's own metric          F = J^T J        cov = F^-1

Fitted on windows whose length grows: one long shot has many false minima, a short one has few. The noise of each channel
and its autocorrelation are estimated from what is left, and used. How sure that makes us is certainty.py's; what a log
cannot tell stays as wide as it was believed, and is named, with the combination that the log does tell.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from mujoco import minimize

from surefoot.belief import Belief
from surefoot.control.sampling import CMA, minimise
from surefoot.errors import SurefootError
from surefoot.log import Log
from surefoot.real2sim.identify.fit import Case, Problem, Space, scales
from surefoot.real2sim.identify.noise import Noise, all_white, estimate, shared
from surefoot.real2sim.identify.result import Identified, answer
from surefoot.real2sim.replay import bears, whole, windows
from surefoot.report import Progress, Watch, unwatched
from surefoot.rng import stream
from surefoot.world import World

SUITED = 3  # iterations in which other unknowns suit a delay that is tried
FINE = 1e-5  # of a range: a finite difference where the cost is smooth
FEWEST = 20  # rows: fewer tell of their noise
MOST_STARTS = 192  # unknowns of windows' starts in one problem; beyond it, starts are taken as measured


@dataclass(frozen=True)
class Identify:
    """How to fit. Every length is in seconds."""

    horizons: tuple[float, ...] = (0.1, 0.3, 1.0)
    """windows to begin with, shortest first"""
    last: float | None = None
    """windows to end with; not given: the whole log, up to `longest`, and no longer than a machine that falls bears"""
    longest: float = 20.0
    """the longest window of a whole log, s"""
    starts: Literal["estimated", "known"] = "estimated"
    """whether the state each last window begins in is an unknown, too, or known exactly"""
    hold: float = 0.25
    """share of each log, at its end, kept aside to check on"""
    how: Literal["least-squares", "cma"] = "least-squares"
    """least squares for smooth parameters; CMA-ES first where stiction or contacts make it rough"""
    rounds: int = 4
    """times the noise is estimated and the fit made again"""
    iterations: int = 40
    """of least squares in the last stage; a quarter of them in those before"""
    enough: float = 8.0
    """seconds of windows, spread over a log, that the stages before the last look at"""
    seed: int = 0
    """of CMA-ES"""


def identify(
    world: World | Sequence[World],
    belief: Belief,
    log: Log | Sequence[Log],
    settings: Identify | None = None,
    only: tuple[str, ...] = (),
    watch: Watch = unwatched,
) -> Identified:
    """A belief about e after one log or several, each with the World of the machine as it stood for it.

    Warns where the fit predicts worse than the model did before, or diverges: `fault` of the result says how.
    """
    found = fitted(world, belief, log, settings, only, watch)
    if found.fault:
        warnings.warn(f"identify: {found.fault}: do not use this belief", stacklevel=2)
    return found


def fitted(
    world: World | Sequence[World],
    belief: Belief,
    log: Log | Sequence[Log],
    settings: Identify | None = None,
    only: tuple[str, ...] = (),
    watch: Watch = unwatched,
) -> Identified:
    """As identify, without its warning: for callers that report `fault` themselves."""
    s = settings or Identify()
    worlds, logs = _paired(world, log, belief)
    rows = sum(map(len, logs))
    if rows < FEWEST:
        raise SurefootError(f"identify: found {rows} rows in all logs, expected at least {FEWEST}")
    kept = [_parted(x, s.hold) for x in logs]
    fitted, aside = [a for a, _ in kept], [b for _, b in kept]
    space = Space.of(belief, float(worlds[0].model.opt.timestep))
    z = _beginning(space, belief)
    if s.how == "cma":
        z = _by_cma(space, worlds, fitted, only, s, z, watch)
    for i, horizon in enumerate(s.horizons):
        problem = _problem(space, worlds, fitted, only, horizon, False, s.enough)
        z = _stepped(problem, z, wide=i == 0)
        z = _solve(problem, z, max(4, s.iterations // 4), watch, f"windows of {horizon:g} s")[: len(z)]
    problem, p = _last(space, worlds, fitted, only, s, z, watch)
    return answer(problem, p, belief.estimate(), (worlds, aside, only), watch)


def _paired(world: Any, log: Any, belief: Belief) -> tuple[list[World], list[Log]]:
    logs = [log] if isinstance(log, Log) else list(log)
    worlds = [world] * len(logs) if isinstance(world, World) else list(world)
    if len(worlds) != len(logs) or not logs:
        raise SurefootError(f"identify: found {len(worlds)} worlds for {len(logs)} logs, expected one for each")
    for w in worlds:
        if w.params != belief.params:
            raise SurefootError(
                f"identify: the belief is about {', '.join(belief.params.names)}, the world has {', '.join(w.params.names)}"
            )
    return worlds, logs


def _parted(log: Log, hold: float) -> tuple[Log, Log | None]:
    """The log without its end, and its end."""
    if not 0 <= hold < 1:
        raise SurefootError(f"hold: found {hold}, expected a share of the log from 0 to below 1")
    cut = len(log) - int(hold * len(log))
    if len(log) - cut < 3:
        return log, None
    at = float(log.time[cut])
    return log.slice(-np.inf, at), log.slice(at, np.inf)


def _beginning(space: Space, belief: Belief) -> np.ndarray:
    return np.clip(space.z(belief.estimate()), 0.02, 0.98)  # off the bounds, where a difference has two sides


def _problem(
    space: Space,
    worlds: list[World],
    logs: list[Log],
    only: tuple[str, ...],
    horizon: float | None,
    free: bool,
    enough: float | None = None,
) -> Problem:
    """All windows of a horizon, or every so many of them where so many seconds are enough."""
    cases = []
    for w, x in zip(worlds, logs):
        most = whole(w, x, only)
        length = most if horizon is None else int(np.clip(round(horizon / w.dt), 1, most))
        skip = 1 if enough is None else max(1, int((len(x) - 1) * w.dt / enough))
        cases.append(Case(w, windows(w, x, length, min(length * skip, len(x) - 1), only), free))
    return Problem(space, tuple(cases), tuple(scales(c) for c in cases))


def _solve(problem: Problem, p: np.ndarray, iterations: int, watch: Watch, what: str) -> np.ndarray:
    """Box-constrained least squares from p; z within its bounds, starts free. What acts in steps stays where it is:

    along a stair a slope promises what no small step keeps, and the solver would give up on all the others.
    """
    full = np.zeros(problem.size)
    full[: len(p)] = p
    moves = np.ones(problem.size, bool)
    moves[: problem.d] = problem.space.grain == 0
    low, high = np.full(problem.size, -1e3), np.full(problem.size, 1e3)  # finite for the solver: no start moves as far
    low[: problem.d], high[: problem.d] = 0.0, 1.0

    def filled(x: np.ndarray) -> np.ndarray:
        """(size, m) from what moves (., m)."""
        out = np.tile(full[:, None], (1, x.shape[1]))
        out[moves] = x
        return out

    watch(Progress(f"fitting {what}"))
    if not moves.any():
        return full
    found, _ = minimize.least_squares(
        full[moves],
        lambda x: problem.residual(filled(x)),
        (low[moves], high[moves]),
        lambda x, r: problem.jacobian(filled(np.reshape(x, (-1, 1)))[:, 0], r)[:, moves],
        max_iter=iterations,
        verbose=0,
        xtol=1e-7,
        x_scale="jac",
    )
    full[moves] = np.asarray(found).ravel()
    return full


def _polished(problem: Problem, p: np.ndarray, iterations: int, watch: Watch, what: str) -> np.ndarray:
    """_solve, and from there again with fine differences: a wide one sees past small kinks, and is held up by them."""
    first = _solve(problem, p, iterations, watch, what)
    again = _solve(replace(problem, step=FINE), first, iterations, watch, what)
    return min(again, first, key=lambda q: _cost(problem, q))


def _cost(problem: Problem, p: np.ndarray) -> float:
    return float(np.square(problem.residual(p[:, None])).sum())


def _last(
    space: Space, worlds: list[World], logs: list[Log], only: tuple[str, ...], s: Identify, z: np.ndarray, watch: Watch
) -> tuple[Problem, np.ndarray]:
    """The last windows, with the noise estimated from what is left and the fit made again until it stays."""
    horizon = s.last
    if horizon is None:
        longest = max(whole(w, x, only) * w.dt for w, x in zip(worlds, logs))
        borne = min(s.longest, *(bears(w, x, space.e(z), s.longest, only) for w, x in zip(worlds, logs)))
        horizon = borne if borne < longest else None
    problem = _problem(space, worlds, logs, only, horizon, s.starts == "estimated")
    if problem.size - problem.d > MOST_STARTS:
        problem = _problem(space, worlds, logs, only, horizon, False)
    z = _stepped(problem, z, wide=not s.horizons)
    p = _polished(problem, z, s.iterations, watch, "the whole log" if horizon is None else f"windows of {horizon:g} s")
    plain, began = problem, p
    for k in range(s.rounds):
        raw = problem.raw(p)
        noise = tuple(estimate([r], _freedom(problem)) for r in raw)
        if not all_white(noise, raw):  # as yet: a noisy channel may have bent the others
            noise = tuple(estimate([r], _freedom(problem), coloured=False) for r in raw)
        elif any(n.rho.any() for n in noise) and all(np.isfinite(r).all() for r in raw):
            noise = shared(noise, raw, problem.jacobians(p))
        settled = k and all(np.allclose(a.s, b.s, rtol=0.01) and np.allclose(a.rho, b.rho, atol=0.01)
                            for a, b in zip(noise, problem.noise))  # fmt: skip
        problem = replace(problem, noise=noise)
        if settled:
            break
        p = _polished(problem, p, s.iterations, watch, f"in the noise's metric, round {k + 1}")
    raw = problem.raw(p)
    if not s.rounds:
        problem = replace(problem, noise=tuple(estimate([r], _freedom(problem)) for r in raw))
    if not all_white(problem.noise, raw):
        return replace(plain, noise=_model_error(plain.noise, plain.raw(began))), began
    return problem, p


def _model_error(scales: tuple[Noise, ...], raw: list[np.ndarray]) -> tuple[Noise, ...]:
    """What the model has not got, as a noise: the same share of every channel's spread, in every log.

    A channel weighed by its own error would win or lose everything: the better it is fitted, the more it weighs.
    """
    squares = [np.square(r / a.s) for r, a in zip(raw, scales)]
    share = float(np.sqrt(sum(x.sum() for x in squares) / sum(x.size for x in squares)))
    return tuple(Noise(a.s * max(share, 1e-12), np.zeros(len(a.s))) for a in scales)


def _freedom(problem: Problem) -> int:
    return problem.size // len(problem.cases)


def _stepped(problem: Problem, z: np.ndarray, wide: bool) -> np.ndarray:
    """z with each unknown that acts in steps, as a delay does, on the best of them: on a stair there is no slope to follow.

    Each step, or where the place is known by now (not `wide`) the nearest ones, is judged by what is left once the other
    unknowns, the windows' starts among them, have had a few iterations to suit it.
    """
    quiet = lambda _: None  # noqa: E731
    for k in np.flatnonzero(problem.space.grain):
        grain = problem.space.grain[k]
        last = int(1 / grain + 1e-9)
        at = round(z[k] / grain)
        places = np.arange(last + 1) if wide else np.arange(max(at - 1, 0), min(at + 1, last) + 1)
        tried = np.tile(z, (len(places), 1))
        tried[:, k] = grain * places
        suited = [_solve(problem, one, SUITED, quiet, "") for one in tried]
        z = min(suited, key=lambda p: _cost(problem, p))[: problem.d]
    return z


def _by_cma(
    space: Space, worlds: list[World], logs: list[Log], only: tuple[str, ...], s: Identify, z: np.ndarray, watch: Watch
) -> np.ndarray:
    """The lowest place of a rough cost, by CMA-ES over windows of the longest horizon to begin with, or the last."""
    problem = _problem(space, worlds, logs, only, s.horizons[-1] if s.horizons else s.last, False, s.enough)
    watch(Progress("fitting by CMA-ES"))
    bounds, rng = (np.zeros(len(z)), np.ones(len(z))), stream(s.seed, "identify by CMA-ES")
    return minimise(lambda x: _costs(problem, x), z, 0.2, CMA(), 60, 8 + 4 * len(z), rng, bounds).x


def _costs(problem: Problem, z: np.ndarray) -> np.ndarray:
    """(m,) mean squared residual at each row of z, all in one rollout of each case."""
    total = np.zeros(len(z))
    for case, noise in zip(problem.cases, problem.noise):
        r = noise.whiten(case.errors(problem.space.e(z), None))
        total += np.nan_to_num(np.square(r).mean((1, 2, 3)), nan=1e6, posinf=1e6)
    return total
