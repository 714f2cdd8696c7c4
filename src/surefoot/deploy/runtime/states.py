"""The states of a run, all of them. Damping is latched: nothing but a new run leaves it.

checking --ready--> soft start --reached--> running --done, fault, stop--> damping --acknowledged--> ended
checking --fault, stop--> ended        soft start --fault, stop--> damping        checking --dry--> dry --any--> ended
"""

from dataclasses import dataclass
from typing import Literal

State = Literal["checking", "soft start", "running", "dry", "damping", "ended"]
Event = Literal["ready", "dry", "reached", "done", "fault", "stop", "acknowledged"]

NEXT: dict[tuple[State, Event], State] = {
    ("checking", "ready"): "soft start",
    ("checking", "dry"): "dry",
    ("checking", "fault"): "ended",
    ("checking", "stop"): "ended",
    ("soft start", "reached"): "running",
    ("soft start", "fault"): "damping",
    ("soft start", "stop"): "damping",
    ("running", "done"): "damping",
    ("running", "fault"): "damping",
    ("running", "stop"): "damping",
    ("dry", "done"): "ended",
    ("dry", "fault"): "ended",
    ("dry", "stop"): "ended",
    ("damping", "acknowledged"): "ended",
}


@dataclass(frozen=True)
class Change:
    at: float
    """s on the runtime's clock"""
    state: State
    event: Event | None
    why: str


class States:
    """Where a run is and how it came there."""

    def __init__(self) -> None:
        self.changes = [Change(0.0, "checking", None, "")]

    @property
    def now(self) -> State:
        return self.changes[-1].state

    @property
    def cause(self) -> Change:
        """What ended the driving: the first done, fault or stop; the last change where none did."""
        ends = [c for c in self.changes if c.event in ("done", "fault", "stop")]
        return ends[0] if ends else self.changes[-1]

    def on(self, event: Event, why: str, at: float) -> bool:
        """Change state, if the event means something here; whether it did."""
        after = NEXT.get((self.now, event))
        if after is None:
            return False
        self.changes.append(Change(at, after, event, why))
        return True
