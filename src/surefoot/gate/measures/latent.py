"""What a policy that adapts has inferred about its world: its latent z, read by a linear probe, against the true e.

    y(e) ~ W z + c,  by ridge regression on half of the episodes, after their first half second;
    R^2(t) = 1 - sum (y - Wz - c)^2 / sum (y - mean y)^2  on the other half, at each time t into the episode

y is log e for an unknown on a log scale. In a second set of episodes one unknown changes at one instant; the probe shows how
long the policy takes to notice.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from surefoot import tasks
from surefoot.belief import Belief
from surefoot.deploy.bundle import OnnxPolicy
from surefoot.env import Env
from surefoot.errors import SurefootError, unknown
from surefoot.policy import Driver
from surefoot.rng import stream
from surefoot.task import Task

SOON = 0.5  # s into an episode, when a policy should have inferred e
SETTLED = 0.1  # of a change: within so much of its final value, and staying there
RIDGE = 1e-3  # of the latent's own variance
Watch = Callable[[int, Env], None]
"""called after each step of the episodes"""


@dataclass(frozen=True)
class Change:
    """One unknown changes from one value to another, at `at` seconds into the episode."""

    name: str = ""
    """default: the one that the probe reads best"""
    before: float | None = None
    """default: its 10 % quantile"""
    after: float | None = None
    """default: its 90 % quantile"""
    at: float | None = None
    """default: the middle of the episode"""


@dataclass(frozen=True)
class Probe:
    """e of each unknown as a linear function of the latent."""

    weights: np.ndarray  # (latent + 1, d)
    log: np.ndarray

    @staticmethod
    def fit(z: np.ndarray, e: np.ndarray, log: np.ndarray) -> "Probe":
        """Ridge regression on rows z (m, latent) and e (m, d)."""
        x = np.concatenate([z, np.ones((len(z), 1))], 1)
        penalty = RIDGE * len(x) * np.diag([*np.maximum(z.var(0), 1e-12), 0.0])
        return Probe(np.linalg.solve(x.T @ x + penalty, x.T @ _y(e, log)), log)

    def y(self, z: np.ndarray) -> np.ndarray:
        return z @ self.weights[:-1] + self.weights[-1]

    def __call__(self, z: np.ndarray) -> np.ndarray:
        y = self.y(z)
        return np.where(self.log, np.exp(np.where(self.log, y, 0.0)), y)


def _y(e: np.ndarray, log: np.ndarray) -> np.ndarray:
    return np.where(log, np.log(np.where(log, e, 1.0)), e)


def latents(
    policy: OnnxPolicy, env: Env, e: np.ndarray, after: np.ndarray, at: int, watch: Watch | None = None
) -> np.ndarray:
    """(T, n, latent) in each env's first episode, in worlds e and from step `at` on in worlds `after`; nan after its end."""
    obs, z, running, drive = env.reset(e=e), [], np.ones(env.n, bool), Driver(policy, env.n)
    for k in range(env.steps):
        if k == at:
            env.world.set_params(np.arange(env.n), after)
        z.append(np.where(running[:, None], policy.latent(obs["actor"]), np.nan))
        step = env.step(drive(obs["actor"]))
        obs, running = step.obs, running & ~(step.terminated | step.truncated)
        if watch is not None:
            watch(k, env)
    return np.array(z)


def inferred(
    policy: OnnxPolicy,
    task: Task,
    belief: Belief,
    change: Change = Change(),  # noqa: B008
    episodes: int = 256,
    seed: int = 1,
    watch: Watch | None = None,
) -> dict[str, Any]:
    """R^2 of each unknown over time, and how the latent follows the unknown that changes."""
    name, at = change.name, change.at
    if not policy.adapts:
        raise SurefootError("adapt: this policy has no latent; train one with --adapt rma or --encoder conv")
    free = np.flatnonzero(belief.sd() > 0)
    if not len(free):
        raise SurefootError("adapt: the belief fixes every unknown: there is nothing to infer")
    names = [task.params.names[i] for i in free]
    if name in task.params.names and name not in names:
        raise SurefootError(f"adapt: the belief fixes {name}; expected one that varies: {', '.join(names)}")
    if name and name not in names:
        raise unknown("unknown", name, names, "adapt")
    if name:
        _jump(task, belief, name, change)  # refused now, not after the first episodes
    if episodes < 20:
        raise SurefootError(f"episodes: expected at least 20 to fit a probe and to test it, found {episodes}")
    env = tasks.env(tasks.for_contract(task, policy.contract), episodes, belief, seed)
    dt = env.world.dt
    at = env.steps // 2 * dt if at is None else at
    if not dt <= at < task.seconds:
        raise SurefootError(f"at: expected a time within the episode of {task.seconds:g} s, found {at:g}")
    soon, step = min(round(SOON / dt), env.steps - 1), round(at / dt)
    e = belief.sample(stream(seed, "inferred"), episodes)
    probe, r2 = fitted(latents(policy, env, e, e, env.steps, watch), e[:, free], task.params.log[free], soon)
    k = names.index(name) if name else int(np.argmax(np.nan_to_num(r2[soon], nan=-np.inf)))
    if not np.isfinite(r2[soon]).any():
        raise SurefootError(
            f"adapt: too few episodes last {SOON} s to test the probe; use more --episodes, or train for longer"
        )
    values, p = _jump(task, belief, names[k], change), task.params[names[k]]
    before, after = e.copy(), e.copy()
    before[:, free[k]], after[:, free[k]] = values
    track = probe(latents(policy, env, before, after, step, watch))[..., k]
    lasted = bool(np.isfinite(track).any(1).all())  # at every time some episode is running
    read = np.nanquantile(track, (0.1, 0.5, 0.9), axis=1) if lasted else None
    return {
        "task": task.name, "episodes": episodes, "seed": seed, "history": policy.contract.history * dt, "dt": dt,
        "soon": soon * dt, "unknown": p.name, "unit": p.unit, "at": step * dt,
        "r2": {n: {"soon": _finite(r2[soon, j]), "end": _finite(r2[-1, j])} for j, n in enumerate(names)},
        "r2_over_time": [_finite(x) for x in r2[:, k]], "before": values[0], "after": values[1],
        "read": None if read is None else {q: row.tolist() for q, row in zip(("low", "median", "high"), read)},
        "settles": None if read is None else settling(read[1], step, dt, values[1] - values[0]),
    }  # fmt: skip


def _jump(task: Task, belief: Belief, name: str, change: Change) -> list[float]:
    """Values of an unknown before and after the change."""
    i, p = task.params.index(name), task.params[name]
    values = [float(d[i] if v is None else v) for v, d in zip((change.before, change.after), belief.interval(0.8))]
    if not all(p.low <= v <= p.high for v in values):
        raise SurefootError(
            f"{name}: expected two values within {p.low:g} .. {p.high:g}, found {values[0]:g} and {values[1]:g}"
        )
    if values[0] == values[1]:
        raise SurefootError(f"{name}: expected two different values, found {values[0]:g} twice")
    return values


def fitted(z: np.ndarray, e: np.ndarray, log: np.ndarray, soon: int) -> tuple[Probe, np.ndarray]:
    """A probe of latents (T, n, .) fitted to half of the episodes from step `soon` on, and its R^2 (T, d) on the others."""
    half = len(e) // 2
    there = np.isfinite(z[soon:, :half]).all(-1)
    if there.sum() < 2 * z.shape[-1]:
        raise SurefootError(f"adapt: hardly any episode lasts {SOON} s: the probe cannot be fitted")
    probe = Probe.fit(z[soon:, :half][there], np.broadcast_to(e[:half], (*there.shape, e.shape[1]))[there], log)
    return probe, np.array([_r2(_y(e[half:], log), probe.y(frame[half:])) for frame in z])


def _r2(y: np.ndarray, read: np.ndarray) -> np.ndarray:
    """(d,) explained share of the variance of y, over the rows without nan; nan where there are too few."""
    ok = np.isfinite(read).all(1)
    if ok.sum() < 10:
        return np.full(y.shape[1], np.nan)
    y, read = y[ok], read[ok]
    return 1 - np.square(y - read).sum(0) / np.square(y - y.mean(0)).sum(0)


def _finite(x: float) -> float | None:
    return float(x) if np.isfinite(x) else None


def settling(track: np.ndarray, step: int, dt: float, change: float) -> float | None:
    """Seconds after `step` until a track stays near its final value: within SETTLED of its own change.

    None where it changes by less than SETTLED of the true `change`.
    """
    before = float(track[:step][-max(1, step // 4) :].mean())
    end = float(track[-max(1, (len(track) - step) // 4) :].mean())
    if abs(end - before) < SETTLED * abs(change):
        return None
    off = np.flatnonzero(np.abs(track[step:] - end) > SETTLED * abs(end - before))
    return float((off[-1] + 1) * dt) if len(off) else 0.0
