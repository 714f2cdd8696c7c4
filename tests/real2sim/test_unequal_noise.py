"""A channel that is measured far better than another decides the fit, whatever the first guess of their weights was."""

import numpy as np
import pytest
from scipy.stats import chi2
from test_identify import PARAMS, TRUTH, XML, coloured, pendulum, recorded

from surefoot.belief import Box
from surefoot.log import Log
from surefoot.real2sim.identify import Identify, identify
from surefoot.real2sim.identify.fit import Case, Problem, Space
from surefoot.real2sim.identify.noise import Noise, innovation
from surefoot.real2sim.replay import windows

RHO, SD = 0.9, np.array([1e-4, 0.4])  # rad, rad/s: of a motion of about 1 rad and 4 rad/s
WHOLE = Identify(horizons=(), starts="known", hold=0.0)


def noisy(log, seed):
    r = coloured([RHO, RHO], len(log) - 1, seed)[0] * SD
    columns = {"joint_pos": log["joint_pos"].copy(), "joint_vel": log["joint_vel"].copy(), "control": log["control"]}
    columns["joint_pos"][1:] += r[:, :1]
    columns["joint_vel"][1:] += r[:, 1:]
    return Log(log.time, columns)


def test_estimates_scatter_as_the_cramer_rao_bound_says_where_noise_is_unequal_and_coloured():
    """Errors in units of the bound are chi-square: 3 for each log. A fit in the first guess of weights is hundreds of sds off."""
    w, space, logs = pendulum(), Space.of(Box.full(PARAMS), 0.01), 8
    clean = recorded(w, TRUTH)
    noise = Noise(SD * np.sqrt(1 - RHO**2), np.full(2, RHO))
    J = Problem(space, (Case(w, windows(w, clean), False),), (noise,)).jacobian(space.z(TRUTH))
    off = [identify(w, Box.full(PARAMS), noisy(clean, seed), WHOLE) for seed in range(logs)]
    assert all(found.white for found in off)
    total = sum(np.square(J @ (space.z(found.e) - space.z(TRUTH))).sum() for found in off)
    assert total < chi2.isf(1e-6, 3 * logs)


def test_physics_that_the_model_lacks_is_known_after_few_rounds():
    """A spring that the model has not got: no weights explain it, so there are no further rounds."""
    log = recorded(
        pendulum(xml=XML.replace('armature=".02"', 'armature=".02" stiffness="2"')), TRUTH, noise=(2e-3, 2e-2)
    )
    rounds = set()
    found = identify(pendulum(), Box.full(PARAMS), log, WHOLE, watch=lambda p: rounds.add(p.doing))
    assert not found.white
    assert len([x for x in rounds if "round" in x]) <= 2


def test_innovation_is_the_geometric_mean_over_all_channels():
    two = [Noise(np.array([1.0, 4.0]), np.zeros(2)), Noise(np.array([16.0]), np.array([0.9]))]
    assert innovation(two) == pytest.approx(4.0)
