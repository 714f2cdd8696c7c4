"""From a spec to the learner at its beginning: `build` has a line for every kind of settings."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from surefoot import tasks
from surefoot.errors import SurefootError
from surefoot.learn import envs
from surefoot.learn.distill import Distill
from surefoot.learn.envs import Place
from surefoot.learn.forward_backward.learner import FB
from surefoot.learn.forward_backward.motions import motions_of
from surefoot.learn.forward_backward.settings import FBSettings
from surefoot.learn.judge import Judged
from surefoot.learn.learner import Auxiliary, PolicyLearner
from surefoot.learn.off_policy.fast_sac import FastSAC
from surefoot.learn.off_policy.fast_td3 import FastTD3
from surefoot.learn.off_policy.settings import FastSACSettings, FastTD3Settings
from surefoot.learn.on_policy.fpo import FPO
from surefoot.learn.on_policy.learner import OnPolicy
from surefoot.learn.on_policy.ppo import PPO
from surefoot.learn.on_policy.sapg import SAPG
from surefoot.learn.on_policy.settings import FPOSettings, SAPGSettings
from surefoot.learn.ranges import Ranges
from surefoot.learn.residual import BasePolicy, ResidualActor
from surefoot.learn.run import Run
from surefoot.learn.run.parents import Parents, describe_run
from surefoot.learn.runspec import RunSpec
from surefoot.learn.settings import DistillSettings, PPOSettings
from surefoot.learn.sim2sim.forward import ForwardLearner
from surefoot.learn.sim2sim.imitate import Imitating
from surefoot.learn.sim2sim.prime import Primer, SameTorque
from surefoot.rng import judging
from surefoot.task import Task
from surefoot.task_check import check_groups
from surefoot.tasks.rollout import contract
from surefoot.world import World


def build(spec: RunSpec, task: Task, parents: Parents, place: Place, run: Run) -> PolicyLearner:
    """The learner of a spec, at its beginning; judged while it learns where the spec says so."""
    learner = _learner(spec, task, parents, place, run)
    if spec.judge is None:
        return learner
    n, seed = spec.judge.episodes, judging(spec.seed, "training")
    env = tasks.env(learner.env.task, n, spec.belief, seed, place.threads, terms=parents.terms)
    return Judged(learner, spec.judge, env, run)


def _learner(spec: RunSpec, task: Task, parents: Parents, place: Place, run: Run) -> PolicyLearner:
    s = spec.settings
    if place.on is not None and place.on.shards > 1 and not isinstance(s, (PPOSettings, FPOSettings)):
        raise SurefootError(
            "--shards: the update of PPO and FPO can be shared; expected --learner ppo or fpo, or no --shards"
        )
    check_groups(task, ("actor",) if isinstance(s, DistillSettings) else ("actor", "critic"))
    task = envs.learners_task(spec, task, parents)
    learner = learner_of(spec, task, parents, envs.make(spec, parents, task, place, run), run.notes)
    if place.on is not None and place.on.shards > 1 and isinstance(learner, OnPolicy):
        from surefoot.learn.cluster.start import share_update

        share_update(learner, spec, place, run)
    return learner


@dataclass(frozen=True)
class _Given:
    """What a learner is made of."""

    spec: RunSpec
    task: Task
    """as the learner observes it"""
    parents: Parents
    env: envs.Envs
    ranges: Ranges | None


def learner_of(spec: RunSpec, task: Task, parents: Parents, env: envs.Envs, notes: list[str]) -> PolicyLearner:
    """The learner of a spec with envs of the task as it sees it."""
    s = spec.settings
    assert s is not None
    actor = task.observations["actor"]
    if getattr(s, "symmetric", False) and task.symmetry is not None and task.symmetry.of(actor) is None:
        notes.append(f"{task.name}'s symmetry is not used: not every term of the actor has a mirror image")
    ranges = None if spec.ranges is None else spec.ranges.start(env.belief, env.steps, s.iterations * s.horizon)
    return _MADE[type(s)](_Given(spec, task, parents, env, ranges), s)


def _distill(g: _Given, s: Any) -> PolicyLearner:
    assert g.parents.teacher is not None
    return Distill(g.env, s, g.spec.seed, g.parents.teacher)


def _fpo(g: _Given, s: Any) -> PolicyLearner:
    learner = FPO(g.env, s, g.spec.seed, g.ranges)
    if g.parents.start is not None and g.spec.start is not None:
        learner.adopt(g.parents.start, g.spec.start.run)
    return learner


def _ppo(g: _Given, s: Any) -> PolicyLearner:
    upon, spec, parents = None, g.spec, g.parents
    if parents.base is not None and spec.residual is not None:
        upon = ResidualActor(spec.residual, BasePolicy(contract(g.task, g.env.world), parents.base))
    learner = PPO(g.env, s, spec.seed, g.ranges, upon, _beside(spec, g.task, parents, g.env.world))
    if parents.start is not None and spec.start is not None:
        learner.adopt(parents.start, describe_run(spec.start.run))
    return learner


_MADE: dict[type, Callable[[_Given, Any], PolicyLearner]] = {
    PPOSettings: _ppo,
    DistillSettings: _distill,
    FastTD3Settings: lambda g, s: FastTD3(g.env, s, g.spec.seed, g.ranges),
    FastSACSettings: lambda g, s: FastSAC(g.env, s, g.spec.seed, g.ranges),
    SAPGSettings: lambda g, s: SAPG(g.env, s, g.spec.seed, g.ranges),
    FPOSettings: _fpo,
    FBSettings: lambda g, s: FB(g.env, s, g.spec.seed, g.ranges, motions_of(g.task, s)),
}
"""by the kind of settings"""


def _beside(spec: RunSpec, task: Task, parents: Parents, world: World) -> Auxiliary | None:
    """What a run of two worlds does beside PPO."""
    if spec.forward is not None:
        return ForwardLearner(task, spec.forward, spec.seed)
    if parents.reference is None or spec.imitation is None:
        return None
    primer = None
    if parents.teacher is not None:
        own, widths = contract(task, world), parents.reference.meaning.columns
        law = SameTorque(parents.teacher, own, world.layout.joints, widths)
        primer = Primer(law, spec.imitation.prime, spec.seed)
    return Imitating(task, parents.reference, spec.imitation, world.dt, primer)
