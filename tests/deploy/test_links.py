"""Links carry numbers unchanged, in the layouts that their robots speak, and hear nothing in noise."""

import struct
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from fake_robot import JOINTS, Legs, bundle, served

from surefoot.deploy.links import About, Command, Packet, make, wire
from surefoot.deploy.links.robot_side import Server
from surefoot.deploy.runtime.loop import Settings, drive
from surefoot.errors import SurefootError


def test_packets_and_commands_come_out_as_they_went_in():
    rng = np.random.default_rng(0)
    readings = {"joint_pos": rng.standard_normal(3), "base_quat": rng.standard_normal(4)}
    layout = wire.Layout.of(readings)
    about = About({"joint_pos": ("a", "b", "c"), "control": ("c", "a")}, 200.0, "robot", {"model": "f" * 64})
    assert wire.parse_about(wire.about_body(about, layout), "x") == (about, layout)
    data = wire.message(wire.PACKET, 5, 7, wire.packet_body(Packet(7, 1.25, readings, "damping")))
    got = wire.parse_packet(wire.parse(data), layout)
    assert (got.sequence, got.stamp, got.mode) == (7, 1.25, "damping")
    assert all(np.array_equal(got.readings[k], v) for k, v in readings.items())
    command = Command(9, "servo", *rng.standard_normal((3, 2)))
    back = wire.parse_command(wire.parse(wire.message(wire.COMMAND, 5, 9, wire.command_body(command))))
    assert (back.sequence, back.mode, back.starting) == (9, "servo", False) and np.array_equal(back.kp, command.kp)
    soft = wire.command_body(replace(command, starting=True))
    back = wire.parse_command(wire.parse(wire.message(wire.COMMAND, 5, 9, soft)))
    assert (back.mode, back.starting) == ("servo", True) and np.array_equal(back.target, command.target)


def test_noise_on_the_wire_is_dropped():
    """Random bytes, cut messages and wrong lengths: None, never an exception."""
    rng = np.random.default_rng(0)
    layout = wire.Layout(("joint_pos",), (3,))
    good = wire.message(wire.COMMAND, 1, 1, wire.command_body(Command(1, "servo", *np.zeros((3, 2)))))
    cut = [wire.parse(good[:n]) for n in range(len(good))]
    assert all(m is None or wire.parse_command(m) is None for m in cut)
    assert wire.parse_command(wire.parse(good)) is not None
    for k in range(20_000):
        data = rng.bytes(int(rng.integers(0, 200)))
        data = wire.MAGIC + data if k % 2 else good[: k % (len(good) + 1)] + data
        m = wire.parse(data)
        if m is not None:
            wire.parse_packet(m, layout)
            wire.parse_command(m)


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"parts": 1}', b"\xff\xfe", b'{"parts": {}, "rate": 1, "name": "", "facts": {}, "layout": [["a", -1]]}'])  # fmt: skip
def test_a_robot_that_cannot_say_what_it_is_is_refused(body):
    with pytest.raises(SurefootError, match="robot"):
        wire.parse_about(body, "robot")


def test_a_link_of_ones_own_is_found_by_module_and_function():
    link = make("surefoot.deploy.links.udp:UdpLink://127.0.0.1:9870")
    assert type(link).__name__ == "UdpLink"
    for address, words in (
        ("nowhere.at_all:f://x", "no such module"),
        ("surefoot.errors:nothing://x", "has no nothing"),
    ):
        with pytest.raises(SurefootError, match=words):
            make(address)


def test_zeromq_drives_a_robot_end_to_end(monkeypatch):
    zeromq = pytest.importorskip("surefoot.deploy.links.zeromq")
    monkeypatch.setattr("surefoot.deploy.runtime.loop.QUICKEST", 0.5)
    transport, over = zeromq.ZmqTransport("127.0.0.1", 0), threading.Event()
    server = Server(Legs(), transport, 60.0)
    thread = threading.Thread(target=server.run_until, args=(lambda s: over.is_set(),), daemon=True)
    thread.start()
    try:
        address = f"zmq://127.0.0.1:{transport.port}"
        done = drive(bundle(), address, Settings(live=True, seconds=0.5, misses=1000, watchdog=5.0))
        assert done.good and [e.mode for e in server.events] == ["driven", "damping"]
    finally:
        over.set()
        thread.join(5)
        transport.close()


def mpeg2(data: bytes) -> int:
    """CRC-32/MPEG-2 by its definition, bit by bit."""
    crc = 0xFFFFFFFF
    for byte in data:
        for k in range(7, -1, -1):
            top = (crc >> 31) ^ ((byte >> k) & 1)
            crc = ((crc << 1) & 0xFFFFFFFF) ^ (0x04C11DB7 if top else 0)
    return crc


def test_the_crc_of_unitree_is_mpeg2_of_words_from_their_highest_byte():
    unitree = pytest.importorskip("surefoot.deploy.links.unitree")
    assert mpeg2(b"123456789") == 0x0376E6E7  # the published check value
    data = np.random.default_rng(0).bytes(808)
    assert unitree.crc32(data) == mpeg2(b"".join(data[k : k + 4][::-1] for k in range(0, len(data), 4)))


def test_messages_of_unitree_have_the_sizes_of_the_makers_structs():
    """812 and 1180 bytes with the crc, as the makers' SDK packs them."""
    unitree = pytest.importorskip("surefoot.deploy.links.unitree")
    assert unitree.CMD.size + 4 == 812 and unitree.LOW.size + 4 == 1180
    m = unitree.LowCmd_()
    before = m.sum()
    m.motor_cmd[3].q = 0.25
    assert m.sum() != before and struct.calcsize("<B3x5f3I") == 36


def until(test, seconds=10.0):
    end = time.monotonic() + seconds
    while not test():
        assert time.monotonic() < end, "nothing came"
        time.sleep(0.01)


def test_a_fake_unitree_robot_is_read_and_commanded_over_loopback():
    unitree = pytest.importorskip("surefoot.deploy.links.unitree")
    from surefoot.deploy.links.dds import Place, reader, writer

    place = Place("lo?domain=71", ())
    participant = place.participant()
    states, commands = (
        writer(participant, unitree.STATE, unitree.LowState_),
        reader(participant, unitree.COMMAND, unitree.LowCmd_),
    )
    over, heard = threading.Event(), []

    def robot():
        tick = 0
        while not over.is_set():
            tick += 2
            s = unitree.LowState_(tick=tick)
            for k, m in enumerate(s.motor_state[:12]):
                m.q, m.dq, m.temperature = float(np.float32(0.1 * k)), float(np.float32(-0.01 * k)), 40 + k
            s.crc = s.sum() if tick % 20 else 1  # every tenth is damaged
            states.write(s)
            heard.extend(m for m in commands.take_iter(timeout=1) if isinstance(m, unitree.LowCmd_))
            time.sleep(0.005)

    thread = threading.Thread(target=robot, daemon=True)
    thread.start()
    link = make("unitree://lo?domain=71")
    try:
        about = link.open()
        assert about.parts["joint_pos"][0] == "FR_hip_joint" and len(about.parts["control"]) == 12
        packets = []
        until(lambda: (packets.append(p) if (p := link.read()) else None) or len(packets) > 30)
        assert np.allclose(packets[-1].readings["joint_pos"], 0.1 * np.arange(12)) and link.damaged > 0
        assert (
            packets[-1].readings["temperature"].tolist() == list(range(40, 52)) and packets[-1].stamp > packets[0].stamp
        )
        assert all(b.sequence > a.sequence for a, b in zip(packets, packets[1:]))
        link.send(Command(1, "servo", np.arange(12) * 0.05, np.full(12, 20.0), np.full(12, 0.5)))
        until(lambda: any(m.motor_cmd[1].kp == 20.0 for m in heard))
        got = next(m for m in heard if m.motor_cmd[1].kp == 20.0)
        assert got.crc == got.sum() and got.motor_cmd[11].q == pytest.approx(0.55) and got.motor_cmd[12].mode == 0
        link.damp()
        until(lambda: heard[-1].motor_cmd[0].kp == 0 and heard[-1].motor_cmd[0].kd > 0)
        assert link.acknowledged() is None
    finally:
        over.set()
        thread.join(5)
        link.close()


def test_a_fake_ros2_robot_is_read_and_commanded_over_loopback():
    ros2 = pytest.importorskip("surefoot.deploy.links.ros2")
    from surefoot.deploy.links.dds import Place, reader, writer

    participant = Place("lo?domain=72", ()).participant()
    states, imus = writer(participant, "rt/joint_states", ros2.JointState_), writer(participant, "rt/imu", ros2.Imu_)
    commands, over, heard = reader(participant, "rt/commands", ros2.Float64MultiArray_), threading.Event(), []

    def robot():
        t = 0
        while not over.is_set():
            t += 5_000_000
            stamp = ros2.Header_(ros2.Time_(t // 10**9, t % 10**9))
            imus.write(
                ros2.Imu_(stamp, ros2.Quaternion_(0.0, 0.6, 0.0, 0.8), angular_velocity=ros2.Vector3_(1.0, 2.0, 3.0))
            )
            states.write(ros2.JointState_(stamp, list(JOINTS), [0.1, 0.2], [0.3, 0.4], [0.5, 0.6]))
            heard.extend(m for m in commands.take_iter(timeout=1) if isinstance(m, ros2.Float64MultiArray_))
            time.sleep(0.005)

    thread = threading.Thread(target=robot, daemon=True)
    thread.start()
    link = make("ros2://lo?domain=72&rate=200")
    try:
        assert link.open().parts["joint_pos"] == JOINTS
        packets = []
        until(lambda: (packets.append(p) if (p := link.read()) else None) or len(packets) > 20)
        last = packets[-1].readings
        assert last["joint_vel"].tolist() == [0.3, 0.4] and last["joint_torque"].tolist() == [0.5, 0.6]
        assert last["base_quat"].tolist() == [0.8, 0.0, 0.6, 0.0] and last["base_ang_vel"].tolist() == [1.0, 2.0, 3.0]
        link.send(Command(1, "servo", np.array([1.0, 2.0]), np.array([3.0, 4.0]), np.array([5.0, 6.0])))
        until(lambda: bool(heard))
        assert heard[0].data == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0] and [d.label for d in heard[0].layout.dim] == [
            "target",
            "kp",
            "kd",
        ]
    finally:
        over.set()
        thread.join(5)
        link.close()


def test_udp_serves_eight_listeners_and_no_more():
    with served(Legs()) as (server, address):
        links = [make(address) for _ in range(10)]
        for link in links[:8]:
            link.open()
        until(lambda: len(server.listeners) == 8)
        for link in links[8:]:
            link.open()  # it is told what the robot is, and gets no packets
        time.sleep(0.1)
        assert len(server.listeners) == 8
        for link in links:
            link.close()
