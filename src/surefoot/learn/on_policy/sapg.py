"""SAPG, split and aggregate policy gradients: followers explore, each in its own way, and the leader learns from them, too.

    pi_m(a|o) = N(mu(o, phi_m), sd_m^2),   V_m(o) = V(o, phi_m)         blocks m = 1 .. M of the simulations; M is the leader
    each m on its own steps:   PPO's surrogate + c_m H(sd_m),   c_m falling evenly from `entropy` to c_M = 0
    the leader on lent ones:   rho = pi_M(a|o) / pi_b(a|o),   A = r + gamma V_M(o') - V_M(o),   V_M to r + gamma V_M(o')

The nets are shared; phi_m and sd_m are learned for each block. Lent are the steps of `lent` followers b, drawn for each
batch. Their actions were not the leader's, so their ratio is against who acted, and their returns are one step long: what
the follower did next says nothing of the leader. What is judged and exported is the leader: phi_M is constant, and becomes
part of the first layer's bias.
"""

import math
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from surefoot.contract import Contract
from surefoot.errors import SurefootError
from surefoot.learn.collect import Draws, Envs, Obs, summary
from surefoot.learn.learner import check_continuous
from surefoot.learn.nets import Actor, Normaliser, mlp
from surefoot.learn.nets.policy_net import PolicyNet
from surefoot.learn.on_policy.learner import Batch, Gradient, OnPolicy
from surefoot.learn.on_policy.settings import SAPGSettings
from surefoot.learn.ranges import Ranges
from surefoot.rng import key
from surefoot.task import Mirror


def marked(x: Tensor, block: Tensor) -> Tensor:
    """Observations (..., k, d) with the block of each of k rows as their last column."""
    return torch.cat([x, block.to(x.dtype).expand(x.shape[:-1])[..., None]], -1)


def relabelled(x: Tensor, block: int) -> Tensor:
    """Marked observations, as another block's."""
    return torch.cat([x[..., :-1], torch.full_like(x[..., :1], block)], -1)


class BlockActor(nn.Module):
    """Marked observations -> mu and log sd of their blocks' actions, side by side. sd is held in [low, high] by a sigmoid."""

    def __init__(self, net: Actor, blocks: int, embed: int, actions: int, spread: tuple[float, float, float]):
        super().__init__()
        low, start, high = (math.log(x) for x in spread)
        self.net, self.bounds = net, (low, high)
        self.phi = nn.Parameter(torch.zeros(blocks, embed))
        share = (start - low) / (high - low)
        self.raw = nn.Parameter(torch.full((blocks, actions), math.log(share / (1 - share))))

    @property
    def log_sd(self) -> Tensor:
        """(M, na)"""
        low, high = self.bounds
        return low + (high - low) * torch.sigmoid(self.raw)

    def forward(self, x: Tensor) -> Tensor:
        block = x[:, -1].long()
        return torch.cat([self.net(torch.cat([x[:, :-1], self.phi[block]], 1)), self.log_sd[block]], 1)


class BlockCritic(nn.Module):
    """Marked observations -> V of their blocks."""

    def __init__(self, body: nn.Sequential, blocks: int, embed: int):
        super().__init__()
        self.body, self.phi = body, nn.Parameter(torch.zeros(blocks, embed))

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.body(torch.cat([x[:, :-1], self.phi[x[:, -1].long()]], 1))
        return found


def log_prob(out: Tensor, a: Tensor) -> Tensor:
    """(n,) of actions, where `out` is mu and log sd."""
    mu, log_sd = out.chunk(2, 1)
    return (-0.5 * ((a - mu) * (-log_sd).exp()).square() - log_sd - 0.5 * math.log(2 * math.pi)).sum(1)


def kl(old: Tensor, new: Tensor) -> Tensor:
    """(n,) KL(old || new)."""
    (mu, a), (nu, b) = old.chunk(2, 1), new.chunk(2, 1)
    return (b - a - 0.5 + 0.5 * ((2 * (a - b)).exp() + ((mu - nu) * (-b).exp()).square())).sum(1)


def leaders(net: Actor, phi: Tensor, mirror: Mirror | None) -> Actor:
    """The net of one block by itself: W (o, phi) + b = W_o o + (b + W_phi phi)."""
    body = deepcopy(net.body)
    first, k = body[0], len(phi)
    assert isinstance(first, nn.Linear)
    with torch.no_grad():
        first.bias.add_(first.weight[:, -k:] @ phi)
        first.weight = nn.Parameter(first.weight[:, :-k].clone())
    first.in_features -= k
    return Actor(body, mirror, activation=net.activation)


@dataclass(frozen=True)
class Exploring:
    """How the envs of a rollout are driven: each by its own block's policy. A value, which a worker elsewhere can have."""

    see: Normaliser
    actor: BlockActor
    raw: bool
    """whether observations are kept as they are, not normalised"""

    @torch.no_grad()  # a setting of the thread, and each block of envs has its own
    def __call__(self, obs: Obs, draws: Draws) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        raw = torch.from_numpy(obs["actor"])
        seen = self.see(raw)
        head = self.actor(marked(seen, torch.from_numpy(draws["block"].copy())))
        mu, log_sd = head.chunk(2, 1)
        action = torch.addcmul(mu, log_sd.exp(), torch.from_numpy(draws["noise"]))
        kept = {"actor": raw if self.raw else seen, "head": head, "action": action}
        return action.numpy(), {k: v.numpy() for k, v in kept.items()}


class SAPG(OnPolicy):
    """The state of learning. Observations of a batch are marked with the block whose policy they are learned for."""

    settings: SAPGSettings
    actor: BlockActor
    flag = "sapg."
    facts = ("policy_loss", "value_loss", "entropy", "kl")

    def __init__(self, env: Envs, settings: SAPGSettings, seed: int, ranges: Ranges | None = None):
        check_continuous(env.task, "sapg")
        if env.n < settings.blocks:
            raise SurefootError(f"sapg.envs: expected at least one for each of {settings.blocks} blocks, found {env.n}")
        self.leader = settings.blocks - 1
        self.block = torch.arange(env.n) * settings.blocks // env.n
        """(n,) of each env"""
        self.weights = torch.linspace(settings.entropy, 0.0, settings.blocks)
        """c_m"""
        OnPolicy.__init__(self, env, settings, seed, ranges)

    def _build(self) -> None:
        s, task = self.settings, self.env.task
        rng = torch.Generator().manual_seed(key(self.seed, "weights") >> 1)
        actor, critic = (task.observations[g].dim for g in ("actor", "critic"))
        m = self.mirror = task.symmetry.of(task.observations["actor"]) if s.symmetric and task.symmetry else None
        both = None
        if m is not None:  # phi has no side
            order, sign = np.concatenate([m.obs_order, actor + np.arange(s.embed)]), np.ones(s.embed)
            both = Mirror(order, np.concatenate([m.obs_sign, sign]), m.action_order, m.action_sign)
        actions = len(task.action.names)
        body = mlp(actor + s.embed, s.hidden, actions, s.activation, 0.01, rng)
        own = BlockActor(Actor(body, both, activation=s.activation), s.blocks, s.embed, actions, s.spread)
        value = BlockCritic(mlp(critic + s.embed, s.hidden, 1, s.activation, 1.0, rng), s.blocks, s.embed)
        with torch.no_grad():  # blocks differ from the start
            for net in (own, value):
                net.phi.normal_(generator=rng)
        self._assemble(own, value, m)
        self.apart = [self.learned]

    # acting

    def explore(self, raw: bool) -> Exploring:
        return Exploring(self.see_actor, self.actor, raw)

    def draws(self, rng: torch.Generator) -> dict[str, np.ndarray]:
        shape = self.settings.horizon, self.env.n
        noise = torch.randn((*shape, len(self.env.task.action.names)), generator=rng)
        return {"noise": noise.numpy(), "block": np.broadcast_to(self.block.numpy(), shape)}

    def likelihood(self, actor: Tensor, head: Tensor, action: Tensor) -> Tensor:
        return log_prob(head, action)

    def heads(self, seen: Tensor) -> Tensor:
        return OnPolicy.heads(self, marked(seen, self.block))

    # learning

    def seen_by_critic(self, obs: Tensor, rows: Tensor | slice) -> Tensor:
        return marked(self.see_critic(obs), self.block[rows])

    @torch.no_grad()
    def estimate(self, r: Batch) -> tuple[Tensor, Tensor]:
        """Of each block's own steps as ever; what is lent to the leader joins the batch as further simulations."""
        adv, returns = self._advantages(r)
        r.actor = marked(r.actor, self.block)
        rows = self.lenders()
        if len(rows):
            more, one_step = self._of_leader(r, rows)
            adv, returns = torch.cat([adv, more], 1), torch.cat([returns, one_step], 1)
            self._lend(r, rows)
        return self._scaled(r, adv, returns)

    def lenders(self) -> Tensor:
        """Envs of the followers that the leader learns from in this iteration."""
        rng = torch.Generator().manual_seed(key(self.seed, "lent", self.iteration) >> 1)
        chosen = torch.randperm(self.leader, generator=rng)[: self.settings.lent]
        return torch.isin(self.block, chosen).nonzero()[:, 0]

    def _of_leader(self, r: Batch, rows: Tensor) -> tuple[Tensor, Tensor]:
        """(T, k) what steps of envs `rows` were worth to the leader: advantages and returns of one step, in units of reward."""
        mean, sd = self.returns.mean.float(), self.returns.sd.float()
        value = self._values(relabelled(r.critic[:, rows], self.leader).flatten(0, 1))
        value = value.reshape(len(r.critic), -1) * sd + mean
        after = value[1:] * (1.0 - r.terminated[:, rows] * r.final[:, rows])
        for t, late, obs in r.last:
            here = torch.isin(late, rows)
            if here.any():
                seen = marked(self.see_critic(obs[here]), torch.tensor(self.leader))
                after[t, torch.searchsorted(rows, late[here])] = self.critic(seen)[:, 0] * sd + mean
        returns = r.reward[:, rows] + self.settings.gamma * after
        return (returns - value[:-1]) * r.valid[:, rows], returns

    def _lend(self, r: Batch, rows: Tensor) -> None:
        """Envs `rows` once more, as the leader's: what it would have said, with the log-probability of who acted."""
        actor = relabelled(r.actor[:, rows], self.leader)
        more = {"actor": actor, "critic": relabelled(r.critic[:, rows], self.leader)}
        more["head"] = self.actor(actor.flatten(0, 1)).reshape(*actor.shape[:2], -1)
        for k in (
            "actor",
            "critic",
            "action",
            "head",
            "log_prob",
            "reward",
            "terminated",
            "truncated",
            "final",
            "valid",
        ):
            was = getattr(r, k)
            setattr(r, k, torch.cat([was, more.get(k, was[:, rows])], 1))

    def _gradient(self, chunk: Sequence[Tensor], share: float, before: Tensor) -> Gradient:
        """What a chunk adds to its gradient, losses, entropy and KL. Lent steps weigh as much as own ones; c_M is 0."""
        s = self.settings
        obs, critic_obs, action, old = chunk[:4]
        old_log_prob, adv, target, weight = (c[:, 0] for c in chunk[4:])
        out = self.actor(obs)
        ratio = (log_prob(out, action) - old_log_prob).exp()
        gain = torch.minimum(ratio * adv, ratio.clamp(1 - s.clip, 1 + s.clip) * adv)
        policy_loss = -(gain * weight).sum()
        value_loss = ((self.critic(critic_obs)[:, 0] - target).square() * weight).sum()
        entropy = (out.chunk(2, 1)[1] + 0.5 * math.log(2 * math.pi * math.e)).sum(1)
        bonus = (self.weights[obs[:, -1].long()] * entropy * weight).sum()
        gradients = torch.autograd.grad(policy_loss + s.value * value_loss - bonus, self.learned)
        with torch.no_grad():
            moved = (kl(old, out) * weight).sum()
        return gradients, torch.stack([policy_loss, value_loss, (entropy * weight).sum(), moved]).detach()

    @property
    def target_kl(self) -> float:
        return self.settings.kl * (1 - self.settings.settle * self.late)

    # what was learned

    def more_facts(self, r: Batch) -> dict[str, float]:
        sd = self.actor.log_sd.detach().exp().mean(1)
        own = summary([e.of((self.block == self.leader).numpy()) for e in r.episodes])
        found = {f"leader_{k}": v for k, v in own.items() if k in ("return", "success")}
        return {"sd": float(sd[-1]), "sd_followers": float(sd[:-1].mean()), **found}

    def policy(self, contract: Contract) -> PolicyNet:
        """The leader."""
        scales = self.see_actor.mean.float().numpy(), self.see_actor.sd.float().numpy()
        return PolicyNet(contract, leaders(self.actor.net, self.actor.phi[self.leader].detach(), self.mirror), scales)
