"""Remedies that train: a teacher in a softer world, and the robot itself in every batch, within its budget."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from surefoot import tasks
from surefoot.cross.beliefs import searched
from surefoot.cross.journal import Budget, Journal, Stage
from surefoot.cross.robot import HiddenRobot, LinkedRobot
from surefoot.cross.work import LONGER, WORK, Question, fitted_part, learned_of_robot
from surefoot.errors import LogError
from surefoot.learn.run.parents import spec_of
from surefoot.log import Log
from surefoot.real2sim.identify import identify
from surefoot.report import unwatched
from surefoot.sim.realities import hidden

STEPS = 4096  # two batches of balance


@pytest.fixture
def asked(tmp_path: Path):
    task = tasks.resolve("balance")
    question = Question(task, "balance", tmp_path, "hidden", Budget(robot=40.0), steps=STEPS, episodes=8, threads=1)
    return question, Journal.open(tmp_path, question.asked(), question.budget), HiddenRobot(task, hidden(1, task))


def done(question, journal, robot, *names):
    for name in names:
        journal = journal.add(WORK[name](question, journal, robot, unwatched))
    return journal


def test_a_policy_is_fine_tuned_on_the_robot_for_no_longer_than_its_budget_allows(asked):
    question, journal, robot = asked
    journal = done(question, journal, robot, "train", "finetune", "train")
    spec = spec_of(journal.stages[-1].facts["run"])
    assert spec.robot is not None and spec.robot.reality == robot.reality
    assert spec.start.run == str(Path(journal.stages[0].facts["run"]).absolute())
    assert journal.stages[1].facts["seconds"] == 30.0  # 10 of 40 are left to try it
    rows, horizon, dt = 3, 32, 0.02  # 5 % of 64
    assert journal.robot_seconds == pytest.approx(2 * rows * horizon * dt)  # both batches
    short = Stage("finetune", "", {"seconds": 2.5, "dt": dt})
    again = WORK["train"](
        question, Journal(journal.out / "b", journal.budget, (*journal.stages[:1], short)), robot, unwatched
    )
    assert again.robot_seconds == pytest.approx(rows * horizon * dt) and again.robot_seconds <= 2.5


def test_a_robot_at_an_address_is_not_driven_by_a_policy_that_learns(asked):
    question, journal, _ = asked
    stage = WORK["finetune"](question, journal, LinkedRobot(question.task, "udp://127.0.0.1:1"), unwatched)
    assert "simulated robot only" in stage.facts["refused"]


def test_a_student_imitates_the_teacher_of_the_support_world(asked):
    question, journal, robot = asked
    journal = done(question, journal, robot, "support", "train")
    teacher, student = (spec_of(journal.stages[k].facts[name]) for k, name in enumerate(("teacher", "run")))
    assert teacher.easy is not None and teacher.forward is not None
    assert student.reference and student.easy is None and student.start is None


def test_a_delta_that_was_learned_counts_as_learned_and_one_that_was_refused_does_not(asked):
    """What is trained after it stands behind the runtime's limiter, as everything for a robot does."""
    journal = asked[1]
    assert "delta" in WORK and not learned_of_robot(journal)
    assert not learned_of_robot(journal.add(Stage("delta", "", {"refused": "nothing explained"})))
    assert learned_of_robot(journal.add(Stage("delta", "", {"term": "delta"})))


def test_a_training_begun_anew_starts_from_no_policy_and_has_all_of_its_steps(asked):
    """Four trainings: those after the third have half of the steps, and go on from the one before."""
    question, journal, robot = asked
    known = {"belief": str(journal.out / "belief.json")}
    question.task.belief.write(journal.out / "belief.json")
    journal = done(question, journal, robot, "train", "train", "train")
    journal = done(question, journal.add(Stage("identify", "", known)), robot, "train", "anew")
    after, again = (spec_of(stage.facts["run"]) for stage in journal.stages[-2:])
    assert after.start is not None and after.settings.steps == STEPS // 2
    assert again.start is None and again.settings.steps == STEPS
    assert journal.stages[-1].name == "train" and journal.stages[-1].facts["anew"]
    assert after.belief == again.belief


def test_exploring_uses_all_of_its_time_on_a_robot_that_falls_at_once(asked):
    """A pole that a policy of two batches cannot hold: many short episodes, the last one cut."""
    question, journal, robot = asked
    journal = done(question, journal, robot, "train", "explore")
    stage = journal.stages[-1]
    assert stage.name == "explore" and 9.8 <= stage.robot_seconds <= 10.0 + 1e-9
    assert len(stage.facts["ended"]) >= 1 and sum(stage.facts["ended"].values()) > 3


def test_a_log_with_many_holes_is_fitted_in_shorter_windows(asked):
    """Of fifteen readings three in a row are lost: no 20 rows are without a gap, of which 0.4 s consist."""
    question, journal, robot = asked
    journal = done(question, journal, robot, "train", "explore")
    log = Log.load(journal.stages[-1].facts["log"])
    lost = np.arange(len(log)) % 15 >= 12
    holes = {k: np.where(lost[:, None], np.nan, log[k]) for k in ("joint_pos", "joint_vel")}
    replace(log, columns=log.columns | holes).save(Path(journal.stages[-1].facts["log"]))
    logs, world = fitted_part(journal), tasks.env(question.task, 1).world
    with pytest.raises(LogError, match="no 20 consecutive steps"):
        identify(world, searched(question.task), logs, LONGER, warn=False)
    assert not WORK["identify"](question, journal, robot, unwatched).facts.get("refused")
