"""Proximal policy optimisation: clipped surrogate, generalised advantages, one file top to bottom.

    A_t = sum_k (gamma lam)^k delta_{t+k},   delta_t = r_t + gamma V(s_{t+1}) (1 - terminated) - V(s_t)
    maximise E[min(rho A, clip(rho, 1 +- eps) A)] + c H,   rho = pi(a|o) / pi_old(a|o);   V by least squares on A + V

Time-outs bootstrap (their last state's value is added), terminations do not. The critic may see more than the actor.
The step size follows the policy's own KL. A transition from a diverged simulation weighs nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from surefoot.belief import Belief
from surefoot.contract import Contract
from surefoot.env import Episodes
from surefoot.errors import LearningFailed, SurefootError, unknown
from surefoot.learn.chunks import MOST, Chunks, added
from surefoot.learn.collect import Draws, Envs, Obs, Rollout, collector_of, summary
from surefoot.learn.learner import Auxiliary, PolicyLearner, Saved
from surefoot.learn.nets import (
    Actor,
    Categorical,
    Encoder,
    Gaussian,
    Normaliser,
    SymmetricNormaliser,
    adam_state,
    mlp,
    restore_adam,
    unlikely,
)
from surefoot.learn.nets.policy_net import PolicyNet
from surefoot.learn.ranges import Ranges, begun, grown
from surefoot.learn.residual import ResidualActor
from surefoot.learn.settings import PPOSettings
from surefoot.observation import ObsGroup
from surefoot.rng import key
from surefoot.task import Mirror


def advantages(
    reward: Tensor,
    value: Tensor,
    next_value: Tensor,
    done: Tensor,
    gamma: float,
    lam: float,
    valid: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """GAE over (T, n): next_value is V(s_{t+1}), 0 after termination, V(last state) after time-out; done ends a sum.

    A transition that is not valid says nothing of those before it, either: its delta is 0.
    """
    delta = reward + gamma * next_value - value
    delta = delta if valid is None else delta * valid
    keep = gamma * lam * (1.0 - done)
    out = torch.empty_like(reward)
    running = torch.zeros_like(reward[0])
    for t in reversed(range(len(reward))):
        running = delta[t] + keep[t] * running
        out[t] = running
    return out, out + value


@dataclass
class Batch:
    """T steps of n simulations, to learn from. Observations are kept normalised as they were acted on."""

    actor: Tensor  # (T, n, .)
    critic: Tensor  # (T + 1, n, .)
    action: Tensor
    head: Tensor  # what the actor said: means or logits
    log_prob: Tensor  # (T, n), as the rest
    reward: Tensor
    terminated: Tensor
    truncated: Tensor
    final: Tensor
    valid: Tensor
    last: list[tuple[int, Tensor, Tensor]]  # (t, rows, critic obs) of time-outs
    episodes: list[Episodes]


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
        raw = torch.from_numpy(obs["actor"])
        seen = self.see(raw)
        head = self.actor(seen)
        action = self.head.sample(head, torch.from_numpy(draws["noise"]))
        f = action.numpy()
        kept = {"actor": raw if self.raw else seen, "head": head, "action": action}
        return f if self.upon is None else self.upon(obs["actor"], f), {k: v.numpy() for k, v in kept.items()}


class PPO(PolicyLearner):
    """The state of learning: nets, normalisers, optimiser, and where the envs stand.

    With a base to stand `upon`, what is learned, and what the nets here say, is the residual. What is `beside` gets each
    rollout before it is learned from.
    """

    def __init__(
        self,
        env: Envs,
        settings: PPOSettings,
        seed: int,
        ranges: Ranges | None = None,
        upon: ResidualActor | None = None,
        beside: Auxiliary | None = None,
    ):
        self.chunks, self.beside = Chunks(settings.learner_threads), beside
        self.env, self.settings, self.seed, self.ranges, self.upon = env, settings, seed, ranges, upon
        begun(ranges, env)
        self.iterations, self.batch, self.lr = settings.iterations, settings.batch, settings.lr
        self.rejected = 0
        self._build()
        if beside is not None:
            beside.meet(self, self.actor, self.see_actor)
        self.collector = collector_of(env)

    def _build(self) -> None:
        s, task = self.settings, self.env.task
        rng = torch.Generator().manual_seed(key(self.seed, "weights") >> 1)
        dims = {g: group.dim for g, group in task.observations.items()}
        mirror = task.symmetry.of(task.observations["actor"]) if s.symmetric and task.symmetry else None
        self.head: Categorical | Gaussian = (
            Categorical(task.action.choices)
            if task.action.choices
            else Gaussian(len(task.action.names), s.spread[0], s.spread[2], s.spread[1])
        )
        last = 0.01 if self.upon is None else 0.0
        self.truth = truth_columns(task.observations["critic"], s.estimate)
        self.actor = actor_net(task.observations["actor"], s, self.head.outputs, mirror, rng, last, len(self.truth))
        self.critic = mlp(dims["critic"], s.hidden, 1, s.activation, 1.0, rng)
        self.see_actor = SymmetricNormaliser(dims["actor"], mirror) if mirror else Normaliser(dims["actor"])
        self.see_critic = Normaliser(dims["critic"])
        self.returns = Normaliser(1)
        self.modules = torch.nn.ModuleDict({
            "actor": self.actor, "head": self.head, "critic": self.critic,
            "see_actor": self.see_actor, "see_critic": self.see_critic, "returns": self.returns,
        })  # fmt: skip
        self.learned = list(self.modules.parameters())
        estimates = self.actor.encoder is not None and len(self.truth) > 0
        own = (
            {id(p) for p in self.actor.encoder.parameters()} if estimates and self.actor.encoder is not None else set()
        )
        self.apart = [[p for p in self.learned if (id(p) in own) == estimating] for estimating in (False, True)]
        """what PPO moves, and what learns to estimate: at its own rate, with its own largest gradient"""
        self.optimiser = torch.optim.Adam([{"params": some} for some in self.apart if some], self.lr, fused=True)

    def iterate(self) -> dict[str, float]:
        """One batch and its gradient steps; returns what to log."""
        rollout = self.collect()
        adv, target = self.estimate(rollout)
        losses = self.update(rollout, adv, target)
        if self.upon is not None:
            losses["residual"] = self.upon.settings.scale * float(rollout.head.abs().mean())
        self.iteration += 1
        return losses | self.facts | summary(rollout.episodes) | grown(self.ranges, self.env, rollout.episodes) | self.collector.terms | {
            "steps": self.iteration * self.settings.batch,
            "reward": float(rollout.reward.mean()) / self.env.world.dt,
            "diverged": self.env.diverged,
            "lr": self.lr,
            "sd": float(self.head.log_sd.detach().exp().mean()) if len(self.head.log_sd) else 0.0,
        }  # fmt: skip

    @property
    def obs(self) -> Obs:
        """What the envs showed last."""
        return self.collector.obs

    @torch.no_grad()
    def collect(self) -> Batch:
        first = not self.see_actor.count
        self._see(self.obs)
        rng = torch.Generator().manual_seed(key(self.seed, "act", self.iteration) >> 1)
        noise = self.head.noise(self.settings.horizon, self.env.n, rng)
        act = Exploring(self.see_actor, self.actor, self.head, self.upon, raw=first)
        more = self.beside.groups if self.beside is not None else ()
        r = self.collector.collect(act, self.settings.horizon, ("critic", *more), {"noise": noise.numpy()})
        self.facts = {} if self.beside is None else self._take(r)
        kept = {k: torch.from_numpy(v) for k, v in r.kept.items()}
        log_prob = self.head.log_prob(kept["head"].flatten(0, 1), kept["action"].flatten(0, 1))
        flags = {k: torch.from_numpy(v).float() for k, v in r.flags.items()}
        last = [(t, torch.from_numpy(rows), torch.from_numpy(obs["critic"])) for t, rows, obs in r.last]
        batch = Batch(
            critic=torch.from_numpy(r.obs["critic"]), reward=torch.from_numpy(r.reward),
            log_prob=log_prob.reshape(r.reward.shape), last=last, episodes=r.episodes, **kept, **flags,
        )  # fmt: skip
        if first:
            self._look_again(batch)
        return batch

    @torch.enable_grad()
    def _take(self, r: Rollout) -> dict[str, float]:
        assert self.beside is not None
        return self.beside.take(r, self.iteration, self.iterations)

    def _look_again(self, r: Batch) -> None:
        """The first batch as it looks once all of it has been seen; its log-probabilities stay those it was acted with.

        Where an episode begins nothing moves and no action was taken: to a normaliser that has seen only that, all
        that follows is far out, and the first gradient steps would be taken on it.
        """
        if len(r.actor) > 1:
            self.see_actor.update(r.actor[1:].flatten(0, 1))
            self.see_critic.update(r.critic[1:-1].flatten(0, 1))
        r.actor = self.see_actor(r.actor)
        r.head = self.actor(r.actor.flatten(0, 1)).reshape(r.head.shape)

    def _see(self, obs: Mapping[str, np.ndarray]) -> None:
        """Normalisers learn from the whole first batch, then from one frame an iteration."""
        self.see_actor.update(torch.from_numpy(obs["actor"]))
        self.see_critic.update(torch.from_numpy(obs["critic"]))

    @torch.no_grad()
    def estimate(self, r: Batch) -> tuple[Tensor, Tensor]:
        """Advantages, and targets in the value net's own units; r.critic becomes normalised."""
        s = self.settings
        r.critic = self.see_critic(r.critic)
        mean, sd = self.returns.mean.float(), self.returns.sd.float()
        value = torch.cat(self.chunks.each(torch.no_grad()(self.critic), r.critic.flatten(0, 1).split(MOST)))
        value = value.reshape(s.horizon + 1, -1) * sd + mean
        after = value[1:].clone() * (1.0 - r.terminated * r.final)
        for t, rows, obs in r.last:
            after[t, rows] = self.critic(self.see_critic(obs))[:, 0] * sd + mean
        adv, returns = advantages(r.reward, value[:-1], after, r.final, s.gamma, s.lam, r.valid)
        good = r.valid.bool()
        self.returns.update(returns[good][:, None])
        target = (returns - self.returns.mean.float()) / self.returns.sd.float()
        return (adv - adv[good].mean()) / (adv[good].std() + 1e-8), target

    def update(self, r: Batch, adv: Tensor, target: Tensor) -> dict[str, float]:
        """Epochs of minibatches. If not finite, undone and the step size halved; three in a row stop the run."""
        before, lr = {k: v.clone() for k, v in self.state_dict().items()}, self.lr
        totals: list[Tensor] = []
        old_log_sd = self.head.log_sd.detach().clone()
        for batch in self._minibatches(r, adv, target):
            totals.append(self._gradient_step(batch, old_log_sd))
        mean = torch.stack(totals).mean(0)
        if not (mean.isfinite().all() and all(p.isfinite().all() for p in self.learned)):
            self.load_state_dict(before)
            self.lr, self.rejected = lr / 2, self.rejected + 1
            if self.rejected >= 3:
                raise LearningFailed(
                    f"learning broke down: three updates in a row were not finite (lr {self.lr:.2g}); lower --lr"
                )
        else:
            self.rejected = 0
        names = ("policy_loss", "value_loss", "entropy", *(["estimate_loss"] if len(self.truth) else []), "kl")
        return dict(zip(names, mean.tolist())) | {"rejected": self.rejected}

    def _minibatches(self, r: Batch, adv: Tensor, target: Tensor) -> Iterator[list[Tensor]]:
        s = self.settings
        rows = [r.actor, r.critic[:-1], r.action, r.head, *(x[..., None] for x in (r.log_prob, adv, target, r.valid))]
        widths = [x.shape[-1] for x in rows]
        table = torch.cat([x.reshape(s.batch, -1) for x in rows], 1)
        for epoch in range(s.epochs):
            rng = torch.Generator().manual_seed(key(self.seed, "shuffle", self.iteration * s.epochs + epoch) >> 1)
            for part in torch.randperm(s.batch, generator=rng).chunk(s.minibatches):
                yield list(table.index_select(0, part).split(widths, 1))

    def _gradient_step(self, batch: list[Tensor], old_log_sd: Tensor) -> Tensor:
        *columns, valid = batch
        weighed = [*columns, valid / valid.sum().clamp(min=1.0)]
        parts = list(zip(*(x.chunk(self.chunks.count(len(valid))) for x in weighed)))
        found = self.chunks.each(lambda part: self._gradient(part, len(part[0]) / len(valid), old_log_sd), parts)
        for p, gradient in zip(self.learned, added(gradients for gradients, _ in found)):
            p.grad = gradient
        for some in self.apart:
            torch.nn.utils.clip_grad_norm_(some, self.settings.clip_gradient)
        losses = torch.stack([part for _, part in found]).sum(0)
        self._pace(float(losses[-1]))
        self.optimiser.step()
        return losses

    def _gradient(
        self, chunk: Sequence[Tensor], share: float, old_log_sd: Tensor
    ) -> tuple[Sequence[Tensor | None], Tensor]:
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
            kl = (self.head.kl(old, old_log_sd, out) * weight).sum()
        return gradients, torch.stack([policy_loss, value_loss, entropy, *known, kl]).detach()

    @property
    def waits(self) -> bool:
        """Whether only the critic learns now."""
        parts = (self.upon, self.beside)
        return any(p is not None and p.waits(self.iteration, self.settings.iterations) for p in parts)

    def _pace(self, kl: float) -> None:
        """Follow the trust region: a step size that keeps the KL of a batch's steps near the one asked for.

        While ranges grow there is still much to learn, however late it is: steps become small as far as they have grown.
        """
        s = self.settings
        late = min(1.0, self.iteration / s.iterations) * (self.ranges.facts()["width"] if self.ranges else 1.0)
        wanted = 0.0 if self.waits else s.kl * (1 - s.settle * late)
        if wanted > 0:
            if kl > 2 * wanted:
                self.lr = max(min(1e-5, s.lr), self.lr / 1.5)
            elif 0 <= kl < wanted / 2:
                self.lr = min(max(1e-2, s.lr), self.lr * 1.5)
        self.optimiser.param_groups[0]["lr"] = self.lr

    def policy(self, contract: Contract) -> PolicyNet:
        """The actor as a policy."""
        scales = self.see_actor.mean.float().numpy(), self.see_actor.sd.float().numpy()
        actor = deepcopy(self.actor)  # learning goes on
        if actor.encoder is not None and len(self.truth):
            scale = torch.from_numpy(self.env.task.observations["critic"].scales)[self.truth]
            actor.encoder.unit.copy_(
                torch.stack([self.see_critic.mean[self.truth], self.see_critic.sd[self.truth]]) / scale
            )
        if self.upon is None:
            return PolicyNet(contract, actor, scales)
        return PolicyNet(contract, actor, scales, self.upon.base.net, self.upon.settings.scale)

    def state_dict(self) -> dict[str, Tensor]:
        """Weights, normalisers and optimiser by name."""
        state = {f"net.{k}": v for k, v in self.modules.state_dict().items()}
        return state | adam_state(self.optimiser, dict(self.modules.named_parameters()))

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        self.modules.load_state_dict({k.removeprefix("net."): v for k, v in state.items() if k.startswith("net.")})
        restore_adam(self.optimiser, dict(self.modules.named_parameters()), state)

    def adopt(self, arrays: Mapping[str, np.ndarray], where: str) -> None:
        """Begin with the nets and normalisers of another learner of the same shape; its optimiser stays behind."""
        mine = self.modules.state_dict()
        nets = {k.removeprefix("net."): torch.from_numpy(v.copy()) for k, v in arrays.items() if k.startswith("net.")}
        for k, v in mine.items():
            found = tuple(nets[k].shape) if k in nets else "nothing"
            if found != tuple(v.shape):
                raise SurefootError(
                    f"{where}: its nets do not fit: {k}: expected shape {tuple(v.shape)}, found {found}; "
                    "expected the same observations, history and nets"
                )
        self.modules.load_state_dict(nets)

    @property
    def reached(self) -> Belief | None:
        return None if self.ranges is None else self.ranges.belief

    def products(self) -> Mapping[str, bytes]:
        return {} if self.beside is None else self.beside.products()

    def save(self) -> Saved:
        arrays = {k: v.numpy().copy() for k, v in self.state_dict().items()} | self.collector.save()
        arrays |= {} if self.beside is None else {f"beside.{k}": v for k, v in self.beside.save().items()}
        if self.ranges is not None:
            arrays |= {f"ranges.{k}": v for k, v in self.ranges.save().items()}
        return arrays, {"iteration": self.iteration, "lr": self.lr, "rejected": self.rejected}

    def load(self, arrays: Mapping[str, np.ndarray], numbers: Mapping[str, Any]) -> None:
        nets = {k: torch.from_numpy(v.copy()) for k, v in arrays.items() if k.startswith(("net.", "adam."))}
        self.load_state_dict(nets)
        self.collector.load(arrays)
        if self.beside is not None:
            self.beside.load({k.removeprefix("beside."): v for k, v in arrays.items() if k.startswith("beside.")})
        if self.ranges is not None:
            self.ranges.load({k.removeprefix("ranges."): v for k, v in arrays.items() if k.startswith("ranges.")})
            self.env.belief = self.ranges.belief
        self.iteration, self.rejected = int(numbers["iteration"]), int(numbers["rejected"])
        self.lr = float(numbers["lr"])
