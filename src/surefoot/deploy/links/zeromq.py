"""A robot over ZeroMQ: zmq://127.0.0.1:9871. The messages of wire.py over TCP, which loses none; see ZmqTransport for its end.

There is no authentication: keep it on the robot's own network.
"""

import secrets
import time
from typing import Any

import zmq

from surefoot.deploy.links import About, Command, Packet, wire
from surefoot.deploy.links.udp import AGAIN, ALIVE, PATIENCE
from surefoot.errors import SurefootError

QUEUE = 100  # messages that may wait; more are dropped


class ZmqLink:
    def __init__(self, rest: str):
        self.rest, self.session, self.mode, self.asked = rest, secrets.randbits(64), "held", 0.0
        self.layout = wire.Layout((), ())

    def open(self) -> About:
        self.socket: Any = zmq.Context.instance().socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.set_hwm(QUEUE)
        try:
            self.socket.connect(f"tcp://{self.rest}")
        except zmq.ZMQError as error:
            self.socket.close()
            raise SurefootError(f"--link: zmq://{self.rest[:80]}: {error}; expected zmq://HOST:PORT") from None
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            self._send(wire.message(wire.HELLO, self.session))
            while self.socket.poll(1000 * AGAIN):
                m = wire.parse(self.socket.recv())
                if m is not None and m.kind == wire.ABOUT:
                    about, self.layout = wire.parse_about(m.body, f"robot at {self.rest}")
                    return about
        self.socket.close()
        raise SurefootError(f"--link: zmq://{self.rest}: no robot answers within {PATIENCE:g} s")

    def read(self) -> Packet | None:
        now = time.monotonic()
        if now - self.asked > ALIVE:
            self.asked = now
            self._send(wire.message(wire.LISTEN, self.session))
        while True:
            try:
                m = wire.parse(self.socket.recv(zmq.NOBLOCK))
            except zmq.Again:
                return None
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
        try:
            self.socket.send(data, zmq.NOBLOCK)
        except zmq.Again:  # a full queue: the robot's own timeout and the runtime's notice it
            return


class ZmqTransport:
    """The robot's end, for robot_side.Server."""

    def __init__(self, host: str, port: int):
        self.socket: Any = zmq.Context.instance().socket(zmq.ROUTER)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.set_hwm(QUEUE)
        self.port = port or self.socket.bind_to_random_port(f"tcp://{host}")
        if port:
            self.socket.bind(f"tcp://{host}:{port}")

    def receive(self) -> tuple[bytes, Any] | None:
        try:
            parts = self.socket.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return None
        return (parts[1], parts[0]) if len(parts) == 2 else (b"", None)

    def send(self, data: bytes, peer: Any) -> None:
        try:
            self.socket.send_multipart([peer, data], zmq.NOBLOCK)
        except zmq.ZMQError:
            return

    def close(self) -> None:
        self.socket.close()
