"""Optimisation by sampling: minimise a cost that can only be evaluated at samples. One loop, three rules.

    X_i = mean + spread * N(0, 1)  within bounds       c_i = cost(X_i)       (mean, spread) = rule(X, c)

    CEM      mean, spread = those of the elites, spread never under a floor
    Softmax  mean = sum w_i X_i over the best, w = softmax(-(c - mean c) / (std c) / temperature); spread falls by a schedule
    CMA      mean and a full covariance from ranks and paths                (CMA-ES, by the `cma` library)

x is (d,), X (n, d), c (n,): less is better. A cost that is nan or infinite counts as the worst. All state is in Search: the
same Search, samples and costs give the same next Search; rules are settings only.
"""

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np

from surefoot.errors import SurefootError

Bounds = tuple[np.ndarray | float, np.ndarray | float]
Cost = Callable[[np.ndarray], np.ndarray]
"""(n, d) -> (n,), less is better"""


class Rule(ABC):
    """How the costs of samples update the search."""

    @abstractmethod
    def tell(self, at: "Search", X: np.ndarray, cost: np.ndarray) -> "Search":
        """The next search. Costs that were not finite are inf here; one at least is finite."""

    def ask(self, at: "Search", n: int, rng: np.random.Generator) -> np.ndarray:
        """(n, d) samples before clipping to the bounds. The first is the mean, so that a good plan is not lost by chance."""
        X = at.mean + at.spread * rng.standard_normal((n, len(at.mean)))
        X[0] = at.mean
        return X


@dataclass(frozen=True, eq=False)
class Search:
    """The sampling distribution, and the best sample so far."""

    rule: Rule
    mean: np.ndarray  # (d,)
    spread: np.ndarray  # (d,) standard deviation of the samples
    first: np.ndarray  # (d,) the initial spread
    low: np.ndarray  # (d,)
    high: np.ndarray  # (d,)
    x: np.ndarray  # (d,) the best so far
    cost: float = math.inf  # its cost
    updates: int = 0
    memory: Any = None
    """state of a rule beyond mean and spread; None before the first update"""

    def ask(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """(n, d) samples within the bounds."""
        return np.clip(self.rule.ask(self, n, rng), self.low, self.high)

    def tell(self, X: np.ndarray, cost: np.ndarray) -> "Search":
        """The next search. If no cost is finite the distribution does not change."""
        X, cost = np.asarray(X, float), np.asarray(cost, float)
        if X.ndim != 2 or X.shape[1] != len(self.mean) or cost.shape != X.shape[:1]:
            raise SurefootError(
                f"search: found samples {X.shape} and costs {cost.shape}, expected (n, {len(self.mean)}) and (n,)"
            )
        cost = np.where(np.isfinite(cost), cost, math.inf)
        if (cost == math.inf).all():
            return replace(self, updates=self.updates + 1)
        k, following = int(cost.argmin()), self.rule.tell(self, X, cost)
        better = {"x": X[k].copy(), "cost": float(cost[k])} if cost[k] < self.cost else {}
        return replace(following, updates=self.updates + 1, **better)


def begin(rule: Rule, x0: np.ndarray, spread: np.ndarray | float, bounds: Bounds = (-math.inf, math.inf)) -> Search:
    """A search around x0."""
    x0 = np.array(x0, float)
    spread, low, high = (np.array(np.broadcast_to(v, x0.shape), float) for v in (spread, *bounds))
    if x0.ndim != 1 or not np.isfinite(x0).all():
        raise SurefootError(f"search: x0: found {x0}, expected finite numbers (d,)")
    if not ((spread > 0) & np.isfinite(spread)).all():
        raise SurefootError(f"search: spread: found {spread}, expected numbers above 0")
    if not (low < high).all():
        raise SurefootError(f"search: bounds: found {low} and {high}, expected low < high")
    x0 = np.clip(x0, low, high)
    return Search(rule, x0, spread, spread, low, high, x0)


@final
@dataclass(frozen=True)
class CEM(Rule):
    """Cross-entropy method: the mean and spread of the best few."""

    elite: float = 0.1
    """fraction of the samples; at least 2"""
    floor: float = 0.01
    """smallest spread, as a fraction of the initial one"""

    def __post_init__(self) -> None:
        if not 0 < self.elite <= 1:
            raise SurefootError(f"CEM.elite: found {self.elite}, expected more than 0, at most 1")

    def tell(self, at: Search, X: np.ndarray, cost: np.ndarray) -> Search:
        best = X[ranked(cost, self.elite)]
        spread = best.std(0) if len(best) > 1 else at.spread  # one sample has no spread
        return replace(at, mean=best.mean(0), spread=np.maximum(spread, self.floor * at.first))


@final
@dataclass(frozen=True)
class Softmax(Rule):
    """Path-integral update with annealed noise, as SPIDER and DIAL-MPC have it."""

    rounds: int = 8
    """updates in which the spread falls from the initial one to `final` of it"""
    final: float = 0.1
    """1: noise that is not annealed"""
    top: float = 0.1
    """fraction of the samples that count; at least 2"""
    temperature: float = 0.3
    near: float = 0.05
    """fraction of the samples with a hundredth of the noise, to exploit the mean"""

    def __post_init__(self) -> None:
        for name in ("final", "top", "temperature"):
            if not 0 < getattr(self, name) <= (np.inf if name == "temperature" else 1):
                raise SurefootError(f"Softmax.{name}: found {getattr(self, name)}, expected more than 0, at most 1")

    def ask(self, at: Search, n: int, rng: np.random.Generator) -> np.ndarray:
        noise = rng.standard_normal((n, len(at.mean)))
        noise[n - round(self.near * n) :] *= 0.01
        noise[0] = 0.0
        return at.mean + at.spread * noise

    def tell(self, at: Search, X: np.ndarray, cost: np.ndarray) -> Search:
        best = ranked(cost, self.top)
        score = (cost[best].mean() - cost[best]) / (cost[best].std() + 1e-12) / self.temperature
        w = np.exp(score - score.max())
        share = self.final ** (min(at.updates + 1, self.rounds) / self.rounds)
        return replace(at, mean=w @ X[best] / w.sum(), spread=at.first * share)


@final
@dataclass(frozen=True)
class CMA(Rule):
    """CMA-ES. Adapts a full covariance; the number of samples is that of the first round."""

    def ask(self, at: Search, n: int, rng: np.random.Generator) -> np.ndarray:
        es = self._strategy(at, n, lambda k, d: rng.standard_normal((k, d)))
        return np.array(es.ask(n))

    def tell(self, at: Search, X: np.ndarray, cost: np.ndarray) -> Search:
        worst = cost[np.isfinite(cost)].max()
        cost = np.where(np.isfinite(cost), cost, worst + abs(worst) + 1.0)  # only ranks matter: these come last
        es = self._strategy(at, len(X), lambda k, d: np.zeros((k, d)))
        es.ask(len(X))  # the library requires a call of ask before tell; its samples are not used
        es.tell([x.copy() for x in X], cost.tolist(), check_points=False)
        es.sent_solutions.clear()  # copying them in every round would dominate the cost
        mean = np.clip(es.gp.pheno(es.mean, into_bounds=es.boundary_handler.repair), at.low, at.high)
        return replace(at, mean=mean, spread=np.array(es.stds), memory=es)

    def _strategy(self, at: Search, n: int, normal: Callable[[int, int], np.ndarray]) -> Any:
        """A copy of the library's object, because ask and tell change it; random numbers come from `normal`."""
        import cma

        if at.memory is None:
            bounds = [[float(v) if np.isfinite(v) else None for v in side] for side in (at.low, at.high)]
            settings = {"popsize": n, "bounds": bounds, "CMA_stds": at.spread.tolist()}
            silent = {"verbose": -9, "verb_log": 0, "seed": np.nan, "randn": np.zeros}
            es = cma.CMAEvolutionStrategy(at.mean.tolist(), 1.0, settings | silent)
        else:
            es = copy.deepcopy(at.memory)
        es.sm.randn = es.opts["randn"] = normal  # the second: for samples that it adds by itself
        return es


def ranked(cost: np.ndarray, share: float) -> np.ndarray:
    """Indices of the best fraction of samples, at least 2 if possible, best first; without those of infinite cost."""
    return np.argsort(cost, kind="stable")[: min(max(2, round(share * len(cost))), int(np.isfinite(cost).sum()))]


@dataclass(frozen=True, eq=False)
class Found:
    """The best x, its cost, and the smallest cost after each round."""

    x: np.ndarray  # (d,)
    cost: float
    history: np.ndarray  # (iterations,)
    search: Search
    """the last state, to continue from"""


def minimise(
    cost: Cost,
    x0: np.ndarray,
    spread: np.ndarray | float,
    rule: Rule,
    iterations: int,
    population: int,
    rng: np.random.Generator,
    bounds: Bounds = (-math.inf, math.inf),
) -> Found:
    """The optimisation loop: ask, evaluate, tell."""
    if iterations < 1 or population < 3:
        raise SurefootError(
            f"minimise: found {iterations} iterations of {population}, expected at least 1 of at least 3"
        )
    search, history = begin(rule, x0, spread, bounds), []
    for _ in range(iterations):
        X = search.ask(population, rng)
        search = search.tell(X, cost(X))
        history.append(search.cost)
    if not math.isfinite(search.cost):
        raise SurefootError(f"minimise: none of {iterations * population} samples had a finite cost")
    return Found(search.x, search.cost, np.array(history), search)
