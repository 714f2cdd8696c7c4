"""A Collector returns what an env did under a policy, in pieces or at once."""

import numpy as np
import pytest

from surefoot import tasks
from surefoot.learn.collect import FLAGS, Collector

TASK = tasks.resolve("balance")


def env():
    return tasks.env(TASK, 64, TASK.belief, 1, stagger=True)


def act(obs):
    """A law of what is seen: it drops the pole soon, so that episodes end."""
    a = np.clip(obs["actor"][:, :1] * 3.0, -1, 1)
    return a, {"twice": 2 * a}


def test_what_comes_back_is_what_the_env_did():
    there, here = env(), Collector(env())
    obs = there.reset()
    r = here.collect(act, 300, ("critic",))
    episodes, ended = 0, []
    for t in range(300):
        assert np.array_equal(r.obs["critic"][t], obs["critic"])
        action = act(obs)[0]
        assert np.array_equal(r.kept["twice"][t], 2 * action)
        step = there.step(action)
        assert np.array_equal(r.reward[t], step.reward.astype(np.float32))
        assert all(np.array_equal(r.flags[k][t], getattr(step, k)) for k in FLAGS)
        done = np.flatnonzero(step.terminated | step.truncated)
        ended += [(t, i, step.last["critic"][k]) for k, i in enumerate(done) if step.truncated[i]]
        episodes += step.episodes is not None
        obs = step.obs
    assert np.array_equal(r.obs["critic"][300], obs["critic"]) and len(r.episodes) == episodes > 0
    last = [(t, i, o) for t, rows, group in r.last for i, o in zip(rows, group["critic"])]
    assert [x[:2] for x in last] == [x[:2] for x in ended] and last
    assert all(np.array_equal(a[2], b[2]) for a, b in zip(last, ended))


def test_two_pieces_are_one_also_through_a_checkpoint():
    whole = Collector(env()).collect(act, 40)
    first = Collector(env())
    head = first.collect(act, 15)
    second = Collector(env())
    second.load({"net.x": np.zeros(1), **first.save()})
    tail = second.collect(act, 25)
    assert np.array_equal(np.concatenate([head.reward, tail.reward]), whole.reward)
    assert np.array_equal(np.concatenate([head.kept["twice"], tail.kept["twice"]]), whole.kept["twice"])


def test_nothing_is_kept_that_was_not_asked_for():
    r = Collector(env()).collect(lambda obs: (np.zeros((64, 1)), {}), 5)
    assert r.obs == {} and r.kept == {} and r.reward.shape == (5, 64)
    with pytest.raises(KeyError):
        Collector(env()).collect(act, 1, ("nobody",))
