"""preflight: is this log what it says it is? Wrong names, signs, units, frames and clocks, found before anything is fitted to them.

Each suspicion is an edit of the log (two joints exchanged, a sign turned, degrees made radians, controls read later, gravity
another way). Under every edit the model predicts the same short pieces of the log. An edit that predicts much better than
the log as it stands, piece for piece, is named with its evidence:

    gain = error as it stands / error under the edit          suspect where gain > GAIN, and in nine of ten pieces

Errors are in the log's own units, so that degrees read as radians do not shrink them. What a log says of itself, without a
model, is asked first (streams.py). A fit that swallows such a fault gives numbers, and they mean nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations, permutations
from typing import Literal

import mujoco
import numpy as np

from surefoot.log import Log
from surefoot.real2sim.learnable import kind_of
from surefoot.real2sim.replay import Windows, bears, predict, whole, windows
from surefoot.real2sim.signals import (
    BASE,
    PAUSE,
    Signal,
    controls,
    has_base,
    joints_of,
    measured,
    refuse_empty,
    slope,
)
from surefoot.real2sim.streams import GAIN, JOINTS, LATE, PIECES, attitude, speeds, stamps, weighed
from surefoot.verdict import Check, Verdict
from surefoot.world import Motion, Start, World

SECONDS = 1.0  # of each piece that is predicted: long enough for gravity to show
SHORTEST = 0.2  # s, of a piece that says anything
STRAIGHT = 1.5  # gain for gravity and clocks: where a machine falls or lags, an edit that helps predicts better whatever is wrong
STANDING = ("base", "kind of controls")
FOLLOWS = (
    0.3  # of their size, that controls of a motor are at least away from its joint's position: else they are targets
)
LOST = 1e3  # rad: the error of a simulation that diverged
UNMOVED = 1e-4  # rad, m, ...: less than an encoder tells
NEAR = 0.9  # of what the best edit explains: another that explains as much is named beside it
CLOCKS = 8  # steps of 25 ms at least that controls are tried earlier and later
OFFSET, FARTHEST = 0.1, 0.5  # rad: an offset that is tried, and the largest that is believed
ONCE = 64  # edits in one rollout
SPEEDS = ("base_lin_vel", "base_ang_vel")


@dataclass(frozen=True)
class Edit:
    """A way a log may be wrong: columns of joints to take in another order, times a number, plus a number; controls to read
    at other rows; columns of the base times numbers."""

    name: str
    about: str
    order: tuple[int, ...] = ()
    """joint whose column each is; none: as they stand"""
    times: tuple[float, ...] = ()
    plus: tuple[float, ...] = ()
    only: Literal["both", "control", "readings"] = "both"
    """what was measured, what was told, or both"""
    motors: tuple[int, ...] = ()
    """actuator whose control each is"""
    late: int = 0
    """rows that controls are behind"""
    base: tuple[tuple[str, tuple[float, ...]], ...] = ()
    least: float = GAIN

    @property
    def joints(self) -> list[int]:
        """The joints it is about, which alone bear witness; none: all of them."""
        return sorted({i for i, j in enumerate(self.order) if i != j} | {i for i, s in enumerate(self.times) if s != 1})


@dataclass(frozen=True)
class Case:
    """A log in the model's own order, and who is who in it."""

    world: World
    log: Log
    names: tuple[str, ...]
    """joints, as joint_pos has them"""
    motors: tuple[int, ...]
    """the actuator of each joint, -1 where it has none"""
    signals: tuple[str, ...]
    """what is predicted"""
    turning: tuple[bool, ...]
    """the joints that are angles"""


def preflight(world: World, log: Log) -> Verdict:
    """What looks wrong in a log, most telling first; holds when nothing does."""
    for name in JOINTS:
        if name in log.columns:
            refuse_empty(log, name, [world.model.joint(j).name for j in joints_of(world.model, log, name)])
    first = [*standing(world, log), *stamps(log), *attitude(world, log), *speeds(world, log)]
    unchecked, edits, offsets = _why_not(world, log), list[Check](), dict[str, float]()
    if not unchecked and all(c.holds for c in first if c.name in STANDING):  # else no edit would mean anything
        edits, offsets, unchecked = _edits(case(world, log))
    checks = [*first, *edits, *_limits(world, log, offsets)]  # what predicts well comes before what is out of range
    bad = [c for c in checks if not c.holds]
    next_ = "correct the mapping: " + bad[0].evidence if bad else ""
    return Verdict(tuple(sorted(checks, key=lambda c: c.holds)), next_, meta={"unchecked": unchecked})


def standing(world: World, log: Log) -> Iterator[Check]:
    """How the machine stood and was driven, where log and model do not agree about it."""
    m = world.model
    if has_base(m):
        told = [c for c in log.columns if c in BASE or c in world.state.y]
        words = (
            ", ".join(told) or "no column tells of the base, which is free in the model: was it held? (--machine.fixed)"
        )
        yield Check("base", len(told), 1, bool(told), words, unit="columns")
    if "joint_pos" not in log.columns or "control" not in log.columns:
        return
    joints = joints_of(m, log, "joint_pos")
    bare = [
        (a, joints.index(int(m.actuator_trnid[a, 0])))
        for a in range(m.nu)
        if m.actuator_biastype[a] == mujoco.mjtBias.mjBIAS_NONE and not world.terms  # which may be a net of servos
        and m.actuator_trntype[a] == mujoco.mjtTrn.mjTRN_JOINT and m.actuator_trnid[a, 0] in joints
    ]  # fmt: skip
    if not bare:
        return
    u, q = (x[:, list(i)] for x, i in zip((controls(world, log), measured(log, "joint_pos")), zip(*bare)))
    size = float(np.sqrt(np.nanmean(np.square(u))))
    away = float(np.sqrt(np.nanmean(np.square(u - q)))) / size if size > 0 else 1.0
    yield Check("kind of controls", away, FOLLOWS, away >= FOLLOWS, f"controls are {away:.0%} of their size away from joint_pos"
                + ("" if away >= FOLLOWS else ": position targets, which the model's motors would take for torques; "
                   "give the servos' gains (--machine.kp, --machine.kd)"), unit="of their size")  # fmt: skip


def _why_not(world: World, log: Log) -> str:
    """Why order, signs and gravity cannot be asked for; nothing where they can."""
    told = _told(world, log)
    if not told:
        return "the log has no joint_pos" + (", base_lin_vel or base_ang_vel" if has_base(world.model) else "")
    if not world.model.nu:
        return "the model has no actuators"
    longest = whole(world, log, told) * world.dt
    if longest < SHORTEST:
        return f"the log's stretches without a gap are {longest:.2g} s long, and it takes {SHORTEST:g}"
    main = _main(told)
    if max(float(np.nanmax(np.nanstd(measured(log, name), 0))) for name in main) < UNMOVED:
        return f"nothing moved: {' and '.join(main)} stay where they are"
    return ""


def _told(world: World, log: Log) -> tuple[str, ...]:
    """The columns that are predicted."""
    joints = ("joint_pos",) if "joint_pos" in log.columns and measured(log, "joint_pos").shape[1] else ()
    return (*joints, *(name for name in SPEEDS if name in log.columns and has_base(world.model)))


def _main(told: tuple[str, ...]) -> tuple[str, ...]:
    """Those that bear witness unless an edit is about others."""
    return told[:1] if told[0] == "joint_pos" else told


def _limits(world: World, log: Log, offsets: dict[str, float]) -> Iterator[Check]:
    """Positions beyond what the joints can reach, once offsets that were found are added; 57 times beyond is degrees."""
    if "joint_pos" not in log.columns:
        return
    m, q = world.model, measured(log, "joint_pos")
    for i, j in enumerate(joints_of(m, log, "joint_pos")):
        least, most = (float(f(q[:, i])) + offsets.get(m.joint(j).name, 0.0) for f in (np.nanmin, np.nanmax))
        limited = bool(m.jnt_limited[j])
        low, high = m.jnt_range[j] if limited else (-4 * np.pi, 4 * np.pi)
        over, margin = max(most - high, low - least), 0.1 * (high - low)
        words = f"goes from {least:.3g} to {most:.3g}, the joint from {low:.3g} to {high:.3g}"
        small, large = np.radians([least, most])
        far = max(-least, most) > 2 * max(-low, high)
        if over > margin and far and low - margin <= small and large <= high + margin:
            words += "; in degrees it would fit: degrees passed as radians?"
        elif over > margin:
            words += "; is this another joint's column, or another zero?"
        if over > margin or limited:
            yield Check(f"range of {m.joint(j).name}", over, margin, over <= margin, words, unit="rad")


def case(world: World, log: Log) -> Case:
    """Joints in the order of joint_pos, controls in the model's; speeds that were not logged are slopes."""
    m, told = world.model, _told(world, log)
    kept = {"control": controls(world, log)}
    joints = joints_of(m, log, "joint_pos") if "joint_pos" in told else []
    names = tuple(m.joint(j).name for j in joints)
    if joints:
        kept["joint_pos"] = measured(log, "joint_pos")
        if "joint_vel" in log.columns:
            at = joints_of(m, log, "joint_vel")
            v = measured(log, "joint_vel")
            kept["joint_vel"] = np.stack([v[:, at.index(j)] if j in at else np.zeros(len(log)) for j in joints], 1)
        else:
            kept["joint_vel"] = slope(log.time, kept["joint_pos"])
    kept |= {name: measured(log, name) for name in BASE if name in log.columns and has_base(m)}
    if "base_pos" in kept and "base_lin_vel" not in kept:
        kept["base_lin_vel"] = slope(log.time, kept["base_pos"])
    driven = {int(m.actuator_trnid[a, 0]): a for a in range(m.nu) if m.actuator_trntype[a] == mujoco.mjtTrn.mjTRN_JOINT}
    turning = tuple(bool(m.jnt_type[j] == mujoco.mjtJoint.mjJNT_HINGE) for j in joints)
    plain = Log(log.time, kept, meta={"names": dict.fromkeys(JOINTS, list(names))} if joints else {})
    return Case(world, plain, names, tuple(driven.get(j, -1) for j in joints), told, turning)


def edited(case: Case, edit: Edit) -> Log:
    """The log under an edit: column i holds what joint order[i] did, times times[i], plus plus[i]."""
    columns, count = dict(case.log.columns), len(case.names)
    order, times = edit.order or tuple(range(count)), np.array(edit.times or (1.0,) * count)
    if edit.only != "control" and count:
        for name in JOINTS:
            columns[name] = np.empty_like(case.log[name])
            columns[name][:, order] = case.log[name] * times
        columns["joint_pos"] += np.array(edit.plus or (0.0,) * count)
    u = case.log["control"].copy()
    if edit.only != "readings":
        for i, a in enumerate(case.motors):
            to = case.motors[order[i]]
            if a >= 0 and to >= 0:
                u[:, to] = case.log["control"][:, a] * times[i]
    if edit.motors:
        u = u[:, list(edit.motors)]
    columns["control"] = _later(case.log, u, edit.late) if edit.late else u
    for name, factor in edit.base:
        if name in columns:
            columns[name] = columns[name] * factor
    return Log(case.log.time, columns, meta=case.log.meta)


def _later(log: Log, u: np.ndarray, rows: int) -> np.ndarray:
    """Each row has the control logged so many rows later, within its own stretch of time; its end is held."""
    step = np.diff(log.time)
    stretch = np.concatenate([[0], np.cumsum(step > PAUSE * np.median(step))])
    first, last = np.searchsorted(stretch, stretch), np.searchsorted(stretch, stretch, "right") - 1
    moved = u[np.clip(np.arange(len(u)) + rows, first, last)]
    return np.where(np.isfinite(moved) & np.isfinite(u), moved, u)


def _edits(case: Case) -> tuple[list[Check], dict[str, float], str]:
    """What each suspicion explains, offsets of joints that explain most, and whether it all means little."""
    world, log = case.world, case.log
    longest = min(SECONDS, bears(world, log, world.params.nominal, SECONDS, grown=2.0))
    length = int(np.clip(round(longest / world.dt), 2, whole(world, log, case.signals)))
    pieces = windows(world, log, length, _stride(log, length), case.signals)
    pieces = replace(pieces, signals=tuple(_circled(log, s) for s in pieces.signals))
    tried = [Edit("as it stands", ""), *_suspicions(case)]
    errors = _errors(case, pieces, tried)  # (edits, pieces, columns)
    again = [*_offsets(case, tried, errors), *_twins(case, tried, errors)]
    if again:
        tried, errors = [*tried, *again], np.concatenate([errors, _errors(case, pieces, again)])
    turned, under = _gravity(case, pieces)
    tried, errors = [*tried, *turned], np.concatenate([errors, under])
    main = _columns(case)
    found = [f for k in range(1, len(tried)) if (f := _check(case, tried, errors, k))]
    best, still = float(errors[..., main].sum((1, 2)).min()), float(_still(case, pieces)[:, main].sum())
    lost = (f"the model predicts {' and '.join(_main(case.signals))} worse than standing still would, under every "
            "suspicion: it can hardly judge this log") if best > still else ""  # fmt: skip
    return *_told_apart(found, case.names), lost


def _circled(log: Log, signal: Signal) -> Signal:
    """Errors on the circle only where readings jump by a turn and stay within one: elsewhere it would hide degrees."""
    if signal.kind != "turn" or signal.turns is None:
        return signal
    q = log["joint_pos"]
    jumps = np.any((np.abs(np.diff(q, axis=0)) > np.pi) & (np.diff(log.time) < PAUSE / log.rate)[:, None], 0)
    return replace(signal, turns=signal.turns & jumps & (np.nanmax(q, 0) - np.nanmin(q, 0) < 2.02 * np.pi))


def _columns(case: Case, edit: Edit | None = None) -> list[int]:
    """Of the errors' columns, those that bear witness: of the joints an edit is about, of the base, or all of the joints."""
    count, whole_ = len(case.names), len(case.names) + 3 * sum(name in SPEEDS for name in case.signals)
    if edit is not None and edit.base and whole_ > count:
        return list(range(count, whole_))
    return (edit.joints if edit is not None else []) or list(range(count or whole_))


@dataclass(frozen=True)
class Found:
    check: Check
    much: float
    """how much of the squared error of all that bears witness it takes away"""
    note: tuple[float, ...] = ()
    """offsets, which can be learned and are no fault"""

    @property
    def tells(self) -> bool:
        return bool(self.note) or not self.check.holds


def _check(case: Case, tried: list[Edit], errors: np.ndarray, k: int) -> Found | None:
    edit, main = tried[k], _columns(case)
    plain, other = errors[0], errors[k]
    if edit.late:  # against the best delay that an actuator may have
        some = [i for i, x in enumerate(tried) if x.name in ("as it stands", edit.name) and _allowed(case, x)]
        if k in some:
            return None
        plain = errors[min(some, key=lambda i: errors[i][:, main].sum())]
    if edit.name == "offsets" and abs(max(edit.plus, key=abs)) == OFFSET:
        return None  # tried to find its size
    at = _columns(case, edit)
    check = weighed(edit.name, edit.about, plain[:, at], other[:, at], "the model then predicts", edit.least)
    much = float((plain - other)[:, main].sum())
    if edit.name != "offsets" or check.holds:
        return Found(check, much)
    words = f"{check.evidence}; it can be learned (--learn encoder_offset:each)"
    return Found(replace(check, holds=True, evidence=words), much, edit.plus)


def _allowed(case: Case, edit: Edit) -> bool:
    return abs(edit.late) * case.world.dt <= max(LATE, 1.5 * case.world.dt)


def _told_apart(found: list[Found], names: tuple[str, ...]) -> tuple[list[Check], dict[str, float]]:
    """Of each kind the edit that explains most. Of all that tell, only the one that explains most: it explains the others
    (a leg exchanged shows in the signs of its joints as well), with those that explain nearly as much."""
    tell = [f for f in found if f.tells]
    quiet = {f.check.name: f for f in sorted(found, key=lambda f: f.much) if not f.tells}
    shown = [f.check for name, f in quiet.items() if name not in {f.check.name for f in tell}]
    if not tell:
        return shown, {}
    most = max(f.much for f in tell)
    near = sorted((f for f in tell if f.much >= NEAR * most), key=lambda f: -f.much)
    top = next((f for f in near if not f.note), near[0])
    same = [f for f in near if f is not top and f.check.name == top.check.name][:3]
    other = {f.check.name: f for f in reversed(near) if f.check.name != top.check.name}
    words = [f.check.evidence.split(":")[0] for f in (*same, *other.values())]
    evidence = f"{top.check.evidence}; nearly as well: {' or '.join(words)}" if words else top.check.evidence
    return [replace(top.check, evidence=evidence), *shown], dict(zip(names, top.note))


def _suspicions(case: Case) -> Iterator[Edit]:
    names = case.names
    one = lambda i, x, rest: tuple(x if k == i else rest for k in range(len(names)))  # noqa: E731
    for i, name in enumerate(names):
        yield Edit("signs", f"turn the sign of {name}", times=one(i, -1.0, 1.0))
        yield Edit(
            "signs of controls", f"turn the sign of the control of {name}", times=one(i, -1.0, 1.0), only="control"
        )
        yield Edit(
            "units",
            f"joint_pos and joint_vel of {name} are in degrees",
            times=one(i, np.pi / 180, 1.0),
            only="readings",
        )
        for way in (OFFSET, -OFFSET):
            yield Edit("offsets", f"an offset of {name}", plus=one(i, way, 0.0), only="readings")
    for i, j in combinations(range(len(names)), 2):
        if kind_of(names[i]) != kind_of(names[j]) and j != i + 1:
            continue  # what people mix up: the same joint of another limb, and neighbours
        order = _swapped(len(names), i, j)
        yield Edit("joint order", f"exchange {names[i]} and {names[j]}", order)
        yield Edit("order of controls", f"exchange the controls of {names[i]} and {names[j]}", order, only="control")
    yield from _limbs(names)
    yield from _degrees(case)
    yield from _others(case)


def _swapped(count: int, i: int, j: int) -> tuple[int, ...]:
    order = list(range(count))
    order[i], order[j] = j, i
    return tuple(order)


def _limbs(names: tuple[str, ...]) -> Iterator[Edit]:
    """Whole limbs in another order, where joints of one kind occur the same number of times: SDK orders."""
    groups: dict[str, list[int]] = {}
    for i, name in enumerate(names):
        kind = kind_of(name)
        limb = (
            name[: name.index(kind)].strip("_") if kind in name and kind != name else name.replace(kind, "").strip("_")
        )
        groups.setdefault(limb, []).append(i)
    limbs = {k: v for k, v in groups.items() if len(v) > 1}
    if not 2 <= len(limbs) <= 4 or len({len(v) for v in limbs.values()}) != 1:
        return
    keys = list(limbs)
    for other in permutations(keys):
        if list(other) != keys:
            order = list(range(len(names)))
            for a, b in zip(keys, other):
                for i, j in zip(limbs[a], limbs[b]):
                    order[i] = j
            words = f"of {' '.join(other)}, not {' '.join(keys)}"
            yield Edit("joint order", f"the columns are {words}", tuple(order))
            yield Edit("order of controls", f"the controls are {words}", tuple(order), only="control")


def _degrees(case: Case) -> Iterator[Edit]:
    times = tuple(np.pi / 180 if turns else 1.0 for turns in case.turning)
    if not any(case.turning):
        return
    if sum(case.turning) > 1:
        yield Edit("units", "joint_pos and joint_vel are in degrees", times=times, only="readings")
        yield Edit("units", "joint_pos, joint_vel and control are in degrees", times=times)
    yield Edit("units", "control is in degrees", times=times, only="control")


def _others(case: Case) -> Iterator[Edit]:
    """What is not about single joints: clocks, actuators that drive no joint, the base's axes."""
    m = case.world.model
    rows = {round(k * max(1.0, 0.5 * LATE / case.world.dt)) for k in range(1, CLOCKS + 1)}
    for late in sorted(k for r in rows for k in (r, -r) if r * case.world.dt <= 4 * LATE):
        words = f"controls are {1e3 * abs(late) * case.world.dt:.3g} ms {'late' if late > 0 else 'early'} in this log"
        yield Edit("clock of controls", words, late=late, least=STRAIGHT)
    free = [a for a in range(m.nu) if m.actuator_trntype[a] != mujoco.mjtTrn.mjTRN_JOINT]
    for i, j in combinations(free, 2):
        words = f"exchange the controls of {m.actuator(i).name} and {m.actuator(j).name}"
        yield Edit("order of controls", words, motors=_swapped(m.nu, i, j))
    if set(SPEEDS) & set(case.signals):
        about_x, up = (1.0, -1.0, -1.0), (1.0, 1.0, -1.0)
        vectors = ("base_pos", "base_lin_vel", "base_ang_vel")
        yield Edit("axes of the base", "z points down in the base's columns (north east down)", least=STRAIGHT,
                   base=(*((name, about_x) for name in vectors), ("base_quat", (1.0, 1.0, -1.0, -1.0))))  # fmt: skip
        yield Edit("axes of the base", "z points down in base_pos and base_lin_vel", least=STRAIGHT,
                   base=(("base_pos", up), ("base_lin_vel", up)))  # fmt: skip


def _offsets(case: Case, tried: list[Edit], errors: np.ndarray) -> Iterator[Edit]:
    """Offsets of the size that predicts best: the vertex of the parabola through -OFFSET, 0 and OFFSET."""
    cost, name = errors[..., _columns(case)].sum((1, 2)), "offsets"
    some = [k for k, x in enumerate(tried) if x.name == name]
    for above, below in zip(some[::2], some[1::2]):
        bend = cost[above] + cost[below] - 2 * cost[0]
        size = 0.5 * OFFSET * (cost[below] - cost[above]) / bend if bend > 0 else np.inf
        if UNMOVED < abs(size) <= FARTHEST:
            words = f"{tried[above].about}, which reads {-size:+.2g} rad too much"
            yield Edit(name, words, plus=tuple(size * (x != 0) for x in tried[above].plus), only="readings")


def _twins(case: Case, tried: list[Edit], errors: np.ndarray) -> Iterator[Edit]:
    """For controls that look wrong: the same said of the readings, which a symmetric machine cannot tell apart."""
    found = [(f.much, x) for k, x in enumerate(tried) if k and x.only == "control" and x.name != "units"
             and (f := _check(case, tried, errors, k)) and f.tells]  # fmt: skip
    for _, x in sorted(found, key=lambda f: -f[0])[:PIECES]:
        back = tuple(int(i) for i in np.argsort(x.order))
        words = x.about.replace("the control of", "the readings of").replace("the controls", "the readings")
        if back != x.order:
            words = f"the readings, not the controls, are in another order ({x.about.split(' are ')[1].split(',')[0]})"
        yield replace(x, name=x.name.replace("controls", "readings"), about=words, order=back, only="readings")


def _errors(case: Case, pieces: Windows, edits: list[Edit]) -> np.ndarray:
    """(edits, w, columns) mean square error of each piece under each edit, many in one rollout."""
    if len(edits) > ONCE:
        return np.concatenate([_errors(case, pieces, edits[i : i + ONCE]) for i in range(0, len(edits), ONCE)])
    each = [_piece(case, pieces, edited(case, x)) for x in edits]
    join = lambda read: np.concatenate([read(x) for x in each])  # noqa: E731
    act = None if pieces.start.act is None else join(lambda x: x.start.act)
    start = Start(join(lambda x: x.start.q), join(lambda x: x.start.v), join(lambda x: x.start.u), act)
    all_ = replace(pieces, rows=np.tile(pieces.rows, len(edits)), start=start, u=join(lambda x: x.u),
                   before=None if pieces.before is None else join(lambda x: x.before))  # fmt: skip
    motion = predict(case.world, all_, case.world.params.nominal[None])
    found = _squared(case, motion, {s.name: join(lambda x, s=s: x.target(s)) for s in pieces.signals}, pieces)
    found = found.reshape(len(edits), len(pieces), -1)
    for k, x in enumerate(edits):
        if x.times and x.only != "control":
            found[k, :, : len(case.names)] /= np.square(x.times)  # in the log's own units
    return found


def _piece(case: Case, pieces: Windows, log: Log) -> Windows:
    """The same rows of an edited log."""
    found = windows(case.world, log, pieces.length, _stride(log, pieces.length), case.signals)
    return replace(found, signals=pieces.signals)


def _stride(log: Log, length: int) -> int:
    return max(1, (len(log) - length - 1) // PIECES)


def _squared(case: Case, motion: Motion, target: dict[str, np.ndarray], pieces: Windows) -> np.ndarray:
    """(n, columns) mean square error of each simulation; of the base, in parts of how much its columns vary."""
    found = []
    for s in pieces.signals:
        error = s.error(s.read(motion), target[s.name])
        error = np.where(np.isfinite(target[s.name]), error, 0.0)  # a lost packet says nothing against a prediction
        error[motion.diverged] = LOST
        with np.errstate(over="ignore"):
            found.append(np.square(error / _size(case, s.name)).mean(1))
    return np.concatenate(found, 1)


def _size(case: Case, name: str) -> float:
    """What errors of a column are measured by: speeds of a base differ in unit, and are added up."""
    return max(float(np.nanstd(case.log[name])), UNMOVED) if name in SPEEDS else 1.0


def _still(case: Case, pieces: Windows) -> np.ndarray:
    """(w, columns) mean square error of saying that everything stays as each piece begins."""
    found = []
    for s in pieces.signals:
        target, first = pieces.target(s), measured(case.log, s.name)[pieces.rows]
        error = s.error(np.broadcast_to(first[:, None], target.shape), target) / _size(case, s.name)
        found.append(np.square(np.where(np.isfinite(error), error, 0.0)).mean(1))
    return np.concatenate(found, 1)


def _gravity(case: Case, pieces: Windows) -> tuple[list[Edit], np.ndarray]:
    """For a machine whose base is held: gravity along each axis in turn. A free base is told by its own attitude."""
    world, found, errors = case.world, list[Edit](), list[np.ndarray]()
    nothing = np.zeros((0, len(pieces), len(case.names) + 3 * sum(name in SPEEDS for name in case.signals)))
    if has_base(world.model) or not world.model.opt.gravity.any():
        return found, nothing
    kept, size = world.model.opt.gravity.copy(), float(np.linalg.norm(world.model.opt.gravity))
    target = {s.name: pieces.target(s) for s in pieces.signals}
    try:
        for axis in range(3):
            for side in (1.0, -1.0):
                g = np.zeros(3)
                g[axis] = side * size
                if np.allclose(g, kept):
                    continue
                world.model.opt.gravity[:] = g
                fresh = world.like(len(pieces))
                words = f"gravity along {'-' if side < 0 else '+'}{'xyz'[axis]} of the model"
                found.append(Edit("direction of gravity", words, least=STRAIGHT))
                errors.append(_squared(case, predict(fresh, pieces, world.params.nominal[None]), target, pieces))
    finally:
        world.model.opt.gravity[:] = kept
    return found, np.stack(errors)
