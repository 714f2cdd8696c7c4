"""Verbs are typed functions: each test calls one and reads the facts of its Report, or the refusal that comes before any work."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from surefoot import presets, tasks
from surefoot.errors import SurefootError
from surefoot.learn.nets import export
from surefoot.learn.nets.policy_net import linear
from surefoot.log import Log as Recorded
from surefoot.policy import Zero
from surefoot.report import unwatched
from surefoot.tasks.rollout import contract
from surefoot.verbs import machine
from surefoot.verbs.judge.adapt import Adapt
from surefoot.verbs.judge.doctor import Doctor
from surefoot.verbs.model.presets import Presets
from surefoot.verbs.model.try_ import Try
from surefoot.verbs.robot.actuator import Actuator
from surefoot.verbs.robot.believe import Believe
from surefoot.verbs.robot.delta import Delta
from surefoot.verbs.robot.explore import Explore
from surefoot.verbs.robot.log import Log
from surefoot.verbs.robot.missing import Missing, folder
from surefoot.verbs.robot.preflight import Preflight
from surefoot.verbs.robot.record import Record
from surefoot.verbs.robot.replay import Replay
from surefoot.verbs.train.cross import Cross
from surefoot.verbs.train.play import Play
from surefoot.web.style import CSS


def balancer():
    task = tasks.resolve("balance")
    return linear(contract(task, tasks.env(task, 1).world), {"cart_pole": [[1.0, 2.0, 30.0, 6.0]]})


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    export.save(balancer(), folder)
    return folder


@pytest.fixture(scope="module")
def exact(run) -> Path:
    """Four seconds of the balancer on a robot that is its model, without noise."""
    out = run / "exact.npz"
    Record("balance", policy=run, ingredient=("sensor_noise=0",), seconds=4.0, out=out).run(unwatched)
    return out


def test_record_reports_the_log_it_wrote(tmp_path):
    out = tmp_path / "a.npz"
    facts = Record("balance", ingredient=("sensor_noise=0.1",), seconds=0.4, out=out).run(unwatched).facts
    log = Recorded.load(out)
    assert facts["rows"] == len(log) == 20 and facts["rate"] == 50.0
    assert facts["columns"] == {k: list(v.shape) for k, v in log.columns.items()}


def test_log_reports_rows_rate_and_ranges(exact):
    facts = Log(exact).run(unwatched).facts
    assert facts["rows"] == 200 and facts["rate"] == pytest.approx(50.0) and facts["gaps"] == []
    position = Recorded.load(exact)["joint_pos"]
    assert facts["columns"]["joint_pos"]["max"] == pytest.approx(position.max())


def test_a_models_own_log_passes_preflight_and_replays_without_error(exact):
    assert Preflight("balance", exact).run(unwatched).facts["holds"] is True
    facts = Replay("balance", exact, resync=10).run(unwatched).facts
    assert facts["diverged"] == 0 and all(s["r2"] > 0.9999 for s in facts["signals"].values())


def test_doctor_reports_the_planted_fault_first(run, exact, tmp_path):
    log = Recorded.load(exact)
    turned = replace(log, columns=log.columns | {"control": -log["control"]}).save(tmp_path / "turned.npz")
    report = Doctor(run, turned, success=False).run(unwatched)
    assert report.facts["causes"][0]["kind"] == "action sign" and not report.facts["healthy"] and report.code == 1
    assert report.facts["prescription"]["command"] == "" and report.badge is not None and not report.badge.good


def test_presets_report_every_preset_and_one_as_ranges_inside_a_tasks_bounds():
    assert [p["name"] for p in Presets().run(unwatched).facts["presets"]] == list(presets.PRESETS)
    name = next(iter(presets.PRESETS))
    facts = Presets(name).run(unwatched).facts
    params = tasks.resolve(facts["task"]).params
    assert all(params[r["name"]].low <= r["used"][0] <= r["used"][1] <= params[r["name"]].high for r in facts["ranges"])


def test_try_reports_the_success_of_a_policy_without_training():
    facts = Try("balance", episodes=4, belief="nominal").run(unwatched).facts
    assert facts["task"] == "balance" and facts["policy"] == "zero" and facts["success"] == 0.0
    with pytest.raises(SurefootError, match="did you mean zero"):
        Try("balance", policy="zeros", episodes=1).run(unwatched)


def test_play_finds_the_policy_without_training_and_its_task():
    policy, task = Play("zero", task="balance")._policy()
    assert isinstance(policy, Zero) and task.name == "balance"


def test_a_machine_is_written_as_the_flags_that_make_it():
    it = machine.Machine(fixed=True, kp=20.0)
    assert it.words() == " --machine.fixed --machine.kp 20.0" and machine.Machine().words() == ""
    asked = machine.asked("my robot.xml", Path("a b.npz"), Path("m.json"), it)
    assert asked == "'my robot.xml' 'a b.npz' --map m.json --machine.fixed --machine.kp 20.0"


def test_a_log_of_another_robot_is_refused(exact):
    log = Recorded.load(exact)
    names = log.meta["names"] | {"joint_pos": ["x", "y"], "joint_vel": ["x", "y"]}
    with pytest.raises(SurefootError, match="is it a log of another robot"):
        machine.Machine().world("balance", None, replace(log, meta=log.meta | {"names": names}))


def test_a_policy_without_a_latent_is_refused_by_adapt(run):
    with pytest.raises(SurefootError, match="this policy has no latent"):
        Adapt(run, episodes=20).run(unwatched)


def test_explore_refuses_an_unknown_that_the_task_does_not_have():
    with pytest.raises(SurefootError, match="did you mean cart_mass"):
        Explore("balance", ("cart_mas",)).run(unwatched)


def test_the_prior_of_believe_opens_what_is_learned_and_fixes_the_rest(exact):
    _, prior = Believe("balance", exact, learn=("cart_mass",))._prior(Recorded.load(exact))
    wide = prior.high > prior.low
    assert [n for n, w in zip(prior.params.names, wide) if w] == ["cart_mass"]


def test_what_is_learned_from_a_log_goes_beside_it(exact, tmp_path):
    assert folder(None, Path("logs/flight.npz"), "missing") == Path("logs/flight-missing")
    (tmp_path / "file").write_text("")
    for verb in (
        Missing("balance", exact, out=tmp_path / "file" / "x"),
        Delta("balance", exact, out=tmp_path / "file" / "x"),
        Actuator("balance", exact, out=tmp_path / "file" / "x.json"),
        Cross("balance", out=tmp_path / "file" / "x"),
    ):
        with pytest.raises(SurefootError, match="--out"):
            verb.run(unwatched)


def test_cross_without_episodes_is_refused_before_training(tmp_path):
    with pytest.raises(SurefootError, match="--episodes: expected at least 1, found 0"):
        Cross("balance", episodes=0, out=tmp_path / "x").run(unwatched)


def test_the_style_of_pages_loads_nothing_and_its_braces_match():
    assert CSS.count("{") == CSS.count("}") and "url(" not in CSS and "@import" not in CSS
    assert "prefers-color-scheme:dark" in CSS and "@media print" in CSS


def test_facts_are_plain_values(exact):
    import json

    assert np.isfinite(json.loads(json.dumps(Log(exact).run(unwatched).facts))["duration"])
