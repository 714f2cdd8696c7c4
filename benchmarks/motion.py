"""From people's recordings to robots' motions: how exact, how fast, how clean.

    python -m benchmarks.motion [--only roundtrip|speed|yaws|feet|spider|robust|box] [--quick] [--json] [--record]

Robots: our humanoid (23 joints), the same with waist and wrists of three joints (29 joints, as a Unitree G1 has), and a Booster T1 where
SUREFOOT_MODELS or ../shared/models has it. People: synthetic ones (motion/made_person.py), and recordings of CMU's database where
SUREFOOT_MOTIONS or ../shared/motions has them ("The data used in this project was obtained from mocap.cs.cmu.edu. The database was created
with funding from NSF EIA-0196217."). Everything runs on one thread.
"""

import os
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import mujoco
import numpy as np

from benchmarks import measure
from benchmarks.measure import Row, row, skipped
from surefoot.motion import made_person
from surefoot.motion.person import Person, turned_about_vertical
from surefoot.motion.readers import read_person
from surefoot.motion.retarget.humanoid import Humanoid, humanoid
from surefoot.motion.retarget.inverse import person_of
from surefoot.motion.retarget.metrics import metrics
from surefoot.motion.retarget.retarget import Retargeted, retarget
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
        yield row(f"{name}: frames a second, both passes, {len(fps)} motions", fps, "1/s", at_least=goal)


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


def real(part: measure.Part) -> measure.Part:
    """A part that says where recordings are missing."""

    def rows(quick: bool) -> Iterable[Row]:
        if not (MOTIONS / "cmu_bvh").is_dir():
            yield skipped("recordings", f"none below {MOTIONS}: set SUREFOOT_MOTIONS; synthetic people only")
        yield from part(quick)

    return rows


if __name__ == "__main__":
    parts = {"roundtrip": real(roundtrip), "speed": real(speed), "yaws": real(yaws), "feet": real(feet)}
    measure.main("motion", __doc__ or "", parts)
