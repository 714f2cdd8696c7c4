"""The result of identification: each unknown with its interval, errors before and after, and whether to use it."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import mujoco
import numpy as np

from surefoot.belief import Gaussian
from surefoot.log import Log
from surefoot.real2sim.identify.fit import Case, Problem, Space, scales
from surefoot.real2sim.identify.noise import Noise
from surefoot.real2sim.identify.si import in_si
from surefoot.real2sim.identify.uncertainty import WIDTH, belief_of, combinations, determined, uncertainty
from surefoot.real2sim.replay import longest_window, windows
from surefoot.report import Progress, Watch
from surefoot.sim.layout import model_of
from surefoot.world import World

WORSE = 1.05  # times the error before: more is not by chance


@dataclass(frozen=True)
class Learned:
    """One parameter, before and after."""

    name: str
    unit: str
    before: float
    value: float
    low: float
    high: float
    determined: bool
    at_bound: bool
    si: tuple[float, float, str] | None = None
    """of a multiple: the smallest and largest value that it makes of the model's, and their unit"""


@dataclass(frozen=True)
class Identified:
    """The belief after a fit, and diagnostics that say how far to trust it."""

    belief: Gaussian
    params: tuple[Learned, ...]
    combinations: tuple[str, ...]
    """combinations that the log determines, of parameters that it does not determine one by one"""
    noise: tuple[dict[str, Any], ...]
    """for each log and channel: sd and autocorrelation of the noise"""
    white: bool
    """whether the residuals are white noise; if not, the model lacks physics and intervals come from blocks of time"""
    fit: dict[str, tuple[float, float]]
    """signal -> root mean square error before and after, on the fitted part"""
    held_out: dict[str, tuple[float, float]] = field(default_factory=dict)
    """the same on the held-out part"""
    cost: float = float("nan")
    interrupted: bool = False
    """whether the fit was stopped before its end: the values are the best so far"""

    @property
    def e(self) -> np.ndarray:
        """The fitted values, which are also belief.estimate()."""
        return np.array([x.value for x in self.params])

    @property
    def fault(self) -> str:
        """Why the belief should not be used, or nothing. Errors count as ratios, all signals alike."""
        for where, errors in (("the fitted part", self.fit), ("the held-out part", self.held_out)):
            before, after = np.array([*errors.values()]).T if errors else np.ones((2, 1))
            if not np.isfinite(after).all():
                return f"predictions of {where} diverge"
            worse = np.exp(np.log(np.maximum(after, 1e-15) / np.maximum(before, 1e-15)).mean())
            if worse > WORSE:
                return f"the fit predicts {where} worse than the model before it, with {worse:.2f} times the error"
        return ""

    def facts(self) -> dict[str, Any]:
        return {
            "fault": self.fault, "interrupted": self.interrupted, "params": [vars(p) for p in self.params], "combinations": list(self.combinations), "white": self.white,
            "noise": list(self.noise), "fit": self.fit, "held_out": self.held_out, "belief": self.belief.to_json(),
        }  # fmt: skip


def answer(
    problem: Problem, p: np.ndarray, before: np.ndarray, rest: tuple[Sequence[World], Sequence[Log | None], tuple[str, ...]], watch: Watch
) -> Identified:  # fmt: skip
    watch(Progress("computing intervals"))
    sure = uncertainty(problem, p)
    z = np.clip(p[: problem.d], 0.0, 1.0)
    e = _middle(problem, problem.space.e(z))
    belief = belief_of(problem.space, e, sure.cov + np.diag(np.square(problem.space.grain * WIDTH)))
    learned = _in_si(
        model_of(problem.cases[0].world), _learned(problem.space, z, before, e, sure.cov, belief), problem.space
    )
    loose = np.flatnonzero([not x.determined for x, free in zip(learned, problem.space.free) if free])
    return Identified(
        belief,
        learned,
        combinations(sure.cov, problem.space, loose),
        tuple(_noise_facts(c, n) for c, n in zip(problem.cases, problem.noise)),
        sure.white,
        _errors(problem.cases, before, e),
        _held_out(rest, problem.cases, before, e),
        sure.cost,
    )


def _middle(problem: Problem, e: np.ndarray) -> np.ndarray:
    """Delays at the middle of the interval that the engine cannot tell apart: it rounds them up to whole timesteps."""
    model, space, out = model_of(problem.cases[0].world), problem.space, e.copy()
    kept = {"action_delay": model.actuator_history, "sensor_delay": model.sensor_history}
    for i in np.flatnonzero(space.free):
        history = kept.get(space.params.items[i].target)  # rows of (samples, whether it interpolates)
        if history is not None and not history[:, 1].any():
            steps = np.ceil(e[i] / model.opt.timestep - 1e-6)
            out[i] = np.clip(model.opt.timestep * max(steps - 0.5, 0.0), space.low[i], space.high[i])
    return out


def _learned(
    space: Space, z: np.ndarray, before: np.ndarray, e: np.ndarray, cov: np.ndarray, belief: Gaussian
) -> tuple[Learned, ...]:
    """Each unknown; a delay counts as determined where its timestep is, within which all values are alike."""
    low, high = belief.interval()
    sd = np.zeros(len(space.params))
    sd[space.free] = np.sqrt(np.diag(cov))
    full = np.full(len(space.params), 0.5)
    full[space.free] = z
    return tuple(
        Learned(q.name, q.unit, float(before[i]), float(e[i]), float(low[i]), float(high[i]),
                determined(space, i, sd[i], e[i]), bool(space.free[i] and (full[i] < 1e-6 or full[i] > 1 - 1e-6)))
        for i, q in enumerate(space.params)
    )  # fmt: skip


def _in_si(model: mujoco.MjModel, learned: tuple[Learned, ...], space: Space) -> tuple[Learned, ...]:
    return tuple(replace(x, si=in_si(model, q, x.value)) for x, q in zip(learned, space.params))


def _noise_facts(case: Case, noise: Noise) -> dict[str, Any]:
    parts = [f"{s.name}/{q}" for s in case.pieces.signals for q in (s.parts if s.kind != "quat" else "xyz")]
    return {name: {"sd": float(a), "autocorrelation": float(b)} for name, a, b in zip(parts, noise.sd, noise.rho)}


def _errors(cases: tuple[Case, ...], before: np.ndarray, after: np.ndarray) -> dict[str, tuple[float, float]]:
    """Root mean square error of each signal at two e, over all cases, each from its best-fitting starts."""
    sums: dict[str, np.ndarray] = {}
    for case in cases:
        errors, at = [refitted(case, e) for e in (before, after)], 0
        for s in case.pieces.signals:
            part = [np.square(x[..., at : at + s.size]) for x in errors]
            at += s.size
            sums[s.name] = sums.get(s.name, np.zeros(3)) + [part[0].sum(), part[1].sum(), part[0].size]
    return {name: (float(np.sqrt(a / n)), float(np.sqrt(b / n))) for name, (a, b, n) in sums.items()}


def refitted(case: Case, e: np.ndarray, rounds: int = 3) -> np.ndarray:
    """(w, rows, C) errors at e with each window's start refitted, or as measured where starts are known.

    The noise of the first velocity would otherwise dominate a free prediction.
    """
    w, nx = len(case.pieces), case.nx
    if not nx:
        return case.errors(e[None], None)[0]
    scale, dx, step = scales(case).s, np.zeros((1, w, nx)), 1e-4
    best = case.errors(e[None], dx)[0]
    for _ in range(rounds):
        moves = np.repeat(dx, 2 * nx, 0)
        for k in range(nx):
            moves[k, :, k] += step
            moves[nx + k, :, k] -= step
        r = case.errors(np.tile(e, (2 * nx, 1)), moves) / scale
        J = ((r[:nx] - r[nx:]) / (2 * step)).reshape(nx, w, -1)
        if not np.isfinite(J).all():
            return best
        move = [np.linalg.lstsq(J[:, i].T, -(best[i] / scale).ravel(), rcond=1e-10)[0] for i in range(w)]
        tried = case.errors(e[None], dx + np.array(move))[0]
        if not np.square(tried / scale).sum() < np.square(best / scale).sum():
            return best
        best, dx = tried, dx + np.array(move)
    return best


def _held_out(
    rest: tuple[Sequence[World], Sequence[Log | None], tuple[str, ...]],
    fitted: tuple[Case, ...],
    before: np.ndarray,
    after: np.ndarray,
) -> dict[str, tuple[float, float]]:
    """Errors over the held-out part, in windows as long as the fitted ones, or as it allows."""
    cases = []
    for world, log, case in zip(rest[0], rest[1], fitted):
        if log is not None:
            pieces = windows(world, log, min(case.pieces.length, longest_window(world, log, rest[2])), only=rest[2])
            cases.append(Case(world, pieces, case.free_start))
    return _errors(tuple(cases), before, after) if cases else {}
