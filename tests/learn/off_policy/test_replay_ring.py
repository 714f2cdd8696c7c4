"""The replay against episodes written by hand: returns, what follows them, rings that go round, and exact copies."""

import numpy as np
import pytest
import torch

from surefoot.errors import SurefootError
from surefoot.learn.collect import Rollout
from surefoot.learn.off_policy.replay import CUT, FAILED, Replay

GAMMA = 0.5


def rollout(first, rewards, failed=(), late=(), diverged=(), n=1):
    """Steps of n envs that all do the same: the observation of step t is first + t, the action its negative.

    Where an episode ran `late`, its last state is observed as 100 + t.
    """
    T = len(rewards)
    count = first + np.arange(T + 1, dtype=np.float32)
    seen = np.broadcast_to(count[:, None, None], (T + 1, n, 1)).copy()
    flags = {k: np.zeros((T, n), bool) for k in ("terminated", "truncated", "final")} | {"valid": np.ones((T, n), bool)}
    flags["terminated"][list(failed) + list(diverged)] = True
    flags["truncated"][list(late)] = True
    flags["final"][:] = flags["terminated"] | flags["truncated"]
    flags["valid"][list(diverged)] = False
    last = [(t, np.arange(n), {g: np.full((n, 1), 100.0 + t, np.float32) for g in ("actor", "critic")}) for t in late]
    reward = np.repeat(np.array(rewards, np.float32)[:, None], n, 1)
    return Rollout({"actor": seen, "critic": 10 * seen}, {"action": -seen[:-1]}, reward, flags, last)


def all_of(replay, n_step):
    """Every transition that is held, oldest first, as (observation, action, R, discount, next observation)."""
    found = []
    for back in range(int(replay.count[0]), 0, -1):
        at = replay.first[:1] + (replay.head[:1] - back) % replay.capacity
        s = replay.at(at, replay.first[:1], n_step, GAMMA)
        if s.weight[0]:
            assert s.critic[0, 0] == 10 * s.actor[0, 0] or s.actor[0, 0] >= 100
            found.append(
                tuple(float(x[0]) for x in (s.actor[:, 0], s.action[:, 0], s.reward, s.discount, s.next_actor[:, 0]))
            )
    return found  # fmt: skip


def test_an_n_step_return_adds_discounted_rewards_and_stops_at_the_newest_observation():
    """Rewards 1 2 4 8, gamma 1/2, 2 steps: 1 + 2/2, 2 + 4/2, 4 + 8/2; the newest has one step only."""
    replay = Replay(1, 16, [1, 1, 1])
    replay.add(rollout(0, [1, 2, 4, 8]))
    assert all_of(replay, 2) == [(0, 0, 2, 0.25, 2), (1, -1, 4, 0.25, 3), (2, -2, 8, 0.25, 4), (3, -3, 8, 0.5, 4)]
    replay.add(rollout(4, [16]))  # and when more is known, two
    assert all_of(replay, 2)[3] == (3, -3, 16, 0.25, 5)


def test_after_a_failure_nothing_follows_and_no_return_goes_past_it():
    replay = Replay(1, 16, [1, 1, 1])
    replay.add(rollout(0, [1, 2, 4, 8], failed=[1]))
    found = all_of(replay, 3)
    assert [x[2:4] for x in found[:2]] == [(2, 0), (2, 0)]
    assert found[2] == (2, -2, 8, 0.25, 4)


def test_a_time_out_bootstraps_with_the_state_before_the_reset():
    replay = Replay(1, 16, [1, 1, 1])
    replay.add(rollout(0, [1, 2, 4, 8], late=[1]))
    found = all_of(replay, 3)
    assert found[:2] == [(0, 0, 2, 0.25, 101), (1, -1, 2, 0.5, 101)]
    assert [x[0] for x in found] == [0, 1, 2, 3]  # what has no action is no transition


def test_a_diverged_step_is_not_learned_from_and_returns_stop_before_it():
    replay = Replay(1, 16, [1, 1, 1])
    replay.add(rollout(0, [1, 2, 1e9, 8], diverged=[2]))
    assert all_of(replay, 3) == [(0, 0, 2, 0.25, 2), (1, -1, 2, 0.5, 2), (3, -3, 8, 0.5, 4)]


def test_a_full_ring_forgets_the_oldest_and_nothing_else():
    replay = Replay(1, 6, [1, 1, 1])
    for k in range(5):
        replay.add(rollout(4 * k, [1, 1, 1, 1], late=[3] if k == 2 else []))
    assert [x[0] for x in all_of(replay, 1)] == [15, 16, 17, 18, 19]
    assert all(x[4] == x[0] + 1 for x in all_of(replay, 1)) and replay.filled == 6


def test_samples_come_from_all_envs_and_rows_alike():
    """10,000 draws of 4 envs x 25 rows: each between 60 and 140 times (5 standard deviations of Poisson's 100 are 50)."""
    replay = Replay(4, 64, [1, 1, 1])
    replay.add(rollout(0, [1.0] * 25, n=4))
    s = replay.sample(10_000, 1, GAMMA, torch.Generator().manual_seed(0))
    counts = torch.bincount(s.actor[:, 0].long(), minlength=25)
    assert len(counts) == 25 and counts.min() > 250 and counts.max() < 550 and (s.weight == 1).all()
    assert replay.sample(8, 1, GAMMA, torch.Generator().manual_seed(0)).actor.equal(
        replay.sample(8, 1, GAMMA, torch.Generator().manual_seed(0)).actor
    )


def test_returns_to_the_end_are_those_of_a_geometric_series():
    replay = Replay(1, 64, [1, 1, 1])
    replay.add(rollout(0, [1.0] * 30, failed=[19]))
    found = replay.returns(GAMMA)
    assert len(found) == 30 and found.max() == pytest.approx(2.0, abs=1e-5) and found.min() == 1.0


@pytest.mark.parametrize("rows", [4, 40])
def test_a_saved_replay_goes_on_as_the_other_would_have(rows):
    one, other = (Replay(3, 16, [1, 1, 1]) for _ in range(2))
    one.add(rollout(0, list(range(rows)), late=[2], failed=[1], n=3))
    saved = one.save()
    assert saved["table"].shape[1] == min(rows + 2, 16)
    other.add(rollout(50, [5.0] * 7, n=3))  # whatever it held before is gone
    other.load(saved)
    for each in (one, other):
        each.add(rollout(rows, [1, 2, 3], n=3))
    a, b = (each.sample(500, 3, GAMMA, torch.Generator().manual_seed(0)) for each in (one, other))
    assert all(torch.equal(x, y) for x, y in zip(a, b))


def test_what_is_no_replay_is_refused():
    replay = Replay(3, 16, [1, 1, 1])
    replay.add(rollout(0, [1, 2], n=3))
    good = replay.save()
    for k, bad in (
        ("head", good["head"] + 16),
        ("count", good["count"][:2]),
        ("table", good["table"][:2]),
        ("kind", good["kind"].astype(float)),
    ):
        with pytest.raises(ValueError, match=f"replay: {k}"):
            Replay(3, 16, [1, 1, 1]).load({**good, k: bad})  # fmt: skip
    with pytest.raises(SurefootError, match=r"replay: .* GB, expected at most 2 GB: \d+ rows"):
        Replay(1024, 1 << 20, [10, 10, 2])
    assert (replay.kind == CUT).sum() == 3 * 14 and not (replay.kind == FAILED).any()
