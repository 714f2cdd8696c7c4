"""Numbers with intervals: exact where they say so, and refused where the sample cannot bear them."""

import math

import numpy as np
import pytest
from scipy import stats

from surefoot.errors import SurefootError
from surefoot.gate.statistics import Estimate, claim, iqm, iqm_interval, mean, needed, rate, seeds


def test_a_rate_is_the_share_of_successes_with_its_exact_interval():
    found = rate([True] * 19 + [False])
    expected = stats.binomtest(19, 20).proportion_ci(0.95, "exact")
    assert (found.value, found.n) == (0.95, 20)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))


def test_all_successes_still_have_an_interval_of_some_width():
    found = rate(np.ones(10, bool))
    assert found.high == 1.0 and found.low == pytest.approx(0.025 ** (1 / 10))


@pytest.mark.parametrize("bad", [[], [0.5], [np.nan], [[True]]])
def test_no_episodes_and_what_is_no_success_are_refused(bad):
    with pytest.raises(SurefootError, match="success"):
        rate(bad)


def test_one_percent_failures_at_95_percent_takes_299_clean_episodes():
    assert needed(0.01) == 299 == math.ceil(math.log(0.05) / math.log(0.99))
    assert (needed(0.05), needed(0.1), needed(0.01, 0.99)) == (59, 29, 459)
    assert needed(0.01, failures=1) == 473  # the first n with P(X <= 1 | n, 0.01) <= 0.05
    assert stats.binom.cdf(1, 473, 0.01) <= 0.05 < stats.binom.cdf(1, 472, 0.01)


def test_a_claim_that_the_sample_cannot_support_fails_and_says_how_many_episodes_it_needs():
    assert claim(299, 299, 0.01).holds
    refused = claim(298, 298, 0.01)
    assert not refused.holds and "needs 299" in refused.evidence and refused.high > 0.01
    assert not claim(299, 300, 0.01).holds
    with pytest.raises(SurefootError, match="0 episodes"):
        claim(0, 0, 0.01)


@pytest.mark.parametrize("bad", [0.0, 1.0, -1.0, math.nan])
def test_a_failure_rate_lies_between_0_and_1(bad):
    with pytest.raises(SurefootError, match="failure"):
        needed(bad)


def test_a_mean_has_students_interval():
    x = np.random.default_rng(0).normal(3.0, 2.0, 12)
    found, expected = mean(x), stats.ttest_1samp(x, 0.0).confidence_interval()
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))


@pytest.mark.parametrize("x, why", [([2.0], "n = 1"), ([1.0, 1.0, 1.0], "all 3 are equal")])
def test_one_number_and_equal_numbers_have_a_mean_but_no_interval(x, why):
    found = mean(x)
    assert found.value == x[0] and found.low is None and found.high is None and why in found.how


@pytest.mark.parametrize("verb", [mean, seeds, iqm])
def test_no_numbers_and_nan_are_refused(verb):
    for bad in ([], [1.0, math.nan], [math.inf]):
        with pytest.raises(SurefootError, match="found"):
            verb(bad)


def test_fewer_than_five_seeds_have_no_interval():
    found = seeds([1.0, 2.0, 3.0, 4.0])
    assert found.value == 2.5 and found.low is None and "no interval: n = 4, it needs 5" in str(found)
    assert seeds([1.0] * 7).low is None


def test_five_seeds_reach_from_the_least_to_the_largest_and_say_what_level_that_is():
    assert seeds([3.0, 1.0, 5.0, 2.0, 4.0]) == Estimate(3.0, 1.0, 5.0, 5, 0.9375, "order statistics of the median")


@pytest.mark.parametrize("n, r", [(6, 1), (8, 1), (9, 2), (20, 6)])
def test_more_seeds_take_the_order_statistics_of_the_tables(n, r):
    """The r-th from each end is the sign test's 95 % interval of a median: r - 1 is the largest tail <= 2.5 %."""
    found = seeds(np.arange(1.0, n + 1))
    assert (found.low, found.high) == (r, n + 1 - r)
    assert found.level == pytest.approx(1 - 2 * stats.binom.cdf(r - 1, n, 0.5)) and found.level >= 0.95


@pytest.mark.parametrize("n", [5, 10])
def test_seed_intervals_cover_the_median_of_any_law(n):
    rng = np.random.default_rng(n)
    broken = lambda s: np.where(rng.random(s) < 0.8, 1.0, 0.0) + 0.1 * rng.standard_normal(s)  # noqa: E731
    for draw, median in ((rng.standard_exponential, math.log(2)), (broken, np.median(broken(400_000)))):
        found = [seeds(x) for x in draw((600, n))]
        assert np.mean([f.low <= median <= f.high for f in found]) >= 0.93 - 2 * 0.01  # two sd of 600 runs


def test_iqm_is_the_mean_of_the_middle_half():
    assert iqm(np.array([0.0, 1.0, 2.0, 100.0])) == 1.5
    assert iqm(np.arange(8.0).reshape(4, 2)) == 3.5
    assert iqm(np.array([7.0])) == 7.0


def test_iqm_intervals_cover_with_five_runs_of_four_tasks():
    rng = np.random.default_rng(2)
    offset = np.array([0.0, 1.0, 2.0, 3.0])
    truth = iqm(rng.standard_normal((200_000, 4)) + offset)
    found = [iqm_interval(rng.standard_normal((5, 4)) + offset, rng, draws=600) for _ in range(300)]
    assert np.mean([f.low <= truth <= f.high for f in found]) >= 0.93 - 2 * 0.0147


def test_iqm_of_few_or_equal_runs_has_no_interval():
    rng = np.random.default_rng(0)
    assert iqm_interval(rng.random((4, 3)), rng).low is None
    assert iqm_interval(np.ones((6, 3)), rng).how.startswith("no interval: all 6 are equal")
    with pytest.raises(SurefootError, match="shape"):
        iqm_interval(np.ones((2, 2, 2)), rng)
