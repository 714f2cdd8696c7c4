"""What a model will be once MuJoCo has expanded it, counted from its text alone: against the compiled model's own counts."""

import mujoco
import pytest

from surefoot.errors import SurefootError
from surefoot.sim.model.growth import MAX_DOFS, MAX_PIXELS, TRIAL_PIXELS, Growth, check_counts
from surefoot.sim.model.modelxml import parse_xml

ARM = '<body pos="0 0 .1"><joint axis="1 0 0"/><geom size=".01"/></body>'


def model(inside: str, outside: str = "") -> str:
    return f"<mujoco><worldbody>{inside}</worldbody>{outside}</mujoco>"


def counted(xml: str, growth: Growth | None = None) -> float:
    return check_counts(growth or Growth(), parse_xml(xml.encode(), "m.xml"), {})


def repeated(outer: int, inner: int, what: str = ARM) -> str:
    return model(
        f'<replicate count="{outer}" offset="1 0 0"><replicate count="{inner}" offset="0 1 0">{what}</replicate></replicate>'
    )


@pytest.mark.parametrize("outer, inner", [(1, 1), (3, 4), (7, 2)])
def test_repeats_within_repeats_multiply_as_they_do_in_the_compiled_model(outer, inner):
    """Each copy has a body, a joint and a geom; beside them stand mujoco, worldbody and the repeats themselves."""
    xml = repeated(outer, inner)
    m = mujoco.MjModel.from_xml_string(xml)
    assert counted(xml) == 2 + outer + outer * inner + (m.nbody - 1) + m.njnt + m.ngeom


@pytest.mark.parametrize(
    "joint, dofs", [('<joint axis="1 0 0"/>', 1), ('<joint type="ball"/>', 3), ("<freejoint/>", 6)]
)
def test_degrees_of_freedom_are_refused_one_above_the_cap(joint, dofs):
    most, one = MAX_DOFS // dofs, ARM.replace('<joint axis="1 0 0"/>', joint)
    assert mujoco.MjModel.from_xml_string(repeated(1, 2, one)).nv == 2 * dofs
    counted(repeated(1, most, one))
    with pytest.raises(SurefootError, match=f"above {MAX_DOFS} degrees of freedom"):
        counted(repeated(1, most + 1, one))


def test_pictures_share_one_budget_and_a_large_one_asks_for_a_trial():
    """Four of a quarter of the budget fit and a fifth does not; a cube has six faces of width squared."""
    side = int((MAX_PIXELS / 4) ** 0.5)
    square = '<texture name="t{}" type="2d" builtin="flat" width="{}" height="{}"/>'
    four = "".join(square.format(k, MAX_PIXELS // 4 // side, side) for k in range(4))
    growth = Growth()
    counted(model("", f"<asset>{four}</asset>"), growth)
    assert growth.pixels <= MAX_PIXELS and len(growth.reasons) == 4 and growth.pixels / 4 > TRIAL_PIXELS
    with pytest.raises(SurefootError, match=f"expected at most {MAX_PIXELS} in all"):
        counted(model("", f"<asset>{four}{square.format(4, side, side)}</asset>"))
    cube = Growth()
    counted(model("", '<asset><texture name="c" type="cube" builtin="flat" width="50" height="1"/></asset>'), cube)
    assert cube.pixels == 6 * 50**2 and not cube.reasons
