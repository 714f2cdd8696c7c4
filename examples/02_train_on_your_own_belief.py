"""Train balance over a belief of your own, then ask how the policy does where the belief ends.

Run with --quick for a smoke run that learns nothing.
"""

import sys
import tempfile
from pathlib import Path

import surefoot as sf

quick = "--quick" in sys.argv
task = sf.resolve("balance")
belief = sf.Box.ranges(task.params, {"cart_mass": (0.5, 2.0), "latency": (0.0, 0.04)})  # all else is as the model says
with tempfile.TemporaryDirectory() as folder:
    run = sf.train(
        task,
        Path(folder) / "run",
        belief=belief,
        steps=20_000 if quick else 600_000,
        watch=lambda p: print(f"\r{100 * (p.share or 0):.0f} % success {p.metrics.get('success', 0):.2f}", end=""),
    )
    print()
    for factor in (1.0, 1.5, 2.0):
        score = sf.evaluate(run, belief=belief.widen(factor), episodes=100)
        low, high = score.interval
        print(
            f"belief widened {factor:g}x: {100 * score.rate:.0f} % success (95 % interval {100 * low:.0f} - {100 * high:.0f})"
        )
