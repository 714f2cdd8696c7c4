"""What a policy observes: one term, one pipeline, for n simulations, the rows of a log, or one robot.

    raw_i = source_i(readings)        frame = (scale_i * clip(raw_i + noise_i, +-clip_i))_i        obs = `history` frames

A Formula says how a term follows from what a robot reads, by name, so that a robot's computer works it out as the
simulator does. A term whose source is a function of the simulator's state is privileged: no robot can compute it.

Formulas and the readings that they take are in formula.py; both modules' names are imported from here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Literal

import numpy as np

from surefoot.arrays import namespace
from surefoot.errors import SurefootError, unknown
from surefoot.estimate.abstract import Estimator, EstimatorState, begun, over_time, stepped
from surefoot.formula import FORMULAS, LONGEST, Columns, Formula, Readings
from surefoot.typed import MOST, known_fields, real, text, whole

__all__ = ["FORMULAS", "Columns", "Formula", "History", "Live", "ObsGroup", "ObsTerm", "Readings"]

Source = Formula | Callable[[Any], np.ndarray]


@dataclass(frozen=True)
class ObsTerm:
    """One observation term: a name people know, how it is computed, how noisy a real sensor is, how it is scaled."""

    name: str
    source: Source | None
    """how it follows from readings; or a function of the simulator's state alone; None: known only by its numbers"""
    dim: int
    unit: str = ""
    noise: float = 0.0
    """standard deviation of the sensor's noise, in `unit`"""
    scale: float | tuple[float, ...] = 1.0
    """one for all of its columns, or one for each"""
    clip: float = np.inf
    """largest magnitude, in `unit`, before scaling"""
    sensed: bool = True
    """read by a sensor, whose noise and bias may be unknown"""
    history: int = 0
    """frames of it in the observation; 0: as many as the group has"""

    @property
    def formula(self) -> Formula | None:
        return self.source if isinstance(self.source, Formula) else None

    def check(self, where: str) -> None:
        """Numbers and words that can be; otherwise nothing may be computed with it."""
        where = f"{where}: {self.name}"
        if not isinstance(self.name, str) or not self.name or not isinstance(self.unit, str):
            raise SurefootError(f"{where}: expected a name and a unit in words, found {self.name!r} and {self.unit!r}")
        whole(self.dim, 1, MOST, f"{where}: dim")
        whole(self.history, 0, MOST, f"{where}: history")
        scales = self.scale if isinstance(self.scale, tuple) else (self.scale,)
        if len(scales) not in (1, self.dim):
            raise SurefootError(f"{where}: scale: expected one number, or {self.dim}, found {len(scales)}")
        for s in scales:
            if real(s, f"{where}: scale") == 0:
                raise SurefootError(f"{where}: scale: expected numbers other than 0, found 0")
        if self.clip != np.inf and real(self.clip, f"{where}: clip") <= 0:
            raise SurefootError(f"{where}: clip: expected a number > 0, found {self.clip}")
        if self.formula is not None:
            self.formula.check(self.dim, where)

    def to_json(self) -> dict[str, Any]:
        """Without what only the simulator knows."""
        f = self.formula
        plain = {k: getattr(self, k) for k in ("name", "dim", "unit", "noise", "scale", "sensed", "history")}
        formula = None if f is None else {x.name: v for x in fields(f) if (v := getattr(f, x.name)) != x.default}
        return plain | {"clip": None if self.clip == np.inf else self.clip, "formula": formula}

    @staticmethod
    def from_json(data: Any, where: str) -> "ObsTerm":
        known = {f.name for f in fields(ObsTerm)} - {"source"} | {"formula"}
        body = known_fields(data, known, {"name", "dim"}, where)
        given = body.pop("formula", None)
        formula = None
        if given is not None:
            rest = known_fields(given, {f.name for f in fields(Formula)}, {"kind"}, f"{where}: formula")
            for k, v in rest.items():
                rest[k] = _typed_formula(k, v, f"{where}: formula: {k}")
            try:
                formula = Formula(**rest)
            except SurefootError as error:
                raise SurefootError(f"{where}: {error}") from None
        if isinstance(body.get("scale"), list):
            body["scale"] = tuple(body["scale"])
        body["clip"] = np.inf if body.get("clip") is None else real(body["clip"], f"{where}: clip")
        real(body.get("noise", 0.0), f"{where}: noise")
        if not isinstance(body.get("sensed", True), bool):
            raise SurefootError(f"{where}: sensed: expected true or false, found {str(body['sensed'])[:80]!r}")
        term = ObsTerm(source=formula, **body)
        term.check(where)
        return term


def _typed_formula(name: str, value: Any, where: str) -> Any:
    if name in ("joints", "offset", "links", "phases", "waves", "stand", "parts", "table"):
        most = LONGEST if name == "table" else MOST
        if not isinstance(value, list | tuple) or len(value) > most:
            raise SurefootError(f"{where}: expected a list, found {str(value)[:80]}")
        if name == "parts":
            return tuple(whole(v, 0, MOST, where) for v in value)
        return tuple(text(v, where) if name in ("joints", "waves") else real(v, where) for v in value)
    if name == "columns":
        return whole(value, 0, MOST, where)
    return real(value, where) if name in ("frequency", "still") else text(value, where)


@dataclass(frozen=True)
class ObsGroup:
    """Observation terms of one reader (actor, critic, ...), with `history` frames of them."""

    terms: tuple[ObsTerm, ...]
    history: int = 1
    layout: Literal["frames", "terms"] = "frames"
    """of a history: all terms of a frame together, or all frames of a term together"""
    newest: Literal["last", "first"] = "last"
    """where in a history the newest frame is"""
    estimator: Estimator | None = None
    """makes the terms that are estimates"""

    @cached_property
    def frame(self) -> int:
        return sum(t.dim for t in self.terms)

    @cached_property
    def columns(self) -> list[slice]:
        """Where in a frame each term is."""
        ends = np.cumsum([t.dim for t in self.terms]).tolist()
        return [slice(end - t.dim, end) for t, end in zip(self.terms, ends)]

    @cached_property
    def dim(self) -> int:
        return sum(t.dim * (t.history or self.history) for t in self.terms)

    @cached_property
    def scales(self) -> np.ndarray:
        """(frame,) float32."""
        return np.concatenate([np.broadcast_to(np.asarray(t.scale, np.float32), (t.dim,)) for t in self.terms])

    @cached_property
    def clips(self) -> np.ndarray:
        """(frame,)"""
        return np.repeat([t.clip for t in self.terms], [t.dim for t in self.terms])

    @cached_property
    def _ends(self) -> tuple[np.ndarray, np.ndarray]:
        """(frame,) float32 lowest and highest numbers, in units."""
        high = self.clips.astype(np.float32)
        return -high, high

    @cached_property
    def _clipped(self) -> bool:
        return bool(np.isfinite(self.clips).any())

    @cached_property
    def _scaled(self) -> bool:
        return bool((self.scales != 1.0).any())

    @cached_property
    def _computed(self) -> list[tuple[Formula, slice]]:
        """Formulas, and where in a frame their terms are."""
        return [(t.formula, at) for t, at in zip(self.terms, self.columns) if t.formula is not None]

    @cached_property
    def taken(self) -> np.ndarray | None:
        """(dim,) where among `history` whole frames, newest last, each number of the observation is; None: all of them, in that order."""
        ages = range(self.history) if self.newest == "last" else range(self.history - 1, -1, -1)
        spots = [
            (i, t * self.frame + np.arange(at.start, at.stop))
            for t in ages
            for i, (term, at) in enumerate(zip(self.terms, self.columns))
            if t >= self.history - (term.history or self.history)
        ]
        if self.layout == "terms":
            spots = sorted(spots, key=lambda spot: spot[0])  # stable: frames of a term stay in their order
        found = np.concatenate([columns for _, columns in spots])
        return None if np.array_equal(found, np.arange(self.history * self.frame)) else found

    def finish(self, raw: np.ndarray) -> np.ndarray:
        """(n, frame) in units -> clipped and scaled, in place."""
        if len(raw) == 1 and raw.dtype == np.float32:  # of one robot: all columns at once, to the same bits
            if self._clipped:
                np.maximum(raw, self._ends[0], out=raw)
                np.minimum(raw, self._ends[1], out=raw)
            if self._scaled:
                raw *= self.scales
            return raw
        for t, at in zip(self.terms, self.columns):
            if t.clip != np.inf:
                raw[:, at].clip(-t.clip, t.clip, out=raw[:, at])
            if t.scale != 1.0:
                raw[:, at] *= self.scales[at]
        return raw

    def flat(self, frames: np.ndarray) -> np.ndarray:
        """(n, history, frame), newest last -> (n, dim): the observation; not to be written to."""
        flat = frames.reshape(len(frames), -1)
        return flat if self.taken is None else flat[:, namespace(flat).asarray(self.taken)]

    @cached_property
    def estimates(self) -> tuple[str, ...]:
        """Readings of the estimator that terms take."""
        return tuple(
            dict.fromkeys(t.formula.estimate for t in self.terms if t.formula is not None and t.formula.estimate)
        )

    @cached_property
    def needs(self) -> tuple[str, ...]:
        """Readings of the robot that its terms and their estimator take."""
        terms = (*self.terms, *(self.estimator.inputs if self.estimator is not None else ()))
        found = [name for t in terms if t.formula is not None for name in t.formula.needs]
        return tuple(dict.fromkeys([*found, *(["time"] if self.estimator is not None else [])]))

    def sources(self, term: ObsTerm) -> tuple[ObsTerm, ...]:
        """The terms that follow from readings and that one follows from: itself, or what its estimator reads."""
        estimated = term.formula is not None and term.formula.estimate and self.estimator is not None
        return self.estimator.inputs if estimated and self.estimator is not None else (term,)

    @cached_property
    def measured(self) -> "ObsGroup":
        """Its terms, and after them those its estimator reads besides: one sensor's noise is one, whoever reads it."""
        own = {t.name for t in self.terms}
        more = self.estimator.inputs if self.estimator is not None else ()
        return ObsGroup((*self.terms, *(t for t in more if t.name not in own)))

    def inputs(self, r: Readings) -> np.ndarray:
        """(n, width) what the estimator reads, in units."""
        assert self.estimator is not None
        return np.concatenate(
            [np.asarray(t.formula(r), float) for t in self.estimator.inputs if t.formula is not None], 1
        )

    def _estimated(self, r: Readings, n: int) -> Readings:
        """Readings with the estimates of rows that follow each other; an episode begins with the first, and at time 0."""
        assert self.estimator is not None
        if n == 1:
            raise SurefootError(
                "estimate: one row of readings: an estimate follows from those before it; expected a Live group"
            )
        begins = np.asarray(r.reading("time")).reshape(-1) == 0.0
        return Also(r, over_time(self.estimator, self.inputs(r), self.estimates, begins))

    def raw(self, r: Readings, n: int) -> np.ndarray:
        """(n, frame) float32 in the terms' units; nan where a term has no formula. Estimates are made over rows in time."""
        r = self._estimated(r, n) if self.estimates and not isinstance(r, Also) else r
        out = np.empty((n, self.frame), np.float32)
        if len(self._computed) < len(self.terms):
            out[:] = np.nan
        for formula, at in self._computed:
            out[:, at] = formula(r)
        return out

    def check(self, where: str) -> None:
        if not self.terms:
            raise SurefootError(f"{where}: observation: found no terms, expected at least one")
        names = [t.name for t in self.terms]
        if len(set(names)) != len(names):
            raise SurefootError(f"{where}: observation: expected each name once, found {', '.join(names)}")
        whole(self.history, 1, MOST, f"{where}: history")
        for t in self.terms:
            t.check(f"{where}: observation")
            if t.history > self.history:
                raise SurefootError(f"{where}: observation: {t.name}: history: expected at most {self.history} frames")
        self._check_estimates(f"{where}: observation")

    def _check_estimates(self, where: str) -> None:
        own, e = {t.name: t for t in self.terms}, self.estimator
        for t in e.inputs if e is not None else ():
            if t.formula is None or (t.name in own and own[t.name].formula != t.formula):
                raise SurefootError(
                    f"{where}: estimator: {t.name}: expected the formula that the term of this name has"
                )
        for t in self.terms:
            f = t.formula
            if f is None or not f.estimate:
                continue
            if e is None:
                raise SurefootError(f"{where}: {t.name}: an estimate, and found no estimator that makes it")
            if f.reading not in e.quantities:
                raise unknown("estimate", f.reading, e.quantities, f"{where}: {t.name}")
            if t.dim != e.quantities[f.reading][0]:
                raise SurefootError(f"{where}: {t.name}: dim: expected {e.quantities[f.reading][0]}, found {t.dim}")

    def to_json(self) -> dict[str, Any]:
        rest = {"history": self.history, "layout": self.layout, "newest": self.newest}
        made = {} if self.estimator is None else {"estimator": self.estimator.to_json()}
        return {"terms": [t.to_json() for t in self.terms], **rest, **made}

    @staticmethod
    def from_json(data: Any, where: str) -> "ObsGroup":
        body = known_fields(data, {"terms", "history", "layout", "newest", "estimator"}, {"terms"}, where)
        if not isinstance(body["terms"], list) or len(body["terms"]) > MOST:
            raise SurefootError(f"{where}: terms: expected a list of terms, found {str(body['terms'])[:80]}")
        for name, choices in (("layout", ("frames", "terms")), ("newest", ("last", "first"))):
            if body.get(name, choices[0]) not in choices:
                raise unknown(name, str(body[name]), choices, where)
        terms = tuple(ObsTerm.from_json(t, f"{where}: terms[{i}]") for i, t in enumerate(body["terms"]))
        whole(body.get("history", 1), 1, MOST, f"{where}: history")
        made = body.pop("estimator", None)
        if made is not None:
            from surefoot.estimate.kinds import from_json  # which reads terms

            body["estimator"] = from_json(made, f"{where}: estimator")
        return ObsGroup(**body | {"terms": terms})


@dataclass(frozen=True)
class Also:
    """Readings with some more, which an estimator has made of them."""

    readings: Readings
    more: Mapping[str, np.ndarray]

    def reading(self, name: str) -> np.ndarray:
        return self.more[name] if name in self.more else self.readings.reading(name)

    def parts(self, name: str) -> tuple[str, ...]:
        return self.readings.parts(name)


class History:
    """The last frames of n rows, oldest first; a row that begins is filled with copies of its first frame."""

    def __init__(self, group: ObsGroup, n: int):
        self.group, self.frames = group, np.zeros((n, group.history, group.frame), np.float32)

    def push(self, frame: np.ndarray, fresh: np.ndarray) -> np.ndarray:
        """Take in a frame (n, frame); rows `fresh` begin with it. Returns the observation, new at each push."""
        frames = np.empty_like(self.frames)
        frames[:, -1] = frame
        if self.group.history > 1:
            frames[:, :-1] = self.frames[:, 1:]
            frames[fresh] = frame[fresh, None]
        self.frames = frames
        return self.group.flat(frames)

    def next(self, frame: np.ndarray, ids: np.ndarray) -> np.ndarray:
        """The observations of rows ids with this frame, without taking it in."""
        if self.group.history == 1:
            return self.group.flat(frame[:, None])
        return self.group.flat(np.concatenate([self.frames[ids, 1:], frame[:, None]], 1))


class Live:
    """A group at work on n robots, period by period: readings -> estimates -> terms -> clip, scale -> history."""

    def __init__(self, group: ObsGroup, n: int = 1):
        self.group, self.n, self.history = group, n, History(group, n)
        self.state: EstimatorState = {} if group.estimator is None else group.estimator.init(n)

    def begin(self, rows: np.ndarray) -> None:
        """Rows (numbers, or a mask) begin an episode with the next readings."""
        self.state = begun(self.state, rows)

    def __call__(self, r: Readings, fresh: np.ndarray) -> np.ndarray:
        """(n, dim) the observation; rows `fresh` (numbers) begin an episode."""
        e = self.group.estimator
        if e is not None:
            if len(fresh):
                self.begin(fresh)
            self.state = stepped(e, self.state, self.group.inputs(r))
            r = Also(r, e.readings(self.state, self.group.estimates))
        return self.history.push(self.group.finish(self.group.raw(r, self.n)), fresh)
