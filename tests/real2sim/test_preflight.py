"""A preflight names what is wrong with a log of a two-legged thing in the air, and nothing when nothing is."""

import mujoco
import numpy as np
import pytest

from surefoot.cli import main
from surefoot.errors import SurefootError
from surefoot.log import Log
from surefoot.params import Params
from surefoot.real2sim.plant import world
from surefoot.real2sim.preflight import preflight
from surefoot.world import Chance, Start


def leg(side: str, tilt: float) -> str:
    return f"""<body name="{side}_thigh" pos="0 {tilt} 0"><joint name="{side}_hip_joint" axis="{tilt} 1 0" range="-2 2" damping=".1" armature=".01"/>
      <inertial pos="0 {tilt} -.15" mass="1" diaginertia=".01 .01 .005"/>
      <body name="{side}_shin" pos="0 0 -.3"><joint name="{side}_knee_joint" axis="0 1 0" range="-2 2" damping=".1" armature=".01"/>
      <inertial pos=".03 0 -.15" mass="{0.5 + tilt}" diaginertia=".005 .005 .001"/></body></body>"""


NAMES = [f"{s}_{j}_joint" for s in ("left", "right") for j in ("hip", "knee")]
XML = f"""<mujoco><compiler angle="radian"/><option timestep="0.005" integrator="implicitfast"/>
<worldbody>{leg("left", 0.2)}{leg("right", -0.2)}</worldbody>
<actuator>{"".join(f'<position name="{n}" joint="{n}" kp="8" kv=".3"/>' for n in NAMES)}</actuator></mujoco>"""


@pytest.fixture(scope="module")
def log() -> Log:
    w = world(mujoco.MjSpec.from_string(XML), Params(), 0.01)
    t = w.dt * np.arange(601)
    u = np.stack([0.5 * np.sin((1.5 + 0.7 * k) * t + k) + 0.2 * k for k in range(4)], 1)
    w.reset(np.arange(1), np.zeros((1, 0)), Start(np.zeros((1, 4)), np.zeros((1, 4)), u[:1]))
    m = w.rollout(u[None, :-1], Chance(0, 0, w.dt))
    q, v = (np.concatenate([np.zeros((1, 4)), x[0]]) for x in (m.q, m.v))
    return Log(
        t,
        {"joint_pos": q, "joint_vel": v, "control": u},
        meta={"names": {"joint_pos": NAMES, "joint_vel": NAMES, "control": NAMES}},
    )


def weak() -> object:
    """The model is not quite the machine: gains and damping are off by a fifth."""
    return world(
        mujoco.MjSpec.from_string(XML.replace('kp="8"', 'kp="9.6"').replace('damping=".1"', 'damping=".08"')),
        Params(),
        0.01,
    )


def renamed(log: Log, names: list[str]) -> Log:
    return Log(log.time, log.columns, meta={"names": dict.fromkeys(("joint_pos", "joint_vel", "control"), names)})


def turned(log: Log, column: int, names: tuple[str, ...]) -> Log:
    sign = np.where(np.arange(4) == column, -1.0, 1.0)
    return Log(log.time, {k: v * sign if k in names else v for k, v in log.columns.items()}, meta=log.meta)


def bad(log: Log) -> list:
    return [c for c in preflight(weak(), log).checks if not c.holds]


def test_a_good_log_passes_though_the_model_is_not_quite_right(log):
    assert preflight(weak(), log).holds


def test_legs_in_another_order_are_named(log):
    (found,) = bad(renamed(log, [NAMES[2], NAMES[3], NAMES[0], NAMES[1]]))
    assert found.name == "joint order" and "left right, not right left" in found.evidence


def test_two_joints_exchanged_are_named(log):
    (found,) = bad(renamed(log, [NAMES[1], NAMES[0], NAMES[2], NAMES[3]]))
    assert found.name == "joint order" and "exchange left_knee_joint and left_hip_joint" in found.evidence


def test_a_turned_sign_of_a_joint_or_of_its_control_is_named(log):
    (found,) = bad(turned(log, 1, ("joint_pos", "joint_vel", "control")))
    assert found.name == "signs" and "left_knee_joint" in found.evidence
    (found,) = bad(turned(log, 2, ("control",)))
    assert found.name == "signs of controls" and "right_hip_joint" in found.evidence


def test_degrees_passed_as_radians_are_named(log):
    degrees = Log(log.time, {**log.columns, "joint_pos": np.degrees(log["joint_pos"])}, meta=log.meta)
    found = preflight(weak(), degrees).checks
    assert any("degrees passed as radians" in c.evidence for c in found if not c.holds)
    assert any("position in degrees, speed in radians" in c.evidence for c in found if not c.holds)


def test_a_speed_with_the_wrong_sign_is_named_by_joint(log):
    wrong = [c for c in preflight(weak(), turned(log, 3, ("joint_vel",))).checks if not c.holds]
    assert any(c.name == "speed of right_knee_joint" and "sign" in c.evidence for c in wrong)


def test_gravity_the_wrong_way_is_named(log):
    up = world(mujoco.MjSpec.from_string(XML.replace("<option ", '<option gravity="0 0 9.81" ')), Params(), 0.01)
    (found,) = [c for c in preflight(up, log).checks if not c.holds]
    assert found.name == "direction of gravity" and "along -z" in found.evidence


def test_stamps_that_jump_are_named_by_row(log):
    # windows need even rows, so what is left to look at is the stamps themselves
    late = Log(np.where(np.arange(601) < 300, log.time, log.time + 0.02), {"base": np.zeros(601)})
    (found,) = [c for c in preflight(weak(), late).checks if not c.holds]
    assert found.name == "stamps are even" and "row 299" in found.evidence


@pytest.mark.parametrize("pause, holds", [(0.5, True), (1.0, False)])
def test_a_pause_is_told_and_is_no_fault_unless_it_takes_much_of_the_log(log, pause, holds):
    late = Log(np.where(np.arange(601) < 300, log.time, log.time + pause), log.columns)
    (found,) = [c for c in preflight(weak(), late).checks if c.name == "gaps"]
    assert found.holds == holds and f"the longest {pause + 0.01:.3g} s from 2.99 s on" in found.evidence


def test_what_could_not_be_checked_is_said(log):
    short = log.slice(0.0, 0.15)
    assert "0.14 s long, and it takes 0.2" in preflight(weak(), short).meta["unchecked"]
    assert preflight(weak(), Log(log.time, {"base": np.zeros(601)})).meta["unchecked"] == "the log has no joint_pos"
    assert not preflight(weak(), log).meta["unchecked"]


def test_a_joint_that_was_never_measured_is_an_error(log):
    lost = {**log.columns, "joint_pos": np.where(np.arange(log["joint_pos"].shape[1]) == 1, np.inf, log["joint_pos"])}
    with pytest.raises(SurefootError, match="column joint_pos: .*: found no number in any of 601 rows"):
        preflight(weak(), Log(log.time, lost))


def test_the_next_command_has_what_this_one_had_and_a_doubted_log_is_not_fitted(log, tmp_path, capsys):
    model, good, doubted = (tmp_path / name for name in ("robot.xml", "good.npz", "doubted.npz"))
    model.write_text(XML)
    log.save(good)
    turned(log, 0, ("joint_pos",)).save(doubted)
    assert main(["preflight", str(model), str(good), "--machine.timestep", "0.002"]) == 0
    assert f"surefoot replay {model} {good} --machine.timestep 0.002" in capsys.readouterr().out.replace("\n", " ")
    assert main(["identify", str(model), str(doubted), "--learn", "damping", "--save", str(tmp_path / "e.json")]) == 2
    assert f"error: {doubted}: " in (said := capsys.readouterr().err) and "--no-check" in said
    assert not (tmp_path / "e.json").exists()


def test_position_targets_given_to_bare_motors_are_named_before_any_joint_is_accused(log):
    motors = XML.replace("<position", "<motor").replace(' kp="8" kv=".3"', "")
    verdict = preflight(world(mujoco.MjSpec.from_string(motors), Params(), 0.01), log)
    assert [c.name for c in verdict.checks if not c.holds] == ["kind of controls"]
    assert "--machine.kp" in verdict.checks[0].evidence and not any(c.unit == "gain" for c in verdict.checks)
    torques = Log(log.time, log.columns | {"control": -log["joint_vel"]}, meta=log.meta)
    verdict = preflight(world(mujoco.MjSpec.from_string(motors), Params(), 0.01), torques)
    assert next(c for c in verdict.checks if c.name == "kind of controls").holds


def test_a_free_base_of_which_the_log_tells_nothing_is_named(log):
    free = XML.replace("<worldbody>", '<worldbody><body pos="0 0 1"><freejoint/><geom size=".1" mass="1"/>')
    free = mujoco.MjSpec.from_string(free.replace("</worldbody>", "</body></worldbody>"))
    bad = [c for c in preflight(world(free, Params(), 0.01), log).checks if not c.holds]
    assert [c.name for c in bad] == ["base"] and "--machine.fixed" in bad[0].evidence
    told = Log(log.time, log.columns | {"base_quat": np.tile([1.0, 0, 0, 0], (len(log), 1))}, meta=log.meta)
    assert next(c for c in preflight(world(free, Params(), 0.01), told).checks if c.name == "base").holds
