"""What links over DDS share (Cyclone DDS): a participant on one network interface, readers and writers of a topic, and a robot that
counts no packets and acknowledges nothing.

NAME://INTERFACE?domain=0&...        lo: this computer alone, without multicast
"""

import re
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeVar, dataclass_transform
from urllib.parse import parse_qs

import cyclonedds.idl.annotations as annotate
import numpy as np
from cyclonedds.core import Policy, Qos
from cyclonedds.domain import Domain, DomainParticipant
from cyclonedds.pub import DataWriter
from cyclonedds.sub import DataReader
from cyclonedds.topic import Topic
from cyclonedds.util import duration

from surefoot.deploy.links import About, Command, Mode, Packet
from surefoot.errors import SurefootError, unknown

PATIENCE = 5.0  # s for the first message
KEPT = 16  # messages that wait
SINK = 3.0  # N m s/rad of damping without a command
M = TypeVar("M")
HERE = "<Peers><Peer address='localhost'/></Peers><ParticipantIndex>auto</ParticipantIndex><MaxAutoParticipantIndex>50</MaxAutoParticipantIndex>"
_domains: dict[int, Any] = {}  # a domain is configured once a process


@dataclass_transform()
def message(kind: type[M]) -> type[M]:
    """A class of messages, as ROS 2 and Unitree declare theirs: final, members numbered in turn."""
    return dataclass(annotate.final(annotate.autoid("sequential")(kind)))


class Place:
    """Where a robot is: interface, domain, and further words of the address, all of them known."""

    def __init__(self, rest: str, known: tuple[str, ...]):
        self.interface, _, query = rest.partition("?")
        words = parse_qs(query, strict_parsing=bool(query))
        for name in words:
            if name not in ("domain", *known):
                raise unknown("word", name, ("domain", *known), "--link")
        self.words = {k: v[-1] for k, v in words.items()}
        if not re.fullmatch(r"[\w.:-]+", self.interface) or not self.words.get("domain", "0").isdecimal():
            raise SurefootError(f"--link: found {rest[:80]!r}, expected an interface such as eth0, or eth0?domain=1")
        self.domain = int(self.words.get("domain", "0"))

    def names(self, key: str, usual: tuple[str, ...]) -> tuple[str, ...]:
        """A list of names, with commas."""
        return tuple(self.words[key].split(",")) if key in self.words else usual

    def participant(self) -> Any:
        if self.domain not in _domains:
            alone = self.interface == "lo"
            general = f"<Interfaces><NetworkInterface name='{self.interface}'/></Interfaces>"
            general += "<AllowMulticast>false</AllowMulticast>" if alone else ""
            inner = f"<General>{general}</General>" + (f"<Discovery>{HERE}</Discovery>" if alone else "")
            _domains[self.domain] = Domain(self.domain, f"<CycloneDDS><Domain>{inner}</Domain></CycloneDDS>")
        return DomainParticipant(self.domain)


def reader(participant: Any, name: str, kind: Any) -> Any:
    """Takes what any writer sends, the newest few."""
    how = Qos(Policy.Reliability.BestEffort, Policy.History.KeepLast(KEPT))
    return DataReader(participant, Topic(participant, name, kind), how)


def taken(source: Any, kind: type[M]) -> Iterator[M]:
    """Messages that have come; what cannot be decoded, or is of another kind, is left out."""
    for _ in range(KEPT):
        try:
            found = source.take_next()
        except Exception:  # of the decoder, by bytes that are no such message: any kind of error
            continue
        if found is None:
            return
        if isinstance(found, kind):
            yield found


def writer(participant: Any, name: str, kind: Any) -> Any:
    """Never waits: a reader that is slow misses messages."""
    how = Qos(Policy.Reliability.Reliable(duration(milliseconds=0)), Policy.History.KeepLast(1))
    return DataWriter(participant, Topic(participant, name, kind), how)


class DdsLink(ABC):
    """A robot whose messages have a clock and no number, and who never says in which mode it is: it is driven while we send."""

    def __init__(self, rest: str, known: tuple[str, ...]):
        self.place = Place(rest, known)
        self.sequence, self.clock, self.mode = 0, -1.0, "held"

    @abstractmethod
    def _join(self, participant: Any) -> str:
        """Make readers and writers; returns the topic that must come."""

    @abstractmethod
    def _about(self) -> About:
        """What the robot is, once a packet was read."""

    @abstractmethod
    def _write(self, command: Command) -> None: ...

    @abstractmethod
    def read(self) -> Packet | None: ...

    def open(self) -> About:
        self.participant = self.place.participant()
        topic, until = self._join(self.participant), time.monotonic() + PATIENCE
        while self.read() is None:
            if time.monotonic() > until:
                raise SurefootError(f"--link: {self.place.interface}: no {topic} within {PATIENCE:g} s")
            time.sleep(0.01)
        return self._about()

    def _packet(self, clock: float, readings: dict[str, np.ndarray]) -> Packet:
        """Numbered by its clock, s: what came twice has the number of the last, and what is older a lower one."""
        self.sequence += 1 if clock > self.clock else -1 if clock < self.clock else 0
        self.clock = max(clock, self.clock)
        mode: Mode = "driven" if self.mode == "driven" else "held"
        return Packet(self.sequence, clock, readings, mode)

    def send(self, command: Command) -> None:
        self.mode = "held" if command.mode == "damping" else "driven"
        self._write(command)

    def damp(self) -> None:
        nothing = np.zeros(len(self._about().parts["control"]))
        self._write(Command(0, "damping", nothing, nothing, np.full(len(nothing), SINK)))

    def acknowledged(self) -> bool | None:
        return None

    def close(self) -> None:
        for name in ("states", "imus", "commands", "participant"):  # whoever holds none of them any more has left
            self.__dict__.pop(name, None)
