"""surefoot retarget: a person's motion becomes a robot's, by kinematics; with a film of both and what is right and wrong with it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from surefoot import files
from surefoot.errors import SurefootError
from surefoot.report import Block, Note, Progress, Report, Text, Watch
from surefoot.robot import Robot
from surefoot.verbs.arguments import hashes, robot_of
from surefoot.verbs.model.motion import read_map

if TYPE_CHECKING:
    from surefoot.motion.person import Person
    from surefoot.motion.retarget.retarget import Retargeted
    from surefoot.motion.retarget.things import Change, Thing
    from surefoot.verbs.model.retargeted import Made
    from surefoot.verbs.model.tracked import Tracked


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
    balance: bool = False
    """shift the base by a few cm at most, so that the robot presses on the floor within its feet where it can"""
    box: Path | None = None
    """JSON file of a box that the person handles: {"half": [x, y, z], "path": [[t, x, y, z], ...]} in m and s, z up, floor at 0; rows may go on with its attitude w, x, y, z"""
    wall: tuple[float, float, float] | None = None
    """a wall that the person leans on: x and y [m] of a point of its front, and the direction [deg] that its front looks in"""
    step: tuple[float, ...] = ()
    """a step that the person steps on: x and y [m] of its middle, its direction [deg], its length along that, width and height [m]; six more numbers for each further one"""
    object_size: float = 1.0
    """the robot's box, or the height of its steps, as a multiple of the person's scaled to the robot"""
    object_shift: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """m: how far box, wall and steps are from where the person's would be"""
    object_turn: float = 0.0
    """deg: how far the box is turned about the vertical"""
    variants: int = 1
    """motions to write: the first as asked, the others (clip-1.npz, ...) with sizes, places and turns drawn with --seed"""
    policy: Path | None = None
    """a policy that was trained to track this motion (run folder or policy.onnx): the page and the table show what it makes of it"""
    page: Path | None = None
    """write a page with a film of person and robot side by side, and a table of metrics (.html)"""

    def run(self, watch: Watch) -> Report:
        from surefoot.verbs.model import retargeted

        reads = (self.clip, self.mapping, self.skeleton, self.robot_map, self.box)
        files.check_writable(self.out, "--out", ".npz", reads)
        if self.page:
            files.check_writable(self.page, "--page", ".html", reads)
        watch(Progress(f"reading {self.clip}"))
        given = read_map(self.mapping)
        person = self._person(given)
        robot = robot_of(self.robot, self.asset_root)
        things = retargeted.things_of(self.box, self.wall, self.step, person, self.cut[0] if self.cut else 0.0, self.mirror)  # fmt: skip
        if things and self.balance:
            raise SurefootError(
                "--balance: found a --box, --wall or --step, which the robot may lean on: expected none"
            )
        if not things and (self.variants > 1 or self._change != type(self._change)()):
            raise SurefootError("--variants, --object-size, --object-shift and --object-turn are of a --box, --wall or --step: found none")  # fmt: skip
        try:
            made = self._made(person, robot, things, given, watch)
        except SurefootError as error:
            raise SurefootError(f"{self.clip}: {error}") from None
        for path, motion in made.items():
            motion.log.save(path)
        first = made[self.out]
        followed = self._followed(first, watch)
        facts = self._facts(person, first.found) | {"robot": robot.name, "out": str(self.out)} | first.facts()
        facts["variants"] = [{"out": str(k)} | m.facts() for k, m in made.items()] if self.variants > 1 else []
        facts |= {"tracked": followed.facts} if followed else {}
        blocks = self._blocks(person, robot.name, made, facts, followed)
        if self.page:
            facts["page"] = str(self.page)
            blocks.append(retargeted.film_of(person, things, first, followed, f"{self.clip.name}: {robot.name}"))
            if not things:
                facts["round_trip"] = far = retargeted.round_trip(first.found)
                blocks.append(Text(f"round trip (robot, person with other limbs, robot): joint RMSE {far:.3g} rad"))
        return Report(f"{self.clip.name} for {robot.name}", facts, tuple(blocks), self._next(), page=self.page, sources=hashes(clip=self.clip))  # fmt: skip

    @property
    def _change(self) -> "Change":
        from surefoot.motion.retarget.things import Change

        return Change(self.object_size, self.object_shift, self.object_turn * 0.017453292519943295)

    def _made(
        self, person: "Person", robot: Robot, things: "Sequence[Thing]", given: dict[str, str] | None, watch: Watch
    ) -> "dict[Path, Made]":
        """Path -> motion; several if variants are asked for."""
        from surefoot.motion.retarget.balance import balanced
        from surefoot.motion.retarget.humanoid import humanoid
        from surefoot.motion.retarget.interaction import interact
        from surefoot.motion.retarget.retarget import retarget
        from surefoot.motion.retarget.things import changes
        from surefoot.motion.robot_motion import kinematic
        from surefoot.verbs.model.retargeted import Made

        mapped = read_map(self.robot_map)
        if not things:
            found = retarget(person, humanoid(kinematic(robot), mapped), given, self.seed, watch)
            return {self.out: Made(balanced(found) if self.balance else found)}
        out: dict[Path, Made] = {}
        for k, change in enumerate([self._change, *changes(self.variants, self.seed)[1:]]):
            held = interact(person, robot, things, change, given, mapped, self.seed, watch)
            path = self.out if k == 0 else self.out.with_stem(f"{self.out.stem}-{k}")
            out[path] = Made(replace(held.plain, q=held.q, seconds=held.seconds), held, change)
        return out

    def _followed(self, first: "Made", watch: Watch) -> "Tracked | None":
        from surefoot.verbs.model.tracked import follow

        return follow(self.policy, first.log, first.found.robot.kin, self.seed, watch) if self.policy else None

    def _blocks(
        self, person: "Person", name: str, made: "dict[Path, Made]", facts: dict[str, Any], followed: "Tracked | None"
    ) -> list[Block]:
        from surefoot.verbs.model import retargeted

        scale, joints = made[self.out].found.targets.scale, len(facts["joints"])
        blocks: list[Block] = [
            Text(f"{self.out}: {name}, {joints} joints, {person.seconds:.2f} s, {person.rate:.4g} Hz"),
            *map(Note, person.notes),
            Text(
                f"legs are {scale:.2f} times as long as the person's; {facts['fps']:.0f} frames for each second of one core"
            ),
            retargeted.table(facts["metrics"], facts["plain"], facts.get("things", ())),
        ]
        if self.variants > 1:
            blocks.append(retargeted.table_of_variants(made))
        if followed:
            blocks.append(followed.table(str(self.policy)))
        return blocks

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

    def _next(self) -> str:
        if Path(self.robot).is_file():
            return f"surefoot new track {quote(self.robot)} --motion {quote(str(self.out))}"
        return f"surefoot motion {quote(str(self.out))} --robot {quote(self.robot)} --page {quote(str(self.out.with_suffix('.html')))}"
