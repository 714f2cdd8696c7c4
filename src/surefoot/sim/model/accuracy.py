"""The coarsest stepping of a model that still agrees with a fine one.

The fine one: 1 ms or the model's own timestep, whichever is shorter, and 100 iterations, driven for SECONDS by smooth
random targets. From states along its path each candidate runs WINDOW seconds under the same targets:

    error = max(rms |q - q_fine| of joints [rad or m],  rms |p - p_fine| of the base [m])        over windows and rows

The first candidate within TOLERANCE is taken, coarsest first; the fine one where none is.
"""

from dataclasses import dataclass

import mujoco
import numpy as np
from mujoco.batch import Batch

from surefoot.errors import SurefootError
from surefoot.rng import stream
from surefoot.sim.model.edits import Timing, step

CANDIDATES = ((2, 5), (3, 5), (4, 5), (4, 10), (5, 10), (8, 10), (10, 10), (20, 20))  # steps, iterations
FINE, MANY = 0.001, 100
FINEST = 1e-4  # s: what is tried with shorter steps takes minutes
WINDOW, SECONDS, ROWS = 0.2, 2.0, 16
TOLERANCE = 0.008  # at 0.013 (a quadruped at 10 ms) a policy takes twice as many steps to learn to walk


@dataclass(frozen=True)
class Chosen:
    timing: Timing
    error: float
    """of the chosen timing, rad or m"""
    tried: tuple[tuple[Timing, float], ...]


def choose(
    spec: mujoco.MjSpec, q: np.ndarray, u: np.ndarray, spread: np.ndarray | float = 0.3, period: float = 0.02
) -> Chosen:
    """The fastest timing that agrees with a fine one, under controls u +- spread, where u holds the pose q."""
    if spec.option.timestep < FINEST:
        raise SurefootError(f"option: timestep: found {spec.option.timestep:g} s, expected at least {FINEST:g} s")
    most = max(round(period / FINE), round(period / spec.option.timestep))
    fine = Timing(period, most, MANY, 50)
    targets = _targets(u, spread, period)
    states, ends = _path(_stepped(spec, fine), q, targets, fine)
    tried = []
    for steps, iterations in CANDIDATES:
        timing = Timing(period, steps, iterations)
        tried.append((timing, _error(_stepped(spec, timing), states, ends, targets, timing)))
        if tried[-1][1] <= TOLERANCE:
            return Chosen(*tried[-1], tuple(tried))
    return Chosen(fine, 0.0, tuple(tried))


def _stepped(spec: mujoco.MjSpec, timing: Timing) -> mujoco.MjModel:
    spec = spec.copy()
    step(spec, timing)
    return spec.compile()


def _targets(u: np.ndarray, spread: np.ndarray | float, period: float) -> np.ndarray:
    """(steps, ROWS, nu) sums of sines about u, each row and control with phases of its own."""
    rng = stream(0, "accuracy")
    t = np.arange(round(SECONDS / period))[:, None, None] * period
    shape = (1, ROWS, len(u))
    waves = [np.sin(2 * np.pi * (f * t + rng.random(shape))) for f in (0.7, 1.9)]
    return np.asarray(u + np.asarray(spread) / 2 * sum(waves))


def _path(m: mujoco.MjModel, q: np.ndarray, targets: np.ndarray, timing: Timing) -> tuple[np.ndarray, np.ndarray]:
    """States (full physics) at the beginning of each window, and positions at its end: (windows, ROWS, ...)."""
    batch, span = _batch(m), round(WINDOW / timing.period)
    batch.bind("qpos")[:] = q
    begun, ends = [], []
    for k in range(len(targets) // span):
        begun.append((batch.bind("qpos").copy(), batch.bind("qvel").copy(), batch.bind("act").copy()))
        _run(batch, targets[k * span : (k + 1) * span], timing.steps)
        ends.append(batch.bind("qpos").copy())
    return np.array([np.concatenate(x, 1) for x in begun]), np.array(ends)


def _error(m: mujoco.MjModel, states: np.ndarray, ends: np.ndarray, targets: np.ndarray, timing: Timing) -> float:
    batch, span, found = _batch(m), round(WINDOW / timing.period), []
    for k, (state, end) in enumerate(zip(states, ends)):
        batch.reset()
        batch.bind("qpos")[:], batch.bind("qvel")[:] = state[:, : m.nq], state[:, m.nq : m.nq + m.nv]
        batch.bind("act")[:] = state[:, m.nq + m.nv :]
        _run(batch, targets[k * span : (k + 1) * span], timing.steps)
        found.append(batch.bind("qpos") - end)
    off = np.concatenate(found)
    if not np.isfinite(off).all():
        return float("inf")
    free = np.flatnonzero(m.jnt_type == mujoco.mjtJoint.mjJNT_FREE)
    base = [int(m.jnt_qposadr[j]) + i for j in free for i in range(7)]
    joints = np.delete(off, base, axis=1)
    places = off[:, [a for a in base if (a - int(m.jnt_qposadr[free[0]])) % 7 < 3]] if base else np.zeros((1, 1))
    return float(max(np.sqrt(np.mean(joints**2)) if joints.size else 0.0, np.sqrt(np.mean(places**2))))


def _batch(m: mujoco.MjModel) -> Batch:
    batch = Batch(m, ROWS, 1)
    batch.reset()
    return batch


def _run(batch: Batch, targets: np.ndarray, steps: int) -> None:
    for u in targets:
        batch.bind("ctrl")[:] = u
        batch.step(nstep=steps)
