"""The value of a frozen policy: will it reach what it should, without failing before?

    V(o) = gamma max(g', min(l', V(o'))) + (1 - gamma) max(l', g')            reach and avoid; V < 0: it does both
    V(o) = gamma max(g', V(o')) + (1 - gamma) g'                              avoid alone

    g = +1 where the episode failed, else -1, rising linearly over the SOFT periods before a failure, so that V is smooth
    l = tanh(log2(error / tolerance)) of the task: below 0 where it is reached

The targets follow the Bellman equation backwards along the rollouts. Now and then somebody else drives at random for a
moment, so that V also knows twists that the policy itself would not have chosen; a rollout is cut there, and where it runs
out of time, and V of what follows takes over. Hence the net is fitted ROUNDS times, first to rollouts whose end is known.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from surefoot.contract import Contract
from surefoot.control.observed import Observed
from surefoot.control.reach_avoid import ReachAvoid, Recovery
from surefoot.env import Env, Step
from surefoot.errors import SurefootError
from surefoot.learn.nets import Tanh, mlp
from surefoot.learn.nets.export import graph_of
from surefoot.onnx_file import Graph
from surefoot.policy import Driver, Policy
from surefoot.report import Progress, Watch, unwatched
from surefoot.rng import stream

SOFT = 10  # control periods
ROUNDS = 3
BATCH = 1024
UNSEEN = 1 << 52  # added to a seed: episodes that nothing is learned from

Disturb = Callable[[np.random.Generator, int], np.ndarray]
"""n -> (n, na) actions of the random driving at the start of episodes"""


@dataclass(frozen=True)
class ValueSettings:
    """How a value is learned."""

    reach: bool = True
    """whether the task's error has to come within its tolerance; else only failures count"""
    gamma: float = 0.9999
    """discount factor a period"""
    episodes: int = 4
    """of each simulation"""
    alone: float = 1.5
    """s for which the policy drives, on average, until it is disturbed; 0: it never is"""
    burst: float = 0.5
    """s: longest random driving, of one action"""
    hidden: tuple[int, ...] = (64, 64)
    epochs: int = 6
    """passes over the samples in each round"""
    weight: float = 1.5
    """of a sample that fails over one that does not: failures are rare"""
    lr: float = 2e-3


@dataclass(frozen=True)
class Samples:
    """Rollouts: rows of what V reads, and what came of them. Time runs along the first axis."""

    x: np.ndarray  # (T, n, width) float32
    g: np.ndarray  # (T, n) of the state that followed
    l: np.ndarray  # (T, n) likewise
    ended: np.ndarray  # (T, n) bool: nothing follows in this episode
    failed: np.ndarray  # (T, n) bool
    own: np.ndarray  # (T, n) bool: the policy had taken over
    last: np.ndarray  # (T, n, width) what V would have read where an episode ran out of time

    @property
    def cut(self) -> np.ndarray:
        """(T, n) bool: the policy does not drive on from here: V of what follows is all that is known."""
        follows = np.concatenate([self.own[1:], np.zeros_like(self.own[:1])])
        return self.ended & ~self.failed | ~self.ended & ~follows

    @property
    def known(self) -> np.ndarray:
        """(T, n) bool: the policy drove to the end of the episode."""
        found, cut = self.ended.copy(), self.cut & ~self.ended
        for t in range(len(found) - 2, -1, -1):
            found[t] |= found[t + 1] & ~cut[t]
        return found & self.own

    @property
    def after(self) -> np.ndarray:
        """(T, n, width): what followed each row."""
        following = np.concatenate([self.x[1:], self.last[-1:]])
        return np.where(self.ended[..., None], self.last, following)


@dataclass(frozen=True)
class Accuracy:
    """How V judges states whose outcome is known: shares of all states."""

    sign: float
    """V has the sign of what came"""
    false_safe: float
    """V < 0, and it failed"""
    of_failures: float
    """of the states that led to failure, those with V >= 0"""
    safe: float
    """states that did not fail: what `always safe` would score"""


def guard(
    policy: Policy,
    make: Callable[[int], Env],
    recovery: Recovery,
    settings: ValueSettings,
    seed: int = 0,
    watch: Watch = unwatched,
) -> tuple[ReachAvoid, Accuracy]:
    """The switch of a policy, and how well its value judges episodes that it was not learned from; `make` takes a seed."""
    terms = tuple(t.name for t in policy.contract.terms if t.formula is None or t.formula.kind != "last_action")
    if recovery.by == "command":
        settings = replace(settings, alone=0.0)  # its commands vary by themselves, and random joints only fall
    watch(Progress("episodes of the policy"))
    random = driving(recovery, policy.contract)
    samples = collect(policy, make(seed), terms, settings, seed, random)
    watch(Progress("learning their value", 0.6))
    value = learn_value(samples, settings, seed)
    watch(Progress("episodes to judge it by", 0.9))
    unseen = replace(settings, alone=0.0, episodes=1)
    held_out = collect(policy, make(seed + UNSEEN), terms, unseen, seed + UNSEEN, random)
    return ReachAvoid(value, terms, recovery), accuracy(value, held_out, settings)


def driving(recovery: Recovery, contract: Contract) -> Disturb:
    """Random actions: those that bring about any y of the recovery, or any action at all."""
    law, (low, high) = contract.action, np.array([recovery.low, recovery.high])
    if recovery.by == "command":
        return lambda rng, n: rng.uniform(-1.0, 1.0, (n, len(law.names))) * min(law.limit, 1.0)
    drive = np.array(recovery.drive).T
    return lambda rng, n: law.bounded((rng.uniform(low, high, (n, len(low))) @ drive - law.offset) / law.scale)


class ValueNet(nn.Module):
    """(n, width) -> (n, 1) in [-1, 1]. It reads each number twice: as it is, and as sign(x) log(1 + 10 |x|), so that what is
    near counts as much as what is far."""

    mean: Tensor
    sd: Tensor

    def __init__(self, x: np.ndarray, hidden: Sequence[int], seed: int):
        super().__init__()
        both = _both(torch.from_numpy(x))
        self.register_buffer("mean", both.mean(0))
        self.register_buffer("sd", both.std(0).clamp(min=1e-3))
        generator = torch.Generator().manual_seed(seed)
        self.body = nn.Sequential(mlp(both.shape[1], hidden, 1, "tanh", 0.1, generator), Tanh())

    def forward(self, x: Tensor) -> Tensor:
        return self.body((_both(x) - self.mean) / self.sd)


def _both(x: Tensor) -> Tensor:
    return torch.cat([x, torch.sign(x) * torch.log(1 + 10 * torch.abs(x))], 1)


def collect(policy: Policy, env: Env, terms: Sequence[str], settings: ValueSettings, seed: int, random: Disturb) -> Samples:  # fmt: skip
    """`episodes` time limits of every simulation of env, under the policy, disturbed now and then."""
    observed = Observed(policy.contract)
    columns, rng = np.concatenate([observed.columns(t) for t in terms]), stream(seed, "reach-avoid")
    n, dt = env.n, env.world.dt
    rate, longest = (dt / settings.alone if settings.alone else 0.0), max(1, round(settings.burst / dt))
    obs, drive = env.reset(seed)["actor"], Driver(policy, n)
    left, held = np.zeros(n, int), random(rng, n)
    rows: list[tuple[np.ndarray, ...]] = []
    for _ in range(settings.episodes * env.steps):
        begins = (left == 0) & (rng.random(n) < rate)
        left = np.where(begins, rng.integers(1, longest + 1, n), left)
        held = np.where(begins[:, None], random(rng, n), held)
        own, x = left == 0, obs[:, columns]
        step = env.step(np.where(own[:, None], drive(obs), held))
        drive.begin(step.final)
        rows.append((x, own, *_outcome(env, step, columns)))
        left = np.where(step.terminated | step.truncated, 0, np.maximum(left - 1, 0))
        obs = step.obs["actor"]
    x, own, l, ended, failed, last = (np.array(c) for c in zip(*rows))
    return Samples(x, softened(failed, ended), l, ended, failed, own, last)


def _outcome(env: Env, step: Step, columns: np.ndarray) -> tuple[np.ndarray, ...]:
    """What followed: l, whether the episode ended, whether it failed, and what V would have read."""
    error = env.task.error(env.moment)
    done, failed = step.terminated | step.truncated, step.terminated & step.valid
    reached = np.tanh(np.log2(np.maximum(error, 1e-6) / env.task.tolerance))
    last = step.obs["actor"][:, columns].copy()
    if done.any():
        last[done] = step.last["actor"][:, columns]
        reached = np.where(done, 1.0, reached)  # the next episode has begun; only V of `last` knows of this one
    return reached, done, failed, last


def softened(failed: np.ndarray, ended: np.ndarray) -> np.ndarray:
    """g (T, n): 1 at a failure, falling to -1 over SOFT periods before it, within its episode."""
    g = np.where(failed, 1.0, -1.0)
    for t in range(len(g) - 2, -1, -1):
        near = np.where(ended[t], -1.0, g[t + 1] - 2.0 / SOFT)
        g[t] = np.maximum(g[t], near)
    return g


def targets(s: Samples, bootstrap: np.ndarray, settings: ValueSettings) -> np.ndarray:
    """V (T, n) by the Bellman equation, backwards; `bootstrap` (T, n) is V after the row, where a rollout was cut."""
    V, ahead, gamma, cut = np.zeros_like(s.g), bootstrap[-1], settings.gamma, s.cut | s.ended
    for t in range(len(V) - 1, -1, -1):
        after = np.where(cut[t], bootstrap[t], ahead)
        g, l = s.g[t], s.l[t]
        if settings.reach:
            ahead = gamma * np.maximum(g, np.minimum(l, after)) + (1 - gamma) * np.maximum(l, g)
        else:
            ahead = gamma * np.maximum(g, after) + (1 - gamma) * g
        V[t] = ahead
    return V


def learn_value(samples: Samples, settings: ValueSettings, seed: int) -> Graph:
    """The net, fitted to its own Bellman targets, as onnxruntime runs it."""
    x = samples.x[samples.own]
    if len(x) < BATCH:
        raise SurefootError(f"reach-avoid: expected at least {BATCH} samples, found {len(x)}")
    net = ValueNet(x, settings.hidden, seed)
    begin = np.full_like(samples.g, 1.0 if settings.reach else -1.0)
    for k in range(ROUNDS):
        after, some = (begin, samples.known) if k == 0 else (value_of(net, samples.after), samples.own)
        _fit(net, samples.x[some], targets(samples, after, settings)[some], settings, stream(seed, "value", k))
    return graph_of(net, x.shape[1])


@torch.no_grad()
def value_of(net: ValueNet, x: np.ndarray) -> np.ndarray:
    return net(torch.from_numpy(x.reshape(-1, x.shape[-1]))).numpy().reshape(x.shape[:-1]).astype(float)


def _fit(net: ValueNet, x: np.ndarray, y: np.ndarray, settings: ValueSettings, rng: np.random.Generator) -> None:
    X, Y = torch.from_numpy(x), torch.from_numpy(y.astype(np.float32))[:, None]
    W = torch.where(Y > 0, settings.weight, 1.0)
    optimiser = torch.optim.Adam(net.parameters(), settings.lr)
    steps = settings.epochs * (len(X) // BATCH)
    schedule = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.05, max(1, steps))
    for _ in range(settings.epochs):
        order = torch.from_numpy(rng.permutation(len(X)))
        for at in order[: len(X) // BATCH * BATCH].split(BATCH):
            optimiser.zero_grad()
            (W[at] * (net(X[at]) - Y[at]) ** 2).mean().backward()
            optimiser.step()
            schedule.step()


def accuracy(value: Graph, held_out: Samples, settings: ValueSettings) -> Accuracy:
    """On rollouts that V was not learned from; those that were cut before their outcome are left out."""
    unknown = np.where(held_out.failed, 1.0, -1.0 if not settings.reach else 1.0)
    truth = targets(held_out, unknown, ValueSettings(reach=settings.reach, gamma=1.0))
    at = held_out.known
    V = value(held_out.x[at])[:, 0]
    bad, called = truth[at] > 0, V >= 0
    return Accuracy(
        float((bad == called).mean()),
        float((bad & ~called).mean()),
        float(called[bad].mean()) if bad.any() else 1.0,
        float((~bad).mean()),
    )
