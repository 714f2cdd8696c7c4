"""A task file for a robot, as Python text: the builder's call with all that was read from the model written out, each with
a comment that says where it came from. What the model does not tell stands in a list of its own, with what was assumed.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import mujoco
import numpy as np

from surefoot.errors import SurefootError
from surefoot.motion.read import read_motion
from surefoot.robot import Robot
from surefoot.sim.anatomy.study import Anatomy, study
from surefoot.sim.model import edits
from surefoot.sim.model.accuracy import Chosen, choose
from surefoot.sim.model.edits import Timing
from surefoot.sim.model.load import load_robot
from surefoot.tasks.build import blank, feasible, hover, legged, reach, text, track, velocity
from surefoot.tasks.build.ground import FLAT

ASSUMED = {
    "floor": "a plane at z = 0 is added",
    "imu": "one is added in the base's origin",
    "mirror": "left-right symmetry is not used",
    "limit": "assumed: twice the torque that holds the weight it carries; give your drives' peak torques",
    "armature": "assumed: 1.5e-4 kg m^2 for each N m of the limit; give your drives' rotor inertia",
    "kp": "kp = armature (2 pi 10 Hz)^2, or more where a leg needs it to stand, damping ratio 2: give your servos' gains",
}
FITS = {"legged": ("velocity", "track"), "arm": ("reach",), "multirotor": ("hover",)}


@dataclass(frozen=True)
class Written:
    """A task file, and what a person should know about it."""

    text: str
    about: str
    """the robot in a few words"""
    facts: Mapping[str, Any]
    changes: tuple[str, ...] = ()
    """what training changes in the model, in sentences"""
    missing: tuple[str, ...] = ()
    """what the model does not say, and what is assumed"""
    notes: tuple[str, ...] = ()
    """what a person should look at"""


@dataclass(frozen=True)
class MotionFile:
    """A motion for the robot to follow, or several."""

    paths: tuple[Path, ...]
    rate: float | None = None
    """rows a second, where the file has no clock"""


def write(kind: str, robot: Robot, out: Path, motion: MotionFile | None = None) -> Written:
    """The task file of a kind for a robot; paths in it start at the folder of `out`."""
    if kind not in (*KINDS, "track"):
        raise SurefootError(f"kind: expected {', '.join((*KINDS, 'track'))}, found {kind}")
    if (kind == "track") != (motion is not None):
        found = (
            "found none: give --motion FILE" if motion is None else f"found {motion.paths[0]}, expected none for {kind}"
        )
        raise SurefootError(f"motion: {found}")
    kinds = kinds_of(robot) if kind in NEEDS else []
    if kind in NEEDS and kind not in kinds:
        others = {"reach": "if it is an arm, it fits: surefoot new reach", "blank": "any robot: surefoot new blank"}
        better = "".join(
            f"; {others.get(k, f'it fits: surefoot new {k}')}" for k in dict.fromkeys((*kinds[:1], "blank"))
        )
        raise SurefootError(f"robot {robot.name}: {kind}: {NEEDS[kind]}; the model has none{better}")
    written = _track(robot, out, motion) if motion is not None else KINDS[kind](robot, out)
    mended = tuple(w for w in load_robot(robot).warnings if w.startswith(robot.path))
    return replace(written, notes=(*mended, *written.notes))


def kinds_of(robot: Robot) -> list[str]:
    """Kinds of task that a model fits: as it is, and with its base set free."""
    spec = load_robot(robot).spec
    edits.name_parts(spec)
    found = [*FITS.get(study(spec.compile()).kind, ())]
    if edits.free_base(spec):
        with suppress(ValueError):  # a base without mass cannot be set free
            found += FITS.get(study(spec.compile()).kind, ())
    return found


NEEDS = {
    "velocity": "expected chains of two joints or more that end at the ground, on a base that can move",
    "track": "expected chains of two joints or more that end at the ground, on a base that can move",
    "reach": "expected a base that is bolted down and two joints or more",
    "hover": "expected actuators at sites of a free body that can lift it, such as "
    '<motor site="rotor1" gear="0 0 1 0 0 0.01"/> in MJCF (a URDF has no actuators)',
}


def _velocity(robot: Robot, out: Path) -> Written:
    legs, a = legged.read_legged(robot)
    change = lambda spec, timing: legged.changes(spec, legs, timing, FLAT)  # noqa: E731
    body = legged.Body(legged.prepared(robot, legs, Timing(), FLAT), legs)
    chosen, said = _stepping(robot, change, body.q, body.u)
    task = velocity.velocity(robot, legs, timing=chosen.timing)
    command, stride = velocity.usual(legs)
    lines = [
        *text.head(robot, out, "velocity", "follows a commanded velocity (vx, vy, yaw rate)", (*text.BUILT, "from surefoot.tasks import Foot, Joint, Legged, Timing")),
        *text.legs(legs, a),
        *text.ranges(task),
        "def task() -> Task:",
        "    return tasks.velocity(",
        "        ROBOT,",
        "        LEGS,",
        f"        command={command},  # largest vx [m/s], vy [m/s] and yaw rate [rad/s], by the length of the legs",
        f"        stride={stride},  # Hz, and m that feet are lifted, by the length of the legs",
        f"        timing={text.timing(chosen)}",
        "        ranges=RANGES,",
        "    )",
    ]  # fmt: skip
    return _written(lines, a, said)


def _track(robot: Robot, out: Path, file: MotionFile) -> Written:
    every, a = legged.read_legged(robot, "free")
    motions = [read_motion(path, (*every.joints, *every.held), file.rate) for path in file.paths]
    legs = track.moved(every, motions)
    bodies = track.tracked(robot, legs)
    change = lambda spec, timing: track.ready(spec, legs, timing, bodies)  # noqa: E731
    body = legged.Body(track.prepared(robot, legs, Timing(), bodies), legs)
    chosen, said = _stepping(robot, change, body.q, body.u)
    task = track.track(robot, motions, legs, bodies, chosen.timing)
    paths = [os.path.relpath(path, out.absolute().parent) for path in file.paths]
    rate = f", rate={file.rate:g}" if file.rate else ""
    imports = ("from surefoot.motion.read import read_motion", "from surefoot.tasks import Foot, Joint, Legged, Timing")
    lines = [
        *text.head(
            robot,
            out,
            "track",
            "follows a reference motion",
            (*text.BUILT[:1], imports[0], *text.BUILT[1:], imports[1]),
        ),
        *text.legs(legs, a),
        f"# the motion in this robot's joints: {task.clip.about if task.clip else ''}",
        *text.motions(paths, f"{'(*JOINTS, *HELD)' if legs.held else 'tuple(JOINTS)'}{rate}, beside=__file__"),
        "# bodies that are compared with the motion's: the base, and outwards each that is not close to the one before it",
        f"BODIES = ({', '.join(map(text.quoted, bodies))},)",
        *text.ranges(task),
        "def task() -> Task:",
        "    return tasks.track(",
        "        ROBOT,",
        "        MOTION,",
        "        LEGS,",
        "        bodies=BODIES,",
        f"        timing={text.timing(chosen)}",
        "        ranges=RANGES,",
        "    )",
    ]
    found = _written(lines, a, said)
    checks = [
        w
        for m in motions
        for w in (*m.meta["notes"], *feasible.doubts(body, track.reference(body, m, chosen.timing.period)))
    ]
    held = f"{len(legs.held)} joints held; " if legs.held else ""
    about = (
        f"{a.mass:.3g} kg; {len(legs.joints)} joints follow the motion; {held}{len(bodies)} bodies are compared with it"
    )
    return replace(found, about=about, notes=(*found.notes, *(f"motion: {words}" for words in checks)))


def _reach(robot: Robot, out: Path) -> Written:
    arm, a = reach.read_arm(robot)
    bolted = reach.Bolted(reach.prepared(robot, arm, Timing()), arm)
    change = lambda spec, timing: reach.changes(spec, arm, timing)  # noqa: E731
    chosen, said = _stepping(robot, change, bolted.q, bolted.u)
    task = reach.reach(robot, arm, timing=chosen.timing)
    tip = a.arm.source if a.arm else ""
    lines = [
        *text.head(
            robot,
            out,
            "reach",
            "brings its end effector to a commanded place",
            (*text.BUILT, "from surefoot.tasks import Arm, Joint, Timing"),
        ),
        *text.joints("JOINTS", arm.joints, a),
        *(text.joints("HELD", arm.held, a) if arm.held else ()),
        "ARM = Arm(",
        "    joints=JOINTS,",
        f"    body={text.quoted(arm.body)},  # carries the end effector",
        f"    point={arm.point},  # m, the end effector in the body's frame: {tip}",
        *(["    held=HELD,"] if arm.held else []),
        ")",
        *text.ranges(task),
        "def task() -> Task:",
        "    return tasks.reach(",
        "        ROBOT,",
        "        ARM,",
        "        pose=False,  # True: command a place and an attitude",
        f"        timing={text.timing(chosen)}",
        "        ranges=RANGES,",
        f"        tolerance={task.tolerance:g},  # m, mean distance in the last second that counts as success",
        "    )",
    ]
    return _written(lines, a, said)


def _hover(robot: Robot, out: Path) -> Written:
    flyer, a = hover.read_flyer(robot)
    thrown = hover.Thrown(hover.prepared(robot, Timing()), flyer)
    u, spread = thrown.control(thrown.hover), thrown.control(0.2 * thrown.scale)
    chosen, said = _stepping(robot, hover.changes, thrown.model.qpos0, u, spread)
    task = hover.hover(robot, flyer, timing=chosen.timing)
    lines = [
        *text.head(robot, out, "hover", "is thrown, comes to rest at the goal and stays there", (*text.BUILT, "from surefoot.tasks import Flyer, Rotor, Timing")),
        "# force [N] and torque about the centre of mass [N m] of one unit of control, in the base's frame; range, hover control; lag [s]",
        "ROTORS = (",
        *(f"    Rotor({text.quoted(r.actuator)}, {r.force}, {r.torque}, {text.end(r.low)}, {text.end(r.high)}, {r.hover:.8g}, {r.time_constant:g}),  # {r.source}" for r in flyer.rotors),
        ")",
        f"FLYER = Flyer(base={text.quoted(flyer.base)}, rotors=ROTORS)  # {a.sources['base']}; {a.mass:.4g} kg",
        *text.ranges(task),
        "def task() -> Task:",
        "    return tasks.hover(",
        "        ROBOT,",
        "        FLYER,",
        f"        timing={text.timing(chosen)}",
        "        ranges=RANGES,",
        "    )",
    ]  # fmt: skip
    return _written(lines, a, said)


def _blank(robot: Robot, out: Path) -> Written:
    b = blank.read_blank(robot)
    head = text.head(robot, out, "blank", "does what you write here: look for FILL IN", blank.imports(b))
    lacks = [f"range of {c.actuator}: {c.source}" for c in b.controls if c.assumed]
    lacks += [f"no action moves {said}" for said in b.left_out]
    about = f"{b.mass:.3g} kg; {len(b.joints)} joints; {len(b.controls)} actuators; reward, end and success are yours to fill in"
    facts = {"mass": b.mass, "joints": len(b.joints), "feet": []}
    changes = (f"{len(b.servos)} servos added",) if b.servos else ()
    if b.servos:
        lacks.append("actuators: none; a position servo is added to each joint: give your servos' gains and limits")
    return Written(text.joined([*head, *blank.lines(b, robot.name)]), about, facts, changes, tuple(lacks))


def _written(lines: list[str], a: Anatomy, changes: tuple[str, ...]) -> Written:
    facts = {"mass": a.mass, "joints": len(a.drives), "feet": [f.name for f in a.feet]}
    return Written(text.joined(lines), _words(a), facts, changes, tuple(missing(a)), tuple(a.doubts))


def _words(a: Anatomy) -> str:
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


Change = Callable[[mujoco.MjSpec, Timing], list[str]]


def _stepping(
    robot: Robot, change: Change, q: np.ndarray, u: np.ndarray, spread: np.ndarray | float = 0.3
) -> tuple[Chosen, tuple[str, ...]]:
    """The coarsest accurate timing of a robot that is ready for training, and what was changed for that."""
    spec, own = load_robot(robot).spec, load_robot(robot).model.opt.timestep
    change(spec, Timing())
    spec.option.timestep = own
    chosen = choose(spec, q, u, spread)
    return chosen, tuple(change(load_robot(robot).spec, chosen.timing))


KINDS: Mapping[str, Callable[[Robot, Path], Written]] = {
    "velocity": _velocity,
    "reach": _reach,
    "hover": _hover,
    "blank": _blank,
}


def missing(a: Anatomy) -> Iterable[str]:
    """What the model does not tell, and what is done about it."""
    for what, words in a.missing.items():
        if what == "floor" and not a.legs:
            continue  # arms and multirotors touch nothing
        yield f"{what}: {words}" + (f"; {ASSUMED[what]}" if what in ASSUMED else "")
