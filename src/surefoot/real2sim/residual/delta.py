"""Delta action (ASAP): what to add to an action so that the simulator responds to it as the robot does.

    x'_real = f_real(x, a) ~ f(x, a + delta(x, a))

Train a policy in f, let it drive the robot and keep the log, learn delta, freeze it inside f, train the policy on in
there, and deploy it without delta: it has then learned on f(x, a + delta(x, a)) what to ask of the robot.

Two ways to learn it. By inversion: the offset to the controls that explains each short window of the log, and an ensemble
of nets on it; takes seconds, and is zero where the log has no data. Or by reinforcement, as published: episodes begin at
states of the log and are given its controls plus a policy's delta, which is rewarded for staying close to the log,

    r = sum_s exp(-3 |y_s - y_s,real| / sigma_s) - 0.1 mean(exp|a| - 1)       sigma_s: error of the model without delta

far slower, but it needs only a simulator that can be set to a state: no derivative, and windows of any length.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from surefoot import tasks
from surefoot.belief import Belief
from surefoot.contract import Action
from surefoot.env import Env
from surefoot.errors import SurefootError
from surefoot.log import Log
from surefoot.observation import ObsGroup, ObsTerm
from surefoot.real2sim.log_env import LogWorld
from surefoot.real2sim.replay import Windows, predict
from surefoot.real2sim.residual.ensemble import FitSettings
from surefoot.real2sim.residual.force_fit import FitResult, evaluate, fit_term, term_of
from surefoot.real2sim.residual.log_states import LogStates, log_states
from surefoot.report import Watch
from surefoot.sim.layout import model_of
from surefoot.sim.learned.features import StateFeatures
from surefoot.sim.model.load import load_robot
from surefoot.task import Episode, Moment, Reward, Task
from surefoot.world import Start, World

if TYPE_CHECKING:
    from surefoot.learn.settings import PPOSettings

STEEP = 3.0  # how fast the reward falls with the error
CALM = 0.1  # weight of exp|a| - 1
SETTINGS: dict[str, Any] = {"envs": 128, "steps": 400_000, "horizon": 32, "gamma": 0.9, "hidden": (64, 64), "activation": "tanh", "kl": 0.02, "learner_threads": 1}  # fmt: skip
"""of PPO: delta acts within a few steps, so the future counts little"""


def delta(world: World, belief: Belief, log: Log, settings: FitSettings | None = None, seed: int = 0) -> World:
    """The same world with a delta action in it, by inversion."""
    return world.with_(world.n, (*world.terms, by_inversion(world, belief, log, settings, seed).term))


def by_inversion(
    world: World,
    belief: Belief,
    log: Log,
    settings: FitSettings | None = None,
    seed: int = 0,
    watch: Watch | None = None,
) -> FitResult:
    """delta by inversion, and what it explains of the held-out rows."""
    return fit_term(world, belief, log, "action", settings or FitSettings(), seed, watch)


@dataclass(frozen=True)
class ReinforcementSettings:
    """Of learning delta by reinforcement, beside PPO's."""

    seconds: float = 1.0
    """length of an episode"""
    reach: float = 0.5
    """largest delta, as a fraction of the action's scale"""
    fit: FitSettings = FitSettings()
    """of which `held_out` and `horizon` count: how the result is tested"""


def delta_world(task: Task, at: LogStates, pieces: Windows, n: int) -> LogWorld:
    """Windows of a log as episodes of a task's robot, its controls those of the log plus a policy's delta."""
    if task.action.choices:
        raise SurefootError(
            f"task {task.name}: expected continuous actions, which a delta can be added to; found a choice"
        )
    return LogWorld(at.world.with_(n), pieces, at.e, lambda controls, u: controls + u)


def delta_task(task: Task, at: LogStates, world: LogWorld, s: ReinforcementSettings) -> Task:
    """The task whose policies are deltas: to make the simulation of a robot's task follow windows of its log."""
    pieces, features, scale = world.pieces, StateFeatures.of(model_of(at.world)), s.reach * task.action.scale
    bare = pieces.errors(predict(at.world.with_(len(pieces)), pieces, at.e[None]))
    sigma = {k: max(float(np.sqrt(np.square(x).mean())), 1e-9) for k, x in bare.items()}
    targets = {g.name: pieces.target(g) for g in pieces.signals}
    ends = np.cumsum([g.size for g in pieces.signals])

    def errors(s: Moment) -> np.ndarray:
        """(n, all) of every signal, over its sigma; 0 where an episode begins, which is where the log was."""
        w, k = world.now(s.x)
        each = [g.error(g.read(s.x), targets[g.name][w, np.maximum(k - 1, 0)]) / sigma[g.name] for g in pieces.signals]
        return np.where(k[:, None] > 0, np.concatenate(each, 1), 0.0)

    def near(first: int, end: int) -> Callable[[Moment], np.ndarray]:
        return lambda s: np.exp(-STEEP * np.sqrt(np.square(s.once(errors)[:, first:end]).mean(1)))

    rewards = {
        g.name: Reward(1.0, near(end - g.size, end), f"{g.name} as in the log") for g, end in zip(pieces.signals, ends)
    }
    rewards["calm"] = Reward(-CALM, lambda s: np.expm1(np.abs(s.action)).mean(1), "size of delta")
    reads = ObsTerm(
        "state", lambda s: features.read(s.q, s.v, world.controls(s.x), s.x.act), len(features.names), sensed=False
    )
    off = ObsTerm("off", errors, int(ends[-1]), "of sigma", sensed=False, clip=100.0)
    return replace(
        task, name=f"{task.name}-delta", about=f"what to add to {task.name}'s controls to follow a log",
        params=world.params, belief=world.belief, ended={}, reward_floor=-np.inf, symmetry=None, trial=1,
        command=None, command_names=(), error_unit="sigma", tolerance=0.4, window=np.inf, measure="mean",
        seconds=s.seconds,
        action=Action(task.action.names, np.zeros(len(scale)), scale, task.action.unit),
        observations={"actor": ObsGroup((reads,)), "critic": ObsGroup((reads, off))},
        rewards=rewards,
        episode=lambda rng, n: Episode(Start(*(np.tile(a[:1], (n, 1)) for a in (at.q, at.v, at.u)))),
        error=lambda s: np.sqrt(np.square(s.once(errors)).mean(1)),
    )  # fmt: skip


def by_reinforcement(
    task: Task,
    belief: Belief,
    log: Log,
    settings: "PPOSettings",
    s: ReinforcementSettings | None = None,
    seed: int = 0,
    watch: Watch | None = None,
    folder: Path | None = None,
) -> FitResult:
    """delta by reinforcement, and what it explains of the held-out rows.

    With a folder it is a run there, which resumes after a stop.
    """
    from surefoot.learn.nets import BoundedActor
    from surefoot.learn.on_policy.ppo import PPO
    from surefoot.learn.runspec import RunSpec, content_hash
    from surefoot.learn.train import run_learner

    s = s or ReinforcementSettings()
    at = log_states(tasks.env(task, 1).world, belief, log)
    pieces = at.windows(s.seconds)
    pieces = pieces.some(pieces.rows + pieces.length < round((1 - s.fit.held_out) * len(log)))
    world = delta_world(task, at, pieces, settings.envs)
    own = delta_task(task, at, world, s)
    learner = PPO(Env(own, world, own.belief, seed, stagger=True), settings, seed)
    made_of = {
        "learns": "delta",
        "log": content_hash(log),
        "delta": content_hash(s),
        "model": load_robot(task.robot).hash,
    }
    run_learner(RunSpec(task.name, belief, settings, seed, inputs=made_of), learner, folder, watch)
    net = BoundedActor(learner.see_actor, learner.actor, own.action.scale)
    facts = {"target": "action", "steps": settings.iterations * settings.batch}
    return evaluate(at, term_of("action", at.world, net), facts, s.fit, seed)
