"""What is seen, rewarded, commanded and ended; and the env step that joins a Task and a World.

Observation pipeline of a group: compute -> noise -> clip -> scale -> (delay, in the engine) -> history.
A Task's functions take a Moment and return arrays over its rows, so the same code serves training and gate (n rows) and
the robot (one). Success of an episode: it ran to its time limit, and its error (largest, or mean) over the last
`window` seconds stayed within `tolerance`.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from surefoot.belief import Belief, Take
from surefoot.errors import SurefootError, unknown
from surefoot.params import Param, Params
from surefoot.rng import stream
from surefoot.world import Chance, OnObservation, Start, State, World


@dataclass(frozen=True)
class Moment:
    """All a task may look at, at one instant, over n rows. Only critics and rewards may use what no sensor measures."""

    x: State
    action: np.ndarray  # (n, na) last action of the policy
    previous: np.ndarray  # (n, na) the one before
    command: np.ndarray  # (n, nc) what is asked for
    time: np.ndarray  # (n,) s into the episode

    def rows(self, mask: np.ndarray) -> "Moment":
        """The same instant in some rows only."""
        x = self.x
        gravity = x.gravity[mask] if len(x.gravity) == len(mask) else x.gravity
        part = State(
            x.time[mask],
            x.q[mask],
            x.v[mask],
            x.u[mask],
            x.act[mask],
            {k: y[mask] for k, y in x.y.items()},
            x.e[mask],
            gravity,
        )
        return Moment(part, self.action[mask], self.previous[mask], self.command[mask], self.time[mask])

    @property
    def q(self) -> np.ndarray:
        return self.x.q

    @property
    def v(self) -> np.ndarray:
        return self.x.v

    @property
    def y(self) -> Mapping[str, np.ndarray]:
        return self.x.y


@dataclass(frozen=True)
class Seen:
    """One observation term: a name people know, what it is, how noisy it is on a real robot, how it is scaled."""

    name: str
    compute: Callable[[Moment], np.ndarray]
    dim: int
    unit: str = ""
    noise: float = 0.0
    """standard deviation of the sensor's noise, in `unit`"""
    scale: float = 1.0
    clip: float = np.inf
    """largest magnitude, in `unit`, before scaling"""


@dataclass(frozen=True)
class Group:
    """Terms told to one reader (actor, critic, ...), with `history` frames of them, newest last."""

    terms: tuple[Seen, ...]
    history: int = 1

    @property
    def frame(self) -> int:
        return sum(t.dim for t in self.terms)

    @property
    def dim(self) -> int:
        return self.frame * self.history


@dataclass(frozen=True)
class Reward:
    weight: float
    compute: Callable[[Moment], np.ndarray]
    about: str


@dataclass(frozen=True)
class Action:
    """What the policy's numbers mean: control = offset + scale * a, with a clipped to [-limit, limit]."""

    names: tuple[str, ...]
    offset: np.ndarray
    scale: np.ndarray
    unit: str
    limit: float = 1.0
    choices: int = 0
    """0: continuous; k: the policy picks one of k, mapped to evenly spaced a in [-1, 1]"""

    def control(self, a: np.ndarray) -> np.ndarray:
        return self.offset + self.scale * a

    def bounded(self, a: np.ndarray) -> np.ndarray:
        if self.choices:
            return 2.0 * np.asarray(a, float).reshape(-1, 1) / (self.choices - 1) - 1.0
        return np.clip(np.asarray(a, float), -self.limit, self.limit)


@dataclass(frozen=True)
class Mirror:
    """A left-right symmetry: mirrored = sign * values[order], of one frame the actor is told and of the action."""

    obs_order: np.ndarray
    obs_sign: np.ndarray
    action_order: np.ndarray
    action_sign: np.ndarray


@dataclass(frozen=True)
class Task:
    name: str
    about: str
    xml: str
    params: Params
    belief: Belief
    """p(e) a policy is trained over when randomization is on"""
    substeps: int
    """engine steps in one control period"""
    seconds: float
    action: Action
    sees: Mapping[str, Group]
    rewards: Mapping[str, Reward]
    ended: Mapping[str, Callable[[Moment], np.ndarray]]
    start: Callable[[np.random.Generator, int, Take], Start]
    """draws for n envs, of which only the rows to take are worked out"""
    error: Callable[[Moment], np.ndarray]
    error_unit: str
    tolerance: float
    window: float
    """seconds at the end of the episode over which the error counts"""
    measure: Literal["max", "mean"] = "max"
    command: Callable[[np.random.Generator, int], np.ndarray] | None = None
    command_names: tuple[str, ...] = ()
    command_every: float = np.inf
    """seconds after which a new command is drawn"""
    reward_floor: float = -np.inf
    explicit: bool = False
    """textbook Euler, q' = q + h v, in place of the engine's integrator"""
    mirror: Mirror | None = None
    terms: tuple[Any, ...] = ()
    """Terms for the world's sockets that belong to the task, such as pushes"""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """tuned learner settings"""


@dataclass(frozen=True)
class Episodes:
    """Episodes that ended in one step: one row each."""

    ids: np.ndarray
    returns: np.ndarray
    lengths: np.ndarray
    success: np.ndarray
    error: np.ndarray
    reason: list[str]


@dataclass(frozen=True)
class Step:
    """What one env step gives back: `obs` after auto-reset, `last` what each group would have been told before it."""

    obs: dict[str, np.ndarray]
    reward: np.ndarray  # (n,)
    terminated: np.ndarray  # (n,) bool: failed; nothing follows
    truncated: np.ndarray  # (n,) bool: out of time; value continues
    valid: np.ndarray  # (n,) bool: False where the simulation diverged, whose transition must not be learned from
    last: dict[str, np.ndarray]  # group -> rows of the envs that are done, before their reset
    episodes: Episodes | None


OWN = ("age", "action", "previous", "command", "returns", "error", "partial")  # arrays that are an Env's own state


class Env:
    """A Task in a World under a belief: n episodes side by side, each with its own e, reset as they end."""

    def __init__(self, task: Task, world: World, belief: Belief, seed: int = 0, stagger: bool = False):
        if belief.params.names != world.params.names:
            raise SurefootError(f"belief: expected params {world.params.names}, found {belief.params.names}")
        self.task, self.world, self.belief, self.seed, self.stagger = task, world, belief, seed, stagger
        n, na = world.n, len(task.action.names)
        self.n, self.steps = n, round(task.seconds / world.dt)
        self.counter = 0
        self.age = np.zeros(n, np.int64)  # control periods into the episode
        self.action, self.previous = np.zeros((n, na)), np.zeros((n, na))
        self.command = np.zeros((n, len(task.command_names)))
        self.returns, self.error = np.zeros(n), np.zeros(n)
        self.partial = np.zeros(n, bool)  # begun at a later age, so its return and success mean nothing
        self.frames = {g: np.zeros((n, group.history, group.frame), np.float32) for g, group in task.sees.items()}
        self.columns = {g: _columns(group) for g, group in task.sees.items()}
        self.outside = {k: _outside(world.params, k, task.sees["actor"]) for k in ("noise", "bias")}
        self.told = [t for t in world.terms if isinstance(t, OnObservation)]
        self._noise = (-1, np.zeros(0, np.float32))  # drawn once a step: (step, rows)
        self.diverged = 0
        self.on_divergence: Callable[[int, str], None] | None = None

    @property
    def moment(self) -> Moment:
        return Moment(self.world.state, self.action, self.previous, self.command, self.age * self.world.dt)

    def reset(self, seed: int | None = None) -> dict[str, np.ndarray]:
        """Begin everywhere; given a seed, from its streams' start; with `stagger`, at random ages, not all in step."""
        if seed is not None:
            self.seed, self.counter, self._noise = seed, 0, (-1, self._noise[1])
        self._begin(np.arange(self.n))
        if self.stagger:
            return self.begin_at(stream(self.seed, "age").integers(0, self.steps, self.n))
        return self._observe(np.arange(self.n))

    def begin_at(self, ages: np.ndarray) -> dict[str, np.ndarray]:
        """Make the episodes just begun as old as `ages` control periods; their return and success go unreported."""
        self.age[:], self.partial[:] = ages, True
        return self._observe(np.arange(self.n))

    def step(self, action: np.ndarray) -> Step:
        task = self.task
        self.previous, self.action = self.action, task.action.bounded(action)
        bad = self.world.step(task.action.control(self.action), Chance(self.seed, self.counter, self.world.dt))
        self.counter += 1
        self.age += 1
        if bad.any():
            self._contain(bad)
        now = self.moment
        reward, terminated, why = self._judge(now, bad)
        truncated = (self.age >= self.steps) & ~terminated
        done = terminated | truncated
        self.returns += reward
        self._measure(now)
        episodes, last = None, {}
        if done.any():
            ids = np.flatnonzero(done)
            episodes = self._finish(ids, terminated, why)
            last = self._last(done)
            self._begin(ids)
        self._recommand()
        obs = self._observe(np.flatnonzero(done))
        return Step(obs, reward, terminated, truncated, ~bad, last, episodes)

    def _judge(self, now: Moment, bad: np.ndarray) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
        """Reward, who failed, and why. A diverged simulation is a failure with no reward to learn from."""
        dt = self.world.dt
        reward = sum(dt * r.weight * r.compute(now) for r in self.task.rewards.values())
        reward = np.maximum(reward, dt * self.task.reward_floor) if np.isfinite(self.task.reward_floor) else reward
        why = {name: test(now) for name, test in self.task.ended.items()}
        why["diverged"] = bad
        terminated = np.logical_or.reduce(list(why.values()))
        return (np.where(bad, 0.0, reward) if bad.any() else np.asarray(reward)), terminated, why

    def _measure(self, now: Moment) -> None:
        """The episode's error so far, over its last `window` seconds."""
        task = self.task
        span = max(1, round(min(task.window, task.seconds) / self.world.dt))
        counts = self.age > self.steps - span
        if not counts.any():
            return
        error = np.where(counts, task.error(now), 0.0)
        self.error = np.maximum(self.error, error) if task.measure == "max" else self.error + error / span

    def _finish(self, ids: np.ndarray, terminated: np.ndarray, why: dict[str, np.ndarray]) -> Episodes:
        ids = ids[~self.partial[ids]]
        reason = [next((k for k, hit in why.items() if hit[i]), "time") for i in ids]
        failed = terminated[ids]
        error = np.where(failed, np.nan, self.error[ids])
        success = ~failed & (self.error[ids] <= self.task.tolerance)
        return Episodes(ids, self.returns[ids].copy(), self.age[ids].copy(), success, error, reason)

    def _begin(self, ids: np.ndarray) -> None:
        """New e, start and command in envs ids. All rows are drawn and ids taken, so envs never move each other."""
        e = self.belief.sample(stream(self.seed, "e", self.counter), self.n, ids)
        self.world.reset(ids, e, self.task.start(stream(self.seed, "start", self.counter), self.n, ids))
        self.age[ids], self.returns[ids], self.error[ids], self.partial[ids] = 0, 0.0, 0.0, False
        self.action[ids], self.previous[ids] = 0.0, 0.0
        if self.task.command is not None:
            self.command[ids] = self.task.command(stream(self.seed, "command", self.counter), self.n)[ids]

    def _recommand(self) -> None:
        if self.task.command is None or not np.isfinite(self.task.command_every):
            return
        every = round(self.task.command_every / self.world.dt)
        due = (self.age > 0) & (self.age % every == 0)
        if due.any():
            self.command[due] = self.task.command(stream(self.seed, "recommand", self.counter), self.n)[due]

    def _contain(self, bad: np.ndarray) -> None:
        """Count and report what diverged, and let the task see numbers there, not NaN; the rows are reset below."""
        self.diverged += int(bad.sum())
        for i in np.flatnonzero(bad):
            if self.on_divergence is not None:
                self.on_divergence(int(i), "diverged")
        x = self.world.state
        for rows in (x.q, x.v):
            rows[bad] = np.nan_to_num(rows[bad], nan=0.0, posinf=0.0, neginf=0.0).clip(-1e3, 1e3)

    def _observe(self, fresh: np.ndarray) -> dict[str, np.ndarray]:
        """Observations of every group; history of `fresh` envs begins with copies of their first frame."""
        known: dict[int, np.ndarray] = {}
        for g, group in self.task.sees.items():
            frame, frames = self._frame(g, self.moment, None, known), self.frames[g]
            if group.history > 1:
                frames[:, :-1] = frames[:, 1:]
                frames[fresh] = frame[fresh, None]
            frames[:, -1] = frame
        return {g: f.reshape(self.n, -1).copy() for g, f in self.frames.items()}

    def _last(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """What each group would be told now in some rows, histories left as they are; no NaN, even where one diverged."""
        now, told = self.moment.rows(rows), {}
        known: dict[int, np.ndarray] = {}
        for g in self.task.sees:
            frame = np.nan_to_num(self._frame(g, now, rows, known), nan=0.0, posinf=0.0, neginf=0.0).astype(np.float32)
            told[g] = np.concatenate([self.frames[g][rows, 1:], frame[:, None]], 1).reshape(len(frame), -1)
        return told

    def _frame(self, g: str, now: Moment, rows: np.ndarray | None, known: dict[int, np.ndarray]) -> np.ndarray:
        """One frame of a group, of all rows or of some; the actor's as its sensors would tell it.

        `known` keeps each term's values, for groups that share it.
        """
        _, clip, scale = self.columns[g]
        chance = Chance(self.seed, self.counter, self.world.dt)
        for t in self.task.sees[g].terms:
            if id(t) not in known:
                known[id(t)] = t.compute(now)
        frame = np.concatenate([known[id(t)] for t in self.task.sees[g].terms], axis=1)
        if g == "actor":
            self._disturb(frame, now.x.e, chance, rows)
        if np.isfinite(clip).any():
            np.clip(frame, -clip, clip, out=frame)
        frame *= scale
        for term in self.told if g == "actor" else ():
            frame = term(now.x, frame, chance)
        return frame

    def _disturb(self, frame: np.ndarray, e: np.ndarray, chance: Chance, rows: np.ndarray | None) -> None:
        """Sensor noise and bias, in place; a row's noise is the same whether all rows are asked for or some."""
        sd = self.columns["actor"][0]
        for i, p, columns in self.outside["noise"]:
            sd = np.array(np.broadcast_to(sd, frame.shape))
            sd[:, columns] = sd[:, columns] * e[:, i, None] if p.op == "scale" else e[:, i, None]
        if sd.any():
            if self._noise[0] != self.counter:
                self._noise = (self.counter, chance.draw("noise").standard_normal((self.n, frame.shape[1]), np.float32))
            noise = self._noise[1]
            frame += sd * (noise if rows is None else noise[rows])
        for i, _, columns in self.outside["bias"]:
            frame[:, columns] += e[:, i, None]

    def save(self) -> dict[str, np.ndarray]:
        """All that load() needs to go on with the same bits."""
        own = {k: getattr(self, k).copy() for k in OWN}
        own |= {f"frames.{g}": f.copy() for g, f in self.frames.items()}
        own |= {"counter": np.array(self.counter), "diverged": np.array(self.diverged)}
        return own | {f"world.{k}": v for k, v in self.world.save().items()}

    def load(self, saved: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Go on from save(); returns the observations that followed it."""
        for k in OWN:
            setattr(self, k, saved[k].copy())
        for g in self.frames:
            self.frames[g] = saved[f"frames.{g}"].copy()
        self.counter, self.diverged = int(saved["counter"]), int(saved["diverged"])
        self.world.load({k.removeprefix("world."): v for k, v in saved.items() if k.startswith("world.")})
        return {g: f.reshape(self.n, -1).copy() for g, f in self.frames.items()}


def _columns(group: Group) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Per column of a frame: noise sd, clip, scale."""
    sd, clip, scale = (
        np.repeat([getattr(t, k) for t in group.terms], [t.dim for t in group.terms])
        for k in ("noise", "clip", "scale")
    )
    return sd, clip, scale


def _outside(params: Params, target: str, actor: Group) -> list[tuple[int, Param, list[int]]]:
    """(index in e, param, columns of the actor's frame) of the params that move what is told, not what is."""
    ends = np.cumsum([t.dim for t in actor.terms])
    found = []
    for i, p in enumerate(params):
        if p.target != target:
            continue
        columns = [
            c for t, end in zip(actor.terms, ends) if re.fullmatch(p.match, t.name) for c in range(end - t.dim, end)
        ]
        if not columns:
            raise unknown("observation term", p.match, [t.name for t in actor.terms], f"param {p.name}")
        found.append((i, p, columns))
    return found
