"""surefoot run: a bundle's policy on a robot; dry unless --live."""

from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import numpy as np
from tyro.conf import Positional

from surefoot import files
from surefoot.errors import SurefootError
from surefoot.report import Badge, Block, Column, Note, Progress, Report, Table, Text, Watch

if TYPE_CHECKING:
    from surefoot.deploy.runtime.loop import Outcome

FAULT = 1


@dataclass(frozen=True)
class Run:
    bundle: Positional[Path]
    """a folder or a .zip that `surefoot export` wrote"""
    link: str = "udp://127.0.0.1:9870"
    """the robot: udp://HOST:PORT, zmq://HOST:PORT, unitree://INTERFACE, ros2://DOMAIN, or MODULE:FUNCTION://WHERE"""
    live: bool = False
    """send commands. Without it everything is read, computed and logged, and nothing is sent"""
    seconds: float = 20.0
    """length of the run"""
    command: tuple[float, ...] = ()
    """the command for the policy, in the order of the contract's command names, such as 0.5 0 0; default: zeros"""
    out: Path = Path("run.npz")
    """the log's file; replaces a file of this name. While it runs, its rows are in a file that ends in .rows: a run that is
    killed leaves that one, and every verb reads it"""
    mcap: Path | None = None
    """also write the log as an MCAP file, for viewers (extra logs)"""
    key: Path | None = None
    """public ed25519 key (PEM) that the bundle's signature must match"""
    unjudged: bool = False
    """drive a bundle that the gate did not pass"""
    keys: bool = True
    """any key is an emergency stop, where there is a terminal"""
    speed: float = 1.0
    """speed of the clock, as a multiple of real time: that of `surefoot robot --speed`"""

    def run(self, watch: Watch) -> Report:
        from surefoot.deploy import manifest
        from surefoot.deploy.runtime import mcap_log
        from surefoot.deploy.runtime.loop import Settings, drive

        files.check_writable(self.out, "--out", ".npz", (self.bundle,))
        if self.mcap:
            files.check_writable(self.mcap, "--mcap", ".mcap", (self.bundle,))
        if not 0 < self.seconds <= 36_000 or not 0 < self.speed <= 100:
            raise SurefootError(
                f"--seconds, --speed: expected more than 0 and at most 36000 and 100, found {self.seconds:g}, {self.speed:g}"
            )
        watch(Progress(f"checking {self.bundle}"))
        found = manifest.read(self.bundle, self.key)
        if self.live and not found.passed and not self.unjudged:
            raise SurefootError(
                f"{self.bundle}: {manifest.MANIFEST}: verdict: the gate did not pass this policy; gate it and export it again, or --unjudged"
            )
        settings = Settings(
            self.live, self.seconds, self.command, keys=self.keys and self.live, speed=self.speed,
            journal=self.out.with_suffix(".rows"),
        )  # fmt: skip
        outcome = drive(found, self.link, settings, watch)
        if outcome.log is not None:
            outcome.log.save(self.out)
            if self.mcap:
                mcap_log.write(outcome.log, self.mcap)
        if settings.journal is not None:
            settings.journal.unlink(missing_ok=True)
        return self._report(outcome)

    def _report(self, o: "Outcome") -> Report:
        cause, c = o.states.cause, o.counts
        timing = _timing(o)
        log = str(self.out) if o.log is not None else None
        facts: dict[str, Any] = {
            "log": log, "live": self.live, "ended": {"event": cause.event, "why": cause.why, "at": cause.at}, "counts": c.to_json(),
            "states": [vars(x) for x in o.states.changes], "acknowledged": o.acknowledged, "robot": o.about.name, "timing": timing,
        }  # fmt: skip
        words = {"done": "ran for", "fault": "fault:", "stop": "stopped:"}.get(str(cause.event), "ended:")
        blocks: list[Block] = [
            Text(
                f"{o.about.name}: {c.periods} periods, {c.missed} missed, {c.held} held, {c.limited} limited, {c.sent} commands sent"
            )
        ]
        if c.layers:
            blocks.append(Text(f"safety layers, periods: {', '.join(f'{k} {n}' for k, n in c.layers.items())}"))
        if timing:
            number = lambda name: Column(name, "ms", ".3f")  # noqa: E731
            rows = [
                [k, *(1000 * v[q] for q in ("p50", "p99", "max"))] for k, v in timing.items() if isinstance(v, dict)
            ]
            blocks.append(Table.of(["timing", number("p50"), number("p99"), number("max")], rows))
        if log:
            blocks.append(Text(f"log: {log}"))
        if not self.live:
            blocks.append(Note("a dry run: nothing was sent; add --live to drive the robot"))
        if not o.acknowledged:
            blocks.append(
                Note(
                    "the robot did not acknowledge damping; the watchdog goes on for a minute: use the emergency stop",
                    True,
                )
            )
        following = f"surefoot doctor {quote(str(self.bundle))} {quote(log)}" if log else ""
        badge = Badge(f"{words} {cause.why}", o.good)
        return Report(f"run of {self.bundle}", facts, tuple(blocks), following, badge, 0 if o.good else FAULT)


def _timing(o: "Outcome") -> dict[str, Any]:
    """Seconds: of computing, being late, and readings' age; and the rate that was kept."""
    if o.log is None:
        return {}
    rows = {k: o.log[k] for k in ("compute", "late", "age")}
    found: dict[str, Any] = {k: {f"p{q}": float(np.percentile(x, q)) for q in (50, 99)} | {"max": float(x.max())} for k, x in rows.items()}  # fmt: skip
    span, periods = float(o.log.time[-1] - o.log.time[0]), len(o.log) - 1 + o.counts.missed
    return found | {"rate": periods / span, "rate_error": periods / span / o.log.meta["rate"] - 1}
