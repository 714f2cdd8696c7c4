"""Remedies that train: a teacher in a softer world, and the robot itself in every batch, within its budget."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from surefoot import tasks
from surefoot.cross.beliefs import searched
from surefoot.cross.journal import Budget, Journal, Stage
from surefoot.cross.robot import HiddenRobot, LinkedRobot, Rate
from surefoot.cross.work import LONGER, SHORT, WORK, Question, fitted_part, learned_of_robot, whole_windows
from surefoot.errors import LogError
from surefoot.learn.run.parents import spec_of
from surefoot.real2sim.identify import identify
from surefoot.report import unwatched
from surefoot.sim.realities import Reality, hidden

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
    before, last = journal.stages[-2:]
    good = Journal(journal.out / "b", journal.budget, (*journal.stages[:-2], replace(before, sim=Rate(8, 8))))
    kept = WORK["anew"](question, good, robot, unwatched)
    assert last.sim.value < 1 and kept.facts["run"] == before.facts["run"] and kept.sim == Rate(8, 8)  # the better one


def test_exploring_uses_all_of_its_time_on_a_robot_that_falls_at_once(asked):
    """A pole that a policy of two batches cannot hold: many short episodes, the last one cut."""
    question, journal, robot = asked
    journal = done(question, journal, robot, "train", "explore")
    stage = journal.stages[-1]
    assert stage.name == "explore" and 9.8 <= stage.robot_seconds <= 10.0 + 1e-9
    assert len(stage.facts["ended"]) >= 1 and sum(stage.facts["ended"].values()) > 3


def test_a_log_without_long_windows_is_fitted_in_shorter_ones(asked):
    """Every reading at which a window of 0.4 s would begin is lost."""
    question, journal, _ = asked
    robot = HiddenRobot(question.task, Reality(0, {}))
    log = fitted_part(done(question, journal, robot, "train", "explore"))[0]
    begins = np.flatnonzero(np.diff(log.time, prepend=-1.0) > 0.03)  # of episodes
    lost = (np.arange(len(log)) - begins[np.searchsorted(begins, np.arange(len(log)), "right") - 1]) % 20 == 0
    holes = {k: np.where(lost[:, None], np.nan, log[k]) for k in ("joint_pos", "joint_vel")}
    logs = [replace(log, columns=log.columns | holes)]
    world, wide = tasks.env(question.task, 1).world, searched(question.task)
    with pytest.raises(LogError, match="no 20 consecutive steps"):
        identify(world, wide, logs, LONGER, warn=False)
    by_either, by_short = (whole_windows(world, wide, logs, w, unwatched) for w in ((LONGER, SHORT), (SHORT,)))
    assert (by_either.belief.estimate() == by_short.belief.estimate()).all()
