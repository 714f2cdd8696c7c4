"""Dynamics-level retargeting: controls that physics follows, replayed open loop. Parts of `python -m benchmarks.motion`.

Two fingers in a plane lift, push and pivot a box; a hand of three fingers lifts and turns a can; a humanoid squats. All times are CPU time.
"""

import time
from collections.abc import Iterable

import numpy as np

from benchmarks.measure import Row, row
from surefoot import tasks
from surefoot.motion import made_gripper, made_person
from surefoot.motion.dynamic import Make, Plan, Reference, feasible, replayed
from surefoot.motion.dynamic_body import whole_body
from surefoot.motion.made_gripper import ThreeFingers
from surefoot.motion.made_hands import Hands, lift, pivot, push
from surefoot.motion.person import resampled
from surefoot.motion.retarget.humanoid import humanoid
from surefoot.motion.retarget.retarget import retarget
from surefoot.motion.robot_motion import kinematic
from surefoot.params import Params
from surefoot.robot import Robot
from surefoot.sim.simulate import make_world
from surefoot.tasks.ready.humanoid_model import xml

NOMINAL = np.array([[1.0, 0.0]])
HEAVY = 0.5  # kg


def off(make: Make, u: np.ndarray, ref: Reference, e: np.ndarray, places: int = 2) -> np.ndarray:
    """(m, T) cm: the object, or the base, from where it should be, replayed open loop in the worlds e."""
    q = replayed(make, u, ref.q[0], e)
    return 100 * np.linalg.norm(q[..., :places] - ref.q[:, :places], axis=2)


def planned(make: Make, ref: Reference, e: np.ndarray, seed: int, plan: Plan = Plan()) -> tuple[np.ndarray, float]:  # noqa: B008
    """Controls, and seconds of one core."""
    began = time.process_time()
    log = feasible(make, ref, e, plan, seed=seed)
    return log["control"], time.process_time() - began


def spider(quick: bool) -> Iterable[Row]:
    """The lift of 0.2 kg: annealed noise against fixed noise."""
    ref, seeds = lift(), range(1 if quick else 5)
    plain = off(Hands(), ref.u, ref, NOMINAL).max()
    yield row("lift: kinematic replay, largest error", plain, "cm", at_least=10.0)
    found: dict[str, list[float]] = {}
    for name, plan in (("annealed", Plan()), ("fixed noise", Plan(final=1.0)), ("annealed, virtual contacts", Plan(guide=0.05))):  # fmt: skip
        some = seeds if plan.guide == 0 else list(seeds)[:2]
        runs = [planned(Hands(), ref, NOMINAL, s, plan) for s in some]
        found[name] = [off(Hands(), u, ref, NOMINAL).max() for u, _ in runs]
        best = 2.0 if name == "annealed" else None
        yield row(f"lift, {name}: largest error, open loop", found[name], "cm", at_most=best)
        if name == "annealed":
            yield row("lift: seeds within 2 cm", sum(x <= 2.0 for x in found[name]), f"of {len(seeds)}", at_least=4.0)
            yield row("lift: time of one core for 2 s", [s for _, s in runs], "s", at_most=15.0)
    ratio = float(np.median(found["annealed"]) / np.median(found["fixed noise"]))
    yield row("lift: annealed over fixed noise", ratio, "ratio", at_most=0.7)


def robust(quick: bool) -> Iterable[Row]:
    """A heavier box, planned in one world and in the worst of two, replayed at frictions that it may meet."""
    ref, seeds, make = lift(), range(1 if quick else 3), Hands(mass=HEAVY)
    worlds = {k: np.array([[float(k), 0.0]]) for k in ("1", "0.6", "0.45")}
    for name, e in (("x 1", [[1.0, 0.0]]), ("the worst of x 1 and x 0.45", [[1.0, 0.0], [0.45, 0.0]])):
        plans = [planned(make, ref, np.array(e), s)[0] for s in seeds]
        for share, world in worlds.items():
            ends = [off(make, u, ref, world)[0, -1] for u in plans]
            goal = 2.0 if share == "0.45" and len(e) > 1 else None
            yield row(f"{HEAVY:g} kg, planned for {name}, friction x {share}: error at the end", ends, "cm", at_most=goal)  # fmt: skip


def others(quick: bool) -> Iterable[Row]:
    """Push and pivot of the two fingers, lift and turn of the three."""
    hand, one = ThreeFingers(), np.array([[1.0]])
    cases = {
        "push": (Hands(), push(), NOMINAL, 2), "pivot": (Hands(), pivot(), NOMINAL, 2),
        "three fingers lift a can": (hand, made_gripper.lift(), one, 3),
    }  # fmt: skip
    for name, (make, ref, e, places) in cases.items():
        yield row(f"{name}: kinematic replay, largest error", off(make, ref.u, ref, e, places).max(), "cm")
        runs = [planned(make, ref, e, s) for s in range(1 if quick else 3)]
        errors = [off(make, u, ref, e, places)[0] for u, _ in runs]
        yield row(f"{name}: largest error, open loop", [x.max() for x in errors], "cm")
        yield row(f"{name}: error at the end, open loop", [x[-1] for x in errors], "cm")
        yield row(f"{name}: time of one core for 2 s", [s for _, s in runs], "s")
    ref = made_gripper.turn()
    turned = lambda u: np.degrees(2 * np.arctan2(*replayed(hand, u, ref.q[0], one)[0, -1, [6, 3]]))  # noqa: E731
    asked = np.degrees(2 * np.arctan2(*ref.q[-1, [6, 3]]))
    yield row("three fingers turn a can: kinematic replay, angle at the end", turned(ref.u), "deg", note=f"asked: {asked:.0f} deg")  # fmt: skip
    plans = [planned(hand, ref, one, s)[0] for s in range(1 if quick else 3)]
    yield row("three fingers turn a can: off at the end, open loop", [abs(turned(u) - asked) for u in plans], "deg")


BODY = Plan(noise=0.1, samples=64, rounds=4, horizon=0.4, knot=0.1, apply=0.1, temperature=0.6)


def squat() -> tuple[Make, Reference]:
    """A person's squat of 1.5 s, on our humanoid with its floor and servos."""
    robot = Robot.text(xml(), "humanoid")
    person = resampled(made_person.squatting(seconds=1.5, deep=0.15), 50.0)
    log = retarget(person, humanoid(kinematic(robot))).log
    ready = tasks.track(robot, log).robot
    return lambda n: make_world(ready, Params(()), n, 4, 1), whole_body(ready, log, 0.02)


def body(quick: bool) -> Iterable[Row]:
    """A humanoid, whose reference has no forces: the base's place and the joints, replayed open loop."""
    make, ref = squat()
    none = np.zeros((1, 0))
    yield row("humanoid squats: kinematic replay, base off, largest", off(make, ref.u, ref, none, 3).max(), "cm")
    runs = [planned(make, ref, none, s, BODY) for s in range(1 if quick else 2)]
    paths = [replayed(make, u, ref.q[0], none)[0] for u, _ in runs]
    yield row("humanoid squats: base off, largest, open loop", [off(make, u, ref, none, 3).max() for u, _ in runs], "cm")  # fmt: skip
    yield row("humanoid squats: joint RMSE, open loop", [np.sqrt(((p - ref.q)[:, 7:] ** 2).mean()) for p in paths], "rad")  # fmt: skip
    yield row("humanoid squats: time of one core for 1.5 s", [s for _, s in runs], "s")
