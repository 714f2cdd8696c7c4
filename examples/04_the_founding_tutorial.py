"""A well-known tutorial on sim-to-real, step by step, with the numbers it only claims.

Train a cart-pole where gravity is 9.8 and the cart 1 kg; meet a "real world" of gravity 12, cart 1.5 kg, pole 0.2 kg and
noisy sensors; train over randomized physics; meet it again; compare both in 20 variations wider than any training;
then approach the real world in three stages, and in one go. Three seeds, so that what is luck can be seen.

    python examples/04_the_founding_tutorial.py [--quick] [--out FOLDER]
"""

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from surefoot import tasks
from surefoot.belief import Belief, Box, point
from surefoot.deploy import bundle
from surefoot.learn.train import progressive, settings_for, train
from surefoot.params import Params
from surefoot.policy import Policy
from surefoot.rng import stream
from surefoot.tasks.rollout import evaluate

TASK = tasks.make("balance-discrete")  # CartPole-v1, to the last digit
HOME = tasks.nominal(TASK)
REAL = {"gravity": 12.0, "cart_mass": 1.5, "pole_mass": 0.2, "noise": 0.05}
RANDOMIZED = {"gravity": (8.0, 14.0), "cart_mass": (0.5, 2.0), "pole_mass": (0.05, 0.3), "noise": (0.0, 0.1)}
VARIATIONS = {"gravity": (7.0, 15.0), "cart_mass": (0.3, 2.5), "pole_mass": (0.03, 0.4), "noise": (0.0, 0.15)}
STAGES = (
    {"gravity": 10.0, "cart_mass": 1.1, "noise": 0.01, "pole_mass": 0.2},
    {"gravity": 11.0, "cart_mass": 1.3, "noise": 0.03, "pole_mass": 0.2},
    {"gravity": 12.0, "cart_mass": 1.5, "noise": 0.05, "pole_mass": 0.2},
)


def uniform(ranges: dict[str, tuple[float, float]]) -> Box:
    """Uniform, as the tutorial draws: not in ratio, though masses are on a log scale here."""
    return Box.ranges(Params(tuple(replace(p, log=False) for p in TASK.params)), ranges)


def score(policy: Policy, worlds: Belief | np.ndarray, episodes: int = 50) -> np.ndarray:
    """Returns of episodes, at most 500 each: drawn from a belief, or `episodes` in each world given."""
    if isinstance(worlds, Belief):
        return evaluate(policy, tasks.env(TASK, episodes, worlds, seed=1000)).returns
    e = np.repeat(worlds, episodes, 0)
    return evaluate(policy, tasks.env(TASK, len(e), HOME, seed=1000), e=e).returns.reshape(len(worlds), episodes)


def main(out: Path, quick: bool) -> None:
    seeds, scale = (1, 0.05) if quick else (3, 1.0)
    budget = lambda steps: settings_for("balance-discrete", {"steps": int(steps * scale)})  # noqa: E731
    real = point(TASK.params, TASK.params.vector(REAL))
    rng = stream(0, "variations")
    low, high = (TASK.params.vector({k: r[i] for k, r in VARIATIONS.items()}) for i in (0, 1))
    worlds = low + (high - low) * rng.random((20, len(low)))
    rows = []
    for seed in range(seeds):
        standard = bundle.load(train("balance-discrete", out / f"standard{seed}", seed, HOME, budget(50_000)))
        broad = bundle.load(
            train("balance-discrete", out / f"randomized{seed}", seed, uniform(RANDOMIZED), budget(100_000))
        )
        stages = [point(TASK.params, TASK.params.vector(s)) for s in STAGES]
        steps = progressive(
            "balance-discrete", out / f"stages{seed}", stages, seed, budget(30_000), start=out / f"randomized{seed}"
        )
        straight = train(
            "balance-discrete", out / f"straight{seed}", seed, real, budget(90_000), start=out / f"randomized{seed}"
        )
        each = {"standard": standard, "randomized": broad}
        rows.append({
            **{f"{k}, at home": score(p, HOME).mean() for k, p in each.items()},
            **{f"{k}, in the real world": score(p, real).mean() for k, p in each.items()},
            **{f"{k}, mean of 20 variations": score(p, worlds, 10).mean() for k, p in each.items()},
            **{f"{k}, worst of 20 variations": score(p, worlds, 10).mean(1).min() for k, p in each.items()},
            **{f"stage {i + 1}, where it trained": score(bundle.load(p), b).mean() for i, (p, b) in enumerate(zip(steps, stages))},
            "after the stages, in the real world": score(bundle.load(steps[-1]), real).mean(),
            "straight to it for as long, in the real world": score(bundle.load(straight), real).mean(),
        })  # fmt: skip
        box_plot(out / f"robustness{seed}.svg", {k: score(p, worlds, 10).mean(1) for k, p in each.items()})
    if quick:
        print("quick: a twentieth of the experience, one seed. It shows that all runs; its numbers mean nothing")
    print(f"mean return of at most 500; {'one seed' if seeds == 1 else f'{seeds} seeds: median, least .. largest'}")
    for name in rows[0]:
        values = [r[name] for r in rows]
        print(
            f"{name:46} {np.median(values):6.1f}"
            + (f"   {min(values):6.1f} .. {max(values):6.1f}" if seeds > 1 else "")
        )
    print("box plots:", *(str(out / f"robustness{seed}.svg") for seed in range(seeds)))


def box_plot(path: Path, found: dict[str, np.ndarray]) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3.5), layout="constrained")
    axes = figure.subplots()
    axes.boxplot(list(found.values()), tick_labels=list(found))
    axes.set(ylabel="mean return", title="20 variations of the physics")
    figure.savefig(path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a twentieth of the experience: does it run?")
    parser.add_argument("--out", type=Path, default=None, help="folder for runs and plots")
    asked = parser.parse_args()
    if asked.out is not None:
        main(asked.out, asked.quick)
    else:
        with tempfile.TemporaryDirectory() as folder:
            main(Path(folder), asked.quick)
