"""The driver decides by what is known: cheap remedies first, and an end that says why."""

from dataclasses import replace
from pathlib import Path

import pytest

from surefoot import tasks
from surefoot.cross import HiddenRobot, Question, cross
from surefoot.cross.driver import alone, drive, skipping
from surefoot.cross.journal import Budget, Journal, Stage
from surefoot.cross.robot import Rate
from surefoot.cross.work import best
from surefoot.errors import SurefootError
from surefoot.sim.realities import hidden


def past(tmp_path, *stages, budget=Budget()):  # noqa: B008
    return Journal(tmp_path, budget, tuple(stages))


TRAIN, GATE = Stage("train", "", {"run": "r"}), Stage("gate", "")
FAILED = Stage("robot", "", {"log": "l", "run": "r"}, robot=Rate(0, 2), robot_seconds=7.0)
FITTED = {"fitted": {"mass": [1, 0, 2, True], "drag": [1, 0, 2, False]}, "open": 1}


def doctor(**facts):
    return Stage("doctor", "", {"kind": "latency", "branch": "timing"} | facts)


def treated(name, **facts):
    """A remedy, and another failure after it."""
    return [doctor(), Stage(name, "", facts), TRAIN, GATE, FAILED]


def test_a_policy_is_trained_gated_and_tried_before_anything_is_diagnosed(tmp_path):
    names = [drive(past(tmp_path, *s)).name for s in ((), (TRAIN,), (TRAIN, GATE), (TRAIN, GATE, FAILED))]
    assert names == ["train", "gate", "robot", "doctor"]


@pytest.mark.parametrize(("k", "n", "step"), [(6, 6, "stop"), (9, 10, "stop"), (5, 6, "doctor"), (0, 2, "doctor")])
def test_it_stops_where_nine_of_ten_episodes_succeed(tmp_path, k, n, step):
    assert drive(past(tmp_path, TRAIN, GATE, Stage("robot", "", robot=Rate(k, n)))).name == step


def succeeded(k, n, run="r"):
    return Stage("robot", "", {"log": "l", "run": run}, robot=Rate(k, n), robot_seconds=20.0)


@pytest.mark.parametrize(("k", "n"), [(1, 1), (3, 3), (5, 5)])
def test_a_success_in_few_episodes_is_fitted_to_as_well_and_tried_once_more(tmp_path, k, n):
    """The 95 % intervals of 1 of 1, 3 of 3 and 5 of 5 begin at 3, 29 and 48 %; that of 6 of 6 at 54 %."""
    begun = [TRAIN, GATE, succeeded(k, n)]
    step = drive(past(tmp_path, *begun))
    assert step.name == "identify" and f"{k} of {n} episodes, which says little" in step.why
    assert drive(past(tmp_path, *begun, Stage("identify", "", {"refused": "worse"}))).name == "stop"
    fitted = [*begun, Stage("identify", "", FITTED)]
    assert drive(past(tmp_path, *fitted)).name == "train"
    good = replace(TRAIN, sim=Rate(95, 100))
    assert drive(past(tmp_path, *fitted, good)).name == "gate"
    assert drive(past(tmp_path, *fitted, good, GATE)).name == "robot"
    assert drive(past(tmp_path, *fitted, good, GATE, succeeded(k, n))).name == "stop"
    assert drive(past(tmp_path, *fitted, good, GATE, FAILED)).name == "doctor"


def test_a_success_in_few_episodes_is_the_end_where_no_time_is_left_to_try_another_policy(tmp_path):
    begun = [TRAIN, GATE, succeeded(2, 2)]
    assert drive(past(tmp_path, *begun, budget=Budget(robot=25.0))).name == "stop"
    worse = replace(FAILED, facts={"log": "l", "run": "trained on"})
    assert best(past(tmp_path, *begun, Stage("identify", "", FITTED), TRAIN, GATE, worse)) == Path("r")


def test_a_policy_is_tried_only_where_an_episode_fits_in_what_is_left(tmp_path):
    """An episode of walk is 20 s: with 18 s left the budget is spent, on balance, whose episodes are 10 s, it is not."""
    for name, step in (("walk", "stop"), ("balance", "doctor")):
        question = Question(tasks.resolve(name), name, tmp_path, "hidden", Budget(robot=25.0))
        assert drive(past(tmp_path, TRAIN, GATE, FAILED, budget=question.budget)).name == step


def test_ranges_come_before_a_fit_and_a_fit_before_learned_physics(tmp_path):
    stages, tried = [TRAIN, GATE, FAILED], []
    for _ in range(12):
        step = drive(past(tmp_path, *stages, doctor(), budget=Budget(robot=1000.0)))
        if step.name == "stop":
            break
        tried.append(step.name)
        stages += treated(step.name, **(FITTED if step.name == "identify" else {}))
    assert tried[:3] == ["randomize", "identify", "identify"]  # a new log is a new fit


def test_a_fit_that_was_refused_leads_to_the_next_remedy(tmp_path):
    begun = [TRAIN, GATE, FAILED, *treated("randomize"), doctor(), Stage("identify", "", {"refused": "worse"})]
    assert drive(past(tmp_path, *begun)).name == "missing"
    nothing = [*begun, Stage("missing", "", {"refused": "nothing"})]
    assert drive(past(tmp_path, *nothing)).name == "finetune"
    assert drive(past(tmp_path, *nothing, Stage("finetune", "", {"refused": "at an address"}))).name == "stop"
    assert drive(past(tmp_path, *nothing, budget=Budget(robot=40.0))).name == "stop"  # 16 s are too few to learn from


def test_a_task_that_is_not_learned_in_its_own_simulation_is_first_learned_in_a_softer_one_once(tmp_path):
    poor, good = (replace(TRAIN, sim=Rate(k, 100)) for k in (10, 90))
    assert drive(past(tmp_path, good)).name == "gate"
    step = drive(past(tmp_path, poor))
    assert step.name == "support" and "10 % success in simulation" in step.why
    taught = [poor, Stage("support", "", {"teacher": "t"})]
    assert drive(past(tmp_path, *taught)).name == "train"
    assert drive(past(tmp_path, *taught, poor)).name == "gate"
    assert drive(past(tmp_path, replace(poor, seconds=700.0))).name == "gate"  # no compute is left


def test_a_training_from_the_last_policy_that_leads_nowhere_is_begun_anew_once(tmp_path):
    poor, good = (replace(TRAIN, sim=Rate(k, 100)) for k in (10, 90))
    begun = [good, GATE, FAILED, doctor(), Stage("identify", "", FITTED)]
    step = drive(past(tmp_path, *begun, poor))
    assert step.name == "anew" and "10 % success in simulation" in step.why
    assert drive(past(tmp_path, *begun, good)).name == "gate"
    again = replace(poor, facts={"run": "r", "anew": True})
    assert drive(past(tmp_path, *begun, poor, again)).name == "gate"  # the robot has the last word
    tuned = [*begun[:-1], Stage("finetune", "", {"seconds": 20.0})]
    assert drive(past(tmp_path, *tuned, poor)).name == "gate"  # from nothing there would be no robot in it
    assert drive(past(tmp_path, *begun, replace(poor, seconds=700.0))).name == "gate"  # no compute is left


def test_fine_tuning_comes_after_every_remedy_that_needs_no_robot_and_is_followed_by_training(tmp_path):
    refused = Stage("identify", "", {"refused": "worse"})
    stages, tried = [TRAIN, GATE, FAILED], ["randomize", "missing", "finetune"]
    for k, name in enumerate(tried):
        fitted = [doctor(), refused] if k else [doctor()]
        assert drive(past(tmp_path, *stages, *fitted, budget=Budget(robot=1000.0))).name == name
        stages += treated(name)
    tuned = [TRAIN, GATE, FAILED, doctor(), Stage("finetune", "", {"seconds": 30.0})]
    assert drive(past(tmp_path, *tuned)).name == "train"


def test_a_second_fit_that_leaves_most_open_asks_for_a_log_with_more_motion_once(tmp_path):
    loose = {"fitted": {"mass": [1, 0, 2, False], "drag": [1, 0, 2, False]}, "open": 2}
    first = [TRAIN, GATE, FAILED, *treated("randomize"), doctor(), Stage("identify", "", loose)]
    assert drive(past(tmp_path, *first)).name == "train"
    begun = [*first[:-2], *treated("identify", **loose), doctor(), Stage("identify", "", loose)]
    assert drive(past(tmp_path, *begun)).name == "explore"
    explored = [*begun, Stage("explore", "", {"log": "m"}, robot_seconds=10.0)]
    assert drive(past(tmp_path, *explored)).name == "identify"
    assert drive(past(tmp_path, *explored, Stage("identify", "", loose))).name == "train"
    assert drive(past(tmp_path, *begun, budget=Budget(robot=40.0))).name == "train"  # no time for it


def test_a_stage_that_is_skipped_counts_as_refused_and_is_not_in_the_journal(tmp_path):
    """Without doctor, gate and fit: what comes next is what would come if they had said nothing."""
    journal = past(tmp_path, TRAIN)
    bare = skipping(("gate", "doctor", "identify"))
    assert bare(journal).name == "robot" and len(journal.stages) == 1
    assert bare(past(tmp_path, TRAIN, FAILED)).name == "randomize"
    assert bare(past(tmp_path, TRAIN, FAILED, *treated("randomize"))).name == "missing"
    poor = replace(TRAIN, sim=Rate(10, 100))
    assert skipping(("support",))(past(tmp_path, poor)).name == "gate"
    assert skipping(("support", "gate"))(past(tmp_path, poor)).name == "robot"
    tried = [
        *treated("randomize"),
        *treated("identify", **FITTED),
        doctor(),
        Stage("identify", "", FITTED | {"open": 2}),
    ]
    begun = past(tmp_path, TRAIN, GATE, FAILED, *tried, budget=Budget(robot=99.0))
    assert drive(begun).name == "explore" and skipping(("explore",))(begun).name == "train"


def test_a_stage_that_nothing_does_without_cannot_be_skipped():
    with pytest.raises(SurefootError, match="no stage matches 'trian'"):
        skipping(("trian",))
    with pytest.raises(SurefootError, match="no stage matches 'robot'"):
        skipping(("robot",))


def test_a_stage_alone_is_done_once_and_needs_what_it_works_on(tmp_path):
    begun = past(tmp_path, TRAIN)
    driver = alone("gate", begun)
    assert driver(begun).name == "gate" and driver(past(tmp_path, TRAIN, GATE)).name == "stop"
    with pytest.raises(SurefootError, match="--stage identify: expected a stage robot before it"):
        alone("identify", begun)
    with pytest.raises(SurefootError, match="did you mean doctor"):
        alone("doktor", begun)


def test_stiction_leads_to_a_net_of_the_actuators(tmp_path):
    refused = [TRAIN, GATE, FAILED, *treated("randomize")]
    fit = Stage("identify", "", {"refused": "worse"})
    assert drive(past(tmp_path, *refused, doctor(kind="stiction", branch="physics"), fit)).name == "actuator"
    assert drive(past(tmp_path, *refused, doctor(kind="drag", branch="physics"), fit)).name == "missing"


def test_a_broken_contract_ends_it(tmp_path):
    step = drive(past(tmp_path, TRAIN, GATE, FAILED, doctor(branch="contract", kind="order")))
    assert step.name == "stop" and "contract" in step.why


def test_a_spent_budget_ends_it_and_says_which(tmp_path):
    spent = past(tmp_path, TRAIN, GATE, FAILED, budget=Budget(robot=15.0))
    assert drive(spent).name == "stop" and "7 s of robot" in drive(spent).why  # 8 s are too few to try again


@pytest.mark.parametrize(
    ("words", "budget"),
    [
        ("60 s of robot, 10 min of compute", Budget(60.0, 600.0)),
        ("2 min of robot", Budget(120.0, 600.0)),
        ("1 h of compute", Budget(60.0, 3600.0)),
    ],
)
def test_budgets_are_read(words, budget):
    assert Budget.parse(words) == budget
    assert Budget.parse(str(budget)) == budget


@pytest.mark.parametrize("words", ["", "60", "60 s", "60 s of rob", "-1 s of robot", "x s of robot", "5 days of robot"])
def test_a_budget_that_cannot_be_read_is_refused_with_an_example(words):
    with pytest.raises(SurefootError, match="--budget: found .* expected such as '60 s of robot"):
        Budget.parse(words)


def test_a_journal_goes_on_where_it_stopped_and_refuses_another_question(tmp_path):
    asked = {"task": "balance", "seed": 0}
    journal = Journal.open(tmp_path, asked, Budget()).add(TRAIN).add(GATE).add(FAILED)
    again = Journal.open(tmp_path, asked, Budget())
    assert again == journal and again.robot_seconds == 7.0 and again.stages[-1].robot == Rate(0, 2)
    with pytest.raises(SurefootError, match="another seed: 0, not 1"):
        Journal.open(tmp_path, asked | {"seed": 1}, Budget())


def test_a_training_ends_when_the_time_of_compute_is_over_and_goes_on_with_more_of_it(tmp_path):
    task, done = tasks.resolve("balance"), []
    for compute in (1e-3, 600.0):
        asked = Question(task, "balance", tmp_path, "hidden 0", Budget(1e-3, compute), episodes=2, steps=8192)
        done.append(cross(asked, HiddenRobot(task, hidden(0, task))))
    first, second = done
    assert "time of compute ended in stage train" in first.why and not first.journal.stages and first.before is None
    assert second.journal.stages[0].name == "train"
    rows = (tmp_path / "00-train" / "metrics.jsonl").read_text().splitlines()
    assert len(rows) == 4  # of 2048 steps each: the first was not done again
