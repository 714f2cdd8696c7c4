"""surefoot retarget: a person's motion becomes a robot's, by kinematics; with a film of both and what is right and wrong with it."""

from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from tyro.conf import Positional, arg

from surefoot import files
from surefoot.errors import SurefootError
from surefoot.report import Block, Column, Note, Picture, Progress, Report, Table, Text, Watch
from surefoot.robot import Robot
from surefoot.verbs.arguments import hashes, robot_of
from surefoot.verbs.model.motion import read_map

if TYPE_CHECKING:
    from surefoot.log import Log
    from surefoot.motion.person import Person
    from surefoot.motion.retarget.interaction import Box, Interacted
    from surefoot.motion.retarget.retarget import Retargeted

ROWS = (
    ("sliding", "feet that stand slide at", "mm/s", 1e3), ("floating", "standing soles off the floor, at most", "mm", 1e3),
    ("sunk", "feet below the floor, at most", "mm", 1e3), ("direction", "bones turned from the person's, mean", "deg", 57.29578),
    ("fastest", "fastest joint", "rad/s", 1.0), ("limit", "frames with a joint at its limit", "%", 100.0),
)  # fmt: skip


@dataclass(frozen=True)
class Retarget:
    clip: Positional[Path]
    """a recording of a person: .bvh, .c3d, .npz of AMASS, SMPL or surefoot"""
    robot: Positional[str]
    """a humanoid's model file (.xml MJCF, .urdf), or a task's name"""
    out: Path = Path("clip.npz")
    """the robot's motion to write (.npz), as `surefoot new track --motion` takes it"""
    rate: float | None = None
    """Hz: resample the recording first; a robot's policy often has 50"""
    cut: tuple[float, float] | None = None
    """seconds from the start of the recording: first and last that are kept"""
    mirror: bool = False
    """exchange left and right"""
    mapping: Annotated[Path | None, arg(name="map")] = None
    """JSON file, landmark -> the person's joint: {"left_hip": "LThigh"}"""
    robot_map: Path | None = None
    """JSON file, landmark -> the robot's body whose origin it is: {"left_elbow": "AL4"}"""
    unit: float | None = None
    """m: size of the file's unit of length; default: found"""
    up: str = ""
    """the file's up axis, such as y; default: found"""
    skeleton: Path | None = None
    """JSON table of bones for SMPL files"""
    asset_root: str = ""
    """folder that meshes may come from, if they lie outside the model's own"""
    seed: int = 0
    """of the starts of the first frame"""
    box: Path | None = None
    """JSON file of a box that the person handles: {"half": [x, y, z], "path": [[t, x, y, z], ...]} in m and s, z up, floor at 0"""
    box_size: float = 1.0
    """the robot's box as a multiple of the person's, scaled to the robot"""
    page: Path | None = None
    """write a page with a film of person and robot side by side (.html)"""

    def run(self, watch: Watch) -> Report:
        from surefoot.motion.retarget.metrics import metrics

        reads = (self.clip, self.mapping, self.skeleton, self.robot_map, self.box)
        files.check_writable(self.out, "--out", ".npz", reads)
        if self.page:
            files.check_writable(self.page, "--page", ".html", reads)
        watch(Progress(f"reading {self.clip}"))
        given = read_map(self.mapping)
        person = self._person(given)
        robot = robot_of(self.robot, self.asset_root)
        try:
            found, held = self._found(person, robot, given, watch)
        except SurefootError as error:
            raise SurefootError(f"{self.clip}: {error}") from None
        ours, plain = metrics(found), metrics(found, found.plain)
        log = found.log if held is None else with_box_path(found.log, held.box)
        log.save(self.out)
        facts = self._facts(person, found) | {
            "metrics": ours,
            "plain": plain,
            "robot": robot.name,
            "out": str(self.out),
        }
        blocks: list[Block] = [
            Text(
                f"{self.out}: {robot.name}, {len(facts['joints'])} joints, {person.seconds:.2f} s, {person.rate:.4g} Hz"
            ),
            *map(Note, person.notes),
            Text(
                f"legs are {found.targets.scale:.2f} times as long as the person's; {facts['fps']:.0f} frames for each second of one core"
            ),
            _table(ours, plain),
        ]
        if held is not None:
            facts["box"] = about = _box_facts(found, held)
            blocks.append(
                Text(
                    f"box: hands nearest at {100 * about['nearest']:.1f} cm, deepest {100 * about['deepest']:.1f} cm inside (plain IK {100 * about['plain_deepest']:.1f} cm)"
                )
            )
        blocks += self._film(person, found, held, robot.name) if self.page else []
        facts |= {"page": str(self.page)} if self.page else {}
        return Report(f"{self.clip.name} for {robot.name}", facts, tuple(blocks), self._next(), page=self.page, sources=hashes(clip=self.clip))  # fmt: skip

    def _found(
        self, person: "Person", robot: Robot, given: dict[str, str] | None, watch: Watch
    ) -> "tuple[Retargeted, Interacted | None]":
        """The motion; with a box also where that is, and the motion kept with it."""
        from surefoot.motion.contacts import leg_length
        from surefoot.motion.landmarks import landmarks, needed
        from surefoot.motion.retarget.humanoid import humanoid
        from surefoot.motion.retarget.interaction import interact, with_box
        from surefoot.motion.retarget.retarget import retarget
        from surefoot.motion.robot_motion import kinematic

        mapped = read_map(self.robot_map)
        body = humanoid(kinematic(robot), mapped)
        if self.box is None:
            return retarget(person, body, given, self.seed, watch), None
        marks = landmarks(person.names, given)
        needed(marks, person.names)
        box = read_box(self.box, person.time + (self.cut[0] if self.cut else 0.0), self.mirror)
        size = self.box_size * body.leg / leg_length(person, marks) * box.half
        plain = retarget(person, humanoid(kinematic(with_box(robot, size)), mapped), given, self.seed, watch)
        held = interact(person, marks, box, plain, self.box_size, watch=watch)
        return replace(plain, q=held.q, seconds=plain.seconds + held.seconds), held

    def _person(self, given: dict[str, str] | None) -> "Person":
        from surefoot.motion import landmarks, person
        from surefoot.motion.readers import read_person

        found = read_person(self.clip, given, self.unit, self.up, self.skeleton)
        found = person.cut(found, *self.cut) if self.cut else found
        found = person.resampled(found, self.rate) if self.rate else found
        return person.mirrored(found, landmarks.pairs(found.names)) if self.mirror else found

    def _facts(self, person: "Person", found: "Retargeted") -> dict[str, Any]:
        m = found.robot.kin.model
        return {
            "seconds": person.seconds, "rate": person.rate, "frames": len(person), "joints": list(found.robot.kin.layout.joints),
            "landmarks": {k: str(m.body(p.body).name) for k, p in found.robot.points.items()}, "parts": {k: str(m.body(b).name) for k, (b, _) in found.robot.parts.items()},
            "scale": found.targets.scale, "fps": len(person) / found.seconds, "steps": found.steps, "notes": list(person.notes),
        }  # fmt: skip

    def _film(self, person: "Person", found: "Retargeted", held: "Interacted | None", name: str) -> list[Block]:
        from surefoot.motion.figure import Panel, bones_of, film
        from surefoot.motion.landmarks import landmarks

        marks = landmarks(person.names, read_map(self.mapping))
        shown = Panel("person", person.pos, bones_of(person.parents), person.pos[:, marks["pelvis"], :2])
        kin = found.robot.kin
        plain = kin.panel(kin.log(found.targets.time, found.plain), "plain inverse kinematics")
        panels = [shown, plain, kin.panel(found.log, name)]
        if held is not None:
            panels[1:] = [replace(p, boxes=held.box.corners()) for p in panels[1:]]
        return [
            Picture(film(panels, person.rate), "svg+xml", f"{self.clip.name}: person, plain inverse kinematics, {name}")
        ]

    def _next(self) -> str:
        if Path(self.robot).is_file():
            return f"surefoot new track {quote(self.robot)} --motion {quote(str(self.out))}"
        return f"surefoot motion {quote(str(self.out))} --robot {quote(self.robot)} --page {quote(str(self.out.with_suffix('.html')))}"


def _table(ours: dict[str, float], plain: dict[str, float]) -> Table:
    rows = [[f"{what} [{unit}]", size * plain[key], size * ours[key]] for key, what, unit, size in ROWS]
    return Table.of(["", Column("plain IK", form=".3g"), Column("retargeted", form=".3g")], rows)


def read_box(path: Path, time: np.ndarray, mirror: bool) -> "Box":
    """The box of a JSON file, at these times [s]."""
    from surefoot.motion.person import MIRROR
    from surefoot.motion.retarget.interaction import Box

    found = files.read_json(path)
    try:
        half, rows = np.array(found["half"], float), np.array(found["path"], float)
    except (KeyError, TypeError, ValueError):
        raise SurefootError(f'{path}: expected {{"half": [x, y, z], "path": [[t, x, y, z], ...]}}') from None
    good = half.shape == (3,) and (half > 0).all() and rows.ndim == 2 and rows.shape[1:] == (4,) and len(rows) > 0
    if not good or not np.isfinite(rows).all() or not (np.diff(rows[:, 0]) > 0).all():
        raise SurefootError(f"{path}: found half {half.shape} and path {rows.shape}, expected 3 numbers above 0, and rows of t, x, y, z whose times increase")  # fmt: skip
    at = np.stack([np.interp(time, rows[:, 0], c) for c in rows[:, 1:].T], 1)
    return Box(half, at * MIRROR if mirror else at)


def with_box_path(log: "Log", box: "Box") -> "Log":
    from surefoot.log import Log

    meta = log.meta | {"constants": {"box_half": box.half.tolist()}}
    return Log(log.time, log.columns | {"box_pos": box.path}, log.units | {"box_pos": "m"}, meta)


def _box_facts(found: "Retargeted", held: "Interacted") -> dict[str, Any]:
    from surefoot.motion.retarget.interaction import distances

    hands, deep = distances(held.robot, held.q, held.box)
    _, through = distances(held.robot, found.plain, held.box)
    inside = lambda x: float(max(0.0, -x.min()))  # noqa: E731
    return {
        "nearest": float(hands.min()),
        "deepest": inside(deep),
        "plain_deepest": inside(through),
        "relaxed": held.relaxed,
    }
