"""physics: what would make the model expect what the machine did, and what is left when nothing more does?

    surprise of the model = what the best cause explains + what a net of no particular law would + noise

Wrong numbers are fitted (fits.py), effects tried (effects.py), and a law that nobody named is looked for in what is left: a
regression of the surprise on state, speed and control, judged on the half of the log it was not fitted to.
"""

from dataclasses import dataclass

import numpy as np

from surefoot.doctor.evidence.innovations import Variant, follow, gain_of, track, trusting
from surefoot.doctor.evidence.likelihood import Judge, Weighed, weigh
from surefoot.doctor.hypotheses.effects import ingredients, late, limited, missed, wired
from surefoot.doctor.hypotheses.fit import Fits, Fitted
from surefoot.doctor.hypotheses.suspects import Suspects, drags, suspects
from surefoot.log import Log
from surefoot.real2sim.identify.noise import estimate, is_white
from surefoot.report import Progress, Watch, unwatched
from surefoot.sim.engine import Engine, compile_for
from surefoot.sim.learned.features import StateFeatures
from surefoot.sim.model.load import load_robot
from surefoot.task import Task

RIDGE = 10.0  # rows that say a regression's numbers are 0
FAINT = 0.05  # of what is left: a law that explains less is none
VARIES = 10.0  # nats: below it, two halves of a log may differ by chance


@dataclass(frozen=True, eq=False)
class Examined:
    """What physics has to say."""

    weighed: tuple[Weighed, ...]
    """most telling first"""
    judge: Judge
    latencies: dict[float, Weighed]
    """of each delay that was tried, s"""
    fits: Fits
    fitted: tuple[Fitted, ...]


@dataclass(frozen=True)
class Left:
    """What a cause leaves of the surprise."""

    share: float
    """of the surprise that the cause explains; 0 where it says nothing of it"""
    generic: float
    """share of what is left that a law nobody named explains"""
    white: bool
    """whether what is left is noise: white, or nothing that a law without a name explains"""
    varies: str
    """how the cause's numbers differ between the halves of the log; empty where they do not, or where it has none"""


def examine(task: Task, log: Log, watch: Watch = unwatched) -> Examined | None:
    """Causes between controls and signals; None where the log has too little to say."""
    known = suspects(compile_for(load_robot(task.robot).spec, task.params))
    world = doctored(task, known)
    at = track(world, log)
    if at.counts.sum() < 3 * at.channels:
        return None
    watch(Progress("following the log"))
    first = follow(world, at, [Variant(known.params.nominal)], trusting(at.model.nv))[0]
    watch(Progress("turning every number of the model"))
    fits = Fits(known, world, at, gain_of(first, at.dt))
    fitted = fits.run()
    watch(Progress("trying delays and wirings"))
    latencies = late(fits)
    found = [*fits.weighed(fitted), *latencies.values(), *wired(fits), missed(fits), *limited(fits)]
    watch(Progress("trying stiction, backlash and saturation"))
    found += ingredients(fits, task)
    found.append(unnamed(fits)[0])
    found = sorted(found, key=lambda x: -x.cause.evidence)
    return Examined(tuple(found), fits.judge, latencies, fits, tuple(fitted))


def left_by(found: Examined, cause: Weighed | None) -> Left:
    """What a cause leaves; without one, or with one that is in no world, all of the surprise."""
    fits = found.fits
    left = settled(fits, cause)
    generic = unnamed(fits, left)[1]
    own = [x for x in found.fitted if cause is not None and x.suspect.kind == cause.cause.kind]
    return Left(cause.cause.share if cause else 0.0, generic, generic < FAINT or _white(fits, left), varying(fits, own))


def settled(fits: Fits, cause: Weighed | None) -> np.ndarray:
    """What a cause leaves, once the filter knows that it is so: with a gain from the noise of its own surprises."""
    if cause is None:
        return fits.judge.plain
    if cause.again is None:
        return cause.eps
    return cause.again(gain_of(cause.again(trusting(fits.at.model.nv)), fits.at.dt))


def _white(fits: Fits, left: np.ndarray) -> bool:
    left = np.where((fits.judge.good & np.isfinite(left).all(2))[..., None], left, 0.0)
    return is_white([estimate([left], 0).whiten(left)])


def doctored(task: Task, found: Suspects, n: int = 1) -> Engine:
    """The task's world with every suspect's number as an e."""
    model = compile_for(load_robot(task.robot).spec, found.params)
    return Engine(model, found.params, n, task.substeps, 1, (drags(model, found.params),), task.explicit)


def unnamed(fits: Fits, eps: np.ndarray | None = None) -> tuple[Weighed, float]:
    """A law that nobody named: the surprise, regressed on the state; with the share that it explains of the half of the
    segments it was not fitted to."""
    at, judge = fits.at, fits.judge
    eps = judge.plain if eps is None else eps
    before = at.rows[:, :-1]
    act = np.zeros((before.size, at.model.na))
    phi = StateFeatures.of(at.model).read(at.q[before.ravel()], at.v[before.ravel()], at.u[before.ravel()], act)
    last = at.u[at.before(before.ravel())]
    v = at.v[before.ravel()]
    phi = np.concatenate([phi, last, np.abs(v) * v, np.tanh(v / (1e-9 + 0.1 * v.std(0)))], 1)
    phi = np.concatenate([np.ones((len(phi), 1)), (phi - phi.mean(0)) / (phi.std(0) + 1e-9)], 1)
    phi = phi.reshape(*before.shape, -1)
    left, half = eps.copy(), np.arange(len(before)) % 2 == 0
    for own in (half, ~half):
        use = judge.good[own, 1:]
        X, Y = phi[own][use], eps[own, 1:][use]
        B = np.linalg.solve(X.T @ X + RIDGE * np.eye(X.shape[1]), X.T @ Y)
        left[~own, 1:] -= phi[~own] @ B
    a, b = judge.rows(eps), judge.rows(left)
    if len(at.rows) < 2 or not (np.isfinite(b).all() and np.isfinite(a).all()):
        return weigh(
            judge, "missing physics", "physics", "a law that nobody named", judge.plain, 1, evidence=-np.inf
        ), 0.0
    W = np.linalg.inv(judge.spread(b))
    square = lambda r: float(np.einsum("ni,ij,nj->", r, W, r))  # noqa: E731
    words = "a law of state, speed and control that none of the others has"
    return weigh(judge, "missing physics", "physics", words, left, phi.shape[-1] * eps.shape[-1]), max(
        0.0, 1 - square(b) / square(a)
    )


def varying(fits: Fits, fitted: list[Fitted]) -> str:
    """How the best numbers of the first half of a log differ from those of the second."""
    judge = fits.judge
    if not fitted:
        return ""
    best = max(fitted, key=lambda x: judge.evidence(x.eps, x.suspect.size))
    if judge.evidence(best.eps, best.suspect.size) < VARIES:
        return ""
    X, rows = fits.columns([best])[0], judge.rows(best.eps)
    order = np.broadcast_to(fits.at.rows[..., None], (*fits.at.rows.shape, 1))[judge.good][:, 0]
    first = order < np.median(order)
    each = [fits.solve(rows[part], X[part]) for part in (first, ~first)]
    left = np.concatenate([rows[part] + X[part] @ d for part, d in zip((first, ~first), each)])
    gain = judge.likelihood(left) - judge.likelihood(rows) - 0.5 * best.suspect.size * np.log(judge.n)
    if not gain > VARIES:
        return ""
    s, knobs = best.suspect, fits.known.knobs
    words = [", ".join(knobs[i].words(v) for i, v in zip(s.knobs, s.B @ (best.z + d))) for d in each]
    return f"{words[0]} in the first half of the log, {words[1]} in the second"
