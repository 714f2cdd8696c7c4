"""A spline passes its knots, ends as it should, and its derivatives are those of finite differences."""

import numpy as np
import pytest

from surefoot.control.splines import expand, shift, weights
from surefoot.errors import SurefootError

KNOTS = np.random.default_rng(0).normal(size=(3, 6, 2))


@pytest.mark.parametrize("kind", ["linear", "cubic"])
def test_a_plan_starts_at_its_first_knot_ends_at_its_last_and_passes_all(kind):
    plan = expand(KNOTS, 51, kind)
    assert plan.shape == (3, 51, 2)
    np.testing.assert_allclose(plan[:, ::10], KNOTS, atol=1e-12)


def test_a_held_knot_is_held_as_long_as_the_others():
    plan = expand(KNOTS, 24, "zero")
    np.testing.assert_array_equal(plan, np.repeat(KNOTS, 4, 1))


@pytest.mark.parametrize("kind", ["zero", "linear", "cubic"])
def test_a_constant_stays_one(kind):
    np.testing.assert_allclose(expand(np.full((1, 5, 3), 0.7), 40, kind, rest=True), 0.7, atol=1e-14)


def test_linear_is_interpolation():
    s = np.linspace(0, 5, 77)
    np.testing.assert_allclose((weights(6, s, "linear") @ KNOTS[0])[:, 1], np.interp(s, np.arange(6), KNOTS[0, :, 1]))


def test_cubic_is_exact_for_a_parabola_within_and_a_line_everywhere():
    j, s = np.arange(6.0), np.linspace(1, 4, 50)
    np.testing.assert_allclose(weights(6, s) @ (j**2 - 3 * j), s**2 - 3 * s, atol=1e-12)
    s = np.linspace(0, 5, 50)
    np.testing.assert_allclose(weights(6, s) @ (2 * j - 1), 2 * s - 1, atol=1e-12)


@pytest.mark.parametrize("rest", [False, True])
@pytest.mark.parametrize("kind", ["linear", "cubic"])
@pytest.mark.parametrize("order", [1, 2])
def test_derivatives_are_those_of_differences(kind, rest, order):
    s, h = np.linspace(0.13, 4.87, 32), 1e-6  # no knot among them
    W = weights(6, s, kind, rest, order)
    fore, back = (weights(6, s + d, kind, rest, order - 1) for d in (h, -h))
    np.testing.assert_allclose(W, (fore - back) / (2 * h), atol=1e-7)


def test_cubic_has_no_kink_at_a_knot():
    before, after = (weights(6, np.array([2.0 + d]), derivative=1) @ KNOTS[0] for d in (-1e-9, 1e-9))
    np.testing.assert_allclose(before, after, atol=1e-7)


def test_a_plan_at_rest_starts_and_ends_with_no_speed():
    ends = np.array([0.0, 5.0])
    assert np.abs(weights(6, ends, rest=True, derivative=1) @ KNOTS[0]).max() < 1e-12
    assert np.abs(weights(6, ends, rest=False, derivative=1) @ KNOTS[0]).max() > 0.1


def test_a_knot_moves_the_rows_near_it_alone():
    W = weights(9, np.linspace(0, 8, 81))
    assert (W[:20, 4] == 0).all() and (W[61:, 4] == 0).all() and W[40, 4] == 1


def test_a_plan_moved_on_by_a_knot_repeats_its_end():
    np.testing.assert_allclose(shift(KNOTS, 1.0), np.concatenate([KNOTS[:, 1:], KNOTS[:, -1:]], 1))
    half = shift(KNOTS, 0.5)
    np.testing.assert_allclose(half[:, :-1], (KNOTS[:, :-1] + KNOTS[:, 1:]) / 2)


def test_too_few_knots_and_unknown_kinds_are_said():
    with pytest.raises(SurefootError, match="at least 2"):
        weights(1, np.zeros(1))
    with pytest.raises(SurefootError, match="did you mean cubic"):
        weights(4, np.zeros(1), "cubics")  # type: ignore[arg-type]
