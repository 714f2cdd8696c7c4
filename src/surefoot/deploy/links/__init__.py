"""Link: the wire between the runtime and a robot. This page is the contract for whoever writes one.

    about = link.open()              what the robot is: names of its joints and actuators, in its own order
    packet = link.read()             the newest readings that have come since the last call, or None; never waits
    link.send(command)               never waits, and may lose it
    link.damp()                      ask for damping; called again and again, by the watchdog's process, too
    link.acknowledged()              whether the robot says that it is damped or off; None: it cannot say
    link.close()

A link is made by a function of the rest of its address: `udp://127.0.0.1:9870`, `mine.robots:connect://can0`. The watchdog
opens a second one by the same address in a process of its own, so damping must work from there. Readings have the names
and units of surefoot.observation (joint_pos [rad], base_quat w x y z, base_ang_vel [rad/s, body frame], ...); further ones
that the runtime knows are joint_torque [N m] and temperature [degrees Celsius]. A link converts; it checks nothing: what a
robot sends is checked by the runtime (deploy/runtime/sanity.py).
"""

import importlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np

from surefoot.errors import SurefootError, unknown

Mode = Literal["held", "driven", "damping", "stopped"]
"""of a robot: waits on its stand; follows commands; sinks down; its own emergency stop was pressed"""
MODES: tuple[Mode, ...] = ("held", "driven", "damping", "stopped")


@dataclass(frozen=True)
class About:
    """What a robot says of itself when it is opened."""

    parts: Mapping[str, tuple[str, ...]]
    """reading -> names of its numbers, such as joint_pos -> joints; `control` -> actuators"""
    rate: float
    """Hz: packets a second"""
    name: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)
    """such as the hash of its model, for the log"""


@dataclass(frozen=True)
class Packet:
    """What a robot measured at one instant."""

    sequence: int
    """grows by one with every packet"""
    stamp: float
    """s, on the robot's clock"""
    readings: Mapping[str, np.ndarray]
    """name -> (k,)"""
    mode: Mode


@dataclass(frozen=True)
class Command:
    """What the robot is to do until the next one. Arrays have one number an actuator, in the order of About.parts["control"].

    servo: torque = kp (target - q) - kd v        control: the actuators get `target`        damping: torque = -kd v
    """

    sequence: int
    mode: Literal["servo", "control", "damping"]
    target: np.ndarray
    kp: np.ndarray
    kd: np.ndarray
    starting: bool = False
    """of the soft start: nobody balances yet, so a robot that hangs stays hung"""


class Link(Protocol):
    def open(self) -> About: ...
    def read(self) -> Packet | None: ...
    def send(self, command: Command) -> None: ...
    def damp(self) -> None: ...
    def acknowledged(self) -> bool | None: ...
    def close(self) -> None: ...


Maker = Callable[[str], Link]
LINKS: dict[str, str] = {
    "udp": "surefoot.deploy.links.udp:UdpLink",
    "zmq": "surefoot.deploy.links.zeromq:ZmqLink",
    "unitree": "surefoot.deploy.links.unitree:UnitreeLink",
    "ros2": "surefoot.deploy.links.ros2:Ros2Link",
}
ADDRESS = re.compile(r"([\w.]+(?::\w+)?)://(.*)", re.S)


def make(address: str) -> Link:
    """The link of an address such as udp://127.0.0.1:9870; not yet open."""
    found = ADDRESS.fullmatch(address)
    if found is None:
        raise SurefootError(f"--link: found {address[:80]!r}, expected NAME://WHERE such as udp://127.0.0.1:9870")
    name, rest = found.groups()
    where = LINKS.get(name, name)
    if ":" not in where:
        raise unknown("link", name, LINKS, "--link")
    module, _, function = where.partition(":")
    try:
        maker: Maker = getattr(importlib.import_module(module), function)
    except ModuleNotFoundError as error:
        if error.name and not module.startswith(error.name):
            raise  # something that the module needs: its extra is said in words elsewhere
        raise SurefootError(f"--link: {module}: no such module; expected one that Python can import") from None
    except AttributeError:
        raise SurefootError(f"--link: {module} has no {function}; expected a function that makes a link") from None
    return maker(rest)
