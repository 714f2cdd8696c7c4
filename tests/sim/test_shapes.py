"""Lowest points of shapes against closed forms, and the numbers of a robot's unknowns."""

import mujoco
import numpy as np
import pytest

from surefoot.errors import SurefootError
from surefoot.sim.anatomy.shapes import collides, lowest, swept
from surefoot.tasks.build import unknowns
from surefoot.tasks.ready import humanoid_model


def scene(geom, more=""):
    m = mujoco.MjModel.from_xml_string(
        f'<mujoco><compiler angle="radian"/><worldbody><body pos="0 0 1"><freejoint/><geom name="g" {geom} mass="1"/>'
        f'<geom name="h" size=".1" pos="1 0 0" contype="0" conaffinity="0"/></body><geom name="floor" type="plane" size="1 1 1"/></worldbody>{more}</mujoco>'
    )
    d = mujoco.MjData(m)
    mujoco.mj_kinematics(m, d)
    return m, d


@pytest.mark.parametrize(
    ("geom", "height"),
    [
        ('size=".2"', 0.8),
        ('type="capsule" size=".1 .3"', 1 - 0.4),
        ('type="capsule" size=".1 .3" euler="0 1.5707963267948966 0"', 0.9),
        ('type="box" size=".1 .2 .3"', 0.7),
        ('type="box" size=".1 .2 .3" euler="0 .7853981633974483 0"', 1 - 0.4 / np.sqrt(2)),
        ('type="cylinder" size=".1 .3"', 0.7),
        ('type="ellipsoid" size=".1 .2 .3"', 0.7),
    ],
)
def test_the_lowest_point_of_a_shape_is_its_closed_form(geom, height):
    m, d = scene(geom)
    assert lowest(m, d, [m.geom("g").id]) == pytest.approx(height, abs=1e-9)


def test_a_plane_has_no_lowest_point():
    m, d = scene('size=".2"')
    assert swept(m, m.geom("floor").id)[0].shape == (0, 3)
    assert lowest(m, d, [m.geom("floor").id]) == np.inf


def test_a_shape_without_masks_collides_only_in_a_pair():
    m, _ = scene('size=".2"')
    assert collides(m, m.geom("g").id) and not collides(m, m.geom("h").id)
    m, _ = scene('size=".2"', '<contact><pair geom1="h" geom2="floor"/></contact>')
    assert collides(m, m.geom("h").id)


def test_a_light_base_may_lose_most_of_itself_and_no_more():
    """0.28 of a robot's mass, or 0.7 of its base's, whichever is less: masses stay above 0."""
    (heavy, _), *_ = unknowns.base("trunk", 10.0, 8.0, 0.4)
    (light, ends), *_ = unknowns.base("trunk", 10.0, 0.3, 0.4)
    assert heavy.low == pytest.approx(-2.8) and light.low == pytest.approx(-0.21)
    assert ends[0] == pytest.approx(-0.21) and ends[1] == pytest.approx(1.5)


def test_a_range_of_an_unknown_that_is_not_there_is_refused_by_name():
    rows = unknowns.wires(0.02)
    assert unknowns.belief(rows, {"latency": (0.01, 0.02)}).params.names == ["latency", "sensor_latency"]
    with pytest.raises(SurefootError, match="latenci.*latency"):
        unknowns.belief(rows, {"latenci": (0.0, 0.01)})


def test_the_humanoid_has_the_size_of_its_model_and_is_its_own_mirror_image():
    m = mujoco.MjModel.from_xml_string(humanoid_model.xml())
    d = mujoco.MjData(m)
    mujoco.mj_resetDataKeyframe(m, d, 0)
    mujoco.mj_forward(m, d)
    assert (m.nu, m.njnt) == (23, 24) and m.body_subtreemass[0] == pytest.approx(35.0, abs=1.0)
    soles = [g for g in range(m.ngeom) if m.geom(g).name.startswith(("left_foot", "right_foot"))]
    assert lowest(m, d, soles) == pytest.approx(0.0, abs=0.003)  # it stands on the ground
    for body in (m.body(b).name for b in range(m.nbody)):
        if body.startswith("left_"):
            other = d.body(body.replace("left_", "right_"))
            assert d.body(body).xpos * (1, -1, 1) == pytest.approx(other.xpos, abs=1e-9)
            assert m.body(body).mass[0] == m.body(body.replace("left_", "right_")).mass[0]
    assert d.subtree_com[0][1] == pytest.approx(0.0, abs=1e-9)
    assert abs(d.subtree_com[0][0]) < 0.05  # over its feet
