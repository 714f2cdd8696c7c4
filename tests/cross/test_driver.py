"""The driver decides by what is known: cheap remedies first, and an end that says why."""

import pytest

from surefoot.cross.driver import drive
from surefoot.cross.journal import Budget, Journal, Stage
from surefoot.cross.robot import Rate
from surefoot.errors import SurefootError


def past(tmp_path, *stages, budget=Budget()):  # noqa: B008
    return Journal(tmp_path, budget, tuple(stages))


TRAIN, GATE = Stage("train", "", {"run": "r"}), Stage("gate", "")
FAILED = Stage("robot", "", {"log": "l"}, robot=Rate(3, 100), robot_seconds=15.0)


def doctor(**facts):
    return Stage("doctor", "", {"kind": "latency", "branch": "timing", "param": "", "in_range": None} | facts)


def test_a_policy_is_trained_gated_and_tried_before_anything_is_diagnosed(tmp_path):
    names = [drive(past(tmp_path, *s)).name for s in ((), (TRAIN,), (TRAIN, GATE), (TRAIN, GATE, FAILED))]
    assert names == ["train", "gate", "robot", "doctor"]


@pytest.mark.parametrize(
    ("k", "n", "step"), [(100, 100, "stop"), (90, 100, "stop"), (89, 100, "doctor"), (10, 10, "doctor")]
)
def test_success_counts_with_its_interval(tmp_path, k, n, step):
    """10 of 10 episodes have a lower bound of 0.69."""
    assert drive(past(tmp_path, TRAIN, GATE, Stage("robot", "", robot=Rate(k, n)))).name == step


def test_remedies_without_robot_time_come_first_and_none_is_tried_twice(tmp_path):
    stages, tried = [TRAIN, GATE, FAILED], []
    while True:
        step = drive(past(tmp_path, *stages, doctor()))
        if step.name == "stop":
            break
        tried.append(step.name)
        cost = 10.0 if step.name == "explore" else 0.0
        stages += [doctor(), Stage(step.name, "", {"param": "x"}, robot_seconds=cost), TRAIN, GATE, FAILED]
        assert len(tried) < 20
    assert tried[:3] == ["randomize", "identify", "identify"] and "missing" in tried
    assert tried.index("missing") < tried.index("explore") if "explore" in tried else True
    assert step.why == "every remedy was tried"


def test_a_number_outside_of_the_range_widens_it_once(tmp_path):
    cause = doctor(param="mass", value=1.4, in_range=False)
    begun = [TRAIN, GATE, FAILED, doctor(), Stage("randomize", "", {}), TRAIN, GATE, FAILED]
    assert drive(past(tmp_path, *begun, cause)).name == "widen"
    again = [*begun, cause, Stage("widen", "", {"param": "mass"}), TRAIN, GATE, FAILED]
    assert drive(past(tmp_path, *again, cause)).name == "identify"


def test_stiction_leads_to_a_net_of_the_actuators(tmp_path):
    stages = [
        TRAIN,
        GATE,
        FAILED,
        doctor(),
        Stage("randomize", ""),
        Stage("identify", ""),
        Stage("identify", ""),
        TRAIN,
        GATE,
        FAILED,
    ]
    assert drive(past(tmp_path, *stages, doctor(kind="stiction", branch="physics"))).name == "actuator"
    assert drive(past(tmp_path, *stages, doctor(kind="drag", branch="physics"))).name == "missing"


def test_a_broken_contract_ends_it(tmp_path):
    step = drive(past(tmp_path, TRAIN, GATE, FAILED, doctor(branch="contract", kind="order")))
    assert step.name == "stop" and "contract" in step.why


def test_a_spent_budget_ends_it_and_says_which(tmp_path):
    spent = past(tmp_path, TRAIN, GATE, FAILED, budget=Budget(robot=15.0))
    assert drive(spent).name == "stop" and "15 s of robot" in drive(spent).why


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
    assert again == journal and again.robot_seconds == 15.0 and again.stages[-1].robot == Rate(3, 100)
    with pytest.raises(SurefootError, match="another seed: 0, not 1"):
        Journal.open(tmp_path, asked | {"seed": 1}, Budget())
