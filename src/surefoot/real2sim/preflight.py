"""preflight: finds wrong names, signs, units, frames and clocks in a log before anything is fitted to it.

Each possible fault is an edit of the log: two joints exchanged, a sign reversed, degrees converted to radians, controls
shifted in time, gravity along another axis. The model predicts the same short pieces of the log under every edit. An edit
that predicts much better than the log as it is, piece for piece, is reported with its evidence:

    gain = error of the log as it is / error under the edit          suspect where gain > GAIN, and in nine of ten pieces

Errors are in the log's own units, so that reading degrees as radians does not shrink them. Checks that need no model come
first (streams.py). A fit would absorb such a fault into meaningless numbers.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from surefoot.fault import JOINTS, PLAIN, Fault, on_columns
from surefoot.log import Log
from surefoot.real2sim.edit_errors import (
    UNMOVED,
    columns_of,
    errors_of_a_constant,
    errors_under,
    errors_under_gravity,
    halves,
    stride,
    width,
)
from surefoot.real2sim.log_faults import OFFSET, Case, case, possible_faults, predicted
from surefoot.real2sim.replay import Windows, longest_window, stable_length, windows
from surefoot.real2sim.signals import (
    BASE,
    PAUSE,
    Signal,
    controls,
    joints_of,
    measured,
    names_in,
    refuse_empty,
)
from surefoot.real2sim.streams import FINEST, GAIN, LATE, OFTEN, PIECES, SAME, attitude, speeds, stamps, weighed
from surefoot.report import Progress, Watch, unwatched
from surefoot.sim.layout import model_of
from surefoot.verdict import Check, Verdict
from surefoot.world import World

STRAIGHT = (
    1.5  # gain for gravity and clocks: where a machine falls or lags, such an edit often helps whatever the fault is
)
SECONDS = 1.0  # length of each piece: long enough for gravity to act
SHORTEST = 0.2  # s: shorter pieces carry no evidence
STANDING = ("base", "kind of controls")
FOLLOWS = 0.3  # of their size: motor controls nearer to the joint's position are position targets
NEAR = 0.9  # of what the best edit explains: another that explains as much is reported with it
FARTHEST = 0.5  # rad: the largest plausible offset
SCREEN = 3  # pieces on whose first half every edit is tried first
HOPELESS = 1.05  # times the error without an edit, on those: such an edit is not tried on all pieces
BEST = 3  # of each check, by those pieces: tried on all in any case


def preflight(world: World, log: Log, watch: Watch = unwatched) -> Verdict:
    """The checks of a log, failed ones first; passes when all hold."""
    for name in JOINTS:
        if name in log.columns:
            refuse_empty(log, name, names_in(world.layout, log, name))
    first = [*standing(world, log), *stamps(log), *attitude(world, log), *speeds(world, log)]
    unchecked, edits, offsets = _why_not(world, log), list[Check](), dict[str, float]()
    if not unchecked and all(c.holds for c in first if c.name in STANDING):  # else edits mean nothing
        edits, offsets, unchecked = _edits(case(world, log), watch)
    checks = [*first, *edits, *_limits(world, log, offsets)]  # prediction is stronger evidence than a range
    bad = [c for c in checks if not c.holds]
    next_ = "correct the mapping: " + bad[0].evidence if bad else ""
    return Verdict(tuple(sorted(checks, key=lambda c: c.holds)), next_, meta={"unchecked": unchecked})


def standing(world: World, log: Log) -> Iterator[Check]:
    """Whether log and model agree on a free or fixed base, and on the kind of controls."""
    layout = world.layout
    if layout.base is not None:
        measured_ = [c for c in log.columns if c in BASE or c in world.state.y]
        words = (
            ", ".join(measured_)
            or "no column measures the base, which is free in the model: was it fixed? (--machine.fixed)"
        )
        yield Check("base", len(measured_), 1, bool(measured_), words, unit="columns")
    if "joint_pos" not in log.columns or "control" not in log.columns:
        return
    joints = names_in(layout, log, "joint_pos")
    motors = [] if world.terms else [d for d in layout.drives if d.kp == d.kd == 0]  # a Term may be a net of servos
    bare = [(d.control, joints.index(d.joint)) for d in motors if d.joint in joints]
    if not bare:
        return
    u, q = (x[:, list(i)] for x, i in zip((controls(world, log), measured(log, "joint_pos")), zip(*bare)))
    size = float(np.sqrt(np.nanmean(np.square(u))))
    away = float(np.sqrt(np.nanmean(np.square(u - q)))) / size if size > 0 else 1.0
    yield Check("kind of controls", away, FOLLOWS, away >= FOLLOWS, f"controls differ from joint_pos by {away:.0%} of their size"
                + ("" if away >= FOLLOWS else ": position targets, which the model's motors would apply as torques; "
                   "give the servos' gains (--machine.kp, --machine.kd)"), unit="of their size")  # fmt: skip


def _why_not(world: World, log: Log) -> str:
    """Why order, signs and gravity cannot be checked, or nothing."""
    columns = predicted(world, log)
    if not columns:
        return "the log has no joint_pos" + (", base_lin_vel or base_ang_vel" if world.layout.base is not None else "")
    if not world.nu:
        return "the model has no actuators"
    longest = longest_window(world, log, columns) * world.dt
    if longest < SHORTEST:
        return f"the log's stretches without a gap are {longest:.2g} s long, expected at least {SHORTEST:g} s"
    main = _main(columns)
    if max(float(np.nanmax(np.nanstd(measured(log, name), 0))) for name in main) < UNMOVED:
        return f"nothing moves: {' and '.join(main)} stay constant"
    return ""


def _main(columns: tuple[str, ...]) -> tuple[str, ...]:
    """The columns whose errors count unless an edit concerns others."""
    return columns[:1] if columns[0] == "joint_pos" else columns


def _limits(world: World, log: Log, offsets: dict[str, float]) -> Iterator[Check]:
    """Positions outside the joints' ranges, after correction by offsets; a factor of 57 means degrees."""
    if "joint_pos" not in log.columns:
        return
    layout, q = world.layout, measured(log, "joint_pos")
    for i, j in enumerate(joints_of(layout, log, "joint_pos")):
        least, most = (float(f(q[:, i])) + offsets.get(layout.joints[j], 0.0) for f in (np.nanmin, np.nanmax))
        limited = bool(np.isfinite(layout.limits[j]).all())
        low, high = layout.limits[j] if limited else (-4 * np.pi, 4 * np.pi)
        over, margin = max(most - high, low - least), 0.1 * (high - low)
        words = f"goes from {least:.3g} to {most:.3g}, the joint from {low:.3g} to {high:.3g}"
        small, large = np.radians([least, most])
        far = max(-least, most) > 2 * max(-low, high)
        if over > margin and far and low - margin <= small and large <= high + margin:
            words += "; as degrees it would fit: degrees instead of radians?"
        elif over > margin:
            words += "; is this another joint's column, or another zero?"
        if over > margin or limited:
            yield Check(f"range of {layout.joints[j]}", over, margin, over <= margin, words, unit="rad")


def _edits(case: Case, watch: Watch) -> tuple[list[Check], dict[str, float], str]:
    """What each edit explains, joint offsets that explain most, and a warning where the model predicts too badly."""
    world, log = case.world, case.log
    longest = min(SECONDS, stable_length(world, log, world.params.nominal, SECONDS, grown=2.0))
    length = int(np.clip(round(longest / world.dt), 2, longest_window(world, log, case.signals)))
    pieces = windows(world, log, length, stride(log, length), case.signals)
    pieces = replace(pieces, signals=tuple(_circled(log, s) for s in pieces.signals))
    faults, main = list(possible_faults(case)), columns_of(case)
    cost = lambda x: float(x[..., main].sum())  # noqa: E731
    few = np.unique(np.linspace(0, len(pieces) - 1, SCREEN).round().astype(int))
    watch(Progress("predicting with each fault", 0.1))
    half = lambda x: halves(x, few)  # noqa: E731
    tried = _likely(case, pieces, [f for f in faults if not f.guesses], few)
    watch(Progress("predicting with each fault", 0.6))
    tried, errors = _supported(case, pieces, tried)  # (faults, pieces, columns)
    probes = [f for f in faults if f.guesses]
    guesses = [PLAIN, *(f.at(g) for f in probes for g in f.guesses)]
    plain, *rough = (cost(x) for x in errors_under(case, pieces, guesses, half))
    probes = _steepest(probes, np.reshape(rough, (-1, 2)), plain)
    probed = np.array([cost(x) for x in errors_under(case, pieces, [f.at(g) for f in probes for g in f.guesses])])
    again = [*_offsets(probes, probed.reshape(-1, 2), cost(errors[0])), *_twins(case, tried, errors)]
    if again:
        tried, errors = [*tried, *again], np.concatenate([errors, errors_under(case, pieces, again)])
    turned, under = _gravity(case, pieces, few)
    tried, errors = [*tried, *turned], np.concatenate([errors, under])
    found = [f for k in range(1, len(tried)) if (f := _check(case, tried, errors, k))]
    best, still = min([*map(cost, errors), *probed]), cost(errors_of_a_constant(case, pieces))
    lost = (f"the model predicts {' and '.join(_main(case.signals))} worse than a constant would, under every "
            "edit: it can hardly judge this log") if best > still else ""  # fmt: skip
    return *_reported(found, case.names), lost


def _likely(case: Case, pieces: Windows, faults: list[Fault], few: np.ndarray) -> list[Fault]:
    """No fault, and those worth trying on all pieces: on a few of them not much worse than none, or the best of its check.

    Errors add up: a fault that is too far off on the first of those pieces is not tried on the others.
    """
    every, kept = [PLAIN, *faults], list(range(1, len(faults) + 1))
    rough = np.zeros((len(every), len(few), width(case)))
    rough[:1] = errors_under(case, pieces, [PLAIN], lambda x: halves(x, few))
    for at in (slice(0, 1), slice(1, None)):
        if len(few[at]):
            rough[kept, at] = errors_under(case, pieces, [every[k] for k in kept], partial(halves, few=few[at]))
        kept = _not_hopeless(case, every, rough, kept)
    return [every[k] for k in (0, *kept)]


def _not_hopeless(case: Case, every: list[Fault], rough: np.ndarray, tried: list[int]) -> list[int]:
    """Which of the faults that were tried may still be likely."""
    kept, kinds = set[int](), dict[str, list[tuple[float, int]]]()
    for k in tried:
        fault = every[k]
        at = columns_of(case, fault)
        ratio = float(rough[k][:, at].sum()) / max(float(rough[0][:, at].sum()), FINEST**2)
        usual = fault.rows and _allowed(case, fault)  # the delays that others are compared with
        kept |= {k} if ratio < HOPELESS**2 or usual else set()
        if not usual:
            kinds.setdefault(_called(fault), []).append((float(rough[k][:, columns_of(case)].sum()), k))
    return sorted(kept | {k for found in kinds.values() for _, k in sorted(found)[:BEST]})


def _supported(case: Case, pieces: Windows, faults: list[Fault]) -> tuple[list[Fault], np.ndarray]:
    """Faults with their errors on all pieces; without those that every other piece shows to be no suspects.

    A suspect predicts better in nine of ten pieces: one that does not in a few of them cannot be one, whatever the others are.
    The best of each check stays, as it is reported, and so do delays, which are compared with each other.
    """
    some, rest = np.arange(0, len(pieces), 2), np.arange(1, len(pieces), 2)
    if not len(rest):
        return faults, errors_under(case, pieces, faults)
    first = errors_under(case, pieces, faults, lambda x: x.some(some))
    kept, kinds = {0}, dict[str, list[tuple[float, int]]]()
    for k, fault in enumerate(faults[1:], 1):
        at = columns_of(case, fault)
        plain, other = (np.sqrt(x[:, at].mean(1)) for x in (first[0], first[k]))
        differ = ~np.isclose(plain, other, rtol=SAME)
        worse = int((differ & (plain <= other)).sum())
        hopeless = worse > (1 - OFTEN) * (differ.sum() + len(rest))
        kept |= {k} if fault.rows or not hopeless else set()
        kinds.setdefault(_called(fault), []).append((float(first[k][:, columns_of(case)].sum()), k))
    order = sorted(kept | {min(found)[1] for found in kinds.values()})
    errors = np.empty((len(order), len(pieces), first.shape[2]))
    errors[:, some] = first[order]
    errors[:, rest] = errors_under(case, pieces, [faults[k] for k in order], lambda x: x.some(rest))
    return [faults[k] for k in order], errors


def _steepest(probes: list[Fault], cost: np.ndarray, plain: float) -> list[Fault]:
    """The offsets that would lower the cost most, by the parabola through its values at -OFFSET, 0 and OFFSET."""
    bend = np.maximum(cost.sum(1) - 2 * plain, 1e-12)
    falls = np.square(cost[:, 0] - cost[:, 1]) / bend
    return [probes[i] for i in sorted(np.argsort(-falls)[:BEST])]


def _circled(log: Log, signal: Signal) -> Signal:
    """Errors on the circle only where readings jump by a turn and stay within one: elsewhere that would hide degrees."""
    if signal.kind != "turn" or signal.turns is None:
        return signal
    q = log["joint_pos"]
    jumps = np.any((np.abs(np.diff(q, axis=0)) > np.pi) & (np.diff(log.time) < PAUSE / log.rate)[:, None], 0)
    return replace(signal, turns=signal.turns & jumps & (np.nanmax(q, 0) - np.nanmin(q, 0) < 2.02 * np.pi))


@dataclass(frozen=True)
class Found:
    fault: Fault
    check: Check
    much: float
    """reduction of the total squared error in the columns that count"""
    note: tuple[float, ...] = ()
    """joint offsets, which can be identified and are no fault"""

    @property
    def counts(self) -> bool:
        return bool(self.note) or not self.check.holds


def _called(fault: Fault) -> str:
    """The name of the check that a fault belongs to."""
    said = {"control": " of controls", "readings": " of readings"}.get(fault.of, "")
    names = {"sign": f"signs{said}", "order": f"order{said}" if said else "joint order", "unit": "units", "offset": "offsets",
             "delay": "clock of controls", "frame": "axes of the base" if fault.of else "direction of gravity"}  # fmt: skip
    return names[fault.kind]


def _check(case: Case, tried: list[Fault], errors: np.ndarray, k: int) -> Found | None:
    fault, main = tried[k], columns_of(case)
    plain, other = errors[0], errors[k]
    if fault.rows:  # against the best delay that is plausible for an actuator
        some = [i for i, x in enumerate(tried) if (x is PLAIN or x.rows) and _allowed(case, x)]
        if k in some:
            return None
        plain = errors[min(some, key=lambda i: errors[i][:, main].sum())]
    at, least = columns_of(case, fault), STRAIGHT if fault.kind in ("delay", "frame") else GAIN
    check = weighed(_called(fault), fault.words, plain[:, at], other[:, at], "the model then predicts", least)
    much = float((plain - other)[:, main].sum())
    if fault.kind != "offset" or check.holds:
        return Found(fault, check, much)
    words = f"{check.evidence}; it can be identified (--learn encoder_offset:each)"
    note = on_columns(fault, {"joint_pos": np.zeros((1, len(case.names)))})["joint_pos"][0]
    return Found(fault, replace(check, holds=True, evidence=words), much, tuple(note.tolist()))


def _allowed(case: Case, fault: Fault) -> bool:
    return abs(fault.rows) * case.world.dt <= max(LATE, 1.5 * case.world.dt)


def _reported(found: list[Found], names: tuple[str, ...]) -> tuple[list[Check], dict[str, float]]:
    """Of each kind the edit that explains most; of those that count, only the best, with others that explain nearly as much.

    The best explains the rest: an exchanged leg also appears in the signs of its joints.
    """
    counted = [f for f in found if f.counts]
    quiet = {f.check.name: f for f in sorted(found, key=lambda f: f.much) if not f.counts}
    shown = [f.check for name, f in quiet.items() if name not in {f.check.name for f in counted}]
    if not counted:
        return shown, {}
    most = max(f.much for f in counted)
    least = most - (1 - NEAR) * abs(most)  # below 0 where an edit mends one column and costs others more
    near = sorted((f for f in counted if f.much >= least), key=lambda f: -f.much)
    top = next((f for f in near if not f.note), near[0])
    same = [f for f in near if f is not top and f.check.name == top.check.name][:3]
    other = {f.check.name: f for f in reversed(near) if f.check.name != top.check.name}
    words = [f.fault.words for f in (*same, *other.values())]
    evidence = f"{top.check.evidence}; nearly as well: {' or '.join(words)}" if words else top.check.evidence
    return [replace(top.check, evidence=evidence), *shown], dict(zip(names, top.note))


def _offsets(probes: list[Fault], cost: np.ndarray, plain: float) -> Iterator[Fault]:
    """Offsets of the best size: the vertex of the parabola through the costs at -OFFSET, 0 and OFFSET."""
    for fault, (above, below) in zip(probes, cost):
        bend = above + below - 2 * plain
        size = 0.5 * OFFSET * (below - above) / bend if bend > 0 else np.inf
        if UNMOVED < abs(size) <= FARTHEST:
            yield fault.at(float(size), shown=-float(size))


def _twins(case: Case, tried: list[Fault], errors: np.ndarray) -> Iterator[Fault]:
    """For faults of controls that count: the same fault of the readings, which on a symmetric machine looks alike."""
    found = [
        (f.much, x.twin) for k, x in enumerate(tried) if x.twin and (f := _check(case, tried, errors, k)) and f.counts
    ]
    yield from (twin for _, twin in sorted(found, key=lambda f: -f[0])[:PIECES])


def _gravity(case: Case, pieces: Windows, few: np.ndarray) -> tuple[list[Fault], np.ndarray]:
    """With a fixed base: gravity along each axis in turn. With a free base its attitude says the direction.

    As with other faults, a direction that is far off on a few pieces is not tried on all, unless it is the best.
    """
    model = model_of(case.world)
    given, size = model.opt.gravity.copy(), float(np.linalg.norm(model.opt.gravity))
    if case.world.layout.base is not None or not size:
        return [], np.zeros((0, len(pieces), width(case)))
    ways = [side * size * axis for axis in np.eye(3) for side in (1.0, -1.0)]
    ways = [g for g in ways if not np.allclose(g, given)]
    plain, *rough = (
        float(errors_under_gravity(case, halves(pieces, few), g)[:, columns_of(case)].sum()) for g in (given, *ways)
    )
    likely = [g for g, cost in zip(ways, rough) if cost < HOPELESS**2 * plain or cost == min(rough)]
    found = [Fault("frame", f"gravity along {_axis(g)} of the model", ()) for g in likely]
    return found, np.stack([errors_under_gravity(case, pieces, g) for g in likely])


def _axis(g: np.ndarray) -> str:
    k = int(np.argmax(np.abs(g)))
    return f"{'-' if g[k] < 0 else '+'}{'xyz'[k]}"
