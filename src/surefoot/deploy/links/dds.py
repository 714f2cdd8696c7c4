"""What links over DDS share: a participant on one network interface, and readers and writers of a topic (Cyclone DDS).

NAME://INTERFACE?domain=0&...        lo: this computer alone, without multicast
"""

import re
from typing import Any
from urllib.parse import parse_qs

from cyclonedds.core import Policy, Qos
from cyclonedds.domain import Domain, DomainParticipant
from cyclonedds.pub import DataWriter
from cyclonedds.sub import DataReader
from cyclonedds.topic import Topic
from cyclonedds.util import duration

from surefoot.errors import SurefootError, unknown

HERE = "<Peers><Peer address='localhost'/></Peers><ParticipantIndex>auto</ParticipantIndex><MaxAutoParticipantIndex>50</MaxAutoParticipantIndex>"
_domains: dict[int, Any] = {}  # a domain is configured once a process


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
    return DataReader(
        participant, Topic(participant, name, kind), Qos(Policy.Reliability.BestEffort, Policy.History.KeepLast(16))
    )


def writer(participant: Any, name: str, kind: Any) -> Any:
    """Never waits: a reader that is slow misses messages."""
    how = Qos(Policy.Reliability.Reliable(duration(milliseconds=0)), Policy.History.KeepLast(1))
    return DataWriter(participant, Topic(participant, name, kind), how)
