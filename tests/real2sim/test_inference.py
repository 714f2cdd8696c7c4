"""Posteriors learned from simulations know more than the prior, and no more than they may."""

import builtins

import mujoco
import numpy as np
import pytest

from surefoot.belief import Box, Particles
from surefoot.errors import MissingExtra, SurefootError
from surefoot.log import Log
from surefoot.params import Param, Params
from surefoot.real2sim.infer.sbi import NPE, checked, experiment, learn
from surefoot.real2sim.plant import world
from surefoot.rng import stream
from surefoot.world import Chance, Start

PENDULUM = """
<mujoco><compiler angle="radian"/><option timestep="0.01" integrator="RK4"/>
<worldbody><body name="rod"><joint name="hinge" axis="0 1 0" damping=".05"/>
  <inertial pos="0 0 0" mass="1e-6" diaginertia="1e-6 1e-6 1e-6"/>
  <body name="bob" pos="0 0 -.5"><inertial pos="0 0 0" mass="1" diaginertia="1e-4 1e-4 1e-4"/></body></body></worldbody>
<actuator><motor name="motor" joint="hinge"/></actuator></mujoco>"""
PARAMS = Params((
    Param("mass", "mass", 1.0, 0.3, 3.0, match="bob", op="set", unit="kg", log=True),
    Param("length", "com_z", 0.0, -0.4, 0.4, match="bob", op="add", unit="m"),
))  # fmt: skip
PRIOR = Box.ranges(PARAMS, {"mass": (0.5, 2.0), "length": (-0.3, 0.3)})
NOISE = {"joint_pos": 0.03, "joint_vel": 0.2}


def pendulum(n=1):
    return world(mujoco.MjSpec.from_string(PENDULUM), PARAMS, 0.02, n)


def swung(e, seed=0, steps=40, noise=NOISE):
    """A log of a torque that comes and goes, from rest at 0.5 rad, with noise."""
    w, rng = pendulum(), stream(seed, "swing")
    u = np.sin(4.0 * w.dt * np.arange(steps))[:, None]
    rest = Start(np.full((1, 1), 0.5), np.zeros((1, 1)), u[:1])
    w.reset(np.arange(1), np.asarray(e)[None], rest)
    moved = w.rollout(u[None], Chance(0, 0, w.dt))
    noisy = lambda a, sd: np.concatenate([a[0], a[1] + sd * rng.standard_normal(a[1].shape)])  # noqa: E731
    return Log(w.dt * np.arange(steps + 1), {
        "joint_pos": noisy((rest.q, moved.q[0]), noise["joint_pos"]), "joint_vel": noisy((rest.v, moved.v[0]), noise["joint_vel"]),
        "control": np.concatenate([u, u[-1:]]),
    })  # fmt: skip


@pytest.fixture(scope="module")
def posterior():
    pytest.importorskip("sbi", reason="needs the sbi extra")
    how = NPE(simulations=3000, epochs=60)
    return learn(experiment(pendulum(), PRIOR, swung([1.0, 0.0]), NOISE, how=how), how)


def test_the_truth_is_likelier_after_than_before(posterior):
    """BayesSim's measure: 1 nat or more for at least 18 of 20 pendulums."""
    truths = PRIOR.sample(stream(7, "truths"), 20)
    gained = [posterior.log_prob(e, swung(e, k))[0] - PRIOR.log_prob(e)[0] for k, e in enumerate(truths)]
    assert sum(g >= 1.0 for g in gained) >= 18


def test_it_is_as_sure_as_it_may_be(posterior):
    found = checked(posterior, 300)
    assert (found.p > 0.01).all() and found.coverage90 == pytest.approx([0.9, 0.9], abs=0.08)


def test_its_density_integrates_to_one_over_the_prior(posterior):
    a, b = np.meshgrid(np.exp(np.linspace(*np.log([0.5, 2.0]), 121)), np.linspace(-0.3, 0.3, 121), indexing="ij")
    log = swung([1.2, 0.1])
    p = np.exp(posterior.log_prob(np.stack([a.ravel(), b.ravel()], 1), log)).reshape(a.shape)
    assert np.trapezoid(np.trapezoid(p, b[0], axis=1), a[:, 0]) == pytest.approx(1.0, abs=0.05)


def test_draws_are_a_belief_within_the_prior_and_have_the_density_they_say(posterior):
    log = swung([1.2, 0.1])
    belief = posterior.belief(log, 500)
    assert isinstance(belief, Particles) and PRIOR.inside(belief.points).all()
    assert (np.abs(belief.mean() - [1.2, 0.1]) < 3 * belief.sd()).all() and (belief.sd() < 0.5 * PRIOR.sd()).all()
    around = posterior.log_prob(belief.points, log).mean()
    assert around > posterior.log_prob(PRIOR.sample(stream(0, "p"), 500), log).mean() + 3


def test_the_same_seed_gives_the_same_belief_and_another_does_not():
    pytest.importorskip("sbi", reason="needs the sbi extra")
    how, log = NPE(simulations=200, epochs=2, statistics="learned", density="mdn"), swung([1.2, 0.1])
    done = experiment(pendulum(), PRIOR, log, NOISE, how=how)
    found = [learn(done, how, seed=k).belief(log, 50, seed=k) for k in (0, 0, 1)]
    assert found[0] == found[1] and found[0] != found[2]


def test_windows_are_told_as_the_log_has_them_and_only_for_their_own_log():
    """Without noise, statistics of what is simulated under the truth are those of the log, and others are not."""
    log = swung([1.2, 0.1], noise={"joint_pos": 0.0, "joint_vel": 0.0})
    done, whole = (experiment(pendulum(), PRIOR, log, {}, length, NPE(windows=3)) for length in (10, None))
    assert len(done.pieces) == 3 and len(whole.pieces) == 1
    for each in (done, whole):
        x = each.simulate(np.array([[1.2, 0.1], [0.6, -0.2]]), 0)
        assert x[0] == pytest.approx(each.of(log), rel=1e-6, abs=1e-9) and x[1] != pytest.approx(each.of(log), rel=0.1)
    with pytest.raises(SurefootError, match="expected the one whose windows"):
        done.of(swung([1.2, 0.1]))


def test_a_windows_start_is_doubted_as_its_sensors_are():
    done = experiment(pendulum(), PRIOR, swung([1.2, 0.1]), NOISE, 10)
    found = done._starts(500, stream(0, "s"))
    spread = (found.v - np.tile(done.pieces.start.v, (500, 1))).std()
    assert spread == pytest.approx(NOISE["joint_vel"], rel=0.05)


def test_what_is_fixed_stays_fixed():
    done = experiment(pendulum(), Box(PARAMS, [0.5, 0.1], [2.0, 0.1]), swung([1.2, 0.1]), NOISE)
    z, _ = done.forward(np.array([[1.0, 0.1]]))
    assert z == pytest.approx(np.zeros((1, 1)), abs=1e-9)
    assert done.inverse(z) == pytest.approx(np.array([[1.0, 0.1]]))


def test_without_the_library_the_extra_is_named(monkeypatch):
    real = builtins.__import__

    def missing(name, *args, **kw):
        if name.split(".")[0] == "sbi":
            raise ImportError(name)
        return real(name, *args, **kw)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(MissingExtra, match=r"surefoot\[sbi\]"):
        learn(experiment(pendulum(), PRIOR, swung([1.0, 0.0]), NOISE))


def test_a_wrong_signal_and_a_short_log_are_told():
    with pytest.raises(SurefootError, match="did you mean joint_pos"):
        experiment(pendulum(), PRIOR, swung([1.0, 0.0]), {"joint_po": 0.1})
    done = experiment(pendulum(), PRIOR, swung([1.0, 0.0]), NOISE)
    with pytest.raises(SurefootError, match="found 31 rows"):
        done.of(swung([1.0, 0.0], steps=30))
