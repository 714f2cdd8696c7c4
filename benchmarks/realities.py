"""Which trick closes how much of the gap: methods x hidden robots, success on the robot with seconds of robot data.

    python -m benchmarks.realities [--only hover] [--record]        the robots that are reported
    python -m benchmarks.realities --only hover-developing          others, to develop with

A robot is `sim.realities.hidden(seed)`: wrong numbers, some outside of the task's ranges, noisy sensors and physics that the model
lacks. Seeds are taken in order from FIRST; one in which the nominal policy succeeds in at least half of the episodes has no gap to
close: it is counted and left out.

    nominal     trained in the model                      DR        then over the task's ranges
    identify    then over what the first logs say         cross     all of the loop, with its budget of 60 s of robot

Everything is kept in runs/realities, so a benchmark that was stopped goes on. Success is measured in 100 episodes that no method
sees. REALITIES=4 in the environment stops after so many robots.
"""

import os
import time
from collections.abc import Iterable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import measure
from benchmarks.measure import Row, row, said, skipped
from surefoot import files, tasks
from surefoot.cross import Budget, HiddenRobot, Journal, Question, Rate, Step, cross
from surefoot.cross.driver import drive
from surefoot.cross.journal import Stage
from surefoot.cross.work import WORK
from surefoot.deploy import bundle
from surefoot.report import Progress, unwatched
from surefoot.rng import judging
from surefoot.sim.realities import hidden

METHODS = ("nominal", "DR", "identify", "cross")
GOOD, GAP = 0.9, 0.5  # success that counts as crossed; of the nominal policy, where there is no gap to close
ROBOTS, MOST = 10, 40  # of a task; seeds that are looked at
REPORTED = 2000  # the first seed that is reported; those below are for developing
OUT = Path("runs/realities")
STEPS = {"hover": 1_000_000, "balance": 300_000, "arm": 400_000}


def plain(past: Journal) -> Step:
    """The driver without gate and doctor, whose time would be most of the benchmark's: neither changes what it decides here."""
    step = drive(past)
    if step.name == "gate":
        return Step("robot", "the benchmark has no gate")
    if step.name == "doctor":
        blank = Stage("doctor", "", {"kind": "", "branch": ""})
        return drive(replace(past, stages=(*past.stages, blank)))
    return step


def shared(asked: Question) -> dict[str, Path]:
    """Nominal and DR policy: the trainings before a robot is known, made once."""
    assert asked.shared is not None
    past = Journal.open(asked.shared / "trainings", {"task": asked.task.name, "steps": asked.steps}, asked.budget)
    for k, name in enumerate(("train", "randomize", "train")):
        if k >= len(past.stages):
            began = time.monotonic()
            done = WORK[name](asked, past, _nobody(asked), unwatched)
            past = past.add(replace(done, name=name, seconds=time.monotonic() - began))
            said(f"{asked.task.name}: {done.found} {done.sim or ''}")
    runs = [Path(s.facts["run"]) for s in past.all("train")]
    return {"nominal": runs[0], "DR": runs[1]}


def _nobody(asked: Question) -> HiddenRobot:
    return HiddenRobot(asked.task, hidden(0, asked.task))


def measured(asked: Question, robot: HiddenRobot, run: Path) -> Rate:
    found = robot.measure(bundle.load(run), asked.episodes, judging(asked.seed, "cross measures"))
    assert found is not None
    return found


def crossing(asked: Question, seed: int, runs: dict[str, Path]) -> dict[str, Any] | None:
    """Success of each method on one robot; None where there is no gap."""
    file = asked.out / f"robot-{seed}.json"
    if file.exists():
        return files.read_json(file)["found"]
    robot, found = HiddenRobot(asked.task, hidden(seed, asked.task)), None
    rates = {name: measured(asked, robot, run) for name, run in runs.items()}
    if rates["nominal"].value < GAP:
        done = cross(replace(asked, out=asked.out / f"robot-{seed}", robot=f"hidden, seed {seed}"), robot, _show, plain)
        trained = [Path(s.facts["run"]) for s in done.journal.all("train")]
        rates["identify"] = measured(asked, robot, trained[min(2, len(trained) - 1)])
        assert done.after is not None
        rates["cross"] = done.after
        found = {"seed": seed, "rates": {k: asdict(r) for k, r in rates.items()}, "why": done.why,
                 "robot_seconds": done.journal.robot_seconds, "seconds": done.journal.seconds,
                 "stages": [s.name for s in done.journal.stages], "lacks": dict(robot.reality.strengths)}  # fmt: skip
    files.write_json(file, {"found": found})
    words = ", ".join(f"{k} {100 * r.value:.0f} %" for k, r in rates.items())
    said(f"{asked.task.name} robot {seed}: {words}{'' if found else ': no gap'}")
    return found


def _show(p: Progress) -> None:
    if p.stays:
        said(p.doing)


def rows(name: str, found: list[dict[str, Any]], skips: int) -> list[Row]:
    made = [skipped(f"{name}: robots without a gap, left out", f"{skips} of {skips + len(found)}")]
    for method in METHODS:
        rates = [x["rates"][method]["k"] / x["rates"][method]["n"] for x in found]
        goal = {"at_least": 0.9} if method == "cross" else {}
        good = sum(r >= GOOD for r in rates) / len(rates)
        made.append(row(f"{name}: {method}: robots crossed", good, f"of {len(rates)}", **goal))
        made.append(row(f"{name}: {method}: success", rates, "of episodes"))
    used = [x["robot_seconds"] for x in found]
    made.append(row(f"{name}: robot data of cross", used, "s", at_most=60.0))
    return [*made, row(f"{name}: compute of cross, beside the shared trainings", [x["seconds"] for x in found], "s")]


def robots(name: str, first: int, quick: bool) -> Iterable[Row]:
    """A part: one task, on robots with seeds from `first` on."""
    most = 1 if quick else int(os.environ.get("REALITIES", ROBOTS))
    out = OUT / ("quick" if quick else "") / name
    asked = Question(tasks.resolve(name), name, out, "many", Budget(60, 900), 0, 10 if quick else 100,
                     4096 if quick else STEPS[name], 1, out / "shared")  # fmt: skip
    runs, found, seed = shared(asked), [], first
    while len(found) < most and seed < first + MOST:
        it = crossing(asked, seed, runs)
        found += [it] if it else []
        seed += 1
    return rows(name, found, seed - first - len(found)) if found else [skipped(name, "no robot with a gap was found")]


PARTS = {name: partial(robots, name, REPORTED) for name in STEPS}
DEVELOPING = {f"{name}-developing": partial(robots, name, 0) for name in STEPS}

if __name__ == "__main__":
    measure.main("realities", __doc__ or "", PARTS | DEVELOPING, tuple(DEVELOPING))
