"""Dynamics-level retargeting (SPIDER): controls under which physics itself follows a kinematic reference, object and all.

    min_U  max over e of  sum_t |W (q_t - q*_t)|,      x' = f(x, u, e),   u_t = u*_t + interpolated knots of U

Receding horizon: plan `horizon` s, apply `apply` s, go on from where each e then is when all controls so far are replayed open loop. Each plan is a search by sampling around the last
one (control/sampling.py, Softmax): noise shrinks from round to round, and so do virtual contacts: equality constraints that hold
hand and object together in the first rounds (unknowns with the target `constraint`) and are gone in the last. With several e the
controls are one, and the worst of their costs counts. The result replays open loop. Ctrl-C ends a search: what is planned by then is kept.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from surefoot.control.sampling import Softmax, begin
from surefoot.errors import SurefootError
from surefoot.log import Log
from surefoot.params import Params
from surefoot.report import Progress, Watch, unwatched
from surefoot.rng import stream
from surefoot.sim.simulate import simulate
from surefoot.world import Motion, World

GUIDED = 0.5  # of the rounds: virtual contacts are gone after that


@dataclass(frozen=True)
class Plan:
    """Settings of the search. Lengths of time in s; noise in the unit of the controls."""

    noise: float = 0.03
    samples: int = 48
    rounds: int = 8
    horizon: float = 0.8
    knot: float = 0.2
    apply: float = 0.2
    temperature: float = 0.3
    final: float = 0.1
    """of the noise that is left in the last round; 1: not annealed"""
    guide: float = 0.0
    """share of the virtual contacts in the first round, 0 to 1; 0: none"""

    def __post_init__(self) -> None:
        if not 0 < self.apply <= self.horizon or not 0 < self.knot <= self.horizon:
            raise SurefootError(f"plan: found knot {self.knot}, apply {self.apply}, horizon {self.horizon} s, expected knot and apply within the horizon")  # fmt: skip


PLAN = Plan()


@dataclass(frozen=True, eq=False)
class Reference:
    """What kinematics asks for, a row each control period: positions, and the controls that would hold them without physics."""

    q: np.ndarray  # (T, nq)
    u: np.ndarray  # (T, nu)
    weights: np.ndarray  # (nv,) of errors in positions
    reach: np.ndarray | float = 1.0
    """(nu,) of Plan.noise for each control: a hand's place and its fingers have other units"""


Make = Callable[[int], World]
"""n -> n simulations"""


def feasible(
    make: Make, reference: Reference, e: np.ndarray, plan: Plan = PLAN, seed: int = 0, watch: Watch = unwatched
) -> Log:
    """Controls that follow a reference in the worlds e (m, ne), the first of which is in the Log. After Ctrl-C it has fewer rows than the reference."""
    m, T = len(e), len(reference.u)
    world, one = make(plan.samples * m), make(m)
    dt = world.dt
    steps, ahead, every = (max(1, round(x / dt)) for x in (plan.apply, plan.horizon, plan.knot))
    knots = -(-ahead // every) + 1
    q, v = np.repeat(reference.q[:1], m, 0), np.zeros((m, world.state.v.shape[1]))
    U = np.zeros((knots, reference.u.shape[1]))
    so_far: tuple[np.ndarray, Motion] | None = None  # controls that are planned, and what they give
    try:
        for k, t in enumerate(range(0, T, steps)):
            watch(Progress("planning", t / T))
            length = min(ahead, T - t)
            draw = stream(seed, "spider", k)
            U = _planned(world, reference, _At(t, length, q, v, every), U, e, plan, draw)
            u = _controls(reference, t, min(steps, length), U[None], every)[0]
            done = np.concatenate([so_far[0], u]) if so_far else u
            so_far = done, _open_loop(one, done, reference.q[0], e)
            q, v = so_far[1].q[:, -1], so_far[1].v[:, -1]
            U = _shifted(U, steps / every)
    except KeyboardInterrupt:
        if so_far is None:
            raise
    assert so_far is not None  # a reference has a row at least
    done, motion = so_far
    notes = [f"open loop, planned over {m} worlds"]
    notes += [f"planned to {dt * len(done):.3g} of {dt * T:.3g} s"] if len(done) < T else []
    return Log(dt * np.arange(1, len(done) + 1), {"control": done, "q": motion.q[0]}, meta={"notes": notes})


@dataclass(frozen=True, eq=False)
class _At:
    """Where a plan begins: the row of the reference, how many rows it looks ahead, the state of each e, periods between knots."""

    t: int
    length: int
    q: np.ndarray
    v: np.ndarray
    every: int


def _planned(
    world: World, ref: Reference, at: _At, U: np.ndarray, e: np.ndarray, plan: Plan, draw: np.random.Generator
) -> np.ndarray:
    """Knots (k, nu) of the best controls found."""
    t, length, q, v, every = at.t, at.length, at.q, at.v, at.every
    n, m = plan.samples, len(e)
    guides = [i for i, p in enumerate(world.params) if p.target == "constraint"]
    rule = Softmax(plan.rounds, plan.final, temperature=plan.temperature)
    growing = np.geomspace(0.5, 1.0, len(U))[:, None]  # what comes later is less sure
    search = begin(rule, U.ravel(), (plan.noise * ref.reach * growing * np.ones_like(U)).ravel())
    for k in range(plan.rounds):
        X = search.ask(n, draw)
        u = _controls(ref, t, length, X.reshape(n, *U.shape), every)
        worlds = np.repeat(e, n, 0)  # (m n, ne), samples of one e side by side
        worlds[:, guides] = plan.guide * max(0.0, 1 - k / (GUIDED * plan.rounds))
        motion = simulate(world, worlds, np.repeat(q, n, 0), np.repeat(v, n, 0), np.tile(u, (m, 1, 1)))
        cost = errors(world, motion.q, ref.q[t : t + length], ref.weights).sum(1)
        cost[motion.diverged] = np.inf
        search = search.tell(X, cost.reshape(m, n).max(0))
    return search.mean.reshape(U.shape)


def errors(world: World, q: np.ndarray, target: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """(n, T) |W (q - q*)| of positions (n, T, nq)."""
    flat = q.reshape(-1, q.shape[-1])
    off = world.layout.difference(np.tile(target, (len(q), 1)), flat)
    return np.sqrt(((off * weights) ** 2).sum(1)).reshape(q.shape[:2])


def _controls(ref: Reference, t: int, length: int, U: np.ndarray, every: int) -> np.ndarray:
    """(n, length, nu): the reference's, and knots (n, k, nu) with lines between them."""
    at = np.arange(length) / every
    k = np.minimum(at.astype(int), U.shape[1] - 2)
    s = (at - k)[:, None]
    return ref.u[t : t + length] + U[:, k] * (1 - s) + U[:, k + 1] * s


def _open_loop(world: World, u: np.ndarray, q: np.ndarray, e: np.ndarray) -> Motion:
    """What controls (T, nu) give from rest in each e, without virtual contacts."""
    m, none = len(e), e.copy()
    none[:, [i for i, p in enumerate(world.params) if p.target == "constraint"]] = 0.0
    start = np.repeat(q[None], m, 0)
    return simulate(world, none, start, np.zeros((m, world.state.v.shape[1])), np.repeat(u[None], m, 0))


def _shifted(U: np.ndarray, by: float) -> np.ndarray:
    """Knots of the next plan: the same controls, later; the last one stays."""
    at = np.minimum(np.arange(len(U)) + by, len(U) - 1)
    k = np.minimum(at.astype(int), len(U) - 2)
    s = (at - k)[:, None]
    return U[k] * (1 - s) + U[k + 1] * s


def replayed(make: Make, u: np.ndarray, q: np.ndarray, e: np.ndarray) -> np.ndarray:
    """(m, T, nq) that controls (T, nu) give open loop, in one go, in each of the worlds e (m, ne), without virtual contacts."""
    return _open_loop(make(len(e)), u, q, e).q


@dataclass(frozen=True, eq=False)
class Case:
    """A motion to plan."""

    name: str
    part: str
    """whose error is measured: box, can or base"""
    make: Make
    reference: Reference
    params: Params
    e: np.ndarray  # (m, ne) the worlds, the nominal one first
    plan: Plan = PLAN
    places: tuple[int, int] = (0, 3)
    """columns of q with the part's place, or its attitude: from, to"""
    unit: str = "m"
    """rad: the part's attitude is measured, not its place"""

    def off(self, q: np.ndarray) -> np.ndarray:
        """(m, T) how far the part is from its reference, in the unit."""
        part = slice(*self.places)
        at, target = q[..., part], self.reference.q[: q.shape[1], part]
        if self.unit == "m":
            return np.linalg.norm(at - target, axis=2)
        return 2 * np.arccos(np.clip(np.abs((at * target).sum(2)), 0.0, 1.0))

    def replayed(self, u: np.ndarray) -> np.ndarray:
        """(m, T) the same of controls (T, nu), open loop in each world."""
        return self.off(replayed(self.make, u, self.reference.q[0], self.e))

    def world(self, k: int) -> str:
        """What a world is called in a table."""
        if k == 0:
            return "nominal"
        apart = [p for p, x in zip(self.params, self.e[k]) if x != p.nominal]
        if len(apart) > 1:
            return f"drawn, {k}"
        return ", ".join(f"{p.name} {self.e[k][self.params.names.index(p.name)]:.3g}" for p in apart) or f"drawn, {k}"
