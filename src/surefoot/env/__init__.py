"""Env: n episodes of a task side by side.

abstract.py     AbstractEnv: the contract of every env, also of those that others write, and what a step gives back
of_task.py      Env: a Task in a World under a Belief
observer.py     what the groups of a task observe in n simulations, period after period
"""

from surefoot.env.abstract import AbstractEnv, Episodes, OnDivergence, Step
from surefoot.env.of_task import Env

__all__ = ["AbstractEnv", "Env", "Episodes", "OnDivergence", "Step"]
