"""A robot over UDP: udp://127.0.0.1:9870, as `surefoot robot` serves it. Datagrams may be late, twice or lost; see wire.py.

There is no authentication: whoever reaches the port can drive the robot or stop it. Keep it on the robot's own network.
"""

import select
import socket
from contextlib import suppress

from surefoot.deploy.links import wire
from surefoot.deploy.links.wired import WiredLink
from surefoot.errors import SurefootError

PORT = 9870


def place(rest: str, where: str = "--link") -> tuple[str, int]:
    """Host and port of HOST:PORT."""
    host, colon, port = rest.rpartition(":")
    if not colon or not port.isdecimal() or not 0 < int(port) < 65536:
        raise SurefootError(
            f"{where}: found udp://{rest[:80]}, expected udp://HOST:PORT such as udp://127.0.0.1:{PORT}"
        )
    return host.strip("[]"), int(port)


class UdpLink(WiredLink):
    def __init__(self, rest: str):
        self.place = place(rest)
        super().__init__(f"udp://{self.place[0]}:{self.place[1]}")

    def _connect(self) -> None:
        family = socket.AF_INET6 if ":" in self.place[0] else socket.AF_INET
        self.socket = socket.socket(family, socket.SOCK_DGRAM)
        try:
            self.socket.connect(self.place)
        except OSError as error:
            self.socket.close()
            raise SurefootError(f"--link: {self.address}: {error.strerror or error}") from None
        self.socket.setblocking(False)

    def _receive(self, wait: float) -> bytes | None:
        if wait:
            select.select([self.socket], [], [], wait)
        try:
            return self.socket.recv(wire.LONGEST)
        except OSError:  # nothing there; or a robot that went away answers by ICMP
            return None

    def _send(self, data: bytes) -> None:
        with suppress(OSError):  # a full buffer, or nobody there
            self.socket.send(data)

    def close(self) -> None:
        self.socket.close()
