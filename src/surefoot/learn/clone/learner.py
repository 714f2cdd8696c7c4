"""Cloning a policy from demonstrations, by diffusion, by a flow, or by its mean.

    minimise E |eps - eps_hat(o, x_t, t)|^2 over rows (o, a) of logs, noise eps and times t      nets/flow.py; x: a chunk of actions
    minimise E |a - mu(o)|^2                                                                     mse, the baseline

With rows of a simulation beside those of a robot, each step draws a `share` of its rows from the robot's and the rest from the
simulation's, however many there are of each.

A mean between two ways is neither; what noise becomes is one of them. The exported net is the average of its own last steps,
which forgets more slowly the more there were: avg += (k + 1)^-3/4 (net - avg).
"""

import math
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from surefoot.contract import Contract
from surefoot.errors import SurefootError
from surefoot.learn.clone.demos import Demos, joined
from surefoot.learn.clone.settings import CloneSettings
from surefoot.learn.clone.start import calm_start
from surefoot.learn.collect import Envs
from surefoot.learn.learner import NetLearner, Saved
from surefoot.learn.nets import Actor, Normaliser, mlp
from surefoot.learn.nets.flow import NOISE_ACTORS, NoiseActor, flow_net
from surefoot.learn.nets.policy_net import PolicyNet
from surefoot.rng import key

EACH = 50  # gradient steps of an iteration
LAST = 1e-4  # least share by which the average follows


class Clone(NetLearner):
    """The state of learning. The env says what the numbers mean, and is not stepped."""

    slower: float = 1.0
    """factor of the step size"""

    def __init__(self, env: Envs, settings: CloneSettings, seed: int, data: Demos, beside: Demos | None = None):
        if env.task.action.choices:
            raise SurefootError(f"clone: {env.task.name} chooses among few actions; expected continuous ones")
        torch.set_num_threads(settings.learner_threads)
        self.env, self.settings, self.seed = env, settings, seed
        self.iterations, self.batch = -(-settings.updates // EACH), EACH * settings.samples
        self.own, self.drawn = (
            len(data.obs),
            settings.samples,
        )  # rows of the logs, those beside them follow; rows of a step
        if beside is not None:
            data, self.drawn = joined(data, beside), round(settings.share * settings.samples)
            if self.drawn in (0, settings.samples):
                raise SurefootError(
                    f"share: {settings.share:g} of {settings.samples} rows is {self.drawn}; expected rows of both in each step"
                )
        self.scale = max(float(np.abs(data.actions).max()), 1e-6)
        self.obs, self.x = (
            torch.from_numpy(data.obs),
            torch.from_numpy(data.actions.reshape(len(data.obs), -1)) / self.scale,
        )
        self._build()

    def _build(self) -> None:
        s, rng = self.settings, torch.Generator().manual_seed(key(self.seed, "weights") >> 1)
        n, actions = self.obs.shape[1], len(self.env.task.action.names)
        self.actor: Actor | NoiseActor
        if s.by == "mse":
            self.x = self.x[:, :actions]
            self.actor = Actor(mlp(n, s.hidden, actions, s.activation, 0.01, rng), None, activation=s.activation)
        else:
            body = flow_net(n, actions, s.hidden, s.activation, rng, s.chunk)
            execute = min(s.execute, s.chunk)
            self.actor = NOISE_ACTORS[s.by](body, None, actions, s.chunk, s.sample_steps, s.activation, execute)
        self.average = deepcopy(self.actor).requires_grad_(False)
        self.see_actor = Normaliser(n)
        self.see_actor.update(self.obs)
        self.seen = self.see_actor(self.obs)
        self.modules = nn.ModuleDict({"actor": self.actor, "average": self.average, "see_actor": self.see_actor})
        self.learned = list(self.actor.parameters())
        self.optimiser = torch.optim.AdamW(self.learned, s.lr, (0.95, 0.999), weight_decay=s.weight_decay, fused=True)

    def iterate(self) -> dict[str, Any]:
        """EACH gradient steps. If not finite, undone and the step size halved; three in a row stop the run."""
        before = self.memory()
        rng = torch.Generator().manual_seed(key(self.seed, "clone", self.iteration) >> 1)
        losses = torch.stack([self._step(self.iteration * EACH + k, rng) for k in range(EACH)])
        self.kept(before, losses)
        self.iteration += 1
        return {"loss": float(losses.mean()), "updates": self.iteration * EACH, "rejected": self.rejected}

    def _step(self, k: int, rng: torch.Generator) -> Tensor:
        s = self.settings
        rows = self._rows(rng)
        obs, x = self.seen[rows], self.x[rows]
        if isinstance(self.actor, NoiseActor):
            noise, t = torch.randn(x.shape, generator=rng), self.actor.times((len(x), 1), rng)
            loss = self.actor.errors(obs, x, noise, t).square().mean()
        else:
            loss = (self.actor(obs) - x).square().mean()
        for p, gradient in zip(self.learned, torch.autograd.grad(loss, self.learned)):
            p.grad = gradient
        nn.utils.clip_grad_norm_(self.learned, 1.0)
        late = min(1.0, k / (self.iterations * EACH))
        self.optimiser.param_groups[0]["lr"] = self.slower * s.lr * 0.5 * (1 + math.cos(math.pi * late))
        self.optimiser.step()
        with torch.no_grad():
            torch._foreach_lerp_(list(self.average.parameters()), [*self.learned], max(LAST, (k + 1) ** -0.75))
        return loss.detach()

    def _rows(self, rng: torch.Generator) -> Tensor:
        """Of one gradient step: of the logs, then of those beside them."""
        rows = torch.randint(self.own, (self.drawn,), generator=rng)
        rest = self.settings.samples - self.drawn
        return torch.cat([rows, torch.randint(self.own, len(self.obs), (rest,), generator=rng)]) if rest else rows

    def policy(self, contract: Contract) -> PolicyNet:
        scales = self.see_actor.mean.float().numpy(), self.see_actor.sd.float().numpy()
        actor = deepcopy(self.average)
        if isinstance(actor, NoiseActor):
            rng = torch.Generator().manual_seed(key(self.seed, "start") >> 1)
            actor.start.copy_(calm_start(actor, self.seen, self.settings.start, rng))
        return PolicyNet(contract, actor, scales, None, self.scale)

    @property
    def optimisers(self) -> Sequence[torch.optim.Optimizer]:
        return (self.optimiser,)

    def halve(self) -> float:
        self.slower /= 2
        return self.slower * self.settings.lr

    def save(self) -> Saved:
        arrays, numbers = super().save()
        return arrays, numbers | {"slower": self.slower}

    def load(self, arrays: Mapping[str, np.ndarray], numbers: Mapping[str, Any]) -> None:
        super().load(arrays, numbers)
        self.slower = float(numbers["slower"])
