"""sweep: success against one unknown, for several policies on the same episodes: where each starts to fail.

A policy trained in one world peaks there; one trained over a range is flatter and may peak lower: the price of
robustness, E[J*(e) - J(theta, e)], where J* is the return of a specialist trained at e alone. Every point has `episodes`
episodes with that one unknown set and the others drawn from a belief; all policies have the same worlds and starts.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from surefoot import files, tasks
from surefoot.belief import Belief, Box
from surefoot.contract import Contract
from surefoot.deploy import bundle
from surefoot.env import Env
from surefoot.errors import SurefootError, unknown
from surefoot.gate.statistics import mean
from surefoot.learn import train as learn
from surefoot.learn.cluster.jobs import HERE, Job, Jobs
from surefoot.policy import Policy, PolicyState
from surefoot.report import Watch
from surefoot.rng import stream
from surefoot.task import Task
from surefoot.tasks.registry import task_file
from surefoot.tasks.rollout import evaluate
from surefoot.verdict import clopper_pearson


def values_over(task: Task, name: str, points: int, low: float | None = None, high: float | None = None) -> np.ndarray:
    """Values of an unknown, evenly spaced, on a log scale where it has one; between its physical bounds by default."""
    if name not in task.params.names:
        raise unknown("unknown", name, task.params.names, f"task {task.name}")
    p = task.params[name]
    low, high = p.low if low is None else low, p.high if high is None else high
    if points < 2:
        raise SurefootError(f"points: expected at least 2, found {points}")
    if not p.low <= low < high <= p.high:
        raise SurefootError(f"{name}: expected {p.low:g} <= low < high <= {p.high:g}, found {low:g} and {high:g}")
    return np.geomspace(low, high, points) if p.log else np.linspace(low, high, points)


@dataclass(frozen=True)
class Points:
    """What a sweep asks: values of one unknown, and the episodes at each."""

    name: str
    values: np.ndarray
    others: Belief
    """of the other unknowns"""
    episodes: int
    seed: int
    batches: int = 1
    """of so many episodes at each value, the next with the next seed"""

    def worlds(self, batch: int = 0) -> np.ndarray:
        """(values x episodes, ne): all episodes of the first value first; the same others at every value."""
        drawn = self.others.sample(stream(self.seed + batch, "sweep"), self.episodes)
        e = np.tile(drawn, (len(self.values), 1))
        e[:, self.others.params.index(self.name)] = np.repeat(self.values, self.episodes)
        return e


def sweep_files(paths: Mapping[str, Path], task: str, points: Points, jobs: Jobs) -> dict[str, Any]:
    """`sweep` of policies' files, each policy a job."""
    asked, source = {"task": task, "points": points, "threads": jobs.threads}, task_file(task)
    content = [points.others.to_json(), source[0].read_bytes() if source else b""]
    found = jobs.each(swept, [
        Job(label, asked | {"label": label, "path": str(path.absolute())}, [*content, files.sha256(path.read_bytes())])
        for label, path in paths.items()
    ])  # fmt: skip
    return found[0] | {"policies": {k: v for facts in found for k, v in facts["policies"].items()}}


def swept(given: Mapping[str, Any], watch: Watch) -> dict[str, Any]:
    """The job of one policy."""
    policy = bundle.load(Path(given["path"]))
    task = tasks.of(policy.contract, given["task"])
    return sweep({given["label"]: policy}, task, given["points"], threads=given["threads"])


def sweep(
    policies: Mapping[str, Policy],
    task: Task,
    points: Points,
    watch: Callable[[int, Env], None] | None = None,
    threads: int = 0,
) -> dict[str, Any]:
    """Success with an exact interval, mean return and mean error of each policy at each value."""
    found = {label: _curve(policy, task, points, watch, threads) for label, policy in policies.items()}
    p = task.params[points.name]
    return {
        "task": task.name, "over": points.name, "unit": p.unit, "log": p.log, "nominal": p.nominal,
        "episodes": points.episodes * points.batches, "seed": points.seed, "policies": found,
    }  # fmt: skip


def _curve(
    policy: Policy, task: Task, points: Points, watch: Callable[[int, Env], None] | None = None, threads: int = 0
) -> list[dict[str, Any]]:
    """One policy at every value."""
    own = tasks.for_contract(task, policy.contract)  # with the terms and frames of its own contract
    found = []
    for b in range(points.batches):
        e = points.worlds(b)
        result = evaluate(policy, tasks.env(own, len(e), points.others, points.seed + b, threads), watch, e)
        found.append([x.reshape(len(points.values), -1) for x in (result.success, result.returns, result.error)])
    rows = (np.concatenate(parts, 1) for parts in zip(*found))
    return [_point(*row) for row in zip(points.values, *rows)]


def _point(value: float, success: np.ndarray, returns: np.ndarray, error: np.ndarray) -> dict[str, Any]:
    low, high = clopper_pearson(int(success.sum()), len(success))
    error = error[np.isfinite(error)]
    return {
        "value": float(value), "success": float(success.mean()), "low": low, "high": high,
        "return": float(returns.mean()), "error": float(error.mean()) if len(error) else None, "returns": returns.tolist(),
    }  # fmt: skip


@dataclass(frozen=True)
class PerPoint(Policy):
    """One policy for each point of a sweep, so that specialists have the episodes of the sweep."""

    contract: Contract
    policies: tuple[Policy, ...]

    def init(self, n: int) -> PolicyState:
        parts = [policy.init(n // len(self.policies)) for policy in self.policies]
        return {f"{k}.{name}": v for k, part in enumerate(parts) for name, v in part.items()}

    def step(self, s: PolicyState, obs: np.ndarray) -> tuple[PolicyState, np.ndarray]:
        found = [
            policy.step({n.split(".", 1)[1]: v for n, v in s.items() if n.startswith(f"{k}.")}, part)
            for k, (policy, part) in enumerate(zip(self.policies, np.split(obs, len(self.policies))))
        ]
        after = {f"{k}.{name}": v for k, (part, _) in enumerate(found) for name, v in part.items()}
        return after, np.concatenate([a for _, a in found])


def specialists(task: str, points: Points, run: Path, out: Path, jobs: Jobs = HERE) -> PerPoint:
    """A policy for each value, trained as `run` was but with that one unknown fixed; those already in `out` are used again."""
    spec, name, others = learn.settings_of(run), points.name, points.others
    elsewhere = others != tasks.nominal(tasks.resolve(task))  # those of another belief have folders of their own
    mark = "-" + files.sha256(repr(others.to_json()).encode())[:8] if elsewhere else ""
    asked = []
    for value in points.values:
        folder = (out / f"{name}-{value:.10g}{mark}").absolute()
        more = {"task": task, "out": folder, "threads": jobs.threads, "belief": _fixed(others, name, value)}
        asked.append(Job(f"specialist at {name} {value:.4g}", spec | more))
    found = [bundle.load(Path(path)) for path in jobs.each(specialist, asked)]
    return PerPoint(found[0].contract, tuple(found))


def specialist(given: Mapping[str, Any], watch: Watch) -> str:
    """The job of one specialist: a run, which goes on if it was begun before."""
    spec = {k: v for k, v in given.items() if k not in ("task", "out")}
    return str(learn.train(given["task"], given["out"], resume_if_same=True, watch=watch, **spec))


def price(facts: dict[str, Any], best: PerPoint, task: Task, points: Points) -> dict[str, Any]:
    """The facts of a sweep with those of specialists at its points and each policy's price of robustness.

    d_j is the specialists' return minus the policy's in episode j, averaged over points; the price is the mean of d_j, with a 95 %
    interval over episodes, not over trainings.
    """
    found = _curve(best, task, points)
    prices = {}
    for label, curve in facts["policies"].items():
        d = np.mean([np.subtract(b["returns"], p["returns"]) for b, p in zip(found, curve)], 0)
        it = mean(d)
        prices[label] = {"mean": it.value, "low": it.low, "high": it.high, "how": it.how}
    return facts | {"specialists": found, "price": prices}


def _fixed(others: Belief, name: str, value: float) -> Belief:
    """The belief with one unknown fixed."""
    if not isinstance(others, Box):
        raise SurefootError("specialists: expected a belief of ranges, where one unknown can be fixed")
    i = others.params.index(name)
    low, high = others.low.copy(), others.high.copy()
    low[i] = high[i] = value
    return Box(others.params, low, high)
