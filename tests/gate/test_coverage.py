"""Whether what is believed was trained on."""

import numpy as np
import pytest

from surefoot.belief import Box, Gaussian, Particles, point
from surefoot.errors import SurefootError
from surefoot.gate.statistics.coverage import coverage, gaps
from surefoot.params import Param, Params

PARAMS = Params((Param("mass", "mass", 1.0, 0.5, 2.0, log=True), Param("slope", "slope", 0.0, -1.0, 1.0, op="set")))


def rng():
    return np.random.default_rng(0)


def test_the_share_of_a_box_inside_another_is_that_of_their_volumes():
    p, q = Box(PARAMS, [0.5, -1.0], [2.0, 1.0]), Box(PARAMS, [0.5, -1.0], [1.0, 0.0])  # half of each: log 2 of log 4
    found = coverage(p, q, rng())
    assert found.inside.low <= 0.25 <= found.inside.high
    assert found.each["mass"] == pytest.approx(0.5, abs=0.02) and found.each["slope"] == pytest.approx(0.5, abs=0.02)
    assert coverage(q, p, rng()).inside.value == 1.0


def test_a_gaussian_posterior_two_sd_wide_is_covered_95_percent_in_each_unknown():
    p = Gaussian.around(PARAMS, [1.0, 0.0], np.diag([0.01, 0.04]))
    q = Box(PARAMS, [np.exp(-0.196), -1.0], [np.exp(0.196), 1.0])
    found = coverage(p, q, rng())
    assert found.each["mass"] == pytest.approx(0.95, abs=0.01) and found.worst == "mass"


def test_an_unknown_held_fixed_is_covered_where_it_is_believed_to_be_just_that():
    fixed = point(PARAMS, [1.0, 0.0])
    assert coverage(fixed, fixed, rng(), n=10).inside.value == 1.0
    assert coverage(Box.full(PARAMS), fixed, rng(), n=100).inside.value == 0.0
    particles = Particles(PARAMS, [[1.0, 0.0], [1.0, 0.5]], [3.0, 1.0])
    assert coverage(particles, Box(PARAMS, [1.0, 0.0], [1.0, 0.1]), rng()).inside.value == pytest.approx(0.75, abs=0.02)


def test_gaps_are_measured_on_each_unknowns_own_scale():
    e = np.array([[0.5, -1.0], [1.0, 0.5], [2.0, 1.0]])
    found = gaps(e, Box.full(PARAMS))
    assert found["mass"].share == pytest.approx(0.5) and found["slope"].share == pytest.approx(0.75)
    assert (found["slope"].low, found["slope"].high) == pytest.approx((-1.0, 0.5))


def test_one_sample_leaves_a_gap_and_a_thousand_even_ones_none():
    one = gaps(np.array([[1.0, 0.0]]), Box.full(PARAMS))
    assert one["slope"].share == pytest.approx(0.5) and one["slope"].even == pytest.approx(1 / 20)
    many = gaps(Box.full(PARAMS).at((np.arange(1000)[:, None] + 0.5) / 1000 * [1, 1]), Box.full(PARAMS))
    assert many["mass"].share == pytest.approx(1e-3, rel=1e-6) and many["mass"].even == pytest.approx(1.0)


def test_unknowns_that_are_fixed_have_no_gaps_and_nothing_has_none():
    assert list(gaps(np.array([[1.0, 0.0]]), Box(PARAMS, [1.0, -1.0], [1.0, 1.0]))) == ["slope"]
    for bad in (np.zeros((0, 2)), np.zeros((3, 1))):
        with pytest.raises(SurefootError, match="shape"):
            gaps(bad, Box.full(PARAMS))
    with pytest.raises(SurefootError, match="params"):
        coverage(Box.full(PARAMS), Box.full(PARAMS.only(["mass"])), rng())
    with pytest.raises(SurefootError, match="no unknowns"):
        coverage(Box.full(Params()), Box.full(Params()), rng())
