"""A Collector returns what an env did under a policy, in pieces or at once."""

from dataclasses import fields

import numpy as np
import pytest

from surefoot import blocks, tasks
from surefoot.blocks import Blocks
from surefoot.errors import SurefootError
from surefoot.learn.collect import FLAGS, LocalCollector, Rollout

TASK = tasks.resolve("balance")


def env():
    return tasks.env(TASK, 64, TASK.belief, 1, stagger=True)


def act(obs, draws=None):
    """A law of what is seen: it drops the pole soon, so that episodes end."""
    a = np.clip(obs["actor"][:, :1] * 3.0, -1, 1)
    return a, {"twice": 2 * a}


def test_what_comes_back_is_what_the_env_did():
    there, here = env(), LocalCollector(env())
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
    whole = LocalCollector(env()).collect(act, 40)
    first = LocalCollector(env())
    head = first.collect(act, 15)
    second = LocalCollector(env())
    second.load({"net.x": np.zeros(1), **first.save()})
    tail = second.collect(act, 25)
    assert np.array_equal(np.concatenate([head.reward, tail.reward]), whole.reward)
    assert np.array_equal(np.concatenate([head.kept["twice"], tail.kept["twice"]]), whole.kept["twice"])


def test_nothing_is_kept_that_was_not_asked_for():
    r = LocalCollector(env()).collect(lambda obs, draws: (np.zeros((64, 1)), {}), 5)
    assert r.obs == {} and r.kept == {} and r.reward.shape == (5, 64)
    with pytest.raises(KeyError):
        LocalCollector(env()).collect(act, 1, ("nobody",))


def split(name: str, sizes: list[int], threads: int = 0) -> Blocks:
    task = tasks.resolve(name)
    return Blocks.like(tasks.env(task, sizes[0], task.belief, 1, threads, stagger=True), sizes[1:])


def law(name: str):
    """Noisy feedback, which depends on what is seen and on the env's number, not on who is with it in a block."""
    na = len(tasks.resolve(name).action.names)

    def act(obs, draws):
        a = np.sin(7.0 * obs["actor"][:, :na] + draws["w"][:, None])
        return a.astype(np.float32), {"a": a}

    return act


def chance(periods: int) -> dict[str, np.ndarray]:
    return {"w": np.arange(periods)[:, None] + np.arange(64.0)}


def same(a: Rollout, b: Rollout) -> None:
    """The same bits; episodes that end in one step of several blocks are told block by block."""
    for mine, theirs in ((a.obs, b.obs), (a.kept, b.kept), (a.flags, b.flags), ({"r": a.reward}, {"r": b.reward})):
        assert all(np.array_equal(mine[k], theirs[k]) for k in mine)
    whole = [
        {f.name: [x for e in r.episodes for x in getattr(e, f.name)] for f in fields(r.episodes[0])} for r in (a, b)
    ]
    assert all(np.array_equal(whole[0][k], whole[1][k], equal_nan=k == "error") for k in whole[0]) and whole[0]["ids"]
    ends = [{(t, i): group["critic"][j] for t, rows, group in r.last for j, i in enumerate(rows)} for r in (a, b)]
    assert ends[0].keys() == ends[1].keys() and all(np.array_equal(ends[0][k], ends[1][k]) for k in ends[0])


@pytest.mark.parametrize("name", ["balance", "hover", "walk"])
def test_blocks_and_threads_change_no_bit(name):
    """Draws, noise, pushes and resets are keyed by env; hover has a history, walk commands, sensors and pushes."""
    whole = LocalCollector(split(name, [64], 1)).collect(law(name), 60, ("critic", "actor"), chance(60))
    for sizes in ([32, 32], [20, 30, 14]):
        for threads in (1, 2, 4):
            same(
                whole,
                LocalCollector(split(name, sizes, threads)).collect(law(name), 60, ("critic", "actor"), chance(60)),
            )


def test_a_checkpoint_of_blocks_is_that_of_one_env_and_goes_on_in_either():
    one, two = LocalCollector(split("walk", [64])), LocalCollector(split("walk", [40, 24]))
    for c in (one, two):
        c.collect(law("walk"), 20, (), chance(20))
    saved = two.save()
    assert saved.keys() == one.save().keys()
    assert all(np.array_equal(v, saved[k]) for k, v in one.save().items())
    again = LocalCollector(split("walk", [40, 24])), LocalCollector(split("walk", [64]))
    for c in again:
        c.load(saved)
        same(one.collect(law("walk"), 25, ("critic",), chance(25)), c.collect(law("walk"), 25, ("critic",), chance(25)))
        one.load(saved)


def test_which_envs_are_in_a_block_depends_on_their_number_alone():
    assert blocks.sizes(64) == [64] and blocks.sizes(1023) == [1023]
    assert blocks.sizes(1024) == [512, 512] and blocks.sizes(4097) == [2049, 2048]


def test_a_policy_that_fails_while_the_engine_runs_leaves_nothing_running():
    """The engine has the first block when the second one's policy fails; the envs can be reset and used again."""

    def act(obs, draws):
        if draws["w"][0] == 3 + 32:
            raise ZeroDivisionError
        return np.zeros((len(draws["w"]), 1)), {}

    c = LocalCollector(split("balance", [32, 32]))
    with pytest.raises(ZeroDivisionError):
        c.collect(act, 5, (), chance(5))
    c.reset(1)
    same(
        LocalCollector(split("balance", [64])).collect(law("balance"), 60, ("critic",), chance(60)),
        c.collect(law("balance"), 60, ("critic",), chance(60)),
    )


def test_blocks_have_their_turns_in_one_order_and_an_error_in_any_turn_ends_all():
    task = tasks.resolve("balance")
    three = Blocks.like(tasks.env(task, 3, task.belief, threads=1), [2, 2])
    three.reset()
    order: list[tuple[int, int]] = []

    def turn(k: int, t: int) -> None:
        order.append((t, k))
        if t:
            three.envs[k].end()
        three.envs[k].begin(np.zeros((three.envs[k].n, 1)))

    three.run(4, turn)
    assert order == [(t, k) for t in range(4) for k in range(3)]
    last: list[int] = []

    def failing(k: int, t: int) -> None:
        last.append(k)
        if (t, k) == (0, 1):
            raise SurefootError("the second block fails")

    with pytest.raises(SurefootError, match="the second block fails"):
        three.run(3, failing)
    assert last == [0, 1]  # nobody had a turn after it
