"""FPO from a clone: it begins as the clone, keeps what it observes, and refuses what is no flow of one action."""

import numpy as np
import pytest
import torch

from surefoot import tasks
from surefoot.errors import SurefootError
from surefoot.learn.clone.demos import Demos
from surefoot.learn.clone.fine_tune import HELD, WAIT, as_cloned, cloned_arrays
from surefoot.learn.clone.learner import Clone
from surefoot.learn.clone.settings import CloneSettings
from surefoot.learn.loop import policy_of
from surefoot.learn.nets import export
from surefoot.learn.on_policy.fpo import FPO
from surefoot.learn.on_policy.settings import FPOSettings
from surefoot.learn.train import resume, train

BALANCE = tasks.resolve("balance")
SMALL = FPOSettings(envs=8, horizon=4, steps=8 * 4 * 7, minibatches=2, epochs=1, learner_threads=1)


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """The folder of a clone that has hardly learned, by a flow, chunk 1."""
    return saved(tmp_path_factory.mktemp("flow"), by="flow", chunk=1)


def saved(folder, **how):
    rng = np.random.default_rng(0)
    obs, actions = rng.standard_normal((50, 4)) * [1, 2, 3, 4], 3 * rng.standard_normal((50, how["chunk"], 1))
    data = Demos(obs.astype(np.float32), actions.astype(np.float32), 1)
    lea = Clone(tasks.env(BALANCE, 1, threads=1), CloneSettings(hidden=(16, 8), updates=50, **how), 3, data)
    lea.iterate()
    return export.save(policy_of(lea), folder).parent


def learner(clone, seed=3):
    lea = FPO(tasks.env(BALANCE, 8, threads=1), as_cloned(clone, SMALL), seed)
    lea.adopt(cloned_arrays(clone, BALANCE), "clone")
    return lea


def test_fpo_begins_as_the_clone_and_its_critic_learns_first(clone):
    """Before learning, and while only the critic learns, it answers as the clone; after that no longer."""
    lea, net = learner(clone), export.load_net(clone)
    obs = np.random.default_rng(1).standard_normal((20, 4)).astype(np.float32)
    assert lea.settings.hidden == (16, 8) and lea.settings.spread == net.scale and lea.settings.wait == WAIT
    assert np.allclose(policy_of(lea)(obs), net(obs), atol=1e-5)
    critic = lea.critic[0].weight.detach().clone()
    for _ in range(WAIT):
        lea.iterate()
    assert np.allclose(policy_of(lea)(obs), net(obs), atol=1e-5)
    assert not torch.equal(lea.critic[0].weight, critic) and float(lea.see_actor.count) >= HELD
    lea.iterate()
    assert not np.allclose(policy_of(lea)(obs), net(obs), atol=1e-4)


def test_the_critic_first_sees_a_whole_batch(clone):
    lea = learner(clone)
    lea.iterate()
    assert float(lea.see_critic.count) == 8 + 4 * 8


def test_a_run_from_a_clone_is_resumed_to_the_same_bits(clone, tmp_path):
    def stop(p):
        if p.metrics.get("iteration") == 2:
            raise KeyboardInterrupt

    how = {"settings": SMALL, "start": clone, "threads": 1, "save_every": 0}
    train("balance", tmp_path / "straight", **how)
    with pytest.raises(KeyboardInterrupt):
        train("balance", tmp_path / "stopped", watch=stop, **how)
    resume(tmp_path / "stopped", 1, save_every=0)
    one, two = (export.digest(export.load_net(tmp_path / k)) for k in ("straight", "stopped"))
    assert one == two


def test_what_is_no_flow_of_one_action_or_of_another_task_is_refused(clone, tmp_path):
    with pytest.raises(SurefootError, match="--by flow --chunk 1.*found a diffusion in chunks of 2"):
        as_cloned(saved(tmp_path, by="diffusion", chunk=2), SMALL)
    with pytest.raises(SurefootError, match="start: its actor observes .*; here it would observe"):
        cloned_arrays(clone, tasks.resolve("arm"))
