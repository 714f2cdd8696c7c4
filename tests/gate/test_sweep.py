"""Success against one unknown."""

import json

import numpy as np
import pytest

from surefoot import tasks
from surefoot.belief import point
from surefoot.cli import main
from surefoot.errors import SurefootError
from surefoot.gate.measures.sweep import PerPoint, Points, price, sweep, values_over
from surefoot.learn.nets import export
from surefoot.learn.nets.policy_net import linear
from surefoot.policy import Policy, Zero
from surefoot.tasks.rollout import contract, evaluate
from surefoot.verbs.judge.sweep import table


class Feedback(Policy):
    """A pole is caught by u = k . x while the motor is strong enough, and thrown over when its sign is wrong."""

    def __init__(self, c, sign: float = 1.0):
        self.contract, self.sign = c, sign

    def step(self, s, obs: np.ndarray):
        return s, np.clip(self.sign * obs @ np.array([[0.1], [0.2], [2.0], [0.4]]), -1, 1)


def hands():
    task = tasks.resolve("balance")
    c = contract(task, tasks.env(task, 1).world)
    return task, {"catches": Feedback(c), "nobody": Zero(c)}


def test_a_sweep_finds_where_a_controller_ends_and_gives_exact_intervals():
    task, policies = hands()
    facts = sweep(policies, task, Points("latency", np.array([0.0, 0.02, 0.08]), tasks.nominal(task), 20, seed=3))
    good, bad = facts["policies"]["catches"], facts["policies"]["nobody"]
    assert [p["success"] for p in good][:2] == [1.0, 1.0] and good[2]["success"] < 0.5
    assert all(
        p["success"] == 0.0 and p["low"] == 0.0 and p["high"] == pytest.approx(1 - 0.025 ** (1 / 20)) for p in bad
    )
    assert facts["nominal"] == 0.0 and facts["unit"] == "s"


def test_a_point_of_a_sweep_is_what_an_evaluation_there_says():
    task, policies = hands()
    facts = sweep(policies, task, Points("strength", np.array([0.3, 2.0]), tasks.nominal(task), 30, seed=3))
    e = task.params.vector({"strength": 0.3})
    alone = evaluate(policies["catches"], tasks.env(task, 30, point(task.params, e), 3))
    assert facts["policies"]["catches"][0]["return"] == pytest.approx(alone.returns.mean())


def test_values_are_even_in_ratio_on_a_log_scale_and_bad_ones_are_refused():
    walk = tasks.resolve("walk")
    assert np.allclose(np.diff(np.log(values_over(walk, "friction", 5))), np.log(16) / 4)
    assert np.allclose(values_over(walk, "payload", 3, -1.0, 3.0), [-1, 1, 3])
    for name, points, low, high, message in (
        ("frction", 3, None, None, "did you mean friction"),
        ("friction", 1, None, None, "at least 2"),
        ("friction", 3, 0.0, 1.0, "expected 0.1 <= low < high <= 1.6"),
        ("payload", 3, 3.0, 1.0, "found 3 and 1"),
    ):
        with pytest.raises(SurefootError, match=message):
            values_over(walk, name, points, low, high)


def test_the_verb_draws_a_page_beside_the_policy(tmp_path, capsys):
    small = ["--envs", "32", "--horizon", "8", "--steps", "512", "--hidden", "16", "--minibatches", "2"]
    for name in ("a", "b"):
        assert main(["train", "balance", "--out", str(tmp_path / name), *small]) == 0
    capsys.readouterr()
    runs = [str(tmp_path / "a"), str(tmp_path / "b")]
    assert main(["sweep", *runs, "--over", "cart_mass", "--points", "3", "--episodes", "5", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert list(facts["policies"]) == runs and len(facts["policies"][runs[0]]) == 3
    text = (tmp_path / "a" / "sweep-cart_mass.html").read_text()
    assert "cart_mass" in text and "<svg" in text and "http://" not in text
    assert main(["sweep", runs[0], "--over", "cart"]) == 2
    assert "did you mean cart_mass" in capsys.readouterr().err


def test_the_price_of_robustness_is_what_specialists_earn_more_and_they_are_trained_once(tmp_path, capsys):
    """Two worlds, two specialists of a few steps: the price is the mean of their return less the policy's."""
    run = str(tmp_path / "r")
    small = ["--envs", "8", "--horizon", "8", "--steps", "128", "--hidden", "8"]
    assert main(["train", "balance", "--belief", "nominal", *small, "--out", run, "--seed", "5", "--json"]) == 0
    asked = ["sweep", run, "--over", "gravity", "--points", "2", "--episodes", "6", "--specialists", "--json"]
    capsys.readouterr()
    assert main(asked) == 0
    facts = json.loads(capsys.readouterr().out)
    own, best = (np.array([p["returns"] for p in x]) for x in (facts["policies"][run], facts["specialists"]))
    d = (best - own).mean(0)
    found = facts["price"][run]
    assert own.shape == (2, 6) and found["mean"] == pytest.approx(np.mean(best) - np.mean(own))
    assert found["high"] - found["low"] == pytest.approx(
        2 * 2.5706 * d.std(ddof=1) / np.sqrt(6), rel=1e-4
    )  # t of 5 degrees
    card = json.loads((tmp_path / "r" / "specialists" / "gravity-16" / "run.json").read_text())
    assert card["belief"]["low"][0] == card["belief"]["high"][0] == 16.0 and card["settings"]["hidden"] == [8]
    assert card["seed"] == 5, "as the run was trained; not from the starts it is judged by"
    before = (tmp_path / "r" / "specialists" / "gravity-16" / "metrics.jsonl").read_text()
    assert main(asked) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["specialists"] == facts["specialists"]
    assert (tmp_path / "r" / "specialists" / "gravity-16" / "metrics.jsonl").read_text() == before
    page = (tmp_path / "r" / "sweep-gravity.html").read_text()
    assert "price of robustness" in page
    earned, shown = best.mean(1) - own.mean(1), table(facts)
    assert "specialists" in [c.name for c in shown.columns] and f"{earned[1]:.3g}" in shown.cells()[1]


def test_specialists_that_are_the_policy_itself_cost_nothing_in_any_episode():
    """The same worlds and starts, row by row: d_j is 0, not only its mean."""
    task, policies = hands()
    points = Points("gravity", np.array([8.0, 10.0, 13.0]), task.belief, 8, seed=3)
    facts = sweep(policies, task, points)
    same = PerPoint(policies["catches"].contract, (policies["catches"],) * 3)
    price_ = price(facts, same, task, points)["price"]
    assert price_["catches"]["mean"] == 0.0 and "are equal" in price_["catches"]["how"] and price_["nobody"]["low"] > 0


def test_what_cannot_be_priced_is_refused_before_anything_is_trained(tmp_path, capsys):
    task, policies = hands()
    c = policies["nobody"].contract
    export.save(linear(c, {"cart_pole": [[2.0, 4.0, 40.0, 10.0]]}), tmp_path)
    asked = ["sweep", str(tmp_path), "--over", "gravity", "--points", "2", "--specialists"]
    assert main([*asked, "--episodes", "1"]) == 2
    assert "at least 2 --episodes" in capsys.readouterr().err and not (tmp_path / "specialists").exists()
    assert main([*asked, "--episodes", "2"]) == 2
    assert "run.json: no such file: only a policy with its run" in capsys.readouterr().err


FILE = """
from dataclasses import replace
from surefoot import tasks
from surefoot.task import Task

def short() -> Task:
    return replace(tasks.named("balance"), name="short", seconds=1.0)
"""


def test_specialists_and_cross_take_a_task_that_is_a_file(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(FILE)
    small = ["--envs", "8", "--horizon", "8", "--steps", "128", "--hidden", "8"]
    assert main(["train", "mine.py", "--belief", "nominal", "--out", "r", *small]) == 0
    asked = [
        "sweep",
        "r",
        "--over",
        "gravity",
        "--points",
        "2",
        "--episodes",
        "3",
        "--specialists",
        "--task",
        "mine.py",
    ]
    assert main(asked) == 0
    assert json.loads((tmp_path / "r/specialists/gravity-16/run.json").read_text())["task"] == "mine.py"
    assert main(asked[:-3]) == 0  # a run finds the file that it was trained with
    capsys.readouterr()
    ranges = ["--range", "gravity=9..12", "--range", "latency=0", "--budget", "0.001 s of compute"]
    assert main(["cross", "mine.py", "--steps", "2048", "--episodes", "5", "--out", "c", *ranges]) in (0, 1)
    shown = capsys.readouterr().out
    assert shown.splitlines()[-1] == "next: surefoot play c/00-train"  # which finds mine.py by itself
    assert json.loads((tmp_path / "c/cross.json").read_text())["task"] == "short"
