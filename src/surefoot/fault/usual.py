"""The faults that are common: for a contract, for what a policy is told and answers, for a log. Each generator yields them in
the order in which they are tried.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from surefoot.contract import JOINTED, Contract
from surefoot.fault import (
    DEGREES,
    JOINTS,
    Chain,
    Edit,
    Exchange,
    Fault,
    History,
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
    Unset,
    swapped,
)
from surefoot.observation import ObsGroup
from surefoot.robot import kind_of

FEW = 6  # motors: of more, only those of one kind are thought exchanged
MOST_LIMBS = 4  # whose every order is tried; of more, only exchanges of two
MOST_PAIRS = 300
CLOCKS = 8  # steps of 25 ms at least that controls are tried earlier and later
LAGS = 5  # periods: the oldest observation or answer that is suspected
OBSERVED = (1 / DEGREES, 0.03, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.85, 1.2, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 35.0, DEGREES)
WRITTEN = {
    "base_lin_vel": (2.0, 0.5), "base_ang_vel": (0.2, 0.25, 4.0, 5.0), "joint_vel": (0.05, 0.1, 10.0, 20.0),
    "joint_pos": (DEGREES, 1 / DEGREES), "command": (2.0, 0.5), "action": (0.25, 0.5, 2.0, 4.0),
    "kp": (0.5, 0.7, 1.4, 2.0), "kd": (0.5, 0.7, 1.4, 2.0),
}  # fmt: skip
"""factors by which numbers of a contract are often off: other people's usual scales"""
PARTS: tuple[Of, Of] = ("control", "readings")


def exchanges(column: str, names: Sequence[str], words: str, alike: bool = False) -> Iterator[Fault]:
    """Two parts of a column for each other; where they are many and should be alike, the same joint of another limb."""
    for i, j in itertools.combinations(range(len(names)), 2):
        if not alike or len(names) <= FEW or kind_of(names[i]) == kind_of(names[j]):
            order = Order((column,), swapped(len(names), i, j))
            yield Fault("order", words.format(names[i], names[j]), (order,))


def signs(column: str, names: Sequence[str], words: str) -> Iterator[Fault]:
    """The sign of one part of a column turned."""
    for i, name in enumerate(names):
        yield Fault("sign", words.format(name), (Times((column,), (i,)),))


def limbs(names: Sequence[str]) -> dict[str, list[int]]:
    """Joints that belong together, such as a leg's, as many in each: named alike but for the kind of joint, or alike up to
    the first underscore; else none."""
    by_side, by_word = dict[str, list[int]](), dict[str, list[int]]()
    for i, name in enumerate(names):
        by_side.setdefault(_limb(name), []).append(i)
        by_word.setdefault(name.split("_")[0], []).append(i)
    sided = {k: v for k, v in by_side.items() if k and len(v) > 1}  # a torso's joints stay where they are
    alike = lambda found: len(found) > 1 and len({len(v) for v in found.values()}) == 1  # noqa: E731
    return next((x for x in (sided, by_word) if alike(x) and len(next(iter(x.values()))) > 1), {})


def _limb(name: str) -> str:
    """FL of FL_hip_joint; nothing where the name has no side."""
    kind = kind_of(name)
    if kind == name:
        return ""
    return name[: name.index(kind)].strip("_") if kind in name else name.replace(kind, "").strip("_")


def groups(joints: Sequence[str]) -> list[list[str]]:
    return [[joints[i] for i in limb] for limb in limbs(joints).values()]


def orders(joints: Sequence[str], by_kind: bool = True) -> Iterator[tuple[str, Names]]:
    """Other orders that joints are often in, with a name for each: limb by limb, and joint by joint across limbs."""
    own = limbs(joints)
    keys = list(own)
    swaps = ([keys[k] for k in swapped(len(keys), i, j)] for i, j in itertools.combinations(range(len(keys)), 2))
    for other in map(list, itertools.permutations(keys)) if len(keys) <= MOST_LIMBS else swaps:
        if other != keys:
            order = list(joints)
            for a, b in zip(keys, other):
                for i, j in zip(own[a], own[b]):
                    order[i] = joints[j]
            yield " ".join(other), tuple(order)
    across = tuple(joints[limb[k]] for k in range(len(own[keys[0]])) for limb in own.values()) if own else ()
    if by_kind and len(across) == len(joints) and across != tuple(joints):
        yield "all first joints, all second joints, ...", across


# of contracts, in the order in which they are common


def delays_of(w: Contract) -> Iterator[Fault]:
    for by in (0.0, 0.5) if w.latency > 0 else ():
        new = f"{1000 * by * w.latency:g} ms" if by else "0"
        words = f"latency is {new} in place of {1000 * w.latency:g} ms"
        yield Fault("delay", words, (Times(("latency",), by=by),))


def gains_of(w: Contract) -> Iterator[Fault]:
    for name in (n for n in ("kp", "kd") if getattr(w, n)):
        yield Fault("gain", f"{name} is the model's own", (Unset((name,)),))
        for by in WRITTEN[name]:
            yield Fault("gain", f"{name} is {by:g} times as large", (Times((name,), by=by),))


def orders_of(w: Contract) -> Iterator[Fault]:
    jointed = {t.name: t.formula.joints for t in w.terms if t.formula is not None and t.name in JOINTED}
    told = tuple(n for n in jointed if n != "last_action")
    other = tuple(n for n, joints in jointed.items() if joints != w.joints)
    if other:
        own = " ".join(limbs(w.joints)) or ", ".join(w.joints)
        words = f"{' and '.join(other)} are read in the order of the actions, {own}"
        yield Fault("order", words, (Order(other, joints=w.joints),))
    for said, joints in orders(jointed[told[0]]) if told else ():
        if joints != w.joints:
            words = f"{' and '.join(told)} are read in the order {said}"
            yield Fault("order", words, (Order(told, joints=joints),))
    for said, joints in orders(w.joints):
        words = f"joints are in the order {said}, in observation and action"
        yield Fault("order", words, (Order(("action", *JOINTED), joints=joints),))
        if told:
            words = f"actions are in the order {said}, observations as they are"
            yield Fault("order", words, (Order(("action", "last_action"), joints=joints),))


def signs_of(w: Contract) -> Iterator[Fault]:
    for name in (t.name for t in w.terms if t.name not in ("last_action", "command")):
        yield Fault("sign", f"{name} has the other sign", (Times((name,)),))
    yield Fault("sign", "actions have the other sign", (Times(("action",)),))


def scales_of(w: Contract) -> Iterator[Fault]:
    for name in (t.name for t in w.terms):
        for by in WRITTEN.get(name, ()):
            yield Fault("scale", f"the scale of {name} is {by:.3g} times as large", (Times((name,), by=by),))
    for by in WRITTEN["action"]:
        yield Fault("scale", f"action_scale is {by:g} times as large", (Times(("action",), by=by),))


def poses_of(w: Contract) -> Iterator[Fault]:
    if any(w.home):
        yield Fault("pose", "joint_pos is told as it is, not less home", (Unset(("joint_pos",)),))
    if w.home and not np.array_equal(w.action.offset, w.home):
        yield Fault("pose", "an action of 0 means home", (Unset(("action",)),))
    at_site = tuple(t.name for t in w.terms if t.formula and t.formula.frame not in ("", "base", "world"))
    if at_site:
        words = "velocities and gravity are those of the base, not of the site"
        yield Fault("frame", words, (Turn(at_site, "body"),))


def layouts_of(w: Contract) -> Iterator[Fault]:
    for a, b in itertools.combinations(w.terms, 2):
        if a.dim * (a.history or w.history) == b.dim * (b.history or w.history):
            yield Fault("order", f"{a.name} and {b.name} change places", (Exchange(a.name, b.name),))
    if w.history > 1:
        layout: Literal["frames", "terms"] = "terms" if w.observation.layout == "frames" else "frames"
        yield Fault("history", f"layout is {layout}", (History(layout=layout),))
        newest: Literal["first", "last"] = "first" if w.observation.newest == "last" else "last"
        yield Fault("history", f"the newest frame comes {newest}", (History(newest=newest),))
    for by in (0.5, 2.0):
        yield Fault("rate", f"rate is {by * w.rate:g} Hz in place of {w.rate:g}", (Times(("rate",), by=by),))


CONTRACT = (delays_of, gains_of, orders_of, signs_of, scales_of, poses_of, layouts_of)


# of what a policy is told, and of what it answers


def of_frames(group: ObsGroup, spread: Mapping[str, np.ndarray], attitude: bool) -> Iterator[Fault]:
    """Faults of observations. `spread` is how large each part of each term is; `attitude`: it is known."""
    sizes = {t.name: t.dim for t in group.terms}
    yield from _frame_orders(sizes)
    yield from _frame_signs(sizes)
    yield from _frame_turns(sizes, attitude)
    yield from _frame_numbers(sizes, spread)
    for k in range(1, LAGS + 1):
        yield Fault("delay", f"told what was measured {k} periods before", (Late(k),))
        for name in sizes if len(sizes) > 1 else ():
            yield Fault("delay", f"told {name} of {k} periods before", (Late(k, (name,)),))
    h = group.history
    ages = {"frames told newest first": tuple(range(h)), "every frame told is the newest": (0,) * h,
            "every frame told is the oldest": (h - 1,) * h}  # fmt: skip
    for words, own in ages.items() if h > 1 else ():
        yield Fault("history", words, (History(own),))


def _frame_orders(sizes: Mapping[str, int]) -> Iterator[Fault]:
    """Two parts exchanged: in one term, in all terms that have as many parts; and two terms of one length."""
    pairs = lambda n: list(itertools.combinations(range(n), 2))[:MOST_PAIRS]  # noqa: E731
    for name, n in sizes.items():
        for i, j in pairs(n) if name != "rotation" else ():
            yield Fault("order", f"parts {i} and {j} of {name} exchanged", (Order((name,), swapped(n, i, j)),))
    jointed = [n for n in JOINTED if n in sizes]
    for own in (g for k in (2, 3) for g in itertools.combinations(jointed, k) if len({sizes[n] for n in g}) == 1):
        n = sizes[own[0]]
        for i, j in pairs(n):
            words = f"joints {i} and {j} exchanged in {' and '.join(own)}"
            yield Fault("order", words, (Order(own, swapped(n, i, j)),))
    for a, b in itertools.combinations(sizes, 2):
        if sizes[a] == sizes[b]:
            yield Fault("order", f"{a} and {b} exchanged", (Exchange(a, b),))


def _frame_signs(sizes: Mapping[str, int]) -> Iterator[Fault]:
    """One part, the same part of positions and speeds, or a whole term turned."""
    for name, n in sizes.items():
        if n > 1 and name == "projected_gravity":
            yield Fault("frame", "gravity told as direction up", (Times((name,)),))
        elif n > 1:
            yield Fault("sign", f"sign of all of {name} turned", (Times((name,)),))
        for i in range(n) if name != "rotation" else ():
            yield Fault("sign", f"sign of part {i} of {name} turned", (Times((name,), (i,)),))
    if "joint_pos" in sizes and sizes.get("joint_vel") == sizes["joint_pos"]:
        for i in range(sizes["joint_pos"]):
            yield Fault("sign", f"sign of joint {i} turned in joint_pos and joint_vel", (Times(JOINTS, (i,)),))


def _frame_turns(sizes: Mapping[str, int], attitude: bool) -> Iterator[Fault]:
    """A vector in the world's frame for the body's or the other way; a rotation the other way; a joint's angle from the
    horizontal for the one from the link before."""
    for name, n in sizes.items():
        if attitude and n == 3 and name not in ("command", "last_action"):
            yield Fault("frame", f"{name} told in the world's frame, not the body's", (Turn((name,), "world"),))
            yield Fault("frame", f"{name} told in the body's frame, not the world's", (Turn((name,), "body"),))
        if n == 9 and name == "rotation":
            yield Fault("frame", f"{name} told from world to body", (Inverse((name,)),))
    for i in range(1, sizes.get("joint_pos", 0)):
        for by, words in ((1.0, "from the ground, not from the link before"), (-1.0, "from the link before, twice")):
            yield Fault("frame", f"joint {i} told as an angle {words}", (Chain(JOINTS, i, by),))


def _frame_numbers(sizes: Mapping[str, int], spread: Mapping[str, np.ndarray]) -> Iterator[Fault]:
    """A term, or a part, times a number, or off by one."""
    for name, n in sizes.items():
        own: list[tuple[str, Parts]] = [(name, tuple(range(n)))]
        if n > 1 and name not in ("rotation", "last_action"):
            own += [(f"part {i} of {name}", (i,)) for i in range(n)]
        if n == 4 and name != "last_action":
            own.append((f"the second half of {name}", (2, 3)))
        for words, parts in own:
            yield Fault("scale", words + " told {:.4g} times as large", (Times((name,), parts),), guesses=OBSERVED)
            if len(parts) == 1:
                size = float(spread[name][parts[0]]) or 1.0
                around = tuple(size * x for x in (-30, -10, -3, -1, -0.3, 0.3, 1, 3, 10, 30))
                yield Fault("offset", words + " told {:.4g} above what it is", (Plus((name,), parts),), guesses=around)


def of_answers(names: Sequence[str]) -> Iterator[Fault]:
    """Faults of `action` on its way to the motors that need no number."""
    yield from exchanges("action", names, "answers for {} and {} exchanged")
    yield from signs("action", names, "answer for {} with its sign turned")
    yield Fault("sign", "all answers with their signs turned", (Times(("action",)),))
    for k in range(1, LAGS + 1):
        yield Fault("delay", f"sent what was answered {k} periods before", (Late(k, ("action",)),))


# of a log


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
        """Joints times a number: what was measured, what was sent, or both."""
        sent = tuple(self.motors[i] for i in parts if self.motors[i] >= 0)
        read = (Times(JOINTS, parts, by),) if of != "control" else ()
        return (*read, Times(("control",), sent, by)) if of != "readings" and sent else read

    def moved(self, of: Of, order: Parts) -> tuple[Edit, ...]:
        """What is logged as joint i's is joint order[i]'s."""
        to, back = list(range(self.count)), tuple(int(i) for i in np.argsort(order))
        for i, j in enumerate(order):
            if self.motors[i] >= 0 and self.motors[j] >= 0:
                to[self.motors[j]] = self.motors[i]
        read = (Order(JOINTS, back),) if of != "control" else ()
        return (*read, Order(("control",), tuple(to))) if of != "readings" else read

    def joints(self, fault: Fault) -> list[int]:
        """The joints that a fault moves or multiplies; none: all of them, or none."""
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
        words = f"an offset of {name}, which reads {{:+.2g}} rad too much"
        yield Fault("offset", words, (Plus(("joint_pos",), (i,)),), "readings", (offset, -offset))
    for i, j in itertools.combinations(range(len(d.names)), 2):
        a, b = d.names[i], d.names[j]
        if kind_of(a) == kind_of(b) or j == i + 1:  # what people mix up: the same joint of another limb, and neighbours
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
    for said, joints in orders(d.names, by_kind=False):
        order = tuple(d.names.index(j) for j in joints)
        back = tuple(int(i) for i in np.argsort(order))
        words = f"of {said}, not {own}"
        other = f"the readings are {words}" if back == order else f"the readings, not the controls, are in another order (of {said})"  # fmt: skip
        yield Fault("order", f"the columns are {words}", d.moved("joints", order), "joints")
        yield _sent("order", f"the controls are {words}", other, d.moved("control", order), d.moved("readings", back))


def of_clock(dt: float, late: float) -> Iterator[Fault]:
    """Controls that are late or early in a log with rows every dt seconds, by up to four times `late` seconds."""
    rows = {round(k * max(1.0, 0.5 * late / dt)) for k in range(1, CLOCKS + 1)}
    for k in sorted(k for r in rows for k in (r, -r) if r * dt <= 4 * late):
        words = f"controls are {1e3 * abs(k) * dt:.3g} ms {'late' if k > 0 else 'early'} in this log"
        yield Fault("delay", words, (Late(-k, ("control",)),), "control")


def of_motors(names: Mapping[int, str], count: int) -> Iterator[Fault]:
    """Controls of two of `count` actuators, by number, for each other."""
    for i, j in itertools.combinations(names, 2):
        words = f"exchange the controls of {names[i]} and {names[j]}"
        yield Fault("order", words, (Order(("control",), swapped(count, i, j)),), "control")


def of_attitude() -> Iterator[Fault]:
    """Each way to misread base_quat and base_ang_vel, and all of them together; the first is none."""
    single: tuple[tuple[str, Edit], ...] = (
        ("base_quat is x y z w", Order(("base_quat",), (3, 0, 1, 2))),
        ("base_quat turns the world into the base (its conjugate is meant)", Inverse(("base_quat",))),
        ("base_ang_vel is along the axes of the world, not of the base", Turn(("base_ang_vel",), "body")),
        ("base_ang_vel is in degrees/s", Times(("base_ang_vel",), by=1 / DEGREES)),
    )
    for some in itertools.product((False, True), repeat=len(single)):
        own = [x for x, there in zip(single, some) if there]
        yield Fault("frame", ", ".join(words for words, _ in own), tuple(edit for _, edit in own))


def of_travel(attitude: bool) -> Iterator[Fault]:
    """Each way to misread base_lin_vel beside base_pos; the first is none."""
    yield Fault("frame", "", ())
    words = "z of one of base_pos and base_lin_vel points down"
    yield Fault("frame", words, (Times(("base_lin_vel",), (2,)),))
    if attitude:
        words = "base_lin_vel is along the axes of the base, not of the world"
        yield Fault("frame", words, (Turn(("base_lin_vel",), "body"),))


def of_axes() -> Iterator[Fault]:
    """A base whose z points down."""
    vectors, down = (
        ("base_pos", "base_lin_vel", "base_ang_vel"),
        "z points down in the base's columns (north east down)",
    )
    yield Fault("frame", down, (Times(vectors, (1, 2)), Times(("base_quat",), (2, 3))), "base")
    yield Fault("frame", "z points down in base_pos and base_lin_vel", (Times(vectors[:2], (2,)),), "base")
