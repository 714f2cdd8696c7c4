"""Physics branch: which wrong number, sensor or missing effect explains the innovations, and what remains?

    innovations = part that the best cause explains + part that a generic regression explains + noise

Wrong numbers are fitted (fit.py), effects are searched on grids (effects.py). A law without a name shows as a regression of the
remaining innovations on state, velocity and control, judged on the half of the log it was not fitted to.
"""

from dataclasses import dataclass

import numpy as np

from surefoot.doctor.evidence.innovations import Segments, Variant, full_gain, innovations, segments, steady_gain
from surefoot.doctor.evidence.likelihood import Hypothesis, Likelihood, Weighed, weigh
from surefoot.doctor.hypotheses.by_jobs import ByJobs
from surefoot.doctor.hypotheses.effects import ingredients, latencies, lateness, limits, wirings
from surefoot.doctor.hypotheses.fit import Fit, Fitted, solve
from surefoot.doctor.hypotheses.model_errors import errors_of, world_with
from surefoot.log import Log
from surefoot.real2sim.identify.noise import estimate, is_white
from surefoot.report import Progress, Watch, unwatched
from surefoot.sim.gap.recipe import Plain
from surefoot.sim.layout import model_of
from surefoot.sim.learned.features import StateFeatures
from surefoot.task import Task

RIDGE = 10.0  # rows: weight of the prior that a regression's coefficients are 0
FAINT = 0.05  # of the remaining innovations: a regression that explains less explains nothing
VARIES = 10.0  # nats: below it, two halves of a log may differ by chance


@dataclass(frozen=True, eq=False)
class Examination:
    """Every hypothesis about the physics, weighed."""

    weighed: tuple[Weighed, ...]
    """largest evidence first"""
    latencies: dict[float, Weighed]
    """by delay, s"""
    fit: Fit
    fitted: tuple[Fitted, ...]

    @property
    def likelihood(self) -> Likelihood:
        return self.fit.likelihood

    def of(self, kind: str) -> Weighed | None:
        return next((x for x in self.weighed if x.cause.kind == kind), None)


@dataclass(frozen=True)
class Remainder:
    """The innovations that a cause does not explain."""

    share: float
    """of the innovations that the cause explains; 0 where it predicts none"""
    generic: float
    """share of the rest that a generic regression explains"""
    white: bool
    """whether the rest is noise: white, or with nothing that a regression explains"""
    varies: str
    """how the cause's numbers differ between the halves of the log; empty where they do not, or where it has none"""


def examine(task: Task, log: Log, watch: Watch = unwatched, by: ByJobs | None = None) -> Examination | None:
    """Causes between controls and signals; None where the log has too few rows in sequence."""
    errors = errors_of(task)
    world = world_with(task, errors)
    at = segments(world, log)
    if at.counts.sum() < 3 * at.channels:
        return None
    watch(Progress("filtering the log"))
    first = innovations(world, at, [Variant(errors.params.nominal)], full_gain(at.world.nv))[0]
    watch(Progress("fitting every number of the model"))
    fit = Fit(errors, world, at, steady_gain(first, at.dt), by)
    fitted = fit.run()
    if len(Plain(model_of(world)).touching):
        watch(Progress("searching the numbers of the model"))
        fitted += fit.searched()
    watch(Progress("trying delays and wirings"))
    delays = latencies(fit)
    found = [*map(fit.weigh, fitted), *delays.values(), *wirings(fit), lateness(fit), *limits(fit)]
    watch(Progress("trying stiction, backlash and saturation"))
    found += ingredients(fit, task)
    found.append(regression(fit)[0])
    return Examination(tuple(sorted(found, key=lambda x: -x.cause.evidence)), delays, fit, tuple(fitted))


def remainder(found: Examination, cause: Weighed | None) -> Remainder:
    """What a cause does not explain; without a cause, or with one that is in no world, all innovations."""
    fit = found.fit
    left = _refiltered(fit, cause)
    generic = regression(fit, left)[1]
    own = [x for x in found.fitted if cause is not None and x.error.kind == cause.cause.kind]
    white = generic < FAINT or _white(fit, left)
    return Remainder(cause.cause.share if cause else 0.0, generic, white, varying(fit, own))


def _refiltered(fit: Fit, cause: Weighed | None) -> np.ndarray:
    """Innovations under a cause, with the gain from their own noise."""
    if cause is None:
        return fit.likelihood.plain
    under = cause.hypothesis.innovations
    if under is None:
        return cause.eps
    return under(steady_gain(under(full_gain(fit.at.world.nv)), fit.at.dt))


def _white(fit: Fit, left: np.ndarray) -> bool:
    left = np.where((fit.likelihood.good & np.isfinite(left).all(2))[..., None], left, 0.0)
    return is_white([estimate([left], 0).whiten(left)])


def regression(fit: Fit, eps: np.ndarray | None = None) -> tuple[Weighed, float]:
    """Innovations regressed on state, velocity and control: the hypothesis of a law without a name, and the share that it
    explains in the half of the segments it was not fitted to."""
    L = fit.likelihood
    eps = L.plain if eps is None else eps
    phi = _features(fit.at)
    left, half = eps.copy(), np.arange(len(phi)) % 2 == 0
    for own in (half, ~half):
        use = L.good[own, 1:]
        X, Y = phi[own][use], eps[own, 1:][use]
        B = np.linalg.solve(X.T @ X + RIDGE * np.eye(X.shape[1]), X.T @ Y)
        left[~own, 1:] -= phi[~own] @ B
    a, b = L.rows(eps), L.rows(left)
    about = "a law of state, velocity and control that no other cause has"
    h = Hypothesis("missing physics", "physics", about, phi.shape[-1] * eps.shape[-1])
    if len(phi) < 2 or not (np.isfinite(b).all() and np.isfinite(a).all()):
        return weigh(L, h, L.plain, -np.inf), 0.0
    return weigh(L, h, left), L.explained(a, b)


def _features(at: Segments) -> np.ndarray:
    """(s, w - 1, k) of each row before an innovation, standardised, with a constant."""
    rows = at.rows[:, :-1].ravel()
    v = at.v[rows]
    state = StateFeatures.of(model_of(at.world)).read(at.q[rows], v, at.u[rows], np.zeros((len(rows), at.world.na)))
    phi = np.concatenate([state, at.u[at.before(rows)], np.abs(v) * v, np.tanh(v / (1e-9 + 0.1 * v.std(0)))], 1)
    phi = np.concatenate([np.ones((len(phi), 1)), (phi - phi.mean(0)) / (phi.std(0) + 1e-9)], 1)
    return phi.reshape(*at.rows[:, :-1].shape, -1)


def varying(fit: Fit, fitted: list[Fitted]) -> str:
    """How the best numbers of the first half of a log differ from those of the second; empty where they do not."""
    L = fit.likelihood
    if not fitted:
        return ""
    best = max(fitted, key=lambda x: L.evidence(x.eps, x.error.size))
    if L.evidence(best.eps, best.error.size) < VARIES:
        return ""
    X, rows = fit.jacobians([best])[0], L.rows(best.eps)
    order = fit.at.rows[L.good]
    first = order < np.median(order)
    each = [solve(L, rows[part], X[part]) for part in (first, ~first)]
    left = np.concatenate([rows[part] + X[part] @ d for part, d in zip((first, ~first), each)])
    if not L.log(left) - L.log(rows) - 0.5 * best.error.size * np.log(L.n) > VARIES:
        return ""
    s, own = best.error, [fit.errors.deviations[i] for i in best.error.deviations]
    words = [", ".join(x.words(v) for x, v in zip(own, s.B @ (best.z + d))) for d in each]
    return f"{words[0]} in the first half of the log, {words[1]} in the second"
