"""Every rule finds a known optimum, keeps its own law, ignores what is not a number and repeats its bits."""

import math

import numpy as np
import pytest

from surefoot.control.sampling import CEM, CMA, begin, minimise
from surefoot.errors import SurefootError

RULES = [CEM(), CMA()]
EVERY = pytest.mark.parametrize("rule", RULES, ids=lambda r: type(r).__name__)
AT = np.array([0.3, -0.7, 1.1, 0.0])


def bowl(X):
    """Its least value is 2 at AT; the directions differ tenfold in steepness."""
    return 2.0 + ((X - AT) ** 2 * np.array([1.0, 3.0, 10.0, 1.0])).sum(1)


def rosenbrock(X):
    """A bent valley whose floor is 0 at (1, ..., 1)."""
    return (100 * (X[:, 1:] - X[:, :-1] ** 2) ** 2 + (1 - X[:, :-1]) ** 2).sum(1)


def found(rule, seed=0, cost=bowl, iterations=60, **kw):
    return minimise(cost, np.zeros(4), 0.7, rule, iterations, 48, np.random.default_rng(seed), **kw)


@EVERY
def test_a_rule_finds_the_bottom_of_a_bowl(rule):
    result = found(rule)
    assert result.cost - 2.0 < 2e-3
    np.testing.assert_allclose(result.x, AT, atol=0.03)
    assert (np.diff(result.history) <= 0).all() and result.history[-1] == result.cost


@EVERY
def test_bounds_hold_and_the_optimum_on_them_is_found(rule):
    seen = []
    inside = lambda X: (seen.append(X), bowl(X))[1]  # noqa: E731
    low, high = np.full(4, -1.0), np.array([1.0, 1.0, 0.5, 1.0])
    result = found(rule, cost=inside, bounds=(low, high))
    assert (np.concatenate(seen) >= low).all() and (np.concatenate(seen) <= high).all()
    np.testing.assert_allclose(result.x, np.clip(AT, low, high), atol=0.04)


@EVERY
def test_what_is_not_a_number_never_wins(rule):
    def cost(X):
        c = bowl(X)
        c[X[:, 0] > 0.4] = np.nan  # a third of the samples at first
        c[X[:, 1] > 0.5] = -np.inf
        return c

    result = found(rule, cost=cost)
    assert result.cost - 2.0 < 2e-3 and np.isfinite(result.history[-1])


@EVERY
def test_a_round_without_any_cost_changes_nothing(rule):
    search = begin(rule, np.zeros(4), 0.5)
    X = search.ask(16, np.random.default_rng(0))
    after = search.tell(X, np.full(16, np.nan))
    np.testing.assert_array_equal(after.mean, search.mean)
    np.testing.assert_array_equal(after.spread, search.spread)
    with pytest.raises(SurefootError, match="none of 80 samples"):
        minimise(lambda X: np.full(len(X), np.inf), np.zeros(2), 1.0, rule, 5, 16, np.random.default_rng(0))


@EVERY
def test_same_seed_same_bits_and_another_seed_others(rule):
    one, two, other = found(rule, 1), found(rule, 1), found(rule, 2)
    assert one.x.tobytes() == two.x.tobytes() and one.history.tobytes() == two.history.tobytes()
    assert one.x.tobytes() != other.x.tobytes()


@EVERY
def test_a_search_is_not_changed_by_being_used(rule):
    search, rng = begin(rule, np.zeros(4), 0.5), np.random.default_rng(3)
    for _ in range(3):
        X = search.ask(16, rng)
        search = search.tell(X, bowl(X))
    X = search.ask(16, np.random.default_rng(9))
    first = search.tell(X, bowl(X))
    second = search.tell(search.ask(16, np.random.default_rng(9)), bowl(X))
    np.testing.assert_array_equal(search.ask(16, np.random.default_rng(9)), X)
    np.testing.assert_array_equal(first.mean, second.mean)
    np.testing.assert_array_equal(first.spread, second.spread)


def test_cma_learns_the_bend_of_rosenbrocks_valley():
    result = minimise(rosenbrock, np.full(5, -0.5), 0.5, CMA(), 300, 16, np.random.default_rng(0))
    assert result.cost < 1e-8
    np.testing.assert_allclose(result.x, 1.0, atol=1e-3)


def test_cma_walks_as_the_library_by_itself():
    import cma

    mine, theirs = np.random.default_rng(5), np.random.default_rng(5)
    settings = {"popsize": 12, "verbose": -9, "verb_log": 0, "seed": np.nan, "CMA_stds": [0.4, 0.8, 0.4, 0.4]}
    normal = lambda n, d: theirs.standard_normal((n, d))  # noqa: E731
    es = cma.CMAEvolutionStrategy([0.0] * 4, 1.0, settings | {"randn": normal})
    search = begin(CMA(), np.zeros(4), np.array([0.4, 0.8, 0.4, 0.4]))
    for _ in range(40):
        X, Y = search.ask(12, mine), es.ask()
        np.testing.assert_allclose(X, Y, rtol=1e-12, atol=1e-14)
        search = search.tell(X, bowl(X))
        es.tell(Y, bowl(np.array(Y)).tolist())


def test_cem_takes_mean_and_spread_of_its_elites_above_a_floor():
    X = np.array([[0.0], [1.0], [2.0], [10.0], [20.0], [30.0], [40.0], [50.0]])
    after = begin(CEM(elite=0.375, floor=0.05), np.zeros(1), 2.0).tell(X, X[:, 0])
    assert after.mean[0] == pytest.approx(1.0) and after.spread[0] == pytest.approx(math.sqrt(2 / 3))
    still = begin(CEM(elite=0.375, floor=0.05), np.zeros(1), 2.0).tell(np.zeros((8, 1)), np.zeros(8))
    assert still.spread[0] == pytest.approx(0.1)


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda: CEM(elite=0.0), "CEM.elite"),
        (lambda: begin(CEM(), np.zeros(2), 0.0), "spread"),
        (lambda: begin(CEM(), np.zeros(2), 1.0, (1.0, 1.0)), "bounds"),
        (lambda: begin(CEM(), np.array([np.nan]), 1.0), "x0"),
        (lambda: begin(CEM(), np.zeros(2), 1.0).tell(np.zeros((3, 2)), np.zeros(2)), "expected"),
    ],
)
def test_bad_settings_are_said(make, words):
    with pytest.raises(SurefootError, match=words):
        make()
