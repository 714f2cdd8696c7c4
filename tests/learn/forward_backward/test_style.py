"""FB-CPR's discriminator: its optimum is known, windows stay within their motion, and runs with motions keep their bits."""

import numpy as np
import pytest
import torch

from surefoot import tasks
from surefoot.errors import SurefootError
from surefoot.learn import train as learn
from surefoot.learn.forward_backward.learner import FB
from surefoot.learn.forward_backward.motions import critic_states, motions_of
from surefoot.learn.forward_backward.settings import FBSettings
from surefoot.learn.forward_backward.style import Motions, judge_loss, windows_z
from surefoot.log import Log

SMALL = {
    "envs": 16, "horizon": 4, "updates": 2, "samples": 32, "replay": 64, "warm_up": 100, "hidden": (8,), "forward_hidden": (8,),
    "backward_hidden": (8,), "z": 6, "ask_every": 8, "learner_threads": 1, "goal_terms": ("joint_pos", "joint_vel"), "steps": 16 * 4 * 8,
}  # fmt: skip


def motion(path, seconds=1.0, size=0.2):
    t = np.arange(int(50 * seconds) + 1) / 50
    q = np.stack([size * np.sin(3 * t), 1 + size * np.cos(3 * t)], 1)
    Log(t, {"joint_pos": q}, {}, {"names": {"joint_pos": ["shoulder", "elbow"]}}).save(path)
    return str(path)


def learner(path, **changes):
    s, task = FBSettings(**{**SMALL, "motions": (path,), **changes}), tasks.resolve("arm")
    return FB(tasks.env(task, s.envs, None, 0, 1, stagger=True), s, 0, None, motions_of(task, s))


def test_the_discriminator_is_least_wrong_at_the_log_ratio_of_densities():
    """N(1/2, 1) against N(-1/2, 1): log p / q = x. A linear judge w x + b has w = 1, b = 0."""
    rng = torch.Generator().manual_seed(0)
    judge = torch.nn.Linear(1, 1)
    optimiser = torch.optim.Adam(judge.parameters(), 0.02)
    for k in range(600):
        optimiser.param_groups[0]["lr"] = 0.02 * (1 - 0.98 * k / 600)
        x, y = (torch.randn((2048, 1), generator=rng) + m for m in (0.5, -0.5))
        optimiser.zero_grad()
        judge_loss(judge, x, y, torch.ones(2048), 0.0, torch.rand((2048, 1), generator=rng)).backward()
        optimiser.step()
    assert judge.weight.item() == pytest.approx(1.0, abs=0.05) and judge.bias.item() == pytest.approx(0.0, abs=0.05)


def test_the_penalty_pulls_the_slope_to_one_and_rows_without_weight_count_nothing():
    """l = 3 x: slope 3, so (3 - 1)^2 times the weight of the penalty is added."""
    judge = torch.nn.Linear(1, 1)
    with torch.no_grad():
        judge.weight.fill_(3.0), judge.bias.zero_()
    x, y, w, share = torch.zeros(4, 1), torch.ones(4, 1), torch.tensor([1.0, 1.0, 0.0, 0.0]), torch.full((4, 1), 0.5)
    plain, steep = (judge_loss(judge, x, y, w, c, share).item() for c in (0.0, 10.0))
    assert steep - plain == pytest.approx(40.0, rel=1e-5)
    y[2:] = 1e6
    assert judge_loss(judge, x, y, w, 0.0, share).item() == pytest.approx(plain)


def test_windows_stay_within_their_motion_and_all_of_them_are_drawn():
    each = [torch.arange(5.0)[:, None], 100 + torch.arange(4.0)[:, None]]
    found = Motions(each, 3).drawn(500, torch.Generator().manual_seed(0))[..., 0]
    assert (found[:, 1:] - found[:, :-1] == 1).all()
    assert sorted(set(found[:, 0].tolist())) == [0, 1, 2, 100, 101]
    with pytest.raises(SurefootError, match="fb.motions: expected at least 5 periods each, found one of 4"):
        Motions(each, 5)


def test_the_z_of_a_window_is_the_mean_of_b_on_the_sphere():
    B = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    assert torch.allclose(windows_z(B), torch.ones(1, 2))


def test_a_motion_is_seen_as_the_critic_sees_its_states(tmp_path):
    """Joint positions of the log, speeds by differences, at the arm's 50 Hz."""
    path = motion(tmp_path / "m.npz")
    found = critic_states(tasks.resolve("arm"), Log.read(path)).numpy()
    q = Log.read(path)["joint_pos"]
    assert found.shape[0] == 51 and np.allclose(found[:, :2], q, atol=1e-5)
    assert np.allclose(found[1:-1, 2:4], 0.2 * (q[2:] - q[:-2]) / 0.04, atol=1e-4)


def test_a_run_with_motions_goes_on_bit_for_bit_and_refuses_others(tmp_path):
    path = motion(tmp_path / "m.npz")
    one, other = learner(path), learner(path)
    for _ in range(4):
        row = one.iterate()
    assert {"judge_loss", "style_loss", "style_reward"} <= set(row)
    arrays, numbers = one.save()
    other.load({k: v.copy() for k, v in arrays.items()}, numbers)
    for _ in range(3):
        assert one.iterate() == other.iterate()
    a, b = one.save()[0], other.save()[0]
    assert a.keys() == b.keys() and all(np.array_equal(a[k], b[k]) for k in a)
    changed = learner(motion(tmp_path / "other.npz", size=0.3))
    with pytest.raises(ValueError, match="the files have changed since"):
        changed.load(arrays, numbers)


def test_the_replay_keeps_the_z_that_was_followed_and_none_of_those_that_wandered(tmp_path):
    lea = learner(motion(tmp_path / "m.npz"), wander=0.5)
    for _ in range(6):
        lea.iterate()
    asked = {k: v.clone() for k, v in lea.asked.items()}
    kept = lea.collect().kept["action"]
    wanders = asked["wanders"][:, 0].numpy() > 0
    assert kept.shape[2] == 2 + 6 and (kept[:, wanders, 2:] == 0).all()
    assert np.allclose(kept[:, ~wanders, 2:], asked["z"].numpy()[~wanders])


def test_train_takes_motions_by_their_files(tmp_path):
    changes = SMALL | {"motions": (motion(tmp_path / "m.npz"),)}
    path = learn.train("arm", tmp_path / "r", settings=learn.settings_for("arm", changes, "fb"))
    assert path.exists()
    with pytest.raises(SurefootError, match="absent.npz"):
        learn.train(
            "arm", tmp_path / "s", settings=learn.settings_for("arm", changes | {"motions": ("absent.npz",)}, "fb")
        )
