"""What links share that carry the messages of wire.py: calling a robot, reading its packets, sending, damping."""

import secrets
import time
from abc import ABC, abstractmethod

from surefoot.deploy.links import About, Command, Packet, wire
from surefoot.errors import SurefootError

PATIENCE, AGAIN = 5.0, 0.1  # s for a robot to answer, and between two calls
ALIVE = 0.2  # s between two messages that ask for packets


class WiredLink(ABC):
    """A link by its way to carry bytes. `address` is said in errors."""

    def __init__(self, address: str):
        self.address, self.session = address, secrets.randbits(64)
        self.mode, self.layout, self.asked = "held", wire.Layout((), ()), 0.0

    @abstractmethod
    def _connect(self) -> None:
        """Make the socket; refused in words."""

    @abstractmethod
    def _receive(self, wait: float) -> bytes | None:
        """A message that comes within so many seconds; None: none."""

    @abstractmethod
    def _send(self, data: bytes) -> None:
        """Never waits, and may lose it: the robot's own timeout and the runtime's notice it."""

    @abstractmethod
    def close(self) -> None: ...

    def open(self) -> About:
        self._connect()
        until = time.monotonic() + PATIENCE
        while (now := time.monotonic()) < until:
            self._send(wire.message(wire.HELLO, self.session))
            while time.monotonic() < now + AGAIN:
                m = wire.parse(self._receive(AGAIN) or b"")
                if m is not None and m.kind == wire.ABOUT:
                    about, self.layout = wire.parse_about(m.body, f"robot at {self.address}")
                    return about
                if m is None:
                    time.sleep(0.01)  # nobody there yet: a refusal comes at once
        self.close()
        raise SurefootError(
            f"--link: {self.address}: no robot answers within {PATIENCE:g} s; "
            "expected one there: `surefoot robot TASK` simulates one"
        )

    def read(self) -> Packet | None:
        now = time.monotonic()
        if now - self.asked > ALIVE:
            self.asked = now
            self._send(wire.message(wire.LISTEN, self.session))
        while (data := self._receive(0.0)) is not None:
            m = wire.parse(data)
            packet = wire.parse_packet(m, self.layout) if m is not None and m.kind == wire.PACKET else None
            if packet is not None:
                self.mode = packet.mode
                return packet
        return None

    def send(self, command: Command) -> None:
        self._send(wire.message(wire.COMMAND, self.session, command.sequence, wire.command_body(command)))

    def damp(self) -> None:
        self._send(wire.message(wire.DAMP, self.session))

    def acknowledged(self) -> bool | None:
        return self.mode != "driven"
