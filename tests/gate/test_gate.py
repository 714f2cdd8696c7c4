"""The gate as a person, a program and a CI service use it, with a hand-written policy that balances a pole."""

import json
import shutil
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from surefoot import tasks
from surefoot.cli import main
from surefoot.errors import SurefootError
from surefoot.gate import gate as of_gate
from surefoot.gate.candidate import candidate
from surefoot.gate.checks import Limits
from surefoot.gate.gate import gate
from surefoot.gate.junit import junit
from surefoot.gate.plan import Plan
from surefoot.gate.results import Results, following
from surefoot.gate.runs import Runs
from surefoot.gate.statistics import Estimate
from surefoot.gate.statistics.rare_failures import without_search
from surefoot.gate.statistics.sequential import anytime
from surefoot.learn.nets import export
from surefoot.learn.nets.policy_net import linear
from surefoot.report import unwatched
from surefoot.rng import judging
from surefoot.tasks.rollout import contract, evaluate
from surefoot.verdict import Check, Verdict

QUICK = Plan(threads=1, episodes=50, per_load=10, motion=5, repeats=2, search=(20, 10, 20))


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A good law, and one with its sign turned."""
    folder = tmp_path_factory.mktemp("runs")
    task = tasks.resolve("balance")
    c = contract(task, tasks.env(task, 1).world)
    for name, sign in (("good", 1.0), ("bad", -1.0)):
        export.save(linear(c, {"cart_pole": sign * np.array([[1.0, 2.0, 20.0, 4.0]])}), folder / name)
    (folder / "good.onnx").write_bytes((folder / "good" / "policy.onnx").read_bytes())
    return folder


def short(who):
    """The same candidate with episodes of 3 s."""
    return replace(who, task=replace(who.task, seconds=3.0, window=3.0))


def judged(path, plan=QUICK, limits=None, belief=None, **kw):
    who = short(candidate(path, **kw))
    return gate(who, belief or tasks.nominal(who.task), plan, limits or Limits())


def test_the_next_command_can_be_typed_as_it_is(runs, tmp_path, monkeypatch, capsys):
    """A folder's name is no command, and a task that is code is named again, as the user gave it; never as a run does."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(runs / "good", "a; touch b")
    Path("my.py").write_text("from surefoot import tasks\nfrom surefoot.task import Task\ndef task() -> Task:\n    return tasks.resolve('balance')\n")  # fmt: skip
    Path("a; touch b/run.json").write_text(json.dumps({"task": "evil.py"}))
    assert main(["export", "a; touch b"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "next: surefoot gate 'a; touch b'"
    assert main(["export", "a; touch b", "--task", "my.py"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "next: surefoot gate 'a; touch b' --task my.py"
    who = candidate(Path("a; touch b"), "my.py")
    assert who.task_flag == " --task my.py" and candidate(Path("a; touch b")).task_flag == ""


def test_a_law_that_holds_the_pole_passes_and_its_numbers_are_those_of_an_evaluation(runs):
    verdict = judged(runs / "good")
    lines = {c.name: c for c in verdict.checks}
    assert verdict.holds and verdict.next_step == f"surefoot export {runs / 'good'}"
    assert {"success, nominal", "torque at its limit", "action change", "latency margin", "push margin"} <= set(lines)
    assert all(c.evidence for c in verdict.checks) and lines["success, nominal"].low == pytest.approx(
        anytime(50, 50)[0]
    )
    assert verdict.meta["skipped"]["belief"] == "the belief fixes every unknown"
    who = short(candidate(runs / "good"))
    again = evaluate(who.policy, tasks.env(who.task, 50, seed=judging(QUICK.seed), threads=1))
    assert lines["success, nominal"].value == again.rate == 1.0
    assert json.loads(json.dumps(verdict.to_json()))["holds"] and Verdict.from_json(verdict.to_json()) == verdict


def test_an_onnx_of_ours_gets_the_verdict_of_its_net(runs):
    a, b = judged(runs / "good"), judged(runs / "good.onnx")
    assert [(c.name, c.holds) for c in a.checks] == [(c.name, c.holds) for c in b.checks]
    assert a.checks[0].value == b.checks[0].value and b.meta["parents"]["policy"] == a.meta["parents"]["policy"]


def test_a_failure_in_the_nominal_world_ends_the_gate(runs):
    verdict = judged(runs / "bad")
    assert not verdict.holds and [c.name for c in verdict.checks] == ["success, nominal"]
    assert "pole fell 50" in verdict.checks[0].evidence and verdict.checks[0].high < 0.11
    assert verdict.meta["skipped"]["all other checks"] and not verdict.meta["contract_faults"]


def test_over_a_belief_it_names_the_worlds_it_fails_in(runs):
    """With latency up to 80 ms and all else nominal, latency separates failures from successes."""
    from surefoot.belief import Box

    who = short(candidate(runs / "good"))
    belief = Box.ranges(who.task.params, {"latency": (0.0, 0.08), "cart_mass": (0.9, 1.1)})
    verdict = judged(runs / "good", replace(QUICK, repeats=20), belief=belief)
    lines = {c.name: c for c in verdict.checks}
    assert not lines["success, belief"].holds
    assert lines["worst decile"].value <= lines["success, belief"].value
    by = verdict.meta["evidence"]["belief"]["separation"]
    assert (by["unknown"], by["side"]) == ("latency", "high") and by["auc"] > 0.7
    assert verdict.meta["why"][0].startswith("success, belief: latency separates failures from successes: ")
    assert 0.0 < by["at"] < 0.08 and by["beyond"] < lines["success, belief"].value < by["within"]
    assert verdict.next_step == f"surefoot sweep {runs / 'good'} --over latency"
    low, high = lines["rare failures"].low, lines["rare failures"].high
    assert low <= 1 - lines["success, belief"].value <= high or lines["rare failures"].value > 0.1


def test_all_worlds_have_the_same_episodes(runs):
    """A reality without ingredients is the nominal world bit for bit, and so are its episodes."""
    from surefoot.gate.gate import _Gate
    from surefoot.gate.runs import episodes
    from surefoot.sim.realities import Reality

    who = short(candidate(runs / "good"))
    worlds = _Gate(who, tasks.nominal(who.task), QUICK, Limits(), Results(), unwatched)
    there = episodes(who.policy, worlds._real(Reality(3))(20, 9))
    home = episodes(who.policy, worlds._env(None, "mujoco")(20, 9))
    assert np.array_equal(there.error, home.error) and np.array_equal(there.success, home.success)
    finer = episodes(who.policy, worlds._env(None, "mujoco:half-step")(20, 9))
    assert np.array_equal(finer.e, home.e) and not np.array_equal(finer.error, home.error)


def test_each_engine_and_reality_has_a_check(runs):
    plan = replace(QUICK, engines=("mujoco", "mujoco:rk4"), realities=(0, 1))
    verdict = judged(runs / "good", plan)
    names = [c.name for c in verdict.checks]
    assert "success, engine mujoco:rk4" in names and "success, reality 0" in names and "success, reality 1" in names
    made = next(c for c in verdict.checks if c.name == "success, reality 0").evidence.split("ingredients: ")[1]
    assert 3 <= len(made.split(", ")) <= 5


def test_a_claim_that_the_episodes_cannot_support_is_refused_before_any_is_run(runs, capsys):
    for episodes in ("50", "298"):
        assert main(["gate", str(runs / "good"), "--claim", "0.99", "--episodes", episodes]) == 2
        assert "it takes 299" in capsys.readouterr().err
    Plan(episodes=299, claim=0.99)
    with pytest.raises(SurefootError, match="it takes 59"):
        Plan(episodes=58, claim=0.95)


def test_a_claim_is_judged_by_all_of_its_episodes(runs):
    from surefoot.belief import Box

    who = short(candidate(runs / "good"))
    belief = Box.ranges(who.task.params, {"cart_mass": (0.9, 1.1)})
    verdict = judged(runs / "good", replace(QUICK, episodes=59, claim=0.95), belief=belief)
    line = next(c for c in verdict.checks if c.name.startswith("claim"))
    assert line.holds and "0 of 59 episodes failed" in line.evidence
    assert line.high == pytest.approx(1 - 0.05 ** (1 / 59))  # the exact one-sided bound of no failure in 59


def test_stopped_by_hand_it_keeps_the_checks_that_are_done_and_fails(runs):
    who, said = short(candidate(runs / "good")), []

    def say(progress):
        said.append(progress)
        if progress.doing.startswith("latency margin"):
            raise KeyboardInterrupt

    verdict = gate(who, tasks.nominal(who.task), QUICK, Limits(), say)
    assert verdict.meta["interrupted"] and verdict.checks[0].holds and len(verdict.checks) >= 3
    assert not any(c.name == "latency margin" for c in verdict.checks)
    assert not verdict.holds and verdict.checks[-1].name == "completed"  # also in gate.json and for CI


def test_the_verb_exits_by_its_verdict_and_leaves_page_json_and_junit(runs, tmp_path, capsys, monkeypatch):
    from surefoot.verbs.judge.gate import Gate

    whole = Gate._plan
    monkeypatch.setattr(Gate, "_plan", lambda self: replace(whole(self), per_load=10, motion=5))
    asked = ["--belief", "nominal", "--episodes", "50", "--out", str(tmp_path), "--junit", str(tmp_path / "j.xml"), "--threads", "1", "--json"]  # fmt: skip
    assert main(["gate", str(runs / "good"), *asked, "--limit", "latency=1"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["holds"] and json.loads((tmp_path / "gate.json").read_text())["checks"] == facts["checks"]
    text = (tmp_path / "gate.html").read_text()
    assert f"PASS: {len(facts['checks'])} of {len(facts['checks'])} checks" in text and "<svg" in text
    assert "http://" not in text and "https://" not in text and "<script" not in text
    suite = ET.parse(tmp_path / "j.xml").getroot()[0]
    assert int(suite.get("failures")) == 0 and len(suite) == int(suite.get("tests")) >= len(facts["checks"])
    assert main(["gate", str(runs / "bad"), *asked]) == 1
    facts = json.loads(capsys.readouterr().out)
    assert not facts["holds"] and "FAIL: 1 of 1 checks: success, nominal" in (tmp_path / "gate.html").read_text()
    assert ET.parse(tmp_path / "j.xml").getroot()[0].get("failures") == "1"


@pytest.mark.parametrize(
    "words, message",
    [
        (["--in", "mujocco"], "did you mean mujoco"),
        (["--reality", "some"], "expected a seed (0, 1, ...) or `all`"),
        (["--limit", "latencyy=2"], "did you mean latency"),
        (["--limit", "success=2"], "expected a rate between 0 and 1"),
        (["--claim", "99"], "expected a success rate from 0.5"),
        (["--episodes", "3"], "expected at least 20"),
        (["--model", "robot.xml"], "has its own contract"),
        (["--limits", "nowhere.json"], "no such file"),
    ],
)
def test_bad_input_is_exit_code_2_with_the_nearest_name(runs, capsys, words, message):
    assert main(["gate", str(runs / "good"), *words]) == 2
    assert message in capsys.readouterr().err


def test_junit_shows_what_failed_and_holds_hostile_names():
    verdict = Verdict(
        (
            Check("fine", 1.0, 0.9, True, "50 of 50", 0.93, 1.0),
            Check('<script>"&\x00', 12.0, 20.0, False, "]]> half fall \x1b", 12.0, 16.0, "ms"),
        ),
        "",
        "a policy",
        {"seconds": 3.0, "skipped": {"speed": "no joint"}},
    )
    suite = ET.fromstring(junit(verdict))[0]
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("3", "1", "1")
    failed = suite[1]
    assert failed.get("name") == '<script>"&' and failed[0].get("message") == "12 ms (12 .. 16), limit 20 ms"
    assert failed[0].text == "]]> half fall "


def test_limits_come_from_a_file_and_are_checked(tmp_path):
    limits = Limits().with_({"latency": 2, "push": 0.5}, "limits.json")
    assert limits.latency == 2.0 and limits.push == 0.5 and limits.success == 0.9
    with pytest.raises(SurefootError, match="did you mean joint_speed"):
        Limits().with_({"joint_sped": 1}, "limits.json")
    with pytest.raises(SurefootError, match="expected a number, found 'x'"):
        Limits().with_({"push": "x"}, "limits.json")


def test_a_teacher_has_observations_that_no_robot_has():
    task = tasks.resolve("balance")
    teacher, world = tasks.with_override(task, tasks.ObsOverride(also=("e",))), tasks.env(task, 1).world
    assert tasks.privileged(contract(task, world)) == []
    assert tasks.privileged(contract(teacher, world)) == ["e"]


def test_where_nothing_can_be_written_it_is_said_before_minutes_are_spent(runs, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert main(["gate", str(runs / "good"), "--out", str(tmp_path / "file" / "x")]) == 2
    assert "expected a folder that can be written to" in capsys.readouterr().err


def test_the_ci_example_calls_the_gate_with_flags_that_exist():
    import re
    from pathlib import Path

    from surefoot.cli import _parse

    yaml = pytest.importorskip("yaml", reason="needs the export extra")
    text = (Path(__file__).parents[2] / "examples" / "ci" / "policy-gate.yml").read_text()
    steps = yaml.safe_load(text)["jobs"]["gate"]["steps"]
    lines = [s["run"] for s in steps if "surefoot gate" in s.get("run", "")]
    asked = _parse(re.sub(r"\$\{\{.*?\}\}", "hover", lines[0]).split()[1:])
    assert len(lines) == 1 and asked.reality == ("all",) and asked.junit is not None


def test_the_next_command_names_what_failed(runs):
    """A reality by its seed, an unknown by its name, a policy from elsewhere with its flags."""
    who, again = candidate(runs / "good"), "surefoot gate p.onnx --model r.xml"
    bad = Check("success, reality 7", 0.1, 0.5, False, "")
    assert "--reality 7 --tell" in following(who, Results([bad], failed_realities=[7]), again)
    over = Check("success, belief", 0.1, 0.5, False, "")
    assert following(who, Results([over], separating="two words"), again).endswith("--over 'two words'")
    strange = replace(who, given=object())
    assert following(strange, Results([Check("success, nominal", 1, 0.9, True, "")]), again) == f"{again} --reality all"


def test_a_gate_that_is_killed_leaves_the_checks_that_were_done(runs):
    """After each check the verdict is that of a gate which ends there; the last of them has all but the end."""
    kept = []
    verdict = gate(
        short(candidate(runs / "good")), tasks.nominal(tasks.resolve("balance")), QUICK, Limits(), keep=kept.append
    )
    assert [len(v.checks) for v in kept] == [n + 1 for n in range(1, len(verdict.checks) + 1)]
    assert all(v.checks[-1].name == "completed" and not v.holds and v.meta["interrupted"] for v in kept)
    assert kept[-1].checks[:-1] == verdict.checks and not verdict.meta["interrupted"]


def test_the_whole_gate_says_how_much_of_it_is_done(runs):
    shares = []
    gate(
        short(candidate(runs / "good")),
        tasks.resolve("balance").belief,
        QUICK,
        Limits(),
        lambda p: shares.append(p.share),
    )
    assert shares == sorted(shares) and shares[0] < 0.2 and 0.8 < shares[-1] <= 1.0


def test_an_episode_that_has_ended_is_not_simulated_further_and_changes_no_other():
    """Poles that nobody holds fall at different times; all numbers are those of stepping every pole to the last fall."""
    from surefoot.policy import Driver, Zero

    task = tasks.resolve("balance")
    policy = Zero(contract(task, tasks.env(task, 1).world))
    found = evaluate(policy, tasks.env(task, 12, task.belief, 3, threads=1))
    env = tasks.env(task, 12, task.belief, 3, threads=1)
    obs, drive, lengths = env.reset(), Driver(policy, 12), np.zeros(12)
    for _ in range(int(found.lengths.max())):
        step = env.step(drive(obs["actor"]))
        obs = step.obs
        for i, n in zip(*(step.episodes.ids, step.episodes.lengths) if step.episodes is not None else ((), ())):
            lengths[i] = lengths[i] or n
    assert np.array_equal(lengths, found.lengths) and np.ptp(lengths) > 5


@pytest.mark.parametrize("failures", [2, 5])
def test_a_failure_rate_near_its_limit_is_decided_by_more_worlds(runs, monkeypatch, failures):
    """Of each 50 worlds 2 or 5 fail, and the limit is a tenth: at 4 % it is decided as soon as the bound is below it; at
    10 % never."""
    task = tasks.resolve("balance")
    batch = Runs(
        np.arange(50) >= failures, np.ones(50), np.ones(50, bool), np.zeros(50), task.belief.sample(np.random.default_rng(0), 50), {}
    )  # fmt: skip

    def unknown(score, belief, seed, *n, level, drawn):
        return without_search(drawn, Estimate(0.1, 0.0, 1.0, 200, level, ""))

    monkeypatch.setattr(of_gate, "episodes", lambda *a, **kw: batch)
    monkeypatch.setattr(of_gate, "search", unknown)
    who = candidate(runs / "good")
    it = of_gate._Gate(who, task.belief, Plan(threads=1), Limits(), Results(), unwatched)
    check = it._rare_failures(batch + batch + batch + batch, decides=True)
    first = next((n for n in range(200, 800, 50) if anytime(failures * n // 50, n, 0.975)[1] <= 0.1), 800)
    assert f"{failures * first // 50} of {first} drawn worlds fail" in check.evidence
    assert check.holds == (failures == 2) == (first < 800)
    failed_already = it._rare_failures(batch + batch + batch + batch, decides=False)
    assert f"{4 * failures} of 200 drawn worlds fail" in failed_already.evidence
