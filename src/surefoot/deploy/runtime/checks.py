"""What must hold of a robot before a policy may drive it. Each refusal names what was found and what was expected."""

import time

import numpy as np

from surefoot.contract import Contract
from surefoot.deploy.links import About, Packet
from surefoot.deploy.runtime.controller import Controller, needs
from surefoot.errors import SurefootError, unknown

TRIES = 20  # control periods that are timed
SHARE = 0.5  # of a period that computing may take


def check_robot(contract: Contract, about: About, packet: Packet, command: np.ndarray) -> None:
    """It measures what the policy needs, often enough, waits to be driven, and is asked what the policy knows."""
    for name in needs(contract):
        if name not in packet.readings:
            raise unknown("reading", name, packet.readings, "robot")
    for name, parts in about.parts.items():
        if name in packet.readings and len(packet.readings[name]) != len(parts):
            raise SurefootError(f"robot: {name}: found {len(packet.readings[name])} numbers and {len(parts)} names")
    if about.rate < 0.9 * contract.rate:
        raise SurefootError(
            f"robot: found {about.rate:g} packets a second, expected at least {contract.rate:g}, the policy's rate"
        )
    if packet.mode == "stopped":
        raise SurefootError("robot: its emergency stop is pressed; release it, then start it again")
    if packet.mode == "driven":
        raise SurefootError("robot: another run drives it; end that one first")
    names = contract.command_names
    if len(command) != len(names):
        raise SurefootError(
            f"--command: expected {len(names)} numbers ({', '.join(names) or 'none'}), found {len(command)}"
        )
    for name, (low, high), value in zip(names, contract.command_ranges, command):
        if not low <= value <= high:
            raise SurefootError(f"--command: {name}: expected {low:g} to {high:g}, found {value:g}")


def check_speed(controller: Controller, packet: Packet, command: np.ndarray, period: float) -> None:
    """The policy answers what is measured now with finite numbers, in less than half of a period."""
    times = []
    for _ in range(TRIES):
        t = time.perf_counter()
        made = controller.step(packet.readings, command)
        times.append(time.perf_counter() - t)
    controller.begin(controller.start())
    if not (made.sound and np.isfinite(made.out).all()):
        raise SurefootError("robot: the policy answers its readings with numbers that are not finite")
    median = float(np.median(times))
    if median > SHARE * period:
        raise SurefootError(
            f"computer: a control period takes {1000 * median:.2f} ms, expected less than {1000 * SHARE * period:.2f}"
        )
