"""Parts of the runtime alone: its clock, its signals, its recorder, and what it asks of a robot and of the computer."""

import gc
import os
import signal
import threading
import time
from dataclasses import dataclass, replace

import numpy as np
import pytest
from fake_robot import JOINTS, SHORT, limits

from surefoot.contract import Contract
from surefoot.deploy.links import About, Packet
from surefoot.deploy.runtime.checks import check_robot, check_speed
from surefoot.deploy.runtime.clock import Clock
from surefoot.deploy.runtime.controller import Controller
from surefoot.deploy.runtime.priority import real_time
from surefoot.deploy.runtime.recorder import Recorder
from surefoot.deploy.runtime.surroundings import shown, signals, undisturbed
from surefoot.errors import SurefootError
from surefoot.log import from_rows
from surefoot.policy import Policy, Zero
from surefoot.report import Progress, unwatched

CONTRACT = Contract.from_json(SHORT)
ABOUT = About({"joint_pos": JOINTS, "joint_vel": JOINTS, "control": JOINTS[::-1]}, 50.0, "legs")
READINGS = {
    "joint_pos": np.array([0.1, -0.2]), "joint_vel": np.array([0.3, 0.4]), "base_quat": np.array([1.0, 0, 0, 0]), "base_ang_vel": np.zeros(3),
}  # fmt: skip
PACKET = Packet(3, 1.5, READINGS, "held")
ASKED = np.zeros(3)  # a command: vx, vy, yaw rate


def test_a_clock_at_ten_times_the_speed_waits_a_tenth_of_the_time():
    clock, began = Clock(speed=10.0), time.monotonic()
    clock.sleep_until(0.5)
    assert 0.05 <= time.monotonic() - began < 0.5
    clock.sleep_until(0.1)  # has passed
    early, now, late = time.monotonic(), clock.now(), time.monotonic()
    assert 10 * (early - clock.start) <= now <= 10 * (late - clock.start)


def test_each_signal_that_stops_is_named_once_and_handlers_are_given_back():
    numbers, heard = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1), []
    before = [signal.getsignal(n) for n in numbers]
    with signals(heard.append):
        for n in numbers:
            signal.raise_signal(n)
    assert heard == ["SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1"]
    assert [signal.getsignal(n) for n in numbers] == before


def test_no_garbage_is_collected_inside_and_it_is_again_after_an_error():
    with pytest.raises(ZeroDivisionError), undisturbed():
        assert not gc.isenabled() and gc.get_freeze_count() > 0
        raise ZeroDivisionError
    assert gc.isenabled() and gc.get_freeze_count() == 0


def test_a_terminal_that_hangs_holds_up_nothing_for_longer_than_two_lines():
    hangs, came = threading.Event(), threading.Event()

    def watch(p: Progress) -> None:
        came.set()
        hangs.wait(30)

    with shown(lambda: Progress("x"), watch):
        assert came.wait(10)
        began = time.monotonic()
    assert time.monotonic() - began < 5
    hangs.set()


def test_priority_is_real_time_inside_where_it_is_allowed_and_ordinary_afterwards():
    with real_time(10) as got:
        assert got == (os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK == os.SCHED_FIFO)
    assert os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK == os.SCHED_OTHER


@pytest.mark.parametrize(
    "about, packet, words",
    [
        (
            ABOUT,
            replace(PACKET, readings={k: v for k, v in READINGS.items() if k != "joint_vel"}),
            "robot: .*'joint_vel'",
        ),
        (
            ABOUT,
            replace(PACKET, readings=READINGS | {"joint_pos": np.zeros(3)}),
            "joint_pos: found 3 numbers and 2 names",
        ),
        (replace(ABOUT, rate=44.9), PACKET, "found 44.9 packets a second, expected at least 50"),
        (ABOUT, replace(PACKET, mode="stopped"), "emergency stop is pressed"),
        (ABOUT, replace(PACKET, mode="driven"), "another run drives it"),
    ],
)
def test_a_robot_is_refused_with_what_was_found_and_expected(about, packet, words):
    check_robot(CONTRACT, replace(ABOUT, rate=45.0), PACKET, ASKED)  # nine tenths of the rate is taken
    with pytest.raises(SurefootError, match=words):
        check_robot(CONTRACT, about, packet, ASKED)


@dataclass(frozen=True)
class Slow(Policy):
    """Answers 0 after 4 ms."""

    contract: Contract

    def step(self, s, obs):
        time.sleep(0.004)
        return s, np.zeros((len(obs), 2))


def test_a_policy_may_take_half_of_a_period_and_no_more():
    controller = Controller(Slow(CONTRACT), limits(), ABOUT.parts)
    with pytest.raises(SurefootError, match=r"a control period takes \d+\.\d\d ms, expected less than 3.00"):
        check_speed(controller, PACKET, ASKED, 0.006)
    check_speed(controller, PACKET, ASKED, 10.0)
    assert controller.periods == 0 and np.array_equal(controller.last, SHORT["home"])


def test_what_is_recorded_is_read_back_to_the_bit_and_named():
    controller = Controller(Zero(CONTRACT), limits(), ABOUT.parts)
    recorder = Recorder(CONTRACT, ABOUT)
    recorder.begin(PACKET, ASKED, {})
    assert recorder.newest() == {} and recorder.log({}) is None
    made = []
    for k in range(3):
        readings = READINGS | {"joint_pos": READINGS["joint_pos"] + 0.1 * k}
        made.append(controller.step(readings, ASKED))
        recorder.add(0.02 * k, Packet(7 + k, 1.5 + k, readings, "driven"), made[-1], ASKED, (0.001, 0.002, 0.003 + k))
    assert recorder.newest() == {
        "stamp": 3.5,
        "age": 0.001,
        "late": 0.002,
        "compute": 2.003,
        "target": made[-1].command.target.tolist(),
    }
    log = recorder.log({"note": "x"})
    assert log is not None and log.time.tolist() == [0.0, 0.02, 0.04] and log["sequence"].tolist() == [7, 8, 9]
    assert np.array_equal(log["observation"], np.array([p.obs for p in made], np.float32))
    assert np.array_equal(log["joint_pos"][:, 0], 0.1 + 0.1 * np.arange(3)) and log["limited"].dtype == bool
    assert log.meta["names"]["target"] == list(JOINTS[::-1]) and log.meta["names"]["joint_pos"] == list(JOINTS)
    assert log.meta["note"] == "x" and log.units["age"] == "s" and log.meta["rate"] == 50


def test_a_journal_is_the_log_that_is_in_memory(tmp_path):
    controller = Controller(Zero(CONTRACT), limits(), ABOUT.parts)
    recorder = Recorder(CONTRACT, ABOUT, tmp_path / "new" / "run.rows")
    recorder.begin(PACKET, ASKED, {"note": "x"})
    for k in range(4):
        recorder.add(0.02 * k, PACKET, controller.step(READINGS, ASKED), ASKED, (0.0, 0.0, 0.0))
    assert recorder.journal is not None
    recorder.journal.close()
    found, log = from_rows((tmp_path / "new" / "run.rows").read_bytes()), recorder.log({"note": "x"})
    assert log is not None and found.meta == log.meta and found.columns.keys() == log.columns.keys()
    assert all(np.array_equal(found[k], log[k]) for k in log.columns) and len(found) == 4


def test_nobody_watching_costs_no_thread():
    before = threading.active_count()
    with shown(lambda: Progress("x"), unwatched):
        assert threading.active_count() == before
