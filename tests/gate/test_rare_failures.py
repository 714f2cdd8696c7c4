"""Worlds where a policy fails are found with few episodes, and their probability is told with an interval."""

import numpy as np
import pytest

from surefoot.belief import Box, Gaussian, Particles, point
from surefoot.errors import SurefootError
from surefoot.gate.statistics import rare_failures
from surefoot.gate.statistics.rare_failures import search
from surefoot.gate.statistics.surrogate import fit
from surefoot.params import Param, Params

PARAMS = Params(
    (
        Param("mass", "mass", 1.0, 0.5, 2.0, log=True),
        Param("slope", "slope", 0.0, -1.0, 1.0, op="set"),
        Param("wind", "wind", 0.0, 0.0, 10.0, op="set", unit="m/s"),
    )
)
BELIEF = Box.full(PARAMS)


@pytest.fixture(autouse=True)
def smaller(monkeypatch):
    """Enough worlds for a failure of one in a hundred or in a thousand."""
    monkeypatch.setattr(rare_failures, "POOL", 50_000)
    monkeypatch.setattr(rare_failures, "FEWER", 20_000)


def steep_and_windy(e):
    """Fails above 0.8 of slope and 9.8 m/s of wind: 0.1 x 0.02 = 0.002 of worlds; mass does not matter."""
    margin = np.maximum(0.8 - e[:, 1], (9.8 - e[:, 2]) / 5)
    return margin > 0, margin


def test_a_surrogate_goes_through_what_it_was_told_and_is_sure_there():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((40, 2))
    guess, _ = fit(x, np.sin(2 * x[:, 0]))
    mean, sd = guess(x)
    assert np.abs(mean - np.sin(2 * x[:, 0])).max() < 0.02 and sd.max() < 0.05
    assert guess.lengths[1] > 5 * guess.lengths[0]  # the second input does not matter
    assert guess(np.array([[8.0, 0.0]]))[1] > 10 * sd.max()
    assert guess.mean(x) == pytest.approx(mean)


def test_a_rare_failure_is_found_in_a_tenth_of_the_episodes_of_random_search():
    found = [search(steep_and_windy, BELIEF, seed) for seed in range(4)]
    for w in found:
        assert w.first is not None and w.first <= 50 and w.episodes <= 400
        assert (w.failures[:, 1] >= 0.8).all() and (w.failures[:, 2] >= 9.8).all()
        assert (w.worst == w.failures[0]).all() and w.margin < 0
    assert sum(w.rate.low <= 0.002 <= w.rate.high for w in found) >= 3
    assert np.median([w.rate.value for w in found]) == pytest.approx(0.002, rel=0.4)


def test_the_same_seed_finds_the_same_worlds():
    a, b = (search(steep_and_windy, BELIEF, 3, judge=20) for _ in range(2))
    assert (a.failures == b.failures).all() and a.rate == b.rate


def test_a_policy_that_never_fails_gets_an_upper_bound_from_the_belief_alone():
    w = search(lambda e: (np.ones(len(e), bool), e[:, 0]), BELIEF, 0, find=30, learn=20, judge=60)
    assert w.first is None and len(w.failures) == 0 and w.rate.value == 0.0
    assert w.rate.n == 100 and w.rate.high == pytest.approx(1 - 0.025 ** (1 / 100)) and w.episodes == 110


def test_a_policy_that_always_fails_is_found_out_in_one_episode():
    w = search(lambda e: (np.zeros(len(e), bool), -e[:, 0]), BELIEF, 0, find=20, learn=10, judge=40)
    assert w.first == 1 and w.rate.high == pytest.approx(1.0, abs=0.1) and w.rate.low < w.rate.high


def test_a_constant_margin_is_no_reason_to_stop():
    w = search(lambda e: (e[:, 1] < 0.8, np.zeros(len(e))), BELIEF, 1, find=60, learn=20, judge=100)
    assert w.first is not None and w.rate.low <= 0.1 <= w.rate.high


def test_beliefs_of_other_kinds_are_searched_as_well():
    g = Gaussian.around(PARAMS, [1.0, 0.0, 5.0], np.diag([0.01, 0.01, 1.0]))
    w = search(lambda e: (e[:, 1] < 0.28, 0.28 - e[:, 1]), g, 0, learn=60)  # 2.8 sd: 0.00256
    assert w.first is not None and w.first <= 60 and w.rate.value == pytest.approx(0.00256, rel=0.5)
    particles = Particles(PARAMS, BELIEF.sample(np.random.default_rng(0), 500), np.ones(500))
    assert search(steep_and_windy, particles, 0, find=20, learn=10, judge=10).episodes >= 20


def test_nothing_to_search_and_scores_of_the_wrong_shape_are_refused():
    with pytest.raises(SurefootError, match="fixes every unknown"):
        search(steep_and_windy, point(PARAMS, [1.0, 0.0, 5.0]), 0)
    with pytest.raises(SurefootError, match="finite margin"):
        search(lambda e: (np.ones(len(e), bool), np.full(len(e), np.nan)), BELIEF, 0)
    with pytest.raises(SurefootError, match="find >= 20"):
        search(steep_and_windy, BELIEF, 0, find=5)


def test_worlds_that_were_drawn_before_are_not_drawn_again():
    """200 worlds without a failure bound the rate as 160 of its own did; the search adds only those it chooses."""
    tried = []

    def never(e):
        tried.append(len(e))
        return np.ones(len(e), bool), 1.0 - 0.1 * e[:, 1]

    e = BELIEF.sample(np.random.default_rng(0), 200)
    found = search(never, BELIEF, 0, 60, 40, 100, drawn=(e, *never(e)))
    assert sum(tried[1:]) == 40 and found.episodes == 240 and found.first is None
    assert found.rate.n == 200 and found.rate.high == pytest.approx(1 - 0.025 ** (1 / 200), rel=1e-6)


@pytest.mark.slow
def test_a_search_that_knows_drawn_worlds_covers_the_truth_as_one_that_does_not():
    """The analytic rate 0.002 lies within 95 % intervals of 20 searches at least 17 times, by either way."""
    for known in (False, True):
        covers = 0
        for seed in range(20):
            e = BELIEF.sample(np.random.default_rng(100 + seed), 200)
            drawn = (e, *steep_and_windy(e)) if known else None
            rate = search(steep_and_windy, BELIEF, seed, 60, 40, 100, drawn=drawn).rate
            covers += rate.low <= 0.002 <= rate.high
        assert covers >= 17
