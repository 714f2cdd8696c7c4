"""What happened in a crossing, stage by stage, on disk: a crossing that stopped goes on after its last whole stage.

out/cross.json              what was asked: task, robot, budget, seeds
out/stages/03-doctor.json   one stage: what was found, success in simulation and on the robot, what it cost
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from surefoot import files
from surefoot.cross.robot import Rate
from surefoot.errors import SurefootError
from surefoot.report import jsonable
from surefoot.typed import known_fields

ASKED = "cross.json"
TRYING = 10.0  # s of robot time without which a policy is not tried; of a task with longer episodes, one of them
LARGEST = 16 << 20  # bytes of a stage


@dataclass(frozen=True)
class Budget:
    """Seconds of the robot's time for logs, and of this computer's."""

    robot: float = 60.0
    compute: float = 600.0
    trying: float = TRYING
    """of the robot's, without which a policy is not tried"""

    @staticmethod
    def parse(words: str) -> "Budget":
        """`60 s of robot, 10 min of compute`; a part that is left out keeps its default."""
        found: dict[str, float] = {}
        for part in words.split(","):
            number, _, rest = part.strip().partition(" ")
            unit, _, what = rest.partition(" of ")
            per = {"s": 1.0, "min": 60.0, "h": 3600.0}.get(unit.strip())
            try:
                value = float(number) * (per or 0.0)
            except ValueError:
                value = 0.0
            if not value > 0 or what.strip() not in ("robot", "compute"):
                raise SurefootError(
                    f"--budget: found {part.strip()!r}, expected such as '60 s of robot, 10 min of compute'"
                )
            found[what.strip()] = value
        return Budget(**found)

    def __str__(self) -> str:
        return f"{self.robot:g} s of robot, {self.compute / 60:g} min of compute"


@dataclass(frozen=True)
class Stage:
    """One step of a crossing, and what came of it."""

    name: str
    found: str
    """for people"""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """for the driver and the report"""
    sim: Rate | None = None
    robot: Rate | None = None
    robot_seconds: float = 0.0
    """that it was driven"""
    seconds: float = 0.0
    """of this computer"""

    def to_json(self) -> dict[str, Any]:
        return jsonable(asdict(self))

    @staticmethod
    def from_json(data: Any, where: str) -> "Stage":
        known = {"name", "found", "facts", "sim", "robot", "robot_seconds", "seconds"}
        body = known_fields(data, known, {"name", "found"}, where)
        for k in ("sim", "robot"):
            body[k] = None if body.get(k) is None else Rate(**known_fields(body[k], {"k", "n"}, {"k", "n"}, where))
        return Stage(**body)


@dataclass(frozen=True)
class Journal:
    """Stages of a crossing in a folder."""

    out: Path
    budget: Budget
    stages: tuple[Stage, ...] = ()

    @staticmethod
    def open(out: Path, asked: Mapping[str, Any], budget: Budget) -> "Journal":
        """A new one, or the one that the same question began."""
        path, asked = out / ASKED, json.loads(json.dumps(jsonable(dict(asked))))
        if not path.exists():
            files.write_json(path, asked)
            return Journal(out, budget)
        was = files.read_json(path)
        for k in {**was, **asked}:
            if was.get(k) != asked.get(k):
                raise SurefootError(
                    f"{out}: holds a crossing with another {k}: {was.get(k)}, not {asked.get(k)}; choose another --out"
                )
        kept = sorted((out / "stages").glob("[0-9][0-9]-*.json"))
        return Journal(out, budget, tuple(Stage.from_json(files.read_json(p), str(p)) for p in kept))

    def add(self, stage: Stage) -> "Journal":
        files.write_json(self.out / "stages" / f"{len(self.stages):02d}-{stage.name}.json", stage.to_json())
        return replace(self, stages=(*self.stages, stage))

    def place(self, name: str) -> Path:
        """The folder or file of what the next stage makes."""
        return self.out / f"{len(self.stages):02d}-{name}"

    def last(self, *names: str) -> Stage | None:
        return next((s for s in reversed(self.stages) if s.name in names), None)

    def all(self, *names: str) -> Sequence[Stage]:
        return [s for s in self.stages if s.name in names]

    @property
    def robot_seconds(self) -> float:
        return sum(s.robot_seconds for s in self.stages)

    @property
    def seconds(self) -> float:
        return sum(s.seconds for s in self.stages)

    def spent(self, least: float = 0.0) -> str:
        """Which part of the budget is spent, where `least` seconds of the robot are needed; empty: none."""
        if self.seconds >= self.budget.compute:
            return f"{self.seconds / 60:.1f} min of compute"
        left = self.budget.robot - self.robot_seconds
        return f"{self.robot_seconds:.0f} s of robot" if left <= 0 or left < least else ""

    def since_robot(self, name: str) -> bool:
        """Whether there was such a stage since the robot was last tried."""
        for stage in reversed(self.stages):
            if stage.name == "robot":
                return False
            if stage.name == name:
                return True
        return False
