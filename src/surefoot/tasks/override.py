"""The same task with other observation terms: those that a user, a contract or a teacher asks for, or one more unknown."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from surefoot.belief import Box
from surefoot.contract import Contract
from surefoot.errors import SurefootError, unknown
from surefoot.observation import ObsGroup, ObsTerm
from surefoot.params import Param, Params
from surefoot.task import Task, memory
from surefoot.typed import MOST
from surefoot.world import Term


@dataclass(frozen=True)
class ObsOverride:
    """Observation terms of actor and critic, where they differ from the task's."""

    history: int = 0
    """frames of the actor's history, newest last; 0: as many as the task says"""
    only: tuple[str, ...] = ()
    """terms of the task for the actor, in place of its own; a term that nobody observes is not computed, so pixels cost nothing"""
    also: tuple[str, ...] = ()
    """terms only the critic knows (such as e, base_lin_vel) for the actor, too: a teacher, which no robot can run"""
    critic: Literal["task", "actor"] = "task"
    """task: the task's own terms, which may be privileged; actor: the actor's observation, with its noise"""
    trial: int = 1
    """episodes in one world, with one memory: above 1 both also observe the last action, the last reward and when an episode begins"""


def with_override(task: Task, obs: ObsOverride) -> Task:
    if not 1 <= obs.trial <= MOST:
        raise SurefootError(f"obs.trial: expected 1 to {MOST} episodes, found {obs.trial}")
    actor, kept = task.observations["actor"], memory(len(task.action.names)) if obs.trial > 1 else ()
    names = dict.fromkeys([*(obs.only or (t.name for t in actor.terms)), *obs.also, *(t.name for t in kept)])
    task = with_actor_terms(task, list(names), obs.history or actor.history, obs.trial)
    critic = task.observations["critic"]
    names = dict.fromkeys(t.name for t in critic.terms)
    more = replace(critic, terms=(*critic.terms, *(t for t in kept if t.name not in names)))
    return replace(
        task,
        observations={**task.observations, "critic": task.observations["actor"] if obs.critic == "actor" else more},
    )


def teachers(task: Task, obs: ObsOverride) -> ObsOverride:
    """The terms of a teacher of this task's actor: the actor's and e, or the task's own group for a teacher."""
    group = task.observations.get("teacher")
    if group is None or obs.only:
        return replace(obs, also=tuple(dict.fromkeys((*obs.also, "e"))))
    return replace(obs, only=tuple(t.name for t in group.terms), history=obs.history or group.history)


def with_actor_terms(
    task: Task, names: Sequence[str], history: int, trial: int = 1, prompts: Sequence[ObsTerm] = ()
) -> Task:
    """The same task whose actor observes the named terms, from any of its groups, in `history` frames.

    A term that only the critic knows makes a teacher: a policy for the simulator, which no robot can run.
    """
    known = {t.name: t for t in (*memory(len(task.action.names)), *prompts)}
    if task.estimator is not None:
        from surefoot.estimate.kinds import terms_of  # the filters, which most tasks do without

        known |= terms_of(task.estimator)
    known |= {t.name: t for group in reversed(list(task.observations.values())) for t in group.terms}
    for name in names:
        if name not in known:
            raise unknown("observation term", name, known, f"task {task.name}")
    if not 1 <= history <= MOST:
        raise SurefootError(f"history: expected 1 to {MOST} frames, found {history}")
    terms = tuple(known[name] for name in names)
    asks = any(t.formula is not None and t.formula.estimate for t in terms)
    actor = ObsGroup(terms, history, estimator=task.estimator if asks else None)
    others = {g: _without_estimates(group, actor) for g, group in task.observations.items()}
    return replace(task, observations={**others, "actor": actor}, trial=trial)


def _without_estimates(group: ObsGroup, actor: ObsGroup) -> ObsGroup:
    """A group whose estimates are those that the actor has: nobody else asks the estimator."""
    kept = tuple(
        t for t in group.terms if t.formula is None or not t.formula.estimate or t.formula.estimate in actor.estimates
    )
    return group if len(kept) == len(group.terms) else replace(group, terms=kept, estimator=None)


def for_contract(task: Task, contract: Contract) -> Task:
    """The task with the terms and frames of this contract."""
    try:
        prompts = [t for t in contract.terms if t.formula is not None and t.formula.kind == "prompt"]
        return with_actor_terms(task, [t.name for t in contract.terms], contract.history, contract.trial, prompts)
    except SurefootError as error:
        if contract.task == task.name:
            raise
        raise SurefootError(f"a policy of {contract.task}, expected one that fits {task.name}: {error}") from None


def privileged(contract: Contract) -> list[str]:
    """Privileged terms of a policy: no robot measures them."""
    return [t.name for t in contract.terms if t.formula is None and t.name != "pixels"]


def with_unknown(task: Task, param: Param, low: float, high: float, *terms: Term) -> Task:
    """The same task with one more unknown, believed to lie from low to high, and Terms that it may steer.

    It is the last of e, so Terms and files that know the others by their order go on knowing them. Left and right
    exchanged, it stays as it is.
    """
    if not isinstance(task.belief, Box):
        raise SurefootError(f"task {task.name}: expected a belief that is a box, found {type(task.belief).__name__}")
    params = Params((*task.params, param))
    belief = Box(params, np.append(task.belief.low, low), np.append(task.belief.high, high))
    longer = lambda t: replace(t, dim=len(params)) if t.name == "e" else t  # noqa: E731
    observations = {
        name: replace(group, terms=tuple(map(longer, group.terms))) for name, group in task.observations.items()
    }
    symmetry = task.symmetry
    if symmetry is not None and "e" in symmetry.terms:
        order, sign = symmetry.terms["e"]
        symmetry = replace(
            symmetry, terms={**symmetry.terms, "e": (np.append(order, len(order)), np.append(sign, 1.0))}
        )
    return replace(
        task, params=params, belief=belief, observations=observations, terms=(*task.terms, *terms), symmetry=symmetry
    )
