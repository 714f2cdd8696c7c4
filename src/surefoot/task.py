"""Task: what is observed, rewarded, commanded and ended.

A Task's functions take a Moment and return arrays over its rows, so the same code serves training and gate (n rows) and
the robot (one). Terms that compute by `m.xp` in place of NumPy also serve simulations on a GPU, whose arrays are torch's. Success of an episode: it ran to its time limit, and its error (largest, or mean) over the last
`window` seconds stayed within `tolerance`.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any, Literal

import numpy as np

from surefoot.arrays import namespace
from surefoot.belief import Belief
from surefoot.contract import Action
from surefoot.errors import SurefootError, unknown
from surefoot.estimate.abstract import Estimator
from surefoot.observation import Formula, ObsGroup, ObsTerm
from surefoot.params import Params
from surefoot.rng import Draw
from surefoot.robot import BASE, Layout, Robot
from surefoot.world import Start, State


@dataclass(frozen=True)
class Moment:
    """All a task may look at, at one instant, over n rows. Only critics and rewards may use what no sensor measures."""

    x: State
    action: np.ndarray  # (n, na) last action of the policy
    previous: np.ndarray  # (n, na) the one before
    command: np.ndarray  # (n, nc) what is asked for
    time: np.ndarray  # (n,) s into the episode
    reward: np.ndarray  # (n,) of the control period that led here; 0 where a world begins
    layout: Layout = Layout((), (), ())  # where the robot's parts are in x
    reference: np.ndarray = field(default_factory=lambda: np.zeros(1, np.int64))  # (n,) which motion is followed
    phase: np.ndarray = field(default_factory=lambda: np.zeros(1))  # (n,) s into that motion
    known: dict[Callable[["Moment"], np.ndarray], np.ndarray] = field(default_factory=dict, repr=False)
    estimates: Mapping[str, np.ndarray] = field(default_factory=dict)  # reading of the state estimator -> (n, k)

    @property
    def xp(self) -> Any:
        """The array namespace of this moment: NumPy, or torch's functions by NumPy's names where states are on a device.

        Constants of a term are made by `xp.asarray(constant)`, which copies to a device only once.
        """
        return namespace(self.time)

    def once(self, f: Callable[["Moment"], np.ndarray]) -> np.ndarray:
        """f(self), worked out a single time for what several rewards and observations share; not to be written to."""
        found = self.known.get(f)
        if found is None:
            found = self.known[f] = f(self)
        return found

    def rows(self, ids: np.ndarray) -> "Moment":
        """The same instant in some rows only."""
        x = self.x
        gravity = x.gravity[ids] if len(x.gravity) > 1 else x.gravity
        y, e, wrench = _Some(x.y, ids), x.e[ids], x.wrench[ids]
        part = State(x.time[ids], x.q[ids], x.v[ids], x.u[ids], x.act[ids], y, e, gravity, wrench)
        action, previous, command = self.action[ids], self.previous[ids], self.command[ids]
        reference, phase = (a[ids] if len(a) > 1 else a for a in (self.reference, self.phase))
        known = {k: v[ids] for k, v in self.estimates.items()}
        now = part, action, previous, command, self.time[ids], self.reward[ids], self.layout, reference, phase
        return Moment(*now, estimates=known)

    def reading(self, name: str) -> np.ndarray:
        """(n, k) what the robot's sensors tell by that name (observation.py lists them)."""
        if name in OWN_READINGS:
            return OWN_READINGS[name](self)
        if name in self.estimates:
            return self.estimates[name]
        sensor = self.layout.sensors.get(name, name)
        if sensor in self.x.y:
            return self.x.y[sensor]
        found = self.layout.columns(name)
        if found is None:
            base = BASE if self.layout.base is not None else ()
            raise unknown(
                "reading", name, [*OWN_READINGS, "joint_pos", "joint_vel", *base, *self.layout.sensors, *self.x.y]
            )
        which, columns = found
        return (self.x.q, self.x.v)[which][:, columns]

    def parts(self, name: str) -> tuple[str, ...]:
        return self.layout.parts(name)

    @property
    def q(self) -> np.ndarray:
        return self.x.q

    @property
    def v(self) -> np.ndarray:
        return self.x.v

    @property
    def y(self) -> Mapping[str, np.ndarray]:
        return self.x.y


class _Some(Mapping[str, np.ndarray]):
    """Some rows of each reading, taken when asked for."""

    def __init__(self, y: Mapping[str, np.ndarray], ids: np.ndarray):
        self.y, self.ids = y, ids

    def __getitem__(self, name: str) -> np.ndarray:
        return self.y[name][self.ids]

    def __contains__(self, name: object) -> bool:
        return name in self.y

    def __iter__(self) -> Iterator[str]:
        return iter(self.y)

    def __len__(self) -> int:
        return len(self.y)


OWN_READINGS: dict[str, Callable[[Moment], np.ndarray]] = {
    "action": lambda s: s.action,
    "command": lambda s: s.command,
    "time": lambda s: s.time[:, None],
    "phase": lambda s: s.phase[:, None],
    "gravity": lambda s: s.x.gravity,
}


def memory(actions: int) -> tuple[ObsTerm, ...]:
    """Further terms of an actor that remembers several episodes in one world: what it did, its reward, and when
    an episode begins."""
    return (
        ObsTerm("last_action", Formula("last_action"), actions, sensed=False),
        ObsTerm("last_reward", lambda s: s.reward[:, None], 1, sensed=False),
        ObsTerm("begun", Formula("begun"), 1, "1 where an episode begins", sensed=False),
    )


@dataclass(frozen=True)
class Reward:
    weight: float
    compute: Callable[[Moment], np.ndarray]
    about: str


@dataclass(frozen=True)
class Mirror:
    """mirrored = sign * values[order], of an actor's whole observation and of its action."""

    obs_order: np.ndarray
    obs_sign: np.ndarray
    action_order: np.ndarray
    action_sign: np.ndarray


Turned = tuple[np.ndarray, np.ndarray]
"""(order, sign) of some numbers' mirror image"""

SIDELESS = ("last_reward", "begun")  # terms of every task that are their own mirror image


@dataclass(frozen=True)
class Symmetry:
    """Left and right exchanged: the mirror image of each observation term, and of the action."""

    terms: Mapping[str, Turned]
    action: Turned

    def of(self, group: ObsGroup) -> Mirror | None:
        """Of an actor with this group; None where one of its terms has no mirror image."""
        same = (np.arange(1), np.ones(1))
        known = [same if t.name in SIDELESS else self.terms.get(t.name) for t in group.terms]
        if any(turned is None or len(turned[0]) != t.dim for t, turned in zip(group.terms, known)):
            return None
        found = [turned for turned in known if turned is not None]
        frame = np.concatenate([at.start + order for at, (order, _) in zip(group.columns, found)])
        order = np.concatenate([frame + k * group.frame for k in range(group.history)])
        sign = np.tile(np.concatenate([sign for _, sign in found]), group.history)
        return Mirror(order, sign, *self.action)


@dataclass(frozen=True)
class Episode:
    """How n episodes begin, drawn together: a state that goes with its command, or with a place in a reference motion."""

    start: Start
    command: np.ndarray | None = None
    """(n, nc); None: drawn by Task.command, zeros where there is none"""
    reference: np.ndarray | None = None
    """(n,) int: which motion to follow; None: 0"""
    phase: np.ndarray | None = None
    """(n,) s: where in it the episode begins; None: 0"""


@dataclass(frozen=True)
class Clip:
    """A reference motion, or several, that episodes follow to its end. Training begins anywhere, evaluation at its beginning."""

    about: str
    """which motion: its name, length and hash"""
    seconds: float
    parts: int
    """equal parts of the motion; training begins more often in those where episodes fail"""
    begin: Callable[[Draw, int, np.ndarray], Episode]
    """draws n rows, each in a part that is drawn with these probabilities (parts,)"""
    ends: tuple[float, ...] = ()
    """s: where each of several motions ends that follow each other in it; none: it is one motion"""


@dataclass(frozen=True)
class Task:
    """What a robot is asked to do: what is observed, rewarded, commanded and ended, and what counts as success."""

    name: str
    about: str
    robot: Robot
    params: Params
    belief: Belief
    """p(e) a policy is trained over when randomization is on"""
    substeps: int
    """engine steps in one control period"""
    seconds: float
    action: Action
    observations: Mapping[str, ObsGroup]
    """reader (actor, critic, teacher, ...) -> its observation"""
    rewards: Mapping[str, Reward]
    ended: Mapping[str, Callable[[Moment], np.ndarray]]
    episode: Callable[[Draw, int], Episode]
    """draws n rows"""
    error: Callable[[Moment], np.ndarray]
    error_unit: str
    tolerance: float
    window: float
    """seconds at the end of the episode over which the error counts"""
    measure: Literal["max", "mean"] = "max"
    command: Callable[[Draw, int], np.ndarray] | None = None
    """draws n rows: where an Episode has none, and every `command_every` seconds"""
    command_names: tuple[str, ...] = ()
    command_every: float = np.inf
    """seconds after which a new command is drawn"""
    clip: Clip | None = None
    """the reference motion that is followed; an episode ends with it, in time"""
    reward_floor: float = -np.inf
    explicit: bool = False
    """textbook Euler, q' = q + h v, in place of the engine's integrator"""
    symmetry: Symmetry | None = None
    trial: int = 1
    """episodes in one world; their history is one, so that what the first one tells serves the next"""
    terms: tuple[Any, ...] = ()
    """Terms for the world's sockets that belong to the task, such as pushes"""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """tuned settings of PPO"""
    law: Mapping[str, Any] = field(default_factory=dict)
    """observation term -> gains of a linear law to which PPO adds what it learns, where nobody gives another base"""
    ranges: Literal["fixed", "ramp", "widen", "adr", "doraemon"] = "fixed"
    """how p(e) grows from nominal while a policy learns, where nobody says"""
    kind: str = ""
    """kind of robot, such as legged or quadrotor: presets of ranges are made for one"""
    learner: str = "ppo"
    """what `--learner auto` means: PPO, unless another one was measured to be quicker on this task (docs/learners.md)"""
    learners: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """tuned settings of learners other than PPO, by learner"""
    lesson: Mapping[str, Any] = field(default_factory=dict)
    """tuned settings of a student that learns from a teacher"""
    recovery: Any = None
    """what may be asked of the robot where its policy is not trusted, a Recovery of control/reach_avoid.py; None: another command"""
    estimator: Estimator | None = None
    """state estimator that its actor may have terms of: NAME_estimate, NAME_spread"""

    def __post_init__(self) -> None:
        parts = {"reward": (self.rewards, Reward), "observations": (self.observations, ObsGroup)}
        for what, (found, kind) in parts.items():
            for name, x in found.items():
                if not isinstance(x, kind):
                    form = "Reward(weight, function, about)" if kind is Reward else "ObsGroup(terms)"
                    raise SurefootError(f"task {self.name}: {what} '{name}': expected {form}, found {type(x).__name__}")
        for name, r in self.rewards.items():
            if not isinstance(r.weight, Real) or not np.isfinite(r.weight):
                raise SurefootError(
                    f"task {self.name}: reward '{name}': weight: expected a number, found {r.weight!r:.80}"
                )
            if not callable(r.compute):
                found = type(r.compute).__name__
                raise SurefootError(f"task {self.name}: reward '{name}': expected a function, found {found}")
        for name, f in self.ended.items():
            if not callable(f):
                raise SurefootError(
                    f"task {self.name}: termination '{name}': expected a function, found {type(f).__name__}"
                )

    def control_order(self, layout: Layout) -> np.ndarray | None:
        """Where among a model's controls each action goes; None where actions are all of them, in that order."""
        names, have = self.action.names, layout.actuators
        if names == have or not have:
            return None
        for name in names:
            if name not in have:
                raise unknown("actuator", name, have, f"task {self.name}: action")
        return np.array([have.index(name) for name in names], int)


def quiet(task: Task) -> tuple[Task, np.ndarray]:
    """The task with its actor alone, without its own noise, and the nominal e that adds none."""
    actor = task.observations["actor"]
    still = lambda terms: tuple(replace(t, noise=0.0) for t in terms)  # noqa: E731
    e = actor.estimator
    actor = replace(actor, terms=still(actor.terms), estimator=None if e is None else e.with_inputs(still(e.inputs)))
    nominal = np.array([p.low if p.target == "noise" else p.nominal for p in task.params])
    return replace(task, observations={"actor": actor}, symmetry=None), nominal
