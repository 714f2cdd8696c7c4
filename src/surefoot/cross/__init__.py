"""cross: from a model to a policy that works on a robot which is known only through its logs.

    while the driver does not stop:  step = drive(journal);  journal = journal + work(step)

driver.py decides, work.py carries out, journal.py keeps every stage on disk, robot.py is the robot.
"""

import time
from dataclasses import replace

from surefoot.cross.driver import Driver, Step, drive
from surefoot.cross.journal import Budget, Journal, Stage
from surefoot.cross.robot import HiddenRobot, LinkedRobot, Rate, Robot
from surefoot.cross.work import WORK, Crossing, Question, best, measured
from surefoot.report import Progress, Watch, unwatched

__all__ = [
    "Budget", "Crossing", "HiddenRobot", "Journal", "LinkedRobot", "Question", "Rate", "Robot", "Stage", "Step", "carry_out", "cross",
]  # fmt: skip


def cross(question: Question, robot: Robot, watch: Watch = unwatched, driver: Driver = drive) -> Crossing:
    """Run the loop to its end, or go on with it; the journal's folder has all that was made."""
    journal = Journal.open(question.out, question.asked(), question.budget)
    while True:
        step = driver(journal)
        if step.name == "stop":
            break
        try:
            journal = carry_out(step, question, journal, robot, watch)
        except BudgetSpent as spent:
            step = Step("stop", str(spent))
            break
    watch(Progress("measuring the first and the last policy on the robot"))
    done = Crossing(question, journal, step.why)
    before, after = (measured(question, robot, run, journal) for run in (done.first, best(journal)))
    return replace(done, before=before, after=after)


def carry_out(step: Step, question: Question, journal: Journal, robot: Robot, watch: Watch = unwatched) -> Journal:
    """One step, and the journal with what came of it."""
    watch(Progress(f"{len(journal.stages) + 1}. {step.name}: {step.why}", stays=True))
    began = time.monotonic()
    left = journal.budget.compute - journal.seconds
    stage = WORK[step.name](question, journal, robot, _within(left, watch, step.name))
    journal = journal.add(replace(stage, seconds=time.monotonic() - began))
    watch(Progress(f"   {stage.found}", stays=True))
    return journal


class BudgetSpent(Exception):
    """The budget of compute ended within a training, which is saved."""


def _within(left: float, watch: Watch, stage: str) -> Watch:
    """A watch that ends a training when `left` seconds are over; shorter work is done to its end."""
    until = time.monotonic() + left

    def watching(event: Progress) -> None:
        watch(event)
        if event.metrics and (event.share or 0.0) < 1.0 and time.monotonic() > until:
            raise BudgetSpent(
                f"the budget is spent: its time of compute ended in stage {stage}; given more, that stage goes on where it is"
            )

    return watching
