"""What follows from a cause: is it inside what the policy was trained over, would the policy bear it, what is to be done.

inside    the fitted e lies in the belief's support (gate/coverage.py's question, for one e)
bears     success in the corrected world, with an exact 95 % interval, against success in the nominal one
          nominal low: the task or its reward is at fault, or the policy; corrected low: train over what was found
"""

from dataclasses import dataclass, replace
from typing import Any

from surefoot.belief import Belief, point
from surefoot.doctor.branches.physics import doctored
from surefoot.doctor.evidence.likelihood import Weighed
from surefoot.doctor.hypotheses.suspects import DELAY, suspects
from surefoot.env import Env
from surefoot.gate.statistics import Estimate, rate
from surefoot.policy import Policy
from surefoot.sim.engine import compile_for
from surefoot.sim.gap.build import world_of
from surefoot.sim.model.load import load_robot
from surefoot.task import Task
from surefoot.tasks import env, nominal
from surefoot.tasks.rollout import evaluate
from surefoot.world import World

EPISODES = 24
GOOD = 0.8  # success a policy is expected to have at home
WORSE = 0.2  # of success: a policy that loses less where the cause is true bears it
FINGERPRINT = 1e-3


@dataclass(frozen=True)
class Course:
    home: Estimate
    """success in the nominal world"""
    there: Estimate | None
    """success in the world where the cause is true; None where the cause is not in the world"""
    param: str
    """the task's own unknown that the cause is about; empty where it has none"""
    value: float
    """of that unknown"""
    inside: bool | None
    """whether the belief holds that value; None where the task has no such unknown"""

    @property
    def unfit(self) -> bool:
        """The policy fails where the model is right."""
        return (self.home.high or 0.0) < GOOD

    @property
    def bears(self) -> bool:
        """It does where the cause is true nearly as well as at home."""
        if self.there is None or self.home.value < GOOD:
            return False
        return (self.there.low or 0.0) > self.home.value - WORSE

    @property
    def harmless(self) -> bool:
        """It bears the cause, and no unknown of the task is beyond what it was trained over."""
        return self.bears and self.inside is not False

    def to_json(self) -> dict[str, Any]:
        told = lambda e: None if e is None else {"value": e.value, "low": e.low, "high": e.high, "n": e.n}  # noqa: E731
        return {"home": told(self.home), "there": told(self.there), "param": self.param,
                "value": None if not self.param else self.value, "inside": self.inside}  # fmt: skip


def course(
    policy: Policy, task: Task, belief: Belief, cause: Weighed | None, episodes: int = EPISODES, seed: int = 0
) -> Course:
    """What would become of the policy at home and where the cause is true."""
    told = replace(task, observations={"actor": task.observations["actor"]})
    home = evaluate(policy, env(told, episodes, nominal(task), seed, 1))
    there, param, value, inside = None, "", float("nan"), None
    if cause is not None:
        e = _of_task(task, cause)
        if e:
            param, value = e
            low, high = belief.support(0.95)
            k = task.params.index(param)
            slack = FINGERPRINT * (high[k] - low[k])
            inside = bool(low[k] - slack <= value <= high[k] + slack)
        world = corrected(task, cause, episodes)
        if world is not None:
            believed = point(world.params, cause.e if cause.e is not None else world.params.nominal)
            at = replace(told, params=world.params, terms=())
            there = rate(evaluate(policy, Env(at, world, believed, seed)).success)
    return Course(rate(home.success), there, param, value, inside)


def corrected(task: Task, cause: Weighed, n: int) -> World | None:
    """n worlds in which the cause is true; None where it is in no world, but in a sensor, a wire or a program."""
    if cause.strengths:
        return world_of(replace(task, terms=()), cause.strengths, 0, n)
    if cause.e is None:
        return None
    return doctored(task, _known(task), n)


def _known(task: Task) -> Any:
    return suspects(compile_for(load_robot(task.robot).spec, task.params))


def _of_task(task: Task, cause: Weighed) -> tuple[str, float] | None:
    """The task's own unknown that writes what the cause is about, and its value there."""
    if cause.e is None:
        return None
    params = _known(task).params
    moved = [p for p, x in zip(params, cause.e) if abs(x - p.nominal) > 1e-9]
    if len(moved) != 1:
        return None
    (mine,) = moved
    x = float(cause.e[params.index(mine.name)])
    for p in task.params:
        if p.target == mine.target and (mine.name == DELAY or p.match == mine.match.replace("\\", "")):
            if p.op == mine.op:
                return p.name, x
            if mine.op == "scale":
                return p.name, p.nominal * x
            return p.name, p.nominal + x
    return None


def words(found: Course, over: str = "what it was trained over") -> list[str]:
    """In sentences; `over` is what the belief is."""
    said = []
    home, there = found.home, found.there
    said.append(
        f"at home, in its nominal world, the policy succeeds in {home.value:.0%} of {home.n} episodes ({home.low:.0%} - {home.high:.0%})"
    )
    if found.unfit:
        said.append(
            "it fails where the model is right: the task, its reward or the training is at fault, whatever the robot"
        )
    if there is not None:
        said.append(f"where this is so, in {there.value:.0%} ({there.low:.0%} - {there.high:.0%})")
        if found.bears:
            said.append("it bears what was found" + (": if the robot failed, look further" if found.harmless else ""))
    if found.param and found.inside is not None:
        where = "inside" if found.inside else "outside"
        said.append(f"{found.param} = {found.value:.4g} is {where} {over}")
    return said
