"""Cloning a point that passes a disk on either side: `python -m benchmarks.policy_gradient --only clone`.

The demonstrator chooses a side for each episode by chance, whatever it sees. Policies are judged with one start of noise for
each episode, held through it, and with the one start that their file has.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from benchmarks import toy_tasks
from benchmarks.measure import Row, row, said
from surefoot import tasks
from surefoot.learn.clone.demos import demos
from surefoot.learn.clone.learner import Clone
from surefoot.learn.clone.settings import CloneSettings
from surefoot.learn.loop import policy_of
from surefoot.learn.nets.flow import TIMES, DiffusionActor, NoiseActor
from surefoot.learn.nets.policy_net import PolicyNet
from surefoot.log import Log
from surefoot.policy import Policy, PolicyState
from surefoot.tasks.rollout import evaluate

EPISODES, SEEDS = 100, 3
CLEAR = 0.62  # m from the disk's centre at which it is passed


def demonstrated(seed: int, n: int = EPISODES) -> dict[str, Log]:
    """A log for each of n episodes: by a point above or below the disk, then to the goal, with a little noise."""
    env = tasks.env(toy_tasks.noisy_fork(), n, None, seed, 1)
    rng, obs = np.random.default_rng(seed), env.reset()["actor"]
    side, rows = np.where(rng.random(n) < 0.5, 1.0, -1.0), list[tuple[np.ndarray, np.ndarray]]()
    for _ in range(env.steps):
        past = obs[:, 0] > -0.05
        aim = np.where(past[:, None], toy_tasks.GOAL, np.stack([np.zeros(n), CLEAR * side], 1))
        way = aim - obs
        speed = np.minimum(1.0, 3 * np.linalg.norm(way, axis=1, keepdims=True))
        action = speed * way / np.maximum(np.linalg.norm(way, axis=1, keepdims=True), 1e-6)
        action += 0.05 * rng.standard_normal(action.shape)
        rows.append((obs.copy(), np.clip(action, -1, 1)))
        obs = env.step(action).obs["actor"]
    seen, done = (np.stack([r[k] for r in rows]) for k in (0, 1))  # (T, n, 2)
    clock = env.world.dt * np.arange(env.steps)
    return {f"episode {k}": Log(clock, {"observation": seen[:, k], "action": done[:, k]}) for k in range(n)}


@dataclass(frozen=True)
class Drawn(Policy):
    """A cloned net whose noise is drawn for each episode and held; by its own steps, or by all of DDPM's."""

    net: PolicyNet
    seed: int
    ddpm: bool = False

    @property
    def contract(self):  # type: ignore[override,no-untyped-def]
        return self.net.contract

    def init(self, n: int) -> PolicyState:
        assert isinstance(self.net.actor, NoiseActor)
        rng = np.random.default_rng(self.seed)
        return {"noise": rng.standard_normal((n, self.net.actor.width)).astype(np.float32)}

    @torch.no_grad()
    def step(self, s: PolicyState, obs: np.ndarray) -> tuple[PolicyState, np.ndarray]:
        actor, seen = self.net.actor, self.net.normalised(torch.from_numpy(np.asarray(obs, np.float32)))
        assert isinstance(actor, NoiseActor)
        noise = torch.from_numpy(s["noise"])
        if self.ddpm and isinstance(actor, DiffusionActor):
            x = actor.walk(seen, noise, TIMES, torch.Generator().manual_seed(self.seed))  # its noise is held, too
        else:
            x = actor.sample(seen, noise)
        return s, (self.net.scale * x[:, : actor.actions]).numpy()


def _sides(policy: Policy, n: int, seed: int) -> tuple[float, float]:
    """Success, and the share of successes that pass on the rarer side."""
    env = tasks.env(toy_tasks.noisy_fork(), n, None, 2_000_000 + seed, 1)
    s, obs, left, good = policy.init(n), env.reset()["actor"], np.zeros(n, bool), np.zeros(n, bool)
    for _ in range(env.steps):
        s, action = policy.step(s, obs)
        near = np.abs(obs[:, 0]) < 0.1
        left = np.where(near, obs[:, 1] > 0, left)
        step = env.step(action)
        if step.episodes is not None:
            first = ~good[step.episodes.ids]
            good[step.episodes.ids[first]] = step.episodes.success[first]
        obs = step.obs["actor"]
    share = float(left[good].mean()) if good.any() else 0.0
    return float(good.mean()), min(share, 1 - share)


def rows(quick: bool) -> Iterator[Row]:
    """Both ways kept; success against the mean's; ten steps against a hundred; time of an answer."""
    found: dict[str, list[float]] = {}
    task, n = toy_tasks.noisy_fork(), 8 if quick else 200
    rate = 1 / tasks.env(task, 1, threads=1).world.dt
    for seed in range(1 if quick else SEEDS):
        logs = demonstrated(seed, 4 if quick else EPISODES)
        for by in ("mse", "diffusion", "flow"):
            s = CloneSettings(by=by, updates=50 if quick else 3000)  # type: ignore[arg-type]
            learner = Clone(
                tasks.env(task, 1, threads=1), s, seed, demos(task, rate, logs, 1 if by == "mse" else s.chunk)
            )
            while learner.iteration < learner.iterations:
                learner.iterate()
            net, judge = policy_of(learner), tasks.env(task, n, None, 1_000_000 + seed, 1)
            found.setdefault(f"{by}: success from one start", []).append(evaluate(net, judge).rate)
            if by != "mse":
                success, rarer = _sides(Drawn(net, seed), n, seed)
                found.setdefault(f"{by}: success, a start for each episode", []).append(success)
                found.setdefault(f"{by}: of these, by the rarer side", []).append(rarer)
            if by == "diffusion":
                all_, _ = _sides(Drawn(net, seed, ddpm=True), n, seed)
                found.setdefault("diffusion: success by all 100 steps of DDPM", []).append(all_)
                found.setdefault("diffusion: time of an answer", []).append(_milliseconds(net))
            said(f"clone, seed {seed}, {by}: " + ", ".join(f"{k} {v[-1]:.3g}" for k, v in found.items() if by in k))
    goals = {"mse: success from one start": {"at_most": 0.7}, "diffusion: success, a start for each episode": {"at_least": 0.95},
             "diffusion: of these, by the rarer side": {"at_least": 0.2}, "diffusion: time of an answer": {"at_most": 20.0}}  # fmt: skip
    for name, values in found.items():
        unit = "ms" if "time" in name else "of successes" if "rarer" in name else "of episodes"
        yield row(f"fork, {name}", values, unit, **goals.get(name, {}))
    gap = [100 * abs(a - b) for a, b in zip(found["diffusion: success, a start for each episode"], found["diffusion: success by all 100 steps of DDPM"])]  # fmt: skip
    yield row("fork, diffusion: ten steps of DDIM from a hundred of DDPM", gap, "points", at_most=3)


def _milliseconds(net: PolicyNet) -> float:
    """Median time of one answer by onnxruntime, on one thread."""
    from surefoot.learn.nets.export import onnx_bytes
    from surefoot.onnx_file import exported

    graph, obs, spent = exported(onnx_bytes(net)), np.zeros((1, net.contract.obs_dim), np.float32), list[float]()
    for _ in range(50):
        began = time.perf_counter()
        graph(obs)
        spent.append(time.perf_counter() - began)
    return 1000 * float(np.median(spent))
