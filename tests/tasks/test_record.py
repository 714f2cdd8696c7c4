"""Recording on a hidden reality: policies, plans and random controls, and the verb that does it."""

import json

import numpy as np
import pytest

from surefoot import tasks
from surefoot.cli import main
from surefoot.errors import SurefootError
from surefoot.learn.clone.demos import demos
from surefoot.learn.nets.policy_net import linear
from surefoot.log import Log
from surefoot.policy import Zero
from surefoot.sim.gap.build import fitting
from surefoot.sim.realities import Reality
from surefoot.tasks.record import record, simulated
from surefoot.tasks.rollout import contract

ARM = tasks.resolve("arm")


def plan(names=("shoulder", "elbow"), rate=25.0, rows=5, **meta) -> Log:
    control = np.stack([0.1 * np.arange(rows), 1.0 + 0.1 * np.arange(rows)], 1)
    return Log(
        7.0 + np.arange(rows) / rate,
        {"control": control[:, : len(names)]},
        meta={"names": {"control": list(names)}, **meta},
    )


def test_a_plan_is_played_at_its_own_times():
    log = record(ARM, Reality(0), plan())
    assert len(log) == 10 and log.time[0] == 0.0  # each row of 25 Hz for two periods of 50 Hz
    assert log["control"][:, 0] == pytest.approx(0.1 * np.repeat(np.arange(5), 2))


def test_a_plans_columns_are_known_by_name():
    log = record(ARM, Reality(0), plan(("elbow", "shoulder")))
    assert log["control"][0] == pytest.approx([1.0, 0.0])
    for wrong in (("elbow", "wrist"), ("elbow",)):
        with pytest.raises(SurefootError, match="expected shoulder, elbow; found"):
            record(ARM, Reality(0), plan(wrong))


def test_a_longer_recording_holds_the_plans_last_row():
    log = record(ARM, Reality(0), plan(), seconds=1.0)
    assert len(log) == 50 and (log["control"][10:, 0] == 0.4).all()


def test_random_controls_stay_within_the_action_and_are_held():
    log = record(ARM, Reality(0), None, seconds=4.0, seed=2)
    assert np.abs(log["action"]).max() <= 1.0 and np.abs(log["action"]).max() > 0.8
    changes = np.flatnonzero(np.diff(log["action"][:, 0])) + 1
    assert changes.tolist() == list(range(10, 200, 10))
    assert log["control"] == pytest.approx(ARM.action.control(log["action"]))


def test_simulated_episodes_are_what_a_policy_observed_and_did_one_after_another():
    """3 episodes of 4 s at 50 Hz with gaps of 1 s; the policy asked again gives the actions of the log."""
    law = linear(contract(ARM, tasks.env(ARM, 1).world), {"joint_pos": [[0.1, 0.0], [0.0, 0.2]]})
    log = simulated(law, tasks.env(ARM, 3, seed=5, threads=1))
    assert len(log) == 600 and log.meta["gaps"] == [[4.0, 5.0], [9.0, 10.0]] and log.time[200] == pytest.approx(5.0)
    assert log["action"] == pytest.approx(law(log["observation"].copy()), abs=1e-6)
    assert demos(ARM, 50.0, {"log": log}, 1).episodes == 3


def test_a_simulated_episode_ends_where_the_robot_fails():
    """A pole that nobody holds falls: episodes are shorter than 500 rows, and each ends where the task says."""
    task = tasks.resolve("balance")
    log = simulated(Zero(contract(task, tasks.env(task, 1).world)), tasks.env(task, 4, seed=0, threads=1))
    lengths = np.diff([0, *(np.flatnonzero(np.diff(log.time) > 0.5) + 1), len(log)])
    assert len(lengths) == 4 and (lengths < 200).all() and (lengths > 5).all()


def test_the_verb_records_simulated_episodes_of_a_policy_and_refuses_them_without_one(tmp_path, capsys):
    out = tmp_path / "sim.npz"
    assert main(["record", "balance", "--episodes", "3", "--policy", "balance", "--out", str(out), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["episodes"] == 3 and facts["rows"] == len(Log.load(out)) and "policy" in Log.load(out).meta["parents"]
    assert main(["record", "balance", "--episodes", "3", "--out", str(out)]) == 2
    assert "--episodes: expected --policy, and 1 to 10000 episodes" in capsys.readouterr().err
    assert (
        main(["record", "balance", "--episodes", "3", "--policy", "balance", "--reality", "2", "--out", str(out)]) == 2
    )
    assert "found --reality, which is of a hidden robot" in capsys.readouterr().err


def test_a_policy_is_told_what_the_robot_measures_and_balances_with_it():
    task = tasks.resolve("balance")
    law = linear(contract(task, tasks.env(task, 1).world), {"cart_pole": [[1.0, 2.0, 40.0, 6.0]]})
    log = record(task, Reality(0, {"sensor_noise": 0.02}), law, seconds=5.0)
    assert log.meta["gaps"] == [] and len(log) == 250
    measured = np.stack(
        [log["joint_pos"][:, 0], log["joint_vel"][:, 0], log["joint_pos"][:, 1], log["joint_vel"][:, 1]], 1
    )
    expected = np.clip(measured @ [1.0, 2.0, 40.0, 6.0], -10, 10)
    assert log["control"][:, 0] == pytest.approx(expected, abs=1e-4)


def test_too_short_a_recording_and_a_plan_with_holes_are_refused():
    with pytest.raises(SurefootError, match="at least two control periods"):
        record(ARM, Reality(0), None, seconds=0.01)
    with pytest.raises(SurefootError, match="no column matches 'control'"):
        record(ARM, Reality(0), Log(np.arange(3.0), {"a": np.zeros(3)}))
    broken = plan()
    with pytest.raises(SurefootError, match="expected finite numbers"):
        record(ARM, Reality(0), Log(broken.time, {"control": broken["control"] * np.nan}))


def run(capsys, *words):
    code = main(["record", *map(str, words), "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_the_verb_writes_a_log_and_tells_the_truth_only_when_asked(tmp_path, capsys):
    code, facts = run(capsys, "arm", "--reality", 4, "--seconds", 0.4, "--out", tmp_path / "a.npz")
    assert code == 0 and "truth" not in facts and facts["rows"] == 20
    code, told = run(capsys, "arm", "--reality", 4, "--seconds", 0.4, "--out", tmp_path / "b.npz", "--tell")
    assert 3 <= len(told["truth"]["ingredients"]) <= 5
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    code, again = run(capsys, "arm", "--excite", tmp_path / "a.npz", "--out", tmp_path / "c.npz")
    assert Log.load(tmp_path / "c.npz")["control"] == pytest.approx(Log.load(tmp_path / "a.npz")["control"])
    assert Log.load(tmp_path / "c.npz").meta["parents"]["plan"] == facts["sha256"]


def test_the_verb_takes_ingredients_by_name(tmp_path, capsys):
    out = tmp_path / "a.npz"
    words = ("arm", "--seconds", 0.4, "--out", out, "--tell")
    _, facts = run(capsys, *words, "--ingredient", "stiction=0.5", "backlash=0.2")
    assert {k: v["strength"] for k, v in facts["truth"]["ingredients"].items()} == {"stiction": 0.5, "backlash": 0.2}
    for wrong, why in (
        ("stiction", "expected NAME=NUMBER"),
        ("stition=0.5", "did you mean stiction"),
        ("ground_effect=1", "free flyer"),
    ):
        code, facts = run(capsys, *words, "--ingredient", wrong)
        assert code == 2 and why in facts["error"]
    code, facts = run(capsys, "arm", "--controls", "random", "--excite", out)
    assert code == 2 and "expected one of" in facts["error"]


def test_the_truth_is_told_in_the_numbers_the_machine_has(tmp_path, capsys):
    words = ("arm", "--reality", 2, "--seconds", 0.4, "--out", tmp_path / "a.npz", "--tell")
    _, facts = run(capsys, *words, "--ingredient", "mass=0.6", "stiction=0.5", "action_latency=0.5")
    told = {k: v["numbers"] for k, v in facts["truth"]["ingredients"].items()}
    plain, made = (Reality(2, s).world(ARM).model for s in ({}, {"mass": 0.6}))
    assert {x["what"]: (x["value"], x["model"], x["unit"]) for x in told["mass"]} == {
        f"mass of {name}": (made.body(name).mass[0], plain.body(name).mass[0], "kg")
        for name in ("upper", "fore", "hand")
    }
    assert told["action_latency"] == [{"what": "delay of commands", "value": 0.03, "unit": "s", "model": None}]
    assert main(["record", *map(str, words), "--ingredient", "action_latency=0.5"]) == 0
    assert "    delay of commands 0.03 s\n" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["balance", "hover", "walk", "arm"])
def test_every_ingredient_of_a_task_tells_its_numbers(name):
    task = tasks.resolve(name)
    told = Reality(0, dict.fromkeys(fitting(task), 0.5)).numbers(task)
    assert set(told) == set(fitting(task)) and all(told.values())
    assert all(np.isfinite(x.value).all() for found in told.values() for x in found)


@pytest.mark.parametrize("words, why", [(["--seconds", 0], "at least two control periods"), (["--seconds", -1], "found -1"),
                                        (["--out", "a.csv"], "--out: a.csv: expected a name that ends in .npz")])  # fmt: skip
def test_no_seconds_and_a_name_of_another_kind_are_refused(words, why, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, facts = run(capsys, "arm", *words)
    assert code == 2 and why in facts["error"] and not list(tmp_path.iterdir())
