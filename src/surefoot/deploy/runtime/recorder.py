"""The log of a run: a row for each control period that the policy acted in, as the doctor reads it.

A row is packed as soon as its command is sent, into the bytes of a file of rows (log.py). With a journal those bytes are on the disk
soon after, so that a runtime that is killed leaves its log.
"""

import os
import struct
import threading
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from surefoot import files
from surefoot.contract import Contract
from surefoot.deploy.links import About, Packet
from surefoot.deploy.runtime.controller import Period
from surefoot.errors import SurefootError
from surefoot.log import Column, Log, from_rows, rows_head

UNITS = {
    "joint_pos": "rad or m", "joint_vel": "rad/s or m/s", "joint_torque": "N m or N", "base_pos": "m", "base_quat": "w x y z",
    "base_lin_vel": "m/s, world frame", "base_ang_vel": "rad/s, body frame", "temperature": "C", "stamp": "s, robot's clock",
    "age": "s", "late": "s", "compute": "s",
}  # fmt: skip
TIMES = (
    "stamp",
    "age",
    "late",
    "compute",
)  # late: after its deadline; compute: from a packet's bytes to the command, sent
FLUSH, SYNC = 0.2, 5  # s between two writes of the journal, and writes from one that reaches the disk to the next


class Journal:
    """A file that a thread of its own writes: the disk may hang, the control loop does not wait for it."""

    def __init__(self, path: Path, head: bytes):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            self.file = files.open_new(path)
        except OSError as error:
            raise SurefootError(f"{path}: cannot write the log here: {error.strerror or error}") from error
        self.path, self.waiting, self.over, self.writes = path, deque([head]), threading.Event(), 0
        self._write()
        self.thread = threading.Thread(target=self._work, daemon=True)
        self.thread.start()

    def add(self, row: bytes) -> None:
        self.waiting.append(row)

    def close(self) -> None:
        """Write the rest."""
        self.over.set()
        self.thread.join(2.0)
        with suppress(OSError):
            self._write()
            self.file.close()

    def _work(self) -> None:
        with suppress(OSError):  # a full disk: the log in memory is whole
            while not self.over.wait(FLUSH):
                self._write()

    def _write(self) -> None:
        data = b"".join(self.waiting.popleft() for _ in range(len(self.waiting)))
        if data:
            self.file.write(data)
            self.file.flush()
            self.writes += 1
            if self.writes % SYNC == 0:
                os.fdatasync(self.file.fileno())


class Recorder:
    """Row k: what was measured at time[k] and sent from then until time[k + 1]. Plain numbers are packed sooner than a dozen small arrays are copied."""

    def __init__(self, contract: Contract, about: About, journal: Path | None = None):
        self.contract, self.about, self.path = contract, about, journal
        self.rows: list[bytes] = []
        self.columns: list[Column] = []
        self.journal: Journal | None = None

    def begin(self, packet: Packet, command: np.ndarray, meta: Mapping[str, Any]) -> None:
        """What a row holds follows from a packet; `command` is what is asked of the policy."""
        c = self.contract
        n, asked = len(c.action.names), [("command", len(command), "f8")] if command.size else []
        own = [("time", 0, "f8"), *((name, 0, "f8") for name in TIMES), ("sequence", 0, "i8"), ("limited", 0, "b1")]
        made = [("observation", c.obs_dim, "f4"), ("action", n, "f8"), ("control", n, "f8"), ("target", n, "f8")]
        taken = {name for name, _, _ in (*own, *made, *asked)}
        self.readings = tuple(k for k in packet.readings if k not in taken)
        self.columns = [*own, *made, *asked, *((k, len(packet.readings[k]), "f8") for k in self.readings)]
        ends = np.cumsum([max(w, 1) for _, w, _ in self.columns]).tolist()
        self.places = [end - 1 if not w else slice(end - w, end) for (_, w, _), end in zip(self.columns, ends)]
        self.pack = struct.Struct(f"<{ends[-1]}d").pack
        if self.path is not None:
            self.journal = Journal(self.path, self._head(meta))

    def add(self, t: float, packet: Packet, period: Period, command: np.ndarray, times: tuple[float, ...]) -> None:
        """`t` is when the packet was measured, on this computer's clock; `times` are those of TIMES but the stamp."""
        numbers = [t, packet.stamp, *times, packet.sequence, period.limited]
        for x in (period.obs, period.action, period.control, period.command.target):
            numbers += x.tolist()
        if command.size:
            numbers += command.tolist()
        for name in self.readings:
            numbers += packet.readings[name].tolist()
        data = self.pack(*numbers)
        self.rows.append(data)
        if self.journal is not None:
            self.journal.add(data)

    def newest(self) -> dict[str, Any]:
        """Times and target of the last row; nothing before the first."""
        if not self.rows:
            return {}
        row = np.frombuffer(self.rows[-1])
        found = {name: row[at] for (name, _, _), at in zip(self.columns, self.places) if name in (*TIMES, "target")}
        return {k: x.tolist() for k, x in found.items()}

    def log(self, meta: Mapping[str, Any]) -> Log | None:
        """All rows; None where there are fewer than two."""
        return from_rows(self._head(meta) + b"".join(self.rows)) if len(self.rows) > 1 else None

    def _head(self, meta: Mapping[str, Any]) -> bytes:
        there = {name for name, _, _ in self.columns}
        names = {k: list(v) for k, v in self.about.parts.items() if k in there}
        names |= {"control": list(self.contract.action.names), "target": list(self.about.parts["control"])}
        if self.contract.command_names:
            names["command"] = list(self.contract.command_names)
        own = {"names": names, "rate": self.contract.rate, "robot": self.about.name, "gaps": []}
        return rows_head(self.columns, {k: u for k, u in UNITS.items() if k in there}, own | dict(meta))
