"""f: x' = f(x, u, e), for n simulations at once, with five sockets for what the engine does not know.

A World advances every simulation by one control period dt under held controls u. The sockets take Terms, learned or
hand-written: on action (u -> u), on force (adds a generalised force to the engine's own), on body (pulls and twists
named bodies), on sense (what is -> what the sensors say of it), on observation (what the sensors say -> what the policy
is given). Shapes: n simulations, nq positions, nv velocities, nu controls, ne unknowns.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from surefoot.errors import SurefootError, unknown
from surefoot.params import Params
from surefoot.rng import Rows, stream
from surefoot.robot import Layout


class UnknownSensor(SurefootError, KeyError):
    """A sensor that the model does not have; a KeyError, too, as mappings promise."""

    def __str__(self) -> str:
        return str(self.args[0])


class Sensors(dict[str, np.ndarray]):
    """Sensor name -> (n, dim). A name that the model does not have is answered with those it has."""

    def __missing__(self, name: str) -> np.ndarray:
        raise unknown("sensor", str(name), self, error=UnknownSensor)


@dataclass(frozen=True)
class State:
    """x, and what is measured of it, for n simulations: live views, good until the next call. SI units, world frame."""

    time: np.ndarray  # (n,) s since the episode began
    q: np.ndarray  # (n, nq) positions
    v: np.ndarray  # (n, nv) velocities; a free joint's angular part is in the body frame
    u: np.ndarray  # (n, nu) controls last given
    act: np.ndarray  # (n, na) actuators' own states, such as a rotor's thrust
    y: Mapping[str, np.ndarray]  # sensor name -> (n, dim)
    e: np.ndarray  # (n, ne) the unknowns, which no actor may see
    gravity: np.ndarray  # (n, 3) or (1, 3) m/s^2, tilted where the ground slopes
    wrench: np.ndarray  # (n, bodies, 6) force N and torque N m that Terms put on each body during the last period
    memory: Mapping["Remembers", np.ndarray] = field(default_factory=dict)  # Term -> (n, width), its own to write to


@dataclass(frozen=True)
class Chance:
    """Where a Term gets its randomness: streams keyed by (seed, purpose, step), at control periods of dt seconds."""

    seed: int
    step: int
    dt: float
    first: int = 0
    """the env that row 0 of the world is: several worlds may share the envs of one seed"""

    def draw(self, purpose: str, every: int = 1) -> np.random.Generator:
        """A stream for all rows of the world, which stays the same for `every` control periods."""
        return stream(self.seed, f"{purpose} from {self.first}" if self.first else purpose, self.step // every)

    def rows(self, purpose: str, ids: np.ndarray, step: int | None = None) -> Rows:
        """Draws for rows `ids` of the world, the same whichever world the envs are in; of this step, or of another."""
        return Rows(self.seed, purpose, self.step if step is None else step, self.first + ids)


class OnAction(ABC):
    """A Term between the policy's controls and the engine: returns the controls that reach it, (n, nu)."""

    @abstractmethod
    def __call__(self, x: State, u: np.ndarray, chance: Chance) -> np.ndarray: ...


class OnForce(ABC):
    """A Term beside the engine's forces: returns a generalised force, (n, nv), held for one control period."""

    @abstractmethod
    def __call__(self, x: State, u: np.ndarray, chance: Chance) -> np.ndarray: ...


class OnBody(ABC):
    """A Term that takes hold of bodies: returns a wrench on each of them, (n, bodies, 6), held for one control period.

    A wrench is (force, torque) in N and N m, in the world frame; the force acts at the body's centre of mass. In the
    joints it is the generalised force J^T F, with the J of every engine step. To hold a body by another point, give
    that point a light body of its own.
    """

    @property
    @abstractmethod
    def bodies(self) -> tuple[str, ...]:
        """Names of the bodies, in the order of the wrenches."""

    @abstractmethod
    def __call__(self, x: State, u: np.ndarray, chance: Chance) -> np.ndarray: ...


class OnSense(ABC):
    """A Term between the world and the robot's sensors: returns the state as they tell it, to actor and log alone."""

    @abstractmethod
    def __call__(self, x: State, ids: np.ndarray, chance: Chance) -> State:
        """x holds rows `ids` of the n simulations. It may be asked twice in one step, and answers the same."""


class OnObservation(ABC):
    """A Term between the sensors and the policy: returns the observation that the policy gets, (n, dim)."""

    @abstractmethod
    def __call__(self, x: State, obs: np.ndarray, chance: Chance) -> np.ndarray: ...


class Remembers(ABC):
    """A Term with a past: what it writes into x.memory[self] is there in the next period, and 0 where an episode begins.

    It is part of the world's state, so the Term itself stays the same for every world it is put into.
    """

    @property
    @abstractmethod
    def width(self) -> int:
        """Numbers it remembers of each simulation."""

    @abstractmethod
    def fits(self, dt: float) -> None:
        """Raise where a world's control period is not the one this Term was made for."""


Term = OnAction | OnForce | OnBody | OnSense | OnObservation


@dataclass(frozen=True)
class Start:
    """Where episodes begin: one row for each simulation that begins."""

    q: np.ndarray  # (n, nq)
    v: np.ndarray  # (n, nv)
    u: np.ndarray  # (n, nu): also what a delayed actuator remembers, so that no motor gets 0 from an empty buffer
    act: np.ndarray | None = None  # (n, na) actuator states; None: the engine's zeros


@dataclass(frozen=True)
class Motion:
    """What n simulations did in T control periods: states at the end of each. Axes: simulation, time, then the state's."""

    q: np.ndarray  # (n, T, nq)
    v: np.ndarray  # (n, T, nv)
    act: np.ndarray  # (n, T, na)
    y: Mapping[str, np.ndarray]  # sensor name -> (n, T, dim), read at those states
    diverged: np.ndarray  # (n,) bool: whose later states mean nothing

    def rows(self, at: slice | np.ndarray) -> "Motion":
        """Of some simulations."""
        y = {name: a[at] for name, a in self.y.items()}
        return Motion(self.q[at], self.v[at], self.act[at], y, self.diverged[at])


class World(ABC):
    """The step contract. Whoever implements it promises: same calls, same bits, at any thread count."""

    n: int
    dt: float
    params: Params
    terms: tuple[Term, ...]
    state: State
    layout: Layout
    """where the robot's named parts are in the state"""
    substeps: int = 1
    """the engine's own steps in a control period"""
    sense_after_step: bool = False
    """whether a step ends with sense(); else sensors tell what they read before its last integration, which costs less"""

    @property
    def nq(self) -> int:
        return self.state.q.shape[1]

    @property
    def nv(self) -> int:
        return self.state.v.shape[1]

    @property
    def nu(self) -> int:
        return self.state.u.shape[1]

    @property
    def na(self) -> int:
        return self.state.act.shape[1]

    @abstractmethod
    def reset(self, ids: np.ndarray, e: np.ndarray, start: Start) -> None:
        """Begin anew in simulations ids, with a row of unknowns e and of start for each of them."""

    @abstractmethod
    def set_params(self, ids: np.ndarray, e: np.ndarray) -> None:
        """Go on from the same state under other unknowns in simulations ids: a load is dropped, a motor weakens."""

    @abstractmethod
    def set_state(self, q: np.ndarray, v: np.ndarray) -> None:
        """Go on from other positions (n, nq) and velocities (n, nv); actuators keep what they have reached and remember."""

    def step(self, u: np.ndarray, chance: Chance) -> np.ndarray:
        """Advance by dt. Returns (n,) bool: the simulations that diverged, whose state means nothing until reset."""
        self.begin(u, chance)
        self.advance()
        return self.end()

    def rest(self, ids: np.ndarray) -> None:  # noqa: B027
        """From now on nobody looks at simulations ids: a world that can leave them as they are saves their time."""

    @abstractmethod
    def begin(self, u: np.ndarray, chance: Chance) -> None:
        """The first part of a step: what Terms and controls do to the engine's inputs."""

    @abstractmethod
    def advance(self) -> None:
        """The second: the engine alone. It may run in another thread while this one works on another world."""

    @abstractmethod
    def end(self) -> np.ndarray:
        """The third: who diverged, (n,) bool."""

    @abstractmethod
    def with_(self, n: int, terms: tuple[Term, ...] | None = None) -> "World":
        """The same law for n simulations, or with other Terms."""

    @abstractmethod
    def rollout(self, u: np.ndarray, chance: Chance) -> Motion:
        """Advance by T periods under given controls (n, T, nu), as T calls of step would."""

    @abstractmethod
    def delays(self) -> np.ndarray:
        """(n, nu) s from a control to the actuator that obeys it."""

    @abstractmethod
    def sense(self) -> None:
        """Read the sensors of places and speeds at the state as it is; those of forces keep what they felt on the way."""

    @abstractmethod
    def actuator_force(self) -> np.ndarray:
        """(n, nv) generalised force of the actuators at this state, under the controls last given."""

    @abstractmethod
    def save(self) -> dict[str, np.ndarray]:
        """All that load() needs to go on with the same bits."""

    @abstractmethod
    def load(self, saved: Mapping[str, np.ndarray]) -> None:
        """Go on from save(). Sensor readings, which follow from the state, are there again after the next step."""

    @abstractmethod
    def replay_record(self, i: int) -> dict[str, np.ndarray]:
        """What led simulation i to where it is, enough to replay its last periods; asked for when it diverges."""
