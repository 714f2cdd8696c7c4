"""Errors of predictions under edits of a log, for a mass that falls: q'' = -g, so that every error is a polynomial of time.

under x -> s x    error = ((1 - s) / s)^2 (g / 2)^2 mean(tau^4)        tau: time since a piece's first row
under gravity g'  error = ((g' - g) / 2)^2 mean(tau^4)                 of a constant: mean((v tau)^2)
"""

import mujoco
import numpy as np
import pytest

from surefoot.fault import JOINTS, PLAIN, Fault, Late, Plus, Times
from surefoot.log import Log
from surefoot.params import Params
from surefoot.real2sim.edit_errors import (
    ONCE,
    columns_of,
    errors_of_a_constant,
    errors_under,
    errors_under_gravity,
    halves,
    stride,
    width,
)
from surefoot.real2sim.log_faults import case
from surefoot.real2sim.plant import world
from surefoot.real2sim.replay import windows
from surefoot.sim.layout import model_of

G, DT, LENGTH = 9.81, 0.01, 20
XML = """<mujoco><option timestep="0.01" integrator="RK4"/><worldbody>
<body><joint name="z" type="slide" axis="0 0 1"/><geom size=".1"/></body>
<body pos="1 0 0"><joint name="x" type="slide" axis="1 0 0"/><geom size=".1"/></body></worldbody></mujoco>"""
TAU = DT * np.arange(1, LENGTH + 1)


@pytest.fixture(scope="module")
def fall():
    """A case and its pieces: z falls, x moves on at 0.7 m/s."""
    t = DT * np.arange(101)
    q = np.stack([2 * t - G * t**2 / 2, 0.7 * t], 1)
    log = Log(t, {"joint_pos": q, "joint_vel": np.stack([2 - G * t, 0.7 + 0 * t], 1)})
    w = world(mujoco.MjSpec.from_string(XML), Params(), DT)
    found = case(w, log)
    return found, windows(w, found.log, LENGTH, stride(found.log, LENGTH), found.signals)


def times(by: float) -> Fault:
    return Fault("scale", "", (Times(JOINTS, (0,), by),), "readings")


@pytest.mark.parametrize("s", [-1.0, 0.5, 57.3])
def test_an_error_under_a_scale_is_in_the_units_of_the_log(fall, s):
    found = errors_under(*fall, [PLAIN, times(s)])
    assert found.shape == (2, len(fall[1]), 2) and found[0].max() < 1e-20
    assert found[1, :, 0] == pytest.approx(((1 - s) / s) ** 2 * (G / 2) ** 2 * (TAU**4).mean(), rel=1e-6)
    assert found[1, :, 1].max() < 1e-20


def test_readings_that_are_late_are_off_by_what_moves_meanwhile_and_not_the_free_motion(fall):
    """Free motions begun two rows earlier are free motions, too: a mass cannot tell its clock, nor where zero is."""
    late, off = Fault("delay", "", (Late(2, JOINTS),)), Fault("offset", "", (Plus(("joint_pos",), (0,), 0.3),))
    assert errors_under(*fall, [late, off])[:, 1:-1].max() < 1e-20


def test_more_edits_than_one_rollout_takes_are_each_as_alone(fall):
    faults = [times(0.5 + 0.1 * k) for k in range(ONCE + 3)]
    found = errors_under(*fall, faults)
    assert len(found) == ONCE + 3
    for k in (0, ONCE - 1, ONCE, ONCE + 2):
        assert np.array_equal(found[k], errors_under(*fall, faults[k : k + 1])[0])
    assert errors_under(*fall, []).shape == (0, len(fall[1]), 2)


def test_the_first_half_of_some_pieces_is_judged_alone(fall):
    few = np.array([1, 3])
    found = errors_under(*fall, [times(-1.0)], lambda pieces: halves(pieces, few))
    assert found.shape == (1, 2, 2)
    assert found[0, :, 0] == pytest.approx(G**2 * (TAU[: LENGTH // 2] ** 4).mean(), rel=1e-6)


def test_another_gravity_is_missed_by_half_of_its_square_and_the_models_own_comes_back(fall):
    where, pieces = fall
    found = errors_under_gravity(where, pieces, np.array([0.0, 0.0, -2 * G]))
    assert found[:, 0] == pytest.approx((G / 2) ** 2 * (TAU**4).mean(), rel=1e-6) and found[:, 1].max() < 1e-20
    assert model_of(where.world).opt.gravity.tolist() == [0.0, 0.0, -G]


def test_a_constant_is_off_by_what_was_travelled(fall):
    found = errors_of_a_constant(*fall)
    assert found[:, 1] == pytest.approx(0.7**2 * (TAU**2).mean(), rel=1e-9)
    v = 2 - G * DT * fall[1].rows[:, None]
    assert found[:, 0] == pytest.approx(((v * TAU - G * TAU**2 / 2) ** 2).mean(1), rel=1e-9)


def test_a_fault_counts_in_the_columns_of_its_joints_and_one_of_none_in_all(fall):
    where = fall[0]
    assert width(where) == 2
    assert columns_of(where, times(2.0)) == [0] and columns_of(where) == [0, 1]
