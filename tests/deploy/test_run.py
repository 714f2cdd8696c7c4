"""The runtime on a robot at the other end of UDP: it drives, and any doubt ends in damping that the robot acknowledges."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fake_robot import JOINTS, SHORT, Heard, Legs, bundle, served

from surefoot.contract import Contract
from surefoot.deploy.links.robot_side import Impaired
from surefoot.deploy.runtime.controller import Controller
from surefoot.deploy.runtime.loop import Run, Settings, drive
from surefoot.errors import SurefootError
from surefoot.log import Log, from_rows
from surefoot.policy import Zero

# a busy machine is slower than a robot's: what is measured here is what happens, benchmarks/deploy.py says how fast
SLOW = dict(misses=1000, watchdog=5.0)


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    monkeypatch.setattr("surefoot.deploy.runtime.loop.QUICKEST", 0.5)
    monkeypatch.setattr(
        "surefoot.deploy.runtime.loop.PATIENCE", 30.0
    )  # the robot is a thread here, and may have to wait


def live(seconds: float = 0.6, **more) -> Settings:
    return Settings(**SLOW | {"live": True, "seconds": seconds} | more)


def when_driven(server, act) -> None:
    """Do something half a second after the robot is first driven."""

    def wait():
        until = time.monotonic() + 60
        while "driven" not in modes(server) and time.monotonic() < until:
            time.sleep(0.01)
        time.sleep(0.5)
        act()

    threading.Thread(target=wait, daemon=True).start()


def modes(server) -> list[str]:
    return [e.mode for e in server.events]


def test_it_moves_softly_to_the_default_pose_drives_and_damps():
    body = Legs()
    with served(body, Heard) as (server, address):
        start = body.q.copy()
        done = drive(bundle(), address, live())
        assert done.good and modes(server) == ["driven", "damping"] and done.acknowledged
    targets = np.array([c.target[::-1] for c in server.transport.commands if c.mode != "damping"])
    assert np.abs(targets[0] - start).max() <= 0.05, "the first command is within 0.05 rad of where the robot is"
    softly = [c.starting for c in server.transport.commands if c.mode != "damping"]
    assert softly == sorted(softly, reverse=True) and softly.count(True) >= 5 and not softly[-1]
    assert np.allclose(targets[-1], SHORT["home"]) and np.abs(body.q - SHORT["home"]).max() < 0.05
    assert [c.state for c in done.states.changes] == ["checking", "soft start", "running", "damping", "ended"]
    log = done.log
    assert log is not None and log.meta["names"]["control"] == list(JOINTS) and len(log) == done.counts.periods >= 10
    assert np.allclose(log["observation"][:, 6:8], log["joint_pos"] - SHORT["home"], atol=1e-6)
    assert np.array_equal(log["target"][:, ::-1], np.clip(log["control"], -2, 2))


def test_a_dry_run_sends_nothing_and_leaves_a_log():
    body = Legs()
    with served(body) as (server, address):
        done = drive(bundle(), address, Settings(seconds=0.5))
    assert done.good and not modes(server) and not body.sent and done.counts.sent == 0
    assert done.log is not None and done.log["action"].shape[1] == 2


def broken(name, value, after=60):
    """A reading that turns bad after some steps under way."""

    def fault(readings, steps):
        return readings | {name: np.asarray(value, float)} if steps > after else readings

    return fault


class Frozen:
    def __init__(self):
        self.kept = None

    def __call__(self, readings, steps):
        if steps > 60:
            self.kept = self.kept or readings
            return self.kept
        return readings


@pytest.mark.parametrize(
    "fault, words",
    [
        (broken("joint_pos", [np.nan, 0.0]), "joint_pos: found a reading that is not a finite number"),
        (broken("base_quat", [0.0, 0.0, 0.0, 0.0]), "base_quat: found a quaternion"),
        (broken("temperature", [40.0, 95.0]), "temperature: found 95 C"),
        (lambda r, steps: None if steps > 60 else r, "stale readings"),
        (Frozen(), "frozen readings"),
    ],
    ids=["nan", "quaternion", "hot", "silent", "frozen"],
)
def test_a_bad_sensor_ends_in_damping(fault, words):
    with served(Legs(fault)) as (server, address):
        done = drive(bundle(), address, live(5.0))
        assert done.states.cause.event == "fault" and words in done.states.cause.why
        assert modes(server) == ["driven", "damping"] and not done.good


class Wild(Zero):
    """A policy that answers nonsense from its k-th answer on; the count is kept in its state."""

    bad = np.nan

    def init(self, n):
        return {"asked": np.zeros((n, 1))}

    def step(self, s, obs):
        out = np.full((len(obs), 2), self.bad if s["asked"][0, 0] > 25 else 0.0, np.float32)
        return {"asked": s["asked"] + 1}, out


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_an_action_that_is_not_finite_is_never_sent_and_ends_in_damping(bad):
    policy = Wild(Contract.from_json(SHORT))
    object.__setattr__(policy, "bad", bad)
    body = Legs()
    with served(body) as (server, address):
        run = Run(bundle(policy), address, live(5.0))
        run_check = run._check

        def check():
            run_check()
            run.controller.driver.begin(np.ones(1, bool))  # the trial answers count, too

        run._check = check
        done = run()
        assert "action is not a finite number" in done.states.cause.why and modes(server) == ["driven", "damping"]
    assert body.sent and all(np.isfinite([c.target, c.kp, c.kd]).all() for c in body.sent)


def test_a_huge_action_is_brought_within_the_limits():
    policy = Wild(Contract.from_json(SHORT | {"action_limit": 1e5}))
    object.__setattr__(policy, "bad", 1e5)
    body = Legs()
    with served(body) as (_, address):
        drive(bundle(policy), address, live(0.8))
    assert max(np.abs(c.target).max() for c in body.sent) <= 2.0


def test_the_emergency_stop_of_the_robot_is_latched():
    body = Legs()
    with served(body) as (server, address):
        when_driven(server, server.stop)
        done = drive(bundle(), address, live(20.0))
        assert done.states.cause.event == "stop" and modes(server) == ["driven", "stopped"]
        with pytest.raises(SurefootError, match="emergency stop is pressed"):
            drive(bundle(), address, live())


def test_ctrl_c_is_an_emergency_stop():
    with served(Legs()) as (server, address):
        when_driven(server, lambda: os.kill(os.getpid(), signal.SIGINT))
        done = drive(bundle(), address, live(30.0))
        assert "SIGINT" in done.states.cause.why and modes(server) == ["driven", "damping"]


def test_a_damped_run_can_command_nothing_more_and_a_new_one_can():
    with served(Legs()) as (server, address):
        assert drive(bundle(), address, live(0.2)).good
        assert drive(bundle(), address, live(0.2)).good
        assert modes(server) == ["driven", "damping", "held", "driven", "damping"] and len(server.barred) == 2


CHILD = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from fake_robot import bundle
from surefoot.contract import Contract
from surefoot.deploy.runtime import loop
from surefoot.policy import Zero
import fake_robot, numpy as np
loop.QUICKEST = 5.0

class Hangs(Zero):
    def init(self, n):
        return {"asked": np.zeros((n, 1))}

    def step(self, s, obs):
        if sys.argv[3] == "hang" and s["asked"][0, 0] > 50:
            time.sleep(60)
        return {"asked": s["asked"] + 1}, np.zeros((len(obs), 2), np.float32)

policy = Hangs(Contract.from_json(fake_robot.SHORT))
journal = Path(sys.argv[4]) if sys.argv[4:] else None
loop.drive(bundle(policy), sys.argv[2], loop.Settings(live=True, seconds=60, misses=1000, watchdog=0.2, journal=journal))
"""


@pytest.mark.parametrize("how", ["kill", "hang", "stop"])
def test_the_watchdog_damps_when_the_runtime_cannot(how):
    """Killed by -9, hung in inference, suspended by the terminal: this robot would not sink down by itself for a minute."""
    with served(Legs()) as (server, address):
        job = [sys.executable, "-c", CHILD, str(Path(__file__).parent), address, how]
        child = subprocess.Popen(job, stdout=subprocess.DEVNULL)
        try:
            until = time.monotonic() + 60
            while "driven" not in modes(server) and time.monotonic() < until:
                time.sleep(0.01)
            time.sleep(0.5)
            if how != "hang":
                os.kill(child.pid, signal.SIGKILL if how == "kill" else signal.SIGSTOP)
            while "damping" not in modes(server) and time.monotonic() < until:
                time.sleep(0.01)
            assert modes(server) == ["driven", "damping"] and server.events[-1].why == "asked to"
        finally:
            child.kill()
            child.wait()


def rows_in(path) -> int:
    """Of a file that is being written."""
    try:
        return len(from_rows(path.read_bytes()))
    except (OSError, SurefootError):
        return 0


def test_a_run_that_is_killed_leaves_its_log_but_for_the_last_moment(tmp_path):
    """By kill -9, at an instant when rows wait in memory; a row that was cut in the middle is left out."""
    path = tmp_path / "run.rows"
    with served(Legs()) as (server, address):
        job = [sys.executable, "-c", CHILD, str(Path(__file__).parent), address, "kill", str(path)]
        child = subprocess.Popen(job, stdout=subprocess.DEVNULL)
        try:
            until = time.monotonic() + 60
            while rows_in(path) < 40 and time.monotonic() < until:
                time.sleep(0.05)
        finally:
            child.kill()
            child.wait()
    log = Log.read(path)
    assert len(log) >= 40 and (np.diff(log["sequence"]) > 0).all() and log.meta["names"]["control"] == list(JOINTS)
    assert log["observation"].dtype == np.float32 and log["limited"].dtype == bool
    assert np.allclose(log["observation"][:, 6:8], log["joint_pos"] - SHORT["home"], atol=1e-6)
    path.write_bytes(path.read_bytes()[:-5])
    assert len(Log.read(path)) == len(log) - 1


def test_without_new_readings_the_last_command_is_held_and_decays():
    c = Controller(Zero(Contract.from_json(SHORT)), bundle().manifest.limits, Legs().about().parts)
    readings = Legs().readings()
    assert readings is not None
    sent = c.step(readings, np.zeros(0)).command
    held = [c.hold() for _ in range(3)]
    assert [h.kp[0] / sent.kp[0] for h in held] == pytest.approx([0.8, 0.64, 0.512])
    assert all(np.array_equal(h.target, sent.target) and np.array_equal(h.kd, sent.kd) for h in held)
    assert [h.sequence for h in held] == [2, 3, 4] and c.periods == 4
    assert np.array_equal(c.step(readings, np.zeros(0)).command.kp, sent.kp)


class Slow(Legs):
    """A driver that is late: eight packets of twenty never come, which is two control periods."""

    def __init__(self):
        self.asked = 0
        super().__init__()

    def readings(self):
        self.asked += 1
        found = super().readings()
        return None if self.asked % 20 in range(1, 9) else found


def test_a_late_packet_costs_a_held_period_and_no_second_answer_to_the_same_readings():
    with served(Slow()) as (server, address):
        done = drive(bundle(), address, live(1.0))
        assert done.good and modes(server) == ["driven", "damping"]
    assert done.counts.held > 0 and done.log is not None and len(done.log) == done.counts.periods
    assert (np.diff(done.log["sequence"]) > 0).all(), "each packet is answered once"


KEYS = """
import sys
sys.path.insert(0, sys.argv[1])
from fake_robot import bundle
from surefoot.deploy.runtime import loop
loop.QUICKEST = 5.0
done = loop.drive(bundle(), sys.argv[2], loop.Settings(live=True, seconds=60, misses=1000, watchdog=5.0, keys=True))
print(done.states.cause.why)
"""


def test_any_key_is_an_emergency_stop():
    """In a terminal of its own: the watchdog reads the key, damps the robot, and tells the runtime."""
    with served(Legs()) as (server, address):
        spawn = "import pty, sys; pty.spawn([sys.executable, '-c', *sys.argv[1:]])"
        job = [sys.executable, "-c", spawn, KEYS, str(Path(__file__).parent), address]
        child = subprocess.Popen(job, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        until = time.monotonic() + 60
        while "driven" not in modes(server) and time.monotonic() < until:
            time.sleep(0.01)
        time.sleep(0.5)
        child.stdin.write(b"x")
        child.stdin.flush()
        while "damping" not in modes(server) and time.monotonic() < until:
            time.sleep(0.01)
        out, _ = child.communicate(timeout=60)
        assert modes(server) == ["driven", "damping"] and b"a key was pressed" in out


def test_a_wire_that_delays_and_loses_is_borne():
    with served(Legs(), lambda t: Impaired(t, 0.004, 0.002, 0.02, seed=1)) as (server, address):
        done = drive(bundle(), address, live(1.0))
        assert done.good and modes(server) == ["driven", "damping"] and done.counts.packets["lost"] > 0


@pytest.mark.parametrize(
    "change, words",
    [
        ({"rate": 500}, "found 200 packets a second, expected at least 500"),
        ({"joints": ["hip", "ankle"]}, "no joint matches 'ankle'; there are hip, knee"),
        ({"observation": ["base_lin_vel", "joint_pos"]}, "no reading matches 'base_lin_vel'"),
    ],
)
def test_a_robot_that_does_not_fit_is_refused_before_anything_is_sent(change, words):
    body = Legs()
    with served(body) as (server, address), pytest.raises(SurefootError, match=words):
        drive(bundle(Zero(Contract.from_json(SHORT | change))), address, live())
    assert not body.sent and not modes(server)


def test_a_command_outside_its_range_is_refused():
    body, asks = Legs(), SHORT | {"observation": ["command", "joint_pos"], "commands": {"vx": [-1, 1]}}
    with served(body) as (_, address):
        for command, words in (((2.0, 0.0, 0.0), "vx: expected -1 to 1, found 2"), ((1.0,), "expected 3 numbers")):
            with pytest.raises(SurefootError, match=words):
                drive(bundle(Zero(Contract.from_json(asks))), address, replace(live(), command=command))


def test_nobody_there_is_said_in_words():
    with pytest.raises(SurefootError, match="no robot answers"):
        drive(bundle(), "udp://127.0.0.1:9", live())
    for address, words in (
        ("udp:9870", "expected NAME://WHERE"),
        ("upd://x:1", "did you mean udp"),
        ("udp://x", "HOST:PORT"),
    ):
        with pytest.raises(SurefootError, match=words):
            drive(bundle(), address, live())


def test_a_log_is_also_written_as_mcap(tmp_path):
    pytest.importorskip("mcap", reason="needs the logs extra")
    from surefoot.deploy.runtime import mcap_log
    from surefoot.formats import read

    with served(Legs()) as (_, address):
        log = drive(bundle(), address, Settings(seconds=0.4)).log
    found = read(mcap_log.write(log, tmp_path / "run.mcap"))
    name = next(k for k in found.columns if k.endswith("joint_pos"))
    assert np.allclose(found[name], log["joint_pos"]) and len(found) == len(log)


BARE = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("mujoco", "torch", "scipy", "matplotlib"):
            raise ModuleNotFoundError(name, name=name)

sys.meta_path.insert(0, Absent())
"""


@pytest.mark.slow
def test_the_shipped_policy_balances_a_robot_in_another_process(tmp_path):
    """export, robot and run as they are typed; a robot's computer has neither simulator nor torch, so run is started without."""
    from surefoot.cli import main

    assert main(["export", "balance", "--out", str(tmp_path / "b.zip")]) == 0
    job = [sys.executable, "-m", "surefoot", "robot", "balance", "--port", "9899", "--runs", "1", "--json"]
    robot = subprocess.Popen(job, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    code = BARE + "from surefoot.__main__ import entry; entry()"
    words = ["run", "b.zip", "--link", "udp://127.0.0.1:9899", "--live", "--seconds", "10.2", "--no-keys", "--json"]
    done = subprocess.run(
        [sys.executable, "-c", code, *words], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    if done.returncode:
        robot.terminate()
    out, _ = robot.communicate(timeout=60)
    assert done.returncode == 0, done.stderr + done.stdout
    facts, theirs = json.loads(done.stdout), json.loads(out)
    assert facts["ended"]["event"] == "done" and facts["acknowledged"] and theirs["success"] == 1
    assert theirs["runs"][0]["ended"] == "time" and (tmp_path / "run.npz").exists()
