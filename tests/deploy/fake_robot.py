"""A robot of two joints for tests of the runtime: q'' = torque / inertia, with an IMU; it may be told to misbehave."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from surefoot.contract import Contract
from surefoot.deploy.limits import Limits
from surefoot.deploy.links import About, Command, wire
from surefoot.deploy.links.robot_side import Server, UdpTransport
from surefoot.deploy.manifest import Bundle, Manifest
from surefoot.policy import Policy, Zero

JOINTS, INERTIA, RATE = ("hip", "knee"), 0.05, 200.0
SHORT = {
    "joints": list(JOINTS), "home": [0.3, -0.2], "rate": 50, "action_scale": 0.25, "kp": 20.0, "kd": 1.0, "action_limit": 1.0,
    "observation": ["base_ang_vel", "projected_gravity", "joint_pos", "joint_vel", "last_action"],
}  # fmt: skip
Fault = Callable[[dict[str, np.ndarray], int], dict[str, np.ndarray] | None]


def limits(**changes: Any) -> Limits:
    two = lambda x: np.full(2, x)  # noqa: E731
    own = dict(low=two(-2.0), high=two(2.0), velocity=two(20.0), torque=two(15.0), rate=two(20.0), gear=two(0.0), damping=two(1.0))  # fmt: skip
    return Limits(**own | {"soft_start": 0.2} | changes)


def bundle(policy: Policy | None = None, **changes: Any) -> Bundle:
    policy = policy or Zero(Contract.from_json(SHORT))
    return Bundle(Path("fake"), policy, Manifest(limits(**changes)), None, np.zeros((0, 2)), {}, "0" * 64)  # type: ignore[arg-type]


class Legs:
    """A Body. `fault(readings, driven steps)` may change what it says, or lose it."""

    def __init__(self, fault: Fault | None = None):
        self.fault, self.sent, self.count = fault, [], 0
        self.reset(0)

    def about(self) -> About:
        return About({"joint_pos": JOINTS, "joint_vel": JOINTS, "control": JOINTS[::-1]}, RATE, "legs")

    def reset(self, run: int) -> None:
        self.q, self.v, self.steps = np.array([-0.4, 0.5]), np.zeros(2), 0

    def readings(self) -> dict[str, np.ndarray] | None:
        self.count += 1
        noise = 1e-6 * np.sin([self.count, 2.0 * self.count])
        found = {
            "joint_pos": self.q + noise, "joint_vel": self.v.copy(), "base_quat": np.array([1.0, 0, 0, 0]),
            "base_ang_vel": np.zeros(3), "temperature": np.full(2, 40.0),
        }  # fmt: skip
        return self.fault(found, self.steps) if self.fault else found

    def advance(self, command: Command | None) -> None:
        """Commands come in the order of its actuators, which is not that of its joints."""
        torque = -1.0 * self.v
        if command is not None:
            assert np.isfinite([command.target, command.kp, command.kd]).all()
            self.sent.append(command)
            target, kp, kd = (x[::-1] for x in (command.target, command.kp, command.kd))
            torque = kp * (target - self.q) - kd * self.v
        self.v = self.v + torque / INERTIA / RATE
        self.q = self.q + self.v / RATE
        self.steps += 1


class Heard:
    """A transport that keeps each command that arrives, also where two arrive in one period of a robot that a busy machine held up."""

    def __init__(self, inner: UdpTransport):
        self.inner, self.commands = inner, list[Command]()
        self.send, self.close = inner.send, inner.close

    def receive(self) -> tuple[bytes, Any] | None:
        found = self.inner.receive()
        m = wire.parse(found[0]) if found else None
        if m is not None and m.kind == wire.COMMAND and (command := wire.parse_command(m)) is not None:
            self.commands.append(command)
        return found


@contextmanager
def served(
    body: Any, transport: Callable[[UdpTransport], Any] = lambda t: t, timeout: float = 60.0
) -> Iterator[tuple[Server, str]]:
    """A robot in a thread, and its address. It does not sink down by itself: what damps it is the runtime or the watchdog."""
    plain = UdpTransport("127.0.0.1", 0)
    server, over = Server(body, transport(plain), timeout), threading.Event()
    thread = threading.Thread(target=server.run_until, args=(lambda s: over.is_set(),), daemon=True)
    thread.start()
    try:
        yield server, f"udp://127.0.0.1:{plain.port}"
    finally:
        over.set()
        thread.join(5)
        plain.close()
