"""Actuator nets without torque labels, by reinforcement learning: the policy is the net, its action the force it adds.

    reward = exp(-k_q |q - q_log|^2 / J) + exp(-k_v |q' - q'_log|^2 / J) - c |r / limit|^2 / J,    k = 1 / sd^2

An episode is a window of the log: it begins at the measured state, the recorded controls are given, and the action is
r, within its limits. sd: how far the world strays without a net. The actor is told what an actuator net is told, of all
joints together; its weights then become that net's.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from surefoot.contract import Action
from surefoot.env import Env
from surefoot.errors import SurefootError
from surefoot.learn.learner import Learner, Saved
from surefoot.learn.nets import plain_arrays
from surefoot.learn.ppo import PPO
from surefoot.learn.settings import PPOSettings
from surefoot.observation import ObsGroup, ObsTerm
from surefoot.real2sim.actuator import Lesson, Settings
from surefoot.real2sim.actuator.net import TOLD, ActuatorNet
from surefoot.real2sim.actuator.unlabelled import ROUNDS, Best, Course, Held, budget, course
from surefoot.real2sim.log_env import LogWorld
from surefoot.robot import Robot
from surefoot.task import Episode, Moment, Reward, Task
from surefoot.world import Start

SMALL = 0.02  # c
ENVS, HORIZON = 64, 25


def following(way: Course, n: int) -> LogWorld:
    """The lesson's windows for n simulations; what a policy adds is the force of each driven joint, (n, J)."""
    lesson, held = way.lesson, np.zeros((n, way.lesson.world.model.nv))

    def give(controls: np.ndarray, force: np.ndarray) -> np.ndarray:
        held[:, lesson.blank.v_at] = force
        return controls

    inner = lesson.world.with_(n, (*lesson.world.terms, Held(held)))
    return LogWorld(inner, way.pieces, lesson.e, give)


def _near(missed: Callable[[Moment], np.ndarray], s: Moment) -> np.ndarray:
    return np.asarray(np.exp(-np.square(missed(s)).mean(1)))


def task_of(way: Course, world: LogWorld) -> Task:
    """The task whose policies are actuator nets."""
    net, pieces = way.lesson.blank, way.pieces
    card = net.card
    targets = {s.name: pieces.target(s) for s in pieces.signals}

    def missed(s: Moment, name: str) -> np.ndarray:
        """(n, size) error of a signal, in units of sd."""
        window, k = world.now(s.x)
        signal = next(x for x in pieces.signals if x.name == name)
        return signal.error(signal.read(s.x), targets[name][window, np.maximum(k, 1) - 1]) / way.sd[name]

    width = TOLD * len(card.drives)
    seen = ObsTerm(
        "drives", lambda s: net.features(s.q, s.v, world.controls(s.x)).reshape(len(s.q), -1), width, sensed=False
    )
    missing = {name: partial(missed, name=name) for name in targets}
    near = {name: Reward(1.0, partial(_near, missing[name]), f"{name} as logged") for name in targets}
    strayed = tuple(ObsTerm(f"missed {name}", f, len(way.sd[name]), clip=10.0) for name, f in missing.items())
    m = world.model
    return Task(
        name="follow", about="add the forces that make the world move as a log did", robot=Robot(""), params=world.params,
        belief=world.belief, substeps=1, seconds=pieces.length * world.dt,
        action=Action(tuple(d.joint for d in card.drives), np.zeros(len(card.drives)), np.array(card.limit), "N m"),
        observations={"actor": ObsGroup((seen,), card.history), "critic": ObsGroup((seen, *strayed, ObsTerm("time", lambda s: s.time[:, None], 1, "s", scale=10.0)))},
        rewards={**near, "small": Reward(-SMALL, lambda s: np.square(s.action).mean(1), "little force")},
        ended={}, episode=lambda rng, n: Episode(Start(np.zeros((n, m.nq)), np.zeros((n, m.nv)), np.zeros((n, m.nu)))),
        error=lambda s: np.sqrt(np.square(missed(s, "joint_pos")).mean(1)), error_unit="sd", tolerance=0.5,
        window=pieces.length * world.dt, measure="mean",
    )  # fmt: skip


class Matching(Learner):
    """PPO for as many periods as the other ways would simulate; and the net that does best on the blocks that stop."""

    def __init__(self, lesson: Lesson, s: Settings):
        if s.net != "mlp":
            raise SurefootError("actuator: by ppo: expected an mlp; a gru learns with labels, by gradient or by es")
        way, steps = course(lesson, s), (s.rounds or ROUNDS) * budget(lesson, s)
        settings = PPOSettings(
            envs=ENVS, horizon=HORIZON, steps=steps, epochs=4, minibatches=4, gamma=0.9, lr=1e-3, kl=0.01, entropy=0.0,
            hidden=(s.hidden, s.hidden), activation="tanh", spread=(0.01, 0.1, 0.3), learner_threads=1,
        )  # fmt: skip
        world = following(way, ENVS)
        self.env = Env(task_of(way, world), world, world.belief, s.seed, stagger=False)
        self.ppo, self.best = PPO(self.env, settings, s.seed), Best(lesson, lesson.blank)
        self.seed, self.iterations, self.batch = s.seed, settings.iterations, settings.batch
        self.every = max(1, settings.iterations // 20)

    def iterate(self) -> dict[str, Any]:
        row: dict[str, Any] = self.ppo.iterate()
        self.iteration = self.ppo.iteration
        if self.iteration % self.every == 0 or self.iteration == self.iterations:
            net = as_net(self.best.lesson.blank, plain_arrays(self.ppo.actor, self.ppo.see_actor))
            row["left"] = self.best.look(net)
        return row

    def save(self) -> Saved:
        arrays, numbers = self.ppo.save()
        return arrays | self.best.save(), numbers

    def load(self, arrays: Mapping[str, np.ndarray], numbers: Mapping[str, Any]) -> None:
        self.ppo.load(arrays, numbers)
        self.best.load(arrays)
        self.iteration = self.ppo.iteration


def as_net(blank: ActuatorNet, arrays: Mapping[str, np.ndarray]) -> ActuatorNet:
    """An actor of the task as a net: its frames newest first, its normaliser as scales, its action times the limit."""
    c, a = blank.card, arrays
    order = np.arange(len(a["mean"])).reshape(c.history, -1)[::-1].ravel()
    found = {"shift": a["mean"][order][None, None], "scale": a["sd"][order][None, None]}
    found["gain"] = np.array(c.limit, np.float32)[None, None]
    found["offset"] = np.zeros_like(found["gain"])
    last = sum(k.startswith("w") for k in a) - 1
    for k in range(last + 1):
        w, name = a[f"w{k}"].T, str(k) if k < last else "_out"
        found |= {f"w{name}": (w[order] if k == 0 else w)[None], f"b{name}": a[f"b{k}"][None, None]}
    return replace(blank, arrays={k: np.ascontiguousarray(v, np.float32) for k, v in found.items()})
