"""Policy gradients beside PPO, on tasks made to tell them apart: what each is for, and what it costs elsewhere.

    python -m benchmarks.policy_gradient [--only swing|pegs|arm|clone|improve|robot] [--quick] [--json] [--record]

Contenders have equal env steps and, but for what is named, equal settings. Policies are judged without exploration on
episodes that training never saw. A case that is done is kept in runs/policy_gradient and is not run again.
"""

import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from benchmarks import cloned, measure, robot_demos, toy_tasks
from benchmarks.measure import Row, row, said
from surefoot import files, tasks
from surefoot.learn.collect import LocalCollector
from surefoot.learn.loop import policy_of
from surefoot.learn.on_policy.fpo import FPO
from surefoot.learn.on_policy.learner import OnPolicy
from surefoot.learn.on_policy.ppo import PPO
from surefoot.learn.on_policy.sapg import SAPG
from surefoot.learn.train import settings_for
from surefoot.task import Task
from surefoot.tasks.rollout import evaluate

KINDS: dict[str, type[OnPolicy]] = {"ppo": PPO, "sapg": SAPG, "fpo": FPO}
EVALUATION_SEED = 1_000_000  # apart from every training seed
SEEDS, MORE_SEEDS = 3, 5
Settings = tuple[str, Mapping[str, Any]]
"""a learner, and its settings where they are not the task's"""


def learned(task: Task, how: Settings, seed: int) -> tuple[OnPolicy, float]:
    """The learner at its end, and how far its mean reward, over 3 iterations, fell below the best that it had, in parts of what it had gained."""
    name, changes = how
    s = settings_for(task, dict(changes), name)
    learner, rewards = KINDS[name](tasks.env(task, s.envs, None, seed, 1, stagger=True), s, seed), list[float]()
    while learner.iteration < learner.iterations:
        rewards.append(learner.iterate()["reward"])
    mean = np.convolve(rewards, np.ones(3) / 3, "valid") if len(rewards) > 3 else np.array([0.0, 1.0])
    return learner, float((mean.max() - mean[-1]) / max(mean.max() - mean[0], 1e-9))


def case(part: str, name: str, seed: int, task: Task, how: Settings, quick: bool) -> dict[str, float]:
    """Success without exploration, CPU seconds, and where sampled actions of pegs went; kept on disk."""
    path = cloned.KEEP / f"{part}-{name}-{seed}.json"
    if quick or not path.exists():
        began = time.process_time()
        changes = {"steps": 1, "envs": 12, "horizon": 4, "minibatches": 1, **how[1]} if quick else how[1]
        learner, fell = learned(task, (how[0], changes), seed)
        found = {"cpu": time.process_time() - began, "fell": fell}
        env = tasks.env(task, 4 if quick else 200, None, EVALUATION_SEED + seed, 1)
        found["success"] = evaluate(policy_of(learner), env).rate
        found |= sides(learner, seed) if task.name == "pegs" else {}
        if quick:
            return found
        files.write_json(path, found)
    found = files.read_json(path)
    said(f"{part}, {name}, seed {seed}: " + ", ".join(f"{k} {v:.3g}" for k, v in found.items()))
    return found


@torch.no_grad()
def sides(learner: OnPolicy, seed: int, n: int = 200) -> dict[str, float]:
    """Of steps of pegs with sampled actions: the shares that end within 0.2 m of each peg."""
    env = tasks.env(learner.env.task, n, None, EVALUATION_SEED + 50 + seed, 1)
    noise = torch.randn((5, n, 1), generator=torch.Generator().manual_seed(seed)).numpy()
    r = LocalCollector(env).collect(learner.explore(raw=False), len(noise), (), {"noise": noise})
    x = np.clip(learner.sent(r.kept["action"])[..., 0], -1, 1)
    good = np.abs(np.abs(x) - toy_tasks.PEG) < 0.2
    return {"left": float((good & (x < 0)).mean()), "right": float((good & (x > 0)).mean())}


SWING: dict[str, Settings] = {
    "ppo": ("ppo", {}),
    "ppo, entropy 0.1": ("ppo", {"entropy": 0.1}),
    "ppo, entropy 0.5": ("ppo", {"entropy": 0.5}),
    "sapg": ("sapg", {"entropy": 0.5}),
    "sapg, all followers lend": ("sapg", {"entropy": 0.5, "lent": 5}),
    "sapg, nobody lends": ("sapg", {"entropy": 0.5, "lent": 0}),
}


def swing(quick: bool) -> Iterator[Row]:
    """Paid only at the top, and each torque costs: PPO with several entropies, and SAPG, whose first follower has the largest."""
    rates: dict[str, np.ndarray] = {}
    for name, how in SWING.items():
        seeds = range(1 if quick else MORE_SEEDS)
        rates[name] = np.array([case("swing", name, seed, toy_tasks.swing(), how, quick)["success"] for seed in seeds])
    for name, each in rates.items():
        yield row(f"swing, {name}: success", each, "of episodes")
    best = max((name for name in rates if name.startswith("ppo")), key=lambda name: rates[name].mean())
    compared = {"ppo": 20, best: 20, "sapg, nobody lends": 0}
    for name, least in compared.items():
        yield row(f"swing: sapg above {name}", 100 * (rates["sapg"] - rates[name]), "points", at_least=least)


def pegs(quick: bool) -> Iterator[Row]:
    """Two places that pay alike: which share of sampled actions goes to the rarer one."""
    contenders: dict[str, Settings] = {
        "ppo": ("ppo", {}), "fpo++": ("fpo", {"start": 1.0}), "fpo": ("fpo", {"start": 1.0, "plus": False}),
    }  # fmt: skip
    for name, how in contenders.items():
        found = [case("pegs", name, seed, toy_tasks.pegs(), how, quick) for seed in range(1 if quick else SEEDS)]
        rarer = [min(f["left"], f["right"]) for f in found]
        goal = None if name == "ppo" else 0.2
        yield row(f"pegs, {name}: sampled actions at the rarer peg", rarer, "of actions", at_least=goal)
        yield row(f"pegs, {name}: at either", [f["left"] + f["right"] for f in found], "of actions")
        yield row(f"pegs, {name}: success from one start", [f["success"] for f in found], "of episodes")


def arm(quick: bool) -> Iterator[Row]:
    """A task with one way: a flow must not cost success, and what it has learned must stay."""
    task, rates = tasks.resolve("arm"), dict[str, list[float]]()
    for name in ("ppo", "fpo"):
        how: Settings = (name, {"steps": 100_000})
        found = [case("arm", name, seed, task, how, quick) for seed in range(1 if quick else MORE_SEEDS)]
        rates[name] = [f["success"] for f in found]
        yield row(f"arm, {name}: success after 100,000 steps", rates[name], "of episodes")
        yield row(f"arm, {name}: CPU time", [f["cpu"] for f in found], "s")
        fell = [f["fell"] for f in found]
        yield row(f"arm, {name}: reward at the end below its best", fell, "of what was gained", at_most=0.1)
    yield row("arm: fpo above ppo", 100 * (np.array(rates["fpo"]) - np.array(rates["ppo"])), "points", at_least=-3)


PARTS = {
    "swing": swing,
    "pegs": pegs,
    "arm": arm,
    "clone": cloned.rows,
    "improve": cloned.improved,
    "robot": robot_demos.rows,
}

if __name__ == "__main__":
    measure.main("policy_gradient", str(__doc__), PARTS)
