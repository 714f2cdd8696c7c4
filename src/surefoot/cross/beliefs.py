"""Beliefs of a crossing: where a fit may search, what is trained over after it, and around what the gate judges.

    trained over   N(y^, W^2 cov + K^2 S)      y^, cov: of the fit      S: variances of the task's own ranges

The covariance keeps its correlations: a log that says only how strong rotors are against the mass leaves both wide and their
ratio narrow, and a policy is trained over just that. K S stands for what the model lacks: no fit knows how wrong it is.
"""

from dataclasses import replace

import numpy as np

from surefoot.belief import Belief, Box
from surefoot.belief.gaussian import Gaussian
from surefoot.errors import SurefootError
from surefoot.params import Params
from surefoot.sim.realities import NOT_PHYSICS
from surefoot.task import Task

SEARCHED = 3.0  # times the task's ranges: where a fit may look
DELAYS = ("action_delay", "sensor_delay")
"""found as late as physically possible: what the model lacks often looks like lateness"""
TRUSTED = 1.0  # W
KEPT = 0.3  # K


def ranges(task: Task) -> Box:
    if not isinstance(task.belief, Box):
        raise SurefootError(f"task {task.name}: cross needs a belief of ranges, found {type(task.belief).__name__}")
    return task.belief


def physics(task: Task) -> np.ndarray:
    """(ne,) unknowns that are properties of the machine, and not known for sure."""
    own = ranges(task)
    return np.array([p.target not in NOT_PHYSICS for p in task.params]) & (own.low < own.high)


def searched(task: Task) -> Box:
    """Ranges for a fit: wider than the task's for what is physics, nominal for the rest."""
    p, own = task.params, ranges(task).widen(SEARCHED)
    late = np.array([q.target in DELAYS for q in p])
    low = np.where(late, p.low, np.maximum(own.low, p.low))
    high = np.where(late, p.high, np.minimum(own.high, p.high))
    free = physics(task)
    return Box(p, np.where(free, low, p.nominal), np.where(free, high, p.nominal))


def prior(task: Task) -> Gaussian:
    """The task's own ranges, by mean and variance."""
    p, own = task.params, ranges(task)
    low, high = p.y(own.low), p.y(own.high)
    return Gaussian(p, (low + high) / 2, np.diag(np.square(high - low) / 12))


def learned_from(task: Task, found: Belief) -> Gaussian:
    """What to train over after a fit: what was found where it is physics, the task's own ranges for the rest."""
    if not isinstance(found, Gaussian):
        raise SurefootError(f"belief: expected a fit's Gaussian, found {type(found).__name__}")
    own, free = prior(task), physics(task)
    mu = np.where(free, found.mu, own.mu)
    cov = TRUSTED**2 * found.cov * np.outer(free, free)
    return Gaussian(task.params, mu, cov + np.where(free, KEPT**2, 1.0) * own.cov)


def wider(belief: Belief, factor: float = 1.5) -> Belief:
    return belief.widen(factor)


def centred(task: Task, belief: Belief) -> tuple[Task, Belief]:
    """The task whose nominal world is what is believed of the robot, not what its model says."""
    e = np.clip(belief.estimate(), task.params.low, task.params.high)
    params = Params(tuple(replace(p, nominal=float(x)) for p, x in zip(task.params, e)))
    low, high = (np.clip(x, params.low, params.high) for x in belief.support(0.9))
    return replace(task, params=params, belief=Box(params, low, high)), replace(belief, params=params)
