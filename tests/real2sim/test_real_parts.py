"""Parts of identification and of logs as worlds, each against numbers known otherwise."""

import mujoco
import numpy as np
import pytest

from surefoot.errors import SurefootError
from surefoot.log import Log
from surefoot.params import Param, Params
from surefoot.real2sim.identify.fit import Space
from surefoot.real2sim.identify.result import Identified, Learned
from surefoot.real2sim.identify.uncertainty import WIDTH, belief_of, combinations, determined
from surefoot.real2sim.log_env import LogWorld
from surefoot.real2sim.log_faults import case, edited, possible_faults, predicted
from surefoot.real2sim.plant import world
from surefoot.real2sim.replay import windows
from surefoot.world import Chance, Start

XML = """<mujoco><compiler angle="radian"/><option timestep="0.01" integrator="implicitfast"/><worldbody>
<body name="a"><joint name="left_hip" axis="0 1 0" damping=".1"/><inertial pos="0 0 -.3" mass="1" diaginertia=".01 .01 .01"/></body>
<body name="b"><joint name="right_hip" axis="0 1 0" damping=".1"/><inertial pos="0 0 -.3" mass="1" diaginertia=".01 .01 .01"/></body>
</worldbody><actuator><motor name="left_hip" joint="left_hip"/><motor name="right_hip" joint="right_hip"/></actuator></mujoco>"""
E = Params((Param("mass", "mass", 1.0, 0.5, 2.0, log=True), Param("damping", "damping", 0.1, 0.0, 0.5, op="set")))
NONE = Params()


def swung(w, rows=60):
    t = w.dt * np.arange(rows)
    u = np.stack([np.sin(5 * t), np.cos(7 * t)], 1)
    w.reset(np.arange(1), w.params.nominal[None], Start(np.zeros((1, 2)), np.zeros((1, 2)), u[:1]))
    m = w.rollout(u[None, :-1], Chance(0, 0, w.dt))
    zero = np.zeros((1, 2))
    return Log(
        t, {"joint_pos": np.concatenate([zero, m.q[0]]), "joint_vel": np.concatenate([zero, m.v[0]]), "control": u}
    )


def space():
    return Space(E, E.low, E.high, np.zeros(2))


def test_a_covariance_of_z_is_one_of_y_scaled_by_the_ranges():
    """y of mass is ln e over ln 4, y of damping is e over 0.5."""
    cov = np.array([[0.01, 0.002], [0.002, 0.04]])
    belief = belief_of(space(), np.array([1.0, 0.1]), cov)
    width = np.array([np.log(4.0), 0.5])
    assert belief.cov == pytest.approx(cov * np.outer(width, width)) and belief.estimate() == pytest.approx([1.0, 0.1])


def test_an_unknown_is_determined_by_a_quarter_of_its_value_or_a_twentieth_of_its_range():
    assert determined(space(), 0, 0.05 / 1.96, 1.0)  # a twentieth of the range
    factor = np.log(1.25) / np.log(4.0) / 1.96  # sd at which the interval ends at 1.25 times the value
    assert determined(space(), 0, 0.999 * factor, 1.0) and not determined(space(), 0, 1.001 * factor, 1.0)
    assert not determined(space(), 1, 0.06, 0.1) and determined(space(), 1, 0.06, 0.4)


def test_of_two_unknowns_that_only_their_sum_determines_the_sum_is_named():
    along, across = np.array([1.0, 1.0]) / np.sqrt(2), np.array([1.0, -1.0]) / np.sqrt(2)
    cov = 1e-6 * np.outer(along, along) + WIDTH**2 * np.outer(across, across)
    (words,) = combinations(cov, space(), np.array([0, 1]))
    assert "ln mass" in words and "damping" in words and words.split()[0] == words.split()[3]  # equal signs and sizes
    assert combinations(np.diag([WIDTH**2, WIDTH**2]), space(), np.array([0, 1])) == ()


def test_a_fit_is_at_fault_where_its_mean_error_ratio_is_above_five_percent():
    learned = (Learned("mass", "", 1.0, 1.2, 1.1, 1.3, True, False),)
    found = lambda **held: Identified(belief_of(space(), E.nominal, np.eye(2)), learned, (), (), True, {}, held)  # noqa: E731
    assert not found(joint_pos=(1.0, 1.04)).fault and "1.06 times" in found(joint_pos=(1.0, 1.06)).fault
    assert not found(joint_pos=(1.0, 2.0), joint_vel=(1.0, 0.5)).fault  # geometric mean 1
    assert found().e.tolist() == [1.2]


def test_a_log_as_a_case_has_the_models_order_and_derives_velocities_that_were_not_logged():
    w = world(mujoco.MjSpec.from_string(XML), NONE, 0.01)
    log = swung(w)
    names = {"joint_pos": ["right_hip", "left_hip"]}
    swapped = Log(log.time, {"joint_pos": log["joint_pos"][:, ::-1], "control": log["control"]}, meta={"names": names})
    found = case(w, swapped)
    assert found.names == ("right_hip", "left_hip") and found.driven.motors == (1, 0)
    assert predicted(w, swapped) == ("joint_pos",)
    v = log["joint_vel"][:, ::-1]  # of a semi-implicit step: q(k + 1) = q(k) + h v(k + 1)
    assert found.log["joint_vel"][5:-5] == pytest.approx((v[5:-5] + v[6:-4]) / 2, abs=0.01)


def test_possible_faults_of_two_legs_include_exchange_sign_unit_offset_and_delay():
    found = case(
        world(mujoco.MjSpec.from_string(XML), NONE, 0.01), swung(world(mujoco.MjSpec.from_string(XML), NONE, 0.01))
    )
    faults = list(possible_faults(found))
    assert {"order", "sign", "unit", "offset", "delay"} <= {f.kind for f in faults}
    sign = next(f for f in faults if f.kind == "sign" and f.of == "joints")
    once = edited(found, sign)["joint_pos"]
    assert np.array_equal(once, found.log["joint_pos"] * [-1.0, 1.0]) and "left_hip" in sign.words


def test_a_log_world_replays_a_window_when_the_policy_adds_nothing():
    w = world(mujoco.MjSpec.from_string(XML), NONE, 0.01, 3)
    log = swung(world(mujoco.MjSpec.from_string(XML), NONE, 0.01))
    pieces = windows(w, log, 10)
    follower = LogWorld(w, pieces, NONE.nominal, lambda controls, u: controls + u)
    assert follower.belief.high.tolist() == [len(pieces)]
    follower.reset(np.arange(3), np.array([[0.2], [1.5], [len(pieces)]]), pieces.start)
    for k in range(10):
        assert (follower.now(follower.state)[1] == k).all()
        follower.step(np.zeros((3, 2)), Chance(0, k, 0.01))
    expected = log["joint_pos"][pieces.rows[[0, 1, len(pieces) - 1]] + 10]
    assert follower.state.q == pytest.approx(expected, abs=1e-9)
    with pytest.raises(SurefootError, match="log world: expected step"):
        follower.rollout(np.zeros((3, 4, 2)), Chance(0, 0, 0.01))
