"""Students: policies that infer from their own history what a teacher observes.

A teacher pi(x, e) knows e. Its student sees only what the robot measures, the last `history` frames of it, and learns on
the states that its own actions lead to (DAgger):

    minimise  E_{x ~ student} |student(history) - teacher(x, e)|^2        label: action
    minimise  E_{x ~ student} |phi(history) - mu(e)|^2                    label: latent (rapid motor adaptation)

With `latent` the teacher is one with an encoder z = mu(e) and a body pi(x, z), which the student keeps as it is, and a
base, where pi stands on one; only phi is learned. Behaviour cloning, on the states of the teacher, is `mix` 1 to the end:
the baseline.
"""

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from surefoot import tasks
from surefoot.contract import Contract
from surefoot.env import Episodes
from surefoot.errors import SurefootError
from surefoot.learn.collect import Draws, Envs, Obs, collector_of, summary
from surefoot.learn.learner import PolicyLearner, Saved
from surefoot.learn.nets import CLIP, Actor, Encoder, adam_state, mlp, restore_adam
from surefoot.learn.nets.policy_net import PolicyNet
from surefoot.learn.residual import BasePolicy
from surefoot.learn.settings import DistillSettings
from surefoot.observation import ObsGroup
from surefoot.rng import key
from surefoot.task import Mirror, Task
from surefoot.tasks.rollout import contract


def classroom(task: Task, teacher: PolicyNet, history: int, only: tuple[str, ...] = ()) -> Task:
    """The task as both see it: `actor` is the student, with the task's own terms, or `only` some; `teacher` has the
    teacher's terms."""
    if teacher.contract.trial > 1:
        raise SurefootError("student: a teacher with --obs.trial is not supported yet")
    master = tasks.for_contract(task, teacher.contract)
    student = (tasks.with_actor_terms(task, only, history) if only else task).observations["actor"]
    return replace(
        task, observations={"actor": replace(student, history=history), "teacher": master.observations["actor"]}
    )


def _scales(
    teacher: PolicyNet, master: ObsGroup, student: ObsGroup, shown: Callable[[], np.ndarray], mirror: Mirror | None
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and sd by which the student's observation is normalised.

    Of terms that the teacher has, too: the teacher's, which its body knows, the oldest frame repeated. Of others, such as
    pixels: each column's mean and the whole term's spread over what was `shown`, since some columns hardly vary there.
    With a mirror, of both sides together.
    """
    theirs = dict(zip((t.name for t in master.terms), master.columns))
    known = [x.numpy().reshape(master.history, master.frame) for x in (teacher.mean, teacher.sd)]
    new = any(t.name not in theirs for t in student.terms)
    frames = (shown() if new else np.zeros(0)).reshape(-1, student.frame)
    mean, sd = np.empty((2, student.history, student.frame), np.float32)
    for t, at in zip(student.terms, student.columns):
        if t.name not in theirs:
            mean[:, at], sd[:, at] = frames[:, at].mean(0), max(float(frames[:, at].std()), 1e-3)
            continue
        if student.history < master.history:
            raise SurefootError(
                f"student: history: expected at least the teacher's {master.history}, found {student.history}"
            )
        early = student.history - master.history
        for out, rows in zip((mean, sd), known):
            out[:early, at], out[early:, at] = rows[0, theirs[t.name]], rows[:, theirs[t.name]]
    mean, sd = mean.ravel(), sd.ravel()
    if mirror is not None:
        mean = (mean + (mirror.obs_sign * mean[mirror.obs_order]).astype(np.float32)) / 2
        sd = (sd + sd[mirror.obs_order]) / 2
    return mean, sd


@dataclass(frozen=True)
class Teaching:
    """The teacher drives."""

    teacher: PolicyNet

    def __call__(self, obs: Obs, draws: Draws) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        return self.teach(obs)[1].numpy(), {}

    @torch.no_grad()
    def teach(self, obs: Obs) -> tuple[Tensor, Tensor]:
        """The teacher's observation, normalised, and its action there."""
        raw = torch.from_numpy(obs["teacher"])
        return self.teacher.normalised(raw), self.teacher(raw)


@dataclass(frozen=True)
class Following:
    """How the envs of a rollout are driven: by the student with noise, or by its teacher; what the teacher says is kept."""

    actor: Actor
    scales: tuple[np.ndarray, np.ndarray]
    teacher: PolicyNet
    latent: bool
    """whether the label is the teacher's latent, not its action"""
    beneath: BasePolicy | None

    @torch.no_grad()  # a setting of the thread, and each block has its own
    def __call__(self, obs: Obs, draws: Draws) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        mean, sd = self.scales
        seen = torch.from_numpy(np.clip((obs["actor"] - mean) / sd, -CLIP, CLIP))
        (master, right), encoder = Teaching(self.teacher).teach(obs), self.teacher.actor.encoder
        label = encoder(master) if self.latent and encoder else right
        action = self.actor(seen) + torch.from_numpy(draws["noise"])
        if self.beneath is not None:
            action = action + torch.from_numpy(self.beneath(obs["actor"]))
        driven = torch.from_numpy(draws["driven"].copy())
        action[driven] = right[driven]
        return action.numpy(), {"seen": seen.numpy(), "label": label.numpy()}


class Distill(PolicyLearner):
    """The state of learning from a teacher: the student's net, its optimiser, and where the envs stand."""

    def __init__(self, env: Envs, settings: DistillSettings, seed: int, teacher: PolicyNet):
        torch.set_num_threads(settings.learner_threads)
        self.env, self.settings, self.seed, self.teacher = env, settings, seed, teacher
        self.iterations, self.batch = settings.iterations, settings.batch
        self.kept: list[tuple[Tensor, Tensor]] = []  # (observations, labels) of the last batches
        self.master = teacher.actor
        self.collector = collector_of(env)
        self._build()

    def _build(self) -> None:
        s, t = self.settings, self.teacher
        group, master = self.env.task.observations["actor"], self.env.task.observations["teacher"]
        if t.contract.action.choices:
            raise SurefootError("student: a teacher with discrete actions is not supported yet")
        if s.label == "latent" and (self.master.encoder is None or self.master.encoder.kind != "mlp"):
            raise SurefootError("student: by latent it needs a teacher with an encoder of e, as --adapt rma trains one")
        mine, theirs = [t.name for t in group.terms], [t.name for t in master.terms if t.name != "e"]
        if s.label == "latent" and mine != theirs:
            raise SurefootError(
                f"student: by latent it keeps the teacher's body, which has {', '.join(theirs)} and e; "
                f"expected {', '.join(mine)} and e, or --adapt dagger"
            )
        rng = torch.Generator().manual_seed(key(self.seed, "weights") >> 1)
        env = self.env
        mirror = env.task.symmetry.of(group) if self.master.mirrored and env.task.symmetry else None
        self.mean, self.sd = _scales(t, master, group, self._shown, mirror)
        self.base = t.base if s.label == "latent" else None
        self.beneath = BasePolicy(contract(env.task, env.world), self.base) if self.base is not None else None
        every = np.arange(group.dim).reshape(group.history, group.frame)
        newest = every[-master.history :].ravel()  # what the body gets as it is: as many frames as the teacher's
        latent = self.master.encoder.out.out_features if s.label == "latent" and self.master.encoder else s.latent
        kind = self.master.activation
        encoder = Encoder(s.encoder, every.ravel(), group.history, latent, kind, rng)
        if s.label == "latent":
            self.actor = Actor(self.master.body, mirror, encoder, newest, kind)
            self.learned = dict(encoder.named_parameters())
        else:
            body = mlp(len(newest) + latent, s.hidden, len(t.contract.action.names), kind, 0.01, rng)
            self.actor = Actor(body, mirror, encoder, newest, kind)
            self.learned = dict(self.actor.named_parameters())
        self.optimiser = torch.optim.Adam(self.learned.values(), s.lr, fused=True)

    def _shown(self) -> np.ndarray:
        """The student's observations while the teacher drives, for as long as its history; then everything begins anew.

        The first frames alone would not do: an action, or a velocity, is 0 in all of them.
        """
        self.collector.collect(Teaching(self.teacher), self.env.task.observations["actor"].history)
        obs = self.obs["actor"]
        self.collector.reset(self.env.seed)
        return obs

    @property
    def obs(self) -> Obs:
        """What the envs showed last."""
        return self.collector.obs

    def iterate(self) -> dict[str, float]:
        s = self.settings
        seen, labels, episodes = self.collect()
        self.kept = [*self.kept, (seen, labels)][-s.keep :]
        obs, label = (torch.cat(part) for part in zip(*self.kept))
        losses = []
        for epoch in range(s.epochs):
            rng = torch.Generator().manual_seed(key(self.seed, "shuffle", self.iteration * s.epochs + epoch) >> 1)
            for part in torch.randperm(len(obs), generator=rng).chunk(s.minibatches * len(self.kept)):
                error = (self._answer(obs[part]) - label[part]).square().mean()
                self.optimiser.zero_grad(set_to_none=True)
                error.backward()
                torch.nn.utils.clip_grad_norm_(self.learned.values(), 1.0)
                self._pace()
                self.optimiser.step()
                losses.append(error.detach())
        self.iteration += 1
        loss, spread = float(torch.stack(losses).mean()), float(label.std(0).square().mean())
        known = {"unexplained": loss / spread} if spread > 1e-9 else {}  # of what is alike everywhere, nothing is
        return summary(episodes) | known | self.collector.terms | {
            "loss": loss,
            "steps": self.iteration * s.batch,
            "diverged": self.env.diverged,
        }  # fmt: skip

    def _answer(self, obs: Tensor) -> Tensor:
        return self.actor.encoder(obs) if self.settings.label == "latent" and self.actor.encoder else self.actor(obs)

    def _pace(self) -> None:
        """The step size falls to a tenth, evenly."""
        share = self.iteration / self.settings.iterations
        for group in self.optimiser.param_groups:
            group["lr"] = self.settings.lr * (1 - 0.9 * min(1.0, share))

    def mixed(self) -> float:
        """Share of simulations the teacher drives now."""
        s, share = self.settings, self.iteration / self.settings.iterations
        return s.mix if s.mix_until >= 1 else s.mix * max(0.0, 1 - share / max(s.mix_until, 1e-9))

    @torch.no_grad()
    def collect(self) -> tuple[Tensor, Tensor, list[Episodes]]:
        """Observations, labels, and the episodes that ended where the student drove."""
        s = self.settings
        rng = torch.Generator().manual_seed(key(self.seed, "act", self.iteration) >> 1)
        driven = torch.rand(self.env.n, generator=rng) < self.mixed()
        noise = s.noise * torch.randn((s.horizon, self.env.n, len(self.env.task.action.names)), generator=rng)
        act = Following(self.actor, (self.mean, self.sd), self.teacher, s.label == "latent", self.beneath)
        draws = {"noise": noise.numpy(), "driven": np.broadcast_to(driven.numpy(), noise.shape[:2])}
        r = self.collector.collect(act, s.horizon, (), draws)
        seen, labels = (torch.from_numpy(r.kept[k]).flatten(0, 1) for k in ("seen", "label"))
        return seen, labels, [e.of(~driven.numpy()) for e in r.episodes]

    def policy(self, contract: Contract) -> PolicyNet:
        """The student as a policy; by latent it keeps the body's scale and base."""
        latent = self.settings.label == "latent"
        return PolicyNet(
            contract, deepcopy(self.actor), (self.mean, self.sd), self.base, self.teacher.scale if latent else 1.0
        )

    def save(self) -> Saved:
        state = {f"net.{k}": v for k, v in self.actor.state_dict().items()} | adam_state(self.optimiser, self.learned)
        if self.settings.keep > 1:
            state |= {f"kept.{k}": torch.cat(part) for k, part in zip(("obs", "label"), zip(*self.kept))}
        arrays = {k: v.numpy().copy() for k, v in state.items()} | {"mean": self.mean.copy(), "sd": self.sd.copy()}
        return arrays | self.collector.save(), {"iteration": self.iteration}

    def load(self, arrays: Mapping[str, np.ndarray], numbers: Mapping[str, Any]) -> None:
        state = {k: torch.from_numpy(v.copy()) for k, v in arrays.items() if k.startswith(("net.", "adam."))}
        self.actor.load_state_dict({k.removeprefix("net."): v for k, v in state.items() if k.startswith("net.")})
        restore_adam(self.optimiser, self.learned, state)
        kept = (arrays[k] for k in ("kept.obs", "kept.label") if k in arrays)
        self.kept = list(zip(*(torch.from_numpy(v.copy()).split(self.settings.batch) for v in kept)))
        self.mean, self.sd = arrays["mean"].copy(), arrays["sd"].copy()
        self.collector.load(arrays)
        self.iteration = int(numbers["iteration"])
