"""Fit a residual force, or a delta action, to a log: labels of short windows, an ensemble of nets, selection by prediction.

    labels g_w (labels.py)  ->  ensemble g(phi) (ensemble.py)  ->  the Term whose model predicts best  ->  test on held-out rows

What counts is not how well nets fit the labels but how well the model with the Term predicts rows that were not used.

    rows of the log:   | train | select (span, round, outputs) | held out: test |
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import nn

from surefoot.belief import Belief
from surefoot.errors import LogError, SurefootError
from surefoot.learn.nets.export import graph_of
from surefoot.log import Log
from surefoot.real2sim.replay import Windows
from surefoot.real2sim.residual.ensemble import Ensemble, FitSettings, Labelled, answers, fit
from surefoot.real2sim.residual.labels import Target, labels
from surefoot.real2sim.residual.log_states import LogStates, log_states
from surefoot.report import Progress, Watch
from surefoot.rng import stream
from surefoot.sim.layout import model_of
from surefoot.sim.learned import DeltaAction, ResidualForce
from surefoot.sim.learned.features import StateFeatures
from surefoot.world import Term, World

FEWEST = 20  # windows to train, and to select by


@dataclass(frozen=True)
class FitResult:
    """A Term, and its prediction error on the held-out rows."""

    term: ResidualForce | DeltaAction
    share: float
    """of the squared prediction error over the horizon that the Term removes"""
    low: float
    """lower end of that share's 95 % confidence interval, by resampling windows"""
    errors: dict[str, dict[str, Any]]
    """signal -> root mean square error at the horizon, without and with the Term, and its unit"""
    facts: dict[str, Any]


@dataclass(frozen=True)
class Candidate:
    """A fitted ensemble with its mean square prediction error on the rows to select by."""

    net: Ensemble
    span: float
    error: float


def term_of(target: Target, world: World, net: nn.Module) -> ResidualForce | DeltaAction:
    """A torch module of phi as a Term that onnxruntime runs."""
    features = StateFeatures.of(model_of(world))
    graph = graph_of(net, len(features.names))
    return ResidualForce(features, graph) if target == "force" else DeltaAction(features, graph)


def fit_term(
    world: World, belief: Belief, log: Log, target: Target, s: FitSettings, seed: int = 0, watch: Watch | None = None,
    beside: Log | None = None,
) -> FitResult:  # fmt: skip
    """Learn what the model lacks. Refused where it explains nothing of the held-out rows. What is learned `beside` the log
    neither selects nor tests."""
    at = log_states(world, belief, log)
    other = None if beside is None else log_states(world, belief, beside)
    every = held_out_windows(at, s)[0]
    ends = [round(f * len(log)) for f in (1 - s.held_out - s.select, 1 - s.held_out)]
    select = every.some((every.rows >= ends[0]) & (every.rows + every.length < ends[1]))
    if len(select) < 2:
        raise _too_short(at, s, "select", ends[0], ends[1])
    best: Candidate | None = None
    tried: list[dict[str, float]] = []
    for k, span in [(0, span) for span in s.spans] + [(k, 0.0) for k in range(1, s.rounds)]:
        if watch is not None:
            most = len(s.spans) + s.rounds - 1
            watch(Progress(f"fit {len(tried) + 1} of {most}", len(tried) / most))
        about = best if k else None
        span = span if about is None else about.span
        net = _fit_span(at, other, target, span, about, ends, s, seed)
        error = float(squared_errors(at, select, (term_of(target, world, net),)).mean())
        tried.append({"span": span, "round": k, "misses": error})
        if best is None or error < best.error:
            best = Candidate(net, span, error)
    assert best is not None
    term = term_of(target, world, _pruned(at, select, target, best))
    return evaluate(at, term, {"target": target, "span": best.span, "tried": tried}, s, seed)


def _fit_span(
    at: LogStates, beside: LogStates | None, target: Target, span: float, about: Candidate | None, ends: list[int], s: FitSettings,
    seed: int,
) -> Ensemble:  # fmt: skip
    """An ensemble fitted to the labels of windows of `span` seconds, computed about an earlier one where there is one."""
    pieces, (phi, y) = _labelled(at, target, span, about, ends[1])
    good = np.isfinite(y).all(1) & np.isfinite(phi).all((1, 2))
    early, late = (good & mask for mask in (pieces.rows + pieces.length < ends[0], pieces.rows >= ends[0]))
    if min(early.sum(), late.sum()) < FEWEST:
        raise LogError(
            f"found {early.sum()} and {late.sum()} windows of {span:g} s to train and to select by, expected at "
            f"least {FEWEST} of each"
        )
    more = None
    if beside is not None:
        _, (x, g) = _labelled(beside, target, span, about, len(beside.log))
        whole = np.isfinite(g).all(1) & np.isfinite(x).all((1, 2))
        if whole.sum() < FEWEST:
            raise LogError(f"beside: found {whole.sum()} windows of {span:g} s, expected at least {FEWEST}")
        more = x[whole], g[whole]
    return _shrunk(fit((phi[early], y[early]), s, seed, more), phi[late], y[late])


def _labelled(
    at: LogStates, target: Target, span: float, about: Candidate | None, end: int
) -> tuple[Windows, Labelled]:
    """Windows of `span` seconds before a row, with their labels; nan where one has none."""
    pieces = at.windows(span, max(1, round(span / at.world.dt / 3)))
    pieces = pieces.some(pieces.rows + pieces.length < end)
    terms = at.world.terms if about is None else (*at.world.terms, term_of(target, at.world, about.net))
    y = labels(at, pieces, target, terms)
    if target == "force":
        y = StateFeatures.of(model_of(at.world)).turned(at.q[pieces.rows + pieces.length // 2], y, back=True)
    rows = pieces.rows[:, None] + np.arange(pieces.length)
    phi = at.phi(rows.ravel()).reshape(*rows.shape, -1)  # (w, h, inputs)
    return pieces, (phi, y if about is None else y + along(about.net, phi))


def along(net: nn.Module, phi: np.ndarray) -> np.ndarray:
    """(w, outputs) mean of a net's answers along windows phi (w, h, inputs)."""
    return answers(net, phi.reshape(-1, phi.shape[2])).reshape(*phi.shape[:2], -1).mean(1)


def _shrunk(net: Ensemble, phi: np.ndarray, y: np.ndarray) -> Ensemble:
    """Each output times b = <g, y> / <g, g> in [0, 1] on labels it was not fitted to: what is only noise becomes 0."""
    g = along(net, phi)
    return net.scaled(np.clip((g * y).sum(0) / np.maximum(np.square(g).sum(0), 1e-30), 0.0, 1.0))


def _pruned(at: LogStates, select: Windows, target: Target, best: Candidate) -> Ensemble:
    """The ensemble without the outputs that predictions are no worse without: sensor noise is in the labels and in phi, too,
    and looks like a law between them."""
    net, error, outputs = best.net, best.error, len(best.net.scale)
    for j in range(outputs):
        less = net.scaled((np.arange(outputs) != j).astype(float))
        now = float(squared_errors(at, select, (term_of(target, at.world, less),)).mean())
        if now <= error:
            net, error = less, now
    return net


def held_out_windows(at: LogStates, s: FitSettings) -> tuple[Windows, Windows]:
    """All windows as long as the horizon, and those of the held-out rows."""
    begin = round((1 - s.held_out) * len(at.log))
    if at.longest(begin, len(at.log)) < round(s.horizon / at.world.dt):
        raise _too_short(at, s, "test", begin, len(at.log))
    every = at.windows(s.horizon, max(1, round(s.horizon / at.world.dt / 5)))
    test = every.some(every.rows >= begin)
    if len(test) < 2:
        raise _too_short(at, s, "test", begin, len(at.log))
    return every, test


def rows_needed(dt: float, s: FitSettings) -> int:
    """Of a log without gaps: its parts to select and to test by hold two horizons each."""
    return int(np.ceil((2 * s.horizon / dt + 1) / min(s.select, s.held_out)))


def _too_short(at: LogStates, s: FitSettings, use: str, begin: int, end: int) -> SurefootError:
    """Two horizons in a row hold windows enough. More rows do not help where gaps, as between episodes, are denser."""
    dt, need = at.world.dt, 2 * s.horizon
    more = f"a longer log, of {rows_needed(dt, s)} rows or more" if (end - begin - 1) * dt < need else f"episodes of at least {need:g} s: record with --policy"  # fmt: skip
    return LogError(
        f"found {len(at.log)} rows, and in the part to {use} by no stretch without a break longer than "
        f"{at.longest(begin, end) * dt:.3g} s, for windows of {s.horizon:g} s; expected {more}"
    )


def squared_errors(at: LogStates, pieces: Windows, terms: tuple[Term, ...]) -> np.ndarray:
    """(w,) mean square prediction error of each window, every signal in units of its noise."""
    with np.errstate(over="ignore", invalid="ignore"):
        each = [np.square(x / at.noise[k]).mean((1, 2)) for k, x in at.errors(pieces, terms).items()]
    return np.nan_to_num(np.mean(each, 0), nan=np.inf, posinf=np.inf)


def evaluate(
    at: LogStates, term: ResidualForce | DeltaAction, facts: dict[str, Any], s: FitSettings, seed: int = 0
) -> FitResult:
    """What a Term explains of the held-out rows; refused where that is nothing."""
    test = held_out_windows(at, s)[1]
    before, after = (squared_errors(at, test, terms) for terms in ((), (term,)))
    share = 1 - float(after.mean() / before.mean())
    rows = stream(seed, "resampled windows").integers(0, len(test), (2000, len(test)))
    low = float(np.quantile(1 - after[rows].mean(1) / before[rows].mean(1), 0.025)) if np.isfinite(share) else -np.inf
    if not low > 0:
        raise LogError(
            f"the Term explains {100 * share:.0f} % of the held-out prediction error (95 % interval from {100 * low:.0f} %): "
            "nothing. Is the model already right, the log too short, or what it lacks not a function of state and control?"
        )
    without, with_ = (_at_horizon(test, at.errors(test, terms)) for terms in ((), (term,)))
    errors = {g.name: {"without": without[g.name], "with": with_[g.name], "unit": g.unit} for g in test.signals}
    about = {"explained": share, "low": low, "windows": len(test), "horizon": s.horizon, "rows": len(at.log)}
    return FitResult(term, share, low, errors, facts | about | {"errors": errors})


def _at_horizon(pieces: Windows, errors: dict[str, np.ndarray]) -> dict[str, float]:
    """Root mean square error of each signal at the windows' ends."""
    return {g.name: float(np.sqrt(np.square(errors[g.name][:, -1]).mean())) for g in pieces.signals}
