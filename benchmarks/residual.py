"""What a base is worth: PPO upon a controller that nearly works, against PPO from nothing.

    python -m benchmarks.residual [--only balance|arm] [--quick] [--json] [--record]

balance  the base is a linear-quadratic regulator designed for the nominal model, where it never fails; it is put into worlds it
         was not designed for: other masses and gravity, a weaker motor, drag, delay and noise.
arm      the base is model-based: gravity of the nominal arm compensated, alone and with the load that the servos' errors show.
         The worlds are the task's own belief: other masses, friction, stiffness, delay, and pulls of up to 30 N at the hand.

All contenders learn with the task's own settings from the same seeds, and are judged without exploration, on the same episodes
each time. Values are medians over seeds with the least and largest.
"""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import solve_discrete_are

from benchmarks import measure
from benchmarks.lessons import JUDGED
from benchmarks.measure import Row, row
from surefoot import tasks
from surefoot.belief import Belief, Box
from surefoot.contract import Contract
from surefoot.learn.loop import policy_of
from surefoot.learn.nets.policy_net import PolicyNet, linear
from surefoot.learn.on_policy.ppo import PPO
from surefoot.learn.residual import BasePolicy, Residual, ResidualActor
from surefoot.learn.train import settings_for
from surefoot.policy import Policy, PolicyState
from surefoot.task import Task
from surefoot.tasks.ready.arm import FORE, GRAVITY, KD, KP, MASS, UPPER
from surefoot.tasks.ready.balance import DT
from surefoot.tasks.rollout import contract, evaluate

GOAL = 0.95  # success to reach
SHARE = 0.5  # of the load that is compensated: with 0.8 the loop of some worlds is unstable
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


@dataclass(frozen=True)
class Compensated(Policy):
    """u = command + (g(command) - share d) / kp of the nominal arm: its servos hold the command against gravity and a load d.

    d = kp (q - u') + kd v + g(q), the mean over the frames it observes: torque that the servos gave and the model does not need,
    u' what they were sent before each. A share of 0: gravity alone.
    """

    contract: Contract
    share: float

    def step(self, s: PolicyState, obs: np.ndarray) -> tuple[PolicyState, np.ndarray]:
        frames = obs.reshape(len(obs), self.contract.history, -1) / np.repeat([1.0, 0.2, 1.0, 1.0], 2)
        q, v, command, last = np.split(frames, 4, -1)  # (n, frames, 2) each
        action, kp = self.contract.action, np.array(KP)
        load = kp * (q - action.control(last)) + np.array(KD) * v + weight(q)
        u = command[:, -1] + (weight(command[:, -1]) - self.share * load.mean(1)) / kp
        return s, np.asarray((u - action.offset) / action.scale, np.float32)


def weight(q: np.ndarray) -> np.ndarray:
    """(..., 2) torque of gravity on the nominal arm, N m: tasks/ready/arm.py states the law."""
    fore = (MASS["fore"] / 2 + MASS["hand"]) * FORE * np.cos(q[..., 0] + q[..., 1])
    upper = (MASS["upper"] / 2 + MASS["fore"] + MASS["hand"]) * UPPER * np.cos(q[..., 0])
    return GRAVITY * np.stack([upper + fore, fore], -1)


def judged(policy: Policy, task: Task, belief: Belief, episodes: int) -> float:
    return evaluate(policy, tasks.env(task, episodes, belief, JUDGED, 1)).rate


@dataclass(frozen=True)
class Sum(Policy):
    """A base that is no net, and what was learned upon it."""

    contract: Contract
    upon: ResidualActor
    net: PolicyNet

    def step(self, s: PolicyState, obs: np.ndarray) -> tuple[PolicyState, np.ndarray]:
        return s, self.upon(obs, self.net(obs))


def made(learner: PPO) -> Policy:
    """The learner's policy so far."""
    if learner.upon is None or isinstance(learner.upon.base.net, PolicyNet):
        return policy_of(learner)
    own, see = contract(learner.env.task, learner.env.world), learner.see_actor
    scales = see.mean.float().numpy().copy(), see.sd.float().numpy().copy()
    return Sum(own, learner.upon, PolicyNet(own, deepcopy(learner.actor), scales))


def learned(
    task: Task, belief: Belief, base: PolicyNet | Compensated | None, seed: int, steps: int, episodes: int
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
        rate = judged(made(learner), task, belief, episodes)
        early += [rate] if k <= first else []
        found = min(found, k * settings.batch) if rate >= GOAL else found
        if k >= first and np.isfinite(found):
            break
    return found, early


def balance(quick: bool) -> Iterator[Row]:
    """A regulator, in worlds it was not designed for."""
    task = tasks.resolve("balance")
    base, episodes = regulator(task), 20 if quick else 100
    yield row("regulator, at home", evaluate(base, tasks.env(task, episodes, seed=JUDGED)).rate, "of episodes")
    yield from compared(task, Box.ranges(task.params, RANGES), {"residual": base}, 1 if quick else 5, quick)


def arm(quick: bool) -> Iterator[Row]:
    """Two model-based controllers, over the task's own belief."""
    task = tasks.resolve("arm")
    own = contract(task, tasks.env(task, 1).world)
    bases = {"gravity": Compensated(own, 0.0), "gravity and load": Compensated(own, SHARE)}
    yield from compared(task, task.belief, bases, 1 if quick else 3, quick)


def compared(
    task: Task, belief: Belief, bases: Mapping[str, PolicyNet | Compensated], seeds: int, quick: bool
) -> Iterator[Row]:
    """Steps to the goal, and what a robot would have been driven with on the way."""
    steps, episodes = (4096, 20) if quick else (settings_for(task.name).steps, 100)
    alone = {name: judged(base, task, belief, episodes) for name, base in bases.items()}
    for name, rate in alone.items():
        yield row(f"{name}: the base alone", rate, "of episodes")
    reached = {}
    for name, base in {"scratch": None, **bases}.items():
        measure.said(f"{task.name}: {name}")
        runs = [learned(task, belief, base, seed, steps, episodes) for seed in range(seeds)]
        reached[name] = np.array([r[0] for r in runs])
        met = f"{np.isfinite(reached[name]).sum()} of {seeds} seeds within {steps:,} steps"
        yield row(f"{name}: steps to {100 * GOAL:.0f} %", reached[name], "env steps", note=met)
        floor = min(min(r[1]) for r in runs) - alone.get(name, max(alone.values()))  # of all seeds: never is never
        promised = None if name == "scratch" else -0.05
        yield row(f"{name}: lowest in the first {100 * FIRST:.0f} %, less the base's", floor, "of episodes", promised)
    with np.errstate(invalid="ignore"):  # neither got there
        ratios = {name: reached[name] / reached["scratch"] for name in bases}
    for name, ratio in ratios.items():
        yield row(f"{name} / scratch: steps", ratio, "ratio", at_most=0.5)


PARTS = {"balance": balance, "arm": arm}

if __name__ == "__main__":
    measure.main("residual", __doc__.split("\n")[0], PARTS)
