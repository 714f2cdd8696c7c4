"""`--learner auto` is PPO, unless a recorded race over a task's belief says otherwise."""

import json
from pathlib import Path

import pytest

from surefoot import tasks
from surefoot.cli import _parse
from surefoot.learn.off_policy.settings import FastTD3Settings
from surefoot.learn.runspec import LEARNERS
from surefoot.learn.settings import PPOSettings

RECORD = Path(__file__).parents[3] / "benchmarks" / "results" / "learners.json"
BELIEF = ("walk",)  # races over the belief; a nominal world says nothing of it


@pytest.mark.parametrize("name", tasks.names())
def test_auto_follows_the_record(name):
    task = tasks.resolve(name)
    assert task.learner in LEARNERS and set(task.learners) <= set(LEARNERS) - {"ppo", "distill"}
    if task.learner != "ppo":
        rows = {r["name"]: r for r in json.loads(RECORD.read_text())["parts"][name]["rows"]}
        assert name in BELIEF and rows[f"{name}: {task.learner}'s CPU time / PPO's"]["holds"]


def test_auto_is_the_tasks_choice_and_ppo_where_only_ppo_can_do_what_is_asked():
    from dataclasses import replace

    task = replace(tasks.resolve("arm"), learner="fasttd3")
    chosen = lambda *words: type(_parse(["train", "arm", *words])._learner(task))  # noqa: E731
    assert chosen() is FastTD3Settings and chosen("--learner", "ppo") is PPOSettings
    assert chosen("--adapt", "rma") is PPOSettings and chosen("--steps", "1000") is PPOSettings
    assert "--steps only goes with PPO" in next(_parse(["train", "arm", "--steps", "4096"])._notes(task))
