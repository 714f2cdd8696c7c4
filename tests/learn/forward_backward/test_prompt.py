"""From a reward in words, a goal or a motion to a policy: names, numbers known otherwise, and files that other verbs take."""

import json
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from surefoot import tasks
from surefoot.cli import main
from surefoot.deploy import bundle
from surefoot.errors import SurefootError
from surefoot.gate.candidate import candidate
from surefoot.learn import train as learn
from surefoot.learn.forward_backward import motions, prompts
from surefoot.learn.forward_backward.rewards import quantities, reward_of, rewarded
from surefoot.log import Log
from surefoot.observation import Columns, Formula
from surefoot.rng import stream
from surefoot.task import Reward

TINY = {
    "envs": 16, "horizon": 4, "updates": 2, "samples": 32, "replay": 48, "warm_up": 128, "hidden": (8,), "forward_hidden": (8,),
    "backward_hidden": (8,), "z": 6, "ask_every": 12, "steps": 16 * 4 * 6, "learner_threads": 1,
}  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """An arm that has learned next to nothing: what is tested here is arithmetic."""
    out = tmp_path_factory.mktemp("fb") / "run"
    learn.train("arm", out, settings=learn.settings_for("arm", TINY, "fb"))
    return out


@pytest.fixture(scope="module")
def states(run):
    p = prompts.opened(run)
    return p, prompts.met(p, reward_of(p.task, "joint_pos.elbow"), 3)


def moment(task, n=5):
    env = tasks.env(task, n, None, 3)
    env.reset()
    env.step(np.full((n, 2), 0.3))
    return env.moment


def test_a_reward_in_words_is_what_its_arithmetic_says():
    task = tasks.resolve("arm")
    s = moment(task)
    r = reward_of(task, "exp(-2 * (joint_pos.elbow - 1)^2) - 0.1 * joint_vel[0]^2 + 3 * near")
    near = task.rewards["near"].compute(s)
    assert np.allclose(r.compute(s), np.exp(-2 * (s.q[:, 1] - 1) ** 2) - 0.1 * s.v[:, 0] ** 2 + 3 * near)
    assert np.allclose(reward_of(task, "2 + 0 * error").compute(s), 2.0)
    assert list(rewarded(task, r).rewards) == ["prompt"]


@pytest.mark.parametrize("text, said", [
    ("joint_poss[0]", "no quantity matches 'joint_poss'.*did you mean joint_pos"), ("2 + 3", "expected at least one quantity of arm: joint_pos"),
    ("joint_pos[0] +", "found the end, expected a number"), ("__import__('os')", "no function matches '__import__'"),
    ("nearr", "did you mean near"),
])  # fmt: skip
def test_what_is_no_reward_is_refused_with_the_nearest_name(text, said):
    with pytest.raises(SurefootError, match=said):
        reward_of(tasks.resolve("arm"), text)


def test_a_reward_of_several_numbers_or_of_parts_that_are_not_there_is_refused():
    task = tasks.resolve("arm")
    for text, said in (("joint_pos", "found 2 numbers, expected one"), ("joint_pos[2]", "expected parts of 0 to 1")):
        with pytest.raises(SurefootError, match=said):
            reward_of(task, text).compute(moment(task))


def test_a_reward_term_with_the_name_of_an_observation_is_told_apart():
    task = tasks.resolve("arm")
    task = replace(task, rewards={"joint_pos": Reward(1.0, lambda s: np.full(len(s.q), 7.0), "seven")})
    assert np.allclose(reward_of(task, "reward.joint_pos").compute(moment(task)), 7.0)
    assert "joint_pos.shoulder" in quantities(task) and quantities(task)["joint_pos"](moment(task)).shape == (5, 2)


def test_the_z_of_a_reward_is_the_one_that_b_expresses_best(states):
    """Least squares by another library; and a reward that is B^T z gives z back."""
    p, s = states
    B = p.maps.meaning(s.critic)
    z, share = prompts.for_reward(p, s)
    r = (s.reward - s.reward.mean()).double().numpy()
    exact = np.linalg.lstsq(B.double().numpy(), r, rcond=None)[0]
    left = r - B.double().numpy() @ exact
    assert share == pytest.approx(1 - left.var() / r.var(), abs=0.02)
    wanted = torch.arange(6.0) - 2
    made = prompts.States(s.critic, B @ wanted - (B @ wanted).mean())
    z, share = prompts.for_reward(p, made)
    assert share > 0.95 and torch.nn.functional.cosine_similarity(z, wanted, 0) > 0.9
    with pytest.raises(SurefootError, match="the same in every state"):
        prompts.for_reward(p, prompts.States(s.critic, torch.ones(len(s.critic))))


def test_the_z_of_a_whole_state_is_b_of_it(states):
    p, s = states
    row = s.critic[7]
    scale = {t.name: t.scale for t in p.maps.terms}
    at = p.maps.columns.tolist()
    goal = {
        "joint_pos": (row[at[:2]] / scale["joint_pos"]).tolist(),
        "joint_vel": (row[at[2:]] / scale["joint_vel"]).tolist(),
    }
    assert torch.allclose(prompts.for_goal(p, goal, s), p.maps.meaning(row[None])[0], atol=1e-4)
    with pytest.raises(SurefootError, match="no goal term matches 'joint_po'.*did you mean joint_pos"):
        prompts.for_goal(p, {"joint_po": (0.0, 1.0)}, s)
    with pytest.raises(SurefootError, match="joint_pos: expected 2 numbers, found 1"):
        prompts.for_goal(p, {"joint_pos": (0.0,)}, s)


def test_a_goal_costs_its_distance_in_standard_deviations(states):
    p, _ = states
    now = moment(p.task)
    sd = p.maps.see_critic.sd.float().numpy()[p.maps.columns.numpy()][:2]
    found = prompts.goal_reward(p, {"joint_pos": (0.1, 0.2)}).compute(now)
    assert np.allclose(found, -np.sqrt((((now.q - [0.1, 0.2]) / sd) ** 2).mean(1)), rtol=1e-4)


def test_each_episode_is_driven_by_its_own_z(states):
    """Rows of z side by side earn what each earns alone."""
    p, _ = states
    reward = reward_of(p.task, "joint_pos.elbow")
    z = torch.stack([torch.ones(6), -torch.ones(6)])
    both = prompts.returns(p, reward, z, 5)
    again = prompts.returns(p, reward, z[:1].expand(2, 6), 5)
    assert both[0] == pytest.approx(again[0], abs=1e-5) and both[1] != pytest.approx(again[1], abs=1e-5)


def test_search_climbs_what_a_z_earns(states):
    """With an actor whose shoulder and elbow go where z_0 and z_1 say: the search finds the z with the elbow highest."""
    p, _ = states
    maps = deepcopy(p.maps)
    body = maps.average.body
    with torch.no_grad():
        for layer in (body[0], body[-1]):
            layer.weight.zero_(), layer.bias.zero_()
        body[0].weight[0, 41], body[0].weight[1, 41], body[-1].weight[1, 0], body[-1].weight[1, 1] = (
            1.0,
            -1.0,
            1.0,
            -1.0,
        )
    p = replace(p, maps=maps)
    reward, z0 = reward_of(p.task, "joint_pos.elbow"), torch.ones(6)
    z = prompts.searched(p, reward, z0, rounds=6, population=16, episodes=2)
    before, after = (prompts.returns(p, reward, x.expand(8, 6), 99).mean() for x in (z0, z))
    assert z[1] > 1.5 and after > before + 0.1 and z.norm().item() == pytest.approx(6**0.5, abs=1e-4)


def test_candidates_of_a_search_begin_alike():
    """Six rows of three episodes: the first three are the last three; other counts are the task's own."""
    task = prompts._alike(tasks.resolve("arm"), 5, 3)
    found = task.episode(stream(0, "start"), 6)
    assert np.array_equal(found.start.q[:3], found.start.q[3:]) and np.array_equal(found.command[:3], found.command[3:])
    assert (
        not np.array_equal(found.start.q[0], found.start.q[1]) and len(task.episode(stream(0, "start"), 5).start.q) == 5
    )


def test_a_prompt_term_tells_the_rows_of_its_table_by_the_phase():
    f = Formula("prompt", frequency=50.0, table=(0.0, 1.0, 2.0, 3.0, 4.0, 5.0), columns=2)
    f.check(2, "test")
    at = lambda *t: f(Columns({"phase": np.array(t)[:, None]}, {}))  # noqa: E731
    assert np.allclose(at(0.0, 0.02, 0.03, 9.0), [[0, 1], [2, 3], [3, 4], [4, 5]])
    with pytest.raises(SurefootError, match="table: expected at least two rows of 4"):
        Formula("prompt", frequency=50.0, table=(0.0, 1.0), columns=4).check(4, "test")


def motion(seconds=1.0):
    t = np.arange(int(50 * seconds) + 1) / 50
    q = np.stack([0.3 * np.sin(3 * t), 1 + 0.3 * np.cos(3 * t)], 1)
    return Log(t, {"joint_pos": q}, {"joint_pos": "rad"}, {"names": {"joint_pos": ["shoulder", "elbow"]}})


def test_the_z_of_a_motion_are_means_of_b_along_it(run):
    """B of the motion's states by the arm's own observation: joint positions, and speeds by differences."""
    p = prompts.opened(run)
    asking = motions.for_motion(p, motion(), 3)
    q = motion()["joint_pos"]
    v = np.gradient(q, 0.02, axis=0)
    critic = np.zeros((len(q), p.task.observations["critic"].dim), np.float32)
    critic[:, :2], critic[:, 2:4] = q, 0.2 * v
    B = p.maps.meaning(torch.from_numpy(critic))
    wanted = B[11:14].mean(0)
    assert torch.nn.functional.cosine_similarity(asking.z[10], wanted, 0) > 0.99 and len(asking.z) == 51
    odd = Log(np.arange(5) / 50, {"joint_pos": np.zeros((5, 1))}, {}, {"names": {"joint_pos": ["wrist"]}})
    with pytest.raises(SurefootError, match="no joint matches 'wrist'"):
        motions.for_motion(p, odd, 3)


def test_other_verbs_take_what_a_prompt_writes(run, tmp_path, capsys):
    out = tmp_path / "reach"
    words = ["--reward", "(-abs(joint_pos.elbow - 1))", "--episodes", "4", "--search", "1"]
    assert main(["prompt", str(run), *words, "--out", str(out), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    facts = facts.get("facts", facts)
    assert set(facts["earns"]) == {"prompted", "after search", "random prompts"} and len(facts["z"]) == 6
    policy = bundle.load(out)
    assert (
        policy.contract.parents["prompt"] == '{"reward": "(-abs(joint_pos.elbow - 1))"}'
        and policy.about["about"]["prompt"]["z"]
    )
    motion().save(tmp_path / "m.npz")
    follow = tmp_path / "follow"
    assert main(["prompt", str(run), "--track", str(tmp_path / "m.npz"), "--out", str(follow)]) == 0
    assert bundle.load(follow).contract.terms[-1].name == "prompt"
    assert main(["prompt", str(run), "--goal", "joint_pos=0.2,1", "--episodes", "4", "--out", str(tmp_path / "g")]) == 0
    assert candidate(out).task.name == candidate(follow).task.name == "arm"  # the gate's door
    for each in (out, follow):
        assert main(["eval", str(each), "--episodes", "4"]) == 0
        assert main(["export", str(each), "--out", str(tmp_path / f"{each.name}.onnx")]) == 0
    capsys.readouterr()


@pytest.mark.parametrize("words, said", [
    ([], "expected one of --reward, --goal and --track, found none"),
    (["--reward", "near", "--goal", "joint_pos=0,1"], "found --reward and --goal"),
    (["--goal", "joint_pos:0,1"], "--goal: found 'joint_pos:0', expected TERM=NUMBER"),
    (["--goal", "joint_pos=a"], "--goal: found 'joint_pos=a'"),
    (["--goal", "joint_pos=0,1", "joint_pos=2"], "each term once"),
    (["--reward", "neer"], "no quantity matches 'neer'"),
])  # fmt: skip
def test_a_prompt_that_cannot_be_is_refused(run, words, said, capsys):
    assert main(["prompt", str(run), *words]) == 2
    assert said in capsys.readouterr().err


def test_a_run_of_another_learner_cannot_be_prompted(tmp_path):
    s = learn.settings_for("arm", {"envs": 8, "steps": 256, "horizon": 8, "minibatches": 1}, "ppo")
    learn.train("arm", tmp_path / "ppo", settings=s)
    with pytest.raises(SurefootError, match="expected a run of --learner fb"):
        prompts.opened(tmp_path / "ppo")
