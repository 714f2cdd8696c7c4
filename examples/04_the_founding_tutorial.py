"""A well-known tutorial on sim-to-real, step by step, with the numbers it only claims.

Train a cart-pole where gravity is 9.8 and the cart 1 kg; meet a "real world" of gravity 12, cart 1.5 kg, pole 0.2 kg and
noisy sensors; train over randomized physics; meet it again; compare both in 20 variations wider than any training; find
gravity and the cart's mass from a few falls, by the tutorial's grid and by identification on the same log; then approach the
real world in three stages, and in one go. Several seeds show what is luck.

    python examples/04_the_founding_tutorial.py [--quick] [--seeds 3] [--out FOLDER]

Started again after a stop, it continues where it stopped.
"""

import argparse
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import surefoot as sf

NAME = "balance-discrete"  # CartPole-v1, to the last digit
TASK = sf.resolve(NAME)
HOME = sf.point(TASK.params, TASK.params.nominal)
REAL = {"gravity": 12.0, "cart_mass": 1.5, "pole_mass": 0.2, "noise": 0.05}
RANDOMIZED = {"gravity": (8.0, 14.0), "cart_mass": (0.5, 2.0), "pole_mass": (0.05, 0.3), "noise": (0.0, 0.1)}
VARIATIONS = {"gravity": (7.0, 15.0), "cart_mass": (0.3, 2.5), "pole_mass": (0.03, 0.4), "noise": (0.0, 0.15)}
UNKNOWN = {"gravity": (8.0, 14.0), "cart_mass": (0.5, 2.5)}  # where the tutorial searches
STAGES = (
    {"gravity": 10.0, "cart_mass": 1.1, "noise": 0.01, "pole_mass": 0.2},
    {"gravity": 11.0, "cart_mass": 1.3, "noise": 0.03, "pole_mass": 0.2},
    {"gravity": 12.0, "cart_mass": 1.5, "noise": 0.05, "pole_mass": 0.2},
)


def uniform(ranges: dict[str, tuple[float, float]]) -> sf.Box:
    """Uniform, as the tutorial draws: not in ratio, though masses are on a log scale here."""
    return sf.Box.ranges(sf.Params(tuple(replace(p, log=False) for p in TASK.params)), ranges)


def score(policy: sf.Run, worlds: sf.Belief | np.ndarray, episodes: int = 50) -> np.ndarray:
    """Returns of episodes, at most 500 each: drawn from a belief, or `episodes` in each world given."""
    if isinstance(worlds, sf.Belief):
        return sf.evaluate(policy, belief=worlds, episodes=episodes, seed=1000).returns
    e = np.repeat(worlds, episodes, 0)
    return sf.evaluate(policy, e=e, seed=1000).returns.reshape(len(worlds), episodes)


def steps(out: Path, seed: int, scale: float = 1.0) -> tuple[dict[str, float], dict[str, np.ndarray]]:
    """The tutorial's trainings with one seed: name of a measurement -> mean return, and each policy's in every variation."""
    real, beliefs = world(REAL), [world(stage) for stage in STAGES]

    def learned(name: str, belief: sf.Belief, n: int, start: sf.Run | None = None) -> sf.Run:
        few = {"envs": 8, "horizon": 256, "steps": int(n * scale)}  # so that 30 000 steps are many whole episodes
        folder, watch = out / f"{name}{seed}", watcher(f"{name}, seed {seed}")
        how = {"seed": seed, "belief": belief, "change": few, "start": start and start.folder}
        return sf.train(NAME, folder, watch=watch, resume_if_same=True, **how)

    narrow = learned("standard", HOME, 50_000)
    broad = learned("randomized", uniform(RANDOMIZED), 100_000)
    stages: list[sf.Run] = []
    for k, belief in enumerate(beliefs):  # each starts with what the last one learned
        stages.append(learned(f"stage{k + 1}-", belief, 30_000, stages[-1] if stages else broad))
    straight = learned("straight", real, 90_000, broad)

    found = {}
    each = {"standard": narrow, "randomized": broad}
    varied = {name: score(policy, variations(), 10).mean(1) for name, policy in each.items()}
    for name, policy in each.items():
        found[f"{name}, at home"] = score(policy, HOME).mean()
        found[f"{name}, in the real world"] = score(policy, real).mean()
        found[f"{name}, mean of 20 variations"] = varied[name].mean()
        found[f"{name}, worst of 20 variations"] = varied[name].min()
    for k, (run, belief) in enumerate(zip(stages, beliefs)):
        found[f"stage {k + 1}, where it trained"] = score(run, belief).mean()
    found["after the stages, in the real world"] = score(stages[-1], real).mean()
    found["straight to it for as long, in the real world"] = score(straight, real).mean()
    return found, varied


def world(e: dict[str, float]) -> sf.Belief:
    return sf.point(TASK.params, TASK.params.vector(e))


def watcher(name: str) -> Callable[[Any], None]:
    """Shows on stderr how far a training is."""
    return lambda p: print(f"\r{name}: {100 * (p.share or 0):.0f} % ", end="\n" * (p.share == 1), file=sys.stderr)


class Coin(sf.Policy):
    """Pushes left or right at random: the tutorial's way to explore."""

    def __init__(self, seed: int):
        self.rng = np.random.default_rng(seed)

    def step(self, s: dict[str, np.ndarray], obs: np.ndarray) -> tuple[dict[str, np.ndarray], np.ndarray]:
        return s, self.rng.integers(0, 2, len(obs))


def identification(seed: int, falls: int = 5) -> dict[str, float]:
    """Gravity and cart of the real world, from a log of about 100 rows: by grid and by `identify`, with its interval."""
    noise = {"joint_pos": REAL["noise"], "joint_vel": REAL["noise"]}
    log = sf.log_episodes(Coin(seed), sf.make_env(TASK, falls, world(REAL), seed), noise)
    found = {f"{name}, by grid": value for name, value in by_grid(log).items()}
    fit = sf.identify(sf.make_env(TASK, 1).world, sf.Box.ranges(TASK.params, UNKNOWN), log)
    for p in fit.params:
        if p.name in UNKNOWN:
            found |= {f"{p.name}, identified": p.value, f"{p.name}, least": p.low, f"{p.name}, most": p.high}
    return found


def by_grid(log: sf.Log) -> dict[str, float]:
    """The tutorial's search: of 10 x 10 worlds the one that best predicts each row from the noisy row before it."""
    q, v, u = log["joint_pos"], log["joint_vel"], log["control"]
    rows = np.flatnonzero(np.isfinite(u[:-1, 0]) & np.isfinite(u[1:, 0]))  # an empty row separates two falls
    model, least, best = sf.make_env(TASK, len(rows)).world, np.inf, {}
    for gravity, cart in product(*(np.linspace(low, high, 10) for low, high in UNKNOWN.values())):
        e = np.tile(TASK.params.vector({"gravity": gravity, "cart_mass": cart}), (len(rows), 1))
        x = sf.simulate(model, e, q[rows], v[rows], u[rows, None])
        error = np.square(x.q[:, 0] - q[rows + 1]).sum() + np.square(x.v[:, 0] - v[rows + 1]).sum()
        if error < least:
            least, best = error, {"gravity": gravity, "cart_mass": cart}
    return best


def variations() -> np.ndarray:
    """20 worlds, uniform in ranges wider than any training's; the same for every policy and seed."""
    low, high = (TASK.params.vector({k: r[i] for k, r in VARIATIONS.items()}) for i in (0, 1))
    return low + (high - low) * np.random.default_rng(0).random((20, len(low)))


def main(out: Path, quick: bool, seeds: int) -> None:
    rows, varied = zip(*(steps(out, seed, 0.05 if quick else 1.0) for seed in range(seeds)))
    box_plot(out / "robustness.svg", {name: np.concatenate([v[name] for v in varied]) for name in varied[0]})
    if quick:
        print("quick: a twentieth of the experience, one seed. It shows that all runs; its numbers mean nothing")
    print(f"mean return of at most 500; {'one seed' if seeds == 1 else f'{seeds} seeds: median, least .. largest'}")
    for name in rows[0]:
        values = [r[name] for r in rows]
        spread = f"   {min(values):6.1f} .. {max(values):6.1f}" if seeds > 1 else ""
        print(f"{name:46} {np.median(values):6.1f}{spread}")
    print("\nfrom five falls, the real world's gravity and cart: truth 12 and 1.5")
    for seed in range(seeds):
        x = identification(seed)
        for k in UNKNOWN:
            inside = f"{x[f'{k}, identified']:5.2f} ({x[f'{k}, least']:.2f} .. {x[f'{k}, most']:.2f})"
            print(f"seed {seed}, {k:10} by grid {x[f'{k}, by grid']:5.2f}   identified {inside}")
    print(f"\nbox plot: {out / 'robustness.svg'}")


def box_plot(path: Path, found: dict[str, np.ndarray]) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3.5), layout="constrained")
    axes = figure.subplots()
    axes.boxplot(list(found.values()), tick_labels=list(found))
    axes.set(ylabel="mean return", title="20 variations of the physics", ylim=(0, 510))
    axes.grid(axis="y", alpha=0.3)
    figure.savefig(path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a twentieth of the experience, one seed: does it run?")
    parser.add_argument("--seeds", type=int, default=3, help="how often to do all of it, each time with other luck")
    parser.add_argument("--out", type=Path, help="folder for runs and plots (runs/tutorial, or runs/tutorial-quick)")
    asked = parser.parse_args()
    folder = asked.out or Path("runs/tutorial-quick" if asked.quick else "runs/tutorial")
    try:
        main(folder, asked.quick, 1 if asked.quick else max(1, asked.seeds))
    except sf.SurefootError as error:
        sys.exit(f"\n{error}")
