"""DROPO: the p(e) under which a model reproduces a log, as wide as its errors need. Offline, from logs alone.

    phi* = argmax_phi  sum_w log N(x_w; m_w(phi), S_w(phi) + eps I)        (m_w, S_w) of x_w(e), e ~ p_phi

x_w is the state at the end of window w, in units of the rms change over a window, and x_w(e) the model's prediction from
the window's start and controls under e. p_phi are independent truncated normals in y (log e on log dimensions) within the
prior's range, phi = (mu, spread). An exact model needs no spread; physics that the model lacks widens p(e). So the spread
measures the model's error, not a lack of data (Tiboni et al. 2023).

Where several phi explain the log as well, the widest is used: an unknown that the log does not determine keeps its range. The
search is repeated from another start, and `examine` compares the result with it and with the information in the log.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from surefoot.belief import Belief, Box, Gaussian, Truncated
from surefoot.control.sampling import CMA, begin
from surefoot.errors import LogError, SurefootError
from surefoot.log import Log
from surefoot.real2sim.identify.fit import Case, Problem, Space, scales
from surefoot.real2sim.identify.noise import estimate
from surefoot.real2sim.identify.uncertainty import determined, uncertainty
from surefoot.real2sim.replay import Windows, predict, windows
from surefoot.real2sim.signals import measured
from surefoot.report import Progress, Watch
from surefoot.rng import key, stream
from surefoot.verdict import Check
from surefoot.world import Motion, World

FAR = 1e3  # rms changes: the error of a diverged prediction
FEWEST = 3  # windows of a log: fewer do not determine a spread
LEAST, MOST = 1e-5, 0.25  # of the range: bounds of the spread
ALIKE = 0.5  # nats of the whole log: a p(e) with so much less explains it as well
SETTLED = 0.1  # nats of a window that the last quarter of the rounds may still gain
APART = 0.1  # of the range: two searches whose mu of a determined param differ by more, and by two spreads, disagree
NARROWED = 10.0  # times: what the log does not determine must not be narrowed more


@dataclass(frozen=True)
class Dropo:
    """Settings of DROPO."""

    draws: int = 50
    """draws of e for each candidate phi, at the same quantiles for all"""
    eps: float = 1e-3
    """variance added to the predictions, in squared rms changes over a window: sensor noise and tolerance"""
    rounds: int = 30
    """generations of CMA-ES"""
    population: int = 12
    """candidates in each generation"""
    windows: int = 40
    """largest number of windows of the log, evenly chosen"""
    restarts: int = 2
    """searches from different starts; the most likely result is used, and the others are compared with it"""


PLAIN = Dropo()


@dataclass(frozen=True)
class Examined:
    """A belief of DROPO, and what speaks for and against it."""

    belief: Truncated
    checks: tuple[Check, ...]


@dataclass(frozen=True)
class Ended:
    """One search: the best x in [0, 1]^(2 d), and the least cost after each round."""

    x: np.ndarray
    history: np.ndarray


def dropo(
    world: World,
    belief: Belief,
    log: Log,
    length: int = 10,
    how: Dropo = PLAIN,
    seed: int = 0,
    only: tuple[str, ...] = (),
    watch: Watch | None = None,
) -> Truncated:
    """The truncated normals within the belief's range that maximise the likelihood of windows of `length` steps."""
    return examine(world, belief, log, length, how, seed, only, watch).belief


def examine(
    world: World,
    belief: Belief,
    log: Log,
    length: int = 10,
    how: Dropo = PLAIN,
    seed: int = 0,
    only: tuple[str, ...] = (),
    watch: Watch | None = None,
) -> Examined:
    """The belief of `dropo`, with checks of its convergence, of its restarts, and against the information in the log."""
    low, high = belief.support()
    free = np.flatnonzero(low < high)
    if not len(free):
        raise SurefootError("dropo: belief: found every param fixed, expected at least one free")
    if len(log) < FEWEST * length + 1:
        raise LogError(
            f"found {len(log)} rows, expected at least {FEWEST * length + 1}: {FEWEST} windows of {length} control periods"
        )
    if how.restarts < 1:
        raise SurefootError(f"dropo: restarts: found {how.restarts}, expected at least 1")
    pieces = thinned(windows(world, log, length, only=only), how.windows, slice(-1, None))
    cost, candidate = _cost(world, Box(belief.params, low, high), free, pieces, how, seed)
    ends = [_search(cost, len(free), how, seed, k, watch) for k in range(how.restarts)]
    ends.sort(key=lambda end: end.history[-1])
    x = _widest(cost, ends[0].x, len(free), ALIKE / len(pieces), how.population)
    found, known = candidate(x), informed(world, belief, pieces, candidate(x).estimate())
    others = [candidate(end.x) for end in ends[1:]]
    return Examined(found, (_settled(ends[0]), *_agreed(found, others, known), _informed(found, belief, known)))


def _cost(
    world: World, box: Box, free: np.ndarray, pieces: Windows, how: Dropo, seed: int
) -> tuple[Callable[[np.ndarray], np.ndarray], Callable[[np.ndarray], Truncated]]:
    """Minus the mean log likelihood of a window (P,) of candidates (P, 2 d), and the p(e) of a candidate."""
    from scipy.stats.qmc import Halton  # takes a second to import

    shares = Halton(len(box.params), rng=key(seed, "dropo shares")).random(how.draws)  # (draws, d)
    world = world.with_(how.population * how.draws * len(pieces))
    candidate = lambda x: _phi(box, free, x)  # noqa: E731

    def cost(X: np.ndarray) -> np.ndarray:
        e = np.concatenate([candidate(x).quantile(shares) for x in X])
        ends = _ends(pieces, predict(world, pieces, e)).reshape(len(X), how.draws, len(pieces), -1)
        return np.array([-likelihood(each, how.eps) for each in ends])

    return cost, candidate


def _widest(
    cost: Callable[[np.ndarray], np.ndarray], x: np.ndarray, d: int, alike: float, population: int
) -> np.ndarray:
    """The widest p(e) that explains the log as well, one param after the other: the whole range around its middle, or else
    the largest spread around mu."""
    x, limit = x.copy(), np.inf
    for i in range(d):
        tried = np.tile(x, (population, 1))
        tried[1:, d + i] = np.linspace(x[d + i], 1.0, population)[1:]
        tried[-1, i], tried[-1, d + i] = 0.5, 1.0
        costs = cost(tried)
        limit = min(limit, costs[0] + alike)
        x = tried[np.flatnonzero(costs <= limit)[-1]] if (costs <= limit).any() else x
    return x


def informed(world: World, belief: Belief, pieces: Windows, e: np.ndarray) -> np.ndarray:
    """(ne,) whether the windows determine each param at e, as identify says it; a fixed one counts as determined."""
    space, case = Space.of(belief, world.dt / world.substeps), Case(world, pieces, False)
    problem, z = Problem(space, (case,), (scales(case),)), np.clip(space.z(e), 0.02, 0.98)
    noise = tuple(estimate([r], problem.d) for r in problem.raw(z))
    sd = np.sqrt(np.diag(uncertainty(replace(problem, noise=noise), z).cov))
    known = np.ones(len(space.params), bool)
    known[space.free] = [determined(space, int(i), s, e[i]) for i, s in zip(np.flatnonzero(space.free), sd)]
    return known


def _settled(end: Ended) -> Check:
    """Whether the last quarter of the rounds, at least three, gained little; fewer than five rounds do not tell."""
    count = len(end.history)
    last = max(3, count // 4)
    gained = float(end.history[-1 - last] - end.history[-1]) if count > 4 else np.inf
    words = f"gained by a window in the last {last} of {count} rounds" if count > 4 else f"{count} rounds do not tell"
    value = min(gained, FAR)
    return Check(
        "search has converged", value, SETTLED, gained <= SETTLED, f"{words}; --dropo.rounds gives more", unit="nats"
    )


def _agreed(found: Truncated, others: list[Truncated], known: np.ndarray) -> list[Check]:
    """Whether the other searches have the same mu of what the log determines."""
    if not others:
        return []
    width = np.where(found.low < found.high, found.params.y(found.high) - found.params.y(found.low), np.inf)
    apart = np.abs([other.mu - found.mu for other in others]).max(0)
    far = np.where(known & (apart > 2 * found.spread), apart / width, 0.0)
    i = int(np.argmax(far))
    words = f"{len(others) + 1} searches" + (f"; the farthest apart is {found.params.names[i]}" if far[i] > 0 else "")
    return [Check("restarts agree", float(far[i]), APART, far[i] <= APART, words, unit="of the range")]


def _informed(found: Truncated, prior: Belief, known: np.ndarray) -> Check:
    """Whether what the log does not determine has kept its width."""
    times = np.where(known, 1.0, prior.sd() / np.maximum(found.sd(), 1e-300))
    i, loose = int(np.argmax(times)), [n for n, k in zip(found.params.names, known) if not k]
    words = f"not determined by this log, as identify has it: {', '.join(loose)}" if loose else "the log determines all"
    words += f"; {found.params.names[i]} is narrower than the log can tell" if times[i] > NARROWED else ""
    return Check(
        "as wide as the log's information", float(times[i]), NARROWED, times[i] <= NARROWED, words, unit="x narrowed"
    )


def thinned(pieces: Windows, most: int, measured_at: slice) -> Windows:
    """At most `most` windows, evenly chosen, of those without a lost packet at the given steps."""
    seen = [np.isfinite(pieces.target(s)[:, measured_at]).all((1, 2)) for s in pieces.signals]
    whole = np.flatnonzero(np.all(seen, 0))
    if not len(whole):
        raise LogError("every window has lost packets at the steps that are compared; try shorter windows")
    return pieces.some(whole[np.unique(np.round(np.linspace(0, len(whole) - 1, most)).astype(int))])


def _ends(pieces: Windows, motion: Motion) -> np.ndarray:
    """(n, k) prediction minus measurement at the end of each window, in rms changes of a signal's part over a window."""
    found = []
    for s in pieces.signals:
        error = pieces.errors(motion)[s.name][:, -1]
        began = measured(pieces.log, s.name)[pieces.rows]
        change = np.sqrt(np.square(s.error(pieces.target(s)[:, -1], began)).mean(0))
        found.append(
            error / np.maximum(change, 1e-9 + 1e-3 * change.max())
        )  # a part that does not move carries no information
    x = np.concatenate(found, 1)
    return np.clip(np.nan_to_num(x, nan=FAR, posinf=FAR, neginf=-FAR), -FAR, FAR)


def likelihood(x: np.ndarray, eps: float) -> float:
    """Mean over windows of log N(0; m, S + eps I), m and S of the draws' errors x (draws, w, k)."""
    m, k = x.mean(0), x.shape[-1]
    d = x - m
    S = np.einsum("nwi,nwj->wij", d, d) / (len(x) - 1) + eps * np.eye(k)  # (w, k, k)
    distance = (m * np.linalg.solve(S, m[..., None])[..., 0]).sum(-1)
    return float(-0.5 * (distance + np.linalg.slogdet(S)[1] + k * np.log(2 * np.pi)).mean())


def _phi(box: Box, free: np.ndarray, x: np.ndarray) -> Truncated:
    """The normals of a candidate x in [0, 1]^(2 d): mu of the free params from end to end, then the log of their spread."""
    mu, spread = np.full(len(box.low), 0.5), np.full(len(box.low), MOST)
    mu[free], spread[free] = x[: len(free)], LEAST * (MOST / LEAST) ** x[len(free) :]
    ends = Gaussian.around(box.params, box.at(mu), np.eye(len(mu))).mu  # in y
    return Truncated(box.params, ends, spread * np.where(box._width > 0, box._width, 1.0), box.low, box.high)


def _search(
    cost: Callable[[np.ndarray], np.ndarray], d: int, how: Dropo, seed: int, k: int, watch: Watch | None
) -> Ended:
    """CMA-ES in [0, 1]^(2 d): first from the middle of the range, then from random places; half the largest spread."""
    half = 1 - np.log(2) / np.log(MOST / LEAST)
    rng = stream(seed, "dropo search", k) if k else stream(seed, "dropo search")
    x0 = np.concatenate([rng.uniform(0.1, 0.9, d) if k else np.full(d, 0.5), np.full(d, half)])
    search, history = begin(CMA(), x0, 0.2, (0.0, 1.0)), []
    for i in range(how.rounds):
        X = search.ask(how.population, rng)
        search = search.tell(X, cost(X))
        history.append(search.cost)
        if watch is not None:
            words = f"search {k + 1} of {how.restarts}, round {i + 1:3}  log likelihood of a window {-search.cost:8.3f}"
            watch(Progress(words, (k * how.rounds + i + 1) / (how.rounds * how.restarts)))
    return Ended(search.x, np.array(history))
