"""The doctor finds what was planted, and nothing where nothing was."""

import json
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from surefoot import tasks
from surefoot.cli import _parse, main
from surefoot.doctor import diagnose
from surefoot.doctor.branches.action_path import sent
from surefoot.doctor.branches.contract import mismatch, observed
from surefoot.doctor.branches.physics import Left
from surefoot.doctor.branches.timing import timed
from surefoot.doctor.cause import Cause
from surefoot.doctor.consequences import Course, course, words
from surefoot.doctor.evidence.innovations import _steady
from surefoot.doctor.evidence.observation import checked, episodes, rebuilt
from surefoot.doctor.remedy import Asked, remedy
from surefoot.errors import SurefootError
from surefoot.gate.statistics import rate
from surefoot.learn.nets import export
from surefoot.learn.nets.policy_net import PolicyNet, linear
from surefoot.log import Log
from surefoot.policy import Random
from surefoot.real2sim.excite.excited_robot import chosen
from surefoot.sim.realities import Reality
from surefoot.sim.simulated_robot import SimulatedRobot
from surefoot.tasks.rollout import contract

NOISE = {"sensor_noise": 0.05}
SECONDS = 8.0


def balancer() -> PolicyNet:
    """A law by hand that keeps the pole up."""
    task = tasks.resolve("balance")
    return linear(contract(task, tasks.env(task, 1).world.model), {"cart_pole": [[1.0, 2.0, 30.0, 6.0]]})


def flown(
    policy, strengths=None, tell=lambda x: x, send=lambda a: a, seed=3, seconds=SECONDS, observation=False
) -> Log:
    """A log of balance as a runtime keeps it: tell and send are what it does to observations and answers."""
    task = tasks.resolve("balance")
    robot = SimulatedRobot(task, Reality(seed, NOISE | (strengths or {})), seed, observation=observation)
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
    task = tasks.for_contract(tasks.resolve(policy.contract.task), policy.contract)
    return rebuilt(task, policy.contract, tasks.env(task, 1).world, log)


@pytest.mark.parametrize("name", ["balance", "arm", "hover", "walk"])
def test_what_a_policy_was_told_is_rebuilt_from_raw_signals(name):
    task = tasks.resolve(name)
    policy = Random(contract(task, tasks.env(task, 1).world.model), 1)
    robot = SimulatedRobot(task, Reality(2, NOISE | {"dropped_packets": 0.2}), 5, observation=True)
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
    other = linear(policy.contract, {"cart_pole": [[1.0, 2.0, 45.0, 6.0]]})
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
    found = diagnose(policy, tasks.resolve("balance"), flown(policy))
    assert found.healthy and found.chances()["healthy"] > 0.99
    assert found.left is not None and found.left.white and found.left.share == 0.0


def test_a_latency_is_found_and_measured():
    policy = balancer()
    found = diagnose(policy, tasks.resolve("balance"), flown(policy, {"action_latency": 2 / 3}))  # 40 ms
    first = found.found[0]
    assert first.kind == "latency" and first.evidence > 50
    assert (
        20 <= float(first.about.split()[2]) <= 40
    )  # this engine's step is 20 ms, and a control waits for the next one
    task = tasks.resolve("balance")
    after = course(policy, task, task.belief, found.weighed(first), episodes=8)
    assert after.param == "latency" and after.inside
    assert after.value == pytest.approx(float(first.about.split()[2]) / 1e3)
    assert after.home.value == 1.0 and after.there is not None
    assert course(policy, task, tasks.nominal(task), found.weighed(first), episodes=2).inside is False


def test_late_commands_are_counted():
    policy = balancer()
    found = diagnose(policy, tasks.resolve("balance"), flown(policy, {"action_jitter": 0.6}))  # 30 % of them
    assert found.found[0].kind == "jitter"
    assert 0.2 <= float(found.found[0].about.split("%")[0]) / 100 < 0.4


def test_a_log_without_answers_is_refused_in_words():
    policy = balancer()
    log = flown(policy, seconds=1.0)
    bare = Log(log.time, {k: v for k, v in log.columns.items() if k != "action"}, meta=log.meta)
    with pytest.raises(SurefootError, match="column action.*what the policy answered"):
        diagnose(policy, tasks.resolve("balance"), bare)


def test_the_verb_says_the_cause_the_prescription_and_fails(tmp_path, capsys):
    policy = balancer()
    export.save(policy, tmp_path)
    path = flown(policy, tell=FAULTS["sign"], seconds=4.0).save(tmp_path / "fall.npz")
    page = tmp_path / "page.html"
    assert main(["doctor", str(tmp_path), str(path), "--success", "False", "--out", str(page), "--json"]) == 1
    facts = json.loads(capsys.readouterr().out)
    assert facts["causes"][0]["kind"] == "sign" and not facts["healthy"]
    assert "sign of part 3" in facts["prescription"]["do"] and "record a new log" in facts["prescription"]["do"]
    assert facts["prescription"]["command"] == ""  # the same log would only say the same again
    assert facts["causes"][0]["probability"] > 0.99 and "sign" in page.read_text()


def cut(log: Log, n: int) -> Log:
    return Log(log.time[:n], {k: v[:n] for k, v in log.columns.items()}, log.units, log.meta)


def put(log: Log, name: str, value) -> Log:
    return replace(log, columns=log.columns | {name: value})


@pytest.mark.parametrize("rows", [3, 60])
def test_a_log_too_short_to_tell_is_not_called_healthy(rows):
    policy = balancer()
    with pytest.raises(SurefootError, match=f"too short to tell: found {rows} complete rows of {rows}.*at least 150"):
        diagnose(policy, tasks.resolve("balance"), cut(flown(policy, seconds=2.0), rows))


def test_a_cause_that_shows_in_a_short_log_is_named():
    policy = balancer()
    log = cut(flown(policy, {"action_latency": 0.5}, seconds=2.0), 60)
    assert diagnose(policy, tasks.resolve("balance"), log).first.kind == "latency"


def test_a_number_that_is_none_is_lost_whatever_stands_for_it():
    policy = balancer()
    log = flown(policy, seconds=4.0)
    speeds = {x: np.where(np.arange(200)[:, None] == 7, x, log["joint_vel"]) for x in (np.nan, np.inf, -np.inf, 3e38)}
    same = [checked(put(log, "joint_vel", x))["joint_vel"] for x in speeds.values()]
    assert all(np.array_equal(x, same[0], equal_nan=True) and np.isnan(x).sum() == 2 for x in same)
    assert diagnose(policy, tasks.resolve("balance"), put(log, "joint_vel", speeds[np.inf])).healthy


def test_a_part_that_was_never_measured_is_refused_by_name():
    policy = balancer()
    log = flown(policy, seconds=1.0)
    places = log["joint_pos"].copy()
    places[:, 1] = np.nan
    with pytest.raises(SurefootError, match="column joint_pos: hinge: found no number in 50 rows"):
        diagnose(policy, tasks.resolve("balance"), put(log, "joint_pos", places))


def test_answers_that_never_move_are_not_the_policys_and_come_first():
    policy = balancer()
    log = flown(policy, {"gains": 0.8}, seconds=4.0)
    idle = np.zeros_like(log["action"])
    log = put(put(log, "action", idle), "control", idle)
    task = tasks.resolve("balance")
    found, whole = diagnose(policy, task, log), diagnose(policy, task, log, whole=True)
    assert [c.kind for c in found.found] == ["unasked"] and "never move" in found.first.about
    assert found.physics is None and "--whole" in found.branches()[-1][2]
    assert whole.first.kind == "unasked" and len(whole.causes) > 10 and whole.chances()["unasked"] > 0.99


def test_answers_of_somebody_else_are_no_edit_of_what_was_told():
    policy = balancer()
    log = flown(policy, seconds=4.0)
    theirs = 0.3 * np.random.default_rng(0).standard_normal(log["action"].shape)
    first = observed(told_of(policy, put(log, "action", theirs)), policy)[0]
    assert first.kind == "unasked" and "nothing to do with" in first.about


def test_controls_that_are_not_the_answers_are_told():
    policy = balancer()
    log = flown(policy, seconds=4.0)
    told, noise = told_of(policy, log), np.random.default_rng(0).standard_normal(log["control"].shape)
    assert [c.kind for c in sent(told, np.full_like(noise, 2.0))] == ["unsent"]
    assert [c.kind for c in sent(told, 3.0 * noise)] == ["unsent"]


def test_a_wrong_rate_comes_before_what_no_row_can_tell():
    policy = balancer()
    log = flown(policy, tell=FAULTS["sign"], seconds=4.0)
    found = diagnose(policy, tasks.resolve("balance"), replace(log, time=1.1 * log.time))
    assert [c.kind for c in found.found][:2] == ["rate", "sign"]


def test_what_is_left_is_said_of_the_first_cause():
    policy = balancer()
    log = flown(policy, {"dropped_packets": 0.5, "gains": 0.9}, seconds=4.0)
    found = diagnose(policy, tasks.resolve("balance"), log)
    (row,) = [words for question, _, words in found.branches() if question == "is what is left noise?"]
    assert row.startswith(found.first.kind)
    assert f"explains {found.first.explains} of" in row or (found.first.explains == "-" and "says nothing" in row)


LATE = Cause("latency", "controls act 30 ms late", 900.0, 0.99, "", "timing")
NOISE_LEFT, MORE_LEFT = Left(0.99, 0.0, True, ""), Left(0.5, 0.3, False, "")


def prescribed(cause, after=None, left=NOISE_LEFT):
    return remedy(Asked(tasks.resolve("balance"), "runs/b", "fall.npz --map m.json", 30_000), cause, after, left)


def faring(home: int, there: int | None, inside: bool | None = None) -> Course:
    """Of 24 episodes each."""
    of = lambda k: rate(np.arange(24) < k)  # noqa: E731
    return Course(of(home), None if there is None else of(there), "latency" if inside is not None else "", 0.03, inside)


def test_a_policy_that_fails_at_home_is_to_be_trained_whatever_the_log_says():
    for cause in (LATE, None):
        found = prescribed(cause, faring(2, 1, False))
        assert found.do.startswith("train") and found.command == "surefoot train balance --steps 200000"


def test_what_a_policy_was_trained_over_and_bears_is_nothing_to_train_over():
    found = prescribed(LATE, faring(24, 24, True))
    assert found.do.startswith("nothing about latency") and "record the failure" in found.do and found.command == ""
    found = prescribed(LATE, faring(24, 24, True), MORE_LEFT)
    assert "not noise" in found.do and found.command.startswith("surefoot identify balance fall.npz --map m.json")
    assert any("look further" in x for x in words(faring(24, 24, True)))


@pytest.mark.parametrize("after", [faring(24, 24, False), faring(24, 3, False), faring(24, 3, True)])
def test_what_it_was_not_trained_over_or_does_not_bear_is_to_be_identified(after):
    found = prescribed(LATE, after)
    assert found.command == "surefoot identify balance fall.npz --map m.json --learn latency --save e.json"
    assert not any("look further" in x for x in words(after))


def test_a_broken_contract_asks_for_a_new_log_and_for_no_command():
    found = prescribed(Cause("sign", "sign of part 3", 900.0, 1.0, "", "contract"), faring(24, None))
    assert "mend the runtime" in found.do and "record a new log" in found.do and found.command == ""


CAUSES = [("policy", "contract"), ("drops", "timing"), ("latency", "timing"), ("sensor bias", "sensors"), ("stiction", "physics"),
          ("inertia", "numbers"), ("drag", "physics"), ("missing physics", "physics")]  # fmt: skip


@pytest.mark.parametrize("kind, branch", CAUSES)
@pytest.mark.parametrize("after", [None, faring(24, 3), faring(24, 3, True), faring(24, 24), faring(2, 1)])
def test_what_is_prescribed_can_be_typed(kind, branch, after):
    for left in (NOISE_LEFT, MORE_LEFT):
        command = prescribed(Cause(kind, "so much", 900.0, 0.5, "", branch), after, left).command
        if command:
            verb = _parse(shlex.split(command)[1:])
            assert getattr(verb, "mapping", None) in (None, Path("m.json"))
            chosen(tasks.resolve("balance").params, tuple(w for w in getattr(verb, "learn", "").split(",") if w))


def ran(tmp_path, belief) -> PolicyNet:
    """A run's folder, as far as the doctor reads it."""
    policy = balancer()
    export.save(policy, tmp_path)
    (tmp_path / "run.json").write_text(json.dumps({"belief": belief.to_json(), "settings": {"steps": 5}}))
    return policy


def test_a_run_says_itself_what_it_was_trained_over(tmp_path, capsys):
    task = tasks.resolve("balance")
    policy = ran(tmp_path, tasks.nominal(task))
    log = str(flown(policy, {"action_latency": 0.5}, seconds=4.0).save(tmp_path / "late.npz"))
    told = {}
    for name, more in (("run", []), ("task", ["--belief", "task"])):
        assert main(["doctor", str(tmp_path), log, "--json", *more]) == 1
        told[name] = json.loads(capsys.readouterr().out)
    assert told["run"]["course"]["inside"] is False and told["task"]["course"]["inside"] is True
    assert "--learn latency" in told["run"]["prescription"]["command"]


def test_arguments_the_wrong_way_round_are_told_so(tmp_path, capsys):
    export.save(balancer(), tmp_path / "run")
    log = flown(balancer(), seconds=1.0).save(tmp_path / "a.npz")
    assert main(["doctor", str(log), str(tmp_path / "run")]) == 2
    assert "exchanged" in capsys.readouterr().err
    own = "expected a run's folder or its policy.onnx"
    for name, what in (("b.onnx", "not an ONNX file"), ("c.npz", f"found a log or a table (.npz), {own}")):
        (tmp_path / name).write_bytes(b"x")
        assert main(["doctor", str(tmp_path / name), str(log)]) == 2
        assert f"{name}: {what}" in capsys.readouterr().err
