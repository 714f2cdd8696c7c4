"""cross: the whole story against a hidden reality, with a page of evidence.

    1 train where e = nominal    2 meet a reality e* nobody told the policy about
    3 train over a belief p(e)   4 meet e* again

Each policy is judged on the same episodes (same seed) in the nominal world, in the reality and over the belief.
"""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from surefoot import files, tasks
from surefoot.belief import Belief, Box, point
from surefoot.deploy import bundle
from surefoot.errors import SurefootError
from surefoot.learn.train import settings_for, train
from surefoot.policy import Policy
from surefoot.report import Progress, Watch, unwatched
from surefoot.sim.realities import reality
from surefoot.task import Task
from surefoot.tasks.registry import Reference, located
from surefoot.tasks.rollout import Evaluation, evaluate

PASS = 0.9  # success rate that counts as having crossed
JUDGED = 1000  # seed of the judging episodes, which no training used


@dataclass(frozen=True)
class Crossed:
    """Both policies, and what each did in each world."""

    facts: dict[str, Any]
    results: dict[str, dict[str, Evaluation]]
    policies: dict[str, Policy]
    worlds: dict[str, Belief]
    """nominal, reality, belief"""


def cross(
    task: Reference,
    out: Path,
    seed: int = 0,
    reality_seed: int = 0,
    episodes: int = 200,
    steps: int | None = None,
    belief: Belief | None = None,
    watch: Watch = unwatched,
) -> Crossed:
    """Train a task in the nominal world and over a belief (its own), and judge both in a reality."""
    reference, task = located(task)
    belief = belief or task.belief
    if not isinstance(belief, Box):
        raise SurefootError(f"{task.name}: cross needs a belief of ranges (a box), found {type(belief).__name__}")
    if seed == JUDGED:
        raise SurefootError(f"--seed: {seed} is the seed of the episodes that judge; choose another to train with")
    e_real = reality(belief, reality_seed)
    worlds: dict[str, Belief] = {
        "nominal": tasks.nominal(task),
        "reality": point(task.params, e_real),
        "belief": belief,
    }
    began, say = time.monotonic(), lambda words: watch(Progress(words, stays=True))
    results: dict[str, dict[str, Evaluation]] = {}
    policies: dict[str, Policy] = {}
    settings = settings_for(task, {} if steps is None else {"steps": steps})
    if steps is not None and settings.rounding:
        say(f"note: {settings.rounding}")
    for k, (kind, doing) in enumerate(
        (("nominal", "training in the nominal world"), ("belief", "training over the belief"))
    ):
        say(f"{2 * k + 1}. {doing}")
        path = train((reference, task), out / kind, seed=seed, belief=worlds[kind], settings=settings, watch=watch)
        policies[kind] = bundle.load(path)
        results[kind] = {w: _judge(policies[kind], task, b, episodes) for w, b in worlds.items()}
        met, home = results[kind]["reality"].rate, results[kind][kind].rate
        say(
            f"{2 * k + 2}. the {kind} policy in reality: {100 * met:.0f} % success ({100 * home:.0f} % where it was trained)"
        )
    facts = _facts(task, results, e_real, reality_seed, seed, time.monotonic() - began)
    files.write_json(out / "cross.json", facts)
    return Crossed(facts, results, policies, worlds)


def _judge(policy: Policy, task: Task, belief: Belief, episodes: int) -> Evaluation:
    return evaluate(policy, tasks.env(task, episodes, belief, JUDGED))


def _facts(
    task: Task, results: dict[str, dict[str, Evaluation]], e: np.ndarray, reality_seed: int, seed: int, seconds: float
) -> dict[str, Any]:
    before, after = results["nominal"]["reality"], results["belief"]["reality"]
    crossed = after.interval[0] > before.interval[1] and after.rate >= PASS
    change = f"{100 * before.rate:.0f} % -> {100 * after.rate:.0f} % success"
    if crossed:
        verdict = f"crossed: {change} in a reality neither policy had seen"
    elif before.rate >= PASS:
        share = f"{100 * before.rate:.0f} % of episodes"
        verdict = f"no gap to cross: the nominal policy already succeeds in {share} there; try another --reality"
    else:
        verdict = f"not crossed: {change}; train longer (--steps) or look at the report"
    return {
        "task": task.name, "seed": seed, "reality_seed": reality_seed, "seconds": round(seconds, 1),
        "crossed": crossed, "gap": before.rate < PASS, "verdict": verdict,
        "reality": dict(zip(task.params.names, e.tolist())),
        "nominal": dict(zip(task.params.names, task.params.nominal.tolist())),
        "results": {k: {w: r.to_json() for w, r in row.items()} for k, row in results.items()},
    }  # fmt: skip


def errors(policy: Policy, task: Task, real: Belief, episodes: int = 100) -> tuple[np.ndarray, np.ndarray]:
    """Times (T,) and errors (T, n) of episodes in a world; NaN once one has ended."""
    env = tasks.env(task, episodes, real, JUDGED)
    rows: list[np.ndarray] = []
    alive = np.ones(env.n, bool)

    def look(k: int, env: Any) -> None:
        nonlocal alive
        alive = alive & (env.age == k + 1)  # an episode that ended has begun anew
        rows.append(np.where(alive, task.error(env.moment), np.nan))

    evaluate(policy, env, look)
    return (np.arange(len(rows)) + 1) * env.world.dt, np.array(rows)
