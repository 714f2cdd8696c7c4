"""Fine-tuning with a robot in the batch: what some rows of a robot are worth beside many of simulation, by their share.

    python -m benchmarks.cotrain [--only balance|arm] [--quick] [--json] [--record]

The robot is a hidden machine (sim/realities.py): wrong numbers, some of them outside of the task's ranges, physics that the model
lacks, noisy sensors; among the first seeds, those on which the policy to start with nearly works, with 10 to 80 % success. That policy was trained in simulation over the task's own
ranges. Every contender with a robot drives it for the same time; its share of a batch decides how many simulated steps go with that:

    robot only  share 1, as many robot steps      simulation only  no robot, as many simulated steps as with 5 %

Success is measured on 100 more episodes on the robot, behind the runtime's limiter. Values are medians over robots and seeds with
the least and largest.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks import measure
from benchmarks.measure import Row, row
from surefoot import tasks
from surefoot.cross.robot import HiddenRobot
from surefoot.deploy import bundle
from surefoot.learn.on_robot.settings import OnRobot
from surefoot.learn.settings import PPOSettings
from surefoot.learn.train import settings_for, train
from surefoot.rng import judging
from surefoot.sim.realities import Reality, hidden
from surefoot.task import Task

SHARES = (0.02, 0.05, 0.2)
MAIN = 0.05
WORKS, FAILS = 0.1, 0.8  # success of the policy to start with, between which a robot is among those that count
EPISODES = 100


def measured(task: Task, reality: Reality, run: Path, episodes: int) -> float:
    found = HiddenRobot(task, reality).measure(bundle.load(run), episodes, judging(0, "cotrain"))
    assert found is not None
    return found.value


def realities(task: Task, start: Path, count: int, episodes: int) -> list[tuple[int, float]]:
    """Seeds of robots on which the policy to start with works now and then, and its success there."""
    found: list[tuple[int, float]] = []
    for seed in range(100, 300):
        before = measured(task, hidden(seed, task), start, episodes)
        measure.said(f"{task.name}: robot {seed}: {before:.2f} before")
        if WORKS <= before < FAILS:
            found.append((seed, before))
        if len(found) == count:
            break
    return found


def settings_of(usual: PPOSettings, share: float, robot_steps: int) -> PPOSettings:
    """Settings of a contender: the same rows of the robot in each batch, and as many simulations beside them as the share says."""
    rows = max(1, round(MAIN * usual.envs))
    envs = rows if share == 1 else round(rows / share)
    batches = -(-robot_steps // (rows * usual.horizon))
    parts = usual.minibatches if envs * usual.horizon % usual.minibatches == 0 else 1
    return replace(usual, envs=envs, steps=batches * envs * usual.horizon, minibatches=parts, learner_threads=1)


def tuned(task: Task, start: Path, seed: int, share: float, robot: OnRobot | None, steps: int, out: Path) -> Path:
    """A run that goes on from `start`, with the robot or without."""
    s = settings_of(settings_for(task.name), share, steps)
    own: dict[str, object] = {"seed": seed, "belief": task.belief, "settings": s, "ranges": None, "start": start}
    train(task.name, out, threads=1, save_every=1e9, robot=robot, **own)  # type: ignore[arg-type]
    return out


def compared(name: str, seconds: float, robots: int, seeds: int, quick: bool) -> Iterator[Row]:
    task, episodes = tasks.resolve(name), 10 if quick else EPISODES
    with TemporaryDirectory() as folder:
        out = Path(folder)
        own = settings_for(name, {"learner_threads": 1} | ({"steps": 8192} if quick else {}))
        train(name, out / "start", seed=0, belief=task.belief, settings=own, ranges=None, threads=1, save_every=1e9)
        steps = 200 if quick else round(seconds / tasks.env(task, 1).world.dt)
        chosen = realities(task, out / "start", robots, episodes)
        if not chosen:
            yield measure.skipped(
                name, f"on no robot tried does the policy to start with succeed in {WORKS:.0%} to {FAILS:.0%}"
            )
            return
        contenders = {"simulation only": 0.0, **{f"{100 * s:.0f} % robot": s for s in SHARES}, "robot only": 1.0}
        found: dict[str, list[float]] = {k: [] for k in contenders}
        for reality, _ in chosen:
            for seed in range(seeds):
                for label, share in contenders.items():
                    robot = OnRobot.of(hidden(reality, task), share) if share else None
                    place = out / f"{reality}-{seed}-{label}".replace(" ", "-").replace("%", "percent")
                    run = tuned(task, out / "start", seed, share or MAIN, robot, steps, place)
                    found[label].append(measured(task, hidden(reality, task), run, episodes))
                    measure.said(f"{name}: robot {reality}, seed {seed}: {label}: {found[label][-1]:.2f}")
        where = f"robots {', '.join(str(r) for r, _ in chosen)}, {seeds} seeds, {seconds:g} s of robot each"
        yield row("before", [b for _, b in chosen], "of episodes on the robot", note=where)
        for label, values in found.items():
            yield row(label, values, "of episodes on the robot")
        main, none, only = (np.array(found[k]) for k in (f"{100 * MAIN:.0f} % robot", "simulation only", "robot only"))
        yield row("mean gain of 5 % over robot only", main.mean() / max(only.mean(), 1e-9) - 1, "share", at_least=0.2)
        yield row("mean gain of 5 % over simulation only", main.mean() - none.mean(), "of episodes", at_least=0.01)


def balance(quick: bool) -> Iterator[Row]:
    """A pole on a cart."""
    yield from compared("balance", 60.0, 1 if quick else 4, 1 if quick else 2, quick)


def arm(quick: bool) -> Iterator[Row]:
    """An arm that holds a pose against pulls."""
    yield from compared("arm", 90.0, 1 if quick else 3, 1 if quick else 2, quick)


PARTS = {"balance": balance, "arm": arm}

if __name__ == "__main__":
    measure.main("cotrain", __doc__.split("\n")[0], PARTS, later=("arm",))
