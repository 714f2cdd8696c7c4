"""Env steps a second against Gymnasium's vector envs and envpool, on the same robots, doing the same work in turns."""

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.measure import PAIRS, Row, interleaved, row, seconds, skipped

FEW, MANY = 8, 1024
BUDGET = {"HalfCheetah-v5": 12_000, "Ant-v5": 3_000, "Humanoid-v5": 3_000}  # env steps in a block of FEW
ACTIONS = 32


def peers(quick: bool) -> Iterator[Row]:
    """Ours over AsyncVectorEnv(8) and SyncVectorEnv(8): frame skip, observation, reward, ends and resets are the same.

    Gymnasium's own checks are off and it resets in the same step as ours does. The goal is on our better batch size: a
    Gymnasium vector env gains nothing from more envs than cores, ours does, and both are reported.
    """
    try:
        import gymnasium  # noqa: F401

        from benchmarks import twins
    except ImportError as error:
        yield skipped("Gymnasium's vector envs", f"{error}; pip install 'gymnasium[mujoco]'")
        return
    for name in twins.TWINS:
        off, off_reward = twins.difference(name, 20 if quick else 300)
        yield row(f"{name}: observation, ours - Gymnasium's", off, "relative", at_most=1e-8)
        yield row(f"{name}: reward, ours - Gymnasium's", off_reward, "relative", at_most=1e-8)
        yield from _race(name, quick)


def _race(name: str, quick: bool) -> Iterator[Row]:
    from benchmarks import twins

    few, many = (FEW, 2 * FEW) if quick else (FEW, MANY)
    with twins.quiet():
        contenders, closers = _contenders(name, few, many)
    budget = 80 if quick else BUDGET[name]
    runs = {}
    for who, (n, step) in contenders.items():
        blocks = max(2, (budget if n == few else 4 * budget) // n)
        runs[who] = lambda n=n, step=step, blocks=blocks: n * blocks / seconds(lambda: [step() for _ in range(blocks)])
    for run in runs.values():
        run()  # robots have landed, memory is warm
    speed = interleaved(runs, 5 if quick else PAIRS)
    for close in closers:
        close()
    best = max((f"surefoot({few})", f"surefoot({many})"), key=lambda k: float(np.median(speed[k])))
    for who, rate in speed.items():
        yield row(f"{name}: {who}", rate, "env steps/s")
    for peer, goal in ((f"AsyncVectorEnv({few})", 3.0), (f"SyncVectorEnv({few})", 2.5)):
        for size in (few, many):
            ours, wanted = f"surefoot({size})", goal if best == f"surefoot({size})" else None
            yield row(f"{name}: {ours} / {peer}", speed[ours] / speed[peer], "ratio", at_least=wanted)
    for who in speed:
        if who.startswith("envpool"):
            yield row(f"{name}: {best} / {who}", speed[best] / speed[who], "ratio")
    if not any(who.startswith("envpool") for who in speed):
        yield skipped(f"{name}: envpool", "not installed")


Contenders = dict[str, tuple[int, Callable[[], Any]]]


def _contenders(name: str, few: int, many: int) -> tuple[Contenders, list[Callable[[], Any]]]:
    """Each one's number of envs and how to step them once, under the same random actions; and how to close them."""
    import gymnasium
    from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

    from benchmarks import twins

    found, closers = {}, []
    space = gymnasium.make(name).action_space
    for who, kind in (("AsyncVectorEnv", AsyncVectorEnv), ("SyncVectorEnv", SyncVectorEnv)):
        makers = [lambda: gymnasium.make(name, disable_env_checker=True) for _ in range(few)]
        theirs = kind(makers, autoreset_mode=AutoresetMode.SAME_STEP)
        theirs.reset(seed=0)
        found[f"{who}({few})"] = few, _stepper(theirs.step, space, few)
        closers.append(theirs.close)
    for n in (few, many):
        ours = twins.env(name, n)
        ours.reset()
        found[f"surefoot({n})"] = n, _stepper(ours.step, space, n)
    for n in (few, many):
        pool = _envpool(name, n)
        if pool is not None:
            found[f"envpool({n})"] = n, _stepper(pool.step, space, n)
            closers.append(pool.close)
    return found, closers


def _stepper(step: Callable[[np.ndarray], Any], space: Any, n: int) -> Callable[[], Any]:
    rng, at = np.random.default_rng(0), 0
    actions = rng.uniform(space.low, space.high, (ACTIONS, n, len(space.low))).astype(np.float32)

    def once() -> None:
        nonlocal at
        step(actions[at % ACTIONS])
        at += 1

    return once


def _envpool(name: str, n: int) -> Any:
    """envpool's own build of the same env, with as many threads as there are cores; None where it is not installed."""
    try:
        import envpool
    except ImportError:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pool = envpool.make_gymnasium(name, num_envs=n, seed=0)
    pool.reset()
    return pool
