"""Episodes on warp's device against those of MuJoCo's threads: the same draws, and the same steps to single precision.

The first run compiles kernels, which takes up to a minute; later ones read them from a cache.
"""

from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest
import torch

from surefoot import tasks
from surefoot.errors import SurefootError
from surefoot.learn.on_device.arrays import ARRAYS as xp
from surefoot.observation import ObsGroup, ObsTerm
from surefoot.task import Reward

pytestmark = [
    pytest.mark.skipif(find_spec("mujoco_warp") is None, reason="needs the extra gpu: pip install 'surefoot[gpu]'"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


def device(task, n=8, seed=5, stagger=True):
    from surefoot.learn.on_device.env import DeviceEnv
    from surefoot.learn.on_device.world import DeviceWorld

    one = tasks.env(task, 1, task.belief, seed, 1).world
    return DeviceEnv(task, DeviceWorld(one, n), task.belief, seed, stagger)


def host(task, n=8, seed=5, stagger=True):
    return tasks.env(task, n, task.belief, seed, 1, stagger=stagger)


def actions(task, n, k):
    return 0.1 * np.random.default_rng(k).standard_normal((n, task.action.width)).astype(np.float32)


def apart(a, b):
    a, b = (np.asarray(x, float) for x in (a, b))
    return np.abs(a - b).max() / max(1.0, np.abs(b).max())


# largest difference of observations and rewards, as a share of the largest of them
TOLERANCE = {"balance": 1e-4, "arm": 1e-4, "hover": 2e-3}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", TOLERANCE)
def test_episodes_go_on_and_end_as_on_mujocos_threads(name):
    """120 control periods at random ages: noise, delays, commands, ends, resets and what was seen last are the same."""
    task = replace(tasks.resolve(name), seconds=1.6, command_every=0.5)
    here, there = host(task), device(task)
    first = here.reset(), there.reset()
    last = {g: torch.zeros_like(o) for g, o in first[1].items()}
    assert all(apart(first[1][g], o) < 1e-5 for g, o in first[0].items())
    ended = 0
    for k in range(120):
        act = actions(task, 8, k)
        a, b = here.step(act), there.step(torch.from_numpy(act), last)
        assert np.array_equal(a.terminated, b.terminated) and np.array_equal(a.truncated, b.truncated)
        assert apart(b.reward, a.reward) < TOLERANCE[name]
        done = np.flatnonzero(a.terminated | a.truncated)
        for g, o in a.obs.items():
            assert apart(b.obs[g], o) < TOLERANCE[name], (k, g)
            assert not len(done) or apart(last[g][done], a.last[g]) < TOLERANCE[name]
        if a.episodes is not None and len(a.episodes.ids):
            ids = a.episodes.ids
            ended += len(ids)
            assert apart(b.ends.returns[ids], a.episodes.returns) < TOLERANCE[name]
            assert np.array_equal(b.ends.lengths[ids], a.episodes.lengths)
            assert [there.reasons[i] for i in b.ends.reason[ids]] == a.episodes.reason
    assert ended > 3


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_robot_with_contacts_begins_and_steps_as_on_mujocos_threads():
    """Observations of a start, with sensors and their delays, and after one period to what contacts leave of it."""
    task = tasks.resolve("walk")
    here, there = host(task), device(task)
    here_seen, seen = here.reset(), there.reset()
    assert all(apart(seen[g], o) < 1e-4 for g, o in here_seen.items())
    act = np.zeros((8, 12), np.float32)
    a, b = here.step(act), there.step(torch.from_numpy(act))
    assert apart(b.reward, a.reward) < 0.01 and apart(b.obs["actor"], a.obs["actor"]) < 0.02


def test_a_checkpoint_goes_on_with_the_same_bits():
    task = replace(tasks.resolve("balance"), seconds=0.6)
    one, two = device(task), device(task)
    one.reset(), two.reset(9)
    for k in range(10):
        one.step(torch.from_numpy(actions(task, 8, k)))
    two.load(one.save())
    two.seed = one.seed
    for k in range(10, 60):
        a, b = (env.step(torch.from_numpy(actions(task, 8, k))) for env in (one, two))
        assert torch.equal(a.obs["actor"], b.obs["actor"]) and torch.equal(a.reward, b.reward)


@pytest.mark.parametrize(
    "name", ["balance", *(pytest.param(k, marks=pytest.mark.slow) for k in ("arm", "hover", "walk"))]
)
def test_nothing_in_a_step_goes_to_the_host_or_comes_from_it(monkeypatch, name):
    """Episodes end and begin in these steps; constants have gone to the device before."""
    import warp

    task = replace(tasks.resolve(name), seconds=0.4)
    env = device(task)
    env.reset()
    act = torch.zeros((8, task.action.width))
    for _ in range(21):
        env.step(act)

    def refused(*_, **__):
        raise AssertionError("a copy between host and device")

    for name in ("numpy", "cpu", "tolist", "item", "__array__", "nonzero"):
        monkeypatch.setattr(torch.Tensor, name, refused)
    monkeypatch.setattr(warp.array, "numpy", refused)
    monkeypatch.setattr(warp.array, "assign", refused)
    monkeypatch.setattr(torch, "from_numpy", refused)
    known, ended = len(xp._known), torch.zeros(())
    for _ in range(25):
        ended += env.step(act).ends.done.sum()
    monkeypatch.undo()
    assert ended >= 8 and len(xp._known) == known


@pytest.mark.parametrize("name", ["balance", "arm", "hover", "walk"])
def test_a_step_neither_asks_a_device_for_a_number_nor_mixes_it_with_the_host(monkeypatch, name):
    """On torch's meta device, which has no numbers and refuses arrays of another device."""
    import warp

    real = warp.to_torch
    monkeypatch.setattr(warp, "to_torch", lambda a: real(a).to("meta"))
    monkeypatch.setattr(xp, "device", xp.device)
    task = tasks.resolve(name)
    env = device(task)
    assert env.device == "meta"
    obs = env.reset()
    last = {g: torch.empty_like(o) for g, o in obs.items()}
    for _ in range(3):
        step = env.step(torch.zeros((8, task.action.width), device="meta"), last)
    assert all(o.device.type == "meta" and o.shape == (8, task.observations[g].dim) for g, o in step.obs.items())
    with pytest.raises((NotImplementedError, RuntimeError)):
        torch.ones(3) + torch.ones(3, device="meta") * step.reward[:3]


def test_what_a_device_cannot_compute_is_refused_by_name():
    task = tasks.resolve("balance")
    reward = lambda s: np.exp(-np.abs(s.q[:, 1]))  # noqa: E731
    with pytest.raises(
        SurefootError, match=r"reward 'tilt' \(test_device_env.py, line \d+\): it cannot be computed on a dev"
    ):
        device(replace(task, rewards={"tilt": Reward(1.0, reward, "")})).reset()
    wide = ObsGroup((ObsTerm("speeds", lambda s: s.v, 3),))
    with pytest.raises(
        SurefootError, match=r"observation 'speeds' of critic .*: expected shape \(8, 3\), found \(8, 2\)"
    ):
        device(replace(task, observations={**task.observations, "critic": wide})).reset()
    with pytest.raises(SurefootError, match="engine warp: balance-discrete chooses among few actions"):
        device(tasks.resolve("balance-discrete"))
    with pytest.raises(SurefootError, match="engine warp: balance: expected 1 episode a world"):
        device(replace(task, trial=2))
