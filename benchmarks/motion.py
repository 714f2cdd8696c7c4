"""From people's recordings to robots' motions: how exact, how fast, how clean.

    python -m benchmarks.motion [--only roundtrip|speed|yaws|feet|spider|robust|box] [--quick] [--json] [--record]

Robots: our humanoid (23 joints), the same with waist and wrists of three joints (29 joints, as a Unitree G1 has), and a Booster T1 where
SUREFOOT_MODELS or ../shared/models has it. People: synthetic ones (motion/made_person.py), and recordings of CMU's database where
SUREFOOT_MOTIONS or ../shared/motions has them ("The data used in this project was obtained from mocap.cs.cmu.edu. The database was created
with funding from NSF EIA-0196217."). Everything runs on one thread.
"""

import os
import time
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import mujoco
import numpy as np

from benchmarks import measure
from benchmarks.measure import Row, row, skipped
from surefoot.log import Log
from surefoot.motion import made_person
from surefoot.motion.contacts import leg_length
from surefoot.motion.dynamic import Plan, Reference, feasible, replayed
from surefoot.motion.landmarks import landmarks
from surefoot.motion.made_hands import Hands, lift, pivot, push
from surefoot.motion.person import Person, turned_about_vertical
from surefoot.motion.readers import read_person
from surefoot.motion.retarget.humanoid import Humanoid, humanoid
from surefoot.motion.retarget.interaction import Box, distances, interact, with_box
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


def _errors(log: Log, ref: Reference, e: np.ndarray) -> np.ndarray:
    """(m, T) m: the box from where it should be, replayed open loop in the worlds e."""
    q = replayed(Hands(), log["control"], ref.q[0], e)
    return np.linalg.norm(q[..., :2] - ref.q[:, :2], axis=2)


def _one(ref: Reference, e: np.ndarray, seed: int, **how: float) -> tuple[Log, float]:
    began = time.process_time()
    log = feasible(Hands(), ref, e, Plan(**how), seed=seed)
    return log, time.process_time() - began


def spider(quick: bool) -> Iterable[Row]:
    """Two fingers and a box: controls that lift, push and pivot it, replayed open loop."""
    nominal, seeds = np.array([[1.0, 0.0]]), range(1 if quick else 5)
    ref = lift()
    plain = Log(np.arange(1.0, len(ref.u) + 1), {"control": ref.u})
    yield row("lift: kinematic replay, largest error", 100 * _errors(plain, ref, nominal).max(), "cm", at_least=10.0)
    found: dict[str, list[float]] = {}
    for name, how in (
        ("annealed", {}),
        ("fixed noise", {"final": 1.0}),
        ("annealed, virtual contacts", {"guide": 0.05}),
    ):
        runs = [_one(ref, nominal, s, **how) for s in seeds]
        found[name] = [100 * _errors(log, ref, nominal).max() for log, _ in runs]
        yield row(
            f"lift, {name}: largest error, open loop", found[name], "cm", at_most=2.0 if name == "annealed" else None
        )
        if name == "annealed":
            yield row("lift: seeds within 2 cm", sum(x <= 2.0 for x in found[name]), f"of {len(seeds)}", at_least=4.0)
            yield row("lift: time of one core for 2 s", [s for _, s in runs], "s", at_most=15.0)
    yield row(
        "lift: annealed over fixed noise",
        float(np.median(found["annealed"]) / np.median(found["fixed noise"])),
        "ratio",
        at_most=0.7,
    )
    for name, other in (("push", push()), ("pivot", pivot())):
        plain = Log(np.arange(1.0, len(other.u) + 1), {"control": other.u})
        yield row(f"{name}: kinematic replay, largest error", 100 * _errors(plain, other, nominal).max(), "cm")
        errors = [100 * _errors(_one(other, nominal, s)[0], other, nominal) for s in list(seeds)[:2]]
        yield row(f"{name}: largest error, open loop", [x.max() for x in errors], "cm")
        yield row(f"{name}: error at the end, open loop", [x[0, -1] for x in errors], "cm")


def robust(quick: bool) -> Iterable[Row]:
    """The lift, planned in one world and in the worst of two, replayed at frictions that it may meet."""
    ref, seeds = lift(), range(1 if quick else 3)
    worlds = {k: [[float(k), 0.0]] for k in ("1", "0.6", "0.45", "0.3")}
    for name, e in (("nominal", [[1.0, 0.0]]), ("worst of x 1 and x 0.45", [[1.0, 0.0], [0.45, 0.0]])):
        logs = [_one(ref, np.array(e), s)[0] for s in seeds]
        for share, world in worlds.items():
            ends = [100 * _errors(log, ref, np.array(world))[0, -1] for log in logs]
            goal = 2.0 if share == "0.45" and len(e) > 1 else None
            yield row(f"planned for {name}, friction x {share}: error at the end", ends, "cm", at_most=goal)


def box(quick: bool) -> Iterable[Row]:
    """A synthetic person picks up a box and carries it, for two robots and for boxes of other sizes than the person's."""
    person, path = made_person.carrying(rate=20.0 if quick else 30.0)
    marks, half = landmarks(person.names), np.array([0.15, 0.17, 0.12])
    held = np.arange(len(person)) / len(person) > 0.4
    ours = Robot.text(xml(), "humanoid")
    for name, robot in (("humanoid", ours), ("29 joints", ours.edited(more_joints))):
        scale = humanoid(kinematic(robot)).leg / leg_length(person, marks)
        for size in (1.0,) if quick else (0.8, 1.0, 1.2):
            plain = retarget(person, humanoid(kinematic(with_box(robot, size * scale * half))))
            found = interact(person, marks, Box(half, path), plain, size)
            near = {k: distances(found.robot, q, found.box) for k, q in (("mesh", found.q), ("plain", plain.plain))}
            off = {k: float(np.abs(x[0][held]).mean()) for k, x in near.items()}
            what = f"{name}, box x {size:g}"
            goal = 0.3 if size == 1.0 else None
            yield row(
                f"{what}: hand to box, of plain IK's {100 * off['plain']:.1f} cm",
                off["mesh"] / off["plain"],
                "share",
                at_most=goal,
            )
            yield row(
                f"{what}: frames deeper than 1 cm", 100 * float((near["mesh"][1] < -0.01).mean()), "%", at_most=1.0
            )
            yield row(f"{what}: the same, plain IK", 100 * float((near["plain"][1] < -0.01).mean()), "%")
            yield row(f"{what}: frames for each second of one core", len(person) / found.seconds, "1/s", at_least=10.0)
            yield row(f"{what}: feet slide", 1e3 * metrics(plain, found.q)["sliding"], "mm/s")


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
        "spider": spider,
        "robust": robust,
        "box": box,
    }
    measure.main("motion", __doc__ or "", parts)
