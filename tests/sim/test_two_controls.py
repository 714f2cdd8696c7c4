"""A `pid` actuator takes a target position and a target speed: a model then has more controls than actuators.

F = kp (u_0 - q) + kv (u_1 - v)
"""

import mujoco
import numpy as np
import pytest

from surefoot.errors import SurefootError
from surefoot.params import Param, Params
from surefoot.real2sim.excite.excitation import Limits, control_range, home
from surefoot.real2sim.plant import world
from surefoot.sim.fields import object_names
from surefoot.sim.learned.actuator_net import drives
from surefoot.sim.learned.features import StateFeatures
from surefoot.world import Chance, Start

KP, KV, MASS, STEP = 5.0, 1.0, 2.0, 0.002
XML = """<mujoco><option timestep="0.002" gravity="0 0 0"/><worldbody>
<body name="first"><joint name="x" type="slide" axis="1 0 0"/><geom size=".1" mass="2"/></body>
<body name="second" pos="0 1 0"><joint name="y" type="slide" axis="1 0 0" range="-1 1" limited="true"/><geom size=".1" mass="2"/></body>
</worldbody><actuator>
<pid name="both" joint="x" kp="5" kv="1" posrange="-2 2" velrange="-3 3" {0}/><position name="one" joint="y" kp="20" {0}/>
</actuator></mujoco>"""
NONE, U = Params(), np.array([0.3, 0.7, 0.1])


def moved(params=NONE, e=(), late="", steps=1):
    """Velocities after some engine steps from rest under U, which was the control before, too."""
    w = world(mujoco.MjSpec.from_string(XML.format(late)), params, STEP)
    w.reset(
        np.arange(1), np.array([e], float).reshape(1, len(params)), Start(np.zeros((1, 2)), np.zeros((1, 2)), U[None])
    )
    return w.rollout(np.tile(U, (1, steps, 1)), Chance(0, 0, w.dt)).v[0, -1]


@pytest.mark.parametrize(
    "target, kp, kv, other", [("strength", 2.0, 2.0, 2.0), ("kp", 2.0, 1.0, 2.0), ("kd", 1.0, 2.0, 1.0)]
)
def test_an_unknown_of_its_force_law_acts_as_the_law_says(target, kp, kv, other):
    """From rest at 0: m v / h = kp u_0 + kv u_1, and of the servo beside it kp u."""
    params = Params((Param("x", target, 1.0, 0.1, 3.0),))
    force = moved(params, (2.0,)) * MASS / STEP
    assert force == pytest.approx([kp * KP * U[0] + kv * KV * U[1], other * 20 * U[2]], rel=2e-3)


def test_after_a_long_time_of_one_control_a_delay_changes_nothing():
    """What a reset writes into the memory of a delayed actuator is its own two controls, not its neighbour's."""
    late = 'delay="0.01" nsample="8"'
    assert np.array_equal(moved(late=late, steps=10), moved(steps=10))


def test_controls_are_listed_each_and_actuators_once():
    model = mujoco.MjModel.from_xml_string(XML.format(""))
    assert object_names(model, "actuator") == ["both", "one"]
    assert StateFeatures.of(model).controls == ("both", "both", "one")
    model.qpos0[:] = 0.4, 0.25
    assert home(model).u.tolist() == [[0.0, 0.0, 0.25]]
    found = control_range(model, np.zeros(3), Limits(margin=0.1))
    assert found.low.tolist() == [-2, -3, -0.8] and found.high.tolist() == [2, 3, 0.8]


def test_a_net_of_one_torque_for_each_control_is_refused_for_it():
    with pytest.raises(SurefootError, match="actuator both: takes 2 controls, expected one"):
        drives(mujoco.MjModel.from_xml_string(XML.format("")))
