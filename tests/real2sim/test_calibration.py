"""Calibration passes an exact posterior and fails one that is too sure, too doubtful or beside the truth."""

import numpy as np
import pytest
from scipy import stats

from surefoot.belief import Box, Gaussian
from surefoot.errors import SurefootError
from surefoot.params import Param, Params
from surefoot.real2sim.infer.calibration import calibration
from surefoot.rng import stream

PLANE = Params((Param("a", "task", 0.0, -50.0, 50.0, op="set"), Param("b", "task", 0.0, -50.0, 50.0, op="set")))
RUNS = 1000


def conjugate(spread=1.0, shift=0.0, runs=RUNS, seed=0):
    """e ~ N(0, 1), x = e + N(0, 0.5^2): the posterior is N(0.8 x, 0.2), here made wider and shifted by so much."""
    rng = stream(seed, "conjugate")
    e = rng.standard_normal((runs, 2))
    x = e + 0.5 * rng.standard_normal((runs, 2))
    draws = 0.8 * x[:, None] + shift + spread * np.sqrt(0.2) * rng.standard_normal((runs, 99, 2))
    return calibration(e, draws, ("a", "b"))


def test_an_exact_posterior_is_calibrated():
    found = conjugate()
    assert found.holds and found.coverage90 == pytest.approx([0.9, 0.9], abs=0.03)
    assert found.ranks.min() >= 0 and found.ranks.max() <= 99


@pytest.mark.parametrize("spread, shift", [(0.7, 0.0), (1.5, 0.0), (1.0, 0.15)])
def test_one_that_is_too_sure_too_doubtful_or_shifted_is_not(spread, shift):
    found = conjugate(spread, shift)
    assert (found.p < 0.01).all() and not found.holds


def test_too_sure_is_seen_in_joint_coverage_too():
    assert conjugate(0.5).deviation > 0.05 > conjugate().deviation


def test_p_values_of_exact_posteriors_are_seldom_small():
    """Bonferroni: less than 1 in 100 of exact methods fail at 0.01, so of 40 hardly more than 2."""
    failed = sum((conjugate(runs=300, seed=k).p <= 0.01).any() for k in range(40))
    assert failed <= 2


def test_joint_coverage_sees_a_correlation_that_ranks_of_each_param_do_not():
    """The posterior is a line; the method draws both params apart, each with its right marginal."""
    rng = stream(3, "line")
    x = rng.standard_normal((3000, 1, 1))
    e = np.repeat(x + rng.standard_normal((3000, 1, 1)), 2, 2)
    found = calibration(e[:, 0], x + rng.standard_normal((3000, 99, 2)))
    assert (found.p > 0.01).all() and found.deviation > 0.05


def test_beliefs_of_a_method_are_calibrated_run_by_run():
    def posterior(k):
        rng = stream(k, "run")
        e = Gaussian(PLANE, [0.0, 0.0], np.eye(2)).sample(rng, 1)[0]
        x = e + 0.5 * rng.standard_normal(2)
        return e, Gaussian(PLANE, 0.8 * x, 0.2 * np.eye(2)).sample(rng, 63)

    truths, draws = zip(*(posterior(k) for k in range(300)))
    found = calibration(np.array(truths), np.array(draws), PLANE.names)
    assert (found.p > 0.01).all() and found.verdict().checks[0].name == "ranks of a are uniform"


def test_a_point_that_is_the_truth_has_ranks_without_a_heap():
    """Every draw ties with the truth: ties are broken at random, which is uniform."""
    e = Box.full(PLANE).sample(stream(0, "e"), 400)
    found = calibration(e, np.repeat(e[:, None], 9, 1))
    assert stats.chisquare(np.bincount(found.ranks[:, 0], minlength=10)).pvalue > 0.001


def test_wrong_shapes_and_numbers_are_refused():
    with pytest.raises(SurefootError, match=r"expected \(runs, d\)"):
        calibration(np.zeros((5, 2)), np.zeros((5, 9, 3)))
    with pytest.raises(SurefootError, match="finite"):
        calibration(np.full((5, 2), np.nan), np.zeros((5, 9, 2)))
