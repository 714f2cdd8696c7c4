"""Checks of a log that need no model: time stamps, and columns that measure the same motion.

A velocity is the derivative of a position, an angular velocity that of an attitude. Where two columns disagree, each
possible fault is tried, and reported if they then agree much better, piece for piece:

    gain = error of the log as it is / error under the edit          suspect where gain > GAIN, and in nine of ten pieces
"""

from collections.abc import Generator, Iterator
from dataclasses import replace

import numpy as np

from surefoot.errors import SurefootError
from surefoot.fault import JOINTS, Fault, on_columns
from surefoot.fault.logs import of_attitude, of_travel
from surefoot.formats.skew import TRUSTED, skew
from surefoot.log import Log
from surefoot.real2sim.signals import PAUSE, measured, names_in, slope
from surefoot.rotation import angular_velocity, between, turned
from surefoot.verdict import Check
from surefoot.world import World

GAIN = 1.05  # the gain, in the columns an edit concerns, above which it is suspect
OFTEN = 0.9  # of the pieces: the least fraction in which it must agree better
PIECES = 12
GAPS = 0.1  # of the time: the largest fraction without rows
LATE = 0.05  # s between two streams: filters and actuators also delay, by up to 0.03
FINEST = 1e-6  # rad, m, ...: smaller errors count as none
SAME = 1e-3  # of an error: smaller differences count as none
MOST = 1000.0  # the largest gain that is printed


def weighed(name: str, about: str, plain: np.ndarray, other: np.ndarray, what: str, least: float = GAIN) -> Check:
    """From mean square errors (pieces, columns) without and with an edit."""
    before, after = (np.sqrt(x.mean(1)) for x in (plain, other))
    squared = [float(np.square(x).mean()) + FINEST**2 for x in (before, after)]
    gain = min(float(np.sqrt(squared[0] / squared[1])), MOST)
    differ = ~np.isclose(before, after, rtol=SAME)  # a piece that an edit does not change is no evidence
    often = float((before > after)[differ].mean()) if differ.any() else 0.0
    few = bool(differ.sum() < max(3, len(before) / 4))
    holds = not (gain > least and often >= OFTEN) or few
    words = f"{about}: {what} {gain:.2f} times as well, in {often:.0%} of {differ.sum()} pieces"
    words = f"no fault; nearest of those tried: {words}" if holds else words
    words += ", too few to judge" if few else ""
    return Check(name, gain, least, holds, words, unit="gain")


def stamps(log: Log) -> Iterator[Check]:
    steps = np.diff(log.time)
    usual = float(np.median(steps))
    pauses = np.flatnonzero(steps > PAUSE * usual)
    off = np.abs(steps - usual)
    off[pauses] = 0.0
    uneven, late = float(off.max() / usual), int(np.argmax(off))
    yield Check("stamps are even", uneven, 0.5, uneven <= 0.5,
                f"largest departure from {usual * 1e3:.3g} ms is {uneven:.0%}, at row {late}", unit="of a step")  # fmt: skip
    gaps = log.meta.get("gaps") or [(log.time[i], log.time[i + 1]) for i in pauses]
    declared = bool(log.meta.get("gaps")) and bool(len(pauses))  # by the recorder: the robot was put back
    if gaps:
        at, longest = max(gaps, key=lambda ends: ends[1] - ends[0])[0], max(b - a for a, b in gaps)
        lost = sum(b - a for a, b in gaps) / float(log.time[-1] - log.time[0])
        words = f"{len(gaps)} gaps, {lost:.1%} of the time, the longest {longest:.3g} s from {at:.6g} s; no window crosses them"
        yield Check("gaps", lost, GAPS, declared or lost <= GAPS, words, unit="of the time")


def speeds(world: World, log: Log) -> Iterator[Check]:
    """Logged velocities against the derivative of logged positions: their ratio should be 1 in every joint, without delay."""
    if not all(c in log.columns for c in JOINTS):
        return
    names, places = (names_in(world.layout, log, column) for column in ("joint_vel", "joint_pos"))
    both = [n for n in names if n in places]
    rate = slope(log.time, measured(log, "joint_pos"))[:, [places.index(n) for n in both]]
    v = measured(log, "joint_vel")[:, [names.index(n) for n in both]]
    late = list(clock(log, "joint_vel", "joint_pos", rate, v))
    yield from late
    if all(c.holds for c in late):  # else their ratio means nothing
        for i, name in enumerate(both):
            yield from _ratio(name, rate[:, i], v[:, i])


def _ratio(name: str, a: np.ndarray, b: np.ndarray) -> Iterator[Check]:
    good = np.isfinite(a) & np.isfinite(b)
    a, b = a[good] - a[good].mean(), b[good] - b[good].mean()
    if np.square(a).sum() < 1e-12 or np.square(b).sum() < 1e-12:
        return
    match = float(a @ b / np.sqrt((a @ a) * (b @ b)))
    gain = float(np.sqrt((b @ b) / (a @ a))) * np.sign(match)
    fine = match > 0.5 and 0.5 < gain < 2.0
    why = {True: "they agree"}.get(fine, _blame(gain, match))
    yield Check(f"speed of {name}", gain, 1.0, fine, f"logged velocity is {gain:.3g} times the derivative of its position "
                f"(correlation {match:.2f}): {why}", unit="ratio")  # fmt: skip


def _blame(gain: float, match: float) -> str:
    if abs(match) < 0.5:
        return "they are unrelated: is the order of the columns the same?"
    if gain < 0:
        return "the sign of one of them is reversed"
    for value, words in ((180 / np.pi, "speed in degrees, position in radians"), (np.pi / 180, "position in degrees, speed in radians"),
                         (1e-3, "a clock in milliseconds"), (1e3, "a clock in milliseconds")):  # fmt: skip
        if 0.8 < gain / value < 1.25:
            return words
    return "their units differ"


def clock(log: Log, name: str, other: str, rate: np.ndarray, v: np.ndarray) -> Iterator[Check]:
    """Delay of a column of velocities behind the derivative of its positions: the median of its parts, if any is reliable."""
    step, delays = 1 / log.rate, []
    rows = Log(step * np.arange(len(log)), {"a": rate, "b": v})  # without pauses: the same rows of both
    for part in range(rate.shape[1]):
        try:
            found = skew(rows, "a", "b", part, most=4 * LATE, windows=0)
        except SurefootError:  # it did not move, or the log is too short
            continue
        if found.correlation > TRUSTED:
            delays.append(found.latency)
    if delays:
        late = float(np.median(delays))
        limit = max(LATE, 1.5 * step)
        words = f"{name} is {1e3 * abs(late):.3g} ms {'behind' if late >= 0 else 'ahead of'} the derivative of {other}"
        if abs(late) > limit:
            words += ": their clocks differ, or one was filtered"
        yield Check(f"clock of {name}", abs(late), limit, abs(late) <= limit, words, unit="s")


def attitude(world: World, log: Log) -> Iterator[Check]:
    """A free base: angular velocity against its attitude's derivative, linear velocity against its position's."""
    if world.layout.base is None:
        return
    quat = measured(log, "base_quat") if "base_quat" in log.columns else None
    if quat is not None and "base_ang_vel" in log.columns:
        faults, logged = list(of_attitude()), {"base_quat": quat, "base_ang_vel": measured(log, "base_ang_vel")}
        ways = [on_columns(f, logged) for f in faults]
        errors = np.array([_turned(log.time, x["base_quat"], x["base_ang_vel"]) for x in ways])
        still = _turned(log.time, quat, np.zeros_like(logged["base_ang_vel"]))
        best = yield from _best("base_quat against base_ang_vel", faults, errors, still)
        quat, w = ways[best]["base_quat"], ways[best]["base_ang_vel"].copy()
        w[np.linalg.norm(w, axis=1) * 2 > log.rate] = np.nan  # too fast to integrate from row to row
        yield from clock(log, "base_ang_vel", "base_quat", turning(log.time, quat), w)
    if "base_pos" in log.columns and "base_lin_vel" in log.columns:
        v, rate = measured(log, "base_lin_vel"), slope(log.time, measured(log, "base_pos"))
        faults = list(of_travel(attitude=quat is not None))
        rates = [on_columns(f, {"base_lin_vel": rate}, quat=quat)["base_lin_vel"] for f in faults]
        best = yield from _best("base_lin_vel against base_pos", faults, np.array(rates) - v, v)
        yield from clock(log, "base_lin_vel", "base_pos", rates[best], v)


def _turned(time: np.ndarray, quat: np.ndarray, w: np.ndarray) -> np.ndarray:
    """(T - 1, 3) error of the rotation from row to row, integrated from the mean angular velocity, rad; nan at a pause."""
    step = np.diff(time)[:, None]
    integrated = turned(quat[:-1], 0.5 * (w[1:] + w[:-1]) * step)
    return np.where(step > PAUSE * np.median(step), np.nan, between(integrated, quat[1:]))


def turning(time: np.ndarray, quat: np.ndarray) -> np.ndarray:
    """(T, 3) angular velocity in the base frame, rad/s, from the neighbouring attitudes; nan next to a pause."""
    rate, step = angular_velocity(time, quat), time[2:] - time[:-2]
    rate[1:-1][step > (1 + PAUSE) * np.median(np.diff(time))] = np.nan
    return rate


def _best(name: str, faults: list[Fault], errors: np.ndarray, still: np.ndarray) -> Generator[Check, None, int]:
    """A check from errors (faults, T, 3): the simplest of the faults that agree best; returns its index, 0 if none is needed.

    A fault counts only where it agrees better than `still` (T, 3), the error of a constant prediction.
    """
    good = np.isfinite(errors).all((0, 2)) & np.isfinite(still).all(1)
    if good.sum() < PIECES or np.square(still[good]).mean() < FINEST**2:
        return 0
    parts = np.array_split(np.flatnonzero(good), PIECES)
    squared = np.array([[np.square(e[p]).mean(0) for p in parts] for e in errors])  # (ways, pieces, 3)
    total = squared.sum((1, 2)) + FINEST**2
    near = [k for k in range(1, len(errors)) if total[k] < GAIN**2 * total[1:].min()]
    best = min(near, key=lambda k: (len(faults[k].edits), total[k]))
    check = weighed(name, faults[best].words, squared[0], squared[best], "the two then agree")
    if GAIN**2 * np.square(errors[best][good]).sum() > np.square(still[good]).sum():
        check = replace(check, holds=True)
    yield check
    return 0 if check.holds else best
