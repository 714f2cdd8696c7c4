"""Dry friction that grows under load and when nearly still, against hand-computed torques."""

import mujoco
import numpy as np
import pytest

from surefoot.errors import SurefootError
from surefoot.params import Param, Params
from surefoot.sim.engine import Engine
from surefoot.sim.fields.compile import compile_for
from surefoot.world import Chance, Start

WHEEL = """
<mujoco><option timestep="0.001" integrator="implicitfast"/><worldbody><body name="wheel"><joint name="axle" axis="0 1 0" frictionloss="0.1"/>
  <inertial pos="0 0 0" mass="1" diaginertia=".01 .01 .01"/></body></worldbody>
  <actuator><motor name="motor" joint="axle"/></actuator></mujoco>"""


def wheel(**values: float) -> tuple[Engine, np.ndarray]:
    params = Params(tuple(Param(name, name, 0.0, 0.0, 10.0, op="set") for name in values))
    w = Engine(compile_for(mujoco.MjSpec.from_string(WHEEL), params), params, 1, 1)
    w.reset(
        np.arange(1), np.array([list(values.values())]), Start(np.zeros((1, 1)), np.zeros((1, 1)), np.zeros((1, 1)))
    )
    return w, np.array(list(values.values()))


def speed(w: Engine, torque: float, seconds: float = 0.3) -> float:
    for k in range(round(seconds / w.dt)):
        w.step(np.full((1, 1), torque), Chance(0, k, w.dt))
    return float(w.state.v[0, 0])


@pytest.mark.parametrize("torque, moves", [(0.28, False), (0.32, True)])
def test_a_joint_with_stiction_breaks_away_at_coulomb_plus_stiction(torque, moves):
    assert (abs(speed(wheel(stiction=0.2, stribeck=0.05)[0], torque)) > 0.1) == moves


def test_once_it_turns_only_coulomb_friction_is_left():
    """(0.5 - 0.1) / 0.01 = 40 rad/s^2 once the speed is far above the stribeck speed."""
    w, _ = wheel(stiction=0.2, stribeck=0.05)
    first = speed(w, 0.5, 0.2)
    assert (speed(w, 0.5, 0.2) - first) / 0.2 == pytest.approx(40.0, rel=0.01)


def test_a_loaded_gear_loses_its_share_of_what_it_passes_on():
    """T = 0.5 - 0.1 - 0.3 T = 0.4 / 1.3 N m moves 0.01 kg m^2: 30.8 rad/s^2."""
    w, _ = wheel(friction_load=0.3)
    first = speed(w, 0.5, 0.1)
    assert (speed(w, 0.5, 0.2) - first) / 0.2 == pytest.approx(0.4 / 1.3 / 0.01, rel=1e-3)


LEVER = """<mujoco><option timestep="0.001" integrator="implicitfast"/><worldbody><body name="arm"><joint name="axle" axis="0 1 0"
  armature="{rotor}" frictionloss="1e-9"/><inertial pos=".1 0 0" mass="1" diaginertia="1e-9 1e-9 1e-9"/></body></worldbody>
  <actuator><motor name="motor" joint="axle"/></actuator></mujoco>"""


def lever(torque: float, rotor: float = 0.001, steps: int = 40, **values: float) -> float:
    """Angle, positive downwards, of a weight of 0.981 N m after 40 ms under a motor's torque against it."""
    params = Params(tuple(Param(name, name, 0.0, 0.0, 10.0, op="set") for name in values))
    w = Engine(compile_for(mujoco.MjSpec.from_string(LEVER.format(rotor=rotor)), params), params, 1, 1)
    w.reset(
        np.arange(1),
        np.array([list(values.values())]),
        Start(np.zeros((1, 1)), np.zeros((1, 1)), np.array([[-torque]])),
    )
    return float(w.rollout(np.full((1, steps, 1), -torque), Chance(0, 0, w.dt)).q[0, -1, 0])


@pytest.mark.parametrize("torque, sinks", [(0.38, True), (0.40, False), (0.97, False)])
def test_a_gear_that_is_hard_to_drive_back_holds_a_weight_with_a_part_of_its_torque(torque, sinks):
    """It loses 0.6 of 0.981 N m where the weight drives the motor: 0.392 hold it."""
    assert (lever(torque, friction_back=0.6) > 1e-4) == sinks


def test_to_lift_takes_no_more_than_the_weight():
    assert lever(1.05, friction_back=0.6) < -1e-3 < lever(0.97, friction_back=0.6)


def test_a_weight_that_falls_freely_loads_no_gears():
    """Only what turns the rotor, 0.001 of 0.011 kg m^2, passes through them: (1 - 0.6) (W - J a) = I a."""
    plain, back = lever(0.0), lever(0.0, friction_back=0.6)
    J, I = 0.01, 0.001
    assert back / plain == pytest.approx(0.4 * (J + I) / (I + 0.4 * J), rel=0.03)


def test_a_start_does_not_remember_what_was_simulated_before():
    params = Params((Param("back", "friction_back", 0.5, 0.0, 1.0, op="set"),))
    w = Engine(compile_for(mujoco.MjSpec.from_string(LEVER.format(rotor=0.001)), params), params, 1, 2)
    at = Start(np.zeros((1, 1)), np.zeros((1, 1)), np.zeros((1, 1)))
    runs = []
    for torque in (0.7, 3.0, 0.7):
        w.reset(np.arange(1), np.array([[0.5]]), at)
        runs.append(w.rollout(np.full((1, 20, 1), torque), Chance(0, 0, w.dt)).q)
    assert np.array_equal(runs[0], runs[2]) and not np.array_equal(runs[0], runs[1])


def test_a_saved_world_goes_on_bit_for_bit():
    params = Params((Param("back", "friction_back", 0.5, 0.0, 1.0, op="set"),))
    made = [
        Engine(compile_for(mujoco.MjSpec.from_string(LEVER.format(rotor=0.001)), params), params, 1, 2)
        for _ in range(2)
    ]
    made[0].reset(np.arange(1), np.array([[0.5]]), Start(np.zeros((1, 1)), np.zeros((1, 1)), np.zeros((1, 1))))
    u = np.sin(np.arange(40.0)).reshape(1, 40, 1)
    made[0].rollout(u[:, :20], Chance(0, 0, made[0].dt))
    made[1].load(made[0].save())
    assert np.array_equal(*(w.rollout(u[:, 20:], Chance(0, 20, w.dt)).q for w in made))


def test_a_friction_law_of_nothing_changes_nothing():
    bare = Engine(mujoco.MjModel.from_xml_string(WHEEL), Params(), 1, 1)
    bare.reset(np.arange(1), np.zeros((1, 0)), Start(np.zeros((1, 1)), np.zeros((1, 1)), np.zeros((1, 1))))
    assert speed(bare, 0.5) == speed(wheel(friction_load=0.0)[0], 0.5)


def test_a_law_for_a_joint_that_is_not_there_is_refused():
    params = Params((Param("stiction", "stiction", 0.0, 0.0, 1.0, match="axel", op="set"),))
    with pytest.raises(SurefootError, match="did you mean axle"):
        Engine(mujoco.MjModel.from_xml_string(WHEEL), params, 1, 1)
