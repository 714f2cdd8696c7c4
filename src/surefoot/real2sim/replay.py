"""replay: give a model the controls a real machine was given, and hold what it does against what the machine did.

    x(k+1) = f(x(k), u(k), e)   from x(0) as measured; free, or set back to the measured state every so many steps

The error compounds: |error after h steps| ~ rho^h. rho > 1 is where small mismatch ends in a fall.
"""

import re
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from surefoot.errors import LogError
from surefoot.log import Log
from surefoot.real2sim.signals import PAUSE, Signal, controls, measured, remembered, settling, signals, starts
from surefoot.rng import stream
from surefoot.sim.events import Pull, Push
from surefoot.world import Chance, Motion, Start, World

LOST = 2  # rows in a row without a measurement that a window may run across
SMALL, GROWN, DIRECTIONS = 1e-6, 10.0, 4  # a small error, rad/s or m/s; how many fold it may grow; how many are tried
UNEVEN = 0.02  # of a step: how far stamps may be from even before a log must be resampled


@dataclass(frozen=True)
class Windows:
    """Pieces of a log, each `length` steps long: rows start..start + length, controls at all but the last of them."""

    log: Log
    signals: tuple[Signal, ...]
    rows: np.ndarray  # (w,) where each begins
    length: int  # steps
    start: Start  # (w, ...) measured states
    u: np.ndarray  # (w, length, nu)
    before: np.ndarray | None = None
    """(w, k, nu) controls of the rows before, where actuators remember them"""

    def __len__(self) -> int:
        return len(self.rows)

    def some(self, at: np.ndarray | slice) -> "Windows":
        """Those at the given places."""
        before = None if self.before is None else self.before[at]
        return replace(self, rows=self.rows[at], start=picked(self.start, at), u=self.u[at], before=before)

    def target(self, signal: Signal) -> np.ndarray:
        """(w, length, k) what was measured at the end of each step."""
        at = self.rows[:, None] + np.arange(1, self.length + 1)
        return measured(self.log, signal.name)[at]

    def errors(self, motion: Motion) -> dict[str, np.ndarray]:
        """Signal -> (n, length, size) prediction minus measurement; n a multiple of w, all windows for each e in turn.

        0 where nothing was measured: a lost packet says nothing against a prediction.
        """
        copies = len(motion.q) // len(self)
        found = {s.name: s.error(s.read(motion), np.tile(self.target(s), (copies, 1, 1))) for s in self.signals}
        for s in self.signals:
            missing = ~np.isfinite(self.target(s)).all(-1)
            if missing.any():
                found[s.name][np.tile(missing, (copies, 1))] = 0.0
        return found


def windows(
    world: World, log: Log, length: int | None = None, stride: int | None = None, only: tuple[str, ...] = ()
) -> Windows:
    """Cut a log into windows of `length` steps, one every `stride`; without a length, as long as the log allows (whole).

    Each stretch without a gap is cut from its first row on, or where actuators are slow, from the row on where it no
    longer matters what they had reached at the first: a gap is never bridged.
    """
    chosen, u = signals(world, log, only), controls(world, log)
    seen = _complete(log, chosen)
    whole_ones = stretches(world, log, seen, np.isfinite(u).all(1))
    parts = _known(world, whole_ones)
    length = _longest(parts) if length is None else length
    if not 1 <= length < len(log):
        raise LogError(f"found {len(log)} rows, expected more than {length} for windows of {length} steps")
    rows = np.concatenate([np.arange(a, b - length + 1, stride or length) for a, b in parts])
    rows = rows[seen[rows]]
    if not len(rows):
        raise LogError(f"no {length} steps in a row without a gap; try shorter windows")
    begins = np.array([a for a, _ in whole_ones])
    first = begins[np.searchsorted(begins, rows, "right") - 1]
    count = remembered(world)
    before = np.maximum(rows[:, None] - count + np.arange(count), first[:, None])  # the first again where it is short
    during = rows[:, None] + np.arange(length)
    return Windows(log, chosen, rows, length, starts(world, log, rows), u[during], u[before] if count else None)


def _known(world: World, parts: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Stretches without what slow actuators take to forget where they began, or without a half where that is less."""
    slow = settling(world)
    return [(a + min(slow, (b - a) // 2), b) for a, b in parts]


def whole(world: World, log: Log, only: tuple[str, ...] = ()) -> int:
    """The longest window, in steps, of which at least half of a log's stretches can be made; of an unbroken log, all of it."""
    seen, told = _complete(log, signals(world, log, only)), np.isfinite(controls(world, log)).all(1)
    return _longest(_known(world, stretches(world, log, seen, told)))


def _complete(log: Log, chosen: tuple[Signal, ...]) -> np.ndarray:
    """(T,) rows in which all of the signals were measured."""
    return np.all([np.isfinite(measured(log, s.name)).all(1) for s in chosen], 0)


def stretches(world: World, log: Log, seen: np.ndarray, told: np.ndarray) -> list[tuple[int, int]]:
    """First and last row of each stretch that a window may run through, of two rows at least.

    It ends before a pause, at a row without a control, and where more than two rows in a row were not measured. Rows
    that are neither one control period apart nor a pause are refused.
    """
    steps = np.diff(log.time) / world.dt
    if not len(steps):
        raise LogError("found one row, expected at least 2")
    pause = steps > PAUSE
    if pause.mean() > 0.5:  # that is another rate
        pause[:] = False
    off = np.flatnonzero(~pause & (np.abs(steps - 1) > UNEVEN))
    if len(off):
        i = int(off[0])
        raise LogError(
            f"time: rows {i} and {i + 1} are {steps[i] * world.dt:.6g} s apart, expected {world.dt:.6g}; resample it first"
        )
    hole = ~seen
    for k in range(1, LOST + 1):  # rows that end a run of more than LOST without a measurement
        hole[k:] &= ~seen[:-k]
        hole[:k] = False
    good = told & ~hole
    joined = np.concatenate([[False], good[1:] & good[:-1] & ~pause, [False]]).astype(int)
    edges = np.diff(joined)
    found = list(zip(np.flatnonzero(edges > 0).tolist(), np.flatnonzero(edges < 0).tolist()))
    if not found:
        raise LogError("no two rows in a row with a control and a measurement")
    return found


def _longest(parts: list[tuple[int, int]]) -> int:
    lengths = np.array([b - a for a, b in parts])
    covered = lambda n: int((lengths // n * n).sum())  # noqa: E731
    return max(int(n) for n in lengths if covered(n) >= lengths.sum() / 2)


def predict(world: World, pieces: Windows, e: np.ndarray, start: Start | None = None) -> Motion:
    """Every window under every row of e (m, ne): simulations m x w, the windows of the first e first.

    `start`, where given, replaces the measured states: one row for each simulation.
    """
    m, w = len(e), len(pieces)
    world = sized(world, m * w)
    if start is None:
        start = repeated(pieces.start, m)
    shift = np.repeat(encoder_shift(world, e), w, 0)  # what the encoders read, and what is there
    each, chance, lost = np.repeat(e, w, 0), Chance(0, 0, world.dt), np.zeros(m * w, bool)
    there = replace(start, q=start.q - shift)
    count = 0 if pieces.before is None else remembered(world, e)
    if pieces.before is None or not count:
        world.reset(np.arange(m * w), each, there)
    else:  # what actuators do with controls does not depend on where the machine is: it is put there afterwards
        told = np.tile(pieces.before[:, -count:], (m, 1, 1))
        act = told[:, 0] if world.na == world.nu else None
        world.reset(np.arange(m * w), each, replace(there, u=told[:, 0], act=act))
        lost = world.rollout(told, chance).diverged
        world.set_state(there.q, there.v)
    motion = world.rollout(np.tile(pieces.u, (m, 1, 1)), chance)
    motion = replace(motion, diverged=motion.diverged | lost)
    return replace(motion, q=motion.q + shift[:, None]) if shift.any() else motion


def bears(
    world: World, log: Log, e: np.ndarray, longest: float, only: tuple[str, ...] = (), grown: float = GROWN
) -> float:
    """Seconds after which a small error of the starting speed has grown so many fold, as a falling pole's; inf: never.

    A longer window tells of little but its start.
    """
    length = int(np.clip(round(longest / world.dt), 1, whole(world, log, only)))
    pieces = windows(world, log, length, only=only)
    pieces = pieces.some(np.unique(np.linspace(0, len(pieces) - 1, 4).round().astype(int)))
    near, n = repeated(pieces.start, 1 + DIRECTIONS), len(pieces)
    push = SMALL * stream(0, "a small error").standard_normal((DIRECTIONS * n, world.nv))
    near.v[n:] += push
    motion = predict(world, pieces, np.tile(e, (1 + DIRECTIONS, 1)), near)
    v = motion.v.reshape(1 + DIRECTIONS, n, length, -1)
    apart = np.abs(v[1:] - v[0]).max(3) / np.abs(push).max(1).reshape(DIRECTIONS, n, 1)
    beyond = np.nanmedian(apart.reshape(-1, length), 0) > grown
    return float((np.argmax(beyond) + 1) * world.dt) if beyond.any() else np.inf


def encoder_shift(world: World, e: np.ndarray) -> np.ndarray:
    """(m, nq) what each joint's encoder reads above the truth, under each e."""
    layout, shift = world.layout, np.zeros((len(e), world.nq))
    for i, p in enumerate(world.params):
        if p.target == "encoder_offset":
            for d in layout.drives:
                if re.fullmatch(p.match, d.actuator):
                    shift[:, layout.places[layout.joints.index(d.joint)]] += e[:, i]
    return shift


SIZED: "WeakKeyDictionary[World, dict[int, World]]" = WeakKeyDictionary()


def sized(world: World, n: int) -> World:
    """The same law for n simulations, without what pushes and pulls by chance, of which a log does not tell when.

    The last few sizes are kept, since a fit asks for the same ones again and again.
    """
    calm = tuple(t for t in world.terms if not isinstance(t, Push | Pull))
    if world.n == n and len(calm) == len(world.terms):
        return world
    kept = SIZED.setdefault(world, {})
    if n not in kept:
        if len(kept) >= 4:
            kept.pop(next(iter(kept)))
        kept[n] = world.with_(n) if len(calm) == len(world.terms) else world.with_(n, calm)
    return kept[n]


def picked(start: Start, at: np.ndarray | slice) -> Start:
    """Those at the given places."""
    return Start(start.q[at], start.v[at], start.u[at], None if start.act is None else start.act[at])


def repeated(start: Start, m: int) -> Start:
    """The same starts m times over."""
    act = None if start.act is None else np.tile(start.act, (m, 1))
    return Start(np.tile(start.q, (m, 1)), np.tile(start.v, (m, 1)), np.tile(start.u, (m, 1)), act)


@dataclass(frozen=True)
class Score:
    """How well one signal was predicted, over all its components."""

    signal: str
    unit: str
    rmse: float
    mae: float
    r2: float
    """1 - squared error / variance of the measurement; 1 is perfect, below 0 is worse than its mean"""
    parts: dict[str, float]
    """root mean square error of each component"""


@dataclass(frozen=True)
class Replay:
    """A log, and what the model says should have happened."""

    time: np.ndarray  # (T,)
    measured: dict[str, np.ndarray]  # (T, k)
    predicted: dict[str, np.ndarray]  # (T, k)
    scores: tuple[Score, ...]
    growth: dict[str, float]
    """signal -> rho, the factor by which its error grows each step"""
    horizon: dict[str, np.ndarray]
    """signal -> (H,) root mean square error after 1..H steps"""
    diverged: int

    def facts(self) -> dict[str, Any]:
        return {
            "signals": {s.signal: {"rmse": s.rmse, "mae": s.mae, "r2": s.r2, "unit": s.unit, "parts": s.parts} for s in self.scores},
            "growth": self.growth,
            "diverged": self.diverged,
        }  # fmt: skip


def replay(
    world: World,
    log: Log,
    e: np.ndarray | None = None,
    resync: int | None = None,
    horizon: float = 0.5,
    only: tuple[str, ...] = (),
) -> Replay:
    """Predict a log from its controls; `resync` sets the model back to the measured state every so many steps."""
    e = world.params.nominal if e is None else e
    pieces = windows(world, log, resync, only=only)
    motion = predict(world, pieces, e[None])
    errors = pieces.errors(motion)
    flat = lambda x: x.reshape(-1, x.shape[-1])  # noqa: E731
    scores = tuple(_score(s, *_seen(flat(errors[s.name]), flat(pieces.target(s)))) for s in pieces.signals)
    rows = (pieces.rows[:, None] + np.arange(1, pieces.length + 1)).ravel()
    growth, by_step = compounding(world, log, e, horizon, only)
    return Replay(
        log.time[rows],
        {s.name: flat(pieces.target(s)) for s in pieces.signals},
        {s.name: flat(s.read(motion)) for s in pieces.signals},
        scores,
        growth,
        by_step,
        int(motion.diverged.sum()),
    )


def _seen(error: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rows where something was measured."""
    rows = np.isfinite(target).all(1)
    return error[rows], target[rows]


def _score(signal: Signal, error: np.ndarray, target: np.ndarray) -> Score:
    with np.errstate(over="ignore", invalid="ignore"):  # a model that diverged predicts numbers without a square
        spread = signal.error(target, target.mean(0)) if signal.kind != "quat" else signal.error(target, target[:1])
        total = float(np.square(spread - spread.mean(0)).sum())
        squared = np.square(error)
        r2 = 1 - float(squared.sum()) / total if total > 0 else float("nan")
        each = np.sqrt(squared.mean(0))
        parts = dict(zip(signal.parts if signal.kind != "quat" else ("x", "y", "z"), map(float, each)))
        return Score(signal.name, signal.unit, float(np.sqrt(squared.mean())), float(np.abs(error).mean()), r2, parts)


def compounding(
    world: World, log: Log, e: np.ndarray, horizon: float = 0.5, only: tuple[str, ...] = (), starts_: int = 64
) -> tuple[dict[str, float], dict[str, np.ndarray]]:
    """rho of each signal, from the error after 1..H steps over many starts: the slope of its logarithm.

    An error that grows as h (an offset in velocity) gives a rho that falls to 1 with longer horizons; one that grows
    as rho^h keeps it.
    """
    length = int(min(max(2, round(horizon / world.dt)), whole(world, log, only)))
    stride = max(1, (len(log) - 1 - length) // starts_)
    pieces = windows(world, log, length, stride, only)
    errors = pieces.errors(predict(world, pieces, e[None]))
    with np.errstate(over="ignore", invalid="ignore"):
        by_step = {name: np.sqrt(np.square(x).mean((0, 2))) for name, x in errors.items()}
    return {name: _rho(x) for name, x in by_step.items()}, by_step


def _rho(error: np.ndarray) -> float:
    """exp of the slope of log error against the step, over the later half, where the first steps' noise is behind."""
    h = np.arange(len(error))[len(error) // 2 :]
    later = error[len(error) // 2 :]
    good = np.isfinite(later) & (later > 0)
    if good.sum() < 2:
        return float("nan")
    return float(np.exp(np.polyfit(h[good], np.log(later[good]), 1)[0]))
