"""A hidden robot behind the runtime: what it does is what the task's own simulation does, and every second is counted."""

import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from surefoot import shipped, tasks
from surefoot.cross.robot import HiddenRobot, LinkedRobot, Plan, Rate, even, joined, judged
from surefoot.cross.work import beginnings, sent
from surefoot.deploy import bundle, manifest
from surefoot.deploy.manifest import Bundle
from surefoot.errors import SurefootError
from surefoot.gate.bundled import bundled
from surefoot.log import Log
from surefoot.sim.realities import Reality, hidden


@pytest.fixture(scope="module")
def balance(tmp_path_factory) -> Bundle:
    """The shipped policy of balance, as a bundle."""
    path = shipped.located(Path("balance"))
    made, _ = bundled(path, bundle.load(path), tasks.resolve("balance"), {})
    return manifest.read(manifest.write(tmp_path_factory.mktemp("bundle") / "b", made))


def test_a_robot_as_its_model_is_driven_as_well_as_the_simulation(balance):
    task = tasks.resolve("balance")
    robot = HiddenRobot(task, Reality(0, {}))
    found = robot.attempt(balance, Plan(2, 30.0))
    assert found.rate == Rate(2, 2) and found.seconds == pytest.approx(20.0) and dict(found.ended) == {"time": 2}
    assert len(found.log) == 1000 and found.log.meta["gaps"] == [pytest.approx([10.0, 11.0])]
    assert robot.measure(balance.policy, 8, seed=1) == Rate(8, 8)


def test_its_log_is_the_runtimes_and_replays_to_the_last_digit(balance):
    """The model that made the robot predicts its log: controls and states belong to the same rows."""
    from surefoot.real2sim.replay import replay

    task = tasks.resolve("balance")
    log = HiddenRobot(task, Reality(0, {})).attempt(balance, Plan(1, 30.0)).log
    assert {"observation", "action", "control", "target", "limited", "joint_pos", "joint_vel", "age"} <= set(
        log.columns
    )
    one = replay(tasks.env(task, 1).world, sent(log), resync=5)
    assert {s.signal: s.rmse for s in one.scores} == pytest.approx({"joint_pos": 0.0, "joint_vel": 0.0}, abs=1e-9)


@pytest.mark.parametrize(
    ("rate", "driven", "goes_on"),
    [((0, 0), 0.0, True), ((0, 2), 7.0, False), ((0, 2), 1.0, True), ((4, 4), 20.0, False), ((3, 3), 28.0, False)],
)
def test_an_attempt_ends_after_two_failures_all_episodes_or_its_time(rate, driven, goes_on):
    plan = Plan(episodes=4, seconds=30.0, failures=2, least=6.0)
    assert plan.goes_on(rate, driven, 5.0) is goes_on


def test_the_last_episode_may_be_cut_so_that_all_of_the_time_is_used():
    whole, cut = Plan(9, 10.0, failures=9), Plan(9, 10.0, failures=9, cut=True)
    assert [p.goes_on((0, 3), 7.0, 5.0) for p in (whole, cut)] == [False, True]
    assert cut.length(7.0, 5.0) == 3.0 and whole.length(4.0, 5.0) == cut.length(4.0, 5.0) == 5.0
    assert not cut.goes_on((0, 3), 9.9, 5.0)
    assert Plan(9, 2.0).length(0.0, 5.0) == 5.0  # one episode is tried, whatever time there is


def test_a_random_part_of_the_action_shows_in_the_log_and_nowhere_else(balance):
    task = tasks.resolve("balance")
    robot = HiddenRobot(task, Reality(0, {}))
    calm, moved = (robot.attempt(balance, Plan(1, 10.0, dither=size)).log["action"] for size in (0.0, 0.5))
    assert not np.allclose(calm[:50], moved[:50])
    again = robot.attempt(balance, Plan(1, 10.0, dither=0.5)).log["action"]
    assert (again == moved).all()


def test_lost_packets_are_holes_in_the_log_and_the_runtime_goes_on_with_the_last(balance):
    task = tasks.resolve("balance")
    log = HiddenRobot(task, Reality(0, {"dropped_packets": 0.5})).attempt(balance, Plan(1, 10.0)).log
    lost = np.isnan(log["joint_pos"]).any(1)
    assert 0.05 < lost.mean() < 0.25 and np.isfinite(log["observation"]).all()  # 0.15 of them


def test_a_hidden_robot_is_the_same_machine_each_time(balance):
    task = tasks.resolve("balance")
    logs = [HiddenRobot(task, hidden(3, task)).attempt(balance, Plan(1, 10.0, seed=5)).log for _ in range(2)]
    assert all((logs[0][k] == logs[1][k]).all() for k in ("joint_pos", "action", "target"))


def test_an_episode_is_judged_from_what_was_measured(balance):
    """The robot knows whether it succeeded; its log must say the same."""
    task = tasks.resolve("balance")
    found = HiddenRobot(task, Reality(0, {})).attempt(balance, Plan(1, 10.0))
    log, why, good = judged(task, found.log)
    assert (why, good) == ("time", True) and len(log) == len(found.log)
    fell = replace(found.log, columns={**found.log.columns, "joint_pos": found.log["joint_pos"] + [0.0, 0.5]})
    assert judged(task, fell)[1:] == ("pole fell", False)
    short = found.log.slice(0.0, 5.0)
    assert judged(task, short)[1:] == ("cut short", False)


def test_logs_join_with_a_break_and_part_into_beginnings():
    def log(rows):
        names = {"names": {"control": ["a"], "target": ["a"]}, "gaps": []}
        return Log(
            np.arange(rows) * 0.1, {"target": np.full((rows, 1), 1.0), "control": np.zeros((rows, 1))}, {}, names
        )

    both = joined([log(30), log(20)])
    assert both.meta["gaps"] == [pytest.approx([3.0, 4.0])] and len(both) == 50
    part = beginnings(both, 0.5)
    assert part.time == pytest.approx([0.0, 0.1, 0.2, 0.3, 0.4, 4.0, 4.1, 4.2, 4.3, 4.4])
    assert (sent(both)["control"] == 1.0).all()


def test_a_reality_that_no_policy_was_trained_for_is_reached_through_the_same_files(tmp_path: Path, balance):
    task = tasks.resolve("balance")
    robot = HiddenRobot(task, hidden(0, task))
    assert robot.attempt(balance, Plan(1, 10.0)).log.meta["parents"]["manifest"] == balance.sha256
    assert set(robot.reveal()) == {"seed", "ingredients", "e"}


def test_many_copies_are_limited_as_the_runtime_limits_one(balance):
    """Half of the force's range in a period: from full left to full right takes two."""
    from surefoot.learn.on_robot.limited import Limiter, behind_runtime

    task = behind_runtime(tasks.resolve("balance"), late=0.0)
    (limiter,) = (t for t in task.terms if isinstance(t, Limiter))
    assert (limiter.low, limiter.high, limiter.step) == (-10.0, 10.0, pytest.approx(balance.manifest.limits.rate / 50))
    env = tasks.env(task, 1)
    env.reset()
    env.step(np.array([[-1.0]]))
    env.step(np.array([[1.0]]))
    assert env.world.state.u[0, 0] == pytest.approx(0.0)
    env.step(np.array([[1.0]]))
    assert env.world.state.u[0, 0] == pytest.approx(10.0)


def test_time_stamps_of_packets_become_whole_periods():
    stamps = np.array([0.0, 0.021, 0.0395, 0.0402, 0.1])  # the fourth is a packet that served twice
    log = even(Log(stamps, {"x": np.arange(5.0)}, {}, {"rate": 50.0}))
    assert log.time == pytest.approx([0.0, 0.02, 0.04, 0.1]) and log["x"].tolist() == [0, 1, 2, 4]


def test_a_robot_at_an_address_is_not_driven_with_a_policy_that_the_gate_stops(balance):
    bare = replace(balance, manifest=replace(balance.manifest, verdict=None))
    with pytest.raises(SurefootError, match="not driven, because the gate does not pass"):
        LinkedRobot(tasks.resolve("balance"), "udp://127.0.0.1:1").attempt(bare, Plan(1, 10.0))


@pytest.mark.slow
def test_a_robot_in_another_process_is_tried_judged_and_logged(balance):
    job = [sys.executable, "-m", "surefoot", "robot", "balance", "--port", "9917", "--runs", "2"]
    robot = subprocess.Popen(job, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(4.0)
        found = LinkedRobot(tasks.resolve("balance"), "udp://127.0.0.1:9917").attempt(balance, Plan(2, 30.0))
    finally:
        robot.terminate()
        robot.wait()
    assert found.rate == Rate(2, 2) and found.seconds == pytest.approx(20.0, rel=0.02)
    assert np.isfinite(found.log["joint_pos"]).all() and len(found.log.meta["gaps"]) == 1
