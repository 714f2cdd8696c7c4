"""Actuator nets without torque labels, by reinforcement learning: the policy is the net, its action the force it adds.

    reward = exp(-|q - q_log|^2 / (J sd_q^2)) + exp(-|q' - q'_log|^2 / (J sd_v^2)) - c |r / limit|^2 / J

An episode is a window of the log: it begins at the measured state, the recorded controls are given, and the action is
r, within its limits. sd: root mean square error of the world without a net. The actor observes what an actuator net reads, of
all joints together, and becomes that net.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from surefoot.contract import Action
from surefoot.env import Env
from surefoot.errors import SurefootError
from surefoot.learn.learner import Learner, Saved
from surefoot.learn.nets import BoundedActor
from surefoot.learn.on_policy.ppo import PPO
from surefoot.learn.settings import PPOSettings
from surefoot.observation import ObsGroup, ObsTerm
from surefoot.real2sim.actuator.dataset import Dataset, Settings
from surefoot.real2sim.actuator.net import ActuatorModule, OfActor
from surefoot.real2sim.actuator.unlabelled import ROUNDS, Best, TrackingCost, budget, tracking_cost
from surefoot.real2sim.log_env import AppliedForce, LogWorld
from surefoot.robot import Robot
from surefoot.sim.learned.actuator_net import FEATURES
from surefoot.task import Episode, Moment, Reward, Task
from surefoot.world import Start

SMALL = 0.02  # c
ENVS, HORIZON = 64, 25


def force_world(cost: TrackingCost, n: int) -> LogWorld:
    """The training windows for n simulations; a policy's action is the force on each driven joint, (n, J)."""
    data, force, joints = cost.data, np.zeros((n, cost.data.world.nv)), cost.data.joints

    def give(controls: np.ndarray, r: np.ndarray) -> np.ndarray:
        force[:, joints.v_at] = r
        return controls

    inner = data.world.with_(n, (*data.world.terms, AppliedForce(force)))
    return LogWorld(inner, cost.pieces, data.e, give)


def _near(missed: Callable[[Moment], np.ndarray], s: Moment) -> np.ndarray:
    return np.asarray(np.exp(-np.square(missed(s)).mean(1)))


def force_task(cost: TrackingCost, world: LogWorld) -> Task:
    """The task whose policies are actuator nets."""
    data, pieces, joints, actuators = cost.data, cost.pieces, cost.data.joints, cost.data.actuators
    targets = {s.name: pieces.target(s) for s in pieces.signals}

    def missed(s: Moment, name: str) -> np.ndarray:
        """(n, size) error of a signal, in units of sd."""
        window, k = world.now(s.x)
        signal = next(x for x in pieces.signals if x.name == name)
        return signal.error(signal.read(s.x), targets[name][window, np.maximum(k, 1) - 1]) / cost.sd[name]

    read = lambda s: joints.features(s.q, s.v, world.controls(s.x), actuators.slow)  # noqa: E731
    seen = ObsTerm("drives", read, FEATURES * len(actuators.drives), sensed=False)
    errors = {name: partial(missed, name=name) for name in targets}
    near = {name: Reward(1.0, partial(_near, errors[name]), f"{name} as logged") for name in targets}
    off = tuple(ObsTerm(f"missed {name}", f, len(cost.sd[name]), clip=10.0) for name, f in errors.items())
    time = ObsTerm("time", lambda s: s.time[:, None], 1, "s", scale=10.0)
    m, limit = world, np.array(actuators.limit)
    return Task(
        name="follow", about="add the forces that make the world move as a log did", robot=Robot(""), params=world.params,
        belief=world.belief, substeps=1, seconds=pieces.length * world.dt,
        action=Action(tuple(d.joint for d in actuators.drives), np.zeros(len(limit)), limit, "N m"),
        observations={"actor": ObsGroup((seen,), data.shape.history), "critic": ObsGroup((seen, *off, time))},
        rewards={**near, "small": Reward(-SMALL, lambda s: np.square(s.action).mean(1), "little force")},
        ended={}, episode=lambda rng, n: Episode(Start(np.zeros((n, m.nq)), np.zeros((n, m.nv)), np.zeros((n, m.nu)))),
        error=lambda s: np.sqrt(np.square(missed(s, "joint_pos")).mean(1)), error_unit="sd", tolerance=0.5,
        window=pieces.length * world.dt, measure="mean",
    )  # fmt: skip


class Matching(Learner):
    """PPO for as many control periods as the other ways simulate; the actor with the lowest validation error is kept."""

    def __init__(self, data: Dataset, s: Settings):
        if s.net != "mlp":
            raise SurefootError("actuator: by ppo: expected an mlp; a gru learns with labels, by gradient or by es")
        cost, steps = tracking_cost(data, s), (s.rounds or ROUNDS) * budget(data, s)
        settings = PPOSettings(
            envs=ENVS, horizon=HORIZON, steps=steps, epochs=4, minibatches=4, gamma=0.9, lr=1e-3, kl=0.01, entropy=0.0,
            hidden=(s.hidden, s.hidden), activation="tanh", spread=(0.01, 0.1, 0.3), learner_threads=1,
        )  # fmt: skip
        world = force_world(cost, ENVS)
        self.env = Env(force_task(cost, world), world, world.belief, s.seed, stagger=False)
        self.ppo = PPO(self.env, settings, s.seed)
        self.best = Best(data, as_module(self.ppo, data))
        self.seed, self.iterations, self.batch = s.seed, settings.iterations, settings.batch
        self.every = max(1, settings.iterations // 20)

    def iterate(self) -> dict[str, Any]:
        row: dict[str, Any] = self.ppo.iterate()
        self.iteration = self.ppo.iteration
        if self.iteration % self.every == 0 or self.iteration == self.iterations:
            row["left"] = self.best.validate()
        return row

    def save(self) -> Saved:
        arrays, numbers = self.ppo.save()
        return arrays | self.best.save(), numbers

    def load(self, arrays: Mapping[str, np.ndarray], numbers: Mapping[str, Any]) -> None:
        self.ppo.load(arrays, numbers)
        self.best.load(arrays)
        self.iteration = self.ppo.iteration


def as_module(ppo: PPO, data: Dataset) -> ActuatorModule:
    """The actor that PPO trains, in its place: a history of frames, oldest first, to r."""
    limit = data.actuators.limit
    return ActuatorModule(OfActor(BoundedActor(ppo.see_actor, ppo.actor, np.array(limit))), data.shape, limit)
