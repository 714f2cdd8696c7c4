"""Env: a Task in a World under a belief, n episodes side by side.

step: action -> control -> world -> reward, ends -> observations        pipeline of observations: observer.py
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from surefoot.arrays import column_copy
from surefoot.belief import Belief
from surefoot.env.abstract import AbstractEnv, Episodes, OnDivergence, Step
from surefoot.env.observer import Frames, Observer
from surefoot.errors import SurefootError
from surefoot.rng import Rows
from surefoot.task import Moment, Task
from surefoot.task_check import check_groups, check_start, check_terms, in_task_words, not_finite
from surefoot.world import Chance, State, World

# arrays that are an Env's own state
OWN = ("age", "action", "previous", "command", "reference", "phase", "reward", "returns", "error", "partial", "ended")


class Env(AbstractEnv):
    """A Task in a World under a belief: n episodes side by side, each with its own e, reset as they end."""

    def __init__(self, task: Task, world: World, belief: Belief, seed: int = 0, stagger: bool = False, first: int = 0):
        """`first`: row 0 is that env of the seed. Envs draw the same whether they are one Env or several."""
        if belief.params.names != world.params.names:
            raise SurefootError(f"belief: expected params {world.params.names}, found {belief.params.names}")
        check_groups(task, ("actor",))
        self.task, self.world, self.belief, self.seed, self.stagger = task, world, belief, seed, stagger
        n, na = world.n, len(task.action.names)
        self.n, self.first, self.steps = n, first, round(task.seconds / world.dt)
        self.span = max(1, round(min(task.window, task.seconds) / world.dt))  # at the end: where the error counts
        self.counter = 0
        self.age = np.zeros(n, np.int64)  # control periods into the episode
        self.action, self.previous = column_copy(np.zeros((n, na))), column_copy(np.zeros((n, na)))
        self.command = column_copy(np.zeros((n, len(task.command_names))))
        self.reference, self.phase = np.zeros(n, np.int64), np.zeros(n)  # phase: s, at age 0
        self.reward, self.returns, self.error = np.zeros(n), np.zeros(n), np.zeros(n)
        self.ended = np.zeros(n, np.int64)  # episodes of the trial that have ended
        self.partial = np.zeros(n, bool)  # begun at a later age, so its return and success mean nothing
        self.order = task.control_order(world.layout)
        self.layout = replace(world.layout, actions=task.action.names)
        self.observer = Observer(task, world, first)
        self.reward_sums = np.zeros((len(task.rewards), n))
        self.chances: np.ndarray | None = None
        self.checked = False  # whether the task's functions were
        self.diverged = 0
        self.not_finite: Counter[str] = Counter()
        self.on_divergence: OnDivergence | None = None

    def like(self, n: int, first: int) -> "Env":
        return Env(self.task, self.world.with_(n), self.belief, self.seed, self.stagger, first)

    @property
    def moment(self) -> Moment:
        x = self.world.state
        gravity = column_copy(x.gravity) if len(x.gravity) > 1 else x.gravity
        return self._moment(replace(x, q=column_copy(x.q), v=column_copy(x.v), gravity=gravity))  # read by column

    def _moment(self, x: State) -> Moment:
        time = self.age * self.world.dt
        more = self.layout, self.reference, self.phase + time
        now = x, self.action, self.previous, self.command, time, self.reward
        return Moment(*now, *more, estimates=self.observer.estimates)

    @property
    def chance(self) -> Chance:
        return Chance(self.seed, self.counter, self.world.dt, self.first)

    def sensed(self) -> Moment:
        """The moment as the robot's sensors measure it."""
        return self.observer.sensed(self.moment, self.chance)

    def reset(self, seed: int | None = None, e: np.ndarray | None = None) -> dict[str, np.ndarray]:
        """Begin everywhere; given a seed, from its streams' start; given e (n, ne), in those worlds, not in drawn ones.

        With `stagger`, at random ages, not all in step.
        """
        with in_task_words(self.task):
            return self._reset(seed, e)

    def _reset(self, seed: int | None, e: np.ndarray | None) -> dict[str, np.ndarray]:
        if seed is not None:
            self.seed, self.counter = seed, 0
        if not self.checked:
            check_start(self.task, self.world.state, self._rows("start", np.arange(self.n)))
        self._begin(np.arange(self.n), e)
        if not self.checked:
            check_terms(self.task, self.moment)
            self.checked = True
        if self.stagger:
            return self.begin_at(
                Rows(self.seed, "age", 0, self.first + np.arange(self.n)).integers(0, self.steps, self.n)
            )
        return self._begin_observing()

    def begin_at(self, ages: np.ndarray) -> dict[str, np.ndarray]:
        """Make the episodes just begun as old as `ages` control periods; their return and success go unreported."""
        self.age[:], self.partial[:] = ages, True
        self.phase -= self.age * self.world.dt  # the state is that of the phase drawn, whatever the age
        return self._begin_observing()

    def _begin_observing(self) -> dict[str, np.ndarray]:
        """The first observations of episodes that begin everywhere."""
        everyone, now = np.arange(self.n), self.moment
        frames = self.observer.frames(now, self.chance, begun=everyone)
        return self.observer.push(self._transmitted(frames), everyone)

    def begin(self, action: np.ndarray) -> None:
        self.previous, self.action = self.action, column_copy(self.task.action.bounded(action))
        if not np.isfinite(self.action).all():
            i = int(np.flatnonzero(~np.isfinite(self.action).all(1))[0])
            raise SurefootError(
                f"action: env {self.first + i}: found {self.action[i].tolist()}, expected finite numbers"
            )
        with in_task_words(self.task):  # a task may have Terms of its own
            self.world.begin(self.control(self.action), self.chance)

    def advance(self) -> None:
        self.world.advance()

    def end(self) -> Step:
        with in_task_words(self.task):
            return self._end()

    def _end(self) -> Step:
        bad = self.world.end()
        self.counter += 1
        self.age += 1
        if bad.any():
            self._contain(bad)
        now = self.moment
        terms = self._reward_terms(now)
        self.reward[:] = reward = self._floored(terms)
        frames = self.observer.frames(now, self.chance)
        bad = self._odd(terms, frames, bad)
        self.reward_sums += np.where(bad, 0.0, terms) if bad.any() else terms
        reward, terminated, why = self._judge(now, reward, bad)
        truncated = self._out_of_time() & ~terminated
        done = terminated | truncated
        self.returns += reward
        self._measure(now)
        once = self.task.trial == 1  # an episode is a trial: what is done is final
        final = done if once else done & ((self.ended + 1 >= self.task.trial) | bad)
        self.reward[:] = reward
        episodes, last, ids = None, {}, done.nonzero()[0]
        begins = ids if once else final.nonzero()[0]
        if len(ids):
            episodes = self._finish(ids, terminated, why)
            last = self.observer.last(self._transmitted(frames, now), ids)
            if not once:
                self._again((done & ~final).nonzero()[0])
            self._begin(begins)
        due = self._recommand()
        changed = ids if due is None else (done | due).nonzero()[0]
        if len(changed):
            again = self._moment(self.world.state).rows(changed)
            for g, frame in self.observer.frames(again, self.chance, changed, done[changed].nonzero()[0]).items():
                frames[g][changed] = frame
        obs = self.observer.push(self._transmitted(frames), begins)
        return Step(obs, reward, terminated, truncated, final, ~bad, last, episodes)

    def _out_of_time(self) -> np.ndarray:
        """(n,) bool: at the time limit, or at the end of the reference motion."""
        late = self.age >= self.steps
        if self.task.clip is None:
            return late
        now, ends = self.phase + (self.age + 0.5) * self.world.dt, self.task.clip.ends
        if ends:  # one of several motions is over
            late |= np.searchsorted(ends, now) != np.searchsorted(ends, now - self.world.dt)
        return late | (now > self.task.clip.seconds)

    def _odd(self, terms: np.ndarray, frames: Mapping[str, np.ndarray], bad: np.ndarray) -> np.ndarray:
        """Who diverged: also whose numbers are not finite, though the engine saw nothing wrong."""
        reward = self.reward
        with np.errstate(over="ignore", invalid="ignore"):
            if np.isfinite(reward.sum() + sum(f.sum() for f in frames.values())):
                return bad
            odd = ~(np.isfinite(reward) & np.isfinite([f.sum(1) for f in frames.values()]).all(0)) & ~bad
        if odd.any():
            self.not_finite.update(not_finite(self.task, dict(zip(self.task.rewards, terms)), frames, odd))
            self._contain(odd)
        return bad | odd

    def control(self, action: np.ndarray) -> np.ndarray:
        """(n, nu) of bounded actions, in the order of the model's actuators; those the task does not drive stay as they are."""
        control = self.task.action.control(action)
        if self.order is None:
            return control
        u = self.world.state.u.copy()
        u[:, self.order] = control
        return u

    def _reward_terms(self, now: Moment) -> np.ndarray:
        """(terms, n): each reward's weight times what it computes, over one control period."""
        out = np.empty((len(self.task.rewards), self.n))
        with np.errstate(invalid="ignore", over="ignore"):  # of what diverged
            for row, r in zip(out, self.task.rewards.values()):
                np.multiply(r.compute(now), self.world.dt * r.weight, out=row)
        return out

    def _floored(self, terms: np.ndarray) -> np.ndarray:
        floor = self.task.reward_floor
        with np.errstate(invalid="ignore", over="ignore"):
            reward = terms.sum(0)
        return np.maximum(reward, self.world.dt * floor) if np.isfinite(floor) else reward

    def _judge(
        self, now: Moment, reward: np.ndarray, bad: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
        """Reward, who failed, and why. A diverged simulation is a failure with no reward to learn from."""
        why = {name: test(now) for name, test in self.task.ended.items()}
        terminated = bad
        for hit in why.values():
            terminated = terminated | hit
        why["diverged"] = bad
        return (np.where(bad, 0.0, reward) if bad.any() else reward), terminated, why

    def _measure(self, now: Moment) -> None:
        """The episode's error so far, over its last `window` seconds."""
        counts = self.age > self.steps - self.span
        if not counts.any():
            return
        error = np.where(counts, self.task.error(now), 0.0)
        self.error = np.maximum(self.error, error) if self.task.measure == "max" else self.error + error / self.span

    def _errors(self, ids: np.ndarray) -> np.ndarray:
        """Of episodes that ended; one that began late in a reference motion counts over the time that it had."""
        if self.task.clip is None or self.task.measure == "max":
            return self.error[ids]
        return self.error[ids] * self.span / np.clip(self.age[ids] - self.steps + self.span, 1, self.span)

    def _finish(self, ids: np.ndarray, terminated: np.ndarray, why: dict[str, np.ndarray]) -> Episodes:
        ids = ids[~self.partial[ids]]
        reason = np.full(len(ids), "time", object)
        for name, hit in reversed(why.items()):
            reason[hit[ids]] = name  # the first that holds
        failed, errors = terminated[ids], self._errors(ids)
        error = np.where(failed, np.nan, errors)
        success = ~failed & (errors <= self.task.tolerance)
        began, e, phase = (
            self.counter - self.age[ids],
            self.world.state.e[ids],
            self.phase[ids] + self.age[ids] * self.world.dt,
        )
        return Episodes(
            self.first + ids, self.returns[ids], self.age[ids], success, error, reason.tolist(), e, began, phase
        )

    def _begin(self, ids: np.ndarray, e: np.ndarray | None = None) -> None:
        """New e and Episode in envs ids, which no other env's draws move."""
        self._place(ids, self.belief.sample(self._rows("e", ids), len(ids)) if e is None else e)
        self.reward[ids], self.ended[ids] = 0.0, 0

    def _again(self, ids: np.ndarray) -> None:
        """Another episode in the same world."""
        if len(ids):
            self._place(ids, self.world.state.e[ids])
            self.ended[ids] += 1

    def _place(self, ids: np.ndarray, e: np.ndarray) -> None:
        k = len(ids)
        rows = self._rows("start", ids)
        if self.task.clip is None or self.chances is None:
            episode = self.task.episode(rows, k)
        else:
            episode = self.task.clip.begin(rows, k, self.chances)
        self.world.reset(ids, e, episode.start)
        self.age[ids], self.returns[ids], self.error[ids], self.partial[ids] = 0, 0.0, 0.0, False
        self.action[ids], self.previous[ids] = 0.0, 0.0
        self.reference[ids] = 0 if episode.reference is None else episode.reference
        self.phase[ids] = 0.0 if episode.phase is None else episode.phase
        if episode.command is not None:
            self.command[ids] = episode.command
        elif self.task.command is not None:
            self.command[ids] = self.task.command(self._rows("command", ids), k)

    def _recommand(self) -> np.ndarray | None:
        """(n,) bool: the envs whose time had come for another command; None where that never comes."""
        if self.task.command is None or not np.isfinite(self.task.command_every):
            return None
        due = (self.age > 0) & (self.age % round(self.task.command_every / self.world.dt) == 0)
        ids = np.flatnonzero(due)
        if len(ids):
            self.command[ids] = self.task.command(self._rows("recommand", ids), len(ids))
        return due

    def _rows(self, purpose: str, ids: np.ndarray) -> Rows:
        return Rows(self.seed, purpose, self.counter, self.first + ids)

    def _contain(self, bad: np.ndarray) -> None:
        """Count and report what diverged, and let the task see numbers there, not NaN; the rows are reset below."""
        self.diverged += int(bad.sum())
        for i in np.flatnonzero(bad):
            if self.on_divergence is not None:
                self.on_divergence(*self._divergence(int(i)))
        x = self.world.state
        for rows in (x.q, x.v):
            rows[bad] = np.nan_to_num(rows[bad], nan=0.0, posinf=0.0, neginf=0.0).clip(-1e3, 1e3)

    def _divergence(self, i: int) -> tuple[str, dict[str, np.ndarray]]:
        """What led a simulation to diverge, and the task to replay it in."""
        number = self.first + i
        about = {"env": number, "step": self.counter, "task": self.task.name, "seed": self.seed}
        arrays = self.world.replay_record(i) | {k: np.array(v) for k, v in about.items()}
        return f"step{self.counter:08d}_env{number:05d}", arrays

    def _transmitted(self, frames: Frames, now: Moment | None = None) -> Frames:
        if not self.observer.on_observation:
            return frames
        return self.observer.transmitted(frames, (now or self.moment).x, self.chance)

    def save(self) -> dict[str, np.ndarray]:
        own = {k: getattr(self, k).copy() for k in OWN}
        own |= self.observer.save()
        own |= {"counter": np.array(self.counter), "diverged": np.array(self.diverged)}
        return own | {f"world.{k}": v for k, v in self.world.save().items()}

    def load(self, saved: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        for k in OWN:
            setattr(self, k, column_copy(saved[k]) if saved[k].ndim == 2 else saved[k].copy())
        self.counter, self.diverged = int(saved["counter"]), int(saved["diverged"])
        self.world.load({k.removeprefix("world."): v for k, v in saved.items() if k.startswith("world.")})
        return self.observer.load(saved)
