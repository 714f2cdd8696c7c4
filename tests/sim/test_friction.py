"""Dry friction that grows under load and when nearly still, against hand-computed torques."""

import mujoco
import numpy as np
import pytest

from surefoot.errors import SurefootError
from surefoot.params import Param, Params
from surefoot.sim.engine import Engine, compile_for
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


def test_a_loaded_gear_loses_its_share_of_the_load():
    """Losses 0.1 + 0.3 x 0.5 = 0.25 of 0.5 N m: 25 rad/s^2."""
    w, _ = wheel(friction_load=0.3)
    first = speed(w, 0.5, 0.1)
    assert (speed(w, 0.5, 0.2) - first) / 0.2 == pytest.approx(25.0, rel=0.01)


def test_a_friction_law_of_nothing_changes_nothing():
    bare = Engine(mujoco.MjModel.from_xml_string(WHEEL), Params(), 1, 1)
    bare.reset(np.arange(1), np.zeros((1, 0)), Start(np.zeros((1, 1)), np.zeros((1, 1)), np.zeros((1, 1))))
    assert speed(bare, 0.5) == speed(wheel(friction_load=0.0)[0], 0.5)


def test_a_law_for_a_joint_that_is_not_there_is_refused():
    params = Params((Param("stiction", "stiction", 0.0, 0.0, 1.0, match="axel", op="set"),))
    with pytest.raises(SurefootError, match="did you mean axle"):
        Engine(mujoco.MjModel.from_xml_string(WHEEL), params, 1, 1)
