"""Observer: what the groups of a task observe in n simulations, one control period after the other.

    sensors -> noise, bias -> estimate -> clip, scale -> transmission -> history        (actor)
    state -> clip, scale -> history                                                     (all other groups)

A frame is what a group observes in one period; the pipeline of its terms is in observation.py.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from surefoot.arrays import by_column
from surefoot.errors import SurefootError
from surefoot.noise import SensorErrors
from surefoot.observation import History, ObsGroup, Source
from surefoot.task import Moment, Task
from surefoot.world import Chance, OnObservation, OnSense, State, World

Frames = Mapping[str, np.ndarray]
"""group -> (n, frame) float32"""


class Observer:
    """Histories of each group, and the state of the actor's estimator, of n envs from number `first` on."""

    def __init__(self, task: Task, world: World, first: int):
        self.task, n = task, world.n
        self.actor = task.observations["actor"]
        self.measured, self.estimator = self.actor.measured, self.actor.estimator
        others = {} if task.estimator is None else {"estimator": ObsGroup(task.estimator.inputs)}
        groups = {**task.observations, **others, "actor": self.measured}
        self.sensor_errors = SensorErrors(world.params, groups, first, n)
        self.estimator_state = {} if self.estimator is None else dict(self.estimator.init(n))
        self.estimates = {k: np.zeros((n, t.dim)) for t in self.actor.terms if t.formula and (k := t.formula.estimate)}
        read = [] if self.estimator is None else [t.name for t in self.estimator.inputs]
        self.input_columns = _columns(self.measured, read)
        self.senses = [t for t in world.terms if isinstance(t, OnSense)]
        self.on_observation = [t for t in world.terms if isinstance(t, OnObservation)]
        self.alike = [g for g, group in task.observations.items() if group.terms == self.actor.terms]
        self.rest = [g for g in task.observations if g not in self.alike]
        self.sources = {g: _sources(group) for g, group in {**task.observations, "actor": self.measured}.items()}
        self.histories = {g: History(group, n) for g, group in task.observations.items()}

    def sensed(self, now: Moment, chance: Chance, ids: np.ndarray | None = None) -> Moment:
        """The moment as the robot's sensors measure it, of all envs or of ids."""
        x, ids = now.x, np.arange(len(now.q)) if ids is None else ids
        for term in self.senses:
            x = term(x, ids, chance)
        return replace(now, x=x, known={})

    def frames(
        self, now: Moment, chance: Chance, ids: np.ndarray | None = None, begun: np.ndarray | None = None
    ) -> dict[str, np.ndarray]:
        """One frame of each group, of all envs or of ids; a group with the actor's terms has the actor's frame.

        `begun`: which of these rows begin an episode; without, a control period has passed.
        """
        actor = self._frame("actor", self.measured.frame, self.sensed(now, chance, ids) if self.senses else now)
        self.sensor_errors.add(actor, now.x.e, ids, (chance.seed, chance.step))
        if self.estimator is not None:
            now = replace(now, estimates=self._estimate(actor, ids, begun))
            for t, at in zip(self.actor.terms, self.actor.columns):
                if t.formula is not None and t.formula.estimate:
                    actor[:, at] = now.estimates[t.formula.estimate]
        actor = self.actor.finish(actor[:, : self.actor.frame])
        return dict.fromkeys(self.alike, actor) | {g: self._finished(g, now) for g in self.rest}

    def transmitted(self, frames: Frames, x: State, chance: Chance) -> Frames:
        """What the Terms between sensors and actor make of its frame: of all envs at once, so none moves another."""
        if not self.on_observation:
            return frames
        frame = frames["actor"]
        for term in self.on_observation:
            frame = term(x, frame, chance)
        actor = np.asarray(frame, np.float32)
        return {g: actor if g in self.alike else frames[g] for g in frames}

    def push(self, frames: Frames, fresh: np.ndarray) -> dict[str, np.ndarray]:
        """Take in a frame of every group; the history of `fresh` envs begins with copies of their first one."""
        return {g: history.push(frames[g], fresh) for g, history in self.histories.items()}

    def last(self, frames: Frames, ids: np.ndarray) -> dict[str, np.ndarray]:
        """What each group would observe now in some envs; no NaN, even where one diverged."""
        seen = {g: history.next(frames[g][ids], ids) for g, history in self.histories.items()}
        return {
            g: a if np.isfinite(a).all() else np.nan_to_num(a, nan=0.0, posinf=0.0, neginf=0.0) for g, a in seen.items()
        }

    def _finished(self, g: str, now: Moment) -> np.ndarray:
        group = self.task.observations[g]
        return group.finish(self._frame(g, group.frame, now))

    def _frame(self, g: str, width: int, now: Moment) -> np.ndarray:
        """One frame of a group, in the terms' units."""
        frame = by_column(len(now.q), width, np.float32)
        with np.errstate(over="ignore"):  # readings of what diverged
            for name, source, at, kept in self.sources[g]:
                if source is None:
                    raise SurefootError(f"task {self.task.name}: {name}: no simulator knows how to compute it")
                frame[:, at] = now.once(source) if kept else source(now)
        return frame

    def _estimate(self, frame: np.ndarray, ids: np.ndarray | None, begun: np.ndarray | None) -> dict[str, np.ndarray]:
        """What the state estimator makes of a measured frame: of a period that has passed, or of rows that begin."""
        e, inputs = self.estimator, frame[:, self.input_columns].astype(float)
        assert e is not None
        with np.errstate(all="ignore"):  # of what diverged
            if begun is None:
                self.estimator_state = dict(e.step(self.estimator_state, inputs))
                self.estimates = e.readings(self.estimator_state, self.actor.estimates)
            elif len(begun):
                rows, first = begun if ids is None else ids[begun], e.step(e.init(len(begun)), inputs[begun])
                for k, v in self.estimator_state.items():
                    v[rows] = first[k]
                for k, v in e.readings(first, self.actor.estimates).items():
                    self.estimates[k][rows] = v
        return self.estimates if ids is None else {k: v[ids] for k, v in self.estimates.items()}

    def save(self) -> dict[str, np.ndarray]:
        own = {f"frames.{g}": h.frames.copy() for g, h in self.histories.items()}
        own |= {f"estimator.{k}": v.copy() for k, v in self.estimator_state.items()}
        return own | {f"estimated.{k}": v.copy() for k, v in self.estimates.items()}

    def load(self, saved: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Go on from save(), here among other arrays; returns the observations that followed it."""
        for g, history in self.histories.items():
            history.frames = saved[f"frames.{g}"].copy()
        self.estimator_state = {k: saved[f"estimator.{k}"].copy() for k in self.estimator_state}
        self.estimates = {k: saved[f"estimated.{k}"].copy() for k in self.estimates}
        return {g: h.group.flat(h.frames) for g, h in self.histories.items()}


def _sources(group: ObsGroup) -> list[tuple[str, Source | None, slice, bool]]:
    """Of each term: name, source, columns, and whether others may use what was computed; an estimate is made from the frame itself."""
    estimated = [t.formula is not None and bool(t.formula.estimate) for t in group.terms]
    return [(t.name, t.source, at, not made) for t, at, made in zip(group.terms, group.columns, estimated)]


def _columns(group: ObsGroup, names: Sequence[str]) -> np.ndarray:
    """Where in a frame the named terms are, one after the other."""
    at = {t.name: columns for t, columns in zip(group.terms, group.columns)}
    return np.concatenate([np.arange(at[n].start, at[n].stop) for n in names] or [np.zeros(0, int)])
