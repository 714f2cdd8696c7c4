"""FPO, flow policy optimisation: PPO whose policy is a flow, and whose ratio is that of the flow's losses.

    l_i(theta) = loss of v_theta at (eps_i, t_i) / L, i = 1 .. N pairs drawn for each step          nets/flow.py
    L: mean of the losses of a batch before its first gradient step
    FPO:     rho = exp(mean_i (l_i(old) - l_i)),    maximise E[min(rho A, clip(rho, 1 +- eps) A)]
    FPO++:   rho_i = exp(l_i(old) - l_i) each by itself;    A > 0: as above;    A < 0: rho_i A - |A| (rho_i - 1)^2 / (2 eps)

A flow's log-probability is dear; how much better it fits an action than before, pair by pair, bounds how much likelier that
action has become. The sharper a policy, the smaller its losses: without L, a clip that lets a broad one learn lets a sharp one
be undone within a few batches. The square holds back what the clip lets go: how far an action that was bad is pushed away.
Training samples from noise; what is judged and exported begins at one start, zero unless asked otherwise.
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from surefoot.contract import Contract
from surefoot.learn.chunks import MOST
from surefoot.learn.collect import Draws, Envs, Obs
from surefoot.learn.learner import check_continuous
from surefoot.learn.nets import Normaliser, mlp
from surefoot.learn.nets.flow import FlowActor, flow_net
from surefoot.learn.nets.policy_net import PolicyNet
from surefoot.learn.on_policy.learner import Batch, Gradient, OnPolicy
from surefoot.learn.on_policy.settings import FPOSettings
from surefoot.learn.ranges import Ranges
from surefoot.rng import key

LEAST = 1e-6  # of L
FARTHEST = 3.0  # largest magnitude of a pair's log ratio


def surrogate(log_ratio: Tensor, adv: Tensor, clip: float, plus: bool) -> Tensor:
    """(n,) what is maximised, of log ratios (n, N) of pairs and advantages (n,)."""
    if not plus:
        rho = log_ratio.mean(1).exp()
        return torch.minimum(rho * adv, rho.clamp(1 - clip, 1 + clip) * adv)
    rho, a = log_ratio.clamp(-FARTHEST, FARTHEST).exp(), adv[:, None]
    clipped = torch.minimum(rho * a, rho.clamp(1 - clip, 1 + clip) * a)
    held = rho * a - a.abs() * (rho - 1).square() / (2 * clip)
    return torch.where(a > 0, clipped, held).mean(1)


@dataclass(frozen=True)
class Exploring:
    """How the envs of a rollout are driven: by what the flow makes of noise. A value, which a worker elsewhere can have."""

    see: Normaliser
    actor: FlowActor
    spread: float
    raw: bool
    """whether observations are kept as they are, not normalised"""

    @torch.no_grad()  # a setting of the thread, and each block has its own
    def __call__(self, obs: Obs, draws: Draws) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        raw = torch.from_numpy(obs["actor"])
        seen = self.see(raw)
        x = self.actor.sample(seen, torch.from_numpy(draws["noise"].copy()))
        kept = {"actor": raw if self.raw else seen, "head": x[:, :0], "action": x}
        return self.spread * x.numpy(), {k: v.numpy() for k, v in kept.items()}


class FPO(OnPolicy):
    """The state of learning. Actions x of the flow are in units of `spread`: the env gets spread * x."""

    settings: FPOSettings
    actor: FlowActor
    flag = "fpo."
    facts = ("policy_loss", "value_loss", "flow_loss", "kl")
    target_kl = 0.0

    def __init__(self, env: Envs, settings: FPOSettings, seed: int, ranges: Ranges | None = None):
        check_continuous(env.task, "fpo")
        OnPolicy.__init__(self, env, settings, seed, ranges)

    def _build(self) -> None:
        s, task = self.settings, self.env.task
        rng = torch.Generator().manual_seed(key(self.seed, "weights") >> 1)
        actor, critic = (task.observations[g].dim for g in ("actor", "critic"))
        mirror = task.symmetry.of(task.observations["actor"]) if s.symmetric and task.symmetry else None
        actions = len(task.action.names)
        body = flow_net(actor, actions, s.hidden, s.activation, rng)
        flow = FlowActor(body, mirror, actions, 1, s.flow_steps, s.activation)
        self._assemble(flow, mlp(critic, s.hidden, 1, s.activation, 1.0, rng), mirror)
        self.apart = [list(self.actor.parameters()), list(self.critic.parameters())]

    # acting

    def explore(self, raw: bool) -> Exploring:
        return Exploring(self.see_actor, self.actor, self.settings.spread, raw)

    def draws(self, rng: torch.Generator) -> dict[str, np.ndarray]:
        shape = self.settings.horizon, self.env.n, self.actor.width
        return {"noise": torch.randn(shape, generator=rng).numpy()}

    def sent(self, action: np.ndarray) -> np.ndarray:
        return self.settings.spread * action

    def likelihood(self, actor: Tensor, head: Tensor, action: Tensor) -> Tensor:
        return torch.zeros(len(actor))  # collect() has it, once observations are normalised

    def heads(self, seen: Tensor) -> Tensor:
        return seen[..., :0]

    @torch.no_grad()
    def collect(self) -> Batch:
        """A batch, with the pairs of each step as its head, and what their losses are now, negative, as its log-probability."""
        cloned = bool(self.see_actor.count) and not self.returns.count  # the critic has seen nothing yet
        r, s = OnPolicy.collect(self), self.settings
        if cloned:
            self.see_critic.update(r.critic[:-1].flatten(0, 1))
        rng = torch.Generator().manual_seed(key(self.seed, "pairs", self.iteration) >> 1)
        shape = *r.reward.shape, s.pairs
        noise = torch.randn((*shape, self.actor.width), generator=rng)
        one = torch.ones((*r.reward.shape, 1))
        r.head = torch.cat([noise.flatten(2), self.actor.times(shape, rng), one], 2)
        rows = [x.flatten(0, 1).split(MOST // s.pairs) for x in (r.actor, r.action, r.head)]
        found = torch.cat(self.chunks.each(torch.no_grad()(lambda part: self._losses(*part)), list(zip(*rows))))
        unit = found.mean().clamp(min=LEAST)
        r.head[..., -1] = unit
        r.log_prob = -found.reshape(shape) / unit
        return r

    def _losses(self, obs: Tensor, x: Tensor, head: Tensor) -> Tensor:
        """(n, N) in units of L, the last column of `head`."""
        noise, t, unit = head.split([self.settings.pairs * self.actor.width, self.settings.pairs, 1], 1)
        return self.actor.losses(obs, x, noise.reshape(len(x), -1, self.actor.width), t) / unit

    # learning

    def _gradient(self, chunk: Sequence[Tensor], share: float, before: Tensor) -> Gradient:
        """What a chunk adds to its gradient and losses; and how far ratios are from 1, as a KL: mean of rho - 1 - log rho."""
        s = self.settings
        obs, critic_obs, x, head, old = chunk[:5]
        adv, target, weight = (c[:, 0] for c in chunk[5:])
        losses = self._losses(obs, x, head)
        log_ratio = -old - losses
        policy_loss = -(surrogate(log_ratio, adv, s.clip, s.plus) * weight).sum()
        value_loss = ((self.critic(critic_obs)[:, 0] - target).square() * weight).sum()
        share_of_policy = float(self.iteration >= s.wait)
        gradients = torch.autograd.grad(share_of_policy * policy_loss + s.value * value_loss, self.learned)
        with torch.no_grad():
            mean = log_ratio.mean(1)
            kl = ((mean.exp() - 1 - mean) * weight).sum()
            flow = (losses.mean(1) * head[:, -1] * weight).sum()
        return gradients, torch.stack([policy_loss, value_loss, flow, kl]).detach()

    def _pace(self, kl: float) -> None:
        """The step size falls to a tenth, evenly."""
        self.optimiser.param_groups[0]["lr"] = self.lr * (1 - 0.9 * self.late)

    # what was learned

    def adopt(self, arrays: Mapping[str, np.ndarray], where: str) -> None:
        """Begin with the actor and normaliser of a clone; the rest stays as it is."""
        own = {f"net.{k}": v.numpy() for k, v in self.modules.state_dict().items()}
        OnPolicy.adopt(self, own | dict(arrays), where)

    def policy(self, contract: Contract) -> PolicyNet:
        """The flow from one start: the clone's, where it began with one."""
        scales = self.see_actor.mean.float().numpy(), self.see_actor.sd.float().numpy()
        actor, rng = deepcopy(self.actor), torch.Generator().manual_seed(key(self.seed, "start") >> 1)
        if not actor.start.any():
            actor.start.copy_(self.settings.start * torch.randn(actor.width, generator=rng))
        return PolicyNet(contract, actor, scales, None, self.settings.spread)
