"""Parts of a robot's anatomy alone: the pose it begins in, the limit of a drive, the controls that hover."""

import mujoco
import numpy as np
import pytest

from surefoot.sim.anatomy.drives import force_limit
from surefoot.sim.anatomy.links import Links, posed
from surefoot.sim.anatomy.pose import keyframe, start
from surefoot.sim.anatomy.rotors import rotors
from surefoot.sim.layout import drives_of

ARM = """<mujoco><compiler angle="radian"/><worldbody>{0}<geom size=".1"/>
<body pos="1 0 0"><joint name="a" axis="0 1 0" range=".5 1.5"/><geom size=".1"/></body>
<body pos="2 0 0"><joint name="b" axis="0 1 0" range="-1 1"/><geom size=".1"/></body>
<body pos="3 0 0"><joint name="c" axis="0 1 0"/><geom size=".1"/></body>{1}</worldbody>{2}</mujoco>"""
FREE = ARM.format('<body name="base"><freejoint/>', "</body>", "{}")
BOLTED = ARM.format("", "", "{}")


def compiled(xml: str, more: str = "") -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_string(xml.format(more))


@pytest.mark.parametrize(
    "names, said",
    [
        (["homeless", "sit", "stand_low"], "keyframe stand_low"),
        (["default", "Stand", "hover"], "keyframe Stand"),
        (["handstand", "init"], "keyframe init"),
        (["standby"], "the first keyframe, standby"),
        ([""], "the first keyframe, without a name"),
    ],
)
def test_a_keyframe_is_chosen_by_whole_words_in_their_order(names, said):
    keys = "".join(
        f'<key name="{n}" qpos="{0.6 + k} 0 0"/>' if n else '<key qpos=".6 0 0"/>' for k, n in enumerate(names)
    )
    m = compiled(BOLTED, f"<keyframe>{keys}</keyframe>")
    found = keyframe(m)
    assert found is not None and found[1] == said
    assert start(m, Links(m))[0][0] == pytest.approx(0.6 + found[0])


def test_without_a_keyframe_legs_go_to_the_near_end_of_their_range_and_an_arm_to_its_middle():
    assert keyframe(compiled(FREE)) is None
    for xml, first in ((FREE, 0.5), (BOLTED, 1.0)):
        m = compiled(xml)
        q, said = start(m, Links(m))
        assert q[-3:] == pytest.approx([first, 0.0, 0.0]) and "1 joints at an end" in said


@pytest.mark.parametrize(
    "joint, motor, limit, field",
    [
        ("", 'gear="5" forcerange="-3 2"', 15.0, "forcerange"),
        ("", 'gear="-5" ctrlrange="-4 1"', 20.0, "ctrlrange"),
        ("", 'gear="5" ctrlrange="-4 4" forcerange="-3 3"', 15.0, "forcerange"),
        ("", 'gear="5" ctrlrange="-2 2" forcerange="-3 3"', 10.0, "ctrlrange"),
        ('actuatorfrcrange="-9 7"', 'gear="5" forcerange="-3 3"', 9.0, "actuatorfrcrange"),
        ("", "", np.inf, ""),
    ],
)
def test_the_limit_of_a_drive_is_the_least_of_those_that_the_model_has_at_the_joint(joint, motor, limit, field):
    """Against the engine: the force at the joint under a control beyond all limits."""
    m = compiled(
        BOLTED.replace('<joint name="b"', f'<joint name="b" {joint}'),
        f'<actuator><motor joint="b" {motor}/></actuator>',
    )
    found, why = force_limit(m, 1, 0)
    assert found == limit and field in why
    drive = drives_of(m)[0]
    assert (np.inf if drive.limit is None else abs(drive.gear) * drive.limit) == pytest.approx(limit)
    d = mujoco.MjData(m)
    reached = []
    for u in (-100.0, 100.0):
        d.ctrl[0] = u
        mujoco.mj_forward(m, d)
        reached.append(abs(d.qfrc_actuator[1]))
    assert max(reached) == pytest.approx(min(limit, 100.0))


def flyer(places: list[tuple[float, float]], com: float, spin: float = 0.0) -> mujoco.MjModel:
    sites = "".join(f'<site name="s{k}" pos="{x} {y} 0"/>' for k, (x, y) in enumerate(places))
    motors = "".join(
        f'<motor name="m{k}" site="s{k}" gear="0 0 2 0 0 {spin * (-1) ** k}" ctrlrange="0 9"/>'
        for k in range(len(places))
    )
    return mujoco.MjModel.from_xml_string(f"""<mujoco><worldbody><body name="hull"><freejoint/>
      <inertial pos="{com} 0 0" mass=".8" diaginertia=".01 .01 .01"/>{sites}</body></worldbody><actuator>{motors}</actuator></mujoco>""")


def test_of_rotors_that_are_redundant_each_hovers_with_its_share():
    """Six in a ring, two newtons for each unit of control: u = m g / 12."""
    ring = [(float(np.cos(a)), float(np.sin(a))) for a in np.arange(6) * np.pi / 3]
    m = flyer(ring, 0.0, 0.05)
    found = rotors(m, posed(m, m.qpos0), Links(m))
    assert [r.hover for r in found] == pytest.approx([0.8 * 9.81 / 12] * 6)


def test_rotors_share_a_weight_by_their_levers_and_the_engine_hangs_still():
    """Three: a at x = 0.3, two at x = -0.2, the centre of mass at 0.05: f_a 0.25 = f_bc 0.25."""
    m = flyer([(0.3, 0.0), (-0.2, 0.1), (-0.2, -0.1)], 0.05)
    found = rotors(m, posed(m, m.qpos0), Links(m))
    assert [r.hover for r in found] == pytest.approx(np.array([2, 1, 1]) * 0.8 * 9.81 / 8)
    d = mujoco.MjData(m)
    d.ctrl[:] = [r.hover for r in found]
    mujoco.mj_forward(m, d)
    assert np.abs(d.qacc).max() < 1e-6
