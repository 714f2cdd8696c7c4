"""The robot's end of a wire: serves a Body in real time to whoever opens a link. For rehearsals, and as an example.

    held --first command of a new run--> driven --damp, or no command for `timeout`--> damping --a new run--> held
    any  --the robot's own emergency stop--> stopped

Damping is latched: the run that was damped, or lost, can command nothing more; a new one finds the robot put back on its stand.
Packets and commands may be delayed and lost on purpose.
"""

import heapq
import socket
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from surefoot.deploy.links import About, Command, Mode, Packet, wire
from surefoot.deploy.runtime.clock import Clock
from surefoot.rng import stream

LISTENERS, FORGET = 8, 2.0  # who may listen, and s of silence after which they are forgotten
TIMEOUT = 0.5  # s without a command after which a robot sinks down by itself
SLICE = 0.001  # s between two looks at a wire that delays


class Body(Protocol):
    """A robot without its wire."""

    def about(self) -> About: ...
    def reset(self, run: int) -> None:
        """Put it back on its stand, for the run of this number."""

    def readings(self) -> dict[str, np.ndarray] | None:
        """What it measures now, or None where the packet is lost; names and lengths never change."""

    def advance(self, command: Command | None) -> None:
        """Go on for one period of 1 / about().rate; None: damping without gains."""


class Transport(Protocol):
    """Datagrams from and to peers."""

    def receive(self) -> tuple[bytes, Any] | None: ...
    def send(self, data: bytes, peer: Any) -> None: ...
    def close(self) -> None: ...


class UdpTransport:
    def __init__(self, host: str, port: int):
        self.socket = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind((host, port))
        self.socket.setblocking(False)
        self.port = int(self.socket.getsockname()[1])

    def receive(self) -> tuple[bytes, Any] | None:
        try:
            return self.socket.recvfrom(wire.LONGEST)
        except OSError:  # nothing there, or a peer that has gone
            return None

    def send(self, data: bytes, peer: Any) -> None:
        try:
            self.socket.sendto(data, peer)
        except OSError:
            return

    def close(self) -> None:
        self.socket.close()


@dataclass
class Impaired:
    """A transport that delays by latency + jitter * |normal| seconds and loses a share of all messages, both ways."""

    inner: Transport
    latency: float = 0.0
    jitter: float = 0.0
    loss: float = 0.0
    seed: int = 0
    waiting: list[tuple[float, int, bool, bytes, Any]] = field(default_factory=list)
    count: int = 0

    def __post_init__(self) -> None:
        self.rng = stream(self.seed, "impaired wire")
        self.arrived: deque[tuple[bytes, Any]] = deque()

    @property
    def delays(self) -> bool:
        return self.latency > 0 or self.jitter > 0

    def receive(self) -> tuple[bytes, Any] | None:
        while (found := self.inner.receive()) is not None:
            self._queue(False, *found)
        self.flush()
        return self.arrived.popleft() if self.arrived else None

    def send(self, data: bytes, peer: Any) -> None:
        self._queue(True, data, peer)
        self.flush()

    def _queue(self, out: bool, data: bytes, peer: Any) -> None:
        if self.loss and self.rng.random() < self.loss:
            return
        self.count += 1
        delay = self.latency + self.jitter * abs(self.rng.standard_normal()) if self.delays else 0.0
        heapq.heappush(self.waiting, (time.monotonic() + delay, self.count, out, data, peer))

    def flush(self) -> None:
        """Send and hand over what is due."""
        while self.waiting and self.waiting[0][0] <= time.monotonic():
            _, _, out, data, peer = heapq.heappop(self.waiting)
            if out:
                self.inner.send(data, peer)
            else:
                self.arrived.append((data, peer))

    def close(self) -> None:
        self.inner.close()


@dataclass(frozen=True)
class Event:
    """A change of mode, by the computer's monotonic clock."""

    at: float
    mode: Mode
    why: str


class Server:
    """Serves one Body. `run_until` returns when asked to, or after so many runs."""

    def __init__(self, body: Body, transport: Transport, timeout: float = TIMEOUT, speed: float = 1.0):
        self.body, self.transport, self.timeout, self.clock = body, transport, timeout, Clock(speed)
        self.about = body.about()
        self.mode: Mode = "held"
        self.listeners: dict[Any, float] = {}
        self.barred: set[int] = set()
        self.driver: int | None = None
        self.command: Command | None = None
        self.runs = self.sequence = self.steps = self.newest = 0
        self.heard = 0.0
        self.events: list[Event] = []
        body.reset(0)
        first = body.readings()
        while first is None:
            body.reset(0)
            first = body.readings()
        self.layout = wire.Layout.of(first)

    def stop(self) -> None:
        """The robot's own emergency stop."""
        self._become("stopped", "emergency stop of the robot")

    def run_until(self, done: Callable[["Server"], bool]) -> None:
        period, start, k = 1 / self.about.rate, self.clock.now(), 0
        while not done(self):
            self._hear()
            if self.mode == "driven" and self.clock.now() - self.heard > self.timeout:
                self._become("damping", "commands stopped")
            if self.mode != "held":
                self.body.advance(self.command if self.mode == "driven" else None)
                self.steps += 1
            self._tell()
            k += 1
            if self.clock.now() - start > (k + 1) * period:  # late: go on from here, time is the wall's
                k = int((self.clock.now() - start) / period)
            self._rest(start + k * period)

    def _rest(self, until: float) -> None:
        if not getattr(self.transport, "delays", False):
            return self.clock.sleep_until(until)
        while (now := self.clock.now()) < until:
            self.transport.flush()  # type: ignore[attr-defined]
            self.clock.sleep_until(min(until, now + SLICE * self.clock.speed))

    def _hear(self) -> None:
        while (found := self.transport.receive()) is not None:
            m = wire.parse(found[0])
            if m is None:
                continue
            if len(self.listeners) < LISTENERS or found[1] in self.listeners:
                self.listeners[found[1]] = time.monotonic()
            if m.kind == wire.HELLO:
                self._hello(m.session, found[1])
            elif m.kind == wire.DAMP and self.mode == "driven":
                self._become("damping", "asked to")
            elif m.kind == wire.COMMAND:
                self._obey(m)

    def _hello(self, session: int, peer: Any) -> None:
        if self.mode == "damping" and session not in self.barred:  # somebody has put the robot back on its stand
            self.body.reset(self.runs)
            self._become("held", "put back")
        self.transport.send(wire.message(wire.ABOUT, 0, 0, wire.about_body(self.about, self.layout)), peer)

    def _obey(self, m: wire.Message) -> None:
        command = wire.parse_command(m)
        if command is None or m.session in self.barred or self.mode == "stopped":
            return
        if command.mode == "damping":
            return self._become("damping", "asked to") if m.session == self.driver else None
        if len(command.target) != len(self.about.parts["control"]):
            return
        if self.driver is None:
            self._begin(m.session)
        if m.session == self.driver and m.sequence > self.newest:
            self.command, self.newest, self.heard = command, m.sequence, self.clock.now()

    def _begin(self, session: int) -> None:
        if self.mode != "held":
            return
        self.driver, self.newest, self.runs = session, -1, self.runs + 1
        self._become("driven", f"run {self.runs}")

    def _become(self, mode: Mode, why: str) -> None:
        if mode != "driven" and self.driver is not None:
            self.barred.add(self.driver)
            self.driver = None
        if mode != self.mode and self.mode != "stopped":
            self.mode = mode
            self.events.append(Event(time.monotonic(), mode, why))

    def _tell(self) -> None:
        readings = self.body.readings()
        self.sequence += 1
        if readings is None:
            return
        body = wire.packet_body(Packet(self.sequence, self.clock.now(), readings, self.mode))
        data, now = wire.message(wire.PACKET, 0, self.sequence, body), time.monotonic()
        for peer, last in list(self.listeners.items()):
            if now - last > FORGET:
                del self.listeners[peer]
            else:
                self.transport.send(data, peer)
