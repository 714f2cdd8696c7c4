"""From people's recordings to robots' motions: how exact, how fast, how clean.

    python -m benchmarks.motion [--only roundtrip|speed|yaws|feet|things|spider|robust|others|body|feasible|track|drive|starts] [--quick] [--json] [--record]

Robots: our humanoid (23 joints), the same with waist and wrists of three joints (29 joints, as a Unitree G1 has), and a Booster T1 where
SUREFOOT_MODELS or ../shared/models has it. People: synthetic ones (motion/made_person.py), and recordings of CMU's database where
SUREFOOT_MOTIONS or ../shared/motions has them ("The data used in this project was obtained from mocap.cs.cmu.edu. The database was created
with funding from NSF EIA-0196217."). All but `track` runs on one thread; `track`, `drive` and `starts`
(tracking.py) take hours and run only if asked for.
"""

import os
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import mujoco
import numpy as np

from benchmarks import measure, spider, tracking
from benchmarks.measure import Row, row, skipped
from surefoot.motion import made_person
from surefoot.motion.person import Person, turned_about_vertical
from surefoot.motion.readers import read_person
from surefoot.motion.retarget.humanoid import Humanoid, humanoid
from surefoot.motion.retarget.interaction import interact
from surefoot.motion.retarget.inverse import person_of
from surefoot.motion.retarget.metrics import metrics
from surefoot.motion.retarget.retarget import Retargeted, retarget
from surefoot.motion.retarget.things import SAME, Change, Thing, box, step, wall
from surefoot.motion.retarget.touch import contact_metrics
from surefoot.motion.robot_motion import kinematic
from surefoot.robot import Robot
from surefoot.tasks.ready.humanoid_model import xml

SHARED = Path(__file__).parents[2] / "shared"
MODELS = Path(os.environ.get("SUREFOOT_MODELS", SHARED / "models"))
MOTIONS = Path(os.environ.get("SUREFOOT_MOTIONS", SHARED / "motions"))
T1 = "menagerie/booster_t1/scene.xml"
CLIPS = {"walk": "02_01", "run": "02_03", "dance": "05_03", "jump": "13_11", "carry": "69_69", "pick up": "115_01"}


def more_joints(spec: mujoco.MjSpec) -> None:
    """Three joints in the waist and in each wrist."""
    for name, axis, ends in (("waist_roll", [1, 0, 0], 0.52), ("waist_pitch", [0, 1, 0], 0.52)):
        spec.body("torso").add_joint(name=name, axis=axis, range=[-ends, ends], armature=0.01)
    for side in ("left", "right"):
        for name, axis in (("wrist_pitch", [0, 1, 0]), ("wrist_yaw", [1, 0, 0])):
            spec.body(f"{side}_hand").add_joint(name=f"{side}_{name}", axis=axis, range=[-1.6, 1.6], armature=0.003)
    for key in list(spec.keys):
        spec.delete(key)


@cache
def robots() -> dict[str, Humanoid]:
    ours = Robot.text(xml(), "humanoid")
    found = {"humanoid": ours, "29 joints": ours.edited(more_joints)}
    if (MODELS / T1).exists():
        found["t1"] = Robot.file(str(MODELS / T1))
    return {name: humanoid(kinematic(r)) for name, r in found.items()}


@cache
def people(quick: bool = False) -> dict[str, Person]:
    made = {"synthetic walk": made_person.walking(), "synthetic squat": made_person.squatting()}
    clips = {} if quick else {f"{k} (CMU {c})": MOTIONS / "cmu_bvh" / f"{c}.bvh" for k, c in CLIPS.items()}
    return made | {k: read_person(path) for k, path in clips.items() if path.exists()}


@cache
def done(robot: str, clip: str, quick: bool) -> Retargeted:
    return retarget(people(quick)[clip], robots()[robot])


def off(robot: Humanoid, a: np.ndarray, b: np.ndarray) -> float:
    """rad: RMSE over joints and frames."""
    places = list(robot.kin.layout.places)
    return float(np.sqrt(((a[:, places] - b[:, places]) ** 2).mean()))


def roundtrip(quick: bool) -> Iterable[Row]:
    """A robot's motion, made into a person with limbs 1.3 to 1.5 times as long, and back."""
    for name, robot in robots().items():
        errors = []
        for clip in people(quick):
            first = done(name, clip, quick)
            again = retarget(person_of(robot, first.targets.time, first.q), robot)
            errors.append(off(robot, first.q, again.q))
        yield row(
            f"{name}: joint RMSE over {len(errors)} motions",
            errors,
            "rad",
            at_most=0.05,
            note="largest is over the motions",
        )
        yield row(f"{name}: the worst motion", max(errors), "rad", at_most=0.05)


def speed(quick: bool) -> Iterable[Row]:
    for name, robot in robots().items():
        fps = [len(p) / retarget(p, robot).seconds for p in people(quick).values()]
        goal = 100.0 if name == "29 joints" else None
        yield row(
            f"{name}: frames for each second of one core, both passes, {len(fps)} motions", fps, "1/s", at_least=goal
        )


def yaws(quick: bool) -> Iterable[Row]:
    """The same person, turned by 20 angles: the joints must not notice."""
    turns = np.random.default_rng(0).uniform(-np.pi, np.pi, 4 if quick else 20)
    for name, robot in robots().items():
        for clip, p in list(people(quick).items())[:3]:
            short = Person(p.time[:30], p.names, p.parents, p.pos[:30], None if p.quat is None else p.quat[:30], p.rest)
            straight = retarget(short, robot)
            found = [
                off(robot, straight.q, retarget(turned_about_vertical(short, a), robot, seed=k).q)
                for k, a in enumerate(turns)
            ]
            yield row(
                f"{name}, {clip}: largest RMSE from the unturned motion, {len(found)} yaws",
                max(found),
                "rad",
                at_most=0.05,
            )


def feet(quick: bool) -> Iterable[Row]:
    for name in robots():
        ours = [metrics(done(name, clip, quick)) for clip in people(quick)]
        plain = [metrics(done(name, clip, quick), done(name, clip, quick).plain) for clip in people(quick)]
        ratio = [a["sliding"] / b["sliding"] for a, b in zip(ours, plain)]
        yield row(
            f"{name}: feet slide, of plain IK's {1e3 * np.median([b['sliding'] for b in plain]):.0f} mm/s",
            ratio,
            "share",
            at_most=0.2,
        )
        for key, what in (("floating", "standing soles off the floor"), ("sunk", "feet below the floor")):
            yield row(
                f"{name}: {what}, worst frame of the worst motion", 100 * max(a[key] for a in ours), "cm", at_most=1.0
            )
            yield row(f"{name}: the same, plain IK", 100 * max(b[key] for b in plain), "cm")
        yield row(f"{name}: bones turned from the person's", [np.degrees(a["direction"]) for a in ours], "deg")


def scenes(quick: bool) -> dict[str, tuple[Person, list[Thing], tuple[Change, ...]]]:
    """A synthetic person who carries a box, leans on a wall, steps up; and what the robot's things are like."""
    rate = 20.0 if quick else 30.0
    (carries, path), (leans, x), climbs = made_person.carrying(rate=rate), made_person.leaning(rate=rate), made_person.stepping(rate=rate)  # fmt: skip
    at, long, wide = made_person.STEP_AT
    found = {
        "box": (carries, [box(np.array([0.15, 0.17, 0.12]), path)], (SAME, Change(0.8), Change(1.2), Change(1.2, (0.05, 0.0, 0.05), 0.2), Change(0.8, (-0.05, 0.0, -0.05), -0.2))),
        "wall": (leans, [wall(x, 0.0, np.pi, len(leans))], (SAME, Change(1.0, (0.08, 0.0, 0.0)), Change(1.0, (-0.1, 0.0, 0.0)))),
        "step": (climbs, [step(at, 0.0, 0.0, (long, wide, 0.2), len(climbs))], (SAME, Change(0.6), Change(1.4), Change(1.2, (0.05, 0.05, 0.0)))),
    }  # fmt: skip
    return {k: (p, t, c[:1] if quick else c) for k, (p, t, c) in found.items()}


def things(quick: bool) -> Iterable[Row]:
    """Box, wall and step as the person's, for two robots, and changed, for one."""
    ours = Robot.text(xml(), "humanoid")
    for name, robot in (("humanoid", ours), ("29 joints", ours.edited(more_joints))):
        for kind, (person, seen, changes) in scenes(quick).items():
            for c in changes if name == "humanoid" else changes[:1]:
                shift = f", moved {', '.join(f'{100 * v:g}' for v in c.shift)} cm" if any(c.shift) else ""
                turn = f", turned {np.degrees(c.turn):.0f} deg" if c.turn else ""
                yield from _thing(f"{name}, {kind} x {c.size:g}{shift}{turn}", person, robot, seen, c)


def _thing(what: str, person: Person, robot: Robot, seen: list[Thing], change: Change) -> Iterable[Row]:
    found = interact(person, robot, seen, change)
    ours, plain = contact_metrics(found), contact_metrics(found, found.plain.plain)
    of = "steps_off" if seen[0].kind == "step" else "hands_off"
    limb = "soles to step" if seen[0].kind == "step" else "hands to it"
    goal = 0.3 if change is SAME and plain[of] > 0.01 else None  # plain IK of the same step stands on it
    yield row(f"{what}: {limb}, of plain IK's {100 * plain[of]:.1f} cm", ours[of] / plain[of], "share", at_most=goal)
    yield row(f"{what}: contacts kept within 2 cm (plain {100 * plain['contacts']:.0f} %)", 100 * ours["contacts"], "%")
    yield row(f"{what}: frames deeper than 1 cm (plain {100 * plain['inside']:.0f} %)", 100 * ours["inside"], "%", at_most=1.0)  # fmt: skip
    yield row(f"{what}: feet slide", 1e3 * ours["sliding"], "mm/s")
    yield row(f"{what}: fastest joint (plain {plain['fastest']:.1f})", ours["fastest"], "rad/s")
    yield row(f"{what}: frames for each second of one core", len(person) / found.seconds, "1/s", at_least=10.0)


def real(part: measure.Part) -> measure.Part:
    """A part that says where recordings are missing."""

    def rows(quick: bool) -> Iterable[Row]:
        if not (MOTIONS / "cmu_bvh").is_dir():
            yield skipped("recordings", f"none below {MOTIONS}: set SUREFOOT_MOTIONS; synthetic people only")
        yield from part(quick)

    return rows


if __name__ == "__main__":
    parts = {
        "roundtrip": real(roundtrip),
        "speed": real(speed),
        "yaws": real(yaws),
        "feet": real(feet),
        "things": things,
        "spider": spider.spider,
        "robust": spider.robust,
        "others": spider.others,
        "body": spider.body,
        "feasible": real(lambda quick: tracking.feasible(MOTIONS, quick)),
        "track": real(lambda quick: tracking.track(MOTIONS, quick)),
        "drive": tracking.drive,
        "starts": tracking.starts,
    }
    measure.main("motion", __doc__ or "", parts, later=("track", "drive", "starts"))
