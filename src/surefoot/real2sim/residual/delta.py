"""delta: what to add to an action so that the simulator answers to it as the robot does (ASAP's delta action).

    x'_real = f_real(x, a) ~ f(x, a + delta(x, a))

Train a policy in f, let it drive the robot and keep the log, learn delta, freeze it inside f, train the policy on in
there, and deploy it without delta: it has then learned on f(x, a + delta(x, a)) what to ask of the robot.

Two ways to learn it. By inversion: the offset to the controls that explains each short window of the log, and an ensemble
of nets on it; seconds, and silent where the log said nothing. Or by reinforcement, as the method was published: episodes
begin at states of the log and are given its controls plus a policy's delta, which is rewarded for staying on the log's
path,

    r = sum_s exp(-3 |y_s - y_s,real| / sigma_s) - 0.1 mean(exp|a| - 1)       sigma_s: what the bare model is off by

slower by far, but it needs no more than a simulator that can be set to a state: no derivative, and windows as long as you like.
"""

from collections.abc import Callable, Mapping
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
from surefoot.real2sim.residual.force_fit import Explained, Fitting, Track, explain, judged, track
from surefoot.report import Watch
from surefoot.sim.learned import DeltaAction, Ensemble, Layout
from surefoot.sim.model.load import load_robot
from surefoot.task import Episode, Moment, Reward, Task
from surefoot.world import Start, World

if TYPE_CHECKING:
    from surefoot.learn.settings import PPOSettings

PEAK = 3.0  # how steeply the reward falls with the error
CALM = 0.1  # weight of exp|a| - 1
SETTINGS: dict[str, Any] = {"envs": 128, "steps": 400_000, "horizon": 32, "gamma": 0.9, "hidden": (64, 64), "activation": "tanh", "kl": 0.02, "learner_threads": 1}  # fmt: skip
"""of PPO: what delta does shows within a few steps, so the future counts little"""


def delta(world: World, belief: Belief, log: Log, settings: Fitting | None = None, seed: int = 0) -> World:
    """The same world, which answers to actions as the machine of the log does; by inversion."""
    return world.with_(world.n, (*world.terms, inverted(world, belief, log, settings, seed).term))


def inverted(
    world: World, belief: Belief, log: Log, settings: Fitting | None = None, seed: int = 0, watch: Watch | None = None
) -> Explained:
    """delta by inversion, and what it explains."""
    return explain(world, belief, log, "control", settings or Fitting(), seed, watch)


@dataclass(frozen=True)
class Practice:
    """Settings of learning delta by reinforcement."""

    seconds: float = 1.0
    """length of an episode"""
    reach: float = 0.5
    """largest delta, as a share of the action's scale"""
    fitting: Fitting = Fitting()
    """of which `held_out` and `horizon` count: how what was learned is judged"""


def following(task: Task, at: Track, pieces: Windows, n: int) -> LogWorld:
    """Windows of a log as episodes of a task's robot, its controls those of the log and what a policy adds."""
    if task.action.choices:
        raise SurefootError(
            f"task {task.name}: expected continuous actions, which a delta can be added to; found a choice"
        )
    return LogWorld(at.world.with_(n), pieces, at.e, lambda controls, u: controls + u)


def lesson(task: Task, at: Track, world: LogWorld, practice: Practice) -> Task:
    """The task of following a log: made of any robot's task and of windows of the log as states of its world."""
    pieces, layout, scale = world.pieces, Layout.of(at.world.model), practice.reach * task.action.scale
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
        return lambda s: np.exp(-PEAK * np.sqrt(np.square(s.once(errors)[:, first:end]).mean(1)))

    rewards = {
        g.name: Reward(1.0, near(end - g.size, end), f"{g.name} as in the log") for g, end in zip(pieces.signals, ends)
    }
    rewards["calm"] = Reward(-CALM, lambda s: np.expm1(np.abs(s.action)).mean(1), "size of delta")
    reads = ObsTerm(
        "state", lambda s: layout.read(s.q, s.v, world.controls(s.x), s.x.act), len(layout.names), sensed=False
    )
    off = ObsTerm("off", errors, int(ends[-1]), "of sigma", sensed=False, clip=100.0)
    return replace(
        task, name=f"{task.name}-delta", about=f"what to add to {task.name}'s controls to follow a log",
        params=world.params, belief=world.belief, ended={}, reward_floor=-np.inf, symmetry=None, trial=1,
        command=None, command_names=(), error_unit="sigma", tolerance=0.4, window=np.inf, measure="mean",
        seconds=practice.seconds,
        action=Action(task.action.names, np.zeros(len(scale)), scale, task.action.unit),
        observations={"actor": ObsGroup((reads,)), "critic": ObsGroup((reads, off))},
        rewards=rewards,
        episode=lambda rng, n: Episode(Start(*(np.tile(a[:1], (n, 1)) for a in (at.q, at.v, at.u)))),
        error=lambda s: np.sqrt(np.square(s.once(errors)).mean(1)),
    )  # fmt: skip


def practised(
    task: Task,
    belief: Belief,
    log: Log,
    settings: "PPOSettings",
    practice: Practice | None = None,
    seed: int = 0,
    watch: Watch | None = None,
    folder: Path | None = None,
) -> Explained:
    """delta by reinforcement, and what it explains of the part of the log that it was not shown.

    With a folder it is a run there, which resumes after a stop.
    """
    from surefoot.learn.nets import plain_arrays
    from surefoot.learn.ppo import PPO
    from surefoot.learn.runspec import RunSpec, content_hash
    from surefoot.learn.train import run_learner

    if settings.activation != "tanh" or settings.encoder != "none":
        raise SurefootError("delta: expected a plain net with tanh, as learned Terms have; found another")
    practice = practice or Practice()
    fitting = practice.fitting
    at = track(tasks.env(task, 1).world, belief, log)
    pieces = at.pieces(practice.seconds)
    pieces = pieces.some(pieces.rows + pieces.length < round((1 - fitting.held_out) * len(log)))
    world = following(task, at, pieces, settings.envs)
    lessons = lesson(task, at, world, practice)
    env = Env(lessons, world, lessons.belief, seed, stagger=True)
    learner = PPO(env, settings, seed)
    made_of = {
        "learns": "delta",
        "log": content_hash(log),
        "practice": content_hash(practice),
        "model": load_robot(task.robot).hash,
    }
    run_learner(RunSpec(task.name, belief, settings, seed, inputs=made_of), learner, folder, watch)
    arrays = plain_arrays(learner.actor, learner.see_actor)
    term = DeltaAction(Layout.of(at.world.model), frozen(arrays, lessons.action.scale))
    return judged(at, term, {"push": "control", "steps": settings.iterations * settings.batch}, fitting, seed)


def frozen(arrays: Mapping[str, np.ndarray], scale: np.ndarray) -> Ensemble:
    """A policy's net as an ensemble of one, which knows no doubt and never leaves its reach."""
    own = {k: np.asarray(v, float)[None] for k, v in arrays.items() if k[0] in "wb"}
    see = {k: np.asarray(arrays[k], float) for k in ("mean", "sd")}
    return Ensemble(own | see | {"scale": scale, "reach": scale, "doubt": np.zeros(())})
