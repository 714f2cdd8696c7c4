"""surefoot explore: the most informative motion for identifying chosen unknowns."""

from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from tyro.conf import Positional

from surefoot import files, tasks
from surefoot.real2sim.excite.excitation import Explore as Settings
from surefoot.real2sim.excite.excitation import Limits, Shape
from surefoot.report import Block, Column, Note, Report, Table, Text, Watch
from surefoot.verbs.arguments import numbers
from surefoot.verbs.machine import Machine

if TYPE_CHECKING:  # what fits takes a second to import
    from surefoot.real2sim.excite.explore import Explored


@dataclass(frozen=True)
class Explore:
    model: Positional[str]
    """a model file (.xml MJCF, .urdf), or a task's name"""
    learn: tuple[str, ...]
    """what to learn, as `surefoot identify` takes it: a task's unknowns, or armature:kinds,damping,delay of a model file;
    everything else counts as known"""
    noise: tuple[str, ...] = ("joint_pos=0.002",)
    """signals that will be measured, with their standard deviations: joint_pos=0.002,joint_vel=0.05,gyro=0.01"""
    rate: float = 50.0
    """controls and measurements per second"""
    machine: Machine = Machine()
    shape: Shape = Shape()
    limits: Limits = Limits()
    search: Settings = Settings()
    out: Path | None = None
    """the plan, a log to play; default: <model>-plan.npz"""

    def run(self, watch: Watch) -> Report:
        from surefoot.real2sim.excite.excited_robot import excited_robot
        from surefoot.real2sim.excite.explore import design, explore
        from surefoot.real2sim.plant import Plant

        path, how = self.out or Path(f"{Path(self.model).stem}-plan.npz"), self.machine
        files.check_writable(path, "--out", ".npz")
        task = tasks.is_reference(self.model)
        plant = Plant(self.model, how.fixed, how.kp, how.kd, how.timestep)
        robot = excited_robot(plant, self.learn, self.rate)
        noise = numbers(self.noise, "--noise", "joint_pos=0.002")
        to = design(robot.world, robot.belief, self.limits, noise, self.shape, self.search, robot.start)
        found = explore(to, watch)
        out = found.log.save(path)
        blocks: list[Block] = [_table(found)]
        used = ", ".join(f"{name} {100 * share:.0f} %" for name, share in found.used.items())
        blocks.append(Text(f"limits used, at most: {used}"))
        if found.undetermined:
            names = ", ".join(found.undetermined)
            words = f"not determined by any motion found: {names}. They keep their prior; learn fewer, or measure more"
            blocks.append(Note(words, True))
        blocks.append(Text(f"plan: {out} ({found.log.time[-1]:g} s, columns time and control)"))
        learn = f"surefoot identify {quote(self.model)} LOG --learn {','.join(self.learn)}"
        blocks.append(Text(f"play it on the robot and log what it does; then {learn}"))
        following = f"surefoot record {quote(self.model)} --excite {quote(str(out))}" if task else ""
        return Report(f"a motion for {self.model}", found.facts() | {"plan": str(out)}, tuple(blocks), following)


def _table(found: "Explored") -> Table:
    numbers = Column("value", form=".4g"), Column("sd now", form=".3g"), Column("sd after", form=".3g")
    rows = [
        [p.name, p.value, p.before, p.after, p.unit or "-", "" if p.determined else "NOT DETERMINED"]
        for p in found.params
    ]
    return Table.of(["unknown", *numbers, "unit", ""], rows, "standard deviations before and after the motion")
