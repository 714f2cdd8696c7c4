"""Seconds and env steps until a policy is good enough, ours and others' in one run; and what a learner's update costs.

    python -m benchmarks.learn [--only balance|hover|rltools|walk|cost] [--quick] [--json] [--record]

The clock counts all that learning needs: building the envs and the nets, collecting, updating. It stands still while a
policy is evaluated, for every contender alike, and does not count imports or compilation. Evaluation is of the
deterministic policy, on episodes that training never saw. `walk` and `rltools` take long and run only if asked for.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import replace

import numpy as np
import torch

from benchmarks import measure
from benchmarks.measure import Row, interleaved, row, skipped
from surefoot import tasks
from surefoot.belief import Belief
from surefoot.learn.loop import policy_of
from surefoot.learn.on_policy.ppo import PPO
from surefoot.learn.train import settings_for
from surefoot.tasks.rollout import Evaluation, evaluate

THREADS = torch.get_num_threads()
EVALUATION_SEED = 1_000_000  # apart from every training seed


class Clock:
    """Counts the time spent inside `with clock:`."""

    def __init__(self) -> None:
        self.total = 0.0

    def __enter__(self) -> "Clock":
        self.began = time.perf_counter()
        return self

    def __exit__(self, *failure: object) -> None:
        self.total += time.perf_counter() - self.began


Found = tuple[float, int]
"""seconds, infinite if it was not reached, and env steps"""


def ours_until(
    good: Callable[[PPO], bool], task: str, belief: Belief, seed: int, every: int, most: int
) -> tuple[Found, PPO]:
    """Learn as `surefoot train` does until good, asked after `every` iterations, or for `most` env steps."""
    clock = Clock()
    with clock:
        settings = settings_for(task)
        learner = PPO(tasks.env(tasks.resolve(task), settings.envs, belief, seed, stagger=True), settings, seed)
    while learner.iteration * settings.batch < most:
        with clock:
            for _ in range(every):
                learner.iterate()
        if good(learner):
            return (clock.total, learner.iteration * settings.batch), learner
    return (np.inf, learner.iteration * settings.batch), learner


def _summary(name: str, found: list[Found], at_most: float | None = None) -> Iterator[Row]:
    spent, steps = np.array(found).T
    missed = int(np.isinf(spent).sum())
    note = f"{missed} of {len(found)} seeds did not get there" if missed else ""
    yield row(f"{name}: time", spent, "s", at_most=at_most, note=note)
    yield row(f"{name}: experience", steps, "env steps")


def balance(quick: bool) -> Iterator[Row]:
    """balance-discrete against Stable-Baselines3's PPO with its own defaults on CartPole-v1, to a mean return of 475.

    Both are judged after every update in the same place: 100 episodes of Gymnasium's CartPole-v1, which is the same
    pole, cart, force, integrator and limits. Seeds 0 to 4, one of each in turn.
    """
    try:
        import stable_baselines3  # noqa: F401
    except ImportError as error:
        yield skipped("CartPole-v1 to 475", f"{error}; pip install stable-baselines3")
        return
    ours, theirs = [], []
    goal, most = (15.0, 4096) if quick else (475.0, 500_000)
    belief = tasks.nominal(tasks.resolve("balance-discrete"))
    good = lambda learner: _cart_pole(policy_of(learner)) >= goal  # noqa: E731
    for seed in range(1 if quick else 5):
        torch.set_num_threads(THREADS)
        theirs.append(_sb3_until(goal, seed, most))
        ours.append(ours_until(good, "balance-discrete", belief, seed, 1, most)[0])
    yield from _summary("CartPole-v1 to 475, surefoot", ours)
    yield from _summary("CartPole-v1 to 475, SB3 PPO", theirs)
    ratio = [a / b for (a, _), (b, _) in zip(ours, theirs) if np.isfinite(a) or np.isfinite(b)]
    yield row("CartPole-v1 to 475: surefoot's time / SB3's", ratio, "ratio", at_most=0.1)


def _cart_pole(act: Callable[[np.ndarray], np.ndarray], n: int = 100) -> float:
    """Mean return of one episode in each of n of Gymnasium's own CartPole-v1."""
    import gymnasium

    envs = gymnasium.make_vec("CartPole-v1", n, vectorization_mode="vector_entry_point")
    obs, _ = envs.reset(seed=EVALUATION_SEED)
    returns, alive = np.zeros(n), np.ones(n, bool)
    while alive.any():
        obs, reward, terminated, truncated, _ = envs.step(act(obs).reshape(n).astype(np.int64))
        returns += reward * alive
        alive &= ~(terminated | truncated)
    envs.close()
    return float(returns.mean())


def _sb3_until(goal: float, seed: int, most: int) -> Found:
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback

    clock = Clock()

    class Judge(BaseCallback):
        """Before each rollout but the first, that is after each update, asks whether the policy is good."""

        good, steps = False, 0

        def _on_rollout_start(self) -> None:
            clock.__exit__()
            self.steps = self.num_timesteps
            if self.steps:
                self.good = _cart_pole(lambda obs: self.model.predict(obs, deterministic=True)[0]) >= goal
            clock.__enter__()

        def _on_step(self) -> bool:
            return not self.good

    judge = Judge()
    with clock:
        PPO("MlpPolicy", "CartPole-v1", seed=seed, device="cpu").learn(most, callback=judge)
    return (clock.total if judge.good else np.inf), judge.steps


def evaluator(task: str, belief: Belief, episodes: int, seed: int) -> Callable[[PPO], Evaluation]:
    env = tasks.env(tasks.resolve(task), episodes, belief, EVALUATION_SEED + seed)
    return lambda learner: evaluate(policy_of(learner), env)


def hover(quick: bool) -> Iterator[Row]:
    """hover to 95 % success over 200 episodes, thrown at up to 90 degrees: in the nominal world, and over the belief.

    Success: in the air for 5 s and within 0.1 m of the goal throughout the last one. The policy is judged in the world,
    or over the belief, that it was trained in, after every second update. Who stops at the first good result is lucky
    in part: what the policy then does in 1000 other episodes is reported beside it.
    """
    task = tasks.resolve("hover")
    for name, belief, goal in (("nominal", tasks.nominal(task), 60.0), ("randomized", task.belief, None)):
        found, again = [], []
        for seed in range(1 if quick else 3):
            judge = evaluator("hover", belief, 20 if quick else 200, seed)
            good = lambda learner, judge=judge: judge(learner).rate >= 0.95  # noqa: E731
            one, learner = ours_until(good, "hover", belief, seed, 2, 10_000 if quick else 6_000_000)
            found.append(one)
            again.append(evaluator("hover", belief, 20 if quick else 1000, 100 + seed)(learner).rate)
        yield from _summary(f"hover to 95 %, {name}", found, at_most=goal)
        yield row(f"hover to 95 %, {name}: success in 1000 other episodes", again, "of episodes")


def rltools(quick: bool) -> Iterator[Row]:
    """rltools' SAC with its default settings on the same hover task, judged by the same rule."""
    command = [sys.executable, "-m", "benchmarks.sac", *(["--quick"] if quick else [])]
    out = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    yield from (Row(**r) for r in json.loads(out.splitlines()[-1]))


def walk(quick: bool) -> Iterator[Row]:
    """walk over its belief, to a mean tracking error under 0.2 m/s with 95 % of 128 episodes of 20 s without a fall.

    Judged after every twentieth update, on episodes over the same belief: payloads, friction, delays, slopes, pushes.
    The error is the mean over whole episodes, changes of command included, of those that did not fall. As for hover,
    what the policy that was stopped at does in other episodes, 256 here, is reported beside it.
    """
    task, found, again = tasks.resolve("walk"), [], []
    for seed in range(1 if quick else 3):
        judge = evaluator("walk", task.belief, 4 if quick else 128, seed)
        good = lambda learner, judge=judge: _walks(judge(learner))  # noqa: E731
        every, most = (1, 20_000) if quick else (20, 30_000_000)
        one, learner = ours_until(good, "walk", task.belief, seed, every, most)
        found.append(one)
        again.append(_upright_and_error(evaluator("walk", task.belief, 4 if quick else 256, 100 + seed)(learner)))
    yield from _summary("walk to 0.2 m/s and 95 % upright", found, at_most=900.0)
    upright, error = np.array(again).T
    yield row("walk: upright in 256 other episodes", upright, "of episodes")
    yield row("walk: tracking error in them", error, "m/s")


def _upright_and_error(e: Evaluation) -> tuple[float, float]:
    """A failed episode has no error, so the error tells who fell."""
    upright = np.isfinite(e.error)
    return float(upright.mean()), float(e.error[upright].mean()) if upright.any() else np.inf


def _walks(e: Evaluation) -> bool:
    upright, error = _upright_and_error(e)
    return upright >= 0.95 and error < 0.2


def cost(quick: bool) -> Iterator[Row]:
    """A learner's own time an env step: advantages and 5 epochs of 4 minibatches, 3 x 128 nets, on walk's observations.

    rsl_rl's PPO does the same with the same sizes on rollouts of the same task; both collect afresh before each turn,
    and neither's collecting is counted. `symmetric` is walk's own setting: the actor sees the mirror image as well.
    """
    changes = {"hidden": (128, 128, 128), "epochs": 5, "minibatches": 4, "envs": 64 if quick else 1024}
    contenders: dict[str, Callable[[], float]] = {}
    for name, symmetric in (("surefoot", False), ("surefoot, symmetric", True)):
        settings = settings_for("walk", {**changes, "symmetric": symmetric})
        task = tasks.resolve("walk")
        learner = PPO(tasks.env(task, settings.envs, task.belief, stagger=True), settings, 0)
        contenders[name] = lambda learner=learner: _update_cost(learner)
    try:
        contenders["rsl_rl"] = _rsl_cost(settings_for("walk", {**changes, "symmetric": False}))
    except ImportError as error:
        yield skipped("rsl_rl: learner", str(error))
    for run in contenders.values():
        run()
    found = interleaved(contenders, 5 if quick else measure.PAIRS)
    for name, each in found.items():
        yield row(f"{name}: learner", each, "us an env step", at_most=30.0 if name == "surefoot" else None)
    if "rsl_rl" in found:
        yield row("surefoot's learner / rsl_rl's", found["surefoot"] / found["rsl_rl"], "ratio")


def _update_cost(learner: PPO) -> float:
    """Microseconds an env step of one update, after a rollout of its own."""
    rollout = learner.collect()

    def update() -> None:
        learner.update(rollout, *learner.estimate(rollout))

    taken = measure.seconds(update)
    learner.iteration += 1
    return 1e6 * taken / learner.settings.batch


def _rsl_cost(settings: object) -> Callable[[], float]:
    from rsl_rl.runners import OnPolicyRunner

    from surefoot.tasks.adapters.rsl import RslVecEnv, runner_settings

    task = tasks.resolve("walk")
    told = {k: getattr(settings, k) for k in ("hidden", "epochs", "minibatches", "horizon", "activation")}
    task = replace(task, settings={**task.settings, **told})
    env = RslVecEnv(tasks.env(task, settings.envs, task.belief, stagger=True))
    with redirect_stdout(sys.stderr):  # it prints its nets
        alg = OnPolicyRunner(env, runner_settings(task), None).alg
    alg.train_mode()

    def once() -> float:
        with torch.inference_mode():
            for _ in range(settings.horizon):
                obs, reward, done, extras = env.step(alg.act(env.get_observations()))
                alg.process_env_step(obs, reward, done, extras)

        def update() -> None:
            with torch.inference_mode():
                alg.compute_returns(env.get_observations())
            alg.update()

        return 1e6 * measure.seconds(update) / (settings.horizon * settings.envs)

    return once


PARTS = {"balance": balance, "hover": hover, "rltools": rltools, "walk": walk, "cost": cost}

if __name__ == "__main__":
    measure.main("learn", __doc__.split("\n")[0], PARTS, later=("rltools", "walk"))
