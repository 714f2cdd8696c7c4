"""surefoot preflight: are a log's joints, signs, units, axes and clocks right?"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from surefoot.report import Badge, Block, Note, Report, Table, Text, Watch
from surefoot.verbs.machine import FAILED, Machine, asked, naming, read


@dataclass(frozen=True)
class Preflight:
    model: Positional[str]
    """a task's name, or a model file"""
    log: Positional[Path]
    """the robot's log"""
    mapping: Annotated[Path | None, arg(name="map")] = None
    """JSON file that maps the log's columns to our schema"""
    machine: Machine = Machine()

    def run(self, watch: Watch) -> Report:
        from surefoot.real2sim.preflight import preflight

        log = read(self.log, self.mapping, watch)
        world = self.machine.world(self.model, None, log)
        with naming(self.log):
            verdict = preflight(world, log, watch)
        shown = [c for c in verdict.checks if not c.holds or c.unit == "gain"]
        rows = [[c.name, "PASS" if c.holds else "FAIL", c.evidence] for c in shown]
        strong = [i for i, c in enumerate(shown) if not c.holds]
        blocks: list[Block] = [
            Table.of(["check", "", "evidence"], rows, strong=strong),
            Text(f"{len(verdict.checks) - len(shown)} more checks of time stamps, speeds, ranges and mounting pass"),
        ]
        unchecked = verdict.meta["unchecked"]
        if unchecked:
            blocks.append(Note(f"not checked: order, signs, units and gravity: {unchecked}"))
        facts = {"holds": verdict.holds, "unchecked": unchecked, "checks": [c.to_json() for c in verdict.checks]}
        title = f"{self.log} against {self.model}"
        if verdict.holds:
            following = f"surefoot replay {asked(self.model, self.log, self.mapping, self.machine)}"
            return Report(title, facts, tuple(blocks), following, Badge(f"PASS: {len(verdict.checks)} checks", True))
        advice = (
            "correct the mapping (docs/logs.md) or the mounting (--machine) as the first line says; then run this again"
        )
        badge = Badge(f"FAIL: {len(strong)} of {len(verdict.checks)} checks", False)
        return Report(title, facts, (*blocks, Text(advice)), "", badge, FAILED)
