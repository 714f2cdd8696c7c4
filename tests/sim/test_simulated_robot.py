"""A robot at the end of a wire: what it tells, what it hides, and the log it leaves."""

import json
import types
from dataclasses import replace

import mujoco
import numpy as np
import pytest

from surefoot import tasks
from surefoot.errors import SurefootError
from surefoot.log import Log
from surefoot.sim.gap.build import fitting
from surefoot.sim.realities import Reality, realities, reality
from surefoot.sim.simulated_robot import SimulatedRobot
from surefoot.world import State, World


def played(robot: SimulatedRobot, steps: int, seed: int = 0) -> Log:
    told, rng = robot.connect(), np.random.default_rng(seed)
    for _ in range(steps):
        told = robot.act(rng.uniform(-1, 1, len(robot.names["control"])))
        assert np.isfinite(told).all()
    return robot.log()


def reachable(thing, seen: set[int]):
    """Everything that public attributes, items and argument-free public methods of a thing lead to."""
    if id(thing) in seen or isinstance(thing, (str, bytes, int, float, bool, np.ndarray, np.generic, type(None))):
        return
    seen.add(id(thing))
    yield thing
    if isinstance(thing, (dict, list, tuple)):
        for inner in thing.values() if isinstance(thing, dict) else thing:
            yield from reachable(inner, seen)
    elif not isinstance(
        thing, (types.ModuleType, type, types.FunctionType, types.MethodType, types.BuiltinFunctionType)
    ):
        for name in dir(thing):
            if not name.startswith("_"):
                found = getattr(thing, name)
                yield from reachable(found() if name in ("connect", "observe", "log") else found, seen)


def test_no_public_road_leads_to_the_model_or_to_e():
    robot = SimulatedRobot(tasks.resolve("arm"), realities(3, tasks.resolve("arm")))
    played(robot, 3)
    public = {name for name in dir(robot) if not name.startswith("_")}
    assert public == {"connect", "observe", "act", "log", "rate", "names", "ended"}
    found = list(reachable(robot, set()))
    assert len(found) > 5
    assert not [x for x in found if isinstance(x, (World, State, mujoco.MjModel, Reality))]


def test_the_log_says_nothing_of_what_reality_is_made_of():
    task = tasks.resolve("arm")
    log = played(SimulatedRobot(task, Reality(5, {"stiction": 0.5, "mass": 0.7})), 5)
    text = json.dumps(log.meta)
    assert not [word for word in ("stiction", "mass", "0.5", "0.7", "payload") if word in text]
    assert log.meta["reality"] == 5 and log.meta["parents"]["task"] == "arm"


def test_a_log_has_the_columns_of_its_schema(tmp_path):
    log = Log.load(played(SimulatedRobot(tasks.resolve("walk"), Reality(0)), 4).save(tmp_path / "a.npz"))
    widths = {k: v.shape[1] for k, v in log.columns.items()}
    joints = {"control": 12, "joint_pos": 12, "joint_vel": 12, "joint_torque": 12}
    assert (
        widths.items()
        >= (joints | {"base_pos": 3, "base_quat": 4, "base_lin_vel": 3, "base_ang_vel": 3, "gyro": 3}).items()
    )
    assert all(len(log.meta["names"][k]) == n for k, n in joints.items())
    assert log.rate == pytest.approx(50.0) and log.meta["rate"] == 50.0 and log.time[0] == 0.0


def test_a_row_is_what_was_measured_then_and_commanded_from_then_on():
    robot = SimulatedRobot(tasks.resolve("arm"), Reality(0), drive="control")
    robot.connect()
    for u in ([0.4, 1.0], [0.4, 1.0], [-0.4, 1.3]):
        robot.act(np.array(u))
    log = robot.log()
    assert log["control"].tolist() == [[0.4, 1.0], [0.4, 1.0], [-0.4, 1.3]]
    assert log["joint_vel"][0].tolist() == [0.0, 0.0]  # at rest until the first command has acted
    assert np.abs(log["joint_vel"][1]).min() > 0.01
    expected = 30.0 * (0.4 - log["joint_pos"][1, 0]) - log["joint_vel"][1, 0]  # the servo, one engine step earlier
    assert log["joint_torque"][1, 0] == pytest.approx(expected, abs=2.0)


def test_a_servos_measured_torque_is_its_law_and_not_the_friction_beside_it():
    robot = SimulatedRobot(tasks.resolve("arm"), Reality(0, {"stiction": 1.0}), drive="control")
    robot.connect()
    for _ in range(150):
        robot.act(np.array([0.3, 0.8]))
    log = robot.log()
    kp = np.array([30.0, 15.0])
    assert np.abs(log["joint_vel"][-1]).max() < 1e-3  # it sticks
    assert log["joint_torque"][-1] == pytest.approx(kp * (log["control"][-1] - log["joint_pos"][-1]), abs=1e-2)


def test_when_an_episode_ends_the_log_has_a_hole():
    robot = SimulatedRobot(tasks.resolve("balance"), Reality(0))
    robot.connect()
    ends = [robot.act(np.ones(1)) is not None and robot.ended for _ in range(60)]
    log = robot.log()
    k = next(k for k, why in enumerate(ends) if why)
    assert ends[k] in ("pole fell", "off the rail")
    assert log.meta["gaps"][0] == [pytest.approx((k + 1) * 0.02), pytest.approx((k + 1) * 0.02 + 1.0)]
    assert np.diff(log.time)[k] == pytest.approx(1.02)
    assert np.abs(log["joint_pos"][k + 1, 1]) < 0.06  # put back at its start


def test_a_lost_packet_is_nan_in_the_log_and_the_last_one_to_the_policy():
    log = played(SimulatedRobot(tasks.resolve("arm"), Reality(0, {"dropped_packets": 1.0})), 400)
    lost = np.isnan(log["joint_pos"]).all(1)
    assert abs(lost.sum() - 120) < 4 * np.sqrt(400 * 0.3 * 0.7)
    assert np.array_equal(lost, np.isnan(log["joint_torque"]).any(1)) and np.isfinite(log["control"]).all()


def test_noise_in_the_log_is_the_noise_the_policy_is_told():
    robot = SimulatedRobot(tasks.resolve("arm"), Reality(0, {"sensor_noise": 1.0}))
    told = [robot.connect()]
    for _ in range(20):
        told.append(robot.act(np.zeros(2)))
    frame = robot.log()["joint_pos"]
    newest = np.array(told[:-1])[:, -8:-6]  # the last of five frames of 8, which begin with joint_pos
    assert newest == pytest.approx(frame, abs=1e-6)


def test_the_same_seeds_leave_the_same_bits_and_another_reality_does_not():
    task = tasks.resolve("hover")
    logs = [played(SimulatedRobot(task, realities(k, task), seed=s), 20) for k, s in ((1, 0), (1, 0), (2, 0), (1, 1))]
    assert np.array_equal(logs[0]["base_pos"], logs[1]["base_pos"])
    assert not np.array_equal(logs[0]["base_pos"], logs[2]["base_pos"])
    assert not np.array_equal(logs[0]["base_pos"], logs[3]["base_pos"])


def test_a_robot_that_is_not_connected_says_so():
    robot = SimulatedRobot(tasks.resolve("balance"), Reality(0))
    for call in (robot.observe, lambda: robot.act(np.zeros(1))):
        with pytest.raises(SurefootError, match="not connected"):
            call()
    with pytest.raises(SurefootError, match="found no row"):
        robot.log()


@pytest.mark.parametrize("name", ["balance", "hover", "walk", "arm"])
def test_a_drawn_reality_has_three_to_five_ingredients_of_middling_strength(name):
    task = tasks.resolve(name)
    drawn = [realities(seed, task) for seed in range(40)]
    assert {len(r.strengths) for r in drawn} == {3, 4, 5}
    assert all(0.3 <= s <= 0.8 for r in drawn for s in r.strengths.values())
    assert {k for r in drawn for k in r.strengths} == set(fitting(task))
    assert drawn[7] == realities(7, task) and drawn[7] != realities(8, task)


def test_the_reality_of_a_belief_is_as_it_was():
    """cross and its recorded pages rest on it."""
    e = reality(tasks.resolve("balance").belief, 0)
    low, high = tasks.resolve("balance").belief.low, tasks.resolve("balance").belief.high
    share = (e - low) / (high - low)
    assert (np.minimum(share, 1 - share) < 0.32).all()  # the outer fifth, also of log scales
    assert e == pytest.approx(EXPECTED, rel=1e-12)


EXPECTED = [
    8.331002481118135,
    0.6345296605944418,
    0.2792100792028879,
    0.7852101755852122,
    0.9211075004648117,
    0.033989026614670376,
    0.0426851926342692,
]


def test_what_walk_logs_is_what_its_model_predicts_joints_base_and_sensors_alike():
    """Without noise the robot is the model: a joint that was a timestep older than the base would show as 0.1 rad/s."""
    from surefoot.real2sim.replay import predict, windows

    task = tasks.resolve("walk")
    # a window begins without the solver's warm start: with as many iterations as it asks for, that leaves no trace
    task = replace(task, robot=task.robot.edited(lambda spec: setattr(spec.option, "iterations", 100)))
    robot = SimulatedRobot(task, Reality(0, {}), seed=0)
    robot.connect()
    for k in range(30):
        robot.act(0.3 * np.sin(0.4 * k + np.arange(12)))
    w, log = tasks.env(task, 1).world, robot.log()
    pieces = windows(w, log, 5)
    errors = pieces.errors(predict(w, pieces, w.params.nominal[None]))
    assert {"joint_pos", "base_quat", "gyro"} <= set(errors)
    assert max(float(np.abs(x).max()) for x in errors.values()) < 1e-5


def test_actuators_that_a_task_holds_are_in_the_log_with_the_controls_that_hold_them():
    task = tasks.resolve("humanoid")
    robot = SimulatedRobot(task, Reality(0, {"stiction": 0.5}))
    names, driven = robot.names["control"], len(task.action.names)
    assert driven < len(names)
    robot.connect()
    rng = np.random.default_rng(0)
    for _ in range(3):
        robot.act(rng.uniform(-1, 1, driven))
    control = robot.log()["control"]
    held = [k for k, name in enumerate(names) if name not in task.action.names]
    moved = [names.index(name) for name in task.action.names]
    assert control.shape == (3, len(names)) and (control[:, held] == control[0, held]).all()
    assert (np.ptp(control[:, moved], axis=0) > 0).all()
