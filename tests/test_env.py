"""The contract of an env is all that collecting asks for: an env that has nothing else is driven to the same bits."""

import numpy as np
import pytest

from surefoot import tasks
from surefoot.env import AbstractEnv, Env
from surefoot.learn.collect import LocalCollector

NAMED = tuple(AbstractEnv.__annotations__)


class Foreign(AbstractEnv):
    """An env of someone else: the attributes of the contract, its methods, and nothing more."""

    def __init__(self, inner: Env):
        object.__setattr__(self, "_inner", inner)

    def __getattr__(self, name):
        if name not in NAMED:
            raise AttributeError(f"{name} is not in the contract")
        return getattr(self._inner, name)

    def __setattr__(self, name, value):
        assert name in NAMED, f"{name} is not in the contract"
        setattr(self._inner, name, value)

    def reset(self, seed=None, e=None):
        return self._inner.reset(seed, e)

    def begin(self, action):
        self._inner.begin(action)

    def advance(self):
        self._inner.advance()

    def end(self):
        return self._inner.end()

    def like(self, n, first):
        return Foreign(self._inner.like(n, first))

    def save(self):
        return self._inner.save()

    def load(self, saved):
        return self._inner.load(saved)


def made() -> Env:
    task = tasks.resolve("balance")
    return tasks.env(task, 6, task.belief, seed=3, threads=1, stagger=True)


def collected(env: AbstractEnv):
    collector = LocalCollector(env)
    act = lambda obs, draws: (0.5 * obs["actor"][:, :1].astype(float), {})  # noqa: E731
    first = collector.collect(act, 40, ("actor", "critic"))
    saved = collector.save()
    again = collector.collect(act, 10, ("actor",))
    collector.load(saved)
    return first, again, collector.collect(act, 10, ("actor",))


def test_an_env_that_has_the_contract_alone_is_collected_from_to_the_same_bits():
    ours, theirs = collected(made()), collected(Foreign(made()))
    for a, b in zip(ours, theirs):
        assert all(np.array_equal(a.obs[g], b.obs[g]) for g in a.obs) and np.array_equal(a.reward, b.reward)
        assert all(np.array_equal(a.flags[k], b.flags[k]) for k in a.flags)
    assert np.array_equal(theirs[1].reward, theirs[2].reward)  # load goes on with the bits of save


def test_an_env_without_a_part_of_the_contract_cannot_be_made():
    with pytest.raises(TypeError, match="abstract"):
        AbstractEnv()
    methods = {"reset", "begin", "advance", "end", "like", "save", "load"}
    assert AbstractEnv.__abstractmethods__ == methods
