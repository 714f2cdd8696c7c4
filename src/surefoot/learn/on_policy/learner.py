"""What every on-policy learner shares: batches of the newest policy, generalised advantages, gradient steps, exact resume.

    A_t = sum_k (gamma lam)^k delta_{t+k},   delta_t = r_t + gamma V(s_{t+1}) (1 - terminated) - V(s_t)
    V by least squares on A + V;    how the policy follows A is each algorithm's own (ppo.py, sapg.py, fpo.py)

Time-outs bootstrap (their last state's value is added), terminations do not. The critic may see more than the actor.
A transition from a diverged simulation weighs nothing. An update that is not finite is undone and the step size halved.
"""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from surefoot.env import Episodes
from surefoot.errors import SurefootError
from surefoot.learn.chunks import MOST, Chunks, added
from surefoot.learn.collect import Act, Collector, Elsewhere, Envs, Obs, Rollout, collector_of, summary
from surefoot.learn.learner import Auxiliary, NetLearner, Saved, under
from surefoot.learn.nets import Normaliser, SymmetricNormaliser, tensor
from surefoot.learn.on_policy.group import ALONE, Group
from surefoot.learn.ranges import Ranges, begun, grown
from surefoot.learn.settings import OnPolicySettings
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
    head: Tensor  # what the actor said, such as means or logits
    log_prob: Tensor  # (T, n), as the rest; or a few numbers of each step, where that is what a ratio is made of
    reward: Tensor
    terminated: Tensor
    truncated: Tensor
    final: Tensor
    valid: Tensor
    last: list[tuple[int, Tensor, Tensor]]  # (t, rows, critic obs) of time-outs
    episodes: list[Episodes]


Gradient = tuple[Sequence[Tensor | None], Tensor]
"""gradients of what is learned, and what to log: a chunk's share of both"""


def table_of(r: Batch, adv: Tensor, target: Tensor) -> tuple[Tensor, list[int]]:
    """All that a gradient step needs of a batch, a row for each env step, and the widths of its columns."""
    columns = [x.reshape(r.reward.numel(), -1) for x in (r.actor, r.critic[:-1], r.action, r.head, r.log_prob, adv, target, r.valid)]  # fmt: skip
    return torch.cat(columns, 1), [x.shape[1] for x in columns]


class SharedUpdate(Protocol):
    """Others who take part in updates (cluster/peers.py)."""

    def steps(self, learner: "OnPolicy", table: Tensor, widths: list[int], before: Tensor) -> list[Tensor]: ...


class OnPolicy(NetLearner):
    """The state of learning: nets, normalisers, optimiser, and where the envs stand.

    `_build` of an algorithm makes the nets: actor, critic, see_actor, see_critic, returns, and `modules` of all of them;
    `learned`, their parameters; `apart`, groups of these whose gradients are clipped each by themselves; the optimiser.
    What is `beside` gets each rollout before it is learned from.
    """

    settings: OnPolicySettings
    collector: Collector
    actor: nn.Module
    critic: nn.Module
    see_actor: Normaliser
    see_critic: Normaliser
    returns: Normaliser
    learned: list[nn.Parameter]
    apart: list[list[nn.Parameter]]
    optimiser: torch.optim.Optimizer
    peers: SharedUpdate | None = None

    def __init__(
        self,
        env: Envs,
        settings: OnPolicySettings,
        seed: int,
        ranges: Ranges | None = None,
        beside: Auxiliary | None = None,
    ):
        self.chunks, self.beside, self.found_beside = Chunks(settings.learner_threads), beside, dict[str, float]()
        self.env, self.settings, self.seed, self.ranges = env, settings, seed, ranges
        begun(ranges, env)
        self.iterations, self.batch, self.lr = settings.iterations, settings.batch, settings.lr
        self.device = env.device if isinstance(env, Elsewhere) else "cpu"
        self._build()
        if beside is not None:
            beside.meet(self, self.actor, self.see_actor)
        self.collector = collector_of(env)

    # each algorithm's own

    @abstractmethod
    def _build(self) -> None: ...

    def _assemble(self, actor: nn.Module, critic: nn.Module, mirror: Mirror | None, **more: nn.Module) -> None:
        """The nets, normalisers of what they observe and of returns, and the optimiser of all that is learned."""
        seen, judged = (self.env.task.observations[g].dim for g in ("actor", "critic"))
        self.actor, self.critic = actor, critic
        self.see_actor = SymmetricNormaliser(seen, mirror) if mirror else Normaliser(seen)
        self.see_critic, self.returns = Normaliser(judged), Normaliser(1)
        self.modules = nn.ModuleDict({
            "actor": actor, **more, "critic": critic,
            "see_actor": self.see_actor, "see_critic": self.see_critic, "returns": self.returns,
        })  # fmt: skip
        self.modules.to(self.device)
        self.learned = list(self.modules.parameters())
        self.optimiser = torch.optim.Adam(self.learned, self.lr, fused=True)

    @abstractmethod
    def explore(self, raw: bool) -> Act:
        """How the envs of a rollout are driven; keeps `actor`, normalised or `raw`, `action` and `head` of each step."""

    @abstractmethod
    def draws(self, rng: torch.Generator) -> dict[str, np.ndarray]:
        """What chance gives a rollout, (T, n, .) each."""

    @abstractmethod
    def likelihood(self, actor: Tensor, head: Tensor, action: Tensor) -> Tensor:
        """What the ratio is made of, of rows: the log-probability of actions."""

    @abstractmethod
    def _gradient(self, chunk: Sequence[Tensor], share: float, before: Tensor) -> Gradient:
        """What a chunk, a share of a minibatch, adds to its gradient; to log: `facts`, of which the last is the KL."""

    @property
    @abstractmethod
    def facts(self) -> tuple[str, ...]:
        """Names of what `_gradient` has to log."""

    @property
    @abstractmethod
    def target_kl(self) -> float:
        """KL of a gradient step that the step size follows; 0: it stays."""

    def sent(self, action: np.ndarray) -> np.ndarray:
        """What an env gets for actions of a batch, before it limits them."""
        return action

    def before(self) -> Tensor:
        """What a gradient must know of the policy as it was, beside what each row has."""
        return torch.zeros(0)

    def seen_by_critic(self, obs: Tensor, rows: Tensor | slice) -> Tensor:
        """Critic observations (..., k, .) of envs `rows`, as the critic sees them."""
        return self.see_critic(obs)

    def more_facts(self, r: Batch) -> dict[str, float]:
        """What else to log of an iteration."""
        return {}

    # the loop's iteration

    def iterate(self) -> dict[str, float]:
        """One batch and its gradient steps; returns what to log."""
        rollout = self.collect()
        adv, target = self.estimate(rollout)
        losses = self.update(rollout, adv, target)
        more = self.found_beside | self.more_facts(rollout)
        self.iteration += 1
        return losses | summary(rollout.episodes) | grown(self.ranges, self.env, rollout.episodes) | self.collector.terms | {
            "steps": self.iteration * self.settings.batch,
            "reward": float(rollout.reward.mean()) / self.env.world.dt,
            "diverged": self.env.diverged,
            "lr": self.lr,
        } | more  # fmt: skip

    @property
    def obs(self) -> Obs:
        """What the envs showed last."""
        return self.collector.obs

    @torch.no_grad()
    def collect(self) -> Batch:
        first = not self.see_actor.count
        self._see(self.obs)
        rng = torch.Generator().manual_seed(key(self.seed, "act", self.iteration) >> 1)
        groups = ("critic", *(self.beside.groups if self.beside is not None else ()))
        r = self.collector.collect(self.explore(raw=first), self.settings.horizon, groups, self.draws(rng))
        if self.beside is not None:
            self.found_beside = self._take(r, self.beside)
        kept = {k: tensor(v) for k, v in r.kept.items()}
        log_prob = self.likelihood(*(kept[k].flatten(0, 1) for k in ("actor", "head", "action")))
        flags = {k: tensor(v).float() for k, v in r.flags.items()}
        last = [(t, tensor(rows), tensor(obs["critic"])) for t, rows, obs in r.last]
        batch = Batch(
            critic=tensor(r.obs["critic"]), reward=tensor(r.reward),
            log_prob=log_prob.reshape(*r.reward.shape, *log_prob.shape[1:]), last=last, episodes=r.episodes, **kept, **flags,
        )  # fmt: skip
        if first:
            self._look_again(batch)
        return batch

    @torch.enable_grad()
    def _take(self, r: Rollout, beside: Auxiliary) -> dict[str, float]:
        return beside.take(r, self.iteration, self.iterations)

    def _look_again(self, r: Batch) -> None:
        """The first batch as it looks once all of it has been seen; its log-probabilities stay those it was acted with.

        Where an episode begins nothing moves and no action was taken: to a normaliser that has seen only that, all
        that follows is far out, and the first gradient steps would be taken on it.
        """
        if len(r.actor) > 1:
            self.see_actor.update(r.actor[1:].flatten(0, 1))
            self.see_critic.update(r.critic[1:-1].flatten(0, 1))
        r.actor = self.see_actor(r.actor)
        r.head = self.heads(r.actor).reshape(r.head.shape)

    def heads(self, seen: Tensor) -> Tensor:
        """What the actor says of normalised observations (T, n, .), row by row."""
        found: Tensor = self.actor(seen.flatten(0, 1))
        return found

    def _see(self, obs: Mapping[str, np.ndarray]) -> None:
        """Normalisers learn from the whole first batch, then from one frame an iteration."""
        self.see_actor.update(tensor(obs["actor"]))
        self.see_critic.update(tensor(obs["critic"]))

    @torch.no_grad()
    def estimate(self, r: Batch) -> tuple[Tensor, Tensor]:
        """Advantages, normalised, and targets in the value net's own units; r.critic becomes what the critic sees."""
        return self._scaled(r, *self._advantages(r))

    def _advantages(self, r: Batch) -> tuple[Tensor, Tensor]:
        """(T, n) advantages and returns, in units of reward."""
        s = self.settings
        r.critic = self.seen_by_critic(r.critic, slice(None))
        mean, sd = self.returns.mean.float(), self.returns.sd.float()
        value = self._values(r.critic.flatten(0, 1)).reshape(s.horizon + 1, -1) * sd + mean
        after = value[1:].clone() * (1.0 - r.terminated * r.final)
        for t, rows, obs in r.last:
            after[t, rows] = self.critic(self.seen_by_critic(obs, rows))[:, 0] * sd + mean
        return advantages(r.reward, value[:-1], after, r.final, s.gamma, s.lam, r.valid)

    def _scaled(self, r: Batch, adv: Tensor, returns: Tensor) -> tuple[Tensor, Tensor]:
        good = r.valid.bool()
        self.returns.update(returns[good][:, None])
        target = (returns - self.returns.mean.float()) / self.returns.sd.float()
        return (adv - adv[good].mean()) / (adv[good].std() + 1e-8), target

    def _values(self, seen: Tensor) -> Tensor:
        """(k, 1) of rows as the critic sees them, in its own unit."""
        return torch.cat(self.chunks.each(torch.no_grad()(self.critic), seen.split(MOST)))

    def update(self, r: Batch, adv: Tensor, target: Tensor) -> dict[str, float]:
        """Epochs of minibatches. If not finite, undone and the step size halved; three in a row stop the run."""
        memory, lr = self.memory(), self.lr
        before, (table, widths) = self.before(), table_of(r, adv, target)
        if self.peers is None:
            totals = self.steps(table, widths, before)
        else:
            totals = self.peers.steps(self, table, widths, before)
        mean = torch.stack(totals).mean(0)
        after, self.lr = self.lr, lr
        if self.kept(memory, mean):
            self.lr = after
        return dict(zip(self.facts, mean.tolist())) | {"rejected": self.rejected}

    def halve(self) -> float:
        self.lr /= 2
        return self.lr

    @property
    def optimisers(self) -> Sequence[torch.optim.Optimizer]:
        return (self.optimiser,)

    def steps(self, table: Tensor, widths: list[int], before: Tensor, group: Group = ALONE) -> list[Tensor]:
        """A gradient step for each minibatch of a batch's rows, here those of one rank; what each has to log."""
        return [self._gradient_step(batch, before, group) for batch in self._minibatches(table, widths, group)]

    def _minibatches(self, table: Tensor, widths: list[int], group: Group = ALONE) -> Iterator[list[Tensor]]:
        s, name = self.settings, f"shuffle {group.rank}" if group.rank else "shuffle"
        for epoch in range(s.epochs):
            rng = torch.Generator().manual_seed(key(self.seed, name, self.iteration * s.epochs + epoch) >> 1)
            order = torch.randperm(len(table), generator=rng)
            parts = order.chunk(s.minibatches) if group.size == 1 else order.tensor_split(s.minibatches)
            for part in parts:
                yield list(table.index_select(0, part.to(table.device)).split(widths, 1))

    def _gradient_step(self, batch: list[Tensor], before: Tensor, group: Group = ALONE) -> Tensor:
        *columns, valid = batch
        count, rows = group.total([float(valid.sum()), len(valid)])
        weighed = [*columns, valid / torch.tensor(max(count, 1.0))]
        parts = list(zip(*(x.chunk(self.chunks.count(len(valid))) for x in weighed)))
        found = self.chunks.each(lambda part: self._gradient(part, len(part[0]) / rows, before), parts)
        losses = torch.stack([part for _, part in found]).sum(0)
        gradients, losses = group.summed(added(gradients for gradients, _ in found), losses)
        if group.rank == 0:
            self._step(gradients, float(losses[-1]))
        group.follow(self.learned)
        return losses

    def _step(self, gradients: Sequence[Tensor | None], kl: float) -> None:
        for p, gradient in zip(self.learned, gradients):
            p.grad = gradient
        for some in self.apart:
            nn.utils.clip_grad_norm_(some, self.settings.clip_gradient)
        self._pace(kl)
        self.optimiser.step()

    @property
    def late(self) -> float:
        """0 at the start, 1 at the end. While ranges grow there is still much to learn, however late it is: it follows them."""
        share = min(1.0, self.iteration / self.settings.iterations)
        return share * (self.ranges.facts()["width"] if self.ranges else 1.0)

    def _pace(self, kl: float) -> None:
        """Follow the trust region: a step size that keeps the KL of a batch's steps near the one asked for."""
        wanted, lr = self.target_kl, self.settings.lr
        if wanted > 0:
            if kl > 2 * wanted:
                self.lr = max(min(1e-5, lr), self.lr / 1.5)
            elif 0 <= kl < wanted / 2:
                self.lr = min(max(1e-2, lr), self.lr * 1.5)
        self.optimiser.param_groups[0]["lr"] = self.lr

    # what was learned, and checkpoints

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

    def products(self) -> Mapping[str, bytes]:
        return {} if self.beside is None else self.beside.products()

    def save(self) -> Saved:
        arrays, numbers = super().save()
        arrays |= {} if self.beside is None else {f"beside.{k}": v for k, v in self.beside.save().items()}
        return arrays, numbers | {"lr": self.lr}

    def load(self, arrays: Mapping[str, np.ndarray], numbers: Mapping[str, Any]) -> None:
        super().load(arrays, numbers)
        if self.beside is not None:
            self.beside.load(under("beside.", arrays))
        self.lr = float(numbers["lr"])
