"""Learners against each other: env steps and seconds until a policy is good enough, on several tasks and seeds.

    python -m benchmarks.learners [--only hover|arm|walk] [--learner NAME] [--quick] [--json] [--record]
        [--seeds N] [--keep FOLDER] [--figure FILE.png]

Every learner has the task's own settings for it. The policy is judged after every part of a run, without exploration, on
episodes that training never saw; the clock stands still meanwhile. Wall time counts what other programs do to the machine;
CPU time, of all threads together, does not. Learners take turns within a seed, so that a machine that slows down does so
for all. A case that is done is kept in the folder `--keep`, and is not run again when the same command is given again.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import measure
from benchmarks.measure import Row, row, said
from surefoot import files, tasks
from surefoot.belief import Belief
from surefoot.learn import keep_freed_memory
from surefoot.learn.learner import PolicyLearner
from surefoot.learn.loop import policy_of
from surefoot.learn.off_policy.fast_sac import FastSAC
from surefoot.learn.off_policy.fast_td3 import FastTD3
from surefoot.learn.on_policy.ppo import PPO
from surefoot.learn.train import settings_for
from surefoot.task import Task
from surefoot.tasks.rollout import Evaluation, evaluate

LEARNERS: dict[str, Any] = {"ppo": PPO, "fasttd3": FastTD3, "fastsac": FastSAC}
EVALUATION_SEED = 1_000_000  # apart from every training seed


@dataclass(frozen=True)
class Race:
    """What counts as good enough on a task, and where a run is given up."""

    task: str
    nominal: bool
    """in the nominal world, or over the task's belief"""
    seeds: int
    every: int
    """env steps between evaluations"""
    most: int
    """env steps, after which it is given up; or its own settings' steps, where these are fewer"""
    success: float = 0.95
    episodes: int = 200

    def good(self, e: Evaluation) -> bool:
        if self.task != "walk":
            return e.rate >= self.success
        upright = np.isfinite(e.error)
        return float(upright.mean()) >= self.success and float(e.error[upright].mean()) < 0.2


RACES = {
    "hover": Race("hover", True, 3, 16_384, 1_500_000),
    "arm": Race("arm", True, 3, 8_192, 400_000, episodes=100),
    "walk": Race("walk", False, 1, 245_760, 12_000_000, episodes=128),
}


@dataclass(frozen=True)
class Found:
    """One run: what it took, and what came of the policy in other episodes."""

    task: str
    learner: str
    seed: int
    reached: bool
    steps: int
    wall: float
    cpu: float
    again: float
    """success in 1000 episodes that did not choose it"""
    load: float
    curve: list[list[float]]
    """[env steps, wall s, CPU s, success, return] at each evaluation"""


def _learner(name: str, task: Task, belief: Belief, seed: int) -> PolicyLearner:
    settings = settings_for(task, learner=name)
    found: PolicyLearner = LEARNERS[name](tasks.env(task, settings.envs, belief, seed, stagger=True), settings, seed)
    return found


def run(race: Race, name: str, seed: int) -> Found:
    """Learn until good enough, or until it is given up."""
    task = tasks.resolve(race.task)
    belief = tasks.nominal(task) if race.nominal else task.belief
    judge = tasks.env(task, race.episodes, belief, EVALUATION_SEED + seed)
    wall, cpu, curve, reached, load = 0.0, 0.0, list[list[float]](), False, measure.machine()["load"]
    began = time.perf_counter(), time.process_time()
    learner, steps = _learner(name, task, belief, seed), 0
    while steps < race.most and learner.iteration < learner.iterations and not reached:
        if steps:
            began = time.perf_counter(), time.process_time()
        while learner.iteration * learner.batch < steps + race.every and learner.iteration < learner.iterations:
            learner.iterate()
        steps = learner.iteration * learner.batch
        wall, cpu = wall + time.perf_counter() - began[0], cpu + time.process_time() - began[1]
        e = evaluate(policy_of(learner), judge)
        curve.append([steps, round(wall, 2), round(cpu, 2), e.rate, round(float(e.returns.mean()), 3)])
        reached = race.good(e)
    other = tasks.env(task, min(1000, 5 * race.episodes), belief, EVALUATION_SEED + 100 + seed)
    again = evaluate(policy_of(learner), other).rate
    return Found(race.task, name, seed, reached, steps, wall, cpu, again, load, curve)


def cases(race: Race, names: list[str], keep: Path) -> Iterator[Found]:
    """Every learner and seed; from the folder where it is there already."""
    for seed in range(race.seeds):
        for name in names:
            path = keep / f"{race.task}-{name}-{seed}.json"
            if not path.exists():
                files.write_json(path, asdict(run(race, name, seed)))
            found = Found(**files.read_json(path))
            said(
                f"{race.task} {name} seed {seed}: {'reached' if found.reached else 'given up'} at {found.steps} steps, {found.wall:.1f} s, {found.cpu:.1f} CPU s"
            )
            yield found  # fmt: skip


def rows(race: Race, found: list[Found]) -> Iterator[Row]:
    """Steps, wall and CPU time of each learner, and against PPO's."""
    by = {name: [f for f in found if f.learner == name] for name in dict.fromkeys(f.learner for f in found)}
    middle: dict[str, dict[str, float]] = {}
    for name, each in by.items():
        missed = sum(not f.reached for f in each)
        note = f"{missed} of {len(each)} seeds did not get there" if missed else ""
        what = {k: [getattr(f, k) if f.reached else np.inf for f in each] for k in ("steps", "wall", "cpu")}
        middle[name] = {k: float(np.median(v)) for k, v in what.items()}
        yield row(f"{race.task}, {name}: experience", what["steps"], "env steps", note=note)
        yield row(f"{race.task}, {name}: wall time", what["wall"], "s")
        yield row(f"{race.task}, {name}: CPU time", what["cpu"], "s")
        yield row(f"{race.task}, {name}: success in other episodes", [f.again for f in each], "of episodes")
    for name in by:
        if name != "ppo" and "ppo" in by and np.isfinite(middle[name]["steps"]) and np.isfinite(middle["ppo"]["steps"]):
            yield row(
                f"{race.task}: {name}'s env steps / PPO's",
                middle[name]["steps"] / middle["ppo"]["steps"],
                "ratio",
                at_most=0.5,
            )
            yield row(f"{race.task}: {name}'s CPU time / PPO's", middle[name]["cpu"] / middle["ppo"]["cpu"], "ratio", at_most=1.0)  # fmt: skip


def figure(found: Sequence[Found], path: Path) -> None:
    """Success against env steps and against CPU time, a line a seed, to the evaluation at which each run ended."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    names, colours = list(dict.fromkeys(f.task for f in found)), {"ppo": "C0", "fasttd3": "C1", "fastsac": "C2"}
    drawing, panels = plt.subplots(len(names), 2, figsize=(8, 2.6 * len(names)), squeeze=False, sharey=True)
    for each, (left, right) in zip(names, panels):
        for f in (f for f in found if f.task == each):
            steps, _, cpu, success, _ = np.array([[0.0] * 5, *f.curve]).T
            left.plot(steps / 1e3, 100 * success, color=colours[f.learner], label=f.learner if f.seed == 0 else None)
            right.plot(cpu, 100 * success, color=colours[f.learner])
        left.set(xlabel="thousand env steps", ylabel=f"{each}: success, %"), right.set(xlabel="CPU s")
        left.legend(frameon=False)
    drawing.tight_layout()
    drawing.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.learners", description=__doc__)
    parser.add_argument(
        "--only", choices=list(RACES), action="append", help="this task (may be repeated); walk takes hours"
    )
    parser.add_argument("--learner", choices=list(LEARNERS), action="append", help="this learner (may be repeated)")
    parser.add_argument("--seeds", type=int, help="how many, in place of the task's own number")
    parser.add_argument("--quick", action="store_true", help="a smoke run: its numbers mean nothing")
    parser.add_argument("--json", action="store_true", help="print a list of rows in place of the tables")
    parser.add_argument("--record", action="store_true", help="write benchmarks/results/learners.json")
    parser.add_argument("--keep", type=Path, default=Path("runs/learners"), help="folder of the cases that are done")
    parser.add_argument("--figure", type=Path, help="also draw the curves into this file")
    asked = parser.parse_args()
    if asked.quick and asked.record:
        parser.error("--quick numbers mean nothing: they cannot be recorded")
    keep_freed_memory()
    everything, ran = list[Row](), list[Found]()
    for task in asked.only or ["hover", "arm"]:
        race, began = RACES[task], time.perf_counter()
        race = replace(race, seeds=asked.seeds or race.seeds)
        if asked.quick:
            race = replace(race, seeds=1, every=1, most=1, episodes=4)
        keep = asked.keep / "quick" if asked.quick else asked.keep
        found = list(cases(race, asked.learner or list(LEARNERS), keep))
        ran += found
        each = list(rows(race, found))
        each = [replace(r, goal=None, holds=None) for r in each] if asked.quick else each
        everything += each
        if not asked.json:
            measure.Console(width=140).print(measure.table(f"\nlearners · {task}", each))
        if asked.record:
            load = float(np.median([f.load for f in found]))
            path = measure.record("learners", task, each, time.perf_counter() - began, load)
            print(f"recorded in {path}", file=sys.stderr)
    if asked.figure is not None:
        figure(ran, asked.figure)
    if asked.json:
        print(json.dumps([asdict(r) for r in everything], indent=1, allow_nan=False))


if __name__ == "__main__":
    main()
