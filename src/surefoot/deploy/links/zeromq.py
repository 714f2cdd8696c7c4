"""A robot over ZeroMQ: zmq://127.0.0.1:9871. The messages of wire.py over TCP, which loses none; see ZmqTransport for its end.

There is no authentication: keep it on the robot's own network.
"""

from typing import Any

import zmq

from surefoot.deploy.links.wired import WiredLink
from surefoot.errors import SurefootError

QUEUE = 100  # messages that may wait; more are dropped


class ZmqLink(WiredLink):
    def __init__(self, rest: str):
        self.rest = rest
        super().__init__(f"zmq://{rest[:80]}")

    def _connect(self) -> None:
        self.socket: Any = zmq.Context.instance().socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.set_hwm(QUEUE)
        try:
            self.socket.connect(f"tcp://{self.rest}")
        except zmq.ZMQError as error:
            self.socket.close()
            raise SurefootError(f"--link: {self.address}: {error}; expected zmq://HOST:PORT") from None

    def _receive(self, wait: float) -> bytes | None:
        if wait:
            self.socket.poll(round(1000 * wait))
        try:
            return bytes(self.socket.recv(zmq.NOBLOCK))
        except zmq.Again:
            return None

    def _send(self, data: bytes) -> None:
        try:
            self.socket.send(data, zmq.NOBLOCK)
        except zmq.Again:  # a full queue
            return

    def close(self) -> None:
        self.socket.close()


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
