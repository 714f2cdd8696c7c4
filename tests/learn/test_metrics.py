"""What is logged of a training: every reward term by itself, and where it goes."""

import json
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from surefoot import tasks
from surefoot.cli import main
from surefoot.learn.collect import LocalCollector
from surefoot.learn.train import settings_for, train
from surefoot.task import Reward

SMALL = {"envs": 16, "horizon": 8, "steps": 256, "minibatches": 2, "hidden": (16,)}


def act(obs, draws):
    return np.zeros((len(obs["actor"]), 4)), {}


def test_the_logged_terms_are_the_weighted_means_a_second_of_what_each_reward_computes():
    """Worked out here from the moments an env shows, and summing to the reward where no floor is."""
    task = tasks.resolve("hover")
    shown = {k: [] for k in task.rewards}
    noting = {k: Reward(r.weight, _noting(r.compute, shown[k]), r.about) for k, r in task.rewards.items()}
    env = tasks.env(replace(task, rewards=noting), 5, task.belief, 3)
    collector = LocalCollector(env)
    r = collector.collect(act, 20)
    means = {f"reward/{k}": task.rewards[k].weight * np.mean(values[-20:]) for k, values in shown.items()}
    assert collector.terms == pytest.approx(means)
    assert sum(collector.terms.values()) == pytest.approx(r.reward.mean() / env.world.dt)


def _noting(compute, shown):
    def noted(s):
        shown.append(compute(s))
        return shown[-1]

    return noted


def test_every_term_is_in_metrics_and_on_the_board_and_they_sum_to_the_reward(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    train("hover", tmp_path / "r", settings=settings_for("hover", SMALL))
    rows = [json.loads(line) for line in (tmp_path / "r" / "metrics.jsonl").read_text().splitlines()]
    names = {f"reward/{k}" for k in tasks.resolve("hover").rewards}
    for row in rows:
        assert names <= set(row)
        assert sum(row[k] for k in names) == pytest.approx(
            row["reward"], rel=1e-5
        )  # rewards are kept in single precision
    board = EventAccumulator(str(tmp_path / "r"))
    board.Reload()
    assert names <= set(board.Tags()["scalars"])
    assert [e.value for e in board.Scalars("reward/near")] == pytest.approx([row["reward/near"] for row in rows])


def test_a_diverged_simulation_moves_no_logged_term():
    task = tasks.resolve("hover")
    env = tasks.env(task, 4, task.belief, 3)
    collector = LocalCollector(env)
    real = env.world.end

    def one_breaks():
        bad = real()
        env.world.state.q[2] = np.nan
        bad[2] = True
        return bad

    env.world.end = one_breaks
    collector.collect(act, 3)
    assert np.isfinite(list(collector.terms.values())).all() and abs(collector.terms["reward/lost"]) < 1e-9


class Board:
    """A stand-in for the wandb package, which is an extra and calls out: notes what it is asked."""

    def __init__(self):
        self.began, self.rows, self.ended = [], [], 0

    def init(self, **how):
        self.began.append(how)
        return SimpleNamespace(log=lambda row, step: self.rows.append((step, row)), finish=self._finish)

    def _finish(self):
        self.ended += 1


def test_metrics_go_to_wandb_only_where_asked_and_a_resumed_run_continues_its_own(tmp_path, capsys, monkeypatch):
    board = Board()
    monkeypatch.setitem(sys.modules, "wandb", board)
    small = ["--envs", "16", "--horizon", "8", "--steps", "256", "--minibatches", "2", "--hidden", "16"]
    run = str(tmp_path / "r")
    assert main(["train", "balance", "--out", str(tmp_path / "quiet"), *small]) == 0 and not board.began
    assert main(["train", "balance", "--out", run, "--wandb", "mine", *small]) == 0
    assert [step for step, _ in board.rows] == [1, 2] and "reward/upright" in board.rows[0][1] and board.ended == 1
    (tmp_path / "r" / "checkpoints" / "00000002.json").unlink()
    assert main(["train", "--resume", run, "--wandb", "mine"]) == 0
    first, again = board.began
    assert first["id"] == again["id"] and again["resume"] == "allow" and first["config"]["task"] == "balance"
    capsys.readouterr()


def test_without_the_package_the_extra_is_named(capsys, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "wandb", None)
    assert main(["train", "balance", "--wandb", "mine", "--out", str(tmp_path / "r")]) == 2
    assert "pip install 'surefoot[wandb]'" in capsys.readouterr().err and not (tmp_path / "r").exists()
