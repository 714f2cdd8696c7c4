"""Imitation of a motion that no file has: the reference is what the forward model says, asked anew at every step.

    r_t = r_task + w(t) W dt mean_g exp(-mean_{i in g} z_i^2),   z = (k_{t+1} - psi(o_t)) / (c change)

o_t is what the teacher would have observed in the student's state, so the reference goes on from wherever the student is. Groups g
are the terms of k: joints, their speeds, the base, contacts. W is the sum of the task's positive reward weights. What ends an
episode by failure earns nothing.
"""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

from surefoot.learn.collect import Rollout
from surefoot.learn.learner import Auxiliary, PolicyLearner
from surefoot.learn.sim2sim.forward import ForwardModel
from surefoot.learn.sim2sim.prime import TEACHER, Primer
from surefoot.learn.sim2sim.settings import Imitation
from surefoot.learn.sim2sim.support import KINEMATIC
from surefoot.task import Task


class Imitating(Auxiliary):
    """Adds to a student's reward what its motion has of the teacher's."""

    def __init__(self, task: Task, model: ForwardModel, how: Imitation, dt: float, primer: Primer | None = None):
        model.check(task)
        self.model, self.how, self.primer = model, how, primer
        self.groups = (TEACHER, KINEMATIC) if primer is None else (TEACHER, KINEMATIC, "actor")
        self.full = how.weight * dt * best_rate(task)

    def take(self, r: Rollout, iteration: int, iterations: int) -> dict[str, float]:
        match = matches(self.model, r, self.how.width)
        r.reward += np.float32(self.full * faded(self.how.until, iteration / max(iterations, 1))) * match
        facts = {"imitation": float(match.mean())}
        if self.primer is not None and self.waits(iteration, iterations):
            facts |= self.primer.learn(r, iteration)
        return facts

    def meet(self, learner: PolicyLearner, actor: nn.Module, see: nn.Module) -> None:
        if self.primer is not None:
            self.primer.meet(learner, actor, see)

    def waits(self, iteration: int, iterations: int) -> bool:
        return self.primer is not None and self.primer.waits(iteration, iterations)

    def products(self) -> Mapping[str, bytes]:
        return {}

    def save(self) -> dict[str, np.ndarray]:
        return {} if self.primer is None else self.primer.save()

    def load(self, arrays: Mapping[str, np.ndarray]) -> None:
        if self.primer is not None:
            self.primer.load(arrays)


def best_rate(task: Task) -> float:
    """Reward a second that the task's positive terms sum up to; of all terms in magnitude where none is positive."""
    weights = [r.weight for r in task.rewards.values()]
    return float(sum(w for w in weights if w > 0) or sum(map(abs, weights)))


def faded(until: float, share: float) -> float:
    """What is left of w after a share of the steps."""
    return 1.0 if until >= 1 else max(0.0, 1 - share / until)


@torch.no_grad()
def matches(model: ForwardModel, r: Rollout, width: float) -> np.ndarray:
    """(T, n) float32, 0 to 1: how near each step came to what the forward model said before it."""
    after = np.array(r.obs[KINEMATIC][1:])
    for t, rows, obs in r.last:
        after[t, rows] = obs[KINEMATIC]  # before the reset
    T, n = r.reward.shape
    said = torch.cat([model(torch.from_numpy(rows)) for rows in r.obs[TEACHER][:-1]])
    z = (torch.from_numpy(after).reshape(T * n, -1) - said) / (width * model.change_sd)
    match = matched(z, model.meaning.columns).reshape(T, n).numpy()
    counts = r.flags["valid"] & ~r.flags["terminated"] & (~r.flags["truncated"] | r.flags["final"])
    return np.where(counts, match, 0.0).astype(np.float32)


def matched(z: Tensor, columns: Mapping[str, slice]) -> Tensor:
    """(n,) mean over terms of exp(-mean z^2)."""
    return torch.stack([(-z[:, at].square().mean(1)).exp() for at in columns.values()]).mean(0)
