"""surefoot guard: layers of a policy, and the gate and eval that drive it in them."""

import json

import numpy as np
import pytest

from surefoot import files, tasks
from surefoot.belief import point
from surefoot.control import layers
from surefoot.control.barrier import Filter, Filtered
from surefoot.control.reach_avoid import Guarded
from surefoot.errors import SurefootError
from surefoot.gate.candidate import candidate
from surefoot.learn.nets import export
from surefoot.learn.nets.policy_net import linear
from surefoot.report import unwatched
from surefoot.tasks.joint_model import limits_of
from surefoot.tasks.rollout import contract
from surefoot.verbs.judge.eval import Eval
from surefoot.verbs.train.guard import Guard, by_command


def still(name, folder):
    """A policy of a task that does nothing."""
    task = tasks.resolve(name)
    c = contract(task, tasks.env(task, 1).world)
    return export.save(linear(c, {}), folder).parent


def test_guard_writes_layers_that_eval_and_gate_take(tmp_path):
    run = still("course", tmp_path / "run")
    report = Guard(run, episodes=1, envs=8, seed=2, threads=1).run(unwatched)
    assert report.facts["layers"] == ["reach_avoid"] and set(report.facts["accuracy"]) == {
        "sign",
        "false_safe",
        "of_failures",
        "safe",
    }
    assert report.next == f"surefoot eval {run} --safety {run / 'safety.json'}"
    bare, worn = (Eval(run, episodes=4, threads=1, safety=safety).run(unwatched).facts for safety in (None, run))
    assert worn["safety"] == str(run) and "safety" not in bare and worn["episodes"] == 4
    who = candidate(run, safety=run)
    assert isinstance(who.policy, Guarded) and who.parents["safety"] == files.sha256((run / "safety.json").read_bytes())
    assert "reach_avoid" in who.notes[-1] and candidate(run).parents == {"policy": who.parents["policy"]}


def test_limits_of_a_model_go_with_the_switch_and_hold(tmp_path):
    """arm's ranges are 2.6 rad: full actions at 1 rad/s."""
    task = tasks.resolve("arm")
    c = contract(task, tasks.env(task, 1).world)
    limits = limits_of(task, c, 1.0)
    assert limits.low == (-2.6, -2.6) and limits.high == (2.6, 2.6) and limits.speed == (1.0, 1.0)
    layers.write(tmp_path, (Filter((limits,)),))
    run = still("arm", tmp_path / "run")
    who = candidate(run, safety=tmp_path)
    assert isinstance(who.policy, Filtered)
    env = tasks.env(task, 8, point(task.params, task.params.nominal), 1, threads=1)
    obs, s, top = env.reset()["actor"], who.policy.init(8), 0.0
    for _ in range(100):
        s, a = who.policy.step(s, obs)
        obs = env.step(a).obs["actor"]
        top = max(top, np.abs(env.world.state.v).max())
    assert 0.3 < top < 1.1  # noise of the speed sensor: 0.02 rad/s


def test_a_legged_robot_recovers_by_its_command():
    task = tasks.resolve("walk")
    found = by_command(task, contract(task, tasks.env(task, 1).world))
    assert found.columns == (("command", 0), ("command", 1), ("command", 2)) and found.by == "command"
    np.testing.assert_allclose([found.low, found.high], [[-1, -0.5, -1], [1, 0.5, 1]], atol=0.02)
    assert len(found.grid) == 343


def test_a_task_without_a_recovery_is_refused(tmp_path):
    with pytest.raises(
        SurefootError, match="task balance: no recovery: expected Task.recovery, or a policy that observes a command"
    ):
        Guard(still("balance", tmp_path / "run")).run(unwatched)


def test_a_safety_file_that_does_not_fit_is_refused_before_any_episode(tmp_path):
    task = tasks.resolve("arm")
    layers.write(tmp_path, (Filter((limits_of(task, contract(task, tasks.env(task, 1).world), 1.0),)),))
    with pytest.raises(SurefootError, match="no reading matches 'joint_pos'"):
        Eval(still("course", tmp_path / "run"), safety=tmp_path).run(unwatched)
    data = json.loads((tmp_path / "safety.json").read_text())
    data["layers"][0]["kind"] = "limit"
    (tmp_path / "safety.json").write_text(json.dumps(data))
    with pytest.raises(SurefootError, match="no kind matches 'limit'.*did you mean limits"):
        candidate(tmp_path / "run", safety=tmp_path)
