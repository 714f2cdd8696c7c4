"""A log made by a model is predicted by that model; what was changed in between shows."""

from dataclasses import replace

import mujoco
import numpy as np
import pytest

from surefoot.errors import SurefootError
from surefoot.log import Log
from surefoot.params import Param, Params
from surefoot.real2sim.plant import world
from surefoot.real2sim.replay import compounding, longest_window, predict, replay, stable_length, windows
from surefoot.real2sim.signals import slope, starts
from surefoot.rotation import between
from surefoot.world import Chance, OnForce, Start

PENDULUM = """
<mujoco><compiler angle="radian"/><option timestep="0.002" integrator="RK4"/>
<worldbody><body name="arm"><joint name="hinge" axis="0 1 0" damping=".02" armature=".01"/>
    <inertial pos="0 0 -.5" mass="2" diaginertia=".02 .02 .02"/></body></worldbody>
<actuator><motor name="motor" joint="hinge"/></actuator></mujoco>"""
PARAMS = Params(
    (Param("mass", "mass", 1.0, 0.5, 2.0, match="arm"), Param("gravity", "gravity", 9.81, 8.0, 11.0, op="set"))
)


def pendulum(params=PARAMS, n=1, dt=0.01, terms=()):
    return world(mujoco.MjSpec.from_string(PENDULUM), params, dt, n, terms)


def recorded(w, seconds=2.0, e=None, q0=0.3):
    """A log of a pendulum under a sine torque."""
    count = round(seconds / w.dt)
    w.reset(
        np.arange(1),
        (w.params.nominal if e is None else e)[None],
        Start(np.full((1, 1), q0), np.zeros((1, 1)), np.zeros((1, 1))),
    )
    u = np.sin(3.0 * w.dt * np.arange(count))[:, None]
    moved = w.rollout(u[None], Chance(0, 0, w.dt))
    return Log(
        w.dt * np.arange(count + 1),
        {"joint_pos": np.concatenate([[[q0]], moved.q[0]]), "joint_vel": np.concatenate([[[0.0]], moved.v[0]]), "control": np.concatenate([u, u[-1:]])},
    )  # fmt: skip


def test_a_log_is_predicted_by_the_model_that_made_it_to_the_last_bit():
    found = replay(pendulum(), recorded(pendulum()))
    assert [s.rmse for s in found.scores] == [0.0, 0.0]
    assert found.scores[0].r2 == 1.0


def test_a_rollout_is_so_many_steps_with_and_without_terms():
    class Nothing(OnForce):
        def __call__(self, x, u, chance):
            return np.zeros_like(x.v)

    plain, stepped = (recorded(pendulum(terms=terms)) for terms in ((), (Nothing(),)))
    assert np.array_equal(plain["joint_pos"], stepped["joint_pos"])


def test_a_wrong_mass_shows_and_setting_the_model_back_hides_most_of_it():
    log = recorded(pendulum(), e=PARAMS.vector({"mass": 1.3}))
    free, resynced = replay(pendulum(), log), replay(pendulum(), log, resync=5)
    assert free.scores[0].rmse > 10 * resynced.scores[0].rmse > 0
    assert replay(pendulum(), log, PARAMS.vector({"mass": 1.3})).scores[0].rmse == 0.0


def test_an_upright_pendulum_compounds_errors_as_its_equation_says():
    """Near the top x'' = (g / l) x with 1 / l = m d / I: an error grows by exp(sqrt(m g d / I) dt) a step."""
    free = Params((Param("damping", "damping", 0.0, 0.0, 2.0),))
    w, rest = pendulum(free), Start(np.full((1, 1), np.pi - 1e-4), np.zeros((1, 1)), np.zeros((1, 1)))
    w.reset(np.arange(1), free.nominal[None], rest)
    moved = w.rollout(np.zeros((1, 80, 1)), Chance(0, 0, w.dt))
    q, v = np.concatenate([rest.q, moved.q[0]]), np.concatenate([rest.v, moved.v[0]])
    q[0] += 1e-5  # the model begins a little beside the truth
    log = Log(w.dt * np.arange(81), {"joint_pos": q, "joint_vel": v, "control": np.zeros((81, 1))})
    rho = compounding(w, log, free.nominal, horizon=0.8)[0]["joint_pos"]
    inertia = 2 * 0.5**2 + 0.02 + 0.01
    assert rho == pytest.approx(np.exp(np.sqrt(2 * 9.81 * 0.5 / inertia) * 0.01), rel=3e-3)


def test_every_window_is_predicted_under_every_e():
    log, w = recorded(pendulum()), pendulum()
    pieces = windows(w, log, 50)
    e = np.array([PARAMS.nominal, PARAMS.vector({"mass": 1.5})])
    errors = pieces.errors(predict(w, pieces, e))["joint_pos"]
    assert errors.shape == (2 * len(pieces), 50, 1)
    assert not errors[: len(pieces)].any() and errors[len(pieces) :].any()


def test_no_window_runs_across_a_gap():
    log, w = recorded(pendulum()), pendulum()
    q = log["joint_pos"].copy()
    q[73:76] = np.nan
    pieces = windows(w, Log(log.time, {**log.columns, "joint_pos": q}), 10)
    assert 60 in pieces.rows and not {70, 73}.intersection(pieces.rows)
    assert all(np.isfinite(pieces.target(s)).all() for s in pieces.signals)


def test_two_lost_rows_are_borne_and_say_nothing_against_a_prediction():
    log, w = recorded(pendulum()), pendulum()
    q = log["joint_pos"].copy()
    q[73:75] = np.nan
    lost = Log(log.time, {**log.columns, "joint_pos": q})
    assert 70 in windows(w, lost, 10).rows
    assert replay(w, lost).scores[0].rmse == 0.0


def test_uneven_stamps_are_refused_by_row():
    log = recorded(pendulum())
    time = log.time.copy()
    time[40:] += 0.01
    with pytest.raises(SurefootError, match="rows 39 and 40"):
        replay(pendulum(), Log(time, log.columns))


def test_parts_are_found_by_name_and_wrong_names_are_told():
    log = recorded(pendulum())
    with pytest.raises(SurefootError, match="no joint matches 'hing'.*did you mean hinge"):
        replay(pendulum(), Log(log.time, log.columns, meta={"names": {"joint_pos": ["hing"]}}))


def test_rotations_are_apart_by_the_angle_between_them():
    a = np.array([1.0, 0, 0, 0])
    for angle in (1e-12, 0.3, 3.0):
        b = np.array([np.cos(angle / 2), 0, np.sin(angle / 2), 0])
        assert between(a, b) == pytest.approx([0, angle, 0], abs=1e-12)
        assert between(a, -b) == pytest.approx([0, angle, 0], abs=1e-12)


def test_the_slope_of_a_parabola_is_exact():
    t = np.array([0.0, 0.1, 0.25, 0.3, 0.5, 0.6, 0.8])
    assert slope(t, (3 * t**2 - t)[:, None])[:, 0] == pytest.approx(6 * t - 1, abs=1e-9)


SERVO = PENDULUM.replace('<motor name="motor" joint="hinge"/>', '<position name="servo" joint="hinge" kp="20" kv="1"/>')


def test_an_encoder_that_reads_too_much_is_undone_by_saying_so():
    """A machine whose encoder reads 0.1 rad above the truth: its servo settles where the encoder agrees."""
    params = Params((Param("offset", "encoder_offset", 0.0, -0.5, 0.5, op="add"),))
    w = world(mujoco.MjSpec.from_string(SERVO), params, 0.01)
    log = Log(
        0.01 * np.arange(1501),
        {"joint_pos": np.zeros((1501, 1)), "joint_vel": np.zeros((1501, 1)), "control": np.full((1501, 1), 0.3)},
    )
    pieces = windows(w, log)
    at_rest = predict(w, pieces, np.array([[0.1]])).q[0, -1, 0]
    plain = predict(w, pieces, np.array([[0.0]])).q[0, -1, 0]
    true = at_rest - 0.1  # 20 (0.3 - reading) = 2 x 9.81 x 0.5 sin(true)
    assert 20 * (0.3 - at_rest) == pytest.approx(9.81 * np.sin(true), rel=1e-3)
    assert 20 * (0.3 - plain) == pytest.approx(9.81 * np.sin(plain), rel=1e-3)


def paused(seconds=1.0):
    """Two records of a pendulum, one begun a while after the other."""
    one, two = recorded(pendulum(), seconds=2.0), recorded(pendulum(), seconds=2.0, q0=-0.5)
    time = np.concatenate([one.time, two.time + one.time[-1] + seconds])
    return Log(time, {k: np.concatenate([one[k], two[k]]) for k in one.columns})


def test_a_pause_parts_a_log_and_no_window_runs_across_it():
    log = paused()
    found = windows(pendulum(), log, 30)
    assert found.rows.tolist() == [0, 30, 60, 90, 120, 150, 201, 231, 261, 291, 321, 351]
    assert longest_window(pendulum(), log) == 200 and len(windows(pendulum(), log)) == 2
    assert [s.rmse for s in replay(pendulum(), log).scores] == [0.0, 0.0]
    without = Log(log.time, {k: v for k, v in log.columns.items() if k != "joint_vel"})
    assert starts(pendulum(), without, np.array([201])).v == pytest.approx(0.0, abs=0.05)  # begins at rest


def test_a_log_of_another_rate_is_refused_not_parted():
    log = recorded(pendulum())
    with pytest.raises(
        SurefootError,
        match="rows 0 and 1 are 0.1 s apart, expected 0.01; resample it: `surefoot log FILE --rate 100 --save",
    ):
        windows(pendulum(), Log(10 * log.time, log.columns), 10)


def test_a_window_bears_until_a_small_error_has_grown_tenfold():
    """Near the top an error v of the speed grows as v cosh(lambda t), lambda = sqrt(m g d / I); hanging, it does not."""
    free = Params((Param("damping", "damping", 0.0, 0.0, 2.0),))
    w, found = pendulum(free), []
    for q0 in (np.pi, 0.0):
        rest = Start(np.full((1, 1), q0), np.zeros((1, 1)), np.zeros((1, 1)))
        w.reset(np.arange(1), free.nominal[None], rest)
        moved = w.rollout(np.zeros((1, 150, 1)), Chance(0, 0, w.dt))
        log = Log(
            w.dt * np.arange(150), {"joint_pos": moved.q[0], "joint_vel": moved.v[0], "control": np.zeros((150, 1))}
        )
        found.append(stable_length(w, log, free.nominal, longest=20.0))
    inertia = 2 * 0.5**2 + 0.02 + 0.01
    assert found[0] == pytest.approx(np.arccosh(10) / np.sqrt(2 * 9.81 * 0.5 / inertia), abs=0.011)
    assert found[1] == np.inf


def test_a_slow_motor_goes_on_from_what_it_had_reached():
    """First order, 50 ms: begun at the last control, as a quick one, the prediction is off by a tenth of the speed."""
    slow = PENDULUM.replace("<motor ", '<general dyntype="filter" dynprm=".05" gainprm="3" ')
    w = world(mujoco.MjSpec.from_string(slow), PARAMS, 0.02)
    w.reset(
        np.arange(1),
        w.params.nominal[None],
        Start(np.zeros((1, 1)), np.zeros((1, 1)), np.zeros((1, 1)), np.ones((1, 1))),
    )
    u = np.sign(np.sin(12.0 * w.dt * np.arange(201)))[:, None]
    m = w.rollout(u[None, :-1], Chance(0, 0, w.dt))
    log = Log(w.dt * np.arange(1, 201), {"joint_pos": m.q[0], "joint_vel": m.v[0], "control": u[1:]})
    found = replay(w, log, resync=10)
    assert found.scores[1].rmse < 1e-3 * np.std(m.v)
    assert windows(w, log, 10).rows[0] == 18  # seven time constants
    wrong = predict(w, replace(windows(w, log, 10), before=None), w.params.nominal[None])
    assert np.abs(windows(w, log, 10).errors(wrong)["joint_vel"]).max() > 0.1 * np.std(m.v)


def test_a_motor_two_periods_late_still_hears_what_it_was_told_before_the_window():
    late = Params((Param("delay", "action_delay", 0.0, 0.0, 0.05, op="set"),))
    w = pendulum(late, dt=0.02)
    w.reset(np.arange(1), np.array([[0.05]]), Start(np.zeros((1, 1)), np.zeros((1, 1)), np.zeros((1, 1))))
    u = np.sign(np.sin(12.0 * w.dt * np.arange(101)))[:, None]
    m = w.rollout(u[None, :-1], Chance(0, 0, w.dt))
    log = Log(w.dt * np.arange(1, 101), {"joint_pos": m.q[0], "joint_vel": m.v[0], "control": u[1:]})
    pieces = windows(w, log, 5).some(slice(1, None))
    assert np.abs(pieces.errors(predict(w, pieces, np.array([[0.05]])))["joint_vel"]).max() < 1e-9


def test_stretches_shorter_than_the_horizon_are_replayed_and_their_growth_is_that_of_what_they_have():
    log = recorded(pendulum(), 1.0)
    time = log.time + 1.0 * (np.arange(len(log)) // 20)  # a pause after every twenty rows
    found = replay(pendulum(), Log(time, log.columns, meta=log.meta), resync=5)
    assert found.scores[0].rmse < 1e-9 and len(found.horizon["joint_pos"]) == 19
