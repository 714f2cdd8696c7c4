"""logged: simulated episodes as the log of a robot.

Row k: the measurement at time k, and `control`, the command from then until time k + 1, before any Term. Episodes follow
each other with one empty row (nan) between them.
"""

from collections.abc import Mapping

import numpy as np

from surefoot.env import Env
from surefoot.log import Log
from surefoot.policy import Driver, Policy
from surefoot.real2sim.signals import BASE, JOINT
from surefoot.rng import stream
from surefoot.world import State

UNITS = {**JOINT, "base_pos": "m", "base_lin_vel": "m/s", "base_ang_vel": "rad/s"}


def logged(
    policy: Policy,
    env: Env,
    noise: Mapping[str, float] | None = None,
    stir: float = 0.0,
    episodes: int | None = None,
    e: np.ndarray | None = None,
    seed: int | None = None,
) -> Log:
    """The first episode of each env, or of the first few, one after the other; in worlds e (n, ne), or drawn from its belief.

    `noise` is the sd of each column's sensor noise, in its unit; `stir` the sd of exploration noise on the actions.
    """
    obs, count = env.reset(seed, e), env.n if episodes is None else episodes
    rows: list[dict[str, np.ndarray]] = []
    drive = Driver(policy, env.n)
    alive, last = np.ones(env.n, bool), np.full(env.n, env.steps)
    for k in range(env.steps):
        a = np.asarray(drive(obs["actor"]), float)
        a = env.task.action.bounded(a + stir * stream(env.seed, "stir", k).standard_normal(a.shape))
        rows.append(columns(env, env.world.state) | {"control": env.task.action.control(a)})
        step = env.step(a)
        obs, ended = step.obs, step.terminated | step.truncated
        last[alive & ended] = k + 1
        alive &= ~ended
        if not alive[:count].any():
            break
    whole = {name: np.stack([r[name] for r in rows], 1) for name in rows[0]}  # (n, T, k)
    whole = {name: _noisy(name, x, noise or {}, env.seed) for name, x in whole.items()}
    joined = {name: _joined(x[:count], last[:count]) for name, x in whole.items()}
    layout = env.world.layout
    names = {"control": list(layout.actuators)} | {k: list(layout.joints) for k in JOINT if k in joined}
    units = {k: u for k, u in UNITS.items() if k in joined} | {"control": env.task.action.unit}
    time = env.world.dt * np.arange(len(joined["control"]))
    return Log(time, joined, units, {"names": names, "task": env.task.name})


def columns(env: Env, x: State) -> dict[str, np.ndarray]:
    """A state as columns of a log."""
    layout, found = env.world.layout, {}
    for name in (*(BASE if layout.base is not None else ()), *(JOINT if layout.joints else ())):
        at = layout.columns(name)
        assert at is not None
        found[name] = (x.q, x.v)[at[0]][:, at[1]]
    if env.command.shape[1]:
        found["command"] = env.command
    return {k: np.array(a) for k, a in found.items()}


def _noisy(name: str, x: np.ndarray, noise: Mapping[str, float], seed: int) -> np.ndarray:
    if not noise.get(name):
        return x
    x = x + noise[name] * stream(seed, f"sensor {name}").standard_normal(x.shape)
    return x / np.linalg.norm(x, axis=-1, keepdims=True) if name == "base_quat" else x


def _joined(x: np.ndarray, last: np.ndarray) -> np.ndarray:
    """Episodes (n, T, k) end to end, an empty row after each but the last."""
    empty = np.full((1, x.shape[2]), np.nan)
    parts = [p for rows, end in zip(x, last) for p in (rows[:end], empty)]
    return np.concatenate(parts[:-1])
