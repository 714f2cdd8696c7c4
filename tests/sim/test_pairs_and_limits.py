"""Contact pairs and force limits of joints, as humanoid models of the field have them, against closed forms."""

import mujoco
import numpy as np
import pytest

from surefoot.params import Param, Params
from surefoot.sim.engine import Engine
from surefoot.sim.fields.compile import compile_for
from surefoot.sim.gap.recipe import Plain
from surefoot.sim.layout import drives_of
from surefoot.sim.model.fitted import write_fitted
from surefoot.world import Chance, Start

SLED = """
<mujoco><option timestep="0.001" cone="elliptic" impratio="100"/>
<default><geom contype="0" conaffinity="0"/></default>
<worldbody><geom name="floor" type="plane" size="9 9 .1"/>
  <body name="sled" pos="0 0 .02"><freejoint/><geom name="runner" type="box" size=".2 .2 .02" mass="3"/></body></worldbody>
<contact><pair name="slides" geom1="floor" geom2="runner" friction=".3 .3"/></contact></mujoco>"""

MOTOR = """
<mujoco><option timestep="0.001" gravity="0 0 0"/><worldbody><body name="arm">
  <joint name="hinge" axis="0 0 1" actuatorfrcrange="-6 6"/>
  <inertial pos="0 0 0" mass="1" diaginertia=".3 .3 .5"/><geom name="bar" size=".1" mass="0"/></body></worldbody>
<actuator><position name="servo" joint="hinge" kp="100" gear="2"/></actuator></mujoco>"""


def driven(xml, param, values, v=(), u=(), steps=200):
    """The speeds after some steps, of one world for each value of the unknown."""
    params, n = Params((param,)), len(values)
    w = Engine(compile_for(mujoco.MjSpec.from_string(xml), params), params, n, 1, 1)
    speed, control = np.zeros((n, w.model.nv)), np.tile(u, (n, 1)) if u else np.zeros((n, w.model.nu))
    speed[:, : len(v)] = v
    w.reset(np.arange(n), np.array(values)[:, None], Start(np.tile(w.model.qpos0, (n, 1)), speed, control))
    for k in range(steps):
        w.step(control, Chance(0, k, w.dt))
    return w.state.v


def test_a_pair_slides_with_its_own_friction_times_the_unknown():
    """v0 - v = mu g t, up to the softness of the contact."""
    found = driven(SLED, Param("friction", "friction", 1.0, 0.1, 3.0, "floor|runner"), [0.5, 1.0, 2.0], v=(2.0,))
    assert 2.0 - found[:, 0] == pytest.approx(9.81 * 0.2 * 0.3 * np.array([0.5, 1.0, 2.0]), rel=0.05)


def test_geoms_of_a_pair_touch_the_ground_though_they_collide_with_nothing_else():
    model = mujoco.MjModel.from_xml_string(SLED)
    plain = Plain(model)
    assert [model.geom(g).name for g in plain.touching] == ["floor", "runner"]
    assert plain.ground_pairs == {0: model.geom("runner").id}


def test_a_joints_force_limit_is_the_drives_and_scales_with_the_unknown():
    """6 N m on 0.5 kg m^2 is 12 rad/s^2; at the actuator, behind a gear of 2, 3 N m."""
    (drive,) = drives_of(mujoco.MjModel.from_xml_string(MOTOR))
    assert drive.limit == pytest.approx(3.0)
    limit = Param("torque_limit", "force_limit", 1.0, 0.4, 1.2, "servo")
    found = driven(MOTOR, limit, [0.5, 1.0], u=(1.5,), steps=50)
    assert found[:, 0] == pytest.approx([0.3, 0.6], rel=1e-3)


@pytest.mark.parametrize("xml, param, field", [
    (SLED, Param("friction", "friction", 1.0, 0.1, 3.0, "runner"), "pair_friction"),
    (MOTOR, Param("limit", "force_limit", 1.0, 0.1, 3.0, "servo"), "jnt_actfrcrange"),
])  # fmt: skip
def test_fitted_numbers_of_both_are_written_into_the_model(xml, param, field):
    spec = mujoco.MjSpec.from_string(xml)
    before = getattr(spec.copy().compile(), field).copy()
    assert write_fitted(spec, Params((param,)), np.array([0.5])) == []
    after = getattr(mujoco.MjModel.from_xml_string(spec.to_xml()), field)
    assert after[0, :2] == pytest.approx(0.5 * before[0, :2])
