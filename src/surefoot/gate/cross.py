"""cross: the whole story against a hidden reality, with a page of evidence.

    1 train where e = nominal    2 meet a reality e* nobody told the policy about
    3 train over a belief p(e)   4 meet e* again

Each policy is judged on the same episodes (same seed) in the nominal world, in the reality and over the belief.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.table import Table

from surefoot import files, tasks
from surefoot.belief import Belief, Box, point
from surefoot.deploy import bundle
from surefoot.errors import SurefootError
from surefoot.gate import report
from surefoot.learn.loop import Watcher
from surefoot.learn.train import settings_for, train
from surefoot.policy import Policy
from surefoot.sim.realities import reality
from surefoot.task import Task
from surefoot.tasks.rollout import Evaluation, evaluate

PASS = 0.9  # success rate that counts as having crossed
JUDGED = 1000  # seed of the judging episodes, which no training used


def cross(
    task_name: str,
    out: Path,
    seed: int,
    reality_seed: int,
    episodes: int,
    steps: int | None,
    watch: Watcher,
    say: Callable[[str], Any],
) -> tuple[dict[str, Any], list[Any]]:
    task = tasks.make(task_name)
    if not isinstance(task.belief, Box):
        raise SurefootError(f"{task_name}: cross needs a task whose belief is a box of ranges")
    if seed == JUDGED:
        raise SurefootError(f"--seed: {seed} is the seed of the episodes that judge; choose another to train with")
    e_real = reality(task.belief, reality_seed)
    worlds: dict[str, Belief] = {
        "nominal": tasks.nominal(task),
        "reality": point(task.params, e_real),
        "belief": task.belief,
    }
    began = time.monotonic()
    results: dict[str, dict[str, Evaluation]] = {}
    policies: dict[str, Policy] = {}
    settings = settings_for(task_name, {} if steps is None else {"steps": steps})
    for kind, told in (("nominal", "1. training where the model is right"), ("belief", "3. training over the belief")):
        say(told)
        path = train(task_name, out / kind, seed=seed, belief=worlds[kind], settings=settings, watch=watch)
        policies[kind] = bundle.load(path)
        results[kind] = {w: _judge(policies[kind], task, b, episodes) for w, b in worlds.items()}
        met = results[kind]["reality"]
        home = results[kind][kind]
        say(
            f"{'2' if kind == 'nominal' else '4'}. the {kind} policy meets reality: "
            f"{100 * met.rate:.0f} % success (at home {100 * home.rate:.0f} %)"
        )
    facts = _facts(task, results, e_real, reality_seed, seed, time.monotonic() - began)
    say("5. the page of evidence")
    _page(out / "report.html", task, facts, results, policies, worlds)
    files.write_json(out / "cross.json", facts)
    return facts, [_table(results), _numbers(task, e_real), facts["verdict"], f"report: {out / 'report.html'}"]


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


def _percent(r: Evaluation) -> str:
    low, high = r.interval
    return f"{100 * r.rate:.1f} % ({100 * low:.0f} - {100 * high:.0f})"


def _table(results: dict[str, dict[str, Evaluation]]) -> Table:
    table = Table(
        "trained in",
        "nominal world",
        "hidden reality",
        "over the belief",
        title="success (95 % interval)",
        title_justify="left",
        box=box.SIMPLE_HEAD,
    )
    for kind, row in results.items():
        table.add_row(kind, *(_percent(row[w]) for w in ("nominal", "reality", "belief")))
    return table


def _numbers(task: Task, e: np.ndarray) -> Table:
    table = Table(
        "unknown", "model", "reality", "unit", title="what reality was", title_justify="left", box=box.SIMPLE_HEAD
    )
    for p, value in zip(task.params, e):
        table.add_row(p.name, f"{p.nominal:.3g}", f"{value:.3g}", p.unit or "-")
    return table


def _page(
    path: Path,
    task: Task,
    facts: dict[str, Any],
    results: dict[str, dict[str, Evaluation]],
    policies: dict[str, Policy],
    worlds: dict[str, Belief],
) -> None:
    names, real = {"nominal": "trained in the nominal world", "belief": "trained over the belief"}, worlds["reality"]
    rates = [[name, *(_percent(results[k][w]) for w in ("nominal", "reality", "belief"))] for k, name in names.items()]
    parts = [
        report.paragraph(
            f"Task {task.name}: {task.about}. An episode succeeds when it lasts {task.seconds:g} s and its error over "
            f"the last {task.window:g} s stays within {task.tolerance:.3g} {task.error_unit}."
        ),
        report.paragraph(facts["verdict"], "good" if facts["crossed"] else "bad"),
        report.heading("Success"),
        report.table(("policy", "nominal world", "hidden reality", "over the belief"), rates),
        report.plot(
            lambda axes: _bars(axes, results, names),
            "Success with exact 95 % intervals, same episodes for both policies",
        ),
        report.heading("In the hidden reality"),
        *(_film(policies[k], task, real, f"The policy {name}, in the hidden reality") for k, name in names.items()),
        report.plot(
            lambda axes: _errors(axes, policies, names, task, real),
            f"Error over time in the hidden reality, median and worst tenth of 100 episodes [{task.error_unit}]",
        ),
        report.heading("What reality was"),
        report.table(("unknown", "what", "model", "belief", "reality", "unit"), _rows(task, real)),
        report.paragraph(
            "Neither policy was told these numbers. "
            "Reality was drawn from the outer part of the belief's ranges by its seed."
        ),
    ]
    report.write(path, f"surefoot cross {task.name}", [p for p in parts if p], facts)


def _rows(task: Task, real: Belief) -> list[list[str]]:
    assert isinstance(task.belief, Box)  # cross() has refused any other
    low, high, e = task.belief.low, task.belief.high, real.mean()
    return [
        [p.name, p.about, f"{p.nominal:.3g}", f"{low[i]:.3g} .. {high[i]:.3g}", f"{e[i]:.3g}", p.unit or "-"]
        for i, p in enumerate(task.params)
    ]


def _bars(axes: Any, results: dict[str, dict[str, Evaluation]], names: dict[str, str]) -> None:
    worlds = ("nominal", "reality", "belief")
    for j, (kind, colour) in enumerate((("nominal", "#b3261e"), ("belief", "#187a3c"))):
        rates = np.array([results[kind][w].rate for w in worlds])
        bounds = np.array([results[kind][w].interval for w in worlds])
        at = np.arange(3) + 0.36 * (j - 0.5)
        axes.bar(
            at,
            rates,
            0.34,
            color=colour,
            alpha=0.8,
            label=names[kind],
            yerr=[rates - bounds[:, 0], bounds[:, 1] - rates],
            capsize=3,
        )
    axes.set_xticks(np.arange(3), ("nominal world", "hidden reality", "over the belief"))
    axes.set_ylim(0, 1.05)
    axes.set_ylabel("success")
    axes.legend(loc="lower left", fontsize=8)


def _errors(axes: Any, policies: dict[str, Policy], names: dict[str, str], task: Task, real: Belief) -> None:
    for kind, colour in (("nominal", "#b3261e"), ("belief", "#187a3c")):
        env = tasks.env(task, 100, real, JUDGED)
        rows: list[np.ndarray] = []
        alive = np.ones(env.n, bool)

        def watch(k: int, env: Any, rows: list[np.ndarray] = rows, alive: np.ndarray = alive) -> None:
            alive &= env.age == k + 1  # an episode that ended has begun anew
            rows.append(np.where(alive, task.error(env.moment), np.nan))

        evaluate(policies[kind], env, watch)
        t = (np.arange(len(rows)) + 1) * env.world.dt
        table = np.array(rows)
        lasting = np.isfinite(table).sum(1) >= 10
        axes.plot(t[lasting], np.nanmedian(table[lasting], 1), color=colour, label=names[kind])
        axes.fill_between(
            t[lasting],
            np.nanmedian(table[lasting], 1),
            np.nanquantile(table[lasting], 0.9, axis=1),
            color=colour,
            alpha=0.2,
        )
    axes.axhline(task.tolerance, color="#888", ls="--", lw=1)
    axes.set_xlabel("s")
    axes.set_ylabel(f"error [{task.error_unit}]")
    axes.legend(fontsize=8)


def _film(policy: Policy, task: Task, real: Belief, caption: str) -> str:
    """A few seconds of it; where nothing can render, the page says so and does without."""
    try:
        from surefoot.tasks.picture import film

        return report.image(
            film(policy, tasks.env(task, 1, real, JUDGED), seconds=3.0, fps=12, size=(320, 240)), "gif", caption
        )
    except (SurefootError, ImportError) as error:
        return report.paragraph(f"{caption}: no film, because {error}")
