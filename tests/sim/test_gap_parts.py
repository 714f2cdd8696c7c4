"""Parts of the reality gap, each against numbers known otherwise: closed forms and the model's own arrays."""

import mujoco
import numpy as np
import pytest

from surefoot.errors import SurefootError
from surefoot.rng import stream
from surefoot.sim.gap import joints, numbers
from surefoot.sim.gap.recipe import Plain, Recipe
from surefoot.sim.gap.signals import ANGLE, FORCE, RATE, Signals
from surefoot.world import State

ARM = """<mujoco><compiler angle="radian"/><worldbody><geom name="floor" type="plane" size="1 1 .1"/>
<body name="upper" pos="0 0 1"><joint name="hinge" axis="0 1 0"/>
  <inertial pos="0 0 -.25" mass="2" diaginertia=".03 .02 .01"/><geom name="tip" size=".05" pos="0 0 -.5" friction=".8"/></body>
</worldbody><actuator><position name="servo" joint="hinge" kp="40" kv="2" forcerange="-10 10"/></actuator>
<sensor><jointpos name="encoder" joint="hinge"/><actuatorfrc name="torque" actuator="servo"/></sensor></mujoco>"""


def recipe(seed=0):
    spec = mujoco.MjSpec.from_string(ARM)
    made = Recipe(spec, Plain(spec.compile()), stream(seed, "test"))
    made.numbers["tested"] = []
    return made


def tuned(add, s=1.0):
    """The model's arrays after one ingredient, and what it recorded."""
    made = recipe()
    add(made, s)
    model = made.spec.compile()
    for tune in made.tunes:
        tune(model)
    return made, model


def test_factors_are_wrong_by_between_the_root_of_the_worst_and_the_worst():
    f = np.abs(np.log(recipe().factors(1000, 1.5))) / np.log(1.5)
    assert 0.5 <= f.min() < 0.51 and 0.99 < f.max() <= 1.0


def test_a_wrong_mass_scales_the_inertia_with_it_and_is_recorded_next_to_the_models():
    made, model = tuned(numbers.mass)
    (mass,) = made.numbers["tested"]
    factor = model.body_mass[1] / 2.0
    assert mass.value == pytest.approx(2.0 * factor) and mass.model == 2.0 and str(mass).startswith("mass of upper")
    assert model.body_inertia[1] == pytest.approx(factor * made.plain.model.body_inertia[1])


def test_a_wrong_inertia_leaves_the_mass_and_slippery_ground_is_an_eighth_of_the_friction():
    made, model = tuned(numbers.inertia)
    assert model.body_mass[1] == 2.0 and not np.allclose(model.body_inertia[1], made.plain.model.body_inertia[1])
    _, slippery = tuned(numbers.slippery_ground)
    assert slippery.geom("tip").friction[0] == pytest.approx(0.8 / 8) and slippery.geom("floor").friction[0] == 1 / 8


def test_soft_ground_has_four_times_the_time_constant():
    made, model = tuned(numbers.soft_ground)
    ground = made.plain.touching
    assert model.geom_solref[ground, 0] == pytest.approx(4 * made.plain.model.geom_solref[ground, 0])


def test_a_spring_behind_a_joint_yields_a_fifth_of_a_radian_under_the_motors_force():
    made, model = tuned(joints.series_elasticity)
    assert model.jnt_stiffness[model.joint("spring/hinge").id] == pytest.approx(10.0 / 0.2)  # k = L / 0.2 rad
    _, gap = tuned(joints.backlash)
    assert gap.joint("backlash/hinge").range == pytest.approx([-0.03, 0.03])


def test_a_saturated_motor_has_no_torque_left_at_its_no_load_speed():
    """|F| <= L (1 - v / v0): at half the speed, half of the torque."""
    made = recipe()
    joints.saturation(made, 1.0)
    joints.dc_motors(made)
    model = made.spec.compile()
    data = mujoco.MjData(model)
    data.ctrl[0] = 100.0  # far away: the servo asks for all it has
    for v, left in ((0.0, 10.0), (6.0, 5.0), (12.0, 0.0)):
        data.qvel[0] = v
        mujoco.mj_forward(model, data)
        assert data.actuator_force[0] == pytest.approx(left, abs=1e-9)


def test_signals_are_one_row_of_positions_velocities_and_sensors_with_a_spread_each():
    signals = Signals(Plain(mujoco.MjModel.from_xml_string(ARM)))
    y = {"encoder": np.array([[0.3]]), "torque": np.array([[1.0]])}
    none = np.zeros((1, 0))
    x = State(
        np.zeros(1),
        np.array([[0.3]]),
        np.array([[0.7]]),
        np.zeros((1, 1)),
        none,
        y,
        none,
        np.zeros((1, 3)),
        np.zeros((1, 2, 6)),
    )
    assert signals.row(x).tolist() == [[0.3, 0.7, 0.3, 1.0]]
    assert signals.spread.tolist() == [ANGLE, RATE, ANGLE, FORCE * 10.0] and signals.encoders(0) == [0, 2]
    moved = signals.state(x, np.array([[0.4, 0.8, 0.5, 2.0]]))
    assert (moved.q, moved.v, moved.y["encoder"], moved.y["torque"]) == (0.4, 0.8, 0.5, 2.0)


def test_the_load_of_a_joint_is_its_motors_limit_or_its_weight_at_its_lever():
    assert Plain(mujoco.MjModel.from_xml_string(ARM)).load(0) == 10.0
    free = ARM.replace(' forcerange="-10 10"', "")
    assert Plain(mujoco.MjModel.from_xml_string(free)).load(0) == pytest.approx(2.0 * 9.81 * 0.25)


def test_an_ingredient_that_does_not_fit_is_refused_by_name():
    from surefoot.sim.gap.build import INGREDIENTS

    with pytest.raises(SurefootError, match="ingredient ground_effect: expected a model with a free flyer with rotors"):
        INGREDIENTS["ground_effect"].check(recipe().plain, "task arm")
