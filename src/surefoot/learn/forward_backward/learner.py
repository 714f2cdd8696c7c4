"""FB: forward-backward representations, learned from a replay without any reward.

z on the sphere |z| = sqrt(d): uniform, or B(g) of a state g that was met        a = pi(o, z) + noise, z asked for a while
F, B <- gradient of L + ortho L_ortho (losses.py) for z drawn anew for each transition; targets follow with tau
pi   <- climbs min_k F_k(s, pi(o, z), z)^T z

Some simulations wander: what was never visited can be asked for in vain. The policy that a run exports is the one for the
task's own reward: z = E[B B^T]^-1 E[B r] over the replay. An iteration whose nets are not finite is undone and the step
size halved.

With motions, the actor also climbs what a discriminator says of their style (style.py), and some z mean windows of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from surefoot.contract import Contract
from surefoot.learn.chunks import added
from surefoot.learn.collect import Draws, Envs, Obs, Rollout
from surefoot.learn.forward_backward.losses import measure_loss, on_sphere, orthonormal_loss, orthonormality, regressed
from surefoot.learn.forward_backward.maps import Maps
from surefoot.learn.forward_backward.settings import FBSettings
from surefoot.learn.forward_backward.style import Motions, Style, judge_loss, windows_z
from surefoot.learn.learner import Saved, under
from surefoot.learn.nets import Actor, Normaliser
from surefoot.learn.nets.policy_net import PolicyNet
from surefoot.learn.off_policy.learner import size
from surefoot.learn.off_policy.replay import Sample
from surefoot.learn.off_policy.replay_learner import ReplayLearner
from surefoot.learn.ranges import Ranges
from surefoot.rng import key

STATES = 8192  # of the replay, for the z of the task's own reward
ASKED = ("z", "stray", "held", "wanders", "age")  # of each simulation: what it is asked for


@dataclass(frozen=True)
class Prompted:
    """How the envs of a rollout are driven. A value, which a worker elsewhere can have."""

    see: Normaliser
    actor: Actor
    limit: float
    keeps: bool
    """also keep the z that was followed; 0 where it wandered"""

    @torch.no_grad()
    def __call__(self, obs: Obs, draws: Draws) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        z, noise, held, wanders = (torch.from_numpy(draws[k]) for k in ("z", "noise", "held", "wanders"))
        x = torch.cat([self.see(torch.from_numpy(obs["actor"])), z], 1)
        u = torch.where(wanders > 0, held, torch.tanh(self.actor(x)) + noise).clamp_(-1, 1)
        keep = torch.cat([u, z * (wanders == 0)], 1) if self.keeps else u
        return self.limit * u.numpy(), {"action": keep.numpy()}


class Part(NamedTuple):
    """A chunk of a sample, which is a batch of its own."""

    b: Sample
    z: Tensor  # (n, d) to learn for
    noise: Tensor  # (n, na) normal
    share: Tensor  # (n, 1) uniform
    followed: Tensor  # (n, d) z that led here; 0 columns without motions
    expert: Tensor  # (n, .) g and z of motions; 0 columns without


class FB(ReplayLearner):
    """The state of learning: maps, optimisers, the replay, where the envs stand and what each is asked for."""

    settings: FBSettings

    def __init__(
        self, env: Envs, settings: FBSettings, seed: int, ranges: Ranges | None = None, motions: Motions | None = None
    ):
        self.motions = motions
        super().__init__(env, settings, seed, ranges)
        self.asked = self._questions()

    def _build(self) -> None:
        s, task = self.settings, self.env.task
        rng = torch.Generator().manual_seed(key(self.seed, "weights") >> 1)
        self.maps = m = Maps(task, s, rng)
        self.modules = nn.ModuleDict({"maps": m})
        self.map_params: list[Tensor]
        self.map_params, self.own = [*m.ahead.parameters(), *m.back.parameters()], list[Tensor](m.actor.parameters())
        self.map_optimiser = torch.optim.AdamW(self.map_params, s.lr, weight_decay=0.0, fused=True)
        self.actor_optimiser = torch.optim.AdamW(self.own, s.lr, weight_decay=0.0, fused=True)
        self.style, self.style_params, self.style_optimiser = None, list[Tensor](), None
        if self.motions is not None:
            critic = task.observations["critic"].dim
            self.style = Style(len(m.columns), critic + m.actions + s.z, s, rng)
            self.modules["style"] = self.style
            self.style_params = [p for p in self.style.parameters() if p.requires_grad]
            self.style_optimiser = torch.optim.AdamW(self.style_params, s.lr, weight_decay=0.0, fused=True)

    @property
    def columns(self) -> int:
        return self.actions if self.motions is None else self.actions + self.settings.z

    # what is asked for

    def _questions(self) -> dict[str, Tensor]:
        """Of each simulation, from now on: z, how far it strays from pi, a random action, and whether it wanders instead."""
        s, n = self.settings, self.env.n
        rng = torch.Generator().manual_seed(key(self.seed, "ask", self.iteration) >> 1)
        stray = s.explore[0] + (s.explore[1] - s.explore[0]) * torch.rand((n, 1), generator=rng)
        z = self._drawn_z(n, self._met(n, rng) if self.warm else None, rng)
        wanders = (torch.rand((n, 1), generator=rng) < s.wander).float() if self.warm else torch.ones(n, 1)
        age = (torch.rand(n, generator=rng) * s.ask_every).long() if self.iteration == 0 else torch.zeros(n).long()
        return {"z": z, "stray": stray, "held": torch.zeros(n, self.maps.actions), "wanders": wanders, "age": age}

    def _met(self, n: int, rng: torch.Generator) -> Tensor:
        """B (n, d) of states of the replay."""
        return self.maps.meaning(self.replay.sample(n, 1, 1.0, rng).critic)

    def _drawn_z(self, n: int, met: Tensor | None, rng: torch.Generator) -> Tensor:
        """(n, d): uniform on the sphere, or of states that were met."""
        z = on_sphere(torch.randn((n, self.settings.z), generator=rng))
        goal = torch.rand((n, 1), generator=rng) < self.settings.goals
        z = z if met is None else torch.where(goal, met, z)
        if self.motions is None or met is None:
            return z
        expert = torch.rand((n, 1), generator=rng) < self.settings.experts
        return torch.where(expert, self._windows(n, rng)[1], z)

    @torch.no_grad()
    def _windows(self, n: int, rng: torch.Generator) -> tuple[Tensor, Tensor]:
        """Of windows of motions: g (n, .) of a state in each, and their z (n, d)."""
        assert self.motions is not None
        m, found = self.maps, self.motions.drawn(n, rng)
        goals = m.goal(m.see_critic(found.flatten(0, 1)))
        which = torch.randint(self.motions.window, (n,), generator=rng)
        g = goals.reshape(n, self.motions.window, -1)[torch.arange(n), which]
        return g, windows_z(m.back(goals).reshape(n, self.motions.window, -1))

    def _ask(self, ended: np.ndarray) -> None:
        """Something else where an episode ended, or where it was asked for long enough."""
        now, age = self.asked, self.asked["age"] + self.settings.horizon
        new = torch.from_numpy(ended) | (age >= self.settings.ask_every)
        fresh = self._questions() if bool(new.any()) else now
        self.asked = {k: torch.where(new.reshape(-1, *[1] * (v.ndim - 1)), fresh[k], v) for k, v in now.items()}
        self.asked["age"] = torch.where(new, 0, age)

    def _draws(self) -> dict[str, np.ndarray]:
        """What chance and the questions give a rollout: each (T, n, .)."""
        s, (n, na) = self.settings, (self.env.n, self.maps.actions)
        rng = torch.Generator().manual_seed(key(self.seed, "act", self.iteration) >> 1)
        noise = self.asked["stray"] * torch.randn((s.horizon, n, na), generator=rng)
        other, keep = 2 * torch.rand((n, na), generator=rng) - 1, torch.rand((n, 1), generator=rng) < 0.5
        self.asked["held"] = torch.where(keep & (self.asked["held"] != 0), self.asked["held"], other)
        each = {k: self.asked[k].expand(s.horizon, -1, -1) for k in ("z", "held", "wanders")}
        return {k: v.contiguous().numpy() for k, v in (each | {"noise": noise}).items()}

    # the loop's iteration

    @property
    def warm(self) -> bool:
        return super().warm and self.iteration > 0

    @torch.no_grad()
    def collect(self) -> Rollout:
        m, seen = self.maps, self.collector.obs
        act = Prompted(m.see_actor, m.actor, m.limit, self.motions is not None)
        m.see_actor.update(torch.from_numpy(seen["actor"]))
        m.see_critic.update(torch.from_numpy(seen["critic"]))
        return self.collector.collect(act, self.settings.horizon, ("actor", "critic"), self._draws())

    def after(self, rollout: Rollout) -> None:
        self._ask(np.asarray(rollout.flags["final"].any(0)))

    def learn(self) -> dict[str, float]:
        """Gradient steps. If nets are not finite after them, undone and the step size halved; three in a row stop the run."""
        s, m = self.settings, self.maps
        before = self.memory()
        rng = torch.Generator().manual_seed(key(self.seed, "replay", self.iteration) >> 1)
        self.pace()
        facts = []
        for _ in range(s.updates):
            parts = self._drawn(rng)
            step = [self._step(self.map_gradient, parts, self.map_params, self.map_optimiser)]
            if self.style_optimiser is not None:
                step.append(self._step(self.style_gradient, parts, self.style_params, self.style_optimiser))
            step.append(self._step(self.actor_gradient, parts, self.own, self.actor_optimiser))
            facts.append(torch.cat(step))
            self._follow()
        means = torch.stack(facts).mean(0)
        if not self.kept(before, means):
            return {"rejected": self.rejected}
        with torch.no_grad():
            largest, rms = orthonormality(m.meaning(self.replay.sample(STATES, 1, 1.0, rng).critic))
        style = () if self.style is None else ("judge_loss", "style_loss", "style_reward")
        names = ("measure_loss", "ortho_loss", *style, "value", "actor_loss")
        return dict(zip(names, means.tolist())) | {"gram_largest": largest, "gram_rms": rms, "rejected": 0}

    def _drawn(self, rng: torch.Generator) -> list[Part]:
        """Chunks of a sample, with what its rows need of chance."""
        s, m = self.settings, self.maps
        b = self.replay.sample(s.samples, 1, s.gamma, rng)
        with torch.no_grad():
            b = b._replace(
                actor=m.see_actor(b.actor), critic=m.see_critic(b.critic),
                next_actor=m.see_actor(b.next_actor), next_critic=m.see_critic(b.next_critic),
            )  # fmt: skip
            met = m.back(m.goal(b.next_critic))[torch.randperm(s.samples, generator=rng)]
        z = self._drawn_z(s.samples, met, rng)
        noise, share = torch.randn((s.samples, m.actions), generator=rng), torch.zeros(s.samples, 0)
        u, followed = b.action[:, : m.actions], b.action[:, m.actions :]
        expert, b = share, b._replace(action=u)
        if self.motions is not None:
            share = torch.rand((s.samples, 1), generator=rng)
            expert = torch.cat(self._windows(s.samples, rng), 1)
        count = self.chunks.count(s.samples)
        rows = zip(*(x.chunk(count) for x in (z, noise, share, followed, expert)))
        return [Part(Sample(*part), *more) for part, more in zip(zip(*(x.chunk(count) for x in b)), rows)]

    def _step(self, f: Any, parts: list[Part], params: list[Tensor], optimiser: torch.optim.Optimizer) -> Tensor:
        """A gradient step by the mean over chunks; returns what to log."""
        found: list[tuple[Any, Tensor]] = self.chunks.each(f, parts)
        for p, gradient in zip(params, added(gradients for gradients, _ in found)):
            p.grad = None if gradient is None else gradient / len(parts)
        optimiser.step()
        return torch.stack([facts for _, facts in found]).mean(0)

    def map_gradient(self, part: Part) -> tuple[Any, Tensor]:
        """Of F and B; to log: both losses."""
        s, m, (b, z, *_) = self.settings, self.maps, part
        goal, w, c = m.goal(b.next_critic), b.weight, b.weight * (b.discount > 0)
        with torch.no_grad():
            u = self._next_action(part)
            target = b.discount[:, None] * (m.ahead_target(b.next_critic, u, z).mean(0) @ m.back_target(goal).T)
        backward = m.back(goal)
        measure = measure_loss(m.ahead(b.critic, b.action, z), backward, target, w, c)
        ortho = orthonormal_loss(backward, c)
        gradients = torch.autograd.grad(measure + s.ortho * ortho, self.map_params)
        return gradients, torch.stack([measure, ortho]).detach()

    def _next_action(self, part: Part) -> Tensor:
        s, (b, z, noise, *_) = self.settings, part
        stray = (s.target_noise * noise).clamp(-s.target_clip, s.target_clip)
        return (torch.tanh(self.maps.actor(torch.cat([b.next_actor, z], 1))) + stray).clamp_(-1, 1)

    def style_gradient(self, part: Part) -> tuple[Any, Tensor]:
        """Of the discriminator and its critics; to log: both losses, and what the discriminator says."""
        m, style, b = self.maps, self.style, part.b
        assert style is not None
        goal = m.goal(b.next_critic)
        w = b.weight * (b.discount > 0) * (part.followed.abs().sum(1) > 0)
        policy = torch.cat([goal, part.followed], 1)
        judged = judge_loss(style.judge, part.expert, policy, w, self.settings.slope, part.share)
        with torch.no_grad():
            reward = style.reward(goal, part.z)
            y = reward + b.discount * style.values(
                style.value_target, b.next_critic, self._next_action(part), part.z
            ).mean(0)
        off = style.values(style.value, b.critic, b.action, part.z) - y
        loss = (off.square() * b.weight).sum() / b.weight.sum().clamp(min=1.0)
        gradients = torch.autograd.grad(judged + loss, self.style_params)
        return gradients, torch.stack([judged.detach(), loss.detach(), reward.mean()])

    def actor_gradient(self, part: Part) -> tuple[Any, Tensor]:
        """Of the actor; to log: the mean value of what is asked for, and the loss."""
        s, m, (b, z, *_) = self.settings, self.maps, part
        f = m.actor(torch.cat([b.actor, z], 1))
        one, two = (m.ahead(b.critic, torch.tanh(f), z) * z).sum(2)
        value = 0.5 * (one + two) - s.pessimism * (one - two).abs()
        share = b.weight / b.weight.sum().clamp(min=1.0)
        gain = value / size(value)
        if self.style is not None:
            own = self.style.values(self.style.value, b.critic, torch.tanh(f), z).min(0).values
            gain = gain + s.style * own / size(own)
        loss = ((s.action_penalty * f.square().sum(1) - gain) * share).sum()
        return torch.autograd.grad(loss, self.own), torch.stack([(value.detach() * share).sum(), loss.detach()])

    @torch.no_grad()
    def _follow(self) -> None:
        m, tau = self.maps, self.settings.tau
        targets: list[Tensor] = [*m.ahead_target.parameters(), *m.back_target.parameters()]
        torch._foreach_lerp_(targets, self.map_params, tau)
        if self.style is not None:
            style = self.style
            torch._foreach_lerp_(
                list[Tensor](style.value_target.parameters()), list[Tensor](style.value.parameters()), tau
            )
        torch._foreach_lerp_(list[Tensor](m.average.parameters()), self.own, tau)

    @property
    def optimisers(self) -> Sequence[torch.optim.Optimizer]:
        every = (self.map_optimiser, self.actor_optimiser, self.style_optimiser)
        return [optimiser for optimiser in every if optimiser is not None]

    # what was learned, and checkpoints

    def task_z(self) -> Tensor:
        """z (d,) of the task's own reward, over states of the replay."""
        rng = torch.Generator().manual_seed(key(self.seed, "own reward") >> 1)
        b = self.replay.sample(STATES, 1, self.settings.gamma, rng)
        there = (b.weight > 0) & (b.discount > 0)
        if not bool(there.any()):
            return on_sphere(torch.ones(self.settings.z))
        z, _ = regressed(self.maps.meaning(b.next_critic[there]), b.reward[there], not self.env.task.ended)
        return on_sphere(z)

    def policy(self, contract: Contract) -> PolicyNet:
        """For the task's own reward; `surefoot prompt` asks for others."""
        return self.maps.policy(contract, self.task_z())

    def save(self) -> Saved:
        arrays, numbers = super().save()
        arrays |= {f"asked.{k}": v.numpy().copy() for k, v in self.asked.items()}
        return arrays | ({} if self.motions is None else {"motions": self.motions.table.numpy().copy()}), numbers

    def load(self, arrays: Mapping[str, np.ndarray], numbers: Mapping[str, Any]) -> None:
        if self.motions is not None and not np.array_equal(arrays["motions"], self.motions.table.numpy()):
            raise ValueError("fb.motions: the files have changed since")
        super().load(arrays, numbers)
        saved = under("asked.", arrays)
        self.asked = {k: torch.from_numpy(saved[k].copy()).reshape(self.asked[k].shape) for k in ASKED}
