"""The loop of a delta action, with a simulation in the robot's place: an arm whose servos have 0.65 of their stiffness.

Train at home; let the policy drive the robot, and keep the log; learn what to add to the actions so that the model answers as
the robot did; train on with that inside; deploy without it. Run with --quick for a smoke run that learns little.
"""

import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from surefoot import tasks
from surefoot.belief import point
from surefoot.deploy import bundle
from surefoot.learn.train import settings_for, train
from surefoot.real2sim.episodes import logged
from surefoot.real2sim.residual.delta import by_inversion
from surefoot.real2sim.residual.ensemble import FitSettings
from surefoot.sim import learned
from surefoot.tasks.rollout import evaluate

quick = "--quick" in sys.argv
task = tasks.resolve("arm")
robot = point(task.params, task.params.vector({"kp": 0.65}))  # what nobody told the model


def error(run: Path) -> float:
    """On the robot: mean distance of the hand from where it should be, mm."""
    return 1000 * float(evaluate(bundle.load(run), tasks.env(task, 20 if quick else 200, robot, seed=1)).error.mean())


with tempfile.TemporaryDirectory() as name:
    out = Path(name)
    first, more = ({"steps": 8192}, {"steps": 4096}) if quick else ({"steps": 300_000}, {"steps": 100_000})
    home = train("arm", out / "home", settings=settings_for("arm", first))
    env = tasks.env(task, 6 if quick else 16, robot, seed=2)
    log = logged(bundle.load(home), env, {"joint_pos": 0.001, "joint_vel": 0.02}, stir=0.1)
    found = by_inversion(
        tasks.env(task, 1).world,
        tasks.nominal(task),
        log,
        FitSettings(spans=(0.06,), rounds=1, updates=300 if quick else 1500),
    )
    learned.save(replace(found.term, about=found.facts), out / "delta")
    print(
        f"{len(log) * env.world.dt:.0f} s of log: delta explains {100 * found.share:.0f} % of the squared prediction error"
    )
    tuned = train("arm", out / "tuned", settings=settings_for("arm", more), start=out / "home", terms=[out / "delta"])
    print(f"hand off by {error(home):.1f} mm on the robot; tuned inside delta, {error(tuned):.1f} mm")
