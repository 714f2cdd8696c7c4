"""DROPO: the p(e) under which a model reproduces a log, as wide as its errors need. Offline, from logs alone.

    phi* = argmax_phi  sum_w log N(x_w; m_w(phi), S_w(phi) + eps I)        (m_w, S_w) of x_w(e), e ~ p_phi

x_w is the state at the end of window w, in units of the rms change over a window, and x_w(e) the model's prediction from
the window's start and controls under e. p_phi are independent truncated normals in y (log e on log dimensions) within the
prior's range, phi = (mu, spread). An exact model needs no spread; physics that the model lacks widens p(e). So the spread
measures the model's error, not a lack of data (Tiboni et al. 2023).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from surefoot.belief import Belief, Box, Gaussian, Truncated
from surefoot.control.sampling import CMA, begin
from surefoot.errors import LogError, SurefootError
from surefoot.log import Log
from surefoot.real2sim.replay import Windows, predict, windows
from surefoot.real2sim.signals import measured
from surefoot.report import Progress, Watch
from surefoot.rng import key, stream
from surefoot.world import Motion, World

FAR = 1e3  # rms changes: the error of a diverged prediction
FEWEST = 3  # windows of a log: fewer do not determine a spread
LEAST, MOST = 1e-5, 0.25  # of the range: bounds of the spread


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


PLAIN = Dropo()


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
    low, high = belief.support()
    free = np.flatnonzero(low < high)
    if not len(free):
        raise SurefootError("dropo: belief: found every param fixed, expected at least one free")
    if len(log) < FEWEST * length + 1:
        raise LogError(
            f"found {len(log)} rows, expected at least {FEWEST * length + 1}: {FEWEST} windows of {length} control periods"
        )
    pieces = thinned(windows(world, log, length, only=only), how.windows, slice(-1, None))
    from scipy.stats.qmc import Halton  # takes a second to import

    shares = Halton(len(belief.params), rng=key(seed, "dropo shares")).random(how.draws)  # (draws, d)
    world = world.with_(how.population * how.draws * len(pieces))
    candidate = lambda x: _phi(Box(belief.params, low, high), free, x)  # noqa: E731

    def cost(X: np.ndarray) -> np.ndarray:
        """(P,) minus the mean log likelihood of a window, of candidates (P, 2 d)."""
        e = np.concatenate([candidate(x).quantile(shares) for x in X])
        ends = _ends(pieces, predict(world, pieces, e)).reshape(len(X), how.draws, len(pieces), -1)
        return np.array([-likelihood(each, how.eps) for each in ends])

    return candidate(_search(cost, len(free), how, seed, watch))


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


def _search(cost: Callable[[np.ndarray], np.ndarray], d: int, how: Dropo, seed: int, watch: Watch | None) -> np.ndarray:
    """CMA-ES in [0, 1]^(2 d), from the middle of the range and half the largest spread."""
    half = 1 - np.log(2) / np.log(MOST / LEAST)
    rng, x0 = stream(seed, "dropo search"), np.repeat([0.5, half], d)
    search = begin(CMA(), x0, 0.2, (0.0, 1.0))
    for k in range(how.rounds):
        X = search.ask(how.population, rng)
        search = search.tell(X, cost(X))
        if watch is not None:
            words = f"round {k + 1:3} of {how.rounds}  log likelihood of a window {-search.cost:8.3f}"
            watch(Progress(words, (k + 1) / how.rounds))
    return search.x
