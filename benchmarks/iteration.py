"""How long one training iteration takes, collecting and learning, here and in another checkout of surefoot.

python -m benchmarks.iteration --against PATH [--only walk|hover|balance] [--rounds 9] [--record]

PATH is a checkout with its own .venv/bin/python. Both run at the same time in processes of their own, and take turns: one
iteration here, one there, then the other way round, so that a machine that slows down does so for both. A row is the median
of the ratios of the rounds.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from rich.console import Console

from benchmarks import measure
from benchmarks.measure import PAIRS, Row, row

SIZES = [("walk", 1024), ("hover", 4096), ("balance", 4096), ("hover", 512), ("balance", 64)]
"""task and envs: those of the other speeds, and those that the tasks train with"""
GOAL = 0.85
HERE = Path(__file__).parents[1]

CHILD = """
import sys, time
name, envs = sys.argv[1], int(sys.argv[2])
import types
from surefoot import tasks
try:
    from surefoot.learn.train import plan
    from surefoot.learn.build import build
    from surefoot.learn.settings import PPOSettings
    task = tasks.resolve(name)
    settings = PPOSettings(**{**task.settings, "envs": envs})
    spec, parents = plan(name, belief=task.belief, settings=settings)
    from surefoot.learn.envs import Place
    learner = build(spec, task, parents, Place(), types.SimpleNamespace(notes=[]))  # of a run, it needs the notes alone
except ImportError:  # before runs had a spec
    from surefoot.learn import ppo
    from surefoot.learn.train import settings_for
    task = tasks.TASKS[name]() if callable(tasks.TASKS[name]) else tasks.TASKS[name]
    settings = settings_for(name, {"envs": envs})
    env = tasks.env(task, envs, task.belief, 0, 0, stagger=True)
    learner = ppo.Learner(env, settings, 0)
try:
    from surefoot.learn import keep_freed_memory
    keep_freed_memory()
except ImportError:
    pass
inside = 0.0
own = learner.collect
def collect():
    global inside
    began = time.perf_counter()
    r = own()
    inside = time.perf_counter() - began
    return r
learner.collect = collect
print("ready", flush=True)
for line in sys.stdin:
    began = time.perf_counter()
    learner.iterate()
    print(time.perf_counter() - began, inside, flush=True)
"""


class Trainer:
    """A process that trains, one iteration each time it is asked."""

    def __init__(self, checkout: Path, name: str, envs: int):
        python = checkout / ".venv" / "bin" / "python"
        command = [str(python if python.exists() else sys.executable), "-c", CHILD, name, str(envs)]
        self.process = subprocess.Popen(
            command, cwd=checkout, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self._answer()

    def iterate(self) -> tuple[float, float]:
        """Seconds of one iteration, and of its collecting."""
        self.process.stdin.write("\n")
        total, collect = self._answer().split()
        return float(total), float(collect)

    def _answer(self) -> str:
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("the training process stopped")
        return line

    def close(self) -> None:
        self.process.communicate()  # closes what it reads from and writes to


def compare(other: Path, name: str, envs: int, rounds: int) -> list[Row]:
    trainers = {"here": Trainer(HERE, name, envs), "there": Trainer(other, name, envs)}
    turn = lambda t: lambda: np.array(t.iterate())  # noqa: E731
    for t in trainers.values():
        for _ in range(3):
            t.iterate()
    found = measure.interleaved({k: turn(t) for k, t in trainers.items()}, rounds)
    for t in trainers.values():
        t.close()
    here, there = found["here"], found["there"]
    what = f"{name} x {envs}"
    return [
        row(f"{what}: iteration here / there", here[:, 0] / there[:, 0], "ratio", at_most=GOAL),
        row(f"{what}: collecting here / there", here[:, 1] / there[:, 1], "ratio"),
        row(f"{what}: learning here / there", (here[:, 0] - here[:, 1]) / (there[:, 0] - there[:, 1]), "ratio"),
        row(f"{what}: iteration here", 1000 * here[:, 0], "ms"),
        row(f"{what}: collecting here", 1000 * here[:, 1], "ms"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.iteration", description=__doc__.split("\n")[0])
    parser.add_argument("--against", type=Path, required=True, help="a checkout of surefoot with its .venv")
    parser.add_argument("--only", choices=sorted({name for name, _ in SIZES}), action="append")
    parser.add_argument("--rounds", type=int, default=3 * PAIRS)
    parser.add_argument("--record", action="store_true", help="write benchmarks/results/iteration.json")
    asked = parser.parse_args()
    began, load, rows = time.perf_counter(), measure.machine()["load"], []
    for name, envs in SIZES:
        if asked.only is None or name in asked.only:
            rows += compare(asked.against.resolve(), name, envs, asked.rounds)
    spent = time.perf_counter() - began
    console = Console(width=None if sys.stdout.isatty() else 140)
    console.print(measure.table(f"iteration against {asked.against} ({spent:.0f} s)", rows))
    if asked.record:
        console.print(f"recorded in {measure.record('iteration', 'iteration', rows, spent, load)}")


if __name__ == "__main__":
    main()
