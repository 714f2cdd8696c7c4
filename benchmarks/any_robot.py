"""From a stranger's model to a judged, exported, filmed policy, by the command line alone and nothing edited.

    python -m benchmarks.any_robot [--only go1|...|speed] [--quick] [--json] [--record]

Each part takes one model file through the five commands of the README (`new`, `train`, `eval`, `export`, `play --record`),
then `gate`, and reports the lines that `new` writes, the commands to a policy, minutes of training, env steps/s, success, and
the error of the task. The user writes nothing: a command that fails ends the run. Models come from the folder in SUREFOOT_MODELS, `../shared/models` if that is there; a robot whose file
is missing is skipped and said so. Three seeds (SEEDS=1 in the environment: fewer) run one after the other. CPU minutes are beside the minutes, for machines that others
use too. Runs are in build/any_robot: one that was stopped goes on, one that is finished is used again. To train anew, remove its
folder there. `speed` compares env steps/s of tasks for legged robots, as `new` writes them, with our own quadruped's.
"""

import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks import measure
from benchmarks.measure import Row, row, said, skipped
from surefoot import tasks
from surefoot.rng import stream

MODELS = Path(os.environ.get("SUREFOOT_MODELS", Path(__file__).parents[2] / "shared" / "models"))
BUILD = Path(__file__).parents[1] / "build" / "any_robot"
SEEDS = range(int(os.environ.get("SEEDS", 3)))


@dataclass(frozen=True)
class Robot:
    kind: str
    model: str
    """path below MODELS, or the name of a ready task"""
    error_goal: float
    upright_goal: float
    minutes_goal: float
    settings: tuple[str, ...] = ()


ROBOTS = {
    "go1": Robot("velocity", "unitree_go1_flat.xml", 0.2, 0.95, 15.0),
    "go2": Robot("velocity", "unitree_go2.xml", 0.2, 0.95, 15.0),
    "barkour": Robot("velocity", "menagerie/google_barkour_vb/scene.xml", 0.2, 0.95, 15.0),
    "t1": Robot("velocity", "menagerie/booster_t1/scene.xml", 0.25, 0.9, 90.0),
    "so100": Robot("reach", "menagerie/trs_so_arm100/scene.xml", 0.02, 0.95, 3.0),
    "x2": Robot("hover", "menagerie/skydio_x2/scene.xml", 0.1, 0.9, 10.0),
    "crazyflie": Robot("hover", "crazyflie_2.xml", 0.1, 0.9, 10.0),
    "humanoid": Robot("", "humanoid", 0.25, 0.9, 90.0),
}


LEGGED = {"go1": 4, "go2": 4, "barkour": 4, "t1": 2}
"""robots whose speed is compared, and their feet"""
SLOWER = 1.3  # at most so many times our own quadruped's time of an env step and foot
ENVS, STRETCH = 512, 12


class CommandFailed(Exception):
    """A command of the README did not do what it says."""


def surefoot(*words: str, folder: Path, ok: tuple[int, ...] = (0,)) -> tuple[dict[str, Any], float]:
    """The facts that a command prints as JSON, and its seconds."""
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "surefoot", *words, "--json"], cwd=folder, capture_output=True, text=True
    )
    if done.returncode not in ok:
        raise CommandFailed(f"surefoot {' '.join(words)}: exit {done.returncode}: {done.stderr.strip()[-400:]}")
    return json.loads(done.stdout), time.perf_counter() - began


def one(robot: Robot, seed: int, quick: bool, folder: Path) -> dict[str, float]:
    """One seed through every command; numbers by name."""
    task = robot.model
    commands = 0
    if robot.kind:
        if not (folder / "task.py").exists():
            surefoot("new", robot.kind, str(MODELS / robot.model), "--out", "task.py", folder=folder)
        task, commands = "task.py", 1
    trained = train(task, seed, ("--steps", "20000") if quick else robot.settings, folder)
    judged, _ = surefoot("eval", "run", "--episodes", "20" if quick else "200", folder=folder)
    surefoot("export", "run", folder=folder)
    surefoot("play", "run", "--record", "film.gif", folder=folder)
    verdict, _ = surefoot("gate", "run", folder=folder, ok=(0, 1)) if not quick else ({"holds": False}, 0.0)
    return trained | {
        "commands": commands + 1,
        "lines": float(len((folder / task).read_text().splitlines())) if robot.kind else 0.0,
        "success": judged["success"],
        "upright": judged["ended"].get("time", 0) / judged["episodes"],
        "error": float("inf") if judged["error"] is None else judged["error"],
        "gate": float(verdict["holds"]),
    }


def train(task: str, seed: int, settings: tuple[str, ...], folder: Path) -> dict[str, float]:
    """The run in `folder`, from where it stopped. Minutes of a run that was stopped are those of all its steps at the rate of
    its last part."""
    before, known = steps(folder), folder / "trained.json"
    if known.exists():
        return json.loads(known.read_text())
    words = ("--resume", "run") if before else (task, "--out", "run", "--seed", str(seed), *settings)
    used = children_seconds()
    _, spent = surefoot("train", *words, folder=folder)
    total, share = steps(folder), 1 - before / steps(folder)
    found = {"minutes": spent / share / 60, "CPU minutes": (children_seconds() - used) / share / 60}
    found["steps/s"] = total / (60 * found["minutes"])
    known.write_text(json.dumps(found))
    return found


def steps(folder: Path) -> int:
    """Env steps that the run in `folder` has behind it."""
    metrics = folder / "run" / "metrics.jsonl"
    lines = metrics.read_text().splitlines() if metrics.exists() else []
    return json.loads(lines[-1])["steps"] if lines else 0


def children_seconds() -> float:
    use = resource.getrusage(resource.RUSAGE_CHILDREN)
    return use.ru_utime + use.ru_stime


def part(name: str, robot: Robot):
    def rows(quick: bool) -> Iterable[Row]:
        if robot.kind and not (MODELS / robot.model).exists():
            yield skipped(name, f"no {robot.model} below {MODELS}: set SUREFOOT_MODELS")
            return
        found: list[dict[str, float]] = []
        for seed in SEEDS[:1] if quick else SEEDS:
            folder = BUILD / ("quick" if quick else "whole") / name / str(seed)
            if quick:
                shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True, exist_ok=True)
            found.append(one(robot, seed, quick, folder))
            said(f"{name} seed {seed}: {found[-1]}")
        each = {k: [f[k] for f in found] for k in found[0]}
        yield row(f"{name}: seeds", len(found), "")
        yield row(f"{name}: lines that new writes", each["lines"], "")
        yield row(f"{name}: commands to a policy", each["commands"], "", at_most=2)
        yield row(f"{name}: training", each["minutes"], "min", at_most=robot.minutes_goal)
        yield row(f"{name}: training, CPU", each["CPU minutes"], "CPU min")
        yield row(f"{name}: throughput", each["steps/s"], "env steps/s")
        yield row(f"{name}: episodes to their end", each["upright"], "share", at_least=robot.upright_goal)
        yield row(f"{name}: error", each["error"], "task's unit", at_most=robot.error_goal)
        yield row(f"{name}: success", each["success"], "share")
        yield row(f"{name}: passes the gate", [sum(each["gate"]) / len(each["gate"])], "share of seeds", at_least=1.0)

    return rows


def speed(quick: bool) -> Iterable[Row]:
    """Time of an env step for each foot: a stranger's model, by the task that `new` writes, over our own quadruped's.

    All stand and are pushed by small random actions over their ranges, in turns.
    """
    envs, steps = (16, 2) if quick else (ENVS, STRETCH)
    here = [name for name in LEGGED if (MODELS / ROBOTS[name].model).exists()]
    if not here:
        yield skipped("speed", f"no models below {MODELS}: set SUREFOOT_MODELS")
        return
    with TemporaryDirectory() as folder:
        for name in here:
            surefoot("new", "velocity", str(MODELS / ROBOTS[name].model), "--out", f"{name}.py", folder=Path(folder))
        made = {"walk": "walk", **{name: f"{folder}/{name}.py" for name in here}}
        stretches = {name: stretch(task, envs, steps) for name, task in made.items()}
        found = measure.interleaved(stretches, 3 if quick else measure.PAIRS)
    own = found["walk"] / 4
    for name in here:
        yield row(
            f"{name}: time of an env step and foot / walk's", found[name] / LEGGED[name] / own, "ratio", at_most=SLOWER
        )
        yield row(f"{name}: env steps", envs * steps / found[name], "env steps/s")
    yield row("walk: env steps", envs * steps / found["walk"], "env steps/s")


def stretch(task: str, envs: int, steps: int) -> Callable[[], float]:
    """Seconds of some env steps."""
    made = tasks.resolve(task)
    env = tasks.env(made, envs, made.belief)
    env.reset()
    actions = 0.1 * stream(0, "actions").standard_normal((steps, envs, len(made.action.names)))

    def go() -> float:
        return measure.seconds(lambda: [env.step(a) for a in actions])

    for _ in range(4):  # until they have landed
        go()
    return go


if __name__ == "__main__":
    parts = {name: part(name, robot) for name, robot in ROBOTS.items()} | {"speed": speed}
    measure.main("any_robot", __doc__ or "", parts, later=("t1", "humanoid"))
