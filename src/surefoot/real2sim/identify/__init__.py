"""identify: the unknowns under which a model reproduces a log, with their uncertainty.

    e^ = argmin sum |y(k) - h(x(k; e))|^2 in the metric of the noise          F = J^T J        cov = F^-1

Fitted on windows of growing length: a long rollout has many local minima, a short one few. The noise of each channel and
its autocorrelation are estimated from the residuals, and the fit is repeated in their metric. uncertainty.py computes
cov. An unknown that the log does not determine keeps its prior width and is named, as are the combinations of unknowns
that the log does determine.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from surefoot.belief import Belief
from surefoot.control.sampling import CMA, minimise
from surefoot.errors import SurefootError
from surefoot.log import Log
from surefoot.real2sim.identify.fit import Case, Problem, Space, scales
from surefoot.real2sim.identify.noise import Noise, all_white, colour, estimate, innovation, shared
from surefoot.real2sim.identify.result import Identified, answer
from surefoot.real2sim.identify.solve import CLOSE, FINE, Solver
from surefoot.real2sim.replay import longest_window, stable_length, windows
from surefoot.report import Progress, Watch, unwatched
from surefoot.rng import stream
from surefoot.world import World

FEWEST = 20  # rows: fewer are mostly noise
MOST_STARTS = 192  # unknown initial states in one problem; beyond it, windows start as measured
LESS = (
    0.9  # of what the last round left, in autocorrelation or in innovations: as long as rounds leave less, they go on
)
THIN = 2  # a part of the windows is enough to find a delay


@dataclass(frozen=True)
class Identify:
    """Settings of a fit. Every length is in seconds."""

    horizons: tuple[float, ...] = (0.1, 0.3, 1.0)
    """window lengths of the first stages, shortest first"""
    last: float | None = None
    """window length of the last stage; default: the whole log, up to `longest`, shorter where the motion is unstable"""
    longest: float = 20.0
    """upper limit of the last stage's windows, s"""
    starts: Literal["estimated", "known"] = "estimated"
    """initial state of each window in the last stage: an unknown of the fit, or known exactly from the log"""
    hold: float = 0.25
    """fraction of each log, at its end, held out for testing"""
    how: Literal["least-squares", "cma"] = "least-squares"
    """least squares for smooth costs; cma: CMA-ES first, where stiction or contacts make the cost rough"""
    rounds: int = 4
    """rounds of noise estimation and refitting"""
    weigh: Literal["spread", "error"] = "spread"
    """where the model lacks physics, each channel counts by its spread in the log; or by its own prediction error, so that a
    channel which nothing explains, such as turn rates in a fall, does not decide the others: in short windows"""
    iterations: int = 40
    """least-squares iterations of the last stage; a quarter of them in earlier stages"""
    enough: float = 8.0
    """total length of the windows, spread over a log, in the stages before the last, s"""
    seed: int = 0
    """seed of CMA-ES"""


def identify(
    world: World | Sequence[World],
    belief: Belief,
    log: Log | Sequence[Log],
    settings: Identify | None = None,
    only: tuple[str, ...] = (),
    watch: Watch = unwatched,
    warn: bool = True,
) -> Identified:
    """The belief about e given one log or several, each with its World: the model mounted and driven as in that log.

    Warns if the fit predicts worse than the model before it, or diverges (`fault` of the result); `warn=False` is for
    callers that report that themselves.
    """
    s = settings or Identify()
    worlds, logs = _paired(world, log, belief)
    rows = sum(map(len, logs))
    if rows < FEWEST:
        raise SurefootError(f"identify: found {rows} rows in all logs, expected at least {FEWEST}")
    parts = [_parted(x, s.hold) for x in logs]
    fitted, held_out = [a for a, _ in parts], [b for _, b in parts]
    space = Space.of(belief, worlds[0].dt / worlds[0].substeps)
    z = np.clip(space.z(belief.estimate()), 0.02, 0.98)  # off the bounds, where central differences have two sides
    if s.how == "cma":
        z = _by_cma(space, worlds, fitted, only, s, z, watch)
    solver = Solver(watch, len(s.horizons) + 3)
    try:
        problem, p = _fitted(solver, space, (worlds, fitted, only), s, z)
    except KeyboardInterrupt:
        if solver.reached is None:
            raise
        problem, p = _so_far(*solver.reached)
        interrupted = True
    else:
        interrupted = False
    found = answer(problem, p, belief.estimate(), (worlds, held_out, only), watch)
    found = replace(found, interrupted=interrupted)
    if warn and found.fault:
        warnings.warn(f"identify: {found.fault}: do not use this belief", stacklevel=2)
    return found


def _fitted(
    solver: Solver, space: Space, data: tuple[list[World], list[Log], tuple[str, ...]], s: Identify, z: np.ndarray
) -> tuple[Problem, np.ndarray]:
    """Stages of growing windows, then the last one."""
    for i, horizon in enumerate(s.horizons):
        problem = _problem(space, *data, horizon, False, s.enough)
        few = _problem(space, *data, horizon, False, s.enough / THIN)
        z = solver.stepped(few, z, wide=i == 0)
        z = solver.solve(problem, z, max(4, s.iterations // 4), f"windows of {horizon:g} s")[: len(z)]
    return _last(solver, space, data, s, z)


def _so_far(problem: Problem, p: np.ndarray) -> tuple[Problem, np.ndarray]:
    """A fit that was stopped: what is left to fit counts as model error."""
    return replace(problem, noise=_model_error(tuple(scales(c) for c in problem.cases), problem.raw(p))), p


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
    """The log without its held-out end, and that end."""
    if not 0 <= hold < 1:
        raise SurefootError(f"hold: found {hold}, expected a fraction of the log from 0 to below 1")
    cut = len(log) - int(hold * len(log))
    if len(log) - cut < 3:
        return log, None
    at = float(log.time[cut])
    return log.slice(-np.inf, at), log.slice(at, np.inf)


def _problem(
    space: Space,
    worlds: list[World],
    logs: list[Log],
    only: tuple[str, ...],
    horizon: float | None,
    free: bool,
    enough: float | None = None,
) -> Problem:
    """All windows of a length, or a part of them, spread over the log, that lasts `enough` seconds."""
    cases = []
    for w, x in zip(worlds, logs):
        most = longest_window(w, x, only)
        length = most if horizon is None else int(np.clip(round(horizon / w.dt), 1, most))
        skip = 1 if enough is None else max(1, int((len(x) - 1) * w.dt / enough + 0.05))
        cases.append(Case(w, windows(w, x, length, min(length * skip, len(x) - 1), only), free))
    return Problem(space, tuple(cases), tuple(scales(c) for c in cases))


def _last(
    solver: Solver, space: Space, data: tuple[list[World], list[Log], tuple[str, ...]], s: Identify, z: np.ndarray
) -> tuple[Problem, np.ndarray]:
    """The last stage: estimate the noise from the residuals and refit, until the noise no longer changes.

    Where the residuals are no noise, the model lacks physics: another metric does not change that, and one round shows it.
    But where one channel is far noisier than another, the first fit leaves an error in the other that is no noise either,
    and each round in the channels' own metric leaves less of it.
    """
    worlds, logs, only = data
    horizon = s.last
    if horizon is None:
        longest = max(longest_window(w, x, only) * w.dt for w, x in zip(worlds, logs))
        stable = min(s.longest, *(stable_length(w, x, space.e(z), s.longest, only) for w, x in zip(worlds, logs)))
        horizon = stable if stable < longest else None
    problem = _problem(space, *data, horizon, s.starts == "estimated")
    if problem.size - problem.d > MOST_STARTS:
        problem = _problem(space, *data, horizon, False)
    z = solver.stepped(problem, z, wide=not s.horizons)
    words = "the whole log" if horizon is None else f"windows of {horizon:g} s"
    p = solver.solve(problem, z, s.iterations, words, CLOSE)
    if s.weigh == "error":
        return _by_error(solver, problem, p, s)
    plain, began, left = problem, p, np.full(2, np.inf)
    for k in range(s.rounds):
        raw, before = problem.raw(p), problem.noise
        noise = tuple(estimate([r], _freedom(problem)) for r in raw)
        white = all_white(noise, raw)
        if not white:
            last, left = left, np.array([colour(noise, raw), innovation(noise)])
            if (left > LESS * last).all():
                break
            noise = tuple(estimate([r], _freedom(problem), coloured=False) for r in raw)
        elif any(n.rho.any() for n in noise) and all(np.isfinite(r).all() for r in raw):
            noise = shared(noise, raw, problem.jacobians(p))
        problem = replace(problem, noise=noise)
        if k and _alike(noise, before):
            break
        words = f"in the noise's metric, round {k + 1}"
        p = (solver.polished if white else solver.solve)(problem, p, s.iterations, words)
    raw = problem.raw(p)
    if not s.rounds:
        problem = replace(problem, noise=tuple(estimate([r], _freedom(problem)) for r in raw))
    if not all_white(problem.noise, raw):
        began = solver.solve(replace(plain, step=FINE), began, s.iterations, "between kinks", CLOSE)
        return replace(plain, noise=_model_error(plain.noise, plain.raw(began))), began
    return problem, p if s.rounds else solver.polished(problem, p, s.iterations, "to the end")


def _by_error(solver: Solver, problem: Problem, p: np.ndarray, s: Identify) -> tuple[Problem, np.ndarray]:
    """Each channel in units of its own prediction error, which falls as the fit improves."""
    for k in range(max(1, s.rounds)):
        noise = tuple(estimate([r], _freedom(problem), coloured=False) for r in problem.raw(p))
        if k and _alike(noise, problem.noise):
            break
        problem = replace(problem, noise=noise)
        if not problem.size - problem.d:
            p = solver.stepped(problem, p, wide=False)
        p = solver.solve(problem, p, s.iterations, f"by prediction errors, round {k + 1}", CLOSE)
    return replace(problem, noise=tuple(estimate([r], _freedom(problem), coloured=False) for r in problem.raw(p))), p


def _alike(a: tuple[Noise, ...], b: tuple[Noise, ...]) -> bool:
    return all(np.allclose(x.s, y.s, rtol=0.01) and np.allclose(x.rho, y.rho, atol=0.01) for x, y in zip(a, b))


def _model_error(scales: tuple[Noise, ...], raw: list[np.ndarray]) -> tuple[Noise, ...]:
    """Model error as noise: the same fraction of every channel's spread, in every log.

    Weights from each channel's own error would be unstable: the better a channel is fitted, the more it would weigh.
    """
    squares = [np.square(r / a.s) for r, a in zip(raw, scales)]
    share = float(np.sqrt(sum(x.sum() for x in squares) / sum(x.size for x in squares)))
    return tuple(Noise(a.s * max(share, 1e-12), np.zeros(len(a.s))) for a in scales)


def _freedom(problem: Problem) -> int:
    return problem.size // len(problem.cases)


def _by_cma(
    space: Space, worlds: list[World], logs: list[Log], only: tuple[str, ...], s: Identify, z: np.ndarray, watch: Watch
) -> np.ndarray:
    """The minimum of a rough cost by CMA-ES, on windows of the longest first stage, or of the last stage."""
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
