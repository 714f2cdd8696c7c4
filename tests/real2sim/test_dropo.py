"""DROPO finds what the masses are, and believes less where the model is wrong."""

from dataclasses import dataclass, replace

import mujoco
import numpy as np
import pytest
from scipy import stats

from surefoot.belief import Box, Truncated, point
from surefoot.errors import SurefootError
from surefoot.log import Log
from surefoot.params import Param, Params
from surefoot.real2sim.infer.dropo import Dropo, dropo, examine, likelihood, thinned
from surefoot.real2sim.plant import world
from surefoot.real2sim.replay import windows
from surefoot.rng import stream
from surefoot.sim.engine import Engine
from surefoot.tasks.ready.arm import MIDDLE, PARAMS, xml
from surefoot.world import Chance, OnForce, Start

SMALL = Dropo(draws=16, rounds=18, population=9, windows=10, restarts=1)
MASSES = PARAMS.only(["upper_mass", "fore_mass"])
PRIOR = Box.ranges(MASSES, {"upper_mass": (0.75, 3.0), "fore_mass": (0.5, 2.0)})
TRUE = np.array([2.1, 1.35])  # kg


@dataclass(frozen=True)
class Spring(OnForce):
    """-k q at the shoulder, N m."""

    k: float

    def __call__(self, x, u, chance):
        force = np.zeros_like(x.v)
        force[:, 0] = -self.k * x.q[:, 0]
        return force


def machine(n=1, terms=()) -> Engine:
    return world(mujoco.MjSpec.from_string(xml()), MASSES, 0.02, n, terms)


def moved(seed=0, e=TRUE, terms=(), steps=300) -> Log:
    """Servos follow sines; joint angles are read to 1 mrad, speeds to 20 mrad/s."""
    w, rng = machine(1, terms), stream(seed, "arm log")
    t = w.dt * np.arange(steps)[:, None]
    u = MIDDLE + sum(
        rng.uniform(0.1, 0.35, 2) * np.sin(2 * np.pi * f * t + rng.uniform(0, 6.28, 2)) for f in (0.4, 0.9, 1.7)
    )
    rest = Start(u[:1], np.zeros((1, 2)), u[:1])
    w.reset(np.arange(1), e[None], rest)
    did = w.rollout(u[None], Chance(0, 0, w.dt))
    q, v = np.concatenate([rest.q, did.q[0]]), np.concatenate([rest.v, did.v[0]])
    noisy = {
        "joint_pos": q + 0.001 * rng.standard_normal(q.shape),
        "joint_vel": v + 0.02 * rng.standard_normal(v.shape),
    }
    return Log(w.dt * np.arange(steps + 1), noisy | {"control": np.concatenate([u, u[-1:]])})


def test_hidden_masses_are_found_and_an_unknown_spring_widens_the_belief():
    plain = dropo(machine(), PRIOR, moved(), 8, SMALL)
    assert plain.mean() == pytest.approx(TRUE, rel=0.05)
    sprung = dropo(machine(), PRIOR, moved(terms=(Spring(4.0),)), 8, SMALL)
    assert sprung.sd()[0] > 2 * plain.sd()[0]


def test_the_likelihood_is_that_of_the_normal_with_the_draws_moments():
    x = stream(0, "x").standard_normal((30, 2, 3)) + 0.5
    expected = [
        stats.multivariate_normal(x[:, w].mean(0), np.cov(x[:, w].T) + 0.1 * np.eye(3)).logpdf(np.zeros(3))
        for w in range(2)
    ]
    assert likelihood(x, 0.1) == pytest.approx(np.mean(expected))


def test_the_same_seed_gives_the_same_belief_and_another_does_not():
    few = Dropo(draws=4, rounds=2, population=5, windows=3)
    found = [dropo(machine(), PRIOR, moved(), 5, few, seed) for seed in (0, 0, 1)]
    assert found[0] == found[1] and found[0] != found[2]


def test_what_is_fixed_stays_and_what_is_found_lies_within_the_prior():
    prior = Box(MASSES, [2.0, 1.35], [2.05, 1.35])
    found = dropo(machine(), prior, moved(), 5, Dropo(draws=4, rounds=2, population=5, windows=3))
    assert isinstance(found, Truncated) and found.mean()[1] == pytest.approx(1.35, rel=1e-12)
    assert np.array_equal(found.support()[0], prior.low) and np.array_equal(found.support()[1], prior.high)
    with pytest.raises(SurefootError, match="every param fixed"):
        dropo(machine(), point(MASSES, TRUE), moved())


def test_windows_are_thinned_evenly_and_those_whose_end_was_lost_are_left_out():
    log = moved()
    pieces = windows(machine(), log, 10)
    few = thinned(pieces, 4, slice(-1, None))
    assert few.rows.tolist() == [0, 100, 190, 290] and len(few.u) == len(few.start.q) == 4
    assert np.array_equal(few.target(few.signals[0])[1], pieces.target(pieces.signals[0])[10])
    q = log["joint_pos"].copy()
    q[[20, 33]] = np.nan
    lossy = windows(machine(), Log(log.time, {**log.columns, "joint_pos": q}), 10)
    ends = thinned(lossy, 100, slice(-1, None)).rows.tolist()
    assert 10 not in ends and 30 in ends and 30 not in thinned(lossy, 100, slice(None)).rows


def test_a_log_that_holds_fewer_than_three_windows_is_refused():
    short = moved(steps=2)  # and the row it begins with
    with pytest.raises(SurefootError, match="found 3 rows, expected at least 31: 3 windows of 10 control periods"):
        dropo(machine(), PRIOR, short, 10, SMALL)


HIDDEN = Param("hidden", "damping", 1e-4, 1e-6, 1e-2, match="shoulder", op="set", unit="N m s/rad", log=True)


def test_what_the_log_does_not_determine_keeps_its_range_and_the_rest_is_found():
    """A damping of at most 0.01 N m s/rad beside servos of 4: its effect is far below the noise."""
    params = Params((*MASSES, HIDDEN))
    w = world(mujoco.MjSpec.from_string(xml()), params, 0.02)
    prior = Box(params, [0.75, 0.5, 1e-6], [3.0, 2.0, 1e-2])
    found = examine(w, prior, moved(), 8, replace(SMALL, restarts=2))
    assert found.belief.mean()[:2] == pytest.approx(TRUE, rel=0.05)
    assert found.belief.spread[2] > 0.2 * np.log(1e4)  # of a range of four decades; the largest spread is a quarter
    checks = {c.name: c for c in found.checks}
    assert (
        checks["as wide as the log's information"].holds
        and "hidden" in checks["as wide as the log's information"].evidence
    )
    assert checks["restarts agree"].holds


def test_a_search_that_was_stopped_early_is_said():
    found = examine(machine(), PRIOR, moved(), 8, Dropo(draws=8, rounds=4, population=6, windows=6))
    (settled,) = [c for c in found.checks if c.name == "search has converged"]
    assert not settled.holds and settled.value > settled.limit and "--dropo.rounds" in settled.evidence
