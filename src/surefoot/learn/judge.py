"""Judging while training: every so many env steps, the policy so far in the same unseen episodes, without exploration noise.

    k, 2k, 3k, ... env steps and the last: success = evaluate(policy, its own env) -> metrics; the best so far -> best.onnx

Learning is not moved by it: the env, its streams and its seed (2^52 and above, as the gate's) are the judge's own. The best
has the highest success rate, and of equal rates the highest mean return. It was chosen by these episodes, so its rate is
a little too good: the gate's episodes are others.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from surefoot.belief import Belief
from surefoot.contract import Contract
from surefoot.deploy.bundle import BEST
from surefoot.env import Env
from surefoot.errors import SurefootError
from surefoot.learn.learner import PolicyLearner, Saved
from surefoot.learn.loop import policy_of, policy_writer
from surefoot.learn.nets.policy_net import PolicyNet
from surefoot.learn.run import Run
from surefoot.learn.settings import Judging
from surefoot.tasks.rollout import Evaluation, evaluate

FACTS = ("success", "low", "high", "return", "error")


@dataclass(frozen=True)
class Best:
    """What the best policy so far was judged by."""

    success: float = -1.0
    mean_return: float = 0.0
    iteration: int = 0

    def beaten_by(self, found: Evaluation) -> bool:
        return (found.rate, float(found.returns.mean())) > (self.success, self.mean_return)


class Judged(PolicyLearner):
    """A learner whose policy is judged on the way; all else is the learner's own."""

    def __init__(self, learner: PolicyLearner, judging: Judging, env: Env, run: Run):
        """`env` has as many simulations as there are episodes, and is no one else's."""
        self.learner, self.judging, self.episodes, self.run = learner, judging, env, run
        self.env, self.seed, self.iteration = learner.env, learner.seed, learner.iteration
        self.iterations, self.batch, self.best = learner.iterations, learner.batch, Best()
        self.write = policy_writer(learner, run, BEST)

    def iterate(self) -> dict[str, Any]:
        row = self.learner.iterate()
        self.iteration = self.learner.iteration
        return row | (self._judge() if self.due else {})

    @property
    def due(self) -> bool:
        """Whether the last iteration passed a multiple of `every`, or was the last of all."""
        steps, every = self.iteration * self.batch, self.judging.every
        return steps // every > (steps - self.batch) // every or self.iteration == self.iterations

    def _judge(self) -> dict[str, float]:
        self.episodes.reset(self.episodes.seed)  # the same episodes each time
        found = evaluate(policy_of(self.learner), self.episodes)
        facts = found.to_json()
        facts |= {"low": facts["success_low"], "high": facts["success_high"]}
        if self.best.beaten_by(found):
            self._keep(found, facts)
        return {f"judge/{k}": facts[k] for k in FACTS if facts[k] is not None}

    def _keep(self, found: Evaluation, facts: Mapping[str, Any]) -> None:
        """Write the policy; where the disk refuses, the one before it stays the best."""
        try:
            self.write(self.run.folder, {"judged": dict(facts), "iteration": self.iteration})
        except (OSError, SurefootError) as error:
            self.run.notes.append(f"the best policy so far was not saved ({error}); training goes on")
            return
        self.best = Best(found.rate, float(found.returns.mean()), self.iteration)

    def policy(self, contract: Contract) -> PolicyNet:
        return self.learner.policy(contract)

    @property
    def reached(self) -> Belief | None:
        return self.learner.reached

    def products(self) -> Mapping[str, bytes]:
        return self.learner.products()

    def save(self) -> Saved:
        arrays, numbers = self.learner.save()
        return arrays, numbers | {"best": [self.best.success, self.best.mean_return, self.best.iteration]}

    def load(self, arrays: Mapping[str, np.ndarray], numbers: Mapping[str, Any]) -> None:
        self.learner.load(arrays, numbers)
        self.iteration = self.learner.iteration
        success, mean_return, iteration = numbers["best"]
        self.best = Best(float(success), float(mean_return), int(iteration))
        if self.best.iteration and not (self.run.folder / BEST).exists():
            self.run.notes.append(f"{BEST} is missing: the next policy that is judged is kept as the best")
            self.best = Best()
