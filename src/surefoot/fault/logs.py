"""Usual faults of a log: joints, controls, clock and base, in the order in which they are tried."""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from surefoot.fault import (  # fmt: skip
    DEGREES,
    JOINTS,
    Edit,
    Fault,
    Inverse,
    Kind,
    Late,
    Names,
    Of,
    Order,
    Parts,
    Plus,
    Times,
    Turn,
    swapped,
)
from surefoot.fault.joint_orders import limbs, orders
from surefoot.robot import kind_of

CLOCKS = 8  # steps of 25 ms at least by which controls are tried earlier and later
PARTS: tuple[Of, Of] = ("control", "readings")


@dataclass(frozen=True)
class Driven:
    """The joints of a log, and the actuator that moves each."""

    names: Names
    motors: Parts
    """-1 where a joint has none"""
    count: int
    """of actuators"""
    turning: tuple[bool, ...]
    """the joints that are angles"""

    def times(self, of: Of, parts: Parts, by: float) -> tuple[Edit, ...]:
        """Joints times a number: readings, controls, or both."""
        controls = tuple(self.motors[i] for i in parts if self.motors[i] >= 0)
        read = (Times(JOINTS, parts, by),) if of != "control" else ()
        return (*read, Times(("control",), controls, by)) if of != "readings" and controls else read

    def moved(self, of: Of, order: Parts) -> tuple[Edit, ...]:
        """The column of joint i holds joint order[i]."""
        to, back = list(range(self.count)), tuple(int(i) for i in np.argsort(order))
        for i, j in enumerate(order):
            if self.motors[i] >= 0 and self.motors[j] >= 0:
                to[self.motors[j]] = self.motors[i]
        read = (Order(JOINTS, back),) if of != "control" else ()
        return (*read, Order(("control",), tuple(to))) if of != "readings" else read

    def joints(self, fault: Fault) -> list[int]:
        """The joints that a fault reorders or multiplies; empty: all of them, or none."""
        sent = fault.parts("control")
        return sorted(fault.parts("joint_pos") | {i for i, a in enumerate(self.motors) if a in sent})


def of_joints(d: Driven, offset: float) -> Iterator[Fault]:
    for i, name in enumerate(d.names):
        yield Fault("sign", f"turn the sign of {name}", d.times("joints", (i,), -1.0), "joints")
        words = f"turn the sign of the {{}} of {name}"
        yield _sent(
            "sign", words.format("control"), words.format("readings"), *(d.times(of, (i,), -1.0) for of in PARTS)
        )
        words = f"joint_pos and joint_vel of {name} are in degrees"
        yield Fault("unit", words, d.times("readings", (i,), 1 / DEGREES), "readings")
        words = f"{name} has an offset: it reads {{:+.2g}} rad too much"
        yield Fault("offset", words, (Plus(("joint_pos",), (i,)),), "readings", (offset, -offset))
    for i, j in itertools.combinations(range(len(d.names)), 2):
        a, b = d.names[i], d.names[j]
        if kind_of(a) == kind_of(b) or j == i + 1:  # usual mistakes: the same joint of another limb, and neighbours
            order, words = swapped(len(d.names), i, j), f"exchange the {{}} of {a} and {b}"
            yield Fault("order", f"exchange {a} and {b}", d.moved("joints", order), "joints")
            yield _sent(
                "order", words.format("controls"), words.format("readings"), *(d.moved(of, order) for of in PARTS)
            )
    yield from _of_limbs(d)
    angles = tuple(i for i, turns in enumerate(d.turning) if turns)
    if len(angles) > 1:
        yield Fault("unit", "joint_pos and joint_vel are in degrees", d.times("readings", angles, 1 / DEGREES), "readings")  # fmt: skip
        yield Fault("unit", "joint_pos, joint_vel and control are in degrees", d.times("joints", angles, 1 / DEGREES), "joints")  # fmt: skip
    if angles:
        yield Fault("unit", "control is in degrees", d.times("control", angles, 1 / DEGREES), "control")


def _sent(kind: Kind, words: str, other: str, sent: tuple[Edit, ...], read: tuple[Edit, ...]) -> Fault:
    """A fault of controls, with its twin of the readings."""
    return Fault(kind, words, sent, "control", twin=Fault(kind, other, read, "readings"))


def _of_limbs(d: Driven) -> Iterator[Fault]:
    """Whole limbs in another order, as other drivers have them."""
    own = " ".join(limbs(d.names))
    for name, joints in orders(d.names, by_kind=False):
        order = tuple(d.names.index(j) for j in joints)
        back = tuple(int(i) for i in np.argsort(order))
        words = f"of {name}, not {own}"
        other = f"the readings are {words}" if back == order else f"the readings, not the controls, are in another order (of {name})"  # fmt: skip
        yield Fault("order", f"the columns are {words}", d.moved("joints", order), "joints")
        yield _sent("order", f"the controls are {words}", other, d.moved("control", order), d.moved("readings", back))


def of_clock(dt: float, late: float) -> Iterator[Fault]:
    """Controls that are late or early in a log with rows every dt seconds, by up to four times `late` seconds."""
    rows = {round(k * max(1.0, 0.5 * late / dt)) for k in range(1, CLOCKS + 1)}
    for k in sorted(k for r in rows for k in (r, -r) if r * dt <= 4 * late):
        words = f"controls are {1e3 * abs(k) * dt:.3g} ms {'late' if k > 0 else 'early'} in this log"
        yield Fault("delay", words, (Late(-k, ("control",)),), "control")


def of_motors(names: Mapping[int, str], count: int) -> Iterator[Fault]:
    """Controls of two of `count` actuators, by number, exchanged."""
    for i, j in itertools.combinations(names, 2):
        words = f"exchange the controls of {names[i]} and {names[j]}"
        yield Fault("order", words, (Order(("control",), swapped(count, i, j)),), "control")


def of_attitude() -> Iterator[Fault]:
    """Each way to misread base_quat and base_ang_vel, and every combination of them; the first is no fault."""
    single: tuple[tuple[str, Edit], ...] = (
        ("base_quat is x y z w", Order(("base_quat",), (3, 0, 1, 2))),
        ("base_quat is from world to base (its conjugate is expected)", Inverse(("base_quat",))),
        ("base_ang_vel is in the frame of the world, not of the base", Turn(("base_ang_vel",), "body")),
        ("base_ang_vel is in degrees/s", Times(("base_ang_vel",), by=1 / DEGREES)),
    )
    for some in itertools.product((False, True), repeat=len(single)):
        own = [x for x, there in zip(single, some) if there]
        yield Fault("frame", ", ".join(words for words, _ in own), tuple(edit for _, edit in own))


def of_travel(attitude: bool) -> Iterator[Fault]:
    """Each way to misread base_lin_vel given base_pos; the first is no fault."""
    yield Fault("frame", "", ())
    words = "z points down in one of base_pos and base_lin_vel"
    yield Fault("frame", words, (Times(("base_lin_vel",), (2,)),))
    if attitude:
        words = "base_lin_vel is in the frame of the base, not of the world"
        yield Fault("frame", words, (Turn(("base_lin_vel",), "body"),))


def of_axes() -> Iterator[Fault]:
    """A base whose z points down."""
    vectors = ("base_pos", "base_lin_vel", "base_ang_vel")
    words = "z points down in the base's columns (north east down)"
    yield Fault("frame", words, (Times(vectors, (1, 2)), Times(("base_quat",), (2, 3))), "base")
    yield Fault("frame", "z points down in base_pos and base_lin_vel", (Times(vectors[:2], (2,)),), "base")
