"""What an ingredient of the reality gap may change before the world is built.

    spec (joints, actuators, delays) -> compile -> tunes (model parameters) -> terms (what the engine does not have)

An ingredient has a strength s: 0 is none, 1 is severe. Bodies, geoms, sites and sensors keep their ids; joints and
actuators may be added, so they are addressed by name.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import mujoco
import numpy as np
from numpy.typing import ArrayLike

from surefoot.errors import SurefootError
from surefoot.robot import Drive
from surefoot.sim.layout import FREE, HINGE, SCALAR, drives_of
from surefoot.world import Term

SLOWEST, FASTEST = 0.005, 2e-4  # s: longest and shortest engine steps of a world with springs and bristle friction
WHEEL = 0.05  # of a joint's inertia: the rotor or gear that the model leaves out


@dataclass(frozen=True)
class Plain:
    """The unchanged model, and the properties of it that ingredients need."""

    model: mujoco.MjModel

    @cached_property
    def data(self) -> mujoco.MjData:
        data = mujoco.MjData(self.model)
        mujoco.mj_forward(self.model, data)
        return data

    @cached_property
    def drives(self) -> tuple[Drive, ...]:
        return drives_of(self.model)

    @cached_property
    def joints(self) -> list[int]:
        """Hinges and slides."""
        return [j for j in range(self.model.njnt) if self.model.jnt_type[j] in SCALAR]

    @cached_property
    def free(self) -> int | None:
        """The first free joint."""
        found = np.flatnonzero(self.model.jnt_type == FREE)
        return int(found[0]) if len(found) else None

    def geom(self, g: int) -> str:
        """A geom's name, or its number and body."""
        m = self.model
        return str(m.geom(g).name) or f"geom {g} of {m.body(m.geom_bodyid[g]).name}"

    def load(self, j: int) -> float:
        """The largest force of a joint, N or N m: its motor's limit, or the weight it carries times its lever arm."""
        m, d = self.model, self.data
        limits = [x.limit * abs(x.gear) for x in self.drives if x.joint == m.joint(j).name and x.limit is not None]
        if limits:
            return sum(limits)
        body = int(m.jnt_bodyid[j])
        weight = float(m.body_subtreemass[body] * (np.linalg.norm(m.opt.gravity) or 9.81))
        lever = float(np.linalg.norm(d.subtree_com[body] - d.xanchor[j])) if m.jnt_type[j] == HINGE else 1.0
        return weight * max(lever, 0.01)

    @cached_property
    def moving(self) -> np.ndarray:
        """Bodies with mass that can move."""
        m = self.model
        return np.array([b for b in range(1, m.nbody) if m.body_mass[b] > 0 and m.body_weldid[b] != 0], int)

    @cached_property
    def touching(self) -> np.ndarray:
        """The ground, and the geoms that may touch it; empty if none can."""
        m = self.model
        if m.opt.disableflags & int(mujoco.mjtDisableBit.mjDSBL_CONTACT):
            return np.array([], int)
        moves = m.body_weldid[m.geom_bodyid] != 0
        ground = np.flatnonzero(~moves)
        meets = lambda a, b: m.geom_contype[a] & m.geom_conaffinity[b] or m.geom_contype[b] & m.geom_conaffinity[a]  # noqa: E731
        pairs = [(g, b) for g in ground for b in np.flatnonzero(moves) if meets(g, b)]
        pairs += [(a, b) for a, b in zip(m.pair_geom1, m.pair_geom2) if moves[a] != moves[b]]
        return np.unique(np.array(pairs, int))

    @cached_property
    def ground_pairs(self) -> dict[int, int]:
        """Contact pairs with the ground -> the geom of it that moves."""
        m = self.model
        moves = m.body_weldid[m.geom_bodyid] != 0
        rows = enumerate(zip(m.pair_geom1.tolist(), m.pair_geom2.tolist()))
        return {i: (a if moves[a] else b) for i, (a, b) in rows if moves[a] != moves[b]}

    @cached_property
    def push_point(self) -> tuple[str, np.ndarray, float]:
        """Where it is pushed: a body, the world axes of the push (k, 3), and the moved mass.

        A free robot at its base, horizontally; one on a rail along it; one with a fixed base at its last body, in any direction.
        """
        m = self.model
        if self.free is not None:
            body = int(m.jnt_bodyid[self.free])
            return m.body(body).name, np.eye(3)[:2], float(m.body_subtreemass[body])
        first = int(self.joints[0])
        body = int(m.jnt_bodyid[first])
        if m.jnt_type[first] != HINGE:
            return m.body(body).name, self.data.xaxis[first][None].copy(), float(m.body_subtreemass[body])
        return m.body(int(self.moving[-1])).name, np.eye(3), float(m.body_subtreemass[body])

    @cached_property
    def rotors(self) -> list[int]:
        """Actuators that push a free body along the axis of a site."""
        m = self.model
        return [
            i
            for i in range(m.nactuator)
            if m.actuator_trntype[i] == mujoco.mjtTrn.mjTRN_SITE
            and m.actuator_gear[i, 2] != 0
            and self.free is not None
            and m.site_bodyid[m.actuator_trnid[i, 0]] == m.jnt_bodyid[self.free]
        ]

    def sensors(self, *kinds: mujoco.mjtSensor) -> list[int]:
        return [i for i in range(self.model.nsensor) if self.model.sensor_type[i] in [int(k) for k in kinds]]


@dataclass
class Motor:
    """Parameters of a DC motor beyond an ideal one's."""

    free_speed: float = 1e4
    """no-load speed, rad/s or m/s, at which the torque is zero"""
    heat: float = 0.0
    """relative growth of the resistance after a long time at the limit"""


Value = float | list[float]


@dataclass(frozen=True)
class Number:
    """A parameter that an ingredient set, in its unit, and the model's value where it has one."""

    what: str
    value: Value
    unit: str = ""
    model: Value | None = None

    def __str__(self) -> str:
        own = "" if self.model is None else f" (model {_words(self.model)})"
        return f"{self.what} {_words(self.value)}{' ' + self.unit if self.unit else ''}{own}"


def _words(value: Value) -> str:
    return f"[{' '.join(f'{v:.4g}' for v in value)}]" if isinstance(value, list) else f"{value:.4g}"


def _value(x: ArrayLike) -> Value:
    return [float(v) for v in np.asarray(x)] if np.ndim(x) else float(np.asarray(x))


@dataclass
class Recipe:
    """Ingredients edit it one after the other; build.py then builds the world."""

    spec: mujoco.MjSpec
    plain: Plain
    rng: np.random.Generator
    tunes: list[Callable[[mujoco.MjModel], None]] = field(default_factory=list)
    terms: list[Term] = field(default_factory=list)
    slack: dict[str, list[str]] = field(default_factory=dict)
    """joint -> joints added behind it about the same axis: the difference between motor side and link side"""
    motors: dict[str, Motor] = field(default_factory=dict)
    springs: dict[str, float] = field(default_factory=dict)
    """joint -> stiffness of springs and bristles there, which need a short step"""
    added: bool = False
    """whether joints, or actuators with states, were added to the plain model"""
    command_delay: float = 0.0
    """delay from command to motor, s"""
    sensor_delay: float = 0.0
    """delay from the world to the model's sensors, s"""
    numbers: dict[str, list[Number]] = field(default_factory=dict)
    """ingredient -> the parameters that it sets; the last key is the current ingredient"""

    def record(self, what: str, value: ArrayLike, unit: str = "", model: ArrayLike | None = None) -> None:
        """Record a parameter of the current ingredient, for evaluations that may know the truth."""
        own = None if model is None else _value(model)
        list(self.numbers.values())[-1].append(Number(what, _value(value), unit, own))

    def motor(self, name: str) -> Motor:
        return self.motors.setdefault(name, Motor())

    def factors(self, n: int, most: float) -> np.ndarray:
        """n factors above or below 1, between most^0.5 and most in size: a value that is surely wrong."""
        way = np.where(self.rng.random(n) < 0.5, -1.0, 1.0)
        return most ** (way * self.rng.uniform(0.5, 1.0, n))

    def angle(self, radians: float) -> float:
        """In the unit of the spec's angles."""
        return math.degrees(radians) if self.spec.compiler.degree else radians

    def add_rotor(self, joint: str) -> None:
        """Give the last joint of a chain armature (rotor or gear), without which the part before the next joint is massless."""
        m = self.plain.model
        last = self.spec.joint(self.slack[joint][-1] if joint in self.slack else joint)
        if not last.armature:
            last.armature = WHEEL * float(m.dof_M0[m.joint(joint).dofadr[0]])

    def add_joint_behind(self, joint: str, kind: str, **how: object) -> None:
        """Add a joint behind this one about the same axis."""
        first, name = self.spec.joint(joint), f"{kind}/{joint}"
        self.add_rotor(joint)
        first.parent.add_joint(name=name, type=first.type, axis=first.axis, pos=first.pos, **how)
        self.slack.setdefault(joint, []).append(name)
        self.added = True


Add = Callable[[Recipe, float], None]


@dataclass(frozen=True)
class Ingredient:
    """One way in which a robot differs from its model."""

    name: str
    about: str
    needs: str
    """what a model needs, in words"""
    fits: Callable[[Plain], bool]
    add: Add
    """add(making, s) with 0 < s <= 1"""

    def check(self, plain: Plain, where: str) -> None:
        if not self.fits(plain):
            raise SurefootError(f"{where}: ingredient {self.name}: expected a model with {self.needs}, found none")
