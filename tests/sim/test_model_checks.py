"""What is refused and warned of in a model, and its card, against the model's own numbers."""

import mujoco
import numpy as np
import pytest

from surefoot.sim.integrator import shadowed
from surefoot.sim.model.card import actuator_kind, describe
from surefoot.sim.model.modelxml import parse_xml
from surefoot.sim.model.vet import inertia_problem, model_problems, model_warnings, xml_problems

XML = """<mujoco model="arm"><compiler angle="radian"/><option timestep="0.002"/><worldbody>
<body name="link"><joint name="hinge" axis="0 1 0" range="-1 1" damping=".3" armature=".01"/>
  <inertial pos="0 0 -.5" mass="2" diaginertia=".02 .02 .01"/><geom name="tip" size=".05" contype="0" conaffinity="0"/></body>
</worldbody><actuator><position name="servo" joint="hinge" kp="40" kv="2"/><motor name="motor" joint="hinge" gear="3"/>
<velocity name="spin" joint="hinge" kv="5"/></actuator></mujoco>"""


def test_an_inertia_exists_where_no_moment_is_above_the_sum_of_the_others():
    """A thin rod (0, 1, 1) is the limit; a flat plate has the largest moment equal to the sum of the others."""
    assert not inertia_problem(np.array([0.0, 1.0, 1.0])) and not inertia_problem(np.array([1.0, 2.0, 3.0]))
    assert "none above the sum" in inertia_problem(np.array([1.0, 1.0, 2.1]))
    assert "negative principal moment" in inertia_problem(np.array([-0.1, 1.0, 1.0]))


@pytest.mark.parametrize("edit, words", [
    (("mass=\"2\"", "mass=\"nan\""), "is not finite"), (("range=\"-1 1\"", "range=\"1 -1\""), "is empty, expected low < high"),
    (("damping=\".3\"", "damping=\"-1\""), "is negative"), (("0.002", "3"), "expected 1e-05 to 0.1 s"),
    ((".02 .02 .01", ".02 .02 .09"), "none above the sum of the others"),
])  # fmt: skip
def test_an_impossible_attribute_is_named(edit, words):
    assert not xml_problems(parse_xml(XML.encode(), "arm.xml"))
    (problem,) = xml_problems(parse_xml(XML.replace(*edit).encode(), "arm.xml"))
    assert words in problem and problem.startswith("arm.xml:")


def test_a_compiled_model_with_an_impossible_number_is_named_by_element_and_field():
    model = mujoco.MjModel.from_xml_string(XML)
    assert model_problems(model) == []
    model.dof_damping[0], model.body_inertia[1] = -1.0, (1.0, 1.0, 3.0)
    assert [p.split(" is ")[0].split(" has ")[0] for p in model_problems(model)] == [
        "joint 'hinge': dof_damping",
        "body 'link': inertia",
    ]


def test_a_servo_too_stiff_for_its_timestep_is_warned_of_by_kp_dt2_over_inertia():
    """I = m l^2 + I_yy + armature = 2 / 4 + 0.02 + 0.01 = 0.53: kp dt^2 / I passes 1 at kp = 132500."""
    below, above = (
        model_warnings(mujoco.MjModel.from_xml_string(XML.replace('kp="40"', f'kp="{kp}"'))) for kp in (132000, 133000)
    )
    assert not any("kp dt^2 / I" in w for w in below) and any("servo' 1: too stiff" in w for w in above)


def test_the_card_has_the_models_numbers():
    model = mujoco.MjModel.from_xml_string(XML)
    card = describe(model)
    assert (card["name"], card["mass"], card["nq"], card["nu"]) == ("arm", 2.0, 1, 3)
    assert card["joints"][0] == {"name": "hinge", "type": "hinge", "range": [-1.0, 1.0], "damping": 0.3, "armature": 0.01, "frictionloss": 0.0}  # fmt: skip
    assert [actuator_kind(model, i) for i in range(3)] == ["position", "motor", "velocity"]
    assert (
        card["actuators"][0]["kp"] == 40.0 and card["actuators"][0]["kd"] == 2.0 and card["actuators"][1]["gear"] == 3.0
    )
    assert card["geoms"] == []  # it collides with nothing


def test_under_another_engine_mujoco_reports_gravity_as_a_force_and_has_no_constraints_of_its_own():
    """qfrc_gravcomp is minus the torque of gravity, m g l sin(q), which MuJoCo's own bias force has in a plain model."""
    plain = mujoco.MjModel.from_xml_string(XML)
    spec = mujoco.MjSpec.from_string(XML)
    shadowed(spec)
    model = spec.compile()
    data, own = mujoco.MjData(model), mujoco.MjData(plain)
    data.qpos[0] = own.qpos[0] = 0.7
    mujoco.mj_forward(model, data)
    mujoco.mj_forward(plain, own)
    assert data.qfrc_gravcomp[0] == pytest.approx(own.qfrc_bias[0]) == pytest.approx(2 * 9.81 * 0.5 * np.sin(0.7))
    assert model.opt.disableflags & mujoco.mjtDisableBit.mjDSBL_CONSTRAINT
