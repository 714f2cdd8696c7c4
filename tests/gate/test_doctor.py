"""The doctor finds what was planted, and nothing where nothing was."""

import json
from dataclasses import replace

import numpy as np
import pytest

from surefoot import tasks
from surefoot.cli import main
from surefoot.deploy import bundle
from surefoot.errors import SurefootError
from surefoot.gate.doctor import diagnose
from surefoot.gate.doctor.contract import mismatch, observed
from surefoot.gate.doctor.course import course
from surefoot.gate.doctor.follow import _steady
from surefoot.gate.doctor.sent import sent
from surefoot.gate.doctor.timing import timed
from surefoot.gate.doctor.told import episodes, rebuilt
from surefoot.log import Log
from surefoot.policy import Net, Random, linear
from surefoot.sim.realities import Reality
from surefoot.sim.robot import Robot
from surefoot.tasks.rollout import contract

NOISE = {"sensor_noise": 0.05}
SECONDS = 8.0


def balancer() -> Net:
    """A law by hand that keeps the pole up."""
    task = tasks.make("balance")
    return linear(contract(task, tasks.env(task, 1).world.model), {"cart_pole": [[1.0, 2.0, 30.0, 6.0]]})


def flown(
    policy, strengths=None, tell=lambda x: x, send=lambda a: a, seed=3, seconds=SECONDS, observation=False
) -> Log:
    """A log of balance as a runtime keeps it: tell and send are what it does to observations and answers."""
    task = tasks.make("balance")
    robot = Robot(task, Reality(seed, NOISE | (strengths or {})), seed, observation=observation)
    told, answers, seen = robot.connect(), [], []
    for _ in range(round(seconds * robot.rate)):
        seen.append(tell(told.copy()))
        a = np.clip(policy(seen[-1][None])[0], -1, 1)
        answers.append(a)
        told = robot.act(send(a))
    log = robot.log()
    more = {"action": np.array(answers)} | ({"observation": np.array(seen)} if observation else {})
    return Log(log.time, log.columns | more, log.units, log.meta)


def told_of(policy, log):
    task = tasks.fitting(tasks.make(policy.contract.task), policy.contract)
    return rebuilt(task, policy.contract, tasks.env(task, 1).world, log)


@pytest.mark.parametrize("name", ["balance", "arm", "hover", "walk"])
def test_what_a_policy_was_told_is_rebuilt_from_raw_signals(name):
    task = tasks.make(name)
    policy = Random(contract(task, tasks.env(task, 1).world.model), 1)
    robot = Robot(task, Reality(2, NOISE | {"dropped_packets": 0.2}), 5, observation=True)
    told = robot.connect()
    for _ in range(60):
        told = robot.act(policy(told[None])[0])
    log = robot.log()
    found = told_of(policy, log)
    assert found.missing == ()
    # the first frame after a lost first packet has nothing before it; there is none here
    np.testing.assert_allclose(found.stacked(found.frames(found.raw)), log["observation"], atol=2e-5)


def test_episodes_begin_after_holes_and_empty_rows():
    control = np.zeros((6, 1))
    control[3] = np.nan
    log = Log(np.array([0.0, 0.1, 1.3, 1.4, 1.5, 1.6]), {"control": control})
    assert episodes(log).tolist() == [0, 0, 2, 3, 4, 4]


def swap(obs):
    return obs[[0, 2, 1, 3]]


FAULTS = {
    "order": swap,
    "sign": lambda obs: obs * np.array([1, 1, 1, -1], np.float32),
    "unit": lambda obs: obs * np.array([1, 1, 57.29578, 57.29578], np.float32),
    "observation scale": lambda obs: obs * np.float32(0.6),
    "offset": lambda obs: obs + np.array([0.25, 0, 0, 0], np.float32),
}


@pytest.mark.parametrize("kind", FAULTS)
@pytest.mark.parametrize("observation", [False, True])
def test_one_edit_of_what_was_told_is_named(kind, observation):
    policy = balancer()
    log = flown(policy, tell=FAULTS[kind], seconds=4.0, observation=observation)
    first = observed(told_of(policy, log), policy)[0]
    assert first.kind == kind and first.share > 0.999
    plain = told_of(policy, log)
    assert mismatch(plain, policy) > 0.03


def test_the_number_of_an_edit_is_recovered():
    policy = balancer()
    log = flown(policy, tell=FAULTS["observation scale"], seconds=4.0)
    assert "told 0.6 times" in observed(told_of(policy, log), policy)[0].about


def test_a_stale_observation_is_told_by_its_age():
    policy, past = balancer(), []

    def late(obs):
        past.append(obs)
        return past[max(0, len(past) - 3)]

    log = flown(policy, tell=late, seconds=1.0)
    first = observed(told_of(policy, log), policy)[0]
    assert first.kind == "stale" and "2 periods" in first.about


def test_answers_that_are_kept_raise_no_doubt():
    policy = balancer()
    told = told_of(policy, flown(policy, seconds=4.0))
    assert observed(told, policy) == [] and mismatch(told, policy) < 1e-5
    assert sent(told, flown(policy, seconds=4.0)["control"]) == []


def test_another_policy_is_told_where_the_log_has_what_it_was_told():
    policy = balancer()
    other = replace(policy, arrays={**policy.arrays, "w0": policy.arrays["w0"] * np.float32([[1, 1, 1.5, 1]])})
    log = flown(other, seconds=4.0, observation=True)
    assert [c.kind for c in observed(told_of(policy, log), policy)] == ["policy"]


def test_a_scale_of_actions_is_recovered_and_a_turned_sign_is_not_called_a_scale():
    policy = balancer()
    log = flown(policy, send=lambda a: 0.7 * a)
    first = sent(told_of(policy, log), log["control"])[0]
    assert first.kind == "action scale" and "0.7 of" in first.about
    log = flown(policy, send=lambda a: -a, seconds=2.0)
    assert sent(told_of(policy, log), log["control"])[0].kind == "action sign"


def test_lost_rows_weigh_what_a_binomial_says():
    n, k = 1000, 50
    lost = np.zeros(n, bool)
    lost[10 : 10 + k] = True
    q = np.where(lost[:, None], np.nan, np.random.default_rng(0).standard_normal((n, 2)))
    log = Log(np.arange(n) * 0.02, {"joint_pos": q, "control": np.zeros((n, 1))})
    policy = balancer()
    (found,) = timed(log, policy.contract)
    p = k / (n - 1)  # the first row of an episode has none before it to repeat
    expected = k * np.log(p / 1e-3) + (n - 1 - k) * np.log((1 - p) / (1 - 1e-3))
    assert found.kind == "drops" and found.evidence == pytest.approx(expected, rel=1e-9)
    slow = Log(np.arange(n) * 0.03, {"joint_pos": np.nan_to_num(q), "control": np.zeros((n, 1))})
    assert "rate" in [c.kind for c in timed(slow, policy.contract)]


def test_the_gain_of_one_degree_of_freedom_is_the_random_walks_closed_form():
    q, r = 0.3, 2.0
    P = 0.5 * (q + np.sqrt(q * q + 4 * q * r))  # P = Q + P R / (P + R)
    K = _steady(0.0, np.diag([q, q]), np.diag([r, r]))
    np.testing.assert_allclose(K, np.eye(2) * P / (P + r), rtol=1e-9)


def test_a_healthy_log_is_called_healthy():
    policy = balancer()
    found = diagnose(policy, tasks.make("balance"), flown(policy))
    assert found.healthy and found.chances()["healthy"] > 0.99
    assert found.physics is not None and found.physics.white


def test_a_latency_is_found_and_measured():
    policy = balancer()
    found = diagnose(policy, tasks.make("balance"), flown(policy, {"action_latency": 2 / 3}))  # 40 ms
    first = found.found[0]
    assert first.kind == "latency" and first.evidence > 50
    assert (
        20 <= float(first.about.split()[2]) <= 40
    )  # this engine's step is 20 ms, and a control waits for the next one
    task = tasks.make("balance")
    after = course(policy, task, task.belief, found.weighed(first), episodes=8)
    assert after.param == "latency" and after.inside
    assert after.value == pytest.approx(float(first.about.split()[2]) / 1e3)
    assert after.home.value == 1.0 and after.there is not None
    assert course(policy, task, tasks.nominal(task), found.weighed(first), episodes=2).inside is False


def test_late_commands_are_counted():
    policy = balancer()
    found = diagnose(policy, tasks.make("balance"), flown(policy, {"action_jitter": 0.6}))  # 30 % of them
    assert found.found[0].kind == "jitter"
    assert 0.2 <= float(found.found[0].about.split("%")[0]) / 100 < 0.4


def test_a_log_without_answers_is_refused_in_words():
    policy = balancer()
    log = flown(policy, seconds=1.0)
    bare = Log(log.time, {k: v for k, v in log.columns.items() if k != "action"}, meta=log.meta)
    with pytest.raises(SurefootError, match="column action.*what the policy answered"):
        diagnose(policy, tasks.make("balance"), bare)


def test_the_verb_says_the_cause_the_prescription_and_fails(tmp_path, capsys):
    policy = balancer()
    bundle.save(policy, tmp_path)
    path = flown(policy, tell=FAULTS["sign"], seconds=4.0).save(tmp_path / "fall.npz")
    page = tmp_path / "page.html"
    assert main(["doctor", str(tmp_path), str(path), "--success", "False", "--out", str(page), "--json"]) == 1
    facts = json.loads(capsys.readouterr().out)
    assert facts["causes"][0]["kind"] == "sign" and not facts["healthy"]
    assert (
        facts["prescription"]["command"].startswith("surefoot doctor")
        and "sign of part 3" in facts["prescription"]["do"]
    )
    assert facts["causes"][0]["probability"] > 0.99 and "sign" in page.read_text()
