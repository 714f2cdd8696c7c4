"""What every off-policy learner shares: acting into a replay, gradient steps on samples of it, and exact resume with it.

    y = R + gamma^k Z(o_k, pi(o_k))        R, k: the replay's n-step returns; Z: what the target critics say
    theta <- theta - lr dL(Z(o, a), y);    target <- target + tau (theta - target)        likewise the actor that is exported

Critics may see more than the actor. Failures bootstrap nothing, time-outs the value of their last state. An iteration whose
nets are not finite is undone and the step size halved.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from surefoot.belief import Belief
from surefoot.contract import Contract
from surefoot.errors import SurefootError
from surefoot.learn.chunks import Chunks, added
from surefoot.learn.collect import Draws, Envs, Obs, Rollout, collector_of, summary
from surefoot.learn.learner import PolicyLearner, Saved
from surefoot.learn.nets import ACTIVATIONS, Actor, Normaliser, SymmetricNormaliser, adam_state, mlp, restore_adam
from surefoot.learn.nets.policy_net import PolicyNet
from surefoot.learn.nets.stacked import StackedLinear, stacked_mlp
from surefoot.learn.nets.value_heads import value_head
from surefoot.learn.off_policy.replay import Replay, Sample
from surefoot.learn.off_policy.settings import OffPolicySettings
from surefoot.learn.ranges import Ranges, begun, grown
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


class OffPolicy(PolicyLearner):
    """The state of learning: nets, normalisers, optimisers, the replay, and where the envs stand.

    Actions u of nets and replay lie within +-1; the env gets limit * u.
    """

    heads: int = 1
    """numbers that the actor's net gives for each action"""

    def __init__(self, env: Envs, settings: OffPolicySettings, seed: int, ranges: Ranges | None = None):
        task = env.task
        if task.action.choices:
            words = "chooses among few actions; expected continuous ones: --learner ppo"
            raise SurefootError(f"learner: {settings.learner}: {task.name} {words}")
        self.chunks = Chunks(settings.learner_threads)
        self.env, self.settings, self.seed, self.ranges = env, settings, seed, ranges
        begun(ranges, env)
        self.iterations, self.batch = settings.iterations, settings.batch
        self.slower, self.rejected = 1.0, 0  # factor of the step size; iterations in a row that were undone
        self.limit, self.actions = task.action.limit, len(task.action.names)
        self._build()
        widths = [task.observations[g].dim for g in ("actor", "critic")]
        self.replay = Replay(env.n, settings.replay, [*widths, self.actions], f"{settings.learner}.replay")
        self.collector = collector_of(env)

    def _build(self) -> None:
        s, task = self.settings, self.env.task
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

    def iterate(self) -> dict[str, Any]:
        rollout = self.collect()
        self.replay.add(rollout)
        learned = self.learn() if self.warm else {}
        self.iteration += 1
        return learned | summary(rollout.episodes) | grown(self.ranges, self.env, rollout.episodes) | self.collector.terms | {
            "steps": self.iteration * self.batch,
            "reward": float(rollout.reward.mean()) / self.env.world.dt,
            "diverged": self.env.diverged,
            "replay": int(self.replay.count.sum()),
        }  # fmt: skip

    @property
    def warm(self) -> bool:
        """Whether there is enough to learn from."""
        return (self.iteration + 1) * self.batch >= self.settings.warm_up

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
        before = {k: v.clone() for k, v in self.state_dict().items()}
        rng = torch.Generator().manual_seed(key(self.seed, "replay", self.iteration) >> 1)
        self._pace()
        critic, actor = [], []
        acts = (self.iteration + 1) * self.batch >= s.actor_after
        for k in range(s.updates):
            parts = self._drawn(rng)
            told = self._step(self.critic_gradient, parts, self.critic_params, self.critic_optimiser)
            critic.append(torch.stack([*told[:, :2].sum(0), told[:, 2].min(), told[:, 3].max()]))
            if acts and (self.iteration * s.updates + k) % s.actor_every == 0:
                actor.append(self._step(self.actor_gradient, parts, self.actor_params, self.actor_optimiser).sum(0))
            self._follow()
        facts = torch.stack(critic)
        if not all(bool(p.isfinite().all()) for p in (facts, *self.critic_params, *self.actor_params)):
            self._undo(before)
            return {"rejected": self.rejected}
        self.rejected = 0
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
        return torch.stack([told for _, told in found])

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

    def _pace(self) -> None:
        """The step size falls to a tenth, evenly."""
        late = min(1.0, self.iteration / self.iterations)
        for optimiser in (self.critic_optimiser, self.actor_optimiser):
            for group in optimiser.param_groups:
                group["lr"] = self.slower * self.settings.lr * (1 - 0.9 * late)

    @property
    def penalty(self) -> float:
        """c of the actor's squared outputs, now."""
        return self.settings.action_penalty * max(0.0, 1 - 2 * self.iteration / self.iterations)

    def _undo(self, before: Mapping[str, Tensor]) -> None:
        self.load_state_dict(before)
        self.slower, self.rejected = self.slower / 2, self.rejected + 1
        if self.rejected >= 3:
            lr = self.slower * self.settings.lr
            raise SurefootError(
                f"learning broke down: three updates in a row were not finite (lr {lr:.2g}); lower --{self.settings.learner}.lr"
            )

    # what was learned, and checkpoints

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

    @property
    def reached(self) -> Belief | None:
        return None if self.ranges is None else self.ranges.belief

    def state_dict(self) -> dict[str, Tensor]:
        """Nets, normalisers and optimisers by name."""
        state, named = (
            {f"net.{k}": v for k, v in self.modules.state_dict().items()},
            dict(self.modules.named_parameters()),
        )
        return state | adam_state(self.critic_optimiser, named) | adam_state(self.actor_optimiser, named)

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        self.modules.load_state_dict({k.removeprefix("net."): v for k, v in state.items() if k.startswith("net.")})
        named = dict(self.modules.named_parameters())
        for optimiser in (self.critic_optimiser, self.actor_optimiser):
            own = {id(p) for group in optimiser.param_groups for p in group["params"]}
            restore_adam(optimiser, {k: p for k, p in named.items() if id(p) in own}, state)

    def save(self) -> Saved:
        arrays = {k: v.detach().numpy().copy() for k, v in self.state_dict().items()} | self.collector.save()
        arrays |= {f"replay.{k}": v for k, v in self.replay.save().items()}
        if self.ranges is not None:
            arrays |= {f"ranges.{k}": v for k, v in self.ranges.save().items()}
        return arrays, {"iteration": self.iteration, "slower": self.slower, "rejected": self.rejected}

    def load(self, arrays: Mapping[str, np.ndarray], numbers: Mapping[str, Any]) -> None:
        def under(head: str) -> dict[str, np.ndarray]:
            return {k.removeprefix(head): v for k, v in arrays.items() if k.startswith(head)}

        nets = {k: torch.from_numpy(v.copy()) for k, v in arrays.items() if k.startswith(("net.", "adam."))}
        self.load_state_dict(nets)
        self.collector.load(arrays)
        self.replay.load(under("replay."))
        if self.ranges is not None:
            self.ranges.load(under("ranges."))
            self.env.belief = self.ranges.belief
        self.iteration, self.rejected = int(numbers["iteration"]), int(numbers["rejected"])
        self.slower = float(numbers["slower"])
