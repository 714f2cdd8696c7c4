"""The nets of forward-backward representations, what they see, and policies for a z that is given.

    F(s, a, z) (2, n, d)        B(g) (n, d), |B| = sqrt(d)        pi(o, z) = tanh(actor(o, z))

o is the actor's observation, s the critic's, which may be privileged, and g its `goal_terms`: what can be asked for.
A policy for one z is a plain net: z meets the first layer only, so W_z z is a part of its bias.
"""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from surefoot.contract import Contract
from surefoot.errors import SurefootError, unknown
from surefoot.learn.forward_backward.losses import on_sphere
from surefoot.learn.forward_backward.settings import FBSettings
from surefoot.learn.learner import under
from surefoot.learn.nets import ACTIVATIONS, Actor, Normaliser, mlp
from surefoot.learn.nets.policy_net import PolicyNet
from surefoot.learn.nets.stacked import stacked_mlp
from surefoot.observation import ObsGroup, ObsTerm
from surefoot.task import Task

NO_GOALS = ("command", "clock", "begun", "last_action", "reference_joints", "reference_rotation")  # kinds of formula


class Forward(nn.Module):
    """Two maps F side by side: s (n, .), u (n, na), z (n, d) -> (2, n, d)."""

    def __init__(self, inputs: int, s: FBSettings, rng: torch.Generator):
        super().__init__()
        self.body = stacked_mlp((0, 1), inputs, s.forward_hidden, s.z, lambda: Normed(s.activation), rng)

    def forward(self, critic: Tensor, action: Tensor, z: Tensor) -> Tensor:
        x = torch.cat([critic, action, z], 1)
        return self.body(x.expand(2, *x.shape))


class Normed(nn.Module):
    """Rows of mean 0 and variance 1 before they are bent."""

    def __init__(self, activation: str):
        super().__init__()
        self.act = ACTIVATIONS[activation]()

    def forward(self, x: Tensor) -> Tensor:
        return self.act(nn.functional.layer_norm(x, x.shape[-1:]))


class Backward(nn.Module):
    """g (n, .) -> B (n, d), of norm sqrt(d)."""

    def __init__(self, inputs: int, s: FBSettings, rng: torch.Generator):
        super().__init__()
        self.body = mlp(inputs, s.backward_hidden, s.z, s.activation, 1.0, rng)

    def forward(self, goal: Tensor) -> Tensor:
        return on_sphere(self.body(goal))


class Maps(nn.Module):
    """All nets of a run, with their normalisers."""

    columns: Tensor

    def __init__(self, task: Task, s: FBSettings, rng: torch.Generator):
        super().__init__()
        self.settings, self.limit, self.actions = s, task.action.limit, len(task.action.names)
        actor, critic = (task.observations[g].dim for g in ("actor", "critic"))
        self.terms = goal_terms(task, s.goal_terms)
        columns = goal_columns(task.observations["critic"], [t.name for t in self.terms])
        self.register_buffer("columns", torch.from_numpy(columns), persistent=False)
        body = mlp(actor + s.z, s.hidden, self.actions, s.activation, 0.01, rng)
        self.actor = Actor(body, None, None, None, s.activation)
        self.ahead = Forward(critic + self.actions + s.z, s, rng)
        self.back = Backward(len(columns), s, rng)
        self.average = deepcopy(self.actor).requires_grad_(False)
        self.ahead_target = deepcopy(self.ahead).requires_grad_(False)
        self.back_target = deepcopy(self.back).requires_grad_(False)
        self.see_actor, self.see_critic = Normaliser(actor), Normaliser(critic)

    def goal(self, seen: Tensor) -> Tensor:
        """What B sees of a normalised critic's observation."""
        return seen.index_select(1, self.columns)

    @torch.no_grad()
    def meaning(self, critic: Tensor) -> Tensor:
        """B (n, d) of states, given as the critic observes them."""
        return self.back(self.goal(self.see_critic(critic)))

    @torch.no_grad()
    def act(self, obs: Tensor, z: Tensor) -> Tensor:
        """u (n, na) within +-1, of what is exported."""
        return torch.tanh(self.average(torch.cat([self.see_actor(obs), z], 1)))

    def policy(self, contract: Contract, z: Tensor) -> PolicyNet:
        """The policy for one z (d,), as any other: it observes what the actor does."""
        body, n = deepcopy(self.average.body), contract.obs_dim
        first = body[0]
        assert isinstance(first, nn.Linear)
        with torch.no_grad():
            bias = first.bias + first.weight[:, n:] @ z
            own = nn.Linear(n, first.out_features)
            own.weight, own.bias = nn.Parameter(first.weight[:, :n].clone()), nn.Parameter(bias)
        body[0] = own
        return PolicyNet(contract, self._bounded(body), self._scales())

    def prompted(self, contract: Contract) -> PolicyNet:
        """The policy that observes z as well, in the last columns."""
        more = contract.obs_dim - len(self.see_actor.mean)
        if more != self.settings.z:
            raise SurefootError(f"prompt: expected {self.settings.z} more numbers to observe, found {more}")
        mean, sd = self._scales()
        scales = np.append(mean, np.zeros(more)), np.append(sd, np.ones(more))
        return PolicyNet(contract, self._bounded(deepcopy(self.average.body)), scales)

    def _bounded(self, body: nn.Sequential) -> Actor:
        return Actor(body.requires_grad_(False), None, None, None, self.settings.activation, self.limit)

    def _scales(self) -> tuple[np.ndarray, np.ndarray]:
        return self.see_actor.mean.float().numpy(), self.see_actor.sd.float().numpy()

    def load_arrays(self, arrays: Mapping[str, np.ndarray]) -> None:
        """The nets among a checkpoint's arrays."""
        self.load_state_dict({k: torch.from_numpy(v.copy()) for k, v in under("net.maps.", arrays).items()})


def goal_terms(task: Task, names: tuple[str, ...]) -> list[ObsTerm]:
    """Terms of the critic that B sees."""
    known = {t.name: t for t in task.observations["critic"].terms}
    for name in names:
        if name not in known:
            raise unknown("term of the critic", name, known, f"task {task.name}: fb.goal_terms")
    if len(set(names)) != len(names):
        raise SurefootError(f"fb.goal_terms: expected each name once, found {', '.join(names)}")
    usual = [n for n, t in known.items() if n != "e" and (t.formula is None or t.formula.kind not in NO_GOALS)]
    found = [known[n] for n in names or usual]
    if not found:
        raise SurefootError(
            f"task {task.name}: fb.goal_terms: expected terms of the critic, found none to choose by itself"
        )
    return found


def goal_columns(group: ObsGroup, names: list[str]) -> np.ndarray:
    """Where in a critic's observation the newest frame of these terms is, in their order."""
    frames = np.zeros((1, group.history, group.frame))
    frames[0, -1] = 1 + np.arange(group.frame)
    flat = group.flat(frames)[0]
    at = {t.name: columns for t, columns in zip(group.terms, group.columns)}
    wanted = np.concatenate([1 + np.arange(at[n].start, at[n].stop) for n in names])
    return np.array([int(np.flatnonzero(flat == k)[0]) for k in wanted])


def with_prompt(contract: Contract, term: ObsTerm) -> Contract:
    """The contract of a policy that observes one more term, in its newest frame."""
    group = contract.observation
    return replace(contract, observation=replace(group, terms=(*group.terms, term)))
