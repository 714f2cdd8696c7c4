"""Proximal policy optimisation: a clipped surrogate on generalised advantages.

    maximise E[min(rho A, clip(rho, 1 +- eps) A)] + c H,   rho = pi(a|o) / pi_old(a|o)

Batches, advantages A and gradient steps are those of every on-policy learner (on_policy/learner.py). The step size follows
the policy's own KL.
"""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from surefoot.contract import Contract
from surefoot.errors import SurefootError, unknown
from surefoot.learn.collect import Draws, Envs, Obs
from surefoot.learn.learner import Auxiliary
from surefoot.learn.nets import Actor, Categorical, Encoder, Gaussian, Normaliser, mlp, tensor, unlikely
from surefoot.learn.nets.policy_net import PolicyNet
from surefoot.learn.on_policy.learner import Batch, Gradient, OnPolicy
from surefoot.learn.ranges import Ranges
from surefoot.learn.residual import ResidualActor
from surefoot.learn.settings import PPOSettings
from surefoot.observation import ObsGroup
from surefoot.rng import key
from surefoot.task import Mirror


def actor_net(
    group: ObsGroup,
    s: PPOSettings,
    outputs: int,
    mirror: Mirror | None,
    rng: torch.Generator,
    last: float = 0.01,
    estimates: int = 0,
) -> Actor:
    """The actor's net: an MLP on its observation, or on part of that and a latent of the rest; `last` as mlp has it."""
    if s.encoder == "none":
        return Actor(mlp(group.dim, s.hidden, outputs, s.activation, last, rng), mirror, activation=s.activation)
    if s.encoder != "e" and group.history == 1:
        raise SurefootError(f"encoder: {s.encoder}: it reads a history, found 1 frame; give --obs.history 25")
    everything = np.arange(group.dim).reshape(group.history, group.frame)
    reads, keeps, kind = everything.ravel(), everything[-1], str(s.encoder)
    if s.encoder == "e":
        at = [columns for t, columns in zip(group.terms, group.columns) if t.name == "e"]
        if not at:
            raise SurefootError("encoder: e: the actor does not observe e; add --obs.also e")
        reads, keeps, kind = everything[-1, at[0]], np.delete(everything, at[0], 1).ravel(), "mlp"
    encoder = Encoder(kind, reads, group.history, s.latent, s.activation, rng, estimates=estimates)
    body = mlp(len(keeps) + encoder.out.out_features, s.hidden, outputs, s.activation, last, rng)
    return Actor(body, mirror, encoder, keeps, s.activation)


def truth_columns(critic: ObsGroup, names: Sequence[str]) -> list[int]:
    """Where in the critic's observation the newest of what an encoder estimates is."""
    at = {t.name: columns for t, columns in zip(critic.terms, critic.columns)}
    for name in names:
        if name not in at:
            raise unknown("observation term", name, at, "estimate: the critic")
    first = (critic.history - 1) * critic.frame
    return [first + i for name in names for i in range(at[name].start, at[name].stop)]


@dataclass(frozen=True)
class Exploring:
    """How the envs of a rollout are driven: by a sample of what the actor says. A value, which a worker elsewhere can have."""

    see: Normaliser
    actor: Actor
    head: Categorical | Gaussian
    upon: ResidualActor | None
    raw: bool
    """whether observations are kept as they are, not normalised"""

    @torch.no_grad()  # a setting of the thread, and each block has its own
    def __call__(self, obs: Obs, draws: Draws) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        raw = tensor(obs["actor"])
        seen = self.see(raw)
        head = self.actor(seen)
        action = self.head.sample(head, tensor(draws["noise"]))
        kept: dict[str, Any] = {"actor": raw if self.raw else seen, "head": head, "action": action}
        if raw is obs["actor"]:  # it stays on its device
            return action, kept  # type: ignore[return-value]
        f = action.numpy()
        return f if self.upon is None else self.upon(obs["actor"], f), {k: v.numpy() for k, v in kept.items()}


class PPO(OnPolicy):
    """The state of learning.

    With a base to stand `upon`, what is learned, and what the nets here say, is the residual. What is `beside` gets each
    rollout before it is learned from.
    """

    settings: PPOSettings
    actor: Actor

    def __init__(
        self,
        env: Envs,
        settings: PPOSettings,
        seed: int,
        ranges: Ranges | None = None,
        upon: ResidualActor | None = None,
        beside: Auxiliary | None = None,
    ):
        self.upon = upon
        OnPolicy.__init__(self, env, settings, seed, ranges, beside)

    def _build(self) -> None:
        s, task = self.settings, self.env.task
        rng = torch.Generator().manual_seed(key(self.seed, "weights") >> 1)
        mirror = task.symmetry.of(task.observations["actor"]) if s.symmetric and task.symmetry else None
        self.head: Categorical | Gaussian = (
            Categorical(task.action.choices)
            if task.action.choices
            else Gaussian(len(task.action.names), s.spread[0], s.spread[2], s.spread[1])
        )
        last = 0.01 if self.upon is None else 0.0
        self.truth = truth_columns(task.observations["critic"], s.estimate)
        actor = actor_net(task.observations["actor"], s, self.head.outputs, mirror, rng, last, len(self.truth))
        critic = mlp(task.observations["critic"].dim, s.hidden, 1, s.activation, 1.0, rng)
        self._assemble(actor, critic, mirror, head=self.head)
        estimates = self.actor.encoder is not None and len(self.truth) > 0
        own = (
            {id(p) for p in self.actor.encoder.parameters()} if estimates and self.actor.encoder is not None else set()
        )
        self.apart = [[p for p in self.learned if (id(p) in own) == estimating] for estimating in (False, True)]
        """what PPO moves, and what learns to estimate: at its own rate, with its own largest gradient"""
        self.optimiser = torch.optim.Adam([{"params": some} for some in self.apart if some], self.lr, fused=True)

    def explore(self, raw: bool) -> Exploring:
        return Exploring(self.see_actor, self.actor, self.head, self.upon, raw)

    def draws(self, rng: torch.Generator) -> dict[str, np.ndarray]:
        return {"noise": self.head.noise(self.settings.horizon, self.env.n, rng).numpy()}

    def likelihood(self, actor: Tensor, head: Tensor, action: Tensor) -> Tensor:
        return self.head.log_prob(head, action)

    def before(self) -> Tensor:
        return self.head.log_sd.detach().clone()

    @property
    def facts(self) -> tuple[str, ...]:
        return ("policy_loss", "value_loss", "entropy", *(["estimate_loss"] if len(self.truth) else []), "kl")

    def more_facts(self, r: Batch) -> dict[str, float]:
        found = {"sd": float(self.head.log_sd.detach().exp().mean()) if len(self.head.log_sd) else 0.0}
        if self.upon is not None:
            found["residual"] = self.upon.settings.scale * float(r.head.abs().mean())
        return found

    def _gradient(self, chunk: Sequence[Tensor], share: float, before: Tensor) -> Gradient:
        """What a chunk, a share of a minibatch, adds to its gradient, losses, entropy and KL."""
        s = self.settings
        obs, critic_obs, action, old = chunk[:4]
        old_log_prob, adv, target, weight = (c[:, 0] for c in chunk[4:])
        out = self.actor(obs)
        ratio = (self.head.log_prob(out, action) - old_log_prob).exp()
        gain = torch.minimum(ratio * adv, ratio.clamp(1 - s.clip, 1 + s.clip) * adv)
        policy_loss = -(gain * weight).sum()
        value_loss = ((self.critic(critic_obs)[:, 0] - target).square() * weight).sum()
        entropy = share * self.head.entropy(out)
        loss = s.value * value_loss
        if not self.waits:
            loss = loss + policy_loss - s.entropy * entropy
        known = []
        if self.actor.encoder is not None and len(self.truth):
            known = [(unlikely(self.actor.encoder(obs), critic_obs[:, self.truth]) * weight).sum()]
            loss = loss + known[0]
        gradients = torch.autograd.grad(loss, self.learned, allow_unused=True)
        with torch.no_grad():
            kl = (self.head.kl(old, before, out) * weight).sum()
        return gradients, torch.stack([policy_loss, value_loss, entropy, *known, kl]).detach()

    @property
    def waits(self) -> bool:
        """Whether only the critic learns now."""
        parts = (self.upon, self.beside)
        return any(p is not None and p.waits(self.iteration, self.settings.iterations) for p in parts)

    @property
    def target_kl(self) -> float:
        return 0.0 if self.waits else self.settings.kl * (1 - self.settings.settle * self.late)

    def policy(self, contract: Contract) -> PolicyNet:
        """The actor as a policy."""
        scales = self.see_actor.mean.float().cpu().numpy(), self.see_actor.sd.float().cpu().numpy()
        actor = deepcopy(self.actor).cpu()  # learning goes on
        if actor.encoder is not None and len(self.truth):
            scale = torch.from_numpy(self.env.task.observations["critic"].scales)[self.truth]
            actor.encoder.unit.copy_(
                torch.stack([self.see_critic.mean[self.truth], self.see_critic.sd[self.truth]]).cpu() / scale
            )
        if self.upon is None:
            return PolicyNet(contract, actor, scales)
        return PolicyNet(contract, actor, scales, self.upon.base.net, self.upon.settings.scale)
