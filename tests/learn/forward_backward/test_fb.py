"""Forward-backward representations as a learner: promises about bits, exports, gradients by hand, and what is refused."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from surefoot import tasks
from surefoot.deploy import bundle
from surefoot.errors import SurefootError
from surefoot.learn import train as learn
from surefoot.learn.forward_backward.learner import FB
from surefoot.learn.forward_backward.maps import goal_columns, goal_terms
from surefoot.learn.forward_backward.settings import FBSettings
from surefoot.learn.loop import policy_of
from surefoot.learn.nets import export
from surefoot.learn.runspec import RunSpec
from surefoot.observation import ObsGroup

SMALL = {
    "envs": 16, "horizon": 4, "updates": 2, "samples": 32, "replay": 64, "warm_up": 100, "hidden": (8,), "forward_hidden": (8,),
    "backward_hidden": (8,), "z": 6, "ask_every": 8, "learner_threads": 1,
}  # fmt: skip


def learner(task="balance", seed=0, threads=0, **changes):
    s, t = FBSettings(**{**SMALL, **changes}), tasks.resolve(task)
    return FB(tasks.env(t, s.envs, t.belief, seed, threads, stagger=True), s, seed)


def weights(lea):
    return torch.cat([v.double().flatten() for v in lea.state_dict().values()])


def test_equal_seeds_have_equal_bits_and_other_seeds_others():
    one, again, other = (learner(seed=k, threads=t) for k, t in ((3, 1), (3, 2), (4, 1)))
    for lea in (one, again, other):
        rows = [lea.iterate() for _ in range(5)]
    assert torch.equal(weights(one), weights(again)) and not torch.equal(weights(one), weights(other))
    assert rows[-1]["steps"] == 5 * 64 and math.isfinite(rows[-1]["measure_loss"]) and rows[-1]["gram_largest"] > 0


@pytest.mark.parametrize("at", [1, 3])
def test_a_loaded_learner_goes_on_bit_for_bit(at):
    """Before and after learning begins: replay, optimisers, where the envs stand and what each is asked for are all saved."""
    one = learner()
    for _ in range(at):
        one.iterate()
    arrays, numbers = one.save()
    other = learner()
    other.load({k: v.copy() for k, v in arrays.items()}, numbers)
    for _ in range(4):
        assert one.iterate() == other.iterate()
    a, b = one.save()[0], other.save()[0]
    assert a.keys() == b.keys() and all(np.array_equal(a[k], b[k]) for k in a)


def test_simulations_are_asked_for_something_else_in_time_and_where_episodes_end():
    lea = learner(wander=0.0, goals=0.0)
    for _ in range(3):
        lea.iterate()
    before = lea.asked["z"].clone()
    lea._ask(np.arange(16) == 5)
    due = (lea.asked["age"] == 0).numpy()
    changed = (lea.asked["z"] != before).any(1).numpy()
    assert changed[5] and (changed == due).all() and 1 <= due.sum() <= 16
    assert torch.allclose(lea.asked["z"].norm(dim=1), torch.full((16,), 6**0.5), atol=1e-5)


@pytest.mark.parametrize("task", ["balance", "arm"])
def test_a_policy_for_one_z_is_the_actor_with_that_z(task, tmp_path):
    """W_z z in the first layer's bias: to the last bits of a sum; and the file on disk answers alike."""
    lea = learner(task)
    for _ in range(4):
        lea.iterate()
    net, z, obs = policy_of(lea), lea.task_z(), lea.collector.obs["actor"]
    u = lea.maps.act(torch.from_numpy(obs), z.expand(16, -1))
    assert np.allclose(net(obs), lea.maps.limit * u.numpy(), atol=1e-5)
    path = export.save(net, tmp_path)
    assert export.onnx_difference(net, path) < 1e-4
    assert np.allclose(bundle.load(tmp_path)(obs), net(obs), atol=1e-4)


def test_the_actor_climbs_the_lower_of_both_values():
    """Maps that say (u - 1/2) z and (1/2 - u) z: values v and -v, the lower one -|v|, v = (u - 1/2) |z|^2. So u goes to 1/2."""
    lea = learner(pessimism=0.5, action_penalty=0.0, lr=0.01)
    for _ in range(2):
        lea.iterate()

    class Linear(torch.nn.Module):
        def forward(self, critic, action, z):
            return torch.stack([(action - 0.5) * z, (0.5 - action) * z])

    lea.maps.ahead = Linear()
    rng = torch.Generator().manual_seed(0)
    lea.pace()
    for _ in range(300):
        parts = lea._drawn(rng)
        lea._step(lea.actor_gradient, parts, lea.own, lea.actor_optimiser)
    b, z, *_ = lea._drawn(rng)[0]
    u = torch.tanh(lea.maps.actor(torch.cat([b.actor, z], 1)))
    assert u.mean().item() == pytest.approx(0.5, abs=0.1)


def test_an_update_that_is_not_finite_is_undone_and_three_in_a_row_stop():
    lea = learner()
    for _ in range(4):
        lea.iterate()
    good = weights(lea)
    lea.replay.table.fill_(float("nan"))
    for k in (1, 2):
        assert lea.learn() == {"rejected": k} and torch.equal(weights(lea), good)
    with pytest.raises(SurefootError, match="three updates in a row were not finite.*lower --fb.lr"):
        lea.learn()


def test_b_sees_what_can_be_asked_for_and_of_a_history_the_newest_frame():
    task = tasks.resolve("course")
    assert [t.name for t in goal_terms(task, ())] == ["velocity", "gyro", "goal", "ray", "clearance", "place"]
    with pytest.raises(SurefootError, match="no term of the critic matches 'plaec'.*did you mean place"):
        goal_terms(task, ("plaec",))
    with pytest.raises(SurefootError, match="expected each name once"):
        goal_terms(task, ("place", "place"))
    seen = tasks.resolve("arm").observations["actor"].terms
    for group in (ObsGroup(seen, 5), ObsGroup(seen, 5, layout="terms"), ObsGroup(seen, 3, newest="first")):
        frames = np.random.default_rng(0).standard_normal((2, group.history, group.frame))
        at = goal_columns(group, ["joint_vel", "joint_pos"])
        assert np.array_equal(group.flat(frames)[:, at], frames[:, -1, [2, 3, 0, 1]])


@pytest.mark.parametrize("change, said", [
    ({"z": 1}, "fb.z: expected 2 to 100, found 1"), ({"gamma": 1.0}, "fb.gamma: expected less than 1"), ({"goals": 1.5}, "fb.goals: expected 0 to 1"),
    ({"replay": 4, "horizon": 8}, "fb.replay: expected more than horizon"), ({"explore": (0.5, 0.1)}, "fb.explore"), ({"tau": 0.0}, "fb.tau: expected more"),
    ({"backward_hidden": ()}, "fb.backward_hidden"), ({"samples": 1}, "fb.samples: expected 2"),
])  # fmt: skip
def test_settings_that_cannot_be_are_refused_by_name(change, said):
    with pytest.raises(SurefootError, match=said):
        FBSettings(**change)


def test_what_it_cannot_learn_is_refused():
    with pytest.raises(SurefootError, match="learner: fb: balance-discrete chooses among few actions"):
        learner("balance-discrete")
    with pytest.raises(SurefootError, match="base: only with --learner ppo, found fb"):
        RunSpec("balance", tasks.resolve("balance").belief, FBSettings(), base="12")


def test_settings_come_from_the_task_and_survive_json():
    spec, _ = learn.plan("arm", settings=learn.settings_for("arm", {"steps": 1000}, "fb"))
    assert spec.settings.goal_terms == ("joint_pos", "joint_vel") and spec.to_json()["learner"] == "fb"
    assert RunSpec.from_json(spec.to_json()) == spec
    odd = replace(tasks.resolve("arm"), learners={"fb": {"zz": 3}})
    with pytest.raises(SurefootError, match="task arm: learners: fb.*zz"):
        learn.settings_for(odd, learner="fb")
