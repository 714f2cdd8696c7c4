"""What every off-policy learner shares: acting into a replay, gradient steps on samples of it, and exact resume with it.

    y = R + gamma^k Z(o_k, pi(o_k))        R, k: the replay's n-step returns; Z: what the target critics say
    theta <- theta - lr dL(Z(o, a), y);    target <- target + tau (theta - target)        likewise the actor that is exported

Critics may see more than the actor. Failures bootstrap nothing, time-outs the value of their last state. An iteration whose
nets are not finite is undone and the step size halved.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from surefoot.contract import Contract
from surefoot.learn.chunks import added
from surefoot.learn.collect import Draws, Obs, Rollout
from surefoot.learn.nets import ACTIVATIONS, Actor, Normaliser, SymmetricNormaliser, mlp
from surefoot.learn.nets.policy_net import PolicyNet
from surefoot.learn.nets.stacked import StackedLinear, stacked_mlp
from surefoot.learn.nets.value_heads import value_head
from surefoot.learn.off_policy.replay import Sample
from surefoot.learn.off_policy.replay_learner import ReplayLearner
from surefoot.learn.off_policy.settings import OffPolicySettings
from surefoot.rng import key
from surefoot.task import Mirror

Gradient = tuple[Sequence[Tensor | None], Tensor]
"""gradients of some parameters, and what to log; a chunk's share of both"""


ENDS = torch.tensor([0.02, 0.98])  # quantiles of targets that count as their range: a few that went astray do not


def size(value: Tensor) -> Tensor:
    """Mean magnitude of values, the unit of what the actor weighs against them."""
    return value.detach().abs().mean().clamp(min=1e-6)


class NormedActivation(nn.Module):
    """Layers whose rows have mean 0 and variance 1 before they are bent: critics that cannot run away."""

    def __init__(self, activation: str):
        super().__init__()
        self.act = ACTIVATIONS[activation]()

    def forward(self, x: Tensor) -> Tensor:
        return self.act(nn.functional.layer_norm(x, x.shape[-1:]))


class Critics(nn.Module):
    """Two nets side by side: o (n, .), u (n, na) -> what a value head reads, (2, n, outputs). Their last layer begins at 0."""

    def __init__(self, inputs: int, s: OffPolicySettings, outputs: int, rng: torch.Generator):
        super().__init__()
        bend = (lambda: NormedActivation(s.activation)) if s.layer_norm else ACTIVATIONS[s.activation]
        self.body = stacked_mlp((0, 1), inputs, s.critic_hidden, outputs, bend, rng)
        with torch.no_grad():
            self.last.weight.zero_()

    @property
    def last(self) -> StackedLinear:
        layer = self.body[-1]
        assert isinstance(layer, StackedLinear)
        return layer

    def forward(self, obs: Tensor, action: Tensor) -> Tensor:
        x = torch.cat([obs, action], 1)
        return self.body(x.expand(2, *x.shape))

    def first(self, obs: Tensor, action: Tensor) -> Tensor:
        """(n, outputs) of the first net alone."""
        x = torch.cat([obs, action], 1)
        for layer in self.body:
            x = torch.addmm(layer.bias[0, 0], x, layer.weight[0]) if isinstance(layer, StackedLinear) else layer(x)
        return x


Explore = Callable[[Tensor, Tensor], Tensor]
"""what the actor's net gives (k, .) and noise (k, na) -> u (k, na) to try"""


@dataclass(frozen=True)
class Exploring:
    """How the envs of a rollout are driven. A value, which a worker elsewhere can have."""

    see: Normaliser
    actor: Actor
    explore: Explore
    limit: float

    @torch.no_grad()  # a setting of the thread, and each block has its own
    def __call__(self, obs: Obs, draws: Draws) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        out = self.actor(self.see(torch.from_numpy(obs["actor"])))
        u = self.explore(out, torch.from_numpy(draws["noise"])).numpy()
        return self.limit * u, {"action": u}


class OffPolicy(ReplayLearner):
    """The state of learning. Actions u of nets and replay lie within +-1; the env gets limit * u."""

    settings: OffPolicySettings

    heads: int = 1
    """numbers that the actor's net gives for each action"""

    def _build(self) -> None:
        s, task = self.settings, self.env.task
        self.limit = task.action.limit
        rng = torch.Generator().manual_seed(key(self.seed, "weights") >> 1)
        actor, critic = (task.observations[g].dim for g in ("actor", "critic"))
        self.mirror = task.symmetry.of(task.observations["actor"]) if s.symmetric and task.symmetry else None
        self.actor = Actor(
            mlp(actor, s.hidden, self.heads * self.actions, s.activation, 0.01, rng), self._mirrors(), None, None, s.activation
        )  # fmt: skip
        self.head = value_head(s.value, s.atoms)
        self.critic = Critics(critic + self.actions, s, self.head.outputs, rng)
        self.target = deepcopy(self.critic).requires_grad_(False)
        self.average = deepcopy(self.actor).requires_grad_(False)
        self.see_actor = SymmetricNormaliser(actor, self.mirror) if self.mirror else Normaliser(actor)
        self.see_critic = Normaliser(critic)
        more = nn.ModuleDict(self.more_modules())
        self.modules = nn.ModuleDict({
            "actor": self.actor, "average": self.average, "critic": self.critic, "target": self.target,
            "head": self.head, "see_actor": self.see_actor, "see_critic": self.see_critic, "more": more,
        })  # fmt: skip
        self.critic_params, own, beside = (list[Tensor](m.parameters()) for m in (self.critic, self.actor, more))
        self.own, self.actor_params = own, own + beside
        groups: list[dict[str, Any]] = [{"params": own}]
        groups += [{"params": beside, "weight_decay": 0.0}] if beside else []
        self.critic_optimiser = torch.optim.AdamW(self.critic_params, s.lr, weight_decay=s.weight_decay, fused=True)
        self.actor_optimiser = torch.optim.AdamW(groups, s.lr, weight_decay=s.weight_decay, fused=True)

    def _mirrors(self) -> Mirror | None:
        """Of all that the actor's net gives: what follows the actions themselves, such as their spread, has no side."""
        m = self.mirror
        if m is None or self.heads == 1:
            return m
        order = np.concatenate([m.action_order + k * self.actions for k in range(self.heads)])
        sign = np.concatenate([m.action_sign, np.ones((self.heads - 1) * self.actions)])
        return Mirror(m.obs_order, m.obs_sign, order, sign)

    def more_modules(self) -> dict[str, nn.Module]:
        """What else is learned with the actor."""
        return {}

    # each algorithm's own

    @property
    @abstractmethod
    def explore(self) -> Explore:
        """How it strays from what the actor's net gives. A value, too."""

    def noise(self, rng: torch.Generator) -> Tensor:
        """(T, n, na) what chance gives a rollout."""
        return torch.randn((self.settings.horizon, self.env.n, self.actions), generator=rng)

    @abstractmethod
    def critic_gradient(self, b: Sample, noise: Tensor) -> Gradient:
        """Of the critics; to log: loss, mean value, and the ENDS of targets."""

    @abstractmethod
    def actor_gradient(self, b: Sample, noise: Tensor) -> Gradient:
        """Of the actor; to log: `actor_facts`."""

    actor_facts: tuple[str, ...] = ("actor_loss",)

    # the loop's iteration

    @property
    def optimisers(self) -> Sequence[torch.optim.Optimizer]:
        return self.critic_optimiser, self.actor_optimiser

    @torch.no_grad()
    def collect(self) -> Rollout:
        s = self.settings
        self.see_actor.update(torch.from_numpy(self.collector.obs["actor"]))
        self.see_critic.update(torch.from_numpy(self.collector.obs["critic"]))
        rng = torch.Generator().manual_seed(key(self.seed, "act", self.iteration) >> 1)
        act = Exploring(self.see_actor, self.actor, self.explore, self.limit)
        r = self.collector.collect(act, s.horizon, ("actor", "critic"), {"noise": self.noise(rng).numpy()})
        if not self.warm and s.horizon > 1:  # until learning begins, normalisers take in all there is
            self.see_actor.update(torch.from_numpy(r.obs["actor"][1:-1]).flatten(0, 1))
            self.see_critic.update(torch.from_numpy(r.obs["critic"][1:-1]).flatten(0, 1))
        return r

    def learn(self) -> dict[str, float]:
        """Gradient steps. If nets are not finite after them, undone and the step size halved; three in a row stop the run."""
        s = self.settings
        if not self.critic_optimiser.state and not self.rejected:
            self.head.begin(*np.quantile(self.replay.returns(s.gamma).numpy(), ENDS.numpy()).tolist())
        before = self.memory()
        rng = torch.Generator().manual_seed(key(self.seed, "replay", self.iteration) >> 1)
        self.pace()
        critic, actor = [], []
        acts = (self.iteration + 1) * self.batch >= s.actor_after
        for k in range(s.updates):
            parts = self._drawn(rng)
            step = self._step(self.critic_gradient, parts, self.critic_params, self.critic_optimiser)
            critic.append(torch.stack([*step[:, :2].sum(0), step[:, 2].min(), step[:, 3].max()]))
            if acts and (self.iteration * s.updates + k) % s.actor_every == 0:
                actor.append(self._step(self.actor_gradient, parts, self.actor_params, self.actor_optimiser).sum(0))
            self._follow()
        facts = torch.stack(critic)
        if not self.kept(before, facts):
            return {"rejected": self.rejected}
        low, high = float(facts[:, 2].min()), float(facts[:, 3].max())
        self._widen(low, high)
        found = {"critic_loss": float(facts[:, 0].mean()), "value": float(facts[:, 1].mean())}
        found |= {"target_low": low, "target_high": high, "rejected": 0}
        return found | (dict(zip(self.actor_facts, torch.stack(actor).mean(0).tolist())) if actor else {})

    def _drawn(self, rng: torch.Generator) -> list[tuple[Sample, Tensor]]:
        """A sample and normal noise for each of its rows, in chunks; its weights sum to 1."""
        s = self.settings
        b = self.replay.sample(s.samples, s.n_step, s.gamma, rng)
        b = b._replace(weight=b.weight / b.weight.sum().clamp(min=1.0))
        noise = torch.randn((2, s.samples, self.actions), generator=rng)
        count = self.chunks.count(s.samples)
        return [(Sample(*part), z) for part, z in zip(zip(*(x.chunk(count) for x in b)), noise.chunk(count, 1))]

    def _step(
        self, f: Any, parts: Sequence[tuple[Sample, Tensor]], params: Sequence[Tensor], optimiser: torch.optim.Optimizer
    ) -> Tensor:
        """A gradient step; returns (chunks, facts) what to log."""
        found: list[Gradient] = self.chunks.each(lambda part: f(self._seen(part[0]), part[1]), parts)
        for p, gradient in zip(params, added(gradients for gradients, _ in found)):
            p.grad = gradient
        optimiser.step()
        return torch.stack([facts for _, facts in found])

    @torch.no_grad()
    def _seen(self, b: Sample) -> Sample:
        """As nets see it."""
        actor, critic = self.see_actor, self.see_critic
        return b._replace(
            actor=actor(b.actor), critic=critic(b.critic), next_actor=actor(b.next_actor), next_critic=critic(b.next_critic)
        )  # fmt: skip

    @torch.no_grad()
    def _follow(self) -> None:
        torch._foreach_lerp_(list(self.target.parameters()), self.critic_params, self.settings.tau)
        torch._foreach_lerp_(list(self.average.parameters()), self.own, self.settings.tau)

    def _widen(self, low: float, high: float) -> None:
        layer = self.critic.last
        state = [self.critic_optimiser.state[p] for p in (layer.weight, layer.bias)]
        moments = [each[k] for each in state for k in ("exp_avg", "exp_avg_sq")]
        self.head.follow(low, high, [layer, self.target.last], moments)

    @property
    def penalty(self) -> float:
        """c of the actor's squared outputs, now."""
        return self.settings.action_penalty * max(0.0, 1 - 2 * self.iteration / self.iterations)

    # what was learned

    def policy(self, contract: Contract) -> PolicyNet:
        """The actor without its noise, averaged over its last gradient steps: one of them may be a little off."""
        scales = self.see_actor.mean.float().numpy(), self.see_actor.sd.float().numpy()
        body = deepcopy(self.average.body)
        last = body[-1]
        assert isinstance(last, nn.Linear)
        with torch.no_grad():
            last.weight, last.bias = (nn.Parameter(p[: self.actions].clone()) for p in (last.weight, last.bias))
        last.out_features = self.actions
        return PolicyNet(contract, Actor(body, self.mirror, None, None, self.settings.activation, self.limit), scales)
