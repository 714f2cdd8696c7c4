"""What a base is worth: PPO upon a controller that nearly works, against PPO from nothing.

    python -m benchmarks.residual [--quick] [--json] [--record]

The base is a linear-quadratic regulator designed for balance's model: it never fails at home. It is put into worlds it was
not designed for: other masses and gravity, a weaker motor, drag, delay and noise. All contenders learn there with the
task's own settings from the same seeds, and are judged without exploration, on the same episodes each time. Values are
medians over seeds with the least and largest.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from scipy.linalg import solve_discrete_are

from benchmarks import measure
from benchmarks.lessons import JUDGED
from benchmarks.measure import Row, row
from surefoot import tasks
from surefoot.belief import Box
from surefoot.learn.loop import policy_of
from surefoot.learn.nets.policy_net import PolicyNet, linear
from surefoot.learn.ppo import PPO
from surefoot.learn.residual import BasePolicy, Residual, ResidualActor
from surefoot.learn.train import settings_for
from surefoot.policy import Policy
from surefoot.task import Task
from surefoot.tasks.ready.balance import DT
from surefoot.tasks.rollout import contract, evaluate

GOAL = 0.95  # success to reach
FIRST, EVERY = 0.1, 4  # every policy of the first tenth of training is judged, then every fourth
RANGES = {
    "gravity": (9.8, 12.0), "cart_mass": (0.5, 2.0), "pole_mass": (0.1, 0.4), "strength": (0.6, 1.0),
    "rail_drag": (0.0, 2.0), "latency": (0.0, 0.06), "noise": (0.0, 0.05),
}  # fmt: skip


def regulator(task: Task) -> PolicyNet:
    """u = -K x, K from the Riccati equation of the nominal model about upright, x = cart, its speed, pole, its rate."""
    g, m, M, l = 9.8, 0.1, 1.1, 0.5  # noqa: E741
    d = l * (4 / 3 - m / M)
    A = np.eye(4) + DT * np.array([[0, 1, 0, 0], [0, 0, -m * l * g / (M * d), 0], [0, 0, 0, 1], [0, 0, g / d, 0]])
    B = DT * np.array([[0], [1 / M + m * l / (M * M * d)], [0], [-1 / (M * d)]])
    Q, R = np.diag([1.0, 0.1, 10.0, 0.1]), np.array([[0.1]])
    P = solve_discrete_are(A, B, Q, R)
    K = np.linalg.solve(R + B.T @ P @ B, B.T @ P @ A)
    return linear(contract(task, tasks.env(task, 1).world), {"cart_pole": -K})


def judged(policy: Policy, task: Task, belief: Box, episodes: int) -> float:
    return evaluate(policy, tasks.env(task, episodes, belief, JUDGED, 1)).rate


def learned(
    task: Task, belief: Box, base: PolicyNet | None, seed: int, steps: int, episodes: int
) -> tuple[float, list[float]]:
    """Env steps until the goal, infinite if it is not met in time; and success after each of the first iterations."""
    settings = replace(settings_for(task.name), steps=steps, learner_threads=1)
    env = tasks.env(task, settings.envs, belief, seed, 1, stagger=True)
    upon = None if base is None else ResidualActor(Residual(), BasePolicy(contract(task, env.world), base))
    learner, early, found = PPO(env, settings, seed, upon=upon), [], np.inf
    first = max(1, round(FIRST * settings.iterations))
    for k in range(1, settings.iterations + 1):
        learner.iterate()
        if k > first and k % EVERY:
            continue
        rate = judged(policy_of(learner), task, belief, episodes)
        early += [rate] if k <= first else []
        found = min(found, k * settings.batch) if rate >= GOAL else found
        if k >= first and np.isfinite(found):
            break
    return found, early


def balance(quick: bool) -> Iterator[Row]:
    """Steps to the goal, and what a robot would have been driven with on the way."""
    task = tasks.resolve("balance")
    belief, base, episodes = Box.ranges(task.params, RANGES), regulator(task), 20 if quick else 100
    steps, seeds = (4096, 1) if quick else (settings_for("balance").steps, 5)
    home, abroad = evaluate(base, tasks.env(task, episodes, seed=JUDGED)).rate, judged(base, task, belief, episodes)
    yield row("regulator, at home", home, "of episodes")
    yield row("regulator, in these worlds", abroad, "of episodes")
    found = {
        name: [learned(task, belief, kind, seed, steps, episodes) for seed in range(seeds)]
        for name, kind in {"scratch": None, "residual": base}.items()
    }
    reached = {name: np.array([r[0] for r in runs]) for name, runs in found.items()}
    for name, runs in found.items():
        met = f"{np.isfinite(reached[name]).sum()} of {seeds} seeds within {steps:,} steps"
        yield row(f"{name}: steps to {100 * GOAL:.0f} %", reached[name], "env steps", note=met)
        floor = min(min(r[1]) for r in runs) - abroad  # of all seeds: never is never
        promised = -0.05 if name == "residual" else None
        yield row(f"{name}: lowest in the first {100 * FIRST:.0f} %, less the base's", floor, "of episodes", promised)
    with np.errstate(invalid="ignore"):  # neither got there
        ratio = reached["residual"] / reached["scratch"]
    yield row("residual / scratch: steps", ratio, "ratio", at_most=0.5)


PARTS = {"balance": balance}

if __name__ == "__main__":
    measure.main("residual", __doc__.split("\n")[0], PARTS)
