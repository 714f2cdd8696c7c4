"""From the streams of a file to a Log on one clock.

time_s = factor * stamps_s - epoch     epoch: whole seconds, subtracted where stamps count from 1970
several streams, or a rate: an even clock; with a mapping over the time that all mapped streams share, else over all of it
"""

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from surefoot.errors import SurefootError, unknown
from surefoot.formats import mapping as maps
from surefoot.formats.raw import Raw, Stream, clean, full, listed
from surefoot.formats.resample import Onto, check_rate, even, gaps, kind, mend, merged
from surefoot.formats.units import si
from surefoot.log import Log

CLOCKS = ("log_time", "time", "t", "timestamp", "timestamps", "stamp", "elapsed", "clock", "seconds", "sec")
FARTHEST, SHORTEST = 1e12, 1e-9  # s
CELLS = 1 << 27  # numbers of a resampled log, 1 GiB; or four times those of the file
WALL = 1e8  # s: larger stamps (three years) are those of a wall clock
SINCE_1970 = (9e8, 4.2e9)  # s, from 1998 to 2103: plausible wall clocks
TICKS = (("s", 1.0, 0.5), ("ms", 1e-3, 500.0), ("us", 1e-6, 5e5), ("ns", 1e-9, np.inf))  # with the longest step of each
UNSURE = 2.0  # a step of 0.5 to 2 is a slow log in seconds or a fast one in ms


@dataclass(frozen=True, eq=False)
class Timed:
    """A stream on its clock, in seconds."""

    time: np.ndarray
    columns: dict[str, np.ndarray]


def assemble(raw: Raw, mapping: maps.Mapping | None, rate: float | None, mending: bool, source: dict[str, Any]) -> Log:
    rate = rate if rate is not None else mapping.rate if mapping else None
    if rate is not None:
        check_rate(rate, "rate")
    guessed: list[str] = []
    clocks = {s: _clock(raw, s, raw.streams[s], mapping, rate, guessed) for s in _used(raw, mapping)}
    stamps, epoch = _seconds(raw, clocks, rate)
    timed: dict[str, Timed] = {}
    repairs: list[str] = []
    for s, time in stamps.items():
        good, repair = mend(time, full(s, clocks[s][0]) or "time", mending)
        _check_clock(time[good], full(s, clocks[s][0]) or "time")
        rest = {full(s, k): v[good] for k, v in raw.streams[s].columns.items() if k != clocks[s][0]}
        timed[s], repairs = Timed(time[good], rest), repairs + repair
    names = {full(s, k): v for s in timed for k, v in raw.streams[s].names.items()}
    units, hold = raw.units, list(raw.meta.get("hold", []))
    constants = raw.constants | raw.meta.get("constants", {}) | (mapping.constants if mapping else {})
    if mapping:
        timed, names, units, hold = _mapped(timed, mapping, names, constants)
    stamped = any(name for name, _ in clocks.values())  # rows without a clock are even already
    time, columns = _one_clock(timed, rate if stamped else None, mapping is not None, hold)
    if not columns:
        raise SurefootError(f"found no column besides the clock{': ' if raw.notes else ''}{'; '.join(raw.notes[:3])}")
    if mapping:
        columns = maps.turned(columns, mapping)
    about = {
        "source": source,
        "names": raw.meta.get("names", {}) | names,
        "constants": constants,
        "gaps": merged([*raw.meta.get("gaps", []), *(g for x in timed.values() for g in gaps(x.time))]),
        "streams": {s: {"rows": len(x.time), "clock": clocks[s][0] or "rows"} for s, x in timed.items()},
        "epoch": epoch,
        "hold": hold,
        "mended": repairs,
        "notes": [*guessed, *raw.notes] + (maps.odd_names(mapping) if mapping else []),
    }
    meta = raw.meta | {k: v for k, v in about.items() if v or k == "names"}
    return Log(time, columns, {k: v for k, v in units.items() if k in columns}, clean(meta))


def _check_clock(time: np.ndarray, where: str) -> None:
    """Plausible seconds, so that rates, spans and their squares are finite."""
    if len(time) and max(abs(time[0]), abs(time[-1])) > FARTHEST:
        raise SurefootError(f"{where}: found {time[0]:.6g} to {time[-1]:.6g} s, expected at most {FARTHEST:g} s")
    if len(time) > 1 and np.median(np.diff(time)) < SHORTEST:
        raise SurefootError(
            f"{where}: found a median step of {np.median(np.diff(time)):.3g} s, expected at least {SHORTEST:g} s"
        )


def _used(raw: Raw, mapping: maps.Mapping | None) -> list[str]:
    """The streams in use: with a mapping those of its columns."""
    if mapping is None or len(raw.streams) == 1:
        return list(raw.streams)
    owner = {full(s, c): s for s, stream in raw.streams.items() for c in stream.columns}
    constants = raw.constants | mapping.constants
    found = []
    for name, column in mapping.columns.items():
        for source in column.source:
            if column.terms and source in constants and source not in owner:
                continue
            bare = re.sub(r"\[\d+(:\d+)?\]$", "", source)
            if source not in owner and bare not in owner:
                raise unknown("column of the file", source, owner, f"columns: {name}: from")
            found.append(owner[source] if source in owner else owner[bare])
    return list(dict.fromkeys(found))


def _clock(
    raw: Raw, s: str, stream: Stream, mapping: maps.Mapping | None, rate: float | None, notes: list[str]
) -> tuple[str, float]:
    """The column with a stream's stamps and its unit in seconds; ("", 1) for rows without a clock."""
    if mapping and mapping.time:
        name = mapping.time if mapping.time in stream.columns else mapping.time.removeprefix(f"{s}.")
        if name not in stream.columns:
            raise unknown("column", mapping.time, stream.columns, f"time: from{': ' + s if s else ''}")
        return name, _unit(raw, s, name, stream.columns[name], mapping.time_unit, notes)
    bare = {bare_clock(c): c for c in stream.columns}
    for name in (bare[c] for c in CLOCKS if c in bare):
        if stream.columns[name].ndim == 1:
            return name, _unit(raw, s, name, stream.columns[name], mapping.time_unit if mapping else "", notes)
    if rate is None:
        where = f"{s}: " if s else ""
        single = [c for c, v in raw.constants.items() if bare_clock(c) in CLOCKS and isinstance(v, int | float)]
        if single:
            raise SurefootError(f"{where}{single[0]}: found one row, expected at least 2")
        raise SurefootError(
            f"{where}time: found no clock among {listed(stream.columns)}; expected a column named "
            f"{listed(CLOCKS)}, or a rate in Hz, or a mapping that names the clock"
        )
    return "", 1.0


def bare_clock(name: str) -> str:
    """A clock's name without its unit."""
    return re.sub(r"[_ ]*[\[(]?(?<=[_ \[(])(ns|us|ms|s|sec|nsec|usec|msec)[\])]?$", "", name.lower())


def _unit(raw: Raw, s: str, name: str, stamps: np.ndarray, given: str, notes: list[str]) -> float:
    """Unit of the stamps in seconds: given, or from the name (t_ms, time [us]), or guessed from their size, with a note."""
    ending = re.search(r"[_ \[(](ns|us|ms|s|sec|nsec|usec|msec)[\])]?$", name.lower())
    unit = given or raw.units.get(full(s, name), "") or (ending[1] if ending else "")
    unit = unit or ("s" if name.lower() in ("seconds", "sec") else "")
    if unit:
        base, factor = si(unit, f"time: {name}")
        if base != "s":
            raise SurefootError(f"time: {name}: found the unit {unit}, expected a unit of time")
        return factor
    unit, factor, why = _size(stamps)
    if why:
        notes.append(f"{full(s, name)}: taken as {unit}: {why}; a mapping can set the unit of time")
    return factor


def _size(stamps: np.ndarray) -> tuple[str, float, str]:
    """The unit of a clock without one, in seconds, and why; no reason where it is clearly seconds.

    Stamps of a wall clock are seconds, ms, us or ns since 1970. For others the median step decides, because a robot's log
    has 2 to 2000 rows per second. Where seconds and ms are both possible, it is seconds.
    """
    x = stamps.astype(float)
    x = np.where(np.isfinite(x), x, np.nan)
    step = np.diff(x)
    step = step[np.isfinite(step) & (step > 0)]
    h = float(np.median(step)) if len(step) > 2 else 0.0  # two steps are too few
    first = abs(float(x[0])) if len(x) else 0.0
    for unit, factor, _ in TICKS:
        if SINCE_1970[0] <= first * factor < SINCE_1970[1] and h * factor <= (10.0 if unit == "s" else 1.0):
            return unit, factor, "" if unit == "s" else "stamps of this size count from 1970"
    unit, factor, _ = next(t for t in TICKS if h <= t[2])
    if 0.5 < h < UNSURE:
        rates = f"{1 / h:.4g} Hz; in ms it would be {1e3 / h:.4g} Hz"
        return "s", 1.0, f"the median step is {h:.4g}, which is {rates}"
    if unit == "s":
        return "s", 1.0, ""
    why = f"the median step is {h:.4g}, and a robot's log has 2 to 2000 rows per second, here {1 / (h * factor):.4g}"
    return unit, factor, why


def _seconds(raw: Raw, clocks: dict[str, tuple[str, float]], rate: float | None) -> tuple[dict[str, np.ndarray], int]:
    """Each stream's time in seconds, and the epoch. It is subtracted from integers, so nothing is lost."""
    firsts = []
    for s, (name, factor) in clocks.items():
        stamps = raw.streams[s].columns[name] if name else np.zeros(0)
        if len(stamps) and np.isfinite(float(stamps[0])):
            firsts.append(float(stamps[0]) * factor)
    epoch = int(min(firsts)) if firsts and min(firsts) > WALL else 0
    out = {}
    for s, (name, factor) in clocks.items():
        if not name:
            out[s] = even(0.0, (raw.streams[s].rows - 1) / float(rate or 1), float(rate or 1))
            continue
        stamps = raw.streams[s].columns[name]
        whole = round(epoch / factor)
        if stamps.dtype.kind in "iu" and int(stamps.max(initial=0)) < 2**63:
            out[s] = (stamps.astype(np.int64) - np.int64(whole)).astype(float) * factor
        else:
            out[s] = (stamps.astype(float) - whole) * factor
    return out, epoch


def _mapped(timed: dict[str, Timed], mapping: maps.Mapping, names: dict[str, list[str]], constants: dict[str, Any]) -> tuple[dict[str, Timed], dict[str, list[str]], dict[str, str], list[str]]:  # fmt: skip
    """Streams with our columns instead of the file's."""
    out = {s: Timed(x.time, {}) for s, x in timed.items()}
    called, units, hold = {}, {}, []
    for name, column in mapping.columns.items():
        where = f"columns: {name}"
        bare = [re.sub(r"\[\d+(:\d+)?\]$", "", p) for p in column.source]
        owners = {s for s, x in timed.items() for p, b in zip(column.source, bare) if p in x.columns or b in x.columns}
        if len(owners) > 1:
            raise SurefootError(f"{where}: from: found parts of the streams {listed(sorted(owners))}, expected one")
        s = owners.pop() if owners else next(iter(timed))
        x = maps.pick(column, timed[s].columns, names, where, constants)
        out[s].columns[name] = maps.finish(name, column, x, where)
        given = column.names or ([] if column.terms else _called(column, bare, names))
        if given:
            called[name] = list(given)
        elif len(column.source) > 1 and not column.terms:
            called[name] = list(column.source)
        units[name] = si(column.unit, where)[0] if column.unit else maps.UNITS.get(name, "")
        hold += [name] if column.hold else []
    return {s: x for s, x in out.items() if x.columns}, called, {k: u for k, u in units.items() if u}, hold


def _called(column: maps.Column, bare: list[str], names: dict[str, list[str]]) -> list[str]:
    """Names of the parts in the file."""
    whole = column.source == tuple(bare) and all(b in names for b in bare)
    return [n for b in bare for n in names[b]] if whole else []


def _one_clock(timed: dict[str, Timed], rate: float | None, shared: bool, hold: list[str]) -> tuple[np.ndarray, dict[str, np.ndarray]]:  # fmt: skip
    streams = [x for x in timed.values() if len(x.time)]
    if not streams:
        raise SurefootError("found no rows")
    same = all(np.array_equal(x.time, streams[0].time) for x in streams)
    if same and rate is None:
        return streams[0].time, {k: v for x in streams for k, v in x.columns.items()}
    if rate is None:
        fastest = max((x for x in streams if len(x.time) > 1), key=_rate, default=None)
        if fastest is None:
            raise SurefootError("found one row in each stream, expected more, or a rate")
        rate = _rate(fastest)
    start, end = (max, min) if shared else (min, max)
    t0, t1 = start(x.time[0] for x in streams), end(x.time[-1] for x in streams)
    if t1 < t0:
        spans = ", ".join(f"{s or 'file'} {x.time[0]:.3f} to {x.time[-1]:.3f} s" for s, x in timed.items())
        raise SurefootError(f"found streams that share no time: {spans}")
    t = even(float(t0), float(t1), rate)
    columns = [v for x in streams for v in x.columns.values()]
    given, parts = sum(v.size for v in columns), sum(v.size // len(v) for v in columns)
    if len(t) * parts > max(CELLS, 4 * given):
        raise SurefootError(
            f"rate: found {given} numbers, which at {rate:.6g} Hz would be {len(t) * parts}; expected at most {CELLS}"
        )
    return t, {
        k: Onto(x.time, t).column(v, "hold" if k in hold else kind(k, v)) for x in streams for k, v in x.columns.items()
    }


def _rate(x: Timed) -> float:
    return float(1 / np.median(np.diff(x.time)))
