"""Laws of p(e), each over every kind of belief, against numbers known otherwise: scipy, quadrature, closed forms."""

import copy
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from surefoot.belief import Belief, Beta, Box, Gaussian, Particles, Truncated, point
from surefoot.errors import SurefootError
from surefoot.params import Param, Params
from surefoot.rng import stream

MASS = Param("mass", "mass", 1.0, 0.5, 2.0, unit="kg")
FRICTION = Param("friction", "friction", 0.6, 0.05, 3.0, log=True)
DELAY = Param("delay", "action_delay", 0.01, 0.0, 0.04, op="set", unit="s")
E = Params((MASS, FRICTION, DELAY))
NONE = Params()
CORRELATED = [[0.01, 0.018, 0.0], [0.018, 0.04, 1e-4], [0.0, 1e-4, 4e-6]]


def a_box() -> Box:
    return Box(E, [0.7, 0.2, 0.005], [1.4, 1.8, 0.03])


def a_fixed_box() -> Box:
    return Box(E, [0.7, 0.3, 0.01], [1.4, 0.3, 0.03])


def a_beta() -> Beta:
    return Beta(E, [2.0, 0.7, 5.0], [3.0, 1.0, 0.9], [0.6, 0.1, 0.0], [1.9, 2.5, 0.04])


def a_gaussian() -> Gaussian:
    return Gaussian.around(E, [1.1, 0.5, 0.02], CORRELATED)


def a_truncated() -> Truncated:
    return Truncated(E, [1.3, math.log(0.4), 0.02], [0.2, 1.5, 0.005], [0.6, 0.1, 0.0], [1.4, 2.5, 0.04])


def some_particles() -> Particles:
    points = Box.full(E).sample(stream(0, "points"), 40)
    return Particles(E, points, np.linspace(0.0, 3.0, 40))


def nothing() -> list[Belief]:
    none = np.empty(0)
    return [
        Box(NONE, [], []),
        Beta(NONE, [], [], [], []),
        Gaussian(NONE, none, np.empty((0, 0))),
        Truncated(NONE, [], [], [], []),
        Particles(NONE, np.empty((2, 0)), [1, 2]),
    ]


BELIEFS = [a_box(), a_fixed_box(), a_beta(), a_gaussian(), a_truncated(), some_particles()]
SPREAD = [a_box(), a_beta(), a_gaussian(), a_truncated(), some_particles()]  # no dimension fixed
ALL = [*BELIEFS, *nothing()]


def kind(belief: Belief) -> str:
    return f"{type(belief).__name__}{len(belief.params)}"


def every(beliefs):
    return pytest.mark.parametrize("belief", beliefs, ids=kind)


def y_sd(belief: Belief, e: np.ndarray) -> np.ndarray:
    return np.std(belief.normalise(e), axis=0)


@every(ALL)
def test_draws_have_one_row_per_draw_and_stay_inside_the_physical_bounds(belief):
    for wide in (belief, belief.widen(50.0)):
        e = wide.sample(stream(0, "t"), 500)
        assert e.shape == (500, len(belief.params)) and e.dtype == np.float64
        assert (e >= belief.params.low).all() and (e <= belief.params.high).all()


@every(ALL)
def test_row_i_is_the_same_bits_however_many_rows_follow(belief):
    many = belief.sample(stream(3, "t"), 1000)
    for n in (1, 2, 7, 64):
        assert np.array_equal(belief.sample(stream(3, "t"), n), many[:n])


def test_row_i_of_a_wide_gaussian_is_the_same_bits_where_a_matrix_product_would_not_be():
    params = Params(tuple(Param(f"p{i}", "mass", 0.0, -99.0, 99.0, op="add") for i in range(12)))
    half = stream(0, "half").standard_normal((12, 12))
    belief = Gaussian(params, np.zeros(12), half @ half.T + np.eye(12))
    many = belief.sample(stream(3, "t"), 1000)
    for n in (1, 7, 64):
        assert np.array_equal(belief.sample(stream(3, "t"), n), many[:n])


@every(BELIEFS)
def test_same_stream_twice_is_equal_and_another_is_not(belief):
    assert np.array_equal(belief.sample(stream(1, "t"), 20), belief.sample(stream(1, "t"), 20))
    assert not np.array_equal(belief.sample(stream(1, "t"), 20), belief.sample(stream(2, "t"), 20))


def test_box_is_uniform_and_log_uniform_by_ks():
    e = a_box().sample(stream(0, "ks"), 1000)
    assert stats.kstest(e[:, 0], stats.uniform(0.7, 0.7).cdf).pvalue > 0.01
    assert stats.kstest(e[:, 1], stats.loguniform(0.2, 1.8).cdf).pvalue > 0.01
    assert stats.kstest(e[:, 1], stats.uniform(0.2, 1.6).cdf).pvalue < 1e-6
    assert np.median(e[:, 1]) == pytest.approx(math.sqrt(0.2 * 1.8), rel=0.1)


def test_beta_draws_follow_scipy_in_the_log_by_ks():
    e = a_beta().sample(stream(0, "ks"), 1000)
    z = np.log(e[:, 1] / 0.1) / math.log(25)
    assert stats.kstest(z, stats.beta(0.7, 1.0).cdf).pvalue > 0.01
    assert stats.kstest(e[:, 2] / 0.04, stats.beta(5.0, 0.9).cdf).pvalue > 0.01


def test_gaussian_draws_have_the_covariance_that_was_asked_for():
    e = a_gaussian().sample(stream(0, "cov"), 20000)
    y = np.column_stack([e[:, 0], np.log(e[:, 1]), e[:, 2]])
    assert np.corrcoef(y.T)[0, 1] == pytest.approx(0.9, abs=0.01)
    assert np.cov(y.T)[:2, :2] == pytest.approx(np.array(CORRELATED)[:2, :2], rel=0.05)


@every(BELIEFS)
def test_mean_and_sd_match_those_of_the_draws(belief):
    e = belief.sample(stream(0, "moments"), 20000)
    error = belief.sd() / math.sqrt(len(e))
    assert (np.abs(e.mean(0) - belief.mean()) <= 5 * error + 1e-12).all()
    assert e.std(0) == pytest.approx(belief.sd(), rel=0.03, abs=1e-12)


@every(SPREAD)
@pytest.mark.parametrize("level", [0.5, 0.95])
def test_interval_holds_its_level_of_the_draws(belief, level):
    low, high = belief.interval(level)
    e = belief.sample(stream(0, "interval"), 20000)
    share = ((low <= e) & (e <= high)).mean(0)
    slack = 0.06 if isinstance(belief, Particles) else 0.015  # one particle carries up to 0.05
    assert share == pytest.approx(level, abs=slack)


@every(BELIEFS)
def test_nearly_all_draws_are_inside_and_the_rest_of_the_world_is_not(belief):
    expected = 0.95 if isinstance(belief, Gaussian) else 1.0
    assert belief.inside(belief.sample(stream(0, "in"), 4000)).mean() == pytest.approx(expected, abs=0.015)
    assert not belief.inside(belief.params.high + 1).any()
    assert not belief.inside(-np.ones(3)).any()


@every(SPREAD)
def test_entropy_is_minus_the_mean_log_prob_of_the_draws(belief):
    log_p = belief.log_prob(belief.sample(stream(0, "h"), 20000))
    assert -log_p.mean() == pytest.approx(belief.entropy(), abs=5 * log_p.std() / math.sqrt(20000) + 1e-9)


def test_entropies_match_scipy():
    box = (
        stats.uniform(0.7, 0.7).entropy() + stats.loguniform(0.2, 1.8).entropy() + stats.uniform(0.005, 0.025).entropy()
    )
    assert a_box().entropy() == pytest.approx(float(box), rel=1e-9)
    linear = Params((MASS, DELAY))
    beta = Beta(linear, [2.0, 5.0], [3.0, 0.9], [0.6, 0.0], [1.9, 0.04])
    expected = stats.beta(2, 3, 0.6, 1.3).entropy() + stats.beta(5, 0.9, 0.0, 0.04).entropy()
    assert beta.entropy() == pytest.approx(float(expected), rel=1e-9)
    normal = stats.multivariate_normal(np.zeros(3), CORRELATED).entropy() + math.log(0.5)
    assert a_gaussian().entropy() == pytest.approx(normal, rel=1e-9)
    one = Gaussian.around(Params((FRICTION,)), [0.5], [[0.04]])
    assert one.entropy() == pytest.approx(float(stats.lognorm(0.2, scale=0.5).entropy()), rel=1e-9)
    assert Particles(E, np.tile(E.nominal, (4, 1)), [1, 1, 1, 1]).entropy() == pytest.approx(math.log(4))


def test_a_fixed_parameter_leaves_a_density_over_the_others_and_entropy_minus_infinity():
    box = a_fixed_box()
    others = Box(Params((MASS, DELAY)), [0.7, 0.01], [1.4, 0.03])
    assert box.entropy() == -math.inf
    assert box.log_prob([1.0, 0.3, 0.02]) == pytest.approx(others.log_prob([1.0, 0.02]))
    assert box.log_prob([1.0, 0.31, 0.02]) == -math.inf
    cov = np.diag([0.01, 0.0, 4e-6])
    gaussian = Gaussian.around(E, [1.0, 0.3, 0.02], cov)
    free = stats.norm(1.0, 0.1).logpdf(1.05) + stats.norm(0.02, 0.002).logpdf(0.02)
    assert gaussian.entropy() == -math.inf
    assert gaussian.log_prob([1.05, 0.3, 0.02])[0] == pytest.approx(free)
    assert gaussian.log_prob([1.05, 0.31, 0.02])[0] == -math.inf
    assert gaussian.sample(stream(0, "fixed"), 9)[:, 1] == pytest.approx(0.3, rel=1e-15)


@every([b for b in SPREAD if not isinstance(b, Particles)])
def test_density_of_one_log_parameter_integrates_to_one(belief):
    data = belief.to_json()
    data = {k: v if k == "kind" else [v[1]] for k, v in data.items()}
    if "cov" in data:
        data["cov"] = [[CORRELATED[1][1]]]
    one = Belief.from_json(data)
    mass, _ = integrate.quad(
        lambda e: float(np.exp(one.log_prob([e])[0])), 0.05, 3.0, points=[0.1, 0.2, 1.8, 2.5], limit=200
    )
    assert mass == pytest.approx(1.0, abs=1e-6)


def test_log_prob_matches_scipy_with_the_jacobian_of_log():
    e = np.array([[1.0, 0.4, 0.02], [0.9, 1.5, 0.01]])
    expected = stats.uniform(0.7, 0.7).logpdf(e[:, 0]) + stats.loguniform(0.2, 1.8).logpdf(e[:, 1]) - math.log(0.025)
    assert a_box().log_prob(e) == pytest.approx(expected)
    normal = stats.multivariate_normal([1.1, math.log(0.5), 0.02], CORRELATED)
    y = np.column_stack([e[:, 0], np.log(e[:, 1]), e[:, 2]])
    assert a_gaussian().log_prob(e) == pytest.approx(normal.logpdf(y) - np.log(e[:, 1]))
    assert a_gaussian().log_prob([1.0, -0.4, 0.02]) == -math.inf


@every(ALL)
def test_kl_to_itself_is_zero(belief):
    assert belief.kl(belief) == pytest.approx(0.0, abs=1e-9)


def quadrature_kl(p, q, low, high) -> float:
    def integrand(e: float) -> float:
        return p.pdf(e) * (p.logpdf(e) - q.logpdf(e))

    return integrate.quad(integrand, low, high, limit=200)[0]


def test_kl_of_gaussians_and_boxes_matches_quadrature():
    one = Params((MASS,))
    p, q = Gaussian(one, [1.0], [[0.04]]), Gaussian(one, [1.3], [[0.09]])
    assert p.kl(q) == pytest.approx(quadrature_kl(stats.norm(1.0, 0.2), stats.norm(1.3, 0.3), -1, 3), rel=1e-8)
    log = Params((FRICTION,))
    p, q = Gaussian.around(log, [0.5], [[0.04]]), Gaussian.around(log, [0.8], [[0.25]])
    expected = quadrature_kl(stats.lognorm(0.2, scale=0.5), stats.lognorm(0.5, scale=0.8), 1e-3, 6)
    assert p.kl(q) == pytest.approx(expected, rel=1e-8)
    expected = quadrature_kl(stats.loguniform(0.2, 1.0), stats.loguniform(0.1, 2.0), 0.2, 1.0)
    assert Box(log, [0.2], [1.0]).kl(Box(log, [0.1], [2.0])) == pytest.approx(expected, rel=1e-8)


def test_kl_of_correlated_gaussians_matches_the_textbook_formula():
    p, q = a_gaussian(), Gaussian.around(E, [1.0, 0.7, 0.018], np.diag([0.04, 0.09, 1e-5]))
    inverse, dmu = np.linalg.inv(q.cov), q.mu - p.mu
    log_ratio = np.linalg.slogdet(q.cov)[1] - np.linalg.slogdet(p.cov)[1]
    assert p.kl(q) == pytest.approx(0.5 * (np.trace(inverse @ p.cov) - 3 + dmu @ inverse @ dmu + log_ratio), rel=1e-9)


def test_kl_of_betas_and_boxes_matches_quadrature():
    one = Params((MASS,))
    p, q = Beta(one, [2.0], [3.0], [0.6], [1.6]), Beta(one, [4.0], [1.5], [0.6], [1.6])
    box = Box(one, [0.6], [1.6])
    sp, sq, flat = stats.beta(2, 3, 0.6, 1), stats.beta(4, 1.5, 0.6, 1), stats.uniform(0.6, 1)
    assert p.kl(q) == pytest.approx(quadrature_kl(sp, sq, 0.6, 1.6), rel=1e-7)
    assert p.kl(box) == pytest.approx(quadrature_kl(sp, flat, 0.6, 1.6), rel=1e-7)
    assert box.kl(p) == pytest.approx(quadrature_kl(flat, sp, 0.6, 1.6), rel=1e-7)
    assert p.kl(Box.full(one)) == pytest.approx(p.kl(box) + math.log(1.5), rel=1e-9)


def scipy_truncated(belief: Truncated, i: int):
    """Of y, which is e or its logarithm."""
    ends = [math.log(end[i]) if belief.params.log[i] else end[i] for end in (belief.low, belief.high)]
    mu, sd = belief.mu[i], belief.spread[i]
    return stats.truncnorm((ends[0] - mu) / sd, (ends[1] - mu) / sd, mu, sd)


def test_truncated_normals_match_scipy():
    belief = a_truncated()
    mass, friction, _ = (scipy_truncated(belief, i) for i in range(3))
    e = belief.sample(stream(0, "ks"), 1000)
    assert stats.kstest(e[:, 0], mass.cdf).pvalue > 0.01 and stats.kstest(np.log(e[:, 1]), friction.cdf).pvalue > 0.01
    assert belief.mean()[0] == pytest.approx(mass.mean(), rel=1e-10)
    assert belief.mean()[1] == pytest.approx(friction.expect(np.exp), rel=1e-8)
    assert belief.interval()[0][0] == pytest.approx(mass.ppf(0.025), rel=1e-10)
    expected = sum(scipy_truncated(belief, i).logpdf(y) for i, y in enumerate((1.0, math.log(0.7), 0.01)))
    assert belief.log_prob([1.0, 0.7, 0.01])[0] == pytest.approx(expected - math.log(0.7), rel=1e-10)
    other = Truncated(E, [1.0, 0.0, 0.01], [0.1, 0.3, 0.01], belief.low, belief.high)
    pairs = [(scipy_truncated(belief, i), scipy_truncated(other, i)) for i in range(3)]
    assert belief.kl(other) == pytest.approx(sum(quadrature_kl(p, q, *p.support()) for p, q in pairs), rel=1e-7)


def test_kl_of_particles_is_that_of_their_probabilities():
    points = [[1.0, 0.5, 0.01], [1.2, 0.6, 0.02]]
    p, q = Particles(E, points, [1, 3]), Particles(E, points[::-1], [1, 1])
    assert p.kl(q) == pytest.approx(0.25 * math.log(0.5) + 0.75 * math.log(1.5))
    assert p.kl(Particles(E, points[:1], [1])) == math.inf


def test_kl_is_infinite_where_the_support_sticks_out():
    assert a_box().kl(a_fixed_box()) == math.inf
    assert a_fixed_box().kl(a_box()) == math.inf
    assert Box.full(E).kl(a_box()) == math.inf
    assert a_gaussian().kl(Gaussian.around(E, [1.1, 0.5, 0.02], np.diag([0.01, 0.0, 1e-6]))) == math.inf


@pytest.mark.parametrize(
    "p, q",
    [(p, q) for p in SPREAD for q in SPREAD if type(p) is not type(q) and {type(p), type(q)} != {Box, Beta}],
    ids=kind,
)
def test_kl_without_a_closed_form_is_an_error_that_names_the_pair(p, q):
    with pytest.raises(SurefootError, match=rf"{type(p).__name__} \|\| {type(q).__name__}"):
        p.kl(q)


def test_kl_between_nested_betas_or_other_params_is_an_error():
    narrow = Beta(E, [2, 2, 2], [2, 2, 2], [0.7, 0.2, 0.01], [1.4, 1.8, 0.03])
    with pytest.raises(SurefootError, match=r"Beta \|\| Beta with different supports"):
        narrow.kl(a_beta())
    with pytest.raises(SurefootError, match="kl: found params"):
        a_box().kl(Box.full(Params((MASS,))))


@every(BELIEFS)
@given(factor=st.floats(1e-3, 1e3))
@settings(max_examples=30, deadline=None)
def test_widen_never_leaves_the_bounds(belief, factor):
    wide = belief.widen(factor)
    low, high = wide.interval()
    assert (belief.params.low <= low).all() and (low <= high).all() and (high <= belief.params.high).all()


@every(BELIEFS)
def test_widen_by_half_halves_the_spread_and_keeps_the_centre(belief):
    half = belief.widen(0.5)
    e, e_half = belief.sample(stream(0, "w"), 500), half.sample(stream(0, "w"), 500)
    assert y_sd(half, e_half) == pytest.approx(0.5 * y_sd(belief, e), rel=1e-9, abs=1e-12)
    tight = belief.widen(1e-6)
    assert tight.normalise(tight.mean()) == pytest.approx(half.widen(1e-6).normalise(half.widen(1e-6).mean()), abs=1e-5)


@given(data=st.data(), low=st.floats(1e-3, 10), ratio=st.floats(1.01, 1e4), log=st.booleans())
@settings(max_examples=100, deadline=None)
def test_denormalise_undoes_normalise(data, low, ratio, log):
    high = low * ratio
    belief = Box.full(Params((Param("p", "mass", low, low, high, log=log),)))
    e = np.array([[data.draw(st.floats(low, high))]])
    z = belief.normalise(e)
    assert -1e-9 <= z[0, 0] <= 1 + 1e-9
    assert belief.denormalise(z) == pytest.approx(e, rel=1e-9)
    assert belief.normalise(belief.denormalise(z)) == pytest.approx(z, abs=1e-9)


@every(BELIEFS)
def test_normalised_bounds_are_zero_and_one_and_log_dimensions_are_straight_in_the_log(belief):
    assert belief.normalise(E.low) == pytest.approx(np.zeros(3)) and belief.normalise(E.high) == pytest.approx(
        np.ones(3)
    )
    middle = [1.25, math.sqrt(0.05 * 3.0), 0.02]
    assert belief.normalise(middle) == pytest.approx(np.full(3, 0.5))
    assert np.array_equal(belief.denormalise(np.full((2, 3), 1.5)), np.tile(E.high, (2, 1)))


@every(ALL)
def test_json_round_trip_is_bit_exact(belief):
    back = Belief.from_json(json.loads(json.dumps(belief.to_json(), allow_nan=False)))
    assert back == belief and hash(back) == hash(belief)
    assert back.to_json() == belief.to_json()
    assert np.array_equal(back.sample(stream(0, "j"), 50), belief.sample(stream(0, "j"), 50))


def test_beliefs_that_differ_in_one_number_are_not_equal():
    other = Box(E, a_box().low, [1.4, 1.8, 0.031])
    assert a_box() == a_box() and a_box() != other and a_box() != a_beta() and a_box() != "box"


@every(nothing())
def test_a_belief_about_nothing_works(belief):
    assert belief.sample(stream(0, "t"), 7).shape == (7, 0)
    assert belief.log_prob(np.empty((4, 0))) == pytest.approx(np.zeros(4), abs=1e-12)
    assert belief.inside(np.empty((4, 0))).tolist() == [True] * 4
    assert belief.mean().shape == belief.sd().shape == belief.interval()[0].shape == (0,)
    assert belief.normalise(np.empty((4, 0))).shape == belief.denormalise(np.empty((4, 0))).shape == (4, 0)
    assert belief.widen(2.0) == belief
    assert belief.entropy() == pytest.approx(stats.entropy([1, 2]) if isinstance(belief, Particles) else 0.0)


@every(BELIEFS)
def test_arrays_are_frozen_copies(belief):
    for name in belief.to_json().keys() - {"kind", "params"}:
        with pytest.raises(ValueError, match="read-only"):
            getattr(belief, name)[...] = 0.0


def bad(belief: Belief, field: str, value) -> dict:
    data = copy.deepcopy(belief.to_json())
    data[field] = value
    return data


BAD = [
    ("low", bad(a_box(), "low", [0.7, 0.2, float("nan")]), "finite"),
    ("low", bad(a_box(), "low", [1.5, 0.2, 0.005]), "at most high"),
    ("low", bad(a_box(), "low", [0.1, 0.2, 0.005]), "at least the physical bound 0.5"),
    ("high", bad(a_box(), "high", [1.4, 9.0, 0.03]), "at most the physical bound 3.0"),
    ("low", bad(a_box(), "low", [0.7, 0.2]), r"expected \(3,\)"),
    ("low", bad(a_box(), "low", ["0.7", "0.2", "0"]), "numbers"),
    ("low", bad(a_box(), "low", [[1.0], 2.0, 3.0]), "ragged"),
    ("low", bad(a_box(), "low", None), "numbers"),
    ("high", {k: v for k, v in a_box().to_json().items() if k != "high"}, "found nothing"),
    ("hihg", bad(a_box(), "hihg", []), "did you mean high"),
    ("kind", bad(a_box(), "kind", "bx"), "did you mean box"),
    ("kind", bad(a_box(), "kind", ["box"]), "no kind matches"),
    ("kind", {}, "there are box"),
    ("params", bad(a_box(), "params", [{"name": "mass"}]), "nominal"),
    ("params", bad(a_box(), "params", [MASS.__dict__ | {"nominal": []}]), "box.params: "),
    ("params", bad(a_box(), "params", 3), "box.params: "),
    ("a", bad(a_beta(), "a", [0.0, 1, 1]), "more than 0"),
    ("b", bad(a_beta(), "b", [1, 1, float("inf")]), "finite"),
    ("low", bad(a_beta(), "low", [1.95, 0.1, 0.0]), "at most high"),
    ("cov", bad(a_gaussian(), "cov", [[0.01, 1e308, 0], [1e308, 0.01, 0], [0, 0, 1]]), "positive definite"),
    ("mu", bad(a_gaussian(), "mu", [9.0, 0.0, 0.01]), "physical bound 2.0"),
    ("cov", bad(a_gaussian(), "cov", [[1, 2, 0], [2, 1, 0], [0, 0, 1]]), "positive definite"),
    ("cov", bad(a_gaussian(), "cov", [[1, 0.5, 0], [0, 1, 0], [0, 0, 1]]), "symmetric"),
    ("cov", bad(a_gaussian(), "cov", [[0, 0.5, 0], [0.5, 1, 0], [0, 0, 1]]), "positive definite"),
    ("cov", bad(a_gaussian(), "cov", [[-1, 0, 0], [0, 1, 0], [0, 0, 1]]), "positive definite"),
    ("weights", bad(some_particles(), "weights", [0.0] * 40), "total"),
    ("weights", bad(some_particles(), "weights", [-1.0] + [1.0] * 39), "at least 0"),
    ("points", bad(some_particles(), "points", [[1.0, 1.0, 1.0]] * 40), "physical bound 0.04"),
    ("points", bad(some_particles(), "points", [[1.0, 1.0, 0.01]]), r"expected \(40, 3\)"),
]


@pytest.mark.parametrize("field, data, why", BAD, ids=[f"{f}-{i}" for i, (f, _, _) in enumerate(BAD)])
def test_a_bad_file_is_an_error_that_names_the_place_and_the_field(field, data, why):
    with pytest.raises(SurefootError, match=why) as error:
        Belief.from_json(data, "prior.json")
    assert str(error.value).startswith("prior.json: ") and field in str(error.value)


def test_an_error_names_the_param_and_what_was_found():
    with pytest.raises(SurefootError) as error:
        Box(E, [0.7, 0.2, 0.005], [1.4, 9.0, 0.03])
    assert str(error.value) == "box.high[friction]: found 9.0, expected at most the physical bound 3.0"


@every(BELIEFS)
def test_bad_arguments_are_errors(belief):
    for call in (lambda: belief.widen(0.0), lambda: belief.widen(math.nan), lambda: belief.interval(1.0)):
        with pytest.raises(SurefootError, match="expected"):
            call()
    with pytest.raises(SurefootError, match=r"expected \(n, 3\)"):
        belief.log_prob(np.zeros((5, 1)))


def test_constructors_of_boxes():
    assert np.array_equal(Box.full(E).high, E.high)
    assert point(E, E.nominal) == Box.around(E, 0.0) and point(E, E.nominal).inside(E.nominal).all()
    box = Box.around(E, 0.2)
    assert box.normalise(box.high)[0] - box.normalise(box.low)[0] == pytest.approx(0.2)
    assert box.inside(E.nominal).all() and Box.around(E, 2.0) == Box.full(E)
    named = Box.ranges(E, {"mass": (0.8, 1.2)})
    assert named.low.tolist() == [0.8, 0.6, 0.01] and named.high.tolist() == [1.2, 0.6, 0.01]


def test_moments_of_a_very_narrow_log_box_keep_their_digits():
    box = Box(Params((FRICTION,)), [0.5], [0.5 * (1 + 1e-7)])
    assert box.sd()[0] == pytest.approx(0.5e-7 / math.sqrt(12), rel=1e-6)
    assert Box.full(Params((FRICTION,))).mean()[0] == pytest.approx((3.0 - 0.05) / math.log(60), rel=1e-12)
    assert Box.full(Params((FRICTION,))).sd()[0] == pytest.approx(stats.loguniform(0.05, 3.0).std(), rel=1e-9)


@every(ALL)
def test_the_estimate_is_a_possible_e_and_that_of_certainty_is_the_point_itself(belief):
    assert belief.inside(belief.estimate()).all()
    low, high = belief.support()
    assert (low <= belief.estimate()).all() and (belief.estimate() <= high).all()
    assert np.array_equal(point(belief.params, belief.estimate()).estimate(), belief.estimate())


def test_the_estimate_of_an_ill_determined_log_normal_is_the_fitted_value_and_not_the_mean():
    """exp(mu), where E[e] of the unclipped log-normal would be exp(mu + var / 2) = 9.1."""
    fitted = Gaussian.around(Params((FRICTION,)), [0.1], [[9.0]])
    assert fitted.estimate() == pytest.approx([0.1], rel=1e-15)
    assert 0.05 <= fitted.mean()[0] <= 3.0


def test_moments_of_a_gaussian_beyond_its_bounds_are_those_of_clipped_draws():
    """E[clip(e)] of a log-normal, in closed form: l P(below) + h P(above) + exp(mu + s^2/2) [Phi(b - s) - Phi(a - s)]."""
    wide, mu, s = Gaussian.around(Params((FRICTION,)), [0.5], [[4.0]]), math.log(0.5), 2.0
    a, b = ((math.log(end) - mu) / s for end in (0.05, 3.0))
    phi = stats.norm.cdf
    inner = math.exp(mu + s * s / 2) * (phi(b - s) - phi(a - s))
    assert wide.mean()[0] == pytest.approx(0.05 * phi(a) + 3.0 * phi(-b) + inner, rel=1e-12)
    e = wide.sample(stream(0, "clipped"), 20000)
    assert e.std() == pytest.approx(wide.sd()[0], rel=0.02)
    fixed = Gaussian.around(E, [1.0, 0.3, 0.02], np.diag([0.01, 0.0, 4e-6]))
    assert fixed.mean()[1] == pytest.approx(0.3, rel=1e-15) and fixed.sd()[1] == pytest.approx(0.0, abs=1e-15)


def test_the_estimate_of_particles_is_the_heaviest_or_of_equal_ones_the_middle_one():
    points = [[0.6, 0.1, 0.0], [1.0, 0.5, 0.01], [1.9, 2.0, 0.03]]
    assert Particles(E, points, [1, 1, 2]).estimate().tolist() == points[2]
    assert Particles(E, points, [1, 1, 1]).estimate().tolist() == points[1]


def test_a_fixed_truncated_normal_has_finite_moments():
    fixed = Truncated(E, [1.0, math.log(0.3), 0.02], [0.1, 0.2, 0.01], [0.7, 0.3, 0.01], [1.4, 0.3, 0.03])
    assert fixed.mean()[1] == pytest.approx(0.3) and fixed.sd()[1] == pytest.approx(0.0, abs=1e-12)
