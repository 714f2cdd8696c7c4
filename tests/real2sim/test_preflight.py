"""A preflight names what is wrong with a log of a two-legged thing in the air, and nothing when nothing is."""

import mujoco
import numpy as np
import pytest

from surefoot.cli import main
from surefoot.errors import SurefootError
from surefoot.fault import PLAIN
from surefoot.log import Log
from surefoot.params import Params
from surefoot.real2sim.plant import world
from surefoot.real2sim.preflight import Found, _reported, preflight
from surefoot.verdict import Check
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
    """A fault that was tried and does not hold is not stated as a fact."""
    shares = []
    found = preflight(weak(), log, lambda p: shares.append(p.share))
    assert found.holds and shares == sorted(shares) and len(shares) >= 2
    rows = [c for c in found.checks if c.unit == "gain"]
    assert {c.name for c in rows} >= {"signs", "joint order", "units", "clock of controls"}
    assert all(
        c.evidence.startswith("no fault; nearest of those tried: ") for c in rows if c.name != "offsets"
    )  # those may be there, and are no fault


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
    assert any("degrees instead of radians" in c.evidence for c in found if not c.holds)
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
def test_a_pause_is_reported_and_is_no_fault_unless_it_takes_much_of_the_log(log, pause, holds):
    late = Log(np.where(np.arange(601) < 300, log.time, log.time + pause), log.columns)
    (found,) = [c for c in preflight(weak(), late).checks if c.name == "gaps"]
    assert found.holds == holds and f"the longest {pause + 0.01:.3g} s from 2.99 s" in found.evidence


def test_what_could_not_be_checked_is_said(log):
    short = log.slice(0.0, 0.15)
    assert "0.14 s long, expected at least 0.2 s" in preflight(weak(), short).meta["unchecked"]
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


def test_a_free_base_that_no_column_measures_is_named(log):
    free = XML.replace("<worldbody>", '<worldbody><body pos="0 0 1"><freejoint/><geom size=".1" mass="1"/>')
    free = mujoco.MjSpec.from_string(free.replace("</worldbody>", "</body></worldbody>"))
    bad = [c for c in preflight(world(free, Params(), 0.01), log).checks if not c.holds]
    assert [c.name for c in bad] == ["base"] and "--machine.fixed" in bad[0].evidence
    measured = Log(log.time, log.columns | {"base_quat": np.tile([1.0, 0, 0, 0], (len(log), 1))}, meta=log.meta)
    assert next(c for c in preflight(world(free, Params(), 0.01), measured).checks if c.name == "base").holds


def with_(log: Log, **columns: np.ndarray) -> Log:
    return Log(log.time, log.columns | columns, meta=log.meta)


def in_degrees(log: Log, *names: str) -> Log:
    return with_(log, **{name: np.degrees(log[name]) for name in names})


@pytest.mark.parametrize(
    "names, words",
    [
        (("control",), "control is in degrees"),
        (("joint_pos", "joint_vel"), "joint_pos and joint_vel are in degrees"),
        (("joint_pos", "joint_vel", "control"), "joint_pos, joint_vel and control are in degrees"),
    ],
)
def test_degrees_are_named_by_what_the_model_then_predicts_before_any_range(log, names, words):
    found = bad(in_degrees(log, *names))[0]
    assert found.name == "units" and found.evidence.startswith(words) and found.value > 2


def test_one_hinge_without_a_range_in_degrees_is_named(log):
    wide = mujoco.MjSpec.from_string(XML.replace('range="-2 2"', 'limited="false"'))
    factor = np.where(np.arange(4) == 1, 180 / np.pi, 1.0)
    wrong = with_(log, joint_pos=log["joint_pos"] * factor, joint_vel=log["joint_vel"] * factor)
    found = [c for c in preflight(world(wide, Params(), 0.01), wrong).checks if not c.holds][0]
    assert found.name == "units" and "of left_knee_joint are in degrees" in found.evidence


def test_limbs_of_controls_alone_in_another_order_are_named_and_so_is_what_is_equivalent(log):
    (found,) = bad(with_(log, control=log["control"][:, [2, 3, 0, 1]]))
    assert found.name == "order of controls" and "the controls are of right left, not left right" in found.evidence


def test_readings_that_are_turned_while_controls_are_right_are_said_of_the_readings(log):
    (found,) = bad(turned(log, 2, ("joint_pos", "joint_vel")))
    assert "turn the sign of the readings of right_hip_joint" in found.evidence


def test_a_sign_is_named_before_a_range_that_it_breaks(log):
    bent = XML.replace('range="-2 2"', 'range="-2 .4"')  # of every joint, which the log is made to fit but for one
    u = -np.abs(log["control"]) - 0.3
    w = world(mujoco.MjSpec.from_string(bent), Params(), 0.01)
    w.reset(np.arange(1), np.zeros((1, 0)), Start(np.zeros((1, 4)), np.zeros((1, 4)), u[:1]))
    m = w.rollout(u[None, :-1], Chance(0, 0, w.dt))
    q, v = (np.concatenate([np.zeros((1, 4)), x[0]]) for x in (m.q, m.v))
    wrong = turned(with_(log, joint_pos=q, joint_vel=v, control=u), 1, ("joint_pos", "joint_vel", "control"))
    found = [c for c in preflight(w, wrong).checks if not c.holds]
    assert found[0].name == "signs" and "left_knee_joint" in found[0].evidence
    assert found[1].name == "range of left_knee_joint" and "degrees" not in found[1].evidence


@pytest.mark.parametrize("rows, words", [(10, "100 ms late"), (-10, "100 ms early")])
def test_controls_by_another_clock_are_named_with_how_late_they_are(log, rows, words):
    (found,) = bad(with_(log, control=np.roll(log["control"], rows, 0)))
    assert found.name == "clock of controls" and f"controls are {words}" in found.evidence


def test_a_delay_that_an_actuator_may_have_is_no_fault(log):
    assert preflight(weak(), with_(log, control=np.roll(log["control"], -3, 0))).holds


def test_speeds_by_another_clock_are_named_with_how_late_they_are(log):
    found = bad(with_(log, joint_vel=np.roll(log["joint_vel"], 10, 0)))[0]
    assert found.name == "clock of joint_vel" and found.value == pytest.approx(0.1, abs=0.005)
    assert "behind the derivative of joint_pos" in found.evidence


def test_an_offset_of_an_encoder_is_reported_with_its_size_and_is_no_fault(log):
    off = with_(log, joint_pos=log["joint_pos"] + 0.2 * (np.arange(4) == 1))
    verdict = preflight(weak(), off)
    (found,) = [c for c in verdict.checks if c.name == "offsets"]
    assert verdict.holds and "left_knee_joint has an offset: it reads +0.2" in found.evidence
    assert "--learn encoder_offset:each" in found.evidence


def test_a_log_in_which_nothing_moved_is_said_to_be_one_and_no_gain_is_boundless(log):
    still = with_(log, joint_pos=np.full((601, 4), 0.3), joint_vel=np.zeros((601, 4)))
    verdict = preflight(weak(), still)
    assert "nothing moves: joint_pos" in verdict.meta["unchecked"] and all(c.value <= 1000 for c in verdict.checks)


def test_a_model_that_predicts_worse_than_a_constant_says_that_it_can_hardly_judge(log):
    rng = np.random.default_rng(0)
    other = with_(log, control=rng.uniform(-2, 2, (601, 4)))  # controls of another day
    slow = XML.replace('damping=".1"', 'damping=".001"').replace('kp="8" kv=".3"', 'kp="80"')
    verdict = preflight(world(mujoco.MjSpec.from_string(slow), Params(), 0.01), other)
    assert "worse than a constant" in verdict.meta["unchecked"]
    assert not preflight(weak(), log).meta["unchecked"]


ROTOR = '<motor name="{n}" site="{n}" gear="0 0 1 0 0 {c}" ctrlrange="0 20"/>'
AT = {"front": (0.2, 0, 0.1), "left": (0, 0.2, -0.1), "rear": (-0.2, 0, 0.1), "right": (0, -0.2, -0.1)}
FLYER = f"""<mujoco><option timestep="0.005" integrator="implicitfast"/><worldbody><body><freejoint/>
<inertial pos="0 0 0" mass="1" diaginertia=".02 .025 .04"/>
{"".join(f'<site name="{n}" pos="{x} {y} 0"/>' for n, (x, y, _) in AT.items())}</body></worldbody>
<actuator>{"".join(ROTOR.format(n=n, c=c) for n, (_, _, c) in AT.items())}</actuator></mujoco>"""


def flyer(mass: float = 1.0) -> object:
    spec = mujoco.MjSpec.from_string(FLYER.replace('mass="1"', f'mass="{mass}"'))
    return world(spec, Params(), 0.01)


@pytest.fixture(scope="module")
def flight() -> Log:
    """Three seconds of a four-rotor machine that is shaken about all its axes."""
    w = flyer()
    t = w.dt * np.arange(301)
    u = np.stack([2.45 + 0.25 * np.sin((5 + 1.3 * k) * t + 2 * k) for k in range(4)], 1)
    q, v = np.array([[0, 0, 1, 0.9, 0.3, 0.2, 0.1]]), np.array([[0.3, 0.1, 0.2, 0.6, -0.9, 0.8]])
    q[:, 3:] /= np.linalg.norm(q[:, 3:])
    w.reset(np.arange(1), np.zeros((1, 0)), Start(q, v, u[:1]))
    m = w.rollout(u[None, :-1], Chance(0, 0, w.dt))
    q, v = np.concatenate([q, m.q[0]]), np.concatenate([v, m.v[0]])
    parts = {"base_pos": q[:, :3], "base_quat": q[:, 3:], "base_lin_vel": v[:, :3], "base_ang_vel": v[:, 3:]}
    return Log(t, parts | {"control": u})


def matrices(quat: np.ndarray) -> np.ndarray:
    found = np.zeros((len(quat), 9))
    for into, q in zip(found, quat):
        mujoco.mju_quat2Mat(into, q)
    return found.reshape(-1, 3, 3)


def first_of(log: Log) -> str:
    found = [c for c in preflight(flyer(1.1), log).checks if not c.holds]
    return f"{found[0].name}: {found[0].evidence}" if found else ""


def test_a_flight_as_it_was_passes_though_the_model_is_a_tenth_too_heavy(flight):
    verdict = preflight(flyer(1.1), flight)
    assert verdict.holds and not verdict.meta["unchecked"]


def test_each_way_to_misread_the_attitude_of_a_base_is_named(flight):
    quat, w, R = flight["base_quat"], flight["base_ang_vel"], matrices(flight["base_quat"])
    assert "base_quat is x y z w: " in first_of(with_(flight, base_quat=quat[:, [1, 2, 3, 0]]))
    assert "its conjugate is expected" in first_of(with_(flight, base_quat=quat * [1, -1, -1, -1]))
    assert "base_ang_vel is in degrees/s: " in first_of(in_degrees(flight, "base_ang_vel"))
    world_ = np.einsum("tij,tj->ti", R, w)
    assert "base_ang_vel is in the frame of the world" in first_of(with_(flight, base_ang_vel=world_))
    base = np.einsum("tji,tj->ti", R, flight["base_lin_vel"])
    assert "base_lin_vel is in the frame of the base" in first_of(with_(flight, base_lin_vel=base))


def test_a_base_in_north_east_down_or_with_z_down_is_named(flight):
    down = np.array([1.0, -1.0, -1.0])
    turned_ = {name: flight[name] * down for name in ("base_pos", "base_lin_vel", "base_ang_vel")}
    assert "north east down" in first_of(with_(flight, **turned_, base_quat=flight["base_quat"] * [1, 1, -1, -1]))
    up = {name: flight[name] * [1, 1, -1] for name in ("base_pos", "base_lin_vel")}
    assert "z points down in base_pos and base_lin_vel" in first_of(with_(flight, **up))


def test_two_rotors_exchanged_are_named_though_no_joint_was_measured(flight):
    assert "exchange the controls of front and right" in first_of(
        with_(flight, control=flight["control"][:, [3, 1, 2, 0]])
    )


def test_turning_rates_by_another_clock_are_named(flight):
    late = with_(flight, base_ang_vel=np.roll(flight["base_ang_vel"], 10, 0))
    found = [c for c in preflight(flyer(1.1), late).checks if c.name == "clock of base_ang_vel"]
    assert found and not found[0].holds and found[0].value == pytest.approx(0.1, abs=0.01)


def test_an_edit_that_mends_one_joint_and_costs_the_others_more_is_still_reported():
    some = [Found(PLAIN, Check(name, 0.5, 0.9, False, name), much) for name, much in (("signs", -1.0), ("units", -3.0))]
    checks, offsets = _reported(some, ())
    assert [c.name for c in checks] == ["signs"] and "nearly as well" not in checks[0].evidence and offsets == {}
