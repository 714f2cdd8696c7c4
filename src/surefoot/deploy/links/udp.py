"""A robot over UDP: udp://127.0.0.1:9870, as `surefoot robot` serves it. Datagrams may be late, twice or lost; see wire.py.

There is no authentication: whoever reaches the port can drive the robot or stop it. Keep it on the robot's own network.
"""

import secrets
import socket
import time
from contextlib import suppress

from surefoot.deploy.links import About, Command, Packet, wire
from surefoot.errors import SurefootError

PATIENCE, AGAIN = 5.0, 0.1  # s for a robot to answer, and between two calls
ALIVE = 0.2  # s between two messages that ask for packets
PORT = 9870


def place(rest: str, where: str = "--link") -> tuple[str, int]:
    """Host and port of HOST:PORT."""
    host, colon, port = rest.rpartition(":")
    if not colon or not port.isdecimal() or not 0 < int(port) < 65536:
        raise SurefootError(
            f"{where}: found udp://{rest[:80]}, expected udp://HOST:PORT such as udp://127.0.0.1:{PORT}"
        )
    return host.strip("[]"), int(port)


class UdpLink:
    def __init__(self, rest: str):
        self.address, self.session = place(rest), secrets.randbits(64)
        self.mode, self.layout = "held", wire.Layout((), ())
        self.asked = 0.0

    def open(self) -> About:
        family = socket.AF_INET6 if ":" in self.address[0] else socket.AF_INET
        self.socket = socket.socket(family, socket.SOCK_DGRAM)
        try:
            self.socket.connect(self.address)
        except OSError as error:
            raise SurefootError(
                f"--link: udp://{self.address[0]}:{self.address[1]}: {error.strerror or error}"
            ) from None
        self.socket.settimeout(AGAIN)
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            with suppress(OSError):  # nobody there yet
                self.socket.send(wire.message(wire.HELLO, self.session))
                m = wire.parse(self.socket.recv(wire.LONGEST))
                while m is not None and m.kind != wire.ABOUT:
                    m = wire.parse(self.socket.recv(wire.LONGEST))
                if m is not None:
                    about, self.layout = wire.parse_about(m.body, f"robot at {self.address[0]}:{self.address[1]}")
                    self.socket.setblocking(False)
                    return about
            time.sleep(0.01)
        self.socket.close()
        raise SurefootError(
            f"--link: udp://{self.address[0]}:{self.address[1]}: no robot answers within {PATIENCE:g} s; "
            "expected one there: `surefoot robot TASK` simulates one"
        )

    def read(self) -> Packet | None:
        now = time.monotonic()
        if now - self.asked > ALIVE:
            self.asked = now
            self._send(wire.message(wire.LISTEN, self.session))
        while True:
            try:
                data = self.socket.recv(wire.LONGEST)
            except BlockingIOError:
                return None
            except OSError:  # a robot that went away answers by ICMP
                return None
            m = wire.parse(data)
            packet = wire.parse_packet(m, self.layout) if m is not None and m.kind == wire.PACKET else None
            if packet is not None:
                self.mode = packet.mode
                return packet

    def send(self, command: Command) -> None:
        self._send(wire.message(wire.COMMAND, self.session, command.sequence, wire.command_body(command)))

    def damp(self) -> None:
        self._send(wire.message(wire.DAMP, self.session))

    def acknowledged(self) -> bool | None:
        return self.mode != "driven"

    def close(self) -> None:
        self.socket.close()

    def _send(self, data: bytes) -> None:
        with suppress(OSError):  # a full buffer, or nobody there: the robot's own timeout and the runtime's notice it
            self.socket.send(data)
