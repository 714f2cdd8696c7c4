"""Search by sampling: find x that costs little, where only costs of samples can be had. One loop, five rules.

    X_i = mean + spread * N(0, 1)  within bounds       c_i = cost(X_i)       (mean, spread) = rule(X, c)

    best     mean = the X_i of least c                                      (predictive sampling)
    cem      mean, spread = those of the elites, spread never under a floor
    softmax  mean = sum w_i X_i,  w_i ~ exp(-c_i / temperature)             (MPPI)
    reps     the same with the temperature at which KL(w | uniform) = kl, and spread from w, too
    cma      mean and a full covariance from ranks and paths                (CMA-ES, by the `cma` library)

x is (d,), X (n, d), c (n,): less is better. A cost that is not a number or not finite counts as the worst there is. The
state is all in Search: the same Search, samples and costs give the same next Search, and rules hold settings alone.
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
    """How costs of samples move the search."""

    @abstractmethod
    def tell(self, at: "Search", X: np.ndarray, cost: np.ndarray) -> "Search":
        """The next search. Costs that were not finite are inf here; one at least is finite."""

    def ask(self, at: "Search", n: int, rng: np.random.Generator) -> np.ndarray:
        """(n, d) samples, not yet held to the bounds. The first is the mean, so that no good plan is lost by chance."""
        X = at.mean + at.spread * rng.standard_normal((n, len(at.mean)))
        X[0] = at.mean
        return X


@dataclass(frozen=True, eq=False)
class Search:
    """Where to look next, and the best seen so far."""

    rule: Rule
    mean: np.ndarray  # (d,)
    spread: np.ndarray  # (d,) standard deviation of the samples
    first: np.ndarray  # (d,) the spread it began with
    low: np.ndarray  # (d,)
    high: np.ndarray  # (d,)
    x: np.ndarray  # (d,) the best so far
    cost: float = math.inf  # its cost
    told: int = 0
    memory: Any = None
    """what a rule knows beyond mean and spread; None before the first costs"""

    def ask(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """(n, d) samples within the bounds."""
        return np.clip(self.rule.ask(self, n, rng), self.low, self.high)

    def tell(self, X: np.ndarray, cost: np.ndarray) -> "Search":
        """The next search. Where no cost is finite nothing was learned, and the search stays where it is."""
        X, cost = np.asarray(X, float), np.asarray(cost, float)
        if X.ndim != 2 or X.shape[1] != len(self.mean) or cost.shape != X.shape[:1]:
            raise SurefootError(
                f"search: found samples {X.shape} and costs {cost.shape}, expected (n, {len(self.mean)}) and (n,)"
            )
        cost = np.where(np.isfinite(cost), cost, math.inf)
        if (cost == math.inf).all():
            return replace(self, told=self.told + 1)
        k, following = int(cost.argmin()), self.rule.tell(self, X, cost)
        better = {"x": X[k].copy(), "cost": float(cost[k])} if cost[k] < self.cost else {}
        return replace(following, told=self.told + 1, **better)

    def again(self, x: np.ndarray) -> "Search":
        """A warm start at x, such as a plan moved on in time: the first spread, and nothing seen yet."""
        return begin(self.rule, x, self.first, (self.low, self.high))


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


def _between(low: float, value: float, high: float, name: str, of: object) -> None:
    if not low < value <= high:
        raise SurefootError(f"{type(of).__name__}.{name}: found {value}, expected more than {low:g}, at most {high:g}")


@final
@dataclass(frozen=True)
class Best(Rule):
    """Predictive sampling: go where the best sample is."""

    anneal: float = 1.0
    """the spread times this after every round"""

    def __post_init__(self) -> None:
        _between(0, self.anneal, 1, "anneal", self)

    def tell(self, at: Search, X: np.ndarray, cost: np.ndarray) -> Search:
        return replace(at, mean=X[cost.argmin()].copy(), spread=self.anneal * at.spread)


@final
@dataclass(frozen=True)
class CEM(Rule):
    """Cross-entropy method: the mean and spread of the best few."""

    elite: float = 0.1
    """share of the samples; never fewer than 2"""
    floor: float = 0.01
    """least spread, as a share of the first"""

    def __post_init__(self) -> None:
        _between(0, self.elite, 1, "elite", self)

    def tell(self, at: Search, X: np.ndarray, cost: np.ndarray) -> Search:
        best = X[ranked(cost, self.elite)]
        spread = best.std(0) if len(best) > 1 else at.spread  # one sample tells nothing of a spread
        return replace(at, mean=best.mean(0), spread=np.maximum(spread, self.floor * at.first))


@final
@dataclass(frozen=True)
class Softmax(Rule):
    """MPPI: the mean of the samples, the better the heavier."""

    temperature: float = 0.1
    """in standard deviations of the costs that count; in the cost's own unit where `scaled` is off"""
    top: float = 1.0
    """share of the samples that count at all"""
    anneal: float = 1.0
    """the spread times this after every round"""
    scaled: bool = True
    """divide costs by their standard deviation, so that no temperature need be found for each task"""

    def __post_init__(self) -> None:
        _between(0, self.temperature, math.inf, "temperature", self)
        _between(0, self.top, 1, "top", self)
        _between(0, self.anneal, 1, "anneal", self)

    def tell(self, at: Search, X: np.ndarray, cost: np.ndarray) -> Search:
        best = ranked(cost, self.top)
        unit = float(cost[best].std()) if self.scaled else 1.0
        w = softmax(cost[best], self.temperature * unit)
        return replace(at, mean=w @ X[best], spread=self.anneal * at.spread)


@final
@dataclass(frozen=True)
class REPS(Rule):
    """Relative entropy policy search: softmax weights that stray from equal ones by no more than kl nats."""

    kl: float = 1.0
    """nats: how far one round may go"""
    floor: float = 0.01
    """least spread, as a share of the first"""

    def __post_init__(self) -> None:
        _between(0, self.kl, math.inf, "kl", self)

    def tell(self, at: Search, X: np.ndarray, cost: np.ndarray) -> Search:
        fine = np.isfinite(cost)
        X, cost = X[fine], cost[fine]
        w = softmax(cost, temperature_of(cost, self.kl))
        mean = w @ X
        return replace(at, mean=mean, spread=np.maximum(np.sqrt(w @ (X - mean) ** 2), self.floor * at.first))


@final
@dataclass(frozen=True)
class CMA(Rule):
    """CMA-ES. Learns which way a narrow valley runs; the number of samples stays that of the first round."""

    def ask(self, at: Search, n: int, rng: np.random.Generator) -> np.ndarray:
        es = self._strategy(at, n, lambda k, d: rng.standard_normal((k, d)))
        return np.array(es.ask(n))

    def tell(self, at: Search, X: np.ndarray, cost: np.ndarray) -> Search:
        worst = cost[np.isfinite(cost)].max()
        cost = np.where(np.isfinite(cost), cost, worst + abs(worst) + 1.0)  # ranks alone count: these come last
        es = self._strategy(at, len(X), lambda k, d: np.zeros((k, d)))
        es.ask(len(X))  # the library wants to have been asked; what it answers is of no use here
        es.tell([x.copy() for x in X], cost.tolist(), check_points=False)
        es.sent_solutions.clear()  # to copy them, round after round, would cost more than all else
        mean = np.clip(es.gp.pheno(es.mean, into_bounds=es.boundary_handler.repair), at.low, at.high)
        return replace(at, mean=mean, spread=np.array(es.stds), memory=es)

    def _strategy(self, at: Search, n: int, normal: Callable[[int, int], np.ndarray]) -> Any:
        """A copy of the library's object, because asking and telling change it; its randomness is ours."""
        import cma

        if at.memory is None:
            bounds = [[float(v) if np.isfinite(v) else None for v in side] for side in (at.low, at.high)]
            settings = {"popsize": n, "bounds": bounds, "CMA_stds": at.spread.tolist()}
            silent = {"verbose": -9, "verb_log": 0, "seed": np.nan, "randn": np.zeros}
            es = cma.CMAEvolutionStrategy(at.mean.tolist(), 1.0, settings | silent)
        else:
            es = copy.deepcopy(at.memory)
        es.sm.randn = es.opts["randn"] = normal  # the second: for samples it puts in by itself
        return es


def ranked(cost: np.ndarray, share: float) -> np.ndarray:
    """The best of all samples up to a share of them, 2 where there are as many, best first; never one without a cost."""
    return np.argsort(cost, kind="stable")[: min(max(2, round(share * len(cost))), int(np.isfinite(cost).sum()))]


def softmax(cost: np.ndarray, temperature: float) -> np.ndarray:
    """w (n,) with w_i ~ exp(-cost_i / temperature), sum 1. At 0 the best share all of it."""
    above = cost - cost.min()
    w = np.exp(-above / temperature) if temperature > 0 else (above == 0).astype(float)
    return w / w.sum()


def divergence(w: np.ndarray) -> float:
    """KL(w | uniform) in nats: 0 for equal weights, log n for one that has it all."""
    some = w[w > 0]
    return float(some @ np.log(some)) + math.log(len(w))


def temperature_of(cost: np.ndarray, kl: float) -> float:
    """The temperature at which KL(softmax | uniform) = kl; 0 where even the best alone stray by less.

    It is where the dual of REPS, g(t) = t kl + t log mean exp(-c / t), has its least value: g'(t) = kl - KL(t) = 0.
    """
    unit = float(cost.max() - cost.min())
    if unit == 0 or divergence(softmax(cost, 0.0)) <= kl:
        return 0.0
    low, high = math.log(unit) - 30.0, math.log(unit) + 30.0
    for _ in range(100):  # bisection: KL falls as the temperature grows
        middle = (low + high) / 2
        w = softmax(cost, math.exp(middle))
        low, high = (middle, high) if divergence(w) > kl else (low, middle)
    return math.exp((low + high) / 2)


@dataclass(frozen=True, eq=False)
class Found:
    """The best x that was seen, its cost, and the least cost after each round."""

    x: np.ndarray  # (d,)
    cost: float
    history: np.ndarray  # (iterations,)
    search: Search
    """to go on from"""


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
    """The loop most people need: ask, cost, tell."""
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
