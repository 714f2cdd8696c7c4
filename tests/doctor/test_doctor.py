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
from surefoot.doctor.branches.action_path import action_causes
from surefoot.doctor.branches.contract import mismatch, observation_causes
from surefoot.doctor.branches.physics import Remainder
from surefoot.doctor.branches.timing import timing_causes
from surefoot.doctor.cause import Cause
from surefoot.doctor.consequences import Consequences, consequences
from surefoot.doctor.evidence.innovations import _riccati
from surefoot.doctor.evidence.observation import checked, episodes, rebuild
from surefoot.doctor.hypotheses.by_jobs import ByJobs
from surefoot.doctor.prescription import Case, prescribe
from surefoot.errors import SurefootError
from surefoot.gate.statistics import rate
from surefoot.learn.cluster.jobs import Jobs
from surefoot.learn.nets import export
from surefoot.learn.nets.policy_net import PolicyNet, linear
from surefoot.log import Log
from surefoot.policy import Random
from surefoot.real2sim.excite.excited_robot import chosen_params
from surefoot.sim.realities import Reality
from surefoot.sim.simulated_robot import SimulatedRobot
from surefoot.tasks.rollout import contract
from surefoot.verbs.judge.doctor import Doctor

NOISE = {"sensor_noise": 0.05}
SECONDS = 8.0


def balancer() -> PolicyNet:
    """A law by hand that keeps the pole up."""
    task = tasks.resolve("balance")
    return linear(contract(task, tasks.env(task, 1).world), {"cart_pole": [[1.0, 2.0, 30.0, 6.0]]})


def flown(
    policy, strengths=None, observe=lambda x: x, send=lambda a: a, seed=3, seconds=SECONDS, observation=False
) -> Log:
    """A log of balance as a runtime writes it; `observe` and `send` are what it does to observations and actions."""
    task = tasks.resolve("balance")
    robot = SimulatedRobot(task, Reality(seed, NOISE | (strengths or {})), seed, observation=observation)
    obs, actions, observed = robot.connect(), [], []
    for _ in range(round(seconds * robot.rate)):
        observed.append(observe(obs.copy()))
        a = np.clip(policy(observed[-1][None])[0], -1, 1)
        actions.append(a)
        obs = robot.act(send(a))
    log = robot.log()
    more = {"action": np.array(actions)} | ({"observation": np.array(observed)} if observation else {})
    return Log(log.time, log.columns | more, log.units, log.meta)


def rebuilt(policy, log):
    task = tasks.for_contract(tasks.resolve(policy.contract.task), policy.contract)
    return rebuild(policy.contract, tasks.env(task, 1).world, log)


@pytest.mark.parametrize("name", ["balance", "arm", "hover", "walk"])
def test_observations_are_rebuilt_from_raw_readings(name):
    task = tasks.resolve(name)
    policy = Random(contract(task, tasks.env(task, 1).world), 1)
    robot = SimulatedRobot(task, Reality(2, NOISE | {"dropped_packets": 0.2}), 5, observation=True)
    obs = robot.connect()
    for _ in range(60):
        obs = robot.act(policy(obs[None])[0])
    log = robot.log()
    found = rebuilt(policy, log)
    assert found.missing == ()
    # the first frame after a lost first packet has nothing before it; there is none here
    np.testing.assert_allclose(found.observations(), log["observation"], atol=2e-5)


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
def test_one_fault_of_the_observations_is_named(kind, observation):
    policy = balancer()
    log = flown(policy, observe=FAULTS[kind], seconds=4.0, observation=observation)
    first = observation_causes(rebuilt(policy, log), policy)[0]
    assert first.kind == kind and first.share > 0.999
    plain = rebuilt(policy, log)
    assert mismatch(plain, policy) > 0.03


def test_the_number_of_a_fault_is_recovered():
    policy = balancer()
    log = flown(policy, observe=FAULTS["observation scale"], seconds=4.0)
    assert observation_causes(rebuilt(policy, log), policy)[0].value == pytest.approx(0.6, rel=1e-3)


def test_a_stale_observation_is_named_with_its_age():
    policy, past = balancer(), []

    def late(obs):
        past.append(obs)
        return past[max(0, len(past) - 3)]

    log = flown(policy, observe=late, seconds=1.0)
    first = observation_causes(rebuilt(policy, log), policy)[0]
    assert first.kind == "stale" and first.about == "observations are 2 periods old"


def test_a_kept_contract_has_no_cause():
    policy = balancer()
    rows = rebuilt(policy, flown(policy, seconds=4.0))
    assert observation_causes(rows, policy) == [] and mismatch(rows, policy) < 1e-5
    assert action_causes(rows, flown(policy, seconds=4.0)["control"]) == []


def test_another_policy_is_named_where_the_log_has_observations():
    policy = balancer()
    other = linear(policy.contract, {"cart_pole": [[1.0, 2.0, 45.0, 6.0]]})
    log = flown(other, seconds=4.0, observation=True)
    assert [c.kind for c in observation_causes(rebuilt(policy, log), policy)] == ["policy"]


def test_an_action_scale_is_recovered_and_an_opposite_sign_is_not_called_a_scale():
    policy = balancer()
    log = flown(policy, send=lambda a: 0.7 * a)
    first = action_causes(rebuilt(policy, log), log["control"])[0]
    assert first.kind == "action scale" and "0.7 of" in first.about
    log = flown(policy, send=lambda a: -a, seconds=2.0)
    assert action_causes(rebuilt(policy, log), log["control"])[0].kind == "action sign"


def test_lost_rows_weigh_what_a_binomial_says():
    n, k = 1000, 50
    lost = np.zeros(n, bool)
    lost[10 : 10 + k] = True
    q = np.where(lost[:, None], np.nan, np.random.default_rng(0).standard_normal((n, 2)))
    log = Log(np.arange(n) * 0.02, {"joint_pos": q, "control": np.zeros((n, 1))})
    policy = balancer()
    (found,) = timing_causes(log, policy.contract)
    p = k / (n - 1)  # the first row of an episode has none before it to repeat
    expected = k * np.log(p / 1e-3) + (n - 1 - k) * np.log((1 - p) / (1 - 1e-3))
    assert found.kind == "drops" and found.evidence == pytest.approx(expected, rel=1e-9)
    slow = Log(np.arange(n) * 0.03, {"joint_pos": np.nan_to_num(q), "control": np.zeros((n, 1))})
    assert "rate" in [c.kind for c in timing_causes(slow, policy.contract)]


def test_the_gain_of_one_degree_of_freedom_is_the_random_walks_closed_form():
    q, r = 0.3, 2.0
    P = 0.5 * (q + np.sqrt(q * q + 4 * q * r))  # P = Q + P R / (P + R)
    K = _riccati(0.0, np.diag([q, q]), np.diag([r, r]))
    np.testing.assert_allclose(K, np.eye(2) * P / (P + r), rtol=1e-9)


def test_hypotheses_as_jobs_have_the_evidence_of_one_batch():
    """Stiction, so that all ingredients are tried twice; three workers, so that the batches are cut."""
    policy, who = balancer(), {"path": Path("balance")}
    log = flown(policy, {"stiction": 0.5})
    here, jobs = diagnose(policy, tasks.resolve("balance"), log), Jobs()
    there = diagnose(policy, tasks.resolve("balance"), log, by=lambda x: ByJobs(jobs, who, x, 3))
    assert there.to_json() == here.to_json() and here.significant
    assert there.branches() == here.branches()


def test_a_healthy_log_is_called_healthy():
    policy = balancer()
    found = diagnose(policy, tasks.resolve("balance"), flown(policy))
    assert found.healthy and found.probabilities()["healthy"] > 0.99
    assert found.left is not None and found.left.white and found.left.share == 0.0


def test_a_latency_is_found_and_measured():
    policy = balancer()
    found = diagnose(policy, tasks.resolve("balance"), flown(policy, {"action_latency": 2 / 3}))  # 40 ms
    first = found.significant[0]
    assert first.kind == "latency" and first.evidence > 50
    assert 0.02 <= first.value <= 0.04  # this engine's step is 20 ms, and a control waits for the next one
    task = tasks.resolve("balance")
    cause = found.weighed(first).hypothesis
    after = consequences(policy, task, task.belief, cause, episodes=8)
    assert after.param == "latency" and after.in_range
    assert after.value == pytest.approx(first.value)
    assert after.nominal.value == 1.0 and after.corrected is not None
    assert consequences(policy, task, tasks.nominal(task), cause, episodes=2).in_range is False


def test_late_commands_are_counted():
    policy = balancer()
    found = diagnose(policy, tasks.resolve("balance"), flown(policy, {"action_jitter": 0.6}))  # 30 % of them
    assert found.first.kind == "jitter"
    assert 0.2 <= round(found.first.value, 2) < 0.4


def test_a_log_without_actions_is_refused():
    policy = balancer()
    log = flown(policy, seconds=1.0)
    bare = Log(log.time, {k: v for k, v in log.columns.items() if k != "action"}, meta=log.meta)
    with pytest.raises(SurefootError, match="column action.*the policy's actions"):
        diagnose(policy, tasks.resolve("balance"), bare)


def test_the_verb_says_the_cause_the_prescription_and_fails(tmp_path, capsys):
    policy = balancer()
    export.save(policy, tmp_path)
    path = flown(policy, observe=FAULTS["sign"], seconds=4.0).save(tmp_path / "fall.npz")
    page = tmp_path / "page.html"
    assert main(["doctor", str(tmp_path), str(path), "--success", "False", "--out", str(page), "--json"]) == 1
    facts = json.loads(capsys.readouterr().out)
    assert facts["causes"][0]["kind"] == "sign" and not facts["healthy"]
    assert "part 3 of cart_pole" in facts["prescription"]["do"] and "record a new log" in facts["prescription"]["do"]
    assert facts["prescription"]["command"] == ""  # the same log would give the same result
    assert facts["causes"][0]["probability"] > 0.99 and "sign" in page.read_text()


def cut(log: Log, n: int) -> Log:
    return Log(log.time[:n], {k: v[:n] for k, v in log.columns.items()}, log.units, log.meta)


def put(log: Log, name: str, value) -> Log:
    return replace(log, columns=log.columns | {name: value})


@pytest.mark.parametrize("rows", [3, 60])
def test_a_log_too_short_for_a_diagnosis_is_not_called_healthy(rows):
    policy = balancer()
    with pytest.raises(
        SurefootError, match=f"too short for a diagnosis: found {rows} complete rows of {rows}.*at least 150"
    ):
        diagnose(policy, tasks.resolve("balance"), cut(flown(policy, seconds=2.0), rows))


def test_a_cause_that_shows_in_a_short_log_is_named():
    policy = balancer()
    log = cut(flown(policy, {"action_latency": 0.5}, seconds=2.0), 60)
    assert diagnose(policy, tasks.resolve("balance"), log).first.kind == "latency"


def test_huge_and_infinite_numbers_are_lost_rows():
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


def test_constant_actions_are_not_the_policys_and_come_first():
    policy = balancer()
    log = flown(policy, {"gains": 0.8}, seconds=4.0)
    idle = np.zeros_like(log["action"])
    log = put(put(log, "action", idle), "control", idle)
    task = tasks.resolve("balance")
    found, whole = diagnose(policy, task, log), diagnose(policy, task, log, whole=True)
    assert [c.kind for c in found.significant] == ["unrelated actions"] and "never change" in found.first.about
    assert found.physics is None and "--whole" in found.branches()[-1].evidence
    assert (
        whole.first.kind == "unrelated actions"
        and len(whole.causes) > 10
        and whole.probabilities()["unrelated actions"] > 0.99
    )


def test_actions_of_another_program_are_no_fault_of_the_observations():
    policy = balancer()
    log = flown(policy, seconds=4.0)
    theirs = 0.3 * np.random.default_rng(0).standard_normal(log["action"].shape)
    first = observation_causes(rebuilt(policy, put(log, "action", theirs)), policy)[0]
    assert first.kind == "unrelated actions" and "unrelated" in first.about


def test_controls_that_do_not_follow_from_the_actions_are_named():
    policy = balancer()
    log = flown(policy, seconds=4.0)
    rows, noise = rebuilt(policy, log), np.random.default_rng(0).standard_normal(log["control"].shape)
    assert [c.kind for c in action_causes(rows, np.full_like(noise, 2.0))] == ["unrelated controls"]
    assert [c.kind for c in action_causes(rows, 3.0 * noise)] == ["unrelated controls"]


def test_a_wrong_rate_comes_first():
    policy = balancer()
    log = flown(policy, observe=FAULTS["sign"], seconds=4.0)
    found = diagnose(policy, tasks.resolve("balance"), replace(log, time=1.1 * log.time))
    assert [c.kind for c in found.significant][:2] == ["rate", "sign"]


def test_the_remainder_is_that_of_the_first_cause():
    policy = balancer()
    log = flown(policy, {"dropped_packets": 0.5, "gains": 0.9}, seconds=4.0)
    found = diagnose(policy, tasks.resolve("balance"), log)
    share = found.first.share
    assert found.left.share == (0.0 if np.isnan(share) else share)
    (row,) = [b.evidence for b in found.branches() if b.name == "remainder"]
    assert row.startswith(found.first.kind)


LATE = Cause("latency", "controls act 30 ms late", 900.0, 0.99, "", "timing")
NOISE_LEFT, MORE_LEFT = Remainder(0.99, 0.0, True, ""), Remainder(0.5, 0.3, False, "")


def prescribed(cause, after=None, left=NOISE_LEFT):
    return prescribe(Case(tasks.resolve("balance"), "runs/b", "fall.npz --map m.json", 30_000), cause, after, left)


def successes(nominal: int, corrected: int | None, in_range: bool | None = None) -> Consequences:
    """Of 24 episodes each."""
    of = lambda k: rate(np.arange(24) < k)  # noqa: E731
    param = "latency" if in_range is not None else ""
    return Consequences(of(nominal), None if corrected is None else of(corrected), param, 0.03, in_range)


def test_a_policy_that_fails_in_the_nominal_world_is_to_be_trained_whatever_the_log_shows():
    for cause in (LATE, None):
        found = prescribed(cause, successes(2, 1, False))
        assert found.do.startswith("train") and found.command == "surefoot train balance --steps 200000"


def test_the_next_command_names_a_task_file_as_it_was_given():
    case = Case(tasks.resolve("balance"), "runs/b", "fall.npz", 0, "my tasks/cart.py")
    assert prescribe(case, None, successes(2, 1, False)).command.startswith("surefoot train 'my tasks/cart.py' --steps")


@pytest.mark.parametrize("settings", [[1], "x", {"steps": "many"}, {"steps": [1]}, None])
def test_odd_settings_of_a_strangers_run_are_no_steps(tmp_path, settings):
    (tmp_path / "run.json").write_text(json.dumps({"settings": settings}))
    task = tasks.resolve("balance")
    own = contract(task, tasks.env(task, 1).world)
    assert Doctor(tmp_path, tmp_path / "log.npz")._case(task, own).steps == 0


def test_a_tolerated_cause_inside_the_trained_range_needs_no_training():
    found = prescribed(LATE, successes(24, 24, True))
    assert found.do.startswith("nothing about latency") and "record the failure" in found.do and found.command == ""
    found = prescribed(LATE, successes(24, 24, True), MORE_LEFT)
    assert "not noise" in found.do and found.command.startswith("surefoot identify balance fall.npz --map m.json")
    assert successes(24, 24, True).harmless


@pytest.mark.parametrize("after", [successes(24, 24, False), successes(24, 3, False), successes(24, 3, True)])
def test_a_cause_outside_the_range_or_not_tolerated_is_to_be_identified(after):
    found = prescribed(LATE, after)
    assert found.command == "surefoot identify balance fall.npz --map m.json --learn latency --save e.json"
    assert not after.harmless


def test_a_broken_contract_asks_for_a_new_log_and_for_no_command():
    found = prescribed(Cause("sign", "part 3 has the opposite sign", 900.0, 1.0, "", "contract"), successes(24, None))
    assert "fix the runtime" in found.do and "record a new log" in found.do and found.command == ""


CAUSES = [("policy", "contract"), ("drops", "timing"), ("latency", "timing"), ("sensor bias", "sensors"), ("stiction", "physics"),
          ("inertia", "numbers"), ("drag", "physics"), ("missing physics", "physics")]  # fmt: skip


@pytest.mark.parametrize("kind, branch", CAUSES)
@pytest.mark.parametrize("after", [None, successes(24, 3), successes(24, 3, True), successes(24, 24), successes(2, 1)])
def test_a_prescribed_command_can_be_typed(kind, branch, after):
    for left in (NOISE_LEFT, MORE_LEFT):
        command = prescribed(Cause(kind, "so much", 900.0, 0.5, "", branch), after, left).command
        if command:
            verb = _parse(shlex.split(command)[1:])
            assert getattr(verb, "mapping", None) in (None, Path("m.json"))
            chosen_params(tasks.resolve("balance").params, getattr(verb, "learn", ()))


def ran(tmp_path, belief) -> PolicyNet:
    """A run's folder, with the files that the doctor reads."""
    policy = balancer()
    export.save(policy, tmp_path)
    (tmp_path / "run.json").write_text(json.dumps({"belief": belief.to_json(), "settings": {"steps": 5}}))
    return policy


def test_the_trained_range_comes_from_run_json(tmp_path, capsys):
    task = tasks.resolve("balance")
    policy = ran(tmp_path, tasks.nominal(task))
    log = str(flown(policy, {"action_latency": 0.5}, seconds=4.0).save(tmp_path / "late.npz"))
    facts = {}
    for name, more in (("run", []), ("task", ["--belief", "task"])):
        assert main(["doctor", str(tmp_path), log, "--json", *more]) == 1
        facts[name] = json.loads(capsys.readouterr().out)
    assert facts["run"]["consequences"]["in_range"] is False and facts["task"]["consequences"]["in_range"] is True
    assert "--learn latency" in facts["run"]["prescription"]["command"]


def test_exchanged_arguments_are_refused(tmp_path, capsys):
    export.save(balancer(), tmp_path / "run")
    log = flown(balancer(), seconds=1.0).save(tmp_path / "a.npz")
    assert main(["doctor", str(log), str(tmp_path / "run")]) == 2
    assert "wrong order" in capsys.readouterr().err
    own = "expected a run's folder or its policy.onnx"
    for name, what in (("b.onnx", "not an ONNX file"), ("c.npz", f"found a log or a table (.npz), {own}")):
        (tmp_path / name).write_bytes(b"x")
        assert main(["doctor", str(tmp_path / name), str(log)]) == 2
        assert f"{name}: {what}" in capsys.readouterr().err
