"""The verb that plans an experiment: thin over real2sim.explore."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from tyro.conf import Positional

from surefoot import files
from surefoot.cli.real import Machine
from surefoot.cli.words import numbers
from surefoot.console import Answer, Line
from surefoot.real2sim.excitation import Explore as Settings
from surefoot.real2sim.excitation import Limits, Shape

if TYPE_CHECKING:  # what fits takes a second to import
    from surefoot.real2sim.explore import Explored


@dataclass
class Explore:
    """The motion that would tell most about chosen unknowns of a robot, and what it would tell."""

    model: Positional[str]
    """a model file (.xml MJCF, .urdf), or a task's name"""
    learn: str
    """what to learn, by commas, as `surefoot identify` takes it: a task's unknowns, or armature:kinds,damping,delay of a
    model file; all else is taken as known"""
    noise: tuple[str, ...] = ("joint_pos=0.002",)
    """what will be measured, and its standard deviation: joint_pos=0.002 joint_vel=0.05 gyro=0.01"""
    rate: float = 50.0
    """controls and measurements a second"""
    machine: Machine = field(default_factory=Machine)
    shape: Shape = field(default_factory=Shape)
    limits: Limits = field(default_factory=Limits)
    search: Settings = field(default_factory=Settings)
    out: Path | None = None
    """the plan, a log to play; <model>-plan.npz unless told"""

    def run(self, say: Console) -> Answer:
        from surefoot.real2sim.explore import explore
        from surefoot.real2sim.plant import Plant
        from surefoot.real2sim.subject import subject

        path, how = self.out or Path(f"{Path(self.model).stem}-plan.npz"), self.machine
        files.check_writable(path, "--out", ".npz")
        plant = Plant(self.model, how.fixed, how.kp, how.kd, how.timestep)
        who = subject(plant, tuple(self.learn.split(",")), self.rate)
        line = Line(say)
        found = explore(
            who.world,
            who.belief,
            self.limits,
            numbers(self.noise, "--noise", "joint_pos=0.002"),
            self.shape,
            self.search,
            who.start,
            line.text,
        )
        line.end()
        out = found.log.save(path)
        shown = [_table(found), *_sentences(found), f"plan: {out} ({found.log.time[-1]:g} s, columns time and control)"]
        return Answer(
            found.facts() | {"plan": str(out)}, shown, f"surefoot identify {self.model} LOG --learn {self.learn}"
        )


def _table(found: "Explored") -> Table:
    table = Table(
        "unknown", "about", "sd now", "sd after", "unit", "", title="what the motion would tell", title_justify="left"
    )
    for p in found.params:
        table.add_row(
            p.name,
            f"{p.value:.4g}",
            f"{p.before:.3g}",
            f"{p.after:.3g}",
            p.unit or "-",
            "" if p.determined else "NOT DETERMINED",
        )
    return table


def _sentences(found: "Explored") -> list[str]:
    used = ", ".join(f"{name} {100 * share:.0f} %" for name, share in found.used.items())
    said = [f"limits used, at most: {used}"]
    if found.undetermined:
        said.append(
            f"not determined by any motion found: {', '.join(found.undetermined)}. They stay as believed; learn fewer, or measure more"
        )
    return said
