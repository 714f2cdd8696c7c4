"""What the lab draws of n robots: closed surfaces with the volume, the centre and the place that MuJoCo gives each geom."""

import mujoco
import numpy as np
import pytest

from surefoot.web.lab.robots import meshes

XML = """<mujoco><worldbody>
<geom name="floor" type="plane" size="1 1 .1"/>
<body name="a" pos="0 0 1"><freejoint/>
  <geom type="box" size=".1 .2 .3" pos=".5 -.2 .1" euler="20 30 40" density="1000"/>
  <geom type="box" size=".1 .1 .2" pos="-.5 0 0" density="1000"/></body>
<body name="b" pos="2 0 1"><freejoint/><geom type="{kind}" size="{size}" pos="-.1 .3 .2" euler="50 10 -70" density="1000" rgba="1 0 0 1"/>
  <geom type="sphere" size=".3" group="4" mass="0"/><site name="s" size=".02" rgba="0 1 0 0"/></body>
</worldbody></mujoco>"""
SHAPES = {"sphere": ".2", "capsule": ".1 .3", "ellipsoid": ".1 .2 .3", "cylinder": ".15 .25", "box": ".1 .1 .4"}


def volume(vertices: np.ndarray, faces: np.ndarray) -> tuple[float, np.ndarray]:
    """Gauss: of a closed surface seen from outside anticlockwise, and its centre."""
    a, b, c = (vertices[faces[:, k]] for k in range(3))
    each = np.einsum("ij,ij->i", a, np.cross(b, c)) / 6
    return float(each.sum()), (each[:, None] * (a + b + c) / 4).sum(0) / each.sum()


@pytest.mark.parametrize("kind", SHAPES)
def test_a_drawn_shape_weighs_what_the_engine_says_and_is_where_its_centre_of_mass_is(kind):
    model = mujoco.MjModel.from_xml_string(XML.format(kind=kind, size=SHAPES[kind]))
    found = meshes(model)
    assert {body for body, _ in found} == {1, 2}, "no floor, nothing of a hidden group, no site that is clear"
    for (body, _), shape in found.items():
        size, centre = volume(*shape)
        assert size == pytest.approx(model.body_mass[body] / 1000, rel=0.03)  # of 24 sides: less by 1.1 % round an axis
        assert centre == pytest.approx(model.body_ipos[body], abs=1e-5)
    assert (2, (255, 0, 0)) in found
