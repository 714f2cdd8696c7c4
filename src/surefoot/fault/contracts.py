"""Usual faults of a contract. Each generator yields one kind; CONTRACT has them in the order in which they are common."""

import itertools
from collections.abc import Iterator
from typing import Literal

import numpy as np

from surefoot.contract import Contract
from surefoot.fault import DEGREES, Clock, Exchange, Fault, History, Order, Times, Turn, Unset
from surefoot.fault.joint_orders import limbs, mirrored_pairs, orders
from surefoot.observation import Formula
from surefoot.short_terms import JOINTED, PARTS

FACTORS = {
    "base_lin_vel": (2.0, 0.5), "base_ang_vel": (0.2, 0.25, 4.0, 5.0), "joint_vel": (0.05, 0.1, 10.0, 20.0),
    "joint_pos": (DEGREES, 1 / DEGREES), "command": (2.0, 0.5), "action": (0.25, 0.5, 2.0, 4.0),
    "kp": (0.7, 1.4, 0.5, 2.0, 0.35, 2.8, 0.25, 4.0), "kd": (0.5, 2.0, 0.25, 4.0),
}  # fmt: skip
"""by which numbers of a contract are often off: ratios of scales that frameworks use"""


def delays_of(w: Contract) -> Iterator[Fault]:
    for by in (0.0, 0.5) if w.latency > 0 else ():
        new = f"{1000 * by * w.latency:g} ms" if by else "0"
        words = f"latency is {new} instead of {1000 * w.latency:g} ms"
        yield Fault("delay", words, (Times(("latency",), by=by),))


def gains_of(w: Contract) -> Iterator[Fault]:
    for name in (n for n in ("kp", "kd") if getattr(w, n)):
        yield Fault("gain", f"{name} is the model's own", (Unset((name,)),))
    yield from _factors(w, "{} is {:g} times as large")


def model_gains_of(w: Contract) -> Iterator[Fault]:
    """Gains that a contract leaves to the model; `w` has the model's in their place."""
    yield from _factors(w, "{} is {:g} times the model's")


def _factors(w: Contract, words: str) -> Iterator[Fault]:
    for name in (n for n in ("kp", "kd") if any(getattr(w, n))):
        for by in FACTORS[name]:
            yield Fault("gain", words.format(name, by), (Times((name,), by=by),))


def orders_of(w: Contract) -> Iterator[Fault]:
    jointed = {t.name: t.formula.joints for t in w.terms if t.formula is not None and t.name in JOINTED}
    read = tuple(n for n in jointed if n != "last_action")
    other = tuple(n for n, joints in jointed.items() if joints != w.joints)
    if other:
        own = " ".join(limbs(w.joints)) or ", ".join(w.joints)
        words = f"{' and '.join(other)} are read in the order of the actions, {own}"
        yield Fault("order", words, (Order(other, joints=w.joints),))
    for name, joints in orders(jointed[read[0]]) if read else ():
        if joints != w.joints:
            words = f"{' and '.join(read)} are read in the order {name}"
            yield Fault("order", words, (Order(read, joints=joints),))
    for name, joints in orders(w.joints):
        words = f"joints are in the order {name}, in observation and action"
        yield Fault("order", words, (Order(("action", *JOINTED), joints=joints),))
        if read:
            words = f"actions are in the order {name}, observations are not"
            yield Fault("order", words, (Order(("action", "last_action"), joints=joints),))


def pairs_of(w: Contract) -> Iterator[Fault]:
    """One joint and its mirror image exchanged: in the net's order, in what it reads, or in what it moves."""
    terms = [t for t in w.terms if t.formula is not None and t.name in JOINTED and t.name != "last_action"]
    read = tuple(t.name for t in terms)
    for names, joints in mirrored_pairs(w.joints):
        words = f"{names} are exchanged in joints, for observation and action"
        yield Fault("order", words, (Order(("action", *JOINTED), joints=joints),))
        if read:
            words = f"{names} are exchanged in actions, not in observations"
            yield Fault("order", words, (Order(("action", "last_action"), joints=joints),))
    for names, joints in mirrored_pairs(terms[0].formula.joints) if terms and terms[0].formula is not None else ():
        yield Fault("order", f"{names} are exchanged in {' and '.join(read)}", (Order(read, joints=joints),))


def signs_of(w: Contract) -> Iterator[Fault]:
    for name in (t.name for t in w.terms if t.name not in ("last_action", "command", *PARTS)):
        yield Fault("sign", f"{name} has the opposite sign", (Times((name,)),))
    yield Fault("sign", "actions have the opposite sign", (Times(("action",)),))


def scales_of(w: Contract) -> Iterator[Fault]:
    for name in (t.name for t in w.terms):
        for by in FACTORS.get(name, ()):
            yield Fault("scale", f"the scale of {name} is {by:.3g} times as large", (Times((name,), by=by),))
    for by in FACTORS["action"]:
        yield Fault("scale", f"action_scale is {by:g} times as large", (Times(("action",), by=by),))


def poses_of(w: Contract) -> Iterator[Fault]:
    if any(w.home):
        yield Fault("pose", "joint_pos is the angle itself, without home subtracted", (Unset(("joint_pos",)),))
    if w.home and not np.array_equal(w.action.offset, w.home):
        yield Fault("pose", "an action of 0 means home", (Unset(("action",)),))
    at_site = tuple(t.name for t in w.terms if t.formula and t.formula.frame not in ("", "base", "world"))
    if at_site:
        words = "velocities and gravity are in the frame of the base, not of the site"
        yield Fault("frame", words, (Turn(at_site, "body"),))


def layouts_of(w: Contract) -> Iterator[Fault]:
    for a, b in itertools.combinations(w.terms, 2):
        if a.dim * (a.history or w.history) == b.dim * (b.history or w.history):
            yield Fault("order", f"{a.name} and {b.name} are exchanged", (Exchange(a.name, b.name),))
    for t in w.terms:
        if t.formula is not None and t.formula.kind == "clock" and t.dim > 1:
            yield from _clocks_of(t.name, t.formula)
    if w.history > 1:
        layout: Literal["frames", "terms"] = "terms" if w.observation.layout == "frames" else "frames"
        yield Fault("history", f"layout is {layout}", (History(layout=layout),))
        newest: Literal["first", "last"] = "first" if w.observation.newest == "last" else "last"
        yield Fault("history", f"the newest frame comes {newest}", (History(newest=newest),))
    for by in (0.5, 2.0):
        yield Fault("rate", f"rate is {by * w.rate:g} Hz instead of {w.rate:g}", (Times(("rate",), by=by),))


def _clocks_of(name: str, f: Formula) -> Iterator[Fault]:
    if len(f.waves) > 1:
        waves = tuple(reversed(f.waves))
        yield Fault("order", f"waves of {name} are {' then '.join(waves)}", (Clock(name, waves=waves),))
    if f.phases != f.phases[::-1]:
        yield Fault("order", f"the feet of {name} are in the other order", (Clock(name, phases=f.phases[::-1]),))


CONTRACT = (delays_of, gains_of, orders_of, pairs_of, signs_of, scales_of, poses_of, layouts_of)
