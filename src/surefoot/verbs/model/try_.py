"""surefoot try."""

from collections.abc import Callable
from dataclasses import dataclass
from shlex import quote

from tyro.conf import Positional

from surefoot.errors import unknown
from surefoot.policy import Policy, Random, Zero
from surefoot.report import Report, Watch
from surefoot.verbs.arguments import belief_of, count, results, seconds


@dataclass(frozen=True)
class Try:
    task: Positional[str]
    """see `surefoot tasks`"""
    policy: str = "zero"
    """zero, or random"""
    episodes: int = 64
    """number of episodes"""
    seed: int = 0
    """seed of the episodes"""
    belief: str = "task"
    """p(e): `task` (its training ranges), `nominal`, a preset (see `surefoot presets`), or a belief's JSON file"""
    range: tuple[str, ...] = ()
    """your own range for an unknown, instead of the belief's: mass=0.8..1.2x (multiples of nominal), latency=0..0.02 (in its unit)"""

    def run(self, watch: Watch) -> Report:
        from surefoot import tasks
        from surefoot.tasks.rollout import contract, evaluate

        task = tasks.resolve(self.task)
        env = tasks.env(task, count(self.episodes), belief_of(task, self.belief, watch, ranges=self.range), self.seed)
        c = contract(task, env.world)
        kinds: dict[str, Callable[[], Policy]] = {"zero": lambda: Zero(c), "random": lambda: Random(c, self.seed)}
        if self.policy not in kinds:
            raise unknown("policy", self.policy, kinds, "--policy")
        found = evaluate(kinds[self.policy](), env, seconds(watch, task))
        facts = {"task": task.name, "policy": self.policy} | found.to_json()
        blocks = (results(task, {self.policy: found}),)
        return Report(f"{task.name}, policy {self.policy}", facts, blocks, f"surefoot train {quote(self.task)}")
