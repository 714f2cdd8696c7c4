"""preflight: is this log what it says it is? Wrong names, signs, units and frames, found before anything is fitted to them.

Each suspicion is an edit of the log (two joints exchanged, a sign turned, degrees made radians, gravity another way).
Under every edit the model predicts the same short pieces of the log. An edit that predicts much better than the log as it
stands, piece for piece, is named with its evidence:

    gain = error as it stands / error under the edit          suspect where gain > GAIN, and in nine of ten pieces

A fit that swallows such a fault gives numbers, and they mean nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations, permutations

import mujoco
import numpy as np

from surefoot.log import Log
from surefoot.real2sim.learnable import kind_of
from surefoot.real2sim.replay import Windows, bears, predict, whole, windows
from surefoot.real2sim.signals import BASE, PAUSE, controls, has_base, joints_of, measured, refuse_empty, slope
from surefoot.verdict import Check, Verdict
from surefoot.world import Motion, Start, World

GAIN = 1.05  # how much better an edit must predict, in the joints it is about, before the log is doubted
PIECES, SECONDS = 12, 1.0  # of the log that are predicted, and how long each is: long enough for gravity to show
SHORTEST = 0.2  # s, of a piece that says anything
OFTEN = 0.9  # of the pieces in which it must predict better
GAPS = 0.1  # of the time, that may be without rows
STRAIGHT = (
    1.5  # gain for gravity: in a machine that falls, an edit that stops the fall predicts better whatever is wrong
)
STANDING = ("base", "kind of controls")
FOLLOWS = (
    0.3  # of their size, that controls of a motor are at least away from its joint's position: else they are targets
)
LOST = 1e3  # rad: the error of a simulation that diverged
JOINTS = ("joint_pos", "joint_vel")


@dataclass(frozen=True)
class Edit:
    """A way a log may be wrong: columns to take in another order and sign, gravity in another direction."""

    name: str
    about: str
    order: tuple[int, ...]
    sign: tuple[float, ...]
    only: str = "both"
    """`both`: what was measured and what was told; `control`: what was told alone"""

    @property
    def joints(self) -> list[int]:
        """The joints it is about, which alone bear witness; none: all of them."""
        return [i for i, (j, s) in enumerate(zip(self.order, self.sign)) if i != j or s < 0] or list(
            range(len(self.order))
        )


def preflight(world: World, log: Log) -> Verdict:
    """What looks wrong in a log, most telling first; holds when nothing does."""
    for name in JOINTS:
        if name in log.columns:
            refuse_empty(log, name, [world.model.joint(j).name for j in joints_of(world.model, log, name)])
    checks = [*standing(world, log), *_stamps(log), *_speeds(world, log), *_limits(world, log)]
    unchecked = _why_not(world, log)
    if not unchecked and all(c.holds for c in checks if c.name in STANDING):  # else no edit would mean anything
        checks += _edits(world, log)
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
    if "joint_pos" not in log.columns:
        return "the log has no joint_pos"
    if not world.model.nu:
        return "the model has no actuators"
    longest = whole(world, log, ("joint_pos",)) * world.dt
    if longest < SHORTEST:
        return f"the log's stretches without a gap are {longest:.2g} s long, and it takes {SHORTEST:g}"
    return ""


def _stamps(log: Log) -> Iterator[Check]:
    steps = np.diff(log.time)
    usual = float(np.median(steps))
    pauses = np.flatnonzero(steps > PAUSE * usual)
    off = np.abs(steps - usual)
    off[pauses] = 0.0
    uneven, late = float(off.max() / usual), int(np.argmax(off))
    yield Check("stamps are even", uneven, 0.5, uneven <= 0.5,
                f"largest departure from {usual * 1e3:.3g} ms is {uneven:.0%}, at row {late}", unit="of a step")  # fmt: skip
    gaps = log.meta.get("gaps") or [(log.time[i], log.time[i + 1]) for i in pauses]
    declared = bool(log.meta.get("gaps")) and bool(len(pauses))  # by whoever recorded it: someone put the robot back
    if gaps:
        at, longest = max(gaps, key=lambda ends: ends[1] - ends[0])[0], max(b - a for a, b in gaps)
        lost = sum(b - a for a, b in gaps) / float(log.time[-1] - log.time[0])
        words = (
            f"{len(gaps)} gaps, {lost:.1%} of the time, the longest {longest:.3g} s from {at:.6g} s on; none is bridged"
        )
        yield Check("gaps", lost, GAPS, declared or lost <= GAPS, words, unit="of the time")


def _speeds(world: World, log: Log) -> Iterator[Check]:
    """Logged speeds against the slope of logged positions: their ratio should be 1 in every joint."""
    if not all(c in log.columns for c in JOINTS):
        return
    names = [world.model.joint(j).name for j in joints_of(world.model, log, "joint_vel")]
    places = [world.model.joint(j).name for j in joints_of(world.model, log, "joint_pos")]
    rate, v = slope(log.time, measured(log, "joint_pos")), measured(log, "joint_vel")
    for i, name in enumerate(names):
        if name not in places:
            continue
        a, b = rate[:, places.index(name)], v[:, i]
        good = np.isfinite(a) & np.isfinite(b)
        a, b = a[good] - a[good].mean(), b[good] - b[good].mean()
        if np.square(a).sum() < 1e-12 or np.square(b).sum() < 1e-12:
            continue
        match = float(a @ b / np.sqrt((a @ a) * (b @ b)))
        gain = float(np.sqrt((b @ b) / (a @ a))) * np.sign(match)
        fine = match > 0.5 and 0.5 < gain < 2.0
        why = {True: "they agree"}.get(fine, _blame(gain, match))
        yield Check(f"speed of {name}", gain, 1.0, fine, f"logged speed is {gain:.3g} times the slope of its position "
                    f"(correlation {match:.2f}): {why}", unit="ratio")  # fmt: skip


def _blame(gain: float, match: float) -> str:
    if abs(match) < 0.5:
        return "they do not belong together: is the order of the columns the same?"
    if gain < 0:
        return "the sign of one of them is turned"
    for value, words in ((180 / np.pi, "speed in degrees, position in radians"), (np.pi / 180, "position in degrees, speed in radians"),
                         (1e-3, "a clock in milliseconds"), (1e3, "a clock in milliseconds")):  # fmt: skip
        if 0.8 < gain / value < 1.25:
            return words
    return "their units differ"


def _limits(world: World, log: Log) -> Iterator[Check]:
    """Positions beyond what the joints can reach; 57 times beyond is degrees."""
    if "joint_pos" not in log.columns:
        return
    m, q = world.model, measured(log, "joint_pos")
    for i, j in enumerate(joints_of(m, log, "joint_pos")):
        reach = float(np.nanmax(np.abs(q[:, i]), initial=0.0))
        limited = bool(m.jnt_limited[j])
        low, high = m.jnt_range[j] if limited else (-4 * np.pi, 4 * np.pi)
        over = float(max(np.nanmax(q[:, i]) - high, low - np.nanmin(q[:, i])))
        margin = 0.1 * (high - low)
        words = f"reaches {reach:.3g}, the joint {low:.3g} to {high:.3g}"
        if over > margin and np.radians(reach) <= max(abs(low), abs(high)) * 1.1:
            words += "; in degrees it would fit: degrees passed as radians?"
        elif over > margin:
            words += "; is this another joint's column, or another zero?"
        if over > margin or limited:
            yield Check(f"range of {m.joint(j).name}", over, margin, over <= margin, words, unit="rad")


def _edits(world: World, log: Log) -> list[Check]:
    longest = min(SECONDS, bears(world, log, world.params.nominal, SECONDS, grown=2.0))
    length = int(np.clip(round(longest / world.dt), 2, whole(world, log, ("joint_pos",))))
    pieces = windows(world, log, length, max(1, (len(log) - length - 1) // PIECES), ("joint_pos",))
    plain, *tried = [Edit("as it stands", "", *_same(world, log)), *_suspicions(world, log)]
    errors = _errors(world, pieces, log, [plain, *tried])  # (edits, pieces, joints)
    found = [_check(x, errors[0], errors[k + 1]) for k, x in enumerate(tried)]
    found += _gravity(world, pieces, errors[0])
    kinds = {c.name: [f for f in found if f[0].name == c.name] for c, _ in found}
    worst = [_most_telling(each) for each in kinds.values()]
    bad = [f for f in worst if not f[0].holds]
    if len(bad) > 1:  # what explains most explains the others: a leg exchanged shows in the signs of its joints as well
        worst = [max(bad, key=lambda f: f[1]), *(f for f in worst if f[0].holds)]
    return [c for c, _ in worst]


Found = tuple[Check, float]  # a suspicion, and how much of all joints' squared error it takes away


def _most_telling(found: list[Found]) -> Found:
    """Of one kind, the edit that explains most, with those that explain nearly as much: a robot may be symmetric."""
    top, most = max(found, key=lambda f: (not f[0].holds, f[1]))
    near = [c.evidence.split(":")[0] for c, much in found if not c.holds and c is not top and much > 0.9 * most]
    return (replace(top, evidence=f"{top.evidence}; nearly as well: {' or '.join(near[:3])}") if near else top), most


def _same(world: World, log: Log) -> tuple[tuple[int, ...], tuple[float, ...]]:
    count = measured(log, "joint_pos").shape[1]
    return tuple(range(count)), (1.0,) * count


def _suspicions(world: World, log: Log) -> Iterator[Edit]:
    order, sign = _same(world, log)
    names = [world.model.joint(j).name for j in joints_of(world.model, log, "joint_pos")]
    for i, name in enumerate(names):
        turned = tuple(-1.0 if k == i else 1.0 for k in range(len(names)))
        yield Edit("signs", f"turn the sign of {name}", order, turned)
        yield Edit("signs of controls", f"turn the sign of the control of {name}", order, turned, "control")
    for i, j in combinations(range(len(names)), 2):
        if kind_of(names[i]) != kind_of(names[j]) and j != i + 1:
            continue  # what people mix up: the same joint of another limb, and neighbours
        swapped = list(order)
        swapped[i], swapped[j] = j, i
        yield Edit("joint order", f"exchange {names[i]} and {names[j]}", tuple(swapped), sign)
        yield Edit(
            "order of controls", f"exchange the controls of {names[i]} and {names[j]}", tuple(swapped), sign, "control"
        )
    yield from _limbs(names, sign)


def _limbs(names: list[str], sign: tuple[float, ...]) -> Iterator[Edit]:
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
            yield Edit("joint order", f"the columns are of {' '.join(other)}, not {' '.join(keys)}", tuple(order), sign)


def _errors(world: World, pieces: Windows, log: Log, edits: list[Edit]) -> np.ndarray:
    """(edits, w, joints) mean square error of each piece under each edit, all in one rollout."""
    each = [_edited(world, pieces, log, x) for x in edits]
    q, v, u, target = (np.concatenate([x[k] for x in each]) for k in range(4))
    act = None if pieces.start.act is None else np.tile(pieces.start.act, (len(edits), 1))
    rows = np.tile(pieces.rows, len(edits))
    all_ = Windows(pieces.log, pieces.signals, rows, pieces.length, Start(q, v, u[:, 0], act), u)
    motion = predict(world, all_, world.params.nominal[None])
    return _squared(pieces, motion, target).reshape(len(edits), len(pieces), -1)


def _edited(world: World, pieces: Windows, log: Log, edit: Edit) -> tuple[np.ndarray, ...]:
    """Starts q and v, controls and measurements under an edit: column i holds what joint order[i] did, times sign."""
    m, start, u = world.model, pieces.start, pieces.u.copy()
    joints = np.array(joints_of(m, log, "joint_pos"))
    order, sign = np.array(edit.order), np.array(edit.sign)
    q_at, v_at = m.jnt_qposadr[joints], m.jnt_dofadr[joints]
    q, v, target = start.q.copy(), start.v.copy(), pieces.target(pieces.signals[0]).copy()
    if edit.only == "both":
        q[:, q_at[order]], v[:, v_at[order]] = start.q[:, q_at] * sign, start.v[:, v_at] * sign
        target[..., order] = pieces.target(pieces.signals[0]) * sign
    driven = {int(m.actuator_trnid[a, 0]): a for a in range(m.nu)}
    motors = [driven.get(int(j), -1) for j in joints]
    for i, a in enumerate(motors):
        to = motors[order[i]]
        if a >= 0 and to >= 0:
            u[..., to] = pieces.u[..., a] * sign[i]
    return q, v, u, target


def _squared(pieces: Windows, motion: Motion, target: np.ndarray) -> np.ndarray:
    """(n, joints) mean square error of each simulation."""
    signal = pieces.signals[0]
    error = signal.error(signal.read(motion), target)
    error = np.where(np.isfinite(target), error, 0.0)  # a lost packet says nothing against a prediction
    error[motion.diverged] = LOST
    with np.errstate(over="ignore"):
        return np.square(error).mean(1)


def _check(edit: Edit, plain: np.ndarray, other: np.ndarray, least: float = GAIN) -> Found:
    """From mean square errors (w, joints) without and with an edit, in the joints it is about."""
    about = edit.joints or list(range(plain.shape[1]))
    before, after = np.sqrt(plain[:, about].mean(1)), np.sqrt(other[:, about].mean(1))
    gain = float(np.sqrt(np.square(before).mean() / max(float(np.square(after).mean()), 1e-24)))
    often = float((before > after).mean())
    suspect = gain > least and often >= OFTEN
    words = f"{edit.about}: the model then predicts {gain:.2f} times as well, in {often:.0%} of {len(before)} pieces"
    return Check(edit.name, gain, least, not suspect, words, unit="gain"), float((plain - other).sum())


def _gravity(world: World, pieces: Windows, plain: np.ndarray) -> list[Found]:
    """For a machine whose base is held: gravity along each axis in turn. A free base is told by its own attitude."""
    if has_base(world.model) or not world.model.opt.gravity.any():
        return []
    kept, size = world.model.opt.gravity.copy(), float(np.linalg.norm(world.model.opt.gravity))
    found = []
    try:
        for axis in range(3):
            for side in (1.0, -1.0):
                g = np.zeros(3)
                g[axis] = side * size
                if np.allclose(g, kept):
                    continue
                world.model.opt.gravity[:] = g
                fresh = world.like(len(pieces))
                motion = predict(fresh, pieces, world.params.nominal[None])
                edit = Edit(
                    "direction of gravity",
                    f"gravity along {'-' if side < 0 else '+'}{'xyz'[axis]} of the model",
                    (),
                    (),
                )
                found.append(_check(edit, plain, _squared(pieces, motion, pieces.target(pieces.signals[0])), STRAIGHT))
    finally:
        world.model.opt.gravity[:] = kept
    return found
