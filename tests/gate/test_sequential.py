"""Looking after every episode does not make an answer wrong more often than it says."""

import numpy as np
import pytest
from scipy import integrate, stats

from surefoot.errors import SurefootError
from surefoot.gate.statistics.sequential import RateTest, anytime, compare, log_evidence, threshold
from surefoot.verdict import clopper_pearson


@pytest.mark.parametrize("k, n, limit", [(0, 0, 0.5), (3, 4, 0.5), (19, 20, 0.9), (2, 30, 0.3)])
def test_evidence_is_the_mixture_of_likelihood_ratios(k, n, limit):
    ratio = lambda q: (q / limit) ** k * ((1 - q) / (1 - limit)) ** (n - k) / (1 - limit)  # noqa: E731
    assert np.exp(log_evidence(np.array(k), np.array(n), limit)) == pytest.approx(integrate.quad(ratio, limit, 1)[0])


def test_evidence_does_not_grow_on_average_while_the_null_holds():
    for p in (0.7, 0.6):
        for k, n in ((0, 0), (3, 4), (7, 10)):
            grown = [np.exp(log_evidence(np.array(k + s), np.array(n + 1), 0.7)) for s in (0, 1)]
            now = np.exp(log_evidence(np.array(k), np.array(n), 0.7))
            expected = (1 - p) * grown[0] + p * grown[1]
            assert expected == pytest.approx(now) if p == 0.7 else expected < now


def test_an_anytime_interval_is_wider_than_the_exact_one_and_narrows_to_the_rate():
    for k, n in ((0, 10), (10, 10), (85, 100), (9500, 10_000)):
        low, high = anytime(k, n)
        exact = clopper_pearson(k, n)
        assert low <= exact[0] and exact[1] <= high and low <= k / n <= high
    assert np.subtract(*anytime(9500, 10_000)) > -0.02
    assert anytime(0, 0) == (0.0, 1.0)


def test_an_anytime_interval_ends_where_the_bet_against_it_reaches_twenty():
    """One success alone: (2/pi) int sqrt(q / (1 - q)) / 2 ... = B(3/2, 1/2) / B(1/2, 1/2) = 1/2, so low = 1 / 40."""
    assert anytime(1, 1) == pytest.approx((1 / 40, 1.0))


def test_anytime_intervals_cover_at_all_times_at_once():
    rng, misses = np.random.default_rng(0), 0
    lows, highs = np.zeros((61, 61)), np.ones((61, 61))
    for n in range(1, 61):
        for k in range(n + 1):
            lows[n, k], highs[n, k] = anytime(k, n)
    for _ in range(1000):
        k, n = np.cumsum(rng.random(60) < 0.9), np.arange(1, 61)
        misses += bool(((lows[n, k] > 0.9) | (highs[n, k] < 0.9)).any())
    assert misses <= 50 + 2 * 7  # two sd


def test_with_a_planned_end_the_threshold_uses_up_its_error_exactly():
    """Alone among all sequences of 5 tosses of a fair coin, five wins in a row may be called: 1/32 <= 0.05 < 2/32."""
    stops = lambda k, n: log_evidence(np.array(k), np.array(n), 0.5) >= threshold(0.5, 0.05, 5)  # noqa: E731
    assert stops(5, 5) and not stops(4, 4) and not stops(4, 5)
    assert threshold(0.5, 0.05) == pytest.approx(np.log(20.0))
    assert threshold(0.9, 0.05, 200) < np.log(20.0)


@pytest.mark.parametrize("most", [None, 150])
def test_peeking_after_every_episode_of_a_policy_at_the_limit_errs_at_most_5_percent(most):
    rng, test = np.random.default_rng(1), RateTest(0.8, margin=0.1, most=most)
    answers = [test.decide(rng.random(150) < 0.8).answer for _ in range(600)]
    assert answers.count("holds") <= 30 + 2 * 5.4
    answers = [test.decide(rng.random(150) < 0.9).answer for _ in range(600)]
    assert answers.count("fails") <= 30 + 2 * 5.4


def test_looking_after_each_of_five_rounds_errs_at_most_5_percent_at_the_limit():
    """Exactly: all outcomes of five rounds of 20 episodes with p at the limit, those that were called going no further."""
    for limit in (0.5, 0.8):
        test, going, called = RateTest(limit, most=100), np.array([1.0]), 0.0
        for n in range(20, 101, 20):
            going = np.convolve(going, stats.binom.pmf(np.arange(21), 20, limit))
            holds = np.array([test.look(k, n) == "holds" for k in range(n + 1)])
            called += going[holds].sum()
            going = np.where(holds, 0.0, going)
        assert 0.005 < called <= 0.05
    assert RateTest(0.5, most=100).look(20, 20) == "holds" and RateTest(0.5, most=100).look(2, 20) == "fails"
    assert RateTest(0.5, most=100).look(11, 20) == "undecided"


def test_a_clear_case_ends_soon_and_what_comes_later_does_not_change_it():
    good = RateTest(0.8).decide(np.ones(40, bool))
    assert good.answer == "holds" and good.episodes < 25
    bad = RateTest(0.8, margin=0.1).decide(np.r_[np.zeros(10, bool), np.ones(500, bool)])
    assert bad.answer == "fails" and bad.episodes <= 10
    assert good.rate.value == 1.0 and good.rate.low < 0.9


def test_no_episodes_and_one_are_no_answer():
    test = RateTest(0.9)
    assert test.decide([]).answer == "undecided" and test.decide([]).rate is None
    assert test.decide([True]).answer == "undecided"
    assert compare([], []).better == "undecided" and compare([], []).difference is None
    assert compare([True], [False]).better == "undecided"


@pytest.mark.parametrize(
    "wrong", [{"limit": 1.0}, {"limit": 0.9, "margin": 0.2}, {"limit": 0.9, "level": 1.0}, {"limit": 0.9, "most": 0}]
)
def test_a_test_that_cannot_be_is_refused(wrong):
    with pytest.raises(SurefootError, match="expected"):
        RateTest(**wrong)


def test_more_episodes_than_were_planned_are_refused():
    with pytest.raises(SurefootError, match="planned"):
        RateTest(0.9, most=10).decide(np.ones(11, bool))
    with pytest.raises(SurefootError, match="planned"):
        compare(np.ones(11), np.ones(11), most=10)


def test_equal_policies_are_called_different_at_most_5_percent_of_the_time():
    rng, called = np.random.default_rng(3), 0
    for _ in range(600):
        a, b = rng.random((2, 120)) < 0.7
        called += compare(a, b, most=120).better != "undecided"
    assert called <= 30 + 2 * 5.4


def test_only_episodes_that_differ_tell_which_is_better():
    a, b = np.ones(100, bool), np.r_[np.zeros(9, bool), np.ones(91, bool)]
    found = compare(a, b)
    assert found.better == "a" and found.lost == 0 and found.episodes <= 9
    assert compare(b, a).better == "b" and compare(b, a, sides=1).better == "undecided"
    same = compare(a, a)
    assert same.better == "undecided" and same.difference.value == 0 and same.difference.high > 0
    with pytest.raises(SurefootError, match="as many of both"):
        compare(a, b[:50])


def test_matched_episodes_end_sooner_than_unmatched_ones():
    """85 against 70 % on the same luck: only a ever wins alone, in 15 % of episodes."""
    rng, taken = np.random.default_rng(4), {"matched": [], "unmatched": []}
    for _ in range(100):
        luck, other = rng.random((2, 600))
        taken["matched"].append(compare(luck < 0.85, luck < 0.70, sides=1).episodes)
        taken["unmatched"].append(compare(luck < 0.85, other < 0.70, sides=1).episodes)
    assert np.median(taken["matched"]) < 0.6 * np.median(taken["unmatched"])
