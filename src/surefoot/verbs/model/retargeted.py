"""What `surefoot retarget` makes: things from its flags, motions with their metrics, tables and films."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from surefoot import files
from surefoot.errors import SurefootError
from surefoot.log import Log
from surefoot.motion.person import Person
from surefoot.motion.retarget.metrics import metrics
from surefoot.motion.retarget.retarget import Retargeted
from surefoot.motion.retarget.things import WALL, Change, Thing, box, step, wall
from surefoot.motion.retarget.touch import contact_metrics
from surefoot.report import Column, Picture, Table

if TYPE_CHECKING:
    from surefoot.motion.retarget.interaction import Interacted
    from surefoot.verbs.model.tracked import Tracked

ROWS = (
    ("sliding", "feet that stand slide at", "mm/s", 1e3), ("floating", "standing soles off the floor, at most", "mm", 1e3),
    ("sunk", "feet below the floor, at most", "mm", 1e3), ("direction", "bones turned from the person's, mean", "deg", 57.29578),
    ("fastest", "fastest joint", "rad/s", 1.0), ("limit", "frames with a joint at its limit", "%", 100.0),
    ("outside", "frames that press outside of the feet", "%", 100.0),
)  # fmt: skip
WITH_THINGS = (
    ("hands_off", "hands from what the person's touch, mean", "mm", 1e3), ("steps_off", "soles from the step they stand on, at most", "mm", 1e3),
    ("contacts", "contacts kept, within 2 cm", "%", 100.0), ("deepest", "deepest shape inside a thing", "mm", 1e3),
    ("inside", "frames deeper than 1 cm", "%", 100.0),
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Made:
    """A motion that was made, with or without things."""

    found: Retargeted
    held: "Interacted | None" = None
    change: Change = Change()

    @cached_property
    def log(self) -> Log:
        return self.found.log if self.held is None else with_things(self.found.log, self.held.things)

    @cached_property
    def ours(self) -> dict[str, float]:
        return metrics(self.found) if self.held is None else contact_metrics(self.held)

    def facts(self) -> dict[str, Any]:
        out: dict[str, Any] = {"metrics": self.ours}
        if self.held is None:
            return out | {"plain": metrics(self.found, self.found.plain)}
        about = [{"kind": x.kind, "half": x.half.tolist()} for x in self.held.things]
        change = {"size": self.change.size, "shift": list(self.change.shift), "turn": self.change.turn}
        plain = contact_metrics(self.held, self.found.plain)
        return out | {"plain": plain, "things": about, "change": change, "relaxed": self.held.relaxed}


def with_things(log: Log, things: Sequence[Thing]) -> Log:
    """A box's path as columns; all things as constants, walls and steps with their places."""
    columns, constants = dict(log.columns), dict[str, Any]()
    for x in things:
        if x.kind == "box":
            columns |= {"box_pos": x.pos, "box_quat": x.quat}
            constants["box_half"] = x.half.tolist()
    fixed = [x for x in things if x.kind != "box"]
    if fixed:
        constants["things"] = [
            {"kind": x.kind, "half": x.half.tolist(), "pos": x.pos[0].tolist(), "quat": x.quat[0].tolist()}
            for x in fixed
        ]
    return Log(log.time, columns, log.units | ({"box_pos": "m"} if "box_pos" in columns else {}), log.meta | {"constants": constants})  # fmt: skip


def things_of(box_file: Path | None, at: tuple[float, float, float] | None, steps: tuple[float, ...], person: Person, start: float, mirror: bool) -> list[Thing]:  # fmt: skip
    """Of the flags --box, --wall and --step, for the frames of a person whose recording was cut at `start` s."""
    n, out = len(person), list[Thing]()
    if box_file is not None:
        out.append(read_box(box_file, person.time + start))
    if at is not None:
        out.append(wall(at[0], at[1], np.radians(at[2]), n))
    if len(steps) % 6:
        raise SurefootError(f"--step: found {len(steps)} numbers, expected six for each step: x, y, direction [deg], length, width, height")  # fmt: skip
    for k in range(0, len(steps), 6):
        x, y, deg, *size = steps[k : k + 6]
        out.append(step(x, y, np.radians(deg), (size[0], size[1], size[2]), n))
    return [x.mirrored() for x in out] if mirror else out


def read_box(path: Path, time: np.ndarray) -> Thing:
    """The box of a JSON file, at these times [s]."""
    from surefoot.motion.person import between_rows
    from surefoot.rotation import slerp, unit

    found = files.read_json(path)
    try:
        half, rows = np.array(found["half"], float), np.array(found["path"], float)
    except (KeyError, TypeError, ValueError):
        raise SurefootError(f'{path}: expected {{"half": [x, y, z], "path": [[t, x, y, z], ...]}}') from None
    good = half.shape == (3,) and (half > 0).all() and rows.ndim == 2 and rows.shape[1:] in ((4,), (8,)) and len(rows)
    if not good or not np.isfinite(rows).all() or not (np.diff(rows[:, 0]) > 0).all():
        raise SurefootError(f"{path}: found half {half.shape} and path {rows.shape}, expected 3 numbers above 0, and rows of t, x, y, z (and w, x, y, z) whose times increase")  # fmt: skip
    at = np.stack([np.interp(time, rows[:, 0], c) for c in rows[:, 1:4].T], 1)
    if rows.shape[1] == 4:
        return box(half, at)
    if (np.linalg.norm(rows[:, 4:], axis=1) < 1e-6).any():
        raise SurefootError(f"{path}: found an attitude of length 0, expected quaternions w, x, y, z")
    quat = unit(rows[:, 4:])
    if len(rows) == 1:
        return box(half, at, np.tile(quat, (len(time), 1)))
    i, s = between_rows(rows[:, 0], time)
    return box(half, at, slerp(quat[i], quat[i + 1], s))


def table(ours: Mapping[str, float], plain: Mapping[str, float], things: Sequence[Mapping[str, Any]] = ()) -> Table:
    """`things`: the facts about each; hands are compared where they may touch one, soles where there is a step."""
    kinds = {x["kind"] for x in things}
    left_out = ("hands_off" if kinds <= {"step"} else "", "" if "step" in kinds else "steps_off")
    chosen = [r for r in ROWS + (WITH_THINGS if things else ()) if r[0] not in left_out]
    rows = [[f"{what} [{unit}]", size * plain[key], size * ours[key]] for key, what, unit, size in chosen]
    return Table.of(["", Column("plain IK", form=".3g"), Column("retargeted", form=".3g")], rows)


def table_of_variants(made: Mapping[Path, Made]) -> Table:
    """A row for each motion: how its thing differs, and what came of it."""
    names = (("size", "", ".2f"), ("moved", "cm", ".1f"), ("turned", "deg", ".0f"), ("hands off", "mm", ".3g"), ("contacts", "%", ".3g"), ("deepest", "mm", ".3g"), ("slide", "mm/s", ".3g"), ("fastest", "rad/s", ".3g"))  # fmt: skip
    rows = []
    for path, m in made.items():
        x, o = m.change, m.ours
        change = (x.size, 100 * float(np.linalg.norm(x.shift)), float(np.degrees(x.turn)))
        rows.append([path.name, *change, 1e3 * o["hands_off"], 100 * o["contacts"], 1e3 * o["deepest"], 1e3 * o["sliding"], o["fastest"]])  # fmt: skip
    return Table.of(["file", *(Column(*n) for n in names)], rows, "variants")


def round_trip(found: Retargeted) -> float:
    """rad: RMSE of joints that come back when the robot's motion is made into a person's with other limbs, and retargeted."""
    from surefoot.motion.retarget.inverse import person_of
    from surefoot.motion.retarget.retarget import retarget

    again = retarget(person_of(found.robot, found.targets.time, found.q), found.robot, ground=None)
    places = list(found.robot.kin.layout.places)
    return float(np.sqrt(((again.q - found.q)[:, places] ** 2).mean()))


def film_of(person: Person, things: Sequence[Thing], made: Made, followed: "Tracked | None", title: str) -> Picture:
    """Person, reference and robot side by side; without a policy plain inverse kinematics is in the place of the reference."""
    from surefoot.motion.figure import Panel, bones_of, film
    from surefoot.motion.landmarks import landmarks

    marks, found = landmarks(person.names), made.found
    centre = person.pos[:, marks["pelvis"], :2] if "pelvis" in marks else person.pos[:, 0, :2]
    shown = Panel("person", person.pos, bones_of(person.parents), centre, seen(things))
    kin, own = found.robot.kin, seen(made.held.things) if made.held else ()
    last = kin.panel(found.log, "retargeted")
    if followed is None:
        before = kin.panel(kin.log(found.targets.time, found.plain), "plain inverse kinematics")
        panels = [shown, replace(before, boxes=own), replace(last, boxes=own)]
        return Picture(film(panels, person.rate), "svg+xml", f"{title}: person, plain inverse kinematics, robot")
    panels = [shown, replace(last, title="reference", boxes=own), replace(followed.panel, boxes=own)]
    return Picture(film(panels, person.rate), "svg+xml", f"{title}: person, reference, robot with its policy")


def seen(things: Sequence[Thing]) -> tuple[np.ndarray, ...]:
    """Corners of things for a film: of a wall a strip as wide and high as a person."""
    out = []
    for x in things:
        if x.kind == "wall":
            share = x.half / WALL * np.array([1.0, 0.4 / WALL[1], 0.85 / WALL[2]])
            low = replace(x, half=share * WALL)
            x = replace(low, pos=x.pos - [0, 0, x.half[2] - low.half[2]])
        out.append(x.corners())
    return tuple(out)
