"""surefoot motion: shows a motion of a person or a robot; cuts, resamples, mirrors and saves it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from tyro.conf import Positional, arg

from surefoot import files
from surefoot.errors import SurefootError
from surefoot.report import Axis, Block, Column, Note, Picture, Plot, Progress, Report, Series, Table, Text, Watch

if TYPE_CHECKING:
    from surefoot.motion.contacts import Contacts
    from surefoot.motion.person import Person


@dataclass(frozen=True)
class Motion:
    file: Positional[Path]
    """a recording of a person (.bvh, .c3d, .npz of AMASS, SMPL or surefoot), or with --robot a robot's motion (.npz, .csv)"""
    robot: str = ""
    """the model whose joints the motion is in (.xml MJCF, .urdf), or a task's name; without it the file is a person's"""
    rate: float | None = None
    """Hz: resample to this rate; of a robot's table without a clock, its rows per second"""
    cut: tuple[float, float] | None = None
    """seconds from the start: first and last that are kept"""
    mirror: bool = False
    """exchange left and right"""
    mapping: Annotated[Path | None, arg(name="map")] = None
    """JSON file, landmark -> name of a joint, where a skeleton has names of its own: {"left_hip": "LThigh"}"""
    unit: float | None = None
    """m: size of the file's unit of length; default: the one in which the person is as tall as a person"""
    up: str = ""
    """the file's up axis, such as y or -z; default: the one along which the head is above the feet"""
    skeleton: Path | None = None
    """JSON table of bones for SMPL files: {"left_hip": ["pelvis", [x, y, z]], ...} in m"""
    save: Path | None = None
    """write it as our own file (.npz)"""
    page: Path | None = None
    """write a page with a film of stick figures and plots (.html)"""

    def run(self, watch: Watch) -> Report:
        if self.save:
            files.check_writable(self.save, "--save", ".npz", (self.file, self.mapping, self.skeleton))
        if self.page:
            files.check_writable(self.page, "--page", ".html", (self.file, self.mapping, self.skeleton))
        watch(Progress(f"reading {self.file}"))
        return self._of_robot() if self.robot else self._of_person()

    def _of_person(self) -> Report:
        from surefoot.motion import landmarks, person
        from surefoot.motion.contacts import contacts
        from surefoot.motion.readers import read_person

        given = read_map(self.mapping)
        found = read_person(self.file, given, self.unit, self.up, self.skeleton)
        found = person.cut(found, *self.cut) if self.cut else found
        found = person.resampled(found, self.rate) if self.rate else found
        found = person.mirrored(found, landmarks.pairs(found.names)) if self.mirror else found
        marks = landmarks.landmarks(found.names, given)
        touch = contacts(found, marks)
        facts: dict[str, Any] = {
            "kind": "person", "seconds": found.seconds, "rate": found.rate, "frames": len(found), "joints": list(found.names),
            "attitudes": found.quat is not None, "landmarks": {k: found.names[i] for k, i in marks.items()}, "notes": list(found.notes),
            "contacts": {n: float(touch.of(n).mean()) for n in touch.names}, **person_numbers(found, marks),
        }  # fmt: skip
        blocks: list[Block] = [
            Text(f"{self.file.name}: a person, {found.seconds:.2f} s, {found.rate:.4g} Hz, {len(found.names)} joints"),
            *map(Note, found.notes),
            Table.of(
                ["limb", "touches the floor", Column("fastest", "m/s", ".2f")],
                [[n, f"{100 * facts['contacts'][n]:.0f} %", facts["fastest"][n]] for n in touch.names],
            ),
        ]
        blocks += _person_page(found, marks, touch, self.file.name) if self.page else []
        return self._report(facts, blocks, found.save if self.save else None, f"surefoot retarget {quote(str(self.save or self.file))} humanoid --out clip.npz")  # fmt: skip

    def _of_robot(self) -> Report:
        from surefoot.motion.read import read_motion
        from surefoot.motion.robot_motion import cut, kinematic, mirrored, resampled
        from surefoot.verbs.arguments import robot_of

        robot = robot_of(self.robot)
        body = kinematic(robot)
        log = read_motion(self.file, body.layout.joints, self.rate)
        log = cut(log, *self.cut) if self.cut else log
        log = resampled(log, self.rate) if self.rate and abs(log.rate - self.rate) > 1e-6 * self.rate else log
        log = mirrored(log, body) if self.mirror else log
        facts = {"kind": "robot", "robot": robot.name, "seconds": float(log.time[-1] - log.time[0]), "rate": log.rate, "frames": len(log), "joints": log.meta["names"]["joint_pos"], "notes": list(log.meta.get("notes", [])), **body.numbers(log)}  # fmt: skip
        blocks: list[Block] = [
            Text(
                f"{self.file.name}: {robot.name}, {facts['seconds']:.2f} s, {log.rate:.4g} Hz, {len(facts['joints'])} joints"
            ),
            *map(Note, facts["notes"]),
            Table.of(["", "value"], [[k, f"{v:.3g} {u}"] for k, v, u in body.rows(log)]),
        ]
        if self.page:
            from surefoot.motion.figure import film

            blocks.append(
                Picture(film([body.panel(log, robot.name)], log.rate), "svg+xml", f"{robot.name}: {self.file.name}")
            )
        clock = f" --rate {self.rate:g}" if self.rate and not self.save else ""
        track = f"surefoot new track {quote(self.robot)} --motion {quote(str(self.save or self.file))}{clock}"
        following = track if Path(self.robot).is_file() else f"surefoot look {quote(self.robot)}"
        return self._report(facts, blocks, log.save if self.save else None, following)

    def _report(self, facts: dict[str, Any], blocks: list[Block], save: Any, following: str) -> Report:
        if self.save and save:
            facts["saved"] = str(save(self.save))
            blocks.append(Text(f"saved: {self.save}"))
        if self.page:
            facts["page"] = str(self.page)
        return Report(str(self.file), facts, tuple(blocks), following, page=self.page)


def read_map(path: Path | None) -> dict[str, str] | None:
    """landmark -> name, of a JSON file."""
    if path is None:
        return None
    from surefoot.motion.landmarks import LIMBS, MIDDLE, SIDES

    known = [*MIDDLE, *(f"{s}_{k}" for s in SIDES for k in LIMBS)]
    found = files.read_json(path)
    if not isinstance(found, dict) or not all(isinstance(v, str) for v in found.values()):
        raise SurefootError(f"{path}: expected an object, landmark -> name of a joint")
    for name in found:
        if name not in known:
            from surefoot.errors import unknown

            raise unknown("landmark", name, known, str(path))
    return found


def person_numbers(person: "Person", marks: Mapping[str, int]) -> dict[str, Any]:
    from surefoot.motion.contacts import leg_length, speed
    from surefoot.motion.landmarks import stature

    ends = {
        "left_foot": "left_ankle",
        "right_foot": "right_ankle",
        "left_hand": "left_wrist",
        "right_hand": "right_wrist",
    }
    fast = {k: float(speed(person.time, person.pos[:, marks[m]]).max()) for k, m in ends.items()}
    walk = float(np.linalg.norm(np.diff(person.pos[:, marks["pelvis"], :2], axis=0), axis=1).sum())
    return {"stature": stature(person.pos, marks), "leg": leg_length(person, marks), "path": walk, "fastest": fast}


def _person_page(person: "Person", marks: Mapping[str, int], touch: "Contacts", name: str) -> list[Block]:
    from surefoot.motion.figure import Panel, bones_of, film

    centre = person.pos[:, marks["pelvis"], :2]
    picture = film([Panel(name, person.pos, bones_of(person.parents), centre)], person.rate)
    step = max(1, len(person) // 400)
    t = person.time[::step]
    heights = [Series.of(f"{s} ankle", t, person.pos[::step, marks[f"{s}_ankle"], 2]) for s in ("left", "right")]
    floor = [Series.of(f"{n} touches", t, np.where(touch.of(n)[::step], -0.03 * (k + 1), np.nan)) for k, n in enumerate(touch.names[:2])]  # fmt: skip
    return [Picture(picture, "svg+xml", name), Plot("feet", (*heights, *floor), Axis("time", "s"), Axis("height", "m"))]
