"""From what is asked for to z, and from z to a policy.

    a reward r     z = E[B B^T]^-1 E[B r] over states that random z and random actions lead to
    a goal g       z = B(g); where some of its numbers are open, the mean of B over states that are near in the others
    a motion       z_t for each of its periods (motions.py)
    a few trials   z <- the best of some around it, by what they earn (CEM): where B cannot express the reward

All z are put on the sphere |z| = sqrt(d). States are made by simulation, so a reward may name what no observation holds.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from surefoot import tasks
from surefoot.belief import Belief
from surefoot.contract import Contract
from surefoot.control.sampling import CEM, minimise
from surefoot.deploy import bundle
from surefoot.errors import SurefootError, unknown
from surefoot.learn.envs import learners_task
from surefoot.learn.forward_backward.losses import on_sphere, regressed
from surefoot.learn.forward_backward.maps import Maps, with_prompt
from surefoot.learn.forward_backward.rewards import rewarded
from surefoot.learn.forward_backward.settings import FBSettings
from surefoot.learn.nets import export
from surefoot.learn.run import Run
from surefoot.learn.run.parents import Parents, task_of
from surefoot.learn.runspec import RunSpec
from surefoot.observation import Formula, ObsTerm
from surefoot.policy import Policy, PolicyState
from surefoot.rng import Draw, judging, stream
from surefoot.task import Episode, Moment, Reward, Task
from surefoot.tasks import golden
from surefoot.tasks.registry import Reference
from surefoot.tasks.rollout import contract, evaluate
from surefoot.world import Start

ENVS, PERIODS, EVERY, HELD = 128, 400, 5, 8  # simulations, control periods, between states taken, of a random action
NEAREST = 32  # states whose open numbers a goal takes


@dataclass(frozen=True)
class Promptable:
    """What a run has learned, with the task as its learner saw it."""

    maps: Maps
    task: Task
    belief: Belief
    seed: int


@dataclass(frozen=True)
class States:
    """States that were met, and what a reward says of them."""

    critic: Tensor  # (n, .) as the critic observes them
    reward: Tensor  # (n,)


@dataclass(frozen=True)
class Asked(Policy):
    """pi(o, z) with a z for each robot, (n, d)."""

    contract: Contract
    maps: Maps
    z: Tensor

    def step(self, s: PolicyState, obs: np.ndarray) -> tuple[PolicyState, np.ndarray]:
        u = self.maps.act(torch.from_numpy(np.ascontiguousarray(obs, np.float32)), self.z)
        return s, self.maps.limit * u.numpy()


def opened(folder: Path, task: Reference = "") -> Promptable:
    """The newest checkpoint of a run of `--learner fb`; one that is being trained has to end first."""
    run, about = Run.open(folder)
    try:
        spec, saved = RunSpec.from_json(about, str(run.folder / "run.json")), run.newest()
    finally:
        run.close()
    s = spec.settings
    if not isinstance(s, FBSettings):
        raise SurefootError(
            f"{folder}: expected a run of --learner fb, found one of another learner: it can be asked for nothing else"
        )
    if saved is None:
        raise SurefootError(f"{folder}: no whole checkpoint; train for longer")
    found = learners_task(spec, task_of(spec, str(run.folder / "run.json"), task), Parents())
    maps = Maps(found, s, torch.Generator())
    try:
        maps.load_arrays(saved[0])
    except RuntimeError as error:
        raise SurefootError(
            f"{folder}: its checkpoint does not fit its task: {' '.join(str(error).split())[:300]}"
        ) from None
    return Promptable(maps.requires_grad_(False), found, spec.belief, spec.seed)


def met(p: Promptable, reward: Reward | None = None, seed: int = 0, threads: int = 0) -> States:
    """States to which random z lead in half of the simulations, and random actions in the others."""
    env, d, na = tasks.env(p.task, ENVS, p.belief, seed, threads, stagger=True), p.maps.settings.z, p.maps.actions
    obs, wanders = env.reset(), (np.arange(ENVS) % 2 == 0)[:, None]
    critic, values = [], []
    for t in range(PERIODS):
        rng = stream(seed, "prompt", t)
        if t % 50 == 0:
            z = on_sphere(torch.from_numpy(rng.standard_normal((ENVS, d))).float())
        if t % HELD == 0:
            held = rng.uniform(-1, 1, (ENVS, na))
        u = p.maps.act(torch.from_numpy(obs["actor"]), z).numpy()
        obs = env.step(p.maps.limit * np.where(wanders, held, u)).obs
        if t % EVERY == 0:
            critic.append(torch.from_numpy(obs["critic"].copy()))
            values.append(np.zeros(ENVS) if reward is None else np.asarray(reward.compute(env.moment), float))
    r = np.concatenate(values)
    if not np.isfinite(r).all():
        raise SurefootError(
            f"--reward: NaN or infinite in {100 * (~np.isfinite(r)).mean():.1f} % of the states: {reward.about if reward else ''}"
        )
    return States(torch.cat(critic), torch.from_numpy(r).float())


def for_reward(p: Promptable, states: States) -> tuple[Tensor, float]:
    """z (d,), and the share of the reward's variance over these states that B expresses."""
    if float(states.reward.max() - states.reward.min()) < 1e-9:
        raise SurefootError("--reward: the same in every state: nothing to choose by")
    z, share = regressed(p.maps.meaning(states.critic), states.reward, not p.task.ended)
    return on_sphere(z), share


def for_goal(p: Promptable, goal: Mapping[str, Sequence[float]], states: States) -> Tensor:
    """z (d,) of a state, given by some of the terms that B sees, in their units."""
    known, at = {t.name: t for t in p.maps.terms}, 0
    where, wanted = list[int](), list[float]()
    for name, values in goal.items():
        if name not in known:
            raise unknown("goal term", name, known, "--goal")
        if len(values) != known[name].dim:
            raise SurefootError(f"--goal: {name}: expected {known[name].dim} numbers, found {len(values)}")
    for t in p.maps.terms:
        if t.name in goal:
            clipped = np.clip(np.asarray(goal[t.name], float), -t.clip, t.clip)
            wanted += (clipped * np.broadcast_to(np.asarray(t.scale), (t.dim,))).tolist()
            where += p.maps.columns[at : at + t.dim].tolist()
        at += t.dim
    off = (states.critic[:, where] - torch.tensor(wanted)) / p.maps.see_critic.sd.float()[where]
    near = states.critic[off.square().sum(1).argsort(stable=True)[:NEAREST]].clone()
    near[:, where] = torch.tensor(wanted)
    return on_sphere(p.maps.meaning(near).mean(0))


def goal_reward(p: Promptable, goal: Mapping[str, Sequence[float]]) -> Reward:
    """Minus the distance from a goal: root mean square, each number in units of its standard deviation while training."""
    at, sd = 0, p.maps.see_critic.sd.float().numpy()[p.maps.columns.numpy()]
    parts = []
    for t in p.maps.terms:
        if t.name in goal and t.source is not None:
            scale = np.broadcast_to(np.asarray(t.scale, float), (t.dim,))
            parts.append((t.source, np.asarray(goal[t.name], float), scale / sd[at : at + t.dim]))
        at += t.dim
    count = sum(len(wanted) for _, wanted, _ in parts)

    def near(s: Moment) -> np.ndarray:
        square = np.sum([(((np.asarray(f(s)) - wanted) * k) ** 2).sum(1) for f, wanted, k in parts], 0)
        return np.asarray(-np.sqrt(square / count))

    return Reward(1.0, near, "minus the distance from the goal")


def returns(p: Promptable, reward: Reward, z: Tensor, seed: int, threads: int = 0, episodes: int = 0) -> np.ndarray:
    """(n,) what one episode earns with each row of z (n, d), a second. With `episodes`, each so many rows have the same ones."""
    task, n, k = rewarded(p.task, reward), len(z), episodes or len(z)
    task = task if k == n else _alike(task, seed, k)
    env = tasks.env(task, n, p.belief, seed, threads)
    e = np.tile(p.belief.sample(stream(seed, "worlds"), k), (n // k, 1))
    found = evaluate(Asked(contract(task, env.world), p.maps, z), env, e=e)
    return np.asarray(found.returns / task.seconds)


def _alike(task: Task, seed: int, k: int) -> Task:
    """The task whose first episodes are k, again and again: what is compared begins alike."""

    def episode(rng: Draw, n: int) -> Episode:
        if n % k:
            return task.episode(rng, n)
        one = task.episode(stream(seed, "starts"), k)
        tiled = lambda x: np.tile(x, (n // k, *[1] * (x.ndim - 1)))  # noqa: E731
        again = lambda x: None if x is None else tiled(x)  # noqa: E731
        s, command = one.start, one.command
        if command is None and task.command is not None:
            command = task.command(stream(seed, "commands"), k)
        start = Start(tiled(s.q), tiled(s.v), tiled(s.u), again(s.act))
        return Episode(start, again(command), again(one.reference), again(one.phase))

    return replace(task, episode=episode)


def searched(
    p: Promptable, reward: Reward, z: Tensor, rounds: int, seed: int = 0, population: int = 32, episodes: int = 4, threads: int = 0
) -> Tensor:  # fmt: skip
    """The best z around one that is given, by what it earns in a few episodes: cross-entropy search."""
    count = [0]

    def cost(X: np.ndarray) -> np.ndarray:
        count[0] += 1
        rows = on_sphere(torch.from_numpy(X).float()).repeat_interleave(episodes, 0)
        return -returns(p, reward, rows, seed + count[0], threads, episodes).reshape(len(X), episodes).mean(1)

    found = minimise(cost, z.double().numpy(), 0.5, CEM(elite=0.2), rounds, population, stream(seed, "search"))
    return on_sphere(torch.from_numpy(found.search.mean).float())


def final(p: Promptable, z: Tensor, names: Sequence[str], seed: int, threads: int = 0) -> dict[str, np.ndarray]:
    """(n, dim) of each named goal term, in its unit, in the last period of one episode with each row of z (n, d)."""
    env = tasks.env(p.task, len(z), p.belief, judging(seed, "final"), threads)
    drive, obs = Asked(contract(p.task, env.world), p.maps, z), env.reset()
    for _ in range(env.steps - 1):  # the next one begins another episode
        obs = env.step(drive(obs["actor"])).obs
    known, now = {t.name: t.source for t in p.maps.terms if t.source is not None}, env.moment
    return {name: np.array(known[name](now), float) for name in names}


def write(p: Promptable, run: Path, out: Path, about: Mapping[str, Any], z: Tensor) -> Path:
    """A policy with z (d,) worked in, or one that observes z (T, d) at its phase: a row each control period."""
    world = tasks.env(p.task, 1).world
    asked = {k: v for k, v in about.items() if k in ("reward", "goal", "track")}
    parents = dict(bundle.load(run).contract.parents) | {"prompt": json.dumps(asked)}
    own, task = contract(p.task, world, parents), p.task
    if z.ndim == 1:
        net = p.maps.policy(own, z)
    else:
        table = tuple(round(float(v), 5) for v in z.flatten())
        formula = Formula("prompt", frequency=1 / world.dt, table=table, columns=z.shape[1])
        own = with_prompt(own, ObsTerm("prompt", formula, z.shape[1], sensed=False, history=1))
        task, net = tasks.for_contract(task, own), p.maps.prompted(own)
    record = golden.recorder(task, world)
    more = {"prompt": dict(about) | ({"z": z.tolist()} if z.ndim == 1 else {})}
    return export.save(net, out, export.golden_of(net, **record(net)), more)
