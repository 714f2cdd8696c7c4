"""What --learn can express: ranges in multiples, SI beside multiples, torque offsets, torque constants, rotors' yaw torque."""

import mujoco
import numpy as np
import pytest

from surefoot.belief import Box
from surefoot.cli import main
from surefoot.errors import SurefootError
from surefoot.log import Log
from surefoot.real2sim.identify import Identify, identify
from surefoot.real2sim.identify.param_grammar import learnable
from surefoot.real2sim.plant import world
from surefoot.world import Chance, OnForce, Start

PENDULUM = """<mujoco><option timestep="0.01" integrator="implicitfast"/><worldbody><body name="arm">
<joint name="hinge" axis="0 1 0" damping=".1" armature=".02"/><inertial pos="0 0 -.3" mass="1" diaginertia=".01 .02 .03"/></body></worldbody>
<actuator><motor name="motor" joint="hinge"/></actuator></mujoco>"""
ROTOR = """<mujoco><option timestep="0.01" gravity="0 0 0"/><worldbody><body name="base"><joint name="yaw" axis="0 0 1"/>
<inertial pos="0 0 0" mass="1" diaginertia=".01 .01 .01"/><site name="r"/></body></worldbody>
<actuator><motor name="rotor" site="r" gear="0 0 1 0 0 -.02"/></actuator></mujoco>"""
QUICK = Identify(horizons=(0.3,), starts="known", hold=0.0, iterations=20)


class Steady(OnForce):
    """0.13 N m on every joint."""

    def __call__(self, x, u, chance):
        return np.full(x.v.shape, 0.13)


def unknowns(xml, *words):
    return learnable(mujoco.MjModel.from_xml_string(xml), words)


def recovered(xml, word, truth, drive=2.0):
    """What identify finds of a log that was simulated at the truth."""
    w = world(mujoco.MjSpec.from_string(xml), unknowns(xml, word), 0.01)
    t = 0.01 * np.arange(201)
    u = drive * (1 + np.sin(4 * t) + 0.5 * np.sin(9 * t + 1))[:, None]
    w.reset(np.arange(1), np.array([[truth]]), Start(np.zeros((1, 1)), np.zeros((1, 1)), u[:1]))
    m = w.rollout(u[None, :-1], Chance(0, 0, 0.01))
    q, v = (np.concatenate([[[0.0]], x[0]]) for x in (m.q, m.v))
    log = Log(t, {"joint_pos": q, "joint_vel": v, "control": u})
    return identify(w, Box.full(w.params), log, QUICK).params[0]


def test_a_range_in_multiples_is_of_the_models_value():
    (p,) = unknowns(PENDULUM, "inertia=0.3..3x")
    assert (p.op, p.nominal, p.low, p.high, p.log) == ("scale", 1.0, 0.3, 3.0, True)
    (p,) = unknowns(PENDULUM, "armature=2..8x")  # the model's own value is outside
    assert p.op == "scale" and p.nominal == pytest.approx(4.0)
    assert unknowns(PENDULUM, "armature=0.01..0.03")["armature"].op == "set"


@pytest.mark.parametrize(
    "word, words",
    [("inertia=0.3..3", "expected multiples of the model's value: inertia=0.3..3x"), ("frictionloss=0..2x", "which has no multiples"),
     ("encoder_offset=0..2x", "has no multiples"), ("mass=3..1", "the lower number first"), ("damping:[=0..1", "expected names or a pattern")],
)  # fmt: skip
def test_a_range_that_makes_no_sense_is_refused(word, words):
    with pytest.raises(SurefootError, match=words):
        unknowns(PENDULUM, word)


def test_braces_name_several_joints():
    legs = "".join(
        f'<body><joint name="{n}"/><geom size=".1"/></body>' for n in ("FL_hip", "FL_calf", "FR_hip", "FR_calf")
    )
    model = mujoco.MjModel.from_xml_string(f"<mujoco><worldbody>{legs}</worldbody></mujoco>")
    assert learnable(model, ["damping:FL_{hip,calf}"]).items[0].match == "FL_hip|FL_calf"
    assert learnable(model, ["damping:F[LR]{1,1}_hip"]).items[0].match == "FL_hip|FR_hip"


def test_a_multiple_is_also_said_in_si():
    found = recovered(PENDULUM, "armature", 1.5)
    assert found.value == pytest.approx(1.5, rel=1e-3) and found.si == (pytest.approx(0.03, rel=1e-3),) * 2 + (
        "kg m^2",
    )
    assert recovered(PENDULUM, "inertia", 1.0).si[:2] == pytest.approx((0.01, 0.03), rel=0.01)


def test_a_constant_torque_comes_back():
    """Half of it would be a fifth of the largest drive."""
    assert recovered(PENDULUM, "torque_offset", 0.3).value == pytest.approx(0.3, abs=1e-4)


def test_a_constant_torque_adds_to_other_forces_and_is_each_simulations_own():
    """Without gravity and friction, v = tau t / I; I = m l^2 + I_yy + armature = 0.13."""
    flat = PENDULUM.replace("<worldbody>", '<option gravity="0 0 0"/><worldbody>').replace('damping=".1"', "")
    for terms, more in (((), 0.0), ((Steady(),), 0.13)):
        w = world(mujoco.MjSpec.from_string(flat), unknowns(flat, "torque_offset"), 0.01, 2, terms)
        w.reset(np.arange(2), np.array([[0.0], [0.26]]), Start(np.zeros((2, 1)), np.zeros((2, 1)), np.zeros((2, 1))))
        moved = w.rollout(np.zeros((2, 10, 1)), Chance(0, 0, 0.01))
        assert moved.v[:, -1, 0] == pytest.approx([more / 1.3, (more + 0.26) / 1.3], rel=1e-9)


def test_a_motors_torque_constant_comes_back():
    found = recovered(PENDULUM, "torque_constant=0.1..3", 0.7)
    assert found.value == pytest.approx(0.7, rel=1e-4) and found.unit == "N m/A"


def test_a_rotors_yaw_torque_comes_back():
    """0.02 N m for each newton of thrust in the model, 0.034 in the log."""
    found = recovered(ROTOR, "yaw_torque", 1.7, drive=0.5)
    assert found.value == pytest.approx(1.7, rel=1e-4) and found.si == (pytest.approx(0.034, rel=1e-4),) * 2 + ("m",)


def test_the_last_windows_length_is_checked_before_a_log_is_read(tmp_path, capsys):
    (tmp_path / "p.xml").write_text(PENDULUM)
    assert main(["identify", str(tmp_path / "p.xml"), "log.npz", "--last", "-1", "--no-check"]) == 2
    assert "--last: found -1" in capsys.readouterr().err
