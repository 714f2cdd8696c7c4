"""A World whose model has additional hidden joints and actuators, observed through the plain model.

q_observed = q_joint + sum of the joints behind it (the link's position);  v likewise;  other added states are hidden
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

import mujoco
import numpy as np

from surefoot.sim.engine import Engine
from surefoot.sim.layout import layout_of
from surefoot.world import Chance, Motion, OnAction, OnBody, OnForce, OnSense, Remembers, Start, State, Term, World

X = TypeVar("X", State, Motion)


@dataclass(frozen=True)
class View:
    """Addresses of the plain model's columns in the whole model's."""

    q: np.ndarray
    v: np.ndarray
    act: np.ndarray
    behind: tuple[tuple[int, int, int, int], ...]
    """q and v of a plain joint, q and v of a joint behind it in the whole model"""
    nv: int

    def slack(self, x: X) -> tuple[np.ndarray, np.ndarray]:
        """Link position minus motor position, and the same of velocities; (n, nq), (n, nv)."""
        q, v = np.zeros((*x.q.shape[:-1], len(self.q))), np.zeros((*x.v.shape[:-1], len(self.v)))
        for shown_q, shown_v, own_q, own_v in self.behind:
            q[..., shown_q] += x.q[..., own_q]
            v[..., shown_v] += x.v[..., own_v]
        return q, v

    def observed(self, x: X) -> X:
        """A state, or a motion, of the plain model."""
        q, v = self.slack(x)
        return replace(x, q=x.q[..., self.q] + q, v=x.v[..., self.v] + v, act=x.act[..., self.act])

    def to_whole(self, force: np.ndarray) -> np.ndarray:
        out = np.zeros((len(force), self.nv))
        out[:, self.v] = force
        return out


def view(plain: mujoco.MjModel, whole: mujoco.MjModel, slack: Mapping[str, list[str]]) -> View:
    q, v, act, behind = [], [], [], []
    for j in range(plain.njnt):
        old, new = plain.joint(j), whole.joint(plain.joint(j).name)
        q += [int(new.qposadr[0]) + k for k in range(len(old.qpos0))]
        v += [int(new.dofadr[0]) + k for k in range(len(old.damping))]
        for name in slack.get(old.name, ()):
            extra = whole.joint(name)
            behind.append((int(old.qposadr[0]), int(old.dofadr[0]), int(extra.qposadr[0]), int(extra.dofadr[0])))
    for i in range(plain.nactuator):
        act += [int(whole.actuator_actadr[i]) + k for k in range(int(plain.actuator_actnum[i]))]
    return View(np.array(q, int), np.array(v, int), np.array(act, int), tuple(behind), whole.nv)


@dataclass(frozen=True)
class ObservedAction(OnAction):
    term: OnAction
    view: View

    def __call__(self, x: State, u: np.ndarray, chance: Chance) -> np.ndarray:
        return self.term(self.view.observed(x), u, chance)


@dataclass(frozen=True)
class ObservedForce(OnForce):
    term: OnForce
    view: View

    def __call__(self, x: State, u: np.ndarray, chance: Chance) -> np.ndarray:
        return self.view.to_whole(self.term(self.view.observed(x), u, chance))


@dataclass(frozen=True, eq=False)
class ObservedMemory(OnForce, Remembers):
    """A force with memory, which is stored under this Term."""

    term: OnForce
    memory: Remembers  # the same Term
    view: View

    @property
    def width(self) -> int:
        return self.memory.width

    def fits(self, dt: float) -> None:
        self.memory.fits(dt)

    def __call__(self, x: State, u: np.ndarray, chance: Chance) -> np.ndarray:
        seen = replace(self.view.observed(x), memory={self.memory: x.memory[self]})
        return self.view.to_whole(self.term(seen, u, chance))


@dataclass(frozen=True)
class ObservedWrench(OnBody):
    term: OnBody
    view: View

    @property
    def bodies(self) -> tuple[str, ...]:
        return self.term.bodies

    def __call__(self, x: State, u: np.ndarray, chance: Chance) -> np.ndarray:
        return self.term(self.view.observed(x), u, chance)


def on_whole(term: Term, how: View) -> Term:
    """A Term of the plain model, applied in the whole one."""
    if isinstance(term, OnAction):
        return ObservedAction(term, how)
    if isinstance(term, OnForce):
        return ObservedMemory(term, term, how) if isinstance(term, Remembers) else ObservedForce(term, how)
    return ObservedWrench(term, how) if isinstance(term, OnBody) else term


class ObservedWorld(World):
    """An Engine of the whole model, with the state and model of the plain one."""

    def __init__(self, engine: Engine, plain: mujoco.MjModel, how: View):
        self.engine, self.model, self.view, self.layout = engine, plain, how, layout_of(plain)
        self.n, self.dt, self.params = engine.n, engine.dt, engine.params
        self.terms = (MotorSide(self), *engine.terms)
        self.state = how.observed(engine.state)

    def _observe(self) -> None:
        self.state = self.view.observed(self.engine.state)

    def reset(self, ids: np.ndarray, e: np.ndarray, start: Start) -> None:
        whole, k = self.engine.model, len(ids)
        q, v, act = np.tile(whole.qpos0, (k, 1)), np.zeros((k, whole.nv)), np.zeros((k, whole.na))
        q[:, self.view.q], v[:, self.view.v] = start.q, start.v
        if start.act is not None:
            act[:, self.view.act] = start.act
        self.engine.reset(ids, e, Start(q, v, start.u, act))
        self._observe()

    def set_params(self, ids: np.ndarray, e: np.ndarray) -> None:
        self.engine.set_params(ids, e)
        self._observe()

    def set_state(self, q: np.ndarray, v: np.ndarray) -> None:
        whole_q, whole_v = self.engine.state.q.copy(), self.engine.state.v.copy()  # hidden states stay
        slack_q, slack_v = self.view.slack(self.engine.state)
        whole_q[:, self.view.q], whole_v[:, self.view.v] = q - slack_q, v - slack_v
        self.engine.set_state(whole_q, whole_v)
        self._observe()

    def begin(self, u: np.ndarray, chance: Chance) -> None:
        self.engine.begin(u, chance)

    def advance(self) -> None:
        self.engine.advance()

    def end(self) -> np.ndarray:
        diverged = self.engine.end()
        if self.sense_after_step:
            self.engine.sense()
        self._observe()
        return diverged

    def with_(self, n: int, terms: tuple[Term, ...] | None = None) -> "ObservedWorld":
        inner = None if terms is None else tuple(on_whole(term, self.view) for term in terms)
        return ObservedWorld(self.engine.with_(n, inner), self.model, self.view)

    def rollout(self, u: np.ndarray, chance: Chance) -> Motion:
        motion = self.view.observed(self.engine.rollout(u, chance))
        self._observe()
        return motion

    def delays(self) -> np.ndarray:
        return self.engine.delays()

    def sense(self) -> None:
        self.engine.sense()
        self._observe()

    def actuator_force(self) -> np.ndarray:
        return self.engine.actuator_force()[:, self.view.v]

    def save(self) -> dict[str, np.ndarray]:
        return self.engine.save()

    def load(self, saved: Mapping[str, np.ndarray]) -> None:
        self.engine.load(saved)
        self._observe()

    def replay_record(self, i: int) -> dict[str, np.ndarray]:
        return self.engine.replay_record(i)


@dataclass(frozen=True)
class MotorSide(OnSense):
    """Encoders are on the motor side: they do not measure the gap or the spring behind it."""

    world: ObservedWorld

    def __call__(self, x: State, ids: np.ndarray, chance: Chance) -> State:
        q, v = self.world.view.slack(self.world.engine.state)
        return replace(x, q=x.q - q[ids], v=x.v - v[ids])
