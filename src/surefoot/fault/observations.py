"""Usual faults of observations and of actions on their way to the motors, in the order in which they are tried."""

import itertools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from surefoot.fault import (  # fmt: skip
    DEGREES,
    JOINTS,
    Chain,
    Exchange,
    Fault,
    History,
    Inverse,
    Late,
    Order,
    Parts,
    Plus,
    Times,
    Turn,
    swapped,
)
from surefoot.fault.joint_orders import exchanges, signs
from surefoot.observation import ObsGroup
from surefoot.short_terms import JOINTED

MOST_PAIRS = 300
LAGS = 5  # periods: the oldest observation or action that is tried
SCALES = (1 / DEGREES, 0.03, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.85, 1.2, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 35.0, DEGREES)


def of_frames(group: ObsGroup, spread: Mapping[str, np.ndarray], attitude: bool) -> Iterator[Fault]:
    """Faults of observations. `spread` is the size of each part of each term; `attitude`: the base's is known."""
    sizes = {t.name: t.dim for t in group.terms}
    yield from _frame_orders(sizes)
    yield from _frame_signs(sizes)
    yield from _frame_turns(sizes, attitude)
    yield from _frame_numbers(sizes, spread)
    for k in range(1, LAGS + 1):
        yield Fault("delay", f"observations are {k} periods old", (Late(k),))
        for name in sizes if len(sizes) > 1 else ():
            yield Fault("delay", f"{name} is {k} periods old", (Late(k, (name,)),))
    h = group.history
    ages = {"the history has its newest frame first": tuple(range(h)), "every frame of the history is the newest": (0,) * h,
            "every frame of the history is the oldest": (h - 1,) * h}  # fmt: skip
    for words, own in ages.items() if h > 1 else ():
        yield Fault("history", words, (History(own),))


def _frame_orders(sizes: Mapping[str, int]) -> Iterator[Fault]:
    """Two parts exchanged in one term, or in all terms of joints; two terms of one length exchanged."""
    pairs = lambda n: list(itertools.combinations(range(n), 2))[:MOST_PAIRS]  # noqa: E731
    for name, n in sizes.items():
        for i, j in pairs(n) if name != "rotation" else ():
            yield Fault("order", f"parts {i} and {j} of {name} are exchanged", (Order((name,), swapped(n, i, j)),))
    jointed = [n for n in JOINTED if n in sizes]
    for own in (g for k in (2, 3) for g in itertools.combinations(jointed, k) if len({sizes[n] for n in g}) == 1):
        n = sizes[own[0]]
        for i, j in pairs(n):
            words = f"joints {i} and {j} are exchanged in {' and '.join(own)}"
            yield Fault("order", words, (Order(own, swapped(n, i, j)),))
    for a, b in itertools.combinations(sizes, 2):
        if sizes[a] == sizes[b]:
            yield Fault("order", f"{a} and {b} are exchanged", (Exchange(a, b),))


def _frame_signs(sizes: Mapping[str, int]) -> Iterator[Fault]:
    """The opposite sign of one part, of one joint's position and velocity, or of a whole term."""
    for name, n in sizes.items():
        if n > 1 and name == "projected_gravity":
            yield Fault("frame", "projected_gravity points up", (Times((name,)),))
        elif n > 1:
            yield Fault("sign", f"{name} has the opposite sign", (Times((name,)),))
        for i in range(n) if name != "rotation" else ():
            yield Fault("sign", f"part {i} of {name} has the opposite sign", (Times((name,), (i,)),))
    if "joint_pos" in sizes and sizes.get("joint_vel") == sizes["joint_pos"]:
        for i in range(sizes["joint_pos"]):
            yield Fault("sign", f"joint {i} has the opposite sign in joint_pos and joint_vel", (Times(JOINTS, (i,)),))


def _frame_turns(sizes: Mapping[str, int], attitude: bool) -> Iterator[Fault]:
    """A vector in the world frame instead of the body frame or the reverse; an inverse rotation; a joint's angle from the
    horizontal instead of from the previous link."""
    for name, n in sizes.items():
        if attitude and n == 3 and name not in ("command", "last_action"):
            yield Fault("frame", f"{name} is in the world frame, not the body frame", (Turn((name,), "world"),))
            yield Fault("frame", f"{name} is in the body frame, not the world frame", (Turn((name,), "body"),))
        if n == 9 and name == "rotation":
            yield Fault("frame", f"{name} is from world to body", (Inverse((name,)),))
    for i in range(1, sizes.get("joint_pos", 0)):
        for by, words in (
            (1.0, "from the ground, not from the previous link"),
            (-1.0, "with the previous joint's angle subtracted"),
        ):
            yield Fault("frame", f"joint {i} is an angle {words}", (Chain(JOINTS, i, by),))


def _frame_numbers(sizes: Mapping[str, int], spread: Mapping[str, np.ndarray]) -> Iterator[Fault]:
    """A term or a part times a number, or a part plus a number."""
    for name, n in sizes.items():
        own: list[tuple[str, Parts]] = [(name, tuple(range(n)))]
        if n > 1 and name not in ("rotation", "last_action"):
            own += [(f"part {i} of {name}", (i,)) for i in range(n)]
        if n == 4 and name != "last_action":
            own.append((f"the second half of {name}", (2, 3)))
        for words, parts in own:
            yield Fault("scale", words + " is {:.4g} times as large", (Times((name,), parts),), guesses=SCALES)
            if len(parts) == 1:
                size = float(spread[name][parts[0]]) or 1.0
                around = tuple(size * x for x in (-30, -10, -3, -1, -0.3, 0.3, 1, 3, 10, 30))
                yield Fault("offset", words + " is {:.4g} too large", (Plus((name,), parts),), guesses=around)


def of_actions(names: Sequence[str]) -> Iterator[Fault]:
    """Faults of `action` on its way to the motors that have no number."""
    yield from exchanges("action", names, "actions for {} and {} are exchanged")
    yield from signs("action", names, "the action for {} has the opposite sign")
    yield Fault("sign", "all actions have the opposite sign", (Times(("action",)),))
    for k in range(1, LAGS + 1):
        yield Fault("delay", f"the action of {k} periods before is sent", (Late(k, ("action",)),))
