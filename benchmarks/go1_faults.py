"""The doctor on a policy that others trained: faults planted between the Go1 policy of MuJoCo Playground and its robot.

The log has what a robot's driver writes: joints, base and command, and no sensor in the frame of the IMU, in which three of the
policy's terms are. So those terms have to be computed from the base's.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from benchmarks.faults import Planted, Wired, deployed, picked, term
from benchmarks.measure import Row, row, said, skipped
from benchmarks.stranger import MODEL, POLICY, client
from surefoot.contract import Contract
from surefoot.doctor import Diagnosis, diagnose
from surefoot.fault import DEGREES, JOINTS, Fault, Late, Order, Times, swapped
from surefoot.log import Log
from surefoot.task import Task

SEEDS, SECONDS = range(5), 10.0
LEGS, EACH = 4, 3  # FR FL RR RL, and hip thigh calf of each
LOGGED = ("action", "control", "command", "joint_pos", "joint_vel", "base_pos", "base_quat", "base_lin_vel", "base_ang_vel")  # fmt: skip


def pair(rng: np.random.Generator) -> tuple[int, int]:
    """The same joint of a left and a right leg."""
    leg, k = int(picked(rng, (0, 2))), int(rng.integers(EACH))
    return leg * EACH + k, (leg + 1) * EACH + k


def joint_swap(c: Contract, rng: np.random.Generator) -> Fault:
    return Fault("order", "", (Order(JOINTS, swapped(LEGS * EACH, *pair(rng))),))


def joint_sign(c: Contract, rng: np.random.Generator) -> Fault:
    return Fault("sign", "", (Times(JOINTS, (int(rng.integers(LEGS * EACH)),)),))


def gravity_up(c: Contract, rng: np.random.Generator) -> Fault:
    return Fault("frame", "", (Times(("projected_gravity",)),))


def speed_scale(c: Contract, rng: np.random.Generator) -> Fault:
    """Scales that other frameworks use: 0.05 of joint_vel, 0.25 of base_ang_vel, 2 of base_lin_vel."""
    name, by = picked(rng, (("joint_vel", 0.05), ("base_ang_vel", 0.25), ("base_lin_vel", 2.0)))
    return Fault("scale", "", (Times((name,), by=by),))


def degrees(c: Contract, rng: np.random.Generator) -> Fault:
    return Fault("unit", "", (Times((picked(rng, ("base_ang_vel", "joint_pos")),), by=DEGREES),))


def stale(c: Contract, rng: np.random.Generator) -> Fault:
    return Fault("delay", "", (Late(int(rng.integers(1, 4))),))


def action_scale(c: Contract, rng: np.random.Generator) -> Fault:
    return Fault("scale", "", (Times(("action",), by=float(picked(rng, (0.5, 0.6, 0.7, 1.4)))),))


def action_swap(c: Contract | Task, rng: np.random.Generator, column: str = "action") -> Fault:
    return Fault("order", "", (Order((column,), swapped(LEGS * EACH, *pair(rng))),))


def weak_gains(task: Task, rng: np.random.Generator) -> Task:
    """A robot whose servos are 0.6 to 0.75 times as stiff."""
    by = float(rng.uniform(0.6, 0.75))

    def edit(by: float, spec: Any) -> None:
        for a in spec.actuators:
            a.gainprm[0], a.biasprm[1] = by * a.gainprm[0], by * a.biasprm[1]

    return replace(task, robot=task.robot.edited(partial(edit, by)))


GO1 = {
    "joint swap": Planted("order", joint_swap),
    "joint sign": Planted("sign", joint_sign),
    "gravity up": Planted("frame", gravity_up),
    "observation scale": Planted("observation scale", speed_scale),
    "unit": Planted("unit", degrees),
    "stale observation": Planted("stale", stale),
    "action scale": Planted("action scale", action_scale),
    "action order": Planted("action order", action_swap),
    "wiring": Planted("wiring", machine=term(lambda t, rng: Wired(action_swap(t, rng, "control")))),
    "latency": Planted("latency", ingredients={"action_latency": (0.3, 0.6)}),
    "kp x 0.6 to 0.75": Planted("gain", machine=weak_gains),
    "none": Planted(""),
}


def shortened(log: Log) -> Log:
    return Log(log.time, {k: log.columns[k] for k in LOGGED}, meta=log.meta)


def examined(who: Any, name: str, seed: int) -> Diagnosis:
    log = deployed(who.task, who.policy, GO1[name], seed, SECONDS)
    return diagnose(who.policy, who.task, shortened(log))


def go1(quick: bool) -> Iterator[Row]:
    if not (MODEL.exists() and POLICY.exists()):
        yield skipped("go1", f"no {POLICY}: point SUREFOOT_MODELS at a folder with the models, policies beside it")
        return
    who, first, healthy, missed, unasked = client({}), [], [], [], 0
    for name, fault in GO1.items():
        for seed in SEEDS[: 1 if quick else None]:
            found = examined(who, name, seed)
            kinds = [c.kind for c in found.significant]
            right = found.healthy if not fault.cause else kinds[:1] == [fault.cause]
            (first if fault.cause else healthy).append(right)
            unasked += bool(found.unchecked) and found.healthy
            if not right:
                missed.append(f"{name} {seed}: {', '.join(kinds[:3]) or 'no cause'}")
            said(f"go1 {name} {seed}: {'right' if right else missed[-1]}")
    kinds_of = sum(bool(f.cause) for f in GO1.values())
    share = lambda x: sum(x) / len(x)  # noqa: E731
    yield row(
        f"go1, {kinds_of} kinds: true cause first", share(first), f"of {len(first)}", at_least=0.8, note="; ".join(missed)
    )  # fmt: skip
    yield row("go1: healthy called healthy", share(healthy), f"of {len(healthy)}", at_least=0.95)
    yield row("go1: called healthy with a branch not checked", unasked, "logs", at_most=0)
