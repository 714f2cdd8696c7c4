"""replay: apply a log's controls to a model, and compare its motion with the measured one.

    x(k+1) = f(x(k), u(k), e)   from x(0) as measured; free, or reset to the measured state every few steps

The error compounds: |error after h steps| ~ rho^h. With rho > 1 a small mismatch grows into a fall.
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

LOST = 2  # consecutive rows without a measurement that a window may include
SMALL, GROWN, DIRECTIONS = (
    1e-6,
    10.0,
    4,
)  # a small error, rad/s or m/s; the growth that counts as unstable; directions tried
UNEVEN = 0.02  # of a step: the largest deviation of time stamps before a log must be resampled


@dataclass(frozen=True)
class Windows:
    """Pieces of a log, each `length` steps long: rows start..start + length, controls at all but the last of them."""

    log: Log
    signals: tuple[Signal, ...]
    rows: np.ndarray  # (w,) first row of each
    length: int  # steps
    start: Start  # (w, ...) measured states
    u: np.ndarray  # (w, length, nu)
    before: np.ndarray | None = None
    """(w, k, nu) controls of earlier rows, where actuators have delay or dynamics"""

    def __len__(self) -> int:
        return len(self.rows)

    def some(self, at: np.ndarray | slice) -> "Windows":
        """The windows at some indices."""
        before = None if self.before is None else self.before[at]
        return replace(self, rows=self.rows[at], start=picked(self.start, at), u=self.u[at], before=before)

    def target(self, signal: Signal) -> np.ndarray:
        """(w, length, k) the measurement at the end of each step."""
        at = self.rows[:, None] + np.arange(1, self.length + 1)
        return measured(self.log, signal.name)[at]

    def errors(self, motion: Motion) -> dict[str, np.ndarray]:
        """Signal -> (n, length, size) prediction minus measurement; n a multiple of w, all windows for each e in turn.

        0 where nothing was measured: a lost packet is no evidence against a prediction.
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
    """Cut a log into windows of `length` steps, one every `stride`; without a length, of longest_window steps.

    Each stretch without a gap is cut from its first row; where actuators have dynamics, from the row at which their
    unknown first state is forgotten. No window crosses a gap.
    """
    chosen, u = signals(world, log, only), controls(world, log)
    seen = _complete(log, chosen)
    unbroken = stretches(world, log, seen, np.isfinite(u).all(1))
    parts = _settled(world, unbroken)
    length = _longest(parts) if length is None else length
    if not 1 <= length < len(log):
        raise LogError(f"found {len(log)} rows, expected more than {length} for windows of {length} steps")
    rows = np.concatenate([np.arange(a, b - length + 1, stride or length) for a, b in parts])
    rows = rows[seen[rows]]
    if not len(rows):
        raise LogError(f"found no {length} consecutive steps without a gap; try shorter windows")
    begins = np.array([a for a, _ in unbroken])
    first = begins[np.searchsorted(begins, rows, "right") - 1]
    count = remembered(world)
    before = np.maximum(
        rows[:, None] - count + np.arange(count), first[:, None]
    )  # repeats the first where there are fewer
    during = rows[:, None] + np.arange(length)
    return Windows(log, chosen, rows, length, starts(world, log, rows), u[during], u[before] if count else None)


def _settled(world: World, parts: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Stretches without the time in which slow actuators forget their first state, at most half of each."""
    slow = settling(world)
    return [(a + min(slow, (b - a) // 2), b) for a, b in parts]


def longest_window(world: World, log: Log, only: tuple[str, ...] = ()) -> int:
    """The longest window, in steps, that covers at least half of a log's stretches; of an unbroken log, all of it."""
    seen, driven = _complete(log, signals(world, log, only)), np.isfinite(controls(world, log)).all(1)
    return _longest(_settled(world, stretches(world, log, seen, driven)))


def _complete(log: Log, chosen: tuple[Signal, ...]) -> np.ndarray:
    """(T,) rows in which all signals were measured."""
    return np.all([np.isfinite(measured(log, s.name)).all(1) for s in chosen], 0)


def stretches(world: World, log: Log, seen: np.ndarray, driven: np.ndarray) -> list[tuple[int, int]]:
    """First and last row of each stretch without a gap, of at least two rows.

    A gap is a pause, a row without a control (not `driven`), or more than two consecutive rows without a measurement
    (not `seen`). Rows that are neither one control period apart nor a pause are refused.
    """
    steps = np.diff(log.time) / world.dt
    if not len(steps):
        raise LogError("found one row, expected at least 2")
    pause = steps > PAUSE
    if pause.mean() > 0.5:  # no pauses, but another rate
        pause[:] = False
    off = np.flatnonzero(~pause & (np.abs(steps - 1) > UNEVEN))
    if len(off):
        i = int(off[0])
        raise LogError(
            f"time: rows {i} and {i + 1} are {steps[i] * world.dt:.6g} s apart, expected {world.dt:.6g}; resample it: "
            f'`surefoot log FILE --rate {1 / world.dt:.6g} --save EVEN.npz`, or "rate": {1 / world.dt:.6g} in the mapping'
        )
    hole = ~seen
    for k in range(1, LOST + 1):  # rows that end more than LOST rows without a measurement
        hole[k:] &= ~seen[:-k]
        hole[:k] = False
    good = driven & ~hole
    joined = np.concatenate([[False], good[1:] & good[:-1] & ~pause, [False]]).astype(int)
    edges = np.diff(joined)
    found = list(zip(np.flatnonzero(edges > 0).tolist(), np.flatnonzero(edges < 0).tolist()))
    if not found:
        raise LogError("found no two consecutive rows with a control and a measurement")
    return found


def _longest(parts: list[tuple[int, int]]) -> int:
    lengths = np.array([b - a for a, b in parts])
    covered = lambda n: int((lengths // n * n).sum())  # noqa: E731
    return max(int(n) for n in lengths if covered(n) >= lengths.sum() / 2)


def predict(world: World, pieces: Windows, e: np.ndarray, start: Start | None = None) -> Motion:
    """Every window under every row of e (m, ne): m x w simulations, all windows of the first e first.

    `start` replaces the measured states: one row for each simulation.
    """
    m, w = len(e), len(pieces)
    world = sized(world, m * w)
    if start is None:
        start = repeated(pieces.start, m)
    shift = np.repeat(encoder_shift(world, e), w, 0)  # encoder reading minus true position
    each, chance, lost = np.repeat(e, w, 0), Chance(0, 0, world.dt), np.zeros(m * w, bool)
    there = replace(start, q=start.q - shift)
    count = 0 if pieces.before is None else remembered(world, e)
    if pieces.before is None or not count:
        world.reset(np.arange(m * w), each, there)
    else:  # actuator dynamics do not depend on the state: run the earlier controls, then set the state
        earlier = np.tile(pieces.before[:, -count:], (m, 1, 1))
        act = earlier[:, 0] if world.na == world.nu else None
        world.reset(np.arange(m * w), each, replace(there, u=earlier[:, 0], act=act))
        lost = world.rollout(earlier, chance).diverged
        world.set_state(there.q, there.v)
    motion = world.rollout(np.tile(pieces.u, (m, 1, 1)), chance)
    motion = replace(motion, diverged=motion.diverged | lost)
    return replace(motion, q=motion.q + shift[:, None]) if shift.any() else motion


def stable_length(
    world: World, log: Log, e: np.ndarray, longest: float, only: tuple[str, ...] = (), grown: float = GROWN
) -> float:
    """Seconds after which a small error of the first velocity has grown by a factor `grown`, as of a falling pole; or inf.

    Longer windows inform about their first state more than about e.
    """
    length = int(np.clip(round(longest / world.dt), 1, longest_window(world, log, only)))
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
    """(m, nq) encoder offset of each joint under each e."""
    layout, shift = world.layout, np.zeros((len(e), world.nq))
    for i, p in enumerate(world.params):
        if p.target == "encoder_offset":
            for d in layout.drives:
                if re.fullmatch(p.match, d.actuator):
                    shift[:, layout.places[layout.joints.index(d.joint)]] += e[:, i]
    return shift


SIZED: "WeakKeyDictionary[World, dict[int, World]]" = WeakKeyDictionary()


def sized(world: World, n: int) -> World:
    """The same world with n simulations, without random pushes and pulls, whose times a log does not have.

    The last four sizes are cached, since a fit uses the same ones repeatedly.
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
    """The starts at some indices."""
    return Start(start.q[at], start.v[at], start.u[at], None if start.act is None else start.act[at])


def repeated(start: Start, m: int) -> Start:
    """All starts, m times."""
    act = None if start.act is None else np.tile(start.act, (m, 1))
    return Start(np.tile(start.q, (m, 1)), np.tile(start.v, (m, 1)), np.tile(start.u, (m, 1)), act)


@dataclass(frozen=True)
class Score:
    """Prediction error of one signal, over all its components."""

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
    """A log, and the model's prediction of it."""

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
    """Predict a log from its controls; `resync`: reset to the measured state every so many steps."""
    e = world.params.nominal if e is None else e
    pieces = windows(world, log, resync, only=only)
    motion = predict(world, pieces, e[None])
    errors = pieces.errors(motion)
    flat = lambda x: x.reshape(-1, x.shape[-1])  # noqa: E731
    scores = tuple(score(s, *_seen(flat(errors[s.name]), flat(pieces.target(s)))) for s in pieces.signals)
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
    """The rows with a measurement."""
    rows = np.isfinite(target).all(1)
    return error[rows], target[rows]


def score(signal: Signal, error: np.ndarray, target: np.ndarray) -> Score:
    with np.errstate(over="ignore", invalid="ignore"):  # predictions of a diverged model overflow when squared
        spread = signal.error(target, target.mean(0)) if signal.kind != "quat" else signal.error(target, target[:1])
        total = float(np.square(spread - spread.mean(0)).sum())
        squared = np.square(error)
        r2 = 1 - float(squared.sum()) / total if total > 0 else float("nan")
        each = np.sqrt(squared.mean(0))
        parts = dict(zip(signal.parts if signal.kind != "quat" else ("x", "y", "z"), map(float, each)))
        return Score(signal.name, signal.unit, float(np.sqrt(squared.mean())), float(np.abs(error).mean()), r2, parts)


@dataclass(frozen=True)
class Ahead:
    """Prediction error of one signal so many steps after the model was set to the measured state."""

    signal: str
    unit: str
    rmse: float
    still: float
    """of a constant prediction: the measurement at the start stays"""
    starts: int


def ahead(
    world: World, log: Log, e: np.ndarray, steps: int, only: tuple[str, ...] = (), most: int = 512
) -> tuple[Ahead, ...]:
    """The error at horizon `steps`, from at most `most` starts spread over the log."""
    pieces = windows(world, log, steps, max(1, (len(log) - 1 - steps) // most), only)
    motion, found = predict(world, pieces, e[None]), []
    for s in pieces.signals:
        end, began = pieces.target(s)[:, -1], measured(log, s.name)[pieces.rows]
        error, still = s.error(s.read(motion)[:, -1], end), s.error(began, end)
        with np.errstate(over="ignore", invalid="ignore"):
            rmse = [float(np.sqrt(np.nanmean(np.square(x)))) for x in (error, still)]
        found.append(Ahead(s.name, s.unit, rmse[0], rmse[1], len(pieces)))
    return tuple(found)


def compounding(
    world: World, log: Log, e: np.ndarray, horizon: float = 0.5, only: tuple[str, ...] = (), starts_: int = 64
) -> tuple[dict[str, float], dict[str, np.ndarray]]:
    """rho of each signal: exp of the slope of the log error against the step 1..H, over many starts.

    For an error that grows as h (an offset in velocity) rho falls to 1 with longer horizons; for one that grows as
    rho^h it stays.
    """
    length = int(min(max(2, round(horizon / world.dt)), longest_window(world, log, only)))
    stride = max(1, (len(log) - 1 - length) // starts_)
    pieces = windows(world, log, length, stride, only)
    errors = pieces.errors(predict(world, pieces, e[None]))
    with np.errstate(over="ignore", invalid="ignore"):
        by_step = {name: np.sqrt(np.square(x).mean((0, 2))) for name, x in errors.items()}
    return {name: _rho(x) for name, x in by_step.items()}, by_step


def _rho(error: np.ndarray) -> float:
    """exp of the slope of log error against the step, over the later half, where measurement noise matters less."""
    h = np.arange(len(error))[len(error) // 2 :]
    later = error[len(error) // 2 :]
    good = np.isfinite(later) & (later > 0)
    if good.sum() < 2:
        return float("nan")
    return float(np.exp(np.polyfit(h[good], np.log(later[good]), 1)[0]))
