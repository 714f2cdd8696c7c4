"""A robot that speaks ROS 2 messages over DDS, without a ROS 2 installation: ros2://eth0?domain=0

    reads  joint_states (sensor_msgs/JointState: joint_pos, joint_vel, joint_torque) and imu (sensor_msgs/Imu: base_quat, base_ang_vel)
    writes commands (std_msgs/Float64MultiArray): blocks target, kp, kd of n numbers each, named in layout.dim; kp = 0 is damping

`?states=`, `?imu=` and `?commands=` are other names of the topics; `?rate=` is how often joint_states comes, 200 Hz where nobody
says. Joints are in the order of JointState.name. A node on the robot takes the commands, and must damp when they stop: a
message has no acknowledgement here, so the watchdog goes on for some seconds.
"""

from dataclasses import field as field_
from typing import Any

import cyclonedds.idl as idl
import cyclonedds.idl.types as types
import numpy as np

from surefoot.deploy.links import About, Command, Packet
from surefoot.deploy.links.dds import DdsLink, message, reader, taken, writer
from surefoot.errors import SurefootError

BLOCKS = ("target", "kp", "kd")


@message
class Time_(idl.IdlStruct, typename="builtin_interfaces.msg.dds_.Time_"):
    sec: types.int32 = 0
    nanosec: types.uint32 = 0


@message
class Header_(idl.IdlStruct, typename="std_msgs.msg.dds_.Header_"):
    stamp: Time_ = field_(default_factory=Time_)
    frame_id: str = ""


@message
class JointState_(idl.IdlStruct, typename="sensor_msgs.msg.dds_.JointState_"):
    header: Header_ = field_(default_factory=Header_)
    name: types.sequence[str] = field_(default_factory=list)
    position: types.sequence[types.float64] = field_(default_factory=list)
    velocity: types.sequence[types.float64] = field_(default_factory=list)
    effort: types.sequence[types.float64] = field_(default_factory=list)


@message
class Quaternion_(idl.IdlStruct, typename="geometry_msgs.msg.dds_.Quaternion_"):
    x: types.float64 = 0.0
    y: types.float64 = 0.0
    z: types.float64 = 0.0
    w: types.float64 = 1.0


@message
class Vector3_(idl.IdlStruct, typename="geometry_msgs.msg.dds_.Vector3_"):
    x: types.float64 = 0.0
    y: types.float64 = 0.0
    z: types.float64 = 0.0


@message
class Imu_(idl.IdlStruct, typename="sensor_msgs.msg.dds_.Imu_"):
    header: Header_ = field_(default_factory=Header_)
    orientation: Quaternion_ = field_(default_factory=Quaternion_)
    orientation_covariance: types.array[types.float64, 9] = field_(default_factory=lambda: [0.0] * 9)
    angular_velocity: Vector3_ = field_(default_factory=Vector3_)
    angular_velocity_covariance: types.array[types.float64, 9] = field_(default_factory=lambda: [0.0] * 9)
    linear_acceleration: Vector3_ = field_(default_factory=Vector3_)
    linear_acceleration_covariance: types.array[types.float64, 9] = field_(default_factory=lambda: [0.0] * 9)


@message
class MultiArrayDimension_(idl.IdlStruct, typename="std_msgs.msg.dds_.MultiArrayDimension_"):
    label: str = ""
    size: types.uint32 = 0
    stride: types.uint32 = 0


@message
class MultiArrayLayout_(idl.IdlStruct, typename="std_msgs.msg.dds_.MultiArrayLayout_"):
    dim: types.sequence[MultiArrayDimension_] = field_(default_factory=list)
    data_offset: types.uint32 = 0


@message
class Float64MultiArray_(idl.IdlStruct, typename="std_msgs.msg.dds_.Float64MultiArray_"):
    layout: MultiArrayLayout_ = field_(default_factory=MultiArrayLayout_)
    data: types.sequence[types.float64] = field_(default_factory=list)


class Ros2Link(DdsLink):
    def __init__(self, rest: str):
        super().__init__(rest, ("states", "imu", "commands", "rate"))
        self.topics = {k: f"rt/{self.place.words.get(k, usual)}" for k, usual in (("states", "joint_states"), ("imu", "imu"), ("commands", "commands"))}  # fmt: skip
        try:
            self.rate = float(self.place.words.get("rate", "200"))
        except ValueError:
            raise SurefootError(f"--link: rate: expected a number, found {self.place.words['rate'][:80]!r}") from None
        self.names: tuple[str, ...] = ()
        self.imu = Imu_()

    def _join(self, participant: Any) -> str:
        self.states = reader(participant, self.topics["states"], JointState_)
        self.imus = reader(participant, self.topics["imu"], Imu_)
        self.commands = writer(participant, self.topics["commands"], Float64MultiArray_)
        return self.topics["states"]

    def _about(self) -> About:
        parts = {k: self.names for k in ("joint_pos", "joint_vel", "joint_torque", "control")}
        return About(parts, self.rate, "ros2")

    def read(self) -> Packet | None:
        for m in taken(self.imus, Imu_):
            self.imu = m
        for s in taken(self.states, JointState_):
            packet = self.packet_of(s)
            if packet is not None:
                return packet
        return None

    def packet_of(self, s: JointState_) -> Packet | None:
        """The packet of one message; None where it does not fit the first."""
        n = len(s.name)
        if not n or not len(s.position) == len(s.velocity) == n:
            return None
        self.names = self.names or tuple(s.name)
        if tuple(s.name) != self.names:
            return None
        q, w = self.imu.orientation, self.imu.angular_velocity
        readings = {
            "joint_pos": np.array(s.position), "joint_vel": np.array(s.velocity),
            "joint_torque": np.array(s.effort if len(s.effort) == n else [0.0] * n),
            "base_quat": np.array([q.w, q.x, q.y, q.z]), "base_ang_vel": np.array([w.x, w.y, w.z]),
        }  # fmt: skip
        return self._packet(s.header.stamp.sec + 1e-9 * s.header.stamp.nanosec, readings)

    def _write(self, command: Command) -> None:
        blocks, n = (command.target, command.kp, command.kd), len(command.target)
        dims = [MultiArrayDimension_(name, n, n) for name in BLOCKS]
        self.commands.write(Float64MultiArray_(MultiArrayLayout_(dims), np.concatenate(blocks).tolist()))
