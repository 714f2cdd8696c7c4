"""A Unitree quadruped (Go2 and others with unitree_go messages) over Cyclone DDS: unitree://eth0

    reads rt/lowstate (LowState_: motors, IMU), writes rt/lowcmd (LowCmd_: q, dq, kp, kd, tau of 20 motors); CRC on both

    crc = CRC-32/MPEG-2 (x^32 + x^26 + ... + 1, from all ones, highest bit first) of the packed message but its crc, by 4-byte words

Motors are named as the robot's makers count them (FR, FL, RR, RL; hip, thigh, calf); `?joints=a,b,...` and `?actuators=a,b,...` say
the names that your model has for them, in that order. The robot must be in its low-level mode: its own sport service is off.
It acknowledges nothing, so the watchdog goes on for some seconds.
"""

import struct
import zlib
from dataclasses import field as field_
from typing import Any

import cyclonedds.idl as idl
import cyclonedds.idl.types as types
import numpy as np

from surefoot.deploy.links import About, Command, Packet
from surefoot.deploy.links.dds import DdsLink, message, reader, taken, writer
from surefoot.errors import SurefootError

STATE, COMMAND = "rt/lowstate", "rt/lowcmd"
LEGS = tuple(f"{leg}_{part}_joint" for leg in ("FR", "FL", "RR", "RL") for part in ("hip", "thigh", "calf"))
MOTORS, RATE = 20, 500.0
SERVO = 0x01  # mode of a motor that obeys
REVERSED = bytes(int(f"{b:08b}"[::-1], 2) for b in range(256))
CMD = struct.Struct("<4B4IH2x" + "B3x5f3I" * MOTORS + "4B40B12B2BBxI")
LOW = struct.Struct("<4B4IH2x13fB3x" + "B3x7fB3x3I" * MOTORS + "4BiH4B15H8hI40BB3xf2B2x2f4HI")


def crc32(data: bytes) -> int:
    """Of whole words: zlib's CRC is the same with bits in reverse."""
    words = np.frombuffer(data, "<u4").byteswap().tobytes()
    return int(f"{zlib.crc32(words.translate(REVERSED)) ^ 0xFFFFFFFF:032b}"[::-1], 2)


def _zeros(n: int) -> Any:
    return field_(default_factory=lambda: [0] * n)


def _head(m: Any) -> tuple[int, ...]:
    """What LowCmd_ and LowState_ begin with. They share no base class, which would be a part of their type on the wire."""
    return (*m.head, m.level_flag, m.frame_reserve, *m.sn, *m.version, m.bandwidth)


@message
class MotorCmd_(idl.IdlStruct, typename="unitree_go.msg.dds_.MotorCmd_"):
    mode: types.uint8 = 0
    q: types.float32 = 0.0
    dq: types.float32 = 0.0
    tau: types.float32 = 0.0
    kp: types.float32 = 0.0
    kd: types.float32 = 0.0
    reserve: types.array[types.uint32, 3] = _zeros(3)


@message
class BmsCmd_(idl.IdlStruct, typename="unitree_go.msg.dds_.BmsCmd_"):
    off: types.uint8 = 0
    reserve: types.array[types.uint8, 3] = _zeros(3)


@message
class LowCmd_(idl.IdlStruct, typename="unitree_go.msg.dds_.LowCmd_"):
    head: types.array[types.uint8, 2] = field_(default_factory=lambda: [0xFE, 0xEF])
    level_flag: types.uint8 = 0xFF
    frame_reserve: types.uint8 = 0
    sn: types.array[types.uint32, 2] = _zeros(2)
    version: types.array[types.uint32, 2] = _zeros(2)
    bandwidth: types.uint16 = 0
    motor_cmd: types.array[MotorCmd_, 20] = field_(default_factory=lambda: [MotorCmd_() for _ in range(MOTORS)])
    bms_cmd: BmsCmd_ = field_(default_factory=BmsCmd_)
    wireless_remote: types.array[types.uint8, 40] = _zeros(40)
    led: types.array[types.uint8, 12] = _zeros(12)
    fan: types.array[types.uint8, 2] = _zeros(2)
    gpio: types.uint8 = 0
    reserve: types.uint32 = 0
    crc: types.uint32 = 0

    def sum(self) -> int:
        motors = [v for m in self.motor_cmd for v in (m.mode, m.q, m.dq, m.tau, m.kp, m.kd, *m.reserve)]
        rest = (*self.wireless_remote, *self.led, *self.fan, self.gpio, self.reserve)
        return crc32(CMD.pack(*_head(self), *motors, self.bms_cmd.off, *self.bms_cmd.reserve, *rest))


@message
class IMUState_(idl.IdlStruct, typename="unitree_go.msg.dds_.IMUState_"):
    quaternion: types.array[types.float32, 4] = field_(default_factory=lambda: [1.0, 0.0, 0.0, 0.0])
    gyroscope: types.array[types.float32, 3] = _zeros(3)
    accelerometer: types.array[types.float32, 3] = _zeros(3)
    rpy: types.array[types.float32, 3] = _zeros(3)
    temperature: types.uint8 = 0


@message
class MotorState_(idl.IdlStruct, typename="unitree_go.msg.dds_.MotorState_"):
    mode: types.uint8 = 0
    q: types.float32 = 0.0
    dq: types.float32 = 0.0
    ddq: types.float32 = 0.0
    tau_est: types.float32 = 0.0
    q_raw: types.float32 = 0.0
    dq_raw: types.float32 = 0.0
    ddq_raw: types.float32 = 0.0
    temperature: types.uint8 = 0
    lost: types.uint32 = 0
    reserve: types.array[types.uint32, 2] = _zeros(2)


@message
class BmsState_(idl.IdlStruct, typename="unitree_go.msg.dds_.BmsState_"):
    version_high: types.uint8 = 0
    version_low: types.uint8 = 0
    status: types.uint8 = 0
    soc: types.uint8 = 0
    current: types.int32 = 0
    cycle: types.uint16 = 0
    bq_ntc: types.array[types.uint8, 2] = _zeros(2)
    mcu_ntc: types.array[types.uint8, 2] = _zeros(2)
    cell_vol: types.array[types.uint16, 15] = _zeros(15)


@message
class LowState_(idl.IdlStruct, typename="unitree_go.msg.dds_.LowState_"):
    head: types.array[types.uint8, 2] = field_(default_factory=lambda: [0xFE, 0xEF])
    level_flag: types.uint8 = 0xFF
    frame_reserve: types.uint8 = 0
    sn: types.array[types.uint32, 2] = _zeros(2)
    version: types.array[types.uint32, 2] = _zeros(2)
    bandwidth: types.uint16 = 0
    imu_state: IMUState_ = field_(default_factory=IMUState_)
    motor_state: types.array[MotorState_, 20] = field_(default_factory=lambda: [MotorState_() for _ in range(MOTORS)])
    bms_state: BmsState_ = field_(default_factory=BmsState_)
    foot_force: types.array[types.int16, 4] = _zeros(4)
    foot_force_est: types.array[types.int16, 4] = _zeros(4)
    tick: types.uint32 = 0
    wireless_remote: types.array[types.uint8, 40] = _zeros(40)
    bit_flag: types.uint8 = 0
    adc_reel: types.float32 = 0.0
    temperature_ntc1: types.uint8 = 0
    temperature_ntc2: types.uint8 = 0
    power_v: types.float32 = 0.0
    power_a: types.float32 = 0.0
    fan_frequency: types.array[types.uint16, 4] = _zeros(4)
    reserve: types.uint32 = 0
    crc: types.uint32 = 0

    def sum(self) -> int:
        i, b = self.imu_state, self.bms_state
        motors = [v for m in self.motor_state for v in (m.mode, m.q, m.dq, m.ddq, m.tau_est, m.q_raw, m.dq_raw, m.ddq_raw, m.temperature, m.lost, *m.reserve)]  # fmt: skip
        imu = (*i.quaternion, *i.gyroscope, *i.accelerometer, *i.rpy, i.temperature)
        bms = (b.version_high, b.version_low, b.status, b.soc, b.current, b.cycle, *b.bq_ntc, *b.mcu_ntc, *b.cell_vol)
        rest = (*self.foot_force, *self.foot_force_est, self.tick, *self.wireless_remote, self.bit_flag, self.adc_reel)
        last = (
            self.temperature_ntc1,
            self.temperature_ntc2,
            self.power_v,
            self.power_a,
            *self.fan_frequency,
            self.reserve,
        )
        return crc32(LOW.pack(*_head(self), *imu, *motors, *bms, *rest, *last))


class UnitreeLink(DdsLink):
    def __init__(self, rest: str):
        super().__init__(rest, ("joints", "actuators"))
        self.joints = self.place.names("joints", LEGS)
        self.actuators = self.place.names("actuators", self.joints)
        if not len(self.joints) == len(self.actuators) <= MOTORS:
            raise SurefootError(f"--link: joints, actuators: expected as many of both, at most {MOTORS}")
        self.damaged = 0

    def _join(self, participant: Any) -> str:
        self.states, self.commands = reader(participant, STATE, LowState_), writer(participant, COMMAND, LowCmd_)
        return STATE

    def _about(self) -> About:
        parts = {k: self.joints for k in ("joint_pos", "joint_vel", "joint_torque", "temperature")}
        return About(parts | {"control": self.actuators}, RATE, "unitree_go")

    def read(self) -> Packet | None:
        for s in taken(self.states, LowState_):
            packet = self.packet_of(s)
            if packet is not None:
                return packet
        return None

    def packet_of(self, s: LowState_) -> Packet | None:
        """The packet of one message; None where it was damaged."""
        if s.crc != s.sum():
            self.damaged += 1
            return None
        return self._packet(s.tick / 1000, self._readings(s))

    def _readings(self, s: LowState_) -> dict[str, np.ndarray]:
        motors, imu = s.motor_state[: len(self.joints)], s.imu_state
        names = {"joint_pos": "q", "joint_vel": "dq", "joint_torque": "tau_est", "temperature": "temperature"}
        found = {k: [getattr(m, name) for m in motors] for k, name in names.items()}
        found |= {"base_quat": imu.quaternion, "base_ang_vel": imu.gyroscope}
        found |= {"accelerometer": imu.accelerometer, "foot_force": s.foot_force}
        return {k: np.array(v, float) for k, v in found.items()}

    def _write(self, command: Command) -> None:
        raw, nothing = command.mode == "control", np.zeros_like(command.target)
        q, tau = (nothing, command.target) if raw else (command.target, nothing)
        m = LowCmd_()
        for motor, *numbers in zip(m.motor_cmd, q, tau, command.kp, command.kd):
            motor.mode = SERVO
            motor.q, motor.tau, motor.kp, motor.kd = (float(np.float32(x)) for x in numbers)
        m.crc = m.sum()
        self.commands.write(m)
