"""surefoot new: a task file for a robot of yours, that trains as it is."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tyro.conf import Positional

from surefoot import files
from surefoot.errors import SurefootError
from surefoot.report import Block, Note, Report, Text, Watch
from surefoot.robot import Robot


@dataclass(frozen=True)
class New:
    kind: Positional[Literal["velocity", "reach", "hover", "track", "blank"]]
    """velocity: a robot with legs follows a commanded velocity; reach: an arm brings its end effector to a place; hover: a
    multirotor comes to rest at a place; track: a robot with legs follows a motion (--motion); blank: any robot, you fill in reward and success"""
    model: Positional[str]
    """a model file (.xml MJCF, .urdf); a scene file that includes the robot is best"""
    out: Path | None = None
    """the task file to write; default: ROBOT_KIND.py in this folder"""
    motion: tuple[Path, ...] = ()
    """for track: the motion to follow, in the joints of the robot (.npz, .csv); with several files, one policy follows all of them"""
    rate: float | None = None
    """rows per second of a motion file without time stamps"""
    asset_root: str = ""
    """one more folder from which meshes and includes may be read, besides the folder of the model"""
    overwrite: bool = False
    """replace an existing task file"""

    def run(self, watch: Watch) -> Report:
        from surefoot.tasks.build.source import MotionFile, write

        if Path(self.model).is_dir():
            inside = sorted(p.name for p in Path(self.model).iterdir() if p.suffix in (".xml", ".urdf"))
            raise SurefootError(
                f"{self.model}: a folder, expected a model file in it: {', '.join(inside) or 'none is there'}"
            )
        if not Path(self.model).is_file():
            raise SurefootError(f"{self.model}: no such model file")
        if self.out is not None and self.out.suffix != ".py":
            raise SurefootError(f"--out: {self.out}: expected a file whose name ends in .py")
        robot = Robot.file(self.model, asset_root=self.asset_root)
        out = self.out or Path(f"{_plain(robot.name)}_{self.kind}.py")
        if out.exists() and not self.overwrite:
            raise SurefootError(f"{out}: is there already; expected another --out, or --overwrite")
        for path in self.motion:
            if not path.is_file():
                raise SurefootError(f"{path}: no such motion file")
        motion = MotionFile(self.motion, self.rate) if self.motion else None
        found = write(self.kind, robot, out, motion)
        files.write(out, found.text.encode(errors="backslashreplace"))  # a path may hold bytes that are no text
        facts = {
            "kind": self.kind, "robot": robot.name, "file": str(out), **found.facts, "changes": list(found.changes), "missing": list(found.missing), "notes": list(found.notes),
        }  # fmt: skip
        blocks: tuple[Block, ...] = (
            Text(f"{out}: {found.about}"),
            *(Note(f"for training: {said}") for said in found.changes),
            *(Note(words) for words in found.notes),
            *(Note(f"not in the model: {said}", True) for said in found.missing),
        )
        return Report(f"{robot.name}: {self.kind}", facts, blocks, f"surefoot train {shlex.quote(str(out))} --out run")


def _plain(name: str) -> str:
    """A name that a module can have."""
    word = "".join(c if c.isalnum() else "_" for c in name[:60])
    return word if word[:1].isalpha() else f"robot_{word}"
