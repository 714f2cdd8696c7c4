"""surefoot new: a task file for a robot of yours, that trains as it is."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tyro.conf import Positional

from surefoot import files
from surefoot.errors import SurefootError
from surefoot.report import Block, Note, Report, Text, Watch
from surefoot.robot import Robot

if TYPE_CHECKING:  # what simulates is an extra, and `--help` needs none
    from surefoot.sim.anatomy.study import Anatomy


@dataclass(frozen=True)
class New:
    kind: Positional[Literal["velocity", "reach", "hover"]]
    """velocity: anything with legs follows a commanded velocity; reach: an arm brings its end effector to a place; hover: a
    multirotor comes to rest at a place"""
    model: Positional[str]
    """a model file (.xml MJCF, .urdf); a scene file that includes the robot is best"""
    out: Path | None = None
    """the task file to write; without it ROBOT_KIND.py in this folder"""
    asset_root: str = ""
    """folder that meshes and includes may come from, if they lie outside the model's own"""
    overwrite: bool = False
    """write over a file that is there"""

    def run(self, watch: Watch) -> Report:
        from surefoot.tasks.build.source import missing, write

        if not Path(self.model).is_file():
            raise SurefootError(f"{self.model}: no such model file")
        robot = Robot.file(self.model, asset_root=self.asset_root)
        out = self.out or Path(f"{_plain(robot.name)}_{self.kind}.py")
        if out.exists() and not self.overwrite:
            raise SurefootError(f"{out}: is there already; expected another --out, or --overwrite")
        found = write(self.kind, robot, out)
        files.write(out, found.text.encode(errors="backslashreplace"))  # a path may hold bytes that are no text
        lacks = list(missing(found.anatomy))
        facts = {
            "kind": self.kind, "robot": robot.name, "file": str(out), "mass": found.anatomy.mass, "joints": len(found.anatomy.drives),
            "feet": [f.name for f in found.anatomy.feet], "changes": list(found.changes), "missing": lacks,
        }  # fmt: skip
        blocks: tuple[Block, ...] = (
            Text(f"{out}: {_words(found.anatomy)}"),
            *(Note(f"for training: {said}") for said in found.changes),
            *(Note(f"not in the model: {said}", True) for said in lacks),
        )
        return Report(f"{robot.name}: {self.kind}", facts, blocks, f"surefoot train {shlex.quote(str(out))} --out run")


def _plain(name: str) -> str:
    """A name that a module can have."""
    word = "".join(c if c.isalnum() else "_" for c in name[:60])
    return word if word[:1].isalpha() else f"robot_{word}"


def _words(a: "Anatomy") -> str:
    parts = [f"{a.mass:.3g} kg"]
    if a.legs:
        parts += [f"{len(a.legs)} legs of {a.leg_length:.2g} m", f"feet {', '.join(f.name for f in a.feet)}"]
    if a.upper:
        parts.append(f"{len(a.upper)} joints of the upper body held")
    if a.arm is not None:
        parts.append(f"{len(a.arm.joints)} joints to {a.arm.body}" + (f", gripper {', '.join(a.arm.gripper)}" if a.arm.gripper else ""))  # fmt: skip
    if a.rotors:
        parts.append(f"{len(a.rotors)} rotors: {', '.join(r.actuator for r in a.rotors)}")
    return "; ".join(parts)
