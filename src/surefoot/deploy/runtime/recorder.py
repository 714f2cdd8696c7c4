"""The log of a run: a row for each control period that the policy acted in, as the doctor reads it."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from surefoot.contract import Contract
from surefoot.deploy.links import About, Packet
from surefoot.deploy.runtime.controller import Period
from surefoot.log import Log

UNITS = {
    "joint_pos": "rad or m", "joint_vel": "rad/s or m/s", "joint_torque": "N m or N", "base_pos": "m", "base_quat": "w x y z",
    "base_lin_vel": "m/s, world frame", "base_ang_vel": "rad/s, body frame", "temperature": "C", "stamp": "s, robot's clock",
    "age": "s", "late": "s", "compute": "s",
}  # fmt: skip
TIMES = ("stamp", "age", "late", "compute")  # late: after its deadline; compute: from waking to the command, sent


class Recorder:
    """Row k: what was measured at time[k] and sent from then until time[k + 1]. Appending costs a few microseconds."""

    def __init__(self, contract: Contract, about: About):
        self.contract, self.about = contract, about
        self.rows: list[tuple[float, Packet, Period, np.ndarray, tuple[float, ...]]] = []

    def add(self, t: float, packet: Packet, period: Period, command: np.ndarray, times: tuple[float, ...]) -> None:
        """`t` is when the packet was measured, on this computer's clock; `times` are those of TIMES but the stamp."""
        self.rows.append((t, packet, period, command, (packet.stamp, *times)))

    def log(self, meta: Mapping[str, Any]) -> Log | None:
        """All rows; None where there are fewer than two."""
        if len(self.rows) < 2:
            return None
        time, packets, periods, commands, times = zip(*self.rows)
        stamps = np.array(time) - time[0]
        for k in np.flatnonzero(np.diff(stamps) <= 0) + 1:  # a packet that served twice
            stamps[k] = max(stamps[k], stamps[k - 1] + 1e-6)
        columns = {
            "observation": np.array([p.obs for p in periods]), "action": np.array([p.action for p in periods]),
            "control": np.array([p.control for p in periods]), "target": np.array([p.command.target for p in periods]),
            "limited": np.array([p.limited for p in periods]), "sequence": np.array([p.sequence for p in packets]),
        }  # fmt: skip
        columns |= {name: np.array([t[k] for t in times]) for k, name in enumerate(TIMES)}
        columns |= {name: np.array([p.readings[name] for p in packets]) for name in packets[0].readings}
        if commands[0].size:
            columns["command"] = np.array(commands)
        names = {k: list(v) for k, v in self.about.parts.items() if k in columns}
        names |= {"control": list(self.contract.action.names), "target": list(self.about.parts["control"])}
        if self.contract.command_names:
            names["command"] = list(self.contract.command_names)
        own = {"names": names, "rate": self.contract.rate, "robot": self.about.name, "gaps": []}
        units = {k: u for k, u in UNITS.items() if k in columns}
        return Log(stamps, columns, units, own | dict(meta))
