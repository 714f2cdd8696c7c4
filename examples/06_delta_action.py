"""The loop of a delta action, with a simulation in place of the robot: an arm whose servos have 0.65 of their stiffness.

Train in the nominal world; let the policy drive the robot and keep the log; learn what to add to the actions so that the model moves
as the robot did; train on with that delta in the simulation; deploy without it. --quick is a smoke run that learns little.
"""

import sys
import tempfile
from pathlib import Path

import surefoot as sf

quick = "--quick" in sys.argv
task = sf.resolve("arm")
nominal = sf.point(task.params, task.params.nominal)
robot = sf.point(task.params, task.params.vector({"kp": 0.65}))  # unknown to the model


def error(run: sf.Run) -> float:
    """On the robot: mean distance of the hand from its target, mm."""
    return 1000 * float(sf.evaluate(run, belief=robot, episodes=20 if quick else 200).error.mean())


with tempfile.TemporaryDirectory() as name:
    out = Path(name)
    first, more = (8192, 4096) if quick else (300_000, 100_000)
    home = sf.train(task, out / "home", belief=nominal, steps=first)
    env = sf.make_env(task, 6 if quick else 16, robot, seed=2)
    log = sf.log_episodes(home.policy, env, {"joint_pos": 0.001, "joint_vel": 0.02}, stir=0.1)
    fit = {"spans": (0.06,), "rounds": 1, "updates": 300 if quick else 1500}
    found = sf.learn_delta(task, log, out / "delta", change=fit)
    print(
        f"{len(log) * env.world.dt:.0f} s of log: delta explains {100 * found.share:.0f} % of the squared prediction error"
    )
    tuned = sf.train(task, out / "tuned", belief=nominal, steps=more, start=home.folder, terms=[out / "delta"])
    print(f"hand off by {error(home):.1f} mm on the robot; tuned inside delta, {error(tuned):.1f} mm")
