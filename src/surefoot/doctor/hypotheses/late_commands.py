"""held: a command that comes too late for its period, so that the last one holds.

    w(k) = u(k) with probability 1 - p,  w(k-1) otherwise           w: what the motors had

Two worlds walk along the log, one told u(k), the other w(k-1); at each row the one that expected better is believed. With the
noise S of what is left, and p, found by taking turns:

    L = sum_k log((1 - p) N(eps_u(k); S) + p N(eps_w(k); S))
"""

import numpy as np

from surefoot.doctor.evidence.innovations import Gain, Track, difference, moved
from surefoot.world import Chance, Start, World

ROUNDS = 3
FEWEST = 0.01  # commands late: fewer are not looked for


def held(
    world: World, at: Track, gain: Gain, e: np.ndarray, good: np.ndarray, S: np.ndarray, floor: np.ndarray
) -> tuple[float, float, np.ndarray]:
    """(L, p, surprises (s, w, c) of the believed): good (s, w) are the rows that count, S (c, c) the noise to begin with."""
    p, found = 0.2, (-np.inf, 0.0, np.zeros(0))
    for _ in range(ROUNDS):
        fresh, late, share = _walk(world, at, gain, e, S, p)
        a, b = _log(fresh[good], S) + np.log(1 - p), _log(late[good], S) + np.log(p)
        weight = 1 / (1 + np.exp(np.clip(a - b, -500, 500)))
        believed = np.where((share > 0.5)[..., None], late, fresh)
        L = float(np.logaddexp(a, b).sum())
        if not L > found[0]:
            break
        p = float(np.clip(weight.mean(), FEWEST, 1 - FEWEST))
        found = (L, p, believed)
        r, q = fresh[good], late[good]
        S = ((1 - weight)[:, None] * r).T @ r / len(r) + (weight[:, None] * q).T @ q / len(r) + np.diag(floor**2)
    return found


def _walk(
    world: World, at: Track, gain: Gain, e: np.ndarray, S: np.ndarray, p: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Surprises (s, w, c) of the world told anew and of the one told nothing new, and the weight (s, w) of the second."""
    (s, w), nv = at.rows.shape, at.model.nv
    world = world.with_(2 * s)
    first = at.rows[:, 0]
    last = at.u[at.before(first)]
    twice = lambda a: np.concatenate([a, a])  # noqa: E731
    act = twice(last) if at.model.na == at.model.nu else None
    world.reset(
        np.arange(2 * s), np.tile(e, (2 * s, 1)), Start(twice(at.q[first]), twice(at.v[first]), twice(last), act)
    )
    fresh, late, share = np.full((s, w, 2 * nv), np.nan), np.full((s, w, 2 * nv), np.nan), np.zeros((s, w))
    for k in range(w - 1):
        now = at.u[at.rows[:, k]]
        world.step(np.concatenate([now, last]), Chance(0, k, at.dt))
        rows, q, v = at.rows[:, k + 1], world.state.q.copy(), world.state.v.copy()
        eps = np.concatenate([difference(at.model, q, twice(at.q[rows])), twice(at.v[rows]) - v], 1)
        a, b = _log(eps[:s], S) + np.log(1 - p), _log(eps[s:], S) + np.log(p)
        share[:, k + 1] = np.where(at.seen[rows], 1 / (1 + np.exp(np.clip(a - b, -500, 500))), p)
        take = np.arange(s) + s * (share[:, k + 1] > 0.5)
        last = np.where((take >= s)[:, None], last, now)
        fresh[:, k + 1], late[:, k + 1] = eps[:s], eps[s:]
        fix = (eps[take] if k < at.settle else gain(eps[take])) * at.seen[rows][:, None]
        if at.model.na:
            world.load({name: x[twice(take)] for name, x in world.save().items()})
        world.set_state(twice(moved(at.model, q[take], fix[:, :nv])), twice(v[take] + fix[:, nv:]))
    return fresh, late, share


def _log(eps: np.ndarray, S: np.ndarray) -> np.ndarray:
    """(n,) log N(eps; S) without the 2 pi."""
    whole = np.linalg.solve(S, eps.T).T
    return np.asarray(-0.5 * (eps * whole).sum(1) - 0.5 * np.linalg.slogdet(S)[1])
