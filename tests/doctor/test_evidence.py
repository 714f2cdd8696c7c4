"""Laws of the doctor's parts, against closed forms: likelihoods, fits, filters, mixtures and model errors."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from surefoot import tasks
from surefoot.doctor.cause import Cause
from surefoot.doctor.diagnosis import HEALTHY, Diagnosis, _heads, _ranked
from surefoot.doctor.evidence.innovations import (
    Gain,
    Segments,
    Variant,
    full_gain,
    innovations,
    segments,
)
from surefoot.doctor.evidence.likelihood import Hypothesis, Likelihood, weigh
from surefoot.doctor.hypotheses.effects import latencies, limits
from surefoot.doctor.hypotheses.fit import Fit, solve
from surefoot.doctor.hypotheses.late_commands import log_normal, mixture
from surefoot.doctor.hypotheses.model_errors import DELAY, errors_of, model_errors, wiring_faults, world_with
from surefoot.fault import on_columns
from surefoot.log import Log
from surefoot.rng import stream
from surefoot.world import Chance, Start

RNG = stream(5, "doctor laws")


def likelihood(eps: np.ndarray) -> Likelihood:
    """Of innovations (s, w, c) that all count."""
    return Likelihood(eps, np.ones(eps.shape[:2], bool), np.zeros(eps.shape[2]))


def test_the_likelihood_is_that_of_a_gaussian_with_the_covariance_of_its_own_rows():
    rows = RNG.normal(size=(500, 2)) @ np.array([[2.0, 0.5], [0.0, 0.1]])
    L = likelihood(rows[None])
    S = L.covariance(rows)
    exact = multivariate_normal(np.zeros(2), S).logpdf(rows).sum()
    constant = -0.5 * rows.size * (1 + np.log(2 * np.pi))  # of every hypothesis alike
    assert L.log(rows) == pytest.approx(exact - constant, rel=1e-12)
    assert L.log(np.full_like(rows, np.nan)) == -np.inf


def test_halving_the_innovations_of_c_channels_is_worth_n_c_log_2_nats_less_bic():
    eps = RNG.normal(size=(2, 100, 3))
    L = likelihood(eps)
    assert L.evidence(0.5 * eps, 2) == pytest.approx(200 * 3 * np.log(2) - np.log(200), rel=1e-12)
    assert L.share(0.5 * eps) == pytest.approx(0.75)
    found = weigh(L, Hypothesis("gain", "numbers", "half", 2, value=0.5), 0.5 * eps)
    assert found.cause.evidence == L.evidence(0.5 * eps, 2) and found.cause.share == pytest.approx(0.75)
    assert found.cause.value == 0.5 and weigh(L, found.hypothesis, eps, -3.0).cause.evidence == -3.0


def test_a_gauss_newton_step_on_a_linear_problem_is_exact():
    X, d = RNG.normal(size=(400, 2, 3)), np.array([0.3, -1.2, 2.0])
    noise = 1e-3 * RNG.normal(size=(400, 2))
    found = solve(likelihood(noise[None]), noise - X @ d, X)
    np.testing.assert_allclose(found, d, atol=5e-4)
    np.testing.assert_allclose(solve(likelihood(noise[None]), -X @ d, X, rounds=1), d, rtol=1e-9)


def test_the_posterior_share_of_a_late_command_is_bayes_rule():
    S, p = np.array([[0.5, 0.1], [0.1, 0.2]]), 0.3
    fresh, late = RNG.normal(size=(50, 2)), RNG.normal(size=(50, 2))
    normal = multivariate_normal(np.zeros(2), S)
    a, b = (1 - p) * normal.pdf(fresh), p * normal.pdf(late)
    log, share = mixture(fresh, late, S, p)
    np.testing.assert_allclose(share, b / (a + b), rtol=1e-10)
    np.testing.assert_allclose(log - np.log(2 * np.pi), np.log(a + b), rtol=1e-10)
    np.testing.assert_allclose(log_normal(fresh, S) - np.log(2 * np.pi), normal.logpdf(fresh), rtol=1e-10)


def test_moving_by_a_difference_arrives_on_the_manifold():
    layout = tasks.env(tasks.resolve("hover"), 1).world.layout
    a, b = np.tile(layout.rest, (20, 1)), np.tile(layout.rest, (20, 1))
    for q in (a, b):
        q[:, :3] += RNG.normal(size=(20, 3))
        q[:, 3:7] = RNG.normal(size=(20, 4))
        q[:, 3:7] /= np.linalg.norm(q[:, 3:7], axis=1, keepdims=True)
    there = layout.moved(a, layout.difference(a, b))
    same = np.abs((there[:, 3:7] * b[:, 3:7]).sum(1))
    np.testing.assert_allclose(same, 1.0, atol=1e-12)
    np.testing.assert_allclose(there[:, :3], b[:, :3], atol=1e-12)


def balanced(strength: float = 1.0, rows: int = 150) -> tuple[Fit, Segments]:
    """Innovations along an exact log of the cart with a motor of this strength, under random forces."""
    task = tasks.resolve("balance")
    errors = errors_of(task)
    world = world_with(task, errors)
    e = errors.params.nominal.copy()
    e[errors.params.index("strength of push")] = strength
    u = stream(3, "forces").normal(size=(rows, 1))
    world.reset(np.arange(1), e[None], Start(np.zeros((1, 2)), np.zeros((1, 2)), u[:1]))
    q, v = [], []
    for k in range(rows):
        q.append(world.state.q[0].copy())
        v.append(world.state.v[0].copy())
        world.step(u[k : k + 1], Chance(0, k, world.dt))
    columns = {"joint_pos": np.array(q), "joint_vel": np.array(v), "control": u}
    at = segments(world, Log(world.dt * np.arange(rows), columns))
    return Fit(errors, world, at, full_gain(2)), at


def test_a_right_model_has_no_innovations_and_a_wrong_number_is_fitted():
    fit, at = balanced()
    eps = innovations(fit.world, at, [Variant(fit.params.nominal)], Gain(np.tile(0.5 * np.eye(2), (2, 1, 1))))[0]
    assert np.nanmax(np.abs(eps)) < 1e-9
    fit, _ = balanced(0.7)
    best = max((fit.weigh(x) for x in fit.run()), key=lambda x: x.cause.evidence)
    assert best.cause.kind == "gain" and best.cause.share > 0.999
    at = fit.params.index("strength of push")
    assert best.hypothesis.e[at] == pytest.approx(0.7, rel=1e-3)


def test_latency_and_limits_of_an_exact_log_have_less_evidence_than_the_truth():
    fit, _ = balanced(0.7)
    gain = max(fit.weigh(x).cause.evidence for x in fit.run())
    tried = latencies(fit)
    assert list(tried) == sorted(tried) and all(x.hypothesis.value == t for t, x in tried.items())
    assert max(x.cause.evidence for x in tried.values()) < gain and limits(fit)[0].cause.evidence < gain


def test_model_errors_address_every_number_by_name_and_are_nothing_at_zero():
    fit, at = balanced()
    errors = fit.errors
    assert errors.params.names[0] == DELAY and len(set(errors.params.names)) == len(errors.params.names)
    assert {"gain", "mass", "inertia", "centre of mass", "gravity", "friction", "drag", "sensor bias"} <= {
        x.kind for x in errors.errors
    }
    none = errors.variant(at, {i: 0.0 for i in range(len(errors.deviations))})
    assert np.array_equal(none.e, errors.params.nominal) and none.q is None and none.v is None and none.u is None
    (bias,) = [i for i, d in enumerate(errors.deviations) if d.name == "speed of hinge"]
    np.testing.assert_allclose(at.v - errors.variant(at, {bias: 0.2}).v, np.tile([0.0, 0.2], (len(at.v), 1)))


def test_wiring_faults_exchange_or_reverse_motors():
    model = tasks.env(tasks.resolve("hover"), 1).world.model
    faults = list(wiring_faults(tasks.env(tasks.resolve("hover"), 1).world.layout))
    assert len(faults) == 6  # pairs of four rotors; a rotor that only pulls is not reversed
    u = RNG.normal(size=(5, 4))
    for fault in faults:
        wired = on_columns(fault, {"control": u})["control"]
        assert (wired != u).sum() == 10 and np.allclose(np.sort(wired, 1), np.sort(u, 1))
    assert [d.kind for d in model_errors(model).errors if d.kind == "imu misalignment"] == ["imu misalignment"]


def cause(kind: str, evidence: float, branch: str = "physics", share: float = 0.5) -> Cause:
    return Cause(kind, "", evidence, share, "", branch)


def test_probabilities_are_a_softmax_of_evidence_with_the_healthy_threshold():
    found = Diagnosis((cause("drag", 12.0), cause("gain", 11.0)), 0.0, None, None)
    p = found.probabilities()
    weights = np.exp([HEALTHY, 12.0, 11.0])
    np.testing.assert_allclose([p["healthy"], p["drag"], p["gain"]], weights / weights.sum(), rtol=1e-12)
    assert [c.kind for c in found.significant] == ["drag", "gain"] and found.second.kind == "gain"


def test_causes_rank_by_evidence_and_prior_and_drops_include_late_commands():
    ranked = _ranked([cause("mass", 21.0), cause("gain", 20.0), cause("gain", 5.0)])
    assert [(c.kind, c.evidence) for c in ranked] == [("gain", 20.0), ("mass", 19.0)]  # a prior of -2 nats
    late = cause("jitter", 7.0, "timing", 0.3)
    drops = next(c for c in _ranked([cause("drops", 30.0, "timing", np.nan), late]) if c.kind == "drops")
    assert drops.evidence == 37.0 and drops.share == 0.3


def test_a_wrong_rate_comes_before_a_broken_contract_and_both_before_physics():
    rate, sign, drag = cause("rate", 20.0, "timing"), cause("sign", 90.0, "contract"), cause("drag", 900.0)
    assert _heads([rate, sign, drag]) == {"rate"} and _heads([sign, drag]) == {"sign"} and _heads([drag]) == set()
