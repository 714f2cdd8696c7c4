"""sweep: success against one unknown, for several policies on the same episodes: where each begins to fail.

A policy trained in one world peaks there; one trained over a range is flatter, and may peak lower: the price of bearing
many worlds. Every point is `episodes` episodes with that one parameter set, the others drawn from a belief; every policy
meets the same worlds and starts.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from surefoot import tasks
from surefoot.belief import Belief
from surefoot.errors import SurefootError, unknown
from surefoot.gate import report
from surefoot.policy import Policy
from surefoot.rng import stream
from surefoot.task import Env, Task
from surefoot.tasks.rollout import evaluate
from surefoot.verdict import clopper_pearson


def values_over(task: Task, name: str, points: int, low: float | None = None, high: float | None = None) -> np.ndarray:
    """Values of a parameter to try, evenly spaced, in ratio where it is on a log scale; its physical bounds by default."""
    if name not in task.params.names:
        raise unknown("unknown", name, task.params.names, f"task {task.name}")
    p = task.params[name]
    low, high = p.low if low is None else low, p.high if high is None else high
    if points < 2:
        raise SurefootError(f"points: expected at least 2, found {points}")
    if not p.low <= low < high <= p.high:
        raise SurefootError(f"{name}: expected {p.low:g} <= low < high <= {p.high:g}, found {low:g} and {high:g}")
    return np.geomspace(low, high, points) if p.log else np.linspace(low, high, points)


def sweep(
    policies: Mapping[str, Policy],
    task: Task,
    name: str,
    values: np.ndarray,
    others: Belief,
    episodes: int,
    seed: int,
    watch: Callable[[int, Env], None] | None = None,
) -> dict[str, Any]:
    """Success with an exact interval, mean return and mean error of each policy at each value."""  # fmt: skip
    e = np.tile(others.sample(stream(seed, "sweep"), episodes), (len(values), 1))
    e[:, task.params.index(name)] = np.repeat(values, episodes)
    found: dict[str, list[dict[str, Any]]] = {}
    for label, policy in policies.items():
        own = tasks.fitting(task, policy.contract)  # told what it was made for: more frames, or what a teacher knows
        result = evaluate(policy, tasks.env(own, len(e), others, seed), watch, e)
        success, returns, error = (
            x.reshape(len(values), episodes) for x in (result.success, result.returns, result.error)
        )
        found[label] = [_point(*row) for row in zip(values, success, returns, error)]
    p = task.params[name]
    return {
        "task": task.name, "over": name, "unit": p.unit, "log": p.log, "nominal": p.nominal,
        "episodes": episodes, "seed": seed, "policies": found,
    }  # fmt: skip


def _point(value: float, success: np.ndarray, returns: np.ndarray, error: np.ndarray) -> dict[str, Any]:
    low, high = clopper_pearson(int(success.sum()), len(success))
    error = error[np.isfinite(error)]
    return {
        "value": float(value), "success": float(success.mean()), "low": low, "high": high,
        "return": float(returns.mean()), "error": float(error.mean()) if len(error) else None,
    }  # fmt: skip


def table(facts: Mapping[str, Any]) -> Table:
    """A row for each value, a column for each policy."""
    head = f"{facts['over']}{' [' + facts['unit'] + ']' if facts['unit'] else ''}"
    out = Table(head, *facts["policies"], title="success (95 % interval)", title_justify="left")
    for points in zip(*facts["policies"].values()):
        cells = [f"{100 * p['success']:5.1f} % ({100 * p['low']:.0f} - {100 * p['high']:.0f})" for p in points]
        out.add_row(f"{points[0]['value']:.4g}", *cells)
    return out


def page(path: Path, facts: Mapping[str, Any]) -> Path:
    """The picture, in a file that needs nothing else."""
    name, policies = facts["over"], facts["policies"]

    def draw(axes: Any) -> None:
        for label, points in policies.items():
            x, y, low, high = (np.array([p[k] for p in points]) for k in ("value", "success", "low", "high"))
            (line,) = axes.plot(x, 100 * y, marker="o", ms=4, label=label)
            axes.fill_between(x, 100 * low, 100 * high, alpha=0.15, color=line.get_color(), lw=0)
        axes.axvline(facts["nominal"], color="0.5", lw=0.8, ls=":")
        axes.set(xlabel=f"{name} {facts['unit']}", ylabel="success %", ylim=(-3, 103))
        if facts["log"]:
            axes.set_xscale("log")
        axes.legend()

    shown = report.plot(
        draw, f"Success against {name}; bands are exact 95 % intervals, dotted: what the model says.", (8, 4)
    )
    rows = [
        [f"{p[0]['value']:.4g}", *(f"{100 * x['success']:.1f} % ({100 * x['low']:.0f} - {100 * x['high']:.0f})" for x in p)]
        for p in zip(*policies.values())
    ]  # fmt: skip
    parts = [shown, report.table([name, *policies], rows)]
    return report.write(path, f"{facts['task']}: success over {name}", parts, facts)
