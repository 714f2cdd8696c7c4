"""Which trick closes how much of the gap: methods x hidden robots, success on the robot with robot data and compute.

    python -m benchmarks.realities [--only hover] [--methods DR,identify,cross] [--record]     the robots that are reported
    python -m benchmarks.realities --on local:2                                                robots side by side, a core each
    python -m benchmarks.realities --developing                                                others, to develop with
    python -m benchmarks.realities --table                                                     what is there, as markdown

A robot is `sim.realities.hidden(seed)`: wrong numbers, some outside of the task's ranges, noisy sensors and physics that the model
lacks. Seeds are taken in order. Two kinds are counted and left out: one in which the nominal policy succeeds in at least half of
the episodes has no gap to close, and one that the oracle, which is trained over the robot's own numbers or in the robot itself, does
not master, can perhaps not be crossed to at all. The methods are in benchmarks/methods.py. Success is measured in 100 episodes that no method sees.

    benchmarks/results/realities/hover.json       results of the robots that are reported, written one by one
    runs/realities/hover/shared/...               trainings that no robot decides
    runs/realities/hover/robot-3000/first/...     its first logs, which all methods with robot data have in common

Stopped at any time, it goes on where it was; on another machine, too, which makes again what it needs of the trainings. Methods run cheapest first, each on all tasks and robots before the next one.
REALITIES=4 in the environment: so many robots of each task, with --quick, too.
"""

import argparse
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import measure
from benchmarks.measure import RESULTS, Row, row, said, skipped
from benchmarks.methods import METHODS, Bench, Made, Meter
from surefoot import files, tasks
from surefoot.cross import Budget, HiddenRobot, Question, Rate
from surefoot.cross.driver import GOOD
from surefoot.deploy import bundle
from surefoot.errors import SurefootError, unknown
from surefoot.learn.cluster.address import On
from surefoot.learn.cluster.jobs import HERE, Job, Jobs
from surefoot.learn.loop import Stopped
from surefoot.report import Watch
from surefoot.rng import judging, stream
from surefoot.sim.realities import hidden

GAP = 0.5  # success of the nominal policy from which there is no gap to close
ROBOTS, MOST = 10, 80  # of a task; seeds that are looked at
REPORTED, DEVELOPED = 3000, 0  # the first seeds: of robots that are reported, and of those for developing
OUT, KEPT = Path("runs/realities"), RESULTS / "realities"
CHOSEN_BY: dict[str, tuple[Callable[[float], bool], str]] = {
    "nominal": (lambda x: x >= GAP, "without a gap"),
    "oracle": (lambda x: x < GOOD, "not mastered by the oracle"),
}
SEED = 1  # of training
RESAMPLES = 10_000
STEPS = {"balance": 300_000, "arm": 400_000, "hover": 2_000_000, "walk": 2_000_000}
"""of each of the two trainings before a robot is known"""
COMPUTE = 4 * 3600.0  # s that cross may take for one robot; what ends it is the robot's time, on a busy machine, too


@dataclass(frozen=True)
class Lot:
    """Robots of one task, and where everything of them is kept."""

    task: str
    first: int
    """seed"""
    robots: int
    quick: bool = False
    out: Path = OUT
    kept: Path | None = None
    """folder of results; None: beside the runs"""

    @property
    def folder(self) -> Path:
        return (self.out / "quick" if self.quick else self.out) / self.task

    @property
    def file(self) -> Path:
        """Method -> seed -> result."""
        return self.folder / "results.json" if self.kept is None else self.kept / f"{self.task}.json"

    def results(self) -> dict[str, dict[int, "Result"]]:
        body = files.read_json(self.file) if self.file.exists() else {}
        return {m: {int(k): Result.read(x) for k, x in own.items()} for m, own in body.items()}

    def keep(self, method: str, found: "Result") -> None:
        there = self.results()
        own = there.get(method, {}) | {found.seed: found}
        every = there | {method: own}
        body = {m: {str(k): asdict(every[m][k]) for k in sorted(every[m])} for m in METHODS if m in every}
        files.write_json(self.file, body)

    def bench(self, method: str, seed: int, threads: int = 0) -> Bench:
        robot = self.folder / f"robot-{seed}"
        task = tasks.resolve(self.task)
        asked = Question(
            task, self.task, robot / method, f"hidden, seed {seed}", Budget(60, COMPUTE), SEED,
            8 if self.quick else 100, 4096 if self.quick else STEPS[self.task], int(self.quick) or threads,
            self.folder / "shared",
        )  # fmt: skip
        return Bench(asked, HiddenRobot(task, hidden(seed, task)), robot / "first", Meter())


@dataclass(frozen=True)
class Result:
    """One method on one robot."""

    seed: int
    success: Rate | None
    """None where the method does not apply"""
    robot_seconds: float = 0.0
    compute_seconds: float = 0.0
    """of CPU, with the trainings that it shares with others"""
    note: str = ""
    """why it ended, or does not apply"""
    refused: bool = False
    """whether what was learned was refused by its own check, so that this is the DR policy"""

    @staticmethod
    def read(body: dict[str, Any]) -> "Result":
        return Result(**body | {"success": None if body["success"] is None else Rate(**body["success"])})


def result(lot: Lot, method: str, seed: int) -> Result:
    """Of a method on a robot: as it is on disk, or made now."""
    found = lot.results().get(method, {}).get(seed)
    return kept(lot, method, made(lot, method, seed)) if found is None else found


def kept(lot: Lot, method: str, found: Result) -> Result:
    lot.keep(method, found)
    words = f"{found.success}" if found.success else "-"
    said(f"{lot.task}, robot {found.seed}: {method}: {words} {found.note}, {found.compute_seconds:.0f} s of CPU")
    return found


def made(lot: Lot, method: str, seed: int, threads: int = 0) -> Result:
    b = lot.bench(method, seed, threads)
    try:
        own = METHODS[method][0](b)
    except SurefootError as error:
        return Result(seed, None, 0.0, b.meter.seconds, str(error))
    return Result(seed, measured(b, own), own.robot_seconds, b.meter.seconds, own.note, own.refused)


def job(given: tuple[Any, ...], watch: Watch) -> dict[str, Any]:
    """What a worker does: a method on a robot."""
    return asdict(made(*given))


def measured(b: Bench, made: Made) -> Rate:
    policy = bundle.load(made.policy) if isinstance(made.policy, Path) else made.policy
    robot = replace(b.robot, task=tasks.for_contract(b.task, policy.contract))  # a student observes a longer history
    found = robot.measure(policy, b.question.episodes, judging(b.question.seed, "cross measures"))
    assert found is not None
    return found


def taken(lot: Lot) -> Iterator[int]:
    """Seeds of the robots that methods are tried on."""
    count = 0
    for seed in range(lot.first, lot.first + MOST):
        if count == lot.robots:
            return
        if left_out(lot, seed, result) == "":
            count += 1
            yield seed


Look = Callable[[Lot, str, int], "Result | None"]


def left_out(lot: Lot, seed: int, look: Look) -> str | None:
    """Why nobody tries a method on a robot, empty if they do; None if nobody looked. An oracle of a quick run masters nothing."""
    for method, (missing, words) in list(CHOSEN_BY.items())[: 1 if lot.quick else None]:
        found = look(lot, method, seed)
        if found is None or found.success is None:
            return None
        if missing(found.success.value):
            return words
    return ""


def run(lots: Sequence[Lot], methods: Sequence[str], jobs: Jobs = HERE) -> None:
    """All that is asked for, cheapest method first; a method's trainings that robots share are made with its first robot."""
    robots = {lot: list(taken(lot)) for lot in lots}
    for method in METHODS:
        if method not in methods:
            continue
        for lot, seeds in robots.items():
            left = [s for s in seeds if s not in lot.results().get(method, {})]
            for seed in left[:1]:
                result(lot, method, seed)
            asked = [Job(f"{lot.task} {s}: {method}", (lot, method, s, jobs.threads)) for s in left[1:]]
            jobs.each(job, asked, lambda k, x, lot=lot, method=method: kept(lot, method, Result.read(x)))  # type: ignore[misc]


# --- what is there --------------------------------------------------------------------------------


def recorded(lot: Lot) -> dict[str, list[Result]]:
    """Method -> its results on robots with a gap, of those that are there."""
    found: dict[str, list[Result]] = {}
    seeds = [r.seed for r in _there(lot, "nominal") if left_out(lot, r.seed, at_hand) == ""][: lot.robots]
    for method in METHODS:
        own = [r for r in _there(lot, method) if r.seed in seeds]
        found |= {method: own} if own else {}
    return found


def at_hand(lot: Lot, method: str, seed: int) -> Result | None:
    return lot.results().get(method, {}).get(seed)


def _there(lot: Lot, method: str) -> list[Result]:
    own = lot.results().get(method, {})
    return [own[seed] for seed in sorted(own) if lot.first <= seed < lot.first + MOST]


def not_taken(lot: Lot) -> list[tuple[str, int, int]]:
    """Why, how many robots, of how many that were looked at."""
    why = [left_out(lot, r.seed, at_hand) for r in _there(lot, "nominal")]
    return [(words, why.count(words), len(why)) for _, words in CHOSEN_BY.values()]


def rates(results: Iterable[Result]) -> np.ndarray:
    return np.array([r.success.value for r in results if r.success is not None])


def over_robots(x: np.ndarray) -> tuple[float, float]:
    """95 % interval of the mean over robots, by resampling them."""
    rows = stream(0, "robots of a table").integers(0, len(x), (RESAMPLES, len(x)))
    low, high = np.quantile(x[rows].mean(1), [0.025, 0.975])
    return float(low), float(high)


def rows_of(lot: Lot) -> Iterator[Row]:
    for words, count, looked in not_taken(lot):
        yield skipped(f"{lot.task}: robots {words}, left out", f"{count} of {looked}")
    for method, results in recorded(lot).items():
        name, x = f"{lot.task}: {method}", rates(results)
        if not len(x):
            yield skipped(name, results[0].note)
            continue
        goal = {"at_least": 0.9} if method == "cross" else {}
        yield row(f"{name}: robots crossed", float((x >= GOOD).mean()), f"of {len(x)}", **goal)
        count = sum(r.refused for r in results)
        yield row(f"{name}: success", x, "of episodes", note=f"refused on {count} robots, and DR stays" * bool(count))
        most = {"at_most": 60.0} if method == "cross" else {}
        yield row(f"{name}: robot data", [r.robot_seconds for r in results], "s", **most)
        yield row(f"{name}: compute", [r.compute_seconds for r in results], "s of CPU")


def markdown(lot: Lot) -> str:
    """The table of a task: the best method first, the losers last, what does not apply with its reason."""
    found = recorded(lot)
    if not found:
        return f"{lot.task}: nothing is recorded yet\n"
    lines = [
        f"| {lot.task} | success, mean over robots | of which crossed | robot data | compute |",
        "|---|---|---|---|---|",
    ]
    best_first = sorted(found, key=lambda m: -float(rates(found[m]).mean()) if len(rates(found[m])) else 1.0)
    return "\n".join([*lines, *(_line(method, found[method]) for method in best_first)]) + "\n"


def _line(method: str, results: list[Result]) -> str:
    x = rates(results)
    if not len(x):
        return f"| {method} | does not apply: {results[0].note} | | | |"
    low, high = (100 * v for v in over_robots(x))
    success = f"{100 * x.mean():.0f} % ({low:.0f} - {high:.0f})"
    robot, compute = (float(np.median([getattr(r, k) for r in results])) for k in ("robot_seconds", "compute_seconds"))
    data, count = f"{robot:.0f} s" if robot else "none", sum(r.refused for r in results)
    name = f"{method}; refused on {count}, and DR stays" if count else method
    return f"| {name} | {success} | {int((x >= GOOD).sum())} of {len(x)} | {data} | {compute:.0f} s |"


def chosen(words: str) -> tuple[str, ...]:
    """Methods by name, with commas; empty: all."""
    names = tuple(x for x in words.split(",") if x) or tuple(METHODS)
    for name in names:
        if name not in METHODS:
            raise unknown("method", name, METHODS, "--methods")
    return names


def main() -> None:
    parser = measure.parser("realities", __doc__ or "", list(STEPS))
    parser.add_argument("--methods", default="", help=f"of {', '.join(METHODS)}, with commas; default: all")
    parser.add_argument("--developing", action="store_true", help=f"robots from {DEVELOPED} on, not from {REPORTED}")
    parser.add_argument("--on", default="", metavar="WHERE", help="robots side by side: local:N, ray://HOST:PORT, ...")
    parser.add_argument("--table", action="store_true", help="print what is recorded as markdown, and run nothing")
    asked = measure.parsed(parser)
    try:
        methods, on = chosen(asked.methods), On.parse(asked.on)
    except SurefootError as error:
        parser.error(str(error))
    lots = {name: lot_of(asked, name) for name in asked.only or STEPS}
    if asked.table:
        print("\n".join(markdown(lot) for lot in lots.values()))
        return
    parts = {name: partial(_rows, lot) for name, lot in lots.items()}
    try:
        with Jobs(on).connected() as (jobs, _):
            run(list(lots.values()), methods, jobs)
    except (KeyboardInterrupt, Stopped):
        said("stopped; the same command goes on. So far:")
        asked.record = False
        measure.shown("realities", parts, asked)
        raise SystemExit(1) from None
    except SurefootError as error:
        parser.error(str(error))
    measure.shown("realities", parts, asked)


def lot_of(asked: argparse.Namespace, name: str) -> Lot:
    most = int(os.environ.get("REALITIES", 1 if asked.quick else ROBOTS))
    if asked.developing or asked.quick:
        return Lot(name, DEVELOPED, most, asked.quick)
    return Lot(name, REPORTED, most, kept=KEPT)


def _rows(lot: Lot, quick: bool) -> Iterable[Row]:
    return rows_of(lot)


if __name__ == "__main__":
    main()
