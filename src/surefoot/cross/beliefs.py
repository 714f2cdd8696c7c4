"""Beliefs of a crossing: where a fit may search, what is trained over after it, and around what the gate judges.

    posterior      P = (C^-1 + (B^2 S)^-1)^-1,   m = P (C^-1 y^ + (B^2 S)^-1 y0)      y^, C / W^2: mean, covariance of the fit
    trained over   N(m, P + K^2 S)                                                   y0, S: of the task's own ranges

The covariance keeps its correlations: a log that says only how strong rotors are against the mass leaves both wide and their
ratio narrow, and a policy is trained over just that. K^2 S stands for what the model lacks: no fit knows how wrong it is.
"""

from dataclasses import replace

import numpy as np

from surefoot.belief import Belief, Box
from surefoot.belief.gaussian import Gaussian
from surefoot.errors import SurefootError
from surefoot.params import Params
from surefoot.sim.realities import NOT_PHYSICS
from surefoot.task import Task

BELIEVED = 3.0  # B: a robot may well lie outside of the task's ranges
TRUSTED = 0.3  # W: a fit whose model lacks physics has wide intervals, all e within 1 % of the best error; its middle is better
KEPT = 0.2  # K


def ranges(task: Task) -> Box:
    if not isinstance(task.belief, Box):
        raise SurefootError(f"task {task.name}: cross needs a belief of ranges, found {type(task.belief).__name__}")
    return task.belief


def physics(task: Task) -> np.ndarray:
    """(ne,) unknowns that are properties of the machine, and not known for sure."""
    own = ranges(task)
    return np.array([p.target not in NOT_PHYSICS for p in task.params]) & (own.low < own.high)


def searched(task: Task) -> Box:
    """Ranges for a fit: all that is possible for what is physics, nominal for the rest."""
    p, free = task.params, physics(task)
    return Box(p, np.where(free, p.low, p.nominal), np.where(free, p.high, p.nominal))


def prior(task: Task) -> Gaussian:
    """The task's own ranges, by mean and variance."""
    p, own = task.params, ranges(task)
    low, high = p.y(own.low), p.y(own.high)
    return Gaussian(p, (low + high) / 2, np.diag(np.square(high - low) / 12))


def learned_from(task: Task, found: Belief) -> Gaussian:
    """What to train over after a fit: what was found where it is physics, the task's own ranges for the rest."""
    if not isinstance(found, Gaussian):
        raise SurefootError(f"belief: expected a fit's Gaussian, found {type(found).__name__}")
    own, at = prior(task), np.flatnonzero(physics(task))
    here = np.ix_(at, at)
    fit, before = (np.linalg.inv(c) for c in (TRUSTED**2 * found.cov[here], BELIEVED**2 * own.cov[here]))
    P = np.linalg.inv(fit + before)
    mu, cov = own.mu.copy(), own.cov.copy()
    p = task.params
    mu[at] = np.clip(P @ (fit @ found.mu[at] + before @ own.mu[at]), p.y(p.low)[at], p.y(p.high)[at])
    cov[here] = P + KEPT**2 * own.cov[here]
    return Gaussian(p, mu, (cov + cov.T) / 2)


def wider(belief: Belief, factor: float = 1.5) -> Belief:
    return belief.widen(factor)


def centred(task: Task, belief: Belief) -> tuple[Task, Belief]:
    """The task whose nominal world is what is believed of the robot, not what its model says."""
    e = np.clip(belief.estimate(), task.params.low, task.params.high)
    params = Params(tuple(replace(p, nominal=float(x)) for p, x in zip(task.params, e)))
    low, high = (np.clip(x, params.low, params.high) for x in belief.support(0.9))
    return replace(task, params=params, belief=Box(params, low, high)), replace(belief, params=params)
