"""Consequences of a cause: is its number inside the range the policy was trained over, and does the policy still succeed with it?

in_range    the fitted e lies in the belief's support (the question of gate/statistics/coverage.py, for one e)
tolerates   success rate in the corrected world, with an exact 95 % interval, against that in the nominal one
            nominal low: the task, its reward or the training is at fault; corrected low: train over the cause
"""

from dataclasses import dataclass, replace
from typing import Any

from surefoot.belief import Belief, point
from surefoot.doctor.evidence.likelihood import Hypothesis
from surefoot.doctor.hypotheses.model_errors import DELAY, errors_of, world_with
from surefoot.env import Env
from surefoot.gate.statistics import Estimate, rate
from surefoot.policy import Policy
from surefoot.sim.gap.build import world_of
from surefoot.task import Task
from surefoot.tasks import env, nominal
from surefoot.tasks.rollout import evaluate
from surefoot.world import World

EPISODES = 24
GOOD = 0.8  # success rate that a policy should have in the nominal world
WORSE = 0.2  # of the success rate: a policy that loses less tolerates the cause
ROUNDING = 1e-3  # of a range: a value so little outside it counts as inside


@dataclass(frozen=True)
class Consequences:
    nominal: Estimate
    """success rate in the nominal world"""
    corrected: Estimate | None
    """success rate in the world where the cause is true; None where the cause is not in the world"""
    param: str = ""
    """the task's unknown that the cause is about; empty where it has none"""
    value: float = float("nan")
    """of that unknown"""
    in_range: bool | None = None
    """whether the belief has that value; None where the task has no such unknown"""

    @property
    def fails_nominal(self) -> bool:
        """The policy fails where the model is right."""
        return (self.nominal.high or 0.0) < GOOD

    @property
    def tolerates(self) -> bool:
        """With the cause it succeeds nearly as often as without."""
        if self.corrected is None or self.nominal.value < GOOD:
            return False
        return (self.corrected.low or 0.0) > self.nominal.value - WORSE

    @property
    def harmless(self) -> bool:
        """It tolerates the cause, whose value, where the task has it as an unknown, is in the trained range."""
        return self.tolerates and self.in_range is not False

    def to_json(self) -> dict[str, Any]:
        fields = lambda e: None if e is None else {"value": e.value, "low": e.low, "high": e.high, "n": e.n}  # noqa: E731
        return {"nominal": fields(self.nominal), "corrected": fields(self.corrected), "param": self.param,
                "value": None if not self.param else self.value, "in_range": self.in_range}  # fmt: skip

    def sentences(self, trained: str = "the range it was trained over") -> list[str]:
        """For people; `trained` says what the belief is."""
        a, b = self.nominal, self.corrected
        said = [f"nominal world: {a.value:.0%} of {a.n} episodes succeed ({a.low:.0%} - {a.high:.0%})"]
        if self.fails_nominal:
            said.append("the policy fails where the model is right: the task, its reward or the training is at fault")
        if b is not None:
            said.append(f"with this cause: {b.value:.0%} of {b.n} episodes succeed ({b.low:.0%} - {b.high:.0%})")
            if self.tolerates:
                further = ": if the robot failed, the reason is another" if self.harmless else ""
                said.append(f"the policy tolerates this cause{further}")
        if self.param and self.in_range is not None:
            said.append(f"{self.param} = {self.value:.4g} is {'inside' if self.in_range else 'outside'} {trained}")
        return said


def consequences(
    policy: Policy, task: Task, belief: Belief, cause: Hypothesis | None, episodes: int = EPISODES, seed: int = 0
) -> Consequences:
    """Success rates in the nominal world and where the cause is true."""
    task = replace(task, observations={"actor": task.observations["actor"]})
    home = rate(evaluate(policy, env(task, episodes, nominal(task), seed, 1)).success)
    if cause is None:
        return Consequences(home, None)
    corrected = None
    world = corrected_world(task, cause, episodes)
    if world is not None:
        e = point(world.params, cause.e if cause.e is not None else world.params.nominal)
        env_ = Env(replace(task, params=world.params, terms=()), world, e, seed)
        corrected = rate(evaluate(policy, env_).success)
    own = _own_unknown(task, cause)
    if own is None:
        return Consequences(home, corrected)
    low, high = (ends[task.params.index(own[0])] for ends in belief.support(0.95))
    slack = ROUNDING * (high - low)
    return Consequences(home, corrected, *own, bool(low - slack <= own[1] <= high + slack))


def corrected_world(task: Task, cause: Hypothesis, n: int) -> World | None:
    """n worlds in which the cause is true; None where it is not in the world, but in a sensor, a wire or a program."""
    if cause.strengths:
        return world_of(replace(task, terms=()), cause.strengths, 0, n)
    return None if cause.e is None else world_with(task, errors_of(task), n)


def _own_unknown(task: Task, cause: Hypothesis) -> tuple[str, float] | None:
    """The task's own unknown that the cause is about, and its value."""
    if cause.e is None:
        return None
    params = errors_of(task).params
    changed = [(p, float(x)) for p, x in zip(params, cause.e) if abs(x - p.nominal) > 1e-9]
    if len(changed) != 1:
        return None
    mine, x = changed[0]
    for p in task.params:
        if p.target == mine.target and (mine.name == DELAY or p.match == mine.match.replace("\\", "")):
            if p.op == mine.op:
                return p.name, x
            return p.name, p.nominal * x if mine.op == "scale" else p.nominal + x
    return None
