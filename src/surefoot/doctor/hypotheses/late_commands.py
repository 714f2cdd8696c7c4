"""Late commands: a command arrives after its period with probability p, and the motors keep the one before.

    w(k) = u(k) with probability 1 - p,  w(k-1) otherwise           w: what the motors had

Two filters run along the log, one with u(k), the other with w(k-1); each row continues from the more likely one. With S the noise
of their innovations, S and p are estimated in turns (expectation-maximisation):

    L = sum_k log((1 - p) N(eps_u(k); S) + p N(eps_w(k); S))
"""

from dataclasses import dataclass

import numpy as np

from surefoot.doctor.evidence.innovations import Gain, Segments
from surefoot.doctor.evidence.likelihood import Likelihood
from surefoot.world import Chance, Start, World

ROUNDS = 3
FEWEST = 0.01  # share of late commands: fewer are not looked for


@dataclass(frozen=True, eq=False)
class Late:
    likelihood: float
    """L"""
    p: float
    eps: np.ndarray
    """(s, w, c) innovations of the more likely filter at each row"""


def late_commands(world: World, at: Segments, gain: Gain, e: np.ndarray, likelihood: Likelihood) -> Late:
    """The most likely share of late commands."""
    good, S = likelihood.good, likelihood.covariance(likelihood.rows(likelihood.plain))
    p, best = 0.2, Late(-np.inf, 0.0, np.zeros(0))
    for _ in range(ROUNDS):
        fresh, late, share = _filters(world, at, gain, e, S, p)
        r, q = fresh[good], late[good]
        log, weight = mixture(r, q, S, p)
        if not log.sum() > best.likelihood:
            break
        p = float(np.clip(weight.mean(), FEWEST, 1 - FEWEST))
        best = Late(float(log.sum()), p, np.where((share > 0.5)[..., None], late, fresh))
        S = ((1 - weight)[:, None] * r).T @ r / len(r) + (weight[:, None] * q).T @ q / len(r)
        S += np.diag(likelihood.floor**2)
    return best


def mixture(fresh: np.ndarray, late: np.ndarray, S: np.ndarray, p: float) -> tuple[np.ndarray, np.ndarray]:
    """(n,) log((1 - p) N(fresh; S) + p N(late; S)), and the posterior probability of the second part."""
    a, b = log_normal(fresh, S) + np.log(1 - p), log_normal(late, S) + np.log(p)
    return np.logaddexp(a, b), 1 / (1 + np.exp(np.clip(a - b, -500, 500)))


def log_normal(eps: np.ndarray, S: np.ndarray) -> np.ndarray:
    """(n,) log N(eps; S) without the factor of 2 pi."""
    white = np.linalg.solve(S, eps.T).T
    return np.asarray(-0.5 * (eps * white).sum(1) - 0.5 * np.linalg.slogdet(S)[1])


def _filters(
    world: World, at: Segments, gain: Gain, e: np.ndarray, S: np.ndarray, p: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Innovations (s, w, c) with the new command and with the one before, and the probability (s, w) of the second."""
    (s, w), nv = at.rows.shape, at.world.nv
    world = world.with_(2 * s)
    first = at.rows[:, 0]
    last = at.u[at.before(first)]
    twice = lambda a: np.concatenate([a, a])  # noqa: E731
    act = twice(last) if at.world.na == at.world.nu else None
    start = Start(twice(at.q[first]), twice(at.v[first]), twice(last), act)
    world.reset(np.arange(2 * s), np.tile(e, (2 * s, 1)), start)
    fresh, late, share = np.full((s, w, 2 * nv), np.nan), np.full((s, w, 2 * nv), np.nan), np.zeros((s, w))
    for k in range(w - 1):
        now = at.u[at.rows[:, k]]
        world.step(np.concatenate([now, last]), Chance(0, k, at.dt))
        rows, q, v = at.rows[:, k + 1], world.state.q.copy(), world.state.v.copy()
        eps = np.concatenate([at.layout.difference(q, twice(at.q[rows])), twice(at.v[rows]) - v], 1)
        share[:, k + 1] = np.where(at.measured[rows], mixture(eps[:s], eps[s:], S, p)[1], p)
        take = np.arange(s) + s * (share[:, k + 1] > 0.5)
        last = np.where((take >= s)[:, None], last, now)
        fresh[:, k + 1], late[:, k + 1] = eps[:s], eps[s:]
        fix = (eps[take] if k < at.settle else gain(eps[take])) * at.measured[rows][:, None]
        if at.world.na:
            world.load({name: x[twice(take)] for name, x in world.save().items()})
        world.set_state(twice(at.layout.moved(q[take], fix[:, :nv])), twice(v[take] + fix[:, nv:]))
    return fresh, late, share
