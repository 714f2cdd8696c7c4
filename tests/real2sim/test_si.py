"""Multiples in SI: the number and the unit are those of the model that the engine then runs."""

import mujoco
import numpy as np
import pytest

from surefoot.params import Param, Params
from surefoot.real2sim.identify.si import READ, in_si
from surefoot.real2sim.plant import world
from surefoot.world import Start

XML = """<mujoco><worldbody>
<body name="cart"><joint name="rail" type="slide" axis="1 0 0" damping="4" armature=".5" frictionloss=".3"/>
  <geom name="low" size=".1" mass="2" friction=".8"/>
  <body name="pole"><joint name="hinge" axis="0 1 0" damping=".2" armature=".01"/><geom name="high" size=".1" mass="3" friction=".4"/></body>
</body><site name="a" pos="0 0 1"/><site name="b" pos="0 0 2"/></worldbody>
<tendon><spatial name="wire" actuatorfrclimited="true" actuatorfrcrange="-7 7"><site site="a"/><site site="b"/></spatial>
  <fixed name="sum" actuatorfrclimited="true" actuatorfrcrange="-5 5"><joint joint="hinge" coef="1"/></fixed></tendon>
<actuator><position name="push" joint="rail" kp="50" kv="6" forcerange="-30 30"/>
  <position name="turn" joint="hinge" kp="8" kv=".9" forcerange="-4 4"/></actuator></mujoco>"""


@pytest.mark.parametrize(
    "target, match, wanted",
    [
        ("mass", ".*", (4.0, 6.0, "kg")),
        ("friction", ".*", (0.8, 1.6, "")),
        ("damping", "rail", (8.0, 8.0, "N s/m")),
        ("damping", "hinge", (0.4, 0.4, "N m s/rad")),
        ("damping", ".*", (0.4, 8.0, "N m s/rad or N s/m")),
        ("armature", "rail", (1.0, 1.0, "kg")),
        ("armature", "hinge", (0.02, 0.02, "kg m^2")),
        ("frictionloss", "rail", (0.6, 0.6, "N")),
        ("kp", "push", (100.0, 100.0, "N/m")),
        ("kd", "turn", (1.8, 1.8, "N m s/rad")),
        ("force_limit", "push", (60.0, 60.0, "N")),
        ("force_limit", "turn", (8.0, 8.0, "N m")),
        ("tendon_limit", "wire", (14.0, 14.0, "N")),
        ("tendon_limit", "sum", (10.0, 10.0, "N m")),
    ],
)
def test_twice_the_models_number_has_the_unit_of_what_it_moves(target, match, wanted):
    model = mujoco.MjModel.from_xml_string(XML)
    found = in_si(model, Param("x", target, 1.0, 0.1, 3.0, match=match), 2.0)
    assert found is not None and found[:2] == pytest.approx(wanted[:2]) and found[2] == wanted[2]


def test_what_is_said_is_what_the_engine_then_runs_with():
    """Damping in SI against the torque on a moving hinge: F = -b v, with everything else at rest."""
    param = Param("x", "damping", 1.0, 0.1, 3.0, match="hinge")
    w = world(
        mujoco.MjSpec.from_string(XML.replace("<worldbody>", '<option gravity="0 0 0"/><worldbody>')),
        Params((param,)),
        0.002,
    )
    w.reset(np.arange(1), np.array([[2.5]]), Start(np.zeros((1, 2)), np.array([[0.0, 3.0]]), np.zeros((1, 2))))
    b = w.fields["dof_damping"][0].reshape(2, -1)[1, 0]
    assert in_si(mujoco.MjModel.from_xml_string(XML), param, 2.5) == (b, b, "N m s/rad") and b == pytest.approx(0.5)


def test_what_is_set_or_is_nowhere_above_zero_is_no_multiple():
    model = mujoco.MjModel.from_xml_string(XML)
    assert in_si(model, Param("x", "damping", 1.0, 0.1, 3.0, op="set"), 2.0) is None
    assert in_si(model, Param("x", "frictionloss", 1.0, 0.1, 3.0, match="hinge"), 2.0) is None
    assert in_si(model, Param("x", "gravity", 1.0, 0.1, 3.0), 2.0) is None and "gravity" not in READ
